"""The write tools: one message, or a whole session, told by a program that keeps no transcript of its own.

Who is said to speak, what a message must have, and the ids that make a repetition known are decided here; rows are the
writer's. There is no file behind these messages: what the cap takes off is gone, and the result says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, cast, get_args
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.transcripts.cleaning import clean_event_id, clean_json, clean_text, content_event_id, utf16_units
from rivet_pipeline.transcripts.ingest import CAPTURE_CAP, WriteResult, write_batch
from rivet_pipeline.transcripts.ingest_rows import Extra
from rivet_pipeline.transcripts.records import MessageRecord, Role, SessionRecord

#: What stands for the source, the agent and the channel when nobody names them.
DEFAULT_NAME = "mcp"

_MAX_AGENT = 200


@dataclass(frozen=True, slots=True)
class Attribution:
    """Whose words these are. The agent is the program's; a persona that it plays is noted and makes no agent."""

    source: str
    agent: str
    channel: str
    persona: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One of the tool calls of a message."""

    name: str
    input: Any = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message on its way in. `content` is empty only beside a tool's name, result or calls.

    Without an `event_id` (a blank one is none) its identity is made of what it says. `created_at` is aware.
    """

    role: str | None
    content: str = ""
    tool_name: str | None = None
    tool_args: Mapping[str, Any] | None = None
    tool_result: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    event_id: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of an appended message.

    `skipped`: its event id was known, and `id` is the known row's. `conflict` says that this row holds other words and
    that these were not stored; `filled` that the row took this message's tool result. Lengths are in UTF-16 units,
    before the cap; `truncated` says that the cap took something off.
    """

    id: UUID
    event_id: str
    session_id: str
    source: str
    agent: str
    channel: str
    persona: str | None
    truncated: bool
    full_content_length: int
    full_tool_result_length: int | None
    skipped: bool
    filled: bool
    conflict: bool


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a session. `ids` are the rows of its messages in their order, known ones too.

    `truncated` says whether the cap took something off any of them; `full_content_length` is the longest content's.
    """

    session_id: str
    source: str
    agent: str
    channel: str
    persona: str | None
    ingested: int
    skipped: int
    ids: tuple[UUID, ...] = field(repr=False)
    truncated: bool
    full_content_length: int


def attribute(
    defaults: Mapping[str, str | None],
    *,
    source: str | None = None,
    agent: str | None = None,
    channel: str | None = None,
    persona: str | None = None,
) -> Attribution:
    """Whose words these are: what the call says, else the process's defaults, else `mcp`. Blank says nothing."""
    said = {"source": source, "agent": agent, "channel": channel, "persona": persona}
    named = {key: clean_text(value or "").strip() or (defaults.get(key) or "").strip() for key, value in said.items()}
    if len(named["agent"]) > _MAX_AGENT:
        raise InvalidInputError("agent", f"must have at most {_MAX_AGENT} characters")
    return Attribution(
        named["source"] or DEFAULT_NAME,
        named["agent"] or DEFAULT_NAME,
        named["channel"] or DEFAULT_NAME,
        named["persona"] or None,
    )


def append_event_id(session_id: str, agent: str, message: NewMessage) -> str:
    """The identity of an appended message that brings none: a hash of all it says, before the cap.

    The same message appended again has the same id, on purpose; a true repetition needs an `event_id` of its own.
    """
    return content_event_id("append", session_id, agent, *_said(message))


def ingest_event_id(session_id: str, agent: str, ordinal: int, message: NewMessage) -> str:
    """The identity of a session's message that brings none: a hash of its place and of all it says, before the cap."""
    return content_event_id("ingest", session_id, agent, str(ordinal), *_said(message))


def memory_append(
    connection: Connection,
    session_id: str,
    message: NewMessage,
    attribution: Attribution,
    *,
    first_day: date,
    redact: bool = False,
) -> Appended:
    """Stores one message; it is durable when the call returns. `redact` is that of `write_batch`.

    Raises `InvalidInputError` naming the field, with nothing stored, and `psycopg.Error` when the store fails.
    """
    key = _session_key(session_id)
    _check(message, "")
    event_id = _event_id(message) or append_event_id(key, attribution.agent, message)
    moment = message.created_at or datetime.now(UTC)
    record = _record(message, event_id, attribution, moment)
    # Who gives an id says that it names this message: under a known one nothing is added.
    result = _write(connection, key, attribution, [record], first_day, redact=redact, keep_clashes=False)
    content, tool_result = _lengths(message)
    return Appended(
        id=result.ids[0],
        event_id=result.event_ids[0],
        session_id=key,
        source=attribution.source,
        agent=attribution.agent,
        channel=attribution.channel,
        persona=attribution.persona,
        truncated=max(content, tool_result or 0) > CAPTURE_CAP,
        full_content_length=content,
        full_tool_result_length=tool_result,
        skipped=result.new == 0,
        filled=result.filled > 0,
        conflict=result.clashed > 0,
    )


