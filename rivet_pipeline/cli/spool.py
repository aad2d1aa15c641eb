"""`rivet spool list|replay|dead`: what waits for the API, and what it refused. The spool itself is in transcripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.table import Table
from rich.text import Text

from rivet_pipeline.cli.options import AsJson
from rivet_pipeline.cli.output import console, local_time, one_line, print_json
from rivet_pipeline.client import CaptureClient, Replayed
from rivet_pipeline.settings import get_settings
from rivet_pipeline.transcripts.spool import Spool

#: How long, in seconds, a replay waits for another one to end.
_LOCK_SECONDS = 10.0

spool_app = typer.Typer(
    name="spool",
    help="Show and send what waits for the API.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@spool_app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List what waits for the API, the oldest first.

    Example: [bold]rivet spool list --json[/bold]
    """
    spool = Spool(get_settings().spool_folder)
    waiting = spool.listing()
    if as_json:
        print_json({"folder": spool.folder, "files": [asdict(file) for file in waiting]})
        return
    if not waiting:
        console().print(Text(f"Nothing waits in {spool.folder}."))
        return
    table = Table("age", "session", "messages", "bytes", "failed", "file", box=None, padding=(0, 2, 0, 0))
    for file in waiting:
        failed = f"{file.attempts}: {one_line(file.last_error or '', 60)}" if file.attempts else ""
        key = one_line(file.session_key, 60) if file.session_key else "damaged"
        cells = (seconds(file.age), key, f"{file.messages:,}", f"{file.size:,}", failed, file.name)
        table.add_row(*map(Text, cells))
    console().print(table)


@spool_app.command("replay")
def replay_command(as_json: AsJson = False) -> None:
    """Send what waits to the API now, the oldest first. Ends with 1 when something is left.

    Example: [bold]rivet spool replay[/bold]
    """
    with CaptureClient.from_settings(get_settings()) as client:
        done = client.replay(wait=_LOCK_SECONDS)
    if as_json:
        print_json(done)
    else:
        console().print(Text(said(done)))
    if done.busy or done.waiting:
        raise typer.Exit(1)


@spool_app.command("dead")
def dead_command(
    retry: Annotated[bool, typer.Option("--retry", help="Put them back, to be sent with the next replay.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what the API refused, and why; `--retry` puts it back.

    Example: [bold]rivet spool dead --retry[/bold]
    """
    settings = get_settings()
    spool = Spool(settings.spool_folder)
    if retry:
        revived = spool.revive()
        if as_json:
            print_json({"revived": revived})
        else:
            console().print(Text(f"{revived} put back; `rivet spool replay` sends them."))
        return
    dead = spool.dead()
    if as_json:
        print_json({"folder": spool.dead_folder, "files": [asdict(file) for file in dead]})
        return
    if not dead:
        console().print("Nothing was refused.")
        return
    zone = ZoneInfo(settings.timezone)
    table = Table("when", "session", "reason", "bytes", "file", box=None, padding=(0, 2, 0, 0))
    for file in dead:
        when = local_time(file.when, zone) if file.when else "unknown"
        key = one_line(file.session_key, 60) if file.session_key else "damaged"
        table.add_row(*map(Text, (when, key, one_line(file.reason, 200), f"{file.size:,}", file.name)))
    console().print(table)


def said(done: Replayed) -> str:
    """A replay in a sentence."""
    if done.busy:
        return f"Another process is replaying; {done.waiting} waiting."
    parts = [f"{done.sent} sent"]
    if done.buried:
        parts.append(f"{done.buried} refused and kept in dead/")
    if done.waiting:
        parts.append(f"{done.waiting} still waiting" + (f": {one_line(done.stopped)}" if done.stopped else ""))
    return ", ".join(parts) + "."


def seconds(age: float) -> str:
    """An age to read: `42 s`, `7 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age >= 2 * length:
            return f"{age / length:.0f} {unit}"
    return f"{age:.0f} s"
