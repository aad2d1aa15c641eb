"""A conversation: its transcript as a reader wants it, its summary tree beside it, and each message's whole text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from markupsafe import Markup

from rivet_pipeline.api.hub.pages import FromHub, HubRoute, read_id, see_other
from rivet_pipeline.api.hub.queue import tag_item
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.api.hub.texts import FOLD_CHARACTERS, Folded, bare, fold, markdown, plain, typed
from rivet_pipeline.api.hub.times import Clock, long_day
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.retrieval.conversation import (
    TranscriptMessage,
    find_page,
    read_conversation,
    read_transcript,
    read_tree,
)
from rivet_pipeline.retrieval.lineage import first_line
from rivet_pipeline.tags.read import read_pending, tags_of_conversations
from rivet_pipeline.transcripts.full_payload import StoredMessage, load_message

router = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)

#: Characters of a whole text that one page shows.
WHOLE_CHARACTERS = 200_000

#: Kinds that are folded away, with what the fold says; what people and models said to each other stands open.
_FOLDED = {
    "thinking": "Thinking",
    "injected": "Context that the harness added",
    "notice": "Notice of the harness",
    "summary": "Summary that the harness made",
    "progress": "Progress",
    "replay": "Repeats an earlier message",
}

PartName = Literal["content", "tool_args", "tool_result"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message; `html` is its beginning."""

    name: PartName
    label: str
    html: Markup
    folded: Folded


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message as a page shows it. `look`: person, model, tool or aside."""

    id: UUID
    look: str
    who: str
    fold: str | None
    line: str
    parts: list[Part]
    at: datetime
    day: str | None
    leaf_id: UUID | None
    failed: bool
    cut: str | None


def message_views(messages: Sequence[TranscriptMessage], clock: Clock) -> list[MessageView]:
    """The messages of a page, each first one of a day with that day."""
    views = []
    last_day: date | None = None
    for message in messages:
        day = clock.local(message.created_at).date()
        views.append(_view(message, long_day(day) if day != last_day else None))
        last_day = day
    return views


def _view(message: TranscriptMessage, day: str | None) -> MessageView:
    kind = message.kind
    is_tool = kind == "tool" or message.tool_name is not None
    fold_title = "Tool" if is_tool else _FOLDED.get(kind)
    if is_tool:
        look = "tool"
    elif fold_title is not None or message.role == "system":
        look = "aside"
    else:
        look = "person" if message.role == "user" else "model"
    return MessageView(
        id=message.id,
        look=look,
        who=message.tool_name or "tool" if is_tool else _who(message, look),
        fold=fold_title if fold_title is not None or look != "aside" else "System",
        line=_line(message, is_tool=is_tool),
        parts=_parts(message, look),
        at=message.created_at,
        day=day,
        leaf_id=message.leaf_id,
        failed=message.metadata.get("is_error") is True,
        cut=_cut(message.metadata),
    )


def _line(message: TranscriptMessage, *, is_tool: bool) -> str:
    line = first_line(message.content or message.tool_result or "", 140)
    # What a tool is given and says is code: its stars and backticks are its own.
    return line if is_tool else bare(line)


def _who(message: TranscriptMessage, look: str) -> str:
    model = message.metadata.get("model")
    if look == "model" and isinstance(model, str) and model:
        return f"{message.agent} · {model}"
    return message.agent if look == "model" else message.role


def _parts(message: TranscriptMessage, look: str) -> list[Part]:
    # A text made for a call says what its line says already.
    made = "content_made_by" in message.metadata
    parts = []
    if message.content.strip() and not made:
        parts.append(_part("content", "", message.content, look))
    if message.tool_args is not None:
        parts.append(_part("tool_args", "Arguments", arguments_text(message.tool_args), "tool"))
    if message.tool_result is not None and message.tool_result.strip():
        parts.append(_part("tool_result", "Result", message.tool_result, "tool"))
    return parts


#: How a text is shown by what said it; a person's words keep their lines, and everything else is shown as it is.
_SHOWN: dict[str, Callable[[str], Markup]] = {"model": markdown, "aside": markdown, "person": typed}


def _part(name: PartName, label: str, text: str, look: str) -> Part:
    beginning = fold(text, characters=FOLD_CHARACTERS if name == "content" else FOLD_CHARACTERS // 2)
    return Part(name, label, _SHOWN.get(look, plain)(beginning.text), beginning)


def arguments_text(value: Any) -> str:
    """A call's arguments for a reader: a text as it is, an object as `name: value` lines, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value:
        return "\n".join(f"{name}: {_argument(entry)}" for name, entry in value.items())
    return json.dumps(value, ensure_ascii=False, indent=2)


