"""OpenAI Codex CLI's rollouts: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<uuid>.jsonl`, with or without envelopes.

Nearly everything is said twice in a rollout, as a `response_item` and as an `event_msg`, in either order and at some
distance. What is said is known here by its text and by how often it was said: the second form of the same saying is
skipped, so each stands once, in whatever form came first, and a file that has only one form loses nothing. The same
count makes the event id, so that a file read again when it has grown gives the same ids.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.lines import Line
from rivet_pipeline.transcripts.readers.shared import (
    HOST,
    SHAPE_ERRORS,
    LineReader,
    RecentSet,
    Said,
    binary_placeholder,
    join_texts,
    line_pointer,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head
from rivet_pipeline.transcripts.records import (
    Damaged,
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

HARNESS = "codex"

_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"})
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HEAD_OF_META = re.compile(rb'"type"\s*:\s*"session_meta"')

_WRAPPED = re.compile(r"\s*<(?P<tag>[A-Za-z_]+)(?:[ \n][^<>]*)?>.*?</(?P=tag)>", re.DOTALL)
_INJECTED_TAGS = frozenset(
    {
        "environment_context", "user_instructions", "INSTRUCTIONS", "permissions", "collaboration_mode",
        "multi_agent_mode", "skill", "skills", "skills_instructions", "apps_instructions", "plugins_instructions",
        "personality_spec", "model_switch", "realtime_conversation", "recommended_plugins",
    }
)  # fmt: skip
_NOTICE_TAGS = frozenset({"turn_aborted", "subagent_notification", "user_action", "user_shell_command_output"})
_AGENTS_FILE = "# AGENTS.md instructions"
_IDE_CONTEXT = "# Context from my IDE setup:"
_IDE_REQUEST = re.compile(r"^## My request for Codex:[ \t]*\n?", re.MULTILINE)

#: A replayed history is written within moments, a turn of a model is not.
_REPLAY_BURST = timedelta(seconds=1)

_CALL_MEMORY = 65_536

#: Event messages that say what a response item says as well: their text's key, and who speaks.
_SPOKEN_EVENTS: dict[str, tuple[str, Role, Kind]] = {
    "user_message": ("message", "user", "speech"),
    "agent_message": ("message", "assistant", "speech"),
    "agent_reasoning": ("text", "assistant", "thinking"),
    "agent_reasoning_raw_content": ("text", "assistant", "thinking"),
    "task_complete": ("last_agent_message", "assistant", "speech"),
}

#: Event messages about the turn itself: where their text may stand.
_NOTICES = {
    "error": ("message", "error"),
    "stream_error": ("message",),
    "warning": ("message",),
    "turn_aborted": ("reason",),
    "entered_review_mode": ("prompt", "user_facing_hint"),
    "undo_completed": ("message",),
    "background_event": ("message",),
}

_CALLS = frozenset(
    {
        "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
        "image_generation_call", "mcp_call", "tool_call",
    }
)  # fmt: skip
_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "tool_search_output", "tool_result", "function_result"}
)

#: Events that end a tool call: the tool's name, and the keys of its arguments and of its result.
_ENDED: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "exec_command_end": ("exec_command", ("command", "cwd"), ("aggregated_output", "formatted_output", "stdout")),
    "patch_apply_end": ("apply_patch", ("changes",), ("stdout", "stderr")),
    "mcp_tool_call_end": ("", ("arguments",), ("result",)),
    "web_search_end": ("web_search", ("query", "action"), ("results",)),
    "image_generation_end": ("image_generation", ("revised_prompt", "saved_path"), ()),
    "view_image_tool_call": ("view_image", ("path",), ()),
    "dynamic_tool_call_request": ("", ("arguments",), ()),
    "dynamic_tool_call_response": ("", ("arguments",), ("content_items",)),
    "collab_agent_spawn_end": ("spawn_agent", ("prompt", "new_agent_role", "new_thread_id"), ("status",)),
    "collab_agent_interaction_end": ("send_input", ("prompt", "receiver_thread_id"), ("status",)),
    "collab_waiting_end": ("wait_agent", ("sender_thread_id",), ("agent_statuses", "statuses")),
    "collab_close_end": ("close_agent", ("receiver_thread_id",), ("status",)),
    "CommandExecution": ("exec_command", ("command", "cwd"), ("aggregated_output", "formatted_output", "stdout")),
    "McpToolCall": ("", ("arguments",), ("result",)),
    "FileChange": ("apply_patch", ("changes",), ("stdout", "stderr")),
    "Extension": ("", ("query", "action"), ("results",)),
}


@dataclass(frozen=True, slots=True)
class _Row:
    """One record of the file, out of its envelope."""

    line: int
    form: str
    payload: dict[str, Any]
    time: datetime | None

    @property
    def type(self) -> str:
        return text_of(self.payload.get("type"))[:80]

    @property
    def turn(self) -> str | None:
        for holder in ("internal_chat_message_metadata_passthrough", "metadata"):
            if turn := mapping(self.payload.get(holder)).get("turn_id"):
                return text_of(turn)
        turn = self.payload.get("turn_id")
        return text_of(turn) if turn else None


class _Sayings:
    """How often each text was said, in each form and altogether. Holds a few small numbers for each saying."""

    def __init__(self) -> None:
        self._given: Counter[int] = Counter()
        self._by_form: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def take(self, form: str, said: Said) -> str | None:
        """The event id of a saying that was not given yet; None when this is the second form of one that was."""
        content_id = _content_id(said)
        key = _small(content_id)
        seen = self._by_form[form]
        seen[key] += 1
        if seen[key] <= self._given[key]:
            return None
        self._given[key] += 1
        return content_id if self._given[key] == 1 else f"{content_id}:{self._given[key]}"

    def was_given(self, said: Said) -> bool:
        """Whether the text was said at all."""
        return _small(_content_id(said)) in self._given


def _content_id(said: Said) -> str:
    thought = "thinking" if said.kind == "thinking" else ""
    return content_event_id(said.role, thought, " ".join(said.text.split()))


def _small(content_id: str) -> int:
    return int(content_id[-16:], 16)


class CodexReader(LineReader):
    """Reads Codex rollouts of any version."""

    harness = HARNESS
    agent = "rivet-gpt"

    def sniff(self, head: Head) -> bool:
        """Whether the file is a Codex rollout, judged by its name and its beginning."""
        named = head.path.name.startswith("rollout-") and head.records
        if named and not any("sessionId" in record for record in head.records):
            return True
        # A session's base instructions can make its first row longer than the head.
        return any(_is_own(record) for record in head.records) or bool(_HEAD_OF_META.search(head.data[:300]))

    def start(self, path: Path, agent: str) -> _Rollout:
        """The state with which a file is read."""
        return _Rollout(path, agent)


def _is_own(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    if kind in _ENVELOPES:
        return isinstance(record.get("payload"), dict)
    if kind is None:
        dated = "timestamp" in record or "created_at" in record
        return record.get("role") in {"user", "assistant"} and dated and "model" in record and "sessionId" not in record
    return (
        kind == "message"
        and isinstance(record.get("content"), list)
        and "record_type" not in record
        and any(mapping(block).get("type") in {"input_text", "output_text"} for block in record["content"])
    )


class _Rollout:
    """The state of one reading: the session, what was said, which calls are known, whether history is replayed."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.agent = agent
        self.session: SessionRecord | None = None
        self.context: dict[str, Any] = {}
        self.said = _Sayings()
        self.restated = _Sayings()
        self.calls = RecentSet(_CALL_MEMORY)
        self.nameless: Counter[str] = Counter()
        self.open_call: str | None = None
        self.titled = False
        self.dated = False
        self.aborted = False
        self.last_prompt = ""
        self.began: datetime | None = None
        self.born: datetime | None = None
        self.parent: str | None = None
        self.replaying = False
        self.handlers: dict[str, Callable[[_Row], Iterable[ReadItem]]] = {
            "session_meta": self._meta,
            "turn_context": self._turn_context,
            "response_item": self._response,
            "event_msg": self._event,
            "compacted": self._compacted,
            "error": self._bare_error,
        }

    def take(self, line: Line) -> list[ReadItem]:
        """What one record comes to. A record of an unexpected shape is damaged and touches no other."""
        row = _open(line)
        handler = self.handlers.get(row.form)
        if handler is None:
            return [Skipped(row.line, row.form or "without type")]
        try:
            self._watch_replay(row)
            made = list(handler(row))
        except SHAPE_ERRORS:
            return [Damaged(row.line, f"{row.form} of unexpected shape")]
        if made:
            return made
        detail = row.type or text_of(row.payload.get("role"))
        return [Skipped(row.line, f"{row.form}/{detail}" if detail else row.form)]

    def finish(self, *, abandoned: bool) -> list[ReadItem]:
        """Nothing: no record waits for a later one."""
        return []

    def waits(self) -> bool:
        """Never: no record waits for a later one."""
        return False

    # The session

    def _open_session(self, native: str | None = None, **settings: Any) -> SessionRecord:
        if self.session is None:
            named = _UUID.findall(self.path.stem)
            native = native or (named[-1] if named else self.path.stem)
            known = {"source": HARNESS, "session_id": native, "file": str(self.path), **settings}
            self.session = SessionRecord(f"{HARNESS}:{native}", self.agent, HARNESS, settings=present(known))
        return self.session

    def _meta(self, row: _Row) -> Iterator[ReadItem]:
        native = row.payload.get("id")
        if self.session is not None:
            # A fork or sub-agent copies its parent's row, and then its history.
            self.replaying = self.replaying or bool(self.parent and native == self.parent)
            yield Skipped(row.line, "session_meta again")
            return
        spawn = mapping(mapping(mapping(row.payload.get("source")).get("subagent")).get("thread_spawn"))
        forked = row.payload.get("forked_from_id")
        parent = forked or row.payload.get("parent_thread_id") or spawn.get("parent_thread_id")
        self.parent = text_of(parent) or None
        self.replaying = bool(forked)
        self.born = parse_time(row.payload.get("timestamp")) or row.time
        git = mapping(row.payload.get("git"))
        session = self._open_session(
            native if isinstance(native, str) and native else None,
            cwd=row.payload.get("cwd"),
            git_branch=git.get("branch"),
            version=row.payload.get("cli_version"),
            parent_session_id=self.parent,
            agent_role=row.payload.get("agent_role") or spawn.get("agent_role"),
        )
        self.context = {
            "cwd": row.payload.get("cwd"),
            "git_branch": git.get("branch"),
            "version": row.payload.get("cli_version"),
        }
        yield SessionUpdate(session)

    def _turn_context(self, row: _Row) -> Iterator[ReadItem]:
        turn = mapping(row.payload.get("turn_context")) or row.payload
        for key in ("cwd", "model"):
            if turn.get(key):
                self.context[key] = turn[key]
        yield Skipped(row.line, "turn_context")

    def _watch_replay(self, row: _Row) -> None:
        """Ends a replay at the first row that can not be part of it.

        A row that names its turn is new when the turn is younger than the session (such ids carry their time); rows
        that name none are new once more time has passed than writing down a history takes.
        """
        if self.began is None:
            self.began = row.time
        if not self.replaying or row.form == "session_meta":
            return
        turn_time = _time_of_id(row.turn)
        if turn_time is not None and self.born is not None:
            self.replaying = turn_time < self.born - _REPLAY_BURST
        elif row.time is not None and self.began is not None and row.time - self.began > _REPLAY_BURST:
            self.replaying = False

    # What is said

    def _say(self, row: _Row, form: str, said: Iterable[Said], **known: Any) -> Iterator[ReadItem]:
        given = False
        for part in said:
            event_id = self.said.take(form, part)
            if event_id is None:
                continue
            given = True
            part = self._after_abort(part)
            kind: Kind = "replay" if self.replaying else part.kind
            metadata = self._metadata(row, **known)
            if kind != "speech":
                metadata["kind"] = kind
            record = MessageRecord(event_id, part.role, part.text, metadata=metadata, created_at=self._when(row))
            yield Message(self._open_session(), record)
            if kind == "speech" and part.role == "user":
                yield from self._title_from(part.text)
        if not given:
            yield Skipped(row.line, f"{form}, said before")

    def _after_abort(self, part: Said) -> Said:
        """The prompt of an aborted turn is given to the model once more, word for word: that is not said again."""
        if (part.role, part.kind) != ("user", "speech"):
            return part
        repeated = self.aborted and part.text == self.last_prompt
        self.aborted, self.last_prompt = False, part.text
        return Said("user", "replay", part.text) if repeated else part

    def _title_from(self, text: str) -> Iterator[ReadItem]:
        if not self.titled and not text.startswith("[image") and (title := make_title(text)):
            yield self._titled(title)

    def _titled(self, title: str) -> SessionUpdate:
        self.titled = True
        known = self._open_session()
        return SessionUpdate(SessionRecord(known.session_key, known.agent, known.channel, title, known.settings))

    def _metadata(self, row: _Row, **known: Any) -> dict[str, Any]:
        return {**present({**self.context, **known, "turn_id": row.turn}), **line_pointer(self.path, row.line)}

    def _when(self, row: _Row) -> datetime | None:
        """The row's time. Before the first dated row that of the session, lest a whole undated file be from today."""
        self.dated = self.dated or row.time is not None
        return row.time if self.dated else self.born

    def _response(self, row: _Row) -> Iterable[ReadItem]:
        payload = row.payload
        if row.type in {"message", ""} and "role" in payload:
            return self._say(row, "response_item", _message(payload), message_id=payload.get("id"))
        if row.type == "reasoning":
            parts = [*(payload.get("summary") or []), *(payload.get("content") or [])]
            said = [Said("assistant", "thinking", text) for part in parts if (text := _block_text(part)).strip()]
            return self._say(row, "response_item", said, message_id=payload.get("id")) if said else []
        if row.type == "agent_message":
            return self._agent_message(row)
        if row.type in _CALLS:
            return self._call(row)
        if row.type in _OUTPUTS:
            return self._output(row)
        return []

    def _agent_message(self, row: _Row) -> Iterable[ReadItem]:
        """A message of one agent to another."""
        text = _blocks_text(row.payload.get("content"))
        known = {key: row.payload.get(key) for key in ("author", "recipient")}
        return self._say(row, "agent to agent", [Said("assistant", "speech", text)], **known) if text.strip() else []

    def _event(self, row: _Row) -> Iterable[ReadItem]:
        payload, kind = row.payload, row.type
        if kind in _SPOKEN_EVENTS:
            return self._spoken_event(row)
        if kind == "item_completed":
            return self._completed(row, mapping(payload.get("item")))
        if kind in _ENDED:
            return self._ended(row, kind, payload)
        if kind == "exited_review_mode":
            text = _review_text(mapping(payload.get("review_output")))
            return self._say(row, kind, [Said("assistant", "speech", text)]) if text else []
        if kind == "thread_name_updated":
            return self._renamed(payload)
        if kind in _NOTICES:
            return self._notice(row, kind)
        return []

    def _spoken_event(self, row: _Row) -> Iterable[ReadItem]:
        key, role, kind = _SPOKEN_EVENTS[row.type]
        text = text_of(row.payload.get(key))
        if role == "user":
            said = [*_prompt(text), *(_shown(picture) for picture in row.payload.get("images") or [])]
        else:
            said = [Said(role, kind, text)] if text.strip() else []
        return self._say(row, row.type, said) if said else []

    def _completed(self, row: _Row, item: dict[str, Any]) -> Iterable[ReadItem]:
        kind, form = text_of(item.get("type")), "item_completed"
        if kind == "UserMessage":
            return self._say(row, form, _prompt(_blocks_text(item.get("content"))))
        if kind in {"AgentMessage", "Plan"}:
            text = _blocks_text(item.get("content")) or text_of(item.get("text"))
            return self._say(row, form, [Said("assistant", "speech", text)]) if text.strip() else []
        if kind == "Reasoning":
            texts = [*(item.get("summary_text") or []), *(item.get("raw_content") or [])]
            said = [Said("assistant", "thinking", text_of(text)) for text in texts if text_of(text).strip()]
            return self._say(row, form, said) if said else []
        if kind in _ENDED:
            return self._ended(row, kind, {"call_id": item.get("id"), **item})
        return []

    def _notice(self, row: _Row, kind: str) -> Iterable[ReadItem]:
        if kind == "turn_aborted":
            self.aborted = True
        values = [row.payload.get(key) for key in _NOTICES[kind]]
        texts = [text_of(mapping(value).get("message") or value) for value in values if value]
        if not texts:
            return []
        text = f"turn aborted: {texts[0]}" if kind == "turn_aborted" else join_texts(texts)
        return self._say(row, f"event_msg/{kind}", [Said("system", "notice", text)])

    def _renamed(self, payload: dict[str, Any]) -> Iterator[ReadItem]:
        if title := make_title(text_of(payload.get("thread_name"))):
            yield self._titled(title)

    def _bare_error(self, row: _Row) -> Iterable[ReadItem]:
        text = text_of(row.payload.get("text") or row.payload.get("message"))
        return self._say(row, "error", [Said("system", "notice", text)]) if text.strip() else []

    def _compacted(self, row: _Row) -> Iterator[ReadItem]:
        """A summary of what was said, and the history it leaves, of which only what was never heard is kept."""
        text = text_of(row.payload.get("message"))
        if text.strip():
            yield from self._say(row, "compacted", [Said("system", "summary", text)])
        history = row.payload.get("replacement_history") or []
        parts = [part for item in history if "role" in mapping(item) for part in _message(item)]
        unheard = [part for part in parts if not self.said.was_given(part)]
        if history and not unheard:
            yield Skipped(row.line, "replacement_history")
        for part in unheard:
            # Restated words do not count as said: who says them later says them for the first time.
            if event_id := self.restated.take(str(row.line), part):
                metadata = {**self._metadata(row), "kind": "replay"}
                record = MessageRecord(
                    f"replay:{event_id}", part.role, part.text, metadata=metadata, created_at=row.time
                )
                yield Message(self._open_session(), record)

    # Tools

    def _call(self, row: _Row) -> Iterator[ReadItem]:
        payload = row.payload
        native = payload.get("call_id") or payload.get("id")
        name, arguments = _tool_name(payload), _arguments(payload)
        if native:
            event_id = f"call:{native}"
            self.calls.add(text_of(native))
        else:
            event_id = self._nameless_id(name, text_of(arguments))
            self.open_call = event_id
        result = payload.get("result") if row.type == "image_generation_call" else None
        yield self._tool_message(
            row, event_id, name, arguments, binary_placeholder("image", None, result) if result else None
        )

    def _nameless_id(self, *content: str) -> str:
        base = "call:" + content_event_id(*content)
        self.nameless[base] += 1
        return base if self.nameless[base] == 1 else f"{base}:{self.nameless[base]}"

    def _tool_message(
        self, row: _Row, event_id: str, name: str, arguments: Any, result: str | None, **known: Any
    ) -> Message:
        kind: Kind = "replay" if self.replaying else "tool"
        metadata = {**self._metadata(row, **known), "kind": kind}
        record = MessageRecord(event_id, "tool", "", name, arguments, result, metadata, self._when(row))
        return Message(self._open_session(), record)

    def _output(self, row: _Row) -> Iterator[ReadItem]:
        payload = row.payload
        native = payload.get("call_id") or payload.get("tool_call_id")
        if native:
            event_id = f"call:{native}"
        else:
            event_id = self.open_call or self._nameless_id("result", text_of(payload.get("result")))
            self.open_call = None
        body = next((payload[key] for key in ("output", "result", "tools", "content") if payload.get(key)), "")
        text, found = _result(body)
        yield self._tool_result(row, event_id, text, found)

    def _tool_result(self, row: _Row, event_id: str, text: str, found: dict[str, Any]) -> ToolResult:
        metadata = {
            "kind": "replay" if self.replaying else "tool",
            "session_jsonl_path": str(self.path),
            "session_host": HOST,
            "result_jsonl_line": row.line - 1,
            **found,
        }
        return ToolResult(self._open_session(), event_id, text, metadata, row.time)

    def _ended(self, row: _Row, kind: str, value: dict[str, Any]) -> Iterator[ReadItem]:
        """A tool's end as an event: the call and its result in one, unless the response items tell of them."""
        native = value.get("call_id") or value.get("callId") or value.get("id")
        if not native:
            return
        name, argument_keys, result_keys = _ENDED[kind]
        body = next((value[key] for key in result_keys if value.get(key)), None)
        text, found = _result(body) if body is not None else (None, {})
        if kind == "image_generation_end" and value.get("result"):
            text = binary_placeholder("image", None, value["result"])
        if code := value.get("exit_code"):
            found = {**found, "exit_code": code, "is_error": True}
        if text_of(native) in self.calls:
            # Response items bring no result for a web search, and the same result for everything else.
            if text and kind in {"web_search_end", "dynamic_tool_call_response"}:
                yield self._tool_result(row, f"call:{native}", text, found)
            return
        self.calls.add(text_of(native))
        invocation = mapping(value.get("invocation")) or value
        arguments = {key: invocation[key] for key in argument_keys if invocation.get(key)}
        if argument_keys == ("arguments",):
            arguments = arguments.get("arguments", {})
        named = [invocation.get(key) for key in ("server", "namespace", "tool", "kind")]
        name = name or ".".join(text_of(part) for part in named if part) or kind
        yield self._tool_message(row, f"call:{native}", name, arguments, text, **found)


