"""Grok Build's session folders: `~/.grok/sessions/<cwd>/<session id>/` with `updates.jsonl` and `chat_history.jsonl`.

`updates.jsonl` is a stream of updates of the Agent Client Protocol and holds all that was said, with times, in pieces.
`chat_history.jsonl` (and its older form, `source-v1.jsonl`) is what the model was last given: no times, no ids, and cut
at a compaction. A folder's richest file is read; the others are stepped over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import Line, open_stream
from rivet_pipeline.transcripts.readers.blocks import (
    Call,
    Part,
    Result,
    Row,
    Teller,
    Telling,
    arguments_of,
    file_text,
    parts_of,
    result_text,
    split_prompt,
)
from rivet_pipeline.transcripts.readers.shared import (
    LineReader,
    Said,
    Transcript,
    file_state,
    join_texts,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head, Reading, SourceState
from rivet_pipeline.transcripts.records import Incomplete, Kind, Paused, ReadItem, Role, SessionRecord, Skipped

HARNESS = "grok-build"

#: A folder's files that hold its session, the richest first, and the one that describes it.
_RANKED = ("updates.jsonl", "source-v1.jsonl", "chat_history.jsonl")
_SUMMARY = "summary.json"

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_CHAT_TYPES = frozenset({"system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call"})
_CHAT_ROLES = frozenset({"system", "user", "assistant", "tool"})

_CHUNKS: dict[str, tuple[Role, Kind]] = {
    "user_message_chunk": ("user", "speech"),
    "agent_message_chunk": ("assistant", "speech"),
    "agent_thought_chunk": ("assistant", "thinking"),
}
_SPOKEN = tuple(f'"{kind}"'.encode() for kind in _CHUNKS)

#: Fewer numbers in a row are numbers; more, all of them bytes, are a program's output.
_FEWEST_BYTES = 16
_DEEPEST = 6

_SCAN = 1024 * 1024


class GrokReader(LineReader):
    """Reads Grok Build's update streams and chat histories."""

    harness = HARNESS
    agent = "rivet-grok"

    def sniff(self, head: Head) -> bool:
        """Whether the file is an update stream or a chat history of Grok Build."""
        named = head.path.name.endswith(_RANKED[1:])
        return any(_is_update(record) or _is_chat(record, named=named) for record in head.records)

    def state(self, path: Path) -> SourceState:
        """The state of the file, of the others of its session, and of its summary."""
        others = [path.with_name(name) for name in _companions(path).values() if name != path.name]
        return file_state(path, *others)

    def start(self, path: Path, agent: str) -> Transcript:
        """The state with which a file is read."""
        with open_stream(path) as stream:
            head = Head(path, stream.read(_SCAN), whole=False)
        return _Updates(path, agent) if any(map(_is_update, head.records)) else _Chat(path, agent)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The file's records; of a file whose session stands in a richer one, only that."""
        richer = _richer(path)
        if richer is None:
            yield from super().read(path, how)
            return
        if richer.name.endswith(_RANKED[0]) and not _speaks(richer):
            # The session may be so young that its first words are not in the stream yet.
            if how.given_up:
                yield from super().read(path, how)
                return
            yield Incomplete(1)
        else:
            yield Skipped(1, f"the session is read from {richer.name}")
        while how.follow:
            yield Paused()


def _is_update(record: dict[str, Any]) -> bool:
    parameters = mapping(record.get("params"))
    method = record.get("method")
    known = isinstance(method, str) and method.endswith("session/update") and "sessionId" in parameters
    return known and "sessionUpdate" in mapping(parameters.get("update"))


def _is_chat(record: dict[str, Any], *, named: bool) -> bool:
    if "message" in record or "uuid" in record or "sessionId" in record:
        return False
    kind = record.get("type")
    if kind == "backend_tool_call":
        return isinstance(record.get("kind"), dict)
    if kind == "user" and "content" in record and record.keys() & {"prompt_index", "synthetic_reason"}:
        return True
    if kind == "assistant" and "content" in record and "model_id" in record:
        return True
    return named and "content" in record and (kind in _CHAT_TYPES or (not kind and record.get("role") in _CHAT_ROLES))


def _companions(path: Path) -> dict[str, str]:
    """The names of the files of one session, by what they are; none for a file of another name.

    Copies are kept with something in front of the name, the same for all of a session.
    """
    own = next((name for name in _RANKED if path.name.endswith(name)), None)
    if own is None:
        return {}
    front = path.name.removesuffix(own)
    return {name: front + name for name in (*_RANKED, _SUMMARY)}


