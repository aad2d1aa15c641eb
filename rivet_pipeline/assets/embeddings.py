"""The embedding assets: vectors of messages and of summaries, one model beside the other in `ros_embeddings`."""

from collections.abc import Callable, Sequence

import dagster as dg

from rivet_pipeline.assets.links import HEALTH, SEARCH, described, stored_in
from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reporting import materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.assets.summaries import branch_summaries, leaf_summaries, root_summaries
from rivet_pipeline.assets.tool_calls import tool_call_text
from rivet_pipeline.embedding.embed import embed_messages, embed_summaries
from rivet_pipeline.models.factory import embedder_name
from rivet_pipeline.settings import get_settings
from rivet_pipeline.stages import Stage, StageReport
from rivet_pipeline.versions import EMBEDDING_VERSION


def _vectors(
    stage: Stage, of: Sequence[dg.AssetsDefinition], embed: Callable[..., StageReport], description: str
) -> dg.AssetsDefinition:
    """The asset that holds the vectors of other assets' texts."""

    @dg.asset(
        name=stage,
        deps=of,
        partitions_def=conversation_days,
        backfill_policy=backfill_policy,
        group_name="search",
        owners=["team:memory"],
        kinds={"postgres", "pgvector"},
        pool="embedder",
        code_version=f"{EMBEDDING_VERSION}/{embedder_name(get_settings())}",
        metadata=stored_in("ros_embeddings"),
        description=described(
            f"{description} A changed text is embedded again because its hash changed; a new model is filled beside "
            "the old one, which serves until then.",
            SEARCH,
            HEALTH,
            table="ros_embeddings",
        ),
    )
    def vectors(
        context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
    ) -> dg.MaterializeResult[None]:
        """Embeds the texts of the run's days that have no vector of the current model."""
        settings = get_settings()
        report = embed(
            store.pool,
            models.embedder,
            days=days_of(context.partition_keys),
            chars_per_chunk=settings.embed_chars_per_chunk,
            batch=settings.embed_batch,
        )
        return materialized(context, store, report)

    return vectors


message_embeddings = _vectors(
    "message_embeddings",
    [messages, tool_call_text],
    embed_messages,
    "Chunk vectors of the day's messages, content and tool results together.",
)
summary_embeddings = _vectors(
    "summary_embeddings",
    [leaf_summaries, branch_summaries, root_summaries],
    embed_summaries,
    "Chunk vectors of the day's summaries of every level.",
)
