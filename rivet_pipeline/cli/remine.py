"""`rivet memory remine`: the arguments, the progress line and the report. How it is done: `summaries/remine.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rivet_pipeline.cli.options import AsJson
from rivet_pipeline.cli.output import console, error_console, fail, one_line, print_json
from rivet_pipeline.db.pool import connect, open_pool
from rivet_pipeline.db.store import open_store
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.extractive import MODEL as EXTRACTIVE_MODEL
from rivet_pipeline.summaries.factory import build_summarizer
from rivet_pipeline.summaries.remine import (
    KINDS,
    LevelCost,
    RemineReport,
    Scope,
    announced_model,
    estimate_remine,
    remine,
)
from rivet_pipeline.summaries.remine import Progress as Step
from rivet_pipeline.summaries.types import Summarizer

_WHY = {"requested": "wanted again", "version": "older version", "model": "other model", "source": "changed source"}


class Level(StrEnum):
    """A level of the summary tree."""

    LEAF = "leaf"
    BRANCH = "branch"
    ROOT = "root"


def remine_command(
    since: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="Conversations that began on this day (UTC) or later."),
    ] = None,
    before: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="Conversations that began before this day (UTC)."),
    ] = None,
    stage: Annotated[Level | None, typer.Option(help="Only this level of the tree.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Redo what has not changed, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would take.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make stale summaries again: those of an older version or another model, and those whose sources have changed.

    The older texts are kept, ids stay. It works here and now, with the model that is configured in this shell, and may
    be stopped with Ctrl-C: running it again, without --force, goes on from there. Ends with 1 when something is left.

    Example: [bold]rivet memory remine --since 2026-06-01 --dry-run[/bold]
    """
    scope = Scope(
        kinds=KINDS if stage is None else (stage.value,),
        since=None if since is None else since.date(),
        before=None if before is None else before.date(),
    )
    if scope.since is not None and scope.before is not None and scope.since >= scope.before:
        raise typer.BadParameter("must be later than --since", param_hint="--before")
    settings = get_settings()
    summarizer = build_summarizer(settings)
    with open_store(settings) as url:
        if dry_run:
            with connect(url, application_name="rivet-remine") as connection:
                known = announced_model(connection)
                costs = estimate_remine(connection, summarizer, scope, force=force)
            _show_costs(costs, summarizer, known, as_json=as_json)
        else:
            report = _run(url, summarizer, scope, force=force, as_json=as_json)
            _show_report(report, summarizer, as_json=as_json)
            if report.stopped is not None or report.left:
                raise typer.Exit(1)


def _run(url: str, summarizer: Summarizer, scope: Scope, *, force: bool, as_json: bool) -> RemineReport:
    with open_pool(url, max_size=2, application_name="rivet-remine") as pool, _bar(quiet=as_json) as (bar, task):

        def show(step: Step) -> None:
            bar.update(task, completed=step.done, total=step.known, day=str(step.day))

        try:
            return remine(pool, summarizer, scope, force=force, progress=show)
        except KeyboardInterrupt:
            bar.stop()
            error_console().print("Stopped. What is done stays; run it again, without --force, to go on.")
            raise


@contextmanager
def _bar(*, quiet: bool) -> Iterator[tuple[Progress, Any]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[day]}"),
        TimeRemainingColumn(),
    )
    shown = error_console()
    with Progress(*columns, console=shown, disable=quiet or not shown.is_terminal, transient=True) as bar:
        yield bar, bar.add_task("summaries", total=None, day="")


def _show_costs(costs: Sequence[LevelCost], summarizer: Summarizer, known: str | None, *, as_json: bool) -> None:
    here = summarizer.model == EXTRACTIVE_MODEL
    if as_json:
        print_json(
            {
                "model": summarizer.model,
                "model_before": known,
                "sends_tokens": not here,
                "levels": [asdict(cost) for cost in costs],
            }
        )
        return
    out = console()
    if known not in (None, summarizer.model):
        out.print(Text(f"The pipeline has worked with {one_line(str(known))} so far.", style="bold yellow"))
    if not any(cost.rows for cost in costs):
        out.print(Text(f"Nothing is stale for {one_line(summarizer.model)}."))
        return
    table = Table(title=f"Would be made again by {one_line(summarizer.model)}", title_justify="left")
    for name in ("level", "why"):
        table.add_column(name)
    for name in ("rows", "days", "tokens in", "tokens out", "may follow"):
        table.add_column(name, justify="right")
    for cost in costs:
        why = ", ".join(f"{word} {getattr(cost, name):,}" for name, word in _WHY.items() if getattr(cost, name))
        waiting = f"; {cost.waiting:,} wait after a failure" if cost.waiting else ""
        figures = (cost.rows, cost.days, cost.input_tokens, cost.output_tokens, cost.may_follow)
        table.add_row(cost.kind, why + waiting, *(f"{figure:,}" for figure in figures))
    out.print(table)
    out.print(
        Text(
            "This model runs in the process: no token is sent."
            if here
            else "Tokens are estimated: from what these rows took before, else four characters each."
        )
    )


def _show_report(report: RemineReport, summarizer: Summarizer, *, as_json: bool) -> None:
    redone = {found.stage: found.rows for found in report.reports}
    failures = sum(found.failures for found in report.reports)
    if as_json:
        tokens = sum(day.tokens for found in report.reports for day in found.days.values())
        print_json(
            {
                "model": summarizer.model,
                "redone": redone,
                "failures": failures,
                "tokens": tokens,
                "left": report.left,
                "stopped": report.stopped,
            }
        )
        return
    out = console()
    if any(redone.values()):
        out.print(Text("Made again: " + ", ".join(f"{rows:,} {stage}" for stage, rows in redone.items()) + "."))
        out.print(Text("Their vectors follow when the pipeline runs (`rivet up`)."))
    elif not report.left:
        out.print(Text(f"Nothing is stale for {one_line(summarizer.model)}."))
    if report.stopped is not None:
        fail(f"stopped, the model can not be asked: {one_line(report.stopped, 300)}. {report.left:,} are left.")
    elif report.left:
        fail(f"{report.left:,} summaries are left as they are; `rivet stats` says why.")
