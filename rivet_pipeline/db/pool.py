"""Connections to the store. Only connection handling belongs here; SQL stands in the rooms that need it.

Every session speaks UTC, gives rows as dictionaries and commits each statement by itself: a transaction is always an
explicit `with connection.transaction()` block, so that no read leaves one open behind it.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from pgvector.psycopg import register_vector
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

from rivet_pipeline.errors import StoreUnavailableError

Connection = psycopg.Connection[DictRow]

#: A connection that was taken within so many seconds is not asked whether it lives while nothing has arrived on it: a
#: server that ends it says so. Only one that vanished without a word (no power, no network) is then given out once.
_RECENTLY = 10.0

#: A transaction that waits for its own client this long is ended by the server, so that it can not block others.
IDLE_IN_TRANSACTION_SECONDS = 60

_SESSION_OPTIONS = f"-c timezone=UTC -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_SECONDS}s"


class _PooledConnection(psycopg.Connection[DictRow]):
    """A connection that remembers when it was last taken out of the pool, by the monotonic clock."""

    taken_at = float("-inf")


Pool = ConnectionPool[_PooledConnection]


def _configure(connection: Connection) -> None:
    register_vector(connection)


def _check(connection: _PooledConnection) -> None:
    """Raises `psycopg.OperationalError` when a connection is dead.

    A server that ends, or ends the session, sends something last. While nothing has come, a connection that was taken
    just now need not be asked, which would cost every request a wait for the answer.
    """
    now = time.monotonic()
    arrived = select.poll()
    arrived.register(connection.fileno(), select.POLLIN)
    if now - connection.taken_at > _RECENTLY or arrived.poll(0):
        ConnectionPool.check_connection(connection)
    connection.taken_at = now


def _arguments(application_name: str) -> dict[str, Any]:
    return {
        "autocommit": True,
        "row_factory": dict_row,
        "options": _SESSION_OPTIONS,
        # With the process, so that it can tell its own connections from others'.
        "application_name": f"{application_name} {os.getpid()}",
        "connect_timeout": 10,
    }


def explain(error: psycopg.Error) -> StoreUnavailableError:
    """The connection error as one line for a person, without the password and with what to do."""
    text = " ".join(str(error).split()).replace("connection failed: ", "")
    return StoreUnavailableError(
        f"the database can not be reached: {text}. Check RIVETOS_PG_URL, or unset it for the embedded server."
    )


def connect(url: str, *, application_name: str = "rivet") -> Connection:
    """One connection with dict rows, in UTC. Raises `StoreUnavailableError` with the action when it fails."""
    try:
        connection: Connection = psycopg.connect(url, **_arguments(application_name))
    except psycopg.OperationalError as error:
        raise explain(error) from error
    except psycopg.ProgrammingError as error:
        raise StoreUnavailableError(
            "RIVETOS_PG_URL is not a Postgres address; write postgresql://user:password@host:5432/database"
        ) from error
    try:
        if connection.execute("SELECT to_regtype('halfvec') AS found").fetchone() != {"found": None}:
            register_vector(connection)
    except psycopg.OperationalError as error:
        # The server went away between its answer and our first question.
        connection.close()
        raise explain(error) from error
    return connection


@contextmanager
def open_pool(url: str, *, max_size: int = 4, application_name: str = "rivet") -> Iterator[Pool]:
    """A pool of up to `max_size` connections to a migrated store, closed at the end of the block.

    Raises `StoreUnavailableError` when the server can not be reached within ten seconds.
    """
    pool = ConnectionPool(
        url,
        connection_class=_PooledConnection,
        min_size=1,
        max_size=max_size,
        kwargs=_arguments(application_name),
        configure=_configure,
        open=False,
        check=_check,
        timeout=10.0,
        # Attempts to reconnect come ever more rarely; after a long outage the next request should not wait a minute.
        reconnect_timeout=10.0,
    )
    try:
        connect(url, application_name=application_name).close()
        pool.open(wait=True, timeout=10.0)
        yield pool
    finally:
        pool.close()
