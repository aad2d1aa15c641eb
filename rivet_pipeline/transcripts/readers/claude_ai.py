"""Reads Claude.ai's data export: `conversations.json` or one conversation by itself, projects and memories.

An export may hold conversations and messages that are wrong: each is counted as damaged with its reason, what can still
be read of it is kept, and its neighbours are not affected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.documents import Element, Member, read_document
from rivet_pipeline.transcripts.lines import open_stream
from rivet_pipeline.transcripts.readers.branches import off_path
from rivet_pipeline.transcripts.readers.claude_code import result_text
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    ContentIds,
    FileReader,
    Said,
    binary_placeholder,
    join_texts,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head, Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    Role,
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

HARNESS = "claude-ai"

_START = re.compile(r"\ufeff?\s*[\[{]")
_MESSAGES = re.compile(r'"chat_messages"\s*:\s*\[')
_UUID = re.compile(r'"uuid"\s*:\s*"')
#: What tells an export's other documents: projects with their knowledge, and memories.
_PROJECTS = re.compile(r'"is_starter_project"\s*:.*"(docs|prompt_template)"\s*:', re.DOTALL)
_MEMORIES = re.compile(r'"(conversations_memory|project_memories)"\s*:')

_ROLES: dict[str, Role] = {"human": "user", "assistant": "assistant"}

#: Thoughts as they stood in the text before they had blocks of their own.
_THOUGHT = re.compile(r"<antThinking>(.*?)</antThinking>", re.DOTALL)


class ClaudeAiReader(FileReader):
    """`conversations.json`, one conversation's JSON, `projects.json`, `memories.json`."""

    harness = HARNESS
    agent = "claude-ai"
    suffixes = frozenset({".json"})

    def sniff(self, head: Head) -> bool:
        """Whether chat messages begin in it, or what an export says of projects and memories."""
        text = head.text
        if not _START.match(text):
            return False
        if _MESSAGES.search(text) and _UUID.search(text):
            return True
        return _PROJECTS.search(text) is not None or _MEMORIES.search(text) is not None

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The conversations in file order; memory is bounded by the largest of them."""
        alone: dict[str, Any] = {}
        messages: list[Any] = []
        whole, line = True, 1
        with open_stream(path) as stream:
            arrays = {"chat_messages", "conversations"}
            for item in read_document(stream, arrays=arrays, max_value=how.max_line, advance=how.advance):
                line = item.line
                if isinstance(item, Element) and item.key == "chat_messages":
                    messages.append(item.value)
                elif isinstance(item, Element):
                    yield from _entry(item.value, line, path, how)
                elif isinstance(item, Member):
                    alone[item.key] = item.value
                else:
                    whole = whole and not isinstance(item, Incomplete)
                    yield item
        if not whole and not how.settled and ("uuid" not in alone or _forks(messages)):
            # Whose messages these are, or which of them were left, stands behind them.
            return
        if messages or "chat_messages" in alone:
            yield from _entry({"chat_messages": messages, **alone}, line, path, how)
        elif alone.keys() & {"docs", "conversations_memory", "project_memories"}:
            yield from _entry(alone, line, path, how)


def _forks(messages: list[Any]) -> bool:
    parents = [mapping(message).get("parent_message_uuid") for message in messages]
    stated = [parent for parent in parents if isinstance(parent, str)]
    return len(set(stated)) < len(stated)


def _entry(value: Any, line: int, path: Path, how: Reading) -> Iterator[ReadItem]:
    """What one element of an export comes to."""
    if not isinstance(value, dict):
        yield Damaged(line, "conversation of unexpected shape")
        return
    try:
        if "docs" in value or "prompt_template" in value:
            yield from _project(value, line, path, how)
        elif "conversations_memory" in value or "project_memories" in value:
            yield from _memories(value, line, path, how)
        else:
            yield from _Conversation(value, line, path, how).items()
    except SHAPE_ERRORS:
        yield Damaged(line, "conversation of unexpected shape")


@dataclass(slots=True)
class _Conversation:
    """One conversation."""

    value: dict[str, Any]
    line: int
    path: Path
    how: Reading
    off: set[str] = field(default_factory=set)
    ids: ContentIds = field(default_factory=ContentIds)
    #: Calls without an id that wait for their result: the tool's name and the event id.
    waiting: list[tuple[str, str]] = field(default_factory=list)
    session: SessionRecord = field(init=False)

    def items(self) -> Iterator[ReadItem]:
        """Its messages in file order, its summary last."""
        messages = self.value.get("chat_messages")
        if not isinstance(messages, list):
            yield Damaged(self.line, "conversation without a list of messages")
            return
        if not messages:
            yield Skipped(self.line, "conversation without messages")
            return
        self.session = self._session()
        self.off = self._off_path(messages)
        known = _first_time(self.value, messages)
        for message in messages:
            for item in self._message(message):
                if isinstance(item, Message):
                    item, known = _timed(item, known), None
                yield item
        yield from self._summary()

    def _session(self, title: str | None = None) -> SessionRecord:
        value = self.value
        native = value.get("uuid")
        if not isinstance(native, str) or not native.strip():
            content = json.dumps([value.get("created_at"), value.get("name"), value["chat_messages"][0]])
            native = content_event_id(content).partition(":")[2][:32]
        project = mapping(value.get("project"))
        settings = {
            "source": HARNESS,
            "session_id": native,
            "file": str(self.path),
            **present({"model": value.get("model"), "project": project.get("name") or project.get("uuid")}),
        }
        own = make_title(value["name"]) if isinstance(value.get("name"), str) else None
        return SessionRecord(f"{HARNESS}:{native}", self.how.agent, HARNESS, own or title, settings)

    def _off_path(self, messages: list[Any]) -> set[str]:
        """The messages of the branches that were left. Without links there are none."""
        sound = [message for message in messages if isinstance(message, dict) and isinstance(message.get("uuid"), str)]
        parents: dict[str, str | None] = {}
        for message in sound:
            parent = message.get("parent_message_uuid")
            parents[message["uuid"]] = parent if isinstance(parent, str) else None
        leaf = self.value.get("current_leaf_message_uuid")
        if leaf not in parents:
            leaf = sound[-1]["uuid"] if sound else None
        return off_path(leaf, parents)

    def _message(self, message: Any) -> Iterator[ReadItem]:
        if not isinstance(message, dict):
            yield Damaged(self.line, "message of unexpected shape")
            return
        role = _ROLES.get(text_of(message.get("sender")))
        if role is None:
            yield Damaged(self.line, "message of an unknown sender")
            return
        try:
            yield from _Turn(self, message, role).items()
        except SHAPE_ERRORS:
            yield Damaged(self.line, "message of unexpected shape")
            return
        if self.session.title is None and role == "user" and (title := make_title(_plain(message))):
            self.session = self._session(title)
            yield SessionUpdate(self.session)

    def _summary(self) -> Iterator[ReadItem]:
        summary = self.value.get("summary")
        if isinstance(summary, str) and summary.strip():
            record = MessageRecord(
                content_event_id("summary", summary),
                "system",
                summary,
                metadata={"kind": "summary"},
                created_at=parse_time(self.value.get("updated_at")),
            )
            yield Message(self.session, record)


@dataclass(slots=True)
class _Turn:
    """One message, which may hold several stretches of text, calls and files."""

    conversation: _Conversation
    message: dict[str, Any]
    role: Role
    rows: int = 0
    parts: list[Said | dict[str, Any]] = field(default_factory=list)

    def items(self) -> Iterator[ReadItem]:
        """Its rows: attached texts first, then what was said and done in order."""
        for number, attachment in enumerate(_list(self.message.get("attachments"))):
            text = mapping(attachment).get("extracted_content")
            if isinstance(text, str) and text.strip():
                name = text_of(mapping(attachment).get("file_name"))
                said = Said("system", "injected", f"[file {name}]\n{text}" if name else text)
                yield self._give(said, f"attachment:{number}", present({"file_name": name}))
        yield from self._blocks()
        placeholders = self._placeholders()
        if placeholders:
            self._say(Said(self.role, "speech", join_texts(placeholders)))
        for part in self.parts:
            yield self._give(part) if isinstance(part, Said) else self._tool(part)
        if not self.parts and not self.rows:
            yield Skipped(self.conversation.line, f"{self.role} without text")

    def _blocks(self) -> Iterator[ReadItem]:
        """Takes the content's blocks, and the flat text where they say nothing."""
        line = self.conversation.line
        content = self.message.get("content", [])
        if not isinstance(content, list):
            yield Damaged(line, "message content is not a list")
            # Neither the bare text nor the flat one can be told to be what was said.
            texts = dict.fromkeys(text for text in (content, self.message.get("text")) if isinstance(text, str))
            content = [{"type": "text", "text": text} for text in texts]
        for block in content:
            reason = self._block(block)
            if reason is not None:
                yield reason
        if not self.parts and (flat := self.message.get("text")) is not None:
            self._say_text(text_of(flat))

    def _block(self, block: Any) -> ReadItem | None:
        line = self.conversation.line
        kind = text_of(mapping(block).get("type"))
        if kind in {"tool_use", "tool_result"}:
            self.parts.append(block)
        elif kind in {"image", "document"}:
            source = mapping(block.get("source"))
            self._say(Said(self.role, "speech", binary_placeholder(kind, source.get("media_type"), source.get("data"))))
        elif kind == "thinking":
            self._say(Said("assistant", "thinking", text_of(block.get("thinking"))))
        elif isinstance(mapping(block).get("text"), str):
            self._say_text(block["text"])
        elif kind in {"", "text"}:
            return Damaged(line, "text block without text")
        else:
            return Skipped(line, f"content/{kind[:60]}")
        return None

    def _say_text(self, text: str) -> None:
        """Takes a text; the thoughts within it are told apart."""
        position = 0
        for thought in _THOUGHT.finditer(text) if self.role == "assistant" else ():
            self._say(Said(self.role, "speech", text[position : thought.start()].strip("\n")))
            self._say(Said(self.role, "thinking", thought[1]))
            position = thought.end()
        self._say(Said(self.role, "speech", text[position:].strip("\n") if position else text))

    def _say(self, said: Said) -> None:
        if not said.text.strip():
            return
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Said) and (last.role, last.kind) == (said.role, said.kind):
            self.parts[-1] = Said(last.role, last.kind, join_texts([last.text, said.text]))
        else:
            self.parts.append(said)

    def _placeholders(self) -> list[str]:
        """What stands for the files whose text is not there."""
        files = _list(self.message.get("files")) or _list(self.message.get("files_v2"))
        found = []
        for file in (*_list(self.message.get("attachments")), *files):
            file = mapping(file)
            text = file.get("extracted_content")
            if not (isinstance(text, str) and text.strip()):
                about = [file.get("file_name"), file.get("file_type"), file.get("file_size")]
                words = [f"{word:,} bytes" if isinstance(word, int) else text_of(word) for word in about if word]
                found.append(f"[{text_of(file.get('file_kind')) or 'file'} {', '.join(words)}]".replace(" ]", "]"))
        return found

    def _give(self, said: Said, suffix: str = "", more: dict[str, Any] | None = None) -> Message:
        native = self.message.get("uuid")
        if not isinstance(native, str) or not native.strip():
            event_id = self.conversation.ids.next(said.role, said.kind, said.text)
        elif suffix:
            event_id = f"{native}:{suffix}"
        else:
            event_id = native if not self.rows else f"{native}:{self.rows}"
        self.rows += 0 if suffix else 1
        kind = {} if said.kind == "speech" else {"kind": said.kind}
        record = MessageRecord(
            event_id,
            said.role,
            said.text,
            metadata={**kind, **(more or {}), **self._metadata()},
            created_at=self._time(),
        )
        return Message(self.conversation.session, record)

    def _tool(self, block: dict[str, Any]) -> ReadItem:
        return self._result(block) if block["type"] == "tool_result" else self._call(block)

    def _call(self, block: dict[str, Any]) -> Message:
        name, arguments = text_of(block.get("name")), block.get("input")
        native = block.get("id")
        self.rows += 1
        if isinstance(native, str) and native:
            event_id = f"tool:{native}"
        else:
            event_id = self.conversation.ids.next(text_of(self.message.get("uuid")), name, text_of(arguments))
            self.conversation.waiting.append((name, event_id))
        metadata = {"kind": "tool", **self._metadata()}
        record = MessageRecord(event_id, "tool", "", name or None, arguments, None, metadata, self._time())
        return Message(self.conversation.session, record)

    def _result(self, block: dict[str, Any]) -> ToolResult:
        native = block.get("tool_use_id")
        self.rows += 1
        text = result_text(block.get("content"))
        waiting = self.conversation.waiting
        name = text_of(block.get("name"))
        if isinstance(native, str) and native:
            event_id = f"tool:{native}"
        elif calls := [call for call in waiting if not name or call[0] == name]:
            waiting.remove(calls[0])
            event_id = calls[0][1]
        else:
            event_id = self.conversation.ids.next(text_of(self.message.get("uuid")), name, text)
        metadata = {"kind": "tool", **present({"is_error": bool(block.get("is_error"))}), **self._metadata()}
        return ToolResult(self.conversation.session, event_id, text, metadata, self._time())

    def _metadata(self) -> dict[str, Any]:
        return present(
            {
                "message_id": self.message.get("uuid"),
                "off_path": self.message.get("uuid") in self.conversation.off,
                "cut_short": self.message.get("truncated") is True,
            }
        )

    def _time(self) -> datetime | None:
        return parse_time(self.message.get("created_at"))


