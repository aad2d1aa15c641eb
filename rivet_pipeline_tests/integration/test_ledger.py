"""The failure ledger over a real chat service that is down or refuses: what is asked, when, and how often."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from rivet_pipeline.db.ledger import (
    MAX_CONTENT_ATTEMPTS,
    PERMANENT_RETRY,
    SERVICE,
    record_failure,
    retry_delay,
    waiting_failures,
)
from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.db.quality import failing_items
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.summaries.compact import refine_level, summarize_leaves
from rivet_pipeline.summaries.types import Kind, Summarizer
from rivet_pipeline_tests.integration.chat_server import GOOD, ChatServer, Reply, chat_server, says
from rivet_pipeline_tests.integration.test_summaries import IDLE, Counting, chat, kinds, rows, talk

DAY = date(2026, 6, 1)
LEVELS: tuple[Kind, ...] = ("leaf", "branch", "root")
DOWN = Reply({"error": "busy"}, 503)


def tick(connection: Connection, pool: Pool, summarizer: Summarizer) -> int:
    """What a sensor's tick and its run do: look for work and, when there is some, pass through every level."""
    if not [item for item in pending_days(connection) if item.stage.endswith("_summaries")]:
        return 0
    return sum(refine_level(pool, kind, days=None, summarizer=summarizer).rows for kind in LEVELS)


def its_time_comes(connection: Connection) -> None:
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")


def fail(connection: Connection, error: ModelError, item: str = "a") -> dict[str, Any]:
    """Records a failure and returns its row, with the wait in seconds (None: for ever)."""
    record_failure(connection, stage="leaf_summaries", item=item, error=error, day=DAY)
    row = connection.execute(
        """SELECT cause, attempts, extract(epoch FROM next_attempt_at - now())::float AS wait
           FROM ros_failures WHERE item = %s""",
        [item],
    ).fetchone()
    assert row is not None
    return row


# --- the rules ---


def test_transient_waits_double_to_half_an_hour_and_never_end() -> None:
    waits = [retry_delay("transient", attempts) for attempts in range(1, 200)]
    assert all(wait is not None for wait in waits)
    for attempts, wait in enumerate(waits, 1):
        full = min(30.0 * 2 ** min(attempts - 1, 20), 1800.0)
        assert wait is not None
        assert 0.9 * full <= wait.total_seconds() <= full


def test_a_service_is_never_asked_sooner_than_it_wished() -> None:
    assert retry_delay("transient", 1, 7200.0) == timedelta(hours=2)
    assert retry_delay("content", 1, 7200.0) == timedelta(hours=2)


def test_content_failures_are_tried_three_times() -> None:
    assert [retry_delay("content", attempts) is None for attempts in (1, 2, 3, 4)] == [False, False, True, True]
    assert MAX_CONTENT_ATTEMPTS == 3


def test_back_off_goes_on_from_run_to_run(database_url: str) -> None:
    longest = 0.0
    for attempts in range(1, 30):
        with connect(database_url) as run:  # another process, another connection
            found = fail(run, ModelError("transient", "http-503", "busy"), SERVICE)
        assert (found["cause"], found["attempts"]) == ("transient", attempts)
        assert found["wait"] >= 0.89 * min(30.0 * 2 ** (attempts - 1), 1800.0)
        longest = max(longest, found["wait"])
    assert longest <= 1800.0


def test_an_item_that_met_a_service_that_was_down_has_all_its_tries_left(connection: Connection) -> None:
    for _ in range(5):
        fail(connection, ModelError("transient", "http-503", "busy"))
    found = [fail(connection, ModelError("content", "refusal", "no")) for _ in range(3)]
    assert [(row["attempts"], row["wait"] is None) for row in found] == [(1, False), (2, False), (3, True)]
    assert fail(connection, ModelError("transient", "http-503", "busy"))["wait"] < 31


# --- a service that is down ---


def test_forty_conversations_and_a_service_that_is_down_cost_one_probe_a_tick(
    connection: Connection, pool: Pool
) -> None:
    for number in range(40):
        talk(connection, 10, session=f"test:{number}", rest=IDLE)
    with chat_server(lambda _: DOWN) as server:
        summarizer = chat(server)
        assert tick(connection, pool, summarizer) == 0
        requests_a_probe = len(server.asked)
        assert 1 <= requests_a_probe <= 4  # the client's own retries
        for _ in range(3):
            assert tick(connection, pool, summarizer) == 0
        assert len(server.asked) == requests_a_probe  # it rests: no tick asks before the time has come
        for probes in range(2, 6):
            its_time_comes(connection)
            assert tick(connection, pool, summarizer) == 0
            assert len(server.asked) == probes * requests_a_probe
        failures = connection.execute("SELECT stage, item, cause, attempts FROM ros_failures").fetchall()
        assert failures == [{"stage": "leaf_summaries", "item": SERVICE, "cause": "transient", "attempts": 5}]

        server.script = lambda _: says(GOOD)
        server.asked.clear()
        assert tick(connection, pool, summarizer) == 0  # still resting
        its_time_comes(connection)
        assert tick(connection, pool, summarizer) == 40
        assert len(server.asked) == 40
    assert kinds(connection) == {"leaf": 40}
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


