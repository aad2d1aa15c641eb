"""`rivet hooks install|uninstall|status`: the questions and answers. What is changed: `transcripts/hook_install.py`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from rivet_pipeline.cli.output import console, fail, one_line, print_json, visible
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.hook_install import (
    Change,
    Harness,
    apply_change,
    harnesses,
    plan_install,
    plan_uninstall,
    state_of,
)
from rivet_pipeline.transcripts.hook_queue import Jobs


class HarnessName(StrEnum):
    """The harnesses whose hooks are known."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    QWEN_CODE = "qwen-code"


Names = Annotated[
    list[HarnessName] | None,
    typer.Argument(metavar="HARNESS", help="claude-code, codex, qwen-code; default: those that are installed."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Change the files without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]

hooks_app = typer.Typer(
    name="hooks",
    help="Install the hooks of agents, so that they are captured while they run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@hooks_app.command("install")
def install(names: Names = None, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Add our hooks to the agents' own configuration. Everything else in it stays; a backup is left beside it.

    Example: [bold]rivet hooks install claude-code --dry-run[/bold]
    """
    settings = get_settings()
    program = find_program()
    chosen = _chosen(settings, names)
    if not chosen:
        raise RivetError("no agent was found to install hooks for; name one: claude-code, codex or qwen-code.")
    _change(chosen, lambda harness: plan_install(harness, program), "installed", yes=yes, dry_run=dry_run)
    if "codex" in [harness.name for harness in chosen] and not dry_run:
        typer.echo("Codex runs new hooks once you trust them (`/hooks`); older versions need `codex_hooks = true` too.")


@hooks_app.command("uninstall")
def uninstall(names: Names = None, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Take our hooks out of the agents' configuration, and nothing else.

    Example: [bold]rivet hooks uninstall --yes[/bold]
    """
    _change(_chosen(get_settings(), names), plan_uninstall, "removed", yes=yes, dry_run=dry_run)


@hooks_app.command("status")
def status(
    names: Names = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False
) -> None:
    """Say for each agent whether our hooks are installed, and whether they call this program.

    Example: [bold]rivet hooks status --json[/bold]
    """
    settings = get_settings()
    program = find_program(must_be_there=False)
    chosen = _chosen(settings, names) if names else list(harnesses(settings).values())
    rows = [(harness, *_state(harness, program)) for harness in chosen]
    jobs = Jobs(settings.home)
    waiting, dead = len(jobs.waiting()), jobs.dead()
    if as_json:
        listed = [
            {"harness": one.name, "agent_found": one.is_there, "state": state, "file": one.file, "problem": problem}
            for one, state, problem in rows
        ]
        print_json({"program": program, "harnesses": listed, "jobs": {"waiting": waiting, "dead": dead}})
        return
    table = Table.grid(padding=(0, 2))
    for harness, state, problem in rows:
        about = state if harness.is_there or state != "not installed" else "not installed (no such agent here)"
        table.add_row(Text(harness.name), Text(problem or about), Text(one_line(str(harness.file))))
    console().print(table)
    if waiting or dead:
        console().print(Text(f"Jobs of hooks: {waiting} waiting, {dead} failed ({jobs.dead_folder})"))


def _state(harness: Harness, program: Path) -> tuple[str, str | None]:
    try:
        return state_of(harness, program), None
    except RivetError as error:
        return "unreadable", str(error)


def _chosen(settings: Settings, names: list[HarnessName] | None) -> list[Harness]:
    known = harnesses(settings)
    if names:
        return [known[name] for name in dict.fromkeys(name.value for name in names)]
    return [harness for harness in known.values() if harness.is_there]


def _change(
    chosen: list[Harness], plan: Callable[[Harness], Change | None], done: str, *, yes: bool, dry_run: bool
) -> None:
    """Shows every change, asks, and makes it. A harness whose file is not sound is left out; the others are not."""
    problems = []
    for harness in chosen:
        try:
            change = plan(harness)
            if change is None or not change.is_one:
                typer.echo(f"{harness.name}: nothing to change.")
            else:
                _make(harness, change, done, yes=yes, dry_run=dry_run)
        except RivetError as error:
            problems.append(str(error))
    for problem in problems:
        fail(problem)
    if problems:
        raise typer.Exit(1)


def _make(harness: Harness, change: Change, done: str, *, yes: bool, dry_run: bool) -> None:
    sys.stdout.write(visible(change.diff))
    if dry_run:
        return
    if not yes and not typer.confirm(f"Change {change.path}?"):
        typer.echo(f"{harness.name}: left as it is.")
        return
    backup = apply_change(change)
    kept = f" The former file is {backup.name}, beside it." if backup else ""
    typer.echo(f"{harness.name}: {done} in {change.path}.{kept}")


def find_program(*, must_be_there: bool = True) -> Path:
    """The absolute path of the `rivet` command: the one that was called, else that of this installation.

    Raises `RivetError` when there is none and it must be there, since hooks need a file to call.
    """
    beside = Path(sys.executable).parent / "rivet"
    called = Path(sys.argv[0]).absolute()
    found = shutil.which("rivet")
    candidates = [called] if called.name == "rivet" else []
    candidates += [beside, *([Path(found).absolute()] if found else [])]
    program = next((path for path in candidates if path.is_file()), beside)
    if must_be_there and not program.is_file():
        raise RivetError("the rivet command is not installed as a file; install the package, then try again.")
    return program
