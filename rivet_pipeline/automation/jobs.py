"""The jobs a person launches: backfills of parts of the graph over a range of days, and housekeeping.

See https://docs.dagster.io/guides/build/jobs/asset-jobs
"""

import dagster as dg
from pydantic import Field

from rivet_pipeline.assets.markdown import code, table
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.automation.plan import JOB_STAGES
from rivet_pipeline.db.event_log import trim_event_log
from rivet_pipeline.db.pending import amount
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.queue import ALL_STAGES, held_back, next_try
from rivet_pipeline.db.queue import queue_status as read_queue
from rivet_pipeline.db.queue import retry_failed as make_due
from rivet_pipeline.db.store import dagster_url
from rivet_pipeline.settings import get_settings
from rivet_pipeline.tags.propose import reap_tags
from rivet_pipeline.wiki.consolidate import consolidate

refine_days = dg.define_asset_job(
    "refine_days",
    selection=dg.AssetSelection.assets(*JOB_STAGES["refine_days"]),
    description="Backfill, by hand: everything that is derived from the conversations of the chosen days. Safe over "
    "any range: what is current is left alone, without a model call.",
)

tell_calls_days = dg.define_asset_job(
    "tell_calls_days",
    selection=dg.AssetSelection.assets(*JOB_STAGES["tell_calls_days"]),
    description="Backfill, by hand: texts for the tool calls of the chosen days that have none, and the vectors of "
    "what they changed.",
)

resummarize_days = dg.define_asset_job(
    "resummarize_days",
    selection=dg.AssetSelection.assets(*JOB_STAGES["resummarize_days"]),
    description="Backfill, by hand, after another prompt or model: the summary tree of the chosen days, redone where "
    "an older version or model made it, and its vectors.",
)

retag_days = dg.define_asset_job(
    "retag_days",
    selection=dg.AssetSelection.assets(*JOB_STAGES["retag_days"]),
    description="Backfill, by hand, after another tagger: tags suggested for the leaves of the chosen days that have "
    "none of the current version.",
)

reembed_days = dg.define_asset_job(
    "reembed_days",
    selection=dg.AssetSelection.assets(*JOB_STAGES["reembed_days"]),
    description="Backfill, by hand: vectors of the chosen days for the model that is configured now. The sensor does "
    "the same for all days by itself.",
)

remine_wiki_days = dg.define_asset_job(
    "remine_wiki_days",
    selection=dg.AssetSelection.assets(*JOB_STAGES["remine_wiki_days"]),
    description="Backfill, by hand, after another miner: the wiki's patches of the chosen days, of leaves that were "
    "not mined as they are now, then of those that an older version has mined.",
)

refresh_lexicon = dg.define_asset_job(
    "refresh_lexicon",
    selection=dg.AssetSelection.assets("lexicon"),
    description="Every hour (`lexicon_hourly`), by the sensor after new words or vectors: the text index and the "
    "vectors' codes that search scores with.",
)

measure_retrieval = dg.define_asset_job(
    "measure_retrieval",
    selection=dg.AssetSelection.assets("retrieval_quality"),
    description="Every night (`retrieval_quality_daily`): how well search finds what it should, by a question set in a "
    "scratch database. By hand after a change of model or prompt.",
)

check_everything = dg.define_asset_job(
    "check_everything",
    selection=dg.AssetSelection.all_asset_checks(),
    description="Every hour (`checks_hourly`): every asset check, those included that read whole tables and so do "
    "not run with each change. By hand to ask now.",
)


@dg.op(description="Deletes old entries of Dagster's event log that nothing reads any more.")
def trim_dagster_event_log(context: dg.OpExecutionContext) -> None:
    """Deletes log lines after 7 days and engine events after 30; materializations and checks stay."""
    deleted = trim_event_log(dagster_url(get_settings()))
    context.log.info("deleted %s entries of Dagster's event log", deleted)


@dg.job(
    description="Every night (`daily_housekeeping`): deletes old entries of Dagster's own event log. "
    "Materialisations and checks stay.",
    executor_def=dg.in_process_executor,
)
def housekeeping() -> None:
    """Trims Dagster's event log."""
    trim_dagster_event_log()


@dg.op(description="Deletes tags of what is gone, and writes the project tags that capture could not write.")
def sweep_tags(context: dg.OpExecutionContext, store: StoreResource) -> dg.Output[int]:
    """Reaps orphaned tags; the output counts them."""
    with connect(store.url, application_name="rivet-run") as connection:
        deleted = reap_tags(connection)
    return dg.Output(deleted, metadata={"tags_deleted": deleted})


@dg.job(
    description="Every hour (`tags_hourly`): deletes tags of what is gone, and writes the project tags that capture "
    "could not write.",
    executor_def=dg.in_process_executor,
)
def tidy_tags() -> None:
    """Reaps orphaned tags."""
    sweep_tags()


