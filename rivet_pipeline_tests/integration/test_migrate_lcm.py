"""`migrate-lcm` end to end: both kinds of source into a real store, and what the pipeline does with what was moved."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.migration.lcm import migrate_lcm
from rivet_pipeline.migration.report import MigrationReport
from rivet_pipeline_tests.lcm_store import LcmRows, sample

FIRST_DAY = date(2022, 11, 1)


def move(url: str, source: Path | str, **options: Any) -> MigrationReport:
    return migrate_lcm(url, str(source), first_day=FIRST_DAY, **options)


def test_try(database_url: str, connection: Connection, tmp_path: Path) -> None:
    from rivet_pipeline.cli.migrate_lcm import run_migration
    store = sample()
    path = store.sqlite(tmp_path / "lcm.db")
    for _ in range(2):
        print(run_migration(database_url, str(path), first_day=FIRST_DAY))
    for q in ("select event_id, role, left(content,50) c, tool_name, tool_args, tool_result, metadata, created_at from ros_messages order by seq offset 18", "select kind, parent_id, id, message_count, metadata, earliest_at, latest_at, model, agents from ros_summaries order by seq", "select session_key, agent, title, settings, active, day, updated_at from ros_conversations"):
        for r in connection.execute(q): print(dict(r))
    assert 0