def _argument(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"\n{text}" if "\n" in text else text


def _cut(metadata: Mapping[str, Any]) -> str | None:
    if metadata.get("truncated") is not True:
        return None
    lengths = [
        value
        for key in ("full_content_length", "full_tool_args_length", "full_tool_result_length")
        if isinstance(value := metadata.get(key), int)
    ]
    whole = f" of {max(lengths):,} characters" if lengths else ""
    return f"Capture kept the beginning{whole} of this; memory_get_full reads the rest back."


@router.get("/c/{wanted}")
def conversation_page(wanted: str, page: FromHub, number: Annotated[int, Query(alias="page", ge=1)] = 1) -> Response:
    """One page of a conversation, with the summaries that hold it."""
    identity = read_id(wanted)
    with page.resources.connection() as connection:
        conversation = read_conversation(connection, identity)
        if conversation is None:
            raise NotFoundError(f"No conversation has the id {identity}.")
        transcript = read_transcript(connection, identity, page=number)
        tree = read_tree(connection, identity, transcript)
        tags = tags_of_conversations(connection, [identity]).get(identity, [])
        waiting = [
            tag_item(tag) for session in read_pending(connection, conversation_id=identity) for tag in session.tags
        ]
    return page.render(
        "conversation.html",
        section="search",
        conversation=conversation,
        transcript=transcript,
        messages=message_views(transcript.messages, page.clock),
        tree=tree,
        tags=tags,
        waiting=waiting,
        on_page={message.leaf_id for message in transcript.messages},
        zone=page.resources.zone.key,
    )


@router.get("/m/{wanted}")
def message_in_conversation(wanted: str, page: FromHub) -> Response:
    """Leads to a message in its conversation."""
    identity = read_id(wanted)
    with page.resources.connection() as connection:
        place = find_page(connection, identity)
    if place is None:
        raise NotFoundError(f"No message has the id {identity}.")
    return see_other(f"{ROOT}/c/{place[0]}?page={place[1]}#m-{identity}")


@router.get("/m/{wanted}/text")
def whole_text(
    wanted: str,
    page: FromHub,
    part: PartName = "content",
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> Response:
    """A part of a message in full, or the next stretch of a very long one."""
    identity = read_id(wanted)
    with page.resources.connection() as connection:
        message = load_message(connection, identity)
    if message is None:
        raise NotFoundError(f"No message has the id {identity}.")
    text = _whole(message, part)
    stretch = text[offset : offset + WHOLE_CHARACTERS]
    end = offset + len(stretch)
    look = {"assistant": "model", "user": "person"}.get(message.role, "tool") if part == "content" else "tool"
    return page.render(
        "_text.html" if page.is_fragment else "text.html",
        section="search",
        message=message,
        part=part,
        html=_SHOWN.get(look, plain)(stretch),
        length=len(text),
        offset=offset,
        next_offset=end if end < len(text) else None,
    )


def _whole(message: StoredMessage, part: PartName) -> str:
    """What is kept of a part: the whole that came later where there is one, else what was captured."""
    stored = {"content": message.content, "tool_args": message.tool_args, "tool_result": message.tool_result}[part]
    value = message.whole.get(part, stored)
    return "" if value is None else arguments_text(value)
