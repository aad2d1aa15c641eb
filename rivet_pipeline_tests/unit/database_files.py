"""SQLite files as harnesses leave them and hold them open; what the tests of their readers share."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.reading import Head, Reader, Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionUpdate,
    Skipped,
    ToolResult,
)

# A harness in a process of its own: within one process SQLite shares its locks and its index of the log.
_HARNESS = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in json.loads(sys.argv[2]):
    connection.execute(*statement)
print("ready", flush=True)
sys.stdin.read()
"""


def make_database(path: Path, *statements: str | tuple[str, list[Any]]) -> Path:
    """A database that was written and closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(*((statement,) if isinstance(statement, str) else statement))
    return path


@contextmanager
def held_open(path: Path, *statements: str | tuple[str, list[Any]], killed: bool = False) -> Iterator[None]:
    """Another process that ran the statements and has the database open still, or was killed with it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = [(statement,) if isinstance(statement, str) else statement for statement in statements]
    with subprocess.Popen(
        [sys.executable, "-c", _HARNESS, str(path), json.dumps(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            if killed:
                process.kill()
                process.wait()
            yield
        finally:
            process.kill()


def folder_bytes(folder: Path) -> dict[str, str]:
    """Every file of a folder and what is in it."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def head_of(path: Path) -> Head:
    data = path.read_bytes()[: 64 * 1024]
    return Head(path, data, whole=path.stat().st_size < 64 * 1024)


def read_all(
    reader: Reader, path: Path, *, settled: bool = True, abandoned: bool = True, max_line: int = 64 * 1024 * 1024
) -> list[ReadItem]:
    return list(reader.read(path, Reading(reader.agent, max_line, settled=settled, abandoned=abandoned)))


def messages(items: Iterable[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def session_keys(items: Iterable[ReadItem]) -> list[str]:
    return [item.session.session_key for item in items if isinstance(item, Message)]


def results(items: Iterable[ReadItem]) -> list[ToolResult]:
    return [item for item in items if isinstance(item, ToolResult)]


def said(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    return [(record.role, record.metadata.get("kind", "speech"), record.content) for record in messages(items)]


def ids(items: Iterable[ReadItem]) -> list[str]:
    return [record.event_id for record in messages(items)]


def counts(items: Iterable[ReadItem]) -> dict[tuple[str, str], int]:
    return dict(Counter((role, kind) for role, kind, _ in said(items)))


def skipped(items: Iterable[ReadItem]) -> dict[str, int]:
    return dict(Counter(item.reason for item in items if isinstance(item, Skipped)))


def damaged(items: Iterable[ReadItem]) -> list[str]:
    return [item.reason for item in items if isinstance(item, Damaged)]


def is_incomplete(items: Iterable[ReadItem]) -> bool:
    return any(isinstance(item, Incomplete) for item in items)


def title(items: Iterable[ReadItem]) -> str | None:
    found = [item.session.title for item in items if isinstance(item, SessionUpdate | Message) and item.session.title]
    return found[-1] if found else None


def settings(items: Iterable[ReadItem]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        if isinstance(item, SessionUpdate | Message):
            found.update(item.session.settings)
    return found
