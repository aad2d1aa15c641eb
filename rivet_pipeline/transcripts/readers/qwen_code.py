"""Qwen Code's sessions: `~/.qwen/projects/<project>/chats/<session>.jsonl`.

Rows have Claude Code's envelope and hold Google's contents. File order is kept; `parentUuid` is not followed, but a
rewind is known before the file is read, so that the turns it took back are marked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from rivet_pipeline.transcripts.lines import Line, open_stream, read_lines, without_compression
from rivet_pipeline.transcripts.readers.google_parts import (
    Call,
    CallIds,
    Part,
    Result,
    RowIds,
    parts_of,
    placeholder,
    read_model,
    read_user,
)
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    ContentIds,
    LineReader,
    Said,
    join_texts,
    line_pointer,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head
from rivet_pipeline.transcripts.records import (
    Damaged,
    Kind,
    Message,
    MessageRecord,
    ReadItem,
    Role,
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

HARNESS = "qwen-code"

_TYPES = frozenset({"user", "assistant", "tool_result", "system"})
_BARE_UUID = re.compile(r"[0-9a-fA-F]{32}")
_REWIND = b'"rewind"'
_STEP = 1024 * 1024

#: Longer lines are not looked at for a rewind, in bytes.
_MAX_LINE = 256 * 1024 * 1024

#: What a row in the user's name is, when nobody typed it.
_UNTYPED: dict[str, tuple[Role, Kind]] = {
    "notification": ("system", "notice"),
    "background_task_completed": ("system", "notice"),
    "cron": ("system", "injected"),
    "goal_runtime": ("system", "injected"),
    "goal_control": ("system", "injected"),
    "system": ("system", "injected"),
}

_FAILED = frozenset({"error", "cancelled"})


class QwenCodeReader(LineReader):
    """Reads Qwen Code session files."""

    harness = HARNESS
    agent = "rivet-qwen"

    def sniff(self, head: Head) -> bool:
        """Whether the file is a Qwen Code session, judged by its beginning."""
        return any(_is_own(record) for record in head.records)

    def start(self, path: Path, agent: str) -> _Transcript:
        """The state with which a file is read."""
        return _Transcript(path, agent, _taken_back(path))


def _is_own(record: dict[str, Any]) -> bool:
    if record.get("type") not in _TYPES or "sessionId" not in record or "uuid" not in record:
        return False
    if isinstance(mapping(record.get("message")).get("parts"), list):
        return True
    return record["type"] == "system" and "subtype" in record and "systemPayload" in record


def _session_id(native: str) -> str:
    """A session's id in the one spelling: UUIDs are written with dashes."""
    return str(UUID(native)) if _BARE_UUID.fullmatch(native) else native


def _taken_back(path: Path) -> frozenset[str]:
    """The rows that a rewind took back, by their uuids. A file that tells of none is not looked at any closer."""
    if not _tells_of_rewind(path):
        return frozenset()
    order: list[str] = []
    gone: set[str] = set()
    with open_stream(path) as stream:
        for item in read_lines(stream, max_line=_MAX_LINE):
            if not isinstance(item, Line):
                continue
            value = item.value
            if value.get("subtype") == "rewind" and (target := _target(value)) in order:
                position = len(order) - order[::-1].index(target)
                gone.update(order[position:])
                del order[position:]
            order.append(text_of(value.get("uuid")))
    return frozenset(gone - set(order))


def _tells_of_rewind(path: Path) -> bool:
    before = b""
    with open_stream(path) as stream:
        while data := stream.read(_STEP):
            if _REWIND in before + data:
                return True
            before = data[-len(_REWIND) :]
    return False


def _target(value: dict[str, Any]) -> str:
    """The row that a rewind goes back to."""
    return text_of(mapping(value.get("systemPayload")).get("targetUuid") or value.get("parentUuid"))


class _Row:
    """One record of the file on its way through the reader."""

    def __init__(self, line: Line, *, off_path: bool) -> None:
        self.line = line.number
        self.value = line.value
        self.off_path = off_path
        self.type = text_of(line.value.get("type"))[:80]
        self.subtype = text_of(line.value.get("subtype"))[:80]
        self.payload = mapping(line.value.get("systemPayload"))
        self.uuid = text_of(line.value.get("uuid"))
        self.copied = isinstance(line.value.get("forkedFrom"), dict)

    @property
    def time(self) -> datetime | None:
        return parse_time(self.value.get("timestamp"))


