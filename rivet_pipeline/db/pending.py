"""Reads the pending views: which days have work, for sensors, the progress display, stats and health alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import cast

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import Stage


@dataclass(frozen=True, slots=True)
class PendingDay:
    """Work of one stage on one UTC day. `timed`: only the passing of time made it due (an idle conversation)."""

    stage: Stage
    day: date
    items: int
    timed: bool


def pending_days(connection: Connection) -> list[PendingDay]:
    """All days with work, by stage and day. Items are messages, summaries or conversations, as the stage counts."""
    rows = connection.execute(
        "SELECT stage, day, timed, items FROM ros_pending_days ORDER BY stage, day, timed"
    ).fetchall()
    return [PendingDay(cast(Stage, row["stage"]), row["day"], row["items"], row["timed"]) for row in rows]
