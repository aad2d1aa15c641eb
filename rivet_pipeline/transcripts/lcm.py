"""What the rows of a Lossless Context Management store become: sessions and messages. Pure functions, no database.

A message of the source and its parts become one row or several: what was said, what was thought, each tool call. The
result of a call fills the call's row, as everywhere in the memory. The rows of a message are named after it:
`lcm:<message id>` its words (without words the first row), `lcm:<message id>:<part>` the others.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rivet_pipeline.transcripts.cleaning import clean_event_id, clean_text
from rivet_pipeline.transcripts.ingest_rows import CLOCK_SKEW, EARLIEST
from rivet_pipeline.transcripts.readers.shared import (
    binary_placeholder,
    join_texts,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.records import Kind, MessageRecord, Role, SessionRecord, ToolResult

#: The agent of conversations that name none, and the channel of all of them.
AGENT = "openclaw"
CHANNEL = "lcm"

#: A session key that begins with one of these names the harness that the conversation comes from.
_HARNESS_KEY = re.compile(
    r"(?:claude-code|codex|opencode|gemini-cli|qwen-code|kimi|grok|hermes|cursor|pi|openclaw|aider|specstory):\S"
)

#: OpenClaw's own keys: `agent:<agent id>:<channel>…`.
_AGENT_KEY = re.compile(r"agent:([^:\s]{1,200}):")

#: References to texts that LCM keeps in files of its own.
_FILE_ID = re.compile(r"\bfile_[0-9a-f]{16}\b", re.IGNORECASE)

#: What OpenClaw puts before context that it made itself, as the public repository tells.
_RUNTIME_CONTEXT = "OpenClaw runtime context for the immediately preceding user message"

_RESULT_TYPES = frozenset({"function_call_output", "tool_result", "toolResult", "tool_use_result"})

#: Deeper JSON can not be cleaned and stored as a value.
_MAX_DEPTH = 100

#: What stands for JSON that can not be read.
_BROKEN = object()

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "toolResult": "tool",
}

#: Parts that hold no words, and the columns of theirs that are kept with the message.
_MARKS = {
    "step_start": ("snapshot_hash",),
    "step_finish": ("step_reason", "step_cost", "step_tokens_in", "step_tokens_out"),
    "snapshot": ("snapshot_hash",),
    "patch": ("patch_hash", "patch_files"),
    "retry": (),
    "compaction": ("compaction_auto",),
}


@dataclass(frozen=True, slots=True)
class Moved:
    """A message of the source as the memory takes it.

    Attributes:
        items: What to write, in order.
        main: The event id of the row that stands for it: that of its words, else the first.
        rows: The event ids of all rows that hold a part of it, in order.
        result: Whether it is the result of a call, and so part of the call's row.
        notes: What was mended on the way, by name.
    """

    items: tuple[MessageRecord | ToolResult, ...]
    main: str
    rows: tuple[str, ...]
    result: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A message of the source that the memory does not take, and why."""

    reason: str


def make_session(
    conversation: Mapping[str, Any],
    *,
    agent: str | None,
    files: Mapping[str, Mapping[str, Any]],
    session_file: str | None = None,
) -> SessionRecord:
    """The session of a conversation. `files` are its large files by id; `agent` replaces what the source says.

    The key is the source's own when that names a harness, else `lcm:<session id>:<conversation id>`: LCM begins a new
    conversation for a session that was reset, and both are kept apart.
    """
    own = text_of(conversation.get("session_key")).strip()
    number = text_of(conversation.get("conversation_id")) or "none"
    session_id = text_of(conversation.get("session_id")).strip()
    named = _AGENT_KEY.match(own)
    said = text_of(conversation.get("agent_id")).strip() or (named.group(1) if named else "")
    origin = present(
        {
            "conversation_id": number,
            "session_id": session_id,
            "session_key": own,
            "archived_at": _iso(conversation.get("archived_at")),
            "session_file": session_file,
            "files": {key: dict(value) for key, value in files.items()},
        }
    )
    named_by_harness = _HARNESS_KEY.match(own) is not None
    key = own if named_by_harness else ":".join(["lcm", *([session_id] if session_id else []), number])
    return SessionRecord(
        session_key=clean_text(key),
        agent=clean_text(agent or said or AGENT)[:200],
        channel=CHANNEL,
        title=make_title(text_of(conversation.get("title"))),
        # Several conversations of the source may share a harness' key, and so one conversation here.
        settings={f"lcm:{number}" if named_by_harness else "lcm": origin},
    )


