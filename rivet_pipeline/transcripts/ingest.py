"""Writes captured messages into the store: the one writer that every way in goes through.

Cleaning, caps, identity, order and the lock are decided here, so that a live hook, an import and a write tool leave the
same rows. Reading files and speaking HTTP do not belong here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.cleaning import cap_utf16, clean_event_id, clean_json, clean_text, utf16_units
from rivet_pipeline.transcripts.own_traffic import REASON, begins_with_marker, mark_of, settle_mark
from rivet_pipeline.transcripts.records import MessageRecord, Role, SessionRecord, ToolResult
from rivet_pipeline.transcripts.redaction import MARK, redact_item, redact_json, redact_session, redact_text

#: The write surface's cap on content and on tool_result, in UTF-16 code units (seed: capture metadata).
CAPTURE_CAP = 16_000

#: A clock may be ahead by this much; a message from further in the future is placed after the one before it, or at the
#: moment of its capture, and keeps its own time in `metadata.event_ts`, so that it does not win recency for ever.
CLOCK_SKEW = timedelta(minutes=5)

#: No agent spoke before this: an earlier time is a mistaken unit or an epoch of 0, and says nothing.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)

#: What `_Clock` says about a time, as metadata.
_TIME_NOTES = frozenset({"time_source", "event_ts"})

#: What only the stage that makes texts for tool calls may say: nobody takes such a text for captured words.
_OURS = frozenset({"content_made_by", "content_made_at"})

_MAX_TITLE = 500

#: So many characters of two texts are compared when one of them was cut.
_HEAD = 256

#: Up to this many items a batch is sent as a pipeline of statements, which saves waiting for each answer. The rows of a
#: larger one go by COPY, which costs less a row and can not be part of a pipeline.
_PIPELINED_ITEMS = 16


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


@dataclass(frozen=True, slots=True)
class Extra:
    """What some ways in say or ask about a batch beyond its items.

    `began` and `ended` are the conversation's span as a backfill knows it: messages without a time follow the former,
    the latter counts as activity, and what the messages say themselves wins. `fallback_settings` hold where neither the
    session nor the store says anything. `new_title` is for a conversation that this batch makes and that has no title.
    Without `keep_clashes` other words under a known event id are left out, instead of kept beside the known ones.
    """

    began: datetime | None = None
    ended: datetime | None = None
    undated: datetime | None = None
    fallback_settings: Mapping[str, Any] = field(default_factory=dict)
    new_title: str | None = None
    keep_clashes: bool = True
    with_ids: bool = False


@dataclass(slots=True)
class _Row:
    """One row on its way into ros_messages."""

    event_id: str
    role: Role
    content: str
    tool_name: str | None
    tool_args: Any
    tool_result: str | None
    metadata: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as far as it must be known to tell whether another one is the same."""

    digest: str
    head: str

    @classmethod
    def of(cls, text: str) -> _Text:
        return cls(_digest(text), text[:_HEAD])

    def repeats(self, other: _Text, *, cut: bool) -> bool:
        """Whether two texts are the same; with `cut`, whether one may be the beginning of the other."""
        if self.digest == other.digest:
            return True
        size = min(len(self.head), len(other.head))
        return cut and self.head[:size] == other.head[:size]


@dataclass(frozen=True, slots=True)
class _Saying:
    """What a row says, whether it is stored or on its way; `result` is None while there is none."""

    role: str
    content: _Text
    tool_name: str | None
    tool_args: Any
    result: _Text | None
    truncated: bool
    redacted: bool

    def repeats(self, there: _Saying) -> bool:
        """Whether this says what is there already. What was cut, taken out or left out is not held against it."""
        if self.role != there.role:
            return False
        if self.redacted or there.redacted:
            return True
        cut = self.truncated or there.truncated
        return (
            (not self.content.head or self.content.repeats(there.content, cut=cut))
            and (self.tool_name is None or there.tool_name in (None, self.tool_name))
            and _same_arguments(self.tool_args, there.tool_args)
            and self.result_repeats(there)
        )

    def result_repeats(self, there: _Saying) -> bool:
        """Whether its result is the one that is there, or there is only one."""
        if self.result is None or there.result is None or self.redacted or there.redacted:
            return True
        return self.result.repeats(there.result, cut=self.truncated or there.truncated)


