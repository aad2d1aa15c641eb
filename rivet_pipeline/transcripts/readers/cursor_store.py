"""Cursor's agent databases, `~/.cursor/chats/<hash>/<uuid>/store.db`: one conversation each, as blobs named by content.

The row `meta` is JSON in hexadecimal digits and names the root: a protobuf message whose fields of 32 bytes are the
names of other blobs, in the order of the conversation. Messages are blobs of JSON. They have no times.
The agent's transcript (`cursor.py`) says the same without ids: so a saying and a call are known by what they say, as
there, and what stands in both is stored once.
"""

from __future__ import annotations

import re
import sqlite3
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.lines import NOT_JSON, TOO_LONG
from rivet_pipeline.transcripts.readers.blocks import split_prompt
from rivet_pipeline.transcripts.readers.conversation import Conversation, json_value, sqlite_pointer
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
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Damaged, Incomplete, Kind, ReadItem, Role, SessionUpdate, Skipped
from rivet_pipeline.transcripts.sqlite_source import fetch

HARNESS = "cursor"

#: What the harness calls a conversation before it knows better.
DEFAULT_TITLES = frozenset({"New Agent", "New Chat", "Untitled"})

#: The length of a blob's name, a SHA-256, in bytes.
_NAME_BYTES = 32

#: Chains of nodes are followed so far.
_MAX_DEPTH = 64

#: Protobuf's wire types.
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

_SPEAKERS: dict[str, tuple[Role, Kind]] = {"assistant": ("assistant", "speech"), "system": ("system", "injected")}