def _open(line: Line) -> _Row:
    """A record out of its envelope; the older form has none and is put where the newer one would have it."""
    value = line.value
    time = parse_time(value.get("timestamp") or value.get("created_at"))
    payload = value.get("payload")
    kind = text_of(value.get("type"))[:80]
    if isinstance(payload, dict):
        return _Row(line.number, kind, payload, time or parse_time(payload.get("timestamp")))
    if kind in {"message", "reasoning"} or kind in _CALLS or kind in _OUTPUTS or (not kind and "role" in value):
        return _Row(line.number, "response_item", value, time)
    if not kind and isinstance(value.get("id"), str) and ("instructions" in value or "git" in value):
        return _Row(line.number, "session_meta", value, time)
    return _Row(line.number, kind or text_of(value.get("record_type"))[:80], value, time)


def _message(payload: dict[str, Any]) -> list[Said]:
    role = payload.get("role")
    content = payload.get("content", payload.get("message"))
    blocks = content if isinstance(content, list) else [content]
    texts = [_block_text(block) for block in blocks if block is not None and not _is_picture(block)]
    # A picture is a saying of its own: the other form of the same prompt may not have it.
    pictures = [_shown(mapping(block).get("image_url")) for block in blocks if _is_picture(block)]
    if role == "user":
        return [*_prompts(texts), *pictures]
    text = join_texts(texts)
    said = [Said("assistant", "speech", text)] if role == "assistant" else [Said("system", "injected", text)]
    return [*(said if text.strip() else []), *(Said(said[0].role, said[0].kind, shown.text) for shown in pictures)]


