"""A stand-in for an OpenAI-compatible embedding server that speaks real HTTP, with the faults that real ones have."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np


@dataclass
class Answer:
    """What the server sends: a status, a JSON body (or raw bytes) and headers."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


#: Looks at the request's texts and returns an answer, or None for the ordinary one.
Fault = Callable[[list[str]], Answer | None]


def vector(text: str, width: int) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return [float(value) for value in np.random.default_rng(seed).normal(size=width)]


def vectors(texts: list[str], width: int) -> Answer:
    data = [{"index": index, "embedding": vector(text, width)} for index, text in enumerate(texts)]
    # In another order than asked, as the index allows.
    return Answer(200, {"data": data[::-1]})


class EmbeddingServer:
    """Use as a context manager; `requests` holds the texts of each request so far."""

    def __init__(self, width: int = 8, fault: Fault | None = None) -> None:
        self.width = width
        self.fault = fault
        self.requests: list[list[str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.authorization: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                texts = body["input"]
                outer.requests.append(texts)
                outer.bodies.append({**body, "path": self.path})
                outer.authorization.append(self.headers.get("authorization"))
                answer = (outer.fault(texts) if outer.fault else None) or vectors(texts, outer.width)
                payload = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                self.send_header("content-length", str(len(payload)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> EmbeddingServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
