"""Accesses are written behind, bounded, and count only so far."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from psycopg_pool import PoolTimeout

from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import access
from rivet_pipeline.retrieval.access import AccessRecorder
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import NOW, add_message, find


def _stored(connection: Connection, identity: UUID) -> dict[str, object]:
    row = connection.execute(
        "SELECT access_count, last_accessed_at FROM ros_access WHERE id = %s", [identity]
    ).fetchone()
    assert row is not None
    return row


def test_accesses_are_written_by_flush_alone_and_freshen_a_row(connection: Connection) -> None:
    message = add_message(connection, "kestrel", age_days=100)
    recorder = AccessRecorder()
    hits = find(connection, "kestrel").hits
    recorder.record(hits, at=NOW - timedelta(days=1))
    assert find(connection, "kestrel").hits[0].parts.temporal == hits[0].parts.temporal
    assert recorder.flush(connection) == 1
    assert recorder.flush(connection) == 0
    assert _stored(connection, message)["access_count"] == 1
    once = find(connection, "kestrel").hits[0].parts.temporal
    assert hits[0].parts.temporal < once < 0.1
    for _ in range(24):
        recorder.record(hits, at=NOW - timedelta(days=1))
    recorder.flush(connection)
    assert find(connection, "kestrel").hits[0].parts.temporal > 0.9


def test_counts_stop_and_times_only_go_forward(connection: Connection) -> None:
    row = uuid4()
    recorder = AccessRecorder()
    for _ in range(1000):
        recorder.record_ids([("message", row)], at=NOW)
    recorder.flush(connection)
    recorder.record_ids([("message", row)], at=NOW - timedelta(days=9))
    recorder.flush(connection)
    assert _stored(connection, row) == {"access_count": 25, "last_accessed_at": NOW}


def test_the_buffer_is_bounded(connection: Connection) -> None:
    recorder = AccessRecorder(most=10)
    recorder.record_ids(("message", uuid4()) for _ in range(25))
    assert (len(recorder), recorder.dropped) == (10, 15)
    assert recorder.flush(connection) == 10


def test_a_flush_that_fails_loses_nothing(connection: Connection) -> None:
    row = uuid4()
    recorder = AccessRecorder()
    recorder.record_ids([("summary", row)])
    connection.execute("ALTER TABLE ros_access RENAME TO elsewhere")
    with pytest.raises(psycopg.Error):
        recorder.flush(connection)
    connection.execute("ALTER TABLE elsewhere RENAME TO ros_access")
    assert recorder.flush(connection) == 1


def test_threads_lose_no_access() -> None:
    recorder = AccessRecorder()
    rows: list[UUID] = [uuid4() for _ in range(200)]

    def run(part: list[UUID]) -> None:
        for identity in part:
            recorder.record_ids([("message", identity)])

    threads = [threading.Thread(target=run, args=(rows[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder) == 200


def test_a_store_that_is_away_loses_no_more_than_counts_and_says_so_once(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    row = uuid4()
    recorder = AccessRecorder()
    away = True

    @contextmanager
    def store() -> Iterator[Connection]:
        if away:
            raise PoolTimeout("couldn't get a connection after 5.00 sec")
        yield connection

    for _ in range(3):
        recorder.record_ids([("message", row)])
        assert recorder.write_behind(store) == 0
    assert len(recorder) == 1
    assert [record.message for record in caplog.records if "not counted" in record.message] == [
        "accesses are not counted while the store can not take them: couldn't get a connection after 5.00 sec"
    ]
    away = False
    assert recorder.write_behind(store) == 1
    assert _stored(connection, row)["access_count"] == 3
    assert [record.message for record in caplog.records][1:] == [
        "accesses are counted again; 0 were lost since the start"
    ]
    assert recorder.write_behind(store) == 0


def test_a_lock_on_the_counts_holds_nobody_up_for_long(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_FLUSH_TIMEOUT_MS", 200)
    recorder = AccessRecorder()
    recorder.record_ids([("message", uuid4())])
    with connect(database_url) as other, other.transaction():
        other.execute("LOCK TABLE ros_access IN ACCESS EXCLUSIVE MODE")
        assert recorder.write_behind(lambda: nullcontext(connection)) == 0
    assert recorder.write_behind(lambda: nullcontext(connection)) == 1


def test_listings_and_figures_are_no_access(connection: Connection, database_url: str) -> None:
    message = add_message(connection, "kestrel")
    settings = Settings(timezone="UTC")
    with running_api(settings, database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
        assert client.get("/api/memory/browse").json()["messages"][0]["id"] == str(message)
        assert client.get("/api/memory/stats").status_code == 200
        assert client.get(f"/api/memory/lineage/{message}").status_code == 200
    # Stopping the API writes what waits.
    assert connection.execute("SELECT count(*) AS n FROM ros_access").fetchone() == {"n": 0}
    with running_api(settings, database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
        assert client.get("/api/memory/search", params={"q": "kestrel"}).json()["results"]
    assert _stored(connection, message)["access_count"] == 1