def _iso(value: Any) -> str:
    """A time as ISO text, one that can not be read as it is."""
    moment = read_time(value, datetime.now(UTC))
    return text_of(value) if moment is None else moment.isoformat()


def _number(value: Any) -> Any:
    """A number that Postgres gave as text as a number again, anything else as it is."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", value):
        return float(value) if "." in value else int(value)
    return value


def is_archived(conversation: Mapping[str, Any]) -> bool:
    """Whether LCM has closed the conversation."""
    return text_of(conversation.get("active")).lower() in {"0", "false"} or bool(conversation.get("archived_at"))


def read_time(value: Any, now: datetime) -> datetime | None:
    """The time in UTC (ISO text, or an epoch in s, ms or µs, as number or text), None when it is absent or absurd."""
    if isinstance(value, str):
        text = value.strip()
        # Eight digits are a date; longer runs of them an epoch.
        value = float(text) if re.fullmatch(r"\d{9,17}(?:\.\d{0,9})?", text) else text
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 1e14:
        value = value / 1_000_000
    elif isinstance(value, int | float) and not isinstance(value, bool) and value > 1e11:
        value = value / 1000
    moment = parse_time(value)
    return moment if moment is not None and EARLIEST <= moment <= now + CLOCK_SKEW else None


def order_times(stated: Sequence[datetime | None], fallback: datetime | None) -> list[datetime | None]:
    """A time for each message, never earlier than that of the message before it: the memory's order is that of times.

    Of times that contradict the order of the messages the fewest give way: each of those takes that of the message
    before it, as a message without a time does; at the beginning `fallback`, when that is not later than what follows,
    else the first time that is kept.
    """
    kept = _longest_rise(stated)
    first = next((time for index, time in enumerate(stated) if index in kept), None)
    last = fallback if fallback is not None and (first is None or fallback <= first) else first
    placed: list[datetime | None] = []
    for index, time in enumerate(stated):
        last = time if index in kept else last
        placed.append(last)
    return placed


def _longest_rise(times: Sequence[datetime | None]) -> set[int]:
    """The indexes of a longest part of the times that never falls."""
    ends: list[datetime] = []
    at: list[int] = []
    before: dict[int, int | None] = {}
    for index, time in enumerate(times):
        if time is None:
            continue
        place = bisect_right(ends, time)
        before[index] = at[place - 1] if place else None
        ends[place : place + 1], at[place : place + 1] = [time], [index]
    kept: set[int] = set()
    index_or_none = at[-1] if at else None
    while index_or_none is not None:
        kept.add(index_or_none)
        index_or_none = before[index_or_none]
    return kept


@dataclass(slots=True)
class _Open:
    """The message that is being made."""

    id: str
    role: Role
    created_at: datetime | None
    metadata: dict[str, Any]
    items: list[MessageRecord | ToolResult] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: The place of the row that stands for the message, once it is known.
    main: Any = None

    def moved(self, *, result: bool = False) -> Moved:
        """All of it."""
        named = clean_event_id(f"lcm:{self.id}")
        main = named if named in self.rows else self.rows[0]
        return Moved(tuple(self.items), main, tuple(self.rows), result, tuple(self.notes))

    def add(
        self,
        role: Role,
        kind: Kind,
        place: Any,
        *,
        content: str = "",
        tool_name: str | None = None,
        tool_args: Any = None,
        tool_result: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """One more row; its event id."""
        self.main = place if self.main is None else self.main
        event_id = clean_event_id(f"lcm:{self.id}" if place == self.main else f"lcm:{self.id}:{place}")
        about = {**self.metadata, **(metadata or {})}
        if kind != "speech":
            about["kind"] = kind
        self.items.append(
            MessageRecord(event_id, role, content, tool_name, tool_args, tool_result, about, self.created_at)
        )
        self.rows.append(event_id)
        return event_id


class ConversationMapper:
    """Makes the messages of one conversation, in the order of the source; knows the calls that wait for a result."""

    def __init__(self, session: SessionRecord, files: Mapping[str, Mapping[str, Any]]) -> None:
        self._session = session
        self._files = files
        #: By call id, the row of the latest call that has no result yet.
        self._calls: dict[str, str] = {}

    def take(
        self, message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], created_at: datetime | None
    ) -> Moved | LeftOut:
        """What a message and its parts, in their order, come to. `created_at` is where it is placed in time."""
        if message.get("suppressed_at"):
            return LeftOut("suppressed in the source")
        role = _ROLES.get(text_of(message.get("role")))
        text = self._text(message, parts)
        opened = _Open(text_of(message.get("message_id")), role or "system", created_at, self._about(message, text))
        if role is None:
            opened.notes.append("unknown role, kept as system")
            opened.metadata["lcm_role"] = text_of(message.get("role"))
        if opened.role == "tool":
            return self._result(opened, text, parts)
        self._parts(opened, text, parts)
        if not opened.items:
            return LeftOut("empty: no content and no part that says anything")
        return opened.moved()

    def _about(self, message: Mapping[str, Any], text: str) -> dict[str, Any]:
        ids = dict.fromkeys(match.lower() for match in _FILE_ID.findall(text))
        return present(
            {
                "lcm_id": text_of(message.get("message_id")),
                "lcm_seq": text_of(message.get("seq")),
                "lcm_files": [{"id": key, **self._files.get(key, {})} for key in ids],
            }
        )

    def _text(self, message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> str:
        """The message's own words: its content, or what a larger copy or its text parts have more of it."""
        content = text_of(message.get("content"))
        large = text_of(message.get("large_content"))
        if len(large) > len(content):
            return large
        said = join_texts([text_of(part.get("text_content")) for part in parts if part.get("part_type") == "text"])
        return said if len(said) > len(content) and content.strip() in said else content

    def _parts(self, opened: _Open, text: str, parts: Sequence[Mapping[str, Any]]) -> None:
        opened.metadata.update(present({"lcm_marks": _marks(parts), "files": _files(parts) if text.strip() else []}))
        text = text if text.strip() else join_texts(_files(parts))
        opened.main = "text" if text.strip() else None
        kinds = [text_of(part.get("part_type")) for part in parts]
        # The words stand where the first text part stood among thoughts and calls; without one, after the thoughts.
        others = (index for index, kind in enumerate(kinds) if kind != "reasoning")
        place = kinds.index("text") if "text" in kinds else next(others, len(kinds))
        for part in parts[:place]:
            self._part(opened, text, part)
        if text.strip():
            self._speech(opened, text)
        for part in parts[place:]:
            self._part(opened, text, part)

    def _speech(self, opened: _Open, text: str) -> None:
        kind: Kind = "speech"
        if text.lstrip().startswith(_RUNTIME_CONTEXT):
            kind = "injected"
        elif opened.role == "system":
            kind = "notice"
        opened.add(opened.role, kind, "text", content=text)

    def _part(self, opened: _Open, text: str, part: Mapping[str, Any]) -> None:
        kind = text_of(part.get("part_type"))
        about = self._json(opened, part.get("metadata"), "metadata of a part is no JSON, left out")
        thought = text_of(mapping(about).get("topLevelReasoningContent"))
        if thought.strip():
            opened.add("assistant", "thinking", "reasoning", content=thought)
        if kind == "reasoning":
            self._thinking(opened, part)
        elif kind == "tool":
            self._tool(opened, text, part, mapping(about))
        elif kind == "subtask":
            self._subtask(opened, part)
        else:
            self._other(opened, kind, text, part)

    def _thinking(self, opened: _Open, part: Mapping[str, Any]) -> None:
        thought = text_of(part.get("text_content"))
        if thought.strip():
            opened.add("assistant", "thinking", _place(part), content=thought)

    def _tool(self, opened: _Open, text: str, part: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        raw = mapping(about.get("raw"))
        call_id = text_of(part.get("tool_call_id"))
        output = self._output(opened, part, raw)
        if text_of(about.get("rawType") or raw.get("type")) in _RESULT_TYPES:
            self._answer(opened, _place(part), call_id, text_of(part.get("tool_name")), output or "", part)
            return
        arguments = self._json(
            opened, part.get("tool_input"), "tool input is no JSON, or nested too deeply: kept as text"
        )
        failed = text_of(part.get("tool_error"))
        words = text_of(part.get("text_content"))
        row = opened.add(
            "tool",
            "tool",
            _place(part),
            content="" if words.strip() in text else words,
            tool_name=text_of(part.get("tool_name")) or "unknown",
            tool_args=arguments,
            tool_result=output or failed or None,
            metadata=present(
                {
                    "tool_call_id": call_id,
                    "is_error": bool(failed),
                    "title": part.get("tool_title"),
                    "status": part.get("tool_status"),
                }
            ),
        )
        if call_id and not output and not failed:
            self._calls[call_id] = row

    def _output(self, opened: _Open, part: Mapping[str, Any], raw: Mapping[str, Any]) -> str | None:
        """What a tool answered, as text: the part's own column, else what the raw block holds."""
        stored = text_of(part.get("tool_output"))
        if stored:
            value = self._json(opened, stored, None)
            return _block_text(value) or stored
        for key in ("output", "content", "result"):
            if raw.get(key) and raw.get("type") in _RESULT_TYPES:
                return _block_text(raw[key]) or text_of(raw[key])
        return None

    def _result(self, opened: _Open, text: str, parts: Sequence[Mapping[str, Any]]) -> Moved | LeftOut:
        """A message that is the result of a call: its text goes to the call's row, when that is known."""
        tools = [part for part in parts if part.get("tool_call_id") or part.get("tool_name") or part.get("tool_output")]
        first: Mapping[str, Any] = tools[0] if tools else {}
        outputs = []
        for part in parts:
            about = mapping(self._json(opened, part.get("metadata"), "metadata of a part is no JSON, left out"))
            if part.get("part_type") == "tool":
                outputs.append(self._output(opened, part, mapping(about.get("raw"))) or text_of(part.get("tool_error")))
        outputs += _files(parts)
        answer = text if text.strip() else join_texts(outputs)
        if not answer.strip() and not first:
            return LeftOut("empty: no content and no part that says anything")
        is_result = self._answer(
            opened, "result", text_of(first.get("tool_call_id")), text_of(first.get("tool_name")), answer, first
        )
        return opened.moved(result=is_result)

    def _answer(
        self, opened: _Open, place: Any, call_id: str, tool_name: str, answer: str, part: Mapping[str, Any]
    ) -> bool:
        """A tool's answer: into the row of its call, else into one of its own. Whether the call was there."""
        failed = bool(part.get("tool_error"))
        call = self._calls.pop(call_id, None) if call_id else None
        if call is None:
            about = present({"tool_call_id": call_id, "is_error": failed})
            opened.add("tool", "tool", place, tool_name=tool_name or None, tool_result=answer, metadata=about)
            return False
        about = present(
            {
                "lcm_result_id": opened.id,
                "lcm_result_files": opened.metadata.get("lcm_files"),
                "result_at": opened.created_at.isoformat() if opened.created_at else None,
                "is_error": failed,
            }
        )
        opened.items.append(ToolResult(self._session, call, answer, about, opened.created_at))
        opened.rows.append(call)
        return True

    def _subtask(self, opened: _Open, part: Mapping[str, Any]) -> None:
        arguments = present(
            {
                "prompt": part.get("subtask_prompt"),
                "description": part.get("subtask_desc"),
                "agent": part.get("subtask_agent"),
            }
        )
        if arguments:
            opened.add("tool", "tool", _place(part), tool_name="subtask", tool_args=arguments)

    def _other(self, opened: _Open, kind: str, text: str, part: Mapping[str, Any]) -> None:
        """Words that the content lacks get a row; marks without words stay in the metadata."""
        words = text_of(part.get("text_content"))
        if words.strip() and words.strip() not in text:
            speech = kind == "text"
            name: Kind = "speech" if speech else "summary" if kind == "compaction" else "notice"
            opened.add(opened.role if speech else "system", name, _place(part), content=words)

    @staticmethod
    def _json(opened: _Open, value: Any, note: str | None) -> Any:
        """A JSON column as a value; text that is none stays as it is, with a note."""
        if value is None or not isinstance(value, str | bytes):
            return value
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = _BROKEN
        if found is _BROKEN or _is_deep(found):
            if note is not None:
                opened.notes.append(note)
            return text
        return found


def _block_text(value: Any) -> str:
    """The text of an answer: a string, or blocks of text and pictures."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return join_texts([_block_text(entry) for entry in value])
    block = mapping(value)
    if block.get("type") == "image":
        source = mapping(block.get("source"))
        media = source.get("media_type") or block.get("mimeType")
        return binary_placeholder("image", media, source.get("data") or block.get("data"))
    if block:
        return block["text"] if isinstance(block.get("text"), str) else json.dumps(value, ensure_ascii=False)
    return ""


def _is_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than `_MAX_DEPTH`."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            entry
            for one in level
            if isinstance(one, list | dict)
            for entry in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _place(part: Mapping[str, Any]) -> str:
    """What names a part within its message."""
    return text_of(part.get("ordinal")) or text_of(part.get("part_id"))


def _marks(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the parts without words say: reasons, costs and hashes."""
    found = []
    for part in parts:
        kind = text_of(part.get("part_type"))
        if mark := present({column: _number(part.get(column)) for column in _MARKS.get(kind, ())}):
            found.append({"type": kind, **mark})
    return found


def _files(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_placeholder(part) for part in parts if part.get("part_type") == "file"]


def _placeholder(part: Mapping[str, Any]) -> str:
    """What stands for a file or picture: its name or address when it has one, its type and size, never its bytes."""
    try:
        about = json.loads(text_of(part.get("metadata")) or "{}")
    except (ValueError, RecursionError):
        about = {}
    raw = mapping(mapping(about).get("raw"))
    source = mapping(raw.get("source"))
    address = text_of(part.get("file_url"))
    data = source.get("data") or raw.get("data") or (address if address.startswith("data:") else None)
    media = part.get("file_mime") or source.get("media_type") or raw.get("mimeType")
    name = text_of(part.get("file_name")) or ("" if address.startswith("data:") else address)
    return binary_placeholder(f"file {name}" if name else "image", media, data)


def read_files(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The large files of a conversation, by id: where each stands, and what LCM says about it."""
    return {
        text_of(row.get("file_id")).lower(): present(
            {
                "name": row.get("file_name"),
                "mime": row.get("mime_type"),
                "bytes": _number(row.get("byte_size")),
                "uri": row.get("storage_uri"),
                "summary": row.get("exploration_summary"),
            }
        )
        for row in rows
        if row.get("file_id")
    }
