"""What is embedded of a message or summary: its text, without binary data, cut into chunks. Pure functions.

No database and no model is touched here. A change that gives other chunks raises `versions.EMBEDDING_VERSION`.

The text of an owner is what the database hashes: `content`, a newline, `tool_result`. Positions that leave this module
count characters of that text, so that `substring` finds the words a vector stands for.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: A longer text gets this many chunks, spread evenly from its first to its last: the parts between them have no vector
#: (their words are still found as words), and the beginning and the end always do.
MAX_CHUNKS = 64

#: A break is looked for in this last part of a window.
_BREAK_SHARE = 0.15

#: How far a cut moves back at most to keep a character whole; longer clusters are not text.
_LONGEST_CLUSTER = 32

#: Base64 that stands for a file: a data URL of 200 or more characters, 400 or more in one run, or 4 or more full lines.
#: Shorter runs are hashes, tokens and prose that only mentions such data.
_BLOB = re.compile(
    r"data:[\w.+-]{1,80}/[\w.+-]{1,80}(?:;[\w=.+-]{1,80}){0,4};base64,[A-Za-z0-9+/_=-]{200,}+"
    r"|(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{60,}+\r?\n){4,}+[A-Za-z0-9+/_-]*+={0,2}"
    r"|(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{400,}+={0,2}"
)

#: A run of fewer different characters is a ruler or padding, not data.
_LEAST_VARIETY = 12

_MAX_ARGUMENT = 200
_MAX_CALL = 1000

#: A full stop with its space, or the full-width marks of Chinese and Japanese.
_SENTENCE_END = re.compile("[.!?\u2026][\"')\\]]*\\s+|[\u3002\uff01\uff1f]")


@dataclass(frozen=True, slots=True)
class Piece:
    """One text to embed and the part of the owner's text it stands for, `[start, end)` in characters."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a composed text and where it comes from. `verbatim`: character by character the same."""

    at: int
    source_start: int
    source_end: int
    verbatim: bool


@dataclass(frozen=True, slots=True)
class Composed:
    """A text as it is embedded, and its way back to the owner's text."""

    text: str
    segments: tuple[_Segment, ...]
    source_length: int

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """The part of the owner's text that `text[start:end]` (not empty) stands for."""
        first = self._segment(start)
        last = self._segment(end - 1)
        source_start = first.source_start + (start - first.at if first.verbatim else 0)
        source_end = last.source_start + (end - last.at) if last.verbatim else last.source_end
        return source_start, source_end

    def _segment(self, position: int) -> _Segment:
        index = bisect_right(self.segments, position, key=lambda segment: segment.at) - 1
        return self.segments[index]


def compose_message(content: str, tool_name: str | None, tool_args: Any, tool_result: str | None) -> Composed:
    """A message's text. A tool call without words of its own begins with its name and short arguments."""
    source = f"{content}\n{tool_result or ''}"
    header = describe_call(tool_name, tool_args) if tool_name and not content.strip() else ""
    return _compose(source, header)


def compose_summary(content: str) -> Composed:
    """A summary's text."""
    return _compose(content, "")


def describe_call(tool_name: str, tool_args: Any) -> str:
    """A tool call in one line: `Bash: command=git status`. Long values are cut to 200 characters, all to 1,000."""
    if isinstance(tool_args, Mapping):
        shown = "; ".join(f"{key}={_short(value)}" for key, value in tool_args.items())
    else:
        shown = _short(tool_args)
    line = f"{tool_name}: {shown}" if shown else tool_name
    return line[: safe_cut(line, _MAX_CALL)]


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(_BLOB.sub(_placeholder, text).split())
    return text[: safe_cut(text, _MAX_ARGUMENT)]


