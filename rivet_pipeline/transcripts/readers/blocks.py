"""From content blocks to messages: what the line formats with Anthropic-like blocks have in common.

Reads blocks (`parts_of`), keeps tool calls and their results together (`Calls`) and gives both as items (`Teller`).
Which record is speech and which is machinery is decided by the readers, not here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.readers.shared import (
    HOST,
    ContentIds,
    RecentSet,
    Said,
    binary_placeholder,
    join_texts,
    line_pointer,
    make_title,
    mapping,
    present,
    text_of,
)
from rivet_pipeline.transcripts.records import (
    Kind,
    Message,
    MessageRecord,
    ReadItem,
    Role,
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

#: How many calls, and how many rows, are remembered, so that memory stays bounded in a file of any length.
_MEMORY = 65_536

#: How many results wait for their calls.
_EARLY = 256

_CALLS = frozenset({"tooluse", "toolcall", "functioncall", "servertooluse", "mcptooluse"})
_FILES = frozenset(
    {"image", "imageurl", "inputimage", "document", "file", "audio", "audiourl", "inputaudio", "video", "videourl"}
)
_TEXTS = frozenset({"text", "inputtext", "outputtext"})
_THOUGHTS = frozenset({"thinking", "think", "reasoning"})

_WRAPPED = re.compile(r"\s*<(?P<tag>[a-z][\w-]*)(?:\s[^<>]*)?>(?P<body>.*?)</(?P=tag)>", re.DOTALL)
_QUERY = re.compile(r"\s*<user_query>\n?(.*?)\n?</user_query>\s*", re.DOTALL)

#: What harnesses put in front of a prompt, by its tag. What is not listed is the user's own markup.
INJECTED_TAGS = frozenset(
    {
        "system-reminder", "system_reminder", "system_notification", "user_info", "git_status", "git-context",
        "project_layout", "environment_context", "additional_data", "open_and_recently_viewed_files",
        "current_datetime",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `native` is its id in the file, `result` what came with it in the same record."""

    name: str
    arguments: Any
    native: str | None = None
    result: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool call came to. Without `native` it belongs to the oldest unanswered call that has no id either."""

    text: str
    native: str | None = None
    name: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


Part = Said | Call | Result


@dataclass(frozen=True, slots=True)
class Row:
    """One record on its way through a reader: where it stands, its own id and time, what every part of it carries."""

    line: int
    id: str | None = None
    time: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: What only the first of its messages carries: what it cost.
    once: Mapping[str, Any] = field(default_factory=dict)
    #: What everything in the record is, when it only repeats what stands elsewhere.
    kind: Kind | None = None


def arguments_of(value: Any) -> Any:
    """A call's arguments: JSON text is read, other text is kept as it is."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def parts_of(content: Any, role: Role) -> tuple[list[Part], list[str]]:
    """The parts of a message's content, a string or blocks, and the kinds of the blocks that hold nothing to keep.

    Neighbouring texts of one kind become one part.
    """
    parts: list[Part] = []
    passed: list[str] = []
    for block in content if isinstance(content, list) else [content]:
        part = _part(block, role)
        if isinstance(part, str):
            passed.append(part)
        elif part is not None:
            add_part(parts, part)
    return parts, passed


def add_part(parts: list[Part], part: Part) -> None:
    """Appends a part; a text is joined to the one before it when speaker and kind are the same."""
    last = parts[-1] if parts else None
    if isinstance(part, Said) and isinstance(last, Said) and (last.role, last.kind) == (part.role, part.kind):
        parts[-1] = Said(last.role, last.kind, join_texts([last.text, part.text]))
    else:
        parts.append(part)


def _part(block: Any, role: Role) -> Part | str | None:
    """The block as a part; the name of its kind when it holds nothing to keep; None when it is empty."""
    if isinstance(block, str):
        return Said(role, "speech", block) if block.strip() else None
    if not isinstance(block, dict):
        return None if block is None else "shapeless block"
    kind = text_of(block.get("type"))
    plain = re.sub("[-_]", "", kind).lower()
    if plain in _CALLS:
        return _call(block)
    if plain.endswith("toolresult"):
        return _result(block)
    if plain in _FILES:
        return Said(role, "speech", file_text(block))
    if plain in _THOUGHTS:
        text = text_of(block.get("thinking") or block.get("think") or block.get("text") or block.get("reasoning"))
        return Said("assistant", "thinking", text) if text.strip() else None
    words = block.get("text")
    if isinstance(words, str) and "redacted" not in plain:
        return Said(role, "speech", words) if words.strip() else None
    return None if plain in _TEXTS else f"{kind[:60] or 'nameless'} block"


