"""Reads JSON lines out of files as they are found on disk: huge, damaged, half written. Knows no harness.

A physical line is one record as a rule, but not always: two may be glued together, one may be cut in the middle with
the next one on the same line, a crash may leave a run of NULs before it. What can be recovered is given, what can not
is counted, and no line touches its neighbours.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from rivet_pipeline.transcripts.records import Advance, Damaged, Incomplete, Paused

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TOO_LONG = "line too long"
NOT_JSON = "not JSON"
NOT_AN_OBJECT = "not an object"
CUT_SHORT = "cut short"
TOO_DEEP = "nested too deeply"

_STEP = 1024 * 1024

#: Control characters inside strings are let through: they are what a careless writer meant to say.
_DECODER = json.JSONDecoder(strict=False)


def _number(digits: str) -> int | str:
    """A whole number; as text when it has more digits than Python converts."""
    try:
        return int(digits)
    except ValueError:
        return digits


#: Slower, and asked only about what the other one gives up on.
_PATIENT_DECODER = json.JSONDecoder(strict=False, parse_int=_number)

_START = re.compile(r'\{\s*"')
_BLANK = re.compile(r"[ \t\r\n]*")

#: Keys that stand in a whole record and not in its parts: they tell a record from a nested object that looks like one.
_ENVELOPE_KEYS = frozenset({"timestamp", "uuid", "sessionId", "payload", "created_at", "leafUuid"})

#: A hopeless line is searched at a cost of at most this many times its length.
_SEARCH_BUDGET = 8

#: What an attempt costs that ended at the decoder's nesting limit.
_DEEP = 5000


@dataclass(frozen=True, slots=True)
class Line:
    """One record. `number` is the physical line, from 1; several records may share one."""

    number: int
    value: dict[str, Any]


LineItem = Line | Damaged | Incomplete | Paused

#: How compressed transcripts end.
COMPRESSIONS = frozenset({".zst", ".zstd"})


def without_compression(path: Path) -> Path:
    """The path without the ending of a compression: `a.jsonl.zst` is `a.jsonl`."""
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path


def open_stream(path: Path) -> BinaryIO:
    """Opens a transcript for reading, decompressed. Raises `OSError` when it can not be read; so does the stream."""
    if path.suffix in COMPRESSIONS:
        return cast(BinaryIO, io.BufferedReader(_Decompressed(path), _STEP))
    return path.open("rb")


class _Decompressed(io.RawIOBase):
    """A zstd file, all its frames: whoever appends to one adds a frame."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._file = path.open("rb")
        self._inner = zstandard.ZstdDecompressor().stream_reader(self._file, read_across_frames=True)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            return self._inner.readinto(buffer)
        except self._error as error:
            raise OSError(f"not a sound zstd file: {error}") from error

    def close(self) -> None:
        self._file.close()
        super().close()


def read_lines(
    stream: BinaryIO, *, max_line: int, advance: Advance | None = None, follow: bool = False
) -> Iterator[LineItem]:
    """The records of a binary stream, in order; memory is bounded by `max_line` bytes and what they decode to.

    A longer line is stepped over and counted as damaged. Bytes that are not UTF-8 become U+FFFD. Blank lines are
    ignored. A last line without an end is given when it is whole and reported as incomplete when it is not. With
    `follow`, for which the stream must be seekable, `Paused` is given instead whenever no ended line is left.
    """
    number = 0
    while True:
        start = stream.tell() if follow else 0
        raw = stream.readline(max_line + 1)
        size = len(raw)
        ended = raw.endswith(b"\n")
        if follow and not ended and size <= max_line:
            stream.seek(start)
            yield Paused()
            continue
        if not raw:
            return
        number += 1
        if size > max_line and not ended:
            del raw
            while not ended:
                skipped, ended = _skip_rest(stream)
                size += skipped
                if not follow:
                    break
                if not ended:
                    yield Paused()
            yield Damaged(number, TOO_LONG)
        else:
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            text = raw.replace(b"\x00", b"").decode("utf-8", "replace").strip(" \t\r\n")
            del raw
            yield from _records(text, number, ended=ended)
        if advance is not None:
            advance(size)


def _skip_rest(stream: BinaryIO) -> tuple[int, bool]:
    """Steps over the rest of a line: how many bytes that was, and whether its end was met."""
    skipped = 0
    while part := stream.readline(_STEP):
        skipped += len(part)
        if part.endswith(b"\n"):
            return skipped, True
    return skipped, False


