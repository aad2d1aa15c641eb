"""Chooses the models that the settings name, and keeps the vectors of recent queries.

What the models do stands in `embedder.py` and `chat.py`; nothing here knows of texts or tables.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from rivet_pipeline.errors import InvalidInputError, RivetError
from rivet_pipeline.models.chat import RETRY_WAITS, OpenAIChat
from rivet_pipeline.models.credentials import COMMAND_SECONDS, Credential, FixedKey, TokenCommand
from rivet_pipeline.models.embedder import TIMEOUT, HttpEmbedder, WordLlamaEmbedder
from rivet_pipeline.models.protocols import Embedder, ModelError
from rivet_pipeline.models.service import Endpoint
from rivet_pipeline.models.tagger import TagClassifier
from rivet_pipeline.settings import Settings

#: A person waits for a query's vector; the search goes on without it after this many seconds.
QUERY_TIMEOUT = 8.0

#: A service that took so many seconds for nothing is not asked for so many more.
_SLOW, _REST = 2.0, 15.0

#: How many queries may wait for a service at a time, and how many seconds a further one waits for its turn. A healthy
#: service answers within some hundredths of a second.
_MOST_WAITING, _PATIENCE = 4, 1.0

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
        _credential(
            "RIVETOS_EMBED",
            settings.embed_api_key,
            settings.embed_token_command,
            settings.embed_token_ttl_ms,
            timeout=timeout,
        ),
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


def build_chat(settings: Settings, *, retries: int = len(RETRY_WAITS)) -> OpenAIChat | None:
    """The chat services of this configuration, None when none is named. Makes no call.

    `retries`: how often a service is asked again after a transient failure.

    Raises `InvalidInputError` when the model is not named, or when a token command or a list of fallbacks can not be
    read.
    """
    if settings.compactor_url is None:
        return None
    if settings.compactor_model is None:
        raise InvalidInputError(
            "RIVETOS_COMPACTOR_MODEL", "is needed with RIVETOS_COMPACTOR_URL; name the model that the server offers"
        )
    first = Endpoint(
        settings.compactor_url,
        settings.compactor_model,
        compactor_credential(settings),
        extra=settings.compactor_extra_body or {},
    )
    return OpenAIChat(
        first.base_url,
        first.model,
        first.credential,
        settings.model_deadline_seconds,
        extra=first.extra,
        fallbacks=_fallbacks(settings, first),
        retries=retries,
    )


def build_tagger_chat(settings: Settings) -> OpenAIChat | None:
    """The chat service that proposes tags: the tagger's own, else the compactor's; None when neither is named.

    No answer is waited for longer than the tagger's time, and nothing is tried again here. A key goes to its own
    service alone. Raises `InvalidInputError` when the model is not named, or a key has no address of its own.
    """
    if settings.tagger_url is None:
        _refuse_homeless_key(settings)
        model = settings.tagger_model or settings.compactor_model
        seconds = min(settings.tagger_timeout_seconds, settings.model_deadline_seconds)
        asked = settings.model_copy(update={"compactor_model": model, "model_deadline_seconds": seconds})
        return build_chat(asked, retries=0)
    if settings.tagger_model is None:
        raise InvalidInputError(
            "RIVETOS_TAGGER_MODEL", "is needed with RIVETOS_TAGGER_URL; name the model that the server offers"
        )
    return OpenAIChat(
        settings.tagger_url,
        settings.tagger_model,
        tagger_credential(settings),
        settings.tagger_timeout_seconds,
        retries=0,
    )


def build_classifier(settings: Settings) -> TagClassifier:
    """The classifier that proposes tags. Raises `InvalidInputError` without an address of its own."""
    if settings.tagger_url is None:
        raise InvalidInputError("RIVETOS_TAGGER_WIRE_SHAPE", "native needs RIVETOS_TAGGER_URL; name the classifier")
    return TagClassifier(
        settings.tagger_url,
        settings.tagger_model or "classifier",
        tagger_credential(settings),
        settings.tagger_timeout_seconds,
    )


def tagger_credential(settings: Settings, *, timeout: float = COMMAND_SECONDS) -> Credential:
    """Where the token of the tagger's own service comes from. Raises `InvalidInputError` as `build_chat` does."""
    return _credential(
        "RIVETOS_TAGGER",
        settings.tagger_api_key,
        settings.tagger_token_command,
        settings.tagger_token_ttl_ms,
        timeout=timeout,
    )


def _refuse_homeless_key(settings: Settings) -> None:
    for name, value in (("API_KEY", settings.tagger_api_key), ("TOKEN_COMMAND", settings.tagger_token_command)):
        if value is not None:
            raise InvalidInputError(
                f"RIVETOS_TAGGER_{name}", "needs RIVETOS_TAGGER_URL: it is sent to no other server. Set both or neither"
            )


def compactor_credential(settings: Settings, *, timeout: float = COMMAND_SECONDS) -> Credential:
    """Where the chat server's token comes from. Raises `InvalidInputError` as `build_chat` does."""
    return _credential(
        "RIVETOS_COMPACTOR",
        settings.compactor_api_key,
        settings.compactor_token_command,
        settings.compactor_token_ttl_ms,
        timeout=timeout,
    )


