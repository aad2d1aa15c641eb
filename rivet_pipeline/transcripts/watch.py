"""Follows the harnesses' sessions while they are written, and stores what is new.

A line file that is being written stays open: each look reads on behind the last whole line. Any other source that has
changed is imported again, and what was there is known. Nothing but what was committed is remembered, so a store that is
away costs time and no message.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import RivetError, StoreUnavailableError
from rivet_pipeline.transcripts.importer import DEFECTS, SETTLED_AFTER, Importer, shown, walk
from rivet_pipeline.transcripts.lines import COMPRESSIONS
from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.reading import ABANDONED_AFTER, Reader, SourceState
from rivet_pipeline.transcripts.records import Paused, ReadItem
from rivet_pipeline.transcripts.reports import FileReport, ImportReport

#: A file that has not grown for this long, in seconds, is closed, and read once more to its end.
CLOSE_AFTER = 600.0

#: At most this many files are kept open.
MAX_OPEN = 64

#: The longest wait, in seconds, before a store that is away is tried again.
MAX_BACKOFF = 30.0

#: New files are looked for at most this much of the time, and not more often than every so many seconds.
_WALK_SHARE = 0.05
_WALK_SECONDS = 2.0

#: This much text before the place that was reached must still be the same when a file has grown.
_TAIL_BYTES = 512


class _Follower:
    """An open line file: the reader stands behind the last whole line and goes on from there."""

    def __init__(self, path: Path, reader: Reader, importer: Importer) -> None:
        self.path = path
        self.harness = reader.harness
        self.position = 0
        self.tail = b""
        self.inode = path.stat().st_ino
        self.items: Iterator[ReadItem] = importer.follow(path, reader, self._advance)

    def _advance(self, size: int) -> None:
        self.position += size

    def read_on(self, importer: Importer, state: SourceState) -> FileReport:
        """Stores what has come since the last time. Raises `psycopg.Error`: then the follower is of no use any more."""
        report = FileReport(shown(self.path), "read", self.harness)
        batches = importer.batches(report, state)
        for item in self.items:
            if isinstance(item, Paused):
                break
            report.count(item)
            batches.take(item)
        batches.flush()
        self.tail = self._text_before()
        return report

    def fits(self) -> bool:
        """Whether the file is still the one that was read, and only longer."""
        status = self.path.stat()
        return status.st_ino == self.inode and status.st_size >= self.position and self._text_before() == self.tail

    def _text_before(self) -> bytes:
        start = max(self.position - _TAIL_BYTES, 0)
        with self.path.open("rb") as stream:
            stream.seek(start)
            return stream.read(self.position - start)


@dataclass(slots=True)
class _Source:
    """What is known of one file that may be a transcript."""

    path: Path
    reader: Reader | None
    #: Its state when it was last stored; None when that has not succeeded yet.
    stored: SourceState | None = None
    size: int = -1
    changed_at: float = 0.0
    #: Whether it is to be read once more when it has rested, because its end was open or only followed.
    unfinished: bool = False
    #: Whether it was read as one that has settled since it last changed, so that only what is open is left.
    settled: bool = False
    follower: _Follower | None = None


@dataclass(slots=True)
class Watcher:
    """Looks at sources again and again. `find` says which files and folders there are; `report` is told what was done.

    `connect` gives a new connection, again after every failure of the store. `look` raises `StoreUnavailableError` when
    the store fails; what was not stored is taken up by the next look.
    """

    connect: Callable[[], Connection]
    find: Callable[[Connection], Sequence[Path]]
    importer: Callable[[Connection], Importer]
    report: Callable[[FileReport], None]
    _sources: dict[Path, _Source] = field(default_factory=dict)
    _connection: Connection | None = None
    _walk_at: float = 0.0
    _unreadable: dict[Path, str] = field(default_factory=dict)

    def look(self) -> int:
        """Stores what has changed since the last look; the number of sources that had."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self.connect()
            return self._look(self._connection)
        except psycopg.Error as error:
            self.close()
            raise StoreUnavailableError(f"the store failed: {' '.join(str(error).split())}.") from error
        except StoreUnavailableError:
            self.close()
            raise

    def close(self) -> None:
        """Leaves the store and the files; what they hold is not forgotten."""
        for source in self._sources.values():
            source.follower = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, connection: Connection) -> int:
        importer = self.importer(connection)
        if time.monotonic() >= self._walk_at:
            began = time.monotonic()
            for path, size in walk(self.find(connection), ImportReport()):
                self._notice(path, size)
            took = time.monotonic() - began
            self._walk_at = time.monotonic() + max(_WALK_SECONDS, took / _WALK_SHARE)
        return sum(self._tend(source, importer) for source in list(self._sources.values()))

    def _notice(self, path: Path, size: int) -> None:
        known = self._sources.get(path)
        if known is not None and (known.reader is not None or known.size == size):
            return
        try:
            reader, problem = detect(path), None
        except OSError as error:
            reader, problem = None, error.strerror or str(error)
            # To be tried again, whatever its size.
            size = -1
        self._sources[path] = _Source(path.resolve(), reader, size=size)
        if problem is not None:
            self._complain(path, problem)

    def _tend(self, source: _Source, importer: Importer) -> bool:
        if source.reader is None:
            return False
        try:
            state = source.reader.state(source.path)
        except OSError:
            # Gone: what was stored stays, and it may come back.
            source.follower = None
            return False
        now = time.time()
        if source.stored != state:
            source.changed_at = state.mtime_ns / 1e9
            self._store(source, state, importer)
            return True
        if source.unfinished and now - source.changed_at > self._rest(source):
            source.follower = None
            # After the last time there is nothing that more rest could finish.
            last = source.settled
            source.unfinished = self._import(source, importer).status == "incomplete" and not last
            source.settled = True
            return True
        return False

    @staticmethod
    def _rest(source: _Source) -> float:
        if source.settled:
            return ABANDONED_AFTER
        return CLOSE_AFTER if source.follower is not None else SETTLED_AFTER

    def _store(self, source: _Source, state: SourceState, importer: Importer) -> None:
        assert source.reader is not None
        if source.stored is None and importer.unchanged(source.path, state):
            source.stored = state
            return
        rested = time.time() - source.changed_at
        growing, source.settled = rested < CLOSE_AFTER, rested >= SETTLED_AFTER
        if source.reader.follows and growing and source.path.suffix not in COMPRESSIONS:
            self._follow(source, source.reader, state, importer)
            source.unfinished, source.settled = True, False
        else:
            source.unfinished = self._import(source, importer).status == "incomplete"
        source.stored = state

    def _follow(self, source: _Source, reader: Reader, state: SourceState, importer: Importer) -> None:
        try:
            if source.follower is None or not source.follower.fits():
                self._make_room()
                source.follower = _Follower(source.path, reader, importer)
            follower, source.follower = source.follower, None
            self._tell(follower.read_on(importer, state))
            source.follower = follower
        except OSError as error:
            self._complain(source.path, error.strerror or str(error))
        except DEFECTS as error:
            self._complain(source.path, f"{type(error).__name__}: {error}")

    def _make_room(self) -> None:
        open_ones = [source for source in self._sources.values() if source.follower is not None]
        if len(open_ones) >= MAX_OPEN:
            min(open_ones, key=lambda source: source.changed_at).follower = None

    def _import(self, source: _Source, importer: Importer) -> FileReport:
        report = importer.file(source.path)
        self._tell(report)
        return report

    def _tell(self, report: FileReport) -> None:
        if report.new or report.damaged or report.status == "unreadable":
            self.report(report)

    def _complain(self, path: Path, problem: str) -> None:
        if self._unreadable.get(path) != problem:
            self._unreadable[path] = problem
            self.report(FileReport(os.fspath(path), "unreadable", problem=problem))


def watch(watcher: Watcher, *, interval: float, say: Callable[[str], None], stopped: Callable[[float], bool]) -> None:
    """Looks every `interval` seconds until `stopped`, which waits that long, says so.

    A store that is away is said once, and tried again after longer and longer waits.
    """
    wait, away = interval, False
    try:
        while True:
            try:
                watcher.look()
                if away:
                    say("The store is back; what has come meanwhile is stored.")
                wait, away = interval, False
            except RivetError as error:
                if not away:
                    say(f"{error} Waiting for it; nothing is lost.")
                wait, away = min(max(wait * 2, 1.0), MAX_BACKOFF), True
            if stopped(wait):
                return
    finally:
        watcher.close()
