"""What OpenCode's messages and their parts become, wherever they are kept: the database, the trees, exports.

The content of a message stands in its parts alone, and a part's id is the same in every store, so it is the event id.
Where messages are kept, and in which form, is the business of `opencode_db.py`, `opencode_tree.py`, `opencode.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.readers.conversation import Conversation
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    Said,
    binary_placeholder,
    is_long_ago,
    join_texts,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.records import Damaged, ReadItem, Skipped

HARNESS = "opencode"

#: Under this name a database adds to a message or part when its row was last written.
ROW_UPDATED = "row updated"

#: Titles that the harness gives before it knows better.
_DEFAULT_TITLE = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT")

#: Parts without words of their own: marks of steps, states of the work tree, mentions that stand in the prompt's text.
_MARKS = frozenset({"step-start", "step-finish", "snapshot", "agent"})

#: States of a tool call that will be replaced in place.
_UNFINISHED = frozenset({"pending", "running"})


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message. `pointer` is where it stands, as metadata; `line` is for reports."""

    id: str
    value: dict[str, Any]
    line: int = 0
    pointer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Message:
    """A message on its way through the reader."""

    info: dict[str, Any]
    id: str
    role: str
    metadata: dict[str, Any]
    #: Given to the first row of the message only, since it is counted once.
    usage: dict[str, Any]
    time: datetime | None

    @property
    def done(self) -> bool:
        """Whether the harness is through with it."""
        return bool(
            mapping(self.info.get("time")).get("completed") or self.info.get("finish") or self.info.get("error")
        )

    @property
    def summarises(self) -> bool:
        """Whether it is what a compaction says. A user's message may carry an object of the same name."""
        return self.info.get("summary") is True or self.info.get("agent") == "compaction"


