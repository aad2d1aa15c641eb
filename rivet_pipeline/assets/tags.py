"""The `tag_proposals` asset: what a tagger suggests of each leaf, for people to accept or reject."""

from typing import Any

import dagster as dg

from rivet_pipeline.assets.links import REVIEW, described, stored_in
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reasons import redoes_outdated
from rivet_pipeline.assets.reporting import materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.assets.summaries import leaf_summaries
from rivet_pipeline.settings import get_settings
from rivet_pipeline.tags.factory import tagger_name
from rivet_pipeline.tags.keyphrases import MODEL as KEYPHRASES
from rivet_pipeline.tags.propose import propose_tags
from rivet_pipeline.tags.read import pending_on
from rivet_pipeline.versions import TAGS_VERSION

_TAGGER = tagger_name(get_settings())


@dg.asset(
    deps=[leaf_summaries],
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="tags",
    owners=["team:memory"],
    kinds={"postgres"} if _TAGGER == KEYPHRASES else {"postgres", "llm"},
    pool=None if _TAGGER == KEYPHRASES else "llm",
    code_version=f"{TAGS_VERSION}/{_TAGGER}",
    metadata=stored_in("ros_tags"),
    description=described(
        "Tags suggested on the day's leaves and their conversations; people accept or reject them. A leaf whose tagger "
        "fails twice goes without and is counted. Leaves of an older version are asked about again when a person "
        "materialises their day; what was rejected is never suggested twice.",
        REVIEW,
        table="ros_tags",
    ),
)
def tag_proposals(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Tags the leaves of the run's days that are new, changed, or of an older version."""
    days = days_of(context.partition_keys)
    outdated = redoes_outdated(context.run.tags)
    report = propose_tags(store.pool, days=days, tagger=models.tagger, outdated=outdated)
    with store.connection() as connection:
        waiting = pending_on(connection, days)
    of_run: dict[str, dg.MetadataValue[Any] | int] = {
        "run_leaves_tagged": report.tagged,
        "run_leaves_skipped": report.skipped,
        "run_leaves_dropped": report.dropped,
        "run_rule_tags": report.ruled,
        "run_awaiting_review": sum(waiting.values()),
        **(
            {"run_drop_reasons": dg.MetadataValue.md("\n".join(f"- {one}" for one in report.errors))}
            if report.errors
            else {}
        ),
    }
    by_day = {day: {"awaiting_review": waiting.get(day, 0)} for day in days}
    return materialized(context, store, report.stage, by_day=by_day, of_run=of_run)