class _Transcript:
    """The state of one reading: sessions met so far, ids given, usage that waits for its row."""

    def __init__(self, path: Path, agent: str, taken_back: frozenset[str]) -> None:
        self.path = path
        self.agent = agent
        self.taken_back = taken_back
        self.sessions: dict[str, SessionRecord] = {}
        self.titled: set[str] = set()
        self.current = _session_id(without_compression(path).stem)
        self.ids = RowIds()
        self.nameless = ContentIds()
        self.calls = CallIds()
        self.usage: dict[str, Any] = {}
        self.handlers: dict[str, Callable[[_Row], Iterable[ReadItem]]] = {
            "user": self._user,
            "assistant": self._assistant,
            "tool_result": self._tool_result,
            "system": self._system,
        }
        self.system_handlers: dict[str, Callable[[_Row], Iterable[ReadItem]]] = {
            "custom_title": self._title,
            "parent_session": self._parent,
            "ui_telemetry": self._telemetry,
            "slash_command": self._command,
            "chat_compression": self._compression,
            "rewind": self._rewind,
        }

    def take(self, line: Line) -> list[ReadItem]:
        """What one record comes to. A record of an unexpected shape is damaged and touches no other."""
        row = _Row(line, off_path=text_of(line.value.get("uuid")) in self.taken_back)
        handler = self.handlers.get(row.type)
        if handler is None:
            return [Skipped(row.line, row.type or "without type")]
        try:
            made = list(handler(row))
        except SHAPE_ERRORS:
            return [Damaged(row.line, f"{row.type} of unexpected shape")]
        name = f"{row.type}/{row.subtype}" if row.subtype else row.type
        return made or [Skipped(row.line, name if row.type == "system" else f"{name} without text")]

    def finish(self, *, abandoned: bool) -> list[ReadItem]:
        """Nothing is held back."""
        return []

    def waits(self) -> bool:
        """Nothing is held back."""
        return False

    # Sessions

    def _session(self, row: _Row) -> SessionRecord:
        value = row.value
        if native := text_of(value.get("sessionId")):
            self.current = _session_id(native)
        known = self.sessions.get(self.current)
        found = {
            "source": HARNESS,
            "session_id": self.current,
            "cwd": value.get("cwd"),
            # A sub-agent's file is not its parent's.
            "file": None if value.get("isSidechain") else str(self.path),
            "version": value.get("version"),
            "git_branch": value.get("gitBranch"),
            "model": None if row.off_path else value.get("model"),
            "parent_session_id": mapping(value.get("forkedFrom")).get("sessionId"),
        }
        settings = {**present(found), **(known.settings if known else {})}
        if known is None or settings != known.settings:
            known = SessionRecord(f"{HARNESS}:{self.current}", self.agent, HARNESS, settings=settings)
            self.sessions[self.current] = known
        return known

    def _title(self, row: _Row) -> Iterator[ReadItem]:
        title = make_title(text_of(row.payload.get("customTitle")))
        if title and not row.off_path:
            session = self._session(row)
            self.titled.add(self.current)
            yield SessionUpdate(replace(session, title=title))

    def _title_from(self, row: _Row, session: SessionRecord, said: Said) -> Iterator[ReadItem]:
        aside = row.copied or row.off_path or row.value.get("isSidechain")
        if self.current in self.titled or aside or (said.role, said.kind) != ("user", "speech"):
            return
        if title := make_title(said.text):
            self.titled.add(self.current)
            yield SessionUpdate(replace(session, title=title))

    def _parent(self, row: _Row) -> Iterator[ReadItem]:
        if parent := row.payload.get("parentSessionId"):
            session = self._session(row)
            yield SessionUpdate(replace(session, settings={**session.settings, "parent_session_id": parent}))

    # Messages

    def _user(self, row: _Row) -> Iterator[ReadItem]:
        parts, passed = read_user(row.value.get("message"))
        untyped = _UNTYPED.get(row.subtype) or _UNTYPED.get(text_of(row.value.get("provenance")))
        if untyped and row.subtype != "mid_turn_user_message":
            parts = [Said(*untyped, part.text) if isinstance(part, Said) else part for part in parts]
        if not parts and (shown := text_of(row.payload.get("displayText"))).strip():
            parts = [Said(*(untyped or ("user", "speech")), shown)]
        yield from self._emit(row, parts, passed)

    def _assistant(self, row: _Row) -> Iterator[ReadItem]:
        parts, passed = read_model(row.value.get("message"))
        yield from self._emit(row, parts, passed)

    def _tool_result(self, row: _Row) -> Iterator[ReadItem]:
        """The results in a row. What stands beside them is of the last one."""
        told = mapping(row.value.get("toolCallResult"))
        parts, passed = read_user(row.value.get("message"))
        results = [part for part in parts if isinstance(part, Result)]
        beside = join_texts([part.text for part in parts if isinstance(part, Said)])
        if not results:
            results = [Result(text_of(told.get("callId")), "tool", "", False)] if told or beside else []
        shown = told.get("resultDisplay")
        for part in results:
            last = part is results[-1]
            text = join_texts([part.text, beside if last else ""])
            if not text and isinstance(shown, str):
                text = shown
            failed = part.failed or (last and text_of(told.get("status")) in _FAILED)
            native = part.native or text_of(told.get("callId"))
            yield self._result(row, Result(native, part.name, text, failed))
        for reason in passed:
            yield Skipped(row.line, reason)

    def _emit(self, row: _Row, parts: Iterable[Part], passed: Iterable[str] = ()) -> Iterator[ReadItem]:
        session = self._session(row)
        metadata = self._metadata(row)
        usage = self._usage(row)
        for part in parts:
            if isinstance(part, Result):
                yield self._result(row, part)
                continue
            record = self._record(row, part, {**metadata, **usage})
            yield Message(session, record)
            usage = {}
            if isinstance(part, Said):
                yield from self._title_from(row, session, part)
        for reason in passed:
            yield Skipped(row.line, reason)

    def _record(self, row: _Row, part: Said | Call, metadata: dict[str, Any]) -> MessageRecord:
        if isinstance(part, Call):
            marks = {"kind": "replay" if row.copied else "tool"}
            event_id = self.calls.call(part.native, row.uuid or self.nameless.next("call", text_of(row.value)))
            return MessageRecord(
                event_id, "tool", "", part.name, part.args, metadata={**metadata, **marks}, created_at=row.time
            )
        kind = "replay" if row.copied else part.kind
        marks = {} if kind == "speech" else {"kind": kind}
        if row.uuid:
            event_id = self.ids.next(row.uuid, part.kind, part.text)
        else:
            event_id = self.nameless.next(row.type, text_of(row.value.get("timestamp")), part.kind, part.text)
        return MessageRecord(event_id, part.role, part.text, metadata={**metadata, **marks}, created_at=row.time)

    def _result(self, row: _Row, part: Result) -> ToolResult:
        owner = row.uuid or self.nameless.next("result", part.text)
        metadata = {**self._metadata(row), "kind": "replay" if row.copied else "tool"}
        metadata["result_jsonl_line"] = metadata.pop("session_jsonl_line")
        if part.failed:
            metadata["is_error"] = True
        return ToolResult(self._session(row), self.calls.result(part.native, owner), part.text, metadata, row.time)

    def _metadata(self, row: _Row) -> dict[str, Any]:
        value = row.value
        known = {
            "model": value.get("model"),
            "cwd": value.get("cwd"),
            "git_branch": value.get("gitBranch"),
            "version": value.get("version"),
            "sidechain": bool(value.get("isSidechain")),
            "agent_id": value.get("agentId"),
            "off_path": row.off_path,
        }
        return {**present(known), **line_pointer(self.path, row.line)}

    def _usage(self, row: _Row) -> dict[str, Any]:
        if row.type != "assistant":
            return {}
        usage, self.usage = row.value.get("usageMetadata") or self.usage, {}
        return present({"usage": usage})

    # Machinery

    def _system(self, row: _Row) -> Iterator[ReadItem]:
        if handler := self.system_handlers.get(row.subtype):
            yield from handler(row)
            return
        text = join_texts([text_of(mapping(part).get("text")) or placeholder(part) for part in _parts(row)])
        text = text or text_of(row.payload.get("message"))
        if text.strip():
            yield from self._emit(row, [Said("system", "notice", text)])

    def _telemetry(self, row: _Row) -> Iterator[ReadItem]:
        event = mapping(row.payload.get("uiEvent"))
        if message := text_of(event.get("error_message")):
            yield from self._emit(row, [Said("system", "notice", message)])
        elif "input_token_count" in event:
            # The row with the answer comes next, and most often brings its own figures.
            self.usage = present({key: value for key, value in event.items() if key.endswith("_token_count")})

    def _command(self, row: _Row) -> Iterator[ReadItem]:
        shown = row.payload.get("outputHistoryItems")
        if shown or row.payload.get("phase") == "result":
            text = join_texts([_shown(item) for item in shown or []])
            said = Said("system", "notice", text)
        else:
            text = text_of(row.payload.get("rawCommand"))
            said = Said("user", "speech" if len(text.split()) > 1 else "notice", text)
        if text.strip():
            yield from self._emit(row, [said])

    def _compression(self, row: _Row) -> Iterator[ReadItem]:
        """A compaction's summary. What it keeps of the conversation stands in its own rows."""
        first = next(iter(row.payload.get("compressedHistory") or []), None)
        text = join_texts([part.text for part in read_model(first)[0] if isinstance(part, Said)])
        if text.strip():
            yield from self._emit(row, [Said("system", "summary", text)])

    def _rewind(self, row: _Row) -> Iterator[ReadItem]:
        yield from self._emit(row, [Said("system", "notice", f"[conversation rewound to {_target(row.value)}]")])


def _parts(row: _Row) -> list[Any]:
    return parts_of(row.value.get("message"))


def _shown(item: Any) -> str:
    """What a command showed: its text, else all there is."""
    value = mapping(item)
    return text_of(value.get("text")) or text_of(item)
