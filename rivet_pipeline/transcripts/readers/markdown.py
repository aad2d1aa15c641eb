"""Reads Markdown transcripts line by line, and tells what stands in a code block. Knows no harness.

A transcript in Markdown marks its speakers by lines that its texts may hold as well: in a code block they are quoted,
and mark nothing. But an answer that was cut off leaves its code block open, and the marks behind it do count. So a mark
in an open block is judged by what comes next: it was quoted if the block ends, and if the next mark behind that end
stands in no block; it was not if another block begins, or if what looked like the end was the beginning of another.
"""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from rivet_pipeline.transcripts.lines import TOO_LONG
from rivet_pipeline.transcripts.records import Advance, Damaged

#: How many lines behind a mark in an open block are looked at for the block's end.
LOOK_AHEAD = 5000

_STEP = 1024 * 1024

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")
_EDIT_START = re.compile(r"<{5,9} SEARCH>?\s*")
_EDIT_END = re.compile(r">{5,9} REPLACE\s*")


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line, without its end. `ended` is False for a last line that has none."""

    number: int
    text: str
    ended: bool


class TextLines:
    """The lines of a text in order, in constant memory, with a look at those to come.

    No line may be longer than `max_line` bytes; a longer one is given as damaged. Bytes that are not UTF-8 become
    U+FFFD, NULs are dropped.
    """

    def __init__(self, stream: BinaryIO, *, max_line: int, advance: Advance | None = None) -> None:
        self._source = _lines(stream, max_line, advance)
        self._waiting: deque[TextLine | Damaged] = deque()

    def __iter__(self) -> Iterator[TextLine | Damaged]:
        while self._waiting or self._fetch():
            yield self._waiting.popleft()

    def ahead(self, limit: int) -> Iterator[TextLine]:
        """The lines that come next, at most `limit`, without taking them."""
        for position in range(limit):
            if position >= len(self._waiting) and not self._fetch():
                return
            line = self._waiting[position]
            if isinstance(line, TextLine):
                yield line

    def _fetch(self) -> bool:
        line = next(self._source, None)
        if line is None:
            return False
        self._waiting.append(line)
        return True


def _lines(stream: BinaryIO, max_line: int, advance: Advance | None) -> Iterator[TextLine | Damaged]:
    number = 0
    while raw := stream.readline(max_line + 1):
        number += 1
        size = len(raw)
        ended = raw.endswith(b"\n")
        if size > max_line and not ended:
            while not ended and (more := stream.readline(_STEP)):
                size += len(more)
                ended = more.endswith(b"\n")
            yield Damaged(number, TOO_LONG)
        else:
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            yield TextLine(number, raw.replace(b"\x00", b"").decode("utf-8", "replace").rstrip("\r\n"), ended)
        if advance is not None:
            advance(size)


class CodeBlocks:
    """Follows the code fences and SEARCH/REPLACE blocks of a text, line by line."""

    def __init__(self) -> None:
        self._fence = ""
        self._edit = False

    @property
    def open(self) -> bool:
        """Whether the next line stands in a block."""
        return self._edit or bool(self._fence)

    def take(self, line: str) -> None:
        """Steps over a line."""
        if self._edit:
            self._edit = _EDIT_END.fullmatch(line) is None
        elif _EDIT_START.fullmatch(line):
            self._edit = True
        elif match := _FENCE.fullmatch(line):
            if not self._fence:
                self._fence = match[1]
            elif self._closes(match):
                self._fence = ""

    def ends(self, line: str) -> bool | None:
        """What a line says about the block that is open: True, it ends here; False, it had ended before; else None."""
        if self._edit:
            if _EDIT_END.fullmatch(line):
                return True
            return False if _EDIT_START.fullmatch(line) else None
        match = _FENCE.fullmatch(line)
        # A shorter fence, or one of the other kind, is part of what the block holds.
        return not match[2].strip() if match is not None and match[1].startswith(self._fence) else None

    def _closes(self, match: re.Match[str]) -> bool:
        return match[1].startswith(self._fence) and not match[2].strip()


class Undecided(Exception):  # noqa: N818 - no error: the text may go on
    """Whether a line is a mark depends on what was not written yet."""


class Quotes:
    """Tells the marks that are quoted in a code block from those that count. `mark` knows a mark by its line."""

    def __init__(self, lines: TextLines, mark: Callable[[str], bool], *, settled: bool) -> None:
        self._lines = lines
        self._mark = mark
        self._settled = settled
        self._blocks = CodeBlocks()
        self._quoted_until = 0

    def take(self, line: str) -> None:
        """Steps over a line of a text."""
        self._blocks.take(line)

    def restart(self) -> None:
        """A new text begins."""
        self._blocks = CodeBlocks()

    def hides(self, number: int) -> bool:
        """Whether a mark on the line of this number, behind what was taken, is quoted. May raise `Undecided`."""
        if not self._blocks.open:
            return False
        if number > self._quoted_until:
            self._quoted_until = self._end(number)
        return number < self._quoted_until

    def _end(self, number: int) -> int:
        """The line where the open block ends; the given one when it has no end."""
        blocks = copy.copy(self._blocks)
        seen, end = 0, number
        for seen, line in enumerate(self._lines.ahead(LOOK_AHEAD), 1):  # noqa: B007 - used behind the loop
            if not line.ended and not self._settled:
                raise Undecided
            if end > number and self._mark(line.text):
                break
            ends = blocks.ends(line.text) if end == number else None
            if ends is False:
                return number
            end = line.number if ends else end
            blocks.take(line.text)
        else:
            if seen < LOOK_AHEAD and not self._settled:
                raise Undecided
        return number if blocks.open else end
