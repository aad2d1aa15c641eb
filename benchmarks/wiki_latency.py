"""How long the wiki's reads take over 5,000 mined leaves: gaps, counts, pending and search, warm, in milliseconds.

    python -m benchmarks.wiki_latency [--leaves 5000] [--topics 600] [--rounds 60]

Rows are made here, with words of a few hundred subjects; nothing is asked of a model but the in-process embedder.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.db.quality import overdue_items
from rivet_pipeline.embedding.embed import embed_topics
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.names import fold, slugify
from rivet_pipeline.wiki.read import read_counts, read_gaps
from rivet_pipeline.wiki.review import list_patches
from rivet_pipeline.wiki.search import search_topics
from rivet_pipeline.wiki.store import content_hash, draft_to_json, rebuild, topic_for
from rivet_pipeline.wiki.types import Claim, PatchDraft

#: The target of each read at p95, in milliseconds.
TARGET = 100.0

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_NOUNS = (
    *("gauge", "importer", "backup", "scanner", "endpoint", "cluster", "panel", "report"),
    *("plan", "timer", "cache", "queue", "parser", "index", "broker"),
)
_NAMES = [
    f"{first}{second}" for first in ("Tide", "Kelp", "Brine", "Harbour", "Quay") for second in ("Box", "Link", "Map")
]


def main() -> int:
    """Makes the store, measures, prints a table; 1 when a read misses its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leaves", type=int, default=5000)
    parser.add_argument("--topics", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "pg")
        server.start()
        try:
            with connect(server.url("postgres")) as admin:
                admin.execute("CREATE DATABASE wiki")
            return _measure(server.url("wiki"), asked.leaves, asked.topics, asked.rounds)
        finally:
            server.stop()


def _measure(url: str, leaves: int, topics: int, rounds: int) -> int:
    with connect(url) as connection:
        apply_migrations(connection)
        _fill(connection, leaves, topics)
        with open_pool(url, max_size=3) as pool:
            embed_topics(pool, WordLlamaEmbedder())
        connection.execute("VACUUM ANALYZE")
        embedder = WordLlamaEmbedder()
        queries = [f"{random.choice(_NOUNS)} {random.choice(_NAMES)}" for _ in range(rounds)]
        vectors = {query: embedder.embed([query])[0] for query in queries}
        reads: dict[str, Callable[[str], object]] = {
            "gaps": lambda _: read_gaps(connection),
            "counts": lambda _: read_counts(connection),
            "pending": lambda _: overdue_items(connection, "wiki_patches"),
            "patches to review": lambda _: list_patches(connection),
            "search": lambda query: search_topics(connection, query, embed_query=vectors.__getitem__),
        }
        return max(_table(name, read, queries) for name, read in reads.items())


def _table(name: str, read: Callable[[str], object], queries: list[str]) -> int:
    for query in queries[:5]:
        read(query)
    times = []
    for query in queries:
        began = time.perf_counter()
        read(query)
        times.append(1000 * (time.perf_counter() - began))
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"{name:<18} p50 {statistics.median(times):7.1f} ms   p95 {p95:7.1f} ms   target {TARGET:.0f} ms")
    return int(p95 > TARGET)


def _fill(connection: Connection, leaves: int, topics: int) -> None:
    """So many leaves over so many pages, one in fifty of the leaves not mined yet, one in twenty patches proposed."""
    random.seed(7)
    titles = [f"{_NAMES[n % len(_NAMES)]} {_NOUNS[n // len(_NAMES) % len(_NOUNS)]} {n}" for n in range(topics)]
    with connection.transaction():
        ids = {title: topic_for(connection, title) for title in titles}
        for number in range(leaves):
            _add_leaf(connection, number, random.choice(titles), ids)
    with connection.transaction():
        rebuild(connection, ids.values(), cause="benchmark")
    # Every other stage has seen these conversations, as in a store that is up to date.
    connection.execute(
        """
        INSERT INTO ros_stage_marks (stage, conversation_id, revision)
        SELECT DISTINCT stage, conversation_id, revision FROM ros_unseen_conversations
        """
    )


def _add_leaf(connection: Connection, number: int, title: str, ids: dict[str, UUID]) -> None:
    at = _BEGAN + timedelta(hours=number)
    text = f"- {at:%Y-%m-%dT%H:%MZ} opus/user: We decided that the {title} listens on port {number}."
    row = connection.execute(
        """
        WITH c AS (
            INSERT INTO ros_conversations (session_key, agent, day, updated_at)
            VALUES (%(key)s, 'opus', %(at)s::date, %(at)s) RETURNING id)
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                   pipeline_version, input_hash)
        SELECT c.id, 'leaf', %(text)s, 10, %(at)s, %(at)s, 'extractive-2', 5, 'x' FROM c RETURNING id, text_hash
        """,
        {"key": f"bench:{uuid4()}", "at": at, "text": text},
    ).fetchone()
    assert row is not None
    if number % 50 == 0:
        return
    names = random.sample(_NAMES, 3)
    claim = Claim("decisions", f"The {title} listens on the port of {names[0]} number {number % 7}.", at)
    draft = PatchDraft(title, (claim,), entities=tuple(names))
    connection.execute(
        """
        INSERT INTO ros_wiki_patches (kind, status, leaf_id, leaf_hash, topic_id, title, payload, content_hash,
                                      claim_keys, decision, reason, as_of, model, pipeline_version)
        VALUES ('edit', %s, %s, %s, %s, %s, %s, %s, %s, 'slug', 'a benchmark', %s, 'bench', %s)
        """,
        [
            "proposed" if number % 20 == 1 else "applied",
            row["id"],
            row["text_hash"],
            ids[title],
            title,
            Jsonb(draft_to_json(draft)),
            content_hash(title, [claim.key]),
            [claim.key],
            at,
            WIKI_PIPELINE_VERSION,
        ],
    )
    mentions = [title, *names, f"{slugify(title)}.py"]
    connection.execute(
        """
        INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome, patches, mention_keys,
                                          mentions)
        VALUES (%s, %s, %s, 'bench', 'patches', 1, %s, %s)
        """,
        [row["id"], row["text_hash"], WIKI_PIPELINE_VERSION, [fold(name) for name in mentions], mentions],
    )


if __name__ == "__main__":
    sys.exit(main())
