"""What the messages of a Hermes session become: one form of message, which its database and its files have in common.

A session can stand in the database, in a JSON-lines file and in a JSON snapshot at once, and only what is said is the
same in all three: so a message is known by what it says and how often that was said before, a call by its own id.
Where messages are kept is the business of `hermes.py`, `hermes_db.py` and `hermes_exports.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rivet_pipeline.transcripts.readers.conversation import Conversation, json_value
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    Said,
    binary_placeholder,
    join_texts,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.records import Damaged, ReadItem, Skipped

HARNESS = "hermes"

#: How the database marks content that is a list of parts.
_AS_JSON = ("\x00json:", "\x01json:")

#: How a compaction's summary begins.
SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")

#: What the harness says to the model in the user's name.
_INJECTED = (
    "[Your active task list was preserved",
    "[PRIOR CONTEXT",
    "[Continuing toward your standing goal]",
)
_NOTICES = ("[ASYNC DELEGATION BATCH COMPLETE", "[IMPORTANT: Background process")
_NOTE = re.compile(r"\s*\[(?:System note|SYSTEM|Gateway note):[^\]]*\]\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands: for reports, and as metadata of its rows and of the result in it."""

    line: int
    pointer: Mapping[str, Any] = field(default_factory=dict)
    result_pointer: Mapping[str, Any] = field(default_factory=dict)


class HermesSession:
    """Gives the messages of one session."""

    def __init__(
        self,
        native: str,
        agent: str,
        *,
        title: str | None = None,
        began: datetime | None = None,
        settings: Mapping[str, Any] | None = None,
        title_elsewhere: bool = False,
    ) -> None:
        self.talk = Conversation(
            HARNESS,
            native,
            agent,
            title=title,
            began=began,
            settings=settings,
            title_elsewhere=title_elsewhere,
        )

    def prompt(self, text: Any) -> Iterator[ReadItem]:
        """The system prompt, which stands with the session and not among its messages."""
        if isinstance(text, str) and text.strip():
            yield from self.talk.say(Said("system", "injected", text), None, {})

    def message(self, value: dict[str, Any], place: Place) -> list[ReadItem]:
        """The rows of one message."""
        role = text_of(value.get("role"))[:40]
        try:
            if role == "session_meta":
                made = list(self.talk.update(model=value.get("model"), platform=value.get("platform")))
                return [*made, Skipped(place.line, role)]
            if role == "tool":
                return [self._result(value, place)]
            if role not in {"user", "assistant", "system", "developer"}:
                return [Skipped(place.line, f"role {role}" if role else "without role")]
            return list(self._said(role, value, place)) or [Skipped(place.line, f"{role} without text")]
        except SHAPE_ERRORS:
            return [Damaged(place.line, f"{role or 'message'} of unexpected shape")]

    def _said(self, role: str, value: dict[str, Any], place: Place) -> Iterator[ReadItem]:
        time, note = message_time(value.get("timestamp"))
        metadata = {**_metadata(value), **note, **place.pointer}
        text = content_text(value.get("content")) or _restated_text(value)
        thoughts = _thoughts(value) if role == "assistant" else []
        for said in [*(Said("assistant", "thinking", thought) for thought in thoughts), *_speakers(role, text, value)]:
            yield from self.talk.say(said, None, metadata, time)
        for call in json_value(value.get("tool_calls")) or []:
            function = mapping(call.get("function")) or call
            name, arguments = function.get("name"), function.get("arguments")
            native = call.get("id") or call.get("call_id")
            event_id = self.talk.call_id(native, name, arguments)
            yield self.talk.call(event_id, name, arguments, {**metadata, **present({"call_id": native})}, time)

    def _result(self, value: dict[str, Any], place: Place) -> ReadItem:
        time, note = message_time(value.get("timestamp"))
        text = content_text(value.get("content"))
        known = {
            "tool_name": value.get("tool_name") or value.get("name"),
            "exit_code": value.get("exit_code"),
            "is_error": value.get("finish_reason") == "error" or bool(value.get("is_error") or value.get("exit_code")),
        }
        event_id = self.talk.answer_id(value.get("tool_call_id"), text)
        metadata = {**present(known), **present({"off_path": _is_off_path(value)}), **place.result_pointer}
        if time is not None and note:
            metadata["result_time_source"] = note["time_source"]
        return self.talk.result(event_id, text, metadata, time)


