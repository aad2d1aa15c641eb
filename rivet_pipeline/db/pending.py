"""Reads the pending views: which days have work, for sensors, the progress display, stats and health alike.

`ros_pending_days` says in one statement what is pending, and counts all of it: in a store that is being filled that
takes as long as there is work left, so it is for one stage on a few days. Here the items of a stage are counted up to a
bound. When there are more, each day is asked only whether it has any, and the amounts are of what the stage has not
seen yet, done or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, LiteralString

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import STAGES, Stage

#: So many messages are looked at to count the items of a stage one by one: some 20 ms.
COUNTED = 2_000

#: And so many where the days alone are wanted.
_FEW = 200


@dataclass(frozen=True, slots=True)
class WorkDay:
    """A UTC day with work of one stage.

    `timed`: only the passing of time made it due (an idle conversation). Where there is much work, a day with both
    kinds is given once, as not timed.
    """

    stage: Stage
    day: date
    timed: bool


@dataclass(frozen=True, slots=True)
class PendingDay:
    """The same with its items: messages, summaries or conversations, as the stage counts.

    `at_most`: they may be fewer, but there is one at least, unless it is not `certain` that there is any: of branches
    and roots that may have to wait for leaves.
    """

    stage: Stage
    day: date
    items: int
    timed: bool
    at_most: bool = False
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """Where work of some stages stands: `rows` has stage, day and timed of each item.

    `most` has by day no fewer items than there are, from what is counted anyway; None: the rows are cheap however many
    there are. `looks`: how many messages it may take to find one item.
    """

    stages: tuple[Stage, ...]
    rows: LiteralString
    most: LiteralString | None = None
    looks: int = 1


_UNSEEN_MESSAGES: LiteralString = """
    SELECT u.day, sum(k.messages)::bigint AS items
    FROM ros_unseen_conversations AS u JOIN ros_message_counts AS k ON k.conversation_id = u.conversation_id
    WHERE u.stage = 'message_embeddings' GROUP BY u.day"""
_UNSEEN_CALLS: LiteralString = """
    SELECT u.day, sum(k.messages)::bigint AS items
    FROM ros_unseen_conversations AS u JOIN ros_message_counts AS k ON k.conversation_id = u.conversation_id
    WHERE u.stage = 'tool_call_text' AND NOT u.noise AND k.tool_name <> '' GROUP BY u.day"""
_UNSEEN_CONVERSATIONS: LiteralString = """
    SELECT day, count(*) AS items FROM ros_unseen_conversations
    WHERE stage = 'leaf_summaries' AND NOT noise GROUP BY day"""

_PARTS = (
    _Part(
        ("messages",),
        "SELECT stage, day, false AS timed FROM ros_unseen_conversations WHERE stage = 'messages'",
    ),
    _Part(
        ("tool_call_text",),
        "SELECT 'tool_call_text' AS stage, day, awaits_result AS timed FROM ros_pending_tool_call_text",
        most=_UNSEEN_CALLS,
    ),
    _Part(
        ("message_embeddings",),
        "SELECT 'message_embeddings' AS stage, day, false AS timed FROM ros_pending_message_embeddings",
        most=_UNSEEN_MESSAGES,
    ),
    _Part(
        ("leaf_summaries",),
        "SELECT 'leaf_summaries' AS stage, day, due <> 'full' AS timed FROM ros_pending_leaf_summaries",
        most=_UNSEEN_CONVERSATIONS,
        looks=10,
    ),
    # With very many leaves due, parents of the same days are not looked for: whoever makes the leaves makes them too.
    _Part(
        ("branch_summaries", "root_summaries"),
        "SELECT parent_kind || '_summaries' AS stage, day, due <> 'full' AS timed FROM ros_pending_parent_summaries "
        "WHERE day <> ALL (%(busy)s::date[])",
    ),
    _Part(
        ("leaf_summaries", "branch_summaries", "root_summaries"),
        "SELECT stage, day, false AS timed FROM ros_pending_changed_summaries",
    ),
    _Part(
        ("tag_proposals",),
        "SELECT 'tag_proposals' AS stage, day, false AS timed FROM ros_pending_tag_proposals",
    ),
    _Part(
        ("summary_embeddings",),
        "SELECT 'summary_embeddings' AS stage, day, false AS timed FROM ros_pending_summary_embeddings",
    ),
    _Part(
        ("wiki_patches",),
        "SELECT 'wiki_patches' AS stage, day, false AS timed FROM ros_pending_wiki_patches",
    ),
)


def first_day(work: Iterable[PendingDay]) -> date | None:
    """The first day that certainly has work; None when none has."""
    return min((item.day for item in work if item.certain), default=None)


def amount(items: int, *, at_most: bool) -> str:
    """So many items, for a person."""
    return f"at most {items:,}" if at_most else f"{items:,}"


def days_with_work(connection: Connection) -> list[WorkDay]:
    """All days with work, by stage and day: exactly these, whatever the amount. What decides which days are worked on.

    Where there is very much, branches and roots are left out on days with leaves to make, which bring them along.
    """
    found: set[WorkDay] = set()
    with connection.transaction():
        _plan_for_this(connection)
        busy: list[date] = []
        for part in _PARTS:
            rows = _count(connection, part, _FEW, busy)
            if rows is None:
                rows = _days(connection, part)
                busy += _busy(part, rows)
            found.update(WorkDay(row["stage"], row["day"], row["timed"]) for row in rows)
    return sorted(found, key=lambda day: (day.stage, day.day, day.timed))


def pending_days(connection: Connection, *, stages: Collection[str] = STAGES) -> list[PendingDay]:
    """The days with work of some stages, by stage and day, and how much; a day may be given in parts.

    Exactly as much as `ros_pending_days` says, while a stage has no more than a bound (`COUNTED`). Beyond it the days
    are exact and the items `at_most`. Branches and roots on days with leaves to make are then `at_most` as many as have
    children enough, whether or not they still wait for these leaves: none may be due.
    """
    found: list[PendingDay] = []
    with connection.transaction():
        _plan_for_this(connection)
        busy: list[date] = []
        for part in _PARTS:
            if set(part.stages).isdisjoint(stages):
                continue
            rows = _count(connection, part, COUNTED, busy)
            at_most = rows is None
            if rows is None:
                most = _most(connection, part)
                rows = [row | {"items": max(1, most[row["day"]])} for row in _days(connection, part)]
                busy += _busy(part, rows)
            found += [PendingDay(row["stage"], row["day"], row["items"], row["timed"], at_most) for row in rows]
        if busy:
            found += _parents_at_most(connection, busy)
    return sorted(
        (day for day in found if day.stage in stages), key=lambda day: (day.stage, day.day, day.timed, day.items)
    )


def _parents_at_most(connection: Connection, busy: list[date]) -> list[PendingDay]:
    rows = connection.execute(
        """
        SELECT w.parent_kind || '_summaries' AS stage, c.day, count(*) AS items
        FROM ros_waiting_children AS w JOIN ros_conversations AS c ON c.id = w.conversation_id
        WHERE c.day = ANY(%s) AND NOT ros_is_noise(c.session_key, c.settings) AND NOT EXISTS (
            SELECT FROM ros_blocked_items AS b
            WHERE b.stage = w.parent_kind || '_summaries' AND b.item IN ('service', w.conversation_id::text))
        GROUP BY w.parent_kind, c.day
        """,
        [busy],
        prepare=False,
    ).fetchall()
    return [PendingDay(**row, timed=False, at_most=True, certain=False) for row in rows]


def _plan_for_this(connection: Connection) -> None:
    """Compiling these queries takes longer than to run them, and so does it to start other processes for them."""
    connection.execute(
        "SELECT set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)"
    )


def _busy(part: _Part, rows: list[dict[str, Any]]) -> list[date]:
    """The days on which a sensor asks for leaves."""
    return [row["day"] for row in rows if not row["timed"]] if part.stages == ("leaf_summaries",) else []


def _count(connection: Connection, part: _Part, looks: int, busy: list[date]) -> list[dict[str, Any]] | None:
    """The items by stage, day and timed; None when it takes more looks to count them."""
    bound = None if part.most is None else looks // part.looks
    rows = connection.execute(
        f"""
        SELECT stage, day, timed, count(*) AS items
        FROM (SELECT stage, day, timed FROM ({part.rows}) AS p LIMIT %(limit)s) AS counted
        GROUP BY stage, day, timed
        """.encode(),  # noqa: S608 - a query of this module
        {"limit": None if bound is None else bound + 1, "busy": busy},
        prepare=False,
    ).fetchall()
    return None if bound is not None and sum(row["items"] for row in rows) > bound else rows


def _days(connection: Connection, part: _Part) -> list[dict[str, Any]]:
    """Stage, day and timed of each day with work, found with its first item. Of stages that mark what they have seen.

    LATERAL with a LIMIT keeps the planner from reading everything to answer it for some days.
    """
    return connection.execute(
        f"""
        SELECT w.stage, d.day, w.timed
        FROM (SELECT DISTINCT day FROM ros_unseen_conversations WHERE stage = %(stage)s OFFSET 0) AS d
        CROSS JOIN LATERAL (
            (SELECT stage, timed FROM ({part.rows}) AS p WHERE day = d.day AND NOT timed LIMIT 1)
            UNION ALL
            (SELECT stage, timed FROM ({part.rows}) AS p WHERE day = d.day AND timed LIMIT 1)
            LIMIT 1
        ) AS w
        """.encode(),  # noqa: S608 - a query of this module
        {"stage": part.stages[0]},
        prepare=False,
    ).fetchall()


def _most(connection: Connection, part: _Part) -> Counter[date]:
    rows = [] if part.most is None else connection.execute(part.most, prepare=False).fetchall()
    return Counter({row["day"]: row["items"] for row in rows})
