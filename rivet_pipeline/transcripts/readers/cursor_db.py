"""Cursor's databases: `state.vscdb`, in which the editor keeps its chats, and the agent's `store.db`.

The chats are read here; the agent's store in `cursor_store.py`. In `state.vscdb` the table cursorDiskKV holds, as JSON,
a conversation under `composerData:<id>`, with the order of its messages, and each message under
`bubbleId:<conversation>:<id>`; in older ones the messages stand in the conversation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import NOT_JSON, TOO_LONG
from rivet_pipeline.transcripts.readers.conversation import Conversation, json_value, sqlite_pointer
from rivet_pipeline.transcripts.readers.cursor_store import DEFAULT_TITLES, HARNESS, read_store
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
from rivet_pipeline.transcripts.reading import Head, Reading, SourceState
from rivet_pipeline.transcripts.records import Damaged, Incomplete, ReadItem, SessionUpdate, Skipped
from rivet_pipeline.transcripts.sqlite_source import (
    declared_tables,
    fetch,
    is_sqlite,
    open_sqlite,
    sqlite_state,
    tables,
)

_CHATS, _MESSAGES = "composerData:", "bubbleId:"

_USER, _ASSISTANT = 1, 2

#: States of a tool call that will be replaced in place.
_UNFINISHED = frozenset({"pending", "running", "loading", "streaming"})

_KEYS = "SELECT key FROM cursorDiskKV WHERE key >= ? AND key < ? ORDER BY rowid"


class CursorDatabaseReader:
    """Reads Cursor's databases of both kinds."""

    harness = HARNESS
    agent = "rivet-cursor"
    suffixes = frozenset({".db", ".vscdb"})
    follows = False

    def sniff(self, head: Head) -> bool:
        """Whether the file is Cursor's, judged by its name and its beginning."""
        found = declared_tables(head.data)
        if head.path.suffix == ".vscdb":
            return "cursorDiskKV" in found
        declared = _is_store({name: set(text.replace(",", " ").split()) for name, text in found.items()})
        # While its first messages stand in the log alone, the file itself declares nothing yet.
        placed = head.path.name == "store.db" and head.path.parent.parent.parent.name == "chats"
        return declared or (placed and not found and is_sqlite(head.data))

    def state(self, path: Path) -> SourceState:
        """The state of the database with its log."""
        return sqlite_state(path)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The messages, conversation by conversation. Raises `OSError` when the file can not be read at all."""
        with open_sqlite(path, how.max_line) as connection:
            found = tables(connection)
            if "cursorDiskKV" in found:
                yield from _State(connection, path, how).items()
            elif _is_store(found):
                yield from read_store(connection, path, how)
            else:
                yield Skipped(0, "database without conversations")


def _is_store(found: dict[str, set[str]]) -> bool:
    return found.get("blobs", set()) >= {"id", "data"} and found.get("meta", set()) >= {"key", "value"}


class _State:
    """The state of one reading of a `state.vscdb`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, how: Reading) -> None:
        self._connection, self._path, self._how = connection, path, how
        self._line = 0
        self._held = False

    def items(self) -> Iterator[ReadItem]:
        """What the database comes to."""
        messages: dict[str, list[str]] = {}
        for key in self._keys(_MESSAGES):
            messages.setdefault(key.split(":")[1], []).append(key)
        for key in self._keys(_CHATS):
            value = self._load(key)
            if isinstance(value, Damaged):
                yield value
            elif value is not None:
                native = key.removeprefix(_CHATS)
                yield from self._conversation(native, value, messages.pop(native, []))
        for native, keys in messages.items():
            # The conversation is gone and its messages are still there.
            yield from self._conversation(native, {}, keys)
        if self._held:
            yield Incomplete(self._line)

    def _conversation(self, native: str, value: dict[str, Any], keys: list[str]) -> Iterator[ReadItem]:
        title = text_of(value.get("name"))
        settings = {
            "file": str(self._path),
            "model": mapping(value.get("modelConfig")).get("modelName"),
            "mode": value.get("unifiedMode") or value.get("forceMode"),
            "git_branch": value.get("createdOnBranch"),
            "parent_session_id": mapping(value.get("subagentInfo")).get("parentComposerId"),
        }
        talk = Conversation(
            HARNESS,
            native,
            self._how.agent,
            title="" if title in DEFAULT_TITLES else title,
            began=parse_time(value.get("createdAt")),
            settings=settings,
        )
        yield SessionUpdate(talk.session)
        order = self._order(native, value, keys)
        if not order:
            yield Skipped(self._line, "conversation without messages")
        growing = {text_of(name) for name in value.get("generatingBubbleIds") or []}
        if value.get("status") == "generating" and order:
            growing.add(order[-1][0])
        active = value.get("lastUpdatedAt") or value.get("createdAt")
        for name, message, off_path in order:
            yield from self._message(talk, name, message, off_path=off_path, growing=name in growing, active=active)

    def _order(
        self, native: str, value: dict[str, Any], keys: list[str]
    ) -> list[tuple[str, dict[str, Any] | str, bool]]:
        """The messages in their order: id, the message or the key under which it stands, whether it was taken back."""
        inline = [mapping(bubble) for bubble in value.get("conversation") or []]
        inline += [mapping(bubble) for bubble in mapping(value.get("conversationMap")).values()]
        found: dict[str, tuple[str, dict[str, Any] | str, bool]] = {}
        for number, bubble in enumerate(inline):
            name = text_of(bubble.get("bubbleId")) or f"{native}:{number}"
            found.setdefault(name, (name, bubble, False))
        known = set(keys)
        for header in value.get("fullConversationHeadersOnly") or []:
            name = text_of(mapping(header).get("bubbleId"))
            key = f"{_MESSAGES}{native}:{name}"
            if key in known or name not in found:
                found[name] = (name, key, False)
        in_order = bool(found)
        for key in keys:
            name = key.rpartition(":")[2]
            found.setdefault(name, (name, key, in_order))
        return list(found.values())

    def _message(
        self,
        talk: Conversation,
        name: str,
        message: dict[str, Any] | str,
        *,
        off_path: bool,
        growing: bool,
        active: Any,
    ) -> Iterator[ReadItem]:
        pointer: dict[str, Any] = {}
        if isinstance(message, str):
            pointer = sqlite_pointer(self._path, "cursorDiskKV", message)
            loaded = self._load(message)
            if isinstance(loaded, Damaged):
                yield loaded
                return
            if loaded is None:
                yield Skipped(self._line, "message that is gone")
                return
            message = loaded
        is_open = growing or mapping(message.get("toolFormerData")).get("status") in _UNFINISHED
        if is_open and not self._how.given_up and not is_long_ago(active, message.get("createdAt")):
            self._held = True
            return
        try:
            items = list(_rows(talk, name, message, {**pointer, **present({"off_path": off_path})}))
        except SHAPE_ERRORS:
            items = [Damaged(self._line, "message of unexpected shape")]
        yield from items or [Skipped(self._line, "message without text")]

    def _load(self, key: str) -> dict[str, Any] | Damaged | None:
        self._line += 1
        row = fetch(self._connection, "SELECT length(key), value FROM cursorDiskKV WHERE key = ?", [key])
        if row is None:
            gone = fetch(self._connection, "SELECT 1 FROM cursorDiskKV WHERE key = ?", [key]) is None
            return None if gone else Damaged(self._line, TOO_LONG)
        data = row["value"]
        if data is None:
            return None
        if self._how.advance is not None:
            self._how.advance(len(data))
        value = json_value(bytes(data).decode("utf-8", "replace") if isinstance(data, bytes) else data)
        if value is None:
            return None
        return value if isinstance(value, dict) else Damaged(self._line, NOT_JSON)

    def _keys(self, prefix: str) -> list[str]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        return [row[0] for row in self._connection.execute(_KEYS, [prefix, end]).fetchall()]


