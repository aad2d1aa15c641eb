"""Which runs the sensor asks for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.automation.plan import DayRange, FailedRun, PlannedRun, contiguous_ranges, plan_runs
from rivet_pipeline.stages import STAGES, Stage

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)


def day(number: int) -> date:
    return date(2026, 6, 1) + timedelta(days=number - 1)


def plan(
    pending: list[tuple[Stage, date]], live: list[DayRange] | None = None, failed: list[FailedRun] | None = None
) -> list[PlannedRun]:
    return plan_runs(pending, live=live or [], failed=failed or [], now=NOW, max_days=31, max_runs=3)


def test_new_messages_ask_for_one_run_of_the_whole_chain() -> None:
    assert plan([("messages", day(1)), ("message_embeddings", day(1)), ("messages", day(3))]) == [
        PlannedRun(DayRange(day(1), day(3)), STAGES)
    ]


def test_only_what_follows_the_work_is_asked_for() -> None:
    assert plan([("branch_summaries", day(2))]) == [
        PlannedRun(DayRange(day(2), day(2)), ("branch_summaries", "root_summaries", "summary_embeddings"))
    ]


def test_days_of_a_live_run_are_left_to_it() -> None:
    pending: list[tuple[Stage, date]] = [("messages", day(number)) for number in (1, 2, 3, 4)]
    assert [run.days for run in plan(pending, live=[DayRange(day(2), day(3))])] == [
        DayRange(day(1), day(1)),
        DayRange(day(4), day(4)),
    ]


def test_a_run_takes_no_more_rows_than_it_may_unless_a_day_alone_has_more() -> None:
    rows = {day(1): 60, day(2): 40, day(3): 1, day(4): 500, day(5): 100}
    planned = plan_runs(
        [("leaf_summaries", found) for found in rows],
        live=[],
        failed=[],
        now=NOW,
        max_days=31,
        max_runs=10,
        rows=rows,
        max_rows=100,
    )
    assert [(run.days.first, run.days.last) for run in planned] == [
        (day(1), day(2)),
        (day(3), day(3)),
        (day(4), day(4)),
        (day(5), day(5)),
    ]


def test_nothing_pending_asks_for_nothing() -> None:
    assert plan([]) == []


def test_a_failing_day_waits_longer_each_time_and_its_neighbours_do_not() -> None:
    range_ = DayRange(day(1), day(1))
    once = [FailedRun(range_, NOW - timedelta(seconds=20))]
    assert [run.days.first for run in plan([("messages", day(1)), ("messages", day(20))], failed=once)] == [day(20)]
    later = [FailedRun(range_, NOW - timedelta(seconds=31))]
    assert plan([("messages", day(1))], failed=later)
    thrice = [FailedRun(range_, NOW - timedelta(seconds=31 + n)) for n in range(3)]
    assert not plan([("messages", day(1))], failed=thrice)
    assert plan([("messages", day(1))], failed=[FailedRun(range_, NOW - timedelta(minutes=31))] * 20)


def test_at_most_three_runs_a_tick() -> None:
    assert len(plan([("messages", day(number)) for number in range(1, 400, 40)])) == 3


@given(st.sets(st.integers(min_value=1, max_value=3000), max_size=60))
def test_ranges_cover_each_day_once_and_stay_short(numbers: set[int]) -> None:
    days = sorted(day(number) for number in numbers)
    ranges = contiguous_ranges(days, max_days=31)
    assert all(sum(wanted in found for found in ranges) == 1 for wanted in days)
    assert all((found.last - found.first).days < 31 for found in ranges)
    assert all(found.first in days and found.last in days for found in ranges)
