"""The `tool_call_text` asset: one sentence for every tool call that was captured without words of its own."""

import dagster as dg

from rivet_pipeline.assets.links import TIMELINE, described, stored_in
from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days, days_of
from rivet_pipeline.assets.reporting import materialized
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.settings import get_settings
from rivet_pipeline.tool_calls.factory import writer_name
from rivet_pipeline.tool_calls.render import NAME as RENDERING
from rivet_pipeline.tool_calls.write import write_tool_texts
from rivet_pipeline.versions import TOOL_TEXT_VERSION

_WRITER = writer_name(get_settings())


@dg.asset(
    deps=[messages],
    partitions_def=conversation_days,
    backfill_policy=backfill_policy,
    group_name="conversations",
    owners=["team:memory"],
    kinds={"postgres"} if _WRITER == RENDERING else {"postgres", "llm"},
    pool=None if _WRITER == RENDERING else "llm",
    code_version=f"{TOOL_TEXT_VERSION}/{_WRITER or 'unnamed'}",
    metadata=stored_in("ros_messages"),
    description=described(
        "What each tool call of the day did, in one past-tense sentence, where the capture holds no words. Written "
        "once and marked as made: another version or model changes new texts only. Waits for the call's result, or "
        "for the conversation to rest.",
        TIMELINE,
        table="ros_messages",
    ),
)
def tool_call_text(
    context: dg.AssetExecutionContext, store: StoreResource, models: dg.ResourceParam[Models]
) -> dg.MaterializeResult[None]:
    """Writes the texts that are due in the run's days."""
    report = write_tool_texts(store.pool, days=days_of(context.partition_keys), writer=models.writer)
    return materialized(context, store, report)
