"""Captured words are kept: once each, in order, whatever arrives and however often."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.shipped import shipped
from rivet_pipeline.transcripts import ingest
from rivet_pipeline.transcripts.ingest import CAPTURE_CAP, WriteResult, write_batch
from rivet_pipeline.transcripts.ingest_rows import Extra
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER

FIRST_DAY = date(2022, 11, 1)
SESSION = SessionRecord("test:one", "opus", "test")
NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)


def message(number: int, content: str | None = None, **more: Any) -> MessageRecord:
    return MessageRecord(
        event_id=f"e{number}",
        role=more.pop("role", "user"),
        content=f"message {number}" if content is None else content,
        created_at=more.pop("created_at", NOON + timedelta(seconds=number)),
        **more,
    )


def write(connection: Connection, *items: MessageRecord | ToolResult, **more: Any) -> WriteResult:
    return write_batch(connection, more.pop("session", SESSION), items, first_day=FIRST_DAY, **more)


def rows(connection: Connection, columns: str = "event_id, content") -> list[dict[str, Any]]:
    return connection.execute(f"SELECT {columns} FROM ros_messages ORDER BY created_at, seq").fetchall()


def test_the_same_batch_twice_adds_nothing(connection: Connection) -> None:
    first = write(connection, message(1), message(2))
    second = write(connection, message(1), message(2))
    assert (first.new, first.known) == (2, 0)
    assert (second.new, second.known) == (0, 2)
    assert first.conversation_id == second.conversation_id
    assert len(rows(connection)) == 2


@pytest.mark.parametrize("size", [1, 2, 40])
def test_only_a_new_conversation_takes_a_number(connection: Connection, size: int) -> None:
    for number in range(4):
        write(connection, *(message(number * size + one) for one in range(size)))
    write(connection, message(1), session=SessionRecord("test:two", "opus", "test"))
    numbers = connection.execute("SELECT number FROM ros_conversations ORDER BY number").fetchall()
    assert [row["number"] for row in numbers] == [1, 2]


def test_numbers_that_former_versions_took_are_given_back(connection: Connection) -> None:
    write(connection, message(1))
    sequence = "pg_get_serial_sequence('ros_conversations', 'number')"
    connection.execute(f"SELECT nextval({sequence}) FROM generate_series(1, 1000)")
    connection.execute((shipped("sql") / "0027_conversation_numbers.sql").read_text(encoding="utf-8"))
    write(connection, message(1), session=SessionRecord("test:two", "opus", "test"))
    assert connection.execute("SELECT max(number) AS n FROM ros_conversations").fetchone() == {"n": 2}


def test_what_the_server_calls_something_else_than_a_commit_is_no_success(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = psycopg.Cursor.execute

    def misread(cursor: Any, query: Any, *values: Any, **more: Any) -> Any:
        return execute(cursor, "SELECT 1" if query == "COMMIT" else query, *values, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", misread)
    with pytest.raises(psycopg.OperationalError, match="not committed"):
        write(connection, message(1))
    monkeypatch.undo()
    assert connection.info.transaction_status is TransactionStatus.IDLE
    assert rows(connection) == []


def test_statements_that_the_server_forgot_cost_one_batch(connection: Connection) -> None:
    for number in range(12):
        write(connection, message(number))
    # Behind psycopg's back, which else forgets them too.
    connection.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        write(connection, message(20))
    assert write(connection, message(20)).new == 1
    assert len(rows(connection)) == 13


@pytest.mark.parametrize("size", [1, 2, 40])
def test_a_batch_writes_its_conversation_once(connection: Connection, size: int) -> None:
    write(connection, message(0))
    connection.execute(
        """
        CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'written'; RETURN NEW; END $$;
        CREATE TRIGGER told BEFORE UPDATE ON ros_conversations FOR EACH ROW EXECUTE FUNCTION told();
        """
    )
    told: list[str | None] = []
    connection.add_notice_handler(lambda notice: told.append(notice.message_primary))
    write(connection, *(message(number + 1) for number in range(size)))
    assert told == ["written"]
    row = connection.execute("SELECT revision, updated_at FROM ros_conversations").fetchone()
    assert row == {"revision": 2, "updated_at": NOON + timedelta(seconds=size)}


def test_twenty_writers_leave_each_event_once_and_all_succeed(pool: Pool) -> None:
    batch = [message(number) for number in range(50)]
    results: list[WriteResult] = []

    def send() -> None:
        with pool.connection() as connection:
            results.append(write(connection, *batch, batch[0]))

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    assert sum(result.new for result in results) == 50
    with pool.connection() as connection:
        assert len(rows(connection)) == 50
        assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 1}


def test_rows_with_one_timestamp_keep_their_order(connection: Connection) -> None:
    write(connection, *[message(number, created_at=NOON) for number in range(30)])
    assert [row["event_id"] for row in rows(connection)] == [f"e{number}" for number in range(30)]


def test_a_late_result_fills_its_call_once(connection: Connection) -> None:
    call = message(1, "", role="tool", tool_name="Bash", tool_args={"command": "ls"}, metadata={"pending_result": True})
    write(connection, call)
    filled = write(connection, ToolResult(SESSION, "e1", "file.txt", {"exit": 0}))
    again = write(connection, ToolResult(SESSION, "e1", "file.txt"))
    assert (filled.filled, again.filled, again.known) == (1, 0, 1)
    row = rows(connection, "tool_result, metadata, tool_args")[0]
    assert row["tool_result"] == "file.txt"
    assert row["metadata"] == {"exit": 0, "pending_result": False}
    assert row["tool_args"] == {"command": "ls"}


def test_a_result_in_the_same_batch_is_merged(connection: Connection) -> None:
    write(connection, message(1, "", role="tool", tool_name="Bash"), ToolResult(SESSION, "e1", "done"))
    assert rows(connection, "event_id, tool_result") == [{"event_id": "e1", "tool_result": "done"}]


def test_a_result_without_its_call_is_a_message_of_its_own(connection: Connection) -> None:
    orphan = ToolResult(SESSION, "call-9", "the answer", created_at=NOON)
    assert write(connection, orphan).new == 1
    assert write(connection, orphan).known == 1
    assert rows(connection, "role, tool_result") == [{"role": "tool", "tool_result": "the answer"}]


def test_one_id_with_two_contents_keeps_both(connection: Connection) -> None:
    write(connection, message(1, "first"))
    second = write(connection, message(1, "second"))
    again = write(connection, message(1, "second"))
    assert (second.new, again.new) == (1, 0)
    assert sorted(row["content"] for row in rows(connection)) == ["first", "second"]


# Small batches are sent as a pipeline of statements, large ones by COPY.
@pytest.mark.parametrize("size", [2, 40])
def test_a_batch_of_any_size_keeps_each_words_once(connection: Connection, size: int) -> None:
    first = [message(number) for number in range(size)]
    others = [message(number, f"other words {number}") for number in range(size)]
    both = write(connection, *first, *others)
    again = write(connection, *first, *others)
    one_by_one = [write(connection, item) for item in others]
    assert (both.new, both.known) == (2 * size, 0)
    assert (again.new, again.known) == (0, 2 * size)
    assert [(result.new, result.known) for result in one_by_one] == [(0, 1)] * size
    assert len({row["content"] for row in rows(connection)}) == 2 * size


@pytest.mark.parametrize("size", [1, 2, 40])
def test_a_refused_batch_leaves_nothing_and_the_connection_goes_on(connection: Connection, size: int) -> None:
    write(connection, message(999, "before"))
    refused = [message(number) for number in range(size - 1)] + [message(size, role="robot")]
    with pytest.raises(psycopg.errors.CheckViolation):
        write(connection, *refused, session=SessionRecord("test:refused", "opus", "test", title="Refused"))
    assert [row["content"] for row in rows(connection)] == ["before"]
    assert connection.execute("SELECT session_key FROM ros_conversations").fetchall() == [{"session_key": "test:one"}]
    assert write(connection, message(1, "after")).new == 1


@pytest.mark.parametrize("size", [1, 2, 40])
def test_a_failure_of_our_own_leaves_no_lock_and_no_transaction(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ingest, "_message_values", lambda *_: {"id": object()})
        with pytest.raises(psycopg.ProgrammingError):
            write(connection, *(message(number) for number in range(size)))
    assert connection.info.transaction_status is TransactionStatus.IDLE
    with connect(database_url) as other:
        assert other.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 0}
        assert write(other, message(1)).new == 1


def test_a_writer_whose_session_ends_says_so_and_leaves_nothing(connection: Connection, pool: Pool) -> None:
    def refused() -> None:
        with pool.connection() as mine:
            write(mine, message(1))

    with ThreadPoolExecutor() as threads:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [SESSION.session_key])
            writer = threads.submit(refused)
            waits = (
                "SELECT pg_terminate_backend(pid, 10000) AS ended FROM pg_stat_activity WHERE wait_event = 'advisory'"
            )
            deadline = time.monotonic() + 20
            while connection.execute(waits).fetchone() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        with pytest.raises(psycopg.OperationalError):
            writer.result()
    assert rows(connection) == []
    with pool.connection() as mine:
        assert write(mine, message(1)).new == 1


def test_texts_are_capped_with_their_true_length(connection: Connection) -> None:
    text = "x" * (CAPTURE_CAP - 1) + "🚀 tail"
    write(connection, message(1, text, tool_result="y" * 20_000, tool_name="Read"), cap=CAPTURE_CAP)
    row = rows(connection, "content, tool_result, metadata")[0]
    assert row["content"] == "x" * (CAPTURE_CAP - 1)
    assert row["metadata"] == {
        "truncated": True,
        "full_content_length": CAPTURE_CAP + 6,
        "full_tool_result_length": 20_000,
    }
    assert write(connection, message(1, text, tool_name="Read"), cap=CAPTURE_CAP).known == 1


def test_text_that_postgres_refuses_is_stored_readably(connection: Connection) -> None:
    write(connection, message(1, "nul \x00 and \ud83d", metadata={"k": "\x00"}, tool_args=["\ud800"], tool_name="t"))
    row = rows(connection, "content, metadata, tool_args")[0]
    assert row["content"] == "nul \ufffd and \ufffd"
    assert row["metadata"]["k"] == "\ufffd"


def test_six_kilobyte_names_are_stored(connection: Connection) -> None:
    session = SessionRecord("k" * 6000, "opus", "test", title="t" * 6000)
    assert write(connection, message(1), session=session).new == 1
    assert write(connection, message(1), session=session).known == 1


def test_a_conversation_belongs_for_ever_to_the_day_it_began(connection: Connection) -> None:
    write(connection, message(1, created_at=datetime(2026, 3, 7, 23, 59, 59, tzinfo=UTC)))
    write(connection, message(2, created_at=datetime(2026, 3, 9, 0, 0, tzinfo=UTC)))
    write(connection, message(3, created_at=datetime(2026, 3, 1, 0, 0, tzinfo=UTC)))
    row = connection.execute("SELECT day, updated_at, revision FROM ros_conversations").fetchone()
    assert row == {"day": date(2026, 3, 7), "updated_at": datetime(2026, 3, 9, tzinfo=UTC), "revision": 3}


def test_days_are_kept_between_the_first_partition_and_today(connection: Connection) -> None:
    old = SessionRecord("test:old", "opus", "test")
    future = SessionRecord("test:future", "opus", "test")
    write(connection, message(1, created_at=datetime(2009, 1, 1, tzinfo=UTC)), session=old)
    write(connection, message(1, created_at=datetime(2031, 1, 1, tzinfo=UTC)), session=future, now=NOON)
    days = connection.execute("SELECT session_key, day FROM ros_conversations ORDER BY session_key").fetchall()
    assert [row["day"] for row in days] == [NOON.date(), FIRST_DAY]
    row = rows(connection, "created_at, metadata")[-1]
    assert row["created_at"] == NOON
    assert row["metadata"]["event_ts"].startswith("2031-01-01")


@pytest.mark.parametrize(
    ("stated", "source"),
    [
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), "position"),
        (datetime(1970, 1, 1, tzinfo=UTC), "position"),
        (datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), "position"),
        (datetime(2031, 1, 1, tzinfo=UTC), "capture"),
        (datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12))), "capture"),
    ],
)
def test_an_absurd_time_places_nothing_and_is_kept(connection: Connection, stated: datetime, source: str) -> None:
    write(connection, message(1, created_at=NOON), message(2, created_at=stated), now=NOON)
    write(connection, message(3, created_at=stated), session=SessionRecord("test:other", "opus", "test"), now=NOON)
    for row in rows(connection, "event_id, created_at, metadata"):
        assert row["created_at"] == NOON
        # With a message before it, its place is known better than by the moment of its capture.
        placed = "position" if row["event_id"] == "e2" else source
        absurd = {} if row["event_id"] == "e1" else {"time_source": placed, "event_ts": stated.isoformat()}
        assert row["metadata"] == absurd
    spans = connection.execute("SELECT DISTINCT day, created_at, updated_at FROM ros_conversations").fetchall()
    assert spans == [{"day": NOON.date(), "created_at": NOON, "updated_at": NOON}]


def test_a_result_with_an_absurd_time_says_nothing_about_its_calls_time(connection: Connection) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    write(connection, message(1, "", role="tool", tool_name="Bash"), message(2, "", role="tool", tool_name="Bash"))
    write(connection, ToolResult(SESSION, "e1", "done", created_at=epoch))
    write(connection, ToolResult(SESSION, "gone", "orphan", created_at=epoch))
    found = {row["tool_result"]: row["metadata"] for row in rows(connection, "tool_result, metadata")}
    assert found["done"] == {"pending_result": False}
    assert found["orphan"] == {"time_source": "position", "event_ts": epoch.isoformat()}


def test_what_is_known_already_does_not_make_a_conversation_young(connection: Connection) -> None:
    write(connection, message(1, created_at=NOON))
    write(connection, message(1, created_at=NOON))
    write(connection, message(1, created_at=NOON, tool_result="late"))
    assert connection.execute("SELECT updated_at FROM ros_conversations").fetchone() == {"updated_at": NOON}


def test_a_backfills_span_holds_where_messages_say_nothing(connection: Connection) -> None:
    day = timedelta(days=1)
    extra = Extra(began=NOON, ended=NOON + day)
    write(connection, message(1, created_at=None), message(2, created_at=None), extra=extra)
    write(connection, message(3, created_at=NOON - day), message(4, created_at=None), extra=extra)
    write(connection, message(5, created_at=None), extra=Extra(ended=datetime(9999, 1, 1, tzinfo=UTC)))
    assert [(row["event_id"], row["created_at"]) for row in rows(connection, "event_id, created_at")] == [
        ("e3", NOON - day),
        ("e4", NOON - day),
        ("e1", NOON),
        ("e2", NOON),
        ("e5", NOON + day),
    ]
    span = connection.execute("SELECT day, created_at, updated_at FROM ros_conversations").fetchone()
    assert span == {"day": NOON.date(), "created_at": NOON, "updated_at": NOON + day}


def test_a_message_without_time_follows_the_one_before(connection: Connection) -> None:
    write(connection, message(1), message(2, created_at=None), message(3))
    assert [row["event_id"] for row in rows(connection)] == ["e1", "e2", "e3"]


def test_settings_are_merged_and_titles_kept(connection: Connection) -> None:
    write(connection, message(1), session=SessionRecord("s", "a", "c", title="A title", settings={"cwd": "/x"}))
    write(connection, message(2), session=SessionRecord("s", "a", "c", settings={"last_event": "Stop"}))
    row = connection.execute("SELECT title, settings FROM ros_conversations").fetchone()
    assert row == {"title": "A title", "settings": {"cwd": "/x", "last_event": "Stop"}}


def test_nested_settings_lose_no_key_and_null_says_nothing(connection: Connection) -> None:
    first: dict[str, Any] = {
        "cwd": "/x",
        "hook": {"event": "Start", "env": {"TERM": "a", "PWD": "/x"}},
        "kept": {"a": 1},
        "list": [1],
    }
    second: dict[str, Any] = {
        "cwd": None,
        "hook": {"event": "Stop", "env": {"TERM": "b", "PWD": None}},
        "kept": None,
        "list": [2],
    }
    for number, settings in enumerate([first, second]):
        write(connection, message(number), session=SessionRecord("s", "a", "c", settings=settings))
    row = connection.execute("SELECT settings FROM ros_conversations").fetchone()
    assert row is not None
    assert row["settings"] == {
        "cwd": "/x",
        "hook": {"event": "Stop", "env": {"TERM": "b", "PWD": "/x"}},
        "kept": {"a": 1},
        "list": [2],
    }


def test_concurrent_nested_settings_are_all_kept(pool: Pool) -> None:
    def send(number: int) -> None:
        with pool.connection() as connection:
            settings = {"by": {f"k{number}": number}}
            write(connection, message(number), session=SessionRecord("s", "a", "c", settings=settings))

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(send, range(40)))
    with pool.connection() as connection:
        row = connection.execute("SELECT settings FROM ros_conversations").fetchone()
    assert row == {"settings": {"by": {f"k{number}": number for number in range(40)}}}


def test_fallbacks_give_way_to_what_is_said_and_to_what_is_stored(connection: Connection) -> None:
    quiet, loud = SessionRecord("s", "a", "c"), SessionRecord("s", "a", "c", settings={"project": "said"})
    found: list[tuple[str, str]] = []
    for session, project in [(quiet, "first"), (quiet, "second"), (loud, "third"), (quiet, "fourth")]:
        extra = Extra(fallback_settings={"project": project}, new_title="Session s")
        write(connection, message(len(found)), session=session, extra=extra)
        row = connection.execute("SELECT title, settings ->> 'project' AS project FROM ros_conversations").fetchone()
        assert row is not None
        found.append((row["title"], row["project"]))
    assert found == [("Session s", "first"), ("Session s", "first"), ("Session s", "said"), ("Session s", "said")]


def test_a_new_title_is_for_new_conversations_only(connection: Connection) -> None:
    write(connection, message(1))
    write(connection, message(2), extra=Extra(new_title="Session test:one"))
    assert connection.execute("SELECT title FROM ros_conversations").fetchone() == {"title": None}


def test_a_task_id_is_kept_until_another_is_said(connection: Connection) -> None:
    first, second = uuid4(), uuid4()
    found = []
    for number, task_id in enumerate([first, None, second]):
        write(connection, message(number), session=SessionRecord("s", "a", "c", task_id=task_id))
        row = connection.execute("SELECT task_id FROM ros_conversations").fetchone()
        assert row is not None
        found.append(row["task_id"])
    assert found == [first, first, second]


@pytest.mark.parametrize("size", [2, 40])
def test_the_ids_of_the_rows_come_in_the_items_order(connection: Connection, size: int) -> None:
    write(connection, message(1, "the first words"))
    batch = [message(number) for number in reversed(range(size))]
    items: list[MessageRecord | ToolResult] = [*batch, ToolResult(SESSION, "gone", "orphan"), batch[0]]
    result = write(connection, *items, extra=Extra(with_ids=True))
    again = write(connection, *items, extra=Extra(with_ids=True))
    assert result.ids == again.ids
    found = {row["id"]: row for row in rows(connection, "id, event_id, content, tool_result")}
    assert [found[id_]["content"] for id_ in result.ids[:size]] == [item.content for item in batch]
    assert [found[id_]["event_id"] for id_ in result.ids] == list(result.event_ids)
    assert found[result.ids[size]]["tool_result"] == "orphan"
    assert result.ids[size + 1] == result.ids[0]


def test_other_words_under_a_known_id_can_be_left_out(connection: Connection) -> None:
    first = write(connection, message(1, "first"), extra=Extra(with_ids=True))
    second = write(connection, message(1, "second"), extra=Extra(keep_clashes=False, with_ids=True))
    assert (second.new, second.known, second.clashed, second.ids) == (0, 1, 1, first.ids)
    assert [row["content"] for row in rows(connection)] == ["first"]


def test_finalize_closes_last_and_new_words_reopen(connection: Connection) -> None:
    write(connection, message(1), finalize=True)
    assert connection.execute("SELECT active FROM ros_conversations").fetchone() == {"active": False}
    write(connection, message(1))
    assert connection.execute("SELECT active FROM ros_conversations").fetchone() == {"active": False}
    write(connection, message(2))
    assert connection.execute("SELECT active FROM ros_conversations").fetchone() == {"active": True}


def test_our_own_model_traffic_is_a_noise_session(connection: Connection) -> None:
    write(connection, *[message(n, f"{OWN_TRAFFIC_MARKER} Summarise {n}") for n in range(12)])
    assert connection.execute("SELECT count(*) AS n FROM ros_pending_leaf_summaries").fetchone() == {"n": 0}


OURS = f"\n {OWN_TRAFFIC_MARKER} Summarise this."


def noise(connection: Connection, key: str = "test:one") -> bool:
    found = connection.execute(
        "SELECT ros_is_noise(session_key, settings) AS noise FROM ros_conversations WHERE session_key = %s", [key]
    ).fetchone()
    assert found is not None
    return bool(found["noise"])


@pytest.mark.parametrize("place", [1, 3, 11])
@pytest.mark.parametrize("size", [1, 12])
def test_our_prompt_in_the_midst_of_a_session_makes_it_no_noise(connection: Connection, place: int, size: int) -> None:
    said = [message(number, OURS if number == place else None) for number in range(12)]
    for first in range(0, 12, size):
        write(connection, *said[first : first + size])
    assert not noise(connection)
    assert connection.execute("SELECT count(*) AS n FROM ros_pending_leaf_summaries").fetchone() == {"n": 1}


def test_the_first_text_is_that_of_the_total_order_and_no_preface_of_the_harness(connection: Connection) -> None:
    call = message(0, "", role="tool", tool_name="Bash", tool_result=OURS)
    preface = message(1, "<environment_context>", role="system", metadata={"kind": "injected"})
    write(connection, call, preface, message(2, " "), message(3, OURS), message(4))
    assert noise(connection)
    # Of one batch, the earlier time is first, whatever stands first in it.
    write(connection, message(8, OURS), message(7), session=SessionRecord("test:turned", "opus", "test"))
    assert not noise(connection, "test:turned")
    injected = message(1, OURS, role="system", metadata={"kind": "injected"})
    write(connection, injected, message(2), session=SessionRecord("test:injected", "opus", "test"))
    assert not noise(connection, "test:injected")


def test_an_earlier_text_that_comes_later_decides_anew(connection: Connection) -> None:
    write(connection, *[message(number, OURS) for number in range(20, 32)])
    assert noise(connection)
    connection.execute(
        "INSERT INTO ros_stage_marks (stage, conversation_id, revision)"
        " SELECT 'leaf_summaries', id, revision FROM ros_conversations"
    )
    write(connection, message(1, "Look at this prompt:"))
    assert not noise(connection)
    assert connection.execute("SELECT count(*) AS n FROM ros_pending_leaf_summaries").fetchone() == {"n": 1}
    write(connection, message(0, OURS))
    assert noise(connection)


def test_a_session_that_its_agent_calls_noise_stays_so(connection: Connection) -> None:
    session = SessionRecord("test:one", "opus", "test", settings={"noise": True})
    write(connection, message(1, OURS), message(2), session=session)
    write(connection, message(0))
    assert noise(connection)


def test_a_session_wrongly_called_our_traffic_is_put_right_when_it_comes_again(connection: Connection) -> None:
    write(connection, message(1), message(2, OURS))
    connection.execute(
        """
        UPDATE ros_conversations
        SET settings = '{"noise": true, "noise_reason": "the pipeline''s own model traffic", "cwd": "/srv"}'
        """
    )
    write(connection, message(1), message(2, OURS))
    assert connection.execute("SELECT settings FROM ros_conversations").fetchone() == {"settings": {"cwd": "/srv"}}


def test_ten_messages_are_due_at_once_and_nine_are_not(connection: Connection) -> None:
    now = datetime.now(UTC)
    for key, count in (("ten", 10), ("nine", 9), ("heartbeat:x", 12)):
        session = SessionRecord(key, "opus", "test")
        write(connection, *[message(n, created_at=now) for n in range(count)], session=session)
    due = connection.execute(
        "SELECT c.session_key, p.due"
        " FROM ros_pending_leaf_summaries p JOIN ros_conversations c ON c.id = p.conversation_id"
    ).fetchall()
    assert due == [{"session_key": "ten", "due": "full"}]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ros_messages",
        "TRUNCATE ros_messages CASCADE",
        "UPDATE ros_messages SET content = 'other'",
        "UPDATE ros_messages SET created_at = now()",
        "UPDATE ros_messages SET metadata = '{}', tool_result = 'r' WHERE event_id = 'e2'",
        "UPDATE ros_messages SET tool_result = 'another' WHERE event_id = 'e1'",
        "DELETE FROM ros_conversations",
        "UPDATE ros_conversations SET day = '2020-01-01'",
    ],
)
def test_nothing_changes_or_removes_a_captured_word(connection: Connection, statement: str) -> None:
    write(connection, message(1, tool_result="r", tool_name="t"), message(2, "", tool_name="t", metadata={"k": 1}))
    with pytest.raises(psycopg.Error), connection.transaction():
        connection.execute(statement)
    assert len(rows(connection)) == 2


_ENDLESS_WRITER = """
import sys
from datetime import date
from rivet_pipeline.db.pool import connect
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord
connection = connect(sys.argv[1])
session = SessionRecord("test:killed", "opus", "test")
for number in range(1_000_000):
    write_batch(connection, session, [MessageRecord(f"e{number}", "user", "word " * 200)], first_day=date(2022, 11, 1))
    print(number, flush=True)
