"""Days with activity and how far each day's refinement is; the quality of summaries over time. Read only.

A day is a partition: the UTC day on which a conversation began. What is pending is read from the pending views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from rivet_pipeline.db.ledger import SERVICE
from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import SUMMARY_STAGES

#: What of a day's refinement a reader is shown; `messages` itself is only counted.
_SHOWN_FAILURES = 20

#: What is in no leaf and not pending: it waits for more messages, for silence, or for a model service that is down.
_WAITS = "(due IS NULL OR ros_is_blocked('leaf_summaries', 'service'))"


@dataclass(slots=True)
class StageState:
    """One stage on one day: items that are due, that wait for time to pass, and that fail.

    Items are messages, summaries or conversations, as the stage counts; `at_most`: the due ones may be fewer.
    """

    pending: int = 0
    waiting: int = 0
    failing: int = 0
    at_most: bool = False

    @property
    def state(self) -> str:
        """failing, pending, waiting or done: the worst that is true."""
        if self.failing:
            return "failing"
        if self.pending:
            return "pending"
        return "waiting" if self.waiting else "done"


@dataclass(slots=True)
class TimelineDay:
    """What began on a day: conversations and messages by agent, noise left out, and the stages not done."""

    day: date
    conversations: int = 0
    messages: int = 0
    agents: dict[str, int] = field(default_factory=dict)
    stages: dict[str, StageState] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The worst state of any stage, done when there is none."""
        found = {stage.state for stage in self.stages.values()}
        return next((state for state in ("failing", "pending", "waiting") if state in found), "done")


@dataclass(frozen=True, slots=True)
class QualityPoint:
    """The average grounding and coverage (0 to 1, None: no summary has it) of the leaves of a week's conversations.

    `week` is its Monday.
    """

    week: date
    leaves: int
    grounding: float | None
    coverage: float | None


def active_days(connection: Connection, first: date, last: date, *, agent: str | None = None) -> dict[date, int]:
    """How many conversations began on each day from `first` to `last`, noise left out. Days without any are absent."""
    rows = connection.execute(
        """
        SELECT day, count(*) AS n FROM ros_conversations
        WHERE day BETWEEN %(first)s AND %(last)s AND NOT ros_is_noise(session_key, settings)
          AND (%(agent)s::text IS NULL OR agent = %(agent)s::text)
        GROUP BY day
        """,
        {"first": first, "last": last, "agent": agent},
        prepare=False,
    ).fetchall()
    return {row["day"]: row["n"] for row in rows}


def last_active_day(connection: Connection) -> date | None:
    """The latest day on which a conversation began; None in an empty store."""
    row = connection.execute("SELECT max(day) AS day FROM ros_conversations").fetchone()
    return None if row is None else row["day"]


def read_days(connection: Connection, first: date, last: date, *, agent: str | None = None) -> list[TimelineDay]:
    """The days from `first` to `last` with activity, the latest first. `agent` narrows the counts, not the stages."""
    days: dict[date, TimelineDay] = {}
    rows = connection.execute(
        """
        SELECT c.day, c.agent, count(*) AS conversations, sum(m.n)::bigint AS messages
        FROM ros_conversations AS c
        CROSS JOIN LATERAL (SELECT count(*) AS n FROM ros_messages WHERE conversation_id = c.id) AS m
        WHERE c.day BETWEEN %(first)s AND %(last)s AND NOT ros_is_noise(c.session_key, c.settings)
          AND (%(agent)s::text IS NULL OR c.agent = %(agent)s::text)
        GROUP BY c.day, c.agent ORDER BY c.day DESC, messages DESC, c.agent
        """,
        {"first": first, "last": last, "agent": agent},
        prepare=False,
    ).fetchall()
    for row in rows:
        day = days.setdefault(row["day"], TimelineDay(row["day"]))
        day.conversations += row["conversations"]
        day.messages += row["messages"]
        day.agents[row["agent"]] = row["messages"]
    _add_stages(connection, days)
    return list(days.values())


