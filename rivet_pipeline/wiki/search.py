"""Finds pages by words and by meaning. Reads only.

Both parts are scaled by the best page of the query and summed, words a little over meaning, as the search over messages
does. A meaning that can not be had (no vectors, a model that is away) degrades the search and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval.snippets import shorten
from rivet_pipeline.retrieval.vector import refuse_vector, serving_model, vector_text
from rivet_pipeline.summaries.signals import STOP_WORDS
from rivet_pipeline.wiki.names import fold
from rivet_pipeline.wiki.pages import page_from_json
from rivet_pipeline.wiki.types import Page

EmbedQuery = Callable[[str], NDArray[np.float32]]

#: The share of words and of meaning in a score.
_WORDS, _MEANING = 0.55, 0.45

#: Pages of either part that are weighed.
_POOL = 60

#: A page that shares no word with the query must lie at least so near by meaning (cosine).
_NEAR = 0.35

#: Words of a query that are looked at as names.
_MOST_WORDS = 40

#: Characters of a page's first sentences in a listing.
EXCERPT = 300


@dataclass(frozen=True, slots=True)
class TopicHit:
    """One page that was found. `score` is 0 to 1; `latest_at` (UTC) is the time of its newest sentence."""

    topic_id: UUID
    slug: str
    title: str
    score: float
    excerpt: str
    latest_at: datetime | None
    page: Page


@dataclass(frozen=True, slots=True)
class WikiSearch:
    """The pages found, best first. `degraded` says why meaning was not used; `reason` why there is nothing."""

    hits: list[TopicHit] = field(default_factory=list)
    degraded: str | None = None
    reason: str | None = None


def search_topics(
    connection: Connection,
    query: str,
    *,
    limit: int = 5,
    embed_query: EmbedQuery | None = None,
    begun_by: datetime | None = None,
) -> WikiSearch:
    """The pages nearest to a query. `embed_query` gives the serving model's vector; None searches words alone.

    `begun_by`: by words, only pages of which something had been said by then.
    """
    words = _by_words(connection, query, begun_by)
    near, degraded = _by_meaning(connection, query, embed_query)
    scores = _scores(words, near)
    best = sorted(scores, key=lambda topic: (-scores[topic], str(topic)))[:limit]
    hits = _hits(connection, best, scores)
    reason = None if hits else "no page shares a word with this" + ("" if degraded else " or lies near it")
    return WikiSearch(hits, degraded, reason)


def _scores(words: dict[UUID, float], near: dict[UUID, float]) -> dict[UUID, float]:
    best_words = max(words.values(), default=0.0) or 1.0
    best_near = max(near.values(), default=0.0) or 1.0
    wanted = set(words) | {topic for topic, cosine in near.items() if cosine >= _NEAR}
    share = _WORDS if near else 1.0
    return {
        topic: round(
            share * words.get(topic, 0.0) / best_words + _MEANING * max(near.get(topic, 0.0), 0.0) / best_near, 6
        )
        for topic in wanted
    }


def _by_words(connection: Connection, query: str, begun_by: datetime | None) -> dict[UUID, float]:
    """Pages with any of the query's words: rare ones weigh more, those of the title too, and a whole name most.

    Of pages that hold the same words, that one comes first which holds them more often for its length (`ts_rank`, at
    most 1).
    """
    rows = connection.execute(
        """
        WITH asked AS MATERIALIZED (
            SELECT term, ros_term_query(term) AS question, ('''' || replace(replace(term, '\\', '\\\\'), '''', '''''')
                   || ''':A')::tsquery AS titled
            FROM unnest(ros_query_terms(%(query)s)) AS term LIMIT 40
        ), found AS MATERIALIZED (
            SELECT a.term, t.id,
                   CASE WHEN t.content_tsv @@ a.titled THEN 3.0 ELSE 1.0 END
                   + ts_rank(t.content_tsv, a.question, 1) AS weight
            FROM asked AS a CROSS JOIN LATERAL (
                SELECT id, content_tsv FROM ros_wiki_topics
                WHERE status = 'live' AND content_tsv @@ a.question
                  AND (%(begun_by)s::timestamptz IS NULL OR first_at <= %(begun_by)s) OFFSET 0) AS t
        ), rarity AS (
            SELECT term, ln(1 + (SELECT count(*) FROM ros_wiki_topics WHERE status = 'live')::float / count(*)) AS idf
            FROM found GROUP BY term
        )
        SELECT w.id, sum(w.score) AS score
        FROM (
            SELECT f.id, f.weight * r.idf AS score FROM found AS f JOIN rarity AS r ON r.term = f.term
            UNION ALL
            SELECT id, 3 * ln(1 + (SELECT count(*) FROM ros_wiki_topics WHERE status = 'live'))
            FROM ros_wiki_topics WHERE status = 'live' AND alias_keys && %(names)s::text[]
              AND (%(begun_by)s::timestamptz IS NULL OR first_at <= %(begun_by)s)
        ) AS w
        GROUP BY w.id ORDER BY score DESC, w.id LIMIT %(pool)s
        """,
        {"query": query, "names": _names(query), "pool": _POOL, "begun_by": begun_by},
    ).fetchall()
    return {row["id"]: float(row["score"]) for row in rows}


def _names(query: str) -> list[str]:
    """What of a query may be a page's whole name: its words, and two or three of them in a row, folded."""
    words = query.split()[:_MOST_WORDS]
    rows = {fold(" ".join(words[at : at + length])) for length in (1, 2, 3) for at in range(len(words))}
    return sorted(rows - {""} - STOP_WORDS)


def _by_meaning(
    connection: Connection, query: str, embed_query: EmbedQuery | None
) -> tuple[dict[UUID, float], str | None]:
    """Cosine similarities of the nearest pages by their best chunk, or why there are none."""
    if embed_query is None or not query.strip():
        return {}, None
    try:
        vector = embed_query(query)
    except ModelError as error:
        return {}, f"the embedding model gave no vector ({error})"
    model = serving_model(connection)
    refused = refuse_vector(model, vector)
    if model is None or refused is not None:
        return {}, refused
    rows = connection.execute(
        """
        SELECT owner_id AS id, 1 - min(distance) AS cosine
        FROM (SELECT e.owner_id, e.embedding <=> %(vector)s::halfvec AS distance FROM ros_embeddings AS e
              WHERE e.model_id = %(model)s AND e.owner_kind = 'topic' OFFSET 0) AS chunks
        GROUP BY owner_id ORDER BY cosine DESC, owner_id LIMIT %(pool)s
        """,
        {"vector": vector_text(vector), "model": model.id, "pool": _POOL},
    ).fetchall()
    return {row["id"]: float(row["cosine"]) for row in rows}, None


def _hits(connection: Connection, topics: list[UUID], scores: dict[UUID, float]) -> list[TopicHit]:
    rows = connection.execute(
        "SELECT id, slug, title, page, latest_at FROM ros_wiki_topics WHERE id = ANY(%s) AND status = 'live'", [topics]
    ).fetchall()
    found = {row["id"]: row for row in rows}
    hits = []
    for topic in topics:
        if topic in found:
            row = found[topic]
            page = page_from_json(row["page"])
            hits.append(
                TopicHit(topic, row["slug"], row["title"], scores[topic], excerpt(page), row["latest_at"], page)
            )
    return hits


def excerpt(page: Page, length: int = EXCERPT) -> str:
    """The first sentences of a page, cut."""
    text = " ".join(bullet.text for bullet in page.bullets[:3])
    return shorten(text, length)
