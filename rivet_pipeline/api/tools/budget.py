"""How much an answer may hold, and how texts of transcripts stand in it. Pure functions.

Tokens are counted by bytes (`byte_tokens` in `models/tokens.py`, which says why).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from rivet_pipeline.models.tokens import BYTES_PER_TOKEN, byte_tokens
from rivet_pipeline.retrieval.quoting import HIDDEN
from rivet_pipeline.shortening import one_line

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clip_tokens(text: str, limit: int) -> str:
    """The text, or as much of its beginning as `limit` tokens (at least one) hold together with `…`."""
    return text if byte_tokens(text) <= limit else _beginning(text, limit - 1).rstrip() + "…"


def head(text: str, limit: int) -> str:
    """The longest beginning of a text that `limit` tokens hold; at least one character."""
    return _beginning(text, limit) or text[:1]


def _beginning(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[: max(0, limit) * BYTES_PER_TOKEN].decode("utf-8", "ignore")


def label(text: str | None, limit: int = 80) -> str:
    """A name out of a transcript (a title, a key, a tool) on one line, cut, with nothing that Markdown acts on."""
    return one_line(_CONTROLS.sub(" ", HIDDEN.sub("", text or "")).replace("`", "'"), limit)


def quote(text: str) -> str:
    """Words of a transcript as a quotation, so that nothing in them can be taken for a part of the answer.

    Marks that hide or reorder what is written are left out: an agent reads them, and no person sees them.
    """
    shown = HIDDEN.sub("", re.sub("\r\n?|[\u2028\u2029]", "\n", text))
    lines = _CONTROLS.sub("", shown).strip("\n").split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def when(moment: datetime, zone: ZoneInfo) -> str:
    """A moment to the minute in a zone, with the zone's name: `2026-03-08 10:15 CET`."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def count(number: int, noun: str) -> str:
    """A number and what it counts: `1 message`, `2 summaries`."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


@dataclass(slots=True)
class Page:
    """An answer under construction: parts one after the other, until the budget is used up."""

    budget: int
    parts: list[str] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many tokens are left."""
        return self.budget - sum(byte_tokens(part) + 1 for part in self.parts)

    def add(self, part: str, *, reserve: int = 0) -> bool:
        """Adds a part if it fits and leaves `reserve` tokens for what must follow. Returns whether it did."""
        if byte_tokens(part) + 1 > self.left - reserve:
            return False
        self.parts.append(part)
        return True

    def text(self) -> str:
        """The parts, a blank line between them."""
        return "\n\n".join(self.parts)