def _richer(path: Path) -> Path | None:
    """The richest other file of the session, if there is one that is richer than this."""
    for kind, name in _companions(path).items():
        if kind == _SUMMARY or name == path.name:
            return None
        other = path.with_name(name)
        if other.is_file() and other.stat().st_size:
            return other
    return None


def _speaks(path: Path) -> bool:
    """Whether anything is said in an update stream."""
    with path.open("rb") as stream:
        tail = b""
        while data := stream.read(_SCAN):
            if any(mark in tail + data for mark in _SPOKEN):
                return True
            tail = data[-40:]
    return False


def _teller(path: Path, agent: str, native: str | None, summary: dict[str, Any]) -> Teller:
    """The conversation of a file, with what its summary says about it."""
    info = mapping(summary.get("info"))
    if native is None:
        native = text_of(info.get("id"))
        if not native:
            native = path.parent.name if _UUID.fullmatch(path.parent.name) else path.stem
    settings = {
        "source": HARNESS,
        "session_id": native,
        "cwd": info.get("cwd"),
        "file": str(path),
        "model": summary.get("current_model_id"),
        "git_branch": summary.get("head_branch"),
        "parent_session_id": summary.get("parent_session_id"),
        "agent_name": summary.get("agent_name"),
    }
    titles = (make_title(text_of(summary.get(key))) for key in ("generated_title", "session_summary", "title"))
    title = next(filter(None, titles), None)
    return Teller(path, SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, title, present(settings)))


def _summary(path: Path) -> dict[str, Any]:
    name = _companions(path).get(_SUMMARY)
    if name is None:
        return {}
    try:
        return mapping(json.loads(path.with_name(name).read_text("utf-8", "replace")))
    except (OSError, ValueError, RecursionError):
        return {}


@dataclass(slots=True)
class _Run:
    """A message that is still being put together from its pieces."""

    kind: str
    prompt: str
    row: Row
    texts: list[str] = field(default_factory=list)


