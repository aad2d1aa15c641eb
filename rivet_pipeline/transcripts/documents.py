"""Reads one JSON document piece by piece: the members of an object, the elements of its arrays. Knows no harness.

A session or an export can be one document of a gigabyte, rewritten while it is read, or cut. Its long arrays are given
element by element, and memory is bounded by the largest of them. What stands before a cut is given; a damaged element
is counted and the next one looked for.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from rivet_pipeline.transcripts.lines import NOT_JSON, TOO_LONG, raw_decode
from rivet_pipeline.transcripts.records import Advance, Damaged, Incomplete

_BLANK = re.compile(r"[ \t\r\n]*")
_OBJECT = re.compile(r'\{\s*"')
_NUMBER_REST = re.compile(r"[0-9.eE+-]*")

_CHUNK = 64 * 1024

#: The decoder stops at most this far before the end of a text that was cut: within an escape or a literal.
_CUT_MARGIN = 12

#: How many places are tried to find the element behind a damaged one.
_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the top-level object, whole. `line` is where it ends, from 1."""

    line: int
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an array that is read piece by piece; `key` is the array's, and "" for one at the top."""

    line: int
    key: str
    index: int
    value: Any


DocumentItem = Member | Element | Damaged | Incomplete


def read_document(
    stream: BinaryIO,
    *,
    arrays: Collection[str] | None = None,
    within: Collection[str] = (),
    max_value: int = 256 * 1024 * 1024,
    advance: Advance | None = None,
) -> Iterator[DocumentItem]:
    """The parts of one JSON document in order.

    `arrays` names the members whose arrays are given element by element (None: all of them); an array at the top always
    is. `within` names members whose objects are opened too: their members are named with a dot, `outer.inner`, here and
    in `arrays`. No member or element may be longer than `max_value` characters. Bytes that are not UTF-8 become U+FFFD,
    NULs are dropped. A document that stops too early ends in `Incomplete`, one with text that is no JSON in `Damaged`.
    """
    text = _Text(stream, max_value, advance)
    try:
        start = text.peek()
        if start == "[":
            yield from _elements(text, "")
        elif start == "{":
            yield from _members(text, arrays, within)
        elif start:
            yield Damaged(text.line, NOT_JSON)
            return
        if start and text.peek():
            yield Damaged(text.line, "more than one document")
    except _CutError:
        yield Incomplete(text.line)
    except _BrokenError:
        yield Damaged(text.line, NOT_JSON)
    except _TooLongError:
        yield Damaged(text.line, TOO_LONG)


class _CutError(Exception):
    """The document ends within a value."""


class _BrokenError(Exception):
    """The document holds something that is no JSON, at `position` of the text at hand."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class _TooLongError(Exception):
    """A value is longer than allowed."""


class _Text:
    """The document's text, of which only what is being looked at is held."""

    def __init__(self, stream: BinaryIO, max_value: int, advance: Advance | None) -> None:
        self._stream = stream
        self._max = max_value
        self._advance = advance
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._first = True
        self.text = ""
        self.position = 0
        self.line = 1
        self.ended = False

    def peek(self) -> str:
        """The next character that is not blank, or nothing at the end."""
        while True:
            blank = _BLANK.match(self.text, self.position)
            self.step_to(blank.end() if blank else self.position)
            if self.position < len(self.text):
                return self.text[self.position]
            if self.ended:
                return ""
            self.fill()

    def take(self, expected: str) -> None:
        """Steps over a character that has to come."""
        found = self.peek()
        if not found:
            raise _CutError
        if found != expected:
            raise _BrokenError(self.position)
        self.step_to(self.position + 1)

    def value(self) -> Any:
        """The value that comes next."""
        if not self.peek():
            raise _CutError
        while True:
            try:
                value, end = raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                self._more_or_fail(error)
                continue
            except (ValueError, RecursionError) as error:
                raise _BrokenError(self.position) from error
            if isinstance(value, int | float) and _NUMBER_REST.fullmatch(self.text, end):
                # A number at the end of what is held could go on.
                if self.ended:
                    raise _CutError
                self.fill()
                continue
            self.step_to(end)
            return value

    def _more_or_fail(self, error: json.JSONDecodeError) -> None:
        cut = error.msg.startswith("Unterminated") or error.pos >= len(self.text) - _CUT_MARGIN
        if not cut:
            raise _BrokenError(error.pos) from None
        if self.ended:
            raise _CutError from None
        if len(self.text) - self.position > self._max:
            raise _TooLongError from None
        self.fill()

    def step_to(self, position: int) -> None:
        """Leaves everything before a position behind."""
        self.line += self.text.count("\n", self.position, position)
        self.position = position

    def fill(self) -> None:
        """Reads on, twice as much as is held, so that a long value is not decoded again too often."""
        self.text = self.text[self.position :]
        self.position = 0
        data = self._stream.read(max(_CHUNK, len(self.text)))
        self.ended = not data
        if self._advance is not None:
            self._advance(len(data))
        more = self._decoder.decode(data, final=self.ended).replace("\x00", "")
        if self._first and more:
            more = more.removeprefix("\ufeff")
            self._first = False
        self.text += more


def _members(
    text: _Text, arrays: Collection[str] | None, within: Collection[str], prefix: str = ""
) -> Iterator[DocumentItem]:
    text.take("{")
    if text.peek() == "}":
        text.take("}")
        return
    while True:
        if text.peek() not in {'"', ""}:
            raise _BrokenError(text.position)
        key = prefix + text.value()
        text.take(":")
        if text.peek() == "[" and (arrays is None or key in arrays):
            yield from _elements(text, key)
        elif text.peek() == "{" and key in within:
            yield from _members(text, arrays, (), f"{key}.")
        else:
            value = text.value()
            yield Member(text.line, key, value)
        if text.peek() == "}":
            text.take("}")
            return
        text.take(",")


def _elements(text: _Text, key: str) -> Iterator[DocumentItem]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    index = 0
    known: set[str] = set()
    while True:
        try:
            value = text.value()
            ahead = text.peek()
            if ahead not in {",", "]", ""}:
                raise _BrokenError(text.position)
        except _BrokenError as error:
            yield Damaged(text.line, NOT_JSON)
            value = _next_element(text, error.position, known)
            ahead = text.peek()
        if isinstance(value, dict):
            known |= value.keys()
        yield Element(text.line, key, index, value)
        index += 1
        if ahead == "]":
            text.take("]")
            return
        text.take(",")


def _next_element(text: _Text, position: int, known: set[str]) -> dict[str, Any]:
    """The next object behind a damaged one that looks like the elements before it."""
    text.step_to(max(position, text.position + 1))
    for _ in range(_ATTEMPTS):
        match = _OBJECT.search(text.text, text.position)
        if match is None:
            if text.ended:
                raise _CutError
            text.step_to(max(len(text.text) - 1, text.position))
            text.fill()
            continue
        text.step_to(match.start())
        try:
            value = text.value()
        except (_BrokenError, _CutError):
            text.step_to(text.position + 1)
            continue
        if text.peek() in {",", "]", ""} and (value.keys() & known or not known):
            found: dict[str, Any] = value
            return found
    raise _BrokenError(text.position)
