"""What a person has refused of a leaf, told in whatever words: a model that is asked again rewords. Pure functions.

Refused sentences of all leaves, word by word, are `store.refused_claims`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rivet_pipeline.summaries.grounding import telling_words

#: The share of the words of two sentences that they have in common when they say the same.
_ALIKE = 0.75

#: Sentences of fewer telling words are the same only word by word.
_FEWEST_WORDS = 3

#: Letters by which forms of a word are known: "listens", "listening".
_ROOT = 5

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
    """Whether two sentences have the same figures, affirm or deny alike, and share nearly all words that tell."""
    if set(_FIGURE.findall(one)) != set(_FIGURE.findall(other)):
        return False
    if (_NEGATION.search(one) is None) != (_NEGATION.search(other) is None):
        return False
    mine, yours = _roots(one), _roots(other)
    return min(len(mine), len(yours)) >= _FEWEST_WORDS and len(mine & yours) >= _ALIKE * len(mine | yours)


def _roots(text: str) -> set[str]:
    return {word[:_ROOT] for word in telling_words(text)}
