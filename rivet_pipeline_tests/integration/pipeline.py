"""The real definitions over a test's own store: captures, runs in this process, and models that count their calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import dagster as dg

from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.automation.instance import RANGE_END, RANGE_START
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.definitions import build_defs
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.models.protocols import ModelError, Vectors
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.types import SummaryDraft, SummaryRequest
from rivet_pipeline.tool_calls.render import Renderer
from rivet_pipeline.tool_calls.types import Sentence, ToolCall
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord

FIRST_DAY = date(2022, 11, 1)
DAY = date(2026, 3, 2)

Row = dict[str, Any]


class CountingEmbedder(WordLlamaEmbedder):
    """WordLlama, counted. `down`: the service fails. `poison`: texts with this word fail, and only they."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.down = False
        self.poison: str | None = None

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        if self.down:
            raise ModelError("transient", "no-connection", "nobody is there")
        if self.poison is not None and any(self.poison in text for text in texts):
            raise ModelError("content", "http-400", "can not embed this")
        return super().embed(texts)


class CountingSummarizer:
    """The extractive summarizer, counted. `model` may be changed; `down` and `poison` are those of the embedder."""

    def __init__(self) -> None:
        self.model = "extractive-2"
        self.requests: list[SummaryRequest] = []
        self.down = False
        self.poison: str | None = None

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        self.requests.append(request)
        if self.down:
            raise ModelError("transient", "http-503", "busy")
        if self.poison is not None and any(self.poison in message.content for message in request.messages):
            raise ModelError("content", "refusal", "would rather not")
        return ExtractiveSummarizer().summarize(request)


class CountingWriter:
    """The rendering, counted. As a model when `asks_a_model`; `down` and `poison` are those of the embedder."""

    def __init__(self) -> None:
        self.name = "rendering-1"
        self.asks_a_model = False
        self.asked: list[ToolCall] = []
        self.down = False
        self.poison: str | None = None

    def write(self, call: ToolCall) -> Sentence:
        self.asked.append(call)
        if self.down:
            raise ModelError("transient", "http-503", "busy")
        if self.poison is not None and self.poison in str(call.args):
            raise ModelError("content", "refusal", "would rather not")
        return Renderer().write(call)


class CountingModels(Models):
    """All of them, in place of the configured ones."""

    def __init__(self) -> None:
        self.embedder: CountingEmbedder = CountingEmbedder()
        self.summarizer: CountingSummarizer = CountingSummarizer()
        self.writer: CountingWriter = CountingWriter()

    @property
    def calls(self) -> int:
        return len(self.embedder.texts) + len(self.summarizer.requests) + len(self.writer.asked)


class Pipeline:
    """The definitions over one store, and the Dagster instance that their runs are kept in."""

    def __init__(self, url: str, connection: Connection, instance: dg.DagsterInstance) -> None:
        self.url = url
        self.connection = connection
        self.instance = instance
        self.models = CountingModels()
        self.store = StoreResource(database=url)
        self.defs = build_defs(resources={"store": self.store, "models": self.models})

    def run(
        self, first: date = DAY, last: date | None = None, *, job: str = "refine_days", **more: Any
    ) -> dg.ExecuteInProcessResult:
        """One run of a job over a range of days, as a backfill launches it."""
        tags = {RANGE_START: first.isoformat(), RANGE_END: (last or first).isoformat()}
        return self.defs.resolve_job_def(job).execute_in_process(instance=self.instance, tags=tags, **more)

    def rows(self, query: str, *parameters: Any) -> list[Row]:
        return self.connection.execute(query.encode(), parameters).fetchall()

    def counts(self) -> Row:
        return self.rows(
            """SELECT (SELECT count(*) FROM ros_messages) AS messages,
                      (SELECT count(*) FROM ros_summaries) AS summaries,
                      (SELECT count(*) FROM ros_embeddings) AS embeddings,
                      (SELECT count(*) FROM ros_failures) AS failures,
                      (SELECT count(*) FROM ros_summary_revisions) AS revisions"""
        )[0]

    def pending(self) -> set[str]:
        return {row["stage"] for row in self.rows("SELECT stage FROM ros_pending_days WHERE NOT timed")}

    def retry_now(self) -> None:
        self.connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")


def capture(
    connection: Connection, session: str = "test:1", *, count: int = 10, day: date = DAY, word: str = ""
) -> UUID:
    """A conversation that began on a day, its messages a second apart."""
    began = datetime(day.year, day.month, day.day, 9, tzinfo=UTC)
    records = [
        MessageRecord(
            event_id=f"{began.isoformat()}-{number}",
            role="assistant" if number % 2 else "user",
            content=f"Step {number} of {session} changed src/part_{number}.py on host db-{number}. {word}".strip(),
            created_at=began + timedelta(seconds=number),
        )
        for number in range(count)
    ]
    session_record = SessionRecord(session_key=session, agent="opus", channel="test")
    return write_batch(connection, session_record, records, first_day=FIRST_DAY).conversation_id


def capture_calls(
    connection: Connection,
    session: str = "test:1",
    *,
    count: int = 10,
    day: date = DAY,
    result: str | None = "fine",
    first: int = 0,
    settings: Row | None = None,
    **metadata: Any,
) -> UUID:
    """Tool calls without words of their own, a second apart; `result=None`: none has come yet."""
    began = datetime(day.year, day.month, day.day, 9, tzinfo=UTC)
    records = [
        MessageRecord(
            event_id=f"call-{number}",
            role="tool",
            tool_name="Bash",
            tool_args={"command": f"make part-{number}", "description": f"Build part {number}"},
            tool_result=result,
            metadata={"kind": "tool"} | metadata,
            created_at=began + timedelta(seconds=number),
        )
        for number in range(first, first + count)
    ]
    record = SessionRecord(session_key=session, agent="opus", channel="test", settings=settings or {})
    return write_batch(connection, record, records, first_day=FIRST_DAY).conversation_id


def materializations(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, dict[str, Any]]:
    """The metadata of a run's materialisations of an asset, by day."""
    found = result.asset_materializations_for_node(asset)
    return {str(one.partition): {name: value.value for name, value in one.metadata.items()} for one in found}