def test_levels_that_share_a_service_share_its_rest(connection: Connection, pool: Pool) -> None:
    talk(connection, 50, session="test:a", rest=IDLE)
    summarize_leaves(pool, days=None, summarizer=Counting())  # five leaves: a branch is due
    connection.execute("UPDATE ros_summaries SET model = 'm'")
    talk(connection, 10, session="test:b", rest=IDLE)  # and a leaf
    with chat_server(lambda _: DOWN) as server:
        tick(connection, pool, chat(server))
        requests_a_probe = len(server.asked)
        its_time_comes(connection)
        tick(connection, pool, chat(server))
        assert len(server.asked) == 2 * requests_a_probe
        assert waiting_failures(connection) == 1
        server.script = lambda _: says(GOOD)
        its_time_comes(connection)
        assert tick(connection, pool, chat(server)) == 2
    assert kinds(connection) == {"leaf": 6, "branch": 1}
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


def test_a_service_that_goes_down_under_way_keeps_what_is_done_and_goes_on_from_there(
    connection: Connection, pool: Pool
) -> None:
    for number in range(6):
        talk(connection, 10, session=f"test:{number}", rest=IDLE)

    with chat_server(lambda _: says(GOOD) if len(server.asked) <= 2 else DOWN) as server:
        assert tick(connection, pool, chat(server)) == 2
        server.script = lambda _: says(GOOD)
        its_time_comes(connection)
        assert tick(connection, pool, chat(server)) == 4
    assert kinds(connection) == {"leaf": 6}


def test_stale_rows_cost_no_more_than_new_ones_while_the_service_is_down(connection: Connection, pool: Pool) -> None:
    for number in range(10):
        talk(connection, 10, session=f"test:{number}", rest=IDLE)
    summarize_leaves(pool, days=None, summarizer=Counting())
    for number in range(10):
        talk(connection, 10, session=f"test:new-{number}", rest=IDLE)
    with chat_server(lambda _: DOWN) as server:
        tick(connection, pool, chat(server))
        requests_a_probe = len(server.asked)
        tick(connection, pool, chat(server))
        its_time_comes(connection)
        tick(connection, pool, chat(server))
        assert len(server.asked) == 2 * requests_a_probe
        server.script = lambda _: says(GOOD)
        its_time_comes(connection)
        assert tick(connection, pool, chat(server)) == 20
    assert rows(connection, "SELECT count(*) FROM ros_summaries WHERE model = 'm'") == [20]


# --- a service that wants something from a person ---


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refused_key_waits_an_hour_and_needs_nobody_after(connection: Connection, pool: Pool, status: int) -> None:
    for number in range(5):
        talk(connection, 10, session=f"test:{number}", rest=IDLE)
    with chat_server(lambda _: Reply({"error": "no"}, status)) as server:
        for _ in range(3):
            assert tick(connection, pool, chat(server)) == 0
        assert len(server.asked) == 1
        failure = connection.execute("SELECT item, cause, error, next_attempt_at FROM ros_failures").fetchone()
        assert failure is not None
        assert (failure["item"], failure["cause"]) == (SERVICE, "permanent")
        assert failure["error"].startswith(f"http-{status}")
        wait = failure["next_attempt_at"] - datetime.now(UTC)
        assert timedelta(minutes=59) < wait <= PERMANENT_RETRY
        assert any("permanent" in alert for alert in collect_stats(connection).alerts)

        its_time_comes(connection)
        assert tick(connection, pool, chat(server)) == 0
        assert len(server.asked) == 2  # an hour later, one more
        server.script = lambda _: says(GOOD)
        its_time_comes(connection)
        assert tick(connection, pool, chat(server)) == 5
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


# --- an item that the model will not take ---


def test_a_content_failure_stops_after_three_tries_and_shows_and_stops_nobody_else(
    connection: Connection, pool: Pool
) -> None:
    talk(connection, 10, session="test:bad", rest=IDLE, content="arsenic and old lace")
    for number in range(4):
        talk(connection, 10, session=f"test:{number}", rest=IDLE)
    asked_about_the_bad_one = 0

    def refuse(request: dict[str, Any]) -> Reply:
        nonlocal asked_about_the_bad_one
        if "arsenic" not in request["messages"][1]["content"]:
            return says(GOOD)
        asked_about_the_bad_one += 1
        return Reply({"error": "can not read this"}, 400)

    with chat_server(refuse) as server:
        assert tick(connection, pool, chat(server)) == 4
        for _ in range(5):
            its_time_comes(connection)
            assert tick(connection, pool, chat(server)) == 0
        assert asked_about_the_bad_one == 3
    finding = failing_items(connection, "leaf_summaries")
    assert (finding.at_fault, finding.examples[0]["attempts"]) == (1, 3)
    (alert,) = [alert for alert in collect_stats(connection).alerts if "leaf_summaries" in alert]
    assert "1 of them given up" in alert
    assert "can not read this" in alert


def good_after(server: ChatServer, tries: int) -> Reply:
    return says(GOOD) if len(server.asked) > tries else Reply({"error": "can not read this"}, 400)


def test_a_content_failure_that_passes_leaves_no_trace(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, rest=IDLE)
    with chat_server(lambda _: good_after(server, 2)) as server:
        for _ in range(2):
            assert tick(connection, pool, chat(server)) == 0
            its_time_comes(connection)
        assert tick(connection, pool, chat(server)) == 1
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]
