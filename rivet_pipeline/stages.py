"""The names of the pipeline's stages and the report that each of them returns. Plain data, no work.

A stage is one refinement over days: it selects the rows of those days that need work, commits in small batches,
isolates failures per item and says what it did. The same names stand in `ros_pending_days`, `ros_failures`,
`ros_stage_marks` and as Dagster asset keys.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

Stage = Literal[
    "messages",
    "tool_call_text",
    "message_embeddings",
    "leaf_summaries",
    "tag_proposals",
    "branch_summaries",
    "root_summaries",
    "summary_embeddings",
    "wiki_patches",
    "wiki_topics",
    "wiki_embeddings",
]

#: In the order in which one run does them.
STAGES: tuple[Stage, ...] = (
    "messages",
    "tool_call_text",
    "message_embeddings",
    "leaf_summaries",
    "tag_proposals",
    "branch_summaries",
    "root_summaries",
    "summary_embeddings",
    "wiki_patches",
)

#: Stages over everything at once, after those of the days.
WHOLE_STAGES: tuple[Stage, ...] = ("wiki_topics", "wiki_embeddings")

#: The levels of the summary tree, from the bottom. Their rows are redone when they are stale.
SUMMARY_STAGES: tuple[Stage, ...] = ("leaf_summaries", "branch_summaries", "root_summaries")


#: Every stage whose rows an older version has made are made again: the view `ros_stale_days` has them.
REMINED_STAGES: tuple[Stage, ...] = (*SUMMARY_STAGES, "wiki_patches")


@dataclass(slots=True)
class DayReport:
    """What a stage did on one day. `seconds` is wall time; tokens are the model's own count, 0 when it gives none."""

    rows: int = 0
    failures: int = 0
    model_calls: int = 0
    characters: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class StageReport:
    """What one pass of a stage did, by day. Days without work do not appear."""

    stage: Stage
    model: str | None = None
    days: dict[date, DayReport] = field(default_factory=lambda: defaultdict(DayReport))

    def add(self, other: StageReport) -> None:
        """Counts another pass of the same stage in."""
        for day, found in other.days.items():
            mine = self.days[day]
            for name in DayReport.__dataclass_fields__:
                setattr(mine, name, getattr(mine, name) + getattr(found, name))

    @property
    def rows(self) -> int:
        """Rows written in all days together."""
        return sum(day.rows for day in self.days.values())

    @property
    def failures(self) -> int:
        """Items that failed in all days together."""
        return sum(day.failures for day in self.days.values())

    @property
    def model_calls(self) -> int:
        """Model calls in all days together."""
        return sum(day.model_calls for day in self.days.values())
