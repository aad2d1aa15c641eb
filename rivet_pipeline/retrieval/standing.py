"""Which conversations answer best, for a list that goes on with further ones.

Three signs, each of which finds what the others miss: the words of the conversation as one text, its nearest vector,
and words near in meaning to the query's in its best rows. Their figures have different shapes, so places are added up
and not figures. How rows are ranked, and where in a list further conversations come, is `ranking.py`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.models.protocols import Vectors
from rivet_pipeline.retrieval.filters import number_array, statement
from rivet_pipeline.retrieval.query_vectors import word_weights
from rivet_pipeline.retrieval.scoring import PROFILE, Near, Profile

#: A figure for each of some conversations.
Floats = NDArray[np.float64]

#: What words end at; far quicker than an expression. Of a very long word, which no person wrote, a part is enough.
_SIGNS = str.maketrans(
    dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\u00ab\u00bb\u2013\u2014\u201c\u201d\u201e\u2026', " ")
)
_LONGEST_WORD = 30

#: Word vectors that are kept, 1 kB each.
_MOST_VECTORS = 16_384


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is known of a conversation.

    `words` is the BM25 of all its messages as one text, `nearest` the cosine of its nearest row, `named` how well the
    best time in it fits a date that the query names, all from 0 to 1. `rows` are the keys of its rows among the
    candidates, the most relevant first, a summary's negative.
    """

    words: float
    nearest: float
    named: float
    rows: Sequence[int]


class WordVectors:
    """WordLlama's vectors of single words, kept as far as there is room. Safe to share among threads."""

    def __init__(self, most: int = _MOST_VECTORS) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._forget(most)

    def _forget(self, rows: int) -> None:
        # Another table, because somebody may still read the former one; it takes memory only as far as it is filled.
        self._places: dict[str, int] = {}
        self._table = np.zeros((rows, WordLlamaEmbedder.dimensions), dtype=np.float32)

    def of(self, words: Sequence[str]) -> tuple[NDArray[np.intp], Vectors]:
        """The row of each word in a table of vectors, and that table. Without room all but these words is forgotten."""
        with self._lock:
            new = set(words).difference(self._places)
            if len(self._places) + len(new) > len(self._table):
                new = set(words)
                self._forget(max(self._most, len(new)))
            if new:
                start = len(self._places)
                vectors = WordLlamaEmbedder().embed_words([word[:_LONGEST_WORD] for word in new])
                self._table[start : start + len(new)] = vectors
                self._places |= {word: place for place, word in enumerate(new, start)}
            return np.fromiter(map(self._places.__getitem__, words), dtype=np.intp, count=len(words)), self._table


_VECTORS = WordVectors()


def best_first(
    connection: Connection,
    query: str | None,
    conversations: Sequence[Conversation],
    near: Near,
    profile: Profile = PROFILE,
) -> list[int]:
    """The places of the conversations in `conversations`, the best first.

    `query` is None when no words near in meaning are to be looked for. They are looked for in some conversations only
    (`near`), those that are the best without.
    """
    known = [
        np.array([getattr(one, name) for one in conversations], dtype=np.float64)
        for name in ("words", "nearest", "named")
    ]
    order = np.argsort(-_joined(known[:2], known[2], profile), kind="stable").tolist()
    some, others = order[: near.conversations], order[near.conversations :]
    if query is not None and len(some) > 1:
        rows = [conversations[place].rows[: near.rows] for place in some]
        figures = _near_in_meaning(connection, query, rows, profile)
        if figures is not None:
            words, nearest, named = (values[some] for values in known)
            some = [
                some[place] for place in np.argsort(-_joined([words, nearest, figures], named, profile), kind="stable")
            ]
    return [*some, *others]


def _joined(signs: Sequence[Floats], named: Floats, profile: Profile) -> Floats:
    """The sum of what each sign's place is worth; a date that fits whole counts as a first place in each."""
    first = 1 / (profile.place_from + 1)
    total: Floats = len(signs) * first * named
    for sign in signs:
        total = total + 1 / (profile.place_from + 1 + places(sign))
    return total


def places(figures: Floats) -> Floats:
    """The place of each figure from 0, the highest first; equal ones have the mean of their places."""
    ascending = np.sort(-figures)
    first, behind = np.searchsorted(ascending, -figures, "left"), np.searchsorted(ascending, -figures, "right")
    mean: Floats = (first + behind - 1) / 2
    return mean


def _near_in_meaning(
    connection: Connection, query: str, rows: Sequence[Sequence[int]], profile: Profile
) -> Floats | None:
    """`score_near` of some rows of each of some conversations; None when no word of the query tells anything."""
    weights = {word.lower(): weight for word, weight in word_weights(connection, query) if weight}
    if not weights:
        return None
    values = {
        "characters": profile.near_characters,
        "messages": number_array(key for keys in rows for key in keys if key > 0),
        "summaries": number_array(-key for keys in rows for key in keys if key < 0),
    }
    texts = {row["key"]: row["text"] for row in connection.execute(statement("beginnings"), values).fetchall()}
    return score_near(weights, [" ".join(texts.get(key, "") for key in keys) for keys in rows], profile)


def score_near(
    weights: Mapping[str, float], texts: Sequence[str], profile: Profile = PROFILE, vectors: WordVectors = _VECTORS
) -> Floats:
    """BM25 of each text, where a word counts for every word of the query that it is near to, by how near it is.

    `weights` are the query's words in small letters and what each tells. A word counts nothing up to the cosine
    `near_from`, and like the query's own at 1.
    """
    held = [text.lower().translate(_SIGNS).split() for text in texts]
    rows, table = vectors.of([*weights, *chain.from_iterable(held)])
    asked, (every, flat) = rows[: len(weights)], np.unique(rows[len(weights) :], return_inverse=True)
    if not len(every):
        return np.zeros(len(texts))
    # Not `@`: BLAS would wake its threads for this.
    cosines = np.einsum("ij,kj->ki", table.take(every, axis=0), table.take(asked, axis=0))
    near = np.maximum(0, cosines - profile.near_from) / (1 - profile.near_from)
    lengths = np.array([len(words) for words in held], dtype=np.float64)
    owners = np.repeat(np.arange(len(texts)), lengths.astype(np.intp))
    norms = profile.k1 * (1 - profile.b + profile.b * lengths / lengths.mean())
    score = np.zeros(len(texts))
    for weight, each in zip(weights.values(), near, strict=True):
        times = np.bincount(owners, weights=each[flat], minlength=len(texts))
        score += weight * times / (times + norms)
    return score
