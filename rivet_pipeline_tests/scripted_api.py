"""A server on a real socket that answers captures as a test wishes, and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: An answer's status and body; None closes the connection without one.
Answer = tuple[int, Any] | None
STORED: Answer = (200, {"ok": True, "conversation_id": "0", "inserted": 1, "skipped": 0, "filled": 0})


@dataclass
class ScriptedApi:
    """Its address, what it answers from now on, and every body it took, in order."""

    url: str
    answer: Callable[[dict[str, Any]], Answer] = field(default=lambda _: STORED)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def contents(self) -> list[str]:
        """The texts of the messages that were sent, in order."""
        return [message.get("content", "") for body in self.bodies for message in body.get("messages", [])]


@contextmanager
def scripted_api() -> Iterator[ScriptedApi]:
    """A running server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(raw)
            api.bodies.append(body)
            api.headers.append(dict(self.headers))
            api.sizes.append(len(raw))
            answer = api.answer(body)
            if answer is None:
                self.connection.close()
                return
            status, said = answer
            text = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api = ScriptedApi(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
