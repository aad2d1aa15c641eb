"""What goes over the wire: the bodies, parameters and answers of the routes, with their examples.

Answers carry camelCase keys and times in UTC. `/api/capture` speaks snake_case both ways, as its clients do.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core.core_schema import ValidationInfo

from rivet_pipeline.api.times import parse_time
from rivet_pipeline.retrieval.lineage import DEFAULT_EXCERPT, DEFAULT_MESSAGES, DEFAULT_SUMMARIES
from rivet_pipeline.retrieval.types import Mode, Scope
from rivet_pipeline.transcripts.cleaning import ENVELOPE, clean_json, clean_text
from rivet_pipeline.transcripts.records import Role

_MESSAGE_EXAMPLE: dict[str, JsonValue] = {
    "event_id": "9f1c0a52-3d0e-4f0a-8f43-1a2b3c4d5e6f",
    "role": "user",
    "content": "We decided to keep sessions in Postgres, not in Redis.",
    "created_at": "2026-03-08T09:15:00Z",
}


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _time(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a text such as 2026-03-08T10:00:00Z")
    return parse_time(value)


#: How the schema says what `_not_blank` checks.
_SAYS_SOMETHING = Field(json_schema_extra={"pattern": r"\S"})

Filled = Annotated[str, AfterValidator(_not_blank), _SAYS_SOMETHING]
Time = Annotated[
    datetime,
    BeforeValidator(_time),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-03-08T10:00:00Z"]}),
]


class CaptureMessage(BaseModel):
    """One message as a harness saw it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_MESSAGE_EXAMPLE]})

    event_id: Filled = Field(
        description="Its identity within the conversation. The same words sent again are skipped; other words under a "
        "known id are kept beside them."
    )
    role: Role
    tool_name: str | None = Field(None, description="The tool that was called, if one was.")
    tool_args: Any = Field(None, description="The arguments of the call, any JSON.")
    tool_result: str | None = Field(
        None, description="What the tool answered. It may come later, under the same `event_id`."
    )
    content: str = Field(
        "",
        validate_default=True,
        description="The text. Empty only beside a `tool_name` or a `tool_result`. More than 16,000 UTF-16 units are "
        "cut, and `metadata` then says so and how long it was.",
    )
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: Time | None = Field(None, description="ISO 8601 with an offset. Absent: that of the message before it.")

    @field_validator("content", mode="before")
    @classmethod
    def _absent_text(cls, value: object) -> object:
        return "" if value is None else value

    @field_validator("metadata", mode="before")
    @classmethod
    def _absent_object(cls, value: object) -> object:
        return {} if value is None else value

    @field_validator("content")
    @classmethod
    def _says_something(cls, value: str, info: ValidationInfo) -> str:
        tool = info.data.get("tool_name") or info.data.get("tool_result") is not None
        if not value.strip() and not tool:
            raise ValueError("must not be empty unless there is a tool_name or a tool_result")
        return value


class CaptureBatch(BaseModel):
    """Messages of one conversation, stored together or not at all."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "session_key": "claude-code:5b0f4f0e-2f58-4a7e-9d4d-1c2b3a495867",
                    "agent": "claude-code",
                    "channel": "cli",
                    "title": "Where sessions live",
                    "settings": {"cwd": "/home/ada/shop"},
                    "messages": [_MESSAGE_EXAMPLE],
                }
            ]
        },
    )

    session_key: Filled = Field(description="`<harness>:<native session id>`.")
    agent: Annotated[Filled, StringConstraints(max_length=200)]
    channel: Filled
    title: str | None = None
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Merged into what is stored, key by key at any depth; null says nothing. The project that `cwd` "
        "belongs to is kept as `project` unless one is known.",
    )
    task_id: UUID | None = None
    created_at: Time | None = Field(
        None, description="When the conversation began, for a backfill: messages without a time are placed there."
    )
    updated_at: Time | None = Field(None, description="When it was last active, for a backfill.")
    finalize: bool = Field(False, strict=True, description="The conversation is over.")
    messages: list[CaptureMessage] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: object) -> object:
        return clean_json(value, around=ENVELOPE)

    @field_validator("settings", mode="before")
    @classmethod
    def _absent_object(cls, value: object) -> object:
        return {} if value is None else value


class CaptureAnswer(BaseModel):
    """What the batch did. `skipped` were there already; `filled` are late tool results that found their call."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ok": True,
                    "conversation_id": "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49",
                    "inserted": 1,
                    "skipped": 0,
                    "filled": 0,
                }
            ]
        }
    )

    ok: Literal[True] = True
    conversation_id: UUID
    inserted: int
    skipped: int
    filled: int


