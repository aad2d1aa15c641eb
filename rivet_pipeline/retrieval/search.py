"""One search: candidates of both arms, and of them one list of messages and summaries (`ranking.py`).

Reads what is materialised and never waits for the pipeline. Counting accesses is the caller's (`access.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval import lexical, scoring, vector
from rivet_pipeline.retrieval.filters import number_array, statement, tune_session
from rivet_pipeline.retrieval.ranking import Key, Scored, SemanticSide, rank
from rivet_pipeline.retrieval.scoring import PROFILE, Profile
from rivet_pipeline.retrieval.snippets import make_snippet
from rivet_pipeline.retrieval.types import Hit, SearchRequest, SearchResponse

#: The fewest and most hits of one search.
MIN_LIMIT, MAX_LIMIT = 1, 50

#: How wide the graph of vectors is searched: about the chunks asked of it; the walk goes on when that is not enough.
_EF_SEARCH = 100

EmbedQuery = Callable[[str], NDArray[np.float32]]


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


def _embed(connection: Connection, request: SearchRequest, embed_query: EmbedQuery | None) -> SemanticSide:
    if request.mode == "fts":
        return SemanticSide()
    if embed_query is None:
        return SemanticSide(degraded="semantic search is off: no embedding model is configured")
    model = vector.serving_model(connection)
    if model is None:
        return SemanticSide(degraded="semantic search is off: nothing is embedded yet")
    try:
        query = np.asarray(embed_query(request.query), dtype=np.float32).reshape(-1)
    except ModelError as error:
        return SemanticSide(degraded=f"semantic search is off: the embedding service failed ({error.name})")
    refused = vector.refuse_vector(model, query)
    if refused is not None:
        return SemanticSide(degraded=f"semantic search is off: {refused}")
    return SemanticSide(model, query)


def _search(
    connection: Connection, request: SearchRequest, side: SemanticSide, now: datetime, profile: Profile
) -> SearchResponse:
    similarities: dict[Key, float] = {}
    if side.model is not None and side.query is not None:
        wanted = max(profile.vector_kept, 2 * request.limit)
        similarities = vector.nearest(connection, side.model, side.query, request, wanted=wanted).similarities
    literal = scoring.looks_literal(request.query)
    texts = lexical.TextScores()
    if request.mode != "vector":
        parsed = lexical.parse_query(connection, request.query)
        if not parsed.terms:
            return SearchResponse(
                request.query, [], side.degraded, "the query holds only words that are too common to search for"
            )
        candidates = lexical.select_candidates(connection, parsed, request, literal=literal, now=now, profile=profile)
        texts = lexical.score_texts(
            connection,
            parsed,
            candidates,
            extra=list(similarities),
            now=now,
            kept=max(profile.lexical_kept, 4 * request.limit),
            profile=profile,
        )
    keys = list(dict.fromkeys([*texts.scores, *similarities]))
    scored = rank(connection, request, keys, texts, similarities, side, literal=literal, now=now, profile=profile)
    hits = _read_hits(connection, request.query, scored)
    return SearchResponse(request.query, hits, side.degraded, None if hits else _why_nothing(request, side))


def _why_nothing(request: SearchRequest, side: SemanticSide) -> str:
    if request.mode == "vector" and side.degraded is not None:
        return f"{side.degraded}, and mode vector asks for nothing else"
    filtered = request.agent or request.role or request.conversation_id or request.since or request.before
    if filtered:
        return "nothing within these filters holds any of the query's words"
    return "no message or summary holds any of the query's words"


def _read_hits(connection: Connection, query: str, scored: list[Scored]) -> list[Hit]:
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
