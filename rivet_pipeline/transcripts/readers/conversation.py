"""One conversation while its source is read: its title, the times of what has none, the ids of calls and of sayings.

What the readers of databases and documents share. Which record is speech and which is machinery they decide themselves.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.readers.shared import (
    HOST,
    ContentIds,
    Said,
    make_title,
    present,
    text_of,
)
from rivet_pipeline.transcripts.records import (
    Message,
    MessageRecord,
    ReadItem,
    SessionRecord,
    SessionUpdate,
    ToolResult,
)


def json_value(value: Any) -> Any:
    """What a text says as JSON; anything that is no JSON text is given as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return value


def sqlite_pointer(path: Path, table: str, row: Any) -> dict[str, Any]:
    """Where a row's full text stands, as metadata: the database, its table, the row's key in it, and the machine."""
    return {
        "session_sqlite_path": str(path),
        "session_sqlite_table": table,
        "session_sqlite_part_id": str(row),
        "session_host": HOST,
    }


class Conversation:
    """Gives what is said in one conversation as messages.

    A message without a time gets the latest time before it, else `began`, so that the order of the source is kept
    whatever batch it falls into. The title is the harness' own, else the first thing the user says, unless
    `title_elsewhere`: another source of the same conversation has its title.
    """

    def __init__(
        self,
        harness: str,
        native: str,
        agent: str,
        *,
        title: str | None = None,
        began: datetime | None = None,
        settings: Mapping[str, Any] | None = None,
        title_elsewhere: bool = False,
    ) -> None:
        known = present({"source": harness, "session_id": native, **(settings or {})})
        self.session = SessionRecord(f"{harness}:{native}", agent, harness, make_title(title or ""), known)
        self.ids = ContentIds()
        self._titled = title_elsewhere or self.session.title is not None
        self._clock = began
        self._met: Counter[str] = Counter()
        self._unanswered: dict[str, deque[str]] = {}

    def update(self, **settings: Any) -> Iterator[SessionUpdate]:
        """Says something about the conversation that was not known before; every later message carries it too."""
        added = {key: value for key, value in present(settings).items() if self.session.settings.get(key) != value}
        if added:
            self.session = replace(self.session, settings={**self.session.settings, **added})
            yield SessionUpdate(self.session)

    def say(
        self, said: Said, event_id: str | None, metadata: Mapping[str, Any], time: datetime | None = None
    ) -> Iterator[ReadItem]:
        """A stretch of text; without `event_id` it is known by what it says and how often that was said before."""
        if event_id is None:
            event_id = self.ids.next("", said.role, said.kind, said.text)
        kind = {} if said.kind == "speech" else {"kind": said.kind}
        yield self._message(MessageRecord(event_id, said.role, said.text, metadata={**metadata, **kind}), time)
        if not self._titled and (said.role, said.kind) == ("user", "speech") and "off_path" not in metadata:
            yield from self._title(said.text)

    def call(
        self,
        event_id: str,
        name: Any,
        arguments: Any,
        metadata: Mapping[str, Any],
        time: datetime | None = None,
        result: str | None = None,
    ) -> Message:
        """A tool call, and what it came to when that stands in the same record."""
        record = MessageRecord(
            event_id,
            "tool",
            "",
            text_of(name) or "tool",
            json_value(arguments),
            result,
            {**metadata, "kind": "tool"},
        )
        return self._message(record, time)

    def call_id(self, native: Any, name: Any, arguments: Any) -> str:
        """The event id of a call whose result comes later. A native id that returns is another call's."""
        if native is None or native == "":
            return self.ids.next("", "call", text_of(name), json.dumps(json_value(arguments), sort_keys=True))
        key = text_of(native)
        self._met[key] += 1
        event_id = f"tool:{key}" if self._met[key] == 1 else f"tool:{key}:{self._met[key]}"
        self._unanswered.setdefault(key, deque()).append(event_id)
        return event_id

    def answer_id(self, native: Any, text: str) -> str:
        """The event id of the call that a result is for: the oldest one of that native id without a result."""
        if native is None or native == "":
            return self.ids.next("", "result", text)
        key = text_of(native)
        waiting = self._unanswered.get(key)
        if waiting:
            event_id = waiting.popleft()
            if not waiting:
                del self._unanswered[key]
            return event_id
        return f"tool:{key}" if self._met[key] <= 1 else f"tool:{key}:{self._met[key]}"

    def result(self, event_id: str, text: str, metadata: Mapping[str, Any], time: datetime | None = None) -> ToolResult:
        """The result of an earlier call."""
        return ToolResult(
            self.session, event_id, text, {**metadata, "kind": "tool"}, time if time is not None else self._clock
        )

    def _message(self, record: MessageRecord, time: datetime | None) -> Message:
        if time is not None:
            self._clock = max(time, self._clock or time)
            return Message(self.session, replace(record, created_at=time))
        metadata = {**record.metadata, "time_source": "position"}
        return Message(self.session, replace(record, created_at=self._clock, metadata=metadata))

    def _title(self, text: str) -> Iterator[SessionUpdate]:
        if title := make_title(text):
            self._titled = True
            self.session = replace(self.session, title=title)
            yield SessionUpdate(self.session)
