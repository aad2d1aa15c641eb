"""The sensor that turns pending rows into runs. Thin wiring around `plan.py`.

No cursor and no run key: the rows say what is left, so nothing is lost when a tick, a run or the daemon dies.
See https://docs.dagster.io/guides/automate/sensors
"""

from datetime import UTC, datetime

import dagster as dg

from rivet_pipeline.assets.checks import live_check_keys
from rivet_pipeline.assets.partitions import MAX_DAYS_PER_RUN
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.automation.instance import (
    AUTOMATION_TAG,
    LEXICON_TAG,
    RANGE_END,
    RANGE_START,
    ensure_pool_limits,
    failed_ranges,
    lexicon_failures,
    live_ranges,
    live_runs,
)
from rivet_pipeline.automation.plan import PlannedRun, must_wait, plan_runs
from rivet_pipeline.db.pending import PendingDay, pending_days
from rivet_pipeline.db.pool import connect
from rivet_pipeline.embedding.embed import announce_model
from rivet_pipeline.retrieval.lexicon import is_due
from rivet_pipeline.stages import STAGES

#: Ranges asked for in one tick: enough to keep the run queue busy, few enough to start with the oldest.
MAX_RUNS_PER_TICK = 4

_CHAIN = dg.AssetSelection.assets(*STAGES)
_LEXICON = dg.AssetKey("lexicon")


def run_request(run: PlannedRun, *, reason: str) -> dg.RunRequest:
    """One run of the planned stages over the planned days."""
    return dg.RunRequest(
        asset_selection=[dg.AssetKey(stage) for stage in run.stages],
        asset_check_keys=live_check_keys(run.stages),
        tags={
            RANGE_START: run.days.first.isoformat(),
            RANGE_END: run.days.last.isoformat(),
            AUTOMATION_TAG: "true",
            "rivet/reason": reason,
        },
    )


def requests_for(
    instance: dg.DagsterInstance, pending: list[PendingDay], *, reason: str, now: datetime
) -> list[dg.RunRequest]:
    """The run requests that cover the pending days and that no live run covers already."""
    planned = plan_runs(
        [(item.stage, item.day) for item in pending],
        live=live_ranges(instance),
        failed=failed_ranges(instance, now),
        now=now,
        max_days=MAX_DAYS_PER_RUN,
        max_runs=MAX_RUNS_PER_TICK,
    )
    return [run_request(run, reason=reason) for run in planned]


@dg.sensor(
    target=_CHAIN | dg.AssetSelection.assets(_LEXICON),
    minimum_interval_seconds=1,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Asks Postgres which days have work and requests one run of the whole chain for each range of days.",
)
def pending_work(
    context: dg.SensorEvaluationContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.SensorResult | dg.SkipReason:
    """Requests runs for what became due through new rows or another embedding model."""
    now = datetime.now(UTC)
    ensure_pool_limits(context.instance)
    with connect(store.url, application_name="rivet-sensor") as connection:
        announce_model(connection, models.embedder)
        pending = [item for item in pending_days(connection) if not item.timed]
        lexicon_due = not pending and is_due(connection)
    requests = requests_for(context.instance, pending, reason="new rows", now=now)
    if lexicon_due and _may_ask_for_lexicon(context.instance, now):
        requests.append(dg.RunRequest(asset_selection=[_LEXICON], tags={LEXICON_TAG: "true"}))
    if not requests:
        waits = pending or lexicon_due
        return dg.SkipReason("live or resting runs cover what is pending" if waits else "nothing is pending")
    return dg.SensorResult(run_requests=requests)


def _may_ask_for_lexicon(instance: dg.DagsterInstance, now: datetime) -> bool:
    return not any(LEXICON_TAG in run.tags for run in live_runs(instance)) and not must_wait(
        lexicon_failures(instance, now), now
    )
