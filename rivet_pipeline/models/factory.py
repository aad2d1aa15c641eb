"""Chooses the embedding model that the settings name, and keeps the vectors of recent queries.

What the models do stands in `embedder.py`; nothing here knows of texts or tables.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.errors import RivetError
from rivet_pipeline.models.embedder import TIMEOUT, HttpEmbedder, WordLlamaEmbedder
from rivet_pipeline.models.protocols import Embedder, ModelError
from rivet_pipeline.settings import Settings

#: A person waits for a query's vector; the search goes on without it after this many seconds.
QUERY_TIMEOUT = 8.0

#: Queries are cut to this many characters before they are embedded.
MAX_QUERY = 8000


def build_embedder(settings: Settings, *, timeout: float = TIMEOUT) -> Embedder:
    """The embedding model of this configuration. Makes no call and loads nothing yet.

    Raises `RivetError` when a server is named without its model.
    """
    name = embedder_name(settings)
    if not settings.embed_url:
        return WordLlamaEmbedder()
    return HttpEmbedder(
        settings.embed_url,
        name,
        settings.embed_api_key.get_secret_value() if settings.embed_api_key else None,
        settings.embed_batch,
        settings.embed_dimensions,
        timeout=timeout,
    )


def embedder_name(settings: Settings) -> str:
    """The identity of this configuration's model. Raises `RivetError` when a server is named without its model."""
    if not settings.embed_url:
        return WordLlamaEmbedder.name
    if not settings.embed_model:
        raise RivetError(
            "RIVETOS_EMBED_URL is set and RIVETOS_EMBED_MODEL is not; name the model that the server embeds with."
        )
    return settings.embed_model


def build_query_embedder(settings: Settings) -> QueryEmbedder:
    """The same model for queries: less patient, and with a cache. Raises `RivetError` as `build_embedder` does."""
    return QueryEmbedder(build_embedder(settings, timeout=QUERY_TIMEOUT))


class QueryEmbedder:
    """Embeds queries and remembers the most recent ones. Safe to share among threads."""

    def __init__(self, embedder: Embedder, size: int = 256) -> None:
        self._embedder = embedder
        self._size = size
        self._cache: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model's identity: the vectors may only be compared with stored ones of the same name."""
        return self._embedder.name

    def embed(self, query: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """The query's unit vector and None, or None and the reason why there is none. Failures are not remembered."""
        text = " ".join(query[:MAX_QUERY].split())
        with self._lock:
            if text in self._cache:
                self._cache.move_to_end(text)
                return self._cache[text], None
        try:
            vector = self._embedder.embed([text])[0]
        except ModelError as error:
            return None, str(error)
        vector.flags.writeable = False
        with self._lock:
            self._cache[text] = vector
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)
        return vector, None
