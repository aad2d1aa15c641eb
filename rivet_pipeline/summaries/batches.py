"""Which messages and summaries are summarised next: the rules as pure functions, and the reads behind them.

The sizes and waits are those of `ros_batch_rules()`, the same that the pending views use. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.summaries.types import ConversationInfo, Kind, SourceMessage, SourceSummary, SummaryRequest

_HERE = Path(__file__).parent

#: The level below a parent.
CHILD_KIND: dict[Literal["branch", "root"], Kind] = {"branch": "leaf", "root": "branch"}


@dataclass(frozen=True, slots=True)
class BatchRules:
    """`ros_batch_rules()`: how many rows make a batch, and from how few on when the conversation rests."""

    leaf_batch: int
    leaf_min: int
    leaf_idle: timedelta
    leaf_stale_min: int
    leaf_stale: timedelta
    branch_batch: int
    branch_min: int
    root_batch: int
    root_min: int


@dataclass(frozen=True, slots=True)
class Due:
    """A conversation with a batch that is due. `revision` was read with the selection."""

    conversation_id: UUID
    day: date
    revision: int


@dataclass(frozen=True, slots=True)
class State:
    """A conversation at one moment: who it is and how long it has rested (never negative).

    One that is over has rested for `leaf_idle` at least, however lately it ended.
    """

    info: ConversationInfo
    rest: timedelta


def leaf_size(waiting: int, rest: timedelta, rules: BatchRules) -> int:
    """How many of the oldest waiting messages make a leaf now; 0 when none is due."""
    if waiting >= rules.leaf_batch:
        return rules.leaf_batch
    if waiting >= rules.leaf_min and rest >= rules.leaf_idle:
        return waiting
    if waiting >= rules.leaf_stale_min and rest >= rules.leaf_stale:
        return waiting
    return 0


def parent_size(kind: Literal["branch", "root"], waiting: int, rest: timedelta, rules: BatchRules) -> int:
    """How many of the oldest parentless children make a parent now; 0 when none is due."""
    batch, least = (rules.branch_batch, rules.branch_min) if kind == "branch" else (rules.root_batch, rules.root_min)
    if waiting >= batch:
        return batch
    return waiting if waiting >= least and rest >= rules.leaf_idle else 0


def read_rules(connection: Connection) -> BatchRules:
    """The store's own rules."""
    row = connection.execute("SELECT * FROM ros_batch_rules()").fetchone()
    assert row is not None
    return BatchRules(**row)


def read_trust_floor(connection: Connection) -> float:
    """From which grounding on the store trusts a summary (`ros_trust_floor()`)."""
    row = connection.execute("SELECT ros_trust_floor() AS floor").fetchone()
    assert row is not None
    return float(row["floor"])


def due_conversations(connection: Connection, kind: Kind, days: Sequence[date] | None) -> list[Due]:
    """The conversations of those days (None: all) with a due batch, those that have not failed yet first."""
    view = "ros_pending_leaf_summaries" if kind == "leaf" else "ros_pending_parent_summaries"
    wanted = "true" if kind == "leaf" else "p.parent_kind = %(kind)s"
    rows = connection.execute(
        f"""
        SELECT p.conversation_id, p.day, c.revision
        FROM {view} AS p
        JOIN ros_conversations AS c ON c.id = p.conversation_id
        LEFT JOIN ros_failures AS f ON f.stage = %(stage)s AND f.item = p.conversation_id::text
        WHERE {wanted} AND (%(days)s::date[] IS NULL OR p.day = ANY(%(days)s::date[]))
        ORDER BY coalesce(f.attempts, 0), p.day, c.created_at, p.conversation_id
        """,  # noqa: S608 - both names are of this module
        {"kind": kind, "stage": f"{kind}_summaries", "days": list(days) if days is not None else None},
    ).fetchall()
    return [Due(**row) for row in rows]


