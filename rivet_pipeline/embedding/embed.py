"""The embedding stages: pending messages, summaries and wiki pages in, vectors out.

What a text is stands in `compose.py`, which model is used in `registry.py`; here is the pass over what is pending:
pages of owners, batches of texts, one transaction a page. A text that fails is set apart and recorded; a service that
fails ends the pass, with one entry in the ledger under the item `service`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from rivet_pipeline.db.ledger import SERVICE, clear_failures, mark_seen, record_failure
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.embedding.compose import Composed, Piece, chunks, compose_message, compose_summary, pieces
from rivet_pipeline.embedding.registry import RegisteredModel, index_kept, promote_filling_model, register_model
from rivet_pipeline.models.protocols import Embedder, ModelError, Vectors
from rivet_pipeline.stages import Stage, StageReport

#: Owners read, embedded and committed together.
PAGE = 250

#: Texts in one call of the model hold at most this many characters together, unless one alone holds more.
BATCH_CHARACTERS = 200_000

#: A piece that the model calls too large is halved down to this many characters.
LEAST_PIECE = 200


@dataclass(frozen=True, slots=True)
class _Plan:
    """What differs between the stages."""

    stage: Stage
    kind: Literal["message", "summary", "topic"]
    select: str
    load: str
    compose: Callable[[dict[str, Any]], Composed]


_MESSAGES = _Plan(
    "message_embeddings",
    "message",
    "select_message_work",
    "load_messages",
    lambda row: compose_message(row["content"], row["tool_name"], row["tool_args"], row["tool_result"]),
)
_SUMMARIES = _Plan(
    "summary_embeddings",
    "summary",
    "select_summary_work",
    "load_summaries",
    lambda row: compose_summary(row["content"]),
)
_TOPICS = _Plan(
    "wiki_embeddings",
    "topic",
    "select_topic_work",
    "load_topics",
    lambda row: compose_summary(row["content"]),
)


@dataclass(slots=True)
class _Owner:
    """A message, summary or page on its way through a pass."""

    id: UUID
    day: date
    text_hash: UUID
    pieces: list[Piece]
    vectors: list[tuple[Piece, NDArray[np.float32]]] = field(default_factory=list)
    waiting: int = 0
    error: ModelError | None = None

    @property
    def done(self) -> bool:
        return self.error is None and self.waiting == 0


@dataclass(frozen=True, slots=True)
class _Part:
    """One text of one owner."""

    owner: _Owner
    piece: Piece


def embed_messages(
    pool: Pool, embedder: Embedder, *, days: Sequence[date] | None, chars_per_chunk: int = 2000, batch: int = 64
) -> StageReport:
    """Embeds the pending messages of the conversations of some days.

    Args:
        pool: Needs two free connections.
        embedder: The model; it is registered and becomes the one being filled.
        days: UTC days on which the conversations began; None: all.
        chars_per_chunk: The longest piece of text that gets one vector, in characters.
        batch: The most texts in one call of the model.

    Returns:
        What was done, by day: `rows` are messages, `characters` those given to the model.
    """
    return _run(pool, embedder, _MESSAGES, days, chars_per_chunk, batch)


def embed_summaries(
    pool: Pool, embedder: Embedder, *, days: Sequence[date] | None, chars_per_chunk: int = 2000, batch: int = 64
) -> StageReport:
    """Embeds the pending summaries of every level; the arguments and the report are those of `embed_messages`."""
    return _run(pool, embedder, _SUMMARIES, days, chars_per_chunk, batch)


def embed_topics(pool: Pool, embedder: Embedder, *, chars_per_chunk: int = 2000, batch: int = 64) -> StageReport:
    """Embeds the pending pages of the wiki. As `embed_messages`; the days are those of the pages' last change."""
    return _run(pool, embedder, _TOPICS, None, chars_per_chunk, batch)


