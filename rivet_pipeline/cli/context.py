"""`rivet context`: what an agent is given of its memory at a turn, as text for a system prompt or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from rivet_pipeline.api.context_answers import context_answer
from rivet_pipeline.cli.options import Agent, AsJson, not_blank
from rivet_pipeline.cli.output import error_console, one_line, print_json, visible
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import RivetError
from rivet_pipeline.retrieval.context import (
    DEFAULT_BUDGET,
    MAX_BUDGET,
    MIN_BUDGET,
    ContextRequest,
    TurnContext,
    build_context,
)
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import EmbedQuery
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.cleaning import clean_text


def context_command(
    query: Annotated[
        str | None,
        typer.Argument(help="The turn's words. Without them: the session's latest words of a person."),
    ] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="KEY", help="The session of the turn.")] = None,
    agent: Agent = None,
    budget: Annotated[
        int, typer.Option(min=MIN_BUDGET, max=MAX_BUDGET, help="The most tokens of the whole text, by an estimate.")
    ] = DEFAULT_BUDGET,
    as_json: AsJson = False,
) -> None:
    """Print what an agent is given of its memory at a turn: Markdown, ready for a system prompt.

    That is the workspace files in RIVETOS_WORKSPACE, the session's latest messages and summaries, and the best of a
    search. What can not be had is left out and noted on standard error; the exit code is 0 all the same.

    Example: [bold]rivet context "where do sessions live" --session claude-code:5b0f4f0e[/bold]
    """
    settings = get_settings()
    request = ContextRequest(
        query=None if query is None else clean_text(query),
        session_key=not_blank("session", session),
        agent=not_blank("agent", agent),
        budget=budget,
        folder=settings.workspace_folder,
        zone=ZoneInfo(settings.timezone),
    )
    context = _build(settings, request)
    if as_json:
        print_json(context_answer(context).model_dump(mode="json", by_alias=True))
        return
    for missing in context.degraded:
        error_console().print(Text(f"Note: without {one_line(missing.part)}: {one_line(missing.reason)}", "yellow"))
    sys.stdout.write(visible(context.text))


def _build(settings: Settings, request: ContextRequest) -> TurnContext:
    with ExitStack() as stack:

        def opened() -> AbstractContextManager[Connection]:
            # Not before it is asked for: a store that is away costs its part, and not the files.
            url = stack.enter_context(open_store(settings))
            return connect(url, application_name="rivet-context")

        return build_context(opened, request, embed=_embed(settings))


def _embed(settings: Settings) -> Callable[[Connection], EmbedQuery] | None:
    try:
        return QueryVectors(settings).on
    except RivetError:
        # The search says that there is no model.
        return None
