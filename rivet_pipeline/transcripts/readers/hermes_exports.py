"""What Hermes exports: archives of a session, trajectories (ATIF), and streams of telemetry events (ATOF).

They become what the session's own messages become (`hermes_messages.py`), so that a session that stands in both is
stored once as far as they say the same. Which file is which is decided in `hermes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import Line
from rivet_pipeline.transcripts.readers.conversation import json_value
from rivet_pipeline.transcripts.readers.hermes_messages import HermesSession, Place, content_text, message_time
from rivet_pipeline.transcripts.readers.shared import (
    HOST,
    RecentSet,
    Said,
    line_pointer,
    mapping,
    present,
    text_of,
)
from rivet_pipeline.transcripts.records import ReadItem, Skipped

#: How many prompts of a stream are remembered, since every request to the model says them again.
_PROMPT_MEMORY = 4096

_ATIF_ROLES = {"user": "user", "agent": "assistant", "assistant": "assistant", "system": "system"}


def archived(session: HermesSession, value: dict[str, Any], place: Place) -> list[ReadItem]:
    """The rows of a message of an archive."""
    calls = [
        {"id": call["action_id"], "name": call["tool_name"], "arguments": call.get("arguments_json")}
        for call in value.get("tool_calls") or []
    ]
    results = value.get("tool_results") or []
    items: list[ReadItem] = []
    if value.get("role") != "tool" or not results:
        items = session.message({**value, "content": value.get("text"), "tool_calls": calls}, place)
    for result in results:
        told = {
            "role": "tool",
            "content": result.get("output_preview"),
            "tool_call_id": result["action_id"],
            "exit_code": result.get("exit_code"),
            "is_error": result.get("is_error"),
            "timestamp": value.get("timestamp"),
            "state": value.get("state"),
        }
        items += session.message(told, place)
    return items


def step(session: HermesSession, value: dict[str, Any], place: Place) -> Iterator[ReadItem]:
    """The rows of a step of a trajectory: what was said, the calls, and what they came to."""
    time, note = step_time(value)
    metadata = {**present({"step_id": value.get("step_id"), "model": value.get("model_name")}), **note}
    metadata.update(present({"usage": value.get("metrics")}))
    empty = True
    for said in _step_said(value):
        empty = False
        yield from session.talk.say(said, None, metadata, time)
        metadata.pop("usage", None)
    for call in value.get("tool_calls") or []:
        empty = False
        native, name, arguments = call.get("tool_call_id"), call.get("function_name"), call.get("arguments")
        event_id = session.talk.call_id(native, name, arguments)
        yield session.talk.call(event_id, name, arguments, {**metadata, **present({"call_id": native})}, time)
    for result in mapping(value.get("observation")).get("results") or []:
        empty = False
        text = content_text(result.get("content"))
        extra = mapping(result.get("extra"))
        known = {"tool_name": extra.get("event_name"), "is_error": extra.get("status") in {"error", "failed"}}
        event_id = session.talk.answer_id(result.get("source_call_id"), text)
        yield session.talk.result(event_id, text, present(known), time)
    if empty:
        yield Skipped(place.line, "step without text")


def step_time(value: dict[str, Any]) -> tuple[datetime | None, dict[str, Any]]:
    """A step's time, else that of the call to the model that it records."""
    time, note = message_time(value.get("timestamp"))
    if time is None:
        time, note = message_time(mapping(mapping(value.get("extra")).get("invocation")).get("start_timestamp"))
    return time, note


def _step_said(value: dict[str, Any]) -> list[Said]:
    role = _ATIF_ROLES.get(text_of(value.get("source"))) or _guessed_role(mapping(value.get("extra")))
    thought, text = text_of(value.get("reasoning_content")), content_text(value.get("message"))
    said = [Said("assistant", "thinking", thought)] if thought.strip() else []
    if text.strip() and role == "user":
        said.append(Said("user", "speech", text))
    elif text.strip():
        said.append(Said("assistant", "speech", text) if role == "assistant" else Said("system", "notice", text))
    return said


def _guessed_role(extra: dict[str, Any]) -> str:
    """The speaker of a step whose source was blackened, by what else it records."""
    if "llm_request" in extra:
        return "user"
    return "assistant" if "llm_response" in extra else "system"


