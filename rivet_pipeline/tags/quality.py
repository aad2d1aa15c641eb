"""Questions about tags that should be answered with nothing: what the asset checks ask. Read only."""

from __future__ import annotations

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.db.quality import Finding


def orphan_tags(connection: Connection) -> Finding:
    """Tags of conversations and summaries that are gone; the hourly sweep deletes them."""
    return _finding(
        connection,
        """
        SELECT t.id, t.entity_kind, t.tag_key || ':' || t.tag_value AS tag,
               CASE t.entity_kind
                    WHEN 'summary' THEN NOT EXISTS (SELECT 1 FROM ros_summaries AS s WHERE s.id = t.entity_id)
                    ELSE NOT EXISTS (SELECT 1 FROM ros_conversations AS c WHERE c.id = t.entity_id)
               END AS at_fault
        FROM ros_tags AS t
        """,
    )


def dropped_leaves(connection: Connection) -> Finding:
    """Leaves that went without tags because their tagger failed twice."""
    return _finding(
        connection,
        """
        SELECT summary_id, model, left(error, 200) AS error, tagged_at, status = 'dropped' AS at_fault
        FROM ros_tag_extractions
        """,
    )


def outdated_leaves(connection: Connection) -> Finding:
    """Leaves whose tags an older version has proposed."""
    return _finding(
        connection, "SELECT day, count(*) AS leaves, stale AS at_fault FROM ros_taggable_leaves GROUP BY 1, 3"
    )


def alias_tags(connection: Connection) -> Finding:
    """Tags with a value that was merged into another one: a merge re-points them all."""
    return _finding(
        connection,
        """
        SELECT t.id, t.tag_key || ':' || t.tag_value AS tag, v.alias_of, v.alias_of IS NOT NULL AS at_fault
        FROM ros_tags AS t
        LEFT JOIN ros_tag_taxonomy AS v ON v.tag_key = t.tag_key AND v.tag_value = t.tag_value
        """,
    )


def _finding(connection: Connection, rows: str) -> Finding:
    counts = connection.execute(
        f"SELECT count(*) FILTER (WHERE at_fault) AS at_fault, count(*) AS examined FROM ({rows}) AS r".encode()  # noqa: S608
    ).fetchone()
    assert counts is not None
    if not counts["at_fault"]:
        return Finding(0, counts["examined"])
    examples = connection.execute(f"SELECT * FROM ({rows}) AS r WHERE at_fault LIMIT 10".encode()).fetchall()  # noqa: S608
    return Finding(
        counts["at_fault"],
        counts["examined"],
        [{name: value for name, value in row.items() if name != "at_fault"} for row in examples],
    )
