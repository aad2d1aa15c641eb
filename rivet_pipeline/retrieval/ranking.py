"""From candidates to a list: what must be known of each, what its surroundings lend it, its score, its place.

The arithmetic stands in `scoring.py`; which rows are candidates is decided by the arms. Three or four statements a
search, each over at most some hundred rows: the candidates' features, the neighbours of the best messages, those
neighbours' features, and the ties of the summary tree when there is a summary. A long list takes one or two more
(`standing.py`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, sql
from psycopg.rows import tuple_row

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval import scoring
from rivet_pipeline.retrieval.features import Features, SemanticSide, fetch, read_features
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, filter_values, number_array, statement
from rivet_pipeline.retrieval.lexical import TextScores
from rivet_pipeline.retrieval.query_dates import Period, shares_of_time
from rivet_pipeline.retrieval.scoring import Near, Profile
from rivet_pipeline.retrieval.standing import Conversation, best_first
from rivet_pipeline.retrieval.types import Key, ScoreParts, SearchRequest, unsigned

#: A column of numbers, a candidate each.
Floats = NDArray[np.float64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_A_DAY = 86_400_000_000

_MOST_IMPORTANT = max(scoring.IMPORTANCE.values())

#: Rows that are scored, at least, and for each row of the list: others must be there to take the place of rows that
#: repeat some, and a short list should be the beginning of a longer one.
_SCORED, _SCORED_EACH = 60, 5


#: One in so many rows of a list is of the times that the query names, if there are any.
_NAMED_PLACES = 3


@dataclass(frozen=True, slots=True)
class Scored:
    """A row of the list, with all that its heading needs."""

    key: Key
    id: UUID
    at: datetime
    score: float
    parts: ScoreParts
    role: str | None
    tool_name: str | None


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Rows before they are scored, column by column; `keys` has a summary's number negative.

    `noise` is what share a row keeps of its score, `counts` its relevance without context as it counts, for itself and
    for what it lends: that of machinery counts little. `at` is in microseconds since 1970.
    """

    rows: list[Features]
    keys: list[int]
    text: Floats
    semantic: Floats
    temporal: Floats
    noise: Floats
    counts: Floats

    def __add__(self, other: _Candidates) -> _Candidates:
        arrays = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("text", "semantic", "temporal", "noise", "counts")
        }
        return _Candidates(self.rows + other.rows, self.keys + other.keys, **arrays)

    @property
    def messages(self) -> list[int]:
        """The places of the messages."""
        return [place for place, key in enumerate(self.keys) if key > 0]


@dataclass(frozen=True, slots=True)
class _Context:
    """What each candidate is lent, and its relevance in its context; by place.

    `temporal` is its freshness or, when the query names a date, how well its time fits that: who asks for a time wants
    that one, not the newest.
    """

    neighbours: Floats
    tree: Floats
    session: Floats
    session_best: Floats
    named: Floats
    temporal: Floats
    context: Floats


@dataclass(frozen=True, slots=True)
class _Ties:
    """By key, which rows stand beside one another (`before`, `after`), and which were made from one another."""

    before: dict[int, int] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)
    relatives: dict[int, set[int]] = field(default_factory=dict)


class _Place(NamedTuple):
    """A scored candidate: its place among the candidates, its importance, and the share that diversity leaves it."""

    place: int
    score: float
    importance: float
    share: float = 1.0


def rank(
    connection: Connection,
    request: SearchRequest,
    keys: Sequence[Key],
    texts: TextScores,
    similarities: Mapping[Key, float],
    side: SemanticSide,
    *,
    literal: bool,
    now: datetime,
    profile: Profile,
    periods: Sequence[Period] = (),
) -> list[Scored]:
    """The best `request.limit` of the candidates in their final order: by score, then newer first, then by id.

    A hybrid search adds the messages beside the best candidates, as far as they are within the filters: an answer need
    not hold the words of its question. `similarities` are those the vector arm brought; others are read here.
    `periods` are those that the query names.
    """

    def read(wanted: Sequence[Key], meanwhile: Callable[[], object]) -> _Candidates:
        rows = read_features(connection, request, wanted, similarities, side, literal=literal, meanwhile=meanwhile)
        return _weigh(rows, texts, similarities, now, profile)

    candidates = read(keys, lambda: texts.context)
    ties, beside = _neighbours(connection, request, candidates, profile)
    missing: list[int] = []
    if request.mode == "hybrid" and side.query is not None:
        known = set(candidates.keys)
        missing = [key for key in beside if key not in known]
    relatives = _Relatives(connection, [*candidates.keys, *missing])
    if missing:
        candidates += read([("message", key) for key in missing], relatives.ask)
    relatives.read(ties)
    context = _lend(candidates, ties, texts, periods, profile)
    scored = _score(candidates, context, request.limit, profile)
    if request.conversation_id is None:
        scored = _diversify(scored, candidates, ties, profile)
        # Who asks for a text as it stands wants the rows that hold it, wherever they are.
        is_exact = request.mode in ("trigram", "regex") or any(row.verbatim for row in candidates.rows)
        if request.limit > profile.spread_over and not is_exact:
            query = None if side.query is None else request.query
            near = profile.near_short if request.limit <= profile.near_short_list else profile.near_long
            scored = _spread(connection, query, scored, candidates, context, near, profile)
    scored = _with_named(scored, context, request.limit)
    best = float(context.context.max(initial=0.0))
    return [_finished(one, candidates, context, best, profile) for one in scored[: request.limit]]


