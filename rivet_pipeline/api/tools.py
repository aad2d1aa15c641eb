"""The tools that agents call, in one table: what each takes, what it does and how it answers.

HTTP offers them from here. What a tool does is the domain's; here its arguments are read and its answer is worded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.models import Filled, Time
from rivet_pipeline.api.tag_tool import TagsArguments, memory_tags
from rivet_pipeline.api.wiki_tools import ReadSection, wiki_read, wiki_search
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.append import (
    Attribution,
    NewMessage,
    ToolCall,
    attribute,
    memory_append,
    memory_ingest_session,
)
from rivet_pipeline.transcripts.cleaning import ENVELOPE, clean_json
from rivet_pipeline.transcripts.full_payload import FullPayload, Section, Status, load_message, memory_get_full
from rivet_pipeline.transcripts.records import Role

#: The largest body, in bytes, of a call of a tool that takes no transcript.
SMALL_BODY = 256 * 1024


def _absent(value: object) -> object:
    """Clients send what they leave out as nothing, as a blank or as the word null."""
    return None if isinstance(value, str) and value.strip().lower() in {"", "null"} else value


OptionalText = Annotated[str | None, BeforeValidator(_absent)]
OptionalTime = Annotated[Time | None, BeforeValidator(_absent)]
OptionalObject = Annotated[dict[str, Any] | None, BeforeValidator(_absent)]


class _Arguments(BaseModel):
    """A tool's arguments. Unknown names are refused: a misspelt one must not mean none."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: object) -> object:
        return clean_json(value, around=ENVELOPE)


class ToolCallArguments(_Arguments):
    """A tool call of a message."""

    id: OptionalText = None
    name: Filled
    input: Any = None


class _MessageArguments(_Arguments):
    role: Role = Field(description="Whose words these are.")
    content: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = Field(
        "",
        description="The text. Empty only beside a `tool_name` or a `tool_result`. More than 16,000 UTF-16 units are "
        "cut, and there is no way back to the rest.",
    )
    tool_name: OptionalText = None
    tool_args: OptionalObject = None
    tool_result: str | None = None
    event_id: OptionalText = Field(
        None,
        description="The message's identity in its session; send it to make a call repeatable, and different ones for "
        "true repetitions. Absent or blank: made of what the message says.",
    )


class _AttributedArguments(_Arguments):
    session_id: Filled = Field(description="The session that this belongs to: a key of your own choice.")
    source: OptionalText = Field(None, description="Absent: RIVETOS_MEMORY_SOURCE, else `mcp`; so for the next two.")
    agent: OptionalText = None
    channel: OptionalText = None
    persona: OptionalText = Field(None, description="A role that the agent plays; noted, and no agent of its own.")

    def attribution(self, settings: Settings) -> Attribution:
        """Whose words these are."""
        defaults = {
            "source": settings.memory_source,
            "agent": settings.memory_agent,
            "channel": settings.memory_channel,
            "persona": settings.memory_persona,
        }
        return attribute(defaults, source=self.source, agent=self.agent, channel=self.channel, persona=self.persona)


class AppendArguments(_MessageArguments, _AttributedArguments):
    """The arguments of memory_append."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "session_id": "grokbot:standup",
                    "role": "user",
                    "content": "We ship on Thursday, not on Friday.",
                    "event_id": "standup-17",
                }
            ]
        }
    )


class IngestedMessage(_MessageArguments):
    """One message of a session."""

    created_at: OptionalTime = Field(
        None, description="When it was said: ISO 8601 with an offset. Absent: that of the message before it."
    )
    tool_calls: Annotated[list[ToolCallArguments], BeforeValidator(lambda value: value or [])] = Field(
        default_factory=list, description="The first names the message's tool; all are kept in its metadata."
    )


class IngestArguments(_AttributedArguments):
    """The arguments of memory_ingest_session."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "session_id": "grokbot:standup",
                    "messages": [
                        {"role": "user", "content": "When do we ship?", "created_at": "2026-03-08T09:15:00Z"},
                        {"role": "assistant", "content": "On Thursday.", "created_at": "2026-03-08T09:15:04Z"},
                    ],
                }
            ]
        }
    )

    messages: list[IngestedMessage] = Field(min_length=1)


