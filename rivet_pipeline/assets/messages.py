"""The `messages` asset: the transcript of a day, as the writers of capture and import left it.

It writes no message. See https://docs.dagster.io/guides/build/assets/defining-assets
"""

import dagster as dg

from rivet_pipeline.assets.leftover_work import left_on
from rivet_pipeline.assets.links import SEARCH, TIMELINE, described, stored_in
from rivet_pipeline.assets.markdown import table
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.transcripts.days import observe_days
from rivet_pipeline.versions import MESSAGES_VERSION


@dg.asset(
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="conversations",
    owners=["team:memory"],
    kinds={"postgres"},
    code_version=str(MESSAGES_VERSION),
    metadata=stored_in("ros_messages"),
    description=described(
        "Every word of the conversations that began on this UTC day, as capture and import wrote it. Materialising "
        "counts what is there and wakes what is derived from it; no word is ever changed.",
        TIMELINE,
        SEARCH,
        table="ros_messages",
    ),
)
def messages(context: dg.AssetExecutionContext, store: StoreResource) -> dg.MaterializeResult[None]:
    """Counts the transcript of the run's days and marks it as seen."""
    with store.connection() as connection:
        wanted = days_of(context.partition_keys)
        days, seconds = observe_days(connection, wanted)
        left = left_on(connection, "messages", wanted)
    for day, found in days.items():
        context.add_asset_metadata(
            {
                **left[day].words(),
                "dagster/row_count": found.messages,
                **left[day].figures(),
                "conversations": found.conversations,
                "tool_calls": found.tool_calls,
                "characters": found.characters,
                "run_seconds": round(seconds, 3),
                "agents": dg.MetadataValue.md(table(("agent", "messages"), sorted(found.agents.items()))),
            },
            partition_key=day.isoformat(),
        )
    return dg.MaterializeResult()
