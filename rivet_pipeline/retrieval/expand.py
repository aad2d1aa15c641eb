"""Summaries that a search found, unfolded to what they were made from: the most relevant first, within a budget.

A summary is a way to its words. What stands among the hits already is not repeated, and what has no room is counted and
can be asked for.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.snippets import make_snippet
from rivet_pipeline.retrieval.types import Hit, Source

#: Characters of all that is unfolded together, and the fewest and most that may be asked for.
DEFAULT_CHARACTERS, MIN_CHARACTERS, MAX_CHARACTERS = 6_000, 500, 40_000

#: How many of the summaries that a search found are unfolded, the best first (the public code's figure).
MOST_SUMMARIES = 3

#: Characters that are shown of one message or summary: the part that holds the query's words.
_LONGEST = 400

#: What is looked through of a text for that part, in characters.
_LOOKED_THROUGH = 20_000

#: The most rows of one summary in one answer, and the longest query that a cursor carries, in characters.
_MOST_ROWS, _LONGEST_QUERY = 200, 300

#: The longest that unfolding may take, in milliseconds; the hits do not depend on it.
_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class UnfoldedItem:
    """One message or child summary. `text` is the part that holds the query's words, of `characters` in all.

    `relevance` is 0 to 1 among what stands below the same summary. Times are UTC; a summary's is its earliest source's.
    """

    source: Source
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


@dataclass(slots=True)
class Expansion:
    """One summary unfolded. `total` counts its direct children and the messages of its whole tree.

    `repeated` of them stood among the hits, or in an expansion before; `more` asks for what is left, None when nothing
    is.
    """

    summary: UUID
    items: list[UnfoldedItem] = field(default_factory=list)
    total: int = 0
    repeated: int = 0
    more: str | None = None


@dataclass(frozen=True, slots=True)
class Expansions:
    """The expansions of a search's best summaries, in the order of the hits; `reason` says why there is none."""

    expansions: list[Expansion]
    reason: str | None = None


def expand_hits(
    connection: Connection, query: str, hits: Sequence[Hit], *, characters: int = DEFAULT_CHARACTERS
) -> Expansions:
    """Unfolds the best summaries among the hits. Never fails the hits: why there is nothing is a `reason`.

    `characters` (cut to 500 to 40,000) are shared out in the order of the hits; what one summary leaves goes to the
    next. Raises `psycopg.Error` only when the connection itself is gone.
    """
    tops = list(dict.fromkeys(hit.id for hit in hits if hit.source == "summary"))[:MOST_SUMMARIES]
    if not tops:
        return Expansions([], "no summary is among the hits")
    seen = _Seen(hits)
    try:
        rows = _read(connection, tops, query, after=0)
    except psycopg.Error as error:
        if connection.closed or connection.broken:
            raise
        return Expansions([], f"the summaries could not be unfolded: {' '.join(str(error).split())[:300]}")
    by_top: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_top[row["top"]].append(row)
    left = _bounded(characters)
    expansions: list[Expansion] = []
    for place, top in enumerate(tops):
        # The best one shows something even where its share is less than the longest item.
        room = min(left, max(_LONGEST, left // (len(tops) - place)))
        expansion, spent = _unfold(top, by_top[top], query, seen, room, after=0)
        left -= spent
        expansions.append(expansion)
    return Expansions(expansions)


def expand_summary(
    connection: Connection, summary: UUID, query: str = "", *, characters: int = DEFAULT_CHARACTERS, after: int = 0
) -> Expansion:
    """Unfolds one summary, from the beginning or beyond so many rows. Raises `NotFoundError` for any other id."""
    found = connection.execute("SELECT 1 FROM ros_summaries WHERE id = %s", [summary]).fetchone()
    if found is None:
        raise NotFoundError(f"no summary has the id {summary}; search gives the ids.")
    rows = _read(connection, [summary], query, after=after)
    return _unfold(summary, rows, query, _Seen([]), _bounded(characters), after=after)[0]


def expand_more(connection: Connection, more: str, *, characters: int = DEFAULT_CHARACTERS) -> Expansion:
    """What an expansion had no room for: the next of the same summary, for the same query.

    The other hits are not known any more, so what stood among them may be shown now. Raises `InvalidInputError` for
    what is no `more` of ours, and `NotFoundError` for a summary that there is not.
    """
    summary, query, after = _read_more(more)
    return expand_summary(connection, summary, query, characters=characters, after=after)


def _bounded(characters: int) -> int:
    return max(MIN_CHARACTERS, min(MAX_CHARACTERS, characters))


def _read(connection: Connection, tops: Sequence[UUID], query: str, *, after: int) -> list[dict[str, Any]]:
    with connection.transaction():
        connection.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)", [str(_TIMEOUT_MS)]
        )
        return connection.execute(
            statement("expand"),
            {
                "tops": list(tops),
                # As much of it as a cursor carries, so that the order goes on where it stopped.
                "query": query[:_LONGEST_QUERY],
                "after": after,
                "rows": _MOST_ROWS,
                "looked_through": _LOOKED_THROUGH,
            },
            prepare=False,
        ).fetchall()


