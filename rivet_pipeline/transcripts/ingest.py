"""Writes captured messages into the store: the one writer that every way in goes through.

The lock, the order of the steps and every statement stand here, so that a live hook, an import and a write tool leave
the same rows. What a row holds is decided in `ingest_rows.py`, which of them are new in `ingest_plan.py`. Reading files
and speaking HTTP do not belong here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.cleaning import clean_json
from rivet_pipeline.transcripts.ingest_plan import COMPARED, Plan, Saying, Text, make_plan, possible_clashes, wanted_ids
from rivet_pipeline.transcripts.ingest_rows import (
    NO_EXTRA,
    Clock,
    Extra,
    Row,
    clean_session,
    clean_title,
    cleaned_item,
    make_row,
    redacted_extra,
)
from rivet_pipeline.transcripts.own_traffic import REASON, begins_with_marker, mark_of, settle_mark
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult
from rivet_pipeline.transcripts.redaction import MARK, redact_item, redact_session

#: The write surface's cap on content and on tool_result, in UTF-16 code units (seed: capture metadata).
CAPTURE_CAP = 16_000

#: Up to this many items a batch is sent as a pipeline of statements, which saves waiting for each answer. The rows of a
#: larger one go by COPY, which costs less a row and can not be part of a pipeline.
_PIPELINED_ITEMS = 16


@dataclass(frozen=True, slots=True)
class _Known:
    """What a batch must know of a conversation that is there. `last_time` is None while it has no messages."""

    id: UUID
    last_time: datetime | None
    noise_reason: str | None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What one batch did. `known` were there already; `filled` of them took a tool result that came late.

    `clashed` of the known said something else and were left out, as `Extra.keep_clashes` asked. `event_ids` are those
    under which the items stand, in their order; `ids` are the rows' in the same order, when they were asked for.
    """

    conversation_id: UUID
    new: int
    known: int
    filled: int
    clashed: int
    event_ids: tuple[str, ...]
    ids: tuple[UUID, ...]


def write_batch(
    connection: Connection,
    session: SessionRecord,
    items: Sequence[MessageRecord | ToolResult],
    *,
    first_day: date,
    finalize: bool = False,
    cap: int | None = None,
    extra: Extra = NO_EXTRA,
    redact: bool = False,
    now: datetime | None = None,
) -> WriteResult:
    """Stores a batch of one conversation in one transaction; it is durable when the call returns.

    The session is locked first, so the same batch from many writers leaves each event once. `cap` bounds content and
    tool_result in UTF-16 units and records the true lengths. `redact` replaces secrets before anything else
    looks at the texts. `first_day` is the first partition; `now` is for tests.
    Raises `psycopg.Error` with nothing written when the store fails.
    """
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        raise RuntimeError("write_batch commits: it needs a connection without an open transaction")
    moment = now or datetime.now(UTC)
    if redact:
        session, items, extra = (
            redact_session(session),
            [redact_item(cleaned_item(item)) for item in items],
            redacted_extra(extra),
        )
    session = clean_session(session)
    times = Clock(moment, extra)
    pipelined = len(items) <= _PIPELINED_ITEMS
    # Of one cursor are all statements that have no answer: making one costs as much as sending a statement.
    cursor = connection.cursor()
    with _pipelined_transaction(cursor) if pipelined else connection.transaction():
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [session.session_key])
        session = _merge_settings(connection, session)
        known, stored = _found(_look_up(connection, session, wanted_ids(items)))
        began = times.first(items)
        rows = [make_row(item, times.place(item, known.last_time if known else None), cap) for item in items]
        if clashes := possible_clashes(rows, items, stored):
            stored |= _found(_look_up(connection, session, clashes))[1]
        plan = make_plan(rows, items, stored, keep_clashes=extra.keep_clashes)
        conversation_id = known.id if known else uuid4()
        conversation = _conversation_values(
            conversation_id,
            session,
            plan,
            times,
            extra,
            began=began.astimezone(UTC),
            first_day=first_day,
            mark={} if session.settings.get("noise") else mark_of(items),
            finalize=finalize,
        )
        messages = [_message_values(conversation_id, session, row) for row in plan.inserts.values()]
        write = _KNOWN_CONVERSATION if known else _NEW_CONVERSATION
        if len(messages) == 1:
            # What a live capture nearly always writes, as one statement.
            cursor.execute(f"WITH conversation AS ({write}) {_MESSAGE}", conversation | messages[0])
        else:
            cursor.execute(write, conversation)
            _insert(cursor, messages, copy=not pipelined)
        _fill(connection, conversation_id, plan.fills)
        _keep_whole(connection, conversation_id, plan.wholes)
        if _is_marked(known, session, extra) or any(map(begins_with_marker, items)):
            settle_mark(connection, conversation_id)
        event_ids = tuple(row.event_id for row in rows)
        ids = _ids(connection, conversation_id, event_ids) if extra.with_ids else ()
    return _result(plan, conversation_id, event_ids, ids)