class EventStream:
    """Gives what a stream of telemetry events records: requests to the model, its answers, tools, marks."""

    def __init__(self, path: Path, agent: str) -> None:
        self._path, self._agent = path, agent
        self._sessions: dict[str, HermesSession] = {}
        self._prompts = RecentSet(_PROMPT_MEMORY)

    def take(self, line: Line) -> Iterable[ReadItem]:
        """The rows of one event."""
        value, about = line.value, mapping(line.value.get("metadata"))
        what = f"{text_of(value.get('kind'))}/{text_of(value.get('category'))}"
        phase = text_of(value.get("scope_category"))
        session = self._session(about)
        time, _ = message_time(value.get("timestamp"))
        known = {"model": about.get("model"), "provider": about.get("provider"), "turn_id": about.get("turn_id")}
        metadata = {**present(known), **line_pointer(self._path, line.number)}
        data = value.get("data")
        if what == "scope/tool":
            items: Iterable[ReadItem] = self._tool(session, line, phase, metadata)
        elif what == "scope/llm" and phase == "start":
            items = self._request(session, line, metadata)
        elif what == "scope/llm" and (said := _answer(data)):
            items = session.talk.say(said, None, metadata, time)
        elif what.startswith("mark/") and data:
            text = f"[{text_of(value.get('name'))}] {text_of(data)}"
            items = session.talk.say(Said("system", "notice", text), None, metadata, time)
        else:
            return [Skipped(line.number, f"{what}/{phase}".rstrip("/"))]
        return items

    def _session(self, about: dict[str, Any]) -> HermesSession:
        native = text_of(about.get("session_id")) or self._path.stem
        if native not in self._sessions:
            settings = {"file": str(self._path), "platform": about.get("platform"), "model": about.get("model")}
            self._sessions[native] = HermesSession(native, self._agent, settings=settings)
        return self._sessions[native]

    def _request(self, session: HermesSession, line: Line, metadata: dict[str, Any]) -> Iterator[ReadItem]:
        time, _ = message_time(line.value.get("timestamp"))
        text = _prompt(mapping(line.value.get("data")).get("content"))
        if not text.strip():
            yield Skipped(line.number, "scope/llm/start without text")
        elif not self._prompts.add((session.talk.session.session_key, metadata.get("turn_id"), text)):
            yield Skipped(line.number, "prompt, given before")
        else:
            yield from session.talk.say(Said("user", "speech", text), None, metadata, time)

    def _tool(self, session: HermesSession, line: Line, phase: str, metadata: dict[str, Any]) -> Iterator[ReadItem]:
        value, about = line.value, mapping(line.value.get("metadata"))
        time, _ = message_time(value.get("timestamp"))
        native = about.get("tool_call_id") or value.get("uuid")
        data = json_value(value.get("data"))
        if phase == "start":
            event_id = session.talk.call_id(native, value.get("name"), data)
            yield session.talk.call(event_id, value.get("name"), data, {**metadata, "call_id": native}, time)
            return
        failed = about.get("status") in {"error", "failed"} or "error" in mapping(data)
        known = {"tool_name": value.get("name"), "is_error": failed, "result_jsonl_line": line.number - 1}
        pointer = {"session_jsonl_path": str(self._path), "session_host": HOST}
        event_id = session.talk.answer_id(native, text_of(data))
        yield session.talk.result(event_id, _result_text(data), {**present(known), **pointer}, time)


def _prompt(content: Any) -> str:
    """What a request to the model asks: the text itself, or what the user said last in the history that it carries."""
    messages = mapping(content).get("messages") or mapping(content).get("input")
    if not isinstance(messages, list):
        return content_text(content) if isinstance(content, str | list) else ""
    spoken = [entry for entry in messages if mapping(entry).get("role") == "user"]
    return content_text(spoken[-1].get("content")) if spoken else ""


def _answer(data: Any) -> Said | None:
    answer = mapping(data).get("assistant_message")
    text = content_text(mapping(answer).get("content") if isinstance(answer, dict) else answer)
    if text.strip():
        return Said("assistant", "speech", text)
    error = text_of(mapping(data).get("error"))
    return Said("system", "notice", error) if error.strip() else None


def _result_text(data: Any) -> str:
    """A tool's output: the stream it wrote to when there is only one."""
    if isinstance(data, dict) and len(data) == 1:
        return content_text(next(iter(data.values())))
    return text_of(data)
