"""What the payload of a live hook says: the event, whose session it is, where its transcript stands, and its words.

Pure functions over what the harnesses document and send. Fields are taken in snake_case and in camelCase, because the
harnesses have used both. How payloads arrive is `hook_jobs.py`'s business.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.readers.claude_code import result_text
from rivet_pipeline.transcripts.readers.shared import mapping, present, text_of
from rivet_pipeline.transcripts.records import MessageRecord

#: Whose conversations these are, by harness, and how the ids of its tool calls begin: both as its reader has them.
AGENTS = {"claude-code": "rivet-claude", "codex": "rivet-gpt", "qwen-code": "rivet-qwen"}
_CALL_PREFIXES = {"claude-code": "tool", "codex": "call", "qwen-code": "tool"}

EventName = Literal["UserPromptSubmit", "PostToolUse", "Stop", "SubagentStop", "SessionEnd"]

_EVENTS: dict[str, EventName] = {
    "userpromptsubmit": "UserPromptSubmit",
    "posttooluse": "PostToolUse",
    "stop": "Stop",
    "subagentstop": "SubagentStop",
    "sessionend": "SessionEnd",
}


class BadPayloadError(Exception):
    """A payload that can not be used; `str(error)` says why."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One call of a hook. `fields` are the payload's members under their snake_case names."""

    harness: str
    name: EventName
    session_id: str | None
    transcript: Path | None
    agent_transcript: Path | None
    cwd: str | None
    prompt: str
    fields: dict[str, Any]

    def records(self, job: str, at: datetime) -> list[MessageRecord]:
        """What the payload itself says, for sessions without a transcript. `job` tells two equal calls apart."""
        if self.name == "PostToolUse":
            return self._tool(job, at)
        text = self.prompt if self.name == "UserPromptSubmit" else text_of(self.fields.get("last_assistant_message"))
        if not text.strip():
            return []
        event_id = f"hook:{content_event_id(job, self.name, text).removeprefix('sha256:')}"
        role: Literal["user", "assistant"] = "user" if self.name == "UserPromptSubmit" else "assistant"
        return [MessageRecord(event_id, role, text, metadata=self._metadata(), created_at=at)]

    def _tool(self, job: str, at: datetime) -> list[MessageRecord]:
        name = text_of(self.fields.get("tool_name"))
        if not name:
            return []
        arguments, answer = self.fields.get("tool_input"), self.fields.get("tool_response")
        native = self.fields.get("tool_use_id")
        if isinstance(native, str) and native:
            event_id = f"{_CALL_PREFIXES.get(self.harness, 'tool')}:{native}"
        else:
            event_id = f"hook:{content_event_id(job, name, text_of(arguments)).removeprefix('sha256:')}"
        result = None if answer is None else result_text(mapping(answer).get("content") or answer)
        metadata = {**self._metadata(), "kind": "tool"}
        return [MessageRecord(event_id, "tool", "", name, arguments, result, metadata, at)]

    def _metadata(self) -> dict[str, Any]:
        known = {name: self.fields.get(name) for name in ("model", "turn_id", "agent_id", "agent_type")}
        sidechain = self.name == "SubagentStop" or bool(known["agent_id"])
        return {"source": "hook", "hook_event": self.name, **present({**known, "sidechain": sidechain})}


def parse_payload(harness: str, payload: bytes) -> HookEvent:
    """The event that a payload tells of. Raises `BadPayloadError` when it tells of none, or of one we do not know."""
    try:
        value = json.loads(payload.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise BadPayloadError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadPayloadError("not a JSON object")
    fields = {_snake(str(key)): entry for key, entry in value.items()}
    name = text_of(fields.get("hook_event_name"))
    event = _EVENTS.get(re.sub(r"[^a-z]", "", name.lower()))
    if event is None:
        raise UnknownEventError(f"unknown event {name[:80]!r}")
    session = fields.get("session_id")
    return HookEvent(
        harness,
        event,
        session if isinstance(session, str) and session.strip() else None,
        _path(fields.get("transcript_path")),
        _agent_transcript(fields),
        fields["cwd"] if isinstance(fields.get("cwd"), str) and fields["cwd"] else None,
        _prompt(fields.get("prompt")),
        fields,
    )


class UnknownEventError(BadPayloadError):
    """A payload of an event that means nothing to us."""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _path(value: Any) -> Path | None:
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        return None
    return Path(value).expanduser()


def _agent_transcript(fields: dict[str, Any]) -> Path | None:
    """Where the sub-agent's own words stand: as the payload says, else where Claude Code keeps them."""
    if named := _path(fields.get("agent_transcript_path")):
        return named
    main, agent = _path(fields.get("transcript_path")), fields.get("agent_id")
    if main is None or not isinstance(agent, str) or not re.fullmatch(r"[\w-]{1,80}", agent):
        return None
    beside, inside = main.parent / f"agent-{agent}.jsonl", main.with_suffix("") / "subagents" / f"agent-{agent}.jsonl"
    return inside if inside.exists() else beside


def _prompt(value: Any) -> str:
    """A prompt as text. Some harnesses send it as a list of parts."""
    if isinstance(value, list):
        return "\n".join(
            text_of(mapping(part).get("text")) if isinstance(part, dict) else text_of(part) for part in value
        )
    return text_of(value)
