"""`rivet redact`: the arguments, the question and the report. How a secret is taken out stands in transcripts."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rivet_pipeline.cli.options import id_of
from rivet_pipeline.cli.output import console, error_console, one_line, print_json
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.settings import get_settings
from rivet_pipeline.tags.redacted import follow_redaction as follow_redaction_of_tags
from rivet_pipeline.transcripts.redact_rules import Rule, literal_rule, pattern_rule, shapes_rule
from rivet_pipeline.transcripts.redact_stored import (
    RedactionReport,
    Who,
    redact_everywhere,
    redact_message,
    vacuum,
)
from rivet_pipeline.wiki.redacted import follow_redaction

#: Files that still hold the words, named on a terminal; JSON names all.
_SHOWN_FILES = 20


def redact_command(
    message: Annotated[
        str | None,
        typer.Argument(metavar="[MESSAGE]", help="A message by its id, or by its first digits.", show_default=False),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Whatever matches this, everywhere (Python's spelling).")
    ] = None,
    literal: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="This text, everywhere; - reads it from standard input, past the history."),
    ] = None,
    shapes: Annotated[bool, typer.Option("--shapes", help="Whatever looks like a secret, everywhere.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The whole text of the message, not its secrets.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be replaced.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept in the log.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; needs --yes or --dry-run.")
    ] = False,
) -> None:
    """Take a secret out of the memory: messages, titles, summaries, embeddings, failures.

    Stored words are kept for ever; this is the one exception, and every row that it changes is logged in
    ros_redactions, without the secret. Transcript files, backups and logs are not changed. Ends with 1 when a row could
    not be redacted; running it again goes on from there.

    Example: [bold]rivet redact --literal - --reason "key was pasted" < key.txt[/bold]
    """
    _check(message, pattern, literal, shapes=shapes, whole=whole)
    if as_json and not (yes or dry_run):
        raise typer.BadParameter("needs --yes or --dry-run: nobody can be asked", param_hint="--json")
    if literal == "-":
        literal = sys.stdin.read().strip("\r\n")
    rule = _rule(pattern, literal, whole=whole)
    who = Who(os_user=_user(), reason=reason)
    with open_store(get_settings()) as url, connect(url, application_name="rivet-redact") as connection:
        target = None if message is None else id_of(connection, message, ("message",), hint="MESSAGE")
        report = _run(connection, rule, who, target, apply=False) if dry_run or not yes else None
        if report is not None and not as_json:
            _print(report)
        if not dry_run and (report is None or (report.rows and _agreed())):
            report = _run(connection, rule, who, target, apply=True)
            report.problems += _follow(connection, report, rule, who)
            vacuum(connection, report)
            if not as_json:
                _print(report)
        if report is not None and as_json:
            print_json(_as_json(report))
    if report is not None and report.problems:
        raise typer.Exit(1)


def _check(message: str | None, pattern: str | None, literal: str | None, *, shapes: bool, whole: bool) -> None:
    given = sum(choice is not None for choice in (message, pattern, literal)) + shapes
    if given != 1:
        raise typer.BadParameter("give one of: a message's id, --pattern, --literal, --shapes")
    if whole and message is None:
        raise typer.BadParameter("goes with a message's id", param_hint="--whole")


def _rule(pattern: str | None, literal: str | None, *, whole: bool) -> Rule:
    try:
        if pattern is not None:
            return pattern_rule(pattern)
        if literal is not None:
            return literal_rule(literal)
    except InvalidInputError as error:
        raise typer.BadParameter(error.problem, param_hint=f"--{error.field}") from None
    return shapes_rule(whole=whole)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _run(connection: Connection, rule: Rule, who: Who, target: UUID | None, *, apply: bool) -> RedactionReport:
    with error_console().status("Redacting …" if apply else "Looking …"):
        if target is not None:
            return redact_message(connection, target, rule, who, apply=apply)
        return redact_everywhere(connection, rule, who, apply=apply)


def _follow(connection: Connection, report: RedactionReport, rule: Rule, who: Who) -> list[str]:
    """Takes parts of what was redacted out of the tags and the wiki too; what went wrong with that."""
    problems = []
    for what, follow in (("tags", follow_redaction_of_tags), ("names on the wiki", follow_redaction)):
        try:
            follow(connection, report, rule.name, who.os_user)
        except psycopg.Error as error:
            if connection.broken or connection.closed:
                raise
            problems.append(f"{what}: {error.diag.message_primary or type(error).__name__}")
    return problems


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "nobody can be asked here; add --yes to replace, or --dry-run to look", param_hint="--yes"
        )
    return typer.confirm("Replace this for ever?", default=False)


def _print(report: RedactionReport) -> None:
    out = console()
    if report.rows:
        out.print(_table(report))
        for name, table in report.tables.items():
            for excerpt in table.excerpts:
                out.print(Text(f"  {name}: {one_line(excerpt, 100)}", style="dim"))
    else:
        out.print(Text("Nothing to replace." if not report.problems else "Nothing was replaced."))
    for line in _notes(report):
        out.print(Text(line))
    for problem in report.problems:
        Console(stderr=True, highlight=False).print(Text(f"left as it is: {one_line(problem)}", style="red"))


def _table(report: RedactionReport) -> Table:
    table = Table(title="Replaced" if report.applied else "Would be replaced", title_justify="left")
    table.add_column("table")
    table.add_column("rows", justify="right")
    table.add_column("secrets")
    for name, found in report.tables.items():
        if found.rows:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found.counts.items()))
            table.add_row(name, f"{found.rows:,}", kinds)
    return table


def _notes(report: RedactionReport) -> list[str]:
    lines = []
    for column, count in sorted(report.fixed.items()):
        lines.append(f"{count:,} rows have it in {column}, which is their identity and can not be changed.")
    if report.neighbours:
        lines.append(
            f"{report.neighbours:,} other messages of this conversation hold the same value; take it out everywhere "
            "with --literal."
        )
    if report.files:
        held = [path for path in report.files if Path(path).exists()]
        lines.append(f"Not changed: {len(report.files):,} transcript files, which still hold the words:")
        lines += [
            f"  {one_line(path)}{'' if path in held else ' (not on this machine)'}"
            for path in report.files[:_SHOWN_FILES]
        ]
        if len(report.files) > _SHOWN_FILES:
            lines.append(f"  and {len(report.files) - _SHOWN_FILES:,} more (--json names all)")
    if report.applied and report.rows:
        lines.append(
            "The changed tables were vacuumed. Their files keep former bytes until VACUUM FULL; "
            "backups, WAL and logs are not reached."
        )
        lines.append("A secret that was stored has been seen: revoke it where it was issued.")
    if report.busy:
        lines.append(
            f"Summaries of {report.busy:,} conversations were being made from what was read before: run this once more "
            "when they are done."
        )
    return lines


def _as_json(report: RedactionReport) -> dict[str, Any]:
    return {
        "run_id": report.run_id,
        "applied": report.applied,
        "rows": report.rows,
        "tables": {
            name: {"rows": table.rows, "secrets": dict(table.counts), "excerpts": table.excerpts}
            for name, table in report.tables.items()
        },
        "unchangeable": dict(report.fixed),
        "other_messages": report.neighbours,
        "files": report.files,
        "summaries_being_made": report.busy,
        "problems": report.problems,
    }
