"""Trims Dagster's event log, which nothing else ever shortens (dagster issue 33785).

The rules follow the database-tuning page of Dagster's documentation: log lines go after a week, engine and planning
events after a month; materializations, observations, check results and run events stay.
"""

from __future__ import annotations

from rivet_pipeline.db.pool import connect

_ENGINE_EVENTS = [
    "ASSET_MATERIALIZATION_PLANNED",
    "ENGINE_EVENT",
    "HANDLED_OUTPUT",
    "LOADED_INPUT",
    "LOGS_CAPTURED",
    "RESOURCE_INIT_STARTED",
    "RESOURCE_INIT_SUCCESS",
    "STEP_INPUT",
    "STEP_OUTPUT",
    "STEP_WORKER_STARTED",
    "STEP_WORKER_STARTING",
]


def trim_event_log(url: str) -> int:
    """Deletes old entries from the Dagster database at `url` (libpq or SQLAlchemy spelling); returns how many."""
    with connect(url.replace("postgresql+psycopg2://", "postgresql://", 1), application_name="rivet-housekeeping") as c:
        lines = c.execute(
            "DELETE FROM event_logs WHERE dagster_event_type IS NULL AND timestamp < now() - interval '7 days'"
        )
        events = c.execute(
            """
            DELETE FROM event_logs
            WHERE dagster_event_type = ANY(%s) AND timestamp < now() - interval '30 days'
            """,
            [_ENGINE_EVENTS],
        )
        deleted = lines.rowcount + events.rowcount
        if deleted:
            c.execute("VACUUM (ANALYZE) event_logs")
        return deleted