Words = Annotated[str, BeforeValidator(lambda value: clean_text(value) if isinstance(value, str) else value)]
Filter = Annotated[Words, AfterValidator(_not_blank), _SAYS_SOMETHING]


class _Query(BaseModel):
    """Query parameters. Unknown names are refused: a misspelt filter must not mean no filter."""

    model_config = ConfigDict(extra="forbid")


class _Period(_Query):
    since: Time | None = Field(None, description="Not before this instant. ISO 8601 with an offset.")
    before: Time | None = Field(None, description="Before this instant (exclusive). ISO 8601 with an offset.")
    window: str | None = Field(
        None,
        description="A named period instead of `since` and `before`, cut in the service's time zone: today, "
        "yesterday, this_morning, this_week, last_24h, last_7d, last_14d.",
        examples=["last_7d"],
    )


_TAG = "`key:value`: only sessions that carry this accepted tag, themselves or on one of their summaries."


class SearchQuery(_Period):
    """The parameters of a search."""

    q: Words = Field(description="What to look for, in words.", examples=["where do sessions live"])
    mode: Mode = Field(
        "hybrid",
        description="By words and meaning; by words alone (fts); by meaning alone (vector); by reading the texts for "
        "`q` as it stands, or spelled nearly so (trigram), or for a regular expression of Postgres (regex).",
    )
    scope: Scope = Field("both", description="Messages, summaries, or both in one list.")
    limit: int = Field(20, ge=1, le=50)
    agent: Filter | None = None
    role: Role | None = None
    conversation_id: UUID | None = None
    tag: Filter | None = Field(None, description=_TAG, examples=["project:shop"])
    explain: bool = Field(False, description="Adds the parts of each score.")


class BrowseQuery(_Period):
    """The parameters of a chronological listing."""

    agent: Filter | None = None
    role: Role | None = None
    tool_name: Filter | None = None
    conversation_id: UUID | None = None
    tag: Filter | None = Field(None, description=_TAG, examples=["project:shop"])
    session_key: Filter | None = Field(None, description="The conversations of this session key, whatever the agent.")
    limit: int = Field(50, ge=1, le=200)
    order: Literal["desc", "asc"] = Field("desc", description="Newest first, or oldest first.")
    include_tools: bool = Field(True, description="false leaves out what tools said.")
    cursor: str | None = Field(
        None, description="`nextCursor` or `previousCursor` of another page; leave the other filters as they were."
    )


class SessionMessagesQuery(_Query):
    """The parameters of a session's listing."""

    limit: int = Field(200, ge=1, le=1000)
    order: Literal["asc", "desc"] = Field("asc", description="Oldest first, or newest first.")
    include_tools: bool = Field(True, description="false leaves out what tools said.")
    cursor: str | None = Field(
        None, description="`nextCursor` or `previousCursor` of another page; leave the other parameters as they were."
    )


class StatsQuery(_Query):
    """The parameters of the figures."""

    agent: Filter | None = Field(None, description="Counts this agent's messages only.")


class NoQuery(_Query):
    """No parameters."""


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class ScorePartsAnswer(_Answer):
    """The parts of a score, each from 0 to 1 before its weight; see `ranking` in the documentation of retrieval."""

    text: float
    semantic: float
    temporal: float
    importance: float
    neighbours: float
    tree: float
    session: float
    session_best: float
    named: float
    within: float
    noise: float
    diversity: float


class PeriodAnswer(_Answer):
    """The period that was asked for, in UTC; null is open. Named windows are cut at the midnights of `zone`."""

    zone: str
    since: datetime | None
    before: datetime | None


class HitAnswer(_Answer):
    """One hit. For a summary, `createdAt` is the time of its latest source. `tags` are its session's accepted ones."""

    id: UUID
    source: Literal["message", "summary"]
    score: float
    content: str
    snippet: str
    created_at: datetime
    role: str | None
    agent: str
    kind: str
    tool_name: str | None
    conversation_id: UUID
    session_id: str
    title: str | None
    earliest_at: datetime | None
    message_count: int | None
    tags: list[str]
    parts: ScorePartsAnswer | None = Field(None, description="Only with `explain=true`.")


class Degraded(_Answer):
    """What was not used to answer, and what that means for the answer."""

    reason: str
    effect: str


class NamedTimeAnswer(_Answer):
    """Words of the query that were read as a time, from `since` to `before` (exclusive), in UTC.

    `said` is false when nothing within the filters is of that time; the words are then looked for as they are.
    """

    words: str
    since: datetime
    before: datetime
    said: bool


