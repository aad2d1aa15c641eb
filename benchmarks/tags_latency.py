"""Latency of reading tags and of deciding about them, over a store with some thousand tagged leaves.

Fills a database with conversations of four leaves each, suggests and accepts tags on them, and times counts, what waits
for a review, the vocabulary, the tag filter, the pending view that the sensor asks, and a bulk of decisions. Prints a
table with p50 and p95 in milliseconds; writes nothing into the repository.

    python -m benchmarks.tags_latency --leaves 5000
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from benchmarks.temporary import temporary_server
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.stale import announce_refinement
from rivet_pipeline.tags.read import count_tags, list_tags, lookup_sessions, read_pending, tags_of_conversations
from rivet_pipeline.tags.review import Item, decide
from rivet_pipeline.tags.vocabulary import accepted_vocabulary, list_values

LEAVES_PER_CONVERSATION = 4
ROUNDS = 20

#: Values follow Zipf's law, as they do in a vocabulary that is reused: the n-th is drawn about 1/n as often.
_FILL = """
INSERT INTO ros_conversations (session_key, agent, day, settings, title)
SELECT 'bench:' || n, 'opus', date '2026-01-01' + mod(n, 180), jsonb_build_object('project', 'project-' || mod(n, 12)),
'Session ' || n FROM generate_series(1, %(conversations)s) AS n;
INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, agents, model,
                           pipeline_version, input_hash)
SELECT c.id, 'leaf', repeat('The service was deployed and the cache in front of it was emptied. ', 25) || n, 10,
       c.created_at + n * interval '1 hour', c.created_at + n * interval '1 hour', '{opus}', 'bench', 5, 'x'
FROM ros_conversations AS c, generate_series(1, %(leaves_each)s) AS n;
CREATE TEMP TABLE bench_proposals AS
SELECT s.id AS summary_id, s.conversation_id, 'topic-' || floor(exp(random() * ln(400)))::int AS value,
       random() < 0.6 AS accepted
FROM ros_summaries AS s, generate_series(1, 3);
INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source, confidence,
proposed_by, decided_by, decided_at)
SELECT e.kind, CASE e.kind WHEN 'summary' THEN summary_id ELSE conversation_id END, conversation_id, 'topic', value,
       CASE WHEN accepted THEN 'accepted' ELSE 'suggested' END, 'model', 0.8, 'bench',
       CASE WHEN accepted THEN 'ada' END, CASE WHEN accepted THEN now() END
FROM bench_proposals, (VALUES ('summary'), ('conversation')) AS e (kind)
ON CONFLICT DO NOTHING;
INSERT INTO ros_tag_taxonomy (tag_key, tag_value, status, source, proposed_by)
SELECT DISTINCT 'topic', value, 'accepted', 'model', 'bench' FROM bench_proposals;
INSERT INTO ros_tag_extractions (summary_id, text_hash, status, model, pipeline_version)
SELECT id, text_hash, 'done', 'bench', 1 FROM ros_summaries;
"""


def fill(connection: Connection, leaves: int) -> None:
    """Writes the rows and lets the planner sample them."""
    values = {"conversations": leaves // LEAVES_PER_CONVERSATION, "leaves_each": LEAVES_PER_CONVERSATION}
    for statement in _FILL.split(";\n"):
        if statement.strip():
            connection.execute(statement.encode(), values if "%(" in statement else None)
    announce_refinement(connection, "tag_proposals", model="bench", version=1)
    connection.execute("ANALYZE")


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """The median and the 95th percentile of some rounds, in milliseconds, after one that does not count."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1000, sorted(seconds)[int(0.95 * (ROUNDS - 1))] * 1000


def run(connection: Connection) -> list[tuple[str, float, float]]:
    """What is timed, with its two figures."""
    sessions = [row["id"] for row in connection.execute("SELECT id FROM ros_conversations LIMIT 50").fetchall()]
    keys = [f"bench:{number}" for number in range(1, 501)]

    def decide_page() -> None:
        rows = list_tags(connection, statuses=["suggested"], limit=100)
        decide(connection, [Item(row.id, "accepted", row.revision) for row in rows], by="ada")

    works: dict[str, Callable[[], object]] = {
        "counts": lambda: count_tags(connection),
        "pending, 50 sessions": lambda: read_pending(connection),
        "pending, 500 sessions": lambda: read_pending(connection, limit=500),
        "vocabulary": lambda: list_values(connection),
        "vocabulary for the tagger": lambda: accepted_vocabulary(connection, limit=80),
        "tags of 50 hits' sessions": lambda: tags_of_conversations(connection, sessions),
        "lookup of 500 sessions": lambda: lookup_sessions(connection, keys),
        "the filter, a common tag": lambda: connection.execute(
            "SELECT count(*) FROM ros_conversations_with_tag('topic', 'topic-1')"
        ).fetchone(),
        "the filter, a rare tag": lambda: connection.execute(
            "SELECT count(*) FROM ros_conversations_with_tag('topic', 'topic-300')"
        ).fetchone(),
        "days with work, all stages": lambda: pending_days(connection),
        "deciding about 100 tags": decide_page,
    }
    return [(name, *measure(work)) for name, work in works.items()]


def main() -> None:
    """Makes the store, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, default=5000)
    leaves = parser.parse_args().leaves
    with temporary_server() as server:
        with connect(server.url("postgres")) as admin:
            admin.execute("CREATE DATABASE bench")
        with connect(server.url("bench")) as connection:
            apply_migrations(connection)
            fill(connection, leaves)
            tags = connection.execute("SELECT count(*) AS n FROM ros_tags").fetchone()
            print(f"{leaves:,} leaves, {tags['n'] if tags else 0:,} tags; milliseconds")
            for name, median, high in run(connection):
                print(f"  {name:<28} p50 {median:8.1f}   p95 {high:8.1f}")


if __name__ == "__main__":
    main()
