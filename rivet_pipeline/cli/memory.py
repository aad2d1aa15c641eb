"""`rivet memory …`: the pipeline's work as a person sees and moves it. One module a large sub-command."""

from __future__ import annotations

import typer

from rivet_pipeline.cli.remine import remine_command

memory_app = typer.Typer(
    name="memory",
    help="Look into the pipeline's work and have it done again.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
memory_app.command("remine")(remine_command)


@memory_app.callback()
def _group() -> None:
    pass
