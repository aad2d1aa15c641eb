"""The embedding models: WordLlama in this process, and any server that speaks the OpenAI embeddings shape.

Only turning texts into vectors belongs here; which texts, and what becomes of the vectors, is the embedding room's.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from rivet_pipeline.models.credentials import Credential, FixedKey
from rivet_pipeline.models.protocols import Cause, ModelError, Vectors
from rivet_pipeline.models.retry_after import retry_after_seconds

#: A sentence that every working model can embed: tells a bad text from a bad service.
PROBE = "The meeting is on Monday morning."

#: How long a server may take for one request, in seconds; a slow processor needs its time for 32 long texts.
TIMEOUT = 60.0

#: The name of the `ModelError` for a query in which a model knows no word.
UNKNOWN_WORDS = "unknown-words"

#: WordLlama's tokenizer shares a batch among the cores; larger batches are no faster.
_WORDLLAMA_BATCH = 64

#: Tokens summed at once, so that one very long text does not need a table of all its token vectors.
_TOKENS_AT_ONCE = 16_384

#: After this many full requests in a row that went well, a batch that was shrunk may grow again.
_GROW_AFTER = 16

#: What servers call an input that does not fit (llama.cpp answers it with 500, OpenAI with 400).
_TOO_LARGE = (
    "too large",
    "too long",
    "too many inputs",
    "too many tokens",
    "context length",
    "context size",
    "maximum allowed batch size",
    "payload size",
)

#: A token of a byte: what the vocabulary does not have.
_BYTE = re.compile("<0x[0-9A-F]{2}>")

_TRANSIENT_STATUS = {408, 425, 429}
_CONFIGURATION_STATUS = {401, 402, 403, 404, 405}


class WordLlamaEmbedder:
    """WordLlama's 256-dimensional model out of its own wheel: no download, no network, about 2,000 texts/s a core.

    Vectors are the mean of the token vectors, as the wheel computes them, summed text by text: the wheel pads every
    batch to its longest text, which takes several times as long.
    """

    name = "wordllama-l2-supercat-256"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text. Raises `ModelError` (content, empty-text) when a text has no words at all."""
        table, tokenizer = _load_wordllama()
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _WORDLLAMA_BATCH):
            batch = [_sendable(text) for text in texts[start : start + _WORDLLAMA_BATCH]]
            for row, encoded in enumerate(tokenizer.encode_batch_fast(batch, add_special_tokens=False), start):
                ids = encoded.ids
                if not batch[row - start].strip() or not ids:
                    raise ModelError("content", "empty-text", "a blank text has no meaning to embed")
                for first in range(0, len(ids), _TOKENS_AT_ONCE):
                    part = table.take(ids[first : first + _TOKENS_AT_ONCE], axis=0, mode="clip")
                    rows[row] += np.add.reduce(part, axis=0)
        return unit_rows(rows, count=len(texts), width=self.dimensions)

    def embed_words(self, words: Sequence[str]) -> Vectors:
        """One unit-length row per word, as `embed` has it, several times as quick for hundreds; zeros for a blank."""
        table, tokenizer = _load_wordllama()
        encoded = tokenizer.encode_batch_fast([_sendable(word) for word in words], add_special_tokens=False)
        ids = [one.ids or [0] for one in encoded]
        starts = np.cumsum([0, *(len(each) for each in ids[:-1])])
        flat = np.fromiter((one for each in ids for one in each), dtype=np.intp)
        rows: Vectors = np.add.reduceat(table.take(flat, axis=0, mode="clip"), starts, axis=0)
        rows[[not one.ids for one in encoded]] = 0
        unit: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-9))
        return unit

    def knows_words(self, text: str) -> bool:
        """Whether any token has a letter or a digit: a sign that is not in the vocabulary is only its bytes."""
        _, tokenizer = _load_wordllama()
        tokens = tokenizer.encode(_sendable(text), add_special_tokens=False).tokens
        return any(character.isalnum() for token in tokens if not _BYTE.fullmatch(token) for character in token)


_load_lock = threading.Lock()


def _load_wordllama() -> tuple[Vectors, Any]:
    with _load_lock:
        return _wordllama()


