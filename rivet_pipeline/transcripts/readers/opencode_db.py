"""OpenCode's database `opencode.db`: tables session, message and part, with what they say as JSON in `data`.

Newer versions also keep a table `session_message`; it is read for the sessions that have no other messages.
What a message becomes is decided in `opencode_parts.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import NOT_JSON, TOO_LONG
from rivet_pipeline.transcripts.readers.conversation import json_value, sqlite_pointer
from rivet_pipeline.transcripts.readers.opencode_parts import ROW_UPDATED, OpenCodeSession, Part
from rivet_pipeline.transcripts.readers.shared import mapping, present, text_of
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Damaged, Incomplete, ReadItem, SessionUpdate, Skipped
from rivet_pipeline.transcripts.sqlite_source import fetch, open_sqlite, tables

#: The tables without which there is nothing to read.
NEEDED = frozenset({"session", "message", "part"})

_ROWS, _NEWER = ("message", "part"), "session_message"

#: Columns that are read beside `data`, and as what they are added to it.
_BESIDE = {"type": "type", "time_updated": ROW_UPDATED}

_MESSAGES = "SELECT id FROM message WHERE session_id = ? ORDER BY id"
_MESSAGES_BY_TIME = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
_LOST_PARTS = """
    SELECT count(*) FROM part WHERE session_id = ? AND message_id NOT IN (SELECT id FROM message WHERE session_id = ?)
