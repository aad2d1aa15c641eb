"""Importing sessions that stand in databases, and in files beside them: each message once, whoever holds it."""

from __future__ import annotations

import json
import os
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts import sqlite_source
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.reports import ImportReport
from rivet_pipeline_tests.unit import test_cursor_db, test_hermes, test_opencode
from rivet_pipeline_tests.unit.database_files import folder_bytes, held_open, make_database

FIRST_DAY = date(2022, 11, 1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_source, "BUSY_SECONDS", 0.05)


def run(store: str, *paths: Path) -> ImportReport:
    return import_paths(store, paths, first_day=FIRST_DAY, max_line=64 * 1024 * 1024)


def rows(connection: Connection) -> list[tuple[str, str, str, str | None]]:
    found = connection.execute(
        "SELECT event_id, role, content, tool_result FROM ros_messages ORDER BY created_at, seq"
    ).fetchall()
    return [(row["event_id"], row["role"], row["content"], row["tool_result"]) for row in found]


def conversations(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute("SELECT session_key, agent, channel, title FROM ros_conversations").fetchall()


def old(path: Path) -> None:
    """Makes everything at a path look as if nobody had written it for a while."""
    for file in [path, *path.rglob("*")]:
        os.utime(file, (time.time() - 7 * 3600, time.time() - 7 * 3600))


def test_a_tree_fills_what_the_database_of_the_same_session_lacks(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    home = tmp_path / "opencode"
    test_opencode.database(home / "opencode.db", *test_opencode.TALK)
    more = test_opencode.user(3, test_opencode.text("And now?"))
    test_opencode.tree(home / "storage", *test_opencode.TALK, more)
    old(home)
    report = run(database_url, home)
    assert report.messages()["new"] == 6
    assert report.messages()["known"] == 5
    stored = rows(connection)
    assert [row[:3] for row in stored] == [
        ("prt_1_0", "user", "List the files"),
        ("prt_1_1", "system", "Called the Read tool"),
        ("prt_2_1", "assistant", "ls will do"),
        ("prt_2_2", "tool", ""),
        ("prt_2_3", "assistant", "One file."),
        ("prt_3_0", "user", "And now?"),
    ]
    assert stored[3][3] == "a.txt"
    assert conversations(connection) == [
        {"session_key": "opencode:ses_01", "agent": "rivet-glm", "channel": "opencode", "title": "A title"}
    ]
    again = run(database_url, home)
    assert again.messages()["new"] == 0
    assert again.count("unchanged") == 2


def test_a_call_that_was_running_is_filled_in_when_it_is_done(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = test_opencode.database(tmp_path / "opencode.db", test_opencode.assistant(1, test_opencode.tool("running")))
    assert [file.status for file in run(database_url, path).files] == ["incomplete"]
    assert rows(connection) == []
    old(path)
    run(database_url, path)
    assert rows(connection) == [("prt_1_0", "tool", "", None)]
    done = {**test_opencode.tool("completed", output="a.txt")}
    make_database(path, ("UPDATE part SET data = ?", [json.dumps(done)]))
    old(path)
    run(database_url, path)
    assert rows(connection) == [("prt_1_0", "tool", "", "a.txt")]


def test_a_session_in_database_lines_and_snapshot_is_stored_once(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    home = tmp_path / ".hermes"
    test_hermes.database(home / "state.db", test_hermes.TALK, title="Mine")
    (home / "sessions").mkdir()
    test_hermes.lines(home / "sessions" / f"{test_hermes.SESSION}.jsonl", test_hermes.TALK)
    test_hermes.snapshot(home / "sessions" / f"session_{test_hermes.SESSION}.json", test_hermes.TALK)
    old(home)
    report = run(database_url, home)
    assert report.count("read") == 3
    assert report.messages()["new"] == 7
    assert [row[1:] for row in rows(connection)] == [
        ("user", "Go on", None),
        ("assistant", "Look first.", None),
        ("assistant", "I look.", None),
        ("tool", "", "/app"),
        ("tool", "", "no"),
        ("assistant", "Done.", None),
        ("user", "Go on", None),
    ]
    assert [found["title"] for found in conversations(connection)] == ["Mine"]


def test_messages_of_a_running_harness_are_stored_and_its_folder_is_left_as_it_is(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = tmp_path / "chats" / "h" / "u" / "store.db"
    talk = test_cursor_db.TALK
    blobs = [test_cursor_db.blob(message) for message in talk]
    root = test_cursor_db.blob(test_cursor_db.node(*(name for name, _ in blobs)))
    meta = {"agentId": test_cursor_db.AGENT, "latestRootBlobId": root[0], "createdAt": test_cursor_db.START}
    written = [*test_cursor_db.STORE_TABLES, *test_cursor_db.store_rows([*blobs, root], meta)]
    with held_open(path, "PRAGMA journal_mode = WAL", *written):
        before = folder_bytes(path.parent)
        assert run(database_url, tmp_path).messages()["new"] == 9
        assert folder_bytes(path.parent) == before
    assert len(rows(connection)) == 9
    assert conversations(connection)[0]["title"] == "Back it up"


def test_a_locked_or_cut_database_is_reported_and_read_the_next_time(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = test_hermes.database(tmp_path / "state.db", test_hermes.TALK)
    with held_open(path, "BEGIN EXCLUSIVE"):
        (locked,) = run(database_url, path).files
    assert (locked.status, locked.problem) == (
        "unreadable",
        "the harness has locked the SQLite database; it is read the next time",
    )
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    (cut,) = run(database_url, path).files
    assert (cut.status, cut.problem) == ("unreadable", "the SQLite database is cut off: it is shorter than it says")
    assert rows(connection) == []
    path.write_bytes(data)
    assert run(database_url, path).messages()["new"] == 7