def _compose(source: str, header: str) -> Composed:
    parts: list[str] = []
    segments: list[_Segment] = []
    length = 0

    def add(text: str, start: int, end: int, *, verbatim: bool) -> None:
        nonlocal length
        if text:
            parts.append(text)
            segments.append(_Segment(length, start, end, verbatim))
            length += len(text)

    add(header, 0, 0, verbatim=False)
    done = 0
    for blob in _BLOB.finditer(source):
        if _is_blob(blob.group()):
            add(source[done : blob.start()], done, blob.start(), verbatim=True)
            add(_placeholder(blob), blob.start(), blob.end(), verbatim=False)
            done = blob.end()
    add(source[done:], done, len(source), verbatim=True)
    return Composed("".join(parts), tuple(segments), len(source))


def _is_blob(run: str) -> bool:
    return len(set(run[:2000])) >= _LEAST_VARIETY


def _placeholder(blob: re.Match[str]) -> str:
    run = blob.group()
    if not _is_blob(run):
        return run
    # Four characters of base64 hold three bytes.
    return f"(binary data, {max(1, len(run) * 3 // 4 // 1024)} KB)"


def pieces(composed: Composed, size: int) -> list[Piece]:
    """The texts to embed for one owner, at least one and at most `MAX_CHUNKS`, each of at most `size` characters."""
    text = composed.text
    spans = [(start, end) for start, end in chunks(text, size) if text[start:end].strip()]
    if not spans:
        return [Piece("blank text", 0, composed.source_length)]
    return [Piece(text[start:end].strip(), *composed.source_span(start, end)) for start, end in spread(spans)]


def spread(spans: Sequence[tuple[int, int]], limit: int = MAX_CHUNKS) -> list[tuple[int, int]]:
    """At most `limit` (2 or more) of the spans, evenly spaced, the first and the last among them."""
    if len(spans) <= limit:
        return list(spans)
    return [spans[round(index * (len(spans) - 1) / (limit - 1))] for index in range(limit)]


def chunks(text: str, size: int) -> list[tuple[int, int]]:
    """Cuts a text into spans `[start, end)` of at most `size` characters that together are the whole text.

    A cut is made after a blank line, else a line, else a sentence, else a word, in the last 15 % of the window, and in
    the middle of a word only when there is none. A character with its accents, joiners and modifiers is not split.
    An empty text has no spans. Raises `ValueError` unless `size` is positive.
    """
    if size < 1:
        raise ValueError("size must be at least 1")
    spans: list[tuple[int, int]] = []
    start = 0
    while len(text) - start > size:
        end = start + _break(text[start : start + size + 1], size)
        spans.append((start, end))
        start = end
    if start < len(text):
        spans.append((start, len(text)))
    return spans


def _break(window: str, size: int) -> int:
    """Where to end a chunk in a window that has one character more than fits."""
    earliest = max(1, size - int(size * _BREAK_SHARE))
    for separator in ("\n\n", "\n"):
        found = window.rfind(separator, earliest - len(separator), size)
        if found >= 0:
            return found + len(separator)
    ends = [match.end() for match in _SENTENCE_END.finditer(window, earliest - 1, size)]
    if ends and ends[-1] >= earliest:
        return ends[-1]
    for position in range(size, earliest - 1, -1):
        if window[position - 1].isspace():
            return position
    return safe_cut(window, size)


def safe_cut(text: str, limit: int) -> int:
    """The largest position up to `limit` (1 or more) that splits no character from what modifies it."""
    if len(text) <= limit:
        return len(text)
    for position in range(limit, max(0, limit - _LONGEST_CLUSTER), -1):
        if not _continues(text, position):
            return position
    return limit


def _continues(text: str, position: int) -> bool:
    """Whether the character at `position` belongs to the one before it."""
    before, here = text[position - 1], text[position]
    if here == "\u200d" or before == "\u200d" or (before == "\r" and here == "\n"):
        return True
    if "\udc00" <= here <= "\udfff" or "\U0001f3fb" <= here <= "\U0001f3ff":
        return True
    if "\U0001f1e6" <= here <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff":
        # Flags are pairs: an odd number of indicators before the cut would split one.
        run = position
        while run > 0 and "\U0001f1e6" <= text[run - 1] <= "\U0001f1ff":
            run -= 1
        return (position - run) % 2 == 1
    return unicodedata.category(here) in {"Mn", "Me", "Mc"}