@dg.op(description="Proposes which pages of the wiki should be one, and which two. Applies none of it.")
def propose_wiki_changes(context: dg.OpExecutionContext, store: StoreResource) -> dg.Output[int]:
    """Stores the proposals for a person to decide on; the output counts them."""
    with connect(store.url, application_name="rivet-run") as connection:
        found = consolidate(connection)
    rows = [("merge", kept, gone) for kept, gone in found.merges] + [("split", page, new) for page, new in found.splits]
    return dg.Output(
        len(rows),
        metadata={
            "merges": len(found.merges),
            "splits": len(found.splits),
            "proposals": dg.MetadataValue.md(table(("kind", "page", "other page"), rows)),
        },
    )


@dg.job(
    description="Every night (`wiki_daily`): proposes merges and splits of the wiki's pages, for review in the hub; "
    "applies none by itself.",
    executor_def=dg.in_process_executor,
)
def consolidate_wiki() -> None:
    """Proposes merges and splits."""
    propose_wiki_changes()


_FAILURES = ("items", "stage", "cause", "due again", "resting", "given up", "next try", "latest error")


@dg.op(description="Reads what is due, what rests and what was given up by stage, and why. Changes nothing.")
def read_queue_status(context: dg.OpExecutionContext, store: StoreResource) -> dg.Output[int]:
    """Shows the queue of every stage; the output counts what is due (see `StageQueue.at_most`)."""
    with connect(store.url, application_name="rivet-run") as connection:
        stages = read_queue(connection)
    rests = [(stage, rest) for stage in stages for rest in [*filter(None, [stage.service]), *stage.resting]]
    queue = [
        (one.stage, one.days, one.due, one.waiting, one.given_up, one.oldest_day or "", "rests" if one.rests else "")
        for one in stages
    ]
    causes = [
        (
            "its service" if rest is stage.service else rest.items,
            stage.stage,
            rest.cause,
            rest.due,
            rest.waiting,
            rest.given_up,
            next_try(stage.stage, rest, lambda moment: f"{moment:%Y-%m-%d %H:%M} UTC"),
            code(rest.error, 200),
        )
        for stage, rest in rests
    ]
    due, at_most = sum(stage.items for stage in stages), any(stage.at_most for stage in stages)
    return dg.Output(
        due,
        metadata={
            "due": amount(due, at_most=True) if at_most else due,
            "resting": sum(stage.waiting for stage in stages),
            "given_up": sum(stage.given_up for stage in stages),
            "queue": dg.MetadataValue.md(
                table(("stage", "days", "due", "resting", "given up", "oldest day", "service"), queue)
            ),
            "failures": dg.MetadataValue.md(table(_FAILURES, causes, empty="Nothing has failed.")),
        },
    )


@dg.job(
    description="By hand: what waits for each stage, what rests after a failure, what was given up, and why. What "
    "`rivet memory queue-status` prints.",
    executor_def=dg.in_process_executor,
)
def queue_status() -> None:
    """Shows the queue of every stage."""
    read_queue_status()


class RetryFailed(dg.Config):
    """Which failures are tried again."""

    task: str = Field(default=ALL_STAGES, description="A stage, or `all`.")
    error: str | None = Field(default=None, description="Only failures whose error contains this text, in any case.")
    dry_run: bool = Field(default=False, description="Say what would be tried again, and change nothing.")


@dg.op(
    description="Makes failed items due at once, as if they had never failed; the next sensor's tick asks for them, "
    "except those that failed when they were made again: the output says what to do for these."
)
def retry_failed_items(context: dg.OpExecutionContext, config: RetryFailed, store: StoreResource) -> dg.Output[int]:
    """Makes the matching rows of the failure ledger due; the output counts them."""
    with connect(store.url, application_name="rivet-run") as connection:
        failures = make_due(connection, stage=config.task, error=config.error, dry_run=config.dry_run)
    rows = [
        (one.stage, code(one.item), one.cause, one.attempts, code(one.error, 200), "yes" if one.held else "")
        for one in failures
    ]
    return dg.Output(
        len(failures),
        metadata={
            "failures": len(failures),
            "changed": not config.dry_run,
            "items": dg.MetadataValue.md(table(("stage", "item", "cause", "attempts", "error", "by hand"), rows[:100])),
            "tried_again": ", ".join(["when the sensor `pending_work` asks for them", *held_back(failures)]),
        },
    )


@dg.job(
    description="By hand, when the reason of failures is gone: has them tried again at once. What failed when "
    "it was made again waits for a person: the output says for what. Config: `task`, `error`, `dry_run`.",
    executor_def=dg.in_process_executor,
)
def retry_failed() -> None:
    """Makes failed items due."""
    retry_failed_items()