def announce_model(connection: Connection, embedder: Embedder) -> None:
    """Makes what the embedder's model has not embedded pending. Cheap when the model is announced already.

    Nothing is pending for a model that nobody has registered, so whoever watches the pending views calls this first. A
    service that does not answer stands in the ledger, and is asked again when its time has come.
    """
    row = connection.execute("SELECT filling FROM ros_embedding_models WHERE name = %s", [embedder.name]).fetchone()
    if (row is not None and row["filling"]) or _service_rests(connection, _MESSAGES.stage):
        return
    try:
        register_model(connection, embedder)
    except ModelError as error:
        with connection.transaction():
            record_failure(connection, stage=_MESSAGES.stage, item=SERVICE, error=error, day=datetime.now(UTC).date())
        return
    with connection.transaction():
        clear_failures(connection, stage=_MESSAGES.stage, items=[SERVICE])


def _run(
    pool: Pool, embedder: Embedder, plan: _Plan, days: Sequence[date] | None, size: int, batch: int
) -> StageReport:
    report = StageReport(plan.stage, model=embedder.name)
    with pool.connection() as reader:
        if _service_rests(reader, plan.stage):
            return report
        try:
            model = register_model(reader, embedder)
        except ModelError as error:
            day = days[0] if days else datetime.now(UTC).date()
            _record_service_failure(reader, report, error, day)
            return report
        unseen = _unseen(reader, days) if plan.kind == "message" else {}
        left: dict[UUID, int] = {}
        owners = _select_work(reader, plan, model, days)
        try:
            with index_kept(reader, model, owners):

                def finished(before: date) -> None:
                    done = {one: unseen.pop(one)[1] for one in [one for one in unseen if unseen[one][0] < before]}
                    for one in _mark_finished(reader, model, done):
                        del done[one]
                    # What can not be marked now may be at the end of the pass.
                    left.update(done)

                stopped = _Pass(pool, reader, embedder, plan, model, report, size, batch, finished).drain(owners)
        finally:
            reader.execute("DROP TABLE ros_embedding_work")
        _refresh_statistics(reader, report.rows)
        if not stopped:
            _mark_finished(reader, model, left | {one: revision for one, (_, revision) in unseen.items()})
        promote_filling_model(reader)
    return report


