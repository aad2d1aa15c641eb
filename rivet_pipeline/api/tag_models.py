"""What goes over the wire about tags: the bodies, parameters and answers of `/api/memory/tags*`.

Bodies and parameters are snake_case, answers carry camelCase keys and times in UTC, as everywhere in this API.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from rivet_pipeline.api.models import Filled, Words
from rivet_pipeline.tags.types import Decision, EntityKind, Status
from rivet_pipeline.transcripts.cleaning import ENVELOPE, clean_json

#: Who decides when a caller names nobody.
NOBODY = "api"


def _accepted() -> list[Status]:
    return ["accepted"]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: object) -> object:
        return clean_json(value, around=ENVELOPE)


class _Signed(_Body):
    decided_by: Filled = Field(NOBODY, max_length=200, description="Who decides; it is kept in the log.")


class TagsQuery(_Query):
    """The parameters of a listing of tags."""

    entity_type: EntityKind | None = None
    entity_id: UUID | None = None
    conversation_id: UUID | None = Field(None, description="Tags of this conversation and of its summaries.")
    key: str | None = None
    value: str | None = Field(None, description="Needs `key`. What was merged is looked up as what it means now.")
    state: str | None = Field(
        None, description="suggested, accepted, rejected, or several of them with commas. Default: the first two."
    )
    limit: int = Field(200, ge=1, le=1000)


class PendingQuery(_Query):
    """The parameters of what waits for a review."""

    conversation_id: UUID | None = None
    limit: int = Field(50, ge=1, le=500, description="Sessions, those with the newest suggestion first.")


class CountsQuery(_Query):
    """The parameters of the counts."""

    key: str | None = None
    limit: int = Field(200, ge=1, le=1000)


class TaxonomyQuery(_Query):
    """The parameters of the vocabulary."""

    key: str | None = None
    state: str | None = Field(None, description="suggested, accepted, rejected, or several of them with commas.")
    limit: int = Field(500, ge=1, le=5000)


class LogQuery(_Query):
    """The parameters of the log of decisions."""

    tag_id: UUID | None = Field(None, description="Only decisions that changed this tag.")
    limit: int = Field(50, ge=1, le=500)


class DecideItem(_Body):
    """One tag and what is decided of it."""

    id: UUID
    state: Decision
    seen: int | None = Field(
        None, description="The `revision` that the decision rests on; another one by now answers a conflict."
    )


class DecideBody(_Signed):
    """Decisions about tags: either `ids` with one `state` for all, or `items`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"ids": ["0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"], "state": "accepted", "decided_by": "ada"},
                {"items": [{"id": "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49", "state": "rejected", "seen": 17}]},
            ]
        }
    )

    ids: list[UUID] = Field(default_factory=list, max_length=1000)
    state: Decision | None = Field(None, description="accepted, rejected; removed or kept answer a suggested removal.")
    items: list[DecideItem] = Field(default_factory=list, max_length=1000)

    @model_validator(mode="after")
    def _one_way(self) -> DecideBody:
        if bool(self.ids) == bool(self.items):
            raise ValueError("give either ids with a state, or items")
        if self.ids and self.state is None:
            raise ValueError("ids need a state: accepted, rejected, removed or kept")
        return self


class AddBody(_Signed):
    """A tag that a person gives a session, a conversation or a summary."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"session_key": "claude-code:5b0f4f0e", "tag": "topic:caching", "decided_by": "ada"}]
        }
    )

    tag: Words | None = Field(None, description="`key:value`, also with a full-width colon.")
    key: str | None = None
    value: str | None = None
    display: str = Field(
        "", max_length=200, description="How the value is shown, where that differs from its spelling."
    )
    entity_type: EntityKind = "conversation"
    entity_id: UUID | None = None
    session_key: Words | None = Field(None, description="Instead of `entity_id`.")
    agent: Words | None = Field(None, description="Needed when several agents have the session key.")

    @model_validator(mode="after")
    def _named(self) -> AddBody:
        if (self.tag is None) == (self.key is None or self.value is None):
            raise ValueError("give either tag, or key and value")
        if (self.entity_id is None) == (self.session_key is None):
            raise ValueError("give either entity_id or session_key")
        return self


class RemovalBody(_Signed):
    """A suggestion to take an accepted tag off again."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49", "reason": "another project", "decided_by": "ada"}
            ]
        }
    )

    id: UUID
    reason: str = Field("", max_length=400)


class LookupBody(_Body):
    """Sessions whose tags are wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"session_keys": ["claude-code:5b0f4f0e"]}]})

    session_keys: list[Words] = Field(max_length=500)
    states: list[Status] = Field(default_factory=_accepted)


class ValueBody(_Signed):
    """A value of the vocabulary; what is left out stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"key": "topic", "value": "caching", "decided_by": "ada"}]}
    )

    key: str
    value: str
    display: str | None = Field(None, max_length=200)
    description: str | None = Field(None, max_length=1000)
    state: Status | None = Field(
        None,
        description="Left out: accepted; a value that is only described keeps what was decided of it.",
    )


