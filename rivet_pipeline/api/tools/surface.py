"""What a tool is, the one table of all tools, and how leniently their arguments are read.

A family of tools (a module beside this one) declares argument models and calls `register`; the faces, HTTP and MCP,
take what they offer from `offered`. No tool stands here, and nothing of HTTP or of MCP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.models import Filled, Time
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.cleaning import ENVELOPE, clean_json

#: The largest body, in bytes, of a call of a tool that takes no transcript.
SMALL_BODY = 256 * 1024

#: How large a text answer is when the caller says nothing, and the bounds of what it may say, in tokens. Clients refuse
#: or cut answers of more than 25,000.
DEFAULT_TOKENS, MIN_TOKENS, MAX_TOKENS = 8_000, 1_000, 25_000


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: what it takes, what it does with it, what it is for, and whether it writes.

    `run` answers with a text, or with data that has a JSON form; what is wrong is raised as a `RivetError`, never
    answered as if nothing had been found. `large` says that its arguments may be as large as a captured batch.
    `may_miss` says that it answers with `NotFoundError` when what its arguments name is not there.
    `read_only` stands in the place of a tool that writes where writing is off; without one it is then not offered.
    """

    name: str
    arguments: type[BaseModel]
    run: Callable[[Resources, Any], Any]
    doc: str
    writes: bool = False
    large: bool = False
    title: str = ""
    may_miss: bool = False
    read_only: Tool | None = None


#: Every tool by its name, in the order in which they are listed.
TOOLS: dict[str, Tool] = {}


def register(*tools: Tool) -> None:
    """Adds tools to the table. Raises `ValueError` for a name that is taken."""
    for tool in tools:
        if tool.name in TOOLS:
            raise ValueError(f"there are two tools called {tool.name}")
        TOOLS[tool.name] = tool


def offered(settings: Settings) -> list[Tool]:
    """The tools of a process: those that write only where writing is enabled, else what stands in for them."""
    tools = [tool.read_only if tool.writes and not settings.enable_memory_write else tool for tool in TOOLS.values()]
    return [tool for tool in tools if tool is not None]


def is_offered(settings: Settings, name: str) -> bool:
    """Whether an answer may name a tool as the next step."""
    return any(tool.name == name for tool in offered(settings))


def is_absent(value: object) -> bool:
    """Whether a value is one of those that clients send for an optional argument that they leave out."""
    if isinstance(value, str):
        return value.strip().lower() in {"", "null"}
    if isinstance(value, list):
        return all(is_absent(item) for item in value)
    return value is None


def lenient(default: Any = None) -> BeforeValidator:
    """Reads what stands for an argument that was left out as its default."""
    return BeforeValidator(lambda value: default if is_absent(value) else value)


def lenient_whole(default: int, least: int, most: int) -> BeforeValidator:
    """Reads a number, also one written as a text, and takes what is out of bounds as the bound."""

    def read(value: object) -> object:
        if is_absent(value):
            return default
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"must be a whole number from {least} to {most}")
        try:
            number = int(float(value))
        except (ValueError, OverflowError):
            raise ValueError(f"must be a whole number from {least} to {most}") from None
        return max(least, min(most, number))

    return BeforeValidator(read)


OptionalText = Annotated[str | None, lenient()]
OptionalFilter = Annotated[Filled | None, lenient()]
OptionalTime = Annotated[Time | None, lenient()]
OptionalObject = Annotated[dict[str, Any] | None, lenient()]

MaxTokens = Annotated[
    int,
    Field(ge=MIN_TOKENS, le=MAX_TOKENS, description="The most that the answer may hold, in tokens, roughly."),
    lenient_whole(DEFAULT_TOKENS, MIN_TOKENS, MAX_TOKENS),
]
Cursor = Annotated[
    str | None,
    lenient(),
    Field(description="Where a former answer said to go on; leave the other arguments as they were."),
]


class Arguments(BaseModel):
    """A tool's arguments. Unknown names are refused: a misspelt one must not mean none."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: object) -> object:
        return clean_json(value, around=ENVELOPE)
