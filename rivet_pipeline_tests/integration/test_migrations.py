"""Migrations apply once, in order, under a lock, and refuse what they should."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations, read_migrations
from rivet_pipeline.db.pool import connect
from rivet_pipeline.errors import StoreUnavailableError


def test_a_second_run_applies_nothing(database_url: str) -> None:
    with connect(database_url) as connection:
        assert apply_migrations(connection) == []


def test_several_processes_may_start_at_once(server: EmbeddedServer) -> None:
    with connect(server.url("postgres")) as connection:
        connection.execute("CREATE DATABASE migrated_at_once")
    applied: list[list[str]] = []

    def start() -> None:
        with connect(server.url("migrated_at_once")) as connection:
            applied.append(apply_migrations(connection))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, applied)) == [0, 0, 0, len(read_migrations())]


def test_an_edited_migration_is_refused(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "0001_analyser.sql").write_text("SELECT 1")
    with connect(database_url) as connection:
        connection.execute("DELETE FROM ros_migrations WHERE name <> '0001_analyser'")
        with pytest.raises(StoreUnavailableError, match="0001_analyser was edited"):
            apply_migrations(connection, tmp_path)


def test_a_database_from_a_newer_version_is_refused(database_url: str) -> None:
    with connect(database_url) as connection:
        connection.execute("INSERT INTO ros_migrations (name, checksum) VALUES ('9999_later', 'x')")
        with pytest.raises(StoreUnavailableError, match="9999_later"):
            apply_migrations(connection)


def test_a_failing_migration_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    for migration in read_migrations():
        (tmp_path / f"{migration.name}.sql").write_text(migration.text)
    (tmp_path / "9000_broken.sql").write_text("CREATE TABLE half (id int); SELECT 1/0;")
    with connect(database_url) as connection:
        with pytest.raises(StoreUnavailableError, match="9000_broken failed"):
            apply_migrations(connection, tmp_path)
        assert connection.execute("SELECT to_regclass('half') AS t").fetchone() == {"t": None}


def test_unreachable_and_misspelt_addresses_say_what_to_do() -> None:
    with pytest.raises(StoreUnavailableError, match="RIVETOS_PG_URL"):
        connect("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(StoreUnavailableError, match="RIVETOS_PG_URL"):
        connect("not an address")
