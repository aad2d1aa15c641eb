"""What the automation asks of the Dagster instance: live and failed runs as ranges of days, and the pool limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from rivet_pipeline.automation.plan import JOB_STAGES, DayRange, FailedRun, LiveRun
from rivet_pipeline.stages import STAGES, Stage

#: One language model call at a time, two embedding stages: the machines behind them are small.
POOL_LIMITS = {"llm": 1, "embedder": 2}

#: The tags with which Dagster names a range of partitions and a single one.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
PARTITION = "dagster/partition"

#: The tag that orders the run queue: higher numbers go first, no tag is 0.
PRIORITY = "dagster/priority"

#: Marks the runs over days that the automation asked for, those of the lexicon and those of the wiki as a whole.
AUTOMATION_TAG = "rivet/automation"
LEXICON_TAG = "rivet/lexicon"
WIKI_TAG = "rivet/wiki"

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


def stages_of(run: dg.DagsterRun) -> frozenset[Stage]:
    """The stages of a run over days; all of them when it does not say."""
    if not run.asset_selection:
        return frozenset(JOB_STAGES.get(run.job_name, STAGES))
    names = {key.to_user_string() for key in run.asset_selection}
    return frozenset(stage for stage in STAGES if stage in names)


def live_over_days(instance: dg.DagsterInstance) -> list[LiveRun]:
    """The live runs over days: which days, and which stages."""
    return [
        LiveRun(days, stages_of(run), queued=run.status == dg.DagsterRunStatus.QUEUED)
        for run in live_runs(instance)
        if (days := day_range(dict(run.tags))) is not None
    ]


def failed_ranges(instance: dg.DagsterInstance, now: datetime) -> list[FailedRun]:
    """The automation's runs that failed within the last two hours and were not followed by a good one.

    A good run heals its own stages only: a run of other stages over the same days says nothing of them.
    """
    failed: list[FailedRun] = []
    healed: list[LiveRun] = []
    for record in _ended(instance, AUTOMATION_TAG, now):
        days = day_range(dict(record.dagster_run.tags))
        if days is None or record.end_time is None:
            continue
        stages = stages_of(record.dagster_run)
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            healed.append(LiveRun(days, stages))
            continue
        left = stages.difference(
            *(good.stages for good in healed if days.first in good.days and days.last in good.days)
        )
        if left:
            failed.append(FailedRun(days, datetime.fromtimestamp(record.end_time, UTC), left))
    return failed


def tagged_failures(instance: dg.DagsterInstance, tag: str, now: datetime) -> list[datetime]:
    """When the runs with a tag failed within the last two hours, since the last good one."""
    ends: list[datetime] = []
    for record in _ended(instance, tag, now):
        if record.dagster_run.status == dg.DagsterRunStatus.SUCCESS:
            break
        if record.end_time is not None:
            ends.append(datetime.fromtimestamp(record.end_time, UTC))
    return ends


def _ended(instance: dg.DagsterInstance, tag: str, now: datetime) -> Sequence[dg.RunRecord]:
    """The runs with a tag that failed or succeeded lately, the newest first."""
    return instance.get_run_records(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS],
            tags={tag: "true"},
            updated_after=now - _FAILED_WITHIN,
        ),
        limit=200,
    )


def end_leftover_runs(instance: dg.DagsterInstance) -> list[str]:
    """Ends the runs whose processes a former start took with it, and gives their pool slots back; returns their ids.

    Only for a moment at which no run's process can be alive. Dagster itself does not notice that a process was killed
    together with the server that started it: such a run stays started for ever, and its days are left to it. Queued
    runs stay, they have no process yet.
    """
    ended = []
    for run in live_runs(instance):
        if run.status == dg.DagsterRunStatus.QUEUED:
            continue
        # Canceled, not failed: the work may be asked for again at once.
        instance.report_run_canceled(run, "The process of this run ended with the programs that had started it.")
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        ended.append(run.run_id)
    return ended


def ensure_pool_limits(instance: dg.DagsterInstance) -> None:
    """Sets the explicit limits of our pools where they are missing; a limit that a person set stays."""
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    known = {limit.name for limit in storage.get_pool_limits()}
    for name, limit in POOL_LIMITS.items():
        if name not in known:
            storage.set_concurrency_slots(name, limit)
