"""Ends a request when its time is up, wherever it is. What is asked, and what a failure is called, is `service.py`'s.

A client's timeouts bound each wait for the network. A service that sends a byte now and then keeps every one of them
and never answers; the whole is bounded by shutting its connection down.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self

#: What httpx tells of a connection that has been made, at the end of the event's name.
_MADE = ("connect_tcp.complete", "start_tls.complete")


class Watch:
    """Shuts down the connections of one request after so many seconds. `with` it, and pass `trace` to the request."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._ended = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, told: dict[str, Any]) -> None:
        """The extension `trace` of httpx: hears of each connection of the request."""
        if not event.endswith(_MADE):
            return
        made = told["return_value"].get_extra_info("socket")
        if isinstance(made, socket.socket):
            with self._lock:
                self._sockets.append(made)
                ended = self._ended
            if ended:
                _shut(made)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            made = list(self._sockets)
        for one in made:
            _shut(one)


def _shut(connection: socket.socket) -> None:
    # Not the encrypted connection's own `shutdown`, which would pull the encryption from under whoever reads.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
