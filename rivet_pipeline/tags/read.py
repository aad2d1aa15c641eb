"""Everything that is read of tags: rows, what waits for review, counts, the tags of sessions. Changes nothing.

"Carries a tag" means the same everywhere: accepted on the session or on any of its summaries, through the aliases of
merged values. On a store without the tags' tables every answer is empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.snippets import shorten
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.tables import installed, statement
from rivet_pipeline.tags.types import (
    Count,
    EntityKind,
    PendingSession,
    PendingTag,
    SessionTag,
    Status,
    Tag,
)

#: The most rows of each listing.
MAX_LIST, MAX_PENDING, MAX_COUNTS, MAX_SESSIONS = 1000, 500, 1000, 500

#: The longest beginning of what was said last in a session that waits, in characters; the query cuts later.
_EXCERPT = 200

COLUMNS = """id, entity_kind, entity_id, conversation_id, tag_key AS key, tag_value AS value, display, status, source,
    confidence, reason, proposed_by, pipeline_version, removal, removal_reason, decided_by, decided_at, created_at,
    revision"""


def list_tags(
    connection: Connection,
    *,
    entity_kind: EntityKind | None = None,
    entity_id: UUID | None = None,
    conversation_id: UUID | None = None,
    key: str | None = None,
    value: str | None = None,
    statuses: Sequence[Status] = ("suggested", "accepted"),
    limit: int = 200,
) -> list[Tag]:
    """Tag rows, the accepted ones first, then the newest. `key` and `value` are spelled as they are stored."""
    if not installed(connection):
        return []
    rows = connection.execute(
        f"""
        SELECT {COLUMNS} FROM ros_tags
        WHERE status = ANY(%(statuses)s)
          AND (%(kind)s::text IS NULL OR entity_kind = %(kind)s::text)
          AND (%(entity)s::uuid IS NULL OR entity_id = %(entity)s::uuid)
          AND (%(conversation)s::uuid IS NULL OR conversation_id = %(conversation)s::uuid)
          AND (%(key)s::text IS NULL OR tag_key = %(key)s::text)
          AND (%(value)s::text IS NULL OR tag_value = ros_tag_target(%(key)s::text, %(value)s::text))
        ORDER BY status = 'accepted' DESC, status = 'suggested' DESC, created_at DESC, id LIMIT %(limit)s
        """.encode(),  # noqa: S608 - the columns are ours
        {
            "statuses": list(statuses),
            "kind": entity_kind,
            "entity": entity_id,
            "conversation": conversation_id,
            "key": key,
            "value": value,
            "limit": min(limit, MAX_LIST),
        },
    ).fetchall()
    return [Tag(**row) for row in rows]


def read_pending(
    connection: Connection, *, limit: int = 50, conversation_id: UUID | None = None
) -> list[PendingSession]:
    """The sessions with something to review, those with the newest first. Each literal of a session stands once.

    What stood on a conversation or summary that is gone is left out. One more than the most that is shown may be asked
    for: it tells whether that is all.
    """
    if not installed(connection):
        return []
    sessions = connection.execute(
        statement("select_pending_sessions"),
        {"limit": min(limit, MAX_PENDING + 1), "conversation": conversation_id},
    ).fetchall()
    tags = connection.execute(
        f"""
        SELECT {COLUMNS} FROM ros_tags AS t
        WHERE (status = 'suggested' OR removal = 'suggested') AND conversation_id = ANY(%s)
          AND (entity_kind = 'conversation' OR EXISTS (SELECT 1 FROM ros_summaries AS s WHERE s.id = t.entity_id))
        ORDER BY entity_kind, confidence DESC NULLS LAST, tag_key, tag_value, id
        """.encode(),  # noqa: S608 - the columns are ours
        [[row["conversation_id"] for row in sessions]],
    ).fetchall()
    by_session: dict[UUID, list[Tag]] = defaultdict(list)
    for row in tags:
        by_session[row["conversation_id"]].append(Tag(**row))
    for row in sessions:
        row["excerpt"] = shorten(row["excerpt"], _EXCERPT)
    return [PendingSession(**row, tags=_by_literal(by_session[row["conversation_id"]])) for row in sessions]


def _by_literal(tags: Sequence[Tag]) -> list[PendingTag]:
    groups: dict[tuple[Literal, bool], list[Tag]] = defaultdict(list)
    for tag in tags:
        groups[tag.literal, tag.removal == "suggested"].append(tag)
    return [PendingTag(literal, found[0].display, removal, found) for (literal, removal), found in groups.items()]


def count_tags(connection: Connection, *, key: str | None = None, limit: int = 200) -> list[Count]:
    """How many conversations carry each tag, the most carried first; the same definition as the filter of a search."""
    if not installed(connection):
        return []
    rows = connection.execute(
        """
        SELECT tag_key AS key, tag_value AS value, max(display) AS display,
               count(DISTINCT conversation_id) AS conversations
        FROM ros_tags WHERE status = 'accepted' AND (%(key)s::text IS NULL OR tag_key = %(key)s::text)
        GROUP BY tag_key, tag_value ORDER BY conversations DESC, tag_key, tag_value LIMIT %(limit)s
        """,
        {"key": key, "limit": min(limit, MAX_COUNTS)},
    ).fetchall()
    return [Count(**row) for row in rows]


def tags_of_conversations(
    connection: Connection, conversations: Sequence[UUID], *, statuses: Sequence[Status] = ("accepted",)
) -> dict[UUID, list[SessionTag]]:
    """The tags of conversations, those of their summaries among them, each literal once with its firmest status.

    `reviewed` tells a tag that a person has added or accepted from one that only the automatic rule wrote.
    Conversations without any do not appear.
    """
    if not conversations or not installed(connection):
        return {}
    rows = connection.execute(
        statement("select_session_tags"), {"conversations": list(conversations), "statuses": list(statuses)}
    ).fetchall()
    found: dict[UUID, list[SessionTag]] = defaultdict(list)
    for row in rows:
        found[row["conversation_id"]].append(_session_tag(row))
    return dict(found)


def lookup_sessions(
    connection: Connection, session_keys: Sequence[str], *, statuses: Sequence[Status] = ("accepted",)
) -> dict[str, list[SessionTag]]:
    """The tags of sessions by their keys, all agents of a key together. Every key that was asked for appears.

    A key is found also by what stands behind its first colon: who knows a session by the harness's own id.
    """
    wanted = list(dict.fromkeys(session_keys))[:MAX_SESSIONS]
    answer: dict[str, list[SessionTag]] = {key: [] for key in wanted}
    if not wanted or not installed(connection):
        return answer
    rows = connection.execute(statement("select_sessions"), {"keys": wanted}).fetchall()
    tags = tags_of_conversations(connection, [row["id"] for row in rows], statuses=statuses)
    for row in rows:
        known = {tag.literal for tag in answer[row["asked"]]}
        answer[row["asked"]] += [tag for tag in tags.get(row["id"], []) if tag.literal not in known]
    return answer


def _session_tag(row: dict[str, Any]) -> SessionTag:
    literal = Literal(row["tag_key"], row["tag_value"])
    return SessionTag(literal, row["display"], row["status"], row["reviewed"], row["on_session"])


def oldest_pending(connection: Connection) -> datetime | None:
    """Since when the oldest suggestion waits; None when none does."""
    if not installed(connection):
        return None
    row = connection.execute(
        "SELECT min(created_at) AS oldest FROM ros_tags WHERE status = 'suggested' OR removal = 'suggested'"
    ).fetchone()
    return row["oldest"] if row else None


def pending_on(connection: Connection, days: Sequence[date]) -> dict[date, int]:
    """How many suggestions wait on the conversations that began on some days; 0 for a day without any."""
    rows = connection.execute(
        """
        SELECT c.day, count(*) AS waiting
        FROM ros_conversations AS c JOIN ros_tags AS t ON t.conversation_id = c.id
        WHERE c.day = ANY(%s) AND (t.status = 'suggested' OR t.removal = 'suggested') GROUP BY c.day
        """,
        [list(days)],
    ).fetchall()
    return dict.fromkeys(days, 0) | {row["day"]: row["waiting"] for row in rows}


def find_tag(connection: Connection, prefix: str) -> Tag:
    """The tag whose id begins so, from eight digits on. Raises `InvalidInputError` when it is not one."""
    digits = prefix.replace("-", "").lower()
    if not 8 <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        raise InvalidInputError("tag", f"{prefix[:60]!r} is no id; give at least its first eight digits, or --session")
    rows: list[dict[str, Any]] = []
    if installed(connection):
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM ros_tags WHERE id BETWEEN %s AND %s LIMIT 2".encode(),  # noqa: S608 - ours
            [UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))],
        ).fetchall()
    if len(rows) != 1:
        raise InvalidInputError("tag", f"{'several tags begin' if rows else 'no tag begins'} with {prefix[:60]}")
    return Tag(**rows[0])