def _whole_id(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is required")
    return value


class GetFullArguments(_Arguments):
    """The arguments of memory_get_full."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"}]})

    id: Annotated[UUID, BeforeValidator(_whole_id)] = Field(description="The message's id, as search and browse say.")
    section: Annotated[Literal["content", "tool_args", "tool_result"] | None, BeforeValidator(_absent)] = Field(
        None, description="Only this part of the message."
    )
    offset: Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)] = Field(
        0, ge=0, description="Where to begin, in characters: what a former answer gave as the place to go on at."
    )


class WikiSearchArguments(_Arguments):
    """The arguments of wiki_search."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "how are predictions served", "limit": 5}]})

    query: Filled = Field(max_length=8000, description="What to look for, in words.")
    limit: Annotated[int, BeforeValidator(lambda value: 5 if value in (None, "", "null") else value)] = Field(
        5, ge=1, le=20, description="How many pages at most."
    )


class WikiReadArguments(_Arguments):
    """The arguments of wiki_read."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"slug": "storm-surge-warning"}]})

    slug: Filled = Field(max_length=200, description="The page's slug, its title or another name it goes by.")
    section: Annotated[ReadSection | None, BeforeValidator(_absent)] = Field(
        None, description="Only this part: the sentences alone, what was superseded, the citations, or the names."
    )


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: what it takes, what it does with it, what it is for, and whether it writes.

    `large` says that its arguments may be as large as a captured batch.
    """

    name: str
    arguments: type[BaseModel]
    run: Callable[[Resources, Any], Any]
    doc: str
    writes: bool = False
    large: bool = False


def _append(resources: Resources, arguments: AppendArguments) -> dict[str, Any]:
    attribution = arguments.attribution(resources.settings)
    message = _message(arguments)
    with resources.connection() as connection:
        answer = memory_append(
            connection,
            arguments.session_id,
            message,
            attribution,
            first_day=resources.settings.first_day,
            redact=resources.settings.capture_redaction,
        )
    return asdict(answer)


def _ingest(resources: Resources, arguments: IngestArguments) -> dict[str, Any]:
    attribution = arguments.attribution(resources.settings)
    messages = [_message(message) for message in arguments.messages]
    with resources.connection() as connection:
        answer = memory_ingest_session(
            connection,
            arguments.session_id,
            messages,
            attribution,
            first_day=resources.settings.first_day,
            redact=resources.settings.capture_redaction,
        )
    return asdict(answer)


def _message(arguments: _MessageArguments) -> NewMessage:
    ingested = arguments if isinstance(arguments, IngestedMessage) else None
    calls = ingested.tool_calls if ingested else []
    return NewMessage(
        role=arguments.role,
        content=arguments.content,
        tool_name=arguments.tool_name,
        tool_args=arguments.tool_args,
        tool_result=arguments.tool_result,
        tool_calls=[ToolCall(call.name, call.input, call.id) for call in calls],
        event_id=arguments.event_id,
        created_at=ingested.created_at if ingested else None,
    )


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
    return full_payload_text(payload)


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


def full_payload_text(payload: FullPayload) -> str:
    """A message's full payload in words: what it is, what became of the rest, and its parts."""
    message = payload.message
    tool = f", tool {message.tool_name}" if message.tool_name else ""
    path = file = payload.path or "its transcript"
    if isinstance(payload.place, int):
        file += f", line {payload.place + 1}"
    elif payload.place is not None:
        file += f", part {payload.place}"
    outcome = _OUTCOMES[payload.status].format(
        file=file, path=path, host=payload.host or "this machine's name was not noted", problem=payload.problem
    )
    heading = f"Message {message.id}, {message.agent}/{message.role}{tool}, in {message.session_key}"
    return "\n\n".join([f"{heading}\n{outcome}", *(_section_text(section) for section in payload.sections)])


def _section_text(section: Section) -> str:
    end = section.offset + len(section.text)
    shown = f"{section.length:,} characters"
    if section.offset or section.next_offset is not None:
        shown = f"characters {section.offset:,} to {end:,} of {section.length:,}"
    rest = ""
    if section.next_offset is not None:
        rest = f"\n[go on with section={section.name}, offset={section.next_offset}]"
    return f"[{section.name}: {shown}]\n{section.text}{rest}"


#: Every tool by its name.
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "memory_append",
            AppendArguments,
            _append,
            "Stores one message of a session. It is durable when this answers and can be found by its words. A message "
            "that is known (by its event_id, or else by all it says) is skipped: the answer says so and names the "
            "known row; conflict says that this row holds other words. Content and tool_result are cut at 16,000 "
            "UTF-16 units, which the answer says; the rest is not kept anywhere.",
            writes=True,
        ),
        Tool(
            "memory_ingest_session",
            IngestArguments,
            _ingest,
            "Stores a session's messages in their order, together or not at all, each with the time at which it was "
            "said. The call may be repeated: a message's identity holds its place and all it says, so lines that "
            "repeat each other are all stored, and none twice.",
            writes=True,
            large=True,
        ),
        Tool(
            "memory_get_full",
            GetFullArguments,
            _get_full,
            "Shows the whole of one message, by its id. What was cut when it was captured is read back from the "
            "transcript that the row points to, if that is on this machine. Long parts come in pieces.",
        ),
        Tool(
            "memory_tags",
            TagsArguments,
            memory_tags,
            "Tags of sessions and summaries, as key:value. action=pending (default) lists what waits for a review; "
            "list, counts, lookup (the tags of sessions by their keys) and taxonomy (the vocabulary) read too. decide, "
            "add, suggest_removal, taxonomy_upsert, taxonomy_decide, taxonomy_merge and undo write, where writing is "
            "enabled.",
        ),
        Tool(
            "wiki_search",
            WikiSearchArguments,
            lambda resources, arguments: wiki_search(resources, arguments.query, arguments.limit),
            "Finds the wiki's pages by words and by meaning: what is known for good about a project, a service, a "
            "tool or a preference, with its slug and the day of its newest sentence.",
        ),
        Tool(
            "wiki_read",
            WikiReadArguments,
            lambda resources, arguments: wiki_read(resources, arguments.slug, arguments.section),
            "Gives a page of the wiki as Markdown: decisions, facts, preferences, what is open, what was superseded, "
            "each sentence with the summaries that say it. Redirects and other names are followed.",
        ),
    )
}


def offered(settings: Settings) -> list[Tool]:
    """The tools of a process: those that write only where writing is enabled."""
    return [tool for tool in TOOLS.values() if settings.enable_memory_write or not tool.writes]
