"""`rivet mcp`: the memory for MCP clients, over standard input and output; `rivet mcp install` tells clients of it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rivet_pipeline.api.mcp.clients import McpClient
    from rivet_pipeline.settings import Settings
    from rivet_pipeline.transcripts.hook_install import Change


class ClientName(StrEnum):
    """The clients whose configuration is known."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    OPENCODE = "opencode"
    CURSOR = "cursor"
    GEMINI = "gemini"
    QWEN_CODE = "qwen-code"
    CLAUDE_DESKTOP = "claude-desktop"


mcp_app = typer.Typer(
    name="mcp",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@mcp_app.callback()
def mcp_command(context: typer.Context) -> None:
    """Serve the memory over standard input and output until the client closes its end. Logs go to standard error.

    Over HTTP the same tools are at /mcp of the API. `rivet mcp install` writes a client's configuration.

    Example: [bold]claude mcp add rivet -- rivet mcp[/bold]
    """
    if context.invoked_subcommand is not None:
        return
    from rivet_pipeline.api.mcp.stdio import serve_stdio, take_wire

    wire = take_wire()
    import logging

    from rivet_pipeline.settings import get_settings

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    serve_stdio(get_settings(), wire)


@mcp_app.command("install")
def install(
    names: Annotated[
        list[ClientName] | None,
        typer.Argument(metavar="CLIENT", help=f"{', '.join(ClientName)}; default: those that are installed."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Change the files without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Take our server out again.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Offer the write tools too; what they store is the client's.")
    ] = False,
) -> None:
    """Tell MCP clients of this memory, in their own configuration. Everything else in it stays, comments too.

    Example: [bold]rivet mcp install claude-code codex --dry-run[/bold]
    """
    from rivet_pipeline.cli.output import fail
    from rivet_pipeline.errors import RivetError
    from rivet_pipeline.settings import get_settings

    settings = get_settings()
    problems = []
    for client in _chosen(settings, names):
        try:
            _change(client, _plan(client, settings, uninstall=uninstall, write=write), yes=yes, dry_run=dry_run)
        except RivetError as error:
            problems.append(str(error))
    for problem in problems:
        fail(problem)
    if problems:
        raise typer.Exit(1)


def _chosen(settings: Settings, names: list[ClientName] | None) -> list[McpClient]:
    from rivet_pipeline.api.mcp.clients import clients
    from rivet_pipeline.errors import RivetError

    known = clients(settings)
    if names:
        return [known[name] for name in dict.fromkeys(name.value for name in names)]
    found = [client for client in known.values() if client.is_there]
    if not found:
        raise RivetError(f"no MCP client was found; name one: {', '.join(known)}.")
    return found


def _plan(client: McpClient, settings: Settings, *, uninstall: bool, write: bool) -> Change | None:
    from rivet_pipeline.api.mcp.clients import plan_install, plan_uninstall, server_environment
    from rivet_pipeline.cli.hooks import find_program

    if uninstall:
        return plan_uninstall(client)
    return plan_install(client, find_program(), server_environment(client, settings, write=write))


def _change(client: McpClient, change: Change | None, *, yes: bool, dry_run: bool) -> None:
    from rivet_pipeline.cli.output import visible
    from rivet_pipeline.transcripts.hook_install import apply_change

    if change is None or not change.is_one:
        typer.echo(f"{client.name}: nothing to change.")
        return
    sys.stdout.write(visible(change.diff))
    if dry_run:
        return
    if not yes and not typer.confirm(f"Change {change.path}?"):
        typer.echo(f"{client.name}: left as it is.")
        return
    backup = apply_change(change)
    kept = f" The former file is {backup.name}, beside it." if backup else ""
    typer.echo(f"{client.name}: {change.path} is written.{kept} Start the client anew.")
