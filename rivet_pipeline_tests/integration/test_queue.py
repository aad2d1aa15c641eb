"""What waits and what rests, stage by stage, and having it tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rivet_pipeline.db import pending
from rivet_pipeline.db.ledger import SERVICE, record_failure
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.quality import overdue_items
from rivet_pipeline.db.queue import StageQueue, queue_status, retry_failed
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.stages import STAGES
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline_tests.integration.pipeline import DAY, CountingSummarizer, capture, capture_calls

BUSY = ModelError("transient", "http-503", "busy")
REFUSAL = ModelError("content", "refusal", "would rather not, 100%")


def fail(connection: Connection, stage: str, item: str, error: ModelError, times: int = 1) -> None:
    with connection.transaction():
        for _ in range(times):
            record_failure(connection, stage=stage, item=item, error=error, day=DAY)


def status(connection: Connection) -> dict[str, StageQueue]:
    return {stage.stage: stage for stage in queue_status(connection)}


def blocked(connection: Connection) -> set[tuple[str, str]]:
    rows = connection.execute("SELECT stage, item FROM ros_blocked_items").fetchall()
    return {(row["stage"], row["item"]) for row in rows}


def test_an_empty_store_names_every_stage_in_order(connection: Connection) -> None:
    found = queue_status(connection)
    assert tuple(stage.stage for stage in found) == STAGES
    assert {(stage.items, stage.days, stage.oldest_day, stage.service, len(stage.resting)) for stage in found} == {
        (0, 0, None, None, 0)
    }


def test_what_waits_is_counted_by_stage_with_its_oldest_day(connection: Connection) -> None:
    capture(connection, "test:1", count=10)
    capture(connection, "test:2", count=6, day=DAY + timedelta(days=3))
    capture_calls(connection, "test:3", count=2, day=DAY + timedelta(days=1))
    found = status(connection)
    assert (found["messages"].items, found["messages"].days, found["messages"].oldest_day) == (3, 3, DAY)
    assert (found["tool_call_text"].items, found["tool_call_text"].oldest_day) == (2, DAY + timedelta(days=1))
    # Two are due by time alone: six messages, and the two calls of a conversation that is long over.
    assert (found["leaf_summaries"].items, found["leaf_summaries"].timed_items) == (3, 2)


def test_what_is_too_much_to_count_is_said_to_be_a_bound(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(connection, "test:1", count=10)
    capture(connection, "test:2", count=6)
    monkeypatch.setattr(pending, "COUNTED", 0)
    leaves = status(connection)["leaf_summaries"]
    # On a day with both kinds the timed ones are not told apart.
    assert (leaves.due, leaves.timed_items) == ("at most 2", None)
    overdue = overdue_items(connection, "leaf_summaries")
    assert (overdue.at_fault, overdue.at_most) == (2, True)
    assert overdue.examples == [{"day": DAY, "items": "at most 2"}]


def test_what_rests_is_shown_with_its_cause_and_its_next_attempt(connection: Connection) -> None:
    fail(connection, "leaf_summaries", "a", REFUSAL, times=3)
    fail(connection, "leaf_summaries", "b", REFUSAL)
    fail(connection, "leaf_summaries", "c", BUSY)
    fail(connection, "message_embeddings", SERVICE, BUSY)
    fail(connection, "of_the_future", "d", BUSY)
    found = status(connection)
    content, transient = found["leaf_summaries"].resting
    assert (content.cause, content.items, content.given_up, content.waiting) == ("content", 2, 1, 1)
    assert content.error == "refusal: would rather not, 100%"
    assert content.next_attempt_at is not None
    assert datetime.now(UTC) < content.next_attempt_at < datetime.now(UTC) + timedelta(minutes=1)
    assert (transient.cause, transient.items, transient.given_up) == ("transient", 1, 0)
    assert found["leaf_summaries"].service is None
    assert found["message_embeddings"].service is not None
    assert found["message_embeddings"].resting == []
    assert list(found)[-1] == "of_the_future"


def test_matching_failures_become_due_and_the_others_rest_on(connection: Connection) -> None:
    fail(connection, "leaf_summaries", "a", REFUSAL, times=3)
    fail(connection, "leaf_summaries", "b", BUSY)
    fail(connection, "root_summaries", "a", REFUSAL)
    all_of_them = blocked(connection)
    shown = retry_failed(connection, stage="leaf_summaries", error="RATHER NOT, 100%", dry_run=True)
    assert [(one.item, one.attempts, one.next_attempt_at) for one in shown] == [("a", 3, None)]
    assert blocked(connection) == all_of_them
    assert retry_failed(connection, stage="leaf_summaries", error="rather_not") == []
    assert retry_failed(connection, stage="leaf_summaries", error="rather not, 100%") == shown
    assert blocked(connection) == all_of_them - {("leaf_summaries", "a")}
    assert {one.item for one in retry_failed(connection, stage="all")} == {"a", "b"}
    assert blocked(connection) == set()


def test_a_given_up_item_gets_all_its_attempts_again_and_is_forgotten_when_it_succeeds(
    connection: Connection, pool: Pool
) -> None:
    capture(connection, "test:1", count=10, word="arsenic")
    summarizer = CountingSummarizer()
    summarizer.poison = "arsenic"

    def try_until_it_rests_for_good() -> int:
        before = len(summarizer.requests)
        for _ in range(5):
            connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
            summarize_leaves(pool, days=None, summarizer=summarizer)
        return len(summarizer.requests) - before

    assert try_until_it_rests_for_good() == 3
    retry_failed(connection, stage="leaf_summaries")
    assert try_until_it_rests_for_good() == 3
    retry_failed(connection, stage="all")
    summarizer.poison = None
    assert try_until_it_rests_for_good() == 1
    assert connection.execute("SELECT * FROM ros_failures").fetchall() == []


def test_a_stage_that_there_is_not_is_refused_by_name(connection: Connection) -> None:
    fail(connection, "of_the_future", "d", BUSY)
    assert len(retry_failed(connection, stage="of_the_future")) == 1
    with pytest.raises(InvalidInputError, match=r"no stage 'leaves'.*leaf_summaries"):
        retry_failed(connection, stage="leaves")