@contextmanager
def _pipelined_transaction(cursor: Cursor[DictRow]) -> Iterator[None]:
    """A transaction whose statements go to the server together, as far as nobody asks for an answer in between.

    psycopg's own `transaction()` waits for the server before and after each BEGIN and COMMIT in a pipeline. Raises
    `psycopg.Error` when it was not committed.
    """
    connection = cursor.connection
    try:
        with connection.pipeline():
            # Never prepared: behind a pooler a name could come to mean another statement.
            cursor.execute("BEGIN", prepare=False)
            yield
            # Skipped by the server when a statement before it has failed, which leaving the pipeline then raises.
            cursor.execute("COMMIT", prepare=False)
        if cursor.statusmessage != "COMMIT":
            raise psycopg.OperationalError(f"the batch was not committed: the server answered {cursor.statusmessage!r}")
    except BaseException as error:
        # Whoever lost the connection has nothing left to roll back.
        with suppress(psycopg.Error):
            connection.rollback()
        # Leaving a pipeline in the middle of a statement has an error of its own, which is not what happened.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def preview_batch(
    connection: Connection,
    session: SessionRecord,
    items: Sequence[MessageRecord | ToolResult],
    *,
    first_day: date,
    extra: Extra = NO_EXTRA,
) -> WriteResult:
    """What `write_batch` would do with a batch, as the store is now; nothing is written.

    The answer names no conversation: its id is the nil UUID. Raises `psycopg.Error` when the store fails.
    """
    session = clean_session(session)
    clock = Clock(datetime.now(UTC), extra)
    stored = _found(_look_up(connection, session, wanted_ids(items)))[1]
    rows = [make_row(item, clock.place(item, None), None) for item in items]
    if clashes := possible_clashes(rows, items, stored):
        stored |= _found(_look_up(connection, session, clashes))[1]
    plan = make_plan(rows, items, stored, keep_clashes=extra.keep_clashes)
    return _result(plan, UUID(int=0), tuple(row.event_id for row in rows), ())


def _result(plan: Plan, conversation_id: UUID, event_ids: tuple[str, ...], ids: tuple[UUID, ...]) -> WriteResult:
    return WriteResult(
        conversation_id,
        new=len(plan.inserts),
        known=plan.known,
        filled=len(plan.fills),
        clashed=plan.clashed,
        event_ids=event_ids,
        ids=ids,
    )


def _merge_settings(connection: Connection, session: SessionRecord) -> SessionRecord:
    """The session with its nested settings merged into the stored ones; the flat ones are merged by the upsert."""
    nested = {key: value for key, value in session.settings.items() if isinstance(value, dict)}
    if not nested:
        return session
    row = connection.execute(
        "SELECT settings FROM ros_conversations WHERE session_hash = md5(%s)::uuid AND agent = %s",
        [session.session_key, session.agent],
    ).fetchone()
    if row is None:
        return session
    return replace(session, settings={**session.settings, **_merged(row["settings"], nested)})


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The new settings, each object with what only the old one has."""
    both = dict(new)
    for key, value in new.items():
        known = old.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            both[key] = {**known, **_merged(known, value)}
    return both


#: What a batch says about a conversation that is there, and the count of the write.
_MERGED = """
    -- What was redacted is not brought back by the file it came from.
    title = CASE WHEN c.title LIKE %(redacted)s THEN c.title ELSE coalesce(%(title)s, c.title) END,
    settings = %(fallback)s || c.settings || CASE
        WHEN c.settings::text LIKE %(redacted)s THEN (
            SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(%(settings)s)
            WHERE coalesce(c.settings ->> key, '') NOT LIKE %(redacted)s)
        ELSE %(settings)s END,
    task_id = coalesce(%(task_id)s, c.task_id),
    revision = c.revision + %(changed)s::boolean::int,
    updated_at = greatest(CASE WHEN c.revision = 0 THEN '-infinity' ELSE c.updated_at END,
                          coalesce(%(latest)s, c.updated_at)),
    active = CASE WHEN %(finalize)s THEN false WHEN %(changed)s THEN true ELSE c.active END
