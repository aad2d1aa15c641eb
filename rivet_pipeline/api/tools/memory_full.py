"""`memory_get_full`: the whole of one message. Where the rest of a cut one is: `transcripts/full_payload.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tools.budget import head, label
from rivet_pipeline.api.tools.surface import DEFAULT_TOKENS, Arguments, MaxTokens, Tool, lenient, register
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.models.tokens import byte_tokens
from rivet_pipeline.transcripts.full_payload import FullPayload, Section, Status, load_message, memory_get_full


def _whole_id(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is required")
    return value


class GetFullArguments(Arguments):
    """The arguments of memory_get_full."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"}]})

    id: Annotated[UUID, BeforeValidator(_whole_id)] = Field(description="The message's id, as search and browse say.")
    section: Annotated[Literal["content", "tool_args", "tool_result"] | None, lenient()] = Field(
        None, description="Only this part of the message."
    )
    offset: Annotated[int, lenient(0)] = Field(
        0, ge=0, description="Where to begin, in characters: what a former answer gave as the place to go on at."
    )
    max_tokens: MaxTokens = DEFAULT_TOKENS


def _get_full(resources: Resources, arguments: GetFullArguments) -> str:
    with resources.connection() as connection:
        message = load_message(connection, arguments.id)
    if message is None:
        raise NotFoundError(f"No message has the id {arguments.id}; summaries have no full payload.")
    payload = memory_get_full(
        message,
        max_line=resources.settings.import_max_line,
        section=arguments.section,
        offset=arguments.offset,
    )
    return full_payload_text(payload, max_tokens=arguments.max_tokens)


#: What the lines around a part of a message take of a budget, and what each part has at least, in tokens.
_FRAME_TOKENS, _LEAST_TOKENS = 50, 60

#: What each outcome means for who asked. `{…}` are filled in.
_OUTCOMES: dict[Status, str] = {
    "complete": "Nothing was cut when this was captured: this is all of it.",
    "kept": "Cut when it was captured, and kept whole when its transcript was imported: this is all of it.",
    "recovered": "Cut when it was captured; read back from {file}.",
    "gone": "Cut when it was captured, and the transcript with the rest is gone: {path} does not exist on this machine "
    "({host}). Put the file back there, if it was moved or a backup has it, and ask again. What is stored follows.",
    "elsewhere": "Cut when it was captured; the rest is on another machine: {path} on {host}. Ask there, or bring the "
    "file here under the same path. It is not lost. What is stored follows.",
    "changed": "Cut when it was captured, and the transcript has changed since: {path} is there, but {problem}. It was "
    "rewritten or replaced; a backup may have it as it was. What is stored follows.",
    "unreadable": "Cut when it was captured, and the rest can not be read: {file}: {problem}. Put that right and ask "
    "again. What is stored follows.",
    "no_pointer": "Cut when it was captured, and no transcript was noted for it (the write tools have none): the rest "
    "is not to be had. What is stored follows.",
    "redacted": "Something was taken out of this on purpose, and it is not looked for again. What is stored follows.",
}


def full_payload_text(payload: FullPayload, *, max_tokens: int | None = None) -> str:
    """A message's full payload in words: what it is, what became of the rest, and its parts.

    With `max_tokens` the parts are cut to about as many, one after the other, and each says where it goes on.
    """
    message = payload.message
    tool = f", tool {label(message.tool_name)}" if message.tool_name else ""
    path = file = payload.path or "its transcript"
    if isinstance(payload.place, int):
        file += f", line {payload.place + 1}"
    elif payload.place is not None:
        file += f", part {payload.place}"
    outcome = _OUTCOMES[payload.status].format(
        file=file, path=path, host=payload.host or "this machine's name was not noted", problem=payload.problem
    )
    heading = (
        f"Message {message.id}, {label(message.agent, 60)}/{message.role}{tool}, in {label(message.session_key, 200)}"
    )
    top = f"{heading}\n{outcome}"
    sections = payload.sections if max_tokens is None else _within(payload.sections, max_tokens - byte_tokens(top))
    return "\n\n".join([top, *(_section_text(section) for section in sections)])


def _within(sections: Sequence[Section], left: int) -> list[Section]:
    """The sections with no more text than the budget holds; every one of them keeps a little, so that it is seen."""
    kept: list[Section] = []
    for place, section in enumerate(sections, 1):
        room = max(_LEAST_TOKENS, left - (len(sections) - place) * (_FRAME_TOKENS + _LEAST_TOKENS) - _FRAME_TOKENS)
        text = head(section.text, room)
        kept.append(replace(section, text=text))
        left -= byte_tokens(text) + _FRAME_TOKENS
    return kept


def _section_text(section: Section) -> str:
    end = section.offset + len(section.text)
    shown = f"{section.length:,} characters"
    if section.offset or section.next_offset is not None:
        shown = f"characters {section.offset:,} to {end:,} of {section.length:,}"
    rest = ""
    if section.next_offset is not None:
        rest = f"\n[go on with section={section.name}, offset={section.next_offset}]"
    return f"[{section.name}: {shown}]\n{section.text}{rest}"


register(
    Tool(
        "memory_get_full",
        GetFullArguments,
        _get_full,
        "Shows the whole of one message, by its id. What was cut when it was captured is read back from the "
        "transcript that the row points to, if that is on this machine. Long parts come in pieces.",
        title="Read a whole message",
        may_miss=True,
    ),
)
