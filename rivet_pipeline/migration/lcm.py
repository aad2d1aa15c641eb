"""Moves a Lossless Context Management store into the memory: conversation by conversation, each whole.

A conversation's messages go first, then in one transaction its summaries, then its vectors. Everything has the same
identity whenever it is moved, so a migration that was killed is simply started again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import psycopg

from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.migration.lcm_messages import move_messages
from rivet_pipeline.migration.lcm_summaries import move_summaries
from rivet_pipeline.migration.lcm_vectors import VectorMover, count_vectors
from rivet_pipeline.migration.report import MigrationReport, Tally
from rivet_pipeline.transcripts.lcm_source import (
    LcmSource,
    count_orphans,
    count_rows,
    missing_conversations,
    open_source,
    read_rows,
)

#: Called with the messages done so far and the messages there are.
Progress = Callable[[int, int], None]


def migrate_lcm(
    url: str,
    location: str,
    *,
    first_day: date,
    agent: str | None = None,
    embedding_model: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MigrationReport:
    """Moves what the LCM store at a location (a path or postgresql:// address) holds, and says what it did.

    Args:
        url: The memory's address.
        location: The LCM store. Nothing is written there.
        first_day: The first partition (UTC).
        agent: Whose the conversations are, instead of what the source says.
        embedding_model: The model of vectors whose source does not name it.
        dry_run: Only count what would be done.
        progress: Told after each message.

    Raises:
        LcmSourceError: When the source can not be read or is no LCM store.
        StoreUnavailableError: When the memory fails. What was committed by then stays.
    """
    report = MigrationReport(source=location, dry_run=dry_run)
    try:
        with open_source(location) as source, connect(url, application_name="rivet migrate-lcm") as connection:
            report.source = source.name
            _Migration(connection, source, report, first_day, agent, embedding_model, progress).run()
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise StoreUnavailableError(
            f"the migration stopped because the memory's store failed: {reason}. Run it again: what was moved stays."
        ) from error
    return report


class _Migration:
    """One run over one source."""

    def __init__(
        self,
        connection: Connection,
        source: LcmSource,
        report: MigrationReport,
        first_day: date,
        agent: str | None,
        embedding_model: str | None,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._source = source
        self._report = report
        self._first_day = first_day
        self._agent = agent
        self._progress = progress
        self._vectors = VectorMover(connection, source, report, embedding_model)
        self._summaries: dict[str, Any] = {}
        self._done = 0

    def run(self) -> None:
        """Moves everything; conversations in the source's order, then messages whose conversation is missing."""
        self._count_source()
        for conversation in read_rows(self._source, "conversations", order=["t.conversation_id"]):
            self._move(conversation, stand_in=False)
        for number in missing_conversations(self._source):
            self._move({"conversation_id": number}, stand_in=True)
        self._vectors.move_tables(self._summaries)
        self._count_lost()

    def _move(self, conversation: dict[str, Any], *, stand_in: bool) -> None:
        with move_messages(
            self._connection,
            self._source,
            conversation,
            self._report,
            agent=self._agent,
            first_day=self._first_day,
            advance=self._advance,
            stand_in=stand_in,
        ) as moved:
            number = conversation["conversation_id"]
            summaries = move_summaries(self._connection, self._source, number, moved, self._report)
            self._vectors.move_conversation(number, moved, summaries)
            self._summaries.update(summaries)

    def _advance(self, messages: int) -> None:
        self._done += messages
        if self._progress is not None:
            self._progress(self._done, self._report.messages.source)

    def _count_source(self) -> None:
        """What the source holds, by its own counts: what is met on the way is held against them."""
        for tally, table in self._tables():
            tally.source = count_rows(self._source, table)

    def _tables(self) -> list[tuple[Tally, str]]:
        report = self._report
        return [
            (report.conversations, "conversations"),
            (report.messages, "messages"),
            (report.parts, "message_parts"),
            (report.files, "large_files"),
            (report.summaries, "summaries"),
            (report.sources, "summary_messages"),
            (report.parents, "summary_parents"),
        ]

    def _count_lost(self) -> None:
        """Rows that belong to nothing, and vectors that were not met."""
        for tally, table, owner, key in (
            (self._report.parts, "message_parts", "messages", "message_id"),
            (self._report.sources, "summary_messages", "summaries", "summary_id"),
            (self._report.parents, "summary_parents", "summaries", "summary_id"),
        ):
            if lost := count_orphans(self._source, table, owner, key):
                tally.left_out[f"its {'message' if owner == 'messages' else 'summary'} is missing"] += lost
        known = set(missing_conversations(self._source))
        if lost := count_orphans(self._source, "large_files", "conversations", "conversation_id", but=known):
            self._report.files.left_out["its conversation is missing"] += lost
        met = sum(tally.source for tally in self._report.embeddings.values())
        if (there := count_vectors(self._source)) > met:
            tally = self._report.embeddings.setdefault("lcm", Tally())
            tally.source += there - met
            tally.left_out["not readable, or of nothing that is moved"] += there - met
