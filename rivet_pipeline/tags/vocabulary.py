"""The vocabulary: which values a key has, which of them people want, and which mean the same.

Merging re-points every tag of a value and leaves the value behind as an alias; aliases are never chained. Every change
is logged and can be undone (see `log.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.tags.literals import MAX_VALUE, Literal, display_of, read_pair, tag_text
from rivet_pipeline.tags.log import Recorder
from rivet_pipeline.tags.tables import decider, installed, merge_lock, require_tables, statement
from rivet_pipeline.tags.types import Decided, ItemResult, Merged, Status, Value

#: The most values of one listing, and of one decision.
MAX_VALUES, MAX_ENTRIES = 5000, 500

MAX_DESCRIPTION = 1000

_COLUMNS = """tag_key AS key, tag_value AS value, display, status, alias_of, description, source, proposed_by,
decided_by, decided_at, created_at, revision"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and what is decided of it. `seen`: the revision that the decision rests on."""

    literal: Literal
    status: Status
    seen: int | None = None


def list_values(
    connection: Connection, *, key: str | None = None, statuses: Sequence[Status] | None = None, limit: int = 500
) -> list[Value]:
    """The vocabulary: what stands in the taxonomy, and what is in use as an accepted tag without standing there.

    The most used first. Empty on a store without the tables.
    """
    if not installed(connection):
        return []
    rows = connection.execute(
        statement("select_values"),
        {"key": key, "statuses": None if statuses is None else list(statuses), "limit": min(limit, MAX_VALUES)},
    ).fetchall()
    return [Value(**row) for row in rows]


def find_pair(connection: Connection, key: str, value: str, *, field: str = "value") -> Literal:
    """A key and a value that somebody gave apart, as `read_pair` reads them.

    A value that is stored as it is given is meant itself, also where it begins with its key: listings give it so. Not
    for what others are merged into, where a key before the value is only a key. Raises `InvalidInputError` as
    `read_pair` does.
    """
    read = read_pair(key, value, field=field)
    exact = Literal(read.key, tag_text(value, MAX_VALUE + 1))
    return exact if exact != read and installed(connection) and _is_known(connection, exact) else read


def accepted_vocabulary(connection: Connection, *, limit: int) -> list[Literal]:
    """What a tagger is offered: accepted values of the taxonomy, then accepted tags in use, the most used first."""
    rows = connection.execute(statement("select_vocabulary"), {"limit": limit}).fetchall()
    return [Literal(row["tag_key"], row["tag_value"]) for row in rows]


def upsert_value(
    connection: Connection,
    literal: Literal,
    *,
    by: str,
    display: str | None = None,
    description: str | None = None,
    status: Status | None = None,
) -> Value:
    """Puts a value into the vocabulary, or changes what is said of it; None leaves that as it is.

    Without a status what a person has decided of a value stays when it is described; every other one is accepted. With
    a rejected one what was suggested of it is rejected too.

    Raises `InvalidInputError` for an alias (change what it was merged into) and for a description that is too long.
    """
    require_tables(connection)
    name = decider(by)
    if description is not None and len(description) > MAX_DESCRIPTION:
        raise InvalidInputError("description", f"is longer than {MAX_DESCRIPTION} characters")
    with connection.transaction():
        merge_lock(connection, [literal.key])
        recorder = Recorder(connection, "value", name)
        found = _ensure(connection, recorder, literal, name)
        if found["alias_of"] is not None:
            raise InvalidInputError("value", f"{literal} was merged into {found['alias_of']}; change that one")
        described = display is not None or description is not None
        if status is None and not (described and found["decided_by"]):
            status = "accepted"
        connection.execute(
            """
            UPDATE ros_tag_taxonomy
            SET display = coalesce(%(display)s, display), description = coalesce(%(description)s, description),
                status = coalesce(%(status)s::text, status),
                decided_by = CASE WHEN %(status)s::text IS NULL THEN decided_by ELSE %(by)s END,
                decided_at = CASE WHEN %(status)s::text IS NULL THEN decided_at ELSE now() END
            WHERE id = %(id)s
              AND ((display, description, status) IS DISTINCT FROM
                   (coalesce(%(display)s, display), coalesce(%(description)s, description),
                    coalesce(%(status)s::text, status))
                   OR (%(status)s::text IS NOT NULL AND decided_by IS NULL))
            """,
            {
                "id": found["id"],
                "display": None if display is None else display_of(display, literal.value),
                "description": None if description is None else " ".join(description.replace("\x00", "").split()),
                "status": status,
                "by": name,
            },
        )
        if status == "rejected":
            _reject_suggestions(connection, recorder, literal, name)
        recorder.write()
        return _value(connection, literal)