_QUERY = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.DOTALL)
_WORKSPACE = re.compile(r"^Workspace Path: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Call:
    native: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class _Result:
    native: str
    name: str
    text: str
    failed: bool


_Part = Said | _Call | _Result


def read_store(connection: sqlite3.Connection, path: Path, how: Reading) -> Iterator[ReadItem]:
    """The messages of the conversation, in the order of its root.

    What the root does not lead to any more, since it was taken back or compacted, is given at its place in the order
    of writing and marked as off the path, unless what is said there is also said on it.
    """
    meta = _meta(connection)
    title = text_of(meta.get("name"))
    talk = Conversation(
        HARNESS,
        text_of(meta.get("agentId")) or path.parent.name,
        how.agent,
        title="" if title in DEFAULT_TITLES else title,
        began=parse_time(meta.get("createdAt")),
        settings={"file": str(path), "model": meta.get("lastUsedModel"), "mode": meta.get("mode")},
    )
    yield SessionUpdate(talk.session)
    yield from _Store(connection, path, how, talk).items(text_of(meta.get("latestRootBlobId")))


def _meta(connection: sqlite3.Connection) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in connection.execute("SELECT key, value FROM meta").fetchall():
        try:
            said = json_value(bytes.fromhex(value).decode("utf-8", "replace"))
        except (TypeError, ValueError):
            said = json_value(value)
        found.update(said if isinstance(said, dict) else {text_of(key): said})
    return found


class _Store:
    """The state of one reading of a store."""

    def __init__(self, connection: sqlite3.Connection, path: Path, how: Reading, talk: Conversation) -> None:
        self._connection, self._path, self._how, self._talk = connection, path, how, talk
        self._calls: dict[str, str] = {}
        rows = connection.execute("SELECT rowid, id FROM blobs ORDER BY rowid").fetchall()
        #: The blobs by their names, and in which order they were written.
        self._order: dict[str, int] = {name: number for number, name in rows if isinstance(name, str)}

    def items(self, root: str) -> Iterator[ReadItem]:
        """What the store comes to."""
        for field in _fields(self._data(root) or b""):
            if field.startswith(b"file://"):
                yield from self._talk.update(cwd=field.decode("utf-8", "replace").removeprefix("file://"))
        nodes: set[str] = set()
        path = list(self._walk(root, 0, nodes))
        reached = {*path, *nodes}
        others = [name for name in self._order if name not in reached]
        # Of a store that is still written, what the root left out may only be on its way to it.
        waiting = deque(others if self._how.given_up else [])
        said = {part for name in path for part in self._marks(name)} if waiting else set()
        for name in path:
            while waiting and self._order[waiting[0]] < self._order[name]:
                yield from self._left_out(waiting.popleft(), said)
            yield from self._message(name)
        for name in waiting:
            yield from self._left_out(name, said)
        if not self._how.given_up and not all(self._is_binary(name) for name in others):
            yield Incomplete(len(self._order))

    def _walk(self, name: str, depth: int, entered: set[str]) -> Iterator[str]:
        """The messages that a node leads to. A message may come more than once; a node is entered once."""
        if name not in self._order or name in entered or depth > _MAX_DEPTH:
            return
        if not self._is_binary(name):
            yield name
            return
        entered.add(name)
        for field in _fields(self._data(name) or b""):
            if len(field) == _NAME_BYTES:
                yield from self._walk(field.hex(), depth + 1, entered)

    def _is_binary(self, name: str) -> bool:
        row = fetch(self._connection, "SELECT substr(data, 1, 1) FROM blobs WHERE id = ?", [name])
        return row is not None and row[0] not in (b"{", "{")

    def _data(self, name: str) -> bytes | None:
        row = fetch(self._connection, "SELECT data FROM blobs WHERE id = ?", [name])
        if row is None or row["data"] is None:
            return None
        return row["data"].encode() if isinstance(row["data"], str) else bytes(row["data"])

    def _load(self, name: str) -> dict[str, Any] | str:
        """What a blob says; what is wrong with it when it says nothing."""
        data = self._data(name)
        if data is None:
            return TOO_LONG
        if self._how.advance is not None:
            self._how.advance(len(data))
        value = json_value(data.decode("utf-8", "replace"))
        return value if isinstance(value, dict) else NOT_JSON

    def _marks(self, name: str) -> list[str]:
        """What a message says, part by part."""
        value = self._load(name)
        try:
            return [] if isinstance(value, str) else [_mark(part) for part in _parts(value)]
        except SHAPE_ERRORS:
            return []

    def _left_out(self, name: str, said: set[str]) -> Iterator[ReadItem]:
        if self._is_binary(name):
            yield Skipped(self._order[name], "blob/binary")
        else:
            yield from self._message(name, said, off_path=True)

    def _message(self, name: str, said: set[str] | None = None, *, off_path: bool = False) -> list[ReadItem]:
        line = self._order[name]
        value = self._load(name)
        if isinstance(value, str):
            return [Damaged(line, value)]
        if "role" not in value:
            return [Skipped(line, "blob/json")]
        model = mapping(mapping(value.get("providerOptions")).get("cursor")).get("modelName")
        known = present({"message_id": value.get("id"), "model": model, "off_path": off_path})
        items: list[ReadItem] = []
        try:
            for part in _parts(value):
                if said and _mark(part) in said:
                    items.append(Skipped(line, "said on the path too"))
                else:
                    items.extend(self._part(name, part, known))
        except SHAPE_ERRORS:
            return [*items, Damaged(line, "message of unexpected shape")]
        return items or [Skipped(line, f"{text_of(value['role'])[:40]} without text")]

    def _part(self, name: str, part: _Part, known: dict[str, Any]) -> Iterator[ReadItem]:
        pointer = sqlite_pointer(self._path, "blobs", name)
        if isinstance(part, Said):
            place = _WORKSPACE.search(part.text) if part.kind == "injected" else None
            if place is not None and "cwd" not in self._talk.session.settings:
                yield from self._talk.update(cwd=place[1].strip())
            yield from self._talk.say(part, None, {**known, **pointer})
        elif isinstance(part, _Call):
            event_id = self._talk.call_id(None, part.name, part.arguments)
            self._calls[part.native] = event_id
            metadata = {**known, **present({"call_id": part.native}), **pointer}
            yield self._talk.call(event_id, part.name, part.arguments, metadata)
        else:
            told = present({"tool_name": part.name, "is_error": part.failed, "off_path": "off_path" in known})
            place_of = {"result_sqlite_part_id": pointer.pop("session_sqlite_part_id"), **pointer}
            event_id = self._calls.pop(part.native, "") or self._talk.answer_id(part.native, part.text)
            yield self._talk.result(event_id, part.text, {**told, **place_of})


def _fields(data: bytes) -> Iterator[bytes]:
    """The values of a protobuf message that have a length, in order, as far as it is one."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            _, place = _varint(data, place)
        elif kind in {_FIXED64, _FIXED32}:
            place += 8 if kind == _FIXED64 else 4
        elif kind == _LENGTH:
            length, place = _varint(data, place)
            if place + length > len(data):
                return
            yield data[place : place + length]
            place += length
        else:
            return


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while place < len(data):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return value, place


def _parts(value: dict[str, Any]) -> list[_Part]:
    """A message's content as parts; neighbouring texts of one kind are one."""
    content = value.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    parts: list[_Part] = []
    for block in blocks:
        for part in _block(text_of(value["role"]), block):
            last = parts[-1] if parts else None
            joins = isinstance(part, Said) and isinstance(last, Said) and last.kind == part.kind
            if joins and isinstance(part, Said) and isinstance(last, Said) and last.role == part.role:
                parts[-1] = Said(part.role, part.kind, join_texts([last.text, part.text]))
            else:
                parts.append(part)
    return parts


def _block(role: str, block: dict[str, Any]) -> list[_Part]:
    kind, native, name = text_of(block.get("type")), text_of(block.get("toolCallId")), text_of(block.get("toolName"))
    if kind == "tool-call":
        return [_Call(native, name, block.get("args", block.get("input")))]
    if kind == "tool-result":
        output = block.get("result", block.get("output"))
        return [_Result(native, name, _output(output), bool(block.get("isError")))]
    if kind in {"image", "file"}:
        media_type = block.get("mimeType") or block.get("mediaType")
        text = binary_placeholder(kind, media_type, block.get("image") or block.get("data"))
        return [Said("user", "speech", text) if role == "user" else Said("system", "notice", text)]
    text = text_of(block.get("text"))
    if kind not in {"text", "reasoning"} or not text.strip():
        return []
    if role == "user":
        return [*_prompt(text)]
    if kind == "reasoning":
        return [Said("assistant", "thinking", text)]
    return [Said(*_SPEAKERS.get(role, ("system", "notice")), text)]


def _output(value: Any) -> str:
    """A tool's output: a text, a list of texts and pictures, or what a result object wraps."""
    if isinstance(value, dict) and value.keys() == {"type", "value"}:
        value = value["value"]
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return join_texts([_output_part(part) for part in value])
    return text_of(value)


def _output_part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    media_type = part.get("mimeType") or part.get("mediaType")
    return binary_placeholder("image", media_type, part.get("data")) if media_type else text_of(part)


def _prompt(text: str) -> list[Said]:
    """A prompt as the user's words and what the harness put around them."""
    queries = list(_QUERY.finditer(text))
    if not queries:
        return split_prompt(text)
    said: list[Said] = []
    place = 0
    for query in queries:
        said.append(Said("system", "injected", text[place : query.start()].strip()))
        said.append(Said("user", "speech", query[1]))
        place = query.end()
    said.append(Said("system", "injected", text[place:].strip()))
    return [part for part in said if part.text.strip()]


def _mark(part: _Part) -> str:
    """What tells a part from others, as a hash."""
    if isinstance(part, Said):
        return content_event_id("said", part.role, part.kind, part.text)
    if isinstance(part, _Call):
        return content_event_id("call", part.native, part.name, text_of(part.arguments))
    return content_event_id("result", part.native, part.text)
