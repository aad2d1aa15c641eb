"""Makes rows of the items of a batch: cleaned, cut to the cap, each at a time that can be believed.

What a way in may say beyond its items is here too. Nothing here reads or writes the store, nor knows what stands there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rivet_pipeline.transcripts.cleaning import cap_utf16, clean_event_id, clean_json, clean_text, utf16_units
from rivet_pipeline.transcripts.records import MessageRecord, Role, SessionRecord, ToolResult
from rivet_pipeline.transcripts.redaction import redact_json, redact_text

#: A clock may be ahead by this much; a message from further in the future is placed after the one before it, or at the
#: moment of its capture, and keeps its own time in `metadata.event_ts`, so that it does not win recency for ever.
CLOCK_SKEW = timedelta(minutes=5)

#: No agent spoke before this: an earlier time is a mistaken unit or an epoch of 0, and says nothing.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)

#: What only the stage that makes texts for tool calls may say: nobody takes such a text for captured words.
_OURS = frozenset({"content_made_by", "content_made_at"})

_MAX_TITLE = 500


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
class Row:
    """One row on its way into ros_messages."""

    event_id: str
    role: Role
    content: str
    tool_name: str | None
    tool_args: Any
    tool_result: str | None
    metadata: dict[str, Any]
    created_at: datetime


#: What most ways in say: nothing.
NO_EXTRA = Extra()


def redacted_extra(extra: Extra) -> Extra:
    """The same without the secrets in its texts, which are settings and a title like any other."""
    title = redact_text(extra.new_title)[0] if extra.new_title else extra.new_title
    return replace(extra, new_title=title, fallback_settings=redact_json(dict(extra.fallback_settings))[0])


class Clock:
    """Gives every item a time: its own, a bounded one, or that of the item before it."""

    def __init__(self, now: datetime, extra: Extra = NO_EXTRA) -> None:
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


def clean_session(session: SessionRecord) -> SessionRecord:
    """The session as it may be stored; settings that say nothing are left out."""
    return SessionRecord(
        session_key=clean_text(session.session_key),
        agent=clean_text(session.agent),
        channel=clean_text(session.channel),
        title=clean_title(session.title),
        settings=_without_nulls(clean_json(dict(session.settings))),
        task_id=session.task_id,
    )


def cleaned_item(item: MessageRecord | ToolResult) -> MessageRecord | ToolResult:
    """The item with its values cleaned, so that whoever goes through them meets nothing without end."""
    if isinstance(item, MessageRecord):
        return replace(item, tool_args=clean_json(item.tool_args), metadata=clean_json(dict(item.metadata)))
    return replace(item, metadata=clean_json(dict(item.metadata)))


def clean_title(title: str | None) -> str | None:
    """The title cleaned and cut to 500 characters; None when nothing is left of it."""
    return clean_text(title).strip()[:_MAX_TITLE] or None if title else None


def _without_nulls(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that say something. A hook that does not know a folder must not make it forgotten."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in settings.items()
        if value is not None
    }


def make_row(item: MessageRecord | ToolResult, placed: tuple[datetime, dict[str, str]], cap: int | None) -> Row:
    """The item as a row, at the time that `Clock.place` gave it, its texts cut to `cap` UTF-16 units (None: whole)."""
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
        return Row(clean_event_id(item.event_id), "tool", "", None, None, tool_result, metadata, created_at)
    return Row(
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
