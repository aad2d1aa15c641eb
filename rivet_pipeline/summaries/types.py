"""What a summarizer is asked and what it answers. Plain data and one protocol, no work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from uuid import UUID

Kind = Literal["leaf", "branch", "root"]


@dataclass(frozen=True, slots=True)
class ConversationInfo:
    """The conversation that is summarised, as far as a prompt tells of it."""

    id: UUID
    agent: str
    channel: str
    channel_id: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message below a leaf. `created_at` is aware UTC, `text_hash` the row's own.

    `segment` says which part of the message this is, when it is too long to be read at once.
    """

    id: UUID
    created_at: datetime
    agent: str
    role: str
    content: str
    tool_name: str | None = None
    tool_args: Any = None
    tool_result: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    text_hash: str = ""
    segment: str = ""


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """One summary below a branch or a root. `segment` as that of a message."""

    id: UUID
    content: str
    earliest_at: datetime
    latest_at: datetime
    message_count: int
    agents: tuple[str, ...] = ()
    text_hash: str = ""
    segment: str = ""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What one summary is made from: messages for a leaf, summaries for a branch or a root, oldest first.

    `missing` are the identifiers of a first answer that no source holds: the summarizer is being asked once more.
    """

    kind: Kind
    conversation: ConversationInfo
    messages: tuple[SourceMessage, ...] = ()
    children: tuple[SourceSummary, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[SourceMessage | SourceSummary, ...]:
        """What stands directly below it, oldest first."""
        return (*self.messages, *self.children)

    @property
    def earliest_at(self) -> datetime:
        """When the oldest message below it was written."""
        return min([m.created_at for m in self.messages] + [c.earliest_at for c in self.children])

    @property
    def latest_at(self) -> datetime:
        """When the newest message below it was written."""
        return max([m.created_at for m in self.messages] + [c.latest_at for c in self.children])

    @property
    def message_count(self) -> int:
        """How many messages stand below it, at any depth."""
        return len(self.messages) + sum(child.message_count for child in self.children)

    @property
    def agents(self) -> list[str]:
        """The agents of those messages, sorted."""
        return sorted({m.agent for m in self.messages} | {agent for c in self.children for agent in c.agents})

    @property
    def input_ids(self) -> list[UUID]:
        """The ids of what stands directly below it, oldest first."""
        return [message.id for message in self.messages] + [child.id for child in self.children]

    @property
    def input_lines(self) -> str:
        """What `ros_input_hash` hashes of it: a line for each thing directly below it, its id and its text's hash."""
        lines = [f"{message.id} {message.text_hash}" for message in self.messages]
        lines += [f"{child.id} {child.text_hash}" for child in self.children]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SummaryDraft:
    """A summary that may be stored. Tokens are the model's own count, 0 when it gives none.

    `answered_by`: the model that wrote it by the service's own word, None when that is always the summarizer's.
    `fallback`: a service that stands in for the configured one wrote it.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 1
    answered_by: str | None = None
    fallback: bool = False


class Summarizer(Protocol):
    """Makes a summary of messages or of summaries."""

    @property
    def model(self) -> str:
        """The configured model's name, stored with each summary and in its hash; a row of another name is stale."""
        ...

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        """The summary. Raises `ModelError` when there is none: never a stand-in text."""
        ...


def minute(moment: datetime) -> str:
    """A time as every layer writes it: `2026-04-18T12:00Z`, UTC, to the minute."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
