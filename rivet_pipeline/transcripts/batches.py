"""Collects what a reader gives into batches by conversation and writes them; one bad row never stops its neighbours.

Which sources are read stands in `importer.py` and `watch.py`; how a batch is stored in `ingest.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import Any

import psycopg

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.ingest import preview_batch, write_batch
from rivet_pipeline.transcripts.ingest_rows import Extra
from rivet_pipeline.transcripts.projects import planned_settings
from rivet_pipeline.transcripts.records import (
    Message,
    MessageRecord,
    ReadItem,
    SessionRecord,
    SessionUpdate,
    ToolResult,
)
from rivet_pipeline.transcripts.reports import FileReport

#: One transaction holds at most this many items, or about this many characters, of one conversation.
BATCH_ITEMS = 200
BATCH_CHARACTERS = 4_000_000

#: A file that mixes many conversations keeps at most this many of them waiting.
_OPEN_CONVERSATIONS = 64

#: Errors of one row's content: data, integrity and program limits. Any other is the store's.
_CONTENT_ERRORS = ("22", "23", "54")

#: What a value that nobody thought of raises on its way into the store.
_OUR_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(slots=True)
class _Waiting:
    """What waits to be written of one conversation."""

    session: SessionRecord
    items: list[MessageRecord | ToolResult] = field(default_factory=list)
    characters: int = 0
    #: Whether the title or the settings hold something that was not written yet.
    changed: bool = True
    has_messages: bool = False
    #: What was found out about the session's folder.
    planned: Extra = field(default_factory=Extra)


class Batches:
    """Collects a source's items by conversation and writes them in batches, each conversation in the source's order.

    `undated` is the time of conversations whose messages tell none: the source's last change. With `dry_run` the
    batches are held against the store and nothing is written; `redact` is that of `write_batch`.
    Raises `psycopg.Error` when the store fails; what was written by then stays.
    """

    def __init__(
        self,
        connection: Connection,
        first_day: date,
        report: FileReport,
        *,
        undated: datetime | None = None,
        dry_run: bool = False,
        redact: bool = False,
    ) -> None:
        self._connection = connection
        self._first_day = first_day
        self._report = report
        self._undated = undated
        self._write_batch = preview_batch if dry_run else partial(write_batch, redact=redact)
        self._waiting: dict[str, _Waiting] = {}
        self._calls: set[int] = set()

    def take(self, item: ReadItem) -> None:
        """Keeps an item until its batch is full."""
        if not isinstance(item, Message | ToolResult | SessionUpdate):
            return
        waiting = self._of(item.session)
        if isinstance(item, SessionUpdate):
            return
        record = item.record if isinstance(item, Message) else item
        waiting.items.append(record)
        waiting.has_messages = True
        waiting.characters += _size(record)
        if len(waiting.items) >= BATCH_ITEMS or waiting.characters >= BATCH_CHARACTERS:
            self._write(waiting)

    def flush(self) -> None:
        """Writes what is left."""
        for waiting in self._waiting.values():
            self._write(waiting)

    def _of(self, session: SessionRecord) -> _Waiting:
        waiting = self._waiting.get(session.session_key)
        if waiting is None:
            if len(self._waiting) >= _OPEN_CONVERSATIONS:
                self._write(self._waiting.pop(next(iter(self._waiting))))
            waiting = self._waiting[session.session_key] = _Waiting(session)
        elif session is not waiting.session and _adds(session, waiting.session):
            waiting.session = _merged(waiting.session, session)
            waiting.changed = True
        return waiting

    def _write(self, waiting: _Waiting) -> None:
        # A conversation is made by its first message: a title alone makes none.
        if not waiting.items and not (waiting.changed and waiting.has_messages):
            return
        self._report.conversations.add(waiting.session.session_key)
        if waiting.changed:
            waiting.planned = Extra(fallback_settings=planned_settings(waiting.session.settings), undated=self._undated)
        self._store(waiting.session, waiting.items, waiting.planned)
        waiting.items, waiting.characters, waiting.changed = [], 0, False

    def _store(self, session: SessionRecord, items: Sequence[MessageRecord | ToolResult], planned: Extra) -> None:
        try:
            result = self._write_batch(self._connection, session, items, first_day=self._first_day, extra=planned)
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith(_CONTENT_ERRORS):
                raise
            self._one_by_one(session, items, planned, f"refused by the store ({error.sqlstate})")
            return
        except _OUR_ERRORS as error:
            self._one_by_one(session, items, planned, f"can not be stored ({type(error).__name__})")
            return
        self._report.new += result.new
        self._report.known += max(self._messages(session, items) - result.new, 0)

    def _one_by_one(
        self, session: SessionRecord, items: Sequence[MessageRecord | ToolResult], planned: Extra, reason: str
    ) -> None:
        """Writes the items of a refused batch each on its own, so that only those at fault are left out."""
        if len(items) == 1:
            self._report.damage(reason)
            return
        for item in items:
            self._store(session, [item], planned)

    def _messages(self, session: SessionRecord, items: Sequence[MessageRecord | ToolResult]) -> int:
        """The messages among the items: a result counts as one only when its call is not in the file."""
        count = 0
        for item in items:
            if isinstance(item, MessageRecord):
                count += 1
                if item.role == "tool":
                    self._calls.add(hash((session.session_key, item.event_id)))
            elif hash((session.session_key, item.event_id)) not in self._calls:
                count += 1
        return count


def _adds(new: SessionRecord, old: SessionRecord) -> bool:
    """Whether the new record says something that the old one does not."""
    if new.title and new.title != old.title:
        return True
    return any(key not in old.settings or old.settings[key] != value for key, value in new.settings.items())


def _merged(old: SessionRecord, new: SessionRecord) -> SessionRecord:
    settings = {**old.settings, **new.settings}
    return SessionRecord(
        new.session_key, new.agent, new.channel, new.title or old.title, settings, new.task_id or old.task_id
    )


def _size(record: MessageRecord | ToolResult) -> int:
    size = len(record.tool_result or "")
    if isinstance(record, MessageRecord):
        size += len(record.content) + (_json_size(record.tool_args) if record.tool_args else 0)
    return size + 500


def _json_size(value: Any) -> int:
    size = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            size += sum(map(len, map(str, item)))
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        else:
            size += 8
    return size
