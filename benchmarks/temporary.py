"""A Postgres of a benchmark's own, with production's settings, that leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rivet_pipeline.db.embedded import EmbeddedServer


@contextmanager
def temporary_server() -> Iterator[EmbeddedServer]:
    """A started server in a temporary folder; stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "postgres")
        server.start()
        try:
            yield server
        finally:
            server.stop()
