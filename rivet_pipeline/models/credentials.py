"""The bearer token of a model service: a fixed key, or what a command of the user's prints.

A token stays in memory; it stands in no error and in no log. How it is sent belongs to the clients.
"""

from __future__ import annotations

import math
import os
import re
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from rivet_pipeline.models.protocols import ModelError

#: How long a token command may run, in seconds: it may ask an identity service over the network.
COMMAND_SECONDS = 30.0

#: More output than this, in bytes, is no token.
_MOST_OUTPUT = 64 * 1024

#: What a header may carry (RFC 6750's alphabet and the other visible ASCII characters that services use).
_TOKEN = re.compile(r"[!-~]{1,16384}")


#: Shorter keys (`none`, `key`: what servers without one are given) are words that an error may need.
_SECRET_LENGTH = 8


class Credential(Protocol):
    """Where a client's bearer token comes from. Safe to share among threads."""

    def token(self) -> str | None:
        """The token to send, None for none. Raises `ModelError` (permanent) when it can not be had."""
        ...

    def renew(self, refused: str | None) -> bool:
        """Forgets a token that the service refused. Whether another may be had."""
        ...

    def hide(self, text: str) -> str:
        """The text with the token replaced by `***`, unless it is too short to be a secret."""
        ...


class FixedKey:
    """A key from the configuration, or none."""

    def __init__(self, key: str | None = None) -> None:
        self._key = key or None

    def token(self) -> str | None:
        """The key. Raises `ModelError` (permanent, `bad-key`) when no header can carry it."""
        if self._key is not None and _TOKEN.fullmatch(self._key) is None:
            raise ModelError("permanent", "bad-key", "the key is not one line of visible ASCII; set it anew")
        return self._key

    def renew(self, refused: str | None) -> bool:
        """There is no other."""
        return False

    def hide(self, text: str) -> str:
        """See `Credential`."""
        return _hidden(text, self._key)


class TokenCommand:
    """What a command prints on one line, kept for a while. The command runs without a shell, with no input."""

    def __init__(
        self,
        command: Sequence[str] | str,
        ttl_seconds: float,
        *,
        timeout_seconds: float = COMMAND_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Runs nothing yet.

        Args:
            command: The program and its arguments; a string is split as a shell would, `ValueError` when it can not be.
            ttl_seconds: How long a token is used before the command is asked again.
            timeout_seconds: How long the command may run.
            clock: Seconds of a clock that never goes back, for the age of a token.
        """
        self._arguments = shlex.split(command) if isinstance(command, str) else list(command)
        if not self._arguments:
            raise ValueError("the command is empty")
        self._ttl_seconds = ttl_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._token: str | None = None
        self._until = -math.inf

    def token(self) -> str:
        """The token, from the command when there is none that is fresh.

        Raises:
            ModelError: permanent, `token-command`, with what the command wrote to its error output.
        """
        with self._lock:
            if self._token is None or self._clock() >= self._until:
                self._token = self._ask()
                self._until = self._clock() + self._ttl_seconds
            return self._token

    def renew(self, refused: str | None) -> bool:
        """Forgets the refused token, unless another thread has renewed it meanwhile."""
        with self._lock:
            if self._token == refused:
                # Kept until there is another, so that it can still be hidden.
                self._until = -math.inf
        return True

    def hide(self, text: str) -> str:
        """See `Credential`."""
        return _hidden(text, self._token)

    def _ask(self) -> str:
        try:
            process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise self._failed(f"can not be run: {getattr(error, 'strerror', None) or error}") from error
        try:
            printed, complained = _read_both(process, time.monotonic() + self._timeout_seconds)
        except _TooMuchError as error:
            raise self._failed(str(error)) from error
        finally:
            _end(process)
        token = printed.decode("utf-8", "replace").strip()
        said = _one_line(complained, hidden=token)
        if process.returncode != 0:
            raise self._failed(f"ended with status {process.returncode}: {said or 'no word of why'}")
        if _TOKEN.fullmatch(token) is None:
            what = "printed nothing" if not token else "printed something that is no token (one line of visible ASCII)"
            raise self._failed(f"{what}{f': {said}' if said else ''}")
        return token

    def _failed(self, what: str) -> ModelError:
        # Only the program is named: its arguments may hold a secret.
        return ModelError("permanent", "token-command", f"the token command {self._arguments[0]} {what}")


def _hidden(text: str, secret: str | None) -> str:
    return text.replace(secret, "***") if secret is not None and len(secret) >= _SECRET_LENGTH else text


class _TooMuchError(Exception):
    """The command ran too long or printed too much."""


def _read_both(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """All that the process writes until it ends. Raises `_TooMuchError`."""
    assert process.stdout is not None
    assert process.stderr is not None
    texts: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise _TooMuchError("did not end in time")
            for key, _ in ready:
                part = os.read(key.fd, 8192)
                if not part:
                    selector.unregister(key.fileobj)
                texts[key.data] += part
            if sum(map(len, texts.values())) > _MOST_OUTPUT:
                raise _TooMuchError(f"printed more than {_MOST_OUTPUT} bytes")
    try:
        process.wait(max(deadline - time.monotonic(), 0.001))
    except subprocess.TimeoutExpired as error:
        raise _TooMuchError("did not end in time") from error
    return bytes(texts[process.stdout]), bytes(texts[process.stderr])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the command and closes its pipes."""
    # Not polled: until it has been waited for, nothing else can have its number.
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _one_line(raw: bytes, *, hidden: str) -> str:
    said = " ".join(raw.decode("utf-8", "replace").split())
    # Whatever stood on the output may be a token, also when the command failed afterwards.
    for word in {hidden, *hidden.split()}:
        if word:
            said = said.replace(word, "***")
    return said[:500]