def _call(block: dict[str, Any]) -> Call:
    function = mapping(block.get("function")) or block
    keys = ("input", "arguments", "args")
    given = next((function[key] for key in keys if function.get(key) is not None), None)
    native = block.get("id") or block.get("toolCallId")
    return Call(text_of(function.get("name")) or "tool", arguments_of(given), native if native else None)


def _result(block: dict[str, Any]) -> Result:
    keys = ("content", "text", "output", "result")
    body = next((block[key] for key in keys if block.get(key) is not None), None)
    native = block.get("tool_use_id") or block.get("toolCallId") or block.get("tool_call_id")
    failed = bool(block.get("is_error") or block.get("isError"))
    return Result(result_text(body), native or None, block.get("name"), present({"is_error": failed}))


def result_text(content: Any) -> str:
    """A tool result's content, a string or blocks, as text."""
    if isinstance(content, list):
        return join_texts([_result_block(block) for block in content])
    return text_of(content)


def _result_block(block: Any) -> str:
    if isinstance(block, dict):
        if isinstance(block.get("text"), str):
            return text_of(block["text"])
        if re.sub("[-_]", "", text_of(block.get("type"))).lower() in _FILES:
            return file_text(block)
    return text_of(block)


def file_text(block: Mapping[str, Any]) -> str:
    """What stands for a picture or another file in a content block of any of the known forms."""
    what = re.sub("^input|[-_]?url$", "", text_of(block.get("type")).replace("_", "").lower()) or "file"
    source = mapping(block.get("source")) or block
    media_type = source.get("media_type") or source.get("mimeType") or source.get("mediaType")
    keys = ("image_url", "imageUrl", "audio_url", "audioUrl", "video_url", "videoUrl")
    nested = next((source[key] for key in keys if source.get(key)), None)
    data = source.get("data") or mapping(nested).get("url") or nested or source.get("url")
    if isinstance(data, str) and not data.startswith("data:") and "://" in data[:12]:
        return f"[{what} {data[:500]}]"
    return binary_placeholder(what, media_type, data)


def split_prompt(text: str) -> list[Said]:
    """A prompt as the user's words and what the harness put in front of them."""
    position = 0
    while (match := _WRAPPED.match(text, position)) and match["tag"] in INJECTED_TAGS:
        position = match.end()
    before = [Said("system", "injected", text[:position].strip())] if position else []
    words = text[position:].strip() if position else text
    if query := _QUERY.fullmatch(words):
        words = query.group(1)
    return [*before, Said("user", "speech", words)] if words.strip() else before


