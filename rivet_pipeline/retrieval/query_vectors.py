"""Joins the query embedder of a process to the model whose vectors the store answers with.

Vectors of different models are never compared: while a new model is being filled the former one still serves, and a
query must be embedded with that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.embedder import UNKNOWN_WORDS, WordLlamaEmbedder
from rivet_pipeline.models.factory import QueryEmbedder, build_query_embedder
from rivet_pipeline.models.protocols import Embedder, ModelError
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.vector import serving_model
from rivet_pipeline.settings import Settings

#: What counts as a word of a query, and how many of them take part.
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_MAX_WORDS = 64

#: How many weighed vectors are remembered, as many as `QueryEmbedder` does of the others.
_REMEMBERED = 256

#: What a word weighs that is not indexed (what, did, the): little, but such words are not without meaning.
_COMMON_WORD = 0.1


class QueryVectors:
    """The query embedders of one process: the configured one, and the in-process model that may still serve.

    Safe to share among threads. `embedder` takes the place of the configured one. Raises `RivetError` when the
    configuration names no model.
    """

    def __init__(self, settings: Settings, embedder: Embedder | None = None) -> None:
        self._configured = build_query_embedder(settings) if embedder is None else QueryEmbedder(embedder)
        self._own = QueryEmbedder(WordLlamaEmbedder())

    def on(self, connection: Connection) -> Callable[[str], NDArray[np.float32]]:
        """What `search` asks for a query's vector. It raises `ModelError` when there is none to be had."""

        def embed(query: str) -> NDArray[np.float32]:
            model = serving_model(connection)
            for embedder in (self._configured, self._own):
                if model is None or embedder.name == model.name:
                    if embedder.name == WordLlamaEmbedder.name:
                        if not WordLlamaEmbedder().knows_words(query):
                            raise ModelError("content", UNKNOWN_WORDS, "no word of the query is in the vocabulary")
                        weighed = weigh_words(connection, query)
                        if weighed is not None:
                            return weighed
                    vector, reason = embedder.embed(query)
                    if vector is None:
                        raise ModelError("transient", reason or "no reason given", "")
                    return vector
            assert model is not None
            raise ModelError(
                "transient", f"{model.name} still serves and {self._configured.name} is configured", "being filled"
            )

        return embed


def weigh_words(connection: Connection, query: str) -> NDArray[np.float32] | None:
    """WordLlama's vector of a query, each word by how much it tells in this store; None when that is not known yet.

    The model gives every word of a text the same part of its vector. Of a question that leaves little but its frame
    (what did … say about the …); weighed by inverse document frequency, the words that matter decide. Texts are left as
    they are, so nothing is embedded again. It is possible because the model's vectors are sums over words; those of
    others are not.
    """
    rows = word_weights(connection, query)
    if len(rows) < 2 or not any(weight for _, weight in rows):
        return None
    words = tuple(word for word, _ in rows)
    weights = tuple(_COMMON_WORD if weight is None else weight for _, weight in rows)
    try:
        return _weighed(WordLlamaEmbedder.name, words, weights)
    except ModelError:
        return None


def word_weights(connection: Connection, query: str) -> list[tuple[str, float | None]]:
    """The words of a query, and how much each tells in this store, 0 to 1; None for one that is not indexed.

    Empty while nothing is known of the store's words.
    """
    words = _WORD.findall(query)[:_MAX_WORDS]
    rows = connection.execute(statement("word_weights"), {"words": words}).fetchall() if words else []
    return [(str(row["word"]), None if row["weight"] is None else float(row["weight"])) for row in rows]


@lru_cache(_REMEMBERED)
def _weighed(model: str, words: tuple[str, ...], weights: tuple[float, ...]) -> NDArray[np.float32] | None:
    """The weighed sum of some words' vectors, of length 1 and read-only: all who ask share it. `model` is a key alone.

    None when the sum is nothing. Raises `ModelError`, which is not remembered.
    """
    vectors = WordLlamaEmbedder().embed(words)
    total: NDArray[np.float32] = np.asarray(weights, dtype=np.float32) @ vectors
    length = float(np.linalg.norm(total))
    if not length > 0:
        return None
    vector: NDArray[np.float32] = total / np.float32(length)
    vector.flags.writeable = False
    return vector
