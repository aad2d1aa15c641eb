"""The days: one partitions definition and one backfill policy for every partitioned asset.

A partition is one UTC day, that on which a conversation began. Nothing else about automation belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import dagster as dg

from rivet_pipeline.settings import get_settings

#: `end_offset=1` makes today's partition exist while the day lasts.
conversation_days = dg.DailyPartitionsDefinition(start_date=get_settings().first_day.isoformat(), end_offset=1)

#: A month a run: a run costs seconds, a partition inside it milliseconds. One policy for all, because Dagster applies a
#: job's policy only when its assets share it.
MAX_DAYS_PER_RUN = 31
backfill_policy = dg.BackfillPolicy.multi_run(max_partitions_per_run=MAX_DAYS_PER_RUN)


def days_of(partition_keys: Sequence[str]) -> list[date]:
    """The days that partition keys name, in order."""
    return sorted(date.fromisoformat(key) for key in partition_keys)
