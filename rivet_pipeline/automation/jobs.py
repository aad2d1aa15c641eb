"""The jobs a person launches: backfills of parts of the graph over a range of days, and housekeeping.

See https://docs.dagster.io/guides/build/jobs/asset-jobs
"""

import dagster as dg

from rivet_pipeline.db.event_log import trim_event_log
from rivet_pipeline.db.store import dagster_url
from rivet_pipeline.settings import get_settings
from rivet_pipeline.stages import STAGES

refine_days = dg.define_asset_job(
    "refine_days",
    selection=dg.AssetSelection.assets(*STAGES),
    description="Everything that is derived from the conversations of the chosen days. Safe over any range: what is "
    "current is left alone.",
)

resummarize_days = dg.define_asset_job(
    "resummarize_days",
    selection=dg.AssetSelection.assets("leaf_summaries", "branch_summaries", "root_summaries", "summary_embeddings"),
    description="The summary tree of the chosen days, redone where an older version or model made it.",
)

reembed_days = dg.define_asset_job(
    "reembed_days",
    selection=dg.AssetSelection.assets("message_embeddings", "summary_embeddings"),
    description="Vectors of the chosen days for the model that is configured now.",
)

refresh_lexicon = dg.define_asset_job(
    "refresh_lexicon", selection=dg.AssetSelection.assets("lexicon"), description="The corpus statistics of BM25."
)


check_everything = dg.define_asset_job(
    "check_everything",
    selection=dg.AssetSelection.all_asset_checks(),
    description="Every asset check, those included that read whole tables and so do not run with each change.",
)


@dg.op(description="Deletes old entries of Dagster's event log that nothing reads any more.")
def trim_dagster_event_log(context: dg.OpExecutionContext) -> None:
    """Deletes log lines after 7 days and engine events after 30; materializations and checks stay."""
    deleted = trim_event_log(dagster_url(get_settings()))
    context.log.info("deleted %s entries of Dagster's event log", deleted)


@dg.job(description="Keeps Dagster's own storage from growing for ever.", executor_def=dg.in_process_executor)
def housekeeping() -> None:
    """Trims Dagster's event log."""
    trim_dagster_event_log()
