"""The log of decisions: what each one changed, by whom and when, and the way back.

A decision is recorded as the rows before and after it. Undoing puts the former rows back, all of them or none: when
somebody has decided on top of it, that is said instead. What they become is worked out in `restore.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import ConflictError, NotFoundError
from rivet_pipeline.tags.restore import alias_faults, former_rows, refuse_faults
from rivet_pipeline.tags.tables import decider, installed, merge_lock, require_tables
from rivet_pipeline.tags.types import LogEntry

Action = Literal["decide", "add", "suggest_removal", "value", "merge", "undo"]
Subject = Literal["tag", "value"]

_TABLES: dict[Subject, str] = {"tag": "ros_tags", "value": "ros_tag_taxonomy"}


class Recorder:
    """Notes rows before they are changed and writes the log when they are. Lives in the caller's transaction."""

    def __init__(self, connection: Connection, action: Action, by: str, *, undoes: UUID | None = None) -> None:
        self.decision = uuid4()
        self._connection = connection
        self._action = action
        self._by = by
        self._undoes = undoes
        self._before: dict[tuple[Subject, UUID], dict[str, Any] | None] = {}

    def note(self, subject: Subject, ids: Iterable[UUID], *, new: bool = False) -> None:
        """Locks rows, always in the same order, and remembers them. `new`: the transaction has just made them."""
        wanted = [one for one in ids if (subject, one) not in self._before]
        self._before |= {(subject, one): None for one in wanted}
        if new or not wanted:
            return
        rows = self._connection.execute(
            f"SELECT id, to_jsonb(t) AS body FROM {_TABLES[subject]} AS t WHERE id = ANY(%s) ORDER BY id FOR UPDATE".encode(),  # noqa: S608, E501 - one of two names
            [wanted],
        ).fetchall()
        self._before |= {(subject, row["id"]): row["body"] for row in rows}

    def write(self) -> UUID | None:
        """Writes what has changed of the noted rows; the decision's id, None when nothing has."""
        written = sum(self._write(subject) for subject in _TABLES)
        return self.decision if written else None

    def _write(self, subject: Subject) -> int:
        noted = [(key[1], body) for key, body in self._before.items() if key[0] == subject]
        return self._connection.execute(
            f"""
            INSERT INTO ros_tag_decisions (decision, action, subject, row_id, tag_key, tag_value, before, after,
                                           decided_by, undoes)
            SELECT %(decision)s, %(action)s, %(subject)s, n.id, coalesce(t.tag_key, n.body ->> 'tag_key'),
                   coalesce(t.tag_value, n.body ->> 'tag_value'), n.body, to_jsonb(t), %(by)s, %(undoes)s
            FROM unnest(%(ids)s::uuid[], %(bodies)s::jsonb[]) AS n (id, body)
            LEFT JOIN {_TABLES[subject]} AS t ON t.id = n.id
            WHERE n.body IS DISTINCT FROM to_jsonb(t)
            """.encode(),  # noqa: S608 - one of two names
            {
                "decision": self.decision,
                "action": self._action,
                "subject": subject,
                "by": self._by,
                "undoes": self._undoes,
                "ids": [one for one, _ in noted],
                "bodies": [None if body is None else Jsonb(body) for _, body in noted],
            },
        ).rowcount


def undo(connection: Connection, decision: UUID, *, by: str) -> LogEntry:
    """Puts back what was there before a decision, and returns the decision that this is.

    Raises:
        NotFoundError: There is no such decision.
        ConflictError: It has been undone already, or something has been decided on top of it.
    """
    require_tables(connection)
    name = decider(by)
    with connection.transaction():
        entries = _lock_entries(connection, decision)
        _refuse_done(entries, decision)
        keys = {entry["tag_key"] for entry in entries}
        merge_lock(connection, keys)
        known = alias_faults(connection, keys)
        recorder = Recorder(connection, "undo", name, undoes=decision)
        for subject in _TABLES:
            _put_back(connection, recorder, subject, [entry for entry in entries if entry["subject"] == subject])
        refuse_faults(alias_faults(connection, keys) - known)
        if recorder.write() is None:
            raise ConflictError(f"nothing is left of decision {decision} to undo: what it was about is gone.")
        _mark(connection, decision, recorder.decision, entries[0]["undoes"])
    return _entries(connection, decision=recorder.decision, limit=1)[0]


