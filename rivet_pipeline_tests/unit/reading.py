"""What the tests of the readers have in common: reading a file, counting what came, and cutting it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.reading import Reading
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


def write(path: Path, *rows: Any) -> Path:
    """Writes rows as JSON lines; a text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(path: Path, *, settled: bool = True, abandoned: bool = True) -> list[ReadItem]:
    """What the file's own reader gives."""
    reader = detect(path)
    how = Reading("" if reader is None else reader.agent, settled=settled, abandoned=abandoned)
    return [] if reader is None else list(reader.read(path, how))


def messages(items: Iterable[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def results(items: Iterable[ReadItem]) -> dict[str, str]:
    return {item.event_id: item.tool_result for item in items if isinstance(item, ToolResult)}


def said(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    """Role, kind and words (or the tool's name) of every message."""
    return [(record.role, kind_of(record), record.tool_name or record.content) for record in messages(items)]


def kind_of(record: MessageRecord) -> str:
    return str(record.metadata.get("kind", "speech"))


def counts(items: Iterable[ReadItem]) -> dict[tuple[str, str], int]:
    """How many messages there are of each role and kind."""
    return dict(Counter((record.role, kind_of(record)) for record in messages(items)))


def skipped(items: Iterable[ReadItem]) -> dict[str, int]:
    return dict(Counter(item.reason for item in items if isinstance(item, Skipped)))


def damaged(items: Iterable[ReadItem]) -> dict[str, int]:
    return dict(Counter(item.reason for item in items if isinstance(item, Damaged)))


def is_incomplete(items: Iterable[ReadItem]) -> bool:
    return any(isinstance(item, Incomplete) for item in items)


def titles(items: Iterable[ReadItem]) -> list[str | None]:
    """The titles that the conversation is given, in order, from whatever carries one."""
    found = [item.session.title for item in items if isinstance(item, Message | SessionUpdate)]
    return [title for number, title in enumerate(found) if title and title not in found[:number]]


def identities(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    """What tells the stored rows apart, with what they say."""
    rows: list[tuple[str, str, str]] = []
    for item in items:
        if isinstance(item, Message):
            record = item.record
            words = f"{record.content}\n{record.tool_name}\n{record.tool_result}"
            rows.append((item.session.session_key, record.event_id, words))
        elif isinstance(item, ToolResult):
            rows.append((item.session.session_key, f"result of {item.event_id}", item.tool_result))
    return rows


def check_cuts(path: Path, folder: Path, *, beside: Sequence[Path] = ()) -> None:
    """A file that is cut anywhere gives rows of the whole file only, and more of them the later it is cut."""
    whole = identities(read(path))
    ids = [(key, event_id) for key, event_id, _ in whole]
    assert len(ids) == len(set(ids)), path
    assert identities(read(path)) == whole
    for other in beside:
        (folder / other.name).write_bytes(other.read_bytes())
    copy, data = folder / path.name, path.read_bytes()
    step = max(1, len(data) // 24)
    before: set[tuple[str, str, str]] = set()
    for end in range(0, len(data), step):
        copy.write_bytes(data[:end])
        now = set(identities(read(copy, settled=False)))
        assert now <= set(whole), (path, end)
        assert before <= now, (path, end)
        before = now
    copy.write_bytes(data)
    os.utime(copy, (0, 0))
    assert identities(read(copy)) == whole
