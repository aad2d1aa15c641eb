"""MCP over standard input and output, for clients that start the server themselves.

Standard output belongs to the protocol: it is taken away from everything else before anything is loaded, so that a
stray print, a library's notice or a child's output goes to standard error. The store is opened at the first call that
needs it, and again after it was away.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rivet_pipeline.api.dependencies import Resources
    from rivet_pipeline.settings import Settings

#: The longest line that is read, in bytes: a call with a whole session in it is far below.
MAX_LINE = 16 * 1024 * 1024

_CHUNK = 64 * 1024

#: JSON-RPC's code for what is no JSON.
_PARSE_ERROR = -32700


@dataclass(frozen=True, slots=True)
class Wire:
    """The two descriptors of the protocol, which nothing else in the process knows."""

    read: int
    write: int


def take_wire() -> Wire:
    """Takes standard input and output for the protocol; from here on 0 reads nothing and 1 is standard error."""
    sys.stdout.flush()
    wire = Wire(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


class LazyResources:
    """What tools need, opened when it is first asked for. One that was away is opened anew at the next call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._opened: Resources | None = None
        self._was_open = False

    def __call__(self) -> Resources:
        """The open resources. Raises `RivetError` when the store can not be had."""
        from rivet_pipeline.api.dependencies import open_resources
        from rivet_pipeline.db.store import open_store

        with self._lock:
            if self._opened is not None and not self._answers(self._opened):
                self._close()
            if self._opened is None:
                with ExitStack() as stack:
                    url = stack.enter_context(open_store(self._settings, anew=not self._was_open))
                    self._opened = stack.enter_context(open_resources(self._settings, url))
                    self._stack = stack.pop_all()
                    self._was_open = True
            return self._opened

    def _answers(self, resources: Resources) -> bool:
        import psycopg

        try:
            with resources.connection() as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        """Closes what is open; an embedded server that was started here is stopped unless others use it."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._opened = None
        self._stack.close()


class _Output:
    """What is written to the wire: whole lines, whoever writes them."""

    def __init__(self, descriptor: int) -> None:
        import anyio

        file = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n")
        self._file: Any = anyio.wrap_file(file)
        self._lock = anyio.Lock()

    async def write(self, line: str) -> None:
        """Writes one line and sends it on its way."""
        async with self._lock:
            await self._file.write(line)
            await self._file.flush()

    async def flush(self) -> None:
        """Nothing is held back."""

    async def refuse(self, reason: str) -> None:
        """Answers what is no JSON and so has no id."""
        error = {"code": _PARSE_ERROR, "message": f"Parse error: {reason}"}
        await self.write(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}) + "\n")


class _Lines:
    """The lines of JSON as they come; others are refused here, since the SDK drops them without an answer.

    Reading can be cancelled, which a thread that waits for a line can not.
    """

    def __init__(self, descriptor: int, refuse: Callable[[str], Awaitable[None]]) -> None:
        self._descriptor = descriptor
        self._refuse = refuse

    def __aiter__(self) -> AsyncIterator[str]:
        return self._read()

    async def _read(self) -> AsyncIterator[str]:
        async for line in self._raw():
            if line is None:
                await self._refuse(f"the line is longer than {MAX_LINE // 1024**2} MiB")
            elif _is_json(line):
                yield line
            else:
                await self._refuse("the line is no JSON; every line is one JSON-RPC message")

    async def _raw(self) -> AsyncIterator[str | None]:
        """Every line that says something, None for one that is too long."""
        import anyio
        import anyio.to_thread

        pending = bytearray()
        too_long = False
        while True:
            try:
                await anyio.wait_readable(self._descriptor)
            except PermissionError:
                # A file is always ready, and can not be waited for.
                await anyio.lowlevel.checkpoint()
            chunk = os.read(self._descriptor, _CHUNK)
            if not chunk:
                break
            *lines, rest = (pending + chunk).split(b"\n")
            pending = bytearray(rest)
            for line in lines:
                if not too_long and line.strip():
                    yield line.decode("utf-8", "replace")
                too_long = False
            if len(pending) > MAX_LINE:
                if not too_long:
                    yield None
                too_long, pending = True, bytearray()
        if pending.strip() and not too_long:
            yield pending.decode("utf-8", "replace")


def _is_json(line: str) -> bool:
    from pydantic_core import from_json

    try:
        from_json(line)
    except ValueError:
        return False
    return True


def serve_stdio(settings: Settings, wire: Wire) -> None:
    """Serves until the client closes its end, or SIGINT or SIGTERM comes. Closes the store and then the process.

    The process is left at once, since a call that still waits for the store would hold it.
    """
    import anyio

    resources = LazyResources(settings)
    code = 0
    try:
        anyio.run(_serve, settings, resources, wire)
    except (BrokenPipeError, BaseExceptionGroup) as error:
        code = _ended(error)
    finally:
        resources.close()
    sys.stderr.flush()
    os._exit(code)


def _ended(error: BaseException) -> int:
    """0 when the client has only gone away before it was answered, else the failure is said on standard error."""
    others = error.split(BrokenPipeError)[1] if isinstance(error, BaseExceptionGroup) else None
    if others is None:
        return 0
    import traceback

    traceback.print_exception(others)
    return 1


async def _serve(settings: Settings, resources: LazyResources, wire: Wire) -> None:
    import anyio
    from mcp.server.stdio import stdio_server

    from rivet_pipeline.api.mcp.server import build_server

    server = build_server(settings, resources)
    output: Any = _Output(wire.write)
    lines: Any = _Lines(wire.read, output.refuse)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signals, tasks.cancel_scope)
        async with stdio_server(lines, output) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _stop_on_signals(scope: Any) -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
