"""What people do with tags: accept, reject, add, have one taken off. Each change is logged and can be undone.

A decision says what it saw: the `revision` of the row. One that rests on something else answers a conflict, item by
item, and so does one that would overturn another person's decision without having seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.tags.literals import Literal, display_of
from rivet_pipeline.tags.log import Recorder
from rivet_pipeline.tags.read import COLUMNS
from rivet_pipeline.tags.tables import decider, require_tables, write_lock
from rivet_pipeline.tags.types import Decided, Decision, EntityKind, ItemResult, Outcome, Tag

#: The most items of one decision.
MAX_ITEMS = 1000

#: Characters of a session key's beginning that may stand for it.
_SHORTEST_BEGINNING = 8

_READ = f"SELECT {COLUMNS} FROM ros_tags WHERE id = ANY(%s)"  # noqa: S608 - the columns are ours


@dataclass(frozen=True, slots=True)
class Item:
    """One tag and what is decided of it. `seen`: the revision that the decision rests on."""

    id: UUID
    decision: Decision
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What comes of one item: an outcome, and the columns that change with it."""

    outcome: Outcome
    problem: str = ""
    status: str | None = None
    removal: str | None = None
    signed: bool = True


def decide(connection: Connection, items: Sequence[Item], *, by: str) -> Decided:
    """Decides about up to 1000 tags in one transaction; each item has a result of its own.

    An item without `seen` may decide what nobody has decided before; to overturn a decision it must say what it saw.
    Raises `InvalidInputError` for too many items or a blank name, `StoreUnavailableError` without the tables.
    """
    require_tables(connection)
    name = decider(by)
    if len(items) > MAX_ITEMS:
        raise InvalidInputError("items", f"are more than {MAX_ITEMS}; send them in parts")
    with connection.transaction():
        recorder = Recorder(connection, "decide", name)
        recorder.note("tag", {item.id for item in items})
        tags = _read(connection, [item.id for item in items])
        results = []
        for item in items:
            verdict = _judge(tags.get(item.id), item)
            if verdict.outcome == "changed":
                tags[item.id] = _apply(connection, item.id, verdict, name)
            results.append(ItemResult(item.id, verdict.outcome, tags.get(item.id), verdict.problem))
        decision = recorder.write()
    return Decided(decision, results)


def _judge(tag: Tag | None, item: Item) -> _Verdict:
    if tag is None:
        return _Verdict("missing", "there is no such tag")
    if item.decision in ("removed", "kept"):
        verdict = _judge_removal(tag, item.decision)
    else:
        settled = tag.status == item.decision and tag.reviewed
        verdict = _Verdict("unchanged") if settled else _Verdict("changed", status=item.decision)
    if verdict.outcome != "changed":
        return verdict
    if item.seen is not None:
        return verdict if item.seen == tag.revision else _Verdict("conflict", f"it has changed since: {_state(tag)}")
    if tag.reviewed and item.decision in ("accepted", "rejected"):
        return _Verdict(
            "conflict", f"it was decided already: {_state(tag)}; say the revision that you saw to overturn that"
        )
    return verdict


def _judge_removal(tag: Tag, decision: Decision) -> _Verdict:
    if tag.removal == "suggested":
        if decision == "removed":
            return _Verdict("changed", status="rejected")
        return _Verdict("changed", status=tag.status, removal="refused", signed=False)
    if tag.removal == "refused" and decision == "kept":
        return _Verdict("unchanged")
    if tag.status == "rejected" and decision == "removed":
        return _Verdict("unchanged")
    return _Verdict("invalid", "nobody has suggested that it be taken off; accept or reject it instead")


def _state(tag: Tag) -> str:
    who = f" by {tag.decided_by}" if tag.decided_by else ""
    return f"{tag.literal} is {tag.status}{who}, revision {tag.revision}"


