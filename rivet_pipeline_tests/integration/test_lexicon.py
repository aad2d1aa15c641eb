"""The lexicon counts each row once, whoever refreshes."""

from __future__ import annotations

import random
import threading
import time

import pytest

from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.retrieval import index_rows, lexicon
from rivet_pipeline.retrieval.lexicon import is_due, pending_lexicon, refresh_lexicon
from rivet_pipeline_tests.integration.memory_rows import add_message, add_summary, find


def _df(connection: Connection, term: str) -> int:
    row = connection.execute("SELECT df FROM ros_lexicon WHERE term = %s", [term]).fetchone()
    return 0 if row is None else int(row["df"])


def test_counts_are_incremental_and_a_second_refresh_does_nothing(connection: Connection) -> None:
    add_message(connection, "heron heron marsh")
    add_message(connection, "")
    add_summary(connection, "a heron")
    assert pending_lexicon(connection) == 3
    first = refresh_lexicon(connection)
    assert (first.messages, first.summaries, first.documents, first.behind) == (2, 1, 2, 0)
    assert first.mean_length == (len("heron heron marsh") + len("a heron")) / 2
    add_message(connection, "marsh at dawn")
    assert pending_lexicon(connection) == 1
    assert refresh_lexicon(connection).messages == 1
    again = refresh_lexicon(connection)
    assert (again.messages, again.summaries, again.documents) == (0, 0, 3)
    assert (_df(connection, "heron"), _df(connection, "marsh")) == (2, 2)


def test_numbers_and_hashes_of_one_row_are_found_and_not_counted(connection: Connection) -> None:
    once = add_message(connection, "heron 0xdeadbeef at src/marsh.py")
    for _ in range(2):
        add_message(connection, "again build 4711")
    refresh_lexicon(connection)
    assert (_df(connection, "heron"), _df(connection, "0xdeadbeef"), _df(connection, "4711")) == (1, 0, 2)
    assert [hit.id for hit in find(connection, "0xdeadbeef").hits] == [once]


def test_a_run_of_letters_without_an_end_is_left_out(connection: Connection) -> None:
    letters = random.Random(3).choices("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", k=6_000)
    add_message(connection, "".join(letters) + "أ egret")
    assert refresh_lexicon(connection).behind == 0
    assert _df(connection, "egret") == 1


def test_a_rebuild_counts_what_was_filled_later(connection: Connection) -> None:
    message = add_message(connection, "", role="tool", tool_name="Bash")
    refresh_lexicon(connection)
    connection.execute("UPDATE ros_messages SET tool_result = 'egret' WHERE id = %s", [message])
    assert pending_lexicon(connection) == 1
    later = refresh_lexicon(connection)
    assert (later.messages, later.changed, later.behind) == (0, 1, 0)
    figures = refresh_lexicon(connection, rebuild=True)
    assert (figures.messages, figures.documents) == (1, 1)
    assert _df(connection, "egret") == 1


def test_pieces_add_up(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(11):
        add_message(connection, f"plover {number}")
    monkeypatch.setattr(index_rows, "MOST_DOCUMENTS", 3)
    figures = refresh_lexicon(connection)
    assert (figures.messages, figures.pieces) == (11, 4)
    assert _df(connection, "plover") == 11


def test_a_refresh_is_due_at_first_then_by_rows_and_later_while_others_work(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexicon, "LEAST_BEHIND", 3)
    monkeypatch.setattr(lexicon, "LEAST_BEHIND_BUSY", 5)
    assert not is_due(connection)
    expected = [(True, False), (True, False), (True, False), (True, False), (True, True)]
    for due in expected:
        add_message(connection, "plover")
        assert (is_due(connection), is_due(connection, busy=True)) == due
    refresh_lexicon(connection)
    for due in [(False, False), (False, False), (True, False), (True, False), (True, True)]:
        add_message(connection, "plover")
        assert (is_due(connection), is_due(connection, busy=True)) == due


def test_two_at_once_count_once(pool: Pool) -> None:
    with pool.connection() as connection:
        for number in range(50):
            add_message(connection, f"curlew {number}")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with pool.connection() as connection:
                refresh_lexicon(connection)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with pool.connection() as connection:
        assert _df(connection, "curlew") == 50


def test_a_row_of_an_open_transaction_is_not_stepped_over(database_url: str) -> None:
    with connect(database_url) as slow, connect(database_url) as quick, connect(database_url) as refresher:
        slow.execute("BEGIN")
        add_message(slow, "dunlin written first, committed last")
        add_message(quick, "dunlin committed first")
        finished = threading.Event()

        def run() -> None:
            refresh_lexicon(refresher)
            finished.set()

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.3)
        assert not finished.is_set()
        slow.execute("COMMIT")
        thread.join(timeout=20)
        assert _df(refresher, "dunlin") == 2
