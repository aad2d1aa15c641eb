"""What a person has refused of a leaf, told once more: a model that is asked again rewords. Pure functions.

Refused sentences of all leaves, word by word, are `store.refused_claims`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rivet_pipeline.summaries.grounding import telling_words
from rivet_pipeline.wiki.names import stem

#: The share of the words of two sentences that they have in common when they say the same.
_ALIKE = 0.75

#: Sentences of fewer telling words are the same only word by word.
_FEWEST_WORDS = 3

#: Letters by which forms of a word are known: "listens", "listening".
_ROOT = 5

#: What stands around a word and is no part of it, as the signs of C++ are.
_MARKS = ".,;:!?()\"'`\u2018\u2019\u201c\u201d"

#: As they are written: "type A" has none.
_ARTICLES = frozenset({"a", "an", "the"})

_WORD = re.compile(r"[^\W_]+")
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|neither|nor|without|cannot|nicht|nie|kein\w*|ohne|nunca|sin)\b|n['\u2019]t\b",
    re.IGNORECASE,
)


def reworded(text: str, refused: Iterable[str], standing: Iterable[str]) -> bool:
    """Whether a sentence says what was refused, and not also what stands.

    Who takes one of two such sentences back wants to keep the other.
    """
    return any(says_the_same(text, other) for other in refused) and not any(
        says_the_same(text, other) for other in standing
    )


def says_the_same(one: str, other: str) -> bool:
    """Whether two sentences have the same figures, affirm or deny alike, and tell the same words in the same order.

    One may have a few words more, and begin at another of them. Where each has a word of its own, one may correct the
    other: "writes to Postgres", "writes to MySQL".
    """
    if set(_FIGURE.findall(one)) != set(_FIGURE.findall(other)):
        return False
    if (_NEGATION.search(one) is None) != (_NEGATION.search(other) is None):
        return False
    fewer, more = sorted((_roots(one), _roots(other)), key=len)
    if len(fewer) < _FEWEST_WORDS or not fewer <= more or len(fewer) < _ALIKE * len(more):
        return False
    told, again = _in_order(one), _in_order(other)
    mine, yours = [word for word in told if word in again], [word for word in again if word in told]
    return any(mine == [*yours[place:], *yours[:place]] for place in range(max(1, len(yours))))


def worded_alike(one: str, other: str) -> bool:
    """Whether two sentences have the same words in the same order, but for articles and plurals.

    Every other word may be what the newer one is about: "before" and "after", "on" and "off", "all" and "some".
    """
    return _worded(one) == _worded(other)


def _worded(text: str) -> list[str]:
    words = (word.strip(_MARKS) for word in (text[:1].casefold() + text[1:]).split())
    return [stem(word.casefold()) for word in words if word and word not in _ARTICLES]


def _roots(text: str) -> set[str]:
    return {word[:_ROOT] for word in telling_words(text)}


def _in_order(text: str) -> list[str]:
    """The words and figures as they follow one another: "from SQLite to Postgres" is not the reverse."""
    telling = telling_words(text)
    told = (word for word in _WORD.findall(text.casefold()) if word in telling or word.isdigit())
    return list(dict.fromkeys(word[:_ROOT] for word in told))
