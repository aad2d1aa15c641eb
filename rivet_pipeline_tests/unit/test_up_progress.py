"""What `rivet up` says of the work where no table can be drawn."""

from __future__ import annotations

from datetime import date

from rivet_pipeline.cli.up import Progress, _pause, _progress, _worked_off
from rivet_pipeline.db.pending import PendingDay
from rivet_pipeline.stages import Stage

DAY = date(2026, 3, 8)


def pending(**items: int) -> list[PendingDay]:
    stages: dict[str, Stage] = {
        "messages": "messages",
        "leaves": "leaf_summaries",
        "vectors": "message_embeddings",
    }
    return [PendingDay(stages[name], DAY, count, timed=False) for name, count in items.items()]


def test_the_first_state_and_every_stage_that_is_done_are_told_at_once() -> None:
    told = Progress()
    assert told.line(pending(messages=3, vectors=9), 100.0) == "Pending: messages 3, message_embeddings 9"
    assert told.line(pending(messages=2, vectors=8), 101.0) is None
    assert told.line(pending(vectors=8), 102.0) == "Pending: message_embeddings 8"
    assert told.line(pending(vectors=8, leaves=1), 103.0) is None
    assert told.line([], 104.0) == "Pending: the lexicon"


def test_what_is_too_much_to_count_is_told_as_such() -> None:
    much = PendingDay("message_embeddings", DAY, 1_047_351, timed=False, at_most=True)
    assert Progress().line([much], 100.0) == "Pending: message_embeddings at most 1,047,351"


def test_what_lasts_is_told_every_fifteen_seconds_if_it_has_changed() -> None:
    told = Progress()
    lines = [told.line(pending(vectors=600 - second), float(second)) for second in range(61)]
    assert [second for second, line in enumerate(lines) if line] == [0, 15, 30, 45, 60]
    assert told.line(pending(vectors=540), 80.0) is None
    assert told.line(pending(vectors=539), 81.0) == "Pending: message_embeddings 539"


def test_what_was_too_much_to_count_is_told_as_such_at_the_end() -> None:
    most: dict[str, tuple[int, bool]] = {}
    much = PendingDay("message_embeddings", DAY, 1_000_000, timed=False, at_most=True)
    _progress([much, *pending(leaves=3)], most)
    _progress(pending(vectors=7, leaves=1), most)
    assert _worked_off(most) == (
        "Nothing is pending (worked off: message_embeddings at most 1,000,000, leaf_summaries 3)."
    )
    assert _worked_off({}) == "Nothing is pending."


def test_what_was_started_is_tended_however_long_a_look_takes() -> None:
    assert [_pause(took) for took in (0.01, 0.5, 10.0)] == [0.5, 2.0, 5.0]
