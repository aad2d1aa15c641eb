"""The embedding assets: vectors of messages and of summaries, one model beside the other in `ros_embeddings`."""

import dagster as dg

from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reporting import materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.assets.summaries import branch_summaries, leaf_summaries, root_summaries
from rivet_pipeline.embedding.embed import embed_messages, embed_summaries
from rivet_pipeline.models.factory import embedder_name
from rivet_pipeline.settings import get_settings
from rivet_pipeline.versions import EMBEDDING_VERSION

_CODE_VERSION = f"{EMBEDDING_VERSION}/{embedder_name(get_settings())}"


@dg.asset(
    deps=[messages],
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="embeddings",
    owners=["team:memory"],
    kinds={"postgres", "pgvector"},
    pool="embedder",
    code_version=_CODE_VERSION,
    description="Chunk vectors of the day's messages, content and tool results together. A changed text is embedded "
    "again because its hash changed; a new model is filled beside the old one.",
)
def message_embeddings(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Embeds the messages of the run's days that have no vector of the current model and text."""
    settings = get_settings()
    report = embed_messages(
        store.pool,
        models.embedder,
        days=days_of(context.partition_keys),
        chars_per_chunk=settings.embed_chars_per_chunk,
        batch=settings.embed_batch,
    )
    return materialized(context, store, report)


@dg.asset(
    deps=[leaf_summaries, branch_summaries, root_summaries],
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="embeddings",
    owners=["team:memory"],
    kinds={"postgres", "pgvector"},
    pool="embedder",
    code_version=_CODE_VERSION,
    description="Chunk vectors of the day's summaries of every level.",
)
def summary_embeddings(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Embeds the summaries of the run's days that have no vector of the current model and text."""
    settings = get_settings()
    report = embed_summaries(
        store.pool,
        models.embedder,
        days=days_of(context.partition_keys),
        chars_per_chunk=settings.embed_chars_per_chunk,
        batch=settings.embed_batch,
    )
    return materialized(context, store, report)
