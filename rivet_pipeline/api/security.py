"""Who may speak to the API: the bind rule, and the checks that every request passes before any route sees it.

The service is made for one person's machine. What is defended against: other machines (loopback or a token), web
pages of other origins (Host, Origin and fetch metadata; no CORS), and bodies larger than agreed.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rivet_pipeline.api.attempts import Attempts
from rivet_pipeline.api.hub import sign_in
from rivet_pipeline.api.hub.cookie_key import CookieKey
from rivet_pipeline.api.problems import Refusal
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings

#: The one path that answers without a token: it says only that the process lives.
OPEN_PATH = "/healthz"

#: A body over the limit is read on and thrown away up to this many bytes more, because a client that is still
#: writing when the connection closes may never see the answer.
_DRAIN_BYTES = 8 * 1024 * 1024

#: So many seconds' worth of writes may come at once, and so many addresses are told apart.
BURST_SECONDS = 10
_MOST_ADDRESSES = 10_000

_WILDCARDS = {"0.0.0.0", "::", ""}  # noqa: S104 - compared with, not bound to


def check_bind(settings: Settings) -> None:
    """Raises `RivetError` when the API would listen to other machines without a token."""
    if not settings.loopback_only and settings.api_token is None:
        raise RivetError(
            f"RIVETOS_API_HOST is {settings.api_host!r}, which other machines can reach: set RIVETOS_API_TOKEN to a "
            "long random text, or leave the host at 127.0.0.1."
        )


def exposure_warning(settings: Settings) -> str | None:
    """What to know when other machines can reach the API: it speaks plain HTTP. None on loopback."""
    if settings.loopback_only:
        return None
    return (
        f"the API listens on {settings.api_host} port {settings.api_port} without TLS: the token and every message can "
        "be read on the way. Put a proxy with TLS before it, or use a tunnel."
    )


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine: `localhost`, names under it, 127.0.0.0/8, `::1`."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _host_and_port(netloc: str, default_port: int) -> tuple[str, int] | None:
    """The lower-case host and the port of `host[:port]`, or None when it is not of that form."""
    try:
        parts = urlsplit(f"//{netloc}")
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname.rstrip("."), port if port is not None else default_port


class Guard:
    """Refuses what may not come in: other machines without a token, foreign hosts and origins, wrong tokens."""

    def __init__(self, app: ASGIApp, settings: Settings, attempts: Attempts, cookie_key: CookieKey | None) -> None:
        self.app = app
        self._attempts = attempts
        self._cookie_key = cookie_key
        self._token = settings.api_token.get_secret_value().encode() if settings.api_token else None
        self._host = settings.api_host.strip("[]").rstrip(".").lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection. Only HTTP is served; a WebSocket is closed by the application below."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check_client(scope)
            self._check_host(headers)
            self._check_origin(headers)
            if scope["path"] != OPEN_PATH and not self._admits_page(scope, headers):
                self._check_token(headers, client_of(scope))
        await self.app(scope, receive, send)

    def _check_client(self, scope: Scope) -> None:
        """Holds also when another program than ours serves the application on a public address."""
        client = scope.get("client")
        if self._token is None and client is not None and not is_loopback(client[0]):
            raise Refusal(403, "Only this machine may ask; set RIVETOS_API_TOKEN to let others in.")

    def _check_host(self, headers: Headers) -> None:
        """A page can point a name of its own at 127.0.0.1 (DNS rebinding); its requests carry that name."""
        named = _host_and_port(headers.get("host", ""), 80)
        if named is None or len(headers.getlist("host")) != 1:
            raise Refusal(400, "The Host header is missing or malformed.")
        if is_loopback(named[0]) or named[0] == self._host:
            return
        # Bound to every address, the machine has names that we do not know; the token, which is then compulsory and
        # which no page can send by itself, guards instead.
        if self._host in _WILDCARDS and self._token is not None:
            return
        raise Refusal(421, f"This service does not answer for the host {named[0][:100]!r}; use its own address.")

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is not None:
            parts = urlsplit(origin) if origin.count("/") == 2 else None
            default_port = 443 if parts and parts.scheme == "https" else 80
            if (
                parts is None
                or parts.scheme not in {"http", "https"}
                or _host_and_port(parts.netloc, default_port) != _host_and_port(headers["host"], default_port)
            ):
                raise Refusal(403, "A page of another origin may not use this service.")
        # A page's <script> or <img> sends no Origin, but browsers say where it comes from.
        if headers.get("sec-fetch-site") in {"cross-site", "same-site"} and (
            headers.get("sec-fetch-mode") != "navigate" or headers.get("sec-fetch-dest") != "document"
        ):
            raise Refusal(403, "A page of another origin may not use this service.")

    def _admits_page(self, scope: Scope, headers: Headers) -> bool:
        """Pages take the cookie of the sign-in page besides the token, and lead there when they have neither."""
        path = scope["path"]
        if self._cookie_key is None or not sign_in.takes_cookie(path, scope["method"]):
            return False
        cookies = headers.get("cookie", "")
        if sign_in.is_open(path) or (
            sign_in.COOKIE in cookies and sign_in.accepts(self._cookie_key(), cookies, time.time())
        ):
            return True
        if "authorization" in headers or scope["method"] != "GET":
            return False
        # Beside the hub, programs ask too: they are told what to send.
        if not sign_in.is_page(path) and "text/html" not in headers.get("accept", ""):
            return False
        query = scope["query_string"].decode("latin-1")
        wanted = quote(f"{path}?{query}" if query else path, safe="/")
        raise Refusal(303, "Sign in first.", {"Location": f"{sign_in.OPEN_PATHS[0]}?next={wanted}"})

    def _check_token(self, headers: Mapping[str, str], client: str) -> None:
        if self._token is None:
            return
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        # Read as Latin-1, the last byte of a UTF-8 character may look like white space (`à`, `ą`).
        sent = rest.strip(" \t").encode("latin-1")
        # Who sends none does not guess.
        if scheme.lower() != "bearer" or not sent or not self._attempts.admits(sent, client):
            raise Refusal(
                401,
                "Send the header `Authorization: Bearer <token>` with the value of RIVETOS_API_TOKEN.",
                {"WWW-Authenticate": 'Bearer realm="rivet"'},
            )


def client_of(scope: Scope) -> str:
    """The address that a connection comes from, nothing when the server does not say."""
    return scope["client"][0] if scope.get("client") else ""


def require_json(headers: Mapping[str, str]) -> None:
    """A form or a plain text is what a page of another origin can send without asking; JSON it can not."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refusal(415, "Send the body as JSON with the header `Content-Type: application/json`.")


