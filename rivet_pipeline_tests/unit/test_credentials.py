"""Bearer tokens: where they come from, how long they are used, and that no error tells one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rivet_pipeline.models.credentials import FixedKey, TokenCommand
from rivet_pipeline.models.protocols import ModelError

COUNTING = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
count = int(path.read_text()) + 1 if path.exists() else 1
path.write_text(str(count))
print(f"token-{count:04d}")
"""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_a_token_is_used_until_it_is_old_or_refused(tmp_path: Path) -> None:
    clock = Clock()
    command = TokenCommand(python(COUNTING, str(tmp_path / "count")), 300, clock=clock)
    assert [command.token(), command.token()] == ["token-0001"] * 2
    clock.now += 299
    assert command.token() == "token-0001"
    clock.now += 1
    assert command.token() == "token-0002"
    assert command.renew("token-0002")
    assert command.hide("Bearer token-0002 is no good") == "Bearer *** is no good"
    assert command.token() == "token-0003"
    # Somebody else was refused with the one before: the new one stays.
    assert command.renew("token-0002")
    assert command.token() == "token-0003"


def test_the_command_is_split_like_a_shells_and_no_shell_runs_it(tmp_path: Path) -> None:
    printed = TokenCommand("printf %s 'a;touch$HOME|x'", 1).token()
    assert printed == "a;touch$HOME|x"
    for broken in ("printf 'x", "", "  "):
        with pytest.raises(ValueError, match=r"."):
            TokenCommand(broken, 1)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('sec' + 'ret-1'); sys.exit('no: ' + 'sec' + 'ret-1')", "status 1: no: ***"),
        ("import sys; sys.exit(3)", "status 3: no word of why"),
        ("pass", "printed nothing"),
        ("print('sec' + 'ret-1 sec' + 'ret-2')", "no token"),
        ("print('sec' + 'ret-1'); print('sec' + 'ret-2')", "no token"),
        ("print('sec' + 'ret-1\\x00')", "no token"),
        ("import sys; sys.stdout.buffer.write(b'sec' + b'ret-\\xff')", "no token"),
        ("print('x' * 100_000)", "more than 65536 bytes"),
        ("import sys; print('x' * 100_000, file=sys.stderr)", "more than 65536 bytes"),
        ("import time; print('sec' + 'ret-1', flush=True); time.sleep(60)", "did not end in time"),
        ("import os, time; os.close(1); os.close(2); time.sleep(60)", "did not end in time"),
        ("import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])", "in time"),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_a_permanent_failure_without_the_token(code: str, words: str) -> None:
    patience = 1.0 if "in time" in words else 30.0
    with pytest.raises(ModelError) as caught:
        TokenCommand(python(code), 300, timeout_seconds=patience).token()
    assert (caught.value.cause, caught.value.name) == ("permanent", "token-command")
    assert words in caught.value.detail
    assert sys.executable in caught.value.detail
    assert "secret" not in str(caught.value)


def test_a_command_that_is_not_there_says_so() -> None:
    with pytest.raises(ModelError, match="no-such-program can not be run: No such file") as caught:
        TokenCommand("no-such-program --password hunter22", 1).token()
    assert "hunter22" not in str(caught.value)


def test_a_fixed_key() -> None:
    assert FixedKey().token() is None
    key = FixedKey("a-long-enough-key")
    assert (key.token(), key.renew("a-long-enough-key")) == ("a-long-enough-key", False)
    assert key.hide("invalid key a-long-enough-key") == "invalid key ***"
    assert FixedKey("none").hide("none of them") == "none of them"
    for bad in ("two words-secret", "secret\r\nX-Other: 1", "secr\u00e9t"):
        with pytest.raises(ModelError, match="bad-key") as caught:
            FixedKey(bad).token()
        assert "secr" not in str(caught.value)