class ValueDecision(_Body):
    """One value and what is decided of it."""

    key: str
    value: str
    state: Status
    seen: int | None = None


class ValueDecisions(_Signed):
    """Decisions about values of the vocabulary."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"entries": [{"key": "topic", "value": "caching", "state": "accepted"}], "decided_by": "ada"}]
        }
    )

    entries: list[ValueDecision] = Field(min_length=1, max_length=500)


class MergeBody(_Signed):
    """Two values of one key that mean the same."""

    model_config = ConfigDict(
        populate_by_name=True,
        json_schema_extra={"examples": [{"key": "topic", "from": "pg", "into": "postgres", "decided_by": "ada"}]},
    )

    key: str
    value: str = Field(alias="from")
    into: str


class UndoBody(_Signed):
    """The decision that is undone."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"decision": "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49", "decided_by": "ada"}]}
    )

    decision: UUID


class _Answer(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, from_attributes=True
    )


class TagAnswer(_Answer):
    """One tag. `revision` names this very content of the row."""

    id: UUID
    entity_kind: EntityKind = Field(serialization_alias="entityType")
    entity_id: UUID
    conversation_id: UUID
    key: str
    value: str
    display: str
    status: Status = Field(serialization_alias="state")
    source: str
    confidence: float | None
    reason: str
    proposed_by: str
    removal: Literal["suggested", "refused"] | None
    removal_reason: str
    reviewed: bool
    decided_by: str | None
    decided_at: datetime | None
    created_at: datetime
    revision: int


class TagsAnswer(_Answer):
    """Tags, the accepted ones first."""

    tags: list[TagAnswer]


class PendingTagAnswer(_Answer):
    """One literal of a session that waits. `rows`: where it stands; a decision about it takes all their ids."""

    tag: str
    display: str
    removal: bool
    rows: list[TagAnswer]


class PendingSessionAnswer(_Answer):
    """One session with what waits for a review."""

    conversation_id: UUID
    session_key: str
    title: str | None
    agent: str
    updated_at: datetime
    age_seconds: float
    excerpt: str
    accepted: list[str]
    tags: list[PendingTagAnswer]


class PendingAnswer(_Answer):
    """What waits for a review, by session. `more`: further sessions wait; they come once these are decided about."""

    sessions: list[PendingSessionAnswer]
    more: bool


class CountAnswer(_Answer):
    """How many conversations carry a tag, accepted, on the session or on any of its summaries."""

    key: str
    value: str
    display: str
    conversations: int


class CountsAnswer(_Answer):
    """Counts, the most carried first."""

    counts: list[CountAnswer]


class SessionTagAnswer(_Answer):
    """One tag of a session."""

    tag: str
    display: str
    status: Status = Field(serialization_alias="state")
    reviewed: bool
    on_session: bool


class LookupAnswer(_Answer):
    """The tags of sessions by their keys."""

    sessions: dict[str, list[SessionTagAnswer]]


class ValueAnswer(_Answer):
    """One value of the vocabulary. `aliasOf`: it was merged into that one."""

    key: str
    value: str
    display: str
    status: Status = Field(serialization_alias="state")
    alias_of: str | None
    description: str
    source: str
    proposed_by: str
    decided_by: str | None
    decided_at: datetime | None
    created_at: datetime
    revision: int
    uses: int


class TaxonomyAnswer(_Answer):
    """The vocabulary, the most used first."""

    values: list[ValueAnswer]


class ItemAnswer(_Answer):
    """What became of one item; `problem` says why it was left."""

    id: UUID | None
    outcome: Literal["changed", "unchanged", "conflict", "missing", "invalid"]
    problem: str
    tag: TagAnswer | None


class DecidedAnswer(_Answer):
    """What a decision did. `decision` undoes it and is null when nothing was changed."""

    decision: UUID | None
    changed: int
    items: list[ItemAnswer]


class MergedAnswer(_Answer):
    """What a merge did: tags re-pointed, and tags that gave way to one that was there already."""

    decision: UUID | None
    key: str
    value: str = Field(serialization_alias="from")
    into: str
    moved: int
    dropped: int


class LogEntryAnswer(_Answer):
    """One decision."""

    decision: UUID
    action: str
    decided_by: str
    decided_at: datetime
    rows: int
    literals: list[str]
    undone_by: UUID | None
    undoes: UUID | None


class LogAnswer(_Answer):
    """Decisions, the newest first."""

    decisions: list[LogEntryAnswer]
