"""Finds parts of a redacted secret in names that were made of its words. Pure.

A tagger or a miner makes names of words: `KEY-12` of `KEY-12-QUAY`. What becomes of such a name says its own room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rivet_pipeline.summaries.signals import STOP_WORDS
from rivet_pipeline.transcripts.redaction import placeholder

#: A part of a secret that is shorter, in letters and figures, tells nothing of it.
SHORTEST_PART = 4

_WORD = re.compile(r"[^\W_]+")
_PLACEHOLDER = re.compile(r"\[redacted:[a-z_]+\]")


class Parts:
    """Finds parts of secrets in names: their words in a row, the last of them perhaps cut short."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({tuple(_words(secret)) for secret in secrets} - {()})

    def spans(self, name: str, said: str) -> list[tuple[int, int]]:
        """Where parts stand in a name that the texts do not say (`said`, as `as_said` gives it)."""
        held = [match.span() for match in _PLACEHOLDER.finditer(name)]
        words = [
            match for match in _WORD.finditer(name) if not any(start <= match.start() < end for start, end in held)
        ]
        spans, place = [], 0
        while place < len(words):
            size = self._longest([match.group().casefold() for match in words[place:]], said)
            if size:
                spans.append((words[place].start(), words[place + size - 1].end()))
            place += max(size, 1)
        return spans

    def hold(self, name: str, said: str) -> bool:
        """Whether a name has a part that the texts do not say."""
        return bool(self.spans(name, said))

    def without(self, text: str, said: str) -> str:
        """The text with such parts replaced."""
        for start, end in reversed(self.spans(text, said)):
            text = text[:start] + placeholder("literal") + text[end:]
        return text

    def _longest(self, words: Sequence[str], said: str) -> int:
        """How many of the words, from the first on, are a part of a secret; 0 when none are."""
        runs = (
            _run(words, secret[first:])
            for secret in self._secrets
            for first, word in enumerate(secret)
            if word.startswith(words[0])
        )
        for size in sorted(set(runs), reverse=True):
            part = " ".join(words[:size])
            telling = len(part.replace(" ", "")) >= SHORTEST_PART and part not in STOP_WORDS
            if size and telling and f" {part}" not in said:
                return size
        return 0


def _run(words: Sequence[str], secret: Sequence[str]) -> int:
    size = 0
    for word, other in zip(words, secret, strict=False):
        if word == other:
            size += 1
            continue
        # Cut short, or its plural's ending taken off.
        return size + (len(word) >= SHORTEST_PART and other.startswith(word))
    return size


def as_said(texts: Iterable[str | None]) -> str:
    """The words of some texts in a row, as `Parts` looks into them; placeholders are no words."""
    return " ".join(["", *(word for text in texts for word in _words(_PLACEHOLDER.sub(" ", text or "")))])


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]
