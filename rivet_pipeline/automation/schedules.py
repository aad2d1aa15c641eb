"""What only the passing of time makes due: idle conversations, the lexicon, Dagster's own housekeeping.

See https://docs.dagster.io/guides/automate/schedules
"""

import dagster as dg

from rivet_pipeline.assets.reasons import IDLE
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.automation.jobs import (
    check_everything,
    consolidate_wiki,
    housekeeping,
    measure_retrieval,
    refresh_lexicon,
    tidy_tags,
)
from rivet_pipeline.automation.sensors import requests_for
from rivet_pipeline.db.pending import days_with_work
from rivet_pipeline.db.pool import connect
from rivet_pipeline.stages import STAGES


@dg.schedule(
    target=dg.AssetSelection.assets(*STAGES),
    cron_schedule="*/5 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every five minutes: summaries of conversations that fell idle, tool calls whose result never came. "
    "New words do not wait for it: the sensor `pending_work` takes them.",
)
def idle_conversations(
    context: dg.ScheduleEvaluationContext, store: StoreResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """Requests runs for what time alone made due."""
    with connect(store.url, application_name="rivet-schedule") as connection:
        pending = [day for day in days_with_work(connection) if day.timed]
    requests = requests_for(context.instance, pending, reason=IDLE, now=context.scheduled_execution_time)
    return requests or dg.SkipReason("no conversation fell idle")


lexicon_hourly = dg.ScheduleDefinition(
    name="lexicon_hourly",
    job=refresh_lexicon,
    cron_schedule="7 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every hour at :07: the text index, so that it never lags far behind.",
)

checks_hourly = dg.ScheduleDefinition(
    name="checks_hourly",
    job=check_everything,
    cron_schedule="17 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every hour at :17: all asset checks. Those that are cheap run with every change too.",
)

tags_hourly = dg.ScheduleDefinition(
    name="tags_hourly",
    job=tidy_tags,
    cron_schedule="27 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every hour at :27: deletes tags of what is gone, writes project tags that capture could not write.",
)

wiki_daily = dg.ScheduleDefinition(
    name="wiki_daily",
    job=consolidate_wiki,
    cron_schedule="29 4 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every day at 04:29 UTC: which pages of the wiki should be merged or split, as proposals for a person.",
)

retrieval_quality_daily = dg.ScheduleDefinition(
    name="retrieval_quality_daily",
    job=measure_retrieval,
    cron_schedule="23 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every day at 03:23 UTC: how well search finds what it should, and whether it finds less than before.",
)

daily_housekeeping = dg.ScheduleDefinition(
    name="daily_housekeeping",
    job=housekeeping,
    cron_schedule="41 4 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every day at 04:41 UTC: deletes old entries of Dagster's event log, which otherwise grows for ever.",
)
