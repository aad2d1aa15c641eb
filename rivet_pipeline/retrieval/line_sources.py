"""Which message a line of a summary speaks of. Pure: summaries quote or retell, so a line shares its source's words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

#: A line is given to a message only when that holds this share of the weight of the line's words.
LEAST_SHARE = 0.5

#: Our own summaries begin a line with its source's minute and voice: `- 2026-03-08T09:15Z claude-code/user: …`.
STAMP = re.compile(r"\A\s*[-*]\s+(?P<minute>\d{4}-\d\d-\d\dT\d\d:\d\d)Z\s+(?P<voice>[^\s:]+):\s*")
_WORD = re.compile(r"\w+", re.UNICODE)

#: How much of a text is looked at, in characters.
_LOOKED_THROUGH = 20_000


@dataclass(frozen=True, slots=True)
class SourceText:
    """A message that a summary was made from. `created_at` is aware."""

    id: UUID
    created_at: datetime
    text: str


def sources_of_lines(lines: Sequence[str], sources: Sequence[SourceText]) -> list[UUID | None]:
    """For each line the message that holds most of what it says, None where none holds enough of it."""
    words = [set(_words(source.text)) for source in sources]
    frequencies = Counter(word for found in words for word in found)
    by_minute: dict[str, list[int]] = {}
    for index, source in enumerate(sources):
        by_minute.setdefault(source.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M"), []).append(index)
    answer: list[UUID | None] = []
    for line in lines:
        stamp = STAMP.match(line)
        among = by_minute.get(stamp["minute"], []) if stamp else []
        said = set(_words(line[stamp.end() :] if stamp else line))
        weights = {word: math.log(1 + len(sources) / (1 + frequencies[word])) for word in said}
        best = _best(weights, words, among or range(len(sources)))
        answer.append(None if best is None else sources[best].id)
    return answer


def _best(weights: dict[str, float], words: Sequence[set[str]], among: Sequence[int]) -> int | None:
    total = sum(weights.values())
    if len(weights) < 2 or total <= 0:
        return among[0] if weights and len(among) == 1 else None
    shares = [(sum(weights[word] for word in weights.keys() & words[index]) / total, -index) for index in among]
    share, negated = max(shares)
    return -negated if share >= LEAST_SHARE else None


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:_LOOKED_THROUGH].lower())
