"""The stage `tool_call_text`: calls without words of their own in, one sentence each out.

What a sentence says stands in `render.py` and `chat_writer.py`; here is the pass over what is pending: pages of calls,
one transaction a page. A call that fails is recorded and left alone; a service that fails ends the pass, with one entry
in the ledger under the item `service`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from rivet_pipeline.db.ledger import SERVICE, clear_failures, record_failure
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.stages import Stage, StageReport
from rivet_pipeline.tool_calls.types import Sentence, ToolCall, Writer
from rivet_pipeline.transcripts.cleaning import clean_text

STAGE: Stage = "tool_call_text"

#: How long a pass of the pipeline may ask a model, in seconds: embeddings and summaries of the same run wait for it.
#: What is left stays pending and gets runs of its own.
PASS_SECONDS = 30.0

#: After so many seconds of asking a model, what it said is committed.
_COMMIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many calls lack a text.

    `due` can be told now, `awaiting` wait for their result (or for their conversation to rest), `resting` have failed.
    """

    due: int
    awaiting: int
    resting: int


@dataclass(frozen=True, slots=True)
class Preview:
    """A call and the text that it would get."""

    id: UUID
    tool_name: str
    text: str


@dataclass(slots=True)
class _Told:
    """A call on its way through a pass, and what became of it."""

    id: UUID
    conversation_id: UUID
    day: date
    text_hash: UUID
    sentence: Sentence | None = None
    error: ModelError | None = None


def write_tool_texts(
    pool: Pool, *, days: Sequence[date] | None, writer: Writer, seconds: float | None = PASS_SECONDS
) -> StageReport:
    """Writes the texts that are due in the conversations of those days (None: all).

    Holds one connection of the pool. With a writer that asks a model, no further call is asked about after `seconds`
    (None: no bound). A text is written once: what has one is never asked about again, whatever the writer.

    Returns:
        What was done, by day: `rows` are texts, `characters` theirs.
    """
    report = StageReport(STAGE, model=writer.name)
    with pool.connection() as connection:
        parameters = {"days": None if days is None else list(days)}
        pages = _select_work(connection, parameters)
        try:
            _Pass(connection, writer, report, seconds if writer.asks_a_model else None).drain(pages)
        finally:
            connection.execute("DROP TABLE ros_tool_text_work")
        connection.execute(_sql("mark_seen"), parameters)
    return report


def read_backlog(connection: Connection) -> Backlog:
    """The calls without a text, noise left out."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM ros_pending_tool_call_text) AS due,
               count(*) FILTER (WHERE NOT due) AS awaiting, count(*) FILTER (WHERE due) AS told_or_resting
        FROM ros_untold_calls
        """
    ).fetchone()
    assert row is not None
    return Backlog(row["due"], row["awaiting"], row["told_or_resting"] - row["due"])


def preview_texts(connection: Connection, writer: Writer, *, limit: int = 5) -> list[Preview]:
    """The texts that the first pending calls would get. Asks no model: a writer that would gives an empty list."""
    if writer.asks_a_model:
        return []
    _select_work(connection, {"days": None})
    try:
        rows = connection.execute(_sql("load_calls"), {"page": 0}).fetchall()[:limit]
    finally:
        connection.execute("DROP TABLE ros_tool_text_work")
    return [Preview(row["id"], row["tool_name"], writer.write(_call(row)).text) for row in rows]