def read_log(connection: Connection, *, limit: int = 50, tag_id: UUID | None = None) -> list[LogEntry]:
    """The latest decisions, newest first; with `tag_id` those that changed this tag."""
    return _entries(connection, row_id=tag_id, limit=limit) if installed(connection) else []


def _lock_entries(connection: Connection, decision: UUID) -> list[dict[str, Any]]:
    entries = connection.execute(
        """
        SELECT subject, row_id, tag_key, tag_value, before, after, undone_by, undoes
        FROM ros_tag_decisions WHERE decision = %s ORDER BY id FOR UPDATE
        """,
        [decision],
    ).fetchall()
    if not entries:
        raise NotFoundError(f"there is no decision {decision}; `rivet tags log` lists them.")
    return entries


def _refuse_done(entries: Sequence[dict[str, Any]], decision: UUID) -> None:
    undone = entries[0]["undone_by"]
    if undone is not None:
        raise ConflictError(f"decision {decision} was undone already, by decision {undone}.")


def _put_back(connection: Connection, recorder: Recorder, subject: Subject, entries: Sequence[dict[str, Any]]) -> None:
    """Puts the former rows of one table back: first all that is there goes, so that none stands in another's way."""
    ids = [entry["row_id"] for entry in entries]
    recorder.note(subject, ids)
    table = _TABLES[subject]
    rows = connection.execute(
        f"SELECT id, to_jsonb(t) AS body FROM {table} AS t WHERE id = ANY(%s)".encode(),  # noqa: S608 - one of two names
        [ids],
    ).fetchall()
    bodies = former_rows(connection, entries, {row["id"]: row["body"] for row in rows})
    connection.execute(f"DELETE FROM {table} WHERE id = ANY(%s)".encode(), [ids])  # noqa: S608 - one of two names
    try:
        with connection.transaction():
            connection.execute(
                f"""
                INSERT INTO {table}
                SELECT r.* FROM unnest(%s::jsonb[]) AS b (body), jsonb_populate_record(NULL::{table}, b.body) AS r
                """.encode(),  # noqa: S608 - one of two names
                [[Jsonb(body) for body in bodies]],
            )
    except psycopg.errors.UniqueViolation as error:
        raise ConflictError("the same tag has been written again since; decide about that one.") from error


def _mark(connection: Connection, undone: UUID, undoing: UUID, undone_before: UUID | None) -> None:
    connection.execute("UPDATE ros_tag_decisions SET undone_by = %s WHERE decision = %s", [undoing, undone])
    if undone_before is not None:
        # What had been undone stands again.
        connection.execute("UPDATE ros_tag_decisions SET undone_by = NULL WHERE decision = %s", [undone_before])


def _entries(
    connection: Connection, *, limit: int, decision: UUID | None = None, row_id: UUID | None = None
) -> list[LogEntry]:
    rows = connection.execute(
        """
        SELECT decision, min(action) AS action, min(decided_by) AS decided_by, min(decided_at) AS decided_at,
               count(*) AS rows, (array_agg(DISTINCT tag_key || ':' || tag_value))[1:10] AS literals,
               (array_agg(undone_by))[1] AS undone_by, (array_agg(undoes))[1] AS undoes
        FROM ros_tag_decisions
        WHERE (%(decision)s::uuid IS NULL OR decision = %(decision)s::uuid)
          AND (%(row)s::uuid IS NULL
               OR decision IN (SELECT d.decision FROM ros_tag_decisions AS d WHERE d.row_id = %(row)s::uuid))
        GROUP BY decision ORDER BY max(id) DESC LIMIT %(limit)s
        """,
        {"decision": decision, "row": row_id, "limit": limit},
    ).fetchall()
    return [LogEntry(**row) for row in rows]
