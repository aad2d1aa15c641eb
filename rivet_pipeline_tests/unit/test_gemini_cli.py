"""What each kind of Gemini CLI message becomes, in the document and in the log, and that both give the same rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.gemini_cli import GeminiCliReader
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

HEADER = {"sessionId": "s1", "projectHash": "abc", "startTime": "2026-01-01T10:00:00Z", "kind": "main"}
KEY = "gemini-cli:s1"


def message(native: str, kind: str = "user", content: Any = "hello", second: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": native, "timestamp": f"2026-01-01T10:00:{second:02}.000Z", "type": kind, "content": content, **more}


def call(native: str, result: Any = None, status: str = "success", **more: Any) -> dict[str, Any]:
    return {"id": native, "name": "read_file", "args": {"path": "a"}, "result": result, "status": status, **more}


def answered(native: str, response: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"functionResponse": {"id": native, "name": "read_file", "response": response}}]


def document(path: Path, messages: Iterable[Any], *, sort: bool = False, **more: Any) -> Path:
    path.write_text(json.dumps({**HEADER, "messages": list(messages), **more}, indent=2, sort_keys=sort))
    return path


def log(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in (HEADER, *records)))
    return path


def read(path: Path, *, settled: bool = True, abandoned: bool = True) -> list[ReadItem]:
    return list(GeminiCliReader().read(path, Reading("rivet-gemini", settled=settled, abandoned=abandoned)))


def records(items: Iterable[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: Iterable[ReadItem]) -> list[tuple[str, str, str]]:
    return [(row.role, row.metadata.get("kind", "speech"), row.content) for row in records(items)]


def counts(items: Iterable[ReadItem]) -> dict[tuple[str, str], int]:
    return Counter((row.role, row.metadata.get("kind", "speech")) for row in records(items))


def test_a_model_message_is_its_thoughts_its_words_and_its_calls(tmp_path: Path) -> None:
    thoughts = [
        {"subject": "Plan", "description": "Look first.", "timestamp": "2026-01-01T10:00:01Z"},
        {"summary": "Then answer."},
    ]
    calls = [
        call("c1", answered("c1", {"output": "text"})),
        call("c2", answered("c2", {"error": "gone"}), "error", timestamp="2026-01-01T10:09:00Z"),
        call("c3", "plain"),
        call("c4", None, "awaiting_approval"),
        call("c5", None, "cancelled", args='{"path": "b"}'),
    ]
    gemini = message("m2", "gemini", "Done.", 2, thoughts=thoughts, toolCalls=calls, model="g", tokens={"total": 7})
    items = read(document(tmp_path / "session-1.json", [message("m1"), gemini]))
    rows = records(items)
    assert [row.event_id for row in rows] == ["m1", "m2:thinking", "m2", *(f"tool:c{n}" for n in range(1, 6))]
    assert rows[1].content == "Plan\nLook first.\n\nThen answer."
    assert rows[1].created_at == datetime(2026, 1, 1, 10, 0, 1, tzinfo=UTC)
    assert [row.tool_result for row in rows[3:]] == ["text", "gone", "plain", None, ""]
    assert [row.metadata.get("is_error") for row in rows[3:]] == [None, True, None, None, True]
    assert rows[4].created_at == rows[2].created_at
    assert rows[4].metadata["finished_at"] == "2026-01-01T10:09:00Z"
    assert rows[7].tool_args == {"path": "b"}
    assert [row.metadata.get("usage") for row in rows] == [None, {"total": 7}, *[None] * 6]
    assert all("session_jsonl_path" not in row.metadata for row in rows)


def test_speech_is_told_from_what_the_harness_added(tmp_path: Path) -> None:
    referenced = [
        {"text": "look at @a.py"},
        {"text": "\n--- Content from referenced files ---"},
        {"text": "\nContent from @a.py:\n"},
        {"text": "x = 1"},
        {"text": "\n--- End of content ---"},
        {"text": "and hurry"},
    ]
    items = read(
        document(
            tmp_path / "session-1.json",
            [
                message("m1", content="<session_context>\nToday is Friday."),
                message("m2", content=referenced),
                message("m3", content="/compress"),
                message("m4", content="<state_snapshot>\nwe did things"),
                message("m5", content=[{"text": "see"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]),
                message("m6", "info", "Signed in"),
                message("m7", content=[{"text": "<hook_context>rules</hook_context>"}]),
                message("m8", content="a\n--- Content from referenced files ---\nb\n--- End of content ---"),
            ],
        )
    )
    assert said(items) == [
        ("system", "injected", "<session_context>\nToday is Friday."),
        ("user", "speech", "look at @a.py"),
        (
            "system",
            "injected",
            "--- Content from referenced files ---\n\nContent from @a.py:\n\nx = 1\n\n--- End of content ---",
        ),
        ("user", "speech", "and hurry"),
        ("user", "notice", "/compress"),
        ("system", "summary", "<state_snapshot>\nwe did things"),
        ("user", "speech", "see\n[image image/png, 3 bytes]"),
        ("system", "notice", "Signed in"),
        ("system", "injected", "<hook_context>rules</hook_context>"),
        ("user", "speech", "a\n"),
        ("system", "injected", "--- Content from referenced files ---\nb\n--- End of content ---"),
    ]
    ids = [row.event_id for row in records(items)]
    assert len(set(ids)) == len(ids)
    assert [item.session.title for item in items if isinstance(item, SessionUpdate)] == ["look at @a.py"]


def test_a_session_named_behind_its_messages_is_found(tmp_path: Path) -> None:
    path = document(tmp_path / "session-1.json", [message("m1")], sort=True, summary="Greeting")
    items = read(path)
    assert [item.session.session_key for item in items if isinstance(item, Message)] == [KEY]
    assert {item.session.title for item in items if isinstance(item, Message | SessionUpdate)} == {"Greeting"}
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b'"projectHash"')])
    assert [type(item) for item in read(path, settled=False)] == [Incomplete]
    assert len(records(read(path))) == 1


def test_the_last_message_of_a_document_waits_until_it_can_not_change(tmp_path: Path) -> None:
    path = document(
        tmp_path / "session-1.json",
        [message("m1"), message("m2", "gemini", "Look", toolCalls=[call("c", None, "executing")])],
    )
    items = read(path, settled=False)
    assert [row.event_id for row in records(items)] == ["m1"]
    assert isinstance(items[-1], Incomplete)
    assert [(row.event_id, row.tool_result) for row in records(read(path))] == [
        ("m1", None),
        ("m2", None),
        ("tool:c", None),
    ]


STARTED = message("m2", "gemini", "Look", toolCalls=[call("c", None, "executing")])


@pytest.mark.parametrize("as_log", [True, False])
def test_a_last_message_with_an_open_call_waits_until_it_is_given_up(tmp_path: Path, as_log: bool) -> None:
    def written(*messages: Any) -> Path:
        if as_log:
            return log(tmp_path / "session-1.jsonl", *messages)
        return document(tmp_path / "session-1.json", messages)

    early = read(written(message("m1"), STARTED), abandoned=False)
    assert [row.event_id for row in records(early)] == ["m1"]
    assert isinstance(early[-1], Incomplete)
    assert [row.event_id for row in records(read(written(message("m1"), STARTED)))] == ["m1", "m2", "tool:c"]
    done = message("m2", "gemini", "Look at it", toolCalls=[call("c", answered("c", {"output": "42"}))])
    late = read(written(message("m1"), done), abandoned=False)
    assert [row.content for row in records(late)] == ["hello", "Look at it", ""]
    assert not [item for item in late if isinstance(item, Incomplete)]
    gone_on = read(written(message("m1"), STARTED, message("m3", second=3)), abandoned=False)
    assert [row.event_id for row in records(gone_on)] == ["m1", "m2", "tool:c", "m3"]


def test_in_a_log_the_version_that_counts_says_whether_a_call_is_open(tmp_path: Path) -> None:
    done = {**STARTED, "toolCalls": [call("c", answered("c", {"output": "42"}))]}
    snapshot = {"$set": {"messages": [message("m1"), STARTED]}}
    path = log(tmp_path / "session-1.jsonl", message("m1"), STARTED, snapshot)
    assert [row.event_id for row in records(read(path, abandoned=False))] == ["m1"]
    path = log(tmp_path / "session-1.jsonl", message("m1"), done, snapshot)
    assert [row.tool_result for row in records(read(path, abandoned=False))] == [None, None, "42"]


def test_a_damaged_message_touches_no_other(tmp_path: Path) -> None:
    bad = message("m2", "gemini", "x", toolCalls=["oops"])
    items = read(
        document(tmp_path / "session-1.json", [message("m1"), bad, "text", message("m3", "brand-new"), message("m4")])
    )
    assert [row.event_id for row in records(items)] == ["m1", "m4"]
    assert len([item for item in items if isinstance(item, Damaged)]) == 2
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["message/brand-new"]


def test_a_log_gives_the_last_version_of_each_message(tmp_path: Path) -> None:
    path = log(
        tmp_path / "session-1.jsonl",
        message("m1"),
        message("m2", "gemini", "Loo", 1),
        message("m2", "gemini", "Look", 1, toolCalls=[call("c", None, "executing")]),
        {"$set": {"lastUpdated": "2026-01-01T10:00:02Z"}},
        message("m2", "gemini", "Look", 1, toolCalls=[call("c", answered("c", {"output": "42"}))]),
        message("m3", "user", "thanks", 3),
    )
    items = read(path)
    assert said(items) == [
        ("user", "speech", "hello"),
        ("assistant", "speech", "Look"),
        ("tool", "tool", ""),
        ("user", "speech", "thanks"),
    ]
    rows = records(items)
    assert rows[2].tool_result == "42"
    assert [row.metadata["session_jsonl_line"] for row in rows] == [1, 5, 5, 6]
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["replaced by a later version"] * 2


def test_the_last_message_of_a_log_waits_until_it_can_not_change(tmp_path: Path) -> None:
    path = log(tmp_path / "session-1.jsonl", message("m1"), message("m2", "gemini", "Loo"))
    items = read(path, settled=False)
    assert [row.event_id for row in records(items)] == ["m1"]
    assert isinstance(items[-1], Incomplete)
    with path.open("a") as stream:
        stream.write(json.dumps(message("m2", "gemini", "Look")) + "\n" + json.dumps(message("m3")) + "\n")
    assert [row.content for row in records(read(path, settled=False))] == ["hello", "Look"]


def test_both_forms_of_a_session_give_the_same_rows(tmp_path: Path) -> None:
    thoughts = [{"subject": "Plan", "description": "Look.", "timestamp": "2026-01-01T10:00:01Z"}]
    messages = [
        message("m1"),
        message("m2", "gemini", "Look", 2, thoughts=thoughts, toolCalls=[call("c", answered("c", {"output": "42"}))]),
        message("m3", "user", [{"text": "thanks"}], 3),
    ]
    forms = [
        document(tmp_path / "session-1.json", messages),
        log(tmp_path / "session-1.jsonl", *messages),
        log(tmp_path / "session-2.jsonl", {"$set": {"messages": messages}}),
        tmp_path / "session-3.jsonl",
    ]
    forms[3].write_text(json.dumps({**HEADER, "messages": messages}))
    given = [
        [(row.event_id, row.role, row.content, row.tool_result, row.created_at) for row in records(read(path))]
        for path in forms
    ]
    assert len(given[0]) == 5
    assert given[1:] == [given[0]] * 3
    assert {item.session.session_key for path in forms for item in read(path) if isinstance(item, Message)} == {KEY}


def test_a_snapshot_adds_what_is_new_and_takes_nothing(tmp_path: Path) -> None:
    long = message("m2", "gemini", "", 1, toolCalls=[call("c", answered("c", {"output": "a long result"}))])
    masked = message("m2", "gemini", "", 1, toolCalls=[call("c", answered("c", {"output": "[masked]"}))])
    summary = message("m9", "user", "<state_snapshot>\nshort", 5)
    answer = message("f1", "user", answered("c", {"output": "[masked]"}), 6)
    path = log(tmp_path / "session-1.jsonl", message("m1"), long, {"$set": {"messages": [summary, masked, answer]}})
    items = read(path)
    assert [(row.event_id, row.tool_result) for row in records(items)] == [
        ("m1", None),
        ("tool:c", "a long result"),
        ("m9", None),
    ]
    results = [item for item in items if isinstance(item, ToolResult)]
    assert [(item.event_id, item.tool_result) for item in results] == [("tool:c", "[masked]")]


def test_turns_that_were_taken_back_are_kept_and_marked(tmp_path: Path) -> None:
    path = log(
        tmp_path / "session-1.jsonl",
        message("m1"),
        message("m2", "gemini", "first answer"),
        message("m3", "user", "no, other"),
        {"$rewindTo": "m2"},
        message("m4", "gemini", "second answer"),
        {"$set": {"summary": "Two answers", "directories": ["/x"]}},
    )
    items = read(path)
    assert [(row.content, row.metadata.get("off_path")) for row in records(items)] == [
        ("hello", None),
        ("first answer", True),
        ("no, other", True),
        ("[conversation rewound to before m2]", None),
        ("second answer", None),
    ]
    first = next(item for item in items if isinstance(item, Message))
    assert first.session.title == "Two answers"
    assert first.session.settings["directories"] == ["/x"]


def test_a_sub_agents_session_names_its_parent(tmp_path: Path) -> None:
    (tmp_path / "parent-id").mkdir()
    path = tmp_path / "parent-id" / "sub.jsonl"
    path.write_text(json.dumps({**HEADER, "kind": "subagent"}) + "\n" + json.dumps(message("m1")) + "\n")
    [item] = [item for item in read(path) if isinstance(item, Message)]
    assert item.session.settings["parent_session_id"] == "parent-id"


def test_call_ids_that_start_anew_stay_apart(tmp_path: Path) -> None:
    path = document(
        tmp_path / "session-1.json",
        [
            message("m1", "gemini", "", toolCalls=[call("0", "one"), call("", "two"), call("", "three")]),
            message("m2", "gemini", "", toolCalls=[call("0", "four")]),
        ],
    )
    assert [(row.event_id, row.tool_result) for row in records(read(path))] == [
        ("tool:0", "one"),
        ("m1:call", "two"),
        ("m1:call:2", "three"),
        ("tool:0:m2", "four"),
    ]


@pytest.mark.parametrize("settled", [True, False])
def test_a_log_that_grows_while_it_is_read_is_read_as_it_was(tmp_path: Path, settled: bool) -> None:
    path = log(tmp_path / "session-1.jsonl", message("m1"), message("m2"))
    reading = GeminiCliReader().read(path, Reading("rivet-gemini", settled=settled))
    first = next(reading)
    with path.open("a") as stream:
        stream.write(json.dumps(message("m3")) + "\n")
    rest = list(reading)
    assert [row.event_id for row in records([first, *rest])] == (["m1", "m2"] if settled else ["m1"])
    assert isinstance(rest[-1], Incomplete)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package.json", '{"name": "x", "version": "1.0.0", "dependencies": {"a": "1"}}'),
        ("messages.json", '{"messages": [{"id": "a", "content": "hi"}], "startTime": "2026"}'),
        ("notes.json", '[{"id": "a", "type": "user", "content": "hi"}]'),
        ("tsconfig.json", "{}"),
        ("broken.json", '{"messages": ['),
        ("events.jsonl", '{"id": "a", "type": "user", "content": "hi"}\n{"$set": {"x": 1}}\n'),
    ],
)
def test_other_files_are_nobodys(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert detect(tmp_path / name) is None


def test_a_session_is_known_though_its_first_message_is_long(tmp_path: Path) -> None:
    picture = [{"inlineData": {"mimeType": "image/png", "data": "A" * 100_000}}]
    for sort in (False, True):
        path = document(tmp_path / "session-1.json", [message("m1", content=picture)], sort=sort, lastUpdated="x")
        reader = detect(path)
        assert reader is not None
        assert reader.harness == "gemini-cli"
        assert said(read(path)) == [("user", "speech", "[image image/png, 75,000 bytes]")]


SAMPLES = {
    "agentsview_system_messages.json": {("system", "notice"): 3},
    "agentsview_thinking_only.json": {("user", "speech"): 1, ("assistant", "thinking"): 1, ("assistant", "speech"): 1},
    "agentsview_tool_calls_with_results.json": {
        ("user", "speech"): 1,
        ("assistant", "thinking"): 1,
        ("assistant", "speech"): 1,
        ("tool", "tool"): 2,
    },
    "jsonl_v0.40.jsonl": {("user", "speech"): 1, ("tool", "tool"): 1, ("assistant", "speech"): 1},
    "pomodoro_real.json": {
        ("user", "speech"): 5,
        ("assistant", "thinking"): 14,
        ("assistant", "speech"): 14,
        ("tool", "tool"): 11,
    },
    "session-2025-10-27_real.json": {
        ("user", "speech"): 3,
        ("assistant", "thinking"): 12,
        ("assistant", "speech"): 14,
        ("tool", "tool"): 13,
    },
    "session-2025-10-29_small_real.json": {
        ("user", "speech"): 1,
        ("assistant", "thinking"): 4,
        ("assistant", "speech"): 1,
        ("tool", "tool"): 3,
    },
    "session-sample.jsonl": {
        ("user", "speech"): 2,
        ("assistant", "thinking"): 2,
        ("assistant", "speech"): 2,
        ("tool", "tool"): 1,
    },
    "tool-result-cancelled.json": {("assistant", "thinking"): 1, ("assistant", "speech"): 1, ("tool", "tool"): 1},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_sessions(shared_data: Path, tmp_path: Path, name: str) -> None:
    path = shared_data / "transcripts" / "gemini-cli" / name
    reader = detect(path)
    assert isinstance(reader, GeminiCliReader)
    items = read(path)
    assert counts(items) == SAMPLES[name]
    rows = records(items)
    assert all(row.tool_result for row in rows if row.role == "tool")
    ids = [row.event_id for row in rows]
    assert len(set(ids)) == len(ids)
    assert [row.event_id for row in records(read(path))] == ids
    words = {row.event_id: (row.role, row.content, row.tool_result) for row in rows}
    whole = path.read_bytes()
    cut = tmp_path / name
    for part in range(1, 20):
        cut.write_bytes(whole[: len(whole) * part // 20])
        for row in records(read(cut, settled=False)):
            assert words[row.event_id] == (row.role, row.content, row.tool_result)


def test_a_real_failed_call_and_a_cancelled_one(shared_data: Path) -> None:
    path = shared_data / "transcripts" / "gemini-cli" / "session-2025-10-27_real.json"
    failed = [row for row in records(read(path)) if row.metadata.get("is_error")]
    assert [(row.tool_name, row.metadata["status"], row.tool_result) for row in failed] == [
        ("run_shell_command", "cancelled", "[Operation Cancelled] Reason: User cancelled the operation."),
        ("list_directory", "error", "Path must be absolute: ."),
    ]