@dataclass(slots=True)
class _Pass:
    """One pass of a stage. The main thread embeds; another writes what is ready, so that the model does not wait."""

    pool: Pool
    reader: Connection
    embedder: Embedder
    plan: _Plan
    model: RegisteredModel
    report: StageReport
    size: int
    batch: int
    #: Told when everything of the days before one is written.
    finished: Callable[[date], None]

    def drain(self, owners: int) -> bool:
        """Works through the selected owners. Returns whether the service stopped it."""
        pending: deque[Future[None]] = deque()
        days: deque[date] = deque()
        latest = date.min
        stopped = False
        with ThreadPoolExecutor(1, thread_name_prefix="embedding-writer") as writer:
            for after in range(0, owners, PAGE):
                page = self._load(after)
                error = self._embed(page)
                pending.append(writer.submit(self._write, page))
                if error is not None:
                    day = next((owner.day for owner in page if not owner.done and owner.error is None), page[0].day)
                    pending.append(writer.submit(self._stop, error, day))
                    stopped = True
                    break
                days.append(page[-1].day if page else date.min)
                if len(pending) > 2:
                    pending.popleft().result()
                    day = days.popleft()
                    if day > latest:
                        latest = day
                        self.finished(day)
            for written in pending:
                written.result()
        return stopped

    def _load(self, after: int) -> list[_Owner]:
        rows = self.reader.execute(
            _sql(self.plan.load), {"after": after, "upto": after + PAGE, "model": self.model.id}
        ).fetchall()
        owners = []
        for row in rows:
            parts = pieces(self.plan.compose(row), self.size)
            owners.append(_Owner(row["id"], row["day"], row["text_hash"], parts, waiting=len(parts)))
        return owners

    def _embed(self, page: Sequence[_Owner]) -> ModelError | None:
        """Fills in the owners' vectors or errors. Returns the service's failure, if that ended it."""
        stack = self._batches([_Part(owner, piece) for owner in page for piece in owner.pieces])[::-1]
        while stack:
            parts = [part for part in stack.pop() if part.owner.error is None]
            if not parts:
                continue
            try:
                vectors = self._call(parts)
            except ModelError as error:
                if error.cause != "content":
                    return error
                stack.extend(self._smaller(parts, error))
                continue
            for part, vector in zip(parts, vectors, strict=True):
                part.owner.vectors.append((part.piece, vector))
                part.owner.waiting -= 1
        return None

    def _batches(self, parts: Sequence[_Part]) -> list[list[_Part]]:
        batches: list[list[_Part]] = []
        characters = 0
        for part in parts:
            length = len(part.piece.text)
            if not batches or len(batches[-1]) >= self.batch or characters + length > BATCH_CHARACTERS:
                batches.append([])
                characters = 0
            batches[-1].append(part)
            characters += length
        return batches

    def _call(self, parts: Sequence[_Part]) -> Vectors:
        started = time.monotonic()
        characters = sum(len(part.piece.text) for part in parts)
        try:
            vectors = self.embedder.embed([part.piece.text for part in parts])
        finally:
            self.report.days[parts[0].owner.day].model_calls += 1
            seconds = time.monotonic() - started
            for part in parts:
                day = self.report.days[part.owner.day]
                day.characters += len(part.piece.text)
                day.seconds += seconds * len(part.piece.text) / max(1, characters)
        if vectors.shape != (len(parts), self.model.dimensions):
            raise ModelError(
                "permanent",
                "wrong-width",
                f"{self.embedder.name} answers vectors of {vectors.shape[-1]} dimensions, its stored ones have "
                f"{self.model.dimensions}; give the new model a name of its own (RIVETOS_EMBED_MODEL)",
            )
        return vectors

    def _smaller(self, parts: list[_Part], error: ModelError) -> list[list[_Part]]:
        """What to try instead of a batch that failed for its content; the last one is tried first."""
        if len(parts) > 1:
            half = len(parts) // 2
            return [parts[half:], parts[:half]]
        part = parts[0]
        length = len(part.piece.text)
        if error.name != "too-large" or length < 2 * LEAST_PIECE:
            part.owner.error = error
            return []
        halves = _halve(part)
        part.owner.waiting += len(halves) - 1
        return [[half] for half in reversed(halves)]

    def _write(self, page: Sequence[_Owner]) -> None:
        done = [owner for owner in page if owner.done]
        failed = [owner for owner in page if owner.error is not None]
        if not done and not failed:
            return
        stage = self.plan.stage
        with self.pool.connection() as connection, connection.transaction():
            if done:
                self._store(connection, done)
                clear_failures(connection, stage=stage, items=[SERVICE, *(str(owner.id) for owner in done)])
            for owner in failed:
                if owner.error is not None:
                    record_failure(connection, stage=stage, item=str(owner.id), error=owner.error, day=owner.day)
        for owner in done:
            self.report.days[owner.day].rows += 1
        for owner in failed:
            self.report.days[owner.day].failures += 1

    def _store(self, connection: Connection, owners: Sequence[_Owner]) -> None:
        connection.execute(_sql("create_incoming"))
        columns = "owner_id, chunk, content_hash, char_start, char_end, embedding"
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY ros_embedding_incoming ({columns}) FROM STDIN (FORMAT binary)") as copy,
        ):
            copy.set_types(["uuid", "int4", "uuid", "int4", "int4", "halfvec"])
            for owner in owners:
                ordered = sorted(owner.vectors, key=lambda pair: (pair[0].start, pair[0].end))
                for chunk, (piece, vector) in enumerate(ordered):
                    copy.write_row((owner.id, chunk, owner.text_hash, piece.start, piece.end, HalfVector(vector)))
        parameters = {"model": self.model.id, "kind": self.plan.kind}
        connection.execute(_sql("insert_vectors"), parameters)
        connection.execute(_sql("delete_stale_vectors"), parameters)

    def _stop(self, error: ModelError, day: date) -> None:
        with self.pool.connection() as connection:
            _record_service_failure(connection, self.report, error, day, stage=self.plan.stage)