def _same_arguments(one: Any, other: Any) -> bool:
    """Whether two calls' arguments are the same; whoever leaves them out does not say otherwise."""
    elided = any(isinstance(value, dict) and "_elided" in value for value in (one, other))
    return elided or one is None or other is None or one == other


@dataclass(slots=True)
class _Plan:
    """What a batch comes to once it is held against the store."""

    inserts: dict[str, _Row] = field(default_factory=dict)
    fills: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    #: Rows that say in full what stands cut in the store, by event id.
    wholes: dict[str, _Row] = field(default_factory=dict)
    known: int = 0
    clashed: int = 0
    keep_clashes: bool = True


_NO_EXTRA = Extra()


def write_batch(
    connection: Connection,
    session: SessionRecord,
    items: Sequence[MessageRecord | ToolResult],
    *,
    first_day: date,
    finalize: bool = False,
    cap: int | None = None,
    extra: Extra = _NO_EXTRA,
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
            [redact_item(_cleaned(item)) for item in items],
            _redacted(extra),
        )
    session = _clean_session(session)
    times = _Clock(moment, extra)
    pipelined = len(items) <= _PIPELINED_ITEMS
    with connection.pipeline() if pipelined else nullcontext(), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [session.session_key])
        session = _merge_settings(connection, session)
        conversation = _upsert_conversation(connection, session, items, first_day, times, extra)
        present = _look_up(connection, session, _wanted_ids(items))
        conversation_id, last_time, marked = _found_conversation(conversation)
        rows = [_row(item, times.place(item, last_time), cap) for item in items]
        stored = _found_rows(present)
        if clashes := _possible_clashes(rows, items, stored):
            stored |= _found_rows(_look_up(connection, session, clashes))
        plan = _plan(rows, items, stored, keep_clashes=extra.keep_clashes)
        _insert(connection, conversation_id, session, plan.inserts.values(), copy=not pipelined)
        _fill(connection, conversation_id, plan.fills)
        _keep_whole(connection, conversation_id, plan.wholes)
        _touch(connection, conversation_id, plan, times, finalize=finalize)
        if marked or any(map(begins_with_marker, items)):
            settle_mark(connection, conversation_id)
        event_ids = tuple(row.event_id for row in rows)
        ids = _ids(connection, conversation_id, event_ids) if extra.with_ids else ()
    return _result(plan, conversation_id, event_ids, ids)


def preview_batch(
    connection: Connection,
    session: SessionRecord,
    items: Sequence[MessageRecord | ToolResult],
    *,
    first_day: date,
    extra: Extra = _NO_EXTRA,
) -> WriteResult:
    """What `write_batch` would do with a batch, as the store is now; nothing is written.

    The answer names no conversation: its id is the nil UUID. Raises `psycopg.Error` when the store fails.
    """
    session = _clean_session(session)
    clock = _Clock(datetime.now(UTC), extra)
    stored = _found_rows(_look_up(connection, session, _wanted_ids(items)))
    rows = [_row(item, clock.place(item, None), None) for item in items]
    if clashes := _possible_clashes(rows, items, stored):
        stored |= _found_rows(_look_up(connection, session, clashes))
    plan = _plan(rows, items, stored, keep_clashes=extra.keep_clashes)
    return _result(plan, UUID(int=0), tuple(row.event_id for row in rows), ())


def _result(plan: _Plan, conversation_id: UUID, event_ids: tuple[str, ...], ids: tuple[UUID, ...]) -> WriteResult:
    return WriteResult(
        conversation_id,
        new=len(plan.inserts),
        known=plan.known,
        filled=len(plan.fills),
        clashed=plan.clashed,
        event_ids=event_ids,
        ids=ids,
    )


def _redacted(extra: Extra) -> Extra:
    """The same without the secrets in its texts, which are settings and a title like any other."""
    title = redact_text(extra.new_title)[0] if extra.new_title else extra.new_title
    return replace(extra, new_title=title, fallback_settings=redact_json(dict(extra.fallback_settings))[0])


