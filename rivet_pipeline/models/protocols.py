"""What the rest of the project asks of a model: three small protocols and the one error they raise.

No client and no model is here; those stand in the modules beside this one and are chosen in `factory.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

#: Why a call failed, as the failure ledger keeps it. Transient: the service, not the item (down, slow, 429, 5xx);
#: tried again with back-off for ever. Content: this item and this model do not go together; tried a few times.
#: Permanent: the configuration is wrong (401, 403, an unknown model); tried again after an hour.
Cause = Literal["transient", "content", "permanent"]


class ModelError(Exception):
    """A model call that gave no usable answer.

    `name` is the failure's own name (`timeout`, `http-500`, `truncated`, `refusal`, `wrong-width` …), `retry_after`
    the seconds the service asked for, if it did. `fallback` says that the answer at fault came from a service that
    stands in for the configured one, `calls` how many answers were asked for in vain, the tokens what these cost by
    the services' own count, 0 when they give none.
    """

    def __init__(
        self,
        cause: Cause,
        name: str,
        detail: str,
        *,
        retry_after: float | None = None,
        fallback: bool = False,
        calls: int = 1,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
    ) -> None:
        super().__init__(f"{name}: {detail}")
        self.cause: Cause = cause
        self.name = name
        self.detail = detail
        self.retry_after = retry_after
        self.fallback = fallback
        self.calls = calls
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens

    def with_detail(self, detail: str, *, fallback: bool = False) -> ModelError:
        """The same failure of one call, told in other words."""
        return ModelError(
            self.cause,
            self.name,
            detail,
            retry_after=self.retry_after,
            fallback=fallback,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
        )


class Embedder(Protocol):
    """Turns texts into vectors of one width."""

    @property
    def name(self) -> str:
        """The model's identity, stored with each vector: vectors of different names are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The width of every vector. May ask the service once; raises `ModelError` when that fails."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text, shape (len(texts), dimensions), finite and never all zero.

        Raises `ModelError` for the whole batch; the caller halves it to find the item at fault.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A chat model's whole answer, thinking removed. Token counts are the service's own, None when it gives none.

    `model` is the one that answered, by the service's own word. `fallback`: a service that stands in for the
    configured one has answered.
    """

    text: str
    model: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    fallback: bool = False


class Chat(Protocol):
    """A chat completion service."""

    @property
    def model(self) -> str:
        """The model's name, as it is stored with what it wrote."""
        ...

    def complete(self, *, system: str, user: str, max_tokens: int, temperature: float = 0.3) -> ChatAnswer:
        """The model's answer to one system and one user message. Raises `ModelError`, an unfinished answer included."""
        ...
