"""What it costs to ask what is pending in a large store, by how much of it is done.

    python -m benchmarks.pending_work                       # 100,000 messages, in a temporary embedded server
    python -m benchmarks.pending_work --messages 1000000    # some minutes

Conversations of 50 messages on 400 days, each with five leaves once it is done. States: nothing done; the older half of
the days done and marked; besides, half of each other conversation done, not marked (as while runs are under way);
everything done.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from benchmarks.search_latency import database
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pending import days_with_work, pending_days
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval.stats import collect_stats

_EACH = 50

_ROWS = """
SELECT ros_register_embedding_model('test', 8);
INSERT INTO ros_conversations (session_key, agent, day, revision, updated_at, created_at)
SELECT 'test:' || n, 'opus', d, 1, d + interval '5 hours', d
FROM generate_series(1, {conversations}) AS n CROSS JOIN LATERAL (SELECT date '2025-10-01' + n % 400 AS d) AS days;
INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, created_at)
SELECT c.id, n::text, 'opus', 'test', CASE WHEN n % 5 IN (1, 3) THEN 'tool' ELSE 'user' END,
       'word' || n || repeat(' filler text of a message', 12), CASE WHEN n % 5 IN (1, 3) THEN 'Bash' END,
       c.created_at + n * interval '1 second'
FROM ros_conversations AS c, generate_series(1, {each}) AS n
"""

#: `days` says of which conversations, `part` how far.
_DONE = """
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
SELECT 1, 'message', m.id, 0, m.text_hash, 0, 1, '[1,2,3,4,5,6,7,8]'
FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
WHERE {days} AND m.event_id::int <= {part} ON CONFLICT DO NOTHING;
INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                           pipeline_version, input_hash)
SELECT c.id, 'leaf', 'a leaf ' || n, 10, c.created_at + n * interval '1 second', c.updated_at, 'm', 1, 'x'
FROM ros_conversations AS c, generate_series(1, {each}, 10) AS n
WHERE {days} AND n <= {part}
  AND NOT EXISTS (SELECT 1 FROM ros_summaries AS s
                  WHERE s.conversation_id = c.id AND s.earliest_at = c.created_at + n * interval '1 second');
INSERT INTO ros_summary_sources (summary_id, message_id, ordinal)
SELECT s.id, m.id, m.event_id::int
FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
JOIN ros_messages AS m ON m.conversation_id = c.id AND m.created_at >= s.earliest_at
                      AND m.created_at < s.earliest_at + interval '10 seconds'
WHERE {days} AND m.event_id::int <= {part} AND s.kind = 'leaf' ON CONFLICT DO NOTHING;
INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome)
SELECT s.id, s.text_hash, 1, 'm', 'none' FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
WHERE s.kind = 'leaf' AND {days} ON CONFLICT DO NOTHING
"""
_MARKED = """
WITH made AS (
    INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                               pipeline_version, input_hash)
    SELECT id, 'branch', 'a branch', 50, created_at, updated_at, 'm', 1, 'x' FROM ros_conversations AS c WHERE {days}
    RETURNING id, conversation_id)
UPDATE ros_summaries AS s SET parent_id = made.id FROM made
WHERE made.conversation_id = s.conversation_id AND s.kind = 'leaf';
INSERT INTO ros_stage_marks (stage, conversation_id, revision)
SELECT stage, id, 1
FROM ros_conversations AS c,
     unnest(ARRAY['messages', 'message_embeddings', 'leaf_summaries', 'tool_call_text']) AS stage
WHERE {days}
"""
_VECTORS_OF_SUMMARIES = """
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
SELECT 1, 'summary', id, 0, text_hash, 0, 1, '[1,2,3,4,5,6,7,8]' FROM ros_summaries ON CONFLICT DO NOTHING
"""

_OLDER = "c.day < date '2025-10-01' + 200"


def run(connection: Connection, statements: str, **values: object) -> None:
    """Runs statements of this module, one after the other."""
    for statement in statements.format(each=_EACH, **values).split(";"):
        connection.execute(statement.encode())


def measure(connection: Connection, state: str, rounds: int) -> None:
    """Prints the quickest of some rounds of each question, in milliseconds."""
    connection.execute("VACUUM ANALYZE")
    asked: dict[str, Callable[[], object]] = {
        "days with work": lambda: days_with_work(connection),
        "and how much": lambda: pending_days(connection),
        "stats": lambda: collect_stats(connection),
        "ros_pending_days": lambda: connection.execute("SELECT * FROM ros_pending_days").fetchall(),
    }
    figures = []
    for name, ask in asked.items():
        times = []
        for _ in range(1 if name == "ros_pending_days" else rounds):
            begun = time.perf_counter()
            ask()
            times.append(1000 * (time.perf_counter() - begun))
        figures.append(f"{name} {min(times):,.0f}")
    print(f"{state:48}{'  '.join(figures)}", flush=True)


def main() -> None:
    """Fills, measures, does more, measures again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with database(None) as (url, _), connect(url) as connection:
        apply_migrations(connection)
        # What search needs, and nobody asks here, would take most of the time.
        connection.execute("DROP INDEX ros_messages_tsv, ros_summaries_tsv")
        connection.execute("ALTER TABLE ros_embeddings DISABLE TRIGGER USER")
        run(connection, _ROWS, conversations=options.messages // _EACH)
        connection.execute("DROP INDEX IF EXISTS ros_embeddings_hnsw_1, ros_embeddings_hnsw_1_summaries")
        measure(connection, "nothing done", options.rounds)
        run(connection, _DONE, days=_OLDER, part=_EACH)
        run(connection, _MARKED, days=_OLDER)
        run(connection, _VECTORS_OF_SUMMARIES)
        measure(connection, "the older half done", options.rounds)
        run(connection, _DONE, days=f"NOT ({_OLDER})", part=_EACH // 2)
        measure(connection, "and half of each other conversation, unmarked", options.rounds)
        run(connection, _DONE, days=f"NOT ({_OLDER})", part=_EACH)
        run(connection, _MARKED, days=f"NOT ({_OLDER})")
        run(connection, _VECTORS_OF_SUMMARIES)
        measure(connection, "everything done", options.rounds)


if __name__ == "__main__":
    main()
