"""Finds pages by words (BM25, with the constants of the search over messages) and by meaning. Reads only.

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
from rivet_pipeline.retrieval.scoring import PROFILE
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

#: Words of a query that are looked for, and that are looked at as names.
_MOST_WORDS = 40

#: What a word of the title counts beside its place in the text, which begins with the title.
_TITLE = 2

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


#: BM25 of pages. The documents are the pages that are asked among, a document is the text that is searched of a page,
#: its length in bytes, which are known without unpacking anything. A word stands in a tsvector twice (the text and its
#: split form), hence half its positions are how often it was written; of each page only the query's words are unpacked.
_SCORED = """
    WITH asked AS MATERIALIZED (
        SELECT array_agg(term) AS terms, string_agg(ros_term_query(term)::text, ' | ')::tsquery AS question
        FROM (SELECT unnest(ros_query_terms(%(query)s)) AS term LIMIT %(most)s) AS t
    ), corpus AS MATERIALIZED (
        SELECT count(*)::float8 AS pages,
               greatest(avg(octet_length(search_text)), 1)::float8 AS mean
        FROM ros_wiki_topics
        WHERE status = 'live' AND (%(begun_by)s::timestamptz IS NULL OR first_at <= %(begun_by)s)
    ), held AS MATERIALIZED (
        SELECT t.id, t.length,
               ts_filter(setweight(ts_filter(t.content_tsv, '{a}'), 'B', a.terms), '{b}')
               || ts_filter(setweight(ts_filter(t.content_tsv, '{d}'), 'C', a.terms), '{c}') AS hits
        FROM asked AS a CROSS JOIN LATERAL (
            SELECT id, content_tsv, octet_length(search_text) AS length FROM ros_wiki_topics
            WHERE status = 'live' AND content_tsv @@ a.question
              AND (%(begun_by)s::timestamptz IS NULL OR first_at <= %(begun_by)s) OFFSET 0) AS t
    ), words AS MATERIALIZED (
        SELECT h.id, h.length, u.lexeme AS term,
               (CASE WHEN u.weights[1] = 'C' THEN (cardinality(u.weights) + 1) / 2
                     ELSE %(title)s * ((cardinality(array_positions(u.weights, 'B')) + 1) / 2)
                          + (cardinality(array_positions(u.weights, 'C')) + 1) / 2 END)::float8 AS tf
        FROM held AS h CROSS JOIN LATERAL unnest(h.hits) AS u (lexeme, positions, weights)
    ), rarity AS (
        SELECT w.term, ln(1 + (c.pages - count(*) + 0.5) / (count(*) + 0.5)) AS idf
        FROM words AS w CROSS JOIN corpus AS c GROUP BY w.term, c.pages
    )
    SELECT s.id, sum(s.score ORDER BY s.term NULLS LAST) AS score
    FROM (
        SELECT w.id, w.term, r.idf * w.tf * (%(k1)s::float8 + 1)
               / (w.tf + %(k1)s::float8 * (1 - %(b)s::float8 + %(b)s::float8 * w.length / c.mean)) AS score
        FROM words AS w JOIN rarity AS r ON r.term = w.term CROSS JOIN corpus AS c
        UNION ALL
        SELECT t.id, NULL, ln(1 + (c.pages - 0.5) / 1.5) * (%(k1)s::float8 + 1)
        FROM ros_wiki_topics AS t CROSS JOIN corpus AS c
        WHERE t.status = 'live' AND t.alias_keys && %(names)s::text[]
          AND (%(begun_by)s::timestamptz IS NULL OR t.first_at <= %(begun_by)s)
    ) AS s
    GROUP BY s.id ORDER BY score DESC, s.id LIMIT %(pool)s
    """


def _by_words(connection: Connection, query: str, begun_by: datetime | None) -> dict[UUID, float]:
    """BM25 of the pages with any of the query's words; where its whole name is among them, what one word can add more.

    A word of the title counts as three of the text. A name adds what a word of that page alone would at most.
    """
    values = {"query": query, "names": _names(query), "pool": _POOL, "begun_by": begun_by, "most": _MOST_WORDS}
    values |= {"k1": PROFILE.k1, "b": PROFILE.b, "title": _TITLE}
    rows = connection.execute(_SCORED, values).fetchall()
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