def _weigh(
    rows: list[Features], texts: TextScores, similarities: Mapping[Key, float], now: datetime, profile: Profile
) -> _Candidates:
    """The parts of each row that it has by itself."""
    named = [unsigned(row.key) for row in rows]
    bm25 = np.array([texts.scores.get(key, 0.0) for key in named])
    bm25 = np.minimum(1.0, bm25 / texts.best) if texts.best > 0 else np.zeros(len(rows))
    covered = np.array([texts.context.coverage.get(key, np.nan) for key in named])
    known = (bm25 > 0) & ~np.isnan(covered)
    text = np.where(known, scoring.text_part(bm25=bm25, coverage=covered, profile=profile), bm25)
    near = [similarities.get(key, row.similarity or 0.0) for key, row in zip(named, rows, strict=True)]
    semantic = np.clip(np.nan_to_num(np.array(near, dtype=np.float64)), 0.0, 1.0)
    noise = np.array(
        [
            scoring.noise_factor(
                kind=row.kind, tool_name=row.tool_name, role=row.role, characters=row.characters, profile=profile
            )
            for row in rows
        ],
        dtype=np.float64,
    )
    own = scoring.relevance(text=text, semantic=semantic, profile=profile)
    created = _days(now, [row.at for row in rows])
    temporal = scoring.temporal_of_days(
        created=created,
        accessed=_days(now, [row.at if row.last_accessed is None else row.last_accessed for row in rows]),
        accesses=np.array([row.access_count or 0 for row in rows], dtype=np.float64),
        profile=profile,
    )
    return _Candidates(rows, [row.key for row in rows], text, semantic, temporal, noise, own * noise)


def _days(now: datetime, times: list[int]) -> Floats:
    """How long ago each of some times was, in days, at least 0."""
    moment = (now - _EPOCH) // timedelta(microseconds=1)
    ages: Floats = np.maximum(0, moment - np.array(times, dtype=np.int64)) / _MICROSECONDS_A_DAY
    return ages


def _neighbours(
    connection: Connection, request: SearchRequest, candidates: _Candidates, profile: Profile
) -> tuple[_Ties, list[int]]:
    """The ties of the most relevant messages to those beside them, and the ones among these that may be found."""
    ties, beside = _Ties(), dict[int, None]()
    messages = candidates.messages
    if not messages:
        return ties, []
    counts, keys = candidates.counts.tolist(), candidates.keys
    best = heapq.nlargest(
        max(profile.neighbours_of, request.limit), messages, key=lambda place: (counts[place], keys[place])
    )
    rows = fetch(
        connection,
        _neighbours_statement(),
        filter_values(request) | {"messages": number_array(keys[place] for place in best)},
    )
    for here, before, before_within, after, after_within in rows:
        if before is not None:
            ties.before[here], ties.after[before] = before, here
            if before_within:
                beside[before] = None
        if after is not None:
            ties.after[here], ties.before[after] = after, here
            if after_within:
                beside[after] = None
    return ties, list(beside)


@cache
def _neighbours_statement() -> bytes:
    return sql.SQL(statement("neighbours")).format(filter=MESSAGE_FILTER).as_string().encode()