class _Clock:
    """Gives every item a time: its own, a bounded one, or that of the item before it."""

    def __init__(self, now: datetime, extra: Extra = _NO_EXTRA) -> None:
        self.now = now
        self.began = extra.began if self._plausible(extra.began) else None
        self.ended = min(extra.ended, now) if extra.ended is not None and self._plausible(extra.ended) else None
        self._undated = extra.undated if self._plausible(extra.undated) else None
        self._start: datetime | None = None
        self._last: datetime | None = None

    def _plausible(self, time: datetime | None) -> bool:
        return time is not None and EARLIEST <= time <= self.now + CLOCK_SKEW

    def place(self, item: MessageRecord | ToolResult, before: datetime | None) -> tuple[datetime, dict[str, str]]:
        """The item's time and what the metadata should say about it."""
        stated = item.created_at
        note: dict[str, str] = {}
        if stated is None or stated < EARLIEST:
            placed = self._last or before or self.began or self._start or self.now
            if isinstance(item, MessageRecord) or stated is not None:
                note = {"time_source": "position"}
        elif stated > self.now + CLOCK_SKEW:
            placed = self._last or self.now
            note = {"time_source": "capture" if self._last is None else "position"}
        else:
            placed = stated
        if stated is not None and placed is not stated:
            note["event_ts"] = stated.isoformat()
        if isinstance(item, MessageRecord):
            self._last = placed
        return placed, note

    def first(self, items: Sequence[MessageRecord | ToolResult]) -> datetime:
        """The earliest plausible time that a batch states, else the one it was said at the latest.

        What comes before anything with a time is placed there.
        """
        stated = [self.began, *(item.created_at for item in items)]
        plausible = [time for time in stated if time is not None and self._plausible(time)]
        self._start = min(plausible or [self._undated or self.now])
        return self._start


def _clean_session(session: SessionRecord) -> SessionRecord:
    return SessionRecord(
        session_key=clean_text(session.session_key),
        agent=clean_text(session.agent),
        channel=clean_text(session.channel),
        title=_clean_title(session.title),
        settings=_without_nulls(clean_json(dict(session.settings))),
        task_id=session.task_id,
    )


def _cleaned(item: MessageRecord | ToolResult) -> MessageRecord | ToolResult:
    """The item with its values cleaned, so that whoever goes through them meets nothing without end."""
    if isinstance(item, MessageRecord):
        return replace(item, tool_args=clean_json(item.tool_args), metadata=clean_json(dict(item.metadata)))
    return replace(item, metadata=clean_json(dict(item.metadata)))


def _clean_title(title: str | None) -> str | None:
    return clean_text(title).strip()[:_MAX_TITLE] or None if title else None


def _without_nulls(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that say something. A hook that does not know a folder must not make it forgotten."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in settings.items()
        if value is not None
    }


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


def _upsert_conversation(
    connection: Connection,
    session: SessionRecord,
    items: Sequence[MessageRecord | ToolResult],
    first_day: date,
    clock: _Clock,
    extra: Extra,
) -> Cursor[DictRow]:
    """Makes the conversation, or merges what the session says into it; its answer is read by `_found_conversation`.

    Its day is set here once: that of the earliest message, kept between the first partition and today.
    """
    began = clock.first(items).astimezone(UTC)
    day = min(max(began.date(), first_day), clock.now.astimezone(UTC).date())
    return connection.execute(
        """
        INSERT INTO ros_conversations
            (session_key, agent, channel, title, settings, task_id, day, created_at, updated_at)
        VALUES (%(session_key)s, %(agent)s, %(channel)s, coalesce(%(title)s, %(new_title)s),
                %(fallback)s || %(settings)s || %(mark)s, %(task_id)s, %(day)s, %(began)s, %(began)s)
        ON CONFLICT (session_hash, agent) DO UPDATE SET
            -- What was redacted is not brought back by the file it came from.
            title = CASE WHEN ros_conversations.title LIKE %(redacted)s THEN ros_conversations.title
                         ELSE coalesce(%(title)s, ros_conversations.title) END,
            settings = %(fallback)s || ros_conversations.settings || CASE
                WHEN ros_conversations.settings::text LIKE %(redacted)s THEN (
                    SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(%(settings)s)
                    WHERE coalesce(ros_conversations.settings ->> key, '') NOT LIKE %(redacted)s)
                ELSE %(settings)s END,
            task_id = coalesce(excluded.task_id, ros_conversations.task_id)
        RETURNING id, revision, updated_at, coalesce(settings ->> 'noise_reason', '') = %(reason)s AS marked
        """,
        {
            "session_key": session.session_key,
            "agent": session.agent,
            "channel": session.channel,
            "title": session.title,
            "new_title": _clean_title(extra.new_title),
            "settings": Jsonb(dict(session.settings)),
            "mark": Jsonb({} if session.settings.get("noise") else mark_of(items)),
            "reason": REASON,
            "fallback": Jsonb(clean_json(dict(extra.fallback_settings))),
            "task_id": session.task_id,
            "day": day,
            "began": began,
            "redacted": f"%{MARK}%",
        },
    )


