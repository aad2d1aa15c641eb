"""What retrieval is asked and what it answers. Plain data, shared by the API, the CLI and the tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

Scope = Literal["messages", "summaries", "both"]
Source = Literal["message", "summary"]
Mode = Literal["hybrid", "fts", "vector", "trigram", "regex"]

#: What an index that is behind (`SearchResponse.behind`) means for an answer.
APPROXIMATE = "ranks are approximate until it is refreshed"

#: A row: its table, and its number there.
Key = tuple[Source, int]


#: Kinds of messages that nobody said to anybody: what a model thought, and what the harness added.
_UNSAID = frozenset({"thinking", "injected", "notice", "summary"})


def manner(kind: object) -> str:
    """What stands behind the speaker of a message that was not said, ` (thinking)`; nothing for what was."""
    return f" ({kind})" if isinstance(kind, str) and kind in _UNSAID else ""


def signed(key: Key) -> int:
    """A row as one number, which a summary has negative: columns and the text index hold rows so."""
    source, seq = key
    return seq if source == "message" else -seq


def unsigned(number: int) -> Key:
    """The row of a number from `signed`."""
    return ("message", number) if number > 0 else ("summary", -number)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search. Times are aware; `before` is exclusive. For summaries they test the period that is covered.

    `tag` (`key:value`) asks for conversations that carry it, accepted, on the session or on any of its summaries.
    `tagged` is not asked: `filters.resolve_tag` puts the conversations there where they are few.
    """

    query: str
    mode: Mode = "hybrid"
    scope: Scope = "both"
    limit: int = 20
    agent: str | None = None
    role: str | None = None
    conversation_id: UUID | None = None
    since: datetime | None = None
    before: datetime | None = None
    tag: str | None = None
    tagged: tuple[UUID, ...] | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether any filter but the scope is set."""
        filters = (self.agent, self.role, self.conversation_id, self.since, self.before, self.tag)
        return any(one is not None for one in filters)


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """What a score is made of, each from 0 to 1 before its weight.

    Beside the four parts: what the neighbouring messages lend (`neighbours`), the relevance of the best relative in the
    summary tree (`tree`), the conversation as one text (`session`) and the relevance of its best row (`session_best`),
    how well its time fits the dates that the query names (`named`; `temporal` is the same then), the share in which
    freshness and importance count (`within`), and the shares that a row keeps that is machinery (`noise`) or that steps
    back for others (`diversity`: it repeats what stands above it, or other conversations are shown first).
    """

    text: float
    semantic: float
    temporal: float
    importance: float
    neighbours: float = 0.0
    tree: float = 0.0
    session: float = 0.0
    session_best: float = 0.0
    named: float = 0.0
    within: float = 1.0
    noise: float = 1.0
    diversity: float = 1.0


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result. `created_at` is a message's time or a summary's latest source time; `score` is 0 to 1.

    `tags` are the accepted ones of its session, `key:value`, in order.
    """

    id: UUID
    source: Source
    score: float
    parts: ScoreParts
    content: str
    tool_result: str | None
    snippet: str
    created_at: datetime
    role: str | None
    agent: str
    kind: str
    tool_name: str | None
    conversation_id: UUID
    session_key: str
    title: str | None
    earliest_at: datetime | None = None
    message_count: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedTime:
    """Words of a query that name a time from the present, and which: from `since` to `before` (exclusive), aware.

    `said` is whether there is anything of it within the filters. Where there is not, the words are looked for.
    """

    words: str
    since: datetime
    before: datetime
    said: bool = True

    def holds(self, hit: Hit) -> bool:
        """Whether a hit is of this time, a summary by the period that it covers."""
        return (hit.earliest_at or hit.created_at) < self.before and hit.created_at >= self.since

    def note(self, hits: Sequence[Hit]) -> str:
        """Which days it was read as, and from which minute where not from midnight, in the zone of its times.

        And that none of the hits is of these, where that is so.
        """
        ends: list[object] = [self.since.date(), (self.before - timedelta(microseconds=1)).date()]
        if (self.since.hour, self.since.minute) != (0, 0):
            ends[0] = f"{self.since:%Y-%m-%d %H:%M}"
        read = " to ".join(str(end) for end in dict.fromkeys(ends))
        words = " ".join(self.words.split())
        if not self.said:
            return f"'{words}' would be {read}, and nothing within the search is of that time; its words are looked for"
        none = "" if not hits or any(self.holds(hit) for hit in hits) else "; nothing that is shown is of that time"
        return f"'{words}' is read as {read}{none}"


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The hits, best first, and what was not used to find them.

    `degraded`: why the vector arm is missing. `partial`: how far the texts themselves were read, where that is not to
    their end. `behind`: that the text index lacks too many rows for exact ranks; `APPROXIMATE` is what that means.
    `unmatched`: that there are hits, and none of them for a word of the query. `times`: what was read as a time from
    the present; its words are not looked for, unless nothing was said then or mode vector would have none left.
    """

    query: str
    hits: list[Hit]
    degraded: str | None = None
    reason: str | None = None
    partial: str | None = None
    behind: str | None = None
    unmatched: str | None = None
    times: tuple[NamedTime, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the hits beside `degraded`, which a face explains by its mode."""
        behind = None if self.behind is None else f"{self.behind}; {APPROXIMATE}"
        named = (time.note(self.hits) for time in self.times)
        return tuple(note for note in (*named, self.partial, behind, self.unmatched) if note is not None)


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """A chronological listing. `cursor` continues a former answer (opaque)."""

    agent: str | None = None
    role: str | None = None
    tool_name: str | None = None
    conversation_id: UUID | None = None
    session_key: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    tag: str | None = None
    limit: int = 50
    newest_first: bool = True
    include_tools: bool = True
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """One message of a listing."""

    id: UUID
    seq: int
    role: str
    agent: str
    channel: str
    content: str
    tool_name: str | None
    tool_args: Any
    tool_result: str | None
    metadata: dict[str, Any]
    created_at: datetime
    conversation_id: UUID
    session_key: str
    title: str | None


@dataclass(frozen=True, slots=True)
class BrowseResponse:
    """Messages in total order (`created_at`, then `seq`) and the cursors of the pages after and before this one.

    `next_cursor` is None at the end of the listing, `previous_cursor` at its beginning.
    """

    messages: list[BrowsedMessage]
    next_cursor: str | None
    previous_cursor: str | None = None


@dataclass(slots=True)
class Stats:
    """The state of the memory. A figure that could not be read is missing from `figures` and named in `errors`."""

    alerts: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
