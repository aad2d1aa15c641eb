"""`rivet browse`: what was said, in the order of time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from rivet_pipeline.api.answers import browse_answer
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
from rivet_pipeline.cli.output import console, local_time, one_line, print_json, short_id, visible
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.browse import browse
from rivet_pipeline.retrieval.types import BrowsedMessage, BrowseRequest, BrowseResponse, manner
from rivet_pipeline.settings import get_settings

#: How much of a message's text and of a tool's answer a terminal is shown, in characters; --full and --json show all.
_SHOWN_TEXT = 500
_SHOWN_RESULT = 800


def browse_command(
    agent: Agent = None,
    role: Role = None,
    tool_name: Annotated[str | None, typer.Option("--tool", help="Only calls of this tool.")] = None,
    conversation: Conversation = None,
    tag: Tag = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only the conversations of this session key.")
    ] = None,
    since: Since = None,
    before: Before = None,
    window: Window = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many messages at most.")] = 50,
    order: Annotated[Literal["desc", "asc"], typer.Option(help="Newest first, or oldest first.")] = "desc",
    tools: Annotated[bool, typer.Option("--tools/--no-tools", help="With or without what tools said.")] = True,
    cursor: Annotated[str | None, typer.Option(help="Continue at another page, as one says at its end.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Show whole texts.")] = False,
    as_json: AsJson = False,
) -> None:
    """List messages by time, newest first.

    Times are shown in RIVETOS_TIMEZONE. Nothing to list is no error: exit code 0.

    Example: [bold]rivet browse --window yesterday --agent codex --order asc[/bold]
    """
    settings = get_settings()
    zone = ZoneInfo(settings.timezone)
    lower, upper = read_period(since, before, window, zone, datetime.now(UTC))
    request = BrowseRequest(
        agent=not_blank("agent", agent),
        role=role,
        tool_name=not_blank("tool", tool_name),
        session_key=not_blank("session", session),
        since=lower,
        before=upper,
        tag=not_blank("tag", tag),
        limit=limit,
        newest_first=order == "desc",
        include_tools=tools,
        cursor=not_blank("cursor", cursor),
    )
    with open_store(settings) as url, connect(url, application_name="rivet-browse") as connection:
        request = replace(request, conversation_id=conversation_of(connection, conversation))
        try:
            response = browse(connection, request)
        except InvalidInputError as error:
            raise typer.BadParameter(error.problem, param_hint=f"--{error.field}") from None
    if as_json:
        print_json(browse_answer(request, response, zone=settings.timezone).model_dump(mode="json", by_alias=True))
    else:
        _print(request, response, zone, full=full)


def _print(request: BrowseRequest, response: BrowseResponse, zone: ZoneInfo, *, full: bool) -> None:
    out = console()
    for message in response.messages:
        out.print(_heading(message, zone))
        _print_text(message.content, _SHOWN_TEXT, full=full)
        if message.tool_result is not None:
            out.print(Text("→ result", style="dim"))
            _print_text(message.tool_result, _SHOWN_RESULT, full=full)
        out.print()
    if not response.messages:
        out.print(Text("No message in this listing. Widen the period, or leave filters out."))
    for words, cursor in (("More", response.next_cursor), ("Back", response.previous_cursor)):
        if cursor is not None:
            out.print(Text(f"{words}: the same command with --cursor {visible(cursor)}", style="dim"))


def _heading(message: BrowsedMessage, zone: ZoneInfo) -> Text:
    line = Text(local_time(message.created_at, zone), style="cyan")
    tool = f" [tool: {message.tool_name}]" if message.tool_name else ""
    who = f"{message.agent}/{message.role}{manner(message.metadata.get('kind'))}{tool}"
    line.append(f"  {one_line(who, 80)}", style="bold")
    if message.title:
        line.append(f"  {one_line(message.title, 60)}", style="italic")
    line.append(f"  {short_id(message.id)}", style="dim")
    return line


def _print_text(text: str, limit: int, *, full: bool) -> None:
    cut = not full and len(text) > limit
    shown = visible(text[:limit] if cut else text).rstrip("\n")
    if shown:
        console().print(Text(shown))
    if cut:
        console().print(Text(f"… {len(text) - limit:,} more characters; --full shows them", style="dim"))
