"""The key under which the sign-in cookies of one installation are made.

It is made of the token and of a random secret that only this installation has, kept in its home: whoever guesses at
the token with cookies that he makes himself has nothing to make them with, and a cookie that was seen on the way tells
nothing of the token. The secret stays over a restart, so browsers stay signed in.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger(__name__)

#: The file in `RIVETOS_HOME`, and how many random bytes it holds.
FILE_NAME = "hub-cookie-secret"
_BYTES = 32


#: Gives the key; the secret is read, and made if there is none, when it is first asked for.
CookieKey = Callable[[], bytes]


def cookie_key(token: bytes, home: Path) -> CookieKey:
    """The key for this token. Where the secret can not be kept, browsers stay signed in until the next restart only."""
    return functools.cache(lambda: hmac.digest(_secret(home / FILE_NAME), token, hashlib.sha256))


def _secret(file: Path) -> bytes:
    try:
        if not file.exists():
            _write(file, secrets.token_bytes(_BYTES))
        kept = file.read_bytes()
    except OSError as error:
        _log.warning("%s can not be kept (%s): browsers must sign in again after a restart.", file, error.strerror)
        return secrets.token_bytes(_BYTES)
    if len(kept) == _BYTES:
        return kept
    _log.warning("%s does not hold %d bytes; remove it. Until then browsers sign in after each restart.", file, _BYTES)
    return secrets.token_bytes(_BYTES)


def _write(file: Path, content: bytes) -> None:
    """Writes the file whole, for its owner alone. If another process was faster, its file stays."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
