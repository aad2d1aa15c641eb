"""Fixtures for every tier: one real embedded Postgres a session, one migrated database a test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, Pool, connect, open_pool

_numbers = itertools.count(1)
_TEMPLATE = "rivetos_template"


def _memory() -> str | None:
    """A folder in memory when there is a roomy one: making a database a test is three times as quick there."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 * 1024**3
    return str(memory) if roomy else None


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A running embedded server in a folder of its own, stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="rivet-pg-", dir=_memory(), ignore_cleanup_errors=True) as folder:
        # Nobody cuts this machine's power during a test, and a database a test is made and dropped.
        careless = {"fsync": "off", "full_page_writes": "off", "wal_level": "minimal", "max_wal_senders": "0"}
        # Dropping a table looks at every buffer.
        careless |= {"shared_buffers": "256MB"}
        embedded = EmbeddedServer(Path(folder) / "postgres", settings=careless)
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
