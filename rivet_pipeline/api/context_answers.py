"""Turns a turn's context into what goes over the wire. The command line prints the same with `--json`."""

from __future__ import annotations

from dataclasses import asdict

from rivet_pipeline.api.context_models import ContextAnswer, ContextItemAnswer, ContextSectionAnswer, MissingAnswer
from rivet_pipeline.retrieval.context import TurnContext
from rivet_pipeline.retrieval.context_text import ContextItem


def context_answer(context: TurnContext) -> ContextAnswer:
    """A turn's context as an answer."""
    return ContextAnswer(
        text=context.text,
        tokens=context.tokens,
        budget=context.budget,
        sections=[
            ContextSectionAnswer(
                name=section.name, heading=section.heading, items=[_item(item) for item in section.items]
            )
            for section in context.sections
        ],
        degraded=[MissingAnswer(part=missing.part, reason=missing.reason) for missing in context.degraded],
        without_room=context.without_room,
        repeated=context.repeated,
    )


def _item(item: ContextItem) -> ContextItemAnswer:
    values = asdict(item)
    return ContextItemAnswer(session_id=values.pop("session_key"), **values)
