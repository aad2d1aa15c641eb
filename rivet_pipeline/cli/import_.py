"""`rivet import`: the arguments, the progress bar and the closing table. The import itself is in transcripts."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import get_settings
from rivet_pipeline.transcripts.importer import ImportReport, import_paths

#: The table names this many reasons for skipping; JSON names all.
MAX_REASONS = 12


def import_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Transcript files, or folders to search for them.", show_default=False),
    ],
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="Store the conversations under this agent name instead of the harness' own."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Import transcripts: Claude Code sessions and Codex rollouts.

    A file that has not changed since it was imported is not read again, and an import that was interrupted can simply
    be started again. Damaged records are counted and stepped over. Ends with 1 when a path does not exist or holds no
    transcript, or a file could not be read.
    """
    from rivet_pipeline.db.store import open_store

    settings = get_settings()
    try:
        with open_store(settings) as url:
            code = run_import(
                url,
                paths,
                first_day=settings.first_day,
                max_line=settings.import_max_line,
                agent=agent,
                as_json=as_json,
            )
    except RivetError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


def run_import(
    url: str, paths: list[Path], *, first_day: date, max_line: int, agent: str | None = None, as_json: bool = False
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

        report = import_paths(url, paths, first_day=first_day, max_line=max_line, agent=agent, progress=show)
    if as_json:
        typer.echo(json.dumps(report.as_json()))
    elif report.transcripts:
        Console().print(make_table(report))
    problems = find_problems(report)
    for problem in problems:
        typer.echo(problem, err=True)
    return 1 if problems else 0


def find_problems(report: ImportReport) -> list[str]:
    """What went wrong, one line each: missing paths, unreadable files, or no transcript at all."""
    lines = [f"{path} does not exist; check the spelling." for path in report.missing]
    lines += [f"{file.path} can not be read: {file.problem}." for file in report.files if file.status == "unreadable"]
    if not lines and not report.transcripts:
        others = report.count("not_a_transcript")
        lines.append(
            f"no transcript found ({others} other files); name a folder such as ~/.claude/projects, ~/.codex/sessions."
        )
    return lines


def make_table(report: ImportReport) -> Table:
    """The closing table: files, conversations, and messages new, known, damaged and skipped by reason."""
    table = Table(title="Import", show_header=False, title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    messages = report.messages()
    files = (
        ("files", report.transcripts),
        ("  read now", report.count("read") + report.count("incomplete")),
        ("  unchanged since the last import", report.count("unchanged")),
    )
    for label, count in files:
        table.add_row(label, f"{count:,}")
    for label, count in (
        ("  with an unfinished last line, read again next time", report.count("incomplete")),
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
