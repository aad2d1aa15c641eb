"""The sensors that turn pending and stale rows into runs. Thin wiring around `plan.py`.

No cursor and no run key: the rows say what is left, so nothing is lost when a tick, a run or the daemon dies.
See https://docs.dagster.io/guides/automate/sensors
"""

from datetime import UTC, date, datetime

import dagster as dg

from rivet_pipeline.assets.checks import live_check_keys
from rivet_pipeline.assets.partitions import MAX_DAYS_PER_RUN
from rivet_pipeline.assets.reasons import NEW_ROWS, REASON, STALE
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.assets.summaries import branch_summaries, leaf_summaries, root_summaries
from rivet_pipeline.assets.tags import tag_proposals
from rivet_pipeline.assets.tool_calls import tool_call_text
from rivet_pipeline.assets.wiki import wiki_patches
from rivet_pipeline.automation.instance import (
    AUTOMATION_TAG,
    LEXICON_TAG,
    PRIORITY,
    RANGE_END,
    RANGE_START,
    WIKI_TAG,
    ensure_pool_limits,
    failed_ranges,
    live_over_days,
    live_runs,
    tagged_failures,
)
from rivet_pipeline.automation.plan import PlannedRun, must_wait, plan_runs
from rivet_pipeline.db.pending import WorkDay, days_with_work
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.stale import StaleDay, stale_days
from rivet_pipeline.embedding.embed import announce_model
from rivet_pipeline.errors import RivetError
from rivet_pipeline.retrieval.lexicon import is_due
from rivet_pipeline.retrieval.vector_pieces import vector_pieces_due
from rivet_pipeline.stages import STAGES, SUMMARY_STAGES, WHOLE_STAGES
from rivet_pipeline.summaries.compact import announce_summarizer
from rivet_pipeline.tags.propose import announce_tagger
from rivet_pipeline.wiki.extract import announce_miner
from rivet_pipeline.wiki.topics import wiki_is_due

#: Ranges asked for in one tick: enough to keep the run queue busy, few enough to start with the oldest.
MAX_RUNS_PER_TICK = 4

#: Runs that redo stale summaries, queued or under way at any time. They share the `llm` pool with new work, which goes
#: first whenever one of them ends; so none of them redoes more rows than this, unless one day alone has more.
MAX_REMINE_RUNS = 4
MAX_REMINE_ROWS = 200

#: The stages that wait for each other in the pool `llm`. Summaries stand there even when they are made in this process,
#: the others only when a service answers them; the wiki's patches ask that of the summaries.
_MAY_ASK = (tool_call_text, leaf_summaries, tag_proposals, branch_summaries, root_summaries, wiki_patches)
_POOLED_KEYS = {asset.key.to_user_string() for asset in _MAY_ASK if asset.op.pool == "llm"}
POOLED = frozenset(stage for stage in STAGES if stage in _POOLED_KEYS)

#: Whether any of them asks a service, which may hang.
ASKS_A_SERVICE = bool(POOLED.difference(SUMMARY_STAGES))

#: What new rows begin with: runs that hold any of it go before those that only follow (tags, wiki patches), which come
#: one after another and would else keep new messages waiting for a summary while a service is slow or down.
_FIRST = frozenset({"messages", "leaf_summaries"})

_CHAIN = dg.AssetSelection.assets(*STAGES)
_LEXICON = dg.AssetKey("lexicon")
_WIKI = [dg.AssetKey(stage) for stage in WHOLE_STAGES]


def run_request(run: PlannedRun, *, reason: str) -> dg.RunRequest:
    """One run of the planned stages over the planned days."""
    return dg.RunRequest(
        asset_selection=[dg.AssetKey(stage) for stage in run.stages],
        asset_check_keys=live_check_keys(run.stages),
        tags={
            RANGE_START: run.days.first.isoformat(),
            RANGE_END: run.days.last.isoformat(),
            AUTOMATION_TAG: "true",
            REASON: reason,
            **({} if _FIRST.isdisjoint(run.stages) else {PRIORITY: "1"}),
        },
    )


def requests_for(
    instance: dg.DagsterInstance, pending: list[WorkDay], *, reason: str, now: datetime
) -> list[dg.RunRequest]:
    """The run requests that cover the pending days and that no live run covers already."""
    planned = plan_runs(
        [(item.stage, item.day) for item in pending],
        live=live_over_days(instance),
        failed=failed_ranges(instance, now),
        now=now,
        max_days=MAX_DAYS_PER_RUN,
        max_runs=MAX_RUNS_PER_TICK,
        pooled=POOLED,
        service=ASKS_A_SERVICE,
    )
    return [run_request(run, reason=reason) for run in planned]


