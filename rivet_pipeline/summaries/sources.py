"""What a summary may speak of, and how much of what it names stands there. Pure functions over the request.

What an identifier is, and how it may be spelt, stands in `grounding.py` and `spellings.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rivet_pipeline.summaries.grounding import ground
from rivet_pipeline.summaries.prompts import user_text
from rivet_pipeline.summaries.types import SourceMessage, SourceSummary, SummaryRequest


def held_against_sources(said: str, request: SummaryRequest) -> tuple[float | None, list[str]]:
    """`ground` of a text against everything the request quotes, whole, and the preamble above it.

    What a second try was told not to write is no source.
    """
    return ground(said, [user_text(replace(request, missing=())), *source_texts(request)])


def source_texts(request: SummaryRequest) -> list[str]:
    """Everything the summary may speak of, uncut: for a parent its children's texts, since it is shown no other."""
    return [text for source in request.inputs for text in texts_of(source)]


def texts_of(source: SourceMessage | SourceSummary) -> list[str]:
    """The texts of one thing below a summary: of a message also its tool's name, result and arguments."""
    if isinstance(source, SourceSummary):
        return [source.content]
    texts = [source.content, source.tool_name or "", source.tool_result or ""]
    return texts + (_strings(source.tool_args) if source.tool_args is not None else [])


def _strings(value: Any) -> list[str]:
    """A JSON value as its writers and readers see it: its strings unescaped, and the whole as JSON."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [json.dumps(value, ensure_ascii=False), *(text for item in value.values() for text in _strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [str(value)]
