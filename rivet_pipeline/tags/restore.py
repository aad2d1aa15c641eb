"""What an undo writes: the former rows, with what the pipeline has made of them since, and what it must not leave.

Which decision is undone, in which order, and the log of it are `log.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import ConflictError

#: A row as JSON.
Row = dict[str, Any]

#: Something that must not stand: what is wrong, the key and the value.
Fault = tuple[str, str, str]


def former_rows(connection: Connection, entries: Sequence[Row], now: Mapping[UUID, Row]) -> list[Row]:
    """The rows that stand once the entries of one decision are undone.

    What people have decided on top is a conflict, and so is what the rule has confirmed since. What else the pipeline
    has changed is kept beside what is undone, and a suggestion that it has taken back, or whose conversation or summary
    is gone, stays away.

    Args:
        connection: The store.
        entries: Rows of the log, with the row `before` and `after` the decision; None where there was, or is, none.
        now: The rows as they are, by their ids.

    Raises:
        ConflictError: Something has been decided on top.
    """
    changed = [entry["row_id"] for entry in entries if now.get(entry["row_id"]) != entry["after"]]
    decided = _last_decided(connection, changed)
    rows = []
    for entry in entries:
        there = now.get(entry["row_id"])
        if there == entry["after"]:
            is_away = there is None and entry["subject"] == "tag"
            row = _gone(connection, entry) if is_away else entry["before"]
        elif entry["subject"] == "value" or decided.get(entry["row_id"]) != entry["after"]:
            raise _conflict(entry)
        else:
            row = _gone(connection, entry) if there is None else _changed(connection, entry, there)
        if row is not None:
            rows.append(row)
    return rows


def alias_faults(connection: Connection, keys: Iterable[str]) -> set[Fault]:
    """What a merge never leaves behind in these keys, and an undo must not bring about.

    A tag whose value is an alias, an alias of an alias, and one of a value that is not in the vocabulary.
    """
    rows = connection.execute(
        """
        WITH aliases AS (
            SELECT tag_key, tag_value, alias_of FROM ros_tag_taxonomy
            WHERE alias_of IS NOT NULL AND tag_key = ANY(%(keys)s::text[])
        )
        SELECT DISTINCT 'tag' AS fault, tag_key, tag_value FROM aliases JOIN ros_tags USING (tag_key, tag_value)
        UNION ALL
        SELECT 'chain', a.tag_key, a.alias_of FROM aliases AS a JOIN aliases AS b
            ON b.tag_key = a.tag_key AND b.tag_value = a.alias_of
        UNION ALL
        SELECT 'unknown', a.tag_key, a.alias_of FROM aliases AS a LEFT JOIN ros_tag_taxonomy AS v
            ON v.tag_key = a.tag_key AND v.tag_value = a.alias_of
        WHERE v.id IS NULL
        """,
        {"keys": sorted(set(keys))},
    ).fetchall()
    return {(row["fault"], row["tag_key"], row["tag_value"]) for row in rows}


def refuse_faults(faults: set[Fault]) -> None:
    """Raises `ConflictError` for what an undo would bring about."""
    if faults:
        _, key, value = min(faults)
        raise ConflictError(f"{key}:{value} has been used or merged since; undo that first, or decide anew.")


def _last_decided(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Row | None]:
    """What the last decision about each of these rows has left."""
    if not ids:
        return {}
    rows = connection.execute(
        "SELECT DISTINCT ON (row_id) row_id, after FROM ros_tag_decisions WHERE row_id = ANY(%s) "
        "ORDER BY row_id, id DESC",
        [list(ids)],
    ).fetchall()
    return {row["row_id"]: row["after"] for row in rows}


def _gone(connection: Connection, entry: Row) -> Row | None:
    """What comes back of a tag that is not there, where it stood: what was decided, and what only the decision dropped.

    A suggestion that gave way in a merge was taken back with the one that stood for both.
    """
    before: Row | None = entry["before"]
    if before is None or (before["decided_by"] is None and entry["after"] is not None):
        return None
    found = connection.execute(
        """
        SELECT 1
        WHERE %(id)s IN (SELECT id FROM ros_conversations WHERE id = %(id)s
                         UNION ALL SELECT id FROM ros_summaries WHERE id = %(id)s)
          AND (NOT %(suggestion)s OR EXISTS (
              SELECT 1 FROM ros_tags
              WHERE entity_kind = %(kind)s AND entity_id = %(id)s AND tag_key = %(key)s
                AND tag_value = ros_tag_target(%(key)s, %(value)s)))
        """,
        {
            "id": UUID(before["entity_id"]),
            "kind": before["entity_kind"],
            "key": before["tag_key"],
            "value": before["tag_value"],
            "suggestion": before["status"] == "suggested" and before["decided_by"] is None,
        },
    ).fetchone()
    return None if found is None else before


def _changed(connection: Connection, entry: Row, there: Row) -> Row:
    """A tag as it is, with what the decision had changed as it was before."""
    before, after = entry["before"], entry["after"]
    if before is None or after is None:
        raise _conflict(entry)
    undone = {name: value for name, value in before.items() if value != after.get(name) and name != "revision"}
    # What the rule has confirmed is confirmed as what it reads now, whatever the decision was about.
    if any(there.get(name) != after.get(name) for name in {*undone, "status", "source"}):
        raise _conflict(entry)
    row = connection.execute("SELECT nextval('ros_tag_revisions') AS revision").fetchone()
    assert row is not None
    return {**there, **undone, "revision": row["revision"]}


def _conflict(entry: Row) -> ConflictError:
    return ConflictError(
        f"{entry['tag_key']}:{entry['tag_value']} has been changed since; undo that first, or decide anew."
    )
