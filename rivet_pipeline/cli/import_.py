"""`rivet import`: the arguments, the progress bar and the closing table. The import itself is in transcripts."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from rivet_pipeline.api.times import parse_time
from rivet_pipeline.cli.options import not_blank
from rivet_pipeline.db.pool import connect
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.discovery import find_stores
from rivet_pipeline.transcripts.importer import Selection, import_paths
from rivet_pipeline.transcripts.readers import READERS
from rivet_pipeline.transcripts.reports import ImportReport
from rivet_pipeline.transcripts.store_state import known_projects

#: The table names this many reasons for skipping; JSON names all.
MAX_REASONS = 12


def import_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Transcript files, or folders to search for them.", show_default=False
        ),
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Find the stores of the installed harnesses, and import those.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="Store the conversations under this agent name instead of the harness' own."),
    ] = None,
    harness: Annotated[
        str | None, typer.Option("--harness", metavar="NAME", help="Only this harness' sessions: claude-code, codex, …")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only files changed since then: 2026-03-08, 2026-03-08T10:00."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read everything, say what would be new, and store nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Import transcripts of agents and chat exports.

    A file that has not changed since it was imported is not read again, and an import that was interrupted can simply
    be started again. Damaged records are counted and stepped over. Ends with 1 when a path does not exist or holds no
    transcript, or a file could not be read.

    Example: rivet import --discover --dry-run
    """
    from rivet_pipeline.db.store import open_store

    settings = get_settings()
    if bool(paths) == discover:
        raise typer.BadParameter("name files or folders, or let --discover find them; not both", param_hint="PATH")
    selection = Selection(_harness(harness), _time(since, ZoneInfo(settings.timezone)))
    try:
        with open_store(settings) as url:
            found = [*(paths or [])] or _discover(settings, url, selection.harness, quiet=as_json)
            code = run_import(
                url,
                found,
                first_day=settings.first_day,
                max_line=settings.import_max_line,
                agent=not_blank("agent", agent),
                selection=selection,
                dry_run=dry_run,
                redact=settings.capture_redaction,
                as_json=as_json,
            )
    except RivetError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


def _harness(name: str | None) -> str | None:
    known = sorted({reader.harness for reader in READERS})
    if name is not None and name not in known:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint="--harness")
    return name


def _time(text: str | None, zone: ZoneInfo) -> datetime | None:
    try:
        return None if text is None else parse_time(text, zone=zone)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None


def _discover(settings: Settings, url: str, harness: str | None, *, quiet: bool) -> list[Path]:
    """The stores that were found, shown on stderr. Raises `RivetError` when there is none."""
    with connect(url, application_name="rivet import") as connection:
        stores = find_stores(settings, projects=known_projects(connection))
    wanted = [store for store in stores if harness in {None, store.harness}]
    if not wanted:
        raise RivetError("no harness keeps sessions at its usual place here; name a file or folder instead.")
    if not quiet:
        for store in wanted:
            typer.echo(f"{store.harness:<13} {store.path}", err=True)
    return [store.path for store in wanted]


def run_import(
    url: str,
    paths: list[Path],
    *,
    first_day: date,
    max_line: int,
    agent: str | None = None,
    selection: Selection | None = None,
    dry_run: bool = False,
    redact: bool = False,
    as_json: bool = False,
) -> int:
    """Imports into the store at an address, shows progress on stderr and the result on stdout; the exit code.

    Raises `StoreUnavailableError` when the store fails.
    """
    errors = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as bar:
        task = bar.add_task("import", total=None)

        def show(path: Path, done: int, total: int) -> None:
            bar.update(task, description=path.name[-40:], completed=done, total=total)

        report = import_paths(
            url,
            paths,
            first_day=first_day,
            max_line=max_line,
            agent=agent,
            selection=selection,
            dry_run=dry_run,
            redact=redact,
            progress=show,
        )
    if as_json:
        typer.echo(json.dumps({**report.as_json(), "dry_run": dry_run}))
    elif report.transcripts or report.count("passed_over"):
        Console().print(make_table(report, dry_run=dry_run))
    problems = find_problems(report)
    for problem in problems:
        typer.echo(problem, err=True)
    return 1 if problems else 0


def find_problems(report: ImportReport) -> list[str]:
    """What went wrong, one line each: missing paths, unreadable files, or no transcript at all."""
    lines = [f"{path} does not exist; check the spelling." for path in report.missing]
    lines += [f"{file.path} can not be read: {file.problem}." for file in report.files if file.status == "unreadable"]
    if not lines and not report.transcripts and not report.count("passed_over"):
        others = report.count("not_a_transcript")
        lines.append(
            f"no transcript found ({others} other files); name a folder such as ~/.claude/projects, or use --discover."
        )
    return lines


def make_table(report: ImportReport, *, dry_run: bool = False) -> Table:
    """The closing table: files by harness, conversations, messages new, known, damaged and skipped by reason."""
    title = "Import (dry run: nothing was stored)" if dry_run else "Import"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    messages = report.messages()
    table.add_row("transcripts", f"{report.transcripts:,}")
    for name, count in sorted(report.by_harness().items()):
        table.add_row(f"  of {name}", f"{count:,}")
    for label, count in (
        ("read now", report.count("read") + report.count("incomplete")),
        ("unchanged since the last import", report.count("unchanged")),
    ):
        table.add_row(label, f"{count:,}")
    for label, count in (
        ("with an unfinished end, read again next time", report.count("incomplete")),
        ("passed over (--harness, --since)", report.count("passed_over")),
        ("other files, no transcripts", report.count("not_a_transcript")),
        ("files that can not be read", report.count("unreadable")),
    ):
        if count:
            table.add_row(label, f"{count:,}")
    table.add_row("conversations", f"{len(report.conversations):,}", end_section=True)
    table.add_row("messages new", f"{messages['new']:,}")
    table.add_row("messages known", f"{messages['known']:,}", end_section=True)
    table.add_row("records damaged", f"{messages['damaged']:,}")
    _add_reasons(table, report.reasons("damaged"))
    table.add_row("records skipped (they hold no message)", f"{messages['skipped']:,}")
    _add_reasons(table, report.reasons("skipped"))
    return table


def _add_reasons(table: Table, reasons: dict[str, int]) -> None:
    shown = list(reasons.items())
    if len(shown) > MAX_REASONS:
        rest = shown[MAX_REASONS:]
        shown = [*shown[:MAX_REASONS], (f"for {len(rest)} other reasons (--json names them)", sum(n for _, n in rest))]
    for reason, count in shown:
        table.add_row(f"  {escape(reason)}", f"{count:,}")