def _add_stages(connection: Connection, days: dict[date, TimelineDay]) -> None:
    for item in pending_days(connection):
        if item.day in days:
            state = _stage(days[item.day], item.stage)
            state.pending += item.items
            state.at_most |= item.at_most
    asked = [list(days)]
    for row in connection.execute(
        "SELECT stage, day, count(*) AS n FROM ros_failures WHERE day = ANY(%s) GROUP BY stage, day", asked
    ).fetchall():
        _stage(days[row["day"]], row["stage"]).failing += row["n"]
    for row in connection.execute(
        f"SELECT day, sum(waiting)::bigint AS n FROM ros_unsummarised WHERE {_WAITS} AND day = ANY(%s) GROUP BY day",  # noqa: S608
        asked,
    ).fetchall():
        _stage(days[row["day"]], "leaf_summaries").waiting += row["n"]


def _stage(day: TimelineDay, stage: str) -> StageState:
    return day.stages.setdefault(stage, StageState())


def read_left(connection: Connection, stage: str, days: Sequence[date]) -> dict[date, StageState]:
    """What is left of some days for one stage. Days of which nothing is left are absent."""
    rows = connection.execute(
        f"""
        SELECT day, sum(pending)::bigint AS pending, sum(waiting)::bigint AS waiting, sum(failing)::bigint AS failing
        FROM (
            SELECT day, items AS pending, 0 AS waiting, 0 AS failing FROM ros_pending_days WHERE stage = %(stage)s
            UNION ALL
            SELECT day, 0, waiting, 0 FROM ros_unsummarised WHERE {_WAITS} AND %(stage)s = 'leaf_summaries'
            UNION ALL
            SELECT day, 0, 0, count(*) FROM ros_failures WHERE stage = %(stage)s GROUP BY day
        ) AS items WHERE day = ANY(%(days)s) GROUP BY day
        """,  # noqa: S608 - a condition of this module
        {"stage": stage, "days": list(days)},
        prepare=False,
    ).fetchall()
    return {row.pop("day"): StageState(**row) for row in rows}


def resting_service(connection: Connection, stage: str) -> dict[str, Any] | None:
    """Why a stage rests as a whole: its model service's cause, attempts, error, next_attempt_at. None: it does not.

    Meanwhile nothing of the stage counts as pending. The levels of the summary tree share one service.
    """
    stages = list(SUMMARY_STAGES) if stage in SUMMARY_STAGES else [stage]
    return connection.execute(
        """
        SELECT cause, attempts, left(error, 300) AS error, next_attempt_at FROM ros_failures
        WHERE item = %s AND stage = ANY(%s) AND next_attempt_at > now() ORDER BY next_attempt_at DESC LIMIT 1
        """,
        [SERVICE, stages],
    ).fetchone()


def failures_of(
    connection: Connection, days: Sequence[date], *, stage: str | None = None, limit: int = _SHOWN_FAILURES
) -> list[dict[str, Any]]:
    """What fails on some days, latest first; of one stage, if it is named.

    Each has stage, day, item, cause, attempts, error, last_failed_at and next_attempt_at (None: given up).
    """
    return connection.execute(
        """
        SELECT stage, day, item, cause, attempts, left(error, 300) AS error, last_failed_at, next_attempt_at
        FROM ros_failures WHERE day = ANY(%(days)s) AND (%(stage)s::text IS NULL OR stage = %(stage)s::text)
        ORDER BY last_failed_at DESC, stage, item LIMIT %(limit)s
        """,
        {"days": list(days), "stage": stage, "limit": limit},
    ).fetchall()


def summary_quality_by_week(connection: Connection, *, weeks: int = 26) -> list[QualityPoint]:
    """Grounding and coverage of leaves by the week in which their conversations began: the latest weeks with any."""
    rows = connection.execute(
        """
        SELECT * FROM (
            SELECT date_trunc('week', s.day)::date AS week, count(*) AS leaves, avg(s.grounding) AS grounding,
                   avg(s.coverage) AS coverage
            FROM ros_summaries AS s WHERE s.kind = 'leaf' AND s.day IS NOT NULL
            GROUP BY 1 ORDER BY 1 DESC LIMIT %s
        ) AS latest ORDER BY week
        """,
        [weeks],
    ).fetchall()
    return [QualityPoint(**row) for row in rows]


def announced_models(connection: Connection) -> list[tuple[str, str, int, datetime]]:
    """With what each summary stage makes its rows now: stage, model, version, and since when."""
    rows = connection.execute(
        "SELECT stage, model, version, changed_at FROM ros_refinement_versions ORDER BY stage"
    ).fetchall()
    return [(row["stage"], row["model"], row["version"], row["changed_at"]) for row in rows]
