"""Finds the JSON value in a chat model's answer. Pure functions, linear in the answer's length.

What a right value looks like is the caller's to say; nothing here knows what was asked.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.models.texts import clean_outgoing, strip_thinking

#: Values nested deeper than this are no answer to anything that is asked here.
MAX_DEPTH = 200

_START = re.compile(r"[{\[]")
_TOKEN = re.compile(
    r"[ \t\r\n]*+(?:(?P<mark>[{\[}\],:])"
    r'|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
    r"|(?P<scalar>true|false|null|-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+))",
    re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
_NOTHING = object()


def parse_json_answer(text: str, fits: Callable[[Any], bool]) -> Any:
    """The first balanced object or array of the answer that parses and fits.

    Thinking is stripped first. Prose and code fences around the value are passed over, braces inside strings are text,
    a trailing comma and a raw line break in a string are forgiven. Strings come without NULs, control characters and
    lone surrogates, so that they can be stored. An empty array is an answer when it fits.

    Args:
        text: The whole answer.
        fits: Whether a value has the shape that was asked for. It is called for outer values before inner ones.

    Raises:
        ModelError: content, `no-json` when nothing parses, `wrong-shape` when something does and nothing fits.
    """
    return next(_fitting(text, fits))


def parse_json_answers(text: str, fits: Callable[[Any], bool]) -> list[Any]:
    """All values of an answer that `parse_json_answer` could have found, but for those inside one that fits.

    Raises `ModelError` as that does, so there is at least one.
    """
    return list(_fitting(text, fits))


def _fitting(text: str, fits: Callable[[Any], bool]) -> Iterator[Any]:
    text = strip_thinking(text)
    reader = _Reader(text)
    parsed, end = False, 0
    for start in _START.finditer(text):
        value = reader.value_at(start.start()) if start.start() >= end else _NOTHING
        if value is _NOTHING:
            continue
        parsed = True
        if fits(value):
            end = reader.end_of(start.start())
            yield value
    if end:
        return
    said = " ".join(text[:2000].split())[:200]
    if parsed:
        raise ModelError("content", "wrong-shape", f"the JSON is not of the shape that was asked for: {said!r}")
    raise ModelError("content", "no-json", f"no JSON object or array in {said!r}")


class _Container:
    """An object or array that is being read. `state` says what may come next."""

    __slots__ = ("key", "start", "state", "value")

    def __init__(self, start: int, mark: str) -> None:
        self.start = start
        self.value: Any = {} if mark == "{" else []
        self.key = ""
        # first, item: a value (or a key) or the end; colon; value: after a colon; more: a comma or the end.
        self.state = "item"

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    def closes(self, mark: str) -> bool:
        return mark == ("}" if self.is_object else "]") and self.state in {"item", "more"}

    def step(self, mark: str) -> bool:
        """Takes a comma or a colon. False when it may not stand here."""
        if mark == "," and self.state == "more":
            self.state = "item"
        elif mark == ":" and self.state == "colon":
            self.state = "value"
        else:
            return False
        return True

    def takes_values(self) -> bool:
        return self.state == "value" or (self.state == "item" and not self.is_object)

    def take(self, value: Any) -> bool:
        """Takes a key or a value. False when none may stand here; no key may stand twice, for one would be lost."""
        if self.takes_values():
            if self.is_object:
                self.value[self.key] = value
            else:
                self.value.append(value)
            self.state = "more"
            return True
        if self.is_object and self.state == "item" and isinstance(value, str) and value not in self.value:
            self.key, self.state = value, "colon"
            return True
        return False


class _Reader:
    """Reads values at any place of a text and remembers them.

    A value that begins inside another is read once, with that one: when the outer one fails, so do all that are open,
    and those that were complete are known. So each character is read at most twice, once as text inside a string and
    once outside of one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[int, tuple[int, Any]] = {}

    def value_at(self, start: int) -> Any:
        """The value that begins at `start`, or `_NOTHING`."""
        if start not in self._known:
            self._read(start)
        return self._known[start][1]

    def end_of(self, start: int) -> int:
        """Where the value ends that begins at `start` and has been read."""
        return self._known[start][0]

    def _read(self, start: int) -> None:
        open_ones: deque[_Container] = deque([_Container(start, self._text[start])])
        position = start + 1
        while open_ones:
            match = _TOKEN.match(self._text, position)
            position = self._step(open_ones, match) if match is not None else -1
            if position < 0:
                break
            if len(open_ones) > MAX_DEPTH:
                self._fail(open_ones.popleft())
        for failed in open_ones:
            self._fail(failed)

    def _fail(self, container: _Container) -> None:
        self._known[container.start] = (-1, _NOTHING)

    def _step(self, open_ones: deque[_Container], match: re.Match[str]) -> int:
        """Takes one token; where the next begins, or -1 when the token may not stand there."""
        inner, mark = open_ones[-1], match["mark"]
        if mark is None:
            value = _scalar(match)
            return match.end() if value is not _NOTHING and inner.take(value) else -1
        if mark in "{[":
            return self._open(open_ones, match.end() - 1, mark)
        if mark in ",:":
            return match.end() if inner.step(mark) else -1
        if not inner.closes(mark):
            return -1
        open_ones.pop()
        self._known[inner.start] = (match.end(), inner.value)
        if open_ones:
            open_ones[-1].take(inner.value)
        return match.end()

    def _open(self, open_ones: deque[_Container], start: int, mark: str) -> int:
        if not open_ones[-1].takes_values():
            return -1
        if start not in self._known:
            open_ones.append(_Container(start, mark))
            return start + 1
        end, value = self._known[start]
        if value is not _NOTHING:
            open_ones[-1].take(value)
        return end


def _scalar(match: re.Match[str]) -> Any:
    if match["string"] is not None:
        try:
            return clean_outgoing(json.loads(match["string"], strict=False))
        except ValueError:
            return _NOTHING
    word = match["scalar"]
    if word in _WORDS:
        return _WORDS[word]
    try:
        number = json.loads(word)
    except ValueError:
        return _NOTHING
    return _NOTHING if isinstance(number, float) and not math.isfinite(number) else number