def memory_ingest_session(
    connection: Connection,
    session_id: str,
    messages: Sequence[NewMessage],
    attribution: Attribution,
    *,
    first_day: date,
    redact: bool = False,
) -> Ingested:
    """Stores the messages of a session in one transaction, in their order; repeating the call adds nothing.

    A message without `created_at` takes the time of the one before it; `redact` is that of `write_batch`. Raises
    `InvalidInputError` naming the field (`messages[3].created_at`), with nothing stored, and `psycopg.Error` when the
    store fails.
    """
    key = _session_key(session_id)
    if not messages:
        raise InvalidInputError("messages", "must hold at least one message")
    for ordinal, message in enumerate(messages):
        _check(message, f"messages[{ordinal}].")
    records = [
        _record(
            message,
            _event_id(message) or ingest_event_id(key, attribution.agent, ordinal, message),
            attribution,
            message.created_at,
        )
        for ordinal, message in enumerate(messages)
    ]
    result = _write(connection, key, attribution, records, first_day, redact=redact, keep_clashes=True)
    lengths = [_lengths(message) for message in messages]
    return Ingested(
        session_id=key,
        source=attribution.source,
        agent=attribution.agent,
        channel=attribution.channel,
        persona=attribution.persona,
        ingested=result.new,
        skipped=result.known,
        ids=result.ids,
        truncated=any(max(content, tool_result or 0) > CAPTURE_CAP for content, tool_result in lengths),
        full_content_length=max(content for content, _ in lengths),
    )


def _write(
    connection: Connection,
    session_key: str,
    attribution: Attribution,
    records: Sequence[MessageRecord],
    first_day: date,
    *,
    redact: bool,
    keep_clashes: bool,
) -> WriteResult:
    return write_batch(
        connection,
        SessionRecord(session_key, attribution.agent, attribution.channel),
        records,
        first_day=first_day,
        cap=CAPTURE_CAP,
        redact=redact,
        extra=Extra(new_title=f"Session {session_key}", keep_clashes=keep_clashes, with_ids=True),
    )


def _session_key(session_id: str) -> str:
    key = clean_text(session_id)
    if not key.strip():
        raise InvalidInputError("session_id", "must not be blank")
    return key


def _check(message: NewMessage, at: str) -> None:
    if message.role not in get_args(Role):
        raise InvalidInputError(f"{at}role", f"is required: one of {', '.join(get_args(Role))}")
    if message.created_at is not None and message.created_at.tzinfo is None:
        raise InvalidInputError(f"{at}created_at", "has no time zone; write it as 2026-03-08T10:00:00Z")
    if not message.content.strip() and not _uses_tool(message):
        raise InvalidInputError(f"{at}content", "must not be empty unless there is a tool_name or a tool_result")


def _uses_tool(message: NewMessage) -> bool:
    return bool((message.tool_name or "").strip() or message.tool_result is not None or message.tool_calls)


def _event_id(message: NewMessage) -> str | None:
    given = clean_text(message.event_id or "").strip()
    return clean_event_id(given) if given else None


def _first_call(message: NewMessage) -> tuple[str | None, Any]:
    """The tool of a message's row: the one it names, else that of its first call; all calls stand in its metadata."""
    if message.tool_name or not message.tool_calls:
        return message.tool_name or None, message.tool_args
    return message.tool_calls[0].name, message.tool_calls[0].input


def _said(message: NewMessage) -> list[str]:
    """All that a message says. JSON tells a missing result from an empty one, and is the same however it was sent."""
    tool = [message.tool_name or None, message.tool_args, message.tool_result, _calls(message)]
    return [message.role or "", message.content, *(_canonical(part) for part in tool)]


def _canonical(value: Any) -> str:
    return json.dumps(clean_json(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _calls(message: NewMessage) -> list[dict[str, Any]]:
    return [{"id": call.id, "name": call.name, "input": call.input} for call in message.tool_calls]


def _record(message: NewMessage, event_id: str, attribution: Attribution, created_at: datetime | None) -> MessageRecord:
    name, arguments = _first_call(message)
    known = {"source": attribution.source, "persona": attribution.persona, "tool_calls": _calls(message)}
    return MessageRecord(
        event_id=event_id,
        role=cast(Role, message.role),
        content=message.content,
        tool_name=name,
        tool_args=arguments,
        tool_result=message.tool_result,
        metadata={key: value for key, value in known.items() if value},
        created_at=created_at,
    )


def _lengths(message: NewMessage) -> tuple[int, int | None]:
    """The lengths of content and tool result in UTF-16 units, as they would be stored without the cap."""
    tool_result = None if message.tool_result is None else utf16_units(clean_text(message.tool_result))
    return utf16_units(clean_text(message.content)), tool_result
