"""Threads with a connection each that work on one database at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from rivet_pipeline.db.pool import Connection, connect


@dataclass
class Threads:
    """Works of one test: whatever one raises stands in `errors` and sets `stop`, which ends the others."""

    url: str
    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)

    def start(self, work: Callable[[Connection], None]) -> threading.Thread:
        """Runs some work on a connection of its own."""

        def run() -> None:
            try:
                with connect(self.url) as own:
                    work(own)
            except BaseException as error:
                self.errors.append(error)
                self.stop.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread
