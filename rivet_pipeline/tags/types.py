"""What a tagger is asked and what it answers, and what a tag is. Plain data and one protocol, no work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal as OneOf
from typing import Protocol
from uuid import UUID

from rivet_pipeline.tags.literals import Literal

EntityKind = OneOf["conversation", "summary"]
Status = OneOf["suggested", "accepted", "rejected"]
Source = OneOf["rule", "model", "keyphrases", "person", "import"]

#: What a person may decide of a tag. `removed` and `kept` answer a suggested removal.
Decision = OneOf["accepted", "rejected", "removed", "kept"]

#: What became of one item of a decision. `conflict`: somebody has changed the tag since it was seen.
Outcome = OneOf["changed", "unchanged", "conflict", "missing", "invalid"]

#: Proposals and removals of one leaf together.
MAX_PROPOSALS = 8

#: The keys that a tagger is asked for.
KEYS = ("project", "topic")


@dataclass(frozen=True, slots=True)
class TagRequest:
    """One leaf, and what is known already.

    `vocabulary` is the accepted one, the most used first; `current` are the accepted tags of the leaf and its
    conversation.
    """

    text: str
    title: str = ""
    agent: str = ""
    vocabulary: Sequence[Literal] = ()
    current: Sequence[Literal] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A tag that a tagger suggests, or with `removal` one that it would take off again."""

    literal: Literal
    display: str = ""
    confidence: float | None = None
    reason: str = ""
    removal: bool = False


@dataclass(frozen=True, slots=True)
class TagAnswer:
    """What a tagger suggests for one leaf; nothing at all is an answer. Tokens are the model's own count."""

    proposals: list[Proposal]
    tokens: int = 0


class Tagger(Protocol):
    """Proposes tags for leaf summaries."""

    @property
    def name(self) -> str:
        """What is stored with each of its proposals."""
        ...

    @property
    def source(self) -> OneOf["model", "keyphrases"]:
        """`model` when a proposal costs a model call, else `keyphrases`."""
        ...

    def propose(self, request: TagRequest) -> TagAnswer:
        """The proposals, `MAX_PROPOSALS` at most. Raises `ModelError` when there is no answer."""
        ...


@dataclass(frozen=True, slots=True)
class Tag:
    """One row of `ros_tags`. Times are UTC; `revision` names this very content of the row."""

    id: UUID
    entity_kind: EntityKind
    entity_id: UUID
    conversation_id: UUID
    key: str
    value: str
    display: str
    status: Status
    source: Source
    confidence: float | None
    reason: str
    proposed_by: str
    pipeline_version: int
    removal: OneOf["suggested", "refused"] | None
    removal_reason: str
    decided_by: str | None
    decided_at: datetime | None
    created_at: datetime
    revision: int

    @property
    def literal(self) -> Literal:
        """`key:value`."""
        return Literal(self.key, self.value)

    @property
    def reviewed(self) -> bool:
        """Whether a person has decided about it."""
        return self.decided_by is not None


@dataclass(frozen=True, slots=True)
class Value:
    """One row of `ros_tag_taxonomy`: a value of the vocabulary. `uses` counts conversations that carry it, accepted."""

    key: str
    value: str
    display: str
    status: Status
    alias_of: str | None
    description: str
    source: str
    proposed_by: str
    decided_by: str | None
    decided_at: datetime | None
    created_at: datetime
    revision: int
    uses: int = 0


@dataclass(frozen=True, slots=True)
class PendingTag:
    """One literal of a session that waits for a review. `rows`: where it stands, the session's own row first.

    `removal`: a tagger would have it taken off again.
    """

    literal: Literal
    display: str
    removal: bool
    rows: list[Tag]


@dataclass(frozen=True, slots=True)
class PendingSession:
    """One session with what waits for a review: suggested tags, and tags that a tagger would take off again.

    `waiting` counts their rows, `age_seconds` is that of the oldest of them; `excerpt` the beginning of what was
    summarised last.
    """

    conversation_id: UUID
    session_key: str
    title: str | None
    agent: str
    updated_at: datetime
    waiting: int
    age_seconds: float
    excerpt: str
    accepted: list[str]
    tags: list[PendingTag]


@dataclass(frozen=True, slots=True)
class Count:
    """How many conversations carry a tag, accepted, on the session or on any of its summaries."""

    key: str
    value: str
    display: str
    conversations: int


@dataclass(frozen=True, slots=True)
class SessionTag:
    """One tag of a session, those of its summaries among them, each literal once."""

    literal: Literal
    display: str
    status: Status
    reviewed: bool
    on_session: bool


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of one item. `tag` is the row as it is now; `problem` says why nothing was changed."""

    id: UUID | None
    outcome: Outcome
    tag: Tag | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision did. `decision` undoes it; None when nothing was changed."""

    decision: UUID | None
    items: list[ItemResult] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """How many items were changed."""
        return sum(item.outcome == "changed" for item in self.items)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did: rows re-pointed, and rows that gave way to one that was there already."""

    decision: UUID | None
    key: str
    value: str
    into: str
    moved: int
    dropped: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One decision of the log, newest first; `rows` counts the tags and values that it changed."""

    decision: UUID
    action: str
    decided_by: str
    decided_at: datetime
    rows: int
    literals: list[str]
    undone_by: UUID | None
    undoes: UUID | None
