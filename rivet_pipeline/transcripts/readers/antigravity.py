"""Antigravity's logs: `~/.gemini/antigravity*/brain/<session>/.system_generated/logs/transcript.jsonl`.

A row is a step. `transcript_full.jsonl` beside it tells the same steps with nothing cut; what it tells is not told
again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import Line, open_stream, read_lines, without_compression
from rivet_pipeline.transcripts.readers.google_parts import RowIds, arguments
from rivet_pipeline.transcripts.readers.shared import (
    LineReader,
    Said,
    file_state,
    line_pointer,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head, SourceState
from rivet_pipeline.transcripts.records import (
    Kind,
    Message,
    MessageRecord,
    ReadItem,
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

HARNESS = "antigravity"

_CUT_NAME, _WHOLE_NAME = "transcript.jsonl", "transcript_full.jsonl"
_GENERATED = ".system_generated"

#: Longer lines of the other file are not looked at, in bytes.
_MAX_LINE = 256 * 1024 * 1024

#: States of a step that is not at its end.
_OPEN = frozenset({"PENDING", "QUEUED", "RUNNING", "WAITING", "GENERATING"})

#: The step in which a tool's result comes. That of any other tool is a GENERIC one.
_STEP_OF_TOOL = {
    "list_dir": "LIST_DIRECTORY",
    "view_file": "VIEW_FILE",
    "run_command": "RUN_COMMAND",
    "grep_search": "GREP_SEARCH",
    "search_web": "SEARCH_WEB",
    "write_file": "CODE_ACTION",
    "write_to_file": "CODE_ACTION",
    "replace_file_content": "CODE_ACTION",
    "multi_replace_file_content": "CODE_ACTION",
}
_KNOWN_STEPS = frozenset(_STEP_OF_TOOL.values())

#: What the rest of the steps are, as long as they say something.
_KINDS: dict[str, Kind] = {
    "CHECKPOINT": "summary",
    "CONVERSATION_HISTORY": "injected",
    "SYSTEM_MESSAGE": "injected",
    "EPHEMERAL_MESSAGE": "injected",
    "KNOWLEDGE_ARTIFACTS": "injected",
    "ERROR_MESSAGE": "notice",
}

_REQUEST = re.compile(r"<USER_REQUEST>\s*(.*?)\s*</USER_REQUEST>", re.DOTALL)
_BLOCK = re.compile(r"\s*<(?P<tag>[A-Z][A-Z_]+)>.*?</(?P=tag)>\s*", re.DOTALL)
_MODEL = re.compile(r"`Model Selection` from .*? to (.+?)\.(?:\s|$)")


class AntigravityReader(LineReader):
    """Reads the logs of Antigravity's CLI and IDE."""

    harness = HARNESS
    agent = "rivet-antigravity"

    def sniff(self, head: Head) -> bool:
        """Whether the file is such a log, judged by its beginning."""
        return any(_is_own(record) for record in head.records)

    def state(self, path: Path) -> SourceState:
        """The state of the file and of the one that tells its steps whole."""
        whole = _whole_file(path)
        return file_state(path, whole) if whole else file_state(path)

    def start(self, path: Path, agent: str) -> _Transcript:
        """The state with which a file is read."""
        return _Transcript(path, agent)


def _is_own(record: dict[str, Any]) -> bool:
    return isinstance(record.get("step_index"), int) and record.keys() >= {"source", "type", "status"}


def _whole_file(path: Path) -> Path | None:
    return path.with_name(_WHOLE_NAME) if path.name == _CUT_NAME else None


def _told_whole(path: Path) -> frozenset[int]:
    """The steps that the file beside this one tells whole."""
    whole = _whole_file(path)
    if whole is None or not whole.is_file():
        return frozenset()
    with open_stream(whole) as stream:
        records = (item.value for item in read_lines(stream, max_line=_MAX_LINE) if isinstance(item, Line))
        return frozenset(record["step_index"] for record in records if _is_own(record))


def _session_id(path: Path) -> str:
    """The session's id, which only the path tells."""
    parts = path.parts
    if _GENERATED in parts and parts.index(_GENERATED) > 0:
        return parts[parts.index(_GENERATED) - 1]
    return without_compression(path).stem


