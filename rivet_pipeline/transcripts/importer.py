"""Imports transcript files: finds them, reads them with the reader that knows them, and writes what they say.

Formats are the readers' business and rows the writer's; here stands what lies between: which files, in which batches,
what was done before, and the count of everything. A file is remembered once it was read to its end, so an import that
was killed goes on with the file it was in, and the messages that had landed are known.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.transcripts.batches import Batches
from rivet_pipeline.transcripts.lines import TOO_LONG
from rivet_pipeline.transcripts.readers import detect, may_be_transcript
from rivet_pipeline.transcripts.reading import ABANDONED_AFTER, Reader, Reading, SourceState
from rivet_pipeline.transcripts.records import ReadItem
from rivet_pipeline.transcripts.reports import FileReport, ImportReport

#: Raised when a reader gives other messages for the same file: files that an older version read are read again.
IMPORT_VERSION = 1

#: A source that has not changed for this long, in seconds, is taken as no longer written.
SETTLED_AFTER = 60.0

#: What a reader raises that meets something nobody thought of.
DEFECTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

#: Called with the file being read, the bytes done so far and the bytes there are.
Progress = Callable[[Path, int, int], None]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which sources are imported: those of one harness, those that changed at or after a time."""

    harness: str | None = None
    since: datetime | None = None

    def passes_over(self, reader: Reader, state: SourceState) -> str | None:
        """Why a source is not wanted, or None."""
        if self.harness is not None and reader.harness != self.harness:
            return f"not of {self.harness}"
        if self.since is not None and state.mtime_ns / 1e9 < self.since.timestamp():
            return "not changed since"
        return None


