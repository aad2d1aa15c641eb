"""What a migration did, in figures that can be checked: counts of the source, before, new, known, left out, after."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tally:
    """One kind of thing.

    Attributes:
        source: How many the source holds, counted there.
        before: How many of them the memory held when the migration came to them.
        new: Moved now.
        known: There already.
        after: How many of them the memory holds now, counted there; None when that was not asked.
        left_out: Not moved, by reason.
        notes: Moved, but mended on the way, by what was mended.
    """

    source: int = 0
    before: int = 0
    new: int = 0
    known: int = 0
    after: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, *, known: bool, number: int = 1) -> None:
        """Counts things that were moved now or before."""
        if known:
            self.known += number
        else:
            self.new += number

    def found(self, number: int) -> None:
        """Counts what the memory holds afterwards."""
        self.after = (self.after or 0) + number

    def problems(self, name: str) -> list[str]:
        """What does not add up, one line each."""
        lines = []
        moved = self.new + self.known + self.left_out.total()
        if self.source != moved:
            lines.append(f"{name}: the source holds {self.source:,}, but {moved:,} are accounted for.")
        if self.after is not None and self.after != self.before + self.new:
            expected = self.before + self.new
            lines.append(
                f"{name}: the memory holds {self.after:,} of them now, not {self.before:,} + {self.new:,}"
                f" = {expected:,}."
            )
        return lines

    def as_json(self) -> dict[str, Any]:
        """The tally as plain JSON, the most frequent reasons first."""
        return {
            "source": self.source,
            "before": self.before,
            "new": self.new,
            "known": self.known,
            "left_out": self.left_out.total(),
            "after": self.after,
            "left_out_by_reason": dict(self.left_out.most_common()),
            "mended": dict(self.notes.most_common()),
        }


@dataclass(slots=True)
class MigrationReport:
    """All kinds, in the order in which a person reads them. Embeddings stand under their model's name."""

    source: str
    dry_run: bool
    conversations: Tally = field(default_factory=Tally)
    messages: Tally = field(default_factory=Tally)
    parts: Tally = field(default_factory=Tally)
    files: Tally = field(default_factory=Tally)
    summaries: Tally = field(default_factory=Tally)
    sources: Tally = field(default_factory=Tally)
    parents: Tally = field(default_factory=Tally)
    embeddings: dict[str, Tally] = field(default_factory=dict)

    def kinds(self) -> dict[str, Tally]:
        """Every tally by the name it is shown under."""
        return {
            "conversations": self.conversations,
            "messages": self.messages,
            "message parts": self.parts,
            "large files": self.files,
            "summaries": self.summaries,
            "summary sources": self.sources,
            "summary parents": self.parents,
            **{f"embeddings {name}": tally for name, tally in self.embeddings.items()},
        }

    def problems(self) -> list[str]:
        """What does not add up, one line each; empty when all is well."""
        return [line for name, tally in self.kinds().items() for line in tally.problems(name)]

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "source": self.source,
            "dry_run": self.dry_run,
            "kinds": {name.replace(" ", "_", 1): tally.as_json() for name, tally in self.kinds().items()},
            "problems": self.problems(),
        }