class _Transcript:
    """The state of one reading: the calls that wait for their step, and the steps that are not at their end."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.told_whole = _told_whole(path)
        self.ids = RowIds()
        self.calls: deque[tuple[str, str]] = deque()
        self.open: dict[int, Line] = {}
        self.titled = False
        native = _session_id(path)
        settings = {"source": HARNESS, "session_id": native, "file": str(path)}
        self.record = SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, settings=settings)

    def take(self, line: Line) -> list[ReadItem]:
        """What one step comes to."""
        value = line.value
        if not _is_own(value):
            return [Skipped(line.number, text_of(value.get("type"))[:80] or "without step")]
        step = value["step_index"]
        if step in self.told_whole:
            return [Skipped(line.number, f"step that stands in {_WHOLE_NAME}")]
        if value["status"] in _OPEN:
            self.open[step] = line
            return []
        self.open.pop(step, None)
        return list(self._step(line))

    def finish(self, *, abandoned: bool) -> list[ReadItem]:
        """Steps that will not come to their end any more, as far as they got."""
        if not abandoned:
            return []
        left = list(self.open.values())
        self.open.clear()
        return [item for line in left for item in self._step(line)]

    def waits(self) -> bool:
        """Whether steps are left that are not at their end."""
        return bool(self.open)

    def _step(self, line: Line) -> Iterator[ReadItem]:
        kind = text_of(line.value["type"])[:80]
        text = text_of(line.value.get("content"))
        if kind == "PLANNER_RESPONSE":
            yield from self._answer(line, text)
        elif kind == "USER_INPUT":
            yield from self._prompt(line, text)
        elif kind in _KINDS or line.value["source"] == "SYSTEM":
            yield from self._say(line, [Said("system", _KINDS.get(kind, "notice"), text)] if text.strip() else [])
        else:
            yield from self._result(line, kind, text)

    def _prompt(self, line: Line, text: str) -> Iterator[ReadItem]:
        self.calls.clear()
        said = _split_prompt(text)
        if line.value["source"] == "SYSTEM":
            said = [Said("system", "injected", part.text) for part in said]
        if model := _MODEL.search(text):
            self.record = replace(self.record, settings={**self.record.settings, "model": model.group(1)})
        yield from self._say(line, said)
        for part in said:
            if not self.titled and part.kind == "speech" and (title := make_title(part.text)):
                self.titled = True
                yield SessionUpdate(replace(self.record, title=title))

    def _answer(self, line: Line, text: str) -> Iterator[ReadItem]:
        value = line.value
        thinking = text_of(value.get("thinking"))
        said = [Said("assistant", "thinking", thinking)] if thinking.strip() else []
        if text.strip():
            said.append(Said("assistant", "speech", text))
        calls = value.get("tool_calls") or []
        if said or not calls:
            yield from self._say(line, said)
        if calls:
            self.calls.clear()
        for number, call in enumerate(calls):
            name = text_of(call.get("name")) or "tool"
            event_id = self.ids.next(f"step:{value['step_index']}:call:{number}", "tool", text_of(call))
            self.calls.append((name, event_id))
            yield self._tool(line, event_id, name, _arguments(call), None)

    def _result(self, line: Line, kind: str, text: str) -> Iterator[ReadItem]:
        """A tool's step: the result of the call before it, or all there is of a call that is not told."""
        failed = line.value["status"] == "ERROR"
        event_id = self._call_of(kind)
        if event_id is None:
            event_id = self._id(line, "tool")
            yield self._tool(line, event_id, kind.lower(), None, text, is_error=failed)
            return
        metadata = {**self._metadata(line), **present({"kind": "tool", "is_error": failed})}
        metadata["result_jsonl_line"] = metadata.pop("session_jsonl_line")
        yield ToolResult(self.record, event_id, text, metadata, parse_time(line.value.get("created_at")))

    def _call_of(self, kind: str) -> str | None:
        for call in self.calls:
            name, event_id = call
            expected = _STEP_OF_TOOL.get(name, "")
            if expected == kind or (not expected and kind not in _KNOWN_STEPS):
                self.calls.remove(call)
                return event_id
        return None

    def _tool(self, line: Line, event_id: str, name: str, args: Any, result: str | None, **marks: Any) -> Message:
        metadata = {**self._metadata(line), "kind": "tool", **present(marks)}
        time = parse_time(line.value.get("created_at"))
        record = MessageRecord(event_id, "tool", "", name, args, result, metadata=metadata, created_at=time)
        return Message(self.record, record)

    def _say(self, line: Line, said: list[Said]) -> Iterator[ReadItem]:
        for part in said:
            event_id = self._id(line, part.kind)
            marks = {} if part.kind == "speech" else {"kind": part.kind}
            metadata = {**self._metadata(line), **marks}
            time = parse_time(line.value.get("created_at"))
            yield Message(
                self.record, MessageRecord(event_id, part.role, part.text, metadata=metadata, created_at=time)
            )
        if not said:
            yield Skipped(line.number, f"{text_of(line.value['type'])[:80]} without text")

    def _id(self, line: Line, kind: Kind) -> str:
        return self.ids.next(f"step:{line.value['step_index']}", kind, text_of(line.value))

    def _metadata(self, line: Line) -> dict[str, Any]:
        value = line.value
        marks = {
            "truncated_fields": value.get("truncated_fields"),
            "status": None if value["status"] == "DONE" else text_of(value["status"]),
        }
        return {**present(marks), **line_pointer(self.path, line.number)}


def _split_prompt(text: str) -> list[Said]:
    """A prompt as the user's words and the blocks that the harness put around them."""
    request = _REQUEST.search(text)
    if request:
        words, rest = request.group(1), text.replace(request.group(), "")
    else:
        words, rest = _BLOCK.sub("\n", text), "\n".join(match.group().strip() for match in _BLOCK.finditer(text))
    said = [Said("user", "speech", words.strip()), Said("system", "injected", rest.strip())]
    return [part for part in said if part.text]


def _arguments(call: dict[str, Any]) -> Any:
    """A call's arguments. Each is JSON of its own."""
    args = call.get("args", call.get("arguments"))
    if isinstance(args, dict):
        return {key: arguments(value) for key, value in mapping(args).items()}
    return arguments(args)
