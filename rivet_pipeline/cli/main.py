"""The `rivet` command: its frame, its exit codes and its errors. One module a command, loaded when it is called.

Exit codes: 0 done (a search without hits too), 1 something is wrong and standard error says what in one line,
2 the command line is wrong, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rivet_pipeline.cli.free_text import FreeTextCommand
from rivet_pipeline.errors import RivetError

#: Every command: its module, its function or, for a group of commands, its Typer application, and its line in the list.
COMMANDS = {
    "up": ("up", "up_command", "Start the store, Dagster and the API, and stay up until Ctrl-C."),
    "import": ("import_", "import_command", "Read transcripts from files and folders into the memory."),
    "watch": ("watch", "watch_command", "Follow the harnesses' sessions as they are written, until Ctrl-C."),
    "search": ("search", "search_command", "Find messages and summaries by words and by meaning."),
    "context": ("context", "context_command", "Print what an agent is given of its memory at a turn."),
    "browse": ("browse", "browse_command", "List messages by time, newest first."),
    "stats": ("stats", "stats_command", "Show what the memory holds and what waits for the pipeline."),
    "redact": ("redact", "redact_command", "Take a secret out of what is stored."),
    "migrate-lcm": ("migrate_lcm", "migrate_lcm_command", "Move a Lossless Context Management store into the memory."),
    "eval": ("eval", "eval_command", "Measure search with a question set, in a scratch database."),
    "memory": (
        "memory",
        "memory_app",
        "Look into the pipeline's work, retry what failed, have summaries made again, trace a summary to its words.",
    ),
    "tags": ("tags", "tags_app", "Review tags and their vocabulary: what waits, accept, reject, merge, undo."),
    "wiki": ("wiki", "wiki_app", "Read, find and export the wiki's pages; accept what was mined, or take it back."),
    "doctor": ("doctor", "doctor_command", "Check what the memory needs, and say what to do."),
    "hook": ("hook", "hook_command", "Capture one event of an agent; called by its hooks."),
    "hooks": ("hooks", "hooks_app", "Install the hooks of agents, so that they are captured while they run."),
    "spool": ("spool", "spool_app", "Show and send what waits for the API."),
    "mcp": ("mcp", "mcp_app", "Serve the memory to MCP clients, and tell them of it."),
    "serve": ("serve", "serve_command", "Serve the HTTP API alone, until Ctrl-C."),
}

#: Commands that are given somebody's words.
_FREE_TEXT = frozenset({"search", "context"})

_CONTEXT = {"help_option_names": ["-h", "--help"]}


class _LateCommands(TyperGroup):
    """Lists the commands without loading them, and loads the one that is called: `rivet --help` is quick."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({name: TyperCommand(name, help=line) for name, (_, _, line) in COMMANDS.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = _load(name)
        return name, command, rest


def _load(name: str) -> TyperCommand | TyperGroup:
    module, attribute, _ = COMMANDS[name]
    loaded = getattr(import_module(f"rivet_pipeline.cli.{module}"), attribute)
    if isinstance(loaded, typer.Typer):
        return typer.main.get_group(loaded)
    single = typer.Typer(add_completion=False, rich_markup_mode="rich", context_settings=_CONTEXT)
    single.command(name, cls=FreeTextCommand if name in _FREE_TEXT else None)(loaded)
    command = typer.main.get_command(single)
    assert isinstance(command, TyperCommand)
    return command


app = typer.Typer(
    cls=_LateCommands,
    name="rivet",
    help="The memory that AI agents keep: import transcripts, search them, watch the pipeline refine them.",
    epilog="Exit codes: 0 done · 1 an error, said in one line · 2 a wrong command line · 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=_CONTEXT,
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"rivet {version('rivet-pipeline')}")
        except PackageNotFoundError:
            typer.echo("rivet (from a checkout)")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line and exits. What a user can put right is one line on standard error, never a stack trace."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that can not show a character gets its escape, not a stack trace.
            stream.reconfigure(errors="backslashreplace")
    # A Ctrl-C in the midst of a question makes the connection's rollback fail, which is no news; its pool's words are.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING)
    try:
        app(prog_name="rivet")
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()
        sys.exit(141)
    except Exception as error:
        line = _line_about(error)
        if line is None:
            raise
        _leave(line)


def _line_about(error: Exception) -> str | None:
    """One line about what a person can put right; None about a defect of ours."""
    psycopg = sys.modules.get("psycopg")
    if isinstance(error, RivetError):
        return str(error)
    if isinstance(error, ValueError):
        return _settings_line(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _drop_output()
        return "the output can not be written: no space is left on its device."
    if psycopg is not None and isinstance(error, psycopg.Error):
        return f"the database failed: {' '.join(str(error).split())}. What was stored before stays."
    return None


def _drop_output() -> None:
    """Sends what Python still holds for standard output nowhere, so that it does not fail once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(line: str) -> None:
    from rivet_pipeline.cli.output import fail

    fail(line)
    sys.exit(1)


def _settings_line(error: ValueError) -> str | None:
    """One line about a bad environment variable, or None when the error is about something else."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError) or error.title != "Settings":
        return None
    from rivet_pipeline.settings import settings_problem

    return settings_problem(error)


if __name__ == "__main__":
    main()