def _records(text: str, number: int, *, ended: bool) -> Iterator[LineItem]:
    if not text:
        return
    value, _ = _decode(text, 0)
    if value is not None and value.end == len(text) and (ended or isinstance(value.value, dict)):
        yield _item(value.value, number)
        return
    for part in _Recovery(text).parts():
        if isinstance(part, _Whole):
            yield _item(part.value, number)
        elif part.last and not ended:
            yield Incomplete(number)
        else:
            yield Damaged(number, _what_is_wrong(text))


def _what_is_wrong(text: str) -> str:
    if _is_too_deep(text):
        return TOO_DEEP
    return CUT_SHORT if text.startswith("{") else NOT_JSON


def _item(value: Any, number: int) -> Line | Damaged:
    return Line(number, value) if isinstance(value, dict) else Damaged(number, NOT_AN_OBJECT)


@dataclass(frozen=True, slots=True)
class _Whole:
    value: Any
    end: int


@dataclass(frozen=True, slots=True)
class _Lost:
    #: Whether it reaches to the end of the line.
    last: bool


def _decode(text: str, start: int) -> tuple[_Whole | None, int]:
    """The JSON value that begins at `start` with the blanks behind it, else None and where it stopped making sense."""
    try:
        value, end = raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, max(error.pos, start)
    except RecursionError:
        return None, start
    blank = _BLANK.match(text, end)
    return _Whole(value, blank.end() if blank else end), end


def raw_decode(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends.

    Raises `json.JSONDecodeError`, or `RecursionError` when it is nested deeper than Python's stack.
    """
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _PATIENT_DECODER.raw_decode(text, start)


def _is_too_deep(text: str) -> bool:
    try:
        raw_decode(text, 0)
    except RecursionError:
        return True
    except ValueError:
        return False
    return False


class _Recovery:
    """Finds the whole records in a line that is not one record.

    A cut record swallows the beginning of the one spliced to it, and the decoder stops within a few characters of that
    beginning; so the search goes on from there, and a line is walked once. Only a record that was spliced in where a
    value was due is swallowed whole; it is looked for behind the place where the decoder stopped, within a budget.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.budget = _SEARCH_BUDGET * len(text) + 1000

    def parts(self) -> Iterator[_Whole | _Lost]:
        """The whole records and the lost stretches between them, in order."""
        position = 0
        while position < len(self.text):
            whole, stopped = _decode(self.text, position)
            if whole is not None and isinstance(whole.value, dict):
                yield whole
                position = whole.end
                continue
            found = self._next(position, stopped)
            yield _Lost(last=found is None)
            if found is None:
                return
            yield found
            position = found.end

    def _next(self, start: int, stopped: int) -> _Whole | None:
        return self._swallowed(start, stopped) or self._ahead(max(start + 1, stopped - 3))

    def _ahead(self, position: int) -> _Whole | None:
        while self.budget > 0 and (match := _START.search(self.text, position)):
            whole, stopped = _decode(self.text, match.start())
            if whole is not None and self._is_record(match.start(), whole):
                return whole
            if whole is None:
                self.budget -= self._failure(match.start(), stopped)
            position = whole.end if whole is not None else max(match.start() + 1, stopped - 3)
        return None

    def _swallowed(self, start: int, stopped: int) -> _Whole | None:
        """A record that stands where the cut one was to have a value, and so ends just where the decoder stopped."""
        position = start + 1
        while self.budget > 0 and (match := _START.search(self.text, position, stopped)):
            whole, failed = _decode(self.text, match.start())
            if whole is None:
                self.budget -= failed - match.start() + self._failure(match.start(), failed)
                position = match.start() + 1
                continue
            if whole.end >= stopped and self._is_record(match.start(), whole):
                return whole
            self.budget -= whole.end - match.start()
            position = whole.end
        return None

    @staticmethod
    def _failure(start: int, stopped: int) -> int:
        # The decoder counts the lines before the place it complains about, so a failure far into the text is dear.
        return start // 16 + (_DEEP if stopped == start else 1)

    def _is_record(self, start: int, whole: _Whole) -> bool:
        """Whether a whole object is a record of its own, and not a part of the one that was cut."""
        if whole.end < len(self.text) and self.text[whole.end] != "{":
            return False
        before = self.text[max(start - 20, 0) : start].rstrip()[-1:]
        return before not in {":", ",", "["} or not _ENVELOPE_KEYS.isdisjoint(whole.value)
