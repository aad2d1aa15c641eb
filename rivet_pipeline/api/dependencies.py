"""What routes are given: the process's pool, its query embedder and its settings. Opened once, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import Depends, Request

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.settings import Settings

#: How long, in seconds, a request waits for a free connection before it is answered with 503.
CONNECTION_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class Resources:
    """What one API process holds open."""

    settings: Settings
    pool: Pool

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which named windows are cut."""
        return ZoneInfo(self.settings.timezone)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the pool. Raises `psycopg_pool.PoolTimeout` when none is to be had in time."""
        with self.pool.connection(timeout=CONNECTION_WAIT) as connection:
            yield connection


def _resources(request: Request) -> Resources:
    resources = request.app.state.resources
    assert isinstance(resources, Resources)
    return resources


FromApp = Annotated[Resources, Depends(_resources)]
