"""A database for the length of one piece of work, beside the store and never in it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.store import create_database

_PREFIX = "rivet_scratch_"

#: Any fixed number: it names our lock among the advisory locks of the database.
_LOCK = 7_266_005_176


@contextmanager
def scratch_database(url: str) -> Iterator[str]:
    """The address of a fresh, migrated database on the server of `url`, dropped at the end of the block.

    One that a killed process left behind is dropped by the next call. Raises `StoreUnavailableError` when the account
    may not make databases.
    """
    name = f"{_PREFIX}{os.getpid()}_{secrets.token_hex(4)}"
    address = make_conninfo(url, dbname=name)
    with connect(url, application_name="rivet-scratch") as store:
        store.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            _drop_abandoned(store)
            create_database(url, name)
            # As long as this connection is open, nobody takes the database for abandoned.
            guard = connect(address, application_name="rivet-scratch")
        finally:
            store.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
    try:
        apply_migrations(guard)
        yield address
    finally:
        guard.close()
        with connect(url, application_name="rivet-scratch") as store:
            _drop(store, name)


def _drop_abandoned(store: Connection) -> None:
    rows = store.execute(
        """SELECT d.datname FROM pg_database AS d
           WHERE starts_with(d.datname, %s) AND d.datdba = (SELECT oid FROM pg_roles WHERE rolname = current_user)
             AND NOT EXISTS (SELECT 1 FROM pg_stat_activity AS a WHERE a.datname = d.datname)""",
        [_PREFIX],
    ).fetchall()
    for row in rows:
        _drop(store, row["datname"])


def _drop(store: Connection, name: str) -> None:
    try:
        store.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.errors.ObjectInUse:
        # Somebody connects to it at this very moment; the next call finds it abandoned.
        return