def decide_values(connection: Connection, entries: Sequence[Entry], *, by: str) -> Decided:
    """Accepts or rejects values. A rejected one is not proposed any more, and what was suggested of it is rejected too.

    What was accepted of it stays: a tag is decided about by itself. Each entry has a result of its own; `conflict` when
    it rests on another revision, or overturns a decision without having seen it.
    """
    require_tables(connection)
    name = decider(by)
    if len(entries) > MAX_ENTRIES:
        raise InvalidInputError("entries", f"are more than {MAX_ENTRIES}; send them in parts")
    with connection.transaction():
        merge_lock(connection, {entry.literal.key for entry in entries})
        recorder = Recorder(connection, "value", name)
        results = [_decide_value(connection, recorder, entry, name) for entry in entries]
        decision = recorder.write()
    return Decided(decision, results)


def _decide_value(connection: Connection, recorder: Recorder, entry: Entry, by: str) -> ItemResult:
    row = _find(connection, recorder, entry.literal)
    if row is None:
        return ItemResult(None, "missing", problem=f"{entry.literal} is not in the vocabulary")
    if row["alias_of"] is not None:
        return ItemResult(row["id"], "invalid", problem=f"{entry.literal} was merged into {row['alias_of']}")
    if row["status"] == entry.status and row["decided_by"] is not None:
        return ItemResult(row["id"], "unchanged")
    seen = entry.seen == row["revision"] if entry.seen is not None else row["decided_by"] is None
    if not seen:
        return ItemResult(
            row["id"], "conflict", problem=f"{entry.literal} is {row['status']}, revision {row['revision']}; look again"
        )
    connection.execute(
        "UPDATE ros_tag_taxonomy SET status = %s, decided_by = %s, decided_at = now() WHERE id = %s",
        [entry.status, by, row["id"]],
    )
    if entry.status == "rejected":
        _reject_suggestions(connection, recorder, entry.literal, by)
    return ItemResult(row["id"], "changed")


def _reject_suggestions(connection: Connection, recorder: Recorder, literal: Literal, by: str) -> None:
    rows = connection.execute(
        "SELECT id FROM ros_tags WHERE tag_key = %s AND tag_value = %s AND status = 'suggested'",
        [literal.key, literal.value],
    ).fetchall()
    recorder.note("tag", [row["id"] for row in rows])
    connection.execute(
        "UPDATE ros_tags SET status = 'rejected', decided_by = %s, decided_at = now() "
        "WHERE id = ANY(%s) AND status = 'suggested'",
        [by, [row["id"] for row in rows]],
    )


def merge_values(connection: Connection, key: str, value: str, into: str, *, by: str) -> Merged:
    """Makes a value an alias of another one of the same key and re-points its tags.

    Where an entity has both, the firmer decision survives: an accepted reviewed tag before an accepted one of the rule,
    that before a rejected one, that before a suggested one. Aliases of `value` follow it. Raises `InvalidInputError`
    when both are the same, when `into` means `value` already (a cycle) or was rejected, and when `value` is an alias of
    another one; `NotFoundError` when nothing is known of `value`.
    """
    require_tables(connection)
    name = decider(by)
    source = Literal(key, value)
    with connection.transaction():
        merge_lock(connection, [key])
        recorder = Recorder(connection, "merge", name)
        target = _target(connection, source, Literal(key, into))
        if not _is_known(connection, source):
            raise NotFoundError(f"there is no tag or value {source}; `rivet tags values` lists the vocabulary.")
        _refuse_other_key(connection, target)
        into_row = _ensure(connection, recorder, target, name)
        if into_row["status"] == "rejected":
            raise InvalidInputError("into", f"{target} was rejected; accept it before merging into it")
        if into_row["status"] == "suggested":
            connection.execute(
                "UPDATE ros_tag_taxonomy SET status = 'accepted', decided_by = %s, decided_at = now() WHERE id = %s",
                [name, into_row["id"]],
            )
        _make_alias(connection, recorder, source, target, name)
        moved, dropped = _repoint(connection, recorder, source, target)
        decision = recorder.write()
    return Merged(decision, key, source.value, target.value, moved, dropped)


def _target(connection: Connection, source: Literal, into: Literal) -> Literal:
    """What is merged into: `into` itself, or what it means."""
    row = connection.execute("SELECT ros_tag_target(%s, %s) AS value", [into.key, into.value]).fetchone()
    assert row is not None
    target = Literal(into.key, row["value"])
    if into == source:
        raise InvalidInputError("into", f"is {source} itself")
    if target == source:
        raise InvalidInputError("into", f"{into} is an alias of {source} already; merging would go round in a circle")
    row = connection.execute("SELECT ros_tag_target(%s, %s) AS value", [source.key, source.value]).fetchone()
    assert row is not None
    if row["value"] not in (source.value, target.value):
        # Its tags stand under the other value: the alias alone would go, and find them no more.
        raise InvalidInputError("from", f"{source} was merged into {row['value']}; merge that one, or undo that")
    return target


