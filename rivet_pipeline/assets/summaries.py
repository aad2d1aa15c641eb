"""The summary tree as assets: leaves of messages, branches of leaves, roots of branches."""

import dagster as dg

from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reporting import materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.compact import refine_level
from rivet_pipeline.summaries.factory import summarizer_name
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION

_MODEL_VERSION = f"{SUMMARY_PIPELINE_VERSION}/{summarizer_name(get_settings())}"


@dg.asset(
    deps=[messages],
    description="Summaries of ten messages each (five after 15 idle minutes, two after four days), with their "
    "sources, grounding and version. A day whose leaves are of an older version or model is made again.",
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="summaries",
    owners=["team:memory"],
    kinds={"postgres", "llm"},
    pool="llm",
    code_version=_MODEL_VERSION,
)
def leaf_summaries(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Redoes stale leaves of the run's days, then summarises the messages that no leaf covers, where due."""
    report = refine_level(store.pool, "leaf", days=days_of(context.partition_keys), summarizer=models.summarizer)
    return materialized(context, store, report)


@dg.asset(
    deps=[leaf_summaries],
    description="Summaries of eight leaves each (five when the conversation is idle).",
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="summaries",
    owners=["team:memory"],
    kinds={"postgres", "llm"},
    pool="llm",
    code_version=_MODEL_VERSION,
)
def branch_summaries(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Redoes stale branches, then summarises the leaves that have no branch, as far as they are due."""
    report = refine_level(store.pool, "branch", days=days_of(context.partition_keys), summarizer=models.summarizer)
    return materialized(context, store, report)


@dg.asset(
    deps=[branch_summaries],
    description="Summaries of five branches each (three when the conversation is idle).",
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="summaries",
    owners=["team:memory"],
    kinds={"postgres", "llm"},
    pool="llm",
    code_version=_MODEL_VERSION,
)
def root_summaries(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Redoes stale roots, then summarises the branches that have no root, as far as they are due."""
    report = refine_level(store.pool, "root", days=days_of(context.partition_keys), summarizer=models.summarizer)
    return materialized(context, store, report)