class _Pass:
    """One pass on one connection."""

    def __init__(self, connection: Connection, writer: Writer, report: StageReport, seconds: float | None) -> None:
        self._connection = connection
        self._writer = writer
        self._report = report
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def drain(self, pages: int) -> None:
        """Works through the selected pages, until the service or the time stops it."""
        for page in range(pages):
            rows = self._connection.execute(_sql("load_calls"), {"page": page}).fetchall()
            for batch in self._batches(rows):
                self._commit(batch)
                stopper = next(
                    (told for told in batch if told.error is not None and told.error.cause != "content"), None
                )
                if stopper is not None or self._out_of_time():
                    return

    def _batches(self, rows: Sequence[dict[str, Any]]) -> Iterator[list[_Told]]:
        """The page's calls with their sentences; of a slow writer in several parts, so that little is lost with it."""
        batch: list[_Told] = []
        began = time.monotonic()
        for row in rows:
            told = self._tell(row)
            batch.append(told)
            if told.error is not None and told.error.cause != "content":
                break
            if self._out_of_time() or time.monotonic() - began > _COMMIT_SECONDS:
                yield batch
                batch, began = [], time.monotonic()
        if batch:
            yield batch

    def _out_of_time(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _tell(self, row: dict[str, Any]) -> _Told:
        told = _Told(row["id"], row["conversation_id"], row["day"], row["text_hash"])
        tally = self._report.days[told.day]
        began = time.monotonic()
        try:
            sentence = self._writer.write(_call(row))
            text = " ".join(clean_text(sentence.text).split())
            if not text:
                raise ModelError("content", "empty", "the writer gave no text")
            told.sentence = Sentence(text, sentence.tokens)
        except ModelError as error:
            told.error = error
        except Exception as error:
            # One call that our own code can not take must not stop all others; the ledger shows it.
            told.error = ModelError("content", "defect", f"{type(error).__name__}: {error}")
        tally.model_calls += self._writer.asks_a_model
        tally.seconds += time.monotonic() - began
        return told

    def _commit(self, batch: Sequence[_Told]) -> None:
        began = time.monotonic()
        done = [(told, told.sentence) for told in batch if told.sentence is not None]
        with self._connection.transaction():
            written = self._write(done)
            for told in batch:
                if told.error is not None:
                    item = str(told.id) if told.error.cause == "content" else SERVICE
                    record_failure(self._connection, stage=STAGE, item=item, error=told.error, day=told.day)
        share = (time.monotonic() - began) / max(1, len(batch))
        for told in batch:
            day = self._report.days[told.day]
            day.seconds += share
            day.failures += told.error is not None
            if told.sentence is not None:
                day.tokens += told.sentence.tokens
                day.rows += told.id in written
                day.characters += len(told.sentence.text) if told.id in written else 0

    def _write(self, done: Sequence[tuple[_Told, Sentence]]) -> set[UUID]:
        """Stores sentences; returns the calls that took theirs. Runs in the caller's transaction."""
        if not done:
            return set()
        # Captures lock the conversation before its messages too, and two passes take theirs in the same order.
        self._connection.execute(
            "SELECT FROM ros_conversations WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE",
            [list({told.conversation_id for told, _ in done})],
        )
        rows = self._connection.execute(
            _sql("write_texts"),
            {
                "writer": self._writer.name,
                "ids": [told.id for told, _ in done],
                "texts": [sentence.text for _, sentence in done],
                "hashes": [told.text_hash for told, _ in done],
            },
        ).fetchall()
        clear_failures(self._connection, stage=STAGE, items=[SERVICE])
        return {row["id"] for row in rows}


def _call(row: dict[str, Any]) -> ToolCall:
    return ToolCall(row["tool_name"], row["tool_args"], row["tool_result"], row["metadata"])


def _select_work(connection: Connection, parameters: dict[str, Any]) -> int:
    """Puts the pending calls into a table of this session; returns how many pages they make."""
    connection.execute("DROP TABLE IF EXISTS ros_tool_text_work")
    connection.execute(
        "CREATE TEMP TABLE ros_tool_text_work (page integer NOT NULL, n bigint NOT NULL, id uuid NOT NULL, "
        "day date NOT NULL, PRIMARY KEY (page, n))"
    )
    connection.execute(_sql("select_work"), parameters)
    connection.execute("ANALYZE ros_tool_text_work")
    row = connection.execute("SELECT coalesce(max(page) + 1, 0) AS pages FROM ros_tool_text_work").fetchone()
    assert row is not None
    return int(row["pages"])


@cache
def _sql(name: str) -> str:
    return Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")
