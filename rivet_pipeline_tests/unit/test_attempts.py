"""How often the token may be guessed, against a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rivet_pipeline.api.attempts import MOST_GUESSES, SECONDS_A_GUESS, Attempts, network_of
from rivet_pipeline.api.problems import Refusal

TOKEN = b"a-long-random-text"
HERE, THERE = "192.168.1.7", "192.168.1.8"


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> Attempts:
    return Attempts(TOKEN, clock=clock)


def guess_all(attempts: Attempts, client: str = HERE) -> None:
    for number in range(MOST_GUESSES):
        assert not attempts.admits(f"guess {number}".encode(), client)


def refused(attempts: Attempts, sent: bytes, client: str = HERE) -> int:
    """The seconds that the refusal names."""
    with pytest.raises(Refusal) as caught:
        attempts.admits(sent, client)
    assert caught.value.status_code == 429
    return int((caught.value.headers or {})["Retry-After"])


def test_who_has_guessed_too_often_is_refused_even_with_the_token(attempts: Attempts) -> None:
    assert attempts.admits(TOKEN, HERE)
    guess_all(attempts)
    assert refused(attempts, b"one more") == SECONDS_A_GUESS
    assert refused(attempts, TOKEN) == SECONDS_A_GUESS
    assert attempts.admits(TOKEN, THERE)


def test_it_heals_by_itself_and_being_refused_does_not_prolong_it(attempts: Attempts, clock: Clock) -> None:
    guess_all(attempts)
    for _ in range(100):
        refused(attempts, b"again and again")
    clock.now += SECONDS_A_GUESS - 1
    assert refused(attempts, TOKEN) == 1
    clock.now += 1
    assert attempts.admits(TOKEN, HERE)
    assert not attempts.admits(b"a fresh guess", HERE)
    refused(attempts, TOKEN)
    clock.now += MOST_GUESSES * SECONDS_A_GUESS * 5
    guess_all(attempts)
    refused(attempts, TOKEN)


def test_one_wrong_token_again_and_again_locks_nobody_out(attempts: Attempts) -> None:
    for _ in range(50 * MOST_GUESSES):
        assert not attempts.admits(b"that of last year", HERE)
    assert attempts.admits(TOKEN, HERE)


def test_the_right_token_does_not_bring_guesses_back(attempts: Attempts) -> None:
    for number in range(MOST_GUESSES):
        assert attempts.admits(TOKEN, HERE)
        assert not attempts.admits(str(number).encode(), HERE)
    refused(attempts, TOKEN)


def test_what_is_remembered_has_an_end(clock: Clock) -> None:
    attempts = Attempts(TOKEN, clock=clock)
    for number in range(1000):
        clock.now += SECONDS_A_GUESS
        assert not attempts.admits(str(number).encode(), HERE)
    for number in range(20_000):
        attempts.admits(b"wrong", f"10.0.{number // 250}.{number % 250}")
    assert len(attempts._addresses) <= 10_000
    assert all(len(address.counted) <= 100 for address in attempts._addresses.values())


@pytest.mark.parametrize(
    ("client", "network"),
    [
        ("192.168.1.7", "192.168.1.7"),
        ("::ffff:192.168.1.7", "192.168.1.7"),
        ("2001:db8:0:1:aaaa::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:bbbb::2", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_the_addresses_of_one_machine_count_together(client: str, network: str) -> None:
    assert network_of(client) == network


def test_without_a_token_everybody_is_admitted() -> None:
    assert Attempts(None).admits(b"whatever", HERE)
