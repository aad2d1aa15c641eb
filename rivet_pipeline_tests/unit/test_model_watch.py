"""The end of a request whose time is up, upon real sockets; what it is called then is in `test_chat_client.py`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from rivet_pipeline.models.watch import Watch

MADE = "connection.connect_tcp.complete"


@dataclass
class Stream:
    """A connection as httpx tells of it."""

    made: socket.socket

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self.made if name == "socket" else None


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, on which nothing is waited for without end."""
    near, far = socket.socketpair()
    with near, far:
        for end in (near, far):
            end.settimeout(5)
        yield near, far


def test_a_connection_that_is_taken_over_to_be_encrypted_is_ended_too(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, _ = pair
    with Watch(0.01) as watch:
        watch.trace(MADE, {"return_value": Stream(near)})
        with socket.socket(fileno=near.detach()) as taken_over:
            taken_over.settimeout(5)
            assert taken_over.recv(1) == b""
    assert watch.connected


def test_what_is_made_after_the_end_is_ended_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    near, _ = pair
    with Watch(60) as watch:
        watch._end()
        watch.trace(MADE, {"return_value": Stream(near)})
        assert near.recv(1) == b""


def test_nothing_is_held_open_or_ended_afterwards(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    with Watch(60) as watch:
        watch.trace(MADE, {"return_value": Stream(near)})
    watch._end()
    near.send(b"x")
    near.close()
    assert (far.recv(1), far.recv(1)) == (b"x", b"")


def test_a_connection_that_can_not_be_watched_is_not_used(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    near.close()
    with Watch(60) as watch, pytest.raises(httpx.ConnectError):
        watch.trace(MADE, {"return_value": Stream(near)})
    assert far.recv(1) == b""
