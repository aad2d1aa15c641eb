"""What the transcript holds on a day: the figures that the `messages` stage reports. Changes no message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from rivet_pipeline.db.ledger import mark_seen
from rivet_pipeline.db.pool import Connection


@dataclass(frozen=True, slots=True)
class TranscriptDay:
    """One day's conversations and what they contain. `characters` counts content and tool results."""

    day: date
    conversations: int
    messages: int
    tool_calls: int
    characters: int
    agents: dict[str, int] = field(default_factory=dict)


def observe_days(connection: Connection, days: Sequence[date]) -> tuple[dict[date, TranscriptDay], float]:
    """The figures of each of the days, and the seconds it took.

    Marks what it has seen, so that the days are pending again when a message comes later.
    """
    began = time.perf_counter()
    unseen = connection.execute(
        # Always in the same order, so that two workers can not deadlock on each other's marks.
        """
        SELECT conversation_id, revision FROM ros_unseen_conversations
        WHERE stage = 'messages' AND day = ANY(%s) ORDER BY conversation_id
        """,
        [list(days)],
    ).fetchall()
    rows = connection.execute(
        """
        SELECT c.day, m.agent, count(DISTINCT c.id) AS conversations, count(*) AS messages,
               count(*) FILTER (WHERE m.tool_name IS NOT NULL) AS tool_calls,
               coalesce(sum(length(m.content) + length(coalesce(m.tool_result, ''))), 0)::bigint AS characters
        FROM ros_conversations AS c JOIN ros_messages AS m ON m.conversation_id = c.id
        WHERE c.day = ANY(%s)
        GROUP BY c.day, m.agent ORDER BY c.day, m.agent
        """,
        [list(days)],
    ).fetchall()
    with connection.transaction():
        for row in unseen:
            mark_seen(connection, stage="messages", conversation_id=row["conversation_id"], revision=row["revision"])
    found: dict[date, TranscriptDay] = {}
    for day in days:
        parts = [row for row in rows if row["day"] == day]
        found[day] = TranscriptDay(
            day,
            conversations=sum(row["conversations"] for row in parts),
            messages=sum(row["messages"] for row in parts),
            tool_calls=sum(row["tool_calls"] for row in parts),
            characters=sum(row["characters"] for row in parts),
            agents={row["agent"]: row["messages"] for row in parts},
        )
    return found, time.perf_counter() - began
