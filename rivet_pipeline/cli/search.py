"""`rivet search`: one search, shown for a person or as JSON. What is found and how it is ranked is `retrieval`'s."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import typer
from rich.padding import Padding
from rich.text import Text

from rivet_pipeline.api.answers import search_answer
from rivet_pipeline.api.context_answers import unfolded_answer
from rivet_pipeline.cli.options import (
    Agent,
    AsJson,
    Before,
    Conversation,
    Role,
    Since,
    Tag,
    Window,
    conversation_of,
    not_blank,
    read_period,
)
from rivet_pipeline.cli.output import (
    console,
    error_console,
    highlighted,
    local_time,
    one_line,
    print_json,
    short_id,
    visible,
)
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.access import AccessRecorder
from rivet_pipeline.retrieval.expand import (
    DEFAULT_CHARACTERS,
    MAX_CHARACTERS,
    MIN_CHARACTERS,
    Expansion,
    Expansions,
    expand_hits,
)
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import EMPTY_QUERY, search
from rivet_pipeline.retrieval.synthesis import Synthesis, Synthesizer
from rivet_pipeline.retrieval.types import Hit, ScoreParts, SearchRequest, SearchResponse, manner
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.cleaning import clean_text

#: What the parts of a request are called on the command line.
_OPTIONS = {"query": "QUERY", "tag": "--tag"}

#: Tags of a session that one line has room for.
_SHOWN_TAGS = 4


def search_command(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    mode: Annotated[
        Literal["hybrid", "fts", "vector", "trigram", "regex"],
        typer.Option(
            help="By words and meaning; by words alone; by meaning alone; by reading the texts for this text, also "
            "spelled nearly so; for a regular expression."
        ),
    ] = "hybrid",
    scope: Annotated[Literal["messages", "summaries", "both"], typer.Option(help="Where to look.")] = "both",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="How many hits at most.")] = 10,
    agent: Agent = None,
    role: Role = None,
    conversation: Conversation = None,
    tag: Tag = None,
    since: Since = None,
    before: Before = None,
    window: Window = None,
    expand: Annotated[
        bool, typer.Option("--expand", help="Unfold the best summaries to their children and messages.")
    ] = False,
    expand_chars: Annotated[
        int, typer.Option(min=MIN_CHARACTERS, max=MAX_CHARACTERS, help="How much of them at most, in characters.")
    ] = DEFAULT_CHARACTERS,
    synthesize: Annotated[
        bool, typer.Option("--synthesize", help="Add an answer by the configured chat model, made of the hits alone.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find messages and summaries by words and by meaning, best first.

    Times are shown in RIVETOS_TIMEZONE. A search that finds nothing says what to try instead and exits with 0.

    Example: [bold]rivet search "where do sessions live" --window last_7d[/bold]
    """
    if not query.strip():
        raise typer.BadParameter(EMPTY_QUERY, param_hint="QUERY")
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
        since=lower,
        before=upper,
        tag=not_blank("tag", tag),
    )
    wanted = expand_chars if expand else None
    with open_store(settings) as url, connect(url, application_name="rivet-search") as connection:
        request = replace(request, conversation_id=conversation_of(connection, conversation))
        vectors, accesses = QueryVectors(settings), AccessRecorder()
        try:
            response = search(connection, request, embed_query=vectors.on(connection), now=datetime.now(zone))
        except InvalidInputError as error:
            raise typer.BadParameter(error.problem, param_hint=_OPTIONS.get(error.field, error.field)) from None
        expansions = (
            None if wanted is None else expand_hits(connection, response.query, response.hits, characters=wanted)
        )
        if not as_json:
            _print(request, response, expansions, zone, explain=explain)
        synthesis = _synthesis(settings, response, expansions) if synthesize else None
        if as_json:
            answer = unfolded_answer(
                search_answer(request, response, explain=explain, zone=settings.timezone), expansions, synthesis
            )
            print_json(answer.model_dump(mode="json", by_alias=True))
        elif synthesis is not None:
            _print_synthesis(synthesis)
        # What was shown is counted, and nobody waits for that.
        accesses.record(response.hits)
        accesses.write_behind(lambda: nullcontext(connection))


