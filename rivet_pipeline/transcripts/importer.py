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
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.lines import TOO_LONG, without_compression
from rivet_pipeline.transcripts.readers import detect, may_be_transcript
from rivet_pipeline.transcripts.reading import Reader, Reading, SourceState
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

#: Raised when a reader gives other messages for the same file: files that an older version read are read again.
IMPORT_VERSION = 1

#: One transaction holds at most this many items, or about this many characters, of one conversation.
BATCH_ITEMS = 200
BATCH_CHARACTERS = 4_000_000

#: A source that has not changed for this long, in seconds, is taken as no longer written.
SETTLED_AFTER = 60.0

#: A file that mixes many conversations keeps at most this many of them waiting.
_OPEN_CONVERSATIONS = 64

#: Errors of one row's content: data, integrity and program limits. Any other is the store's.
_CONTENT_ERRORS = ("22", "23", "54")

Status = Literal["read", "unchanged", "not_a_transcript", "unreadable", "incomplete"]

#: Called with the file being read, the bytes done so far and the bytes there are.
Progress = Callable[[Path, int, int], None]


@dataclass(slots=True)
class FileReport:
    """What one file came to. `known` counts messages that were there before."""

    path: str
    status: Status
    harness: str | None = None
    new: int = 0
    known: int = 0
    damaged: int = 0
    skipped: int = 0
    problem: str | None = None
    conversations: set[str] = field(default_factory=set)
    damaged_by_reason: Counter[str] = field(default_factory=Counter)
    skipped_by_reason: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON, without the reasons, which stand in the whole import's report."""
        keys = ("path", "status", "harness", "new", "known", "damaged", "skipped", "problem")
        return {**{key: getattr(self, key) for key in keys}, "conversations": len(self.conversations)}


@dataclass(slots=True)
class ImportReport:
    """What an import did, in all and by file. `missing` are the paths that do not exist."""

    files: list[FileReport] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def conversations(self) -> set[str]:
        """The session keys met in the files."""
        return set().union(*(file.conversations for file in self.files))

    @property
    def transcripts(self) -> int:
        """Files that were read, now or by an earlier import."""
        return self.count("read") + self.count("unchanged") + self.count("incomplete")

    def count(self, status: Status) -> int:
        """The number of files with a status."""
        return sum(1 for file in self.files if file.status == status)

    def messages(self) -> dict[str, int]:
        """Messages new and known, records damaged and skipped."""
        return {key: sum(getattr(file, key) for file in self.files) for key in ("new", "known", "damaged", "skipped")}

    def reasons(self, which: Literal["damaged", "skipped"]) -> dict[str, int]:
        """How often each reason for damage or skipping came up, the most frequent first."""
        total: Counter[str] = Counter()
        for file in self.files:
            total.update(file.damaged_by_reason if which == "damaged" else file.skipped_by_reason)
        return dict(sorted(total.items(), key=lambda entry: (-entry[1], entry[0])))

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON; `files` is the number of transcripts."""
        detail = {
            "read": self.count("read"),
            "unchanged": self.count("unchanged"),
            "incomplete": self.count("incomplete"),
            "not_transcripts": self.count("not_a_transcript"),
            "unreadable": self.count("unreadable"),
            "missing": len(self.missing),
        }
        return {
            "files": self.transcripts,
            "files_detail": detail,
            "conversations": len(self.conversations),
            "messages": self.messages(),
            "damaged_by_reason": self.reasons("damaged"),
            "skipped_by_reason": self.reasons("skipped"),
            "per_file": [
                file.as_json()
                for file in self.files
                if file.status != "not_a_transcript" or without_compression(Path(file.path)).suffix == ".jsonl"
            ],
            "missing": self.missing,
        }


def import_paths(
    store: str | Pool,
    paths: Sequence[Path],
    *,
    first_day: date,
    max_line: int,
    agent: str | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Imports files and folders into the store, named by its address or a pool, and says what it did.

    Folders are walked in the order of their names. `agent` replaces the reader's own agent name; `max_line` is in
    bytes. A file that can not be read is reported and the others are imported. Raises `StoreUnavailableError` when the
    store fails; what was committed by then stays, and the next import goes on from there.
    """
    report = ImportReport(missing=[_shown(path) for path in paths if not os.path.lexists(path)])
    found = list(_walk(paths, report))
    total = sum(size for _, size in found)
    done = 0
    try:
        with _connection(store) as connection:
            importer = _Importer(connection, first_day=first_day, max_line=max_line, agent=agent)
            for path, size in found:
                meter = _Meter(path, done, total, progress)
                report.files.append(importer.file(path, meter))
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