class WriteLimit:
    """Refuses with 429 what one address sends beyond `rate` writes a second; `BURST_SECONDS` of them may come at once.

    A program that has run wild must not fill the disk before somebody notices. Reading is not limited.
    """

    def __init__(self, app: ASGIApp, rate: int) -> None:
        self.app = app
        self._rate = float(rate)
        self._most = self._rate * BURST_SECONDS
        self._left: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection; anything but HTTP is passed on."""
        if scope["type"] == "http" and scope["method"] not in {"GET", "HEAD", "OPTIONS"}:
            self._take(client_of(scope))
        await self.app(scope, receive, send)

    def _take(self, address: str) -> None:
        now = time.monotonic()
        left, seen = self._left.get(address, (self._most, now))
        left = min(self._most, left + (now - seen) * self._rate) - 1
        if left < 0:
            wait = max(1, round(-left / self._rate))
            raise Refusal(
                429, f"More than {self._rate:,.0f} writes a second; try again in {wait} s.", {"Retry-After": str(wait)}
            )
        if len(self._left) >= _MOST_ADDRESSES:
            self._left.clear()
        self._left[address] = (left, now)


class BodyLimit:
    """Refuses a body over `limit` bytes with 413 as soon as that is known, announced or not, before it is parsed.

    `smaller` names paths with a limit of their own.
    """

    def __init__(self, app: ASGIApp, limit: int, smaller: Mapping[str, int] | None = None) -> None:
        self.app = app
        self._limit = limit
        self._smaller = smaller or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection; anything but HTTP is passed on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = min(self._limit, self._smaller.get(scope["path"], self._limit))
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            # A client that asked first has sent nothing yet.
            if "expect" not in headers:
                await _drain(receive, _DRAIN_BYTES)
            raise self._refusal(limit)
        taken = 0

        async def receive_within_limit() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > limit:
                    if message.get("more_body"):
                        await _drain(receive, _DRAIN_BYTES)
                    raise self._refusal(limit)
            return message

        await self.app(scope, receive_within_limit, send)

    def _refusal(self, limit: int) -> Refusal:
        advice = "send the messages in several batches, or raise RIVETOS_CAPTURE_MAX_BODY"
        if limit < self._limit:
            advice = "this is the limit here; memory_ingest_session and /api/capture take more"
        return Refusal(413, f"The body is larger than {limit:,} bytes; {advice}.", {"Connection": "close"})


async def _drain(receive: Receive, limit: int) -> None:
    taken = 0
    while taken <= limit:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            return
        taken += len(message.get("body", b""))
