"""Ends a request when its time is up, wherever it is. What is asked, and what a failure is called, is `service.py`'s.

A client's timeouts bound each wait for the network. A service that sends a byte now and then keeps every one of them
and never answers; the whole is bounded by shutting its connection down. Before there is a connection nothing can be
shut down: each address of a host that does not answer may take the client's time for connecting.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self

import httpx

#: What httpx tells of a connection that has been made, at the end of the event's name; encryption begins upon it.
_MADE = "connect_tcp.complete"


class Watch:
    """Shuts down the connections of one request after so many seconds. `with` it, and pass `trace` to the request."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        # Descriptors of our own: the client closes its own at any time, and the system gives their numbers to others.
        self._sockets: list[socket.socket] = []
        self._ended = False
        #: Whether there has been a connection.
        self.connected = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._timer.cancel()
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()

    def trace(self, event: str, told: dict[str, Any]) -> None:
        """The extension `trace` of httpx: hears of each connection of the request.

        Raises `httpx.ConnectError` when there is no descriptor left to watch it by.
        """
        if not event.endswith(_MADE):
            return
        made = told["return_value"].get_extra_info("socket")
        if not isinstance(made, socket.socket):
            return
        self.connected = True
        with self._lock:
            try:
                self._sockets.append(made.dup())
            except OSError as error:
                made.close()
                raise httpx.ConnectError(str(error)) from error
            if self._ended:
                self._shut()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            self._shut()

    def _shut(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
