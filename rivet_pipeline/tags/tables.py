"""What every part of this room needs of the tables: whether they are there, who decides, the locks of a key.

A database on which the migration with the tags has not run is read as one without tags; writing to it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, StoreUnavailableError

#: A decider's name, in characters.
MAX_NAME = 200


#: Every table of this room: one that lacks any of them is read as having none.
_TABLES = ("ros_tags", "ros_tag_taxonomy", "ros_tag_decisions", "ros_tag_rule_marks", "ros_tag_extractions")


def installed(connection: Connection) -> bool:
    """Whether the store has all of the tags' tables. Asked each time: a "no" must not outlive the migration."""
    row = connection.execute(
        "SELECT bool_and(to_regclass(name) IS NOT NULL) AS found FROM unnest(%s::text[]) AS t (name)", [list(_TABLES)]
    ).fetchone()
    return bool(row and row["found"])


def require_tables(connection: Connection) -> None:
    """Raises `StoreUnavailableError` when tagging is not installed in this store."""
    if not installed(connection):
        raise StoreUnavailableError(
            "tagging is not installed: the store lacks its tables. Start `rivet up` (or `rivet serve`) once with this "
            "version, which sets them up."
        )


def decider(name: str) -> str:
    """Who decides, as it is stored. Raises `InvalidInputError` for a blank name or a very long one."""
    plain = " ".join(name.replace("\x00", "").split())
    if not 0 < len(plain) <= MAX_NAME:
        raise InvalidInputError("decided_by", f"must name who decides, in at most {MAX_NAME} characters")
    return plain


def write_lock(connection: Connection, keys: Iterable[str]) -> None:
    """Keeps values of these keys from being merged until the caller's transaction ends."""
    for key in sorted(set(keys)):
        connection.execute("SELECT pg_advisory_xact_lock_shared(ros_tag_lock(%s))", [key])


def merge_lock(connection: Connection, keys: Iterable[str]) -> None:
    """Keeps others from writing or merging literals of these keys until the caller's transaction ends."""
    for key in sorted(set(keys)):
        connection.execute("SELECT pg_advisory_xact_lock(ros_tag_lock(%s))", [key])


@cache
def statement(name: str) -> str:
    """The text of a `.sql` file of this room."""
    return (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