class _Updates:
    """The state of one reading of an update stream: what is still growing."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.agent = agent
        self.teller: Teller | None = None
        #: The prompt may be written after its answer has begun, so each side grows on its own.
        self.runs: dict[Role, _Run] = {}
        #: Calls whose arguments are not known yet, by id.
        self.calls: dict[str, tuple[Row, Call]] = {}
        self.handlers: dict[str, Callable[[Row, dict[str, Any]], Iterable[ReadItem]]] = {
            "tool_call": self._call,
            "tool_call_update": self._call_update,
            "plan": self._plan,
            "memory_flush_completed": self._flushed,
            "hook_execution": self._hook,
        }

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one update comes to, and what can not grow any more because of it."""
        parameters = line.value["params"]
        update = parameters["update"]
        kind = text_of(update["sessionUpdate"])[:80]
        if self.teller is None:
            self.teller = _teller(
                self.path, self.agent, text_of(parameters.get("sessionId")) or None, _summary(self.path)
            )
        meta = mapping(parameters.get("_meta"))
        stamp = meta.get("agentTimestampMs")
        time = parse_time(stamp) or parse_time(line.value.get("timestamp"))
        native = meta.get("eventId")
        # Counted anew whenever the session is taken up.
        identifier = f"{native}@{stamp}" if native else None
        row = Row(line.number, identifier, time, {"model": mapping(update.get("_meta")).get("modelId")})
        if kind in _CHUNKS:
            prompt = meta.get("promptId") or mapping(update.get("_meta")).get("promptIndex")
            return list(self._chunk(kind, text_of(prompt), row, update.get("content")))
        handler = self.handlers.get(kind)
        if handler is None:
            return [Skipped(line.number, kind)]
        return list(handler(row, update))

    def finish(self, *, abandoned: bool) -> Iterable[ReadItem]:
        """What was still growing, as it is; calls without arguments when these will not come any more."""
        items = [*self._end("user"), *self._end("assistant")]
        if abandoned:
            for row, call in self.calls.values():
                items.extend(self._tell(row, [call]))
            self.calls.clear()
        return [*items, *(self.teller.finish() if self.teller else [])]

    def waits(self) -> bool:
        """Whether something may still grow."""
        return bool(self.runs or self.calls) or (self.teller is not None and self.teller.waits())

    def _tell(self, row: Row, parts: Iterable[Part]) -> Iterable[ReadItem]:
        assert self.teller is not None
        return self.teller.tell(row, parts)

    def _chunk(self, kind: str, prompt: str, row: Row, content: Any) -> Iterator[ReadItem]:
        role = _CHUNKS[kind][0]
        run = self.runs.get(role)
        if run is not None and run.prompt != prompt:
            yield from self._end(role)
        if role == "assistant":
            yield from self._end("user")
        run = self.runs.get(role)
        if run is None or run.kind != kind:
            yield from self._end(role)
            run = self.runs[role] = _Run(kind, prompt, row)
        run.texts.append(_chunk_text(content))

    def _end(self, role: Role) -> Iterable[ReadItem]:
        run = self.runs.pop(role, None)
        text = "".join(run.texts) if run else ""
        if run is None:
            return []
        if not text.strip():
            return [Skipped(run.row.line, f"{run.kind} without text")]
        if role == "user":
            return self._tell(run.row, split_prompt(text))
        return self._tell(run.row, [Said(role, _CHUNKS[run.kind][1], text)])

    def _call(self, row: Row, update: dict[str, Any]) -> Iterator[ReadItem]:
        yield from self._end("user")
        yield from self._end("assistant")
        native = text_of(update.get("toolCallId"))
        held = (row, _call(update, text_of(update.get("title"))))
        self.calls[native] = held
        yield from self._call_known(native, update)

    def _call_known(self, native: str, update: dict[str, Any]) -> Iterable[ReadItem]:
        """Gives a held call when its arguments are known, or will not be any more."""
        held = self.calls.get(native)
        if held is None:
            return []
        row, call = held
        if update.get("rawInput"):
            call = _call(update, call.name) if not call.arguments else call
        elif not _is_final(update):
            return []
        del self.calls[native]
        return self._tell(row, [call])

    def _call_update(self, row: Row, update: dict[str, Any]) -> Iterator[ReadItem]:
        native = text_of(update.get("toolCallId"))
        assert self.teller is not None
        if update.get("rawInput") and native not in self.calls and not self.teller.calls.knows(native):
            # The record that began the call is damaged.
            yield from self._call(row, update)
        yield from self._call_known(native, update)
        if _is_final(update):
            yield from self._tell(row, [_outcome(native, update)])
        else:
            yield Skipped(row.line, f"tool_call_update/{text_of(update.get('status')) or 'details'}")

    def _plan(self, row: Row, update: dict[str, Any]) -> Iterable[ReadItem]:
        entries = [mapping(entry) for entry in update.get("entries") or []]
        lines = [f"- [{text_of(entry.get('status'))}] {text_of(entry.get('content'))}" for entry in entries]
        return self._notice(row, "plan", "\n".join(lines))

    def _flushed(self, row: Row, update: dict[str, Any]) -> Iterable[ReadItem]:
        result = text_of(update.get("result"))
        return self._notice(row, "memory_flush_completed", f"[memory flush] {result}" if result.strip() else "")

    def _hook(self, row: Row, update: dict[str, Any]) -> Iterator[ReadItem]:
        if update.get("event_name") == "stop":
            yield from self._end("assistant")
        yield Skipped(row.line, "hook_execution")

    def _notice(self, row: Row, what: str, text: str) -> Iterable[ReadItem]:
        return self._tell(row, [Said("system", "notice", text)]) if text else [Skipped(row.line, what)]


def _chunk_text(content: Any) -> str:
    block = mapping(content)
    kind = block.get("type")
    if kind == "resource":
        return text_of(mapping(block.get("resource")).get("text")) or f"[{text_of(block['resource'].get('uri'))}]"
    if kind == "resource_link":
        return f"[{text_of(block.get('name'))} {text_of(block.get('uri'))}]"
    if kind in {"image", "audio"}:
        return file_text(block)
    return text_of(block.get("text") if block else content)


def _call(update: dict[str, Any], name: str) -> Call:
    """A call as it is known so far; one that goes through to another tool is that tool's."""
    arguments = arguments_of(update.get("rawInput"))
    given = mapping(arguments)
    if name == "use_tool" and isinstance(given.get("tool_name"), str):
        name, arguments = given["tool_name"], given.get("tool_input")
    return Call(name or "tool", arguments, text_of(update.get("toolCallId")) or None)


def _is_final(update: dict[str, Any]) -> bool:
    return update.get("status") not in {None, "pending", "in_progress"}


def _outcome(native: str, update: dict[str, Any]) -> Result:
    raw = update.get("rawOutput")
    code = mapping(raw).get("exit_code")
    shown = [_content_text(block) for block in update.get("content") or []]
    text = join_texts(shown) or _raw_text(raw)
    failed = update.get("status") != "completed" or bool(code) or "ErrorOutput" in mapping(mapping(raw).get("output"))
    details = {"is_error": failed, "exit_code": code, "timed_out": mapping(raw).get("timed_out")}
    return Result(text, native or None, details=present(details))


