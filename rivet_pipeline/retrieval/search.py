"""One search: candidates of both arms, every part of every candidate's score, one list of messages and summaries.

Reads what is materialised and never waits for the pipeline. Counting accesses is the caller's (`access.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, LiteralString
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval import lexical, scoring, vector
from rivet_pipeline.retrieval.filters import number_array, statement, tune_session
from rivet_pipeline.retrieval.scoring import PROFILE, Profile
from rivet_pipeline.retrieval.snippets import make_snippet
from rivet_pipeline.retrieval.types import Hit, ScoreParts, SearchRequest, SearchResponse, Source

#: The fewest and most hits of one search.
MIN_LIMIT, MAX_LIMIT = 1, 50

#: How wide the graph of vectors is searched: about the chunks asked of it; the walk goes on when that is not enough.
_EF_SEARCH = 100

_MOST_IMPORTANT = max(scoring.IMPORTANCE.values())

EmbedQuery = Callable[[str], NDArray[np.float32]]
_Key = tuple[Source, int]


@dataclass(frozen=True, slots=True)
class _Vector:
    """The semantic side of one search: None's place is taken by a reason."""

    model: vector.ServingModel | None = None
    query: NDArray[np.float32] | None = None
    degraded: str | None = None


@dataclass(frozen=True, slots=True)
class _Scored:
    key: _Key
    id: UUID
    at: datetime
    score: float
    parts: ScoreParts
    role: str | None
    tool_name: str | None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A candidate before its importance is known; `share` is what it keeps of its score."""

    row: dict[str, Any]
    text: float
    semantic: float
    temporal: float
    share: float


def search(
    connection: Connection,
    request: SearchRequest,
    *,
    embed_query: EmbedQuery | None,
    now: datetime | None = None,
    profile: Profile = PROFILE,
) -> SearchResponse:
    """The best messages and summaries for a query, best first; ties by time (newer first), then id.

    `embed_query` gives the query's vector of the model that serves (`vector.serving_model`); None, a `ModelError` from
    it or a vector of another width leave the semantic part out, and `degraded` says so. `limit` is cut to 1 to 50;
    times are aware. An answer without hits says why in `reason`. Database errors are raised, never turned into an
    empty answer. Inside a transaction of the caller's the planner settings of a search stay until that one ends.
    """
    now = now or datetime.now(UTC)
    request = replace(request, limit=max(MIN_LIMIT, min(MAX_LIMIT, request.limit)), query=request.query.strip())
    if not any(character.isalnum() or ord(character) > 0x2000 for character in request.query):
        return SearchResponse(request.query, [], reason="the query holds no word to search for")
    # The model is asked before the transaction begins: it may be slow, and a snapshot must not wait for it.
    side = _embed(connection, request, embed_query)
    with connection.transaction():
        tune_session(connection, ef_search=_EF_SEARCH)
        return _search(connection, request, side, now, profile)


def _embed(connection: Connection, request: SearchRequest, embed_query: EmbedQuery | None) -> _Vector:
    if request.mode == "fts":
        return _Vector()
    if embed_query is None:
        return _Vector(degraded="semantic search is off: no embedding model is configured")
    model = vector.serving_model(connection)
    if model is None:
        return _Vector(degraded="semantic search is off: nothing is embedded yet")
    try:
        query = np.asarray(embed_query(request.query), dtype=np.float32).reshape(-1)
    except ModelError as error:
        return _Vector(degraded=f"semantic search is off: the embedding service failed ({error.name})")
    refused = vector.refuse_vector(model, query)
    if refused is not None:
        return _Vector(degraded=f"semantic search is off: {refused}")
    return _Vector(model, query)


def _search(
    connection: Connection, request: SearchRequest, side: _Vector, now: datetime, profile: Profile
) -> SearchResponse:
    similarities: dict[_Key, float] = {}
    if side.model is not None and side.query is not None:
        wanted = max(profile.vector_kept, 2 * request.limit)
        similarities = vector.nearest(connection, side.model, side.query, request, wanted=wanted).similarities
    literal = scoring.looks_literal(request.query)
    texts = lexical.TextScores()
    if request.mode != "vector":
        texts = lexical.score_texts(
            connection,
            request,
            literal=literal,
            extra=list(similarities),
            now=now,
            kept=max(profile.lexical_kept, 4 * request.limit),
            profile=profile,
        )
        if not texts.has_words:
            return SearchResponse(
                request.query, [], side.degraded, "the query holds only words that are too common to search for"
            )
    keys = list(dict.fromkeys([*texts.scores, *similarities]))
    scored = _score(connection, request, keys, texts, similarities, side, literal=literal, now=now, profile=profile)
    hits = _read_hits(connection, request.query, scored)
    return SearchResponse(request.query, hits, side.degraded, None if hits else _why_nothing(request, side))


def _why_nothing(request: SearchRequest, side: _Vector) -> str:
    if request.mode == "vector" and side.degraded is not None:
        return f"{side.degraded}, and mode vector asks for nothing else"
    filtered = request.agent or request.role or request.conversation_id or request.since or request.before
    if filtered:
        return "nothing within these filters holds any of the query's words"
    return "no message or summary holds any of the query's words"


def _score(
    connection: Connection,
    request: SearchRequest,
    keys: list[_Key],
    texts: lexical.TextScores,
    similarities: dict[_Key, float],
    side: _Vector,
    *,
    literal: bool,
    now: datetime,
    profile: Profile,
) -> list[_Scored]:
    """The best `request.limit` of the candidates in their final order."""
    rows = _features(connection, request, keys, similarities, side, literal=literal)
    any_verbatim = any(row["verbatim"] for row in rows)

    def total(draft: _Draft, importance: float) -> float:
        score = draft.share * scoring.weighted(
            text=draft.text,
            semantic=draft.semantic,
            temporal=draft.temporal,
            importance=importance,
            profile=profile,
        )
        return scoring.lift_verbatim(score, bool(draft.row["verbatim"])) if any_verbatim else score

    drafts: list[tuple[float, _Draft]] = []
    for row in rows:
        key: _Key = (row["source"], row["seq"])
        similarity = similarities.get(key, row["similarity"])
        text = texts.scores.get(key, 0.0) / texts.best if texts.best > 0 else 0.0
        draft = _draft(row, text, min(1.0, max(0.0, float(similarity or 0.0))), now, profile)
        drafts.append((total(draft, _MOST_IMPORTANT), draft))
    # Telling the type of a memory from its words is the dearest part and moves a score the least, so it is asked in the
    # order of what a row could reach, until nothing further can come into the list.
    drafts.sort(key=lambda draft: draft[0], reverse=True)
    scored: list[_Scored] = []
    reached: list[float] = []
    for most, draft in drafts:
        if len(reached) == request.limit and most < reached[0]:
            break
        row = draft.row
        kind = scoring.memory_type(
            row["role"], row["tool_name"], {"kind": row["kind"], "memory_type": row["memory_type"]}, row["head"]
        )
        importance = scoring.IMPORTANCE[kind]
        parts = ScoreParts(draft.text, draft.semantic, draft.temporal, importance)
        score = total(draft, importance)
        scored.append(
            _Scored((row["source"], row["seq"]), row["id"], row["at"], score, parts, row["role"], row["tool_name"])
        )
        (heapq.heappush if len(reached) < request.limit else heapq.heappushpop)(reached, score)
    scored.sort(key=lambda one: one.id.bytes)
    scored.sort(key=lambda one: (one.score, one.at), reverse=True)
    return scored[: request.limit]


def _draft(row: dict[str, Any], text: float, semantic: float, now: datetime, profile: Profile) -> _Draft:
    temporal = scoring.temporal(
        now=now,
        created_at=row["at"],
        last_accessed_at=row["last_accessed_at"],
        accesses=row["access_count"] or 0,
        profile=profile,
    )
    share = scoring.relevance_factor(text=text, semantic=semantic, profile=profile) * scoring.noise_factor(
        kind=row["kind"], tool_name=row["tool_name"], role=row["role"], characters=row["characters"], profile=profile
    )
    return _Draft(row, text, semantic, temporal, share)


def _features(
    connection: Connection,
    request: SearchRequest,
    keys: list[_Key],
    similarities: dict[_Key, float],
    side: _Vector,
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


def _read_hits(connection: Connection, query: str, scored: list[_Scored]) -> list[Hit]:
    rows = connection.execute(
        statement("read_hits"),
        {
            "messages": number_array(one.key[1] for one in scored if one.key[0] == "message"),
            "summaries": number_array(one.key[1] for one in scored if one.key[0] == "summary"),
        },
    ).fetchall()
    by_key = {(row["source"], row["seq"]): row for row in rows}
    hits: list[Hit] = []
    for one in scored:
        row = by_key[one.key]
        body = "\n".join(part for part in (row["content"], row["tool_result"]) if part)
        hits.append(
            Hit(
                id=one.id,
                source=one.key[0],
                score=one.score,
                parts=one.parts,
                content=row["content"],
                tool_result=row["tool_result"],
                snippet=make_snippet(query, body),
                created_at=one.at,
                role=one.role,
                agent=row["agent"],
                kind=row["kind"],
                tool_name=one.tool_name,
                conversation_id=row["conversation_id"],
                session_key=row["session_key"],
                title=row["title"],
                earliest_at=row["earliest_at"],
                message_count=row["message_count"],
            )
        )
    return hits