class OpenCodeSession:
    """Gives the messages of one session."""

    def __init__(
        self, session: Mapping[str, Any], agent: str, file: Path, *, given_up: bool, shared: bool = False
    ) -> None:
        title = text_of(session.get("title"))
        settings = {
            "file": str(file),
            "cwd": session.get("directory"),
            "version": session.get("version"),
            "project_id": session.get("projectID"),
            "parent_session_id": session.get("parentID"),
        }
        self.talk = Conversation(
            HARNESS,
            text_of(session["id"]),
            agent,
            title="" if _DEFAULT_TITLE.match(title) else title,
            began=parse_time(mapping(session.get("time")).get("created")),
            settings=settings,
        )
        #: Whether something was held back that may still change.
        self.held = False
        self._given_up = given_up
        #: Whether its store holds other sessions too, whose changes say nothing of this one.
        self._shared = shared
        self._reverted = mapping(session.get("revert"))
        self._off_path = False
        self._handlers: dict[str, Callable[[_Message, Part], Iterable[ReadItem]]] = {
            "text": self._text,
            "reasoning": self._reasoning,
            "tool": self._tool,
            "file": self._file,
            "subtask": self._subtask,
            "compaction": self._compaction,
            "retry": self._retry,
            "patch": self._patch,
        }

    def message(self, line: int, info: dict[str, Any], parts: Iterable[Part | Damaged]) -> Iterator[ReadItem]:
        """The rows of one message. What has an unexpected shape is damaged and touches nothing else."""
        try:
            message = self._open(info)
        except SHAPE_ERRORS:
            yield Damaged(line, "message of unexpected shape")
            return
        empty = True
        for part in parts:
            empty = False
            yield from [part] if isinstance(part, Damaged) else self._part(message, part)
        try:
            extra = [*(self._without_parts(message) if empty else []), *self._error(message)]
        except SHAPE_ERRORS:
            extra = [Damaged(line, "message of unexpected shape")]
        yield from extra
        if empty and not extra:
            yield Skipped(line, "message without parts")

    def _open(self, info: dict[str, Any]) -> _Message:
        times, model = mapping(info.get("time")), mapping(info.get("model"))
        place = info.get("path")
        if info.get("id") and info["id"] == self._reverted.get("messageID") and not self._reverted.get("partID"):
            self._off_path = True
        known = {
            "message_id": info.get("id"),
            "model": info.get("modelID") or model.get("modelID"),
            "provider": info.get("providerID") or model.get("providerID"),
            "mode": info.get("mode") or info.get("agent"),
            "cwd": mapping(place).get("cwd") or (place if isinstance(place, str) else None),
        }
        usage = {"usage": info.get("tokens"), "cost": info.get("cost")}
        return _Message(
            info, text_of(info.get("id")), text_of(info.get("role")), present(known), present(usage),
            parse_time(times.get("created")),
        )  # fmt: skip

    def _part(self, message: _Message, part: Part) -> list[ReadItem]:
        kind = text_of(part.value.get("type"))[:60]
        if part.id == self._reverted.get("partID"):
            self._off_path = True
        if kind in _MARKS:
            return [Skipped(part.line, f"part/{kind}")]
        handler = self._handlers.get(kind)
        if handler is None:
            return [Skipped(part.line, f"part/{kind or 'without type'}")]
        try:
            if _may_change(message, kind, part.value) and not self._is_given_up(message, part.value):
                self.held = True
                return []
            return list(handler(message, part)) or [Skipped(part.line, f"part/{kind} without text")]
        except SHAPE_ERRORS:
            return [Damaged(part.line, f"part/{kind} of unexpected shape")]

    # The parts

    def _text(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        text = part.value["text"]
        if not text.strip():
            return
        if part.value.get("ignored"):
            said = Said("system", "notice", text)
        elif part.value.get("synthetic"):
            said = Said("system", "injected", text)
        elif message.role == "user":
            said = Said("user", "speech", text)
        elif message.role == "assistant":
            said = Said("assistant", "summary" if message.summarises else "speech", text)
        else:
            yield Damaged(part.line, "text of an unknown speaker")
            return
        yield from self._say(message, part, said)

    def _reasoning(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        if part.value["text"].strip():
            yield from self._say(message, part, Said("assistant", "thinking", part.value["text"]))

    def _tool(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        state = part.value["state"]
        details = mapping(state.get("metadata"))
        code = details.get("exit")
        known = {
            "call_id": part.value.get("callID"),
            "exit_code": code,
            "is_error": state.get("status") == "error" or bool(code),
            "child_session_id": details.get("sessionId"),
        }
        arguments = state.get("input") or state.get("raw")
        metadata = {**self._metadata(message, part), **present(known)}
        yield self.talk.call(
            part.id, part.value.get("tool"), arguments, metadata, self._time(message, part), _output(state)
        )

    def _file(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        value = part.value
        url, name = text_of(value.get("url")), text_of(value.get("filename"))
        if url.startswith("data:"):
            text = _placeholder(value)
            kind = Said("user", "speech", text) if message.role == "user" else Said("system", "notice", text)
        else:
            # The prompt names it, and what the harness read there is a synthetic part of its own.
            kind = Said("system", "injected" if message.role == "user" else "notice", f"[file {name or url}]")
        yield from self._say(message, part, kind)

    def _subtask(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        value = part.value
        known = present({key: value.get(key) for key in ("agent", "command", "description")})
        text = text_of(value.get("prompt")) or text_of(value.get("description"))
        yield from self._say(message, part, Said("system", "injected", text), subtask=known)

    def _compaction(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        # As a rule it only marks the place, and the summary is a message of its own.
        text = text_of(part.value.get("summary") or part.value.get("text"))
        if text.strip():
            yield from self._say(message, part, Said("system", "summary", text))

    def _retry(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        text = _error_text(part.value.get("error"))
        if text:
            yield from self._say(message, part, Said("system", "notice", text), attempt=part.value.get("attempt"))

    def _patch(self, message: _Message, part: Part) -> Iterator[ReadItem]:
        files = [text_of(name) for name in part.value.get("files") or []]
        if files:
            text = f"[patch {', '.join(files)}]"
            yield from self._say(message, part, Said("system", "notice", text), patch=part.value.get("hash"))

    def _error(self, message: _Message) -> Iterator[ReadItem]:
        text = _error_text(message.info.get("error"))
        if text:
            yield from self._say(message, Part(f"{message.id}:error", {}), Said("system", "notice", text))

    def _without_parts(self, message: _Message) -> Iterator[ReadItem]:
        """What is left of a prompt whose parts are gone, or are yet to come."""
        summary = mapping(message.info.get("summary"))
        text = text_of(summary.get("body") or summary.get("title"))
        if message.role != "user" or not text.strip():
            return
        if self._is_given_up(message, {}):
            yield from self._say(message, Part(f"{message.id}:summary", {}), Said("user", "speech", text), lost="parts")
        else:
            self.held = True

    def _is_given_up(self, message: _Message, value: dict[str, Any]) -> bool:
        """Whether nobody will go on with what is open, judged by the source, else by the part's and message's times."""
        if self._given_up or not self._shared:
            return self._given_up
        info = message.info
        times = [mapping(of.get("time")) for of in (info, value, mapping(value.get("state")))]
        latest = [time.get(key) for time in times for key in ("created", "start", "end")]
        return is_long_ago(*latest, info.get(ROW_UPDATED), value.get(ROW_UPDATED))

    def _say(self, message: _Message, part: Part, said: Said, **more: Any) -> Iterator[ReadItem]:
        if said.text.strip():
            metadata = {**self._metadata(message, part), **present(more)}
            yield from self.talk.say(said, part.id, metadata, self._time(message, part))

    def _metadata(self, message: _Message, part: Part) -> dict[str, Any]:
        usage, message.usage = message.usage, {}
        return {**message.metadata, **usage, **part.pointer, **present({"off_path": self._off_path})}

    def _time(self, message: _Message, part: Part) -> datetime | None:
        """A part's own time, else its message's when nothing of the message came before it."""
        times = mapping(part.value.get("time")) or mapping(mapping(part.value.get("state")).get("time"))
        own, begun = parse_time(times.get("start") or times.get("created")), message.time
        message.time = None
        return own or begun


def _may_change(message: _Message, kind: str, value: dict[str, Any]) -> bool:
    """Whether the harness may still replace the part with more of it."""
    if kind == "tool":
        return mapping(value.get("state")).get("status") in _UNFINISHED
    if kind not in {"text", "reasoning"} or message.role == "user" or value.get("synthetic"):
        return False
    return not (message.done or mapping(value.get("time")).get("end"))


def _output(state: dict[str, Any]) -> str | None:
    if state.get("status") in _UNFINISHED:
        return None
    failed = state.get("status") == "error"
    text = text_of(state.get("error") if failed and state.get("error") else state.get("output"))
    return join_texts([text, *(_placeholder(mapping(file)) for file in state.get("attachments") or [])])


def _placeholder(file: dict[str, Any]) -> str:
    media_type = text_of(file.get("mime"))
    what = "image" if media_type.startswith("image/") else "file"
    return binary_placeholder(what, media_type, file.get("url"))


def _error_text(error: Any) -> str:
    if isinstance(error, str):
        return error
    said = mapping(error)
    return text_of(mapping(said.get("data")).get("message") or said.get("message") or said.get("name"))