@lru_cache(maxsize=1)
def _wordllama() -> tuple[Vectors, Any]:
    # Importing it configures the root logger at INFO, which is the application's to decide.
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    import wordllama

    root.handlers[:] = handlers
    root.setLevel(level)
    model = wordllama.WordLlama.load(
        config="l2_supercat",
        dim=WordLlamaEmbedder.dimensions,
        cache_dir=Path(wordllama.__file__).parent,
        disable_download=True,
    )
    model.tokenizer.no_padding()
    return model.embedding, model.tokenizer


class HttpEmbedder:
    """An OpenAI-compatible embedding server. Safe to share among threads.

    The number of texts per request halves when the server says that a request is too large, and grows again after a
    while. A single text that fails where a plain sentence succeeds is a `content` error; when the plain sentence fails
    too, the service or its configuration is at fault.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        credential: Credential | str | None = None,
        batch: int = 32,
        dimensions: int | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """Makes no call yet.

        Args:
            base_url: The server's address; `/v1/embeddings` is appended (`/embeddings` to one that ends in `/v1`).
            model: The model name sent with each request, and the identity of its vectors.
            credential: Bearer key, or where the token comes from.
            batch: The most texts per request.
            dimensions: The width of a right answer; None: that of the first answer to a plain sentence.
            transport: Replaces the network.
            timeout: Seconds for one request.
        """
        base = base_url.rstrip("/")
        self._url = f"{base}/embeddings" if base.endswith("/v1") else f"{base}/v1/embeddings"
        self._model = model
        self._credential = FixedKey(credential) if isinstance(credential, str | None) else credential
        self._most = batch
        self._batch = batch
        self._good = 0
        self._grew = False
        self._grow_after = _GROW_AFTER
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self._client = httpx.Client(transport=transport, timeout=timeout)

    @property
    def name(self) -> str:
        """The model name sent to the server."""
        return self._model

    @property
    def dimensions(self) -> int:
        """The width of every vector; asks the server once unless it was given. Raises `ModelError`."""
        if self._dimensions is None:
            self._dimensions = self._ask([PROBE]).shape[1]
        return self._dimensions

    def close(self) -> None:
        """Closes the connections to the server."""
        self._client.close()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text, in their order.

        Raises `ModelError` for all of them: `content` when a text is at fault (halve the batch to find it; `too-large`
        and `empty-text` say which way), `transient` and `permanent` when the service is.
        """
        width = self.dimensions if texts else self._dimensions or 0
        cleaned = [_sendable(text) for text in texts]
        if any(not text.strip() for text in cleaned):
            raise ModelError("content", "empty-text", "a blank text has no meaning to embed")
        rows = np.empty((len(cleaned), width), dtype=np.float32)
        start = 0
        while start < len(cleaned):
            part = cleaned[start : start + self._batch]
            try:
                rows[start : start + len(part)] = self._ask(part)
            except ModelError as error:
                if len(part) > 1 and error.name in {"too-large", "timeout"}:
                    self._shrink(len(part))
                    continue
                if len(part) == 1 and error.cause == "content" and error.name != "too-large":
                    raise self._judge(error) from error
                raise
            self._note_success(len(part))
            start += len(part)
        return rows

    def _shrink(self, failed: int) -> None:
        with self._lock:
            if self._grew:
                # What it had grown to fails again: wait longer before the next try.
                self._grow_after = min(self._grow_after * 2, 4096)
            self._batch = max(1, failed // 2)
            self._good = 0
            self._grew = False

    def _note_success(self, count: int) -> None:
        with self._lock:
            if count < self._batch or self._batch >= self._most:
                return
            self._good += 1
            if self._good >= self._grow_after:
                self._batch = min(self._most, self._batch * 2)
                self._good = 0
                self._grew = True

    def _judge(self, error: ModelError) -> ModelError:
        """Whether the one text is at fault, or the service: asks it for a plain sentence."""
        try:
            self._ask([PROBE])
        except ModelError as probe:
            if probe.cause != "content":
                return probe
            cause: Cause = "transient" if probe.name in {"http-500", "bad-answer"} else "permanent"
            return ModelError(cause, probe.name, f"{probe.detail} (for a plain sentence too)")
        return error

    def _ask(self, texts: Sequence[str]) -> Vectors:
        body = {"model": self._model, "input": list(texts)}
        token = self._credential.token()
        response = self._post(body, token)
        if response.status_code == httpx.codes.UNAUTHORIZED and self._credential.renew(token):
            token = self._credential.token()
            response = self._post(body, token)
        if response.status_code != httpx.codes.OK:
            raise self._refusal(response)
        return unit_rows(_parse(response, len(texts)), count=len(texts), width=self._dimensions)

    def _post(self, body: dict[str, Any], token: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        for last in (False, True):
            try:
                return self._client.post(self._url, json=body, headers=headers)
            except httpx.TimeoutException as error:
                name = "no-connection" if isinstance(error, httpx.ConnectTimeout) else "timeout"
                raise ModelError("transient", name, f"{self._url} gave no answer in time") from error
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as error:
                # A kept connection that the server has closed meanwhile fails like this once.
                if last:
                    raise ModelError("transient", "no-connection", f"{self._url}: {error}") from error
            except httpx.TransportError as error:
                raise ModelError("transient", "no-connection", f"{self._url}: {error}") from error
            except httpx.InvalidURL as error:
                raise ModelError("permanent", "bad-url", f"RIVETOS_EMBED_URL {self._url}: {error}") from error
        raise AssertionError("unreachable")

    def _refusal(self, response: httpx.Response) -> ModelError:
        status = response.status_code
        text = self._credential.hide(" ".join(response.text[:2000].split()))
        detail = f"{self._url} answers {text[:200] or response.reason_phrase}"
        name = f"http-{status}"
        if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            return ModelError("content", "too-large", detail)
        if status in _TRANSIENT_STATUS:
            return ModelError(
                "transient", name, detail, retry_after=retry_after_seconds(response.headers.get("retry-after"))
            )
        if status in {400, 422, 500} and any(word in text.lower() for word in _TOO_LARGE):
            return ModelError("content", "too-large", detail)
        if status in _CONFIGURATION_STATUS or status < 400:
            return ModelError("permanent", name, detail)
        if status > 500:
            return ModelError(
                "transient", name, detail, retry_after=retry_after_seconds(response.headers.get("retry-after"))
            )
        return ModelError("content", name, detail)


def unit_rows(raw: Any, *, count: int, width: int | None) -> Vectors:
    """The rows as float32 of length 1.

    Args:
        raw: A sequence of `count` rows of numbers.
        count: How many rows there must be.
        width: How wide each must be; None: all the same.

    Raises:
        ModelError: (content) `missing-rows`, `wrong-width`, `not-finite` or `zero-vector`.
    """
    if len(raw) != count:
        raise ModelError("content", "missing-rows", f"{len(raw)} vectors for {count} texts")
    widths = {raw.shape[1]} if isinstance(raw, np.ndarray) else {len(row) for row in raw}
    if width is not None:
        widths.add(width)
    if count and (len(widths) != 1 or 0 in widths):
        expected = f", expected {width}" if width is not None else ""
        got = ", ".join(str(value) for value in sorted(widths - {width}))
        raise ModelError("content", "wrong-width", f"vectors of {got} dimensions{expected}")
    try:
        rows = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError("content", "not-finite", "a vector holds something that is no number") from error
    if not np.isfinite(rows).all():
        raise ModelError("content", "not-finite", "a vector holds NaN or infinity")
    # Scaled first, so that very large numbers do not overflow when they are squared.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    if (largest == 0.0).any():
        raise ModelError("content", "zero-vector", "a vector is zero throughout")
    rows = rows / largest
    unit: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _parse(response: httpx.Response, count: int) -> list[list[float]]:
    try:
        data = response.json()["data"]
        indexed = {item.get("index", position): item["embedding"] for position, item in enumerate(data)}
        rows = [indexed[index] for index in range(count) if index in indexed]
        if not all(isinstance(row, list) for row in rows):
            raise TypeError("an embedding is no list")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError("content", "bad-answer", f"the answer has not the OpenAI shape ({error})") from error
    return rows


def _sendable(text: str) -> str:
    """The text without unpaired surrogates, which make a server fail; pairs are joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
