"""Reads and keeps what makes a summary stale: the versions in use, the changed texts, the wishes of a person.

The one definition is the view `ros_stale_summaries`; nothing here decides anew what is stale, and nothing is made again
here (see `summaries/compact.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import cast
from uuid import UUID

from rivet_pipeline.db.ledger import try_changed_stage_again
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import Stage


@dataclass(frozen=True, slots=True)
class StaleDay:
    """Stale rows of one stage on one UTC day. `ready`: those that wait for no failure's time to come."""

    stage: Stage
    day: date
    items: int
    ready: int


def announce_refinement(connection: Connection, stage: Stage, *, model: str, version: int) -> bool:
    """Says with which model and version a stage makes its rows from now on; others are stale. True when that is new.

    Cheap when it is not. What another model or version could not do is tried again by this one.
    """
    row = connection.execute("SELECT model, version FROM ros_refinement_versions WHERE stage = %s", [stage]).fetchone()
    if row == {"model": model, "version": version}:
        return False
    with connection.transaction():
        connection.execute(
            """
            INSERT INTO ros_refinement_versions (stage, model, version) VALUES (%s, %s, %s)
            ON CONFLICT (stage) DO UPDATE SET model = excluded.model, version = excluded.version, changed_at = now()
            """,
            [stage, model, version],
        )
        if row is not None:
            try_changed_stage_again(connection, stage)
    return True


def stale_days(connection: Connection) -> list[StaleDay]:
    """All days with stale rows, the oldest first."""
    rows = connection.execute("SELECT stage, day, items, ready FROM ros_stale_days ORDER BY day, stage").fetchall()
    return [StaleDay(cast(Stage, row["stage"]), row["day"], row["items"], row["ready"]) for row in rows]


def stale_conversations(connection: Connection, stages: Sequence[Stage], days: Sequence[date] | None) -> set[UUID]:
    """The conversations of some UTC days (None: all) with stale rows of some stages that wait for no failure's time."""
    rows = connection.execute(
        """
        SELECT DISTINCT conversation_id AS id FROM ros_stale_summaries
        WHERE stage = ANY(%(stages)s) AND (%(days)s::date[] IS NULL OR day = ANY(%(days)s::date[])) AND NOT waits
        """,
        {"stages": list(stages), "days": None if days is None else list(days)},
    ).fetchall()
    return {row["id"] for row in rows}


def stale_rows_on(connection: Connection, stage: Stage, days: Sequence[date]) -> dict[date, int]:
    """How many rows of a stage are stale on some days. Days without any do not appear."""
    rows = connection.execute(
        "SELECT day, items FROM ros_stale_days WHERE stage = %s AND day = ANY(%s)", [stage, list(days)]
    ).fetchall()
    return {row["day"]: row["items"] for row in rows}


def request_remine(
    connection: Connection,
    *,
    kinds: Sequence[str],
    days: Sequence[date] | None = None,
    since: date | None = None,
    before: date | None = None,
) -> int:
    """Makes all summaries of some kinds stale although nothing has changed. Returns how many were not so wanted yet.

    Each wish stands until its summary was made again, whoever does that; what the summary failed of before is
    forgotten. Those of noise sessions, and those that have lost their sources, are left alone.

    Args:
        connection: The store.
        kinds: leaf, branch, root.
        days: Only conversations that began on these UTC days.
        since: Only those that began on this UTC day or later.
        before: Only those that began before this UTC day.
    """
    asked = {"kinds": list(kinds), "days": None if days is None else list(days), "since": since, "before": before}
    with connection.transaction():
        wanted = connection.execute(
            """
            INSERT INTO ros_remine_requests (summary_id)
            SELECT s.id FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
            WHERE s.kind = ANY(%(kinds)s)
              AND (%(days)s::date[] IS NULL OR c.day = ANY(%(days)s::date[]))
              AND c.day >= coalesce(%(since)s::date, '-infinity') AND c.day < coalesce(%(before)s::date, 'infinity')
              AND NOT ros_is_noise(c.session_key, c.settings)
              AND (EXISTS (SELECT 1 FROM ros_summary_sources AS x WHERE x.summary_id = s.id)
                   OR EXISTS (SELECT 1 FROM ros_summaries AS k WHERE k.parent_id = s.id))
            -- Always in the same order, so that two who ask at once can not wait for each other for ever.
            ORDER BY s.id
            ON CONFLICT (summary_id) DO NOTHING
            """,
            asked,
        ).rowcount
        connection.execute(
            """
            DELETE FROM ros_failures AS f USING ros_summaries AS s, ros_remine_requests AS q
            WHERE q.summary_id = s.id AND s.kind = ANY(%(kinds)s)
              AND f.stage = s.kind || '_summaries' AND f.item = s.id::text
            """,
            asked,
        )
    return wanted


def forget_outdated_failures(connection: Connection, stage: Stage) -> int:
    """Forgets what items of a summary stage failed of when a text below them has changed since. Returns how many."""
    return connection.execute(
        """
        DELETE FROM ros_failures WHERE (stage, item) IN (
            SELECT f.stage, f.item
            FROM ros_failures AS f
            WHERE f.stage = %s AND f.cause = 'content' AND EXISTS (
                SELECT 1 FROM ros_changed_texts AS t
                LEFT JOIN ros_messages AS m ON t.kind = 'message' AND m.id = t.id
                LEFT JOIN ros_summary_sources AS x ON t.kind = 'message' AND x.message_id = t.id
                LEFT JOIN ros_summaries AS k ON t.kind = 'summary' AND k.id = t.id
                WHERE t.changed_at > f.last_failed_at
                  AND f.item IN (
                      m.conversation_id::text, x.summary_id::text, k.conversation_id::text, k.parent_id::text))
            FOR UPDATE OF f SKIP LOCKED)
        """,
        [stage],
    ).rowcount


def forget_settled_changes(connection: Connection) -> int:
    """Forgets the changed texts whose summaries hold them as they are now. Returns how many."""
    settled = connection.execute(
        """
        SELECT t.kind, t.id, t.change FROM ros_changed_texts AS t
        LEFT JOIN ros_summary_sources AS x ON t.kind = 'message' AND x.message_id = t.id
        LEFT JOIN ros_summaries AS k ON t.kind = 'summary' AND k.id = t.id
        JOIN ros_summaries_over_changes AS o ON o.id = coalesce(x.summary_id, k.parent_id)
        WHERE o.current
        """
    ).fetchall()
    if not settled:
        return 0
    # A text that has changed once more since it was looked at has another count and stays. Rows that a capture holds
    # are left for the next time: it must not wait for us while we wait for it.
    return connection.execute(
        """
        DELETE FROM ros_changed_texts WHERE (kind, id) IN (
            SELECT t.kind, t.id FROM ros_changed_texts AS t
            JOIN unnest(%s::text[], %s::uuid[], %s::bigint[]) AS seen (kind, id, change)
              ON seen.kind = t.kind AND seen.id = t.id AND seen.change = t.change
            FOR UPDATE OF t SKIP LOCKED)
        """,
        [[row[name] for row in settled] for name in ("kind", "id", "change")],
    ).rowcount
