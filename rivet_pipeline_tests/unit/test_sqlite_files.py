"""A database is read as it was committed, whoever has it open, and nothing of it or beside it is changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rivet_pipeline.transcripts import sqlite_source
from rivet_pipeline.transcripts.sqlite_source import declared_tables, fetch, open_sqlite, sqlite_state, tables
from rivet_pipeline_tests.unit.database_files import folder_bytes, held_open, make_database

CREATE = "CREATE TABLE said (words TEXT)"
WAL = "PRAGMA journal_mode = WAL"


def insert(words: str) -> tuple[str, list[str]]:
    return ("INSERT INTO said VALUES (?)", [words])


def words(path: Path) -> list[str]:
    with open_sqlite(path) as connection:
        return [row["words"] for row in connection.execute("SELECT words FROM said ORDER BY rowid")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_source, "BUSY_SECONDS", 0.05)


def test_what_stands_only_in_the_log_of_an_open_writer_is_seen(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", WAL, CREATE, insert("old"))
    with held_open(path, "PRAGMA wal_autocheckpoint = 0", insert("new")):
        assert (tmp_path / "a.db-wal").stat().st_size > 0
        before = folder_bytes(tmp_path)
        assert words(path) == ["old", "new"]
        assert folder_bytes(tmp_path) == before


def test_a_database_whose_tables_stand_only_in_the_log_is_read(tmp_path: Path) -> None:
    with held_open(tmp_path / "a.db", WAL, CREATE, insert("first")):
        assert declared_tables((tmp_path / "a.db").read_bytes()) == {}
        assert words(tmp_path / "a.db") == ["first"]


@pytest.mark.parametrize("lost", [[], ["-shm"]])
def test_the_log_of_a_killed_writer_is_read_and_nothing_is_laid_beside_it(tmp_path: Path, lost: list[str]) -> None:
    path = tmp_path / "a.db"
    with held_open(path, WAL, CREATE, insert("committed"), "BEGIN", insert("not"), killed=True):
        pass
    for ending in lost:
        (tmp_path / f"a.db{ending}").unlink()
    before = folder_bytes(tmp_path)
    assert words(path) == ["committed"]
    assert folder_bytes(tmp_path) == before


def test_an_empty_log_that_was_left_behind_is_no_hindrance(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", WAL, CREATE, insert("kept"))
    (tmp_path / "a.db-wal").touch()
    before = folder_bytes(tmp_path)
    assert words(path) == ["kept"]
    assert folder_bytes(tmp_path) == before


def test_a_closed_database_in_a_folder_that_may_not_be_written_is_read(tmp_path: Path) -> None:
    path = make_database(tmp_path / "store" / "a.db", WAL, CREATE, insert("kept"))
    assert [entry.name for entry in path.parent.iterdir()] == ["a.db"]
    before = folder_bytes(path.parent)
    path.parent.chmod(0o555)
    try:
        assert words(path) == ["kept"]
        assert folder_bytes(path.parent) == before
    finally:
        path.parent.chmod(0o755)


@pytest.mark.parametrize("mode", [["PRAGMA locking_mode = EXCLUSIVE", WAL], []])
def test_a_database_locked_by_its_harness_is_refused_and_read_later(tmp_path: Path, mode: list[str]) -> None:
    path = make_database(tmp_path / "a.db", CREATE, insert("one"))
    with held_open(path, *mode, "BEGIN EXCLUSIVE", insert("two")):
        before = folder_bytes(tmp_path)
        with pytest.raises(OSError, match="the harness has locked the SQLite database; it is read the next time"):
            words(path)
        assert folder_bytes(tmp_path) == before
    assert words(path) == ["one"]


def test_what_a_killed_writer_did_not_commit_is_not_read(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE, *(insert(f"{number} " * 500) for number in range(40)))
    spilling = ["PRAGMA cache_size = 2", "BEGIN", "UPDATE said SET words = upper('taken back ') || words"]
    with held_open(path, *spilling, killed=True):
        pass
    assert (tmp_path / "a.db-journal").stat().st_size > 0
    assert b"TAKEN BACK" in path.read_bytes()
    before = folder_bytes(tmp_path)
    assert words(path) == [f"{number} " * 500 for number in range(40)]
    assert folder_bytes(tmp_path) == before


def test_a_database_cut_anywhere_is_refused_with_a_clear_word(tmp_path: Path) -> None:
    whole = make_database(tmp_path / "whole.db", CREATE, *(insert(f"{number} " * 300) for number in range(30)))
    data = whole.read_bytes()
    path = tmp_path / "a.db"
    places = {0, 15, 16, 99, 100, 511, *range(1000, len(data), 1777), *range(0, len(data), 4096), len(data) - 1}
    for place in sorted(places):
        path.write_bytes(data[:place])
        with pytest.raises(OSError, match="SQLite database"):
            words(path)
    path.write_bytes(data)
    assert words(path) == words(whole)


def test_a_log_cut_anywhere_gives_what_was_committed_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with held_open(path, WAL, CREATE, insert("one"), insert("two"), killed=True):
        pass
    log, index = tmp_path / "a.db-wal", tmp_path / "a.db-shm"
    data = log.read_bytes()
    index.unlink()
    seen = []
    for place in range(len(data), 0, -1000):
        log.write_bytes(data[:place])
        with open_sqlite(path) as connection:
            found = tables(connection)
            rows = connection.execute("SELECT words FROM said").fetchall() if found else []
        seen.append([row["words"] for row in rows])
    assert seen[0] == ["one", "two"]
    assert all(seen[0][: len(rows)] == rows for rows in seen)
    assert [] in seen


def test_the_state_of_a_database_changes_with_its_log(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", WAL, CREATE)
    before = sqlite_state(path)
    with held_open(path, insert("new")):
        assert sqlite_state(path) != before
    with pytest.raises(FileNotFoundError):
        sqlite_state(tmp_path / "missing.db")


def test_a_row_that_is_too_long_is_not_fetched(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE, insert("x" * 5000), insert("short"))
    with open_sqlite(path, 4000) as connection:
        found = [fetch(connection, "SELECT words FROM said WHERE rowid = ?", [number]) for number in (1, 2, 3)]
    assert [row and row["words"] for row in found] == [None, "short", None]


def test_damage_that_turns_up_while_reading_is_an_os_error(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE, *(insert(f"{number} " * 300) for number in range(30)))
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(OSError, match="not a sound SQLite database"):
        words(path)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE, "INSERT INTO said VALUES (CAST(x'61ff62' AS TEXT))")
    assert words(path) == ["a\ufffdb"]


def test_other_errors_than_those_of_the_database_pass(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE)
    with pytest.raises(KeyError), open_sqlite(path):
        raise KeyError("mine")
    with pytest.raises(OSError, match="no such table"), open_sqlite(path) as connection:
        connection.execute("SELECT * FROM absent")


def test_declared_tables_are_seen_in_the_first_page(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE, 'CREATE TABLE IF NOT EXISTS "other" (a INT, b TEXT)')
    found = declared_tables(path.read_bytes())
    assert found.keys() == {"said", "other"}
    assert "words TEXT" in found["said"]
    assert declared_tables(b"CREATE TABLE said (words TEXT)") == {}


def test_no_connection_is_left_open(tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.db", CREATE)
    with open_sqlite(path) as connection:
        pass
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")
