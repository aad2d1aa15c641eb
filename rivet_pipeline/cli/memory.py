"""`rivet memory …`: the pipeline's work as a person sees and moves it, and the way from a summary to its words."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from rivet_pipeline.api.answers import lineage_answer
from rivet_pipeline.cli.options import AsJson, not_blank
from rivet_pipeline.cli.output import console, local_time, one_line, print_json, short_id
from rivet_pipeline.cli.remine import remine_command
from rivet_pipeline.db.ids import find_id
from rivet_pipeline.db.pool import connect, open_pool
from rivet_pipeline.db.queue import (
    ALL_STAGES,
    Failure,
    Rest,
    StageQueue,
    held_back,
    next_try,
    queue_status,
    retry_failed,
)
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval.lineage import (
    DEFAULT_EXCERPT,
    DEFAULT_MESSAGES,
    DEFAULT_SUMMARIES,
    Budget,
    Lineage,
    LineageMessage,
    LineageSummary,
    read_lineage,
)
from rivet_pipeline.settings import get_settings
from rivet_pipeline.stages import StageReport
from rivet_pipeline.tool_calls.factory import build_writer
from rivet_pipeline.tool_calls.write import Backlog, Preview, preview_texts, read_backlog, write_tool_texts

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]

memory_app = typer.Typer(
    name="memory",
    help="Look into the pipeline's work, retry what failed, have summaries made again, trace a summary to its words.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
memory_app.command("remine")(remine_command)


@memory_app.command("queue-status")
def queue_status_command(as_json: AsJson = False) -> None:
    """Show what waits for each stage of the pipeline, and what rests after a failure, with the cause.

    Example: [bold]rivet memory queue-status[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-memory") as connection:
        stages = queue_status(connection)
    if as_json:
        print_json(stages)
    else:
        _print_queue(stages, ZoneInfo(settings.timezone))


@memory_app.command("retry-failed")
def retry_failed_command(
    task: Annotated[str, typer.Option("--task", metavar="STAGE", help="The stage whose failures are meant, or all.")],
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Only those whose error says this.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Have what failed tried again at once, as if it had never failed: what was given up, too.

    The pipeline takes it up within seconds when it runs, except what failed when it was made again: what to do for
    that is said. Each item stays in the ledger until it succeeds.

    Example: [bold]rivet memory retry-failed --task leaf_summaries --error refusal --dry-run[/bold]
    """
    settings = get_settings()
    text = not_blank("error", error)
    with open_store(settings) as url, connect(url, application_name="rivet-memory") as connection:
        try:
            failures = retry_failed(connection, stage=task, error=text, dry_run=dry_run)
        except InvalidInputError as wrong:
            raise typer.BadParameter(wrong.problem, param_hint=f"--{wrong.field}") from None
    if as_json:
        print_json({"changed": bool(failures) and not dry_run, "failures": failures})
    else:
        _print_retried(failures, dry_run=dry_run)


@memory_app.command("backfill-tool-synth")
def backfill_command(dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Give every tool call without words of its own its sentence, now and for all days.

    The pipeline does the same by itself as calls come; this works off what an older store holds, without its bounds.
    Texts are written once and stay, whatever model is configured later.

    Example: [bold]rivet memory backfill-tool-synth --dry-run[/bold]
    """
    settings = get_settings()
    writer = build_writer(settings)
    report = StageReport("tool_call_text", model=writer.name)
    with open_store(settings) as url, open_pool(url, max_size=2, application_name="rivet-memory") as pool:
        with pool.connection() as connection:
            before = read_backlog(connection)
            shown = preview_texts(connection, writer) if dry_run else []
        if not dry_run:
            report = write_tool_texts(pool, days=None, writer=writer, seconds=None)
        with pool.connection() as connection:
            after = read_backlog(connection)
    if as_json:
        figures = {"writer": writer.name, "written": report.rows, "failed": report.failures}
        print_json({**figures, "before": before, "after": after, "examples": shown})
    else:
        _print_backfill(writer.name, report, before if dry_run else after, shown, dry_run=dry_run)


@memory_app.command("lineage")
def lineage_command(
    wanted: Annotated[
        str, typer.Argument(metavar="ID", help="A summary or a message, by its id or by its first digits.")
    ],
    messages: Annotated[int, typer.Option(min=0, max=2000, help="How many messages at most.")] = DEFAULT_MESSAGES,
    summaries: Annotated[int, typer.Option(min=0, max=1000, help="How many summaries at most.")] = DEFAULT_SUMMARIES,
    excerpt: Annotated[
        int, typer.Option(min=20, max=2000, help="The longest excerpt, in characters.")
    ] = DEFAULT_EXCERPT,
    as_json: AsJson = False,
) -> None:
    """Show what a summary was made from, down to the messages, or which summaries hold a message.

    The ids are those that [bold]rivet search[/bold] and [bold]rivet browse[/bold] print; six digits are enough when no
    other id begins so.

    Example: [bold]rivet memory lineage 0b9c2c3e[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-memory") as connection:
        try:
            found = find_id(connection, wanted, ("summary", "message"), field="ID")
        except InvalidInputError as wrong:
            raise typer.BadParameter(wrong.problem, param_hint=wrong.field) from None
        lineage = read_lineage(connection, found, Budget(summaries, messages, excerpt))
    if lineage is None:
        raise NotFoundError(f"the summary or message {found} is gone; `rivet search` prints ids.")
    if as_json:
        print_json(lineage_answer(lineage).model_dump(mode="json", by_alias=True))
    else:
        _print_lineage(lineage, ZoneInfo(settings.timezone))


# --- how it is shown ------------------------------------------------------------------------------------------------


def _print_queue(stages: list[StageQueue], zone: ZoneInfo) -> None:
    out = console()
    table = Table(box=None, padding=(0, 2, 0, 0))
    left = {"stage", "oldest day", ""}
    for column in ("stage", "days", "due", "resting", "given up", "oldest day", ""):
        table.add_column(column, justify="left" if column in left else "right")
    for stage in stages:
        rests = (f"{figure:,}" for figure in (stage.waiting, stage.given_up))
        note = "the whole stage rests" if stage.rests else ""
        table.add_row(stage.stage, f"{stage.days:,}", stage.due, *rests, str(stage.oldest_day or ""), note)
    out.print(table)
    for stage in stages:
        for rest in [*([stage.service] if stage.service else []), *stage.resting]:
            out.print(Text(_rest_line(stage, rest, zone), style="yellow"))


def _rest_line(stage: StageQueue, rest: Rest, zone: ZoneInfo) -> str:
    counts = {"due again": rest.due, "resting": rest.waiting, "given up": rest.given_up}
    counted = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    what = "its service" if rest is stage.service else counted
    tried = next_try(stage.stage, rest, lambda moment: local_time(moment, zone))
    again = f", tried again {tried}" if tried else ""
    since = local_time(rest.oldest_at, zone)
    return f"! {stage.stage}: {what} ({rest.cause}{again}; since {since}): {one_line(rest.error, 300)}"


def _print_retried(failures: list[Failure], *, dry_run: bool) -> None:
    out = console()
    for failure in failures[:50]:
        attempts = f"{failure.attempts} attempt{'' if failure.attempts == 1 else 's'}"
        line = f"{failure.stage}  {failure.item}  {failure.cause}, {attempts}: {failure.error}"
        out.print(Text(one_line(line, 300)))
    if len(failures) > 50:
        out.print(Text(f"… and {len(failures) - 50:,} more; --json lists all"))
    if not failures:
        out.print(
            Text(f"No failure matches; `rivet memory queue-status` shows what rests, --task {ALL_STAGES} means all.")
        )
    else:
        did = "would be due at once" if dry_run else "are due now: the running pipeline takes them up"
        counted = f"{len(failures):,} failure{'' if len(failures) == 1 else 's'} {did}"
        out.print(Text(", ".join([counted, *held_back(failures)]) + "."), soft_wrap=True)


def _print_backfill(writer: str, report: StageReport, backlog: Backlog, shown: list[Preview], *, dry_run: bool) -> None:
    out = console()
    if dry_run:
        out.print(Text(f"{backlog.due:,} tool calls would get a text from {one_line(writer, 80)}."))
        for one in shown:
            out.print(Text(f"  {short_id(one.id)}  {one_line(one.text)}"))
    else:
        failed = f", {report.failures:,} failed" if report.failures else ""
        out.print(Text(f"{report.rows:,} tool calls got a text from {one_line(writer, 80)}{failed}."))
    if not dry_run and backlog.due:
        out.print(Text(f"{backlog.due:,} are due and not done; start the command again."))
    if backlog.awaiting:
        out.print(Text(f"{backlog.awaiting:,} wait for their result, or for 15 minutes without one."))
    if backlog.resting:
        out.print(Text(f"{backlog.resting:,} rest after a failure; `rivet memory queue-status` says why."))


def _print_lineage(lineage: Lineage, zone: ZoneInfo) -> None:
    title = f" · {one_line(lineage.title, 80)}" if lineage.title else ""
    tree = Tree(Text(f"{one_line(lineage.session_key, 100)}{title}", style="italic"), guide_style="dim")
    branch = tree
    for summary in lineage.above:
        branch = branch.add(_summary_line(summary, zone))
    if lineage.summary is not None:
        _add_summary(branch, lineage.summary, zone, wanted=True)
    if lineage.message is not None:
        branch.add(_message_line(lineage.message, zone))
    out = console()
    out.print(tree)
    left_out = {"summaries": lineage.omitted_summaries, "messages": lineage.omitted_messages}
    for name, count in left_out.items():
        if count:
            out.print(Text(f"{count:,} more {name} below are not shown; --{name} shows more.", style="dim"))
    if lineage.note is not None:
        out.print(Text(f"Note: {one_line(lineage.note)}."))


def _add_summary(branch: Tree, summary: LineageSummary, zone: ZoneInfo, *, wanted: bool = False) -> None:
    line = _summary_line(summary, zone)
    if wanted:
        line.stylize("bold")
    node = branch.add(line)
    for child in summary.children:
        _add_summary(node, child, zone)
    for message in summary.messages:
        node.add(_message_line(message, zone))


def _summary_line(summary: LineageSummary, zone: ZoneInfo) -> Text:
    span = f"{local_time(summary.earliest_at, zone)} to {local_time(summary.latest_at, zone)}"
    grounded = "" if summary.grounding is None else f", grounding {summary.grounding:.2f}"
    line = Text(f"{summary.kind} {short_id(summary.id)}", style="cyan")
    line.append(f"  {span}, {summary.message_count:,} messages, {one_line(summary.model, 40)}{grounded}\n", style="dim")
    line.append(one_line(summary.excerpt), style="none")
    return line


def _message_line(message: LineageMessage, zone: ZoneInfo) -> Text:
    tool = f" [tool: {message.tool_name}]" if message.tool_name else ""
    line = Text(short_id(message.id), style="cyan")
    line.append(f"  {local_time(message.created_at, zone)}  {one_line(f'{message.agent}/{message.role}{tool}', 80)}")
    made = f" (text by {one_line(message.made_by, 40)})" if message.made_by else ""
    line.append(f"{made}\n", style="dim")
    line.append(one_line(message.excerpt))
    return line
