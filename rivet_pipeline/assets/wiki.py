"""The wiki as assets: patches mined from the day's leaves, the pages they make together, the pages' vectors."""

import dagster as dg

from rivet_pipeline.assets.links import HEALTH, REVIEW, WIKI, described, stored_in
from rivet_pipeline.assets.markdown import table
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reasons import redoes_outdated
from rivet_pipeline.assets.reporting import materialized, preview_patches
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.assets.summaries import leaf_summaries
from rivet_pipeline.embedding.embed import embed_topics
from rivet_pipeline.models.factory import embedder_name
from rivet_pipeline.settings import get_settings
from rivet_pipeline.versions import EMBEDDING_VERSION, WIKI_PAGE_VERSION, WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.factory import miner_name
from rivet_pipeline.wiki.topics import refresh_topics

_SETTINGS = get_settings()
_ASKS_A_MODEL = _SETTINGS.compactor_url is not None


@dg.asset(
    deps=[leaf_summaries],
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="wiki",
    owners=["team:memory"],
    kinds={"postgres", "llm"} if _ASKS_A_MODEL else {"postgres"},
    pool="llm" if _ASKS_A_MODEL else None,
    code_version=f"{WIKI_PIPELINE_VERSION}/{miner_name(_SETTINGS)}",
    metadata=stored_in("ros_wiki_patches"),
    description=described(
        "What the day's leaf summaries say for good: up to three patches a leaf, or none, each with the page it "
        "changes and why. Applied at once, or proposed while WIKI_REVIEW is on. A leaf is mined once a text; those of "
        "an older version are mined once more when a person materialises their day.",
        WIKI,
        REVIEW,
        table="ros_wiki_patches",
    ),
)
def wiki_patches(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Mines the leaves of the run's days that were not mined as they are now, then those of an older version."""
    days = days_of(context.partition_keys)
    report = mine_leaves(
        store.pool,
        days=days,
        miner=models.miner,
        review=get_settings().wiki_review,
        outdated=redoes_outdated(context.run.tags),
    )
    return materialized(context, store, report, by_day=preview_patches(store, days))


@dg.asset(
    deps=[wiki_patches],
    group_name="wiki",
    owners=["team:memory"],
    kinds={"postgres"},
    code_version=str(WIKI_PAGE_VERSION),
    metadata=stored_in("ros_wiki_topics"),
    description=described(
        "The pages that the applied patches make together, with citations, history and every former version. They "
        "change when a patch is applied or taken back; materialising makes again what older rules have made.",
        WIKI,
        table="ros_wiki_topics",
    ),
)
def wiki_topics(store: StoreResource) -> dg.MaterializeResult[None]:
    """Makes pages of an older making again."""
    with store.connection() as connection:
        report = refresh_topics(connection)
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": report.counts.pages,
            "sentences": report.counts.sentences,
            "rebuilt": report.rebuilt,
            "changed": report.changed,
            "patches": dg.MetadataValue.md(table(("status", "patches"), sorted(report.counts.patches.items()))),
            "leaves": dg.MetadataValue.md(table(("outcome", "leaves"), sorted(report.counts.leaves.items()))),
            "seconds": round(report.seconds, 3),
        }
    )


@dg.asset(
    deps=[wiki_topics],
    group_name="wiki",
    owners=["team:memory"],
    kinds={"postgres", "pgvector"},
    pool="embedder",
    code_version=f"{EMBEDDING_VERSION}/{embedder_name(_SETTINGS)}",
    metadata=stored_in("ros_embeddings"),
    description=described(
        "Chunk vectors of the wiki's pages. A changed page is embedded again because its hash changed; a new model is "
        "filled beside the old one.",
        WIKI,
        HEALTH,
        table="ros_embeddings",
    ),
)
def wiki_embeddings(store: StoreResource, models: dg.ResourceParam[Models]) -> dg.MaterializeResult[None]:
    """Embeds the pages that have no vector of the current model."""
    settings = get_settings()
    report = embed_topics(
        store.pool, models.embedder, chars_per_chunk=settings.embed_chars_per_chunk, batch=settings.embed_batch
    )
    return dg.MaterializeResult(
        metadata={
            "model": report.model or "none",
            "rows_written": report.rows,
            "failures": report.failures,
            "model_calls": report.model_calls,
            "characters": sum(day.characters for day in report.days.values()),
            "tokens": sum(day.tokens for day in report.days.values()),
            "seconds": round(sum(day.seconds for day in report.days.values()), 3),
        }
    )