def _apply(connection: Connection, tag_id: UUID, verdict: _Verdict, name: str) -> Tag:
    row = connection.execute(
        f"""
        UPDATE ros_tags
        SET status = %(status)s, removal = %(removal)s,
            removal_reason = CASE WHEN %(removal)s::text IS NULL THEN '' ELSE removal_reason END,
            decided_by = CASE WHEN %(signed)s THEN %(by)s ELSE decided_by END,
            decided_at = CASE WHEN %(signed)s THEN now() ELSE decided_at END
        WHERE id = %(id)s RETURNING {COLUMNS}
        """.encode(),  # noqa: S608 - the columns are ours
        {
            "id": tag_id,
            "status": verdict.status,
            "removal": verdict.removal,
            "signed": verdict.signed,
            "by": name,
        },
    ).fetchone()
    assert row is not None
    return Tag(**row)


def add_tag(
    connection: Connection,
    entity_kind: EntityKind,
    entity_id: UUID,
    literal: Literal,
    *,
    by: str,
    display: str = "",
) -> Decided:
    """Gives a conversation or a summary a tag, accepted by a person. A merged value is replaced by what it means now.

    A tag that was suggested, rejected or written by the rule is accepted with this. Raises `NotFoundError` for an
    entity that there is not, else as `decide` does.
    """
    require_tables(connection)
    name = decider(by)
    with connection.transaction():
        conversation_id = _conversation_of(connection, entity_kind, entity_id)
        write_lock(connection, [literal.key])
        recorder = Recorder(connection, "add", name)
        tag_id, is_new = _insert(connection, entity_kind, entity_id, conversation_id, literal, name, display)
        recorder.note("tag", [tag_id], new=is_new)
        tag = _read(connection, [tag_id])[tag_id]
        outcome: Outcome = "changed" if is_new else "unchanged"
        if not (tag.status == "accepted" and tag.reviewed):
            tag, outcome = _apply(connection, tag_id, _Verdict("changed", status="accepted"), name), "changed"
        decision = recorder.write()
    return Decided(decision, [ItemResult(tag_id, outcome, tag)])


def find_conversation(
    connection: Connection, session_key: str, agent: str | None = None, *, by_beginning: bool = False
) -> UUID:
    """The conversation of a session key. Raises `NotFoundError`, or `InvalidInputError` when several agents have it.

    Args:
        connection: The store.
        session_key: The key.
        agent: Whose session, where several agents have one of this key.
        by_beginning: The key's beginning does, too, where it is that of one session: what a person types. Reads every
            session when no key is exactly this one.
    """
    values = {"key": session_key.replace("\x00", ""), "agent": agent}
    rows = connection.execute(
        """
        SELECT id, agent FROM ros_conversations
        WHERE session_hash = md5(%(key)s)::uuid AND (%(agent)s::text IS NULL OR agent = %(agent)s::text) ORDER BY agent
        """,
        values,
    ).fetchall()
    if not rows and by_beginning and len(session_key) >= _SHORTEST_BEGINNING:
        rows = connection.execute(
            """
            SELECT id, agent, session_key FROM ros_conversations
            WHERE starts_with(session_key, %(key)s) AND (%(agent)s::text IS NULL OR agent = %(agent)s::text)
            ORDER BY agent, session_key LIMIT 3
            """,
            values,
        ).fetchall()
        if len({row["session_key"] for row in rows}) > 1:
            raise InvalidInputError("--session", f"several session keys begin with {session_key[:200]!r}; give more")
    if not rows:
        raise NotFoundError(
            f"no conversation has the session key {session_key[:200]!r}; "
            "`rivet tags pending` and `rivet browse --json` show those that there are."
        )
    if len(rows) > 1:
        names = ", ".join(row["agent"] for row in rows)
        raise InvalidInputError("agent", f"is needed: several agents have this session key: {names}")
    found: UUID = rows[0]["id"]
    return found


def decide_literal(
    connection: Connection,
    conversation_id: UUID,
    literal: Literal,
    decision: Decision,
    *,
    by: str,
    overturn: bool = False,
) -> Decided:
    """Decides a literal of a session wherever it stands there: on the session itself and on its summaries.

    Rows that a person has decided otherwise answer a conflict, as in `decide`; with `overturn` they are decided anew,
    as they stand there when this begins. Raises `NotFoundError` when the session has no such tag, else as `decide`.
    """
    require_tables(connection)
    rows = connection.execute(
        """
        SELECT id, revision FROM ros_tags
        WHERE conversation_id = %(conversation)s AND tag_key = %(key)s AND tag_value = ros_tag_target(%(key)s,
        %(value)s) AND (%(removals)s = false OR removal IS NOT NULL)
        ORDER BY entity_kind, id
        """,
        {
            "conversation": conversation_id,
            "key": literal.key,
            "value": literal.value,
            "removals": decision in ("removed", "kept"),
        },
    ).fetchall()
    if not rows:
        raise NotFoundError(f"the session has no tag {literal} to decide about; `rivet tags pending` lists what waits.")
    items = [Item(row["id"], decision, seen=row["revision"] if overturn else None) for row in rows]
    return decide(connection, items, by=by)


