"""Moves one conversation of an LCM store: its messages, through the one writer, with nobody summarising meanwhile.

What a message becomes is decided in `transcripts/lcm.py`; here are the batches, the locks and the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import psycopg

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.migration.report import MigrationReport
from rivet_pipeline.summaries.level import STAGE_OF
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.lcm import (
    ConversationMapper,
    LeftOut,
    Moved,
    is_archived,
    make_session,
    order_times,
    read_files,
    read_time,
)
from rivet_pipeline.transcripts.lcm_source import LcmSource, Row, read_conversation
from rivet_pipeline.transcripts.readers.shared import SHAPE_ERRORS
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult

#: One transaction holds at most this many messages, or about this many characters.
_BATCH_MESSAGES = 100
_BATCH_CHARACTERS = 4_000_000

#: Errors of one row's content: data, integrity and program limits. Any other is the store's.
_CONTENT_ERRORS = ("22", "23", "54")


@dataclass(slots=True)
class MovedConversation:
    """A conversation as far as it is moved.

    Attributes:
        id: The memory's, None when it is not there (a dry run, or no message).
        agent: Whose it is.
        messages: By the source's message id, the message as it was moved.
        began: The source's time of the conversation, when it has one.
    """

    session: SessionRecord
    began: datetime | None
    id: UUID | None = None
    messages: dict[str, Moved] = field(default_factory=dict)

    @property
    def agent(self) -> str:
        """Whose conversation it is."""
        return self.session.agent


@dataclass(slots=True)
class _Stored:
    """What the memory holds of a conversation."""

    id: UUID | None = None
    messages: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Batch:
    """Messages on their way, whole ones: those of one are written together."""

    moved: list[tuple[str, Moved, int]] = field(default_factory=list)
    characters: int = 0

    def add(self, message_id: str, moved: Moved, parts: int) -> None:
        self.moved.append((message_id, moved, parts))
        self.characters += sum(_size(item) for item in moved.items)

    def is_full(self) -> bool:
        return len(self.moved) >= _BATCH_MESSAGES or self.characters >= _BATCH_CHARACTERS


@contextmanager
def move_messages(
    connection: Connection,
    source: LcmSource,
    conversation: Mapping[str, Any],
    report: MigrationReport,
    *,
    agent: str | None,
    first_day: date,
    advance: Callable[[int], None],
    stand_in: bool = False,
) -> Iterator[MovedConversation]:
    """Moves a conversation's messages and counts them; for the length of the block no stage makes summaries of it.

    The summaries that the source has are to be stored in the block: until then the messages look as if nothing
    covered them. `stand_in`: the source has no such conversation, only messages that name it.
    Raises `psycopg.Error` when the store fails; what was committed stays.
    """
    with ExitStack() as stack:
        yield _Mover(connection, source, conversation, report, agent, first_day, stack).move(advance, stand_in)


class _Mover:
    """One conversation on its way."""

    def __init__(
        self,
        connection: Connection,
        source: LcmSource,
        conversation: Mapping[str, Any],
        report: MigrationReport,
        agent: str | None,
        first_day: date,
        stack: ExitStack,
    ) -> None:
        self._connection = connection
        self._source = source
        self._number = conversation.get("conversation_id")
        self._report = report
        self._first_day = first_day
        self._stack = stack
        self._archived = is_archived(conversation)
        self._now = datetime.now(UTC)
        self._files = read_files(list(read_conversation(source, "large_files", self._number, order=["t.file_id"])))
        session = make_session(conversation, agent=agent, files=self._files, session_file=self._session_file())
        self._result = MovedConversation(session, read_time(conversation.get("created_at"), self._now))
        self._before = find_stored(connection, session)
        self._told = False

    def move(self, advance: Callable[[int], None], stand_in: bool) -> MovedConversation:
        """Moves all messages, in the source's order."""
        if self._before.id is not None:
            self._enter(self._before.id)
            # Whoever had it until now may have moved more of it.
            self._before = find_stored(self._connection, self._result.session)
        batch = _Batch()
        for message_id, outcome, parts in self._outcomes():
            advance(1)
            if isinstance(outcome, LeftOut):
                self._leave_out(outcome.reason, parts)
                continue
            if stand_in:
                outcome = replace(
                    outcome, notes=(*outcome.notes, "its conversation is missing, kept in one of its own")
                )
            batch.add(message_id, outcome, parts)
            # One message alone is never summarised, so the first is written before anybody can be kept out.
            if batch.is_full() or self._result.id is None:
                self._write(batch.moved)
                batch = _Batch()
        self._write(batch.moved)
        self._close()
        if not stand_in:
            self._count_conversation()
        self._count_files()
        return self._result

    def _outcomes(self) -> Iterator[tuple[str, Moved | LeftOut, int]]:
        order = ["t.seq", "t.message_id"]
        dated = {"created_at"} & self._source.tables["messages"]
        times = order_times(
            [
                read_time(row.get("created_at"), self._now)
                for row in read_conversation(self._source, "messages", self._number, columns=dated, order=order)
            ]
            if dated
            else [],
            self._result.began,
        )
        mapper = ConversationMapper(self._result.session, self._files)
        parts = _Parts(self._source, self._number)
        rows = read_conversation(self._source, "messages", self._number, order=order)
        for index, row in enumerate(rows):
            mine = parts.of(row["message_id"])
            placed = times[index] if index < len(times) else self._result.began
            try:
                outcome = self._with_time(mapper.take(row, mine, placed), row, placed)
            except SHAPE_ERRORS as error:
                outcome = LeftOut(f"of a shape that is not understood ({type(error).__name__})")
            yield str(row["message_id"]), outcome, len(mine)

    def _with_time(self, outcome: Moved | LeftOut, row: Row, placed: datetime | None) -> Moved | LeftOut:
        """The outcome, with the source's own time in its metadata when it could not be kept."""
        own = row.get("created_at")
        stated = read_time(own, self._now)
        if isinstance(outcome, LeftOut) or (stated is not None and stated == placed):
            return outcome
        note = "time absent or absurd" if stated is None else "time contradicts the order"
        about = {"time_source": "position", **({} if own is None else {"event_ts": str(own)[:100]})}
        for item in outcome.items:
            if isinstance(item, MessageRecord) and isinstance(item.metadata, dict):
                item.metadata.update(about)
        return replace(outcome, notes=(*outcome.notes, f"{note}, placed by order"))

    def _write(self, messages: list[tuple[str, Moved, int]]) -> None:
        if not messages:
            return
        if not self._report.dry_run:
            try:
                self._store(messages)
            except (psycopg.Error, RecursionError) as error:
                reason = error.sqlstate or "" if isinstance(error, psycopg.Error) else "too deeply nested"
                if isinstance(error, psycopg.Error) and not reason.startswith(_CONTENT_ERRORS):
                    raise
                if len(messages) == 1:
                    self._leave_out(f"refused by the store ({reason})", messages[0][2])
                for message in messages if len(messages) > 1 else []:
                    self._write([message])
                return
        for message_id, moved, parts in messages:
            known = message_id in self._before.messages
            self._result.messages[message_id] = moved
            self._report.messages.add(known=known)
            self._report.parts.add(known=known, number=parts)
            self._report.messages.notes.update(dict.fromkeys(moved.notes, 1))

    def _store(self, messages: list[tuple[str, Moved, int]]) -> None:
        session = self._result.session
        if self._told:
            session = SessionRecord(session.session_key, session.agent, session.channel)
        items = [item for _, moved, _ in messages for item in moved.items]
        result = write_batch(self._connection, session, items, first_day=self._first_day)
        expected = sum(
            isinstance(item, MessageRecord)
            for message_id, moved, _ in messages
            if message_id not in self._before.messages
            for item in moved.items
        )
        if result.new > expected:
            self._report.messages.notes["changed in the source since, kept beside the former text"] += (
                result.new - expected
            )
        self._told = True
        if self._result.id is None:
            self._enter(result.conversation_id)

    def _enter(self, conversation_id: UUID) -> None:
        self._result.id = conversation_id
        if not self._report.dry_run:
            self._stack.enter_context(_kept_to_ourselves(self._connection, conversation_id))

    def _leave_out(self, reason: str, parts: int) -> None:
        self._report.messages.left_out[reason] += 1
        if parts:
            self._report.parts.left_out["its message was not moved"] += parts

    def _close(self) -> None:
        """Counts what came of it; closes the conversation when the source has, unless others write into it too."""
        session, found = self._result.session, self._before
        if self._archived and self._result.id and not self._report.dry_run and session.session_key.startswith("lcm:"):
            bare = SessionRecord(session.session_key, session.agent, session.channel)
            write_batch(self._connection, bare, [], first_day=self._first_day, finalize=True)
        if not self._report.dry_run:
            found = find_stored(self._connection, session)
            self._report.messages.found(len(found.messages & self._result.messages.keys()))
            self._report.files.found(len(found.files & self._files.keys()))
        self._report.messages.before += len(self._before.messages & self._result.messages.keys())
        self._report.files.before += len(self._before.files & self._files.keys())

    def _count_files(self) -> None:
        if self._result.messages:
            known = len(self._before.files & self._files.keys())
            self._report.files.known += known
            self._report.files.new += len(self._files) - known
        elif self._files:
            self._report.files.left_out["its conversation has no message"] += len(self._files)

    def _count_conversation(self) -> None:
        if self._result.messages:
            self._report.conversations.add(known=self._before.id is not None)
        else:
            self._report.conversations.left_out["no message in it"] += 1
        self._report.conversations.before += int(self._before.id is not None)
        if not self._report.dry_run:
            self._report.conversations.found(int(self._result.id is not None))

    def _session_file(self) -> str | None:
        table, columns = "conversation_bootstrap_state", {"session_file_path"}
        rows = list(read_conversation(self._source, table, self._number, columns=columns))
        return str(rows[0]["session_file_path"]) if rows and rows[0]["session_file_path"] else None