class Calls:
    """Which message a tool call became. A native id may return later in a file for another call."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._nameless: list[tuple[str, str]] = []

    def knows(self, native: str) -> bool:
        """Whether a call of this id was met."""
        return native in self._times

    def open(self, native: str) -> str:
        """The event id of a further call of this id."""
        self._times[native] = self._times.pop(native, 0) + 1
        if len(self._times) > _MEMORY:
            del self._times[next(iter(self._times))]
        return self.answer(native)

    def answer(self, native: str) -> str:
        """The event id of the latest call of this id, whether one was met or not."""
        times = self._times.get(native, 1)
        return f"tool:{native}" if times == 1 else f"tool:{native}:{times}"

    def open_nameless(self, event_id: str, name: str) -> None:
        """Remembers a call that has no id of its own."""
        self._nameless.append((event_id, name))
        del self._nameless[:-_MEMORY]

    def answer_nameless(self, name: str | None) -> str | None:
        """The event id of the oldest unanswered call without an id, of this name if one is given."""
        for number, (event_id, called) in enumerate(self._nameless):
            if name is None or name == called:
                del self._nameless[number]
                return event_id
        return None

    def forget_nameless(self) -> None:
        """No later result belongs to the calls without an id that were met so far."""
        self._nameless.clear()


class Teller:
    """Gives the parts of a file's records as messages of one conversation.

    `scope` goes in front of every native id, where those are unique only within a part of the conversation. `pointer`
    says whether a row's line holds all of it, so that it can be read again there.
    """

    def __init__(self, path: Path, session: SessionRecord, *, scope: str = "", pointer: bool = True) -> None:
        self.path = path
        self.session = session
        self.calls = Calls()
        self.ids = ContentIds()
        #: Whether the conversation has a title, so that the first prompt does not become it.
        self.titled = session.title is not None
        self._scope = scope
        self._pointer = pointer
        #: Results whose calls were not met yet, by the calls' ids.
        self._early: dict[str, ToolResult] = {}
        self._rows = RecentSet(_MEMORY)
        self._row_ids = RecentSet(_MEMORY)

    def update(self, *, title: str | None = None, **settings: Any) -> SessionUpdate:
        """Says something about the conversation; every later message carries it too."""
        known = self.session
        self.titled = self.titled or title is not None
        self.session = replace(known, title=title or known.title, settings={**known.settings, **present(settings)})
        return SessionUpdate(self.session)

    def tell(self, row: Row, parts: Iterable[Part], passed: Iterable[str] = ()) -> Iterator[ReadItem]:
        """The items of one record.

        A row that repeats an earlier one, its id included, is stepped over; one that has another's id gets its own.
        """
        parts = list(parts)
        base = None
        if row.id:
            mark = content_event_id(row.kind, *map(repr, parts))[-16:]
            if not self._rows.add((row.id, mark)):
                yield Skipped(row.line, "repeats an earlier row")
                return
            base = self._scope + (row.id if self._row_ids.add(row.id) else f"{row.id}#{mark}")
        number = 0
        for part in parts:
            if isinstance(part, Result):
                yield from self._result(row, part)
                continue
            if isinstance(part, Call):
                yield Message(self.session, self._call(row, part))
            else:
                yield Message(self.session, self._said(row, part, base, number))
                yield from self._title_from(row, part)
                number += 1
            row = replace(row, once={})
        for reason in passed:
            yield Skipped(row.line, reason)

    def finish(self) -> Iterator[ReadItem]:
        """Results whose calls never came."""
        yield from self._early.values()
        self._early.clear()

    def waits(self) -> bool:
        """Whether there are results whose calls may still come."""
        return bool(self._early)

    def _said(self, row: Row, said: Said, base: str | None, number: int) -> MessageRecord:
        if base is None:
            event_id = self.ids.next(self._scope, said.role, said.kind, said.text)
        else:
            event_id = base if number == 0 else f"{base}:{number}"
        kind = row.kind or said.kind
        extra = {} if kind == "speech" else {"kind": kind}
        return MessageRecord(event_id, said.role, said.text, metadata=self._metadata(row, extra), created_at=row.time)

    def _call(self, row: Row, call: Call) -> MessageRecord:
        metadata = self._metadata(row, {"kind": row.kind or "tool", **present(call.details)})
        result = call.result
        if call.native:
            native = f"{self._scope}{call.native}"
            event_id = self.calls.open(native)
            if early := self._early.pop(native, None):
                result, metadata = early.tool_result, {**metadata, **early.metadata}
        else:
            event_id = self.ids.next(self._scope, "call", call.name, json.dumps(call.arguments, sort_keys=True))
            if result is None:
                self.calls.open_nameless(event_id, call.name)
        return MessageRecord(
            event_id, "tool", "", call.name, call.arguments, result, metadata=metadata, created_at=row.time
        )

    def _result(self, row: Row, result: Result) -> Iterator[ReadItem]:
        native = f"{self._scope}{result.native}" if result.native else ""
        carried = {key: row.metadata.get(key) for key in ("sidechain", "agent_id")}
        metadata = {"kind": row.kind or "tool", **present({**carried, **result.details})}
        if self._pointer:
            metadata |= {"session_jsonl_path": str(self.path), "session_host": HOST, "result_jsonl_line": row.line - 1}
        if native and self.calls.knows(native):
            yield ToolResult(self.session, self.calls.answer(native), result.text, metadata, row.time)
        elif (paired := self.calls.answer_nameless(result.name)) is not None:
            metadata["paired_by"] = "position"
            yield ToolResult(self.session, paired, result.text, metadata, row.time)
        else:
            metadata |= present({"tool_name": result.name})
            event_id = f"tool:{native}" if native else self.ids.next(self._scope, "result", result.text)
            yield from self._hold(row, native, ToolResult(self.session, event_id, result.text, metadata, row.time))

    def _hold(self, row: Row, native: str, result: ToolResult) -> Iterator[ReadItem]:
        """Keeps a result until its call comes; one that no call can be found for is given as it is."""
        if not native or native in self._early:
            yield result
            return
        self._early[native] = result
        yield Skipped(row.line, "result before its call, given later")
        if len(self._early) > _EARLY:
            yield self._early.pop(next(iter(self._early)))

    def _metadata(self, row: Row, extra: Mapping[str, Any]) -> dict[str, Any]:
        pointer = line_pointer(self.path, row.line) if self._pointer else {}
        return {**present(row.metadata), **present(row.once), **pointer, **extra}

    def _title_from(self, row: Row, said: Said) -> Iterator[SessionUpdate]:
        spoken = (said.role, said.kind) == ("user", "speech")
        if self.titled or not spoken or row.kind or row.metadata.get("sidechain"):
            return
        if title := make_title(said.text):
            yield self.update(title=title)


class Telling:
    """What the readings of line files have in common: only a result waits, for its call."""

    teller: Teller

    def finish(self, *, abandoned: bool) -> Iterable[ReadItem]:
        """What is left at the end of a file that nobody writes any more."""
        return self.teller.finish()

    def waits(self) -> bool:
        """Whether something is left that a later record may still bear upon."""
        return self.teller.waits()