def _prompts(texts: Iterable[str]) -> list[Said]:
    """The parts of one prompt: what is speech in them is one saying."""
    parts = [part for text in texts for part in _prompt(text)]
    speech = join_texts([part.text for part in parts if part.kind == "speech"])
    rest = [part for part in parts if part.kind != "speech"]
    return [*rest, Said("user", "speech", speech)] if speech else rest


def _prompt(text: str) -> list[Said]:
    """A prompt as the user's words and what the harness put in front of them."""
    said: list[Said] = []
    if text.startswith(_IDE_CONTEXT):
        request = _IDE_REQUEST.search(text)
        end = request.end() if request else len(text)
        said, text = [Said("system", "injected", text[:end].rstrip())], text[end:].strip()
    elif text.startswith(_AGENTS_FILE):
        end = text.find("</INSTRUCTIONS>")
        end = len(text) if end < 0 else end + len("</INSTRUCTIONS>")
        said, text = [Said("system", "injected", text[:end])], text[end:].strip()
    position = 0
    while match := _WRAPPED.match(text, position):
        tag = match["tag"]
        if tag not in _INJECTED_TAGS and tag not in _NOTICE_TAGS:
            break
        said.append(Said("system", "injected" if tag in _INJECTED_TAGS else "notice", match.group().strip()))
        position = match.end()
    text = text[position:].lstrip() if position else text
    return [*said, Said("user", "speech", text)] if text.strip() else said


