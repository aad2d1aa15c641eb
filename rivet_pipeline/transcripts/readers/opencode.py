"""OpenCode's sessions: `opencode.db`, the `storage/` trees of older versions, and what its API and its export give.

Which of these a file is, and the last two, are decided here; what a message becomes in `opencode_parts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.documents import DocumentItem, Element, Member, read_document
from rivet_pipeline.transcripts.lines import open_stream, without_compression
from rivet_pipeline.transcripts.readers.opencode_db import NEEDED, read_database
from rivet_pipeline.transcripts.readers.opencode_parts import HARNESS, OpenCodeSession, Part
from rivet_pipeline.transcripts.readers.opencode_tree import read_tree, tree_state
from rivet_pipeline.transcripts.readers.shared import SHAPE_ERRORS, file_state, mapping, text_of
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head, Reading, SourceState
from rivet_pipeline.transcripts.records import Damaged, Incomplete, ReadItem, SessionUpdate, Skipped
from rivet_pipeline.transcripts.sqlite_source import declared_tables, is_sqlite, sqlite_state

#: The database of a release channel has the channel in its name.
_DATABASE_NAME = re.compile(r"opencode(?:-[\w.-]+)?\.db")

_MESSAGE_LIST = re.compile(r'\ufeff?\s*\[\s*\{\s*"info"\s*:\s*\{')
_EXPORT = re.compile(r'\ufeff?\s*\{\s*"info"\s*:\s*\{')
_EVENT = re.compile(r"(?:session|message)\.[\w.]+")


class OpenCodeReader:
    """Reads OpenCode's sessions of any version."""

    harness = HARNESS
    agent = "rivet-glm"
    suffixes = frozenset({".db", ".json"})
    follows = False

    def sniff(self, head: Head) -> bool:
        """Whether the file is OpenCode's, judged by its name and its beginning."""
        if head.path.suffix == ".db":
            return _is_database(head)
        return _form(head) is not None

    def state(self, path: Path) -> SourceState:
        """The state of the database with its log, of a session's whole tree, or of the document."""
        if without_compression(path).suffix == ".db":
            return sqlite_state(path)
        return tree_state(path) if _form(_head(path)) == "session" else file_state(path)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The messages, session by session. Raises `OSError` when the file can not be read at all."""
        if without_compression(path).suffix == ".db":
            yield from read_database(path, how)
            return
        form = _form(_head(path))
        if form == "session":
            yield from read_tree(path, how)
        elif form == "events":
            yield from _Events(path, how).items()
        else:
            yield from _messages(path, how)


def _is_database(head: Head) -> bool:
    found = declared_tables(head.data)
    declared = found.keys() >= NEEDED and "message_id" in found["part"] and "data" in found["part"]
    # While its first messages stand in the log alone, the file itself declares nothing yet.
    return declared or (is_sqlite(head.data) and _DATABASE_NAME.fullmatch(head.path.name) is not None)


def _head(path: Path) -> Head:
    with open_stream(path) as stream:
        data = stream.read(HEAD_BYTES)
    return Head(path, data, whole=len(data) < HEAD_BYTES)


def _form(head: Head) -> str | None:
    """Which of its JSON files this is: "session", "messages", "export" or "events"."""
    if _MESSAGE_LIST.match(head.text) and '"sessionID"' in head.text:
        return "messages"
    if _EXPORT.match(head.text) and '"projectID"' in head.text and '"directory"' in head.text:
        return "export"
    members = head.members
    if _is_session(members):
        return "session"
    first = members.get("", [None])[0]
    if isinstance(first, dict) and first.keys() == {"type", "properties"}:
        known = _EVENT.fullmatch(text_of(first["type"])) and _session_of(mapping(first["properties"]))
        return "events" if known else None
    return None


def _is_session(value: dict[str, Any]) -> bool:
    texts = all(isinstance(value.get(key), str) for key in ("id", "projectID", "directory"))
    return texts and "created" in mapping(value.get("time"))


def _session_of(properties: dict[str, Any]) -> str:
    """The session that an event is of."""
    part, info = mapping(properties.get("part")), mapping(properties.get("info"))
    own = info.get("id") if "projectID" in info else info.get("sessionID")
    return text_of(properties.get("sessionID") or part.get("sessionID") or own)


class _Sessions:
    """The sessions of one document."""

    def __init__(self, path: Path, how: Reading) -> None:
        self._path, self._how = path, how
        self._known: dict[str, OpenCodeSession] = {}

    def of(self, session: dict[str, Any]) -> OpenCodeSession:
        native = text_of(session["id"])
        if native not in self._known:
            self._known[native] = OpenCodeSession(session, self._how.agent, self._path, given_up=self._how.given_up)
        return self._known[native]

    def held(self) -> bool:
        return any(session.held for session in self._known.values())


def _document(path: Path, how: Reading, *, first: bool = True) -> Iterator[DocumentItem]:
    with open_stream(path) as stream:
        yield from read_document(
            stream, arrays=("messages",), max_value=how.max_line, advance=how.advance if first else None
        )


def _messages(path: Path, how: Reading) -> Iterator[ReadItem]:
    """A list of messages with their parts, as the API gives them; or an export, which has the session before it."""
    sessions = _Sessions(path, how)
    line = 0
    for item in _document(path, how):
        line = item.line
        if isinstance(item, Damaged | Incomplete):
            yield item
        elif isinstance(item, Member):
            if item.key == "info" and _is_session(mapping(item.value)):
                yield SessionUpdate(sessions.of(item.value).talk.session)
        else:
            yield from _message(sessions, item)
    if sessions.held():
        yield Incomplete(line)


def _message(sessions: _Sessions, item: Element) -> list[ReadItem]:
    try:
        info, parts = item.value["info"], item.value["parts"]
        # The list does not name the session; its first prompt's title is what the session is called.
        title = mapping(info.get("summary")).get("title")
        session = sessions.of({"id": info["sessionID"], "title": title})
        named = [
            Part(text_of(part.get("id")) or f"{info['id']}:{number}", part, item.line)
            for number, part in enumerate(parts)
        ]
        return list(session.message(item.line, info, named))
    except SHAPE_ERRORS:
        return [Damaged(item.line, "message of unexpected shape")]


class _Events:
    """A recorded stream of the API's events. A part comes again whenever it grows: its last state is given."""

    def __init__(self, path: Path, how: Reading) -> None:
        self._path, self._how = path, how
        self._sessions = _Sessions(path, how)
        self._infos: dict[str, dict[str, Any]] = {}
        self._last: dict[str, int] = {}

    def items(self) -> Iterator[ReadItem]:
        """What the events come to."""
        for item in _document(self._path, self._how, first=False):
            if isinstance(item, Element):
                self._note(item)
        line = 0
        for item in _document(self._path, self._how):
            line = item.line
            if isinstance(item, Element):
                yield from self._event(item)
            elif isinstance(item, Damaged | Incomplete):
                yield item
        if self._sessions.held():
            yield Incomplete(line)

    def _note(self, item: Element) -> None:
        properties = mapping(mapping(item.value).get("properties"))
        part, info = mapping(properties.get("part")), mapping(properties.get("info"))
        if part.get("id"):
            self._last[text_of(part["id"])] = item.index
        elif info.get("role"):
            self._infos[text_of(info.get("id"))] = info

    def _event(self, item: Element) -> list[ReadItem]:
        kind = text_of(mapping(item.value).get("type"))[:60]
        properties = mapping(mapping(item.value).get("properties"))
        part, info = mapping(properties.get("part")), mapping(properties.get("info"))
        try:
            if _is_session(info):
                return [SessionUpdate(OpenCodeSession(info, self._how.agent, self._path, given_up=True).talk.session)]
            if part.get("id") and self._last[part["id"]] == item.index:
                session = self._sessions.of({"id": part["sessionID"]})
                known = {**self._infos.get(text_of(part.get("messageID")), {}), "error": None}
                return list(session.message(item.line, known, [Part(part["id"], part, item.line)]))
        except SHAPE_ERRORS:
            return [Damaged(item.line, f"{kind or 'event'} of unexpected shape")]
        return [Skipped(item.line, kind or "event without type")]
