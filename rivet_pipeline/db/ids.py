"""A row by its id, or by the beginning of it that the commands print. What is done with the row is said elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError

Named = Literal["conversation", "message", "summary"]

#: Fewer digits would seldom name one row.
LEAST_DIGITS = 6

#: Rows that are named when a beginning names several of them, or none.
MOST_CANDIDATES = 5

#: So many first digits must be right of a beginning that names nothing, for rows to be offered instead.
_ALIKE = 4

_TABLES: dict[Named, str] = {"conversation": "ros_conversations", "message": "ros_messages", "summary": "ros_summaries"}


def find_id(connection: Connection, prefix: str, kinds: Sequence[Named], *, field: str) -> UUID:
    """The id of the one row of these kinds whose id is or begins with `prefix`, hyphens optional, in any case.

    Raises `InvalidInputError` for `field` when it is no beginning of an id or that of several rows, `NotFoundError`
    when no row has it; both name up to `MOST_CANDIDATES` rows.
    """
    digits = prefix.strip().replace("-", "").lower()
    if not LEAST_DIGITS <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        raise InvalidInputError(
            field, f"{prefix[:60]!r} is no id; give one, or at least its first {LEAST_DIGITS} digits"
        )
    found = _beginning(connection, digits, kinds)
    if len(found) == 1:
        return found[0][1]
    if found:
        more = ", and more" if len(found) > MOST_CANDIDATES else ""
        raise InvalidInputError(field, f"several begin with {prefix}: {_named(found)}{more}; give more digits")
    alike = _beginning(connection, digits[:_ALIKE], kinds)
    offered = f"; these are alike: {_named(alike)}" if alike else ""
    begins = "has the id" if len(digits) == 32 else "has an id that begins with"
    raise NotFoundError(f"{' and '.join(f'no {kind}' for kind in kinds)} {begins} {prefix}{offered}")


def find_conversation(connection: Connection, prefix: str, *, field: str) -> UUID:
    """The conversation that an id or its first digits name: its own, or that of a message or a summary in it.

    Raises as `find_id` does.
    """
    named = find_id(connection, prefix, ("conversation", "message", "summary"), field=field)
    row = connection.execute(
        "SELECT conversation_id FROM ros_messages WHERE id = %(id)s"
        " UNION ALL SELECT conversation_id FROM ros_summaries WHERE id = %(id)s",
        {"id": named},
    ).fetchone()
    return named if row is None else UUID(str(row["conversation_id"]))


def _beginning(connection: Connection, digits: str, kinds: Sequence[Named]) -> list[tuple[Named, UUID]]:
    """One row more than are named, so that it is known whether there are more."""
    bounds = [UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")), MOST_CANDIDATES + 1]
    found: list[tuple[Named, UUID]] = []
    for kind in kinds:
        rows = connection.execute(
            f"SELECT id FROM {_TABLES[kind]} WHERE id BETWEEN %s AND %s ORDER BY id LIMIT %s".encode(),  # noqa: S608 - ours
            bounds,
        ).fetchall()
        found += [(kind, row["id"]) for row in rows]
    return found


def _named(rows: Sequence[tuple[Named, UUID]]) -> str:
    return ", ".join(f"{kind} {identity}" for kind, identity in rows[:MOST_CANDIDATES])
