"""One request to a model service that speaks JSON over HTTP: its address, its token, its bounds, its failures' names.

What is asked and what an answer means belong to the clients (`chat.py`, `tagger.py`); trying again is theirs too.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx

from rivet_pipeline.models.chat_wire import status_error
from rivet_pipeline.models.credentials import Credential, FixedKey
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.models.retry_after import retry_after_seconds
from rivet_pipeline.models.watch import Watch

_CONNECT_SECONDS = 30.0
_LARGEST_ANSWER_BYTES = 16 * 1024 * 1024
_LARGEST_REFUSAL_BYTES = 64 * 1024
#: How an answer may be packed: in one layer of these, so that a small body can not become a huge one.
_PACKINGS = frozenset({"", "identity", "gzip", "deflate"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service: its base address (`path` is appended), the model asked for, the token sent.

    `extra` are fields of its own for each request's body; they replace those of the same name.
    """

    base_url: str
    model: str
    credential: Credential = field(default_factory=FixedKey)
    path: str = "/chat/completions"
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where requests are posted."""
        return self.base_url.rstrip("/") + self.path if self.path else self.base_url

    @property
    def shown(self) -> str:
        """The address as it may stand in an error: without a password."""
        scheme, mark, rest = self.url.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def ask_service(
    endpoint: Endpoint,
    payload: dict[str, Any],
    deadline: float,
    *,
    allowed: str,
    transport: httpx.BaseTransport | None = None,
) -> bytes:
    """The body of the service's answer with a status of 2xx. A token that is refused is renewed once.

    Args:
        endpoint: The service.
        payload: The body of the request.
        deadline: Until when the whole answer must be there, by `time.monotonic()`. Where a host has several addresses
            and none answers, each is waited for until then or for 30 s; the look-up of the name is not bounded either.
        allowed: How long that was at first, in words, for the error.
        transport: Replaces the network.

    Raises:
        ModelError: transient (`unreachable`, `timeout`, `bad-response`, `http-5xx` …), permanent (`bad-url`, `http-401`
            …) or content (`answer-too-large`, any other `http-4xx`).
    """
    token = endpoint.credential.token()
    response, body = _post(endpoint, payload, token, deadline, allowed, transport)
    if response.status_code == httpx.codes.UNAUTHORIZED and endpoint.credential.renew(token):
        token = endpoint.credential.token()
        response, body = _post(endpoint, payload, token, deadline, allowed, transport)
    if response.status_code >= 300:
        raise status_error(response.status_code, body, retry_after_seconds(response.headers.get("retry-after")))
    return body


def _post(
    endpoint: Endpoint,
    payload: dict[str, Any],
    token: str | None,
    deadline: float,
    allowed: str,
    transport: httpx.BaseTransport | None,
) -> tuple[httpx.Response, bytes]:
    remaining = max(deadline - time.monotonic(), 0.001)
    timeout = httpx.Timeout(remaining, connect=min(_CONNECT_SECONDS, remaining))
    headers = {"accept-encoding": "gzip"} | ({"authorization": f"Bearer {token}"} if token else {})
    watch = Watch(remaining)
    try:
        loopback = httpx.URL(endpoint.url).host in {"127.0.0.1", "::1", "localhost"}
        with (
            watch,
            httpx.Client(
                transport=transport,
                timeout=timeout,
                verify=_tls(),
                # A proxy of the environment is never the way to this machine itself.
                trust_env=not loopback,
            ) as client,
            client.stream(
                "POST", endpoint.url, json=payload, headers=headers, extensions={"trace": watch.trace}
            ) as response,
        ):
            return response, _read(response, endpoint, deadline, allowed)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ModelError("permanent", "bad-url", f"{endpoint.shown}: {error}") from error
    except httpx.HTTPError as error:
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout) or _cut_off(error, watch, deadline):
            raise _timed_out(endpoint, allowed) from error
        if isinstance(error, httpx.DecodingError):
            raise ModelError("transient", "bad-response", f"{endpoint.shown}: {error}") from error
        raise ModelError("transient", "unreachable", f"{endpoint.shown}: {_root_cause(error)}") from error


def _cut_off(error: httpx.HTTPError, watch: Watch, deadline: float) -> bool:
    """Whether the connection ended because the time was up; what was never connected is unreachable."""
    connected = watch.connected or not isinstance(error, httpx.ConnectTimeout | httpx.ConnectError)
    return connected and time.monotonic() >= deadline


def _read(response: httpx.Response, endpoint: Endpoint, deadline: float, allowed: str) -> bytes:
    refused = response.status_code >= 300
    packing = response.headers.get("content-encoding", "").strip().lower()
    if packing not in _PACKINGS:
        if refused:
            return b""
        raise ModelError("transient", "bad-response", f"{endpoint.shown}: packed as {packing[:60]!r}")
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise _timed_out(endpoint, allowed)
        if refused and size > _LARGEST_REFUSAL_BYTES:
            break
        if size > _LARGEST_ANSWER_BYTES:
            raise ModelError("content", "answer-too-large", f"more than {_LARGEST_ANSWER_BYTES} bytes")
    if time.monotonic() > deadline:
        # Where no length was announced, an answer that was cut off looks like a whole one.
        raise _timed_out(endpoint, allowed)
    return b"".join(parts)


def _timed_out(endpoint: Endpoint, allowed: str) -> ModelError:
    return ModelError("transient", "timeout", f"no answer from {endpoint.shown} in its time ({allowed})")


@cache
def _tls() -> ssl.SSLContext:
    """Read once: loading the certificates takes longer than a request to a server nearby."""
    return httpx.create_ssl_context()


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
