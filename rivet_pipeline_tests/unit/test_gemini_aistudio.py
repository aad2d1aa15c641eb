"""What each chunk of a Google AI Studio prompt becomes, and how the document is read piece by piece."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.documents import Element, Member, read_document
from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.gemini_aistudio import GeminiAiStudioReader
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionUpdate,
    Skipped,
    ToolResult,
)


def prompt(path: Path, chunks: Iterable[Any], **more: Any) -> Path:
    path.write_text(json.dumps({**more, "chunkedPrompt": {"chunks": list(chunks), "pendingInputs": []}}))
    return path


def read(path: Path, *, settled: bool = True) -> list[ReadItem]:
    return list(GeminiAiStudioReader().read(path, Reading("gemini-aistudio", settled=settled)))


def records(items: Iterable[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    return [(row.role, row.metadata.get("kind", "speech"), row.content) for row in records(items)]


def sessions(items: Iterable[ReadItem]) -> set[str]:
    return {item.session.session_key for item in items if isinstance(item, Message)}


def test_chunks_are_speech_thinking_code_and_files(tmp_path: Path) -> None:
    path = prompt(
        tmp_path / "Chat.json",
        [
            {"text": "Look at this", "role": "user", "driveImage": {"id": "d1"}},
            {"text": "Hmm.", "role": "model", "isThought": True, "parts": [{"text": "Hmm.", "thought": True}]},
            {"role": "model", "executableCode": {"language": "PYTHON", "code": "print(6*7)"}},
            {"role": "model", "codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42"}},
            {"role": "model", "parts": [{"text": "It is "}, {"text": "42"}, {"thoughtSignature": "AAAA"}]},
            {"role": "model", "executableCode": {"code": "1/0"}, "codeExecutionResult": {"outcome": "OUTCOME_FAILED"}},
            {"role": "user", "inlineFile": {"mimeType": "image/png", "data": "AAAA"}},
        ],
        runSettings={"model": "models/gemini"},
        systemInstruction={"parts": [{"text": "Be brief."}]},
    )
    items = read(path)
    assert said(items) == [
        ("system", "injected", "Be brief."),
        ("user", "speech", "Look at this\n[image d1]"),
        ("assistant", "thinking", "Hmm."),
        ("tool", "tool", ""),
        ("assistant", "speech", "It is 42"),
        ("tool", "tool", ""),
        ("user", "speech", "[image image/png, 3 bytes]"),
    ]
    calls = [row for row in records(items) if row.role == "tool"]
    results = [item for item in items if isinstance(item, ToolResult)]
    assert calls[0].tool_args == {"language": "PYTHON", "code": "print(6*7)"}
    assert [result.event_id for result in results] == [row.event_id for row in calls]
    assert [(result.tool_result, result.metadata.get("is_error")) for result in results] == [("42", None), ("", True)]
    first = next(item for item in items if isinstance(item, Message))
    assert first.session.settings["model"] == "models/gemini"
    assert [item.session.title for item in items if isinstance(item, SessionUpdate)] == ["Look at this [image d1]"]


def test_a_prompt_without_an_id_is_known_by_name_and_beginning(tmp_path: Path) -> None:
    chunks = [{"role": "user", "text": "hi"}, {"role": "model", "text": "hi"}, {"role": "model", "text": "hi"}]
    one = read(prompt(tmp_path / "Untitled prompt.json", chunks))
    (tmp_path / "other").mkdir()
    grown = read(prompt(tmp_path / "other" / "Untitled prompt.json", [*chunks, {"role": "user", "text": "more"}]))
    other = read(prompt(tmp_path / "Untitled prompt.json", [{"role": "user", "text": "hello"}]))
    assert sessions(one) == sessions(grown)
    assert sessions(one) != sessions(other)
    ids = [row.event_id for row in records(one)]
    assert len(set(ids)) == 3
    assert [row.event_id for row in records(grown)][:3] == ids


def test_an_id_behind_the_chunks_is_found_or_waited_for(tmp_path: Path) -> None:
    path = prompt(tmp_path / "Chat.json", [{"role": "user", "text": "hi"}, {"role": "model", "text": "yes"}])
    text = json.loads(path.read_text())
    path.write_text(json.dumps({**text, "id": "p1", "title": "Chat"}))
    assert sessions(read(path)) == {"gemini-aistudio:p1"}
    path.write_text(path.read_text()[:70])
    assert [type(item) for item in read(path, settled=False)] == [Incomplete]


def test_the_last_chunk_waits_while_the_prompt_is_written(tmp_path: Path) -> None:
    path = prompt(tmp_path / "Chat.json", [{"role": "user", "text": "hi"}, {"role": "model", "text": "ye"}], id="p1")
    items = read(path, settled=False)
    assert [row.content for row in records(items)] == ["hi"]
    assert isinstance(items[-1], Incomplete)


def test_what_is_wrong_or_empty_touches_nothing_else(tmp_path: Path) -> None:
    path = prompt(
        tmp_path / "Chat.json",
        ["text", {"role": "user", "text": ""}, {"role": "model", "text": "a", "branchParent": {"promptId": "p0"}}],
        id="p1",
    )
    items = read(path)
    assert [type(item) for item in items] == [Damaged, Skipped, Message]
    [row] = records(items)
    assert row.metadata == {"branch_parent": {"promptId": "p0"}}


def test_objects_in_a_document_are_opened_when_asked() -> None:
    data = b'{"a": {"x": 1, "rows": [1, 2]}, "rows": [3], "b": {"rows": [4]}}'
    items = list(read_document(io.BytesIO(data), arrays={"a.rows"}, within={"a"}))
    assert [(item.key, item.value) for item in items if isinstance(item, Member | Element)] == [
        ("a.x", 1),
        ("a.rows", 1),
        ("a.rows", 2),
        ("rows", [3]),
        ("b", {"rows": [4]}),
    ]
    cut = list(read_document(io.BytesIO(data[:26]), arrays={"a.rows"}, within={"a"}))
    assert [type(item) for item in cut] == [Member, Element, Incomplete]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package.json", '{"name": "x", "scripts": {"chunks": []}}'),
        ("other.json", '{"chunkedPrompt": {"parts": []}}'),
        ("list.json", '[{"chunkedPrompt": {"chunks": []}}]'),
    ],
)
def test_other_files_are_nobodys(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert detect(tmp_path / name) is None


def test_a_long_prompt_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = prompt(tmp_path / "Chat.json", [{"role": "user", "text": "x" * 100_000}], runSettings={"model": "m"})
    assert isinstance(detect(path), GeminiAiStudioReader)


def test_real_branches(shared_data: Path) -> None:
    path = shared_data / "transcripts" / "gemini-aistudio" / "branching_session.json"
    assert isinstance(detect(path), GeminiAiStudioReader)
    items = read(path)
    assert said(items) == [
        ("user", "speech", "Initial question."),
        ("assistant", "speech", "First (edited) answer."),
        ("assistant", "speech", "Second answer with grounding."),
        ("assistant", "speech", "Partial response cut off."),
        ("system", "notice", "Stream interrupted"),
    ]
    rows = records(items)
    assert [row.metadata.get("off_path") for row in rows] == [None, True, None, None, None]
    assert rows[2].metadata["sources"] == [{"uri": "https://example.com/source", "title": "Example"}]
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["empty chunk"]
    assert {item.session.title for item in items if isinstance(item, Message)} == {"Branching Gemini session"}


def test_real_attachments(shared_data: Path) -> None:
    path = shared_data / "transcripts" / "gemini-aistudio" / "multimodal_session.json"
    items = read(path)
    assert said(items) == [
        ("user", "speech", "Describe this document.\n[document spec.pdf application/pdf]"),
        ("user", "speech", "[image image/png, 8 bytes]"),
        ("user", "speech", "[YouTube video abc123]"),
        ("assistant", "speech", "Document, image, and video summarized."),
    ]
    assert [row.event_id for row in records(items)] == ["chunk-user-1", "chunk-user-2", "chunk-user-3", "chunk-model-1"]
