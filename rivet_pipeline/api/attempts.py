"""How often one address may guess the token. Kept in memory: a restart forgets, and there is nothing to clean up."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rivet_pipeline.api.problems import Refusal

#: So many different wrong tokens one address may send at once, and after so many seconds one more.
MOST_GUESSES = 10
SECONDS_A_GUESS = 6.0

#: So many addresses are told apart.
_MOST_ADDRESSES = 10_000

#: So many wrong tokens of one address are known again.
_MOST_REMEMBERED = 100


@dataclass(slots=True)
class _Address:
    """The guesses that are left, as of `seen`, and the wrong tokens that were counted, as digests."""

    left: float
    seen: float
    counted: set[bytes] = field(default_factory=set)


class Attempts:
    """Compares what is sent with the token, and refuses with 429 to compare once an address has guessed too often.

    The same wrong token counts once: a program that is set up wrongly does not lock out the others of its machine.
    While an address is refused, its right token is refused, too; else guessing would go on.
    """

    def __init__(self, token: bytes | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._clock = clock
        self._secret = secrets.token_bytes(16)
        self._addresses: dict[str, _Address] = {}

    def admits(self, sent: bytes, client: str) -> bool:
        """Whether this is the token. Raises `Refusal` (429) when the address has guessed too often."""
        if self._token is None:
            return True
        address = self._addresses.get(network_of(client))
        if address is not None:
            self._refill(address)
            if address.left < 1:
                self._refuse(address)
        if hmac.compare_digest(sent, self._token):
            return True
        self._count(network_of(client), sent)
        return False

    def _refill(self, address: _Address) -> None:
        now = self._clock()
        address.left = min(MOST_GUESSES, address.left + (now - address.seen) / SECONDS_A_GUESS)
        address.seen = now
        if address.left == MOST_GUESSES:
            address.counted.clear()

    def _refuse(self, address: _Address) -> None:
        wait = max(1, math.ceil((1 - address.left) * SECONDS_A_GUESS))
        raise Refusal(
            429,
            f"Too many wrong tokens were sent from your address; try again in {wait} s.",
            {"Retry-After": str(wait)},
        )

    def _count(self, network: str, sent: bytes) -> None:
        if network not in self._addresses:
            if len(self._addresses) >= _MOST_ADDRESSES:
                self._addresses.clear()
            self._addresses[network] = _Address(MOST_GUESSES, self._clock())
        address = self._addresses[network]
        digest = hmac.digest(self._secret, sent, hashlib.sha256)
        if digest not in address.counted:
            if len(address.counted) >= _MOST_REMEMBERED:
                address.counted.clear()
            address.counted.add(digest)
            address.left -= 1


def network_of(client: str) -> str:
    """The address whose guesses count together: of IPv6 its first 64 bits, which one machine may choose behind."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
