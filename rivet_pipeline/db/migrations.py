"""Applies the plain SQL files of `sql/`, in the order of their names. Nothing here knows what they say.

Forward only. Each file runs in a transaction of its own together with its ledger row; a file that was applied and has
changed since is refused. An advisory lock lets several processes start at once. Why not a library: see
`docs/decisions.md`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import psycopg

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.shipped import shipped

#: Any fixed number: it names our lock among the advisory locks of the database.
_LOCK = 7_266_005_174

_LEDGER = """
CREATE TABLE IF NOT EXISTS ros_migrations (
    name text PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""

#: The oldest pgvector with iterative index scans, which filtered vector search needs.
MIN_PGVECTOR = (0, 8)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/`."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_migrations(folder: Path | None = None) -> list[Migration]:
    """The migrations of a folder (default: the shipped `sql/`), in order."""
    paths = sorted((folder or shipped("sql")).glob("[0-9]*.sql"))
    return [Migration(path.stem, path.read_text(encoding="utf-8")) for path in paths]


def check_extensions(connection: Connection) -> None:
    """Raises `StoreUnavailableError` naming the extension that the server lacks, before anything is changed."""
    rows = connection.execute(
        "SELECT name, default_version FROM pg_available_extensions WHERE name = ANY(%s)",
        [["vector", "pg_trgm", "unaccent"]],
    ).fetchall()
    found = {row["name"]: row["default_version"] for row in rows}
    for name in ("vector", "pg_trgm", "unaccent"):
        if name not in found:
            package = "pgvector 0.8 or newer" if name == "vector" else "postgresql-contrib"
            raise StoreUnavailableError(
                f"the Postgres server lacks the extension {name}; install {package} on it, "
                "or unset RIVETOS_PG_URL for the embedded server."
            )
    version = tuple(int(part) for part in found["vector"].split(".")[:2])
    if version < MIN_PGVECTOR:
        raise StoreUnavailableError(
            f"the Postgres server has pgvector {found['vector']}; 0.8 or newer is needed. Upgrade it, "
            "or unset RIVETOS_PG_URL for the embedded server."
        )


def apply_migrations(connection: Connection, folder: Path | None = None) -> list[str]:
    """Brings the database up to date and returns the names of the files that were applied just now.

    Raises `StoreUnavailableError` when an applied file was edited, when the database is newer than this code, or when a
    file fails; in each case nothing of that file or a later one is applied.
    """
    migrations = read_migrations(folder)
    check_extensions(connection)
    applied_now: list[str] = []
    connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
    try:
        connection.execute(_LEDGER)
        rows = connection.execute("SELECT name, checksum FROM ros_migrations").fetchall()
        ledger = {row["name"]: row["checksum"] for row in rows}
        _refuse_drift(migrations, ledger)
        for migration in migrations:
            if migration.name not in ledger:
                _apply(connection, migration)
                applied_now.append(migration.name)
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
    return applied_now


def _refuse_drift(migrations: list[Migration], ledger: dict[str, str]) -> None:
    known = {migration.name: migration.checksum for migration in migrations}
    for name, checksum in sorted(ledger.items()):
        if name not in known:
            raise StoreUnavailableError(
                f"the database has migration {name}, which this version of rivet-pipeline does not know; upgrade it."
            )
        if known[name] != checksum:
            raise StoreUnavailableError(
                f"migration {name} was edited after it was applied; restore the file and write a new migration instead."
            )


def _apply(connection: Connection, migration: Migration) -> None:
    try:
        with connection.transaction():
            connection.execute(migration.text.encode())
            connection.execute(
                "INSERT INTO ros_migrations (name, checksum) VALUES (%s, %s)", [migration.name, migration.checksum]
            )
    except psycopg.Error as error:
        raise StoreUnavailableError(
            f"migration {migration.name} failed and was rolled back: {' '.join(str(error).split())}"
        ) from error
