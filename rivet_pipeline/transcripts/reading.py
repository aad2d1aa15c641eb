"""How a transcript source is read: the interface of readers, what they are told and what they are shown.

Formats stand in `readers/`, one module each; which sources are read, and where what they say goes, in `importer.py`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from rivet_pipeline.transcripts.documents import Element, Member, read_document
from rivet_pipeline.transcripts.lines import Line, read_lines, without_compression
from rivet_pipeline.transcripts.records import Advance, ReadItem

#: How much of a file a reader is shown to recognise it.
HEAD_BYTES = 64 * 1024

#: What is open in a source that has not changed for this long, in seconds, is taken as given up. A tool may run for
#: hours.
ABANDONED_AFTER = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is to be read. `agent` is whose conversations these are; `max_line` bounds one record, in bytes."""

    agent: str
    max_line: int = 256 * 1024 * 1024
    advance: Advance | None = None
    #: Whether nobody writes the source any more. Of one that is still written, what has no mark of its own for its end
    #: is held back and reported as `Incomplete`, since it may go on.
    settled: bool = True
    #: Whether nobody has written for so long that what is open stays open: a running tool, an answer without its end.
    #: Until then it is held back too, since it would be told again when it is finished. Says nothing of a source that
    #: is not settled.
    abandoned: bool = True
    #: Whether to give `Paused` at the end, instead of ending, and to go on there when the next item is asked for.
    #: Only for readers that follow.
    follow: bool = False

    @property
    def given_up(self) -> bool:
        """Whether what is marked as open is to be given as it is."""
        return self.settled and self.abandoned


@dataclass(frozen=True, slots=True)
class SourceState:
    """Changes whenever something changes that reading the source would see: bytes in all, latest change in ns."""

    size: int
    mtime_ns: int


def file_state(*paths: Path) -> SourceState:
    """The state of files that are read together. The first must be there; others may be missing.

    Raises `OSError` when the first can not be seen.
    """
    size, changed = 0, 0
    for number, path in enumerate(paths):
        try:
            status = path.stat()
        except OSError:
            if number == 0:
                raise
            continue
        size += status.st_size
        changed = max(changed, status.st_mtime_ns)
    return SourceState(size, changed)


class Head:
    """The beginning of a file, as it is shown to every reader. `data` is decompressed; `path` names no compression."""

    def __init__(self, path: Path, data: bytes, *, whole: bool) -> None:
        self.path = without_compression(path)
        self.data = data
        #: Whether `data` is all of the file.
        self.whole = whole

    @cached_property
    def text(self) -> str:
        """The data as text; what is no UTF-8 is U+FFFD."""
        return self.data.decode("utf-8", "replace")

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The whole JSON objects in it, taken as JSON lines."""
        lines = read_lines(io.BytesIO(self.data), max_line=len(self.data) + 1)
        return [item.value for item in lines if isinstance(item, Line)]

    @cached_property
    def members(self) -> dict[str, Any]:
        """What can be seen of it, taken as one JSON document.

        Of an object, its members that stand wholly in the data, and of an array among them the list of the elements
        that do. Of an array at the top, the same of it under the name `""`.
        """
        found: dict[str, Any] = {}
        for item in read_document(io.BytesIO(self.data), max_value=len(self.data) + 1):
            if isinstance(item, Member):
                found[item.key] = item.value
            elif isinstance(item, Element):
                found.setdefault(item.key, []).append(item.value)
        return found


class Reader(Protocol):
    """One harness' transcript format. A module under `transcripts/readers/` each, listed in `readers/__init__.py`."""

    #: The harness, as it stands in session keys: `claude-code`, `codex`.
    harness: str
    #: The agent that its conversations belong to unless the caller names one.
    agent: str
    #: How its files end: `.jsonl`, `.json`, `.md`, `.db`. Other files are not opened.
    suffixes: frozenset[str]
    #: Whether its files only grow at the end, so that `Reading.follow` is understood.
    follows: bool

    def sniff(self, head: Head) -> bool:
        """Whether the file is of this format, judged by its name and its beginning."""
        ...

    def state(self, path: Path) -> SourceState:
        """The state of everything that `read` would look at. Raises `OSError` when the file can not be seen."""
        ...

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The source's records in its order, in constant memory. Raises `OSError` when it can not be read at all."""
        ...