def _shown(picture: Any) -> Said:
    return Said("user", "speech", binary_placeholder("image", None, mapping(picture).get("url") or picture))


def _is_picture(block: Any) -> bool:
    return mapping(block).get("type") in {"input_image", "image", "local_image"}


def _picture(block: Any) -> str:
    value = mapping(block)
    return binary_placeholder("image", value.get("mimeType"), value.get("image_url") or value.get("data"))


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if _is_picture(block):
        return _picture(block)
    value = mapping(block)
    if value.get("type") == "encrypted_content":
        return ""
    if "text" in value:
        return text_of(value["text"])
    return text_of(block)


def _blocks_text(content: Any) -> str:
    if isinstance(content, list):
        return join_texts([_block_text(block) for block in content])
    return _block_text(content) if content is not None else ""


def _tool_name(payload: dict[str, Any]) -> str:
    name = payload.get("name") or payload.get("tool") or mapping(payload.get("function")).get("name")
    if not name:
        return text_of(payload.get("type")).removesuffix("_call") or "tool"
    space = payload.get("namespace")
    return f"{space}.{name}" if isinstance(space, str) and space else text_of(name)


def _arguments(payload: dict[str, Any]) -> Any:
    """A call's arguments: JSON text is read, other text is kept as it is."""
    keys = ("arguments", "input", "action", "revised_prompt")
    value = next((payload[key] for key in keys if payload.get(key) is not None), None)
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _result(body: Any) -> tuple[str, dict[str, Any]]:
    """A tool's output in any of its forms as text, and what it says about success."""
    if isinstance(body, str) and body.startswith("{"):
        try:
            parsed = json.loads(body)
        except (ValueError, RecursionError):
            return body, {}
        if isinstance(parsed, dict) and isinstance(parsed.get("output"), str):
            code = mapping(parsed.get("metadata")).get("exit_code")
            return parsed["output"], present({"exit_code": code, "is_error": bool(code)})
        return body, {}
    if isinstance(body, dict):
        return _result_object(body)
    return _blocks_text(body), {}


def _result_object(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if "Err" in body:
        return text_of(body["Err"]), {"is_error": True}
    if "Ok" in body:
        return _result_object(mapping(body["Ok"]))
    failed = bool(body.get("isError")) or body.get("success") is False
    for key in ("content", "output", "text"):
        if body.get(key):
            return _blocks_text(body[key]), present({"is_error": failed})
    return text_of(present(body)) if present(body) else "", present({"is_error": failed})


def _review_text(review: dict[str, Any]) -> str:
    findings = [mapping(finding) for finding in review.get("findings") or []]
    lines = [join_texts([text_of(finding.get("title")), text_of(finding.get("body"))]) for finding in findings]
    return join_texts([text_of(review.get("overall_explanation")), *lines])


def _time_of_id(identifier: str | None) -> datetime | None:
    """The moment at which a UUID of version 7 was made; None for any other id."""
    try:
        uuid = UUID(identifier or "")
    except ValueError:
        return None
    return datetime.fromtimestamp((uuid.int >> 80) / 1000, UTC) if uuid.version == 7 else None
