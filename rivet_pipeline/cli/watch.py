"""`rivet watch`: follows the harnesses' sessions while they are written. The following itself is in transcripts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from rivet_pipeline.cli.output import one_line
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.store import embedded_server, open_store
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.discovery import find_stores
from rivet_pipeline.transcripts.importer import Importer
from rivet_pipeline.transcripts.reports import FileReport
from rivet_pipeline.transcripts.store_state import known_projects
from rivet_pipeline.transcripts.watch import Watcher, watch


def watch_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Files and folders to follow. Without any: the stores of the installed harnesses.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600, metavar="SECONDS", help="How often to look.")
    ] = 2.0,
    agent: Annotated[str | None, typer.Option("--agent", help="Store the conversations under this agent name.")] = None,
) -> None:
    """Follow the sessions of the installed harnesses, and store what is new as it is written, until Ctrl-C.

    What was written while nobody watched is stored first. Hooks and import may capture the same sessions meanwhile:
    each message is stored once.

    Example: rivet watch
    """
    settings = get_settings()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    with open_store(settings) as url:
        watcher = Watcher(
            lambda: _connect(settings, url),
            lambda connection: paths or _stores(settings, connection),
            lambda connection: Importer(
                connection,
                first_day=settings.first_day,
                max_line=settings.import_max_line,
                agent=agent,
                redact=settings.capture_redaction,
            ),
            lambda report: typer.echo(_line(report, ZoneInfo(settings.timezone))),
        )
        typer.echo("Watching. Ctrl-C stops.")
        watch(watcher, interval=interval, say=lambda line: typer.echo(line, err=True), stopped=stop.wait)


def _connect(settings: Settings, url: str) -> Connection:
    if settings.pg_url is None:
        # Whoever had started the server may have stopped it since.
        embedded_server(settings).start(anew=False)
    return connect(url, application_name="rivet watch")


def _stores(settings: Settings, connection: Connection) -> Sequence[Path]:
    return [store.path for store in find_stores(settings, projects=known_projects(connection))]


def _line(report: FileReport, zone: ZoneInfo) -> str:
    now = datetime.now(zone).strftime("%H:%M:%S")
    name = one_line(report.path)
    if report.status == "unreadable":
        return f"{now}  can not be read: {name} ({report.problem})"
    damaged = f", {report.damaged} damaged" if report.damaged else ""
    return f"{now}  {report.harness}: {report.new} new{damaged}  {name}"
