"""Locks by which workers keep out of each other's way. What is worked on, and in which order, is said elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import Stage


@contextmanager
def try_lock(connection: Connection, stage: Stage, item: UUID) -> Iterator[bool]:
    """Whether this database session alone works on the stage's item until the end of the block; never waits."""
    key = [f"ros_{stage}", str(item)]
    row = connection.execute("SELECT pg_try_advisory_lock(hashtext(%s), hashtext(%s)) AS mine", key).fetchone()
    mine = row is not None and bool(row["mine"])
    try:
        yield mine
    finally:
        if mine and not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(hashtext(%s), hashtext(%s))", key)
