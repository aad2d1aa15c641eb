"""The text index and BM25's statistics: brought up to date piece by piece, onwards from a watermark.

A piece is written together with its words' counts and the watermark in one transaction, so a refresh that is killed
goes on where it was. Rows whose text is filled or made again after they were indexed are put into a piece of their own,
which stands over the older one. The statistics (`ros_lexicon`, `ros_corpus`) count a row once, when it comes, and of
words with a digit only those that several rows hold: they only say which words of a long query are rare, and what the
store holds. Any row is found whether or not it is indexed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.index_pieces import (
    MOST_POSTINGS,
    crowded,
    forget_everything,
    has_older,
    join_pieces,
    list_pieces,
    older_piece,
    outlived,
    pieces_of,
    raise_form,
    write_built,
)
from rivet_pipeline.retrieval.index_rows import PieceBuilder, read_marked, read_range, read_rows
from rivet_pipeline.retrieval.types import Source

#: Any fixed number: it names our lock among the advisory locks of the database.
_LOCK = 7_266_005_175

#: Fewer rows than this wait for the hourly refresh. A search reads up to eight times as many itself.
LEAST_BEHIND = 500

#: And fewer than this while other work waits.
LEAST_BEHIND_BUSY = 2_000

#: Changed rows of one piece.
_CHANGES = 20_000

#: How long to wait for writers that were there first, and how often to look.
_WRITERS_SECONDS = 10.0
_LOOK_SECONDS = 0.05

_DIGIT = re.compile(r"\d")

_SOURCES: tuple[Source, ...] = ("message", "summary")
_TABLES: dict[Source, tuple[str, str]] = {
    "message": ("ros_messages", "last_message_seq"),
    "summary": ("ros_summaries", "last_summary_seq"),
}


@dataclass(frozen=True, slots=True)
class LexiconFigures:
    """What one refresh did and what stands now.

    `messages` and `summaries` came since the last time, `changed` have another text; `mean_length` is in bytes of text,
    over documents that hold a word; `behind` is how many rows are not indexed yet; `index_bytes` what the index takes.
    """

    messages: int
    summaries: int
    changed: int
    documents: int
    terms: int
    pieces: int
    index_bytes: int
    mean_length: float
    behind: int
    refreshed_at: datetime | None


def pending_lexicon(connection: Connection) -> int:
    """How many messages and summaries are not indexed yet, or not as they are now."""
    row = connection.execute(
        """SELECT (SELECT count(*) FROM ros_messages WHERE seq > c.last_message_seq)
                + (SELECT count(*) FROM ros_summaries WHERE seq > c.last_summary_seq)
                + (SELECT count(*) FROM ros_index_changes
                   WHERE seq <= CASE source WHEN 'message' THEN c.last_message_seq ELSE c.last_summary_seq END)
                  AS behind
           FROM ros_corpus AS c"""
    ).fetchone()
    return 0 if row is None else int(row["behind"])


def is_due(connection: Connection, *, busy: bool = False) -> bool:
    """Whether enough waits to be worth a run: anything at first, then 500 rows, or a row that was redacted.

    Pieces that an older version wrote are worth one too.

    `busy`: other work waits that brings rows of its own; then 2,000 rows, so that a store that never rests is indexed
    before searches must do without.
    """
    row = connection.execute(
        "SELECT documents, EXISTS (SELECT 1 FROM ros_index_changes WHERE forget) AS forget FROM ros_corpus"
    ).fetchone()
    if row is None or row["forget"] or has_older(connection):
        return row is not None
    least = LEAST_BEHIND_BUSY if busy else LEAST_BEHIND if row["documents"] else 1
    # Counts no further than that: it is asked every second, and an import may have brought a million.
    found = connection.execute(
        """SELECT (SELECT count(*) FROM (SELECT 1 FROM ros_messages WHERE seq > c.last_message_seq LIMIT %(n)s) AS m)
                + (SELECT count(*) FROM (SELECT 1 FROM ros_summaries WHERE seq > c.last_summary_seq LIMIT %(n)s) AS s)
                + (SELECT count(*) FROM (SELECT 1 FROM ros_index_changes LIMIT %(n)s) AS x) AS behind
           FROM ros_corpus AS c""",
        {"n": least},
    ).fetchone()
    return found is not None and found["behind"] >= least


def refresh_lexicon(connection: Connection, *, rebuild: bool = False) -> LexiconFigures:
    """Indexes and counts what came or changed since the last time; `rebuild` does it all again.

    Commits piece by piece. Two at once take turns and index nothing twice. Rows of transactions that are still open are
    left for the next time, with everything after them, after ten seconds of waiting for them.
    """
    if rebuild:
        with _locked(connection):
            forget_everything(connection)
    added = {source: _add_rows(connection, source) for source in _SOURCES}
    changed = sum(_renew_rows(connection, source) for source in _SOURCES)
    changed += sum(_renew_forms(connection, source) for source in _SOURCES)
    for source in _SOURCES:
        if changed:
            _rewrite_outlived(connection, source)
        _join(connection, source)
    if changed or rebuild or any(added.values()):
        connection.execute("UPDATE ros_corpus SET refreshed_at = now()")
    row = connection.execute(
        """SELECT documents, total_length, refreshed_at, (SELECT count(*) FROM ros_lexicon) AS terms,
                  (SELECT count(*) FROM ros_index_pieces) AS pieces,
                  pg_total_relation_size('ros_postings') + pg_total_relation_size('ros_index_pieces') AS index_bytes
           FROM ros_corpus"""
    ).fetchone()
    assert row is not None  # the migration puts the one row there
    return LexiconFigures(
        messages=added["message"],
        summaries=added["summary"],
        changed=changed,
        documents=row["documents"],
        terms=row["terms"],
        pieces=row["pieces"],
        index_bytes=row["index_bytes"],
        mean_length=row["total_length"] / row["documents"] if row["documents"] else 0.0,
        behind=pending_lexicon(connection),
        refreshed_at=row["refreshed_at"],
    )


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """A transaction that no other refresh shares its time with."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield


