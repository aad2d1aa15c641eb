"""Decides which runs to ask for: pure functions over days, without Dagster and without the database.

The sensor and the schedule hand in what is pending and what Dagster is doing, and get ranges of days back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import groupby

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

#: The stages of each job over days; Dagster does not say them of a run that was launched by a job's name.
JOB_STAGES: Mapping[str, tuple[Stage, ...]] = {
    "refine_days": STAGES,
    "tell_calls_days": ("tool_call_text", "message_embeddings"),
    "resummarize_days": ("leaf_summaries", "branch_summaries", "root_summaries", "summary_embeddings"),
    "retag_days": ("tag_proposals",),
    "reembed_days": ("message_embeddings", "summary_embeddings"),
    "remine_wiki_days": ("wiki_patches",),
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
class LiveRun:
    """A run that is queued or under way, and its stages. `queued`: it holds no pool's slot yet."""

    days: DayRange
    stages: frozenset[Stage] = frozenset(STAGES)
    queued: bool = False


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run of ours that failed, when it ended (aware), and its stages."""

    days: DayRange
    ended: datetime
    stages: frozenset[Stage] = frozenset(STAGES)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run to ask for: the stages, in order, over a range of days."""

    days: DayRange
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class _Lane:
    """What is asked for in runs of its own: the pending stages that call for one, and all that it may do."""

    starts: frozenset[Stage]
    does: frozenset[Stage]


_WHOLE = _Lane(frozenset(STAGES), frozenset(STAGES))


def plan_runs(
    pending: Iterable[tuple[Stage, date]],
    *,
    live: Collection[LiveRun],
    failed: Collection[FailedRun],
    now: datetime,
    max_days: int,
    max_runs: int,
    rows: Mapping[date, int] | None = None,
    max_rows: int | None = None,
    pooled: Collection[Stage] = (),
    service: bool = False,
) -> list[PlannedRun]:
    """The runs that cover the pending days, oldest first, at most `max_runs` of at most `max_days` each.

    With `max_rows` a run also takes no more days than hold so many `rows` together, but at least one day.

    `pooled` are the stages of which one run at a time is let go. They and what they alone give work to are asked for
    in runs of their own, so that the others never queue behind them: while a run holds them, and always when a
    `service` answers them, which may hang. Otherwise one run does the whole chain.

    Left out is what a live run covers, by stage and day, and what failed there lately: it waits 30 seconds after the
    first failure, twice as long after each further one, up to half an hour.
    """
    ours = frozenset(pooled)
    beside, behind = _lanes(ours)
    apart = service or any(not run.queued and not ours.isdisjoint(run.stages) for run in live)
    if service:
        # Such a run may hang in a stage of the pool: what else it does can not be left to it.
        live = [run if ours.isdisjoint(run.stages) else replace(run, stages=run.stages & behind.does) for run in live]
    wanted: dict[date, set[Stage]] = {}
    for stage, day in pending:
        wanted.setdefault(day, set()).add(stage)
    runs = [
        run
        for lane in ((beside, behind) if apart else (_WHOLE,))
        for run in _plan_lane(
            lane, wanted, live, failed, now, lambda days: _by_rows(days, rows or {}, max_rows), max_days
        )
    ]
    return sorted(runs, key=lambda run: run.days.first)[:max_runs]


def _lanes(pooled: frozenset[Stage]) -> tuple[_Lane, _Lane]:
    """What runs beside the stages of the pool, and these with what follows them.

    Messages are embedded beside them: a text that is made for a tool call makes its message pending once more.
    """
    followers = pooled.union(*(DOWNSTREAM[stage] for stage in pooled)) - {"message_embeddings"}
    every = frozenset(STAGES)
    return _Lane(every - pooled, every - followers), _Lane(pooled, followers)


def _plan_lane(
    lane: _Lane,
    pending: Mapping[date, set[Stage]],
    live: Collection[LiveRun],
    failed: Collection[FailedRun],
    now: datetime,
    grouped: Callable[[list[date]], list[list[date]]],
    max_days: int,
) -> list[PlannedRun]:
    asked: dict[date, frozenset[Stage]] = {}
    busy: dict[date, frozenset[Stage]] = {}
    obstacles = [run.days for run in live if not lane.does.isdisjoint(run.stages)]
    for day in sorted(pending):
        taken = frozenset[Stage]().union(*(run.stages for run in live if day in run.days))
        resting = {stage for stage in pending[day] & lane.starts if is_resting(stage, day, failed, now)}
        starts = (pending[day] & lane.starts) - taken - resting
        follows = frozenset[Stage]().union(*(DOWNSTREAM[stage] for stage in starts)) & lane.does
        if starts:
            asked[day], busy[day] = follows.union(starts) - taken - resting, (taken | resting) & lane.does
        if resting:
            obstacles.append(DayRange(day, day))
    return [
        PlannedRun(days, tuple(stage for stage in STAGES if any(stage in asked[day] for day in group if day in days)))
        for _, alike in groupby(asked, key=lambda day: busy[day])
        for group in grouped(list(alike))
        for days in contiguous_ranges(group, max_days=max_days, obstacles=obstacles)
    ]


def _by_rows(days: list[date], rows: Mapping[date, int], max_rows: int | None) -> list[list[date]]:
    """Sorted days in groups of at most `max_rows` rows, a day with more alone; None: all in one."""
    if max_rows is None:
        return [days]
    groups: list[list[date]] = []
    held = 0
    for day in days:
        held += rows.get(day, 0)
        if not groups or held > max_rows:
            groups.append([])
            held = rows.get(day, 0)
        groups[-1].append(day)
    return groups


def is_resting(stage: Stage, day: date, failed: Collection[FailedRun], now: datetime) -> bool:
    """Whether runs of this stage over this day failed so lately that the next has to wait."""
    return must_wait([run.ended for run in failed if day in run.days and stage in run.stages], now)


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