@dg.sensor(
    target=_CHAIN | dg.AssetSelection.assets(_LEXICON, *_WIKI),
    minimum_interval_seconds=1,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Every few seconds: asks Postgres which days have work and requests a run for each range of days. "
    "Its ticks say what was asked for, or why nothing was. Leave it on.",
)
def pending_work(
    context: dg.SensorEvaluationContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.SensorResult | dg.SkipReason:
    """Requests runs for what became due through new rows or another embedding model."""
    now = datetime.now(UTC)
    ensure_pool_limits(context.instance)
    with connect(store.url, application_name="rivet-sensor") as connection:
        announce_model(connection, models.embedder)
        _announce_models(connection, models)
        _announce_tagger(connection, models)
        pending = _due_now(days_with_work(connection))
        busy = bool(pending)
        lexicon_due = is_due(connection, busy=busy) or vector_pieces_due(connection, busy=busy)
        wiki_due = not pending and wiki_is_due(connection)
    requests = requests_for(context.instance, pending, reason=NEW_ROWS, now=now)
    if lexicon_due and _may_ask_for(context.instance, LEXICON_TAG, now):
        requests.append(dg.RunRequest(asset_selection=[_LEXICON], tags={LEXICON_TAG: "true"}))
    if wiki_due and _may_ask_for(context.instance, WIKI_TAG, now):
        requests.append(dg.RunRequest(asset_selection=_WIKI, asset_check_keys=[], tags={WIKI_TAG: "true"}))
    if not requests:
        waits = pending or lexicon_due or wiki_due
        return dg.SkipReason("live or resting runs cover what is pending" if waits else "nothing is pending")
    return dg.SensorResult(run_requests=requests)


def _due_now(pending: list[WorkDay]) -> list[WorkDay]:
    """What new rows made due, and on the days of new messages also what time did: an import may be long idle."""
    new = {item.day for item in pending if item.stage == "messages"}
    return [item for item in pending if not item.timed or item.day in new]


def _announce_models(connection: Connection, models: Models) -> None:
    try:
        model, miner = models.summarizer.model, models.miner
    except RivetError:
        # A wrong configuration of this model fails the runs that need it, in sight; embeddings go on.
        return
    announce_summarizer(connection, model)
    announce_miner(connection, miner)


def _announce_tagger(connection: Connection, models: Models) -> None:
    try:
        tagger = models.tagger
    except RivetError:
        # As above: the runs that need it fail in sight.
        return
    announce_tagger(connection, tagger)


@dg.sensor(
    target=_CHAIN,
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Off until a person switches it on: redoes what an older version or another model made (summaries, "
    "tags, wiki patches), the oldest days first, until none is left. Its ticks say how many are.",
)
def remine_stale(
    context: dg.SensorEvaluationContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.SensorResult | dg.SkipReason:
    """Requests runs over the days with stale rows. Off until somebody switches it on; it may stay on."""
    with connect(store.url, application_name="rivet-sensor") as connection:
        announce_summarizer(connection, models.summarizer.model)
        _announce_tagger(connection, models)
        announce_miner(connection, models.miner)
        stale = stale_days(connection)
    left = sum(day.items for day in stale)
    if not left:
        return dg.SkipReason("nothing is stale")
    ready = [day for day in stale if day.ready]
    if not ready:
        return dg.SkipReason(f"stale and waiting after a failure: {left} rows; see `rivet stats`")
    requests = _remine_requests(context.instance, ready, datetime.now(UTC))
    if not requests:
        return dg.SkipReason(f"stale: {left} rows; live or resting runs cover the oldest of them")
    context.log.info("stale: %s rows on %s days", left, len({day.day for day in stale}))
    return dg.SensorResult(run_requests=requests)


def _remine_requests(instance: dg.DagsterInstance, stale: list[StaleDay], now: datetime) -> list[dg.RunRequest]:
    under_way = sum(run.tags.get(REASON) == STALE for run in live_runs(instance))
    rows: dict[date, int] = {}
    for found in stale:
        rows[found.day] = rows.get(found.day, 0) + found.ready
    planned = plan_runs(
        [(found.stage, found.day) for found in stale],
        live=live_over_days(instance),
        failed=failed_ranges(instance, now),
        now=now,
        max_days=MAX_DAYS_PER_RUN,
        max_runs=max(0, MAX_REMINE_RUNS - under_way),
        rows=rows,
        max_rows=MAX_REMINE_ROWS,
    )
    requests = [run_request(run, reason=STALE) for run in planned]
    return [request._replace(tags={**request.tags, PRIORITY: "-1"}) for request in requests]


def _may_ask_for(instance: dg.DagsterInstance, tag: str, now: datetime) -> bool:
    return not any(tag in run.tags for run in live_runs(instance)) and not must_wait(
        tagged_failures(instance, tag, now), now
    )
