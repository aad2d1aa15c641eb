"""`rivet search`: one search, shown for a person or as JSON. What is found and how it is ranked is `retrieval`'s."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import typer
from rich.padding import Padding
from rich.text import Text

from rivet_pipeline.api.answers import search_answer
from rivet_pipeline.cli.options import Agent, AsJson, Before, Conversation, Role, Since, Window, not_blank, read_period
from rivet_pipeline.cli.output import console, error_console, highlighted, local_time, one_line, print_json, short_id
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.retrieval.access import AccessRecorder
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import Hit, ScoreParts, SearchRequest, SearchResponse
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.cleaning import clean_text


def search_command(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    mode: Annotated[
        Literal["hybrid", "fts", "vector"], typer.Option(help="By words and meaning, by words alone, by meaning alone.")
    ] = "hybrid",
    scope: Annotated[Literal["messages", "summaries", "both"], typer.Option(help="Where to look.")] = "both",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="How many hits at most.")] = 10,
    agent: Agent = None,
    role: Role = None,
    conversation: Conversation = None,
    since: Since = None,
    before: Before = None,
    window: Window = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find messages and summaries by words and by meaning, best first.

    Times are shown in RIVETOS_TIMEZONE. A search that finds nothing says what to try instead and exits with 0.

    Example: [bold]rivet search "where do sessions live" --window last_7d[/bold]
    """
    settings = get_settings()
    zone = ZoneInfo(settings.timezone)
    lower, upper = read_period(since, before, window, zone, datetime.now(UTC))
    request = SearchRequest(
        query=clean_text(query),
        mode=mode,
        scope=scope,
        limit=limit,
        agent=not_blank("agent", agent),
        role=role,
        conversation_id=conversation,
        since=lower,
        before=upper,
    )
    response = _ask(settings, request)
    if as_json:
        print_json(search_answer(request, response, explain=explain).model_dump(mode="json", by_alias=True))
    else:
        _print(request, response, zone, explain=explain)


def _ask(settings: Settings, request: SearchRequest) -> SearchResponse:
    vectors, accesses = QueryVectors(settings), AccessRecorder()
    with open_store(settings) as url, connect(url, application_name="rivet-search") as connection:
        response = search(connection, request, embed_query=vectors.on(connection))
        accesses.record(response.hits)
        accesses.flush(connection)
    return response


def _print(request: SearchRequest, response: SearchResponse, zone: ZoneInfo, *, explain: bool) -> None:
    out = console()
    if response.degraded is not None:
        error_console().print(Text(f"Note: {one_line(response.degraded)}.", style="yellow"))
    for rank, hit in enumerate(response.hits, start=1):
        out.print(_heading(rank, hit, zone))
        out.print(Padding(highlighted(one_line(hit.snippet), request.query), (0, 0, 0, 4), expand=False))
        if explain:
            out.print(Text(f"    {_explained(hit.parts)}", style="dim"))
        out.print()
    if not response.hits:
        out.print(Text(_guidance(request, response)))


def _explained(parts: ScoreParts) -> str:
    """The four parts, then what else moved the score; what did not is left out."""
    shown = [f"{name} {getattr(parts, name):.2f}" for name in ("text", "semantic", "temporal", "importance")]
    lent = [("neighbours", "neighbours"), ("tree", "tree"), ("session", "session"), ("session_best", "best of session")]
    shown += [f"{word} {value:.2f}" for name, word in lent if (value := getattr(parts, name))]
    shares = [("within", "freshness counts"), ("noise", "noise keeps"), ("diversity", "repetition keeps")]
    shown += [f"{word} {value:.2f}" for name, word in shares if (value := getattr(parts, name)) < 1]
    return " · ".join(shown)


def _heading(rank: int, hit: Hit, zone: ZoneInfo) -> Text:
    line = Text(f"{rank:>2}. ", style="bold")
    line.append(f"{hit.score:.3f}", style="cyan")
    if hit.source == "summary":
        when = local_time(hit.created_at, zone)
        if hit.earliest_at is not None:
            when = f"{local_time(hit.earliest_at, zone)} to {when}"
        who = f"{hit.kind} summary of {hit.message_count} messages, {hit.agent}"
    else:
        when = local_time(hit.created_at, zone)
        who = f"{hit.agent}/{hit.role}" + (f" [tool: {hit.tool_name}]" if hit.tool_name else "")
    line.append(f"  {when}  ")
    line.append(one_line(who, 80), style="bold")
    if hit.title:
        line.append(f"  {one_line(hit.title, 60)}", style="italic")
    line.append(f"  {short_id(hit.id)}", style="dim")
    return line


def _guidance(request: SearchRequest, response: SearchResponse) -> str:
    reason = f": {one_line(response.reason)}" if response.reason else ""
    lines = [f"Nothing found for “{one_line(request.query, 80)}”{reason}."]
    if request.since is not None or request.before is not None:
        lines.append("The period is part of the search: widen it, or list what it holds with `rivet browse`.")
    if request.agent or request.role or request.conversation_id or request.scope != "both":
        lines.append("Leave out --agent, --role, --conversation or --scope to look everywhere.")
    lines.append("Try other words for the same thing, or `rivet browse` for what was said lately.")
    return "\n".join(lines)
