"""The one `Definitions` object, made by `build_defs`, to which tests hand their own resources."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import dagster as dg

warnings.filterwarnings("ignore", category=dg.BetaWarning)

from rivet_pipeline.assets import (  # noqa: E402
    checks,
    embeddings,
    messages,
    retrieval,
    summaries,
    tags,
    tool_calls,
    wiki,
)
from rivet_pipeline.assets.resources import Models, StoreResource  # noqa: E402
from rivet_pipeline.automation import jobs, schedules, sensors  # noqa: E402

default_assets = [
    messages.messages,
    tool_calls.tool_call_text,
    embeddings.message_embeddings,
    summaries.leaf_summaries,
    tags.tag_proposals,
    summaries.branch_summaries,
    summaries.root_summaries,
    embeddings.summary_embeddings,
    wiki.wiki_patches,
    wiki.wiki_topics,
    wiki.wiki_embeddings,
    retrieval.lexicon,
    retrieval.retrieval_quality,
]
default_jobs: list[Any] = [
    jobs.refine_days,
    jobs.tell_calls_days,
    jobs.resummarize_days,
    jobs.retag_days,
    jobs.reembed_days,
    jobs.remine_wiki_days,
    jobs.consolidate_wiki,
    jobs.refresh_lexicon,
    jobs.measure_retrieval,
    jobs.check_everything,
    jobs.tidy_tags,
    jobs.housekeeping,
    jobs.queue_status,
    jobs.retry_failed,
]
default_schedules = [
    schedules.idle_conversations,
    schedules.lexicon_hourly,
    schedules.checks_hourly,
    schedules.tags_hourly,
    schedules.wiki_daily,
    schedules.retrieval_quality_daily,
    schedules.daily_housekeeping,
]
default_sensors = [sensors.pending_work, sensors.remine_stale]


def build_defs(*, resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """A fresh `Definitions`. `resources` replaces `store` or `models`, which read the settings in the run."""
    return dg.Definitions(
        assets=default_assets,
        asset_checks=[*checks.default_checks, retrieval.no_drop],
        jobs=default_jobs,
        schedules=default_schedules,
        sensors=default_sensors,
        resources={"store": StoreResource(), "models": Models(), **(resources or {})},
        # A second process per step would double a run's three seconds and win nothing: the work is SQL and model calls.
        executor=dg.in_process_executor,
    )


defs = build_defs()
