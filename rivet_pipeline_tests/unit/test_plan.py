"""Which runs the sensor asks for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.automation.plan import DayRange, FailedRun, LiveRun, PlannedRun, contiguous_ranges, plan_runs
from rivet_pipeline.stages import STAGES, SUMMARY_STAGES, Stage

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)


def day(number: int) -> date:
    return date(2026, 6, 1) + timedelta(days=number - 1)


#: Those that wait in the pool with the defaults, and when a chat model answers for all.
SUMMARIES = frozenset(SUMMARY_STAGES)
ASKING: frozenset[Stage] = SUMMARIES | {"tool_call_text", "tag_proposals", "wiki_patches"}

#: What a new message asks for beside a chat model, and what follows a leaf.
BESIDE: tuple[Stage, ...] = ("messages", "tool_call_text", "message_embeddings")
BEHIND: tuple[Stage, ...] = STAGES[3:]
NEW: tuple[Stage, ...] = ("messages", "message_embeddings", "leaf_summaries")


def plan(
    pending: list[tuple[Stage, date]],
    live: list[LiveRun] | None = None,
    failed: list[FailedRun] | None = None,
    *,
    pooled: frozenset[Stage] = SUMMARIES,
    service: bool = False,
) -> list[PlannedRun]:
    return plan_runs(
        pending,
        live=live or [],
        failed=failed or [],
        now=NOW,
        max_days=31,
        max_runs=3,
        pooled=pooled,
        service=service,
    )


def on(number: int, *stages: Stage) -> list[tuple[Stage, date]]:
    return [(stage, day(number)) for stage in stages]


def over(first: int, last: int | None = None) -> DayRange:
    return DayRange(day(first), day(last or first))


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
    assert [run.days for run in plan(pending, live=[LiveRun(over(2, 3), queued=True)])] == [
        DayRange(day(1), day(1)),
        DayRange(day(4), day(4)),
    ]


def test_what_a_live_run_does_not_do_is_asked_for_on_its_days() -> None:
    live = [LiveRun(over(1, 9), frozenset({"message_embeddings", "summary_embeddings"}))]
    assert plan([*on(2, "messages", "message_embeddings"), *on(12, "message_embeddings")], live) == [
        PlannedRun(over(2), tuple(stage for stage in STAGES if "embeddings" not in stage)),
        PlannedRun(over(12), ("message_embeddings",)),
    ]


def test_a_service_is_asked_in_runs_of_its_own() -> None:
    assert plan(on(1, *NEW), service=True) == [PlannedRun(over(1), BESIDE), PlannedRun(over(1), BEHIND)]
    assert plan(on(1, "messages"), service=True) == [PlannedRun(over(1), BESIDE)]
    assert plan(on(1, "summary_embeddings"), service=True) == [PlannedRun(over(1), ("summary_embeddings",))]
    assert plan(on(1, "branch_summaries"), service=True) == [
        PlannedRun(over(1), ("branch_summaries", "root_summaries", "summary_embeddings"))
    ]


def test_no_message_is_embedded_behind_a_model_that_writes_tool_texts() -> None:
    assert plan(on(1, *NEW, "tool_call_text"), pooled=ASKING, service=True) == [
        PlannedRun(over(1), ("messages", "message_embeddings")),
        PlannedRun(over(1), ("tool_call_text", *BEHIND)),
    ]
    assert plan(on(1, "tool_call_text"), pooled=ASKING, service=True) == [PlannedRun(over(1), ("tool_call_text",))]


def test_a_hung_run_hides_only_what_waits_for_its_service() -> None:
    for stages in (frozenset(BEHIND), frozenset(STAGES)):  # a run of the sensor's, and a backfill of everything
        for queued in (False, True):
            hung = LiveRun(over(1, 20), stages, queued=queued)
            assert plan(on(7, *NEW), [hung], service=True) == [PlannedRun(over(7), BESIDE)]
    assert plan(on(30, *NEW), [hung], service=True) == [PlannedRun(over(30), BESIDE), PlannedRun(over(30), BEHIND)]


def test_while_a_run_holds_the_pool_the_others_do_not_queue_behind_it() -> None:
    hung = LiveRun(over(1), frozenset(BEHIND))
    assert plan([*on(1, *NEW), *on(3, *NEW)], [hung]) == [PlannedRun(over(1, 3), BESIDE), PlannedRun(over(3), BEHIND)]
    assert plan(on(3, *NEW), [replace(hung, queued=True)]) == [PlannedRun(over(3), STAGES)]
    assert plan(on(3, *NEW), [LiveRun(over(1), frozenset({"message_embeddings"}))]) == [PlannedRun(over(3), STAGES)]


def test_a_failed_run_lets_only_its_own_stages_rest() -> None:
    failed = [FailedRun(over(1), NOW, frozenset(BEHIND))]
    assert plan(on(1, *NEW), failed=failed, service=True) == [PlannedRun(over(1), BESIDE)]
    assert plan(on(1, "leaf_summaries"), failed=failed, service=True) == []


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