def _credential(
    prefix: str, key: SecretStr | None, command: SecretStr | None, ttl_ms: int, *, timeout: float
) -> Credential:
    if command is None:
        return FixedKey(key.get_secret_value() if key else None)
    if key is not None:
        raise InvalidInputError(f"{prefix}_TOKEN_COMMAND", f"is set beside {prefix}_API_KEY; keep one of the two")
    try:
        return TokenCommand(command.get_secret_value(), ttl_ms / 1000, timeout_seconds=min(timeout, COMMAND_SECONDS))
    except ValueError as error:
        raise InvalidInputError(f"{prefix}_TOKEN_COMMAND", f"is no command line ({error}); check its quotes") from error


def _fallbacks(settings: Settings, first: Endpoint) -> list[Endpoint]:
    """The services that stand in. The first service's token and its extra fields go to its own address alone."""
    secret = settings.compactor_fallback_keys
    listed = _entries("RIVETOS_COMPACTOR_FALLBACK_KEYS", secret.get_secret_value() if secret else None, needed=True)
    keys = {_same(address): key for address, key in listed}
    entries = _entries("RIVETOS_COMPACTOR_FALLBACKS", settings.compactor_fallbacks)
    known = {_same(address) for address, _ in entries}
    if not keys.keys() <= known:
        raise InvalidInputError(
            "RIVETOS_COMPACTOR_FALLBACK_KEYS", "has a key for an address that RIVETOS_COMPACTOR_FALLBACKS does not name"
        )
    endpoints = []
    for address, other in entries:
        key = keys.get(_same(address))
        own = _same(address) == _same(first.base_url)
        credential = first.credential if own and key is None else FixedKey(key)
        endpoints.append(Endpoint(address, other or first.model, credential, extra=first.extra if own else {}))
    return endpoints


def _entries(variable: str, value: str | None, *, needed: bool = False) -> list[tuple[str, str]]:
    """The pairs of a list `url|word,url|word`; a word that is not `needed` may be left out and is empty then.

    Raises `InvalidInputError`.
    """
    pairs = []
    for number, entry in enumerate((value or "").split(","), 1):
        address, mark, word = (part.strip() for part in entry.partition("|"))
        if not address and not word:
            continue
        # Entries are told by their number: they may hold a key.
        if not address.startswith(("http://", "https://")):
            raise InvalidInputError(variable, f"entry {number} has no address; write https://host/v1|…")
        if (needed or mark) and not word:
            raise InvalidInputError(variable, f"entry {number} has nothing behind its address")
        pairs.append((address, word))
    return pairs


def _same(address: str) -> str:
    return address.rstrip("/")


class QueryEmbedder:
    """Embeds queries and remembers the most recent ones. Safe to share among threads.

    A search waits for its vector with a connection of the store in its hand. So a service that hangs is not asked by
    everybody: few may wait at a time, and after it let one wait in vain it rests for a while.
    """

    def __init__(self, embedder: Embedder, size: int = 256) -> None:
        self._embedder = embedder
        self._size = size
        self._cache: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()
        self._is_service = not isinstance(embedder, WordLlamaEmbedder)
        self._free = threading.BoundedSemaphore(_MOST_WAITING)
        self._rests_until, self._why = 0.0, ""

    @property
    def name(self) -> str:
        """The model's identity: the vectors may only be compared with stored ones of the same name."""
        return self._embedder.name

    def embed(self, query: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """The query's unit vector and None, or None and the reason why there is none. Failures are not remembered.

        But for those of the service that took long: they are answered with for the next seconds.
        """
        text = " ".join(query[:MAX_QUERY].split())
        with self._lock:
            if text in self._cache:
                self._cache.move_to_end(text)
                return self._cache[text], None
        try:
            vector = self._ask_service(text) if self._is_service else self._embedder.embed([text])[0]
        except ModelError as error:
            return None, str(error)
        vector.flags.writeable = False
        with self._lock:
            self._cache[text] = vector
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)
        return vector, None

    def _ask_service(self, text: str) -> NDArray[np.float32]:
        self._refuse_while_resting()
        if not self._free.acquire(timeout=_PATIENCE):
            raise ModelError("transient", "busy", "other queries are waiting for the embedding service")
        try:
            self._refuse_while_resting()
            began = time.monotonic()
            try:
                vector: NDArray[np.float32] = self._embedder.embed([text])[0]
                return vector
            except ModelError as error:
                if error.cause != "content" and time.monotonic() - began >= _SLOW:
                    self._why, self._rests_until = error.detail, time.monotonic() + _REST
                raise
        finally:
            self._free.release()

    def _refuse_while_resting(self) -> None:
        left = self._rests_until - time.monotonic()
        if left > 0:
            raise ModelError("transient", "resting", f"{self._why}; it is asked again in {math.ceil(left)} s")