def read_state(connection: Connection, conversation_id: UUID) -> State:
    """The conversation and its rest, by the database's clock."""
    row = connection.execute(
        """
        SELECT id, agent, channel, channel_id, title,
               greatest(now() - updated_at, CASE WHEN active THEN interval '0' ELSE r.leaf_idle END) AS rest
        FROM ros_conversations CROSS JOIN ros_batch_rules() AS r WHERE id = %s
        """,
        [conversation_id],
    ).fetchone()
    assert row is not None
    rest = row.pop("rest")
    return State(info=ConversationInfo(**row), rest=rest)


def next_leaf(connection: Connection, state: State, rules: BatchRules) -> SummaryRequest | None:
    """The oldest due messages without a leaf, in total order; None when nothing is due."""
    rows = connection.execute(
        (_HERE / "select_waiting_messages.sql").read_text(encoding="utf-8"),
        {"conversation": state.info.id, "limit": rules.leaf_batch},
    ).fetchall()
    size = leaf_size(len(rows), state.rest, rules)
    if size == 0:
        return None
    return SummaryRequest(kind="leaf", conversation=state.info, messages=tuple(map(_message, rows[:size])))


def next_parent(
    connection: Connection, kind: Literal["branch", "root"], state: State, rules: BatchRules
) -> SummaryRequest | None:
    """The oldest due children without a parent that are trusted; None when nothing is due.

    The view is asked first: only it knows whether something is still due below. What was made after that is only more.
    """
    due = connection.execute(
        "SELECT 1 FROM ros_pending_parent_summaries WHERE conversation_id = %s AND parent_kind = %s",
        [state.info.id, kind],
    ).fetchone()
    if due is None:
        return None
    batch = rules.branch_batch if kind == "branch" else rules.root_batch
    rows = connection.execute(
        """
        SELECT id, content, earliest_at, latest_at, message_count, agents, text_hash::text AS text_hash
        FROM ros_summaries AS s
        WHERE conversation_id = %(conversation)s AND kind = %(child)s AND parent_id IS NULL AND ros_is_trusted(s)
        ORDER BY earliest_at, seq
        LIMIT %(limit)s
        """,
        {"conversation": state.info.id, "child": CHILD_KIND[kind], "limit": batch},
    ).fetchall()
    size = parent_size(kind, len(rows), state.rest, rules)
    if size == 0:
        return None
    return SummaryRequest(kind=kind, conversation=state.info, children=tuple(map(_summary, rows[:size])))


def read_request(connection: Connection, summary_id: UUID, kind: Kind, state: State) -> SummaryRequest:
    """What an existing summary is made from today."""
    if kind == "leaf":
        rows = connection.execute(
            """
            SELECT m.id, m.created_at, m.agent, m.role, ros_captured_content(m.content, m.metadata) AS content,
                   m.tool_name, m.tool_args, m.tool_result, m.metadata,
                   ros_captured_hash(m.text_hash, m.tool_result, m.metadata)::text AS text_hash
            FROM ros_summary_sources AS s JOIN ros_messages AS m ON m.id = s.message_id
            WHERE s.summary_id = %s ORDER BY s.ordinal
            """,
            [summary_id],
        ).fetchall()
        return SummaryRequest(kind=kind, conversation=state.info, messages=tuple(map(_message, rows)))
    rows = connection.execute(
        """
        SELECT id, content, earliest_at, latest_at, message_count, agents, text_hash::text AS text_hash
        FROM ros_summaries WHERE parent_id = %s ORDER BY earliest_at, seq
        """,
        [summary_id],
    ).fetchall()
    return SummaryRequest(kind=kind, conversation=state.info, children=tuple(map(_summary, rows)))


def _message(row: dict[str, Any]) -> SourceMessage:
    return SourceMessage(**row)


def _summary(row: dict[str, Any]) -> SourceSummary:
    return SourceSummary(**{**row, "agents": tuple(row["agents"])})
