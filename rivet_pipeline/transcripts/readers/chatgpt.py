"""Reads ChatGPT's data export: `conversations.json`, whole or in numbered parts, or one conversation by itself.

A conversation is a tree of nodes. The path that ends in its current node is what the person saw last; the other
branches are kept and marked. Parents are followed and not lists of children, which may be empty.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.documents import Element, Member, read_document
from rivet_pipeline.transcripts.lines import open_stream
from rivet_pipeline.transcripts.readers.branches import off_path, path_to
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    FileReader,
    Said,
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
)

HARNESS = "chatgpt"

_START = re.compile(r"\ufeff?\s*[\[{]")
#: A conversation's tree of nodes: it is empty, or its first node begins in one of these ways.
_TREE = re.compile(
    r""""mapping"\s*:\s*\{\s*(\}|"[^"]*"\s*:\s*(null|\{\s*(
        "id"\s*:\s*" | "parent"\s*:\s*(null|") | "children"\s*:\s*\[
        | "message"\s*:\s*(null|\{\s*"(id|author|create_time|content|metadata)"\s*:)
    )))""",
    re.VERBOSE,
)
_CONVERSATION = re.compile(r'"(current_node|conversation_id|create_time|update_time)"\s*:')

_CONVERSATIONS = "conversations"

#: Content that describes the person or the model to the model.
_CONTEXT_TEXTS = ("user_profile", "user_instructions", "model_set_context", "repository", "repo_summary")
_CONTEXTS = frozenset({"user_editable_context", "model_editable_context"})
_THOUGHTS = frozenset({"thoughts", "reasoning_recap"})
_ERRORS = frozenset({"system_error"})
#: Where other kinds of content hold their text, in the order in which it reads.
_TEXTS = ("name", "title", "url", "domain", "summary", "result", "text", "content")

#: What stands for a pointer to a file that is not in the document.
_POINTERS = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "video_container_asset_pointer": "video"}

_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


class ChatGptReader(FileReader):
    """`conversations.json`, `conversations-000.json`, or one conversation's JSON."""

    harness = HARNESS
    agent = "chatgpt"
    suffixes = frozenset({".json"})

    def sniff(self, head: Head) -> bool:
        """Whether a tree of nodes begins in it beside a conversation's other members."""
        text = head.text
        return bool(_START.match(text) and _TREE.search(text) and _CONVERSATION.search(text))

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The conversations in file order; memory is bounded by the largest of them."""
        alone: dict[str, Any] = {}
        whole, line = True, 1
        with open_stream(path) as stream:
            for item in read_document(stream, arrays={_CONVERSATIONS}, max_value=how.max_line, advance=how.advance):
                line = item.line
                if isinstance(item, Element):
                    yield from _conversation(item.value, line, path, how)
                elif isinstance(item, Member):
                    alone[item.key] = item.value
                else:
                    whole = whole and not isinstance(item, Incomplete)
                    yield item
        # Without its end, which of the branches is the current one may not be known.
        if "mapping" in alone and (whole or how.settled):
            yield from _conversation(alone, line, path, how)


@dataclass(slots=True)
class _Node:
    """One node of the tree. `result` is the node of the output that belongs to its call."""

    message: dict[str, Any]
    created_at: datetime | None
    result: str | None = None


def _conversation(value: Any, line: int, path: Path, how: Reading) -> Iterator[ReadItem]:
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        yield Damaged(line, "conversation without a tree of nodes")
        return
    try:
        yield from _Tree(value, line, path, how).items()
    except SHAPE_ERRORS:
        yield Damaged(line, "conversation of unexpected shape")


@dataclass(slots=True)
class _Tree:
    """One conversation."""

    value: dict[str, Any]
    line: int
    path: Path
    how: Reading
    nodes: dict[str, _Node] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    ids: Counter[str] = field(default_factory=Counter)

    def items(self) -> Iterator[ReadItem]:
        """Its messages: each branch stands where it branches off, before what the person went on with."""
        yield from self._load()
        leaf = self._leaf()
        current = path_to(leaf, self.parents)
        self.off = off_path(leaf, self.parents)
        children = self._children(frozenset(current))
        self._join_results(children)
        joined = {node.result for node in self.nodes.values() if node.result}
        session = self._session()
        title = session.title
        known = self._known_time()
        for key in self._order(children):
            node = self.nodes.get(key)
            if node is None or key in joined:
                continue
            try:
                message = self._message(key, node, session)
            except SHAPE_ERRORS:
                yield Damaged(self.line, "message of unexpected shape")
                continue
            if isinstance(message, Skipped):
                yield message
                continue
            if message.created_at is None and known is not None:
                message, known = _at(message, known), None
            elif message.created_at is not None:
                known = None
            yield Message(session, message)
            if title is None and message.role == "user" and "kind" not in message.metadata:
                title = make_title(message.content)
                yield SessionUpdate(self._session(title))

    def _load(self) -> Iterator[ReadItem]:
        """Takes the nodes in, whichever of them are sound."""
        listed: dict[str, str] = {}
        for key, node in self.value["mapping"].items():
            if not isinstance(node, dict):
                yield Damaged(self.line, "node of unexpected shape")
                continue
            parent = node.get("parent")
            self.parents[key] = parent if isinstance(parent, str) else None
            children = node.get("children")
            for child in children if isinstance(children, list) else []:
                if isinstance(child, str):
                    listed.setdefault(child, key)
            message = node.get("message")
            if message is None:
                yield Skipped(self.line, "node without a message")
            elif not isinstance(message, dict):
                yield Damaged(self.line, "message of unexpected shape")
            else:
                self.nodes[key] = _Node(message, parse_time(message.get("create_time")))
        for child, parent in listed.items():
            if child in self.parents and self.parents[child] is None and child not in path_to(parent, self.parents):
                self.parents[child] = parent

    def _leaf(self) -> str | None:
        """The current node; without one that is there, the latest of those that nothing follows."""
        current = self.value.get("current_node")
        if isinstance(current, str) and current in self.parents:
            return current
        followed = set(self.parents.values())
        leaves = [key for key in self.parents if key not in followed] or list(self.parents)
        times = [(self.nodes[key].created_at if key in self.nodes else None) for key in leaves]
        stamps = [(time.timestamp() if time else float("-inf"), number) for number, time in enumerate(times)]
        return leaves[max(stamps)[1]] if stamps else None

    def _children(self, current: frozenset[str]) -> dict[str | None, list[str]]:
        """What follows each node, in file order, the current path last. Nodes without a parent follow None."""
        children: dict[str | None, list[str]] = {}
        for key, parent in self.parents.items():
            children.setdefault(parent if parent in self.parents else None, []).append(key)
        for keys in children.values():
            keys.sort(key=lambda key: key in current)
        return children

    def _order(self, children: Mapping[str | None, list[str]]) -> Iterator[str]:
        seen: set[str] = set()
        # What only a cycle leads to comes last.
        for start in [*children.get(None, []), *self.parents]:
            waiting = [start]
            while waiting:
                key = waiting.pop()
                if key not in seen:
                    seen.add(key)
                    yield key
                    waiting.extend(reversed(children.get(key, [])))

    def _join_results(self, children: Mapping[str | None, list[str]]) -> None:
        """Joins a tool's first output to the call that it follows; what follows on is a message of its own."""
        for key, node in self.nodes.items():
            tool = _recipient(node.message)
            answers = [child for child in children.get(key, []) if tool and self._answers(child, tool)]
            on_path = [child for child in answers if child not in self.off]
            node.result = next(iter(on_path or answers), None)

    def _answers(self, key: str, tool: str) -> bool:
        node = self.nodes.get(key)
        author = mapping(node.message.get("author")) if node else {}
        name = text_of(author.get("name"))
        return author.get("role") == "tool" and (not name or name.split(".")[0] == tool.split(".")[0])

    def _known_time(self) -> datetime | None:
        """When it began, for messages at its beginning that do not say."""
        times = [node.created_at for node in self.nodes.values() if node.created_at is not None]
        return parse_time(self.value.get("create_time")) or min(times, default=None)

    def _session(self, title: str | None = None) -> SessionRecord:
        value = self.value
        native = value.get("conversation_id") or value.get("id")
        if not isinstance(native, str) or not native.strip():
            content = json.dumps([value.get("create_time"), value.get("title"), next(iter(value["mapping"]), None)])
            native = content_event_id(content).partition(":")[2][:32]
        settings = {
            "source": HARNESS,
            "session_id": native,
            "file": str(self.path),
            **present(
                {
                    "model": value.get("default_model_slug"),
                    "gizmo_id": value.get("gizmo_id"),
                    "archived": value.get("is_archived") is True,
                }
            ),
        }
        own = make_title(text_of(value.get("title"))) if isinstance(value.get("title"), str) else None
        return SessionRecord(f"{HARNESS}:{native}", self.how.agent, HARNESS, title or own, settings)

    def _message(self, key: str, node: _Node, session: SessionRecord) -> MessageRecord | Skipped:
        message = node.message
        author = mapping(message.get("author"))
        role = text_of(author.get("role"))
        content = mapping(message.get("content"))
        kind = text_of(content.get("content_type"))
        metadata = self._metadata(key, message, kind)
        if role == "tool":
            name = text_of(author.get("name")) or None
            result = _text(message)
            if not result.strip():
                return Skipped(self.line, "tool output without text")
            more = {"kind": "tool", "is_error": True} if kind in _ERRORS else {"kind": "tool"}
            metadata = {**more, **metadata}
            return MessageRecord(self._id(key, message), "tool", "", name, None, result, metadata, node.created_at)
        if tool := _recipient(message):
            return self._call(key, node, tool, metadata)
        said = _said(role, kind, _text(message), hidden=bool(metadata.get("hidden")))
        if not said.text.strip():
            return Skipped(self.line, f"{role[:60] or 'nobody'} without text")
        metadata = metadata if said.kind == "speech" else {"kind": said.kind, **metadata}
        return MessageRecord(
            self._id(key, message), said.role, said.text, metadata=metadata, created_at=node.created_at
        )

    def _call(self, key: str, node: _Node, tool: str, metadata: dict[str, Any]) -> MessageRecord:
        metadata = {"kind": "tool", **metadata}
        result = None
        if node.result is not None:
            answer = self.nodes[node.result].message
            result = _text(answer)
            metadata["result_message_id"] = text_of(answer.get("id")) or node.result
            if mapping(answer.get("content")).get("content_type") in _ERRORS:
                metadata["is_error"] = True
        return MessageRecord(
            self._id(key, node.message),
            "tool",
            "",
            tool,
            _arguments(_text(node.message)),
            result,
            metadata,
            node.created_at,
        )

    def _metadata(self, key: str, message: dict[str, Any], content_type: str) -> dict[str, Any]:
        about = mapping(message.get("metadata"))
        status = message.get("status")
        return present(
            {
                "model": about.get("model_slug"),
                "content_type": content_type if content_type != "text" else None,
                "hidden": about.get("is_visually_hidden_from_conversation") is True,
                "off_path": key in self.off,
                "status": status if isinstance(status, str) and not status.startswith("finished") else None,
                "attachments": _attachments(about),
            }
        )

    def _id(self, key: str, message: dict[str, Any]) -> str:
        native = message.get("id")
        event_id = native if isinstance(native, str) and native.strip() else key
        self.ids[event_id] += 1
        return event_id if self.ids[event_id] == 1 else f"{event_id}:{self.ids[event_id]}"


