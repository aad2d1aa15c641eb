"""Gemini CLI's sessions: `~/.gemini/tmp/<project>/chats/session-*.json`, and `*.jsonl` from version 0.40.

The older form is one document that is written anew at every turn; the newer one is a log, in which a later line with
the same id replaces an earlier one, `$set` changes the session and `$rewindTo` takes turns back. Both give the same
rows. Each is read twice: what a message came to, and whose it is, may stand behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.documents import DocumentItem, Element, Member, read_document
from rivet_pipeline.transcripts.lines import Line, open_stream, read_lines, without_compression
from rivet_pipeline.transcripts.readers.google_parts import (
    Call,
    CallIds,
    Part,
    Result,
    RowIds,
    append,
    arguments,
    hold_last,
    read_model,
    read_user,
    result_text,
)
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    ContentIds,
    FileReader,
    Said,
    join_texts,
    line_pointer,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head, Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

HARNESS = "gemini-cli"

_NOTICE_TYPES = frozenset({"info", "error", "warning"})
_TYPES = frozenset({"user", "gemini"}) | _NOTICE_TYPES
_SPOKEN = {"user": read_user, "gemini": read_model}

#: What a session says of itself, beside its messages.
_HEADER_KEYS = frozenset(
    {"sessionId", "projectHash", "startTime", "lastUpdated", "summary", "kind", "directories", "messages"}
)
_LATE_KEYS = frozenset({"summary", "kind", "directories"})
_SESSION_NAME = re.compile(r"session-.*\.json")

_DONE = frozenset({"success", "completed"})
_FAILED = frozenset({"error", "cancelled"})


class GeminiCliReader(FileReader):
    """Reads Gemini CLI sessions of either form."""

    harness = HARNESS
    agent = "rivet-gemini"
    suffixes = frozenset({".json", ".jsonl"})

    def sniff(self, head: Head) -> bool:
        """Whether the file is a Gemini CLI session, judged by its name and its beginning."""
        if head.path.suffix == ".jsonl" and any(_is_own(record) for record in head.records):
            return True
        return _is_own_document(head)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The file's records in file order. Raises `OSError` when it can not be read at all."""
        if _is_log(path, how.max_line):
            return _read_log(path, how)
        return _read_document(path, how)


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or "content" not in value or not isinstance(value.get("id"), str):
        return False
    return text_of(value.get("type")) in _TYPES and not value.keys() & {"sessionId", "uuid", "message", "role"}


def _is_own(record: dict[str, Any]) -> bool:
    if isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
        return True
    patch = record.get("$set")
    if isinstance(patch, dict) and len(record) == 1:
        return bool(patch.keys() & _HEADER_KEYS)
    return record.get("type") == "gemini" and _is_message(record)


def _is_own_document(head: Head) -> bool:
    members = head.members
    if _is_own(members):
        return True
    if any(_is_message(message) for message in _list(members.get("messages"))):
        return bool(members.keys() & (_HEADER_KEYS - {"messages"}))
    # The first message can be longer than the head, when a picture was pasted into it.
    named = bool(_SESSION_NAME.fullmatch(head.path.name)) and not head.whole
    return named and "lastUpdated" in members and b'"messages"' in head.data


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_log(path: Path, max_line: int) -> bool:
    """Whether a file holds a record a line. Some documents are named as if they did."""
    if without_compression(path).suffix != ".jsonl":
        return False
    with open_stream(path) as stream:
        raw = stream.readline(max_line + 1)
    if raw.endswith(b"\n"):
        return raw.strip() != b"{"
    with open_stream(path) as stream:
        return len(raw) <= max_line and isinstance(next(read_lines(stream, max_line=max_line), None), Line)


def _key(message: dict[str, Any]) -> str:
    """A message's identity: its id, else its content."""
    native = message.get("id")
    if isinstance(native, str) and native:
        return native
    return content_event_id(
        text_of(message.get("type")), text_of(message.get("timestamp")), text_of(message.get("content"))
    )


def _is_open(message: Any) -> bool:
    """Whether a message holds a tool call that has not come to its end."""
    return not all(_is_done(call) for call in _list(mapping(message).get("toolCalls")))