def _found_conversation(answer: Cursor[DictRow]) -> tuple[UUID, datetime | None, bool]:
    """The conversation's id, the time of its last message (None when it is new), and whether it bears our mark."""
    row = answer.fetchone()
    assert row is not None
    return row["id"], row["updated_at"] if row["revision"] else None, row["marked"]


def _row(item: MessageRecord | ToolResult, placed: tuple[datetime, dict[str, str]], cap: int | None) -> _Row:
    created_at, time_note = placed
    metadata: dict[str, Any] = {**clean_json(dict(item.metadata)), **time_note}
    for name in _OURS:
        metadata.pop(name, None)
    tool_result = None if item.tool_result is None else clean_text(item.tool_result)
    content = clean_text(item.content) if isinstance(item, MessageRecord) else ""
    if cap is not None:
        content = _capped(content, cap, metadata, "full_content_length")
        if tool_result is not None:
            tool_result = _capped(tool_result, cap, metadata, "full_tool_result_length")
    if isinstance(item, ToolResult):
        return _Row(clean_event_id(item.event_id), "tool", "", None, None, tool_result, metadata, created_at)
    return _Row(
        clean_event_id(item.event_id),
        item.role,
        content,
        clean_text(item.tool_name) if item.tool_name else None,
        clean_json(item.tool_args),
        tool_result,
        metadata,
        created_at,
    )


def _capped(text: str, cap: int, metadata: dict[str, Any], length_key: str) -> str:
    kept = cap_utf16(text, cap)
    if len(kept) < len(text):
        metadata["truncated"] = True
        metadata[length_key] = utf16_units(text)
    return kept


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _saying(row: _Row) -> _Saying:
    return _Saying(
        row.role,
        _Text.of(row.content),
        row.tool_name,
        row.tool_args,
        None if row.tool_result is None else _Text.of(row.tool_result),
        truncated=bool(row.metadata.get("truncated")),
        redacted="redacted" in row.metadata,
    )


def result_event_id(event_id: str) -> str:
    """The event id of a result whose call has not been seen, by the call's."""
    return clean_event_id(f"result:{event_id}")


def _clash_id(row: _Row) -> str:
    """The event id of a row whose own id came before with another content: kept beside it, never dropped."""
    said = f"{row.role}\n{row.content}\n{row.tool_result}"
    if row.tool_name is not None or row.tool_args is not None:
        said += f"\n{row.tool_name}\n{json.dumps(row.tool_args, sort_keys=True)}"
    return clean_event_id(f"{row.event_id[:180]}#{hashlib.sha256(said.encode()).hexdigest()[:16]}")


def _wanted_ids(items: Sequence[MessageRecord | ToolResult]) -> set[str]:
    """The event ids under which the items, or parts of them, may stand in the store already."""
    wanted = {clean_event_id(item.event_id) for item in items}
    return wanted | {result_event_id(clean_event_id(item.event_id)) for item in items if isinstance(item, ToolResult)}


