"""BM25's statistics: how many documents hold each term, how many documents there are and how long.

Counted from the stored tsvectors of messages and summaries, onwards from a watermark. A text that is filled or made
again after it was counted is not counted again (a rebuild does that): the figures are statistics, not an index, and a
row is found whether or not it is counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.types import Source

#: Any fixed number: it names our lock among the advisory locks of the database.
_LOCK = 7_266_005_175

#: Fewer uncounted rows than this wait for the hourly refresh.
LEAST_BEHIND = 500

#: Rows that one statement counts; its hash table must fit in memory.
_SLICE = 20_000

#: How long to wait for writers that were there first, and how often to look.
_WRITERS_SECONDS = 10.0
_LOOK_SECONDS = 0.05

#: Lengths are in bytes, as `bm25.sql` has them.
_TABLES: dict[Source, tuple[str, str, str]] = {
    "message": ("ros_messages", "last_message_seq", "octet_length(content) + coalesce(octet_length(tool_result), 0)"),
    "summary": ("ros_summaries", "last_summary_seq", "octet_length(content)"),
}


@dataclass(frozen=True, slots=True)
class LexiconFigures:
    """What one refresh did and what stands now.

    `mean_length` is in bytes of text, over documents that hold a word; `behind` is how many rows are not counted yet.
    """

    messages: int
    summaries: int
    documents: int
    terms: int
    mean_length: float
    behind: int
    refreshed_at: datetime | None


def pending_lexicon(connection: Connection) -> int:
    """How many messages and summaries are not counted yet."""
    row = connection.execute(
        """SELECT (SELECT count(*) FROM ros_messages WHERE seq > c.last_message_seq)
                + (SELECT count(*) FROM ros_summaries WHERE seq > c.last_summary_seq) AS behind
           FROM ros_corpus AS c"""
    ).fetchone()
    return 0 if row is None else int(row["behind"])


def is_due(connection: Connection) -> bool:
    """Whether so much is uncounted that ranks may suffer: anything at first, then 500 rows and a twentieth of all."""
    row = connection.execute("SELECT documents FROM ros_corpus").fetchone()
    documents = row["documents"] if row else 0
    return pending_lexicon(connection) >= (max(LEAST_BEHIND, documents // 20) if documents else 1)


def refresh_lexicon(connection: Connection, *, rebuild: bool = False) -> LexiconFigures:
    """Counts what came since the last time, in one transaction; `rebuild` counts everything again.

    Two at once wait for one another and count nothing twice. Rows of transactions that are still open are left for the
    next time, with everything after them, after ten seconds of waiting for them.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if rebuild:
            connection.execute("DELETE FROM ros_lexicon")
            connection.execute(
                "UPDATE ros_corpus SET documents = 0, total_length = 0, last_message_seq = 0, last_summary_seq = 0"
            )
        messages = _count(connection, "message")
        summaries = _count(connection, "summary")
        if messages or summaries or rebuild:
            connection.execute("UPDATE ros_corpus SET refreshed_at = now()")
        row = connection.execute(
            "SELECT documents, total_length, refreshed_at, (SELECT count(*) FROM ros_lexicon) AS terms FROM ros_corpus"
        ).fetchone()
        assert row is not None  # the migration puts the one row there
        return LexiconFigures(
            messages=messages,
            summaries=summaries,
            documents=row["documents"],
            terms=row["terms"],
            mean_length=row["total_length"] / row["documents"] if row["documents"] else 0.0,
            behind=pending_lexicon(connection),
            refreshed_at=row["refreshed_at"],
        )


def _count(connection: Connection, source: Source) -> int:
    table, mark, length = _TABLES[source]
    names = {"table": sql.Identifier(table), "mark": sql.Identifier(mark), "length": sql.SQL(length)}
    bounds = connection.execute(
        sql.SQL("SELECT c.{mark} AS low, (SELECT max(seq) FROM {table}) AS high FROM ros_corpus AS c").format(**names)
    ).fetchone()
    # The order matters: whoever takes a number after `high` was read takes a higher one, so once those who were
    # writing then are done, every row up to `high` is there to be seen.
    if bounds is None or (bounds["high"] or 0) <= bounds["low"] or not _writers_are_done(connection, table):
        return 0
    counted = 0
    text = sql.SQL(statement("count_terms")).format(**names)
    low = int(bounds["low"])
    while low < bounds["high"]:
        row = connection.execute(text, {"low": low, "high": bounds["high"], "size": _SLICE}).fetchone()
        assert row is not None  # an UPDATE of the one row, which the lock makes ours
        counted += int(row["counted"])
        low = int(row["counted_to"])
    return counted


def _writers_are_done(connection: Connection, table: str) -> bool:
    """Waits for the transactions that are writing to the table now, not for later ones; False when it took too long."""
    writing = _writers(connection, table)
    deadline = time.monotonic() + _WRITERS_SECONDS
    while writing and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        writing &= _writers(connection, table)
    return not writing


def _writers(connection: Connection, table: str) -> set[str]:
    rows = connection.execute(
        """SELECT virtualtransaction FROM pg_locks
           WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND relation = %s::regclass AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid()""",
        [table],
    ).fetchall()
    return {row["virtualtransaction"] for row in rows}
