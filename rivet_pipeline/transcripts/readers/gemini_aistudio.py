"""Google AI Studio's prompts, as they are saved in Google Drive: one document with its chunks under `chunkedPrompt`.

The document is read twice: its id, when it has one, may stand behind the chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.cleaning import content_event_id
from rivet_pipeline.transcripts.documents import DocumentItem, Element, Member, read_document
from rivet_pipeline.transcripts.lines import open_stream, without_compression
from rivet_pipeline.transcripts.readers.google_parts import (
    Call,
    CallIds,
    Part,
    append,
    hold_last,
    parts_of,
    read_model,
    read_user,
)
from rivet_pipeline.transcripts.readers.shared import (
    SHAPE_ERRORS,
    ContentIds,
    FileReader,
    Said,
    binary_placeholder,
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
    SessionRecord,
    SessionUpdate,
    Skipped,
    ToolResult,
)

HARNESS = "gemini-aistudio"

_PROMPT = "chunkedPrompt"
_CHUNKS = f"{_PROMPT}.chunks"
_PENDING = f"{_PROMPT}.pendingInputs"
_BEGINNING = re.compile(r'\A\s*\{.*"chunkedPrompt"\s*:\s*\{\s*"(?:chunks|pendingInputs)"\s*:\s*\[', re.DOTALL)

#: Files that a chunk names without their bytes, and what they are called where they are shown.
_ATTACHMENTS = {
    "driveDocument": "document",
    "driveImage": "image",
    "driveVideo": "video",
    "driveAudio": "audio",
    "youtubeVideo": "YouTube video",
}

#: Keys of a chunk that are parts of the shape Google's contents have.
_PART_KEYS = (
    "inlineFile", "inlineData", "inlineImage", "inlineAudio", "fileData", "functionCall", "functionResponse",
    "executableCode", "codeExecutionResult",
)  # fmt: skip


class GeminiAiStudioReader(FileReader):
    """Reads prompts of Google AI Studio."""

    harness = HARNESS
    agent = HARNESS
    suffixes = frozenset({".json"})

    def sniff(self, head: Head) -> bool:
        """Whether the file is such a prompt, judged by its beginning."""
        if head.whole:
            return isinstance(mapping(head.members.get(_PROMPT)).get("chunks"), list)
        return _BEGINNING.match(head.text) is not None

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The prompt's chunks in their order. Raises `OSError` when it can not be read at all."""
        header, whole = _header(path, how)
        if "id" not in header and not (whole or how.settled):
            yield Incomplete(1)
            return
        prompt = _Prompt(path, how.agent, header)
        yield from prompt.instruction()
        with open_stream(path) as stream:
            parts = _parts(stream, how, advance=True)
            for item in parts if how.settled else hold_last(parts, _CHUNKS):
                if isinstance(item, Element):
                    yield from prompt.take(item)
                elif not isinstance(item, Member):
                    yield item


def _parts(stream: Any, how: Reading, *, advance: bool = False) -> Iterator[DocumentItem]:
    return read_document(
        stream,
        arrays={_CHUNKS, _PENDING},
        within={_PROMPT},
        max_value=how.max_line,
        advance=how.advance if advance else None,
    )


def _header(path: Path, how: Reading) -> tuple[dict[str, Any], bool]:
    """The document's members beside its chunks and a mark of the first chunk, and whether it was seen to its end."""
    header: dict[str, Any] = {}
    with open_stream(path) as stream:
        for item in _parts(stream, how):
            if isinstance(item, Member):
                header[item.key] = item.value
            elif isinstance(item, Element) and item.key == _CHUNKS and item.index == 0:
                header[_CHUNKS] = _mark(mapping(item.value))
            elif isinstance(item, Incomplete):
                return header, False
    return header, True


def _mark(chunk: dict[str, Any]) -> str:
    """What tells a prompt without an id from another of the same name: how it begins."""
    told = [text_of(chunk.get(key)) for key in ("role", "createTime", "text")]
    return content_event_id(*told).removeprefix("sha256:")[:16]


