"""`rivet hook`, for its help alone: `entry.py` deals with the command itself, because this module takes too long."""

from __future__ import annotations

from typing import Annotated

import typer


def hook_command(
    harness: Annotated[
        str, typer.Argument(metavar="HARNESS", help="Whose hook this is: claude-code, codex or qwen-code.")
    ],
) -> None:
    """Capture one event of an agent: its hook calls this with a JSON payload on standard input.

    Returns at once, prints nothing, and never fails: what is wrong stands in logs/hooks.log in RIVETOS_HOME. A worker
    in the background reads the agent's transcript and posts what is new to the API, or spools it.

    Example: [bold]echo "$PAYLOAD" | rivet hook claude-code[/bold]
    """
    import os

    from rivet_pipeline.transcripts.hook_jobs import leave_job

    leave_job(harness, os.environ)