def _project(value: dict[str, Any], line: int, path: Path, how: Reading) -> Iterator[ReadItem]:
    """A project's instructions and knowledge, which every conversation in it was given."""
    name = text_of(value.get("name"))
    native = text_of(value.get("uuid")) or content_event_id(name, text_of(value.get("created_at"))).partition(":")[2]
    texts = [("description", "", value.get("description")), ("instructions", "", value.get("prompt_template"))]
    for doc in _list(value.get("docs")):
        doc = mapping(doc)
        texts.append((text_of(doc.get("uuid")) or "doc", text_of(doc.get("filename")), doc.get("content")))
    yield from _context(
        f"project:{native}", name, texts, parse_time(value.get("created_at")), Skipped(line, "empty project"), path, how
    )


def _memories(value: dict[str, Any], line: int, path: Path, how: Reading) -> Iterator[ReadItem]:
    """What Claude noted about the person, in all and by project."""
    native = text_of(value.get("account_uuid")) or "account"
    texts = [("memory", "", value.get("conversations_memory"))]
    texts += [(f"memory:{key}", "", text) for key, text in mapping(value.get("project_memories")).items()]
    yield from _context(f"memories:{native}", "Memories", texts, None, Skipped(line, "empty memories"), path, how)


def _context(
    native: str,
    name: str,
    texts: list[tuple[str, str, Any]],
    created_at: datetime | None,
    empty: Skipped,
    path: Path,
    how: Reading,
) -> Iterator[ReadItem]:
    settings = {"source": HARNESS, "session_id": native, "file": str(path)}
    session = SessionRecord(f"{HARNESS}:{native}", how.agent, HARNESS, make_title(name), settings)
    given = False
    for key, file_name, text in texts:
        if not isinstance(text, str) or not text.strip():
            continue
        content = f"[file {file_name}]\n{text}" if file_name else text
        metadata = {"kind": "injected", **present({"file_name": file_name})}
        record = MessageRecord(
            content_event_id(key, content), "system", content, metadata=metadata, created_at=created_at
        )
        yield Message(session, record)
        given = True
    if not given:
        yield empty


def _first_time(value: dict[str, Any], messages: list[Any]) -> datetime | None:
    """When a conversation began, for a first message that does not say."""
    stated = [moment for message in messages if (moment := parse_time(mapping(message).get("created_at")))]
    return parse_time(value.get("created_at")) or min(stated, default=None)


def _timed(item: Message, known: datetime | None) -> Message:
    if item.record.created_at is not None or known is None:
        return item
    metadata = {**item.record.metadata, "time_source": "conversation"}
    return Message(item.session, replace(item.record, created_at=known, metadata=metadata))


def _plain(message: dict[str, Any]) -> str:
    """What the person typed, for a title."""
    blocks = [mapping(block).get("text") for block in _list(message.get("content"))]
    return join_texts([text for text in blocks if isinstance(text, str)]) or text_of(message.get("text"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