"""

_NEW_CONVERSATION = f"""
    INSERT INTO ros_conversations AS c
        (id, session_key, agent, channel, title, settings, task_id, day, created_at, updated_at, revision, active)
    VALUES (%(id)s, %(session_key)s, %(agent)s, %(channel)s, coalesce(%(title)s, %(new_title)s),
            %(fallback)s || %(settings)s || %(mark)s, %(task_id)s, %(day)s, %(began)s,
            coalesce(%(latest)s, %(began)s), %(changed)s::boolean::int, NOT %(finalize)s)
    ON CONFLICT (session_hash, agent) DO UPDATE SET {_MERGED}
"""  # noqa: S608

#: Not an upsert: that takes a number for a new conversation each time, and numbers are few and index arrays.
_KNOWN_CONVERSATION = f"UPDATE ros_conversations AS c SET {_MERGED} WHERE c.id = %(id)s"  # noqa: S608

_MESSAGE = """
    INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, tool_args,
                              tool_result, metadata, created_at)
    VALUES (%(id)s, %(event_id)s, %(agent)s, %(channel)s, %(role)s, %(content)s, %(tool_name)s, %(tool_args)s,
            %(tool_result)s, %(metadata)s, %(message_at)s)
"""

_COPY = """
    COPY ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, tool_args, tool_result,
                       metadata, created_at) FROM STDIN
"""


def _conversation_values(
    conversation_id: UUID,
    session: SessionRecord,
    plan: Plan,
    clock: Clock,
    extra: Extra,
    *,
    began: datetime,
    first_day: date,
    mark: Mapping[str, Any],
    finalize: bool,
) -> dict[str, Any]:
    """What a batch says about its conversation.

    Its day is set once: that of the earliest message, kept between the first partition and today. Its last activity
    moves with what is new, new words open it again, and it is closed last.
    """
    times = [min(row.created_at, clock.now) for row in plan.inserts.values()]
    return {
        "id": conversation_id,
        "session_key": session.session_key,
        "agent": session.agent,
        "channel": session.channel,
        "title": session.title,
        "new_title": clean_title(extra.new_title),
        "settings": Jsonb(dict(session.settings)),
        "mark": Jsonb(dict(mark)),
        "fallback": Jsonb(clean_json(dict(extra.fallback_settings))),
        "task_id": session.task_id,
        "day": min(max(began.date(), first_day), clock.now.astimezone(UTC).date()),
        "began": began,
        "latest": max([*times, *([clock.ended] if clock.ended else [])], default=None),
        "changed": bool(plan.inserts or plan.fills),
        "finalize": finalize,
        "redacted": f"%{MARK}%",
    }


def _is_marked(known: _Known | None, session: SessionRecord, extra: Extra) -> bool:
    """Whether the conversation bears our mark once the batch is written."""
    stored = {"noise_reason": known.noise_reason} if known is not None and known.noise_reason is not None else {}
    return {**extra.fallback_settings, **stored, **session.settings}.get("noise_reason") == REASON


_LOOK_UP = """
    SELECT c.id, CASE WHEN c.revision > 0 THEN c.updated_at END AS last_time,
           c.settings ->> 'noise_reason' AS noise_reason, m.*
    FROM ros_conversations AS c
    LEFT JOIN LATERAL (
        SELECT event_id, role, tool_name, tool_args, md5(said) AS digest, left(said, %s) AS head,
               md5(tool_result) AS result_digest, left(tool_result, %s) AS result_head,
               coalesce(metadata ->> 'truncated', '') = 'true' AS truncated, metadata ? 'redacted' AS redacted
        FROM ros_messages, ros_captured_content(content, metadata) AS said
        WHERE conversation_id = c.id AND event_id = ANY(%s)
    ) AS m ON true
    WHERE c.session_hash = md5(%s)::uuid AND c.agent = %s
