"""Asking the API for the search benchmarks: a query with its filters, one open connection, and times as percentiles."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

import numpy as np

TOP = 10

Figures = dict[str, Any]

One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Asked:
    """One query with its filters, as they go into the address and into SQL."""

    query: str
    agent: str | None = None
    since: datetime | None = None
    role: str | None = None
    tag: str | None = None
    conversation: str | None = None

    def path(self, mode: str) -> str:
        """The address of the search."""
        values = {
            "q": self.query,
            "mode": mode,
            "limit": str(TOP),
            "agent": self.agent,
            "since": self.since.isoformat() if self.since else None,
            "role": self.role,
            "tag": self.tag,
            "conversation_id": self.conversation,
        }
        return "/api/memory/search?" + urlencode({name: value for name, value in values.items() if value})


def percentiles(times: Sequence[float]) -> Figures:
    """Milliseconds, rounded."""
    return {f"p{share}": round(float(np.percentile(times, share)), 1) for share in (50, 95, 99)}


def timed(run: Callable[[One], object], queries: Sequence[One], rounds: int) -> list[float]:
    """Milliseconds of each query, every round by itself, after one that is not counted."""
    times = []
    for number in range(rounds + 1):
        for asked in queries:
            begun = time.perf_counter()
            run(asked)
            if number:
                times.append(1000 * (time.perf_counter() - begun))
    return times


def getter(port: int) -> Callable[[str], Any]:
    """Asks the API for an address, over one connection that stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def run(path: str) -> Any:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {body[:300]!r}")
        return json.loads(body)

    return run


def searcher(port: int, mode: str) -> Callable[[Asked], Any]:
    """Searches in a mode, over one connection that stays open."""
    get = getter(port)
    return lambda asked: get(asked.path(mode))