def _content_text(block: Any) -> str:
    value = mapping(block)
    if value.get("type") == "content":
        return _chunk_text(value.get("content"))
    return text_of(block)


def _raw_text(raw: Any) -> str:
    """A tool's raw output as text: what it has for the model, else all of it."""
    value = mapping(raw)
    output = value.get("output")
    for found in (value.get("output_for_prompt"), value.get("content"), output):
        if isinstance(found, str) and found:
            return found
    told = [found for found in mapping(output).values() if isinstance(found, str)]
    if told and len(told) == len(mapping(output)):
        return join_texts(told)
    return text_of(_decoded(raw, _DEEPEST))


def _decoded(value: Any, depth: int) -> Any:
    """The value with lists of bytes as the text that they are."""
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _decoded(part, depth - 1) for key, part in value.items()}
    if isinstance(value, list):
        if len(value) >= _FEWEST_BYTES and all(type(part) is int and 0 <= part <= 255 for part in value):
            return bytes(value).decode("utf-8", "replace")
        return [_decoded(part, depth - 1) for part in value]
    return value


class _Chat(Telling):
    """The state of one reading of a chat history."""

    def __init__(self, path: Path, agent: str) -> None:
        summary = _summary(path)
        self.teller = _teller(path, agent, None, summary)
        #: When the session began: the one time there is, so the first record's.
        self.began = parse_time(summary.get("created_at"))

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one record comes to."""
        value = line.value
        kind = text_of(value.get("type") or value.get("role"))[:80]
        metadata = {
            "model": value.get("model_id"),
            "prompt_index": value.get("prompt_index"),
            "synthetic_reason": value.get("synthetic_reason"),
            "prior_turn_interrupt": value.get("prior_turn_interrupt"),
        }
        parts, passed = _chat_parts(kind, value)
        time, self.began = self.began, None
        source = {"time_source": "summary"} if time else {}
        items = list(self.teller.tell(Row(line.number, None, time, {**metadata, **source}), parts, passed))
        return items or [Skipped(line.number, f"{kind} without text" if kind in _CHAT_TYPES else kind)]


def _chat_parts(kind: str, value: dict[str, Any]) -> tuple[list[Part], list[str]]:
    if kind == "reasoning":
        text = result_text(value.get("summary")) or result_text(value.get("content"))
        return ([Said("assistant", "thinking", text)] if text.strip() else []), []
    if kind in {"tool_result", "tool"}:
        return [Result(result_text(value.get("content")), text_of(value.get("tool_call_id")) or None)], []
    if kind == "backend_tool_call":
        return [_backend_call(value["kind"])], []
    if kind not in {"system", "user", "assistant"}:
        return [], []
    parts, passed = parts_of(value.get("content"), "assistant" if kind == "assistant" else "user")
    # What the user typed while the agent was at work is marked as made by the harness too.
    synthetic = kind == "system" or value.get("synthetic_reason") not in {None, "interjection"}
    if kind != "assistant":
        return [said for part in parts if isinstance(part, Said) for said in _prompt(part, synthetic=synthetic)], passed
    thoughts = text_of(value.get("reasoning_content"))
    before = [Said("assistant", "thinking", thoughts)] if thoughts.strip() else []
    return [*before, *parts, *(_chat_call(mapping(call)) for call in value.get("tool_calls") or [])], passed


def _prompt(part: Said, *, synthetic: bool) -> list[Said]:
    return [Said("system", "injected", part.text)] if synthetic else split_prompt(part.text)


def _chat_call(call: dict[str, Any]) -> Call:
    function = mapping(call.get("function")) or call
    arguments = arguments_of(function.get("arguments"))
    return Call(text_of(function.get("name")) or "tool", arguments, text_of(call.get("id")) or None)


def _backend_call(kind: dict[str, Any]) -> Call:
    """A tool that ran at the model's provider; all that is known of its result is where it looked."""
    action = mapping(kind.get("action"))
    sources = [text_of(mapping(source).get("url") or source) for source in action.get("sources") or []]
    arguments = {key: value for key, value in action.items() if key != "sources"}
    result = "\n".join(sources) or text_of(kind.get("status"))
    return Call(text_of(kind.get("tool_type")) or "tool", arguments, text_of(kind.get("id")) or None, result)
