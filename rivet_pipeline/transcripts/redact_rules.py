"""What a redaction of stored rows replaces: the known shapes, a pattern, or a literal. Pure but for a pattern's clock.

Where the rows stand and how they are written is `redact_stored`'s business.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.transcripts.redaction import (
    MARK,
    Counts,
    find_secrets,
    placeholder,
    redact_json,
    redact_text,
    secrets_in_json,
)

RuleName = Literal["shapes", "pattern", "literal", "whole"]

#: A shorter literal would hit half of everything.
SHORTEST_LITERAL = 4

#: A value found in one text is looked for in others from this length on: a password `p` is in every word with a p.
_SHORTEST_VALUE = 6

#: How long, in seconds, a pattern may work on one row.
PATTERN_SECONDS = 10.0

_PLACEHOLDER = re.compile(r"\[redacted:[a-z_]+\]")
_FIXED_START = re.compile(r"[A-Za-z0-9_-]+")


#: Characters around a match in an excerpt.
_AROUND = 30
_TOUCHING_BEFORE = re.compile(r"[\w+/.-]+\Z")
_TOUCHING_AFTER = re.compile(r"\A[\w+/.-]+")


class PatternTimeoutError(Exception):
    """A pattern took too long on one row."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is replaced. `needles`: strings one of which stands in every text that matches; empty when that is unknown.

    `kinds` names what a match is by its text; any other match is of the rule's own name.
    """

    name: RuleName
    pattern: re.Pattern[str] | None = None
    needles: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def shapes(self) -> bool:
        """Whether the known shapes are replaced too."""
        return self.name in ("shapes", "whole")

    def text(self, text: str) -> tuple[str, Counts]:
        """The text without what the rule says, and how much it was. Placeholders that are there stay."""
        text, counts = redact_text(text) if self.shapes else (text, {})
        tally = Counter(counts)
        if self.pattern is not None:
            text = self._replace(self.pattern, text, tally)
        return text, dict(tally)

    def value(self, value: Any) -> tuple[Any, Counts]:
        """The JSON value without what the rule says, in its keys too."""
        value, counts = redact_json(value) if self.shapes else (value, {})
        tally = Counter(counts)
        if self.pattern is not None:
            value = self._replace_in(self.pattern, value, tally)
        return value, dict(tally)

    def found_in(self, text: str) -> set[str]:
        """What the rule would replace in a text, as it is written there."""
        found = {value for _, value in values_in_text(text)} if self.shapes else set()
        if self.pattern is not None:
            found |= {match.group() for match in self.pattern.finditer(text) if match.group()}
        return found

    def with_values(self, values: Iterable[tuple[str, str]]) -> Rule:
        """The same rule, and these (kind, value) pairs wherever they stand."""
        kinds = {value: kind for kind, value in values if len(value) >= _SHORTEST_VALUE}
        if not kinds:
            return self
        longest_first = sorted(kinds, key=lambda value: (-len(value), value))
        return Rule(self.name, re.compile("|".join(map(re.escape, longest_first))), tuple(longest_first), kinds)

    def _replace(self, pattern: re.Pattern[str], text: str, tally: Counter[str]) -> str:
        held = [match.span() for match in _PLACEHOLDER.finditer(text)] if MARK in text else []
        starts = [start for start, _ in held]

        def put(match: re.Match[str]) -> str:
            start, end = match.span()
            if start == end or _cuts(held, starts, start, end):
                return match.group()
            kind = self.kinds.get(match.group(), self.name)
            tally[kind] += 1
            return placeholder(kind)

        return pattern.sub(put, text)

    def _replace_in(self, pattern: re.Pattern[str], value: Any, tally: Counter[str]) -> Any:
        if isinstance(value, str):
            return self._replace(pattern, value, tally)
        if isinstance(value, list):
            return [self._replace_in(pattern, item, tally) for item in value]
        if isinstance(value, dict):
            renamed: dict[str, Any] = {}
            for key, item in value.items():
                name = self._replace(pattern, key, tally)
                while name in renamed:
                    name += "'"
                renamed[name] = self._replace_in(pattern, item, tally)
            return renamed
        return value


def _cuts(held: list[tuple[int, int]], starts: list[int], start: int, end: int) -> bool:
    """Whether a match lies in a placeholder or takes a part of one; one that holds all of it and more does not."""
    first = max(bisect_right(starts, start) - 1, 0)
    for other_start, other_end in held[first:]:
        if other_start >= end:
            break
        if other_end > start and not (
            start <= other_start and other_end <= end and (start, end) != (other_start, other_end)
        ):
            return True
    return False


def shapes_rule(*, whole: bool = False) -> Rule:
    """The shapes that `redaction` knows; `whole` replaces a message's whole text besides."""
    return Rule("whole" if whole else "shapes")


def pattern_rule(pattern: str) -> Rule:
    """A regular expression in Python's spelling. Raises `InvalidInputError` for none, or one that matches no text."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidInputError("pattern", f"it is no regular expression: {error}") from None
    if compiled.fullmatch(""):
        raise InvalidInputError("pattern", "it matches the empty text; write what must be there")
    return Rule("pattern", compiled, _fixed_start(pattern))


def literal_rule(literal: str) -> Rule:
    """A text as it is, also as it stands escaped in JSON. Raises `InvalidInputError` when it is too short."""
    if len(literal.strip()) < SHORTEST_LITERAL:
        raise InvalidInputError("literal", f"give at least {SHORTEST_LITERAL} characters")
    escaped = json.dumps(literal, ensure_ascii=False)[1:-1]
    spellings = tuple(dict.fromkeys((escaped, literal)))
    return Rule("literal", re.compile("|".join(map(re.escape, spellings))), spellings)


def _fixed_start(pattern: str) -> tuple[str, ...]:
    """What every match of the pattern begins with, when its spelling says so plainly and it is worth looking for."""
    match = _FIXED_START.match(pattern)
    if match is None or "|" in pattern:
        return ()
    start = match.group()
    if pattern[match.end() : match.end() + 1] in ("?", "*", "{"):
        start = start[:-1]
    return (start,) if len(start) >= 3 else ()


def values_in_text(text: str) -> set[tuple[str, str]]:
    """The (kind, value) pairs that `redact_text` would replace."""
    return {(secret.kind, text[secret.start : secret.end]) for secret in find_secrets(text)}


def values_in(texts: Iterable[str | None], values: Iterable[Any]) -> set[tuple[str, str]]:
    """The (kind, value) pairs in texts and JSON values."""
    found: set[tuple[str, str]] = set()
    for text in texts:
        found |= values_in_text(text or "")
    for value in values:
        found |= secrets_in_json(value)
    return found


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends a pattern that runs away, with `PatternTimeoutError`. Only in the main thread, where signals arrive."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise PatternTimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    # What another alarm has left (a test's own limit) goes on afterwards.
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, before)


def sum_of(counts: Iterable[Counts]) -> Counts:
    """Counts of several texts together."""
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return dict(total)


def excerpt(new: Any) -> str:
    """Some words around a replacement, from what the row says afterwards."""
    text = new if isinstance(new, str) else json.dumps(new, ensure_ascii=False)
    start = max(text.find(MARK), 0)
    end = text.find("]", start) + 1
    # A pattern may have caught a part of the secret: what touches it is not shown.
    before = _TOUCHING_BEFORE.sub("\u2026", text[max(start - _AROUND, 0) : start])
    after = _TOUCHING_AFTER.sub("\u2026", text[end : end + _AROUND])
    return redact_text(f"{before}{text[start:end]}{after}")[0]