class _Seen:
    """What is in the answer already: by id, and by its words."""

    def __init__(self, hits: Iterable[Hit]) -> None:
        self._ids: set[UUID] = set()
        self._texts: set[str] = set()
        for hit in hits:
            self._ids.add(hit.id)
            self._texts.add(_same("\n".join(part for part in (hit.content, hit.tool_result) if part)))

    def add(self, identity: UUID, body: str) -> bool:
        """Whether this is new; it is there from now on."""
        text = _same(body)
        if not text or identity in self._ids or text in self._texts:
            return False
        self._ids.add(identity)
        self._texts.add(text)
        return True


def _same(text: str) -> str:
    return " ".join(text[:_LOOKED_THROUGH].casefold().split())


def _unfold(
    top: UUID, rows: Sequence[dict[str, Any]], query: str, seen: _Seen, room: int, *, after: int
) -> tuple[Expansion, int]:
    """One summary's rows as far as there is room, and the characters that they take."""
    expansion = Expansion(top, total=rows[0]["total"] if rows else 0)
    spent, place = 0, after
    for row in rows:
        item = _item(row, query)
        if spent + len(item.text) > room:
            break
        place = row["place"]
        if seen.add(row["id"], row["body"]):
            expansion.items.append(item)
            spent += len(item.text)
        else:
            expansion.repeated += 1
    if place < expansion.total:
        expansion.more = _write_more(top, query, place)
    return expansion, spent


def _item(row: dict[str, Any], query: str) -> UnfoldedItem:
    cut = row["characters"] > _LONGEST
    return UnfoldedItem(
        source=row["source"],
        id=row["id"],
        relevance=row["relevance"],
        text=make_snippet(query, row["body"], limit=_LONGEST) if cut else row["body"],
        characters=row["characters"],
        cut=cut,
        created_at=row["at"].astimezone(UTC),
        latest_at=row["latest_at"],
        agent=row["agent"],
        role=row["role"],
        tool_name=row["tool_name"],
        kind=row["kind"],
        message_count=row["message_count"],
    )


def _write_more(summary: UUID, query: str, after: int) -> str:
    value: list[str | int] = [str(summary), query[:_LONGEST_QUERY], after]
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _read_more(more: str) -> tuple[UUID, str, int]:
    try:
        value: Any = json.loads(base64.urlsafe_b64decode((more + "=" * (-len(more) % 4)).encode("ascii")))
        summary, query, after = value
        identity = UUID(summary)
        sound = isinstance(query, str) and "\x00" not in query and type(after) is int and 0 <= after < 2**31
        query.encode()
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        sound = False
    if not sound:
        raise InvalidInputError("more", "is not one that an expansion gave; ask for the summary by its id")
    return identity, query, after
