"""The tools that agents call, in one table: what each takes, what it does and how it answers.

A family a module; importing this package registers them all, in the order in which they are listed.
"""

from rivet_pipeline.api.tools import (  # isort: skip
    memory_search,
    memory_browse,
    memory_stats,
    memory_write,
    memory_full,
    memory_tags,
    wiki,
)
from rivet_pipeline.api.tools.memory_full import GetFullArguments, full_payload_text
from rivet_pipeline.api.tools.memory_write import AppendArguments, IngestArguments, IngestedMessage, ToolCallArguments
from rivet_pipeline.api.tools.surface import SMALL_BODY, TOOLS, Arguments, Tool, is_offered, offered, register

__all__ = [
    "SMALL_BODY",
    "TOOLS",
    "AppendArguments",
    "Arguments",
    "GetFullArguments",
    "IngestArguments",
    "IngestedMessage",
    "Tool",
    "ToolCallArguments",
    "full_payload_text",
    "is_offered",
    "memory_browse",
    "memory_full",
    "memory_search",
    "memory_stats",
    "memory_tags",
    "memory_write",
    "offered",
    "register",
    "wiki",
]