def _refuse_other_key(connection: Connection, target: Literal) -> None:
    """A new value that is a literal of another key in use is a slip: tags keep their key."""
    other, colon, _ = target.value.partition(":")
    if not colon or _is_known(connection, target):
        return
    row = connection.execute(
        """
        SELECT EXISTS (SELECT 1 FROM ros_tags WHERE tag_key = %(key)s)
            OR EXISTS (SELECT 1 FROM ros_tag_taxonomy WHERE tag_key = %(key)s) AS known
        """,
        {"key": other},
    ).fetchone()
    if row and row["known"]:
        raise InvalidInputError("into", f"{target.value} has another key; both values must be of {target.key}")


def _is_known(connection: Connection, literal: Literal) -> bool:
    values = {"key": literal.key, "value": literal.value}
    row = connection.execute(
        """
        SELECT EXISTS (SELECT 1 FROM ros_tags WHERE tag_key = %(key)s AND tag_value = %(value)s)
            OR EXISTS (SELECT 1 FROM ros_tag_taxonomy WHERE tag_key = %(key)s AND tag_value = %(value)s) AS known
        """,
        values,
    ).fetchone()
    return bool(row and row["known"])


def _make_alias(connection: Connection, recorder: Recorder, source: Literal, target: Literal, by: str) -> None:
    alias = _ensure(connection, recorder, source, by)
    followers = connection.execute(
        "SELECT id FROM ros_tag_taxonomy WHERE tag_key = %s AND alias_of = %s", [source.key, source.value]
    ).fetchall()
    ids = [alias["id"], *(row["id"] for row in followers)]
    recorder.note("value", ids)
    connection.execute(
        """
        UPDATE ros_tag_taxonomy SET alias_of = %(into)s, status = 'accepted', decided_by = %(by)s, decided_at = now()
        WHERE id = ANY(%(ids)s) AND alias_of IS DISTINCT FROM %(into)s
        """,
        {"into": target.value, "by": by, "ids": ids},
    )


def _repoint(connection: Connection, recorder: Recorder, source: Literal, target: Literal) -> tuple[int, int]:
    """Moves the tags of one value to another; returns how many were moved and how many gave way."""
    values: dict[str, Any] = {"key": source.key, "from": source.value, "into": target.value}
    rows = connection.execute(
        """
        SELECT id FROM ros_tags WHERE tag_key = %(key)s AND tag_value = %(from)s
        UNION ALL
        SELECT t.id FROM ros_tags AS t JOIN ros_tags AS f
            ON f.entity_kind = t.entity_kind AND f.entity_id = t.entity_id AND f.tag_key = t.tag_key
           AND f.tag_value = %(from)s
        WHERE t.tag_key = %(key)s AND t.tag_value = %(into)s
        """,
        values,
    ).fetchall()
    recorder.note("tag", [row["id"] for row in rows])
    dropped = connection.execute(statement("drop_weaker"), values).rowcount
    moved = connection.execute(
        "UPDATE ros_tags SET tag_value = %(into)s, display = '' WHERE tag_key = %(key)s AND tag_value = %(from)s",
        values,
    ).rowcount
    return moved, dropped


def _find(connection: Connection, recorder: Recorder, literal: Literal) -> dict[str, Any] | None:
    row = connection.execute(
        "SELECT id FROM ros_tag_taxonomy WHERE tag_key = %s AND tag_value = %s", [literal.key, literal.value]
    ).fetchone()
    if row is None:
        return None
    recorder.note("value", [row["id"]])
    return connection.execute("SELECT * FROM ros_tag_taxonomy WHERE id = %s", [row["id"]]).fetchone()


def _ensure(connection: Connection, recorder: Recorder, literal: Literal, by: str) -> dict[str, Any]:
    """The value's row; one that is not there is made, accepted by whoever decides."""
    found = _find(connection, recorder, literal)
    if found is not None:
        return found
    row = connection.execute(
        """
        INSERT INTO ros_tag_taxonomy (tag_key, tag_value, status, source, proposed_by, decided_by, decided_at)
        VALUES (%s, %s, 'accepted', 'person', %s, %s, now()) RETURNING *
        """,
        [literal.key, literal.value, by, by],
    ).fetchone()
    assert row is not None
    identity: UUID = row["id"]
    recorder.note("value", [identity], new=True)
    return row


def _value(connection: Connection, literal: Literal) -> Value:
    row = connection.execute(
        f"""
        SELECT {_COLUMNS}, (SELECT count(DISTINCT conversation_id) FROM ros_tags AS t
                            WHERE t.status = 'accepted' AND t.tag_key = v.tag_key AND t.tag_value = v.tag_value) AS uses
        FROM ros_tag_taxonomy AS v WHERE tag_key = %s AND tag_value = %s
        """.encode(),  # noqa: S608 - the columns are ours
        [literal.key, literal.value],
    ).fetchone()
    assert row is not None
    return Value(**row)