def import_paths(
    store: str | Pool,
    paths: Sequence[Path],
    *,
    first_day: date,
    max_line: int,
    agent: str | None = None,
    selection: Selection | None = None,
    dry_run: bool = False,
    redact: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Imports files and folders into the store, named by its address or a pool, and says what it did.

    Folders are walked in the order of their names. `agent` replaces the reader's own agent name; `max_line` is in
    bytes. With `dry_run` everything is read and held against the store, and nothing is written; `redact` is that of
    `write_batch`. A file that can not be read is reported and the others are imported. Raises `StoreUnavailableError`
    when the store fails; what was committed by then stays, and the next import goes on from there.
    """
    report = ImportReport(missing=[shown(path) for path in paths if not os.path.lexists(path)])
    found = list(walk(paths, report))
    total = sum(size for _, size in found)
    done = 0
    try:
        with _connection(store) as connection:
            importer = Importer(
                connection,
                first_day=first_day,
                max_line=max_line,
                agent=agent,
                selection=selection,
                dry_run=dry_run,
                redact=redact,
            )
            for path, size in found:
                meter = _Meter(path, done, total, progress)
                report.files.append(importer.file(path, meter.advance))
                done += size
                meter.finish(done)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise StoreUnavailableError(
            f"the import stopped because the store failed: {reason}. Run it again: what was imported stays."
        ) from error
    return report


@contextmanager
def _connection(store: str | Pool) -> Iterator[Connection]:
    if isinstance(store, str):
        with connect(store, application_name="rivet import") as connection:
            yield connection
    else:
        with store.connection() as connection:
            yield connection


def walk(paths: Iterable[Path], report: ImportReport) -> Iterator[tuple[Path, int]]:
    """Every regular file under the paths, once, with its size. Links are followed, each folder is entered once."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        yield from _walk_one(path, seen, report, named=True)


def _walk_one(
    path: Path, seen: set[tuple[int, int]], report: ImportReport, *, named: bool = False
) -> Iterator[tuple[Path, int]]:
    try:
        status = path.stat()
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            return
        seen.add(identity)
        children = sorted(path.iterdir(), key=_order) if stat.S_ISDIR(status.st_mode) else []
    except OSError as error:
        # A dangling link of another name is nobody's transcript; a missing path that was named is reported as such.
        if (may_be_transcript(path) or path.is_dir()) and not (named and not os.path.lexists(path)):
            report.files.append(FileReport(shown(path), "unreadable", problem=error.strerror or str(error)))
        return
    if stat.S_ISREG(status.st_mode):
        yield path, status.st_size
    for child in children:
        yield from _walk_one(child, seen, report)


def _order(path: Path) -> tuple[bool, bool, str]:
    """Files before folders and sessions before sub-agents: a conversation's day is that of what is read first."""
    return path.is_dir(), path.name.startswith("agent-"), path.name


class _Meter:
    """Turns what a reader says about its file into progress over all files."""

    def __init__(self, path: Path, before: int, total: int, progress: Progress | None) -> None:
        self._path, self._done, self._total, self._progress = path, before, total, progress

    def advance(self, size: int) -> None:
        """More bytes of this file were read."""
        self.finish(self._done + size)

    def finish(self, done: int) -> None:
        """So many bytes of all files are done."""
        self._done = done
        if self._progress is not None:
            self._progress(self._path, min(done, self._total), self._total)


def shown(path: Path) -> str:
    """The path as text that can be printed and stored; names need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


class Importer:
    """Imports one source after another over one connection. Raises `psycopg.Error` when the store fails."""

    def __init__(
        self,
        connection: Connection,
        *,
        first_day: date,
        max_line: int,
        agent: str | None = None,
        selection: Selection | None = None,
        dry_run: bool = False,
        redact: bool = False,
    ) -> None:
        self._connection = connection
        self._first_day = first_day
        self._max_line = max_line
        self._agent = agent
        self._selection = selection or Selection()
        self._dry_run = dry_run
        self._redact = redact

    def file(self, path: Path, advance: Callable[[int], None] | None = None) -> FileReport:
        """Imports a source unless it is as it was when it was last read to its end."""
        try:
            reader = detect(path)
            if reader is None:
                return FileReport(shown(path), "not_a_transcript")
            path = path.resolve()
            state = reader.state(path)
        except OSError as error:
            return FileReport(shown(path), "unreadable", problem=error.strerror or str(error))
        if (why := self._selection.passes_over(reader, state)) is not None:
            return FileReport(shown(path), "passed_over", reader.harness, problem=why)
        ledger = self._ledger(path)
        known = ledger.unchanged(state)
        if known is not None:
            return known
        rested = time.time() - state.mtime_ns / 1e9
        how = Reading(
            self._name(reader),
            self._max_line,
            advance,
            settled=rested >= SETTLED_AFTER,
            abandoned=rested >= ABANDONED_AFTER,
        )
        report = self._read(path, state, reader, how)
        if report.status == "read" and not self._dry_run:
            ledger.remember(state, report)
        return report

    def unchanged(self, path: Path, state: SourceState) -> bool:
        """Whether a source is as it was when it was last read to its end. `path` is resolved."""
        return self._ledger(path).unchanged(state) is not None

    def follow(self, path: Path, reader: Reader, advance: Callable[[int], None]) -> Iterator[ReadItem]:
        """A source's items, on and on: `Paused` is given whenever all there is was. `path` is resolved."""
        how = Reading(self._name(reader), self._max_line, advance, settled=False, abandoned=False, follow=True)
        return reader.read(path, how)

    def batches(self, report: FileReport, state: SourceState) -> Batches:
        """What a source's items are to be given to."""
        return Batches(
            self._connection,
            self._first_day,
            report,
            undated=datetime.fromtimestamp(state.mtime_ns / 1e9, UTC),
            dry_run=self._dry_run,
            redact=self._redact,
        )

    def _read(self, path: Path, state: SourceState, reader: Reader, how: Reading) -> FileReport:
        report = FileReport(shown(path), "read", reader.harness)
        batches = self.batches(report, state)
        try:
            for item in reader.read(path, how):
                report.count(item)
                batches.take(item)
        except OSError as error:
            report.status, report.problem = "unreadable", error.strerror or str(error)
        except DEFECTS as error:
            # A file that our own code can not take must not stop all others.
            report.status, report.problem = "unreadable", f"{type(error).__name__}: {error}"
        batches.flush()
        return report

    def _name(self, reader: Reader) -> str:
        return self._agent or reader.agent

    def _ledger(self, path: Path) -> _Ledger:
        return _Ledger(self._connection, path, self._agent, self._max_line)


class _Ledger:
    """What is remembered of a file that was read to its end, in `ros_import_files`."""

    def __init__(self, connection: Connection, path: Path, agent: str | None, max_line: int) -> None:
        self._connection = connection
        self._path = shown(path)
        self._max_line = max_line
        # With another agent the same file makes other conversations.
        identity = os.fsencode(path) + b"\x00" + (agent or "").encode("utf-8", "replace")
        self._key = hashlib.md5(identity, usedforsecurity=False).hexdigest()

    def unchanged(self, state: SourceState) -> FileReport | None:
        """The report of the last reading when the file is still the same, its messages all known; else None."""
        row = self._connection.execute(
            "SELECT counts FROM ros_import_files WHERE path_hash = %s AND size = %s AND mtime_ns = %s",
            [self._key, state.size, state.mtime_ns],
        ).fetchone()
        if row is None or row["counts"].get("version") != IMPORT_VERSION:
            return None
        counts = row["counts"]
        if TOO_LONG in counts["damaged"] and self._max_line > counts["max_line"]:
            return None
        damaged, skipped = Counter[str](counts["damaged"]), Counter[str](counts["skipped"])
        return FileReport(
            self._path,
            "unchanged",
            counts["harness"],
            known=counts["messages"],
            damaged=damaged.total(),
            skipped=skipped.total(),
            conversations=set(counts["conversations"]),
            damaged_by_reason=damaged,
            skipped_by_reason=skipped,
        )

    def remember(self, state: SourceState, report: FileReport) -> None:
        """Notes that the file, as it was before it was read, needs no reading again."""
        counts = {
            "version": IMPORT_VERSION,
            "harness": report.harness,
            "messages": report.new + report.known,
            "conversations": sorted(report.conversations),
            "damaged": report.damaged_by_reason,
            "skipped": report.skipped_by_reason,
            "max_line": self._max_line,
        }
        self._connection.execute(
            """
            INSERT INTO ros_import_files (path_hash, path, size, mtime_ns, counts) VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT (path_hash) DO UPDATE SET
                size = excluded.size, mtime_ns = excluded.mtime_ns, counts = excluded.counts, finished_at = now()
            """,
            [self._key, self._path, state.size, state.mtime_ns, Jsonb(counts)],
        )
