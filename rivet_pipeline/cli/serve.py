"""`rivet serve`: the HTTP API alone, for who runs Dagster elsewhere. `rivet up` starts it this way too."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from types import FrameType
from typing import Annotated

import typer

from rivet_pipeline.api.app import serve
from rivet_pipeline.db.store import kept_running, open_store
from rivet_pipeline.settings import get_settings


def serve_command(
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", hidden=True, help="Start an embedded Postgres that ends again.")
    ] = True,
) -> None:
    """Serve the HTTP API on RIVETOS_API_HOST and RIVETOS_API_PORT until Ctrl-C or SIGTERM.

    Example: [bold]RIVETOS_API_PORT=8080 rivet serve[/bold]
    """
    # The server finishes what runs and then raises the signal again: the store below must still be closed in order.
    signal.signal(signal.SIGTERM, _end)
    # Under `rivet up` the server is that one's to look after.
    with open_store(get_settings()) as url, kept_running(get_settings()) if watch else nullcontext():
        serve(get_settings(), url)


def _end(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signal_number)