"""


def read_database(path: Path, how: Reading) -> Iterator[ReadItem]:
    """The messages of every session in the database."""
    with open_sqlite(path, how.max_line) as connection:
        found = tables(connection)
        if not found.keys() >= NEEDED:
            yield Skipped(0, "database without sessions")
            return
        database = _Database(connection, path, how, found)
        for session in database.sessions():
            yield from database.session(session)
        if database.held:
            yield Incomplete(database.rows)


class _Database:
    """Reads row by row, so that neither a long read lock nor a long list is held."""

    def __init__(self, connection: sqlite3.Connection, path: Path, how: Reading, found: dict[str, set[str]]) -> None:
        self._connection, self._path, self._how = connection, path, how
        self._messages = _MESSAGES_BY_TIME if "time_created" in found["message"] else _MESSAGES
        self._newer = _NEWER in found
        self._rows = {table: _row_query(table, found[table]) for table in (*_ROWS, _NEWER) if table in found}
        self.rows = 0
        self.held = False

    def sessions(self) -> list[str]:
        sql = "SELECT id FROM session UNION SELECT session_id FROM message"
        if self._newer:
            sql += " UNION SELECT session_id FROM session_message"
        return self._ids(sql)

    def session(self, native: str) -> Iterator[ReadItem]:
        row = fetch(self._connection, "SELECT * FROM session WHERE id = ?", [native])
        session = OpenCodeSession(
            _session(native, row), self._how.agent, self._path, given_up=self._how.given_up, shared=True
        )
        yield SessionUpdate(session.talk.session)
        messages = self._ids(self._messages, native)
        for message in messages:
            info = self._load("message", message)
            if isinstance(info, Damaged):
                yield info
                info = {}
            yield from session.message(self.rows, {**info, "id": message}, self._parts(message))
        if not messages and self._newer:
            yield from self._newer_messages(session, native)
        for _ in range(self._count(_LOST_PARTS, native, native)):
            yield Damaged(self.rows, "part without message")
        self.held = self.held or session.held

    def _parts(self, message: str) -> Iterator[Part | Damaged]:
        for part in self._ids("SELECT id FROM part WHERE message_id = ? ORDER BY id", message):
            value = self._load("part", part)
            if isinstance(value, Damaged):
                yield value
            else:
                yield Part(part, value, self.rows, sqlite_pointer(self._path, "part", part))

    def _newer_messages(self, session: OpenCodeSession, native: str) -> Iterator[ReadItem]:
        sql = "SELECT id FROM session_message WHERE session_id = ? ORDER BY time_created, id"
        for message in self._ids(sql, native):
            value = self._load("session_message", message)
            if isinstance(value, Damaged):
                yield value
                continue
            info, parts = _as_parts(message, value)
            pointer = sqlite_pointer(self._path, "session_message", message)
            yield from session.message(
                self.rows, info, [Part(text_of(part["id"]), part, self.rows, pointer) for part in parts]
            )

    def _load(self, table: str, native: str) -> dict[str, Any] | Damaged:
        self.rows += 1
        row = fetch(self._connection, self._rows[table], [native])
        if row is None:
            return Damaged(self.rows, TOO_LONG)
        if self._how.advance is not None:
            self._how.advance(len(row["data"] or ""))
        value = json_value(row["data"])
        if not isinstance(value, dict):
            return Damaged(self.rows, NOT_JSON)
        return {**value, **{key: row[name] for name, key in _BESIDE.items() if name in row.keys()}}  # noqa: SIM118

    def _ids(self, sql: str, *parameters: str) -> list[str]:
        return [row[0] for row in self._connection.execute(sql, parameters).fetchall() if row[0] is not None]

    def _count(self, sql: str, *parameters: str) -> int:
        return int(self._connection.execute(sql, parameters).fetchone()[0])


def _row_query(table: str, columns: set[str]) -> str:
    wanted = ["id", "data", *(["type"] if table == _NEWER else [])]
    names = [*wanted, *(["time_updated"] if "time_updated" in columns else [])]
    return f"SELECT {', '.join(names)} FROM {table} WHERE id = ?"  # noqa: S608


def _session(native: str, row: sqlite3.Row | None) -> dict[str, Any]:
    known = dict(row) if row is not None else {}
    return {
        "id": native,
        "projectID": known.get("project_id"),
        "parentID": known.get("parent_id"),
        "directory": known.get("directory"),
        "title": known.get("title"),
        "version": known.get("version"),
        "time": {"created": known.get("time_created")},
        "revert": json_value(known.get("revert")),
    }


def _as_parts(native: str, value: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A row of the newer table as a message and its parts."""
    kind = value["type"]
    role = "assistant" if kind in {"assistant", "shell"} else "user"
    info = present({**value, "id": native, "role": role})
    model = mapping(value.get("model"))
    info["model"] = {"modelID": model.get("id"), "providerID": model.get("providerID")}
    if kind == "assistant":
        content = [mapping(block) for block in value.get("content") or []]
        return info, [_as_part(f"{native}:{number}", block) for number, block in enumerate(content)]
    if kind == "shell":
        done = mapping(value.get("time")).get("completed")
        status = "completed" if done else "running"
        state = {"status": status, "input": {"command": value.get("command")}, "output": value.get("output")}
        return info, [{"id": native, "type": "tool", "tool": "shell", "callID": value.get("callID"), "state": state}]
    if kind == "compaction":
        return info, [{"id": native, "type": "compaction", "summary": value.get("summary")}]
    if kind in {"user", "synthetic"}:
        text = {"id": native, "type": "text", "text": text_of(value.get("text")), "synthetic": kind == "synthetic"}
        files = [mapping(file) for file in value.get("files") or []]
        named = [
            {"id": f"{native}:file:{number}", "type": "file", "mime": file.get("mime"), "url": file.get("uri"),
             "filename": file.get("name")}
            for number, file in enumerate(files)
        ]  # fmt: skip
        return info, [text, *named]
    return info, [{"id": native, "type": kind}]


def _as_part(native: str, block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") != "tool":
        return {**block, "id": native}
    state = mapping(block.get("state"))
    texts = [text_of(mapping(part).get("text")) for part in state.get("content") or []]
    error = mapping(state.get("error")).get("message") or state.get("error")
    times = {"start": mapping(block.get("time")).get("created")}
    told = {**state, "output": "\n".join(filter(None, texts)), "error": error, "time": times}
    return {"id": native, "type": "tool", "tool": block.get("name"), "callID": block.get("id"), "state": told}
