"""What goes over the wire for a turn's context and for unfolded search hits, with its examples.

The parameters and answers that other routes share stand in `models.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rivet_pipeline.api.models import Filter, Words
from rivet_pipeline.retrieval.context import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET


class _Query(BaseModel):
    """Query parameters. Unknown names are refused: a misspelt filter must not mean no filter."""

    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class ContextQuery(_Query):
    """The parameters of a turn's context. Where the workspace files stand is configured, and never asked for."""

    session_key: Filter | None = Field(
        None, description="The session of the turn: its latest messages and summaries go in."
    )
    agent: Filter | None = Field(None, description="Only this agent's words, in the session and in memory.")
    q: Words | None = Field(
        None,
        description="The turn's words, which memory is searched for. Absent: the session's latest words of a person.",
        examples=["where do sessions live"],
    )
    budget: int = Field(
        DEFAULT_BUDGET, ge=MIN_BUDGET, le=MAX_BUDGET, description="The most tokens of the whole text, by an estimate."
    )


class ContextItemAnswer(_Answer):
    """One file, message or summary as it is shown; `cut` says that `text` is not all of it."""

    source: Literal["file", "message", "summary"]
    text: str
    cut: bool
    size: int = Field(description="Of the whole: bytes of a file, else characters.")
    id: UUID | None
    name: str | None
    kind: str | None
    score: float | None
    created_at: datetime | None
    earliest_at: datetime | None
    agent: str | None
    role: str | None
    tool_name: str | None
    session_id: str | None
    title: str | None
    message_count: int | None


class ContextSectionAnswer(_Answer):
    """What stands below one heading, in order; never empty."""

    name: Literal["workspace", "conversation", "summaries", "relevant"]
    heading: str
    items: list[ContextItemAnswer]


class MissingAnswer(_Answer):
    """A part that was left out, or not as good as it could be, and why."""

    part: str
    reason: str


class ContextAnswer(_Answer):
    """A turn's context: `text` is Markdown for a system prompt, empty when there is nothing to say.

    What was said before stands in it on lines that begin with `>`, marked as records and not as instructions.
    `withoutRoom` counts what did not fit, `repeated` what was left out because it was there already.
    """

    text: str
    tokens: int = Field(description="Of the whole text, by an estimate that is seldom too low.")
    budget: int
    sections: list[ContextSectionAnswer]
    degraded: list[MissingAnswer]
    without_room: int
    repeated: int
