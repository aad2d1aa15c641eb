"""Opens the store a process is configured for: the embedded server or the one of RIVETOS_PG_URL, migrated and ready."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import connect
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.settings import Settings

#: The database of the store on the embedded server; Dagster's own storage stands beside it.
DATABASE = "rivetos"
DAGSTER_DATABASE = "rivetos_dagster"

_log = logging.getLogger(__name__)

#: How often an embedded server is looked at by a program that stays up, in seconds.
_LOOK_SECONDS = 2.0

#: Half seconds to wait for other clients before the server is left to them.
_PATIENCE = 6


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The embedded server of this home, running or not."""
    return EmbeddedServer(settings.home / "postgres")


def store_url(settings: Settings) -> str:
    """The address of the store, whether or not a server runs there."""
    if settings.pg_url is not None:
        return settings.pg_url.get_secret_value()
    return embedded_server(settings).url(DATABASE)


def dagster_url(settings: Settings) -> str:
    """The address of Dagster's database, on the store's server, spelt for SQLAlchemy and psycopg2."""
    url = store_url(settings)
    parts = urlsplit(url)
    scheme = "postgresql+psycopg2"
    if settings.pg_url is None:
        return f"{scheme}{embedded_server(settings).url(DAGSTER_DATABASE).removeprefix('postgresql')}"
    name = str(conninfo_to_dict(url).get("dbname") or DATABASE) + "_dagster"
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{parts.netloc}/{name}{query}"


@contextmanager
def open_store(settings: Settings, *, anew: bool = True) -> Iterator[str]:
    """The migrated store's address, for the length of the block.

    An embedded server that is not running is started, and stopped at the end again unless somebody else has come to use
    it; one that runs is left alone. `anew`: its data may be made, if there is none.
    Raises `StoreUnavailableError` with the action when the store can not be had.
    """
    server = embedded_server(settings) if settings.pg_url is None else None
    started = server.start(anew=anew) if server is not None else False
    try:
        prepare(settings)
        yield store_url(settings)
    finally:
        if server is not None and started:
            stop_unless_used(server)


@contextmanager
def kept_running(settings: Settings) -> Iterator[None]:
    """Starts the embedded server again whenever it has ended during the block, for a program that stays up.

    Only over the data that is there: an empty store is never made.
    Does nothing with a server of RIVETOS_PG_URL, which others look after. A server that was started again is stopped at
    the end unless somebody else uses it.
    """
    if settings.pg_url is not None:
        yield
        return
    server = embedded_server(settings)
    stop, revived = threading.Event(), threading.Event()
    watch = threading.Thread(target=_keep_running, args=(server, stop, revived), name="postgres", daemon=True)
    watch.start()
    try:
        yield
    finally:
        stop.set()
        watch.join(_PATIENCE)
        if revived.is_set():
            stop_unless_used(server)


def _keep_running(server: EmbeddedServer, stop: threading.Event, revived: threading.Event) -> None:
    told = False
    while not stop.wait(_LOOK_SECONDS):
        try:
            if not server.is_running():
                # Before it is so: the block may end while the server still starts.
                revived.set()
                if server.start(anew=False):
                    _log.warning("Postgres had ended and was started again; its log is %s", server.log)
                else:
                    # By somebody else, whose it is.
                    revived.clear()
            told = False
        except Exception as error:
            # Right after a kill the old server's memory is still held; the next try may do. Whatever it is, this
            # thread must outlive it.
            if told:
                continue
            told = True
            _log.warning("Postgres has ended and could not be started again yet: %s", " ".join(str(error).split()))


def stop_unless_used(server: EmbeddedServer) -> bool:
    """Stops an embedded server when nobody is connected to it. Returns whether it is stopped."""
    # A program that has just ended may hold its connection a moment longer.
    for _ in range(_PATIENCE):
        if not server.is_running() or not _has_other_clients(server):
            server.stop()
            return True
        time.sleep(0.5)
    return False


def _has_other_clients(server: EmbeddedServer) -> bool:
    try:
        with connect(server.url("postgres"), application_name="rivet-stop") as connection:
            row = connection.execute(
                """
                SELECT 1 FROM pg_stat_activity
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name NOT LIKE %s
                """,
                [f"% {os.getpid()}"],
            ).fetchone()
            return row is not None
    except StoreUnavailableError:
        return False


def prepare(settings: Settings) -> list[str]:
    """Makes the embedded server's database if it is missing, and applies the migrations; returns those applied now."""
    if settings.pg_url is None:
        create_database(embedded_server(settings).url("postgres"), DATABASE)
    with connect(store_url(settings)) as connection:
        return apply_migrations(connection)


def prepare_dagster(settings: Settings) -> None:
    """Makes Dagster's database on the store's server if it is missing."""
    name = urlsplit(dagster_url(settings)).path.lstrip("/")
    maintenance = embedded_server(settings).url("postgres") if settings.pg_url is None else store_url(settings)
    create_database(maintenance, name)


def create_database(url: str, name: str) -> None:
    """Makes a database through a connection to another one of the same server, unless it is there.

    Raises `StoreUnavailableError` when the account may not make one.
    """
    with connect(url) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            # Another process made it at the same moment.
            return
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreUnavailableError(
                f"the account of RIVETOS_PG_URL may not create the database {name}; create it, or grant CREATEDB."
            ) from error
