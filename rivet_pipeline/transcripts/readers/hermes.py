"""Hermes' sessions: `~/.hermes/sessions/*.jsonl` and `session_*.json`, `~/.hermes/state.db`, and its exports.

Which of these a file is, and how it is walked, is decided here; what a message becomes in `hermes_messages.py` and
`hermes_exports.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.documents import Element, Member, read_document
from rivet_pipeline.transcripts.lines import Line, open_stream, without_compression
from rivet_pipeline.transcripts.readers.hermes_db import NEEDED, read_database
from rivet_pipeline.transcripts.readers.hermes_exports import EventStream, archived, step, step_time
from rivet_pipeline.transcripts.readers.hermes_messages import HARNESS, HermesSession, Place, message_time
from rivet_pipeline.transcripts.readers.shared import (
    HOST,
    SHAPE_ERRORS,
    LineReader,
    Transcript,
    file_state,
    line_pointer,
    mapping,
    text_of,
)
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head, Reading, SourceState
from rivet_pipeline.transcripts.records import Damaged, Incomplete, ReadItem, SessionUpdate
from rivet_pipeline.transcripts.sqlite_source import declared_tables, is_sqlite, sqlite_state

AGENT = "rivet-hermes"

#: The first line holds the schemas of all tools, 40 KB and more.
_META = re.compile(r'\ufeff?\s*\{\s*"role"\s*:\s*"session_meta"')

#: Columns that no other harness' tables of these names have.
_OWN_COLUMNS = ("tool_call_id", "finish_reason", "timestamp")


class HermesLinesReader(LineReader):
    """Reads Hermes' JSON-lines files: its transcripts, and streams of telemetry events (ATOF)."""

    harness = HARNESS
    agent = AGENT

    def sniff(self, head: Head) -> bool:
        """Whether the file is Hermes', judged by its beginning."""
        if _META.match(head.text):
            return True
        return any(_is_meta(record) or _is_event(record) for record in head.records)

    def start(self, path: Path, agent: str) -> Transcript:
        """The state with which a file is read."""
        return _Lines(path, agent)


def _has_database(path: Path) -> bool:
    """Whether the session's title stands in the database beside the folder of sessions, as only it has titles."""
    return path.parent.name == "sessions" and (path.parent.parent / "state.db").exists()


def _is_meta(record: dict[str, Any]) -> bool:
    return record.get("role") == "session_meta" and not record.keys().isdisjoint({"tools", "platform", "model"})


def _is_event(record: dict[str, Any]) -> bool:
    platform = mapping(record.get("metadata")).get("platform")
    return "atof_version" in record and (platform == HARNESS or "hermes" in text_of(record.get("name")))


class _Lines:
    """The state of one reading of a JSON-lines file."""

    def __init__(self, path: Path, agent: str) -> None:
        self._path, self._agent = path, agent
        self._session: HermesSession | None = None
        self._events = EventStream(path, agent)

    def take(self, line: Line) -> Iterable[ReadItem]:
        """The rows of one line."""
        if "atof_version" in line.value:
            return self._events.take(line)
        if self._session is None:
            native = line.value.get("session_id") or without_compression(self._path).stem
            settings = {"file": str(self._path), "cwd": line.value.get("cwd")}
            self._session = HermesSession(
                text_of(native), self._agent, settings=settings, title_elsewhere=_has_database(self._path)
            )
        result = {
            "session_jsonl_path": str(self._path),
            "session_host": HOST,
            "result_jsonl_line": line.number - 1,
        }
        place = Place(line.number, line_pointer(self._path, line.number), result)
        return self._session.message(line.value, place)

    def finish(self, *, abandoned: bool) -> list[ReadItem]:
        """Nothing is held back."""
        return []

    def waits(self) -> bool:
        """Nothing is held back."""
        return False


