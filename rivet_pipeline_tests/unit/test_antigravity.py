"""What each kind of Antigravity step becomes, and that a step told in two files stands once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.antigravity import AntigravityReader
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import (
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionUpdate,
    Skipped,
    ToolResult,
)


def step(index: int, kind: str, content: str | None = None, **more: Any) -> dict[str, Any]:
    value = {
        "step_index": index,
        "source": "MODEL",
        "type": kind,
        "status": "DONE",
        "created_at": f"2026-01-01T10:00:{index:02}Z",
        "content": content,
        **more,
    }
    return {key: part for key, part in value.items() if part is not None}


def prompt(index: int, words: str, **more: Any) -> dict[str, Any]:
    return step(index, "USER_INPUT", words, **{"source": "USER_EXPLICIT", **more})


def calls(index: int, *names: str, **more: Any) -> dict[str, Any]:
    told = [{"name": name, "args": {"Path": '"/a"', "Count": "3", "Note": "as it is"}} for name in names]
    return step(index, "PLANNER_RESPONSE", tool_calls=told, **more)


def write(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, *, settled: bool = True, abandoned: bool = True) -> list[ReadItem]:
    return list(AntigravityReader().read(path, Reading("rivet-antigravity", settled=settled, abandoned=abandoned)))


def records(items: Iterable[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    return [(row.role, row.metadata.get("kind", "speech"), row.content) for row in records(items)]


def results(items: Iterable[ReadItem]) -> list[tuple[str, str]]:
    return [(item.event_id, item.tool_result) for item in items if isinstance(item, ToolResult)]


def test_a_prompt_is_told_from_what_stands_around_it(tmp_path: Path) -> None:
    change = "The user changed setting `Model Selection` from None to Gemini 3.5 Flash (Low). No need to comment."
    settings = f"<USER_SETTINGS_CHANGE>\n{change}\n</USER_SETTINGS_CHANGE>"
    items = read(
        write(
            tmp_path / "a.jsonl",
            prompt(0, f"<USER_REQUEST>\nfix <b>it</b>\n</USER_REQUEST>\n{settings}"),
            prompt(1, f"bare words\n{settings}"),
            prompt(2, "<USER_REQUEST>go on</USER_REQUEST>", source="SYSTEM"),
        )
    )
    assert said(items) == [
        ("user", "speech", "fix <b>it</b>"),
        ("system", "injected", settings),
        ("user", "speech", "bare words"),
        ("system", "injected", settings),
        ("system", "injected", "go on"),
    ]
    updates = [item.session for item in items if isinstance(item, SessionUpdate)]
    assert [(update.title, update.settings["model"]) for update in updates] == [
        ("fix <b>it</b>", "Gemini 3.5 Flash (Low)")
    ]


def test_a_tools_step_is_the_result_of_the_call_before_it(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            calls(1, "view_file", "browser_open", "run_command", thinking="hm"),
            step(2, "RUN_COMMAND", "ran", status="ERROR"),
            step(3, "VIEW_FILE", "seen"),
            step(4, "GENERIC", "opened"),
            step(5, "LIST_DIRECTORY", "a.txt"),
            calls(6, "run_command"),
            step(7, "PLANNER_RESPONSE", "done"),
        )
    )
    assert [(row.event_id, row.tool_name, row.tool_result) for row in records(items)] == [
        ("step:1:thinking", None, None),
        ("step:1:call:0", "view_file", None),
        ("step:1:call:1", "browser_open", None),
        ("step:1:call:2", "run_command", None),
        ("step:5", "list_directory", "a.txt"),
        ("step:6:call:0", "run_command", None),
        ("step:7", None, None),
    ]
    assert records(items)[1].tool_args == {"Path": "/a", "Count": 3, "Note": "as it is"}
    assert results(items) == [("step:1:call:2", "ran"), ("step:1:call:0", "seen"), ("step:1:call:1", "opened")]
    assert [item.metadata.get("is_error") for item in items if isinstance(item, ToolResult)] == [True, None, None]


def test_a_step_that_is_not_at_its_end_waits_for_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", prompt(0, "go"), step(1, "PLANNER_RESPONSE", "Loo", status="GENERATING"))
    items = read(path, settled=False)
    assert said(items) == [("user", "speech", "go")]
    assert isinstance(items[-1], Incomplete)
    assert read(path, abandoned=False) == items
    assert said(read(path))[1:] == [("assistant", "speech", "Loo")]
    with path.open("a") as stream:
        stream.write(json.dumps(step(1, "PLANNER_RESPONSE", "Look")) + "\n")
    assert said(read(path, settled=False))[1:] == [("assistant", "speech", "Look")]


def test_a_step_told_in_two_files_is_taken_from_the_whole_one(tmp_path: Path) -> None:
    logs = tmp_path / "brain" / "the-session" / ".system_generated" / "logs"
    short = write(logs / "transcript.jsonl", prompt(0, "go"), step(1, "VIEW_FILE", "lo…", truncated_fields=["content"]))
    before = AntigravityReader().state(short)
    assert [row.tool_result for row in records(read(short))] == [None, "lo…"]
    full = write(logs / "transcript_full.jsonl", step(1, "VIEW_FILE", "long"))
    assert AntigravityReader().state(short) != before
    given = [*read(short), *read(full)]
    assert [(row.event_id, row.content, row.tool_result) for row in records(given)] == [
        ("step:0", "go", None),
        ("step:1", "", "long"),
    ]
    assert {item.session.session_key for item in given if isinstance(item, Message)} == {"antigravity:the-session"}
    assert [item.reason for item in given if isinstance(item, Skipped)] == ["step that stands in transcript_full.jsonl"]


@pytest.mark.parametrize(
    "row",
    [
        {"step_index": 1, "type": "x", "status": "DONE"},
        {"step_index": "1", "source": "MODEL", "type": "x", "status": "DONE"},
        {"source": "MODEL", "type": "x", "status": "DONE"},
    ],
)
def test_other_files_are_nobodys(tmp_path: Path, row: dict[str, Any]) -> None:
    assert detect(write(tmp_path / "a.jsonl", row)) is None


def test_a_real_log(shared_data: Path) -> None:
    path = shared_data / "transcripts" / "other" / "antigravity_cli_small.jsonl"
    assert isinstance(detect(path), AntigravityReader)
    items = read(path)
    rows = records(items)
    assert [
        (row.event_id, row.role, row.metadata.get("kind", "speech"), row.tool_name)
        for row in rows
        if row.event_id.count(":") < 2 or "step:0" not in row.event_id
    ] == [
        ("step:0", "user", "speech", None),
        ("step:2:thinking", "assistant", "thinking", None),
        ("step:2:call:0", "tool", "tool", "list_dir"),
        ("step:4", "tool", "tool", "view_file"),
        ("step:5", "tool", "tool", "run_command"),
        ("step:6:thinking", "assistant", "thinking", None),
        ("step:6", "assistant", "speech", None),
        ("step:7", "system", "summary", None),
        ("step:8:thinking", "assistant", "thinking", None),
        ("step:8:call:0", "tool", "tool", "write_file"),
        ("step:10", "tool", "tool", "search_web"),
        ("step:11", "system", "injected", None),
    ]
    # The settings change of the first step, and the seven steps at the end that all call themselves the first.
    assert len(rows) == 12 + 1 + 7
    assert len({row.event_id for row in rows}) == len(rows)
    assert rows[0].content == "List the files."
    assert [event_id for event_id, _ in results(items)] == ["step:2:call:0", "step:8:call:0"]
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["CONVERSATION_HISTORY without text"]
    assert [row.event_id for row in records(read(path))] == [row.event_id for row in rows]