def _is_done(call: Any) -> bool:
    status, result = text_of(mapping(call).get("status")), mapping(call).get("result")
    shown = isinstance(call, dict) and isinstance(call.get("resultDisplay"), str) and call["resultDisplay"] != ""
    return shown or status in _DONE | _FAILED or result is not None


def _may_change(how: Reading) -> Callable[[Any], bool]:
    """Which last message of a session the harness may still write anew."""
    if how.given_up:
        return lambda message: False
    return _is_open if how.settled else lambda message: True


# The document


def _read_document(path: Path, how: Reading) -> Iterator[ReadItem]:
    header, whole = _document_header(path, how)
    if "sessionId" not in header and not (whole or how.settled):
        yield Incomplete(1)
        return
    session = _Session(path, how.agent, header)
    may_change = _may_change(how)
    with open_stream(path) as stream:
        parts: Iterable[DocumentItem] = read_document(
            stream, arrays={"messages"}, max_value=how.max_line, advance=how.advance
        )
        for item in parts if how.given_up else hold_last(parts, "messages", may_change):
            if isinstance(item, Element):
                yield from session.take(item.value, item.line)
            elif isinstance(item, Member):
                yield from session.learn({item.key: item.value})
            else:
                yield item
    if _is_message(header):
        yield from [Incomplete(1)] if may_change(header) else session.take(header, 1)


def _document_header(path: Path, how: Reading) -> tuple[dict[str, Any], bool]:
    """The document's members beside its messages, and whether it was seen to its end.

    Reading ends at the first message when the session is known by then.
    """
    header: dict[str, Any] = {}
    with open_stream(path) as stream:
        for item in read_document(stream, arrays={"messages"}, max_value=how.max_line):
            if isinstance(item, Member):
                header[item.key] = item.value
            elif isinstance(item, Incomplete) or "sessionId" in header:
                return header, False
    return header, True


# The log


@dataclass(slots=True)
class _Survey:
    """What a log comes to, as far as it must be known before a message can be given."""

    header: dict[str, Any] = field(default_factory=dict)
    #: Where the last version of each message stands: which record, and how long it is in a snapshot.
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: The messages on the path that the conversation went, in their order.
    path: dict[str, None] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)
    #: The message that was written last: it may still change.
    latest: str = ""
    #: The messages whose last version holds a tool call that has not come to its end.
    open: set[str] = field(default_factory=set)
    #: How many records there were. The file may grow before it is read again.
    records: int = 0

    def take(self, number: int, record: dict[str, Any]) -> None:
        """Takes note of one record."""
        if "$rewindTo" in record:
            self._rewind(text_of(record["$rewindTo"]))
        elif _is_log_message(record):
            self._message(record, number, 0)
        else:
            patch = _patch(record)
            self.header.update({key: value for key, value in patch.items() if key != "messages"})
            for message in _list(patch.get("messages")):
                if isinstance(message, dict):
                    self._message(message, number, len(text_of(message)))

    def _message(self, message: dict[str, Any], number: int, size: int) -> None:
        key = _key(message)
        self.latest = key
        self.path[key] = None
        self.taken_back.discard(key)
        known = self.versions.get(key)
        # A snapshot is what is left for the model, with long results cut: a line of its own says more, and of two
        # snapshots the longer one.
        if known is None or size == 0 or (known[1] > 0 and size >= known[1]):
            self.versions[key] = (number, size)
            (self.open.add if _is_open(message) else self.open.discard)(key)

    def held(self, how: Reading) -> str:
        """The key of the message that is held back, since it may still change."""
        waits = not how.settled or (self.latest in self.open and not how.given_up)
        return self.latest if waits else ""

    def is_last(self, key: str, number: int) -> bool:
        """Whether the record holds the version of a message that counts."""
        return self.versions.get(key, (-1, 0))[0] == number

    def _rewind(self, target: str) -> None:
        keys = list(self.path)
        gone = keys[keys.index(target) :] if target in self.path else keys
        self.taken_back.update(gone)
        for key in gone:
            del self.path[key]


def _is_log_message(record: dict[str, Any]) -> bool:
    return text_of(record.get("type")) in _TYPES and "content" in record


