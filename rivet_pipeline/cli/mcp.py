"""`rivet mcp`: the memory for MCP clients, over standard input and output; `rivet mcp install` tells clients of it."""

from __future__ import annotations

import typer

mcp_app = typer.Typer(
    name="mcp",
    help="Serve the memory to an MCP client over standard input and output, or tell clients of it.",
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