class HermesReader:
    """Reads Hermes' database, its snapshots of sessions, and its exports in one JSON document."""

    harness = HARNESS
    agent = AGENT
    suffixes = frozenset({".db", ".json"})
    follows = False

    def sniff(self, head: Head) -> bool:
        """Whether the file is Hermes', judged by its name and its beginning."""
        return _is_database(head) if head.path.suffix == ".db" else _form(head.members) is not None

    def state(self, path: Path) -> SourceState:
        """The state of the database with its log, or of the document."""
        return sqlite_state(path) if without_compression(path).suffix == ".db" else file_state(path)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The messages in their order. Raises `OSError` when the file can not be read at all."""
        if without_compression(path).suffix == ".db":
            yield from read_database(path, how)
        else:
            yield from _Document(path, how).items()


def _is_database(head: Head) -> bool:
    found = declared_tables(head.data)
    if found.keys() >= NEEDED:
        return all(column in found["messages"] for column in _OWN_COLUMNS) and "started_at" in found["sessions"]
    # While its first messages stand in the log alone, the file itself declares nothing yet.
    places = {head.path.parent.name, head.path.parent.parent.parent.name}
    return is_sqlite(head.data) and not found and head.path.name == "state.db" and ".hermes" in places


def _form(members: dict[str, Any]) -> str | None:
    """Which of its JSON files this is: "snapshot", "archive" or "trajectory"."""
    if not isinstance(members.get("session_id"), str):
        return None
    if text_of(members.get("schema_version")).startswith("ATIF-"):
        return "trajectory" if _is_own_agent(mapping(members.get("agent"))) else None
    if text_of(members.get("producer")).startswith("hermes/"):
        return "archive"
    return "snapshot" if "session_start" in members and not members.keys().isdisjoint({"platform", "model"}) else None


def _is_own_agent(agent: dict[str, Any]) -> bool:
    """Whether a trajectory is of this harness; in one that was blackened the name is no help."""
    name = text_of(agent.get("name")).lower()
    return "hermes" in name or name == "<redacted>"


_Take = Callable[[HermesSession, dict[str, Any], Place], Iterable[ReadItem]]


class _Document:
    """The state of one reading of a JSON document."""

    def __init__(self, path: Path, how: Reading) -> None:
        self._path, self._how = path, how
        with open_stream(path) as stream:
            data = stream.read(HEAD_BYTES)
        # What names the session stands before the messages, or the file would not have been recognised.
        self._members = Head(path, data, whole=len(data) < HEAD_BYTES).members
        self._takes: dict[str, _Take] = {
            "messages": archived if _form(self._members) == "archive" else lambda *row: row[0].message(*row[1:]),
            "steps": step,
        }

    def items(self) -> Iterator[ReadItem]:
        """What the document comes to."""
        if not isinstance(self._members.get("session_id"), str):
            yield Damaged(1, "document without session id")
            return
        session = self._open(self._members)
        yield SessionUpdate(session.talk.session)
        arrays = (*self._takes, "subagent_trajectories")
        with open_stream(self._path) as stream:
            for item in read_document(stream, arrays=arrays, max_value=self._how.max_line, advance=self._how.advance):
                yield from self._item(session, item)

    def _item(self, session: HermesSession, item: Member | Element | Damaged | Incomplete) -> Iterator[ReadItem]:
        if isinstance(item, Damaged | Incomplete):
            yield item
        elif isinstance(item, Member):
            if item.key == "system_prompt":
                yield from session.prompt(item.value)
            elif item.key in _SETTINGS:
                yield from session.talk.update(**_settings({item.key: item.value}))
        elif item.key == "subagent_trajectories":
            yield from self._trajectory(session, item)
        elif item.key in self._takes:
            yield from self._taken(self._takes[item.key], session, item.value, item.line)

    def _open(self, members: dict[str, Any]) -> HermesSession:
        began, _ = message_time(members.get("session_start") or members.get("created_at"))
        for entry in members.get("steps") or []:
            began = began or step_time(mapping(entry))[0]
        settings = {"file": str(self._path), **_settings(members)}
        return HermesSession(
            members["session_id"],
            self._how.agent,
            title=members.get("title"),
            began=began,
            settings=settings,
            title_elsewhere=_has_database(self._path),
        )

    def _trajectory(self, parent: HermesSession, item: Element) -> Iterator[ReadItem]:
        """A sub-agent's trajectory within its parent's."""
        value = mapping(item.value)
        native = text_of(value.get("session_id") or value.get("trajectory_id"))
        above = parent.talk.session.settings["session_id"]
        child = self._open({**value, "session_id": native or f"{above}:{item.index}", "parent_session_id": above})
        for entry in value.get("steps") or []:
            yield from self._taken(step, child, entry, item.line)

    def _taken(self, take: _Take, session: HermesSession, value: Any, line: int) -> list[ReadItem]:
        try:
            return list(take(session, value, Place(line)))
        except SHAPE_ERRORS:
            return [Damaged(line, "message of unexpected shape")]


#: What is said of a session beside its messages, and under which name it is kept.
_SETTINGS = {
    "cwd": "cwd",
    "repository_cwd": "cwd",
    "model": "model",
    "platform": "platform",
    "producer": "version",
    "git_branch": "git_branch",
    "parent_session_id": "parent_session_id",
    "end_reason": "end_reason",
}


def _settings(members: dict[str, Any]) -> dict[str, Any]:
    named = {_SETTINGS[key]: value for key, value in members.items() if key in _SETTINGS}
    config, agent = mapping(members.get("model_config")), mapping(members.get("agent"))
    found = {"cwd": config.get("cwd"), "model": agent.get("model_name"), "version": agent.get("version")}
    return {**{key: value for key, value in found.items() if value}, **named}
