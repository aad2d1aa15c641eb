"""`rivet migrate-lcm`: the arguments, the progress bar and the table of counts. The migration is in its own room."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rivet_pipeline.cli.options import not_blank
from rivet_pipeline.errors import RivetError
from rivet_pipeline.migration.lcm import migrate_lcm
from rivet_pipeline.migration.report import MigrationReport, Tally
from rivet_pipeline.settings import get_settings


def migrate_lcm_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The LCM store: its SQLite file (~/.openclaw/lcm.db), or postgresql://user:password@host/database.",
            show_default=False,
        ),
    ],
    agent: Annotated[
        str | None, typer.Option("--agent", help="Store the conversations under this agent, not the source's own.")
    ] = None,
    embedding_model: Annotated[
        str | None, typer.Option("--embedding-model", help="The model of vectors whose source does not name it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be moved, and move nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Move a Lossless Context Management store: conversations, messages, summaries, their sources, embeddings.

    The source is only read. What was moved before is known and stays as it is, so a migration that was interrupted can
    simply be started again. Ends with 1 when the source can not be read or the counts do not add up.
    """
    from rivet_pipeline.db.store import open_store

    settings = get_settings()
    agent, embedding_model = not_blank("agent", agent), not_blank("embedding-model", embedding_model)
    try:
        with open_store(settings) as url:
            code = run_migration(
                url,
                source,
                first_day=settings.first_day,
                agent=agent,
                embedding_model=embedding_model,
                dry_run=dry_run,
                as_json=as_json,
            )
    except RivetError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


def run_migration(
    url: str,
    source: str,
    *,
    first_day: date,
    agent: str | None = None,
    embedding_model: str | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    """Migrates into the store at an address, shows progress on stderr and the result on stdout; the exit code.

    Raises `LcmSourceError` and `StoreUnavailableError`.
    """
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as bar:
        task = bar.add_task("messages", total=None)
        report = migrate_lcm(
            url,
            source,
            first_day=first_day,
            agent=agent,
            embedding_model=embedding_model,
            dry_run=dry_run,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        typer.echo(json.dumps(report.as_json()))
    else:
        Console().print(make_table(report))
        for line in list_reasons(report):
            typer.echo(line)
    problems = report.problems()
    for problem in problems:
        typer.echo(f"does not add up: {problem}", err=True)
    return 1 if problems else 0


def make_table(report: MigrationReport) -> Table:
    """The closing table: each kind's counts in the source and in the memory, before and after."""
    title = f"{'What would be moved from' if report.dry_run else 'Moved from'} {escape(report.source)}"
    table = Table(title=title, title_justify="left")
    table.add_column("what", max_width=24, overflow="fold")
    for heading in ("source", "before", "new", "known", "left out", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, tally in report.kinds().items():
        if tally.source or not name.startswith(("large files", "embeddings")):
            _add_kind(table, name, tally)
    return table


def _add_kind(table: Table, name: str, tally: Tally) -> None:
    numbers = (tally.source, tally.before, tally.new, tally.known, tally.left_out.total())
    shown = [f"{number:,}" for number in numbers]
    if name == "message parts":
        # They stand in their message's rows and are not counted there by themselves.
        shown[1] = "-"
    table.add_row(escape(name), *shown, "-" if tally.after is None else f"{tally.after:,}")


def list_reasons(report: MigrationReport) -> list[str]:
    """What was left out or mended, one line for each kind and reason."""
    lines = []
    for name, tally in report.kinds().items():
        lines += [f"{name} left out: {reason} ({number:,})" for reason, number in tally.left_out.most_common()]
        lines += [f"{name} mended: {reason} ({number:,})" for reason, number in tally.notes.most_common()]
    return lines
