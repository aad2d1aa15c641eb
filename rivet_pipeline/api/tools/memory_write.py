"""The write tools: `memory_append` and `memory_ingest_session`. What is stored, and how, is `transcripts/append.py`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.models import Filled
from rivet_pipeline.api.tools.surface import Arguments, OptionalObject, OptionalText, OptionalTime, Tool, register
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.append import (
    Attribution,
    NewMessage,
    ToolCall,
    attribute,
    memory_append,
    memory_ingest_session,
)
from rivet_pipeline.transcripts.records import Role


class ToolCallArguments(Arguments):
    """A tool call of a message."""

    id: OptionalText = None
    name: Filled
    input: Any = None


class _MessageArguments(Arguments):
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


class _AttributedArguments(Arguments):
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


register(
    Tool(
        "memory_append",
        AppendArguments,
        _append,
        "Stores one message of a session. It is durable when this answers and can be found by its words. A message "
        "that is known (by its event_id, or else by all it says) is skipped: the answer says so and names the "
        "known row; conflict says that this row holds other words. Content and tool_result are cut at 16,000 "
        "UTF-16 units, which the answer says; the rest is not kept anywhere.",
        writes=True,
        title="Append a message",
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
        title="Ingest a session",
    ),
)
