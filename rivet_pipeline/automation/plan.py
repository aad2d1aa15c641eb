"""Decides which runs to ask for: pure functions over days, without Dagster and without the database.

The sensor and the schedule hand in what is pending and what Dagster is doing, and get ranges of days back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from rivet_pipeline.stages import STAGES, Stage

#: What has to look again when a stage has written rows, in the order of `STAGES`.
DOWNSTREAM: Mapping[Stage, tuple[Stage, ...]] = {
    "messages": STAGES,
    "tool_call_text": ("tool_call_text", "message_embeddings"),
    "message_embeddings": ("message_embeddings",),
    "leaf_summaries": (
        "leaf_summaries",
        "tag_proposals",
        "branch_summaries",
        "root_summaries",
        "summary_embeddings",
        "wiki_patches",
    ),
    "tag_proposals": ("tag_proposals",),
    "branch_summaries": ("branch_summaries", "root_summaries", "summary_embeddings"),
    "root_summaries": ("root_summaries", "summary_embeddings"),
    "summary_embeddings": ("summary_embeddings",),
    "wiki_patches": ("wiki_patches",),
}

#: Days without work between two that have some are taken along when they are no more than this: a day inside a run
#: costs milliseconds, a run of its own seconds.
BRIDGE = timedelta(days=10)

_FIRST_WAIT = timedelta(seconds=30)
_LONGEST_WAIT = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days from `first` to `last`, both included."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run of ours that failed, and when it ended (aware)."""

    days: DayRange
    ended: datetime


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run to ask for: the stages, in order, over a range of days."""

    days: DayRange
    stages: tuple[Stage, ...]


def plan_runs(
    pending: Iterable[tuple[Stage, date]],
    *,
    live: Collection[DayRange],
    failed: Collection[FailedRun],
    now: datetime,
    max_days: int,
    max_runs: int,
    rows: Mapping[date, int] | None = None,
    max_rows: int | None = None,
) -> list[PlannedRun]:
    """The runs that cover the pending days, oldest first, at most `max_runs` of at most `max_days` each.

    With `max_rows` a run also takes no more days than hold so many `rows` together, but at least one day.

    Left out are days that a live run covers, and days whose runs failed lately: they wait 30 seconds after the first
    failure, twice as long after each further one, up to half an hour.
    """
    stages_by_day: dict[date, set[Stage]] = {}
    for stage, day in pending:
        stages_by_day.setdefault(day, set()).update(DOWNSTREAM[stage])
    resting = {day for day in stages_by_day if is_resting(day, failed, now)}
    free = [day for day in sorted(stages_by_day) if day not in resting and not any(day in taken for taken in live)]
    obstacles = [*live, *(DayRange(day, day) for day in resting)]
    runs = []
    groups = [free] if max_rows is None else _by_rows(free, rows or {}, max_rows)
    for days in (
        found for group in groups for found in contiguous_ranges(group, max_days=max_days, obstacles=obstacles)
    ):
        wanted = set().union(*(stages_by_day[day] for day in free if day in days))
        runs.append(PlannedRun(days, tuple(stage for stage in STAGES if stage in wanted)))
    return runs[:max_runs]


def _by_rows(days: Sequence[date], rows: Mapping[date, int], max_rows: int) -> list[list[date]]:
    """Sorted days in groups of at most `max_rows` rows, a day with more alone."""
    groups: list[list[date]] = []
    held = 0
    for day in days:
        held += rows.get(day, 0)
        if not groups or held > max_rows:
            groups.append([])
            held = rows.get(day, 0)
        groups[-1].append(day)
    return groups


def is_resting(day: date, failed: Collection[FailedRun], now: datetime) -> bool:
    """Whether runs over this day failed so lately that the next has to wait."""
    return must_wait([run.ended for run in failed if day in run.days], now)


def must_wait(ends: Sequence[datetime], now: datetime) -> bool:
    """Whether the failures that ended at these times are so many, and so recent, that the next try has to wait."""
    if not ends:
        return False
    wait = min(_FIRST_WAIT * (1 << min(len(ends) - 1, 16)), _LONGEST_WAIT)
    return now < max(ends) + wait


def contiguous_ranges(days: Sequence[date], *, max_days: int, obstacles: Collection[DayRange] = ()) -> list[DayRange]:
    """Sorted days as ranges of at most `max_days`, short gaps bridged, none reaching over an obstacle."""
    ranges: list[DayRange] = []
    for day in days:
        last = ranges[-1] if ranges else None
        if (
            last is not None
            and day - last.last <= BRIDGE
            and (day - last.first).days < max_days
            and not any(last.last < taken.first < day for taken in obstacles)
        ):
            ranges[-1] = DayRange(last.first, day)
        else:
            ranges.append(DayRange(day, day))
    return ranges
