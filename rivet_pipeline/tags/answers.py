"""What a model's answer says: the sound proposals in it, and what is no answer at all. Pure functions."""

from __future__ import annotations

import math
import re
from typing import Any

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.models.texts import clean_outgoing
from rivet_pipeline.tags.literals import (
    MAX_VALUE,
    Literal,
    display_of,
    read_literal,
    tag_text,
    typed_value,
    without_key,
)
from rivet_pipeline.tags.types import MAX_PROPOSALS, Proposal

#: Keys that a model may use, and the longest value and reason that it may give, in characters.
_KEY = re.compile(r"[a-z][a-z0-9-]{0,31}")
MAX_MODEL_VALUE, MAX_REASON = 64, 200

_ACTIONS = {"add": False, "suggest": False, "": False, "remove": True}


def is_tag_list(value: Any) -> bool:
    """Whether a JSON value is of the shape that was asked for: an array of tags, or an object that holds one.

    An empty array is an answer: nothing to tag.
    """
    entries = _entries(value)
    return entries is not None and (not entries or any(isinstance(entry, dict | str) for entry in entries))


def read_proposals(value: Any) -> list[Proposal]:
    """The sound proposals of an answer, each literal once, `MAX_PROPOSALS` at most. Unsound ones are left out.

    Raises `ModelError` (content, `no-sound-tag`) when there are entries and none of them is sound.
    """
    entries = _entries(value) or []
    found: dict[Literal, Proposal] = {}
    for entry in entries:
        proposal = _proposal(entry)
        if proposal is not None and len(found) < MAX_PROPOSALS:
            found.setdefault(proposal.literal, proposal)
    if entries and not found:
        raise ModelError("content", "no-sound-tag", f"no sound tag in {str(entries)[:200]!r}")
    return list(found.values())


def _entries(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        value = next((value[name] for name in ("tags", "suggestions", "results") if name in value), None)
    return value if isinstance(value, list) else None


def _proposal(entry: Any) -> Proposal | None:
    if isinstance(entry, str):
        entry = {"tag": entry}
    if not isinstance(entry, dict):
        return None
    action = entry.get("action") or ""
    typed = _typed(entry)
    if typed is None or not isinstance(action, str) or action.strip().lower() not in _ACTIONS:
        return None
    key, value = tag_text(typed[0], 40), tag_text(typed[1], MAX_VALUE)
    if _KEY.fullmatch(key) is None or not 0 < len(value) <= MAX_MODEL_VALUE:
        return None
    reason = entry.get("reason")
    return Proposal(
        Literal(key, value),
        display=display_of(clean_outgoing(typed[1]), value),
        confidence=_share(entry.get("confidence")),
        reason=" ".join(clean_outgoing(reason).split())[:MAX_REASON] if isinstance(reason, str) else "",
        removal=_ACTIONS[action.strip().lower()],
    )


def _typed(entry: dict[str, Any]) -> tuple[str, str] | None:
    """The key and the value as the answer has them."""
    key, value = entry.get("key"), entry.get("value")
    if isinstance(key, str) and isinstance(value, str):
        return key, without_key(value, tag_text(key, 40))
    tag = entry.get("tag")
    if not isinstance(tag, str):
        return None
    try:
        literal = read_literal(tag)
    except InvalidInputError:
        return None
    return literal.key, typed_value(tag)


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(max(float(value), 0.0), 1.0)
