"""What goes over the wire for a turn's context and for unfolded search hits, with its examples.

The parameters and answers that other routes share stand in `models.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rivet_pipeline.api.models import Filter, SearchAnswer, SearchQuery, Words
from rivet_pipeline.retrieval.context import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET
from rivet_pipeline.retrieval.expand import DEFAULT_CHARACTERS, MAX_CHARACTERS, MIN_CHARACTERS
from rivet_pipeline.retrieval.search import MAX_LIMIT


class _Query(BaseModel):
    """Query parameters. Unknown names are refused: a misspelt filter must not mean no filter."""

    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


ExpandCharacters = Annotated[int, Field(ge=MIN_CHARACTERS, le=MAX_CHARACTERS)]


class UnfoldingSearchQuery(SearchQuery):
    """The parameters of a search, and what else is wanted of its hits."""

    expand: bool = Field(False, description="Unfolds the best summaries to their children and messages.")
    expand_chars: ExpandCharacters = Field(
        DEFAULT_CHARACTERS, description="The most characters of all that is unfolded together."
    )
    synthesize: bool = Field(
        False,
        description="Adds an answer in words by the configured chat model, made of the hits alone and citing them. "
        "The hits wait for it, 20 seconds at most; `/api/memory/synthesis` makes the same afterwards from their ids. "
        "Where there is none, `synthesis.reason` says why.",
    )


class SynthesisQuery(_Query):
    """What is to be answered in words, and from which hits of a search."""

    q: Filter = Field(description="The question.", examples=["where do sessions live"])
    id: list[UUID] = Field(
        min_length=1,
        max_length=MAX_LIMIT,
        description="The hits' ids, the best first (`id=…&id=…`); the first ten are used.",
    )
    expand: bool = Field(False, description="Unfolds the best summaries among them first, as a search does.")
    expand_chars: ExpandCharacters = Field(
        DEFAULT_CHARACTERS, description="The most characters of all that is unfolded together."
    )


class ExpandQuery(_Query):
    """What to unfold: what a former answer had no room for (`more`), or a summary by its `id`."""

    more: str | None = Field(None, description="`more` of an expansion.")
    id: UUID | None = Field(None, description="The id of a summary, in place of `more`.")
    q: Words = Field("", description="With `id`: what to put first.")
    chars: ExpandCharacters = Field(DEFAULT_CHARACTERS, description="The most characters.")


class UnfoldedAnswer(_Answer):
    """One message or child summary. `text` is the part that holds the query's words, of `characters` in all.

    `relevance` is 0 to 1 among what stands below the same summary.
    """

    source: Literal["message", "summary"]
    id: UUID
    relevance: float
    text: str
    characters: int
    cut: bool
    created_at: datetime
    latest_at: datetime | None
    agent: str
    role: str | None
    tool_name: str | None
    kind: str | None
    message_count: int | None


class ExpansionAnswer(_Answer):
    """One summary, unfolded: its direct children and the messages of its whole tree, the most relevant first.

    `repeated` of the `total` stood among the hits already. `more` asks `/api/memory/expand` for what had no room.
    """

    summary: UUID
    items: list[UnfoldedAnswer]
    total: int
    repeated: int
    more: str | None


class CitationAnswer(_Answer):
    """A mark of the answer (`[#mark]`) and the row that it stands for."""

    mark: str
    id: UUID
    source: Literal["message", "summary"]


class SynthesisAnswer(_Answer):
    """An answer made of the hits alone, or null and the reason."""

    answer: str | None
    citations: list[CitationAnswer]
    model: str | None
    reason: str | None


class UnfoldedSearchAnswer(SearchAnswer):
    """Hits, best first. `expansions` only with `expand=true`, `synthesis` only with `synthesize=true`."""

    expansions: list[ExpansionAnswer] | None = None
    expansion_reason: str | None = Field(None, description="Why nothing was unfolded.")
    synthesis: SynthesisAnswer | None = None


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