"""

#: For one id the server soon keeps its plan, which costs more than the answer; with an array it plans every time.
_LOOK_UP_ONE = _LOOK_UP.replace("= ANY(%s)", "= %s")


def _look_up(connection: Connection, session: SessionRecord, event_ids: Collection[str]) -> Cursor[DictRow]:
    """Asks for the conversation and for what stands in it under these ids; read by `_found`."""
    one = len(event_ids) == 1
    wanted = next(iter(event_ids)) if one else list(event_ids)
    return connection.execute(
        _LOOK_UP_ONE if one else _LOOK_UP, [COMPARED, COMPARED, wanted, session.session_key, session.agent]
    )


def _found(answer: Cursor[DictRow]) -> tuple[_Known | None, dict[str, Saying]]:
    """The conversation, None when there is none, and what stands in it under the ids that were asked for."""
    rows = answer.fetchall()
    known = _Known(rows[0]["id"], rows[0]["last_time"], rows[0]["noise_reason"]) if rows else None
    return known, {
        row["event_id"]: Saying(
            row["role"],
            Text(row["digest"], row["head"]),
            row["tool_name"],
            row["tool_args"],
            None if row["result_digest"] is None else Text(row["result_digest"], row["result_head"]),
            truncated=row["truncated"],
            redacted=row["redacted"],
        )
        for row in rows
        if row["event_id"] is not None
    }


def _message_values(conversation_id: UUID, session: SessionRecord, row: Row) -> dict[str, Any]:
    """A row's values, in the order of its columns."""
    return {
        "id": conversation_id,
        "event_id": row.event_id,
        "agent": session.agent,
        "channel": session.channel,
        "role": row.role,
        "content": row.content,
        "tool_name": row.tool_name,
        "tool_args": None if row.tool_args is None else Jsonb(row.tool_args),
        "tool_result": row.tool_result,
        "metadata": Jsonb(row.metadata),
        "message_at": row.created_at,
    }


def _insert(cursor: Cursor[DictRow], messages: Sequence[dict[str, Any]], *, copy: bool) -> None:
    if copy:
        with cursor.copy(_COPY) as stream:
            for message in messages:
                stream.write_row(tuple(message.values()))
    else:
        for message in messages:
            cursor.execute(_MESSAGE, message)


def _fill(connection: Connection, conversation_id: UUID, fills: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    if not fills:
        return
    # What the row's metadata says already stays as it was: the fill may only add.
    with connection.cursor() as cursor:
        cursor.executemany(
            """
            UPDATE ros_messages
            SET tool_result = %s,
                metadata = (%s::jsonb || (metadata - 'pending_result')) || '{"pending_result": false}'
                    || CASE WHEN jsonb_typeof(metadata -> 'redacted') = 'object'
                            THEN jsonb_build_object('redacted', %s::jsonb || (metadata -> 'redacted')) ELSE '{}' END
            WHERE conversation_id = %s AND event_id = %s AND tool_result IS NULL
            """,
            [
                (result, Jsonb(metadata), Jsonb(metadata.get("redacted", {})), conversation_id, event_id)
                for event_id, (result, metadata) in fills.items()
            ],
        )
    # Another text deserves another try, whatever the former one failed of.
    connection.execute(
        """
        DELETE FROM ros_failures AS f USING ros_messages AS m
        WHERE f.stage IN ('message_embeddings', 'tool_call_text') AND f.item = m.id::text
          AND m.conversation_id = %s AND m.event_id = ANY(%s)
        """,
        [conversation_id, list(fills)],
    )


def _keep_whole(connection: Connection, conversation_id: UUID, rows: Mapping[str, Row]) -> None:
    if not rows:
        return
    values = [
        (
            row.content or None,
            None if row.tool_args is None else Jsonb(row.tool_args),
            row.tool_result,
            conversation_id,
            event_id,
        )
        for event_id, row in rows.items()
        if row.content or row.tool_args is not None or row.tool_result is not None
    ]
    with connection.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO ros_full_texts (message_id, content, tool_args, tool_result)
            SELECT m.id, w.content, w.tool_args, w.tool_result
            FROM (SELECT %s::text AS content, %s::jsonb AS tool_args, %s::text AS tool_result) AS w
            JOIN ros_messages AS m ON m.conversation_id = %s AND m.event_id = %s
            ON CONFLICT (message_id) DO UPDATE SET
                content = coalesce(ros_full_texts.content, excluded.content),
                tool_args = coalesce(ros_full_texts.tool_args, excluded.tool_args),
                tool_result = coalesce(ros_full_texts.tool_result, excluded.tool_result)
            """,
            values,
        )


def _ids(connection: Connection, conversation_id: UUID, event_ids: Sequence[str]) -> tuple[UUID, ...]:
    rows = connection.execute(
        "SELECT event_id, id FROM ros_messages WHERE conversation_id = %s AND event_id = ANY(%s)",
        [conversation_id, list(event_ids)],
    ).fetchall()
    found = {row["event_id"]: row["id"] for row in rows}
    return tuple(found[event_id] for event_id in event_ids)
