"""Takes parts of redacted secrets out of tags, the vocabulary and what was decided of them.

The whole secret is the redaction's own work (`transcripts/`). Here are the names that a tagger made of its words:
`topic:key-12` of `KEY-12-QUAY`. A part that the redacted session still says is no secret's and stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.summaries.secret_parts import Parts, as_said
from rivet_pipeline.tags.tables import installed
from rivet_pipeline.transcripts.redact_rules import RuleName
from rivet_pipeline.transcripts.redact_stored import RedactionReport
from rivet_pipeline.transcripts.redaction import MARK


def follow_redaction(connection: Connection, report: RedactionReport, rule: RuleName, os_user: str) -> int:
    """Takes parts of secrets out of the tags of redacted sessions, in one transaction.

    A suggestion that nobody has decided about is deleted. What was decided keeps its decision, and has a placeholder
    for the part; where its place is taken by then, it is deleted too.

    Args:
        connection: The store.
        report: What the redaction has done; its `taken` names the secrets.
        rule: How they were named, and
        os_user: who redacts, for the log.

    Returns:
        How many tags and values of the vocabulary have changed or are gone.
    """
    if not report.taken or not installed(connection):
        return 0
    with connection.transaction():
        run = _Run(connection, Parts(report.taken), (report.run_id, rule, os_user))
        for conversation, said in _redacted(connection):
            run.session(conversation, said)
        run.vocabulary()
    return run.changed


def _redacted(connection: Connection) -> list[tuple[UUID, str]]:
    """The tagged sessions out of which something was taken, and what they still say."""
    rows = connection.execute(
        """
        WITH told AS (
            SELECT c.id, c.title || ' ' || coalesce(c.settings::text, '') AS head,
                   (SELECT string_agg(s.content, E'\n') FROM ros_summaries AS s WHERE s.conversation_id = c.id) AS body
            FROM ros_conversations AS c WHERE EXISTS (SELECT 1 FROM ros_tags AS t WHERE t.conversation_id = c.id)
        )
        SELECT id, head, body FROM told WHERE strpos(head, %(mark)s) > 0 OR strpos(body, %(mark)s) > 0 ORDER BY id
        """,
        {"mark": MARK},
    ).fetchall()
    return [(row["id"], as_said([row["head"], row["body"]])) for row in rows]


@dataclass(frozen=True, slots=True)
class _Part:
    """A literal that holds a part, and how it is shown without it."""

    key: str
    value: str
    shown: str


class _Run:
    """One follow-up over one connection."""

    def __init__(self, connection: Connection, parts: Parts, signed: tuple[UUID, RuleName, str]) -> None:
        self.changed = 0
        self._connection = connection
        self._parts = parts
        self._signed = signed
        self._found: dict[tuple[str, str], _Part] = {}

    def session(self, conversation: UUID, said: str) -> None:
        """The tags of one session and of its summaries."""
        for row in self._connection.execute(
            "SELECT * FROM ros_tags WHERE conversation_id = %s ORDER BY created_at, id FOR UPDATE", [conversation]
        ).fetchall():
            if self._parts.hold(f"{row['tag_value']} {row['display']}", said):
                self._take(row, said)
            else:
                self._reasons(row, said)

    def _take(self, row: dict[str, Any], said: str) -> None:
        shown = self._parts.without(row["display"] or row["tag_value"], said)
        if MARK not in shown:
            shown = self._parts.without(row["tag_value"], said)
        part = _Part(row["tag_key"], row["tag_value"], shown[:200])
        self._found[part.key, part.value] = part
        if row["status"] == "suggested" or self._taken_place(row, shown):
            self._connection.execute("DELETE FROM ros_tags WHERE id = %s", [row["id"]])
        else:
            # A trigger makes the value of the shown form.
            self._connection.execute("UPDATE ros_tags SET display = %s WHERE id = %s", [part.shown, row["id"]])
            self._reasons(row, said)
        self._decisions(row["id"], part.shown)
        self._log("ros_tags", str(row["id"]))

    def _taken_place(self, row: dict[str, Any], shown: str) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM ros_tags WHERE entity_kind = %s AND entity_id = %s AND tag_key = %s "
            "AND tag_value = ros_tag_text(%s, 128) AND id <> %s",
            [row["entity_kind"], row["entity_id"], row["tag_key"], shown, row["id"]],
        ).fetchone()
        return found is not None

    def _reasons(self, row: dict[str, Any], said: str) -> None:
        """Why a tag was given, in words of a model's or a person's."""
        reason = self._parts.without(row["reason"], said)[:400]
        removal = self._parts.without(row["removal_reason"], said)[:400]
        if (reason, removal) != (row["reason"], row["removal_reason"]):
            self._connection.execute(
                "UPDATE ros_tags SET reason = %s, removal_reason = %s WHERE id = %s", [reason, removal, row["id"]]
            )
            self._log("ros_tags", str(row["id"]))

    def vocabulary(self) -> None:
        """The values of the vocabulary that only those tags had."""
        for part in self._found.values():
            row = self._connection.execute(
                """
                SELECT id, status, EXISTS (
                           SELECT 1 FROM ros_tag_taxonomy AS o
                           WHERE o.tag_key = v.tag_key AND o.tag_value = ros_tag_text(%s, 128)) AS taken
                FROM ros_tag_taxonomy AS v
                WHERE tag_key = %s AND tag_value = %s AND NOT EXISTS (
                    SELECT 1 FROM ros_tags AS t WHERE t.tag_key = v.tag_key AND t.tag_value = v.tag_value)
                FOR UPDATE
                """,
                [part.shown, part.key, part.value],
            ).fetchone()
            if row is None:
                continue
            if row["status"] == "suggested" or row["taken"]:
                self._connection.execute("DELETE FROM ros_tag_taxonomy WHERE id = %s", [row["id"]])
            else:
                self._connection.execute(
                    "UPDATE ros_tag_taxonomy SET display = %s WHERE id = %s", [part.shown, row["id"]]
                )
            self._decisions(row["id"], part.shown)
            self._log("ros_tag_taxonomy", str(row["id"]))

    def _decisions(self, row_id: UUID, shown: str) -> None:
        """The rows that the log keeps of it. A trigger makes their values of the shown form."""
        statement: LiteralString = """
            UPDATE ros_tag_decisions SET before = before || %(shown)s, after = after || %(shown)s WHERE row_id = %(id)s
        """
        self._connection.execute(statement, {"shown": Jsonb({"display": shown}), "id": row_id})

    def _log(self, table: str, key: str) -> None:
        self.changed += 1
        self._connection.execute(
            "INSERT INTO ros_redactions (run_id, rule, os_user, counts, table_name, row_key) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            [*self._signed, Jsonb({"part": 1}), table, key],
        )