class _Parts:
    """The parts of a conversation's messages, read beside the messages in the same order."""

    def __init__(self, source: LcmSource, conversation: Any) -> None:
        self._rows = read_conversation(
            source,
            "message_parts",
            conversation,
            via=("messages", "message_id"),
            order=["o.seq", "o.message_id", "t.ordinal", "t.part_id"],
        )
        self._next = next(self._rows, None)

    def of(self, message_id: Any) -> list[Row]:
        """The parts of the next message that has any."""
        found = []
        while self._next is not None and self._next["message_id"] == message_id:
            found.append(self._next)
            self._next = next(self._rows, None)
        return found


def find_stored(connection: Connection, session: SessionRecord) -> _Stored:
    """What the memory holds of a session that came from LCM."""
    rows = connection.execute(
        """
        SELECT c.id, c.settings, v.lcm_id
        FROM ros_conversations AS c
        LEFT JOIN ros_messages AS m ON m.conversation_id = c.id AND m.metadata ? 'lcm_id'
        LEFT JOIN LATERAL (VALUES (m.metadata ->> 'lcm_id'), (m.metadata ->> 'lcm_result_id')) AS v (lcm_id) ON true
        WHERE c.session_hash = md5(%s)::uuid AND c.agent = %s
        """,
        [session.session_key, session.agent],
    ).fetchall()
    if not rows:
        return _Stored()
    (key,) = session.settings
    files = (rows[0]["settings"].get(key) or {}).get("files") or {}
    return _Stored(rows[0]["id"], {row["lcm_id"] for row in rows if row["lcm_id"]}, set(files))


@contextmanager
def _kept_to_ourselves(connection: Connection, conversation_id: UUID) -> Iterator[None]:
    """Keeps the stages that make summaries away from a conversation, by the locks that they take themselves."""
    keys = [(f"ros_{stage}", str(conversation_id)) for stage in STAGE_OF.values()]
    for key in keys:
        connection.execute("SELECT pg_advisory_lock(hashtext(%s), hashtext(%s))", key)
    try:
        yield
    finally:
        if not connection.closed:
            for key in keys:
                connection.execute("SELECT pg_advisory_unlock(hashtext(%s), hashtext(%s))", key)


def _size(item: MessageRecord | ToolResult) -> int:
    said = len(item.content) if isinstance(item, MessageRecord) else 0
    return said + len(item.tool_result or "") + 500
