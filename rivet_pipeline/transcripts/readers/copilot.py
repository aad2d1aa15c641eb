"""GitHub Copilot CLI's event files: `~/.copilot/session-state/<session id>/events.jsonl`.

Which event is speech, tool traffic or machinery is decided here. Every event has an id and a time of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import Line
from rivet_pipeline.transcripts.readers.blocks import (
    Call,
    Part,
    Result,
    Row,
    Teller,
    Telling,
    result_text,
)
from rivet_pipeline.transcripts.readers.shared import (
    LineReader,
    Said,
    arguments_of,
    join_texts,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head
from rivet_pipeline.transcripts.records import Kind, ReadItem, SessionRecord, Skipped

HARNESS = "copilot-cli"

_FAMILIES = ("session.", "user.", "assistant.", "tool.", "system.", "subagent.", "hook.")

#: Events of the harness that say something: what kind they are, and where their words stand.
_SAYINGS: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "system.message": ("injected", ("content",)),
    "skill.invoked": ("injected", ("content",)),
    "system.notification": ("notice", ("content",)),
    "session.error": ("notice", ("message",)),
    "session.warning": ("notice", ("message",)),
    "session.info": ("notice", ("message",)),
    "session.task_complete": ("notice", ("summary",)),
    "subagent.failed": ("notice", ("error",)),
    "abort": ("notice", ("reason",)),
    "session.compaction_complete": ("summary", ("summaryContent",)),
    "session.handoff": ("summary", ("summary", "context")),
}


class CopilotReader(LineReader):
    """Reads GitHub Copilot CLI's event files."""

    harness = HARNESS
    agent = "rivet-copilot"

    def sniff(self, head: Head) -> bool:
        """Whether the file holds events of Copilot CLI."""
        return any(_is_event(record) for record in head.records[:20])

    def start(self, path: Path, agent: str) -> _Session:
        """The state with which a file is read."""
        return _Session(path, agent)