def _rows(talk: Conversation, name: str, value: dict[str, Any], place: dict[str, Any]) -> Iterator[ReadItem]:
    """What one message comes to: its context, thoughts, text, tool call, and what went wrong."""
    time = parse_time(value.get("createdAt") or mapping(value.get("timingInfo")).get("clientRpcSendTime"))
    mode, tokens = value.get("unifiedMode"), mapping(value.get("tokenCount"))
    known = {
        "model": mapping(value.get("modelInfo")).get("modelName"),
        "mode": mode if isinstance(mode, str) else None,
        "usage": tokens if any(tokens.values()) else None,
    }
    metadata = {**present(known), **place}
    if value["type"] == _USER:
        yield from talk.update(cwd=_workspace(value))
        said: Iterable[tuple[str, Said]] = _asked(value)
    elif value["type"] == _ASSISTANT:
        said = _answered(value)
    else:
        raise ValueError("a speaker that is not known")
    for ending, part in said:
        if part.text.strip():
            yield from talk.say(part, name + ending, metadata, time)
            metadata.pop("usage", None)
    tool = mapping(value.get("toolFormerData"))
    if tool.get("name") or tool.get("toolCallId"):
        yield _tool(talk, name, tool, metadata, time)


def _asked(value: dict[str, Any]) -> Iterator[tuple[str, Said]]:
    for number, chunk in enumerate(value.get("attachedCodeChunks") or []):
        lines = chunk.get("lines")
        text = join_texts([text_of(line) for line in lines]) if isinstance(lines, list) else text_of(chunk.get("text"))
        if text.strip():
            text = join_texts([text_of(chunk.get("relativeWorkspacePath")), text])
            yield f":context:{number}", Said("system", "injected", text)
    images = [_image(mapping(image)) for image in value.get("images") or []]
    text = text_of(value.get("text")) or _rich_text(json_value(value.get("richText")))
    yield "", Said("user", "speech", join_texts([text, *images]))