def _halve(part: _Part) -> list[_Part]:
    """The part's text in two or three; each keeps its share of the span that the whole stands for."""
    piece = part.piece
    length = len(piece.text)
    source = piece.end - piece.start
    halves = []
    for start, end in chunks(piece.text, (length + 1) // 2):
        text = piece.text[start:end].strip()
        if text:
            span = (piece.start + source * start // length, piece.start + source * end // length)
            halves.append(_Part(part.owner, Piece(text, *span)))
    return halves


def _service_rests(connection: Connection, stage: Stage) -> bool:
    row = connection.execute("SELECT ros_is_blocked(%s, %s) AS rests", [stage, SERVICE]).fetchone()
    return bool(row and row["rests"])


def _record_service_failure(
    connection: Connection, report: StageReport, error: ModelError, day: date, *, stage: Stage | None = None
) -> None:
    with connection.transaction():
        record_failure(connection, stage=stage or report.stage, item=SERVICE, error=error, day=day)
    report.days[day].failures += 1


def _unseen(connection: Connection, days: Sequence[date] | None) -> dict[UUID, tuple[date, int]]:
    """The conversations that this pass may finish: day, and revision before the work is selected."""
    rows = connection.execute(
        """
        SELECT conversation_id, day, revision FROM ros_unseen_conversations
        WHERE stage = 'message_embeddings' AND (%(days)s::date[] IS NULL OR day = ANY(%(days)s::date[]))
        """,
        {"days": None if days is None else list(days)},
    ).fetchall()
    return {row["conversation_id"]: (row["day"], row["revision"]) for row in rows}


def _select_work(connection: Connection, plan: _Plan, model: RegisteredModel, days: Sequence[date] | None) -> int:
    connection.execute("DROP TABLE IF EXISTS ros_embedding_work")
    connection.execute(
        "CREATE TEMP TABLE ros_embedding_work (n bigint PRIMARY KEY, id uuid NOT NULL, day date NOT NULL)"
    )
    parameters = {"model": model.id, "days": None if days is None else list(days)}
    owners = connection.execute(_sql(plan.select), parameters).rowcount
    connection.execute("ANALYZE ros_embedding_work")
    return owners


def _refresh_statistics(connection: Connection, written: int) -> None:
    """Before autovacuum has looked at a young table, the planner takes it for empty and joins it row by row."""
    row = connection.execute(
        "SELECT reltuples < %s AS outdated FROM pg_class WHERE oid = 'ros_embeddings'::regclass", [written]
    ).fetchone()
    if row is not None and row["outdated"]:
        connection.execute("ANALYZE ros_embeddings")


def _mark_finished(connection: Connection, model: RegisteredModel, unseen: dict[UUID, int]) -> list[UUID]:
    """Marks those of the conversations in which nothing is left to do; returns them."""
    if not unseen:
        return []
    with connection.transaction():
        # Another model's registration waits, so that it does not clear the marks before these are made.
        connection.execute("SELECT FROM ros_embedding_models WHERE id = %s AND filling FOR SHARE", [model.id])
        rows = connection.execute(
            _sql("find_finished_conversations"),
            {"model": model.id, "conversations": list(unseen), "revisions": list(unseen.values())},
        ).fetchall()
        for row in rows:
            mark_seen(
                connection,
                stage="message_embeddings",
                conversation_id=row["conversation_id"],
                revision=row["revision"],
            )
    return [row["conversation_id"] for row in rows]


@cache
def _sql(name: str) -> str:
    return Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")
