"""What the records of Factory Droid become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.readers.droid import DroidReader
from rivet_pipeline.transcripts.records import Message
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    counts,
    damaged,
    messages,
    read,
    results,
    said,
    skipped,
    titles,
    write,
)

START = {"type": "session_start", "id": "s-1", "title": "Fix it", "sessionTitle": "New Session", "cwd": "/app"}


def row(number: int, role: str, *blocks: Any) -> dict[str, Any]:
    time = f"2026-03-01T09:00:{number:02}.000Z"
    return {"type": "message", "id": f"m{number}", "timestamp": time, "message": {"role": role, "content": [*blocks]}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_a_conversation(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s-1.jsonl",
        {**START, "callingSessionId": "s-0"},
        row(1, "user", text("<system-reminder>today is</system-reminder>"), text("go")),
        row(
            2,
            "assistant",
            {"type": "thinking", "thinking": "Hm.", "signature": "zz"},
            {"type": "redacted_thinking", "data": "zz"},
            text("Ok."),
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"p": "a"}},
            {"type": "tool_use", "id": "t2", "name": "Execute", "input": {"c": "ls"}},
        ),
        row(3, "user", {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True}),
        {"type": "todo_state", "todos": {}},
        {"type": "compaction_state", "id": "c", "summaryText": "We did x."},
        {"type": "message", "id": "m4", "message": "broken"},
    )
    path.with_name("s-1.settings.json").write_text('{"model": "m-1"}')
    items = read(path)
    assert said(items) == [
        ("system", "injected", "<system-reminder>today is</system-reminder>"),
        ("user", "speech", "go"),
        ("assistant", "thinking", "Hm."),
        ("assistant", "speech", "Ok."),
        ("tool", "tool", "Read"),
        ("tool", "tool", "Execute"),
        ("system", "summary", "We did x."),
    ]
    assert results(items) == {"tool:t2": "no"}
    assert skipped(items) == {"redacted_thinking block": 1, "todo_state": 1}
    assert damaged(items) == {"message of unexpected shape": 1}
    assert titles(items) == ["Fix it"]
    session = next(item.session for item in items if isinstance(item, Message))
    assert session.session_key == "droid:s-1"
    assert {"model": "m-1", "cwd": "/app", "parent_session_id": "s-0"}.items() <= session.settings.items()


def test_the_settings_are_part_of_what_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "s-1.jsonl", START)
    before = DroidReader().state(path)
    path.with_name("s-1.settings.json").write_text("{")
    assert DroidReader().state(path) != before
    assert messages(read(path)) == []


def test_the_sample(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "transcripts" / "other" / "droid_session_store_large.jsonl"
    items = read(path)
    assert said(items) == [
        ("user", "speech", "Step 1"),
        ("assistant", "speech", "Ok"),
        ("tool", "tool", "Execute"),
        ("assistant", "speech", "Captured multiline output."),
        ("user", "speech", "Step 2"),
        ("assistant", "speech", "Ok"),
    ]
    assert counts(items)["assistant", "speech"] == 3
    assert results(items) == {"tool:tu1": "line1\nline2\nline3\n"}
    assert titles(items) == ["Stage0 Droid Large"]
    check_cuts(path, tmp_path)