class _Relatives:
    """Which of some rows were made from one another: `read` asks the store, unless `ask` has done so before."""

    def __init__(self, connection: Connection, keys: Sequence[int]) -> None:
        self._connection, self._keys = connection, keys
        self._asked: Cursor[tuple[Any, ...]] | None = None

    def ask(self) -> None:
        """Sends the question, if there is a summary; nothing is waited for within a pipeline."""
        summaries = [-key for key in self._keys if key < 0]
        if summaries and self._asked is None:
            values = {"summaries": number_array(summaries), "messages": number_array(k for k in self._keys if k > 0)}
            self._asked = self._connection.cursor(row_factory=tuple_row).execute(statement("relatives"), values)

    def read(self, ties: _Ties) -> None:
        """Puts the ties to the others."""
        self.ask()
        if self._asked is None:
            return
        for above, below in self._asked.fetchall():
            ties.relatives.setdefault(-above, set()).add(below)
            ties.relatives.setdefault(below, set()).add(-above)


def _lend(
    candidates: _Candidates, ties: _Ties, texts: TextScores, periods: Sequence[Period], profile: Profile
) -> _Context:
    """What each candidate is lent, and its relevance in its context."""
    keys, counts = candidates.keys, candidates.counts
    lends = dict(zip(keys, counts.tolist(), strict=True))

    def beside(tied: Mapping[int, int]) -> Floats:
        return np.array([lends.get(tied.get(key, 0), 0.0) for key in keys])

    before, after = beside(ties.before), beside(ties.after)
    none = np.zeros(len(keys))
    tree = none
    if ties.relatives:
        tree = np.array(
            [max((lends.get(one, 0.0) for one in ties.relatives.get(key, ())), default=0.0) for key in keys]
        )
    numbers: dict[str, int] = {}
    conversation = np.array([numbers.setdefault(row.conversation, len(numbers)) for row in candidates.rows], np.intp)
    session = np.array([texts.context.sessions.get(name, 0.0) for name in numbers])[conversation]
    # A summary speaks for its conversation, whatever words the messages used.
    session = np.where(np.array(keys) < 0, np.maximum(session, candidates.text), session)
    length = np.array([row.length for row in candidates.rows], dtype=np.float64)
    lent = scoring.lent(before=before, after=after, tree=tree, length=length, profile=profile)
    named = none
    if periods:
        named = shares_of_time(periods, np.array([row.at for row in candidates.rows]), profile.named_fades_days)
    # When nothing was said at such a time, the query is one without a date.
    is_dated = bool(named.any())

    def best(values: Floats) -> Floats:
        """By place, the highest of the conversation."""
        found = np.zeros(len(numbers))
        np.maximum.at(found, conversation, values)
        return found[conversation]

    session_best = best(counts)
    context = scoring.in_context(
        own=counts,
        lent=lent,
        session=session,
        session_best=session_best,
        named=named if is_dated else None,
        profile=profile,
    )
    neighbours = scoring.lent(before=before, after=after, tree=none, length=length, profile=profile)
    temporal = named if is_dated else candidates.temporal
    return _Context(neighbours, tree, session, session_best, named, temporal, context)


def _score(candidates: _Candidates, context: _Context, limit: int, profile: Profile) -> list[_Place]:
    """The best of the candidates, `limit` and more, in order."""
    rows = candidates.rows
    verbatim = np.array([row.verbatim for row in rows], dtype=bool)
    best = float(context.context.max(initial=0.0))

    @cache
    def totals(importance: float) -> list[float]:
        scores = candidates.noise * scoring.total(
            context=context.context,
            best=best,
            temporal=context.temporal,
            importance=importance,
            profile=profile,
        )
        if verbatim.any():
            scores = np.where(verbatim, scoring.lift_verbatim(scores, True), scoring.lift_verbatim(scores, False))
        found: list[float] = scores.tolist()
        return found

    # Telling the type of a memory from its words is the dearest part and moves a score the least, so it is asked in the
    # order of what a row could reach, until nothing further can come into the list.
    most = totals(_MOST_IMPORTANT)
    wanted = len(rows) if context.named.any() else max(_SCORED, _SCORED_EACH * limit)
    scored: list[_Place] = []
    reached: list[float] = []
    for place in np.argsort(-np.array(most), kind="stable").tolist():
        if len(reached) == wanted and most[place] < reached[0]:
            break
        row = rows[place]
        kind = scoring.memory_type(
            row.role, row.tool_name, {"kind": row.kind, "memory_type": row.memory_type}, row.head
        )
        importance = scoring.IMPORTANCE[kind]
        score = totals(importance)[place]
        scored.append(_Place(place, score, importance))
        (heapq.heappush if len(reached) < wanted else heapq.heappushpop)(reached, score)
    return _in_order(scored, candidates)


def _in_order(scored: list[_Place], candidates: _Candidates) -> list[_Place]:
    rows = candidates.rows
    return sorted(scored, key=lambda one: (-one.score, -rows[one.place].at, rows[one.place].id))


