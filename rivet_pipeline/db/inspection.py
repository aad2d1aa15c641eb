"""What the store says about itself: versions, migrations, failures. Read by health and by `rivet doctor`.

Nothing here changes anything. What is pending is read in `pending.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from rivet_pipeline.db.migrations import read_migrations
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import Stage


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server and one store. `extensions` maps an installed extension to its version; `size` is in bytes."""

    version: str
    extensions: Mapping[str, str]
    unapplied: list[str]
    size: int


def server_facts(connection: Connection) -> ServerFacts:
    """The server's version, the store's extensions and size, and the migrations that are not applied to it yet."""
    row = connection.execute(
        """
        SELECT current_setting('server_version') AS version,
               pg_database_size(current_database()) AS size,
               to_regclass('ros_migrations') IS NOT NULL AS migrated
        """
    ).fetchone()
    assert row is not None
    extensions = connection.execute("SELECT extname, extversion FROM pg_extension").fetchall()
    applied: set[str] = set()
    if row["migrated"]:
        applied = {found["name"] for found in connection.execute("SELECT name FROM ros_migrations").fetchall()}
    return ServerFacts(
        version=row["version"].split()[0],
        extensions={found["extname"]: found["extversion"] for found in extensions},
        unapplied=[migration.name for migration in read_migrations() if migration.name not in applied],
        size=row["size"],
    )


def failure_counts(connection: Connection) -> dict[str, int]:
    """The items in the failure ledger by cause (transient, content, permanent), and those not tried again: given_up."""
    row = connection.execute(
        """
        SELECT count(*) FILTER (WHERE cause = 'transient') AS transient,
               count(*) FILTER (WHERE cause = 'content') AS content,
               count(*) FILTER (WHERE cause = 'permanent') AS permanent,
               count(*) FILTER (WHERE next_attempt_at IS NULL) AS given_up
        FROM ros_failures
        """
    ).fetchone()
    assert row is not None
    return row


def rows_held(connection: Connection, stage: Stage, days: Sequence[date]) -> dict[date, int]:
    """How many rows a refining stage has for the conversations of some days.

    Rows are summaries, the filling model's vectors, messages with a text that was made for them, tags, or the wiki's
    patches that stand.

    Days without any do not appear.
    """
    parameters = {"days": list(days), "kind": stage.removesuffix("_summaries")}
    rows = connection.execute(_HELD.get(stage, _SUMMARIES_HELD), parameters).fetchall()
    return {row["day"]: row["held"] for row in rows}


_SUMMARIES_HELD = b"""
SELECT c.day, count(*) AS held
FROM ros_conversations AS c JOIN ros_summaries AS s ON s.conversation_id = c.id AND s.kind = %(kind)s
WHERE c.day = ANY(%(days)s) GROUP BY c.day
"""
_HELD: Mapping[Stage, bytes] = {
    "tool_call_text": b"""
        SELECT c.day, count(*) AS held
        FROM ros_conversations AS c JOIN ros_messages AS m ON m.conversation_id = c.id
        WHERE c.day = ANY(%(days)s) AND m.metadata ? 'content_made_by' GROUP BY c.day
    """,
    "tag_proposals": b"""
        SELECT c.day, count(*) AS held
        FROM ros_conversations AS c JOIN ros_tags AS t ON t.conversation_id = c.id
        WHERE c.day = ANY(%(days)s) GROUP BY c.day
    """,
    "message_embeddings": b"""
        SELECT c.day, count(*) AS held
        FROM ros_conversations AS c
        JOIN ros_messages AS m ON m.conversation_id = c.id
        JOIN ros_embedding_models AS k ON k.filling
        JOIN ros_embeddings AS e ON e.model_id = k.id AND e.owner_kind = 'message' AND e.owner_id = m.id
        WHERE c.day = ANY(%(days)s) GROUP BY c.day
    """,
    "wiki_patches": b"""
        SELECT s.day, count(*) AS held
        FROM ros_wiki_patches AS p JOIN ros_summaries AS s ON s.id = p.leaf_id
        WHERE p.status IN ('proposed', 'applied') AND s.day = ANY(%(days)s) GROUP BY s.day
    """,
    "summary_embeddings": b"""
        SELECT c.day, count(*) AS held
        FROM ros_conversations AS c
        JOIN ros_summaries AS s ON s.conversation_id = c.id
        JOIN ros_embedding_models AS k ON k.filling
        JOIN ros_embeddings AS e ON e.model_id = k.id AND e.owner_kind = 'summary' AND e.owner_id = s.id
        WHERE c.day = ANY(%(days)s) GROUP BY c.day
    """,
}