class _Prompt:
    """Turns chunks into rows."""

    def __init__(self, path: Path, agent: str, header: dict[str, Any]) -> None:
        self.header = header
        self.ids = ContentIds()
        self.calls = CallIds()
        title = make_title(text_of(header.get("displayName") or header.get("title")))
        self.titled = title is not None
        native = text_of(header.get("id")) or f"{without_compression(path).stem}:{header.get(_CHUNKS, '')}"
        settings = {
            "source": HARNESS,
            "session_id": native,
            "file": str(path),
            "model": mapping(header.get("runSettings")).get("model"),
        }
        self.record = SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, title, settings=present(settings))

    def instruction(self) -> Iterator[ReadItem]:
        """The system instruction, which stands apart from the chunks."""
        parts, _ = read_model(self.header.get("systemInstruction"))
        for part in parts:
            if isinstance(part, Said):
                event_id = self.ids.next("systemInstruction", part.text)
                time = parse_time(self.header.get("createTime"))
                metadata = {"kind": "injected"}
                yield Message(
                    self.record, MessageRecord(event_id, "system", part.text, metadata=metadata, created_at=time)
                )

    def take(self, item: Element) -> list[ReadItem]:
        """What one chunk comes to. One of an unexpected shape is damaged and touches no other."""
        if item.key != _CHUNKS:
            return [Skipped(item.line, "pending input, not sent")]
        try:
            return list(self._chunk(item.value, item.line))
        except SHAPE_ERRORS:
            return [Damaged(item.line, "chunk of unexpected shape")]

    def _chunk(self, chunk: dict[str, Any], line: int) -> Iterator[ReadItem]:
        parts, passed = _chunk_parts(chunk)
        native = text_of(chunk.get("id"))
        time = parse_time(chunk.get("createTime"))
        metadata = _metadata(chunk)
        for number, part in enumerate(parts):
            yield from self._row(native, number, part, metadata, time, text_of(chunk.get("createTime")))
        for reason in passed:
            yield Skipped(line, reason)
        if not parts and not passed:
            yield Skipped(line, "empty chunk")

    def _row(
        self, native: str, number: int, part: Part, metadata: dict[str, Any], time: datetime | None, moment: str
    ) -> Iterator[ReadItem]:
        if isinstance(part, Said):
            event_id = _numbered(native, number) or self.ids.next(part.role, part.kind, moment, part.text)
            marks = {} if part.kind == "speech" else {"kind": part.kind}
            record = MessageRecord(event_id, part.role, part.text, metadata={**metadata, **marks}, created_at=time)
            yield Message(self.record, record)
            yield from self._title_from(part)
            return
        owner = native or self.ids.next("tool", moment, text_of(part.args if isinstance(part, Call) else part.text))
        if isinstance(part, Call):
            event_id = self.calls.call(part.native, owner)
            record = MessageRecord(
                event_id, "tool", "", part.name, part.args, metadata={**metadata, "kind": "tool"}, created_at=time
            )
            yield Message(self.record, record)
        else:
            marks = present({"kind": "tool", "is_error": part.failed})
            yield ToolResult(self.record, self.calls.result(part.native, owner), part.text, marks, time)

    def _title_from(self, part: Said) -> Iterator[ReadItem]:
        if self.titled or (part.role, part.kind) != ("user", "speech"):
            return
        if title := make_title(part.text):
            self.titled = True
            known = self.record
            yield SessionUpdate(SessionRecord(known.session_key, known.agent, known.channel, title, known.settings))


def _numbered(native: str, number: int) -> str:
    return f"{native}:{number}" if native and number else native


def _chunk_parts(chunk: dict[str, Any]) -> tuple[list[Part], list[str]]:
    """What a chunk says. Its text stands whole beside the parts it came in."""
    content: list[Any] = (
        [{"text": chunk["text"]}] if text_of(chunk.get("text")).strip() else parts_of(chunk.get("parts"))
    )
    content = [*content, *({key: chunk[key]} for key in _PART_KEYS if chunk.get(key))]
    user = text_of(chunk.get("role")) == "user"
    parts, passed = read_user(content) if user else read_model(content)
    if chunk.get("isThought"):
        parts = [Said(part.role, "thinking", part.text) if isinstance(part, Said) else part for part in parts]
    for shown in _attachments(chunk):
        append(parts, Said("user" if user else "assistant", "speech", shown))
    if error := text_of(chunk.get("errorMessage")):
        parts.append(Said("system", "notice", error))
    return parts, passed


def _attachments(chunk: dict[str, Any]) -> Iterable[str]:
    for key, what in _ATTACHMENTS.items():
        if isinstance(value := chunk.get(key), dict):
            name = text_of(value.get("name") or value.get("id"))[:500]
            yield binary_placeholder(f"{what} {name}".rstrip(), value.get("mimeType"), None)


def _metadata(chunk: dict[str, Any]) -> dict[str, Any]:
    reason = chunk.get("finishReason")
    sources = [mapping(mapping(source).get("web")) for source in parts_of(_sources(chunk))]
    return present(
        {
            "usage": present({"total": chunk.get("tokenCount")}),
            "finish_reason": None if reason == "STOP" else reason,
            "edited": chunk.get("isEdited"),
            "branch_parent": chunk.get("branchParent"),
            "sources": [source for source in sources if source],
            "attachments": [chunk[key] for key in _ATTACHMENTS if isinstance(chunk.get(key), dict)],
            "off_path": _is_replaced(chunk),
        }
    )


def _sources(chunk: dict[str, Any]) -> Any:
    return mapping(chunk.get("grounding")).get("groundingChunks")


def _is_replaced(chunk: dict[str, Any]) -> bool:
    """Whether another chunk of the prompt took this one's place. A branch that is a prompt of its own takes none."""
    children = parts_of(chunk.get("branchChildren"))
    return any(isinstance(child, dict) and child.get("id") and "promptId" not in child for child in children)
