"""Documents of normalised conversations: `{provider_family, session_id, messages[{id, role, blocks}]}`.

Another archive's exchange form, of which its test cases are written. A result may stand before its call, and text may
be bytes that are no UTF-8.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.documents import Element, Member, read_document
from rivet_pipeline.transcripts.lines import open_stream
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    FileReader,
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

HARNESS = "polylogue"

_ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}


class PolylogueReader(FileReader):
    """Reads documents of normalised conversations."""

    harness = HARNESS
    agent = "rivet-polylogue"
    suffixes = frozenset({".json"})

    def sniff(self, head: Head) -> bool:
        """Whether the document is one, judged by its members."""
        members = head.members
        named = isinstance(members.get("session_id"), str) and isinstance(members.get("provider_family"), str)
        messages = members.get("messages")
        return named and isinstance(messages, list) and all("blocks" in mapping(message) for message in messages)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The document's messages. Raises `OSError` when it can not be read at all."""
        document = _Document(path, how)
        with open_stream(path) as stream:
            items = read_document(stream, arrays={"messages"}, max_value=how.max_line, advance=how.advance)
            cut = None
            for item in items:
                if isinstance(item, Incomplete):
                    cut = item
                elif isinstance(item, Damaged):
                    yield item
                else:
                    yield from document.take(item)
        yield from document.finish(settled=how.settled)
        if cut is not None:
            yield cut


class _Document:
    """The state of one reading: results whose calls have not come, calls whose results have not."""

    def __init__(self, path: Path, how: Reading) -> None:
        self.path = path
        self.agent = how.agent
        self.members: dict[str, str] = {}
        self.session: SessionRecord | None = None
        self.titled = False
        self.called: set[str] = set()
        self.early: dict[str, ToolResult] = {}

    def take(self, item: Member | Element) -> Iterator[ReadItem]:
        """What a member, or one message, comes to."""
        if isinstance(item, Member):
            if isinstance(item.value, str):
                self.members[item.key] = item.value
            return
        try:
            yield from list(self._message(item))
        except SHAPE_ERRORS:
            yield Damaged(item.line, "message of unexpected shape")

    def finish(self, *, settled: bool) -> Iterator[ReadItem]:
        """Results whose calls never came."""
        if settled:
            yield from self.early.values()
        elif self.early:
            yield Incomplete(0)

    def _conversation(self) -> SessionRecord:
        if self.session is None:
            native = self.members.get("session_id") or self.path.stem
            settings = {
                "source": HARNESS,
                "session_id": native,
                "file": str(self.path),
                "provider": self.members.get("provider_family"),
                "case_id": self.members.get("case_id"),
            }
            self.session = SessionRecord(f"{HARNESS}:{native}", self.agent, HARNESS, None, present(settings))
        return self.session

    def _message(self, item: Element) -> Iterator[ReadItem]:
        session = self._conversation()
        message = item.value
        native = text_of(message.get("id")) or f"message:{item.index}"
        role = _ROLES.get(text_of(message.get("role")), "system")
        time = parse_time(message.get("timestamp"))
        blocks = message.get("blocks") or [{"type": "text", "text": message.get("text")}]
        for index, block in enumerate(blocks):
            kind = text_of(block.get("type"))
            text, found = _text(block.get("text"))
            call = text_of(block.get("tool_id")) or f"{native}:{index}"
            if kind == "tool_use":
                yield Message(session, self._call(call, block, time))
            elif kind == "tool_result":
                metadata = present({"is_error": block.get("tool_result_is_error"), **found})
                code = block.get("tool_result_exit_code")
                metadata |= {"kind": "tool"} | ({} if code is None else {"exit_code": code})
                result = ToolResult(session, f"tool:{call}", text, metadata, time)
                if call in self.called:
                    yield result
                else:
                    self.early[call] = result
            elif text.strip():
                sort: Kind = "thinking" if kind == "thinking" else "speech"
                extra = {**found, **({} if sort == "speech" else {"kind": sort})}
                record = MessageRecord(f"{native}:{index}", role, text, metadata=extra, created_at=time)
                yield Message(session, record)
                if role == "user" and not self.titled and (title := make_title(text)):
                    self.titled = True
                    yield SessionUpdate(SessionRecord(session.session_key, session.agent, HARNESS, title))
            else:
                yield Skipped(item.line, f"{kind or 'nameless'} block without text")

    def _call(self, native: str, block: dict[str, Any], time: Any) -> MessageRecord:
        self.called.add(native)
        early = self.early.pop(native, None)
        metadata = {"kind": "tool", **(early.metadata if early else {})}
        name = text_of(block.get("tool_name")) or "tool"
        result = early.tool_result if early else None
        return MessageRecord(f"tool:{native}", "tool", "", name, block.get("tool_input"), result, metadata, time)


def _text(value: Any) -> tuple[str, dict[str, Any]]:
    """A block's text, and what there is to say about it: it may be given as bytes."""
    if isinstance(value, dict) and isinstance(value.get("text_bytes_base64"), str):
        try:
            data = base64.b64decode(value["text_bytes_base64"])
        except (binascii.Error, ValueError):
            return text_of(value), {}
        text = data.decode("utf-8", "replace")
        return text, present({"replaced_bytes": text.count("\ufffd")})
    return text_of(value), {}