def _patch(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says of the session: the first one, or a later change."""
    patch = record.get("$set", record)
    return {key: value for key, value in mapping(patch).items() if key in _HEADER_KEYS}


def _read_log(path: Path, how: Reading) -> Iterator[ReadItem]:
    survey = _Survey()
    with open_stream(path) as stream:
        for number, item in enumerate(read_lines(stream, max_line=how.max_line)):
            if isinstance(item, Line):
                survey.take(number, item.value)
            if not isinstance(item, Incomplete):
                survey.records = number + 1
    log = _Log(survey, _Session(path, how.agent, survey.header), survey.held(how))
    with open_stream(path) as stream:
        for number, item in enumerate(read_lines(stream, max_line=how.max_line, advance=how.advance)):
            if isinstance(item, Line) and number < survey.records:
                yield from log.take(number, item)
            elif isinstance(item, Line):
                yield Incomplete(item.number)
                return
            else:
                yield item
    if log.held:
        yield Incomplete(survey.records)


class _Log:
    """The second reading of a log: gives each message where its last version stands."""

    def __init__(self, survey: _Survey, session: _Session, open_key: str) -> None:
        self.survey = survey
        self.session = session
        self.held = open_key

    def take(self, number: int, item: Line) -> Iterator[ReadItem]:
        """What one record comes to."""
        record = item.value
        if "$rewindTo" in record:
            yield from self.session.rewound(text_of(record["$rewindTo"]), item.number)
        elif _is_log_message(record):
            yield from self._message(number, record, item.number, item.number)
        elif patch := _patch(record):
            yield from self.session.learn(patch)
            for message in _list(patch.get("messages")):
                if not isinstance(message, dict):
                    yield Damaged(item.number, "message of unexpected shape")
                elif self.survey.is_last(_key(message), number):
                    yield from self._message(number, message, item.number, None)
        else:
            yield Skipped(item.number, text_of(record.get("type"))[:80] or next(iter(record), "empty record")[:80])

    def _message(self, number: int, message: dict[str, Any], line: int, pointer: int | None) -> Iterator[ReadItem]:
        key = _key(message)
        if not self.survey.is_last(key, number):
            yield Skipped(line, "replaced by a later version")
        elif key != self.held:
            yield from self.session.take(message, line, pointer, off_path=key in self.survey.taken_back)


# Both


class _Session:
    """Turns messages into rows."""

    def __init__(self, path: Path, agent: str, header: dict[str, Any]) -> None:
        self.path = path
        self.agent = agent
        self.header = header
        self.ids = RowIds()
        self.calls = CallIds()
        self.rewinds = ContentIds()
        self.model: Any = None
        self.titled = bool(make_title(text_of(header.get("summary"))))
        self.record = self._record()

    def _record(self) -> SessionRecord:
        header = self.header
        native = text_of(header.get("sessionId")) or without_compression(self.path).stem
        parent = self.path.parent.name if header.get("kind") == "subagent" else None
        settings = {
            "source": HARNESS,
            "session_id": native,
            "file": str(self.path),
            "model": self.model,
            "project_hash": header.get("projectHash"),
            "directories": header.get("directories"),
            "parent_session_id": parent,
        }
        title = make_title(text_of(header.get("summary")))
        return SessionRecord(f"{HARNESS}:{native}", self.agent, HARNESS, title, settings=present(settings))

    def learn(self, patch: dict[str, Any]) -> Iterator[ReadItem]:
        """Takes what is said of the session itself."""
        new = {key: value for key, value in patch.items() if key in _LATE_KEYS and self.header.get(key) != value}
        if new:
            self.header = {**self.header, **new}
            self.record = self._record()
            self.titled = self.titled or self.record.title is not None
            yield SessionUpdate(self.record)

    def rewound(self, target: str, line: int) -> Iterator[ReadItem]:
        """The mark of turns that were taken back."""
        metadata = {"kind": "notice", "rewound_to": target, **line_pointer(self.path, line)}
        event_id = self.rewinds.next("rewind", target)
        yield Message(
            self.record,
            MessageRecord(event_id, "system", f"[conversation rewound to before {target}]", metadata=metadata),
        )

    def take(self, value: Any, line: int, pointer: int | None = None, *, off_path: bool = False) -> list[ReadItem]:
        """What one message comes to. One of an unexpected shape is damaged and touches no other."""
        where = line_pointer(self.path, pointer) if pointer is not None else {}
        try:
            return list(self._message(value, line, {**where, "off_path": True} if off_path else where))
        except SHAPE_ERRORS:
            return [Damaged(line, "message of unexpected shape")]

    def _message(self, value: dict[str, Any], line: int, extra: dict[str, Any]) -> Iterator[ReadItem]:
        kind = text_of(value["type"])[:80]
        if kind not in _TYPES:
            yield Skipped(line, f"message/{kind}")
            return
        parts, passed = _parts(kind, value)
        metadata = {**present({"model": value.get("model"), "usage": value.get("tokens")}), **extra}
        time = parse_time(value.get("timestamp"))
        if value.get("model") and "model" not in self.record.settings:
            self.model = value["model"]
            self.record = self._record()
        for part in parts:
            yield from self._row(value, part, metadata, time)
            metadata = {key: value for key, value in metadata.items() if key != "usage"}
        for call in _list(value.get("toolCalls")):
            yield self._tool(_key(value), call, metadata, time)
            metadata = {key: value for key, value in metadata.items() if key != "usage"}
        for reason in passed:
            yield Skipped(line, reason)
        if not parts and not passed and not value.get("toolCalls"):
            yield Skipped(line, f"{kind} without text")

    def _row(
        self, value: dict[str, Any], part: Part, metadata: dict[str, Any], time: datetime | None
    ) -> Iterator[ReadItem]:
        key = _key(value)
        if isinstance(part, Call):
            yield self._tool(key, {"id": part.native, "name": part.name, "args": part.args}, metadata, time)
        elif isinstance(part, Result):
            marks = present({"kind": "tool", "is_error": part.failed})
            yield ToolResult(self.record, self.calls.result(part.native, key), part.text, marks, time)
        else:
            if part.kind == "thinking":
                time = parse_time(mapping(next(iter(_list(value.get("thoughts"))), None)).get("timestamp")) or time
            marks = {} if part.kind == "speech" else {"kind": part.kind}
            event_id = self.ids.next(key, part.kind, part.text)
            record = MessageRecord(event_id, part.role, part.text, metadata={**metadata, **marks}, created_at=time)
            yield Message(self.record, record)
            if "off_path" not in metadata:
                yield from self._title_from(part)

    def _title_from(self, part: Said) -> Iterator[ReadItem]:
        if self.titled or (part.role, part.kind) != ("user", "speech"):
            return
        if title := make_title(part.text):
            self.titled = True
            known = self.record
            yield SessionUpdate(SessionRecord(known.session_key, known.agent, known.channel, title, known.settings))

    def _tool(self, key: str, call: dict[str, Any], metadata: dict[str, Any], time: datetime | None) -> Message:
        status = text_of(call.get("status"))
        text, failed = result_text(call.get("result"))
        if not text and isinstance(call.get("resultDisplay"), str):
            text = call["resultDisplay"]
        done = bool(text) or _is_done(call)
        marks = {
            "kind": "tool",
            "is_error": failed or status in _FAILED,
            "status": None if status in _DONE else status,
            "finished_at": text_of(call.get("timestamp")) if done else None,
            "agent_id": call.get("agentId"),
        }
        record = MessageRecord(
            self.calls.call(text_of(call.get("id")), key),
            "tool",
            "",
            text_of(call.get("name")) or "tool",
            arguments(call.get("args")),
            text if done else None,
            metadata={**metadata, **present(marks)},
            created_at=time,
        )
        return Message(self.record, record)


def _parts(kind: str, value: dict[str, Any]) -> tuple[list[Part], list[str]]:
    """What a message says: the thoughts first, as they were thought."""
    if kind in _NOTICE_TYPES:
        parts, passed = read_model(value.get("content"))
        return [Said("system", "notice", part.text) for part in parts if isinstance(part, Said)], passed
    parts, passed = _SPOKEN[kind](value.get("content") or value.get("displayContent"))
    thoughts = "\n\n".join(filter(None, (_thought(thought) for thought in _list(value.get("thoughts")))))
    thinking: list[Part] = []
    if thoughts.strip():
        append(thinking, Said("assistant", "thinking", thoughts))
    return [*thinking, *parts], passed


def _thought(thought: Any) -> str:
    if not isinstance(thought, dict):
        return text_of(thought)
    told = [text_of(thought.get(key)) for key in ("subject", "description", "summary", "text")]
    return join_texts(told)
