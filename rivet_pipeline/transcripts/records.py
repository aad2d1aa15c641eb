"""What a message is, before it is stored: the record types that every reader and every capture route produces.

Only plain data belongs here; how a source is read stands in `reading.py`. No file, database or model is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

Role = Literal["system", "user", "assistant", "tool"]

#: What a message is in the conversation, stored as `metadata.kind`; absent means speech. Everything is kept, and
#: retrieval and refinement weigh it by this word.
Kind = Literal["speech", "thinking", "tool", "injected", "summary", "progress", "replay", "notice"]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The conversation a message belongs to, as far as its source knows it.

    `session_key` is `<harness>:<native session id>`. `settings` is merged into what is stored, key by key; a `title`
    replaces an older one only when it is not None.
    """

    session_key: str
    agent: str
    channel: str
    title: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    task_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message on its way in.

    `event_id` is its identity within the conversation: the source's own id, else a content hash with an ordinal.
    `created_at` is aware; None means that the source does not say, and the message is placed after the one before it.
    """

    event_id: str
    role: Role
    content: str = ""
    tool_name: str | None = None
    tool_args: Any = None
    tool_result: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """Reader output: one message and its conversation."""

    session: SessionRecord
    record: MessageRecord


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Reader output: the result of a tool call that came earlier (same `event_id`), or whose call is not in the file.

    `event_id` is that of the call's message; `metadata` is merged into it when the result is filled in.
    """

    session: SessionRecord
    event_id: str
    tool_result: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """Reader output: something about the conversation itself that came late (its title, a setting)."""

    session: SessionRecord


@dataclass(frozen=True, slots=True)
class Damaged:
    """Reader output: a record that could not be read. The records around it are not affected."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Reader output: a record that is sound and holds no message (a progress tick, a snapshot), by its kind."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Reader output: what stands at the end has no end yet; whoever writes the source may still finish it."""

    line: int


@dataclass(frozen=True, slots=True)
class Paused:
    """Reader output while a file is followed: all there is was given. The next item is to be asked for later."""


ReadItem = Message | ToolResult | SessionUpdate | Damaged | Skipped | Incomplete | Paused

#: Told how many bytes were read since the last call.
Advance = Callable[[int], None]
