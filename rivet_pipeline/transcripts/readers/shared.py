"""What every reader needs: the frame of a reader, times, titles, placeholders, bounded memories.

Nothing of one harness belongs here.
"""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.lines import Line, open_stream, read_lines
from rivet_pipeline.transcripts.reading import ABANDONED_AFTER, Head, Reading, SourceState
from rivet_pipeline.transcripts.reading import file_state as file_state
from rivet_pipeline.transcripts.records import Damaged, Incomplete, Kind, ReadItem, Role

#: Longer titles are cut (seed: titles of 120 characters).
MAX_TITLE = 120

#: Above each of these an epoch time is in the finer unit: as the coarser one it would lie beyond the year 5000.
_MILLISECONDS, _MICROSECONDS, _NANOSECONDS = 1e11, 1e14, 1e17

#: This machine, as it stands beside the paths of what was read on it.
HOST = socket.gethostname()

#: What a record of an unexpected shape raises on its way through a reader.
SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Said:
    """A stretch of text by one speaker, of one kind."""

    role: Role
    kind: Kind
    text: str


def parse_time(value: Any) -> datetime | None:
    """An aware UTC time from ISO text (without a zone: UTC) or an epoch in s, ms, µs or ns; None when impossible."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / _unit(value), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def is_long_ago(*times: Any) -> bool:
    """Whether the latest of the times, as in `parse_time`, is so long past that what is open since stays open.

    For stores that hold many conversations, so that their own time says nothing of one. False without a time.
    """
    known = [moment for moment in map(parse_time, times) if moment is not None]
    return bool(known) and (datetime.now(UTC) - max(known)).total_seconds() >= ABANDONED_AFTER


def _unit(value: float) -> float:
    """How many of an epoch time's unit make a second, judged by its size."""
    if value > _NANOSECONDS:
        return 1e9
    if value > _MICROSECONDS:
        return 1e6
    return 1e3 if value > _MILLISECONDS else 1


def make_title(text: str) -> str | None:
    """The text as a title: blanks collapsed, at most 120 characters; None when nothing is left."""
    title = " ".join(text[: MAX_TITLE * 20].split())
    return title[:MAX_TITLE].rstrip() or None


def text_of(value: Any) -> str:
    """The value as text: a string as it is, anything else as JSON, nothing as the empty string."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that say something: neither None, False nor empty."""
    return {key: value for key, value in values.items() if value not in (None, False, "", {}, [])}


def binary_placeholder(what: str, media_type: Any, data: Any) -> str:
    """What stands for an image or another file: its media type and size (by its base64 length), never its bytes."""
    parts = [what]
    if isinstance(data, str) and data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head.removeprefix("data:").split(";")[0]
    if isinstance(media_type, str) and media_type:
        parts.append(media_type[:100])
    if isinstance(data, str) and data:
        parts.append(f"{len(data.rstrip('=')) * 3 // 4:,} bytes")
    return f"[{parts[0]}]" if len(parts) == 1 else f"[{parts[0]} {', '.join(parts[1:])}]"


def line_pointer(path: Path, line: int) -> dict[str, Any]:
    """Where a row's full text stands, as metadata: the file, the line (counted from 0), and the machine."""
    return {"session_jsonl_path": str(path), "session_jsonl_line": line - 1, "session_host": HOST}


class Transcript(Protocol):
    """The state of one reading of a line file."""

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one record comes to. May raise any of `SHAPE_ERRORS`: the record then counts as damaged."""
        ...

    def finish(self, *, abandoned: bool) -> Iterable[ReadItem]:
        """What is left at the end of a settled file: what has no mark of its own for its end.

        What is marked as open, or will come again under another name, is given when it is `abandoned` only.
        """
        ...

    def waits(self) -> bool:
        """Whether something is left that a later record may still bear upon."""
        ...


class FileReader:
    """The frame of a reader of files that each hold all there is to read, and are read as a whole."""

    follows = False

    def state(self, path: Path) -> SourceState:
        """The file's size and the time of its last change."""
        return file_state(path)


class LineReader(FileReader, ABC):
    """The frame of a reader of JSON lines: a subclass tells its names, `sniff`, and `start`."""

    harness: str
    agent: str
    suffixes = frozenset({".jsonl"})
    follows = True

    @abstractmethod
    def sniff(self, head: Head) -> bool:
        """Whether the file is of this format, judged by its name and its beginning."""

    @abstractmethod
    def start(self, path: Path, agent: str) -> Transcript:
        """The state with which a file is read."""

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The file's records in file order, in constant memory. Raises `OSError` when it can not be read at all."""
        transcript = self.start(path, how.agent)
        number = 0
        with open_stream(path) as stream:
            for item in read_lines(stream, max_line=how.max_line, advance=how.advance, follow=how.follow):
                if not isinstance(item, Line):
                    yield item
                    continue
                number = item.number
                yield from _taken(transcript, item)
        if how.settled:
            yield from transcript.finish(abandoned=how.abandoned)
        if transcript.waits():
            yield Incomplete(number)


def _taken(transcript: Transcript, line: Line) -> list[ReadItem]:
    try:
        return list(transcript.take(line))
    except SHAPE_ERRORS:
        return [Damaged(line.number, f"{text_of(line.value.get('type'))[:80] or 'record'} of unexpected shape")]


class RecentSet:
    """A set that forgets its oldest members beyond `limit`, so that memory stays bounded in a file of any length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: dict[Hashable, None] = {}

    def add(self, member: Hashable) -> bool:
        """Adds the member; whether it is new."""
        if member in self._members:
            return False
        self._members[member] = None
        if len(self._members) > self._limit:
            del self._members[next(iter(self._members))]
        return True

    def discard(self, member: Hashable) -> bool:
        """Removes the member; whether it was there."""
        if member not in self._members:
            return False
        del self._members[member]
        return True

    def __contains__(self, member: Hashable) -> bool:
        return member in self._members


class ContentIds:
    """Event ids for records that bring none: a hash of what they say, with an ordinal for those that say it again."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def next(self, *parts: str | None) -> str:
        """The id of the next record that says this."""
        base = content_event_id(*parts)
        self._times[base] += 1
        return base if self._times[base] == 1 else f"{base}:{self._times[base]}"


def join_texts(texts: Sequence[str]) -> str:
    """Texts of one message below each other, empty ones left out."""
    return "\n".join(text for text in texts if text)