def suggest_removal(connection: Connection, tag_id: UUID, *, by: str, reason: str = "") -> Decided:
    """Suggests that an accepted tag be taken off again; a person decides. What a person has refused is not asked again.

    Raises as `decide` does.
    """
    require_tables(connection)
    name = decider(by)
    with connection.transaction():
        recorder = Recorder(connection, "suggest_removal", name)
        recorder.note("tag", [tag_id])
        tag = _read(connection, [tag_id]).get(tag_id)
        outcome, problem = _may_suggest_removal(tag)
        if outcome == "changed":
            connection.execute(
                "UPDATE ros_tags SET removal = 'suggested', removal_reason = %s WHERE id = %s",
                [" ".join(reason.replace("\x00", "").split())[:400], tag_id],
            )
            tag = _read(connection, [tag_id])[tag_id]
        decision = recorder.write()
    return Decided(decision, [ItemResult(tag_id, outcome, tag, problem)])


def _may_suggest_removal(tag: Tag | None) -> tuple[Outcome, str]:
    if tag is None:
        return "missing", "there is no such tag"
    if tag.removal == "suggested":
        return "unchanged", ""
    if tag.removal == "refused":
        return "invalid", "its removal was refused before; reject the tag instead"
    if tag.status != "accepted":
        return "invalid", f"it is {tag.status}; only an accepted tag can be taken off"
    return "changed", ""


def _read(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Tag]:
    rows = connection.execute(_READ.encode(), [list(ids)]).fetchall()
    return {row["id"]: Tag(**row) for row in rows}


def _conversation_of(connection: Connection, kind: EntityKind, entity_id: UUID) -> UUID:
    query = {
        "conversation": "SELECT id FROM ros_conversations WHERE id = %s",
        "summary": "SELECT conversation_id AS id FROM ros_summaries WHERE id = %s",
    }[kind]
    row = connection.execute(query.encode(), [entity_id]).fetchone()
    if row is None:
        raise NotFoundError(f"there is no {kind} {entity_id}; search and browse give the ids.")
    found: UUID = row["id"]
    return found


def _insert(
    connection: Connection,
    kind: EntityKind,
    entity_id: UUID,
    conversation_id: UUID,
    literal: Literal,
    by: str,
    display: str,
) -> tuple[UUID, bool]:
    """The id of the entity's tag with this literal, and whether it has just been made."""
    values: dict[str, Any] = {
        "kind": kind,
        "entity": entity_id,
        "conversation": conversation_id,
        "key": literal.key,
        "value": literal.value,
        "display": display_of(display, literal.value),
        "by": by,
    }
    row = connection.execute(
        """
        INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, display, status, source,
                              confidence, proposed_by, decided_by, decided_at)
        SELECT %(kind)s, %(entity)s, %(conversation)s, %(key)s, target,
               CASE WHEN target = %(value)s THEN %(display)s ELSE '' END, 'accepted', 'person', 1, %(by)s, %(by)s, now()
        FROM ros_tag_target(%(key)s, %(value)s) AS target
        ON CONFLICT (entity_kind, entity_id, tag_key, tag_value) DO NOTHING RETURNING id
        """,
        values,
    ).fetchone()
    if row is not None:
        return row["id"], True
    row = connection.execute(
        """
        SELECT id FROM ros_tags WHERE entity_kind = %(kind)s AND entity_id = %(entity)s AND tag_key = %(key)s
          AND tag_value = ros_tag_target(%(key)s, %(value)s)
        """,
        values,
    ).fetchone()
    assert row is not None
    return row["id"], False
