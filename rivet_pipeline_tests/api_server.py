"""Runs the API in a thread of the test process, on a free port, over real sockets; makes stores for whole modules."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from rivet_pipeline.api.app import create_app
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import connect
from rivet_pipeline.settings import Settings


@contextmanager
def running_api(settings: Settings, url: str) -> Iterator[str]:
    """The base address of a running API."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(create_app(settings, url=url), log_level="warning", access_log=False, proxy_headers=False)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the API did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


@contextmanager
def module_store(server: EmbeddedServer, name: str) -> Iterator[str]:
    """The address of a migrated store that the tests of a module share, because they only read it."""
    with connect(server.url("postgres")) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    try:
        with connect(server.url(name)) as connection:
            apply_migrations(connection)
        yield server.url(name)
    finally:
        with connect(server.url("postgres")) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