class SearchAnswer(_Answer):
    """Hits, best first. No hit comes with a `reason` where there is one to give (only stop words, for instance).

    `unmatched` says that no text holds a word of the query, so that the hits are only near in meaning. `times` has what
    was read as a time from the present (`last week`): what was said then is preferred to the rest.
    """

    query: str
    mode: Mode
    scope: Scope
    period: PeriodAnswer
    degraded: Degraded | None
    reason: str | None
    unmatched: str | None
    times: list[NamedTimeAnswer]
    results: list[HitAnswer]


class BrowsedAnswer(_Answer):
    """One message of a listing, whole."""

    id: UUID
    role: str
    agent: str
    channel: str
    content: str
    created_at: datetime
    conversation_id: UUID
    session_id: str
    title: str | None
    tool_name: str | None
    tool_args: Any
    tool_result: str | None
    metadata: dict[str, Any]


class BrowseAnswer(_Answer):
    """One page of messages; `nextCursor` asks for the next one and is null at the end.

    `previousCursor` asks for the one before and is null at the beginning.
    """

    messages: list[BrowsedAnswer]
    next_cursor: str | None
    previous_cursor: str | None
    period: PeriodAnswer


class LineageQuery(_Query):
    """How much a lineage may hold."""

    summaries: int = Field(
        DEFAULT_SUMMARIES, ge=0, le=1000, description="The most summaries below the one that is asked for."
    )
    messages: int = Field(DEFAULT_MESSAGES, ge=0, le=2000, description="The most messages.")
    excerpt: int = Field(
        DEFAULT_EXCERPT, ge=20, le=2000, description="The longest excerpt, in characters: a text's first line, cut."
    )


class LineageMessageAnswer(_Answer):
    """One message. `madeBy`: its text was not captured but made for a tool call, and by whom."""

    id: UUID
    created_at: datetime
    agent: str
    role: str
    tool_name: str | None
    excerpt: str
    made_by: str | None


class LineageSummaryAnswer(_Answer):
    """One summary. `sources` counts what is directly below it; `children` or `messages` hold what the budget allows."""

    id: UUID
    kind: Literal["leaf", "branch", "root"]
    earliest_at: datetime
    latest_at: datetime
    message_count: int
    model: str
    pipeline_version: int
    grounding: float | None
    excerpt: str
    sources: int
    children: list[LineageSummaryAnswer]
    messages: list[LineageMessageAnswer]


class LineageAnswer(_Answer):
    """Where a summary or a message stands. Either `summary` or `message` is filled.

    `above` are the summaries over it, the topmost first; they come without what is below them. `omittedSummaries` and
    `omittedMessages` count what stands below and is not in this answer.
    """

    conversation_id: UUID
    session_id: str
    title: str | None
    above: list[LineageSummaryAnswer]
    summary: LineageSummaryAnswer | None
    message: LineageMessageAnswer | None
    omitted_summaries: int
    omitted_messages: int
    note: str | None


class ToolAnswer(BaseModel):
    """What a tool said."""

    ok: Literal[True] = True
    result: Any


class StatsAnswer(_Answer):
    """What the memory holds. `alerts` come first: each names something that needs a person."""

    alerts: list[str]
    figures: dict[str, Any]
    errors: dict[str, str] = Field(description="Figures that could not be read, and why.")
    observed_at: datetime


class EmbeddingsHealth(_Answer):
    """Whether the embedding model answers; `reason` says why not."""

    status: Literal["ok", "unavailable"]
    model: str | None
    reason: str | None


class FailuresHealth(_Answer):
    """What the failure ledger holds, by why it failed; `givenUp` are those that are not tried again by themselves."""

    transient: int
    content: int
    permanent: int
    given_up: int


class SpoolHealth(_Answer):
    """The captures of this machine that wait for the service, and those that it refused."""

    depth: int
    oldest_seconds: float | None = Field(description="How long the oldest has waited.")
    dead: int


class HealthAnswer(_Answer):
    """The service's state. Pending work is no fault: `degraded` means that something needs a person."""

    status: Literal["ok", "degraded"]
    database: Literal["ok"]
    embeddings: EmbeddingsHealth
    pending: dict[str, int] = Field(description="Items that wait for each stage of the pipeline.")
    pending_at_most: list[str] = Field(
        description="The stages with so much to do that `pending` has what they have not seen: it may be less, or none."
    )
    failures: FailuresHealth
    spool: SpoolHealth
    observed_at: datetime
