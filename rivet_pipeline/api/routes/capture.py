"""`POST /api/capture`: the way in for live transcripts. Parses; how a batch is stored is `ingest`'s business."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from rivet_pipeline.api.dependencies import JsonRoute, Resources, resources_of
from rivet_pipeline.api.models import CaptureAnswer, CaptureBatch
from rivet_pipeline.transcripts.ingest import CAPTURE_CAP, write_batch
from rivet_pipeline.transcripts.ingest_rows import Extra
from rivet_pipeline.transcripts.projects import planned_settings
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord

router = APIRouter(tags=["capture"], route_class=JsonRoute)


@router.post("/api/capture", summary="Store messages of one conversation")
async def capture(batch: CaptureBatch, request: Request) -> CaptureAnswer:
    """Stores a batch in one transaction. Once this answers, the messages are durable and can be found by their words.

    A message whose `event_id` is known is skipped, so a batch may be sent again at any time; if it says something else,
    it is kept beside the known one, under an id with a hash. A late `tool_result` is
    filled into its call.
    """
    # A plain function would be run in a thread by FastAPI, and so would its answer's validation: two hops, not one.
    return await run_in_threadpool(_store, batch, resources_of(request))


def _store(batch: CaptureBatch, resources: Resources) -> CaptureAnswer:
    session = SessionRecord(
        session_key=batch.session_key,
        agent=batch.agent,
        channel=batch.channel,
        title=batch.title,
        settings=batch.settings,
        task_id=batch.task_id,
    )
    messages = [
        MessageRecord(
            event_id=message.event_id,
            role=message.role,
            content=message.content,
            tool_name=message.tool_name,
            tool_args=message.tool_args,
            tool_result=message.tool_result,
            metadata=message.metadata,
            created_at=message.created_at,
        )
        for message in batch.messages
    ]
    extra = Extra(began=batch.created_at, ended=batch.updated_at, fallback_settings=planned_settings(batch.settings))
    with resources.connection() as connection:
        result = write_batch(
            connection,
            session,
            messages,
            first_day=resources.settings.first_day,
            finalize=batch.finalize,
            cap=CAPTURE_CAP,
            extra=extra,
            redact=resources.settings.capture_redaction,
        )
    return CaptureAnswer(
        conversation_id=result.conversation_id, inserted=result.new, skipped=result.known, filled=result.filled
    )
