"""From a summary down to the words it was made from, and from a message up to the summaries that hold it. Read only.

An excerpt is the first line that says something, cut. Everything is bounded, and what a bound left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.snippets import shorten, without_frame

#: The bounds of an answer: summaries below the one asked for, messages, and characters of an excerpt.
DEFAULT_SUMMARIES, DEFAULT_MESSAGES, DEFAULT_EXCERPT = 100, 200, 200

#: How much of a text is looked through for its first line, in characters.
_LOOKED_THROUGH = 4000

_HEADER = re.compile(r"\A(?:#{1,6}\s.*|\*\*[^*]+\*\*:?)\Z")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much an answer may hold: `summaries` below the one asked for, `messages`, and `excerpt` in characters."""

    summaries: int = DEFAULT_SUMMARIES
    messages: int = DEFAULT_MESSAGES
    excerpt: int = DEFAULT_EXCERPT


@dataclass(frozen=True, slots=True)
class LineageMessage:
    """One message. `made_by`: its text was not captured but made for a tool call, and by whom."""

    id: UUID
    created_at: datetime
    agent: str
    role: str
    tool_name: str | None
    excerpt: str
    made_by: str | None


@dataclass(slots=True)
class LineageSummary:
    """One summary, with what stands below it when that was asked for, oldest first.

    `sources` counts all that stands directly below it; `children` or `messages` hold as many as the budget allows.
    """

    id: UUID
    kind: Literal["leaf", "branch", "root"]
    earliest_at: datetime
    latest_at: datetime
    message_count: int
    model: str
    pipeline_version: int
    grounding: float | None
    excerpt: str
    sources: int
    children: list[LineageSummary] = field(default_factory=list)
    messages: list[LineageMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where one summary or message stands.

    `above` are the summaries over it, the root first. Exactly one of `summary` and `message` is there. `omitted_*`
    count what the budget left out. `note` says what a person may wonder about.
    """

    conversation_id: UUID
    session_key: str
    title: str | None
    above: list[LineageSummary]
    summary: LineageSummary | None
    message: LineageMessage | None
    omitted_summaries: int = 0
    omitted_messages: int = 0
    note: str | None = None


def read_lineage(connection: Connection, wanted: UUID, budget: Budget | None = None) -> Lineage | None:
    """The lineage of a summary or of a message; None when nothing has this id. One snapshot of the store."""
    limits = budget or Budget()
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return _of_summary(connection, wanted, limits) or _of_message(connection, wanted, limits)


def newest_summaries(connection: Connection, kind: str, days: Sequence[date]) -> dict[date, UUID]:
    """The summary of a level that was written last, of the conversations of each of those days that has one."""
    rows = connection.execute(
        """
        SELECT DISTINCT ON (c.day) c.day, s.id
        FROM ros_conversations AS c JOIN ros_summaries AS s ON s.conversation_id = c.id AND s.kind = %(kind)s
        WHERE c.day = ANY(%(days)s)
        ORDER BY c.day, coalesce((s.metadata ->> 'redone_at')::timestamptz, s.created_at) DESC, s.seq DESC
        """,
        {"kind": kind, "days": list(days)},
    ).fetchall()
    return {row["day"]: row["id"] for row in rows}


def read_summaries_between(
    connection: Connection, conversation: UUID, *, since: datetime | None, until: datetime | None, whole: int
) -> list[tuple[UUID | None, int, LineageSummary]]:
    """The summaries of a conversation with their parents and how many it has, the top level first, each oldest first.

    When it has more than `whole`, only those leaves that overlap the period.
    """
    rows = connection.execute(
        statement("tree"),
        {"conversation": conversation, "since": since, "until": until, "whole": whole, "length": _LOOKED_THROUGH},
    ).fetchall()
    return [(row.pop("parent_id"), row.pop("total"), _summary(row, Budget())) for row in rows]


def _of_summary(connection: Connection, wanted: UUID, budget: Budget) -> Lineage | None:
    chain = _summaries_above(connection, wanted, budget)
    if not chain:
        return None
    summary, below = chain[-1], _summaries_below(connection, wanted, budget)
    nodes = {summary.id: summary}
    for parent, child in below[: budget.summaries]:
        nodes[child.id] = child
        nodes[parent].children.append(child)
    leaves = [node.id for node in nodes.values() if node.kind == "leaf"]
    messages = _messages_below(connection, leaves, budget)
    for leaf, message in messages:
        nodes[leaf].messages.append(message)
    return Lineage(
        **_conversation(connection, "ros_summaries", wanted),
        above=chain[:-1],
        summary=summary,
        message=None,
        omitted_summaries=_count_below(connection, wanted) - (len(nodes) - 1),
        omitted_messages=max(0, summary.message_count - len(messages)),
    )


def _of_message(connection: Connection, wanted: UUID, budget: Budget) -> Lineage | None:
    row = connection.execute(f"SELECT {_MESSAGE}, m.conversation_id FROM ros_messages AS m WHERE m.id = %s", [wanted])  # noqa: S608
    found = row.fetchone()
    if found is None:
        return None
    leaf = connection.execute("SELECT summary_id FROM ros_summary_sources WHERE message_id = %s", [wanted]).fetchone()
    return Lineage(
        **_conversation(connection, "ros_messages", wanted),
        above=[] if leaf is None else _summaries_above(connection, leaf["summary_id"], budget),
        summary=None,
        message=_message(found, budget),
        note="no summary holds this message yet, or it is of a kind that is not summarised" if leaf is None else None,
    )


def _conversation(
    connection: Connection, table: Literal["ros_summaries", "ros_messages"], owner: UUID
) -> dict[str, Any]:
    row = connection.execute(
        f"""SELECT c.id AS conversation_id, c.session_key, c.title
            FROM {table} AS o JOIN ros_conversations AS c ON c.id = o.conversation_id WHERE o.id = %s""",  # noqa: S608
        [owner],
    ).fetchone()
    assert row is not None  # of the same snapshot
    return row


def _summaries_above(connection: Connection, wanted: UUID, budget: Budget) -> list[LineageSummary]:
    """The summary and those above it, the topmost first."""
    rows = connection.execute(statement("lineage_above"), {"id": wanted, "length": _LOOKED_THROUGH}).fetchall()
    return [_summary(row, budget) for row in rows]


def _summaries_below(connection: Connection, wanted: UUID, budget: Budget) -> list[tuple[UUID, LineageSummary]]:
    """The summaries below one, level by level and each level oldest first, with their parents."""
    rows = connection.execute(
        statement("lineage_below"), {"id": wanted, "length": _LOOKED_THROUGH, "limit": budget.summaries}
    ).fetchall()
    return [(row.pop("parent_id"), _summary(row, budget)) for row in rows]


def _count_below(connection: Connection, wanted: UUID) -> int:
    row = connection.execute(
        """
        WITH RECURSIVE below AS (
            SELECT id FROM ros_summaries WHERE parent_id = %s
            UNION
            SELECT s.id FROM below AS b JOIN ros_summaries AS s ON s.parent_id = b.id
        )
        SELECT count(*) AS n FROM below
        """,
        [wanted],
    ).fetchone()
    assert row is not None
    return int(row["n"])


def _messages_below(
    connection: Connection, leaves: Sequence[UUID], budget: Budget
) -> list[tuple[UUID, LineageMessage]]:
    rows = connection.execute(
        f"""
        SELECT o.summary_id, {_MESSAGE}
        FROM ros_summary_sources AS o
        JOIN ros_messages AS m ON m.id = o.message_id
        JOIN ros_summaries AS s ON s.id = o.summary_id
        WHERE o.summary_id = ANY(%s)
        ORDER BY s.earliest_at, s.seq, o.ordinal
        LIMIT %s
        """,  # noqa: S608 - the columns are of this module
        [list(leaves), budget.messages],
    ).fetchall()
    return [(row.pop("summary_id"), _message(row, budget)) for row in rows]


_MESSAGE = f"""m.id, m.created_at, m.agent, m.role, m.tool_name, left(m.content, {_LOOKED_THROUGH}) AS content,
               left(m.tool_result, {_LOOKED_THROUGH}) AS tool_result, m.metadata ->> 'content_made_by' AS made_by"""


def _message(row: dict[str, Any], budget: Budget) -> LineageMessage:
    said = first_line(row["content"], budget.excerpt)
    if not said:
        answered = first_line(row["tool_result"] or "", budget.excerpt)
        said = first_line(f"[{row['tool_name'] or 'result'}] {answered}", budget.excerpt)
    return LineageMessage(
        row["id"], row["created_at"], row["agent"], row["role"], row["tool_name"], said, row["made_by"]
    )


def _summary(row: dict[str, Any], budget: Budget) -> LineageSummary:
    row["excerpt"] = first_line(without_frame(row.pop("content")), budget.excerpt)
    return LineageSummary(**row)


def first_line(text: str, limit: int) -> str:
    """The first line of a text that says something, cut to `limit` characters; a header goes with the next line."""
    lines = [line for raw in text.splitlines() if re.search(r"\w", line := " ".join(raw.split()))]
    if not lines:
        return ""
    line = " ".join(lines[:2]) if _HEADER.match(lines[0]) else lines[0]
    return shorten(line, limit)