def _look_up(connection: Connection, session: SessionRecord, event_ids: Collection[str]) -> Cursor[DictRow]:
    """Asks for what stands under these ids; read by `_found_rows`. Needs no answer of the statements before it."""
    return connection.execute(
        """
        SELECT event_id, role, tool_name, tool_args, md5(said) AS digest, left(said, %s) AS head,
               md5(tool_result) AS result_digest, left(tool_result, %s) AS result_head,
               coalesce(metadata ->> 'truncated', '') = 'true' AS truncated, metadata ? 'redacted' AS redacted
        FROM ros_messages, ros_captured_content(content, metadata) AS said
        WHERE conversation_id = (
                  SELECT id FROM ros_conversations WHERE session_hash = md5(%s)::uuid AND agent = %s)
          AND event_id = ANY(%s)
        """,
        [_HEAD, _HEAD, session.session_key, session.agent, list(event_ids)],
    )


def _found_rows(answer: Cursor[DictRow]) -> dict[str, _Saying]:
    return {
        row["event_id"]: _Saying(
            row["role"],
            _Text(row["digest"], row["head"]),
            row["tool_name"],
            row["tool_args"],
            None if row["result_digest"] is None else _Text(row["result_digest"], row["result_head"]),
            truncated=row["truncated"],
            redacted=row["redacted"],
        )
        for row in answer
    }


def _possible_clashes(
    rows: Sequence[_Row], items: Sequence[MessageRecord | ToolResult], stored: Mapping[str, _Saying]
) -> set[str]:
    """The ids of rows that may have to be kept beside another one: their own id is taken, perhaps by other words."""
    clashes: set[str] = set()
    taken: set[str] = set()
    for row, item in zip(rows, items, strict=True):
        orphan = result_event_id(row.event_id) if isinstance(item, ToolResult) else None
        there = stored.get(row.event_id) or stored.get(orphan or "")
        differs = there is not None and not (
            _saying(row).repeats(there) if orphan is None else _saying(row).result_repeats(there)
        )
        if differs or row.event_id in taken:
            clashes.add(_clash_id(row))
        taken |= {row.event_id} if orphan is None else {row.event_id, orphan}
    return clashes


def _plan(
    rows: Sequence[_Row],
    items: Sequence[MessageRecord | ToolResult],
    stored: Mapping[str, _Saying],
    *,
    keep_clashes: bool,
) -> _Plan:
    """What is to be done; every row is left with the event id under which it stands, or stood before."""
    plan = _Plan(keep_clashes=keep_clashes)
    for row, item in zip(rows, items, strict=True):
        if isinstance(item, ToolResult):
            _plan_result(plan, row, stored)
        else:
            _plan_message(plan, row, stored)
    return plan


def _there(plan: _Plan, event_id: str, stored: Mapping[str, _Saying]) -> _Saying | None:
    """What stands under an id, or will when the batch is written."""
    pending = plan.inserts.get(event_id)
    return stored.get(event_id) if pending is None else _saying(pending)


def _plan_message(plan: _Plan, row: _Row, stored: Mapping[str, _Saying]) -> None:
    there = _there(plan, row.event_id, stored)
    if there is None:
        plan.inserts[row.event_id] = row
        return
    saying = _saying(row)
    if not saying.repeats(there):
        _plan_clash(plan, row, stored)
        return
    _plan_whole(plan, row, saying, stored)
    if row.tool_result is not None:
        _plan_fill(plan, row, there)
    else:
        plan.known += 1


def _plan_result(plan: _Plan, row: _Row, stored: Mapping[str, _Saying]) -> None:
    saying = _saying(row)
    call, orphan_id = _there(plan, row.event_id, stored), result_event_id(row.event_id)
    orphan = _there(plan, orphan_id, stored)
    if call is not None and saying.result_repeats(call):
        _plan_whole(plan, row, saying, stored)
        _plan_fill(plan, row, call)
    elif orphan is not None and saying.result_repeats(orphan):
        # It came before its call did.
        row.event_id = orphan_id
        plan.known += 1
    elif call is not None or orphan is not None:
        _plan_clash(plan, row, stored)
    else:
        row.event_id = orphan_id
        plan.inserts[orphan_id] = row


