"""Kimi's session files: `wire.jsonl` of an agent (Kimi Code), and the older `context.jsonl` (Kimi CLI).

`~/.kimi-code/sessions/<project>/<session>/agents/<agent>/wire.jsonl`, with the session's `state.json` above; sub-agents
have a folder of their own and belong to the same session. `~/.kimi/sessions/<project>/<session>/context.jsonl`, with
older parts in `context_<n>.jsonl` and sub-agents in `subagents/<agent>/`; the `wire.jsonl` beside it is of another form
and says the same, so that only the time of its beginning is taken from it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.lines import Line
from rivet_pipeline.transcripts.readers.blocks import (
    Call,
    Part,
    Result,
    Row,
    Teller,
    Telling,
    arguments_of,
    parts_of,
    result_text,
    split_prompt,
)
from rivet_pipeline.transcripts.readers.shared import (
    ContentIds,
    LineReader,
    RecentSet,
    Said,
    Transcript,
    file_state,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head, SourceState
from rivet_pipeline.transcripts.records import Kind, ReadItem, Role, SessionRecord, Skipped

HARNESS = "kimi-code"

_MAIN = "main"
_CONTEXT_NAME = re.compile(r"context(?:_\d+)?\.jsonl")
_CONTEXT_ROLES = frozenset({"system", "user", "assistant", "tool", "_checkpoint", "_usage", "_system_prompt"})

#: Between these stands the state of the work tree, before the task of a sub-agent.
_CONTEXT_START, _CONTEXT_END = "<git-context>", "</git-context>"

_SCAN = 64 * 1024

#: How many prompts may wait for the message that repeats them.
_PROMPTS = 64


class KimiReader(LineReader):
    """Reads Kimi Code's wire files of protocol 1.4 and 1.5, and Kimi CLI's context files."""

    harness = HARNESS
    agent = "rivet-kimi"

    def sniff(self, head: Head) -> bool:
        """Whether the file is a wire file or a context file."""
        return any(_is_wire(record) for record in head.records) or _is_context(head)

    def state(self, path: Path) -> SourceState:
        """The state of the file, of its session's `state.json`, and of what tells a context's beginning."""
        beside = [_state_path(path), _wire_beside(path)]
        return file_state(path, *(other for other in beside if other is not None))

    def start(self, path: Path, agent: str) -> Transcript:
        """The state with which a file is read."""
        return _Context(path, agent) if _CONTEXT_NAME.fullmatch(path.name) else _Wire(path, agent)


def _is_wire(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    if kind == "metadata":
        return "protocol_version" in record
    if kind == "context.append_message":
        return isinstance(record.get("message"), dict)
    return kind == "context.append_loop_event" and isinstance(record.get("event"), dict)


def _is_context(head: Head) -> bool:
    roles = [record.get("role") for record in head.records]
    named = _CONTEXT_NAME.fullmatch(head.path.name) is not None
    return named and bool(roles) and all(isinstance(role, str) and role in _CONTEXT_ROLES for role in roles)


def _in_agents(path: Path) -> bool:
    return path.name == "wire.jsonl" and path.parent.parent.name == "agents"


def _place(path: Path) -> tuple[Path | None, str]:
    """The folder of the session and the agent; no folder for a file that was taken out of its own."""
    if _in_agents(path):
        return path.parents[2], path.parent.name
    if not _CONTEXT_NAME.fullmatch(path.name):
        return None, _MAIN
    if path.parent.parent.name == "subagents":
        return path.parents[2], path.parent.name
    return path.parent, _MAIN


def _state_path(path: Path) -> Path | None:
    folder = _place(path)[0]
    return None if folder is None else folder / "state.json"


def _wire_beside(path: Path) -> Path | None:
    return path.with_name("wire.jsonl") if _CONTEXT_NAME.fullmatch(path.name) else None


def _began(wire: Path) -> datetime | None:
    """When a context's session began, as the first dated record of the wire file beside it says."""
    try:
        with wire.open("rb") as stream:
            records = Head(wire, stream.read(_SCAN), whole=False).records
    except OSError:
        return None
    return next(filter(None, (parse_time(record.get("timestamp")) for record in records)), None)


