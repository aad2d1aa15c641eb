"""Turns a turn's context and unfolded hits into what goes over the wire, and into what `--json` prints."""

from __future__ import annotations

from dataclasses import asdict

from rivet_pipeline.api.context_models import (
    ContextAnswer,
    ContextItemAnswer,
    ContextSectionAnswer,
    ExpansionAnswer,
    MissingAnswer,
    SynthesisAnswer,
    UnfoldedSearchAnswer,
)
from rivet_pipeline.api.models import SearchAnswer
from rivet_pipeline.retrieval.context import TurnContext
from rivet_pipeline.retrieval.context_text import ContextItem
from rivet_pipeline.retrieval.expand import Expansion, Expansions
from rivet_pipeline.retrieval.synthesis import Synthesis


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


def unfolded_answer(
    answer: SearchAnswer, expansions: Expansions | None, synthesis: Synthesis | None
) -> UnfoldedSearchAnswer:
    """A search's answer with its unfolded summaries and the answer in words, where these were asked for."""
    unfolded = UnfoldedSearchAnswer(**dict(answer))
    if expansions is not None:
        unfolded.expansions = [expansion_answer(expansion) for expansion in expansions.expansions]
        unfolded.expansion_reason = expansions.reason
    if synthesis is not None:
        unfolded.synthesis = synthesis_answer(synthesis)
    return unfolded


def synthesis_answer(synthesis: Synthesis) -> SynthesisAnswer:
    """An answer in words, or the reason why there is none, as an answer."""
    return SynthesisAnswer.model_validate(asdict(synthesis))


def expansion_answer(expansion: Expansion) -> ExpansionAnswer:
    """One unfolded summary as an answer."""
    return ExpansionAnswer.model_validate(asdict(expansion))