def _plan_fill(plan: _Plan, row: _Row, there: _Saying) -> None:
    """A result for a row that is there: merged into it when it still waits for one, else known."""
    assert row.tool_result is not None
    pending = plan.inserts.get(row.event_id)
    # When the result came says nothing about when the call did.
    metadata = {key: value for key, value in row.metadata.items() if key not in _TIME_NOTES}
    if pending is not None and pending.tool_result is None:
        pending.tool_result = row.tool_result
        if "redacted" in pending.metadata:
            metadata["redacted"] = {**metadata.get("redacted", {}), **pending.metadata["redacted"]}
        pending.metadata.update(metadata)
        pending.metadata.pop("pending_result", None)
        return
    plan.known += 1
    if pending is None and there.result is None and row.event_id not in plan.fills:
        plan.fills[row.event_id] = (row.tool_result, {**metadata, "pending_result": False})


def _plan_whole(plan: _Plan, row: _Row, saying: _Saying, stored: Mapping[str, _Saying]) -> None:
    """Keeps what a row says in full when what is stored of it was cut, as live capture does."""
    there = stored.get(row.event_id)
    if there is None or not there.truncated or saying.truncated or saying.redacted or there.redacted:
        return
    known = plan.wholes.get(row.event_id)
    if known is None:
        plan.wholes[row.event_id] = row
    elif known.tool_result is None:
        known.tool_result = row.tool_result


def _plan_clash(plan: _Plan, row: _Row, stored: Mapping[str, _Saying]) -> None:
    clash = _clash_id(row)
    kept = clash in stored or clash in plan.inserts
    if not plan.keep_clashes and not kept:
        plan.known += 1
        plan.clashed += 1
        return
    row.metadata["clashes_with"] = row.event_id
    row.event_id = clash
    if kept:
        plan.known += 1
        return
    plan.inserts[clash] = row


_COPY = """
    COPY ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, tool_args, tool_result,
                       metadata, created_at) FROM STDIN
"""
_INSERT = """
    INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name, tool_args,
                              tool_result, metadata, created_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def _insert(
    connection: Connection, conversation_id: UUID, session: SessionRecord, rows: Collection[_Row], *, copy: bool
) -> None:
    values = (
        (
            conversation_id,
            row.event_id,
            session.agent,
            session.channel,
            row.role,
            row.content,
            row.tool_name,
            None if row.tool_args is None else Jsonb(row.tool_args),
            row.tool_result,
            Jsonb(row.metadata),
            row.created_at,
        )
        for row in rows
    )
    with connection.cursor() as cursor:
        if copy:
            with cursor.copy(_COPY) as stream:
                for value in values:
                    stream.write_row(value)
        else:
            for value in values:
                cursor.execute(_INSERT, value)


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


def _keep_whole(connection: Connection, conversation_id: UUID, rows: Mapping[str, _Row]) -> None:
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


def _touch(connection: Connection, conversation_id: UUID, plan: _Plan, clock: _Clock, *, finalize: bool) -> None:
    """Counts the write, moves the conversation's last activity, reopens it on new words, and closes it last."""
    changed = bool(plan.inserts or plan.fills)
    times = [min(row.created_at, clock.now) for row in plan.inserts.values()]
    latest = max([*times, *([clock.ended] if clock.ended else [])], default=None)
    connection.execute(
        """
        UPDATE ros_conversations
        SET revision = revision + %(changed)s::boolean::int,
            updated_at = greatest(CASE WHEN revision = 0 THEN '-infinity' ELSE updated_at END,
                                  coalesce(%(latest)s, updated_at)),
            active = CASE WHEN %(finalize)s THEN false WHEN %(changed)s THEN true ELSE active END
        WHERE id = %(id)s
        """,
        {"changed": changed, "latest": latest, "finalize": finalize, "id": conversation_id},
    )


def _ids(connection: Connection, conversation_id: UUID, event_ids: Sequence[str]) -> tuple[UUID, ...]:
    rows = connection.execute(
        "SELECT event_id, id FROM ros_messages WHERE conversation_id = %s AND event_id = ANY(%s)",
        [conversation_id, list(event_ids)],
    ).fetchall()
    found = {row["event_id"]: row["id"] for row in rows}
    return tuple(found[event_id] for event_id in event_ids)