"""


def test_an_acknowledged_write_survives_kill_nine(database_url: str) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _ENDLESS_WRITER, database_url], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(40)]
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.stdout.close()
    writer.wait()
    with connect(database_url) as connection:
        stored = {int(row["event_id"][1:]) for row in rows(connection)}
    assert set(acknowledged) <= stored
    assert stored <= set(range(max(acknowledged) + 2))


def said(connection: Connection) -> list[tuple[str, str, str | None, str | None]]:
    found = rows(connection, "role, content, tool_name, tool_result")
    return [(row["role"], row["content"], row["tool_name"], row["tool_result"]) for row in found]


def test_a_call_under_the_id_of_somebodys_words_changes_nothing_of_them(connection: Connection) -> None:
    write(connection, MessageRecord("1", "user", "speech", created_at=NOON))
    write(connection, MessageRecord("1", "tool", "", "X", {"a": 1}, "r2", created_at=NOON))
    write(connection, MessageRecord("1", "tool", "", "X", {"a": 2}, created_at=NOON))
    assert said(connection) == [("user", "speech", None, None), ("tool", "", "X", "r2"), ("tool", "", "X", None)]


@pytest.mark.parametrize("together", [True, False])
def test_another_result_of_a_known_call_is_kept_beside_the_first(connection: Connection, together: bool) -> None:
    session = SessionRecord("test:s", "opus", "test")
    call = MessageRecord("c", "tool", "", "Bash", {"command": "ls"}, created_at=NOON)
    items: list[MessageRecord | ToolResult] = [
        call,
        ToolResult(session, "c", "first"),
        ToolResult(session, "c", "second"),
        ToolResult(session, "c", "first"),
    ]
    batches: list[list[MessageRecord | ToolResult]] = [items] if together else [[item] for item in items]
    for batch in [*batches, *batches]:
        write(connection, *batch)
    assert said(connection) == [("tool", "", "Bash", "first"), ("tool", "", None, "second")]
    assert rows(connection, "metadata")[1]["metadata"]["clashes_with"] == "c"


def test_a_result_that_came_before_its_call_is_known_again(connection: Connection) -> None:
    session = SessionRecord("test:s", "opus", "test")
    call = MessageRecord("c", "tool", "", "Bash", {"command": "ls"}, created_at=NOON)
    items: list[MessageRecord | ToolResult] = [
        ToolResult(session, "c", "early"),
        call,
        ToolResult(session, "c", "late"),
    ]
    first = write(connection, *items)
    assert (first.new, write(connection, *items).new) == (2, 0)
    assert [row[3] for row in said(connection)] == ["early", "late"]


def test_other_arguments_or_another_result_in_one_row_are_kept_beside(connection: Connection) -> None:
    for args, result in (({"n": 1}, "one"), ({"n": 1}, "one"), ({"n": 2}, "one"), ({"n": 1}, "two"), (None, None)):
        write(connection, MessageRecord("c", "tool", "", "Count", args, result, created_at=NOON))
    assert [row["tool_args"] for row in rows(connection, "tool_args")] == [{"n": 1}, {"n": 2}, {"n": 1}]
    assert [row[3] for row in said(connection)] == ["one", "one", "two"]


def test_calling_itself_truncated_makes_no_other_words_known(connection: Connection) -> None:
    write(connection, MessageRecord("1", "user", "A words", metadata={"truncated": True}, created_at=NOON))
    write(connection, MessageRecord("1", "user", "B other words", created_at=NOON))
    write(connection, MessageRecord("1", "user", "A words and how they went on", created_at=NOON))
    assert [row[1] for row in said(connection)] == ["A words", "B other words"]


def test_arguments_nested_beyond_all_reason_are_kept_as_text(connection: Connection) -> None:
    deep: Any = "the innermost word"
    for _ in range(900):
        deep = [deep]
    write(connection, MessageRecord("1", "tool", "", "X", {"d": deep}, created_at=NOON))
    (row,) = rows(connection, "tool_args::text AS args")
    assert "the innermost word" in row["args"]
