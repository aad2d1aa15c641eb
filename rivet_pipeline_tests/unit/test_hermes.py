"""What Hermes' messages become, and that a session in database, lines and snapshot has the same ids in all three."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.hermes import HermesLinesReader, HermesReader
from rivet_pipeline.transcripts.readers.shared import HOST
from rivet_pipeline.transcripts.reading import Reader
from rivet_pipeline_tests.unit.database_files import (
    counts,
    damaged,
    folder_bytes,
    head_of,
    held_open,
    ids,
    is_incomplete,
    make_database,
    messages,
    read_all,
    results,
    said,
    session_keys,
    settings,
    skipped,
    title,
)

LINES, WHOLE = HermesLinesReader(), HermesReader()
SESSION = "20260711_090000_abc123"
START = 1_783_760_400.0

Rows = list[dict[str, Any]]

TABLES = [
    """CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT, model_config TEXT, system_prompt TEXT,
                              parent_session_id TEXT, started_at REAL, title TEXT)""",
    """CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content TEXT,
                              tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL, finish_reason TEXT,
                              reasoning TEXT, reasoning_details TEXT, codex_reasoning_items TEXT,
                              platform_message_id TEXT, observed INTEGER DEFAULT 0, active INTEGER DEFAULT 1,
                              compacted INTEGER DEFAULT 0)""",
]
COLUMNS = (
    "role", "content", "tool_call_id", "tool_calls", "tool_name", "finish_reason", "reasoning", "reasoning_details",
    "codex_reasoning_items", "platform_message_id", "observed", "active", "compacted",
)  # fmt: skip
META = {"role": "session_meta", "tools": [{"name": "shell"}], "model": "m-1", "platform": "cli"}


def call(native: str | None, name: str = "shell", arguments: str = '{"command": "pwd"}') -> dict[str, Any]:
    return {"id": native, "type": "function", "function": {"name": name, "arguments": arguments}}


TALK: Rows = [
    {"role": "user", "content": "Go on"},
    {"role": "assistant", "content": "I look.", "reasoning": "Look first.", "tool_calls": [call("c1"), call("c2")]},
    {"role": "tool", "content": "/app", "tool_call_id": "c1", "tool_name": "shell"},
    {"role": "tool", "content": "no", "tool_call_id": "c2", "tool_name": "shell", "finish_reason": "error"},
    {"role": "assistant", "content": "Done.", "finish_reason": "stop"},
    {"role": "user", "content": "Go on"},
]
SAID = [
    ("user", "speech", "Go on"),
    ("assistant", "thinking", "Look first."),
    ("assistant", "speech", "I look."),
    ("tool", "tool", ""),
    ("tool", "tool", ""),
    ("assistant", "speech", "Done."),
    ("user", "speech", "Go on"),
]


def inserts(talk: Rows, session: str = SESSION) -> list[Any]:
    statements: list[Any] = []
    for number, row in enumerate(talk):
        values: list[Any] = [session, START + number]
        values += [
            json.dumps(row[name]) if isinstance(row.get(name), list | dict) else row.get(name) for name in COLUMNS[:10]
        ]
        values += [row.get("observed", 0), row.get("active", 1), row.get("compacted", 0)]
        sql = f"INSERT INTO messages (session_id, timestamp, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * 15)})"
        statements.append((sql, values))
    return statements


def database(path: Path, talk: Rows, **session: Any) -> Path:
    known = {"source": "cli", "model": "m-1", "started_at": START, **session}
    names = ", ".join(["id", *known])
    row = (f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * (len(known) + 1))})", [SESSION, *known.values()])
    return make_database(path, *TABLES, row, *inserts(talk))


def lines(path: Path, talk: Rows, meta: dict[str, Any] | None = None) -> Path:
    timed = [{**row, "timestamp": f"2026-07-11T09:00:{number:02}.5"} for number, row in enumerate(talk)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [META if meta is None else meta, *timed]))
    return path


def snapshot(path: Path, talk: Rows, **more: Any) -> Path:
    known = {"session_id": SESSION, "model": "m-1", "platform": "cli", "session_start": "2026-07-11T09:00:00Z"}
    path.write_text(json.dumps({**known, **more, "messages": talk}))
    return path


def test_database_lines_and_snapshot_say_the_same_under_the_same_ids(tmp_path: Path) -> None:
    sources: list[tuple[Reader, Path]] = [
        (WHOLE, database(tmp_path / "state.db", TALK)),
        (LINES, lines(tmp_path / f"{SESSION}.jsonl", TALK)),
        (WHOLE, snapshot(tmp_path / f"session_{SESSION}.json", [*TALK, {"role": "session_meta"}])),
    ]
    found = [read_all(reader, path) for reader, path in sources]
    for (reader, path), items in zip(sources, found, strict=True):
        assert detect(path).__class__ is reader.__class__
        assert said(items) == SAID
        assert ids(items) == ids(found[0])
        assert len(set(ids(items))) == 7
        assert set(session_keys(items)) == {f"hermes:{SESSION}"}
        answers = {result.event_id: (result.tool_result, result.metadata.get("is_error")) for result in results(items)}
        assert answers == {"tool:c1": ("/app", None), "tool:c2": ("no", True)}
        assert ids(read_all(reader, path)) == ids(items)
        assert title(items) == "Go on"
        assert settings(items)["model"] == "m-1"
        assert settings(items)["platform"] == "cli"


def test_rows_point_to_where_they_stand(tmp_path: Path) -> None:
    path = database(tmp_path / "state.db", TALK)
    items = read_all(WHOLE, path)
    first, answer = messages(items)[0], results(items)[0]
    assert first.metadata == {
        "session_sqlite_path": str(path),
        "session_sqlite_table": "messages",
        "session_sqlite_part_id": "1",
        "session_host": HOST,
    }
    assert answer.metadata["result_sqlite_part_id"] == "3"
    assert first.created_at == datetime.fromtimestamp(START, UTC)
    path = lines(tmp_path / "a.jsonl", TALK)
    items = read_all(LINES, path)
    assert messages(items)[0].metadata["session_jsonl_line"] == 1
    assert results(items)[0].metadata["result_jsonl_line"] == 3
    (plain, *_) = messages(read_all(WHOLE, snapshot(tmp_path / "a.json", TALK)))
    assert plain.metadata == {"time_source": "position"}


def test_local_times_are_taken_as_utc_and_said_to_be_local(tmp_path: Path) -> None:
    first = messages(read_all(LINES, lines(tmp_path / "a.jsonl", TALK)))[0]
    assert first.created_at == datetime(2026, 7, 11, 9, 0, 0, 500_000, UTC)
    assert first.metadata["time_source"] == "local, zone unknown"


def test_a_snapshot_without_times_keeps_its_order_and_begins_when_the_session_did(tmp_path: Path) -> None:
    records = messages(read_all(WHOLE, snapshot(tmp_path / "a.json", TALK)))
    assert {record.created_at for record in records} == {datetime(2026, 7, 11, 9, 0, 0, 0, UTC)}


def test_what_the_session_says_of_itself(tmp_path: Path) -> None:
    config = json.dumps({"cwd": "~/app"})
    path = database(
        tmp_path / "state.db",
        TALK,
        model_config=config,
        parent_session_id="p",
        title="Mine",
        system_prompt="You are H.",
    )
    items = read_all(WHOLE, path)
    assert settings(items) == {
        "source": "hermes",
        "session_id": SESSION,
        "file": str(path),
        "cwd": "~/app",
        "platform": "cli",
        "model": "m-1",
        "parent_session_id": "p",
    }
    assert title(items) == "Mine"
    assert said(items)[0] == ("system", "injected", "You are H.")
    same = snapshot(tmp_path / "a.json", TALK, system_prompt="You are H.", model_config={"cwd": "~/app"})
    assert ids(read_all(WHOLE, same)) == ids(items)
    assert settings(read_all(WHOLE, same))["cwd"] == "~/app"


def test_a_title_that_the_database_has_is_not_replaced_by_the_first_prompt(tmp_path: Path) -> None:
    folder = tmp_path / ".hermes" / "sessions"
    folder.mkdir(parents=True)
    files: list[tuple[Reader, Path]] = [
        (LINES, lines(folder / "a.jsonl", TALK)),
        (WHOLE, snapshot(folder / "b.json", TALK)),
    ]
    assert [title(read_all(reader, path)) for reader, path in files] == ["Go on", "Go on"]
    database(tmp_path / ".hermes" / "state.db", TALK, title="Mine")
    assert [title(read_all(reader, path)) for reader, path in files] == [None, None]


def test_a_long_first_line_of_tool_schemas_hides_nothing(tmp_path: Path) -> None:
    for size in (40_000, 200_000):
        path = lines(tmp_path / f"{size}.jsonl", TALK, {**META, "tools": [{"description": "x" * size}]})
        reader = detect(path)
        assert isinstance(reader, HermesLinesReader)
        assert said(read_all(reader, path)) == SAID


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"role": "user", "content": "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier"},
         [("system", "summary", "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier")]),
        ({"role": "assistant", "content": "[CONTEXT SUMMARY]: Earlier"},
         [("assistant", "summary", "[CONTEXT SUMMARY]: Earlier")]),
        ({"role": "user", "content": "[System note: back again]\n\nHello"},
         [("system", "injected", "[System note: back again]"), ("user", "speech", "Hello")]),
        ({"role": "user", "content": "[Your active task list was preserved across context compression]\n- x"},
         [("system", "injected", "[Your active task list was preserved across context compression]\n- x")]),
        ({"role": "user", "content": "[IMPORTANT: Background process 7 ended]"},
         [("system", "notice", "[IMPORTANT: Background process 7 ended]")]),
        ({"role": "user", "content": "x", "display_kind": "internal_notification"}, [("system", "injected", "x")]),
        ({"role": "system", "content": "Be brief."}, [("system", "injected", "Be brief.")]),
        ({"role": "user", "content": [{"type": "text", "text": "See"},
                                      {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
         [("user", "speech", "See\n[image image/png, 3 bytes]")]),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}]},
         [("user", "speech", "[image https://a.example/b.png]")]),
        ({"role": "user", "content": "\x00json:" + json.dumps([{"type": "text", "text": "See"}])},
         [("user", "speech", "See")]),
        ({"role": "assistant", "content": "", "codex_message_items": [{"content": [{"type": "text", "text": "Hi"}]}]},
         [("assistant", "speech", "Hi")]),
        ({"role": "assistant", "content": "Hi", "reasoning": "a", "reasoning_content": "a",
          "reasoning_details": [{"type": "encrypted", "data": "zzz"}, {"type": "reasoning.text", "text": "b"}]},
         [("assistant", "thinking", "a"), ("assistant", "thinking", "b"), ("assistant", "speech", "Hi")]),
        ({"role": "assistant", "content": None}, []),
        ({"role": "wizard", "content": "x"}, []),
    ],
)  # fmt: skip
def test_who_speaks(tmp_path: Path, row: dict[str, Any], expected: list[Any]) -> None:
    items = read_all(WHOLE, snapshot(tmp_path / "a.json", [row]))
    assert said(items) == expected
    assert bool(skipped(items)) is not bool(expected)


def test_a_call_id_that_returns_is_another_call(tmp_path: Path) -> None:
    talk: Rows = [
        {"role": "assistant", "content": "", "tool_calls": [call("call_0")]},
        {"role": "tool", "content": "one", "tool_call_id": "call_0"},
        {"role": "assistant", "content": "", "tool_calls": [call("call_0"), call(None), call(None)]},
        {"role": "tool", "content": "two", "tool_call_id": "call_0"},
        {"role": "tool", "content": "orphan", "tool_call_id": "gone"},
        {"role": "tool", "content": "nameless"},
    ]
    items = read_all(WHOLE, snapshot(tmp_path / "a.json", talk))
    assert ids(items)[:2] == ["tool:call_0", "tool:call_0:2"]
    assert len(set(ids(items))) == 4
    assert [(result.event_id, result.tool_result) for result in results(items)][:3] == [
        ("tool:call_0", "one"),
        ("tool:call_0:2", "two"),
        ("tool:gone", "orphan"),
    ]


def test_what_was_taken_back_or_put_away_or_overheard_is_marked(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "wrong", "active": 0},
        {"role": "user", "content": "old", "active": 0, "compacted": 1},
        {"role": "user", "content": "aside", "observed": 1},
    ]
    records = messages(read_all(WHOLE, database(tmp_path / "state.db", talk)))
    marks = [{key: record.metadata.get(key) for key in ("off_path", "state", "observed")} for record in records]
    assert marks == [
        {"off_path": True, "state": None, "observed": None},
        {"off_path": None, "state": "compacted", "observed": None},
        {"off_path": None, "state": None, "observed": True},
    ]


def test_what_a_compaction_says_again_is_given_once_also_after_a_second_one(tmp_path: Path) -> None:
    first: Rows = [
        {"role": "user", "content": "Task"},
        {"role": "assistant", "content": "Yes", "tool_calls": [call("c1")]},
        {"role": "tool", "content": "out", "tool_call_id": "c1"},
        {"role": "user", "content": "Go on"},
    ]
    summary = {"role": "user", "content": "[CONTEXT COMPACTION] one"}
    again = {"role": "user", "content": "[CONTEXT COMPACTION] two"}
    later = [{"role": "assistant", "content": "Later"}, {"role": "user", "content": "Go on"}]
    once = [*first, first[0], summary, first[3], *later]
    twice = [*once, first[0], again, *later, {"role": "user", "content": "Task"}]
    expected = [
        ("user", "speech", "Task"),
        ("assistant", "speech", "Yes"),
        ("tool", "tool", ""),
        ("user", "speech", "Go on"),
        ("system", "summary", "[CONTEXT COMPACTION] one"),
        ("assistant", "speech", "Later"),
        ("user", "speech", "Go on"),
    ]
    before = read_all(WHOLE, database(tmp_path / "state.db", once))
    assert said(before) == expected
    assert skipped(before) == {"restated after a compaction": 2}
    after = read_all(WHOLE, database(tmp_path / "second" / "state.db", twice))
    assert said(after)[: len(expected)] == expected
    assert ids(after)[: len(expected)] == ids(before)
    assert said(after)[len(expected) :] == [("system", "summary", "[CONTEXT COMPACTION] two")]
    assert len(set(ids(after))) == len(ids(after))


def test_damage_touches_nothing_else(tmp_path: Path) -> None:
    talk: list[Any] = [
        {"role": "assistant", "content": "x", "tool_calls": ["what"]},
        {"role": "user", "content": "after"},
    ]
    items = read_all(WHOLE, snapshot(tmp_path / "a.json", talk))
    assert damaged(items) == ["assistant of unexpected shape"]
    assert said(items) == [("user", "speech", "after")]
    talk[0] = []
    items = read_all(WHOLE, snapshot(tmp_path / "b.json", talk))
    assert damaged(items) == ["message of unexpected shape"]
    assert said(items) == [("user", "speech", "after")]
    items = read_all(
        WHOLE, database(tmp_path / "state.db", [{"role": "user", "content": "y" * 9000}, *talk[1:]]), max_line=5000
    )
    assert damaged(items) == ["line too long"]
    assert said(items) == [("user", "speech", "after")]


def test_rows_that_stand_only_in_the_log_of_a_running_harness_are_read(tmp_path: Path) -> None:
    path = tmp_path / ".hermes" / "state.db"
    with held_open(path, "PRAGMA journal_mode = WAL", *TABLES, *inserts(TALK)):
        before = folder_bytes(path.parent)
        reader = detect(path)
        assert isinstance(reader, HermesReader)
        assert said(read_all(reader, path)) == SAID
        assert folder_bytes(path.parent) == before


def test_a_snapshot_cut_anywhere_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    data = snapshot(tmp_path / "whole.json", TALK).read_bytes()
    whole = read_all(WHOLE, tmp_path / "whole.json")
    path = tmp_path / "cut.json"
    lengths = []
    for place in range(0, len(data), 11):
        path.write_bytes(data[:place])
        if WHOLE.sniff(head_of(path)):
            items = read_all(WHOLE, path, settled=False)
            assert is_incomplete(items)
            assert ids(items) == ids(whole)[: len(ids(items))]
            lengths.append(len(ids(items)))
    assert lengths == sorted(lengths)
    assert {0, 1, 5, 6} <= set(lengths)


def test_lines_that_grow_keep_their_ids(tmp_path: Path) -> None:
    early = ids(read_all(LINES, lines(tmp_path / "a.jsonl", TALK[:3])))
    assert ids(read_all(LINES, lines(tmp_path / "a.jsonl", TALK)))[: len(early)] == early


# Exports


def test_an_archive_tells_states_calls_and_results(tmp_path: Path) -> None:
    told = {
        "producer": "hermes/0.9.0",
        "session_id": SESSION,
        "created_at": "2026-07-11T09:00:00Z",
        "messages": [
            {"message_id": "m1", "role": "assistant", "state": "rewound", "text": "Wrong", "reasoning": "hm",
             "tool_calls": [{"action_id": "a1", "tool_name": "read", "arguments_json": '{"path": "x"}'}],
             "tool_results": [], "timestamp": "2026-07-11T09:00:01Z"},
            {"message_id": "m2", "role": "tool", "state": "rewound", "text": None, "tool_calls": [],
             "tool_results": [{"action_id": "a1", "is_error": True, "exit_code": 2, "output_preview": "gone"}]},
        ],
        "parent_session_id": "p",
        "repository_cwd": "/app",
        "git_branch": "main",
    }  # fmt: skip
    path = tmp_path / "archive.json"
    path.write_text(json.dumps(told))
    reader = detect(path)
    assert isinstance(reader, HermesReader)
    items = read_all(reader, path)
    assert said(items) == [
        ("assistant", "thinking", "hm"),
        ("assistant", "speech", "Wrong"),
        ("tool", "tool", ""),
    ]
    assert all(record.metadata["off_path"] for record in messages(items))
    (answer,) = results(items)
    assert (answer.event_id, answer.tool_result) == ("tool:a1", "gone")
    assert answer.metadata == {"kind": "tool", "exit_code": 2, "is_error": True, "off_path": True}
    assert title(items) is None
    known = settings(items)
    assert (known["parent_session_id"], known["cwd"], known["git_branch"]) == ("p", "/app", "main")


def trajectory(path: Path, steps: Rows, **more: Any) -> Path:
    told = {"schema_version": "ATIF-v1.7", "session_id": SESSION, "agent": {"name": "hermes-agent"}, "steps": steps}
    path.write_text(json.dumps({**told, **more}))
    return path


def test_a_trajectory_tells_steps_calls_and_observations(tmp_path: Path) -> None:
    calls = [{"tool_call_id": "c", "function_name": name, "arguments": {"n": 1}} for name in ("ls", "cat")]
    seen = [{"source_call_id": "c", "content": words} for words in ("a.txt", [{"type": "text", "text": "inside"}])]
    steps = [
        {"step_id": 1, "source": "user", "message": "Look", "timestamp": "2026-07-11T09:00:01Z"},
        {"step_id": 2, "source": "agent", "message": "", "reasoning_content": "ls", "tool_calls": calls,
         "observation": {"results": seen}},
        {"step_id": 3, "source": "system", "message": "hook ran"},
        {"step_id": 4, "source": "agent", "message": ""},
    ]  # fmt: skip
    child = {"trajectory_id": "t2", "agent": {"name": "x"}, "steps": [{"source": "user", "message": "Sub"}]}
    items = read_all(WHOLE, trajectory(tmp_path / "a.json", steps, subagent_trajectories=[child]))
    assert said(items) == [
        ("user", "speech", "Look"),
        ("assistant", "thinking", "ls"),
        ("tool", "tool", ""),
        ("tool", "tool", ""),
        ("system", "notice", "hook ran"),
        ("user", "speech", "Sub"),
    ]
    assert [(result.event_id, result.tool_result) for result in results(items)] == [
        ("tool:c", "a.txt"),
        ("tool:c:2", "inside"),
    ]
    keys = session_keys(items)
    assert (keys[0], keys[-1]) == (f"hermes:{SESSION}", "hermes:t2")
    assert settings(items)["parent_session_id"] == SESSION
    assert skipped(items) == {"step without text": 1}


def event(category: str, phase: str, uuid: str, data: Any = None, **metadata: Any) -> dict[str, Any]:
    about = {"session_id": SESSION, "platform": "hermes", "turn_id": "t1", **metadata}
    return {"atof_version": "0.1", "kind": "scope", "category": category, "scope_category": phase, "uuid": uuid,
            "timestamp": "2026-07-11T09:00:00Z", "name": "shell", "metadata": about, "data": data}  # fmt: skip


def test_events_tell_prompts_once_answers_and_tools(tmp_path: Path) -> None:
    history = {"messages": [{"role": "user", "content": "Look"}, {"role": "assistant", "content": "I look."}]}
    told = [
        event("agent", "start", "u0"),
        event("llm", "start", "u1", {"content": "Look"}),
        event("llm", "end", "u1", {"assistant_message": {"role": "assistant", "content": "I look."}}),
        event("tool", "start", "u2", {"command": "ls"}, tool_call_id="c1"),
        event("tool", "end", "u2", {"stdout": "a.txt"}, tool_call_id="c1", status="failed"),
        event("llm", "start", "u3", {"content": history}),
        event("llm", "end", "u3", {"error": "overloaded"}),
        event("llm", "start", "u4", {"content": "Look"}, turn_id="t2"),
        {**event("agent", "", "u5", {"approved": True}), "kind": "mark", "name": "hermes.approval.response"},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in told))
    reader = detect(path)
    assert isinstance(reader, HermesLinesReader)
    items = read_all(reader, path)
    assert said(items) == [
        ("user", "speech", "Look"),
        ("assistant", "speech", "I look."),
        ("tool", "tool", ""),
        ("system", "notice", "overloaded"),
        ("user", "speech", "Look"),
        ("system", "notice", '[hermes.approval.response] {"approved": true}'),
    ]
    (answer,) = results(items)
    assert (answer.event_id, answer.tool_result, answer.metadata["is_error"]) == ("tool:c1", "a.txt", True)
    assert skipped(items) == {"scope/agent/start": 1, "prompt, given before": 1}
    assert len(set(ids(items))) == 6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("package.json", '{"name": "x", "model": "y"}'),
        ("a.json", '{"session_id": "x", "messages": []}'),
        ("b.json", '{"schema_version": "ATIF-v1.7", "session_id": "x", "agent": {"name": "kimi"}, "steps": []}'),
        ("a.jsonl", '{"role": "user", "content": "x"}\n'),
        ("c.jsonl", '{"atof_version": "0.1", "metadata": {"platform": "other"}}\n'),
        ("state.db", "no database"),
        ("CHANGELOG.md", "# 1.0"),
    ],
)
def test_other_files_are_left_alone(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert detect(path) is None


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    other = make_database(
        tmp_path / "state.db", "CREATE TABLE sessions (id TEXT)", "CREATE TABLE messages (id INTEGER, content TEXT)"
    )
    assert detect(other) is None
    empty = make_database(tmp_path / ".hermes" / "state.db", "CREATE TABLE x (id TEXT)")
    assert skipped(read_all(WHOLE, empty)) == {"database without sessions": 1}


# The real samples


def test_the_sample_session_in_database_and_snapshot(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "hermes"
    kept, whole = (read_all(WHOLE, folder / name) for name in ("derived_state.db", "large.json"))
    assert said(kept) == said(whole) == [
        ("system", "injected", "You are Hermes."),
        ("user", "speech", "Check the current directory."),
        ("assistant", "thinking", "Need a shell lookup."),
        ("assistant", "thinking", "Directory inspection"),
        ("assistant", "speech", "I will inspect the directory."),
        ("tool", "tool", ""),
        ("assistant", "speech", "The current directory is /Users/user/Repository/Codex-History."),
    ]  # fmt: skip
    assert ids(kept) == ids(whole)
    for items in (kept, whole):
        (answer,) = results(items)
        assert (answer.event_id, answer.tool_result) == ("tool:call_001", "/Users/user/Repository/Codex-History")
        assert skipped(items) == {"session_meta": 1}


def test_the_sample_snapshots(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "hermes"
    small = read_all(WHOLE, folder / "small.json")
    assert counts(small) == {("user", "speech"): 1, ("assistant", "speech"): 1}
    drift = read_all(WHOLE, folder / "schema_drift.json")
    assert counts(drift) == {("user", "speech"): 1, ("assistant", "speech"): 1, ("tool", "tool"): 1}
    assert [result.metadata["is_error"] for result in results(drift)] == [True]


def test_the_sample_exports(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "hermes"
    archive = read_all(WHOLE, folder / "archival_export_v1.json")
    assert counts(archive) == {
        ("system", "injected"): 1,
        ("user", "speech"): 1,
        ("assistant", "thinking"): 1,
        ("assistant", "speech"): 3,
        ("tool", "tool"): 1,
    }
    assert [record.content for record in messages(archive) if record.metadata.get("off_path")] == [
        "Applying an incorrect fix attempt (later rewound)."
    ]
    steps = read_all(WHOLE, folder / "atif_v1.7_real_redacted.json")
    assert counts(steps) == {
        ("system", "notice"): 3,
        ("user", "speech"): 1,
        ("assistant", "speech"): 1,
        ("tool", "tool"): 4,
    }
    assert [record.tool_name for record in messages(steps) if record.role == "tool"] == [
        "process",
        "terminal",
        "search_files",
        "search_files",
    ]
    assert len(results(steps)) == 4
    assert len(set(ids(steps))) == 9


def test_the_sample_events(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "hermes"
    events = read_all(LINES, folder / "atof_v0.1_real_redacted.jsonl")
    assert counts(events) == {
        ("user", "speech"): 1,
        ("assistant", "speech"): 1,
        ("tool", "tool"): 1,
        ("system", "notice"): 5,
    }
    assert skipped(events) == {"scope/agent/start": 1, "scope/agent/end": 1}
    assert said(read_all(LINES, folder / "state-db-session_capability.jsonl")) == [
        ("user", "speech", "Prove the parser claim."),
        ("assistant", "speech", "The production route parsed this witness."),
    ]
