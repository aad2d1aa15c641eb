"""`memory_browse`: messages in the order in which they were said, as a text for an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tools.budget import Page, count, label, quote, when
from rivet_pipeline.api.tools.reading import (
    FOOTER_TOKENS,
    OptionalRole,
    PeriodArguments,
    bounds_of,
    filters_said,
    next_steps,
)
from rivet_pipeline.api.tools.surface import (
    DEFAULT_TOKENS,
    Cursor,
    MaxTokens,
    OptionalFilter,
    Tool,
    lenient,
    lenient_whole,
    register,
)
from rivet_pipeline.retrieval.browse import MAX_LIMIT, browse, cursor_after
from rivet_pipeline.retrieval.filters import accepted_tags
from rivet_pipeline.retrieval.types import BrowsedMessage, BrowseRequest, manner
from rivet_pipeline.shortening import clip

#: How much of a message and of what a tool answered is shown, in characters.
_CONTENT, _RESULT = 1_200, 600

#: How much of a session's tags, in characters.
_TAGS = 240


class BrowseArguments(PeriodArguments):
    """The arguments of memory_browse."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"window": "yesterday", "order": "asc"}]})

    session_id: OptionalFilter = Field(None, description="Only this session, by the key under which it is captured.")
    role: OptionalRole = None
    include_tools: Annotated[bool, lenient(False)] = Field(
        False, description="Also what tools were asked and what they answered."
    )
    order: Annotated[Literal["desc", "asc"], lenient("desc")] = Field(
        "desc", description="Newest first (`desc`) or oldest first (`asc`)."
    )
    limit: Annotated[int, lenient_whole(50, 1, MAX_LIMIT)] = Field(50, ge=1, le=MAX_LIMIT)
    max_tokens: MaxTokens = DEFAULT_TOKENS
    cursor: Cursor = None


def _browse(resources: Resources, arguments: BrowseArguments) -> str:
    bounds = bounds_of(arguments, resources)
    newest_first = arguments.order == "desc"
    request = BrowseRequest(
        agent=arguments.agent,
        role=arguments.role,
        conversation_id=arguments.conversation_id,
        session_key=arguments.session_id,
        since=bounds.since,
        before=bounds.before,
        limit=arguments.limit,
        newest_first=newest_first,
        include_tools=arguments.include_tools or arguments.role == "tool",
        cursor=arguments.cursor,
        tag=arguments.tag,
    )
    with resources.connection() as connection:
        response = browse(connection, request)
        tags = accepted_tags(connection, (message.conversation_id for message in response.messages))
    only = filters_said(
        bounds,
        agent=arguments.agent,
        role=arguments.role,
        session=arguments.session_id,
        conversation=arguments.conversation_id,
        tag=arguments.tag,
    )
    head = [f"# Messages, {'newest' if newest_first else 'oldest'} first; times are in {resources.zone.key}"]
    head += [f"Only: {only}."] if only else []
    head += [] if request.include_tools else ["Without what tools said (include_tools=true shows it)."]
    if not response.messages:
        return "\n".join(head) + "\n\n" + _nothing(resources, arguments)
    page = Page(arguments.max_tokens)
    page.parts.append("\n".join(head))
    shown = _show(page, response.messages, tags, resources)
    left = len(response.messages) - len(shown)
    cursor = cursor_after(shown[-1], newest_first) if left else response.next_cursor
    page.parts.append(_end(resources, arguments, len(shown), left, cursor))
    return page.text()


def _show(
    page: Page, messages: list[BrowsedMessage], tags: Mapping[UUID, tuple[str, ...]], resources: Resources
) -> list[BrowsedMessage]:
    shown: list[BrowsedMessage] = []
    conversation = None
    for message in messages:
        carried = tags.get(message.conversation_id, ())
        text = _message(message, resources, carried, named=message.conversation_id != conversation)
        if not page.add(text, reserve=FOOTER_TOKENS):
            if shown:
                break
            page.parts.append(_message(message, resources, carried, named=True, share=0.1))
        shown.append(message)
        conversation = message.conversation_id
    return shown


def _message(
    message: BrowsedMessage, resources: Resources, tags: tuple[str, ...], *, named: bool, share: float = 1.0
) -> str:
    heading = f"## {when(message.created_at, resources.zone)} · {label(message.agent, 60)}/{message.role}"
    heading += manner(message.metadata.get("kind"))
    if message.tool_name:
        heading += f" · tool {label(message.tool_name, 60)}"
    where = f"id `{message.id}`"
    if named:
        where += f" · conversation `{message.conversation_id}` · {label(message.title or message.session_key)}"
        where += " · " + label("tags " + ", ".join(tags), _TAGS) if tags else ""
    lines = [heading, where]
    cut = 0
    for text, room, name in ((message.content, _CONTENT, ""), (message.tool_result or "", _RESULT, "Answered:")):
        if text.strip():
            shown = clip(text, int(room * share))
            cut += len(text) - len(shown) if shown != text else 0
            lines += [name] if name else []
            lines.append(quote(shown))
    if cut:
        lines.append(f"[cut: {cut:,} more characters; memory_get_full with this id shows all of it]")
    return "\n".join(lines)


def _end(resources: Resources, arguments: BrowseArguments, shown: int, left: int, cursor: str | None) -> str:
    lines = [f"{count(shown, 'message')}."]
    if left:
        lines = [
            f"Cut to stay within {arguments.max_tokens:,} tokens: {shown:,} of {shown + left:,} messages are shown."
        ]
    if cursor is not None:
        lines.append(f"More: call memory_browse again with the same arguments and cursor=`{cursor}`.")
    else:
        lines.append("That is all there is.")
    steps = [("memory_get_full", "memory_get_full with a message's id shows all of it.")]
    if arguments.conversation_id is None:
        steps.append(("", "memory_browse with one conversation's id shows that conversation alone."))
    lines.append(next_steps(resources, steps))
    return "\n".join(lines)


def _nothing(resources: Resources, arguments: BrowseArguments) -> str:
    if arguments.cursor is not None:
        return "No more messages: the listing ends here."
    steps = []
    if arguments.since or arguments.before or arguments.window:
        steps.append(("", "Another period, or none: then the newest messages of all come first."))
    if any((arguments.agent, arguments.role, arguments.session_id, arguments.conversation_id, arguments.tag)):
        steps.append(("", "Without the other filters; ids and names must be as search results give them."))
    if not arguments.include_tools:
        steps.append(("", "include_tools=true, when only tools may have been at work."))
    steps.append(("memory_search", "memory_search finds words whenever they were said."))
    steps.append(("memory_stats", "memory_stats says which agents and periods the memory holds at all."))
    return "No messages match.\n\n" + next_steps(resources, steps)


register(
    Tool(
        "memory_browse",
        BrowseArguments,
        _browse,
        "Lists messages by time, newest first: what happened today or yesterday, a whole conversation from its start "
        "(order=asc with conversation_id), or what was said around a hit of memory_search. Following the cursor shows "
        "each message once, also while more are captured.",
        title="Browse the memory by time",
    )
)