def _diversify(scored: list[_Place], candidates: _Candidates, ties: _Ties, profile: Profile) -> list[_Place]:
    """The list with less for rows of a conversation that has many in it, and for what repeats a relative above it."""
    places: dict[str, int] = {}
    above: set[int] = set()
    result = []
    for one in scored:
        key, conversation = candidates.keys[one.place], candidates.rows[one.place].conversation
        place = places.get(conversation, 0)
        places[conversation] = place + 1
        share = scoring.crowd_factor(place, profile)
        if not above.isdisjoint(ties.relatives.get(key, ())):
            share *= profile.repeat_share
        above.add(key)
        result.append(one._replace(score=one.score * share, share=share) if share < 1 else one)
    return _in_order(result, candidates)


def _spread(
    connection: Connection,
    query: str | None,
    scored: list[_Place],
    candidates: _Candidates,
    context: _Context,
    near: Near,
    profile: Profile,
) -> list[_Place]:
    """A long list with the best rows of further conversations where it would go on with those that it has.

    Those first that answer best (`standing.py`). Scores that are too high for their new place become as high as those
    above.
    """
    head, further, others = scored[: profile.spread_from], dict[str, _Place](), list[_Place]()
    seen = {candidates.rows[one.place].conversation for one in head}
    for one in scored[profile.spread_from :]:
        conversation = candidates.rows[one.place].conversation
        if conversation in seen or conversation in further:
            others.append(one)
        else:
            further[conversation] = one
    wanted = max(0, profile.spread_to - len(seen))
    first: list[_Place] = []
    if wanted and further:
        order = best_first(connection, query, _known(further, candidates, context), near, profile)
        names = list(further)
        first = [further.pop(names[place]) for place in order[:wanted]]
    result = list(head)
    for one in [*first, *_in_order([*further.values(), *others], candidates)]:
        # A little lower, so that the order by score is this one.
        most = math.nextafter(result[-1].score, 0.0)
        if 0 < most < one.score:
            one = one._replace(score=most, share=one.share * most / one.score)
        result.append(one)
    return result


def _with_named(scored: list[_Place], context: _Context, limit: int) -> list[_Place]:
    """The list with some rows of the times that the query names at its end, where it has fewer of these."""
    head, further = scored[:limit], scored[limit:]
    wanted = limit // _NAMED_PLACES - sum(context.named[one.place] == 1 for one in head)
    late = [one for one in further if context.named[one.place] == 1][: max(0, wanted)]
    if not late:
        return scored
    others = [one for one in head if context.named[one.place] < 1]
    give_way = set(others[len(others) - len(late) :])
    return [*(one for one in head if one not in give_way), *late]


def _known(conversations: Iterable[str], candidates: _Candidates, context: _Context) -> list[Conversation]:
    """What the candidates tell of some conversations, in their order."""
    numbers = {name: number for number, name in enumerate(conversations)}
    number = np.array([numbers.get(row.conversation, -1) for row in candidates.rows], dtype=np.intp)
    within = np.flatnonzero(number >= 0)

    def best(values: Floats) -> list[float]:
        found = np.zeros(len(numbers))
        np.maximum.at(found, number[within], values[within])
        highest: list[float] = found.tolist()
        return highest

    rows: list[list[int]] = [[] for _ in numbers]
    worth = candidates.counts + context.neighbours
    for place in within[np.argsort(-worth[within], kind="stable")].tolist():
        rows[number[place]].append(candidates.keys[place])
    return list(map(Conversation, best(context.session), best(candidates.semantic), best(context.named), rows))


def _finished(one: _Place, candidates: _Candidates, context: _Context, best: float, profile: Profile) -> Scored:
    place, row = one.place, candidates.rows[one.place]
    parts = ScoreParts(
        text=float(candidates.text[place]),
        semantic=float(candidates.semantic[place]),
        temporal=float(context.temporal[place]),
        importance=one.importance,
        neighbours=float(context.neighbours[place]),
        tree=float(context.tree[place]),
        session=float(context.session[place]),
        session_best=float(context.session_best[place]),
        named=float(context.named[place]),
        within=float(scoring.within(context=context.context[place], best=best, profile=profile)),
        noise=float(candidates.noise[place]),
        diversity=one.share,
    )
    at = _EPOCH + timedelta(microseconds=row.at)
    return Scored(unsigned(row.key), UUID(row.id), at, one.score, parts, row.role, row.tool_name)