def _is_event(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    known = isinstance(kind, str) and kind.startswith(_FAMILIES)
    return known and isinstance(record.get("data"), dict) and {"id", "timestamp", "parentId"} <= record.keys()


class _Session(Telling):
    """The state of one reading."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        native = path.parent.name if path.name == "events.jsonl" else path.stem
        self.teller = Teller(path, SessionRecord(f"{HARNESS}:{native}", agent, HARNESS))
        self.last_thought = ""
        self.handlers: dict[str, Callable[[Row, dict[str, Any]], Iterable[ReadItem]]] = {
            "session.start": self._start,
            "session.title_changed": self._title,
            "user.message": self._prompt,
            "assistant.message": self._answer,
            "assistant.reasoning": self._reasoning,
            "tool.execution_start": self._call,
            "tool.execution_complete": self._result,
        }

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one event comes to."""
        value = line.value
        kind = text_of(value.get("type"))[:80]
        data = mapping(value.get("data"))
        native = value.get("id")
        row = Row(
            line.number,
            native if isinstance(native, str) and native else None,
            parse_time(value.get("timestamp")),
            _metadata(data),
            {"output_tokens": data.get("outputTokens")},
        )
        if kind in _SAYINGS:
            sort, keys = _SAYINGS[kind]
            text = next((text for key in keys if (text := _words(data.get(key)))), "")
            items = self.teller.tell(row, [Said("system", sort, text)] if text.strip() else [])
        elif kind in self.handlers:
            items = iter(self.handlers[kind](row, data))
        else:
            items = iter(())
        return list(items) or [Skipped(line.number, kind or "without type")]

    def _start(self, row: Row, data: dict[str, Any]) -> Iterable[ReadItem]:
        if self.teller.session.settings:
            return []
        context = mapping(data.get("context"))
        native = text_of(data.get("sessionId")) or self.path.parent.name
        settings = {
            "source": HARNESS,
            "session_id": native,
            "cwd": context.get("cwd"),
            "file": str(self.path),
            "model": data.get("selectedModel"),
            "version": data.get("copilotVersion"),
            "git_branch": context.get("branch"),
            "repository": context.get("repository"),
        }
        agent = self.teller.session.agent
        self.teller = Teller(self.path, SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, None, present(settings)))
        return []

    def _title(self, row: Row, data: dict[str, Any]) -> Iterable[ReadItem]:
        title = make_title(text_of(data.get("title")))
        return [self.teller.update(title=title)] if title else []

    def _prompt(self, row: Row, data: dict[str, Any]) -> Iterable[ReadItem]:
        words, given = text_of(data.get("content")), text_of(data.get("transformedContent"))
        parts: list[Part] = [Said("user", "speech", words)] if words.strip() else []
        if around := _around(words, given):
            parts.append(Said("system", "injected", around))
        return self.teller.tell(row, parts)

    def _answer(self, row: Row, data: dict[str, Any]) -> Iterable[ReadItem]:
        parts: list[Part] = []
        thoughts, words = text_of(data.get("reasoningText")), text_of(data.get("content"))
        if thoughts.strip() and thoughts != self.last_thought:
            parts.append(Said("assistant", "thinking", thoughts))
        self.last_thought = ""
        if words.strip():
            parts.append(Said("assistant", "speech", words))
        for request in data.get("toolRequests") or []:
            native = text_of(request.get("toolCallId"))
            arguments, name = arguments_of(request.get("arguments")), text_of(request.get("name")) or "tool"
            parts.append(Call(name, arguments, native or None, None, _intent(request)))
        return self.teller.tell(row, parts)

    def _reasoning(self, row: Row, data: dict[str, Any]) -> Iterable[ReadItem]:
        # The message that follows may state it again.
        self.last_thought = text_of(data.get("content"))
        said = Said("assistant", "thinking", self.last_thought)
        return self.teller.tell(row, [said]) if said.text.strip() else []

    def _call(self, row: Row, data: dict[str, Any]) -> Iterator[ReadItem]:
        native = text_of(data.get("toolCallId"))
        if native and self.teller.calls.knows(native):
            yield Skipped(row.line, "tool.execution_start, given before")
            return
        name = text_of(data.get("toolName") or data.get("mcpToolName")) or "tool"
        yield from self.teller.tell(row, [Call(name, arguments_of(data.get("arguments")), native or None)])

    def _result(self, row: Row, data: dict[str, Any]) -> Iterable[ReadItem]:
        result, error = data.get("result"), data.get("error")
        text = _words(mapping(result).get("content") if isinstance(result, dict) else result)
        text = text or _words(mapping(result).get("detailedContent"))
        failed = data.get("success") is False or bool(error)
        found = Result(
            join_texts([text, _words(error)]),
            text_of(data.get("toolCallId")) or None,
            details=present({"is_error": failed}),
        )
        return self.teller.tell(row, [found])


def _around(words: str, given: str) -> str:
    """What the harness put around a prompt when it gave it to the model; all of it when the words are not found."""
    own = re.search(rf"(?:\A|\n){re.escape(words)}(?=\n|\Z)", given)
    return (given[: own.start()] + given[own.end() :] if own else given).strip()


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    parent = data.get("parentToolCallId")
    files = [mapping(file) for file in data.get("attachments") or []]
    return {
        "model": data.get("model"),
        "message_id": data.get("messageId"),
        "turn_id": data.get("turnId"),
        "attachments": [text_of(file.get("path") or file.get("displayName"))[:500] for file in files],
        # A sub-agent's events name the call that it works for.
        "sidechain": bool(parent),
        "agent_id": parent,
    }


def _intent(request: dict[str, Any]) -> dict[str, Any]:
    return present({"description": request.get("intentionSummary")})


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return text_of(value.get("message")) or text_of(present(value) or None)
    return result_text(value)