def _add_rows(connection: Connection, source: Source) -> int:
    table, mark = _TABLES[source]
    row = connection.execute(
        sql.SQL("SELECT max(seq) AS high, (SELECT {} FROM ros_corpus) AS low FROM {}").format(
            sql.Identifier(mark), sql.Identifier(table)
        )
    ).fetchone()
    # The order matters: whoever takes a number after `high` was read takes a higher one, so once those who were
    # writing then are done, every row up to `high` is there to be seen.
    if row is None or (row["high"] or 0) <= row["low"] or not _writers_are_done(connection, table):
        return 0
    added = 0
    while True:
        with _locked(connection):
            rows, finished = _add_piece(connection, source, row["high"])
        added += rows
        if finished:
            return added


def _add_piece(connection: Connection, source: Source, high: int) -> tuple[int, bool]:
    """Indexes and counts the next rows up to `high`; how many there were, and whether they were the last."""
    mark = sql.Identifier(_TABLES[source][1])
    bound = connection.execute(sql.SQL("SELECT {} AS low FROM ros_corpus").format(mark)).fetchone()
    assert bound is not None  # the migration puts the one row there
    changes = _read_changes(connection, source, bound["low"], high)
    builder = PieceBuilder()
    with closing(read_range(connection, source, bound["low"], high)) as rows:
        count, last = _collect(builder, rows)
    reached = high if last is None else last
    if count:
        write_built(connection, source, builder)
        # Most of all words are numbers and hashes that one row holds: rare, counted or not, and together
        # larger than the index.
        counts = {word: df for word, df in builder.word_counts().items() if df > 1 or not _DIGIT.search(word)}
        connection.execute(statement("count_words"), {"terms": list(counts), "counts": list(counts.values())})
        connection.execute(
            sql.SQL(
                "UPDATE ros_corpus SET documents = documents + %s, total_length = total_length + %s, {} = %s"
            ).format(mark),
            [len(builder), int(builder.documents().length.sum()), reached],
        )
    _forget_changes(connection, source, [change for change in changes if change["seq"] <= reached])
    return count, last is None


