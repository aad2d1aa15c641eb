"""The cookie by which a browser shows that the token was once typed into it. Pure; the guard and the pages ask here.

It holds no token: a time of expiry and its HMAC under a key of this installation and of the token (`cookie_key.py`), so
that it ends by itself and when the token changes.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie

COOKIE = "rivet_hub"

#: How long a browser stays signed in, in seconds.
LIFETIME = 30 * 86_400

#: Where pages are.
ROOT = "/hub"

#: The API's own page and what it reads: a GET of them takes the cookie too. `/` only leads to the hub.
READ_PATHS = ("/", "/docs", "/openapi.json")

#: Where a browser sends the cookie; what takes it is decided here.
COOKIE_PATH = "/"

#: What a browser needs before it is signed in.
OPEN_PATHS = (f"{ROOT}/sign-in", f"{ROOT}/static/")


def is_page(path: str) -> bool:
    """Whether a path of a request belongs to the hub."""
    return path == ROOT or path.startswith(f"{ROOT}/")


def takes_cookie(path: str, method: str) -> bool:
    """Whether a request may show the cookie in place of the token: pages, and reading the API's own page."""
    return is_page(path) or (method == "GET" and path in READ_PATHS)


def is_open(path: str) -> bool:
    """Whether a page answers without a token: the sign-in page, and the files by which it looks as it does."""
    return path == OPEN_PATHS[0] or path.startswith(OPEN_PATHS[1])


def issue(key: bytes, now: float) -> str:
    """A cookie's value, good for `LIFETIME` seconds from `now` (seconds since 1970)."""
    expires = str(int(now) + LIFETIME)
    return f"{expires}.{_signature(key, expires)}"


def accepts(key: bytes, cookie_header: str, now: float) -> bool:
    """Whether a `Cookie` header holds a value that was issued under this key and has not ended."""
    expires, _, signature = _cookie(cookie_header).partition(".")
    # Compared also when it has ended, so that an answer takes the same time.
    genuine = hmac.compare_digest(signature.encode(), _signature(key, expires).encode())
    return genuine and expires.isdecimal() and len(expires) <= 12 and now < int(expires) <= now + LIFETIME + 60


def _signature(key: bytes, expires: str) -> str:
    return hmac.new(key, b"rivet hub until " + expires.encode(), hashlib.sha256).hexdigest()


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
