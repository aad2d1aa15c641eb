"""A tool's call as MCP answers it: its words, or what went wrong in words that end with what to do.

A failure is a result marked as an error, so that the agent reads it; it is never an empty answer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import mcp_types as types
import psycopg
from pydantic import ValidationError

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tools import TOOLS, Tool, offered
from rivet_pipeline.errors import InvalidInputError, NotFoundError, RivetError, StoreUnavailableError
from rivet_pipeline.settings import Settings

_log = logging.getLogger(__name__)

_AWAY = (
    "Start it with `rivet up`, or check RIVETOS_PG_URL, and call again. This says nothing about what the memory holds."
)

#: How many things that are wrong with a call are named.
_MOST_PROBLEMS = 5


def call_tool(
    settings: Settings, resources: Callable[[], Resources], name: str, arguments: Mapping[str, Any] | None
) -> types.CallToolResult:
    """Calls a tool of the table. Never raises: what goes wrong is said in the result."""
    tool = next((tool for tool in offered(settings) if tool.name == name), None)
    if tool is None:
        return error_result(_no_tool(settings, name))
    try:
        given = tool.arguments.model_validate(dict(arguments or {}))
        return types.CallToolResult(content=[types.TextContent(text=answer_text(tool.run(resources(), given)))])
    except Exception as error:
        return error_result(explain(tool, error))


def error_result(text: str) -> types.CallToolResult:
    """A result that says that something went wrong, and what to do."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def answer_text(answer: Any) -> str:
    """A tool's answer as the text that a client shows: words as they are, data as JSON."""
    return answer if isinstance(answer, str) else json.dumps(answer, default=_plain, ensure_ascii=False, indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _no_tool(settings: Settings, name: str) -> str:
    if name in TOOLS:
        return f"{name} writes, and writing is off here. Set RIVETOS_MCP_ENABLE_MEMORY_WRITE=1 where rivet runs."
    return f"There is no tool {name[:100]!r}. Call one of {', '.join(tool.name for tool in offered(settings))}."


def explain(tool: Tool, error: Exception) -> str:
    """What went wrong with a call of a tool, and what to do about it."""
    if isinstance(error, ValidationError):
        return _invalid(tool, error)
    if isinstance(error, InvalidInputError):
        return f"{tool.name}: {error}. Correct {error.field} and call again."
    if isinstance(error, NotFoundError):
        return f"{tool.name}: {error} Take the id or the name from a search result and call again."
    return explain_failure(tool.name, error)


def explain_failure(what: str, error: Exception) -> str:
    """What went wrong inside, and what to do about it. A defect of ours is logged with its trace."""
    if isinstance(error, StoreUnavailableError):
        return f"{what}: {error} {_AWAY}"
    if isinstance(error, psycopg.errors.UndefinedTable):
        return f"{what}: the store has not been set up yet. Start `rivet up` once, and call again."
    if isinstance(error, psycopg.OperationalError):
        _log.warning("%s: database error: %s", what, " ".join(str(error).split()))
        return f"{what}: the database can not be reached or does not answer in time. {_AWAY}"
    if isinstance(error, RivetError):
        return f"{what}: {error}"
    _log.error("%s failed", what, exc_info=error)
    return (
        f"{what}: something went wrong inside the memory ({type(error).__name__}); its log has the cause. Call again, "
        "and if it fails again let a person run `rivet doctor`."
    )


def _invalid(tool: Tool, error: ValidationError) -> str:
    problems = [_problem(item) for item in error.errors(include_url=False, include_input=False)[:_MOST_PROBLEMS]]
    more = error.error_count() - len(problems)
    listed = "; ".join(problems) + (f"; and {more} more" if more else "")
    known = ", ".join(tool.arguments.model_fields)
    return f"{tool.name} was not called: {listed}. Correct that and call again; the arguments are {known}."


_NO_ID = "is no id; one looks like 0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49, and answers give them whole"
_WORDS = {
    "extra_forbidden": "there is no such argument",
    "missing": "is required",
    "uuid_parsing": _NO_ID,
    "uuid_type": _NO_ID,
    "uuid_version": _NO_ID,
}


def _problem(item: Mapping[str, Any]) -> str:
    text = _WORDS.get(item["type"], str(item["msg"]).removeprefix("Value error, "))
    return f"{_path(item['loc'])}: {text}"


def _path(location: Sequence[int | str]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part[:60]}" if path else part[:60]
    return path or "the arguments"