def _answered(value: dict[str, Any]) -> Iterator[tuple[str, Said]]:
    thoughts = [mapping(value.get("thinking")).get("text")]
    thoughts += [mapping(block).get("text") or mapping(block).get("thinking") for block in _blocks(value)]
    told = list(dict.fromkeys(text_of(thought) for thought in thoughts if thought))
    yield ":thinking", Said("assistant", "thinking", join_texts(told))
    text = text_of(value.get("text"))
    code = [text_of(mapping(block).get("content")) for block in value.get("codeBlocks") or []]
    # The text holds its code itself, unless there is nothing but code; a tool's code stands in the call.
    alone = not text.strip() and not value.get("toolFormerData")
    yield "", Said("assistant", "speech", join_texts(code) if alone else text)
    error = mapping(value.get("errorDetails"))
    yield ":error", Said("system", "notice", text_of(error.get("message") or error.get("error")))


def _blocks(value: dict[str, Any]) -> list[Any]:
    blocks = value.get("allThinkingBlocks")
    return blocks if isinstance(blocks, list) else []


def _tool(talk: Conversation, name: str, tool: dict[str, Any], metadata: dict[str, Any], time: Any) -> ReadItem:
    error = tool.get("error")
    result = tool.get("result")
    failed = tool.get("status") == "error" or bool(error)
    waits = tool.get("status") in _UNFINISHED and not result
    text = text_of(result) or text_of(mapping(json_value(error)).get("clientVisibleErrorMessage") or error)
    known = {
        "call_id": tool.get("toolCallId"),
        "is_error": failed,
        "user_decision": tool.get("userDecision"),
        "tool_status": tool.get("status"),
    }
    arguments = tool.get("rawArgs") or tool.get("params")
    return talk.call(
        f"{name}:tool", tool.get("name"), arguments, {**metadata, **present(known)}, time, None if waits else text
    )


def _image(image: dict[str, Any]) -> str:
    return binary_placeholder("image", image.get("mimeType"), image.get("data") or image.get("url"))


def _rich_text(node: Any) -> str:
    """The words in the tree in which the editor keeps a prompt."""
    found: list[str] = []
    waiting = [node]
    while waiting:
        held = waiting.pop()
        if isinstance(held, dict):
            if isinstance(held.get("text"), str):
                found.append(held["text"])
            waiting += [held.get("root"), held.get("children")]
        elif isinstance(held, list):
            waiting += reversed(held)
    return "".join(found)


def _workspace(value: dict[str, Any]) -> str | None:
    places = value.get("workspaceUris")
    first = text_of(places[0]) if isinstance(places, list) and places else ""
    return first.removeprefix("file://") or None