def message_time(value: Any) -> tuple[datetime | None, dict[str, Any]]:
    """A message's time, and what is to be said about it: local times have no zone here and are taken as UTC."""
    time = parse_time(value)
    local = time is not None and isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None
    return time, {"time_source": "local, zone unknown"} if local else {}


def content_text(content: Any) -> str:
    """A message's content as text, whatever form it has; pictures and other files as placeholders."""
    if isinstance(content, str):
        if not content.startswith(_AS_JSON):
            return content
        content = json_value(content[len(_AS_JSON[0]) :])
    if isinstance(content, list):
        return join_texts([_part_text(part) for part in content])
    return text_of(content)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return text_of(part)
    if isinstance(part.get("text"), str):
        return str(part["text"])
    what = re.sub("^input_|_url$", "", text_of(part.get("type"))) or "file"
    source = mapping(part.get("source")) or mapping(part.get(f"{what}_url")) or part
    url = text_of(source.get("url") or source.get("data") or part.get("image_url"))
    if url and not url.startswith("data:") and "://" in url[:12]:
        return f"[{what} {url[:500]}]"
    return binary_placeholder(what, source.get("media_type") or source.get("mime_type"), url)


def _restated_text(value: dict[str, Any]) -> str:
    """What the model's own form of the message says; it stands in `content` too, unless that is empty."""
    items = json_value(value.get("codex_message_items"))
    texts = [content_text(mapping(item).get("content")) for item in items] if isinstance(items, list) else []
    return join_texts(texts)


def _thoughts(value: dict[str, Any]) -> list[str]:
    """The stretches of reasoning, each once. What is encrypted says nothing."""
    found: list[str] = []
    for key in ("reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items"):
        # A reasoning that happens to be JSON is a text all the same.
        held = value.get(key) if key in {"reasoning", "reasoning_content"} else json_value(value.get(key))
        for item in held if isinstance(held, list) else [held]:
            text = _thought(item)
            if text.strip() and not any(text in known for known in found):
                found.append(text)
    return found


def _thought(item: Any) -> str:
    if not isinstance(item, dict):
        return text_of(item)
    texts = [item.get("text"), item.get("summary"), item.get("thinking")]
    return join_texts([_thought(part) for text in texts for part in (text if isinstance(text, list) else [text])])


def _speakers(role: str, text: str, value: dict[str, Any]) -> list[Said]:
    """A message's text as what was said, and what the harness said in the speaker's name."""
    if not text.strip():
        return []
    if value.get("_compressed_summary") or text.startswith(SUMMARIES):
        return [Said("assistant" if role == "assistant" else "system", "summary", text)]
    if role == "assistant":
        return [Said("assistant", "speech", text)]
    if role != "user" or value.get("display_kind") or text.startswith(_INJECTED):
        return [Said("system", "injected", text)]
    if text.startswith(_NOTICES):
        return [Said("system", "notice", text)]
    note = _NOTE.match(text)
    if note is None:
        return [Said("user", "speech", text)]
    rest = text[note.end() :]
    own = [Said("user", "speech", rest)] if rest.strip() else []
    return [Said("system", "injected", note.group().strip()), *own]


def _is_off_path(value: dict[str, Any]) -> bool:
    """Whether the message was taken back. One that a compaction put away was not."""
    return value.get("state") == "rewound" or (value.get("active") == 0 and not value.get("compacted"))


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    state = value.get("state") or ("compacted" if value.get("compacted") else None)
    known = {
        "model": value.get("model"),
        "finish_reason": value.get("finish_reason"),
        "token_count": value.get("token_count"),
        "message_id": value.get("platform_message_id") or value.get("message_id"),
        "observed": bool(value.get("observed")),
        "state": None if state == "active" else state,
        "off_path": _is_off_path(value),
    }
    return present(known)
