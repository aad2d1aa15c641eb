"""The client of a classifier that proposes tags: one POST with a text, and the JSON that comes back.

Which proposals are sound is judged by the room that asks; chat models are asked through `chat.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import httpx

from rivet_pipeline.models.chat_wire import one_line
from rivet_pipeline.models.credentials import Credential, FixedKey
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.models.service import Endpoint, ask_service
from rivet_pipeline.models.texts import clean_outgoing


class TagClassifier:
    """A service that takes `{model, text, title, agent, keys, vocabulary, current, max}` and answers `{tags: […]}`."""

    def __init__(
        self,
        url: str,
        model: str,
        credential: Credential | None = None,
        timeout_seconds: float = 60.0,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Makes no call yet.

        Args:
            url: Where requests are posted, the whole address.
            model: The model that it is asked for, and the name of what it proposes.
            credential: Its own token; no other service is sent it.
            timeout_seconds: How long one call may take.
            transport: Replaces the network.
        """
        self._endpoint = Endpoint(url, model, credential or FixedKey(), path="")
        self._timeout = timeout_seconds
        self._transport = transport

    @property
    def model(self) -> str:
        """The model's name."""
        return self._endpoint.model

    def classify(
        self,
        *,
        text: str,
        title: str,
        agent: str,
        keys: Sequence[str],
        vocabulary: Sequence[str],
        current: Sequence[str],
        most: int,
    ) -> Any:
        """The service's answer as JSON, of whatever shape.

        Raises `ModelError` as `ask_service` does, and transient `bad-response` for a body that is no JSON.
        """
        payload = {
            "model": self.model,
            "text": clean_outgoing(text),
            "title": clean_outgoing(title),
            "agent": clean_outgoing(agent),
            "keys": list(keys),
            "vocabulary": list(vocabulary),
            "current": list(current),
            "max": most,
        }
        deadline = time.monotonic() + self._timeout
        try:
            body = ask_service(
                self._endpoint, payload, deadline, allowed=f"{self._timeout:g} s", transport=self._transport
            )
        except ModelError as error:
            detail = self._endpoint.credential.hide(error.detail)
            raise ModelError(error.cause, error.name, detail, retry_after=error.retry_after) from error
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ModelError("transient", "bad-response", f"no JSON in {one_line(body)[:300]!r}") from error