def _at(message: MessageRecord, moment: datetime) -> MessageRecord:
    """The message at a time that it does not state itself."""
    return replace(message, created_at=moment, metadata={**message.metadata, "time_source": "conversation"})


def _recipient(message: dict[str, Any]) -> str | None:
    """The tool that the model's message is put to, if it is."""
    recipient = message.get("recipient")
    model = mapping(message.get("author")).get("role") == "assistant"
    return recipient if model and isinstance(recipient, str) and recipient not in {"", "all"} else None


def _arguments(text: str) -> Any:
    """What a tool was asked: the object if it is one, else the text."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _said(role: str, content_type: str, text: str, *, hidden: bool) -> Said:
    if content_type in _THOUGHTS:
        return Said("assistant", "thinking", text)
    if content_type in _ERRORS or role not in _ROLES:
        return Said("system", "notice", text)
    if content_type in _CONTEXTS or role == "system" or hidden:
        return Said("system", "injected", text)
    return Said(_ROLES[role], "speech", text)


def _text(message: dict[str, Any]) -> str:
    """What a message says, whatever its kind of content, and placeholders for its files."""
    content = message.get("content")
    if isinstance(content, str):
        texts = [content]
    else:
        content = mapping(content)
        texts = _content(content)
    for file in _attachments(mapping(message.get("metadata"))):
        # A picture stands among the parts as well, under a name that ends in its id.
        if not (isinstance(file.get("id"), str) and any(file["id"] in text for text in texts)):
            texts.append(_file("file", file.get("name"), file.get("mime_type"), file.get("size")))
    return join_texts(texts)


def _content(content: dict[str, Any]) -> list[str]:
    if content.get("content_type") in _CONTEXTS:
        return [text_of(content.get(key)) for key in _CONTEXT_TEXTS]
    texts = [_part(part) for part in _list(content.get("parts"))]
    for thought in _list(content.get("thoughts")):
        thought = mapping(thought)
        texts += [text_of(thought.get("summary")), text_of(thought.get("content"))]
    texts += [_part(value) for value in content.values() if mapping(value).get("content_type") in _POINTERS]
    return texts + [text_of(content[key]) for key in _TEXTS if isinstance(content.get(key), str)]


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return text_of(part)
    kind = text_of(part.get("content_type"))
    if kind == "real_time_user_audio_video_asset_pointer":
        return _part({"content_type": "audio_asset_pointer", **mapping(part.get("audio_asset_pointer"))})
    if kind in _POINTERS:
        return _file(_POINTERS[kind], part.get("asset_pointer"), part.get("format"), part.get("size_bytes"))
    return part["text"] if isinstance(part.get("text"), str) else text_of(part)


def _file(what: str, name: Any, media_type: Any, size: Any) -> str:
    about = [text for text in (name, media_type) if isinstance(text, str) and text]
    about += [f"{size:,} bytes"] if isinstance(size, int) else []
    return f"[{what} {', '.join(about)}]" if about else f"[{what}]"


def _attachments(about: dict[str, Any]) -> list[dict[str, Any]]:
    kept = ("id", "name", "mime_type", "size")
    files = [mapping(file) for file in _list(about.get("attachments"))]
    return [present({key: file.get(key) for key in kept}) for file in files if file]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
