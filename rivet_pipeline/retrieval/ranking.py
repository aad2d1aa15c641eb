"""From candidates to a list: what must be known of each, what its surroundings lend it, its score, its place.

The arithmetic stands in `scoring.py`; which rows are candidates is decided by the arms. Three or four statements a
search, each over at most some hundred rows: the candidates' features, the neighbours of the best messages, those
neighbours' features, and the ties of the summary tree when there is a summary.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, LiteralString
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval import scoring, vector
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, filter_values, number_array, statement
from rivet_pipeline.retrieval.lexical import TextScores
from rivet_pipeline.retrieval.scoring import Profile
from rivet_pipeline.retrieval.types import ScoreParts, SearchRequest, Source

#: A row: its table and its sequence number.
Key = tuple[Source, int]

_MOST_IMPORTANT = max(scoring.IMPORTANCE.values())

#: Rows that are scored, at least, and for each row of the list: others must be there to take the place of rows that
#: repeat some, and a short list should be the beginning of a longer one.
_SCORED, _SCORED_EACH = 60, 3


@dataclass(frozen=True, slots=True)
class SemanticSide:
    """The semantic side of one search: None's place is taken by a reason.

    `unknown`: the model knows no word of the query, which is no fault of anything and so no reason.
    """

    model: vector.ServingModel | None = None
    query: NDArray[np.float32] | None = None
    degraded: str | None = None
    unknown: bool = False


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


@dataclass(slots=True)
class _Candidate:
    """A row before it is scored. `own` is its relevance without context, `noise` what share it keeps of its score."""

    row: dict[str, Any]
    key: Key
    conversation: UUID
    text: float
    semantic: float
    temporal: float
    noise: float
    own: float
    #: Its relevance as it counts, for itself and for what it lends: that of machinery counts little.
    counts: float
    neighbours: float = 0.0
    tree: float = 0.0
    session: float = 0.0
    session_best: float = 0.0
    context: float = 0.0


@dataclass(frozen=True, slots=True)
class _Ties:
    """Which rows stand beside one another (`before`, `after`), and which were made from one another."""

    before: dict[Key, Key] = field(default_factory=dict)
    after: dict[Key, Key] = field(default_factory=dict)
    relatives: dict[Key, set[Key]] = field(default_factory=dict)


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
) -> list[Scored]:
    """The best `request.limit` of the candidates in their final order: by score, then newer first, then by id.

    A hybrid search adds the messages beside the best candidates, as far as they are within the filters: an answer need
    not hold the words of its question. `similarities` are those the vector arm brought; others are read here.
    """

    def read(wanted: Sequence[Key]) -> list[_Candidate]:
        rows = _features(connection, request, wanted, similarities, side, literal=literal)
        return [_candidate(row, texts, similarities, now, profile) for row in rows]

    candidates = {one.key: one for one in read(keys)}
    ties, beside = _neighbours(connection, request, candidates.values(), profile)
    if (
        request.mode == "hybrid"
        and side.query is not None
        and (missing := [key for key in beside if key not in candidates])
    ):
        candidates |= {one.key: one for one in read(missing)}
    _read_relatives(connection, candidates, ties)
    _lend(candidates, ties, texts, profile)
    scored = _score(candidates.values(), request.limit, profile)
    if request.conversation_id is None:
        scored = _diversify(scored, candidates, ties, profile)
    return scored[: request.limit]


def _candidate(
    row: dict[str, Any], texts: TextScores, similarities: Mapping[Key, float], now: datetime, profile: Profile
) -> _Candidate:
    key: Key = (row["source"], row["seq"])
    bm25 = texts.scores.get(key, 0.0) / texts.best if texts.best > 0 else 0.0
    coverage = texts.coverage.get(key) if bm25 > 0 else None
    text = scoring.text_part(bm25=min(1.0, bm25), coverage=coverage, profile=profile)
    semantic = min(1.0, max(0.0, float(similarities.get(key, row["similarity"]) or 0.0)))
    noise = scoring.noise_factor(
        kind=row["kind"], tool_name=row["tool_name"], role=row["role"], characters=row["characters"], profile=profile
    )
    own = scoring.relevance(text=text, semantic=semantic, profile=profile)
    temporal = scoring.temporal(
        now=now,
        created_at=row["at"],
        last_accessed_at=row["last_accessed_at"],
        accesses=row["access_count"] or 0,
        profile=profile,
    )
    return _Candidate(row, key, row["conversation_id"], text, semantic, temporal, noise, own, own * noise)


def _neighbours(
    connection: Connection, request: SearchRequest, candidates: Iterable[_Candidate], profile: Profile
) -> tuple[_Ties, list[Key]]:
    """The ties of the most relevant messages to those beside them, and the ones among these that may be found."""
    ties, beside = _Ties(), dict[Key, None]()
    messages = [one for one in candidates if one.row["source"] == "message"]
    if not messages:
        return ties, []
    best = heapq.nlargest(max(profile.neighbours_of, request.limit), messages, key=lambda one: (one.counts, one.key))
    rows = connection.execute(
        _neighbours_statement(),
        filter_values(request) | {"messages": number_array(one.key[1] for one in best)},
    ).fetchall()
    for row in rows:
        here: Key = ("message", row["seq"])
        for name, forth, back in (("before", ties.before, ties.after), ("after", ties.after, ties.before)):
            if row[name] is not None:
                there: Key = ("message", row[name])
                forth[here], back[there] = there, here
                if row[f"{name}_within"]:
                    beside[there] = None
    return ties, list(beside)


@cache
def _neighbours_statement() -> bytes:
    return sql.SQL(statement("neighbours")).format(filter=MESSAGE_FILTER).as_string().encode()


def _read_relatives(connection: Connection, candidates: Mapping[Key, _Candidate], ties: _Ties) -> None:
    summaries = [seq for source, seq in candidates if source == "summary"]
    if not summaries:
        return
    rows = connection.execute(
        statement("relatives"),
        {
            "summaries": number_array(summaries),
            "messages": number_array(seq for source, seq in candidates if source == "message"),
        },
    ).fetchall()
    for row in rows:
        above: Key = ("summary", row["above"])
        below: Key = ("message", row["below"]) if row["below"] > 0 else ("summary", -row["below"])
        ties.relatives.setdefault(above, set()).add(below)
        ties.relatives.setdefault(below, set()).add(above)


def _lend(candidates: Mapping[Key, _Candidate], ties: _Ties, texts: TextScores, profile: Profile) -> None:
    """Fills in what each candidate is lent, and its relevance in its context."""
    best: dict[UUID, float] = {}
    for one in candidates.values():
        if one.counts > best.get(one.conversation, 0.0):
            best[one.conversation] = one.counts

    def lends(key: Key | None) -> float:
        found = None if key is None else candidates.get(key)
        return 0.0 if found is None else found.counts

    for key, one in candidates.items():
        before, after = lends(ties.before.get(key)), lends(ties.after.get(key))
        if before or after:
            one.neighbours = scoring.lent(before=before, after=after, tree=0.0, profile=profile)
        lent = one.neighbours
        if key in ties.relatives:
            one.tree = max(lends(other) for other in ties.relatives[key])
            lent = scoring.lent(before=before, after=after, tree=one.tree, profile=profile)
        one.session = texts.sessions.get(one.conversation, 0.0)
        if key[0] == "summary":
            # A summary speaks for its conversation, whatever words the messages used.
            one.session = max(one.session, one.text)
        one.session_best = best.get(one.conversation, 0.0)
        one.context = scoring.in_context(
            own=one.counts, lent=lent, session=one.session, session_best=one.session_best, profile=profile
        )


def _score(candidates: Iterable[_Candidate], limit: int, profile: Profile) -> list[Scored]:
    """The best of the candidates, `limit` and more, in order."""
    every = list(candidates)
    any_verbatim = any(one.row["verbatim"] for one in every)
    best = max((one.context for one in every), default=0.0)

    def total(one: _Candidate, importance: float) -> float:
        score = one.noise * scoring.total(
            context=one.context, best=best, temporal=one.temporal, importance=importance, profile=profile
        )
        return scoring.lift_verbatim(score, bool(one.row["verbatim"])) if any_verbatim else score

    # Telling the type of a memory from its words is the dearest part and moves a score the least, so it is asked in the
    # order of what a row could reach, until nothing further can come into the list.
    drafts = sorted(((total(one, _MOST_IMPORTANT), one) for one in every), key=lambda draft: draft[0], reverse=True)
    wanted = max(_SCORED, _SCORED_EACH * limit)
    scored: list[Scored] = []
    reached: list[float] = []
    for most, one in drafts:
        if len(reached) == wanted and most < reached[0]:
            break
        row = one.row
        kind = scoring.memory_type(
            row["role"], row["tool_name"], {"kind": row["kind"], "memory_type": row["memory_type"]}, row["head"]
        )
        importance = scoring.IMPORTANCE[kind]
        score = total(one, importance)
        parts = _parts(one, importance, best, profile)
        scored.append(Scored(one.key, row["id"], row["at"], score, parts, row["role"], row["tool_name"]))
        (heapq.heappush if len(reached) < wanted else heapq.heappushpop)(reached, score)
    return _in_order(scored)


def _parts(one: _Candidate, importance: float, best: float, profile: Profile) -> ScoreParts:
    return ScoreParts(
        text=one.text,
        semantic=one.semantic,
        temporal=one.temporal,
        importance=importance,
        neighbours=one.neighbours,
        tree=one.tree,
        session=one.session,
        session_best=one.session_best,
        within=scoring.within(context=one.context, best=best, profile=profile),
        noise=one.noise,
    )


def _in_order(scored: list[Scored]) -> list[Scored]:
    scored.sort(key=lambda one: one.id.bytes)
    scored.sort(key=lambda one: (one.score, one.at), reverse=True)
    return scored


def _diversify(
    scored: list[Scored], candidates: Mapping[Key, _Candidate], ties: _Ties, profile: Profile
) -> list[Scored]:
    """The list with less for rows of a conversation that has many in it, and for what repeats a relative above it."""
    places: dict[UUID, int] = {}
    above: set[Key] = set()
    result = []
    for one in scored:
        conversation = candidates[one.key].conversation
        place = places.get(conversation, 0)
        places[conversation] = place + 1
        share = scoring.crowd_factor(place, profile)
        if not above.isdisjoint(ties.relatives.get(one.key, ())):
            share *= profile.repeat_share
        above.add(one.key)
        if share < 1:
            one = replace(one, score=one.score * share, parts=replace(one.parts, diversity=share))
        result.append(one)
    return _in_order(result)


def _features(
    connection: Connection,
    request: SearchRequest,
    keys: Sequence[Key],
    similarities: Mapping[Key, float],
    side: SemanticSide,
    *,
    literal: bool,
) -> list[dict[str, Any]]:
    values: dict[str, Any] = {
        "messages": number_array(seq for source, seq in keys if source == "message"),
        "summaries": number_array(seq for source, seq in keys if source == "summary"),
        "verbatim": request.query.lower() if literal and request.mode != "vector" else None,
        "known_messages": number_array(seq for source, seq in similarities if source == "message"),
        "known_summaries": number_array(seq for source, seq in similarities if source == "summary"),
    }
    if side.query is not None:
        values["vector"] = vector.vector_text(side.query)
    return connection.execute(_features_statement(side.model), values).fetchall()


@cache
def _features_statement(model: vector.ServingModel | None) -> bytes:
    text = sql.SQL(statement("features")).format(
        message_similarity=_similarity("message", "m", model), summary_similarity=_similarity("summary", "s", model)
    )
    return text.as_string().encode()


def _similarity(source: Source, alias: LiteralString, model: vector.ServingModel | None) -> sql.Composable:
    if model is None:
        return sql.SQL("NULL::float8")
    known = sql.Placeholder("known_messages" if source == "message" else "known_summaries")
    return sql.SQL(
        """CASE WHEN {alias}.seq = ANY ({known}::bigint[]) THEN NULL ELSE (
            SELECT 1 - min(e.embedding::halfvec({width}) <=> %(vector)s::halfvec({width})) FROM ros_embeddings AS e
            WHERE e.model_id = {model} AND e.owner_kind = {kind} AND e.owner_id = {alias}.id) END"""
    ).format(
        alias=sql.Identifier(alias),
        known=known,
        width=sql.Literal(model.dimensions),
        model=sql.Literal(model.id),
        kind=sql.Literal(source),
    )
