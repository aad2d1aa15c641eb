"""What is pending is cheap to ask: marks keep the sensor's question away from conversations that are done."""

from __future__ import annotations

from typing import Any

from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection

_FINISHED = """
INSERT INTO ros_conversations (session_key, agent, day, revision, updated_at)
SELECT 'test:' || n, 'opus', date '2026-01-01' + n % 60, 1, now() - interval '10 days'
FROM generate_series(1, 2000) AS n;
INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
SELECT c.id, n::text, 'opus', 'test', 'user', 'word' || n FROM ros_conversations AS c, generate_series(1, 3) AS n;
SELECT ros_register_embedding_model('test', 8);
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
SELECT k.id, 'message', m.id, 0, m.text_hash, 0, 1, '[1,2,3,4,5,6,7,8]'
FROM ros_messages AS m, ros_embedding_models AS k;
INSERT INTO ros_stage_marks (stage, conversation_id, revision)
SELECT stage, id, 1 FROM ros_conversations, unnest(ARRAY['messages', 'message_embeddings', 'leaf_summaries']) AS stage;
ANALYZE
"""


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


def read(connection: Connection, table: str) -> int:
    """The rows of a table that the question for pending days really looks at."""
    row = connection.execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM ros_pending_days").fetchone()
    assert row is not None
    found = [node for node in nodes(row["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == table]
    assert found  # the question mentions the table
    return sum(
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]) for node in found
    )


def test_conversations_that_are_done_are_not_looked_at(connection: Connection) -> None:
    for statement in _FINISHED.split(";"):
        connection.execute(statement.encode())
    assert pending_days(connection) == []
    assert read(connection, "ros_messages") == 0
    assert read(connection, "ros_embeddings") == 0


def test_a_new_message_costs_a_look_at_its_conversation_only(connection: Connection) -> None:
    for statement in _FINISHED.split(";"):
        connection.execute(statement.encode())
    connection.execute(
        """WITH touched AS (UPDATE ros_conversations SET revision = 2 WHERE session_key = 'test:7' RETURNING id)
           INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
           SELECT id, 'new', 'opus', 'test', 'user', 'a new word' FROM touched"""
    )
    assert {(item.stage, item.items) for item in pending_days(connection)} == {
        ("messages", 1),
        ("message_embeddings", 1),
        ("leaf_summaries", 1),  # four messages, untouched for ten days: due by the stale rule
    }
    assert read(connection, "ros_messages") <= 8
    assert read(connection, "ros_embeddings") <= 8