def _collect(builder: PieceBuilder, rows: Iterable[Mapping[str, Any]]) -> tuple[int, int | None]:
    """Fills the builder; how many rows were read, and the last one's number when there may be more."""
    count = 0
    for row in rows:
        builder.add(row, keep_empty=False)
        count += 1
        if builder.is_full or len(builder.numbers) >= MOST_POSTINGS:
            return count, int(row["seq"])
    return count, None


def _read_changes(connection: Connection, source: Source, low: int, high: int) -> list[dict[str, Any]]:
    # Read before the rows themselves: a change that comes between the two keeps its entry.
    return connection.execute(
        """SELECT seq, change, forget FROM ros_index_changes
           WHERE source = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s""",
        [source, low, high, _CHANGES],
    ).fetchall()


def _forget_changes(connection: Connection, source: Source, changes: list[dict[str, Any]]) -> None:
    connection.execute(
        """DELETE FROM ros_index_changes AS c USING unnest(%s::bigint[], %s::bigint[]) AS d (seq, change)
           WHERE c.source = %s AND c.seq = d.seq AND c.change = d.change""",
        [[change["seq"] for change in changes], [change["change"] for change in changes], source],
    )


def _renew_rows(connection: Connection, source: Source) -> int:
    """Puts indexed rows with another text into new pieces, until none is left; how many there were."""
    mark = sql.Identifier(_TABLES[source][1])
    renewed = 0
    while True:
        with _locked(connection):
            bound = connection.execute(sql.SQL("SELECT {} AS high FROM ros_corpus").format(mark)).fetchone()
            assert bound is not None  # the migration puts the one row there
            changes = _read_changes(connection, source, 0, bound["high"])
            builder = PieceBuilder()
            for row in read_rows(connection, source, [change["seq"] for change in changes]):
                builder.add(row, keep_empty=True)
            former = pieces_of(connection, source, np.array([c["seq"] for c in changes if c["forget"]], dtype=np.int64))
            write_built(connection, source, builder)
            for piece in former:
                join_pieces(connection, source, [piece])
            _forget_changes(connection, source, changes)
        renewed += len(changes)
        if len(changes) < _CHANGES:
            return renewed


def _renew_forms(connection: Connection, source: Source) -> int:
    """Puts those rows of pieces of an older form that would now be read otherwise into new ones; how many there were.

    A transaction for each older piece. Most stores hold no such row, and only look for them.
    """
    renewed = 0
    while True:
        with _locked(connection):
            old = older_piece(connection, source)
            if old is None:
                return renewed
            piece, seqs = old
            builder = PieceBuilder()
            for row in read_marked(connection, source, seqs.tolist()):
                builder.add(row, keep_empty=True)
                renewed += 1
                if len(builder.numbers) >= MOST_POSTINGS:
                    write_built(connection, source, builder)
                    builder = PieceBuilder()
            write_built(connection, source, builder)
            raise_form(connection, piece)


def _rewrite_outlived(connection: Connection, source: Source) -> None:
    """Frees large pieces, which no joining reaches, of rows that stand in newer ones, where these are the most."""
    while True:
        with _locked(connection):
            dead = outlived(connection, source)
            if not dead:
                return
            join_pieces(connection, source, dead[:1])


def _join(connection: Connection, source: Source) -> None:
    """Joins small pieces as long as there are too many of them."""
    while True:
        with _locked(connection):
            chosen = crowded(list_pieces(connection, source))
            if len(chosen) < 2:
                return
            join_pieces(connection, source, [piece.id for piece in sorted(chosen, key=lambda piece: piece.id)])


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
