"""Which sessions are the pipeline's own model traffic: those whose first text is one of our prompts.

A session that is so marked is noise, and nothing refines it. The marker in the midst of a session is somebody's
quotation and marks nothing. How messages are stored does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.records import MessageRecord, ToolResult
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER

#: Why such a session is noise: told from a session that its agent marked itself.
REASON = "the pipeline's own model traffic"

_MARK: dict[str, Any] = {"noise": True, "noise_reason": REASON}

#: What a harness puts before the first prompt is no text of the session.
_PREFACE = "injected"


def mark_of(items: Sequence[MessageRecord | ToolResult]) -> dict[str, Any]:
    """The settings of a new session that begins with these items, as far as the order of the items tells."""
    first = next((item for item in items if _is_text(item)), None)
    return dict(_MARK) if first is not None and begins_with_marker(first) else {}


def begins_with_marker(item: MessageRecord | ToolResult) -> bool:
    """Whether the item is a prompt of ours."""
    return isinstance(item, MessageRecord) and item.content.lstrip().startswith(OWN_TRAFFIC_MARKER)


def _is_text(item: MessageRecord | ToolResult) -> bool:
    return isinstance(item, MessageRecord) and bool(item.content.strip()) and item.metadata.get("kind") != _PREFACE


def settle_mark(connection: Connection, conversation_id: UUID) -> None:
    """Marks a stored session by its first text, or takes our mark off; a mark that an agent set itself stays.

    Counts a change as a write, so that what was passed over as noise is looked at again.
    """
    connection.execute(
        r"""
        WITH first_text AS (
            SELECT starts_with(ltrim(said, E' \t\n\r\f\v'), %(marker)s) AS ours
            FROM ros_messages AS m, ros_captured_content(m.content, m.metadata) AS said
            WHERE m.conversation_id = %(id)s AND said ~ '\S' AND m.metadata ->> 'kind' IS DISTINCT FROM %(preface)s
            ORDER BY m.created_at, m.seq LIMIT 1
        ), found AS (SELECT coalesce((SELECT ours FROM first_text), false) AS ours)
        UPDATE ros_conversations AS c
        SET settings = CASE WHEN f.ours THEN c.settings || %(mark)s ELSE c.settings - 'noise' - 'noise_reason' END,
            revision = c.revision + 1
        FROM found AS f
        WHERE c.id = %(id)s
          AND CASE WHEN f.ours THEN NOT ros_is_noise('', c.settings)
                   ELSE coalesce(c.settings ->> 'noise_reason', '') = %(reason)s END
        """,
        {
            "id": conversation_id,
            "marker": OWN_TRAFFIC_MARKER,
            "preface": _PREFACE,
            "mark": Jsonb(_MARK),
            "reason": REASON,
        },
    )