def _state(path: Path) -> dict[str, Any]:
    """What stands about the session beside its files; nothing when that can not be read."""
    state = _state_path(path)
    if state is None:
        return {}
    try:
        return mapping(json.loads(state.read_text("utf-8", "replace")))
    except (OSError, ValueError, RecursionError):
        return {}


def _teller(path: Path, agent: str) -> tuple[Teller, dict[str, Any]]:
    """The conversation that a file belongs to, and what each of its messages carries."""
    folder, slot = _place(path)
    main = slot == _MAIN
    native = path.stem if folder is None else folder.name
    state = _state(path)
    settings = {
        "source": HARNESS,
        "session_id": native,
        "cwd": state.get("workDir"),
        # A sub-agent's file is not its session's.
        "file": str(path) if main else None,
    }
    title = make_title(text_of(state.get("title") or state.get("custom_title")))
    record = SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, title, present(settings))
    common = {} if main else {"sidechain": True, "agent_id": slot}
    return Teller(path, record, scope="" if main else f"{slot}:"), common


class _Wire:
    """The state of one reading of a wire file: one agent of one session."""

    def __init__(self, path: Path, agent: str) -> None:
        self.teller, self.common = _teller(path, agent)
        #: Prompts that the harness took and that no message repeated yet.
        self.prompts: deque[tuple[Row, str]] = deque()
        self.said_before = RecentSet(_PROMPTS)
        self.model: Any = None
        self.handlers: dict[str, Callable[[Line], Iterable[ReadItem]]] = {
            "config.update": self._configure,
            "profile.bind": self._configure,
            "turn.prompt": self._prompt,
            "turn.steer": self._prompt,
            "turn.cancel": self._cancel,
            "turn.ended": self._ended,
            "context.append_message": self._message,
            "context.append_loop_event": self._event,
            "context.apply_compaction": self._compaction,
            "permission.record_approval_result": self._approval,
            "plugin.session_start": self._plugin,
        }

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one record comes to."""
        kind = text_of(line.value.get("type"))[:80]
        handler = self.handlers.get(kind)
        if handler is None:
            older = text_of(mapping(line.value.get("message")).get("type"))[:60]
            return [Skipped(line.number, kind or (f"older wire/{older}" if older else "without type"))]
        return list(handler(line)) or [Skipped(line.number, kind)]

    def finish(self, *, abandoned: bool) -> Iterable[ReadItem]:
        """Prompts that were typed and will not come to the model any more."""
        while abandoned and self.prompts:
            row, text = self.prompts.popleft()
            yield from self.teller.tell(row, split_prompt(text))
        yield from self.teller.finish()

    def waits(self) -> bool:
        """Whether there are prompts that a message may still repeat, or results whose calls may come."""
        return bool(self.prompts) or self.teller.waits()

    def _row(self, line: Line, identifier: Any = None, **metadata: Any) -> Row:
        return Row(
            line.number,
            identifier if isinstance(identifier, str) and identifier else None,
            parse_time(line.value.get("time")),
            {**self.common, **metadata},
        )

    def _say(self, line: Line, said: Said) -> Iterable[ReadItem]:
        return self.teller.tell(self._row(line), [said]) if said.text.strip() else []

    def _configure(self, line: Line) -> Iterator[ReadItem]:
        value = line.value
        self.model = value.get("modelAlias") or self.model
        disclosed = mapping(value.get("environmentDisclosure"))
        settings = present({"cwd": value.get("cwd") or disclosed.get("cwd"), "model": value.get("modelAlias")})
        if not self.common and settings.items() - self.teller.session.settings.items():
            yield self.teller.update(**settings)
        prompt = text_of(value.get("systemPrompt"))
        # It is stated again whenever the session is taken up.
        if self.said_before.add(content_event_id(prompt)):
            yield from self._say(line, Said("system", "injected", prompt))

    def _prompt(self, line: Line) -> Iterator[ReadItem]:
        if mapping(line.value.get("origin")).get("kind") != "user":
            return
        text = _text(line.value.get("input"))
        if text.strip():
            self.prompts.append((self._row(line), text))
            if len(self.prompts) > _PROMPTS:
                row, text = self.prompts.popleft()
                yield from self.teller.tell(row, split_prompt(text))

    def _cancel(self, line: Line) -> Iterable[ReadItem]:
        return self._say(line, Said("system", "notice", "[turn cancelled]"))

    def _ended(self, line: Line) -> Iterable[ReadItem]:
        reason = text_of(line.value.get("reason"))
        if reason in {"", "completed", "cancelled"}:
            return []
        error = line.value.get("error")
        text = text_of(mapping(error).get("message") or error)
        return self._say(line, Said("system", "notice", f"[turn ended: {reason}] {text}".strip()))

    def _message(self, line: Line) -> Iterator[ReadItem]:
        message = line.value["message"]
        origin = mapping(message.get("origin"))
        kind, name = text_of(origin.get("kind")), text_of(origin.get("name") or origin.get("variant"))
        parts, passed = parts_of(message.get("content"), "assistant" if message.get("role") == "assistant" else "user")
        if message.get("role") == "user":
            text = _text(message.get("content"))
            waiting = next((prompt for prompt in self.prompts if prompt[1] == text), None)
            if kind == "user" and waiting is not None:
                self.prompts.remove(waiting)
            parts = _told(parts, kind, name)
        parts = [*parts, *(_context_call(call) for call in message.get("toolCalls") or [])]
        row = self._row(line, message.get("id"), origin="/".join(filter(None, (kind, name))) if kind != "user" else "")
        yield from self.teller.tell(row, parts, passed)

    def _event(self, line: Line) -> Iterable[ReadItem]:
        event = line.value["event"]
        kind = text_of(event.get("type"))
        if kind == "content.part":
            parts, passed = parts_of([event.get("part")], "assistant")
            row = self._row(line, event.get("uuid"), model=self.model)
            return self.teller.tell(row, parts, passed)
        if kind == "tool.call":
            arguments = arguments_of(event.get("args")) or mapping(event.get("display")) or event.get("args")
            native = event.get("toolCallId") or event.get("uuid")
            details = {"description": event.get("description")}
            call = Call(text_of(event.get("name")) or "tool", arguments, native, details=details)
            return self.teller.tell(self._row(line, model=self.model), [call])
        if kind == "tool.result":
            return self.teller.tell(self._row(line), [_tool_result(event)])
        return [Skipped(line.number, f"loop event/{kind[:60]}")]

    def _compaction(self, line: Line) -> Iterable[ReadItem]:
        text = text_of(line.value.get("summary") or line.value.get("contextSummary"))
        return self._say(line, Said("system", "summary", text))

    def _approval(self, line: Line) -> Iterator[ReadItem]:
        result = mapping(line.value.get("result"))
        decision = text_of(result.get("decision"))
        if decision != "approved":
            text = f"[{decision or 'no decision'}] {text_of(line.value.get('action'))}".strip()
            yield from self._say(line, Said("system", "notice", text))
        yield from self._say(line, Said("user", "speech", text_of(result.get("feedback"))))

    def _plugin(self, line: Line) -> Iterable[ReadItem]:
        return self._say(line, Said("system", "injected", _text(line.value.get("content"))))


def _text(content: Any) -> str:
    return result_text(content)


def _told(parts: Iterable[Part], kind: str, name: str) -> list[Part]:
    """The parts of a message in the user's place, by who put it there.

    A sub-agent's task is what its parent said to it.
    """
    told: list[Part] = []
    for part in parts:
        if not isinstance(part, Said):
            told.append(part)
        elif name == "subagent" and _is_cut_context(part.text):
            told.append(Said("system", "injected", part.text))
        elif kind in {"", "user"} or (kind, name) == ("system_trigger", "subagent"):
            told.extend(split_prompt(part.text))
        else:
            machinery: Kind = "notice" if kind == "background_task" else "injected"
            told.append(Said("system", machinery, part.text))
    return told


def _is_cut_context(text: str) -> bool:
    """Whether a text is what the harness puts before a sub-agent's task, cut before its end."""
    return text.lstrip().startswith(_CONTEXT_START) and _CONTEXT_END not in text


