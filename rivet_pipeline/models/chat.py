"""The client of OpenAI-compatible chat services: one request, its retries, its fallbacks, and what a failure is called.

The way to a service and back is `service.py`'s. What a response means stands in `chat_wire.py`; what is asked, and
whether an answer is a good summary, in the rooms that ask.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from rivet_pipeline.models.chat_wire import read_answer
from rivet_pipeline.models.credentials import Credential, FixedKey
from rivet_pipeline.models.protocols import Cause, ChatAnswer, ModelError
from rivet_pipeline.models.service import Endpoint as Endpoint
from rivet_pipeline.models.service import ask_service
from rivet_pipeline.models.texts import clean_outgoing

#: Retries after the first attempt, and the wait before each of them in seconds (the seeds' figures).
RETRY_WAITS = (5.0, 10.0, 15.0)

#: A service that asks for a longer pause than this is left to the failure ledger instead of being waited for.
LONGEST_WAIT_SECONDS = 60.0

#: A service that failed comes after the others for this long, so that a dead one costs one probe and not every call.
REST_SECONDS = 900.0

_CAUSE_CHARACTERS = 400


class OpenAIChat:
    """Chat services that speak `POST {base_url}/chat/completions`, tried in order. Implements `protocols.Chat`.

    There is no timeout but the deadline, which covers one `complete` with its retries and fallbacks: each service has
    its share of what is left, the last one all of it. A service that can not be reached, is broken, busy or refuses
    the token, the payment or the model gives way to the next; an answer that is no good does not.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        credential: Credential | str | None = None,
        deadline_seconds: float = 3600.0,
        *,
        extra: Mapping[str, Any] | None = None,
        fallbacks: Sequence[Endpoint] = (),
        retries: int = len(RETRY_WAITS),
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Makes no call yet.

        Args:
            base_url: The first service's address, up to `/v1`.
            model: The model that it is asked for, and the name of everything this client answers.
            credential: Its bearer key, or where the token comes from. No other service is sent it.
            deadline_seconds: How long one `complete` may take.
            extra: Fields that its requests have besides, or instead of those of the same name.
            fallbacks: The services that stand in for it, in order.
            retries: How often each service is asked again after a transient failure, at most.
            transport: Replaces the network.
            sleep: Waits between attempts.
        """
        own = FixedKey(credential) if isinstance(credential, str | None) else credential
        self._endpoints = (Endpoint(base_url, model, own, extra=extra or {}), *fallbacks)
        self._deadline_seconds = deadline_seconds
        self._retries = retries
        self._transport = transport
        self._sleep = sleep
        self._resting_until: dict[int, float] = {}

    @property
    def model(self) -> str:
        """The configured model's name, also while a fallback answers."""
        return self._endpoints[0].model

    def complete(self, *, system: str, user: str, max_tokens: int, temperature: float = 0.3) -> ChatAnswer:
        """The first service's answer, thinking removed.

        Raises:
            ModelError: transient (`unreachable`, `timeout`, `http-429`, `http-5xx`, `bad-response`), permanent
                (`http-401` and the like, `unknown-model`, `bad-url`, `token-command`) or content (`truncated`,
                `empty`, `refusal`, `wrong-shape`, `too-long`, `answer-too-large`, any other `http-4xx`). The detail
                carries the service's own words and, when several were asked, each one's cause; it is transient when
                one of them is.
        """
        payload = {
            "messages": [
                {"role": "system", "content": clean_outgoing(system)},
                {"role": "user", "content": clean_outgoing(user)},
            ],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        deadline = time.monotonic() + self._deadline_seconds
        failed: list[tuple[Endpoint, ModelError]] = []
        order = self._order()
        for place, number in enumerate(order):
            endpoint = self._endpoints[number]
            now = time.monotonic()
            share = (deadline - now) / (len(order) - place)
            try:
                answer = self._ask(endpoint, {"model": endpoint.model, **payload, **endpoint.extra}, now + share)
            except ModelError as error:
                failed.append((endpoint, error))
                if error.cause == "content":
                    raise _after_others(failed, fallback=number > 0) from error
                self._resting_until[number] = time.monotonic() + REST_SECONDS
                continue
            self._resting_until.pop(number, None)
            return replace(answer, fallback=number > 0)
        raise _all_failed(failed) from failed[0][1]

    def _order(self) -> list[int]:
        now = time.monotonic()
        return sorted(range(len(self._endpoints)), key=lambda number: self._resting_until.get(number, now) > now)

    def _ask(self, endpoint: Endpoint, payload: dict[str, Any], deadline: float) -> ChatAnswer:
        """One service's answer, with its retries."""
        names: list[str] = []

        def again(error: BaseException) -> bool:
            names.append(error.name if isinstance(error, ModelError) else type(error).__name__)
            return _worth_retrying(error, deadline)

        retrying = Retrying(
            stop=stop_after_attempt(1 + self._retries),
            wait=_wait,
            retry=retry_if_exception(again),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(self._attempt, endpoint, payload, deadline)
        except ModelError as error:
            detail = endpoint.credential.hide(error.detail)
            if len(names) > 1:
                detail += f" (attempts: {', '.join(names)})"
            raise error.with_detail(detail) from error

    def _attempt(self, endpoint: Endpoint, payload: dict[str, Any], deadline: float) -> ChatAnswer:
        allowed = f"{self._deadline_seconds:g} s for all services and retries"
        body = ask_service(endpoint, payload, deadline, allowed=allowed, transport=self._transport)
        return read_answer(body, endpoint.model, payload["max_tokens"])


def _after_others(failed: Sequence[tuple[Endpoint, ModelError]], *, fallback: bool) -> ModelError:
    """The last failure, with the causes for which the others were passed over."""
    error = failed[-1][1]
    others = "".join(f"; before it {_cause(endpoint, earlier)}" for endpoint, earlier in failed[:-1])
    return error.with_detail(error.detail + others, fallback=fallback)


def _all_failed(failed: Sequence[tuple[Endpoint, ModelError]]) -> ModelError:
    """One failure for all services. It is transient when one of them is: that one may be back first."""
    errors = [error for _, error in failed]
    cause: Cause = "transient" if any(error.cause == "transient" for error in errors) else "permanent"
    leading = [error for error in errors if error.cause == cause]
    if len(errors) == 1:
        return leading[0]
    pauses = [error.retry_after or 0.0 for error in leading]
    return ModelError(
        cause,
        leading[0].name,
        "; ".join(_cause(endpoint, error) for endpoint, error in failed),
        retry_after=min(pauses) or None,
    )


def _cause(endpoint: Endpoint, error: ModelError) -> str:
    return f"{endpoint.model} at {endpoint.shown}: {str(error)[:_CAUSE_CHARACTERS]}"


def _worth_retrying(error: BaseException, deadline: float) -> bool:
    if not isinstance(error, ModelError) or error.cause != "transient" or error.name == "timeout":
        return False
    pause = max(error.retry_after or 0.0, RETRY_WAITS[0])
    return pause <= LONGEST_WAIT_SECONDS and time.monotonic() + pause < deadline


def _wait(state: RetryCallState) -> float:
    planned = RETRY_WAITS[min(state.attempt_number, len(RETRY_WAITS)) - 1]
    jittered = planned * random.uniform(1.0, 1.2)  # noqa: S311 - jitter, not a secret
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ModelError) else None
    return max(jittered, asked or 0.0)
