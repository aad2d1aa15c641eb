"""Hermes' database `state.db`: tables sessions and messages. What a message becomes stands in `hermes_messages.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.lines import TOO_LONG
from rivet_pipeline.transcripts.readers.conversation import json_value, sqlite_pointer
from rivet_pipeline.transcripts.readers.hermes_messages import (
    SUMMARIES,
    HermesSession,
    Place,
    content_text,
    message_time,
)
from rivet_pipeline.transcripts.readers.shared import mapping, text_of
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Damaged, ReadItem, SessionUpdate, Skipped
from rivet_pipeline.transcripts.sqlite_source import fetch, open_sqlite, tables

#: The tables without which there is nothing to read.
NEEDED = frozenset({"sessions", "messages"})

#: A compaction keeps at most this many messages of a session's beginning; by default it is three.
_MAX_HEAD = 64


def read_database(path: Path, how: Reading) -> Iterator[ReadItem]:
    """The messages of every session in the database, in the order in which they were written."""
    with open_sqlite(path, how.max_line) as connection:
        if not tables(connection).keys() >= NEEDED:
            yield Skipped(0, "database without sessions")
            return
        # The index of sessions has no order of its own.
        sql = "SELECT id FROM sessions UNION SELECT session_id FROM messages ORDER BY 1"
        for row in connection.execute(sql).fetchall():
            yield from _session(connection, text_of(row[0]), path, how)


def _session(connection: sqlite3.Connection, native: str, path: Path, how: Reading) -> Iterator[ReadItem]:
    row = fetch(connection, "SELECT * FROM sessions WHERE id = ?", [native])
    known = dict(row) if row is not None else {}
    config = mapping(json_value(known.get("model_config")))
    settings = {
        "file": str(path),
        "cwd": known.get("cwd") or config.get("cwd"),
        "platform": known.get("source"),
        "model": known.get("model"),
        "git_branch": known.get("git_branch"),
        "parent_session_id": known.get("parent_session_id"),
        "end_reason": known.get("end_reason"),
    }
    began, _ = message_time(known.get("started_at"))
    session = HermesSession(native, how.agent, title=known.get("title"), began=began, settings=settings)
    yield SessionUpdate(session.talk.session)
    yield from session.prompt(known.get("system_prompt"))
    ids = connection.execute("SELECT id FROM messages WHERE session_id = ? ORDER BY id", [native]).fetchall()
    restated = _restated(connection, [row["id"] for row in ids]) if _was_compacted(connection, native) else set()
    for (number,) in ids:
        found = fetch(connection, "SELECT * FROM messages WHERE id = ?", [number])
        if found is None:
            yield Damaged(number, TOO_LONG)
        elif number in restated:
            yield Skipped(number, "restated after a compaction")
        else:
            if how.advance is not None:
                how.advance(len(text_of(found["content"])))
            yield from session.message(dict(found), _place(path, number))


def _place(path: Path, number: int) -> Place:
    pointer = sqlite_pointer(path, "messages", number)
    result = {key: value for key, value in pointer.items() if key != "session_sqlite_part_id"}
    return Place(number, pointer, {**result, "result_sqlite_part_id": str(number)})


def _was_compacted(connection: sqlite3.Connection, native: str) -> bool:
    sql = "SELECT 1 FROM messages WHERE session_id = ? AND (content LIKE ? OR content LIKE ?) LIMIT 1"
    try:
        return connection.execute(sql, [native, *(f"{start}%" for start in SUMMARIES)]).fetchone() is not None
    except sqlite3.DataError:
        # A row that is longer than allowed; the others are to be looked at one by one.
        return True


def _restated(connection: sqlite3.Connection, ids: list[int]) -> set[int]:
    """The rows in which a compaction said again what it kept.

    It puts every row away and writes new ones: the first few of the session, the summary, the last few. Which rows were
    put away does not tell the copies from the originals after a second compaction; what they say does.
    """
    said = [_digest(fetch(connection, "SELECT * FROM messages WHERE id = ?", [number])) for number in ids]
    found: set[int] = set()
    for place, mark in enumerate(said):
        if mark is not None:
            continue
        lengths = range(1, min(place // 2, _MAX_HEAD) + 1)
        head = max((n for n in lengths if said[place - n : place] == said[:n]), default=0)
        found.update(range(place - head, place))
        before = set(said[: place - head])
        for later in range(place + 1, len(said)):
            if said[later] is None or said[later] not in before:
                break
            found.add(later)
    return {ids[place] for place in found}


def _digest(row: sqlite3.Row | None) -> str | None:
    """What a row says, as a hash; None for a summary."""
    value: dict[str, Any] = dict(row) if row is not None else {}
    text = content_text(value.get("content"))
    if text.startswith(SUMMARIES):
        return None
    return content_event_id(value.get("role"), text, text_of(value.get("tool_calls")), value.get("tool_call_id"))
