"""What one response of a chat service means: an answer, or a failure with its cause and its name.

Sending, waiting and trying again belong to `chat.py`; whether an answer is a good summary to the rooms that ask.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rivet_pipeline import shortening
from rivet_pipeline.models.protocols import Cause, ChatAnswer, ModelError
from rivet_pipeline.models.texts import clean_outgoing, strip_thinking

_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
#: 404, 405 and 410 are an address or a model that is not there: no item of ours can change that.
_PERMANENT_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 410})

_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|too many tokens|prompt is too long", re.IGNORECASE
)
_NO_MODEL = re.compile(r"model_not_found|unknown model|model .{0,80}(?:does not exist|not found)", re.IGNORECASE)

#: What servers and the gateways before them call an answer that was cut off, and one that a filter kept back.
_CUT_OFF = frozenset({"length", "max_tokens", "model_length"})
_KEPT_BACK = frozenset({"content_filter", "safety", "recitation", "blocklist", "prohibited_content"})

#: No service counts more tokens than this in one call.
_MOST_TOKENS = 2**31 - 1


def status_error(status: int, body: bytes, retry_after: float | None) -> ModelError:
    """The failure that a status other than 2xx stands for, with what the service says of it."""
    said = one_line(body)[:500]
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


def read_answer(body: bytes, model: str, max_tokens: int) -> ChatAnswer:
    """The answer in the body of a 2xx response; `model` is its model unless it names another.

    Raises `ModelError`: transient `bad-response`, content `truncated`, `refusal`, `wrong-shape` or `empty`, or what a
    status in an error object stands for (gateways send one with 200).
    """
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        message = choice["message"]
        finish, refusal = choice.get("finish_reason"), message.get("refusal")
        text = _text(message.get("content"))
        calls = message.get("tool_calls") or message.get("function_call")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _no_completion(body) from error
    usage = document.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt_tokens, completion_tokens = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    try:
        _refuse_unfinished(finish, refusal, max_tokens, body)
        _refuse_textless(text, calls, finish)
    except ModelError as error:
        error.prompt_tokens, error.completion_tokens = prompt_tokens or 0, completion_tokens or 0
        raise
    named = document.get("model")
    answered_by = shortening.one_line(clean_outgoing(named))[:200] if isinstance(named, str) else ""
    return ChatAnswer(
        text=text,
        model=answered_by or model,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def one_line(body: bytes) -> str:
    """The beginning of a body as one line that can be stored."""
    return shortening.one_line(clean_outgoing(body[:2000].decode("utf-8", "replace")))


def _text(content: Any) -> str:
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return strip_thinking(clean_outgoing(content)) if isinstance(content, str) else ""


def _refuse_unfinished(finish: Any, refusal: Any, max_tokens: int, body: bytes) -> None:
    ended = finish.casefold() if isinstance(finish, str) else ""
    if ended in _CUT_OFF:
        raise ModelError("content", "truncated", f"the answer was cut off at max_tokens={max_tokens}")
    if ended in _KEPT_BACK or refusal:
        raise ModelError("content", "refusal", str(refusal or f"the service's filter ({finish})")[:300])
    if ended == "error":
        raise ModelError("transient", "bad-response", f"the service broke off: {one_line(body)[:300]!r}")


def _refuse_textless(text: str, calls: Any, finish: Any) -> None:
    if not text and calls:
        raise ModelError("content", "wrong-shape", f"the answer is a tool call: {str(calls)[:200]!r}")
    if not text:
        raise ModelError("content", "empty", f"no text in the answer (finish_reason {str(finish)[:40]!r})")


def _no_completion(body: bytes) -> ModelError:
    try:
        status = json.loads(body)["error"]["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        status = None
    if isinstance(status, int) and 400 <= status < 600:
        return status_error(status, body, None)
    return ModelError("transient", "bad-response", f"no chat completion in {one_line(body)[:300]!r}")


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS:
        return value
    return None
