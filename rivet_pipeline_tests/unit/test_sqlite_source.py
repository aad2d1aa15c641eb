"""Opening other programs' databases without leaving a trace."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from rivet_pipeline.transcripts.sqlite_source import is_sqlite, open_sqlite, sqlite_state, tables


def wal_database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("CREATE TABLE part (id TEXT, data TEXT)")
    connection.execute("INSERT INTO part VALUES ('a', 'one')")
    return connection


def rows(path: Path) -> list[str]:
    with open_sqlite(path) as connection:
        return [row["data"] for row in connection.execute("SELECT data FROM part ORDER BY id")]


def files(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_rows_that_stand_only_in_the_log_of_an_open_writer_are_seen(tmp_path: Path) -> None:
    writer = wal_database(tmp_path / "x.db")
    assert rows(tmp_path / "x.db") == ["one"]
    before = sqlite_state(tmp_path / "x.db")
    writer.execute("INSERT INTO part VALUES ('b', 'two')")
    assert rows(tmp_path / "x.db") == ["one", "two"]
    assert sqlite_state(tmp_path / "x.db") != before
    writer.close()


def test_a_closed_database_leaves_and_gets_nothing_beside_it(tmp_path: Path) -> None:
    wal_database(tmp_path / "x.db").close()
    before = files(tmp_path)
    assert rows(tmp_path / "x.db") == ["one"]
    assert files(tmp_path) == before


def test_a_log_without_its_index_is_read_from_a_copy(tmp_path: Path) -> None:
    writer = wal_database(tmp_path / "x.db")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("x.db", "x.db-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    writer.close()
    copy.chmod(0o500)
    try:
        assert rows(copy / "x.db") == ["one"]
    finally:
        copy.chmod(0o700)


def test_texts_that_are_no_utf_8_are_read(tmp_path: Path) -> None:
    writer = wal_database(tmp_path / "x.db")
    writer.execute("INSERT INTO part VALUES ('b', CAST(x'61ff62' AS TEXT))")
    writer.close()
    assert rows(tmp_path / "x.db") == ["one", "a\ufffdb"]


@pytest.mark.parametrize("share", [0, 0.02, 0.3, 0.6, 0.99])
def test_a_cut_database_is_not_read(tmp_path: Path, share: float) -> None:
    writer = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    writer.execute("CREATE TABLE part (id TEXT, data TEXT)")
    writer.executemany("INSERT INTO part VALUES (?, ?)", [(f"{n:04}", f"text {n} " * 20) for n in range(500)])
    writer.close()
    data = (tmp_path / "x.db").read_bytes()
    (tmp_path / "x.db").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(OSError, match="SQLite"):
        rows(tmp_path / "x.db")


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database at all")
    assert not is_sqlite((tmp_path / "x.db").read_bytes())
    with pytest.raises(OSError, match="SQLite"), open_sqlite(tmp_path / "x.db"):
        pass


def test_tables_and_their_columns_are_listed(tmp_path: Path) -> None:
    wal_database(tmp_path / "x.db").close()
    with open_sqlite(tmp_path / "x.db") as connection:
        assert tables(connection) == {"part": {"id", "data"}}
