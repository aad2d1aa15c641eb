"""The summary tree as assets: leaves of messages, branches of leaves, roots of branches."""

import dagster as dg

from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reporting import materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.compact import summarize_branches, summarize_leaves, summarize_roots
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
    """Summarises the messages of the run's days that no leaf covers, as far as they are due."""
    report = summarize_leaves(store.pool, days=days_of(context.partition_keys), summarizer=models.summarizer)
    return materialized(context, report)


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
    """Summarises the leaves of the run's days that have no branch, as far as they are due."""
    report = summarize_branches(store.pool, days=days_of(context.partition_keys), summarizer=models.summarizer)
    return materialized(context, report)


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
    """Summarises the branches of the run's days that have no root, as far as they are due."""
    report = summarize_roots(store.pool, days=days_of(context.partition_keys), summarizer=models.summarizer)
    return materialized(context, report)