def _walk(paths: Iterable[Path], report: ImportReport) -> Iterator[tuple[Path, int]]:
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
            report.files.append(FileReport(_shown(path), "unreadable", problem=error.strerror or str(error)))
        return
    if stat.S_ISREG(status.st_mode):
        yield path, status.st_size
    for child in children:
        yield from _walk_one(child, seen, report)


def _order(path: Path) -> tuple[bool, bool, str]:
    """Files before folders and sessions before sub-agents: a conversation's day is that of what is read first."""
    return path.is_dir(), path.name.startswith("agent-"), path.name


def _shown(path: Path) -> str:
    """The path as text that can be printed and stored; names need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


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


class _Importer:
    """Imports one file after another over one connection."""

    def __init__(self, connection: Connection, *, first_day: date, max_line: int, agent: str | None) -> None:
        self._connection = connection
        self._first_day = first_day
        self._max_line = max_line
        self._agent = agent

    def file(self, path: Path, meter: _Meter) -> FileReport:
        """Imports a file unless it is as it was when it was last read to its end."""
        try:
            reader = detect(path)
            if reader is None:
                return FileReport(_shown(path), "not_a_transcript")
            path = path.resolve()
            state = reader.state(path)
        except OSError as error:
            return FileReport(_shown(path), "unreadable", problem=error.strerror or str(error))
        ledger = _Ledger(self._connection, path, self._agent, self._max_line)
        known = ledger.unchanged(state)
        if known is not None:
            return known
        settled = time.time() - state.mtime_ns / 1e9 >= SETTLED_AFTER
        report = self._read(path, reader, meter, settled=settled)
        if report.status == "read":
            ledger.remember(state, report)
        return report

    def _read(self, path: Path, reader: Reader, meter: _Meter, *, settled: bool) -> FileReport:
        report = FileReport(_shown(path), "read", reader.harness)
        batches = _Batches(self._connection, self._first_day, report)
        how = Reading(self._agent or reader.agent, self._max_line, meter.advance, settled=settled)
        try:
            for item in reader.read(path, how):
                _count(report, item)
                batches.take(item)
        except OSError as error:
            report.status, report.problem = "unreadable", error.strerror or str(error)
        batches.flush()
        return report


def _count(report: FileReport, item: ReadItem) -> None:
    if isinstance(item, Damaged):
        _damage(report, item.reason)
    elif isinstance(item, Skipped):
        report.skipped += 1
        report.skipped_by_reason[item.reason] += 1
    elif isinstance(item, Incomplete):
        report.status, report.problem = "incomplete", f"what begins at line {item.line} is not finished yet"


def _damage(report: FileReport, reason: str) -> None:
    report.damaged += 1
    report.damaged_by_reason[reason] += 1


@dataclass(slots=True)
class _Waiting:
    """What waits to be written of one conversation."""

    session: SessionRecord
    items: list[MessageRecord | ToolResult] = field(default_factory=list)
    characters: int = 0
    #: Whether the title or the settings hold something that was not written yet.
    changed: bool = True
    has_messages: bool = False


class _Batches:
    """Collects a file's items by conversation and writes them in batches, each conversation in the file's order."""

    def __init__(self, connection: Connection, first_day: date, report: FileReport) -> None:
        self._connection = connection
        self._first_day = first_day
        self._report = report
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
        self._store(waiting.session, waiting.items)
        waiting.items, waiting.characters, waiting.changed = [], 0, False

    def _store(self, session: SessionRecord, items: Sequence[MessageRecord | ToolResult]) -> None:
        try:
            result = write_batch(self._connection, session, items, first_day=self._first_day)
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith(_CONTENT_ERRORS):
                raise
            if len(items) == 1:
                _damage(self._report, f"refused by the store ({error.sqlstate})")
            for item in items if len(items) > 1 else []:
                self._store(session, [item])
            return
        self._report.new += result.new
        self._report.known += max(self._messages(session, items) - result.new, 0)

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
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _json_size(entry) for key, entry in value.items())
    if isinstance(value, list):
        return sum(_json_size(entry) for entry in value)
    return 8


class _Ledger:
    """What is remembered of a file that was read to its end, in `ros_import_files`."""

    def __init__(self, connection: Connection, path: Path, agent: str | None, max_line: int) -> None:
        self._connection = connection
        self._path = _shown(path)
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
