"""Fixtures for every tier: one real embedded Postgres a session, one migrated database a test."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, Pool, connect, open_pool

_numbers = itertools.count(1)
_TEMPLATE = "rivetos_template"


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A running embedded server in a folder of its own, stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="rivet-pg-", ignore_cleanup_errors=True) as folder:
        embedded = EmbeddedServer(Path(folder) / "postgres")
        embedded.start()
        try:
            with connect(embedded.url("postgres")) as connection:
                connection.execute(f"CREATE DATABASE {_TEMPLATE}")
            with connect(embedded.url(_TEMPLATE)) as connection:
                apply_migrations(connection)
            yield embedded
        finally:
            embedded.stop()


@pytest.fixture
def database_url(server: EmbeddedServer) -> Iterator[str]:
    """The address of a fresh, migrated database."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with connect(server.url("postgres")) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
    yield server.url(name)
    with connect(server.url("postgres")) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """One connection to the fresh database."""
    with connect(database_url) as opened:
        yield opened


@pytest.fixture
def pool(database_url: str) -> Iterator[Pool]:
    """A small pool on the fresh database."""
    with open_pool(database_url, max_size=8) as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real transcripts and benchmark questions, which is not part of the project."""
    value = os.environ.get("RIVET_SHARED_DATA")
    if not value or not Path(value).is_dir():
        pytest.skip("RIVET_SHARED_DATA is not set to a folder of sample transcripts")
    return Path(value)