def _synthesis(settings: Settings, response: SearchResponse, expansions: Expansions | None) -> Synthesis:
    unfolded = () if expansions is None else expansions.expansions
    return Synthesizer.of(settings).answer(response.query, response.hits, unfolded)


def _print(
    request: SearchRequest,
    response: SearchResponse,
    expansions: Expansions | None,
    zone: ZoneInfo,
    *,
    explain: bool,
) -> None:
    out = console()
    unfolded = {} if expansions is None else {one.summary: one for one in expansions.expansions}
    for note in filter(None, (response.degraded, *response.notes)):
        error_console().print(Text(f"Note: {one_line(note)}.", style="yellow"))
    for rank, hit in enumerate(response.hits, start=1):
        out.print(_heading(rank, hit, zone))
        out.print(Padding(highlighted(one_line(hit.snippet), request.query), (0, 0, 0, 4), expand=False))
        if explain:
            out.print(Text(f"    {_explained(hit.parts)}", style="dim"))
        if hit.id in unfolded:
            _print_expansion(unfolded[hit.id], request.query, zone)
        out.print()
    if not response.hits:
        out.print(Text(_guidance(request, response)))
    elif expansions is not None and expansions.reason is not None:
        error_console().print(Text(f"Note: nothing was unfolded: {one_line(expansions.reason)}.", style="yellow"))


def _print_expansion(expansion: Expansion, query: str, zone: ZoneInfo) -> None:
    out = console()
    for item in expansion.items:
        if item.source == "summary":
            who = f"{item.kind} summary of {item.message_count} messages"
        else:
            who = f"{item.agent}/{item.role}" + (f" [tool: {item.tool_name}]" if item.tool_name else "")
        line = Text(f"{local_time(item.created_at, zone)}  {one_line(who, 80)}  {short_id(item.id)}", style="dim")
        out.print(Padding(line, (0, 0, 0, 6), expand=False))
        out.print(Padding(highlighted(one_line(item.text), query), (0, 0, 0, 8), expand=False))
    left = expansion.total - len(expansion.items) - expansion.repeated
    if left:
        out.print(Text(f"      {left:,} more: rivet memory lineage {expansion.summary}", style="dim"))


def _print_synthesis(synthesis: Synthesis) -> None:
    if synthesis.answer is None:
        error_console().print(Text(f"Note: no answer in words: {one_line(synthesis.reason or '')}.", style="yellow"))
        return
    out = console()
    out.print(Text(f"Answer by {one_line(synthesis.model or '', 80)}, from the hits alone:", style="bold"))
    out.print(Text(visible(synthesis.answer)))
    for citation in synthesis.citations:
        out.print(Text(f"  #{citation.mark}  {citation.source} {citation.id}", style="dim"))


def _explained(parts: ScoreParts) -> str:
    """The four parts, then what else moved the score; what did not is left out."""
    shown = [f"{name} {getattr(parts, name):.2f}" for name in ("text", "semantic", "temporal", "importance")]
    lent = [("neighbours", "neighbours"), ("tree", "tree"), ("session", "session"), ("session_best", "best of session")]
    lent.append(("named", "date"))
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
        who = f"{hit.agent}/{hit.role}{manner(hit.kind)}" + (f" [tool: {hit.tool_name}]" if hit.tool_name else "")
    line.append(f"  {when}  ")
    line.append(one_line(who, 80), style="bold")
    if hit.title:
        line.append(f"  {one_line(hit.title, 60)}", style="italic")
    line.append(f"  {short_id(hit.id)}", style="dim")
    for tag in hit.tags[:_SHOWN_TAGS]:
        line.append(f"  #{one_line(tag, 40)}", style="green")
    return line


def _guidance(request: SearchRequest, response: SearchResponse) -> str:
    reason = f": {one_line(response.reason)}" if response.reason else ""
    lines = [f"Nothing found for “{one_line(request.query, 80)}”{reason}."]
    if request.since is not None or request.before is not None:
        lines.append("The period is part of the search: widen it, or list what it holds with `rivet browse`.")
    if request.agent or request.role or request.conversation_id or request.tag or request.scope != "both":
        lines.append("Leave out --agent, --role, --conversation, --tag or --scope to look everywhere.")
    lines.append("Try other words for the same thing, or `rivet browse` for what was said lately.")
    return "\n".join(lines)
