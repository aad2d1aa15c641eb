"""Joins the query embedder of a process to the model whose vectors the store answers with.

Vectors of different models are never compared: while a new model is being filled the former one still serves, and a
query must be embedded with that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.models.factory import QueryEmbedder, build_query_embedder
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval.vector import serving_model
from rivet_pipeline.settings import Settings


class QueryVectors:
    """The query embedders of one process: the configured one, and the in-process model that may still serve.

    Safe to share among threads. Raises `RivetError` when the configuration names no model.
    """

    def __init__(self, settings: Settings) -> None:
        self._configured = build_query_embedder(settings)
        self._own = QueryEmbedder(WordLlamaEmbedder())

    def on(self, connection: Connection) -> Callable[[str], NDArray[np.float32]]:
        """What `search` asks for a query's vector. It raises `ModelError` when there is none to be had."""

        def embed(query: str) -> NDArray[np.float32]:
            model = serving_model(connection)
            for embedder in (self._configured, self._own):
                if model is None or embedder.name == model.name:
                    vector, reason = embedder.embed(query)
                    if vector is None:
                        raise ModelError("transient", reason or "no reason given", "")
                    return vector
            assert model is not None
            raise ModelError(
                "transient", f"{model.name} still serves and {self._configured.name} is configured", "being filled"
            )

        return embed
