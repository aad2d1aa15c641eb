"""What the automation asks of the Dagster instance: live and failed runs as ranges of days, and the pool limits."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import dagster as dg

from rivet_pipeline.automation.plan import DayRange, FailedRun

#: One language model call at a time, two embedding stages: the machines behind them are small.
POOL_LIMITS = {"llm": 1, "embedder": 2}

#: The tags with which Dagster names a range of partitions and a single one.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
PARTITION = "dagster/partition"

#: Marks the runs that the automation asked for.
AUTOMATION_TAG = "rivet/automation"

_LIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_FAILED_WITHIN = timedelta(hours=2)


def day_range(tags: dict[str, str]) -> DayRange | None:
    """The days that a run's tags name, or None for a run without partitions."""
    first = tags.get(RANGE_START, tags.get(PARTITION))
    last = tags.get(RANGE_END, tags.get(PARTITION))
    if first is None or last is None:
        return None
    try:
        return DayRange(date.fromisoformat(first), date.fromisoformat(last))
    except ValueError:
        return None


def live_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """The runs that are queued or under way, whoever asked for them."""
    return list(instance.get_runs(dg.RunsFilter(statuses=_LIVE)))


def live_ranges(instance: dg.DagsterInstance) -> list[DayRange]:
    """The days that live runs cover."""
    ranges = (day_range(dict(run.tags)) for run in live_runs(instance))
    return [found for found in ranges if found is not None]


def failed_ranges(instance: dg.DagsterInstance, now: datetime) -> list[FailedRun]:
    """The automation's runs that failed within the last two hours and were not followed by a good one."""
    records = instance.get_run_records(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS],
            tags={AUTOMATION_TAG: "true"},
            updated_after=now - _FAILED_WITHIN,
        ),
        limit=200,
    )
    failed: list[FailedRun] = []
    healed: list[DayRange] = []
    for record in records:
        days = day_range(dict(record.dagster_run.tags))
        if days is None or record.end_time is None:
            continue
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            healed.append(days)
        elif not any(days.first in good and days.last in good for good in healed):
            failed.append(FailedRun(days, datetime.fromtimestamp(record.end_time, UTC)))
    return failed


def ensure_pool_limits(instance: dg.DagsterInstance) -> None:
    """Sets the explicit limits of our pools where they are missing; a limit that a person set stays."""
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    known = {limit.name for limit in storage.get_pool_limits()}
    for name, limit in POOL_LIMITS.items():
        if name not in known:
            storage.set_concurrency_slots(name, limit)
