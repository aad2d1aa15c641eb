"""The summary tree as assets: leaves of messages, branches of leaves, roots of branches."""

import dagster as dg

from rivet_pipeline.assets.links import TIMELINE, described, stored_in
from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reasons import redoes_outdated
from rivet_pipeline.assets.reporting import link_lineage, materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.db.quality import summary_quality
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.compact import refine_level
from rivet_pipeline.summaries.factory import summarizer_name
from rivet_pipeline.summaries.types import Kind
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION


def _level(kind: Kind, made_of: dg.AssetsDefinition, description: str) -> dg.AssetsDefinition:
    """The asset of one level of the tree, made of the asset below it."""

    @dg.asset(
        name=f"{kind}_summaries",
        deps=[made_of],
        partitions_def=conversation_days,
        backfill_policy=backfill_policy,
        group_name="summaries",
        owners=["team:memory"],
        kinds={"postgres", "llm"},
        pool="llm",
        code_version=f"{SUMMARY_PIPELINE_VERSION}/{summarizer_name(get_settings())}",
        metadata=stored_in("ros_summaries"),
        description=described(
            f"{description} With sources, grounding and version; those of an older version or model are made again "
            "when a person materialises their day. Each day's `lineage` leads to its newest one in the hub.",
            TIMELINE,
            table="ros_summaries",
        ),
    )
    def level(
        context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
    ) -> dg.MaterializeResult[None]:
        """Redoes what is stale in the run's days, then summarises what has no summary, where it is due."""
        days = days_of(context.partition_keys)
        outdated = redoes_outdated(context.run.tags)
        report = refine_level(store.pool, kind, days=days, summarizer=models.summarizer, outdated=outdated)
        with store.connection() as connection:
            quality = summary_quality(connection, kind, days)
        return materialized(context, store, report, quality, by_day=link_lineage(store, kind, days))

    return level


leaf_summaries = _level(
    "leaf",
    messages,
    "Summaries of ten messages each (five once the session is over or idle for 15 minutes, two after four days).",
)
branch_summaries = _level(
    "branch", leaf_summaries, "Summaries of eight leaves each (five when the conversation is over or idle)."
)
root_summaries = _level(
    "root", branch_summaries, "Summaries of five branches each (three when the conversation is over or idle)."
)
