"""The client of an OpenAI-compatible chat service: one request, its retries, and what a failure is called.

Only the wire belongs here. What is asked and whether an answer is a good summary stand in the rooms that ask.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from rivet_pipeline.models.protocols import Cause, ChatAnswer, ModelError

#: Retries after the first attempt, and the wait before each of them in seconds (the seeds' figures).
RETRY_WAITS = (5.0, 10.0, 15.0)

#: A service that asks for a longer pause than this is left to the failure ledger instead of being waited for.
LONGEST_WAIT_SECONDS = 60.0

_CONNECT_SECONDS = 30.0
_LARGEST_ANSWER_BYTES = 16 * 1024 * 1024
_TRANSIENT_STATUSES = frozenset({408, 425, 429})
#: 404 is an address or a model that is not there: no item of ours can change that.
_PERMANENT_STATUSES = frozenset({401, 402, 403, 404})

_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|too many tokens|prompt is too long", re.IGNORECASE
)
_NO_MODEL = re.compile(r"model_not_found|unknown model|model .{0,80}(?:does not exist|not found)", re.IGNORECASE)

_LEADING_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_LATER_THOUGHT = re.compile(
    r"^[ \t]*<think(?:ing)?>.*?</think(?:ing)?>[ \t]*$\n?", re.DOTALL | re.IGNORECASE | re.MULTILINE
)
_CLOSED_ONLY = re.compile(r"(?<!`)</think(?:ing)?>(?!`)", re.IGNORECASE)
_OPENED = re.compile(r"<think(?:ing)?>", re.IGNORECASE)

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def strip_thinking(text: str) -> str:
    """The answer without the model's thinking.

    A block at the start goes whether it is closed or not (some templates open it in the prompt, so that only the
    closing tag is in the answer); a later one goes when it stands on lines of its own and is closed.
    """
    while (match := _LEADING_THOUGHT.match(text)) is not None and match.end() > 0:
        text = text[match.end() :]
    closed = _CLOSED_ONLY.search(text)
    if closed is not None and _OPENED.search(text, 0, closed.start()) is None:
        text = text[closed.end() :]
    return _LATER_THOUGHT.sub("", text).strip()


def clean_outgoing(text: str) -> str:
    """Text that every JSON parser takes: surrogate pairs joined, lone ones replaced, control characters removed."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", joined)


class OpenAIChat:
    """A chat service that speaks `POST {base_url}/chat/completions`. Implements `protocols.Chat`.

    There is no timeout but the deadline, which covers one `complete` with its retries. `sleep` and `transport` are
    for tests.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        deadline_seconds: float = 3600.0,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._api_key = api_key
        self._deadline_seconds = deadline_seconds
        self._transport = transport
        self._sleep = sleep

    @property
    def model(self) -> str:
        """The model's name, as it is sent and stored."""
        return self._model

    def complete(self, *, system: str, user: str, max_tokens: int, temperature: float = 0.3) -> ChatAnswer:
        """The model's answer, thinking removed.

        Raises:
            ModelError: transient (`unreachable`, `timeout`, `http-429`, `http-5xx`, `bad-response`), permanent
                (`http-401` and the like, `unknown-model`) or content (`truncated`, `empty`, `refusal`, `too-long`,
                any other `http-4xx`). The detail carries the service's own words.
        """
        payload = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": clean_outgoing(system)},
                {"role": "user", "content": clean_outgoing(user)},
            ],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        deadline = time.monotonic() + self._deadline_seconds
        retrying = Retrying(
            stop=stop_after_attempt(1 + len(RETRY_WAITS)),
            wait=_wait,
            retry=retry_if_exception(lambda error: _worth_retrying(error, deadline)),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._attempt, payload, deadline, max_tokens)

    def _attempt(self, payload: dict[str, Any], deadline: float, max_tokens: int) -> ChatAnswer:
        remaining = max(deadline - time.monotonic(), 0.001)
        timeout = httpx.Timeout(remaining, connect=min(_CONNECT_SECONDS, remaining))
        headers = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        loopback = httpx.URL(self._url).host in {"127.0.0.1", "::1", "localhost"}
        try:
            with (
                # A proxy of the environment is never the way to this machine itself.
                httpx.Client(transport=self._transport, timeout=timeout, trust_env=not loopback) as client,
                client.stream("POST", self._url, json=payload, headers=headers) as response,
            ):
                body = self._read(response, deadline)
                status, retry_after = response.status_code, _retry_after(response.headers.get("retry-after"))
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise self._timed_out() from error
        except httpx.HTTPError as error:
            raise ModelError("transient", "unreachable", f"{self._url}: {_root_cause(error)}") from error
        except httpx.InvalidURL as error:
            raise ModelError("permanent", "bad-url", f"{self._url}: {error}") from error
        if status >= 300:
            raise _status_error(status, body, retry_after)
        return _answer(body, self._model, max_tokens)

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if time.monotonic() > deadline:
                raise self._timed_out()
            if size > _LARGEST_ANSWER_BYTES:
                raise ModelError("content", "answer-too-large", f"more than {_LARGEST_ANSWER_BYTES} bytes")
        return b"".join(parts)

    def _timed_out(self) -> ModelError:
        return ModelError("transient", "timeout", f"no answer within {self._deadline_seconds:g} s from {self._url}")


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


def _retry_after(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _status_error(status: int, body: bytes, retry_after: float | None) -> ModelError:
    said = " ".join(body[:2000].decode("utf-8", "replace").split())[:500]
    cause: Cause
    if status in _TRANSIENT_STATUSES or status >= 500:
        cause, name = "transient", f"http-{status}"
    elif _NO_MODEL.search(said):
        cause, name = "permanent", "unknown-model"
    elif status in _PERMANENT_STATUSES or status < 400:
        cause, name = "permanent", f"http-{status}"
    elif status == 413 or _TOO_LONG.search(said):
        cause, name = "content", "too-long"
    else:
        cause, name = "content", f"http-{status}"
    return ModelError(cause, name, f"status {status}: {said or 'no body'}", retry_after=retry_after)


def _answer(body: bytes, model: str, max_tokens: int) -> ChatAnswer:
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        message = choice["message"]
        finish, content, refusal = choice.get("finish_reason"), message.get("content"), message.get("refusal")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        said = " ".join(body[:2000].decode("utf-8", "replace").split())[:300]
        raise ModelError("transient", "bad-response", f"no chat completion in {said!r}") from error
    if finish == "length":
        raise ModelError("content", "truncated", f"the answer was cut off at max_tokens={max_tokens}")
    if finish == "content_filter" or refusal:
        raise ModelError("content", "refusal", str(refusal or "the service's content filter")[:300])
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    text = strip_thinking(content) if isinstance(content, str) else ""
    if not text:
        raise ModelError("content", "empty", f"no text in the answer (finish_reason {finish!r})")
    usage = document.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    answered_by = document.get("model")
    return ChatAnswer(
        text=text,
        model=answered_by if isinstance(answered_by, str) and answered_by else model,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
