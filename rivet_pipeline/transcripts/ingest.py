"""Writes captured messages into the store: the one writer that every way in goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What one batch did. `known` were there already; `filled` are late tool results that found their call."""

    conversation_id: UUID
    new: int
    known: int
    filled: int


def write_batch(
    connection: Connection,
    session: SessionRecord,
    items: Sequence[MessageRecord | ToolResult],
    *,
    first_day: date,
    finalize: bool = False,
    cap: int | None = None,
    now: datetime | None = None,
) -> WriteResult:
    """Stores a batch of one conversation in one transaction. Not there yet."""
    raise RuntimeError