def _tool_result(event: dict[str, Any]) -> Result:
    result = event.get("result")
    value = mapping(result)
    body = value.get("output") if value else result
    details = {
        "is_error": bool(value.get("isError")),
        "truncated_by_harness": bool(value.get("truncated")),
        "note": value.get("note"),
    }
    native = event.get("toolCallId") or event.get("parentUuid")
    return Result(result_text(body), text_of(native) or None, details=present(details))


def _context_call(call: Any) -> Call:
    """A call in OpenAI's form, as it stands in a message."""
    value = mapping(call)
    function = mapping(value.get("function")) or value
    name, arguments = text_of(function.get("name")) or "tool", arguments_of(function.get("arguments"))
    return Call(name, arguments, text_of(value.get("id")) or None)


class _Context(Telling):
    """The state of one reading of a context file, whose messages have neither ids nor times.

    A compaction begins the file anew, with the last messages of the older part, which keeps its name with a number.
    So that those stand once and later words are not taken for them, a message is known by what it says and by what was
    said before it.
    """

    def __init__(self, path: Path, agent: str) -> None:
        self.teller, self.common = _teller(path, agent)
        #: The one time there is, so the first record's.
        self.began = _began(path.with_name("wire.jsonl"))
        self.before = ""
        self.ids = ContentIds()
        self.open_calls: dict[str, str] = {}

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one record comes to."""
        value = line.value
        role = text_of(value.get("role"))
        if role == "tool":
            native = text_of(value.get("tool_call_id"))
            known = self.open_calls.pop(native, native) or None
            result = Result(result_text(value.get("content")), known)
            return self.teller.tell(Row(line.number, metadata=self.common), [result])
        if role not in {"system", "user", "assistant", "_system_prompt"}:
            return [Skipped(line.number, role or "without role")]
        speaker: Role = "assistant" if role == "assistant" else "user"
        parts, passed = parts_of(value.get("content"), speaker)
        if role == "user":
            parts = _told(parts, "user", "")
        elif role != "assistant":
            parts = [Said("system", "injected", part.text) for part in parts if isinstance(part, Said)]
        thoughts = text_of(value.get("reasoning_content"))
        if thoughts.strip():
            parts = [Said("assistant", "thinking", thoughts), *parts]
        parts = [*parts, *(self._call(call) for call in value.get("tool_calls") or [])]
        said = content_event_id(role, *map(repr, parts))
        source = {"time_source": "wire.jsonl"} if self.began else {}
        row = Row(line.number, self.ids.next(self.before, said), self.began, {**self.common, **source})
        self.before, self.began = said, None
        return list(self.teller.tell(row, parts, passed)) or [Skipped(line.number, f"{role} without text")]

    def _call(self, value: Any) -> Call:
        """A call, known by what it does too: its id may begin anew after a compaction."""
        call = _context_call(value)
        if call.native is None:
            return call
        mark = content_event_id(call.name, json.dumps(call.arguments, sort_keys=True))[-8:]
        self.open_calls[call.native] = f"{call.native}:{mark}"
        return replace(call, native=self.open_calls[call.native])
