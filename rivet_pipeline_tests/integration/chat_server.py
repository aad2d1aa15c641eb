"""A stand-in chat service over a real socket: it answers as a script says and keeps what it was asked."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any

#: A sound summary of anything: without identifiers there is none that its sources could lack.
GOOD = "**Deployment**\n- opus/user: the service was deployed and the users were told about it."


@dataclass(frozen=True)
class Reply:
    """One scripted answer. A `bytes` body is sent as it is.

    `hang_up` closes the connection without an answer, `reset_after` resets it behind so many bytes of the body, `drip`
    sends one byte of the body at a time with so many seconds between. `wire` is sent instead of all that, a part each
    twentieth of a second, and then over again.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False
    reset_after: int | None = None
    drip: float = 0.0
    wire: tuple[bytes, ...] = ()


def says(text: str | None, *, finish: str = "stop", **message: Any) -> Reply:
    return Reply(
        {
            "model": "stand-in",
            "choices": [
                {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
            ],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7},
        }
    )


Script = Callable[[dict[str, Any]], Reply]


class ChatServer:
    """Runs while its block does. `script` decides each answer; `asked` and `headers` keep the requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        self.url = ""


def _repeat(stream: BufferedIOBase, wire: tuple[bytes, ...]) -> None:
    # Long enough for whoever waits without end to be noticed, and not for ever.
    with contextlib.suppress(OSError):
        for part in itertools.islice(itertools.cycle(wire), 400):
            stream.write(part)
            time.sleep(0.05)


@contextmanager
def chat_server(script: Script, *, path: str = "/v1/chat/completions") -> Iterator[ChatServer]:
    state = ChatServer(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            request = json.loads(raw)
            state.raw.append(raw)
            state.asked.append(request)
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            reply = state.script(request) if self.path == path else Reply({"error": "path"}, 404)
            if reply.hang_up or reply.wire:
                self.close_connection = True
                _repeat(self.wfile, reply.wire)
                return
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self._send(reply, body)
            except OSError:
                # The client has heard enough.
                self.close_connection = True

        def _send(self, reply: Reply, body: bytes) -> None:
            if reply.reset_after is not None:
                self.wfile.write(body[: reply.reset_after])
                self.wfile.flush()
                # Closed with a reset instead of an orderly end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            elif reply.drip:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(reply.drip)
            else:
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
