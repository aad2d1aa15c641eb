"""What documents of normalised conversations become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.records import Message, ToolResult
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    is_incomplete,
    messages,
    read,
    results,
    said,
    titles,
)


def document(path: Path, *rows: dict[str, Any]) -> Path:
    value = {"provider_family": "hermes", "session_id": "s-1", "messages": [*rows], "expected_cards": [{"x": 1}]}
    path.write_text(json.dumps(value))
    return path


def row(native: str, role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"id": native, "role": role, "blocks": [*blocks]}


USE = row("m2", "assistant", {"type": "tool_use", "tool_id": "t1", "tool_name": "sh", "tool_input": {"c": "ls"}})
RESULT = row("m1", "tool", {"type": "tool_result", "tool_id": "t1", "text": "ok", "tool_result_exit_code": 0})
ORPHAN = row("m3", "tool", {"type": "tool_result", "tool_id": "t9", "text": "no", "tool_result_is_error": True})


def test_a_result_may_stand_before_its_call(tmp_path: Path) -> None:
    records = messages(read(document(tmp_path / "a.json", RESULT, USE)))
    assert [(record.event_id, record.tool_result) for record in records] == [("tool:t1", "ok")]
    assert records[0].metadata["exit_code"] == 0


def test_a_result_without_a_call_is_kept_as_one(tmp_path: Path) -> None:
    path = document(tmp_path / "a.json", ORPHAN, USE)
    items = read(path)
    assert results(items) == {"tool:t9": "no"}
    assert [record.tool_result for record in messages(items)] == [None]
    # Its call could still come.
    assert is_incomplete(read(path, settled=False))
    assert results(read(path, settled=False)) == {}


def test_speech_and_thoughts(tmp_path: Path) -> None:
    words = [
        row("m1", "user", {"type": "text", "text": "hi"}),
        {"id": "m2", "role": "assistant", "blocks": [], "text": "yo"},
    ]
    thought = row("m3", "assistant", {"type": "thinking", "text": "Hm."})
    items = read(document(tmp_path / "a.json", *words, thought))
    assert said(items) == [("user", "speech", "hi"), ("assistant", "speech", "yo"), ("assistant", "thinking", "Hm.")]
    assert titles(items) == ["hi"]
    session = next(item.session for item in items if isinstance(item, Message))
    assert session.session_key == "polylogue:s-1"
    assert session.settings["provider"] == "hermes"


@pytest.mark.parametrize(
    ("case", "calls", "found"),
    [
        (
            "claude-interleaved-subagents",
            [("tool:t1", None), ("tool:t2", None)],
            {"tool:t1": "parser map complete", "tool:t2": "fixture design complete"},
        ),
        ("hermes-shell-non-utf8", [("tool:h1", None)], {"tool:h1": "ok\ufffddone\n"}),
        ("orphan-result", [], {"tool:missing-call": "orphan failure"}),
        ("result-before-use", [("tool:t1", "ok")], {}),
    ],
)
def test_the_samples(
    shared_data: Path, tmp_path: Path, case: str, calls: list[tuple[str, str | None]], found: dict[str, str]
) -> None:
    path = shared_data / "transcripts" / "other" / f"polylogue_case_{case}.json"
    items = read(path)
    assert [(record.event_id, record.tool_result) for record in messages(items)] == calls
    assert results(items) == found
    replaced = [item.metadata.get("replaced_bytes") for item in items if isinstance(item, ToolResult)]
    assert (1 in replaced) == (case == "hermes-shell-non-utf8")
    check_cuts(path, tmp_path)
