"""A pooled connection is asked whether it lives only when that is not known, and a dead one is never handed out."""

from __future__ import annotations

from rivet_pipeline.db.pool import Connection, open_pool


def last_query(connection: Connection, pid: int) -> str:
    row = connection.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
    assert row is not None
    return str(row["query"])


def test_a_connection_is_asked_after_a_rest_and_not_when_it_was_just_used(
    connection: Connection, database_url: str
) -> None:
    with open_pool(database_url, max_size=1) as pool:
        with pool.connection() as taken:
            pid = taken.info.backend_pid
            taken.execute("SELECT 'mine'")
        with pool.connection() as taken:
            assert (taken.info.backend_pid, last_query(connection, pid)) == (pid, "SELECT 'mine'")
            taken.taken_at -= 60
        with pool.connection() as taken:
            # Asked with the empty query.
            assert (taken.info.backend_pid, last_query(connection, pid)) == (pid, "")


def test_a_connection_that_the_server_ended_is_replaced(connection: Connection, database_url: str) -> None:
    with open_pool(database_url, max_size=1) as pool:
        with pool.connection() as taken:
            pid = taken.info.backend_pid
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pool.connection() as taken:
            assert taken.info.backend_pid != pid
            assert taken.execute("SELECT 1 AS one").fetchone() == {"one": 1}
