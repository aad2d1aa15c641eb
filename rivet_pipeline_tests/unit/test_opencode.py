"""What OpenCode's parts become, and that the database, the tree and the exports say the same under the same ids."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.opencode import OpenCodeReader
from rivet_pipeline.transcripts.readers.shared import HOST
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
    said,
    session_keys,
    settings,
    skipped,
    title,
)

READER = OpenCodeReader()
SESSION = "ses_01"
#: An hour ago: what is open since then may go on. In ms.
START = (int(time.time()) - 3600) * 1000

Message = tuple[dict[str, Any], list[dict[str, Any]]]

TABLES = [
    """CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text, title text,
                             version text, revert text, time_created integer, time_updated integer)""",
    """CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, time_updated integer,
                             data text)""",
    """CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer,
                          time_updated integer, data text)""",
]


def user(number: int, *parts: dict[str, Any], **more: Any) -> Message:
    info = {"id": f"msg_{number}", "sessionID": SESSION, "role": "user", "time": {"created": START + number * 1000}}
    return {**info, **more}, named(number, parts)


def assistant(number: int, *parts: dict[str, Any], done: bool = True, **more: Any) -> Message:
    times = {"created": START + number * 1000, **({"completed": START + number * 1000 + 900} if done else {})}
    info = {"id": f"msg_{number}", "sessionID": SESSION, "role": "assistant", "time": times, "modelID": "m-1"}
    return {**info, **more}, named(number, parts)


def named(number: int, parts: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return [
        {"id": f"prt_{number}_{place}", "sessionID": SESSION, "messageID": f"msg_{number}", **part}
        for place, part in enumerate(parts)
    ]


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def tool(status: str, **state: Any) -> dict[str, Any]:
    given = {"status": status, "input": {"command": "ls"}, **state}
    return {"type": "tool", "tool": "bash", "callID": "call_1", "state": given}


def session(**more: Any) -> dict[str, Any]:
    times = {"created": START, "updated": START}
    known = {
        "id": SESSION,
        "projectID": "prj",
        "directory": "/app",
        "title": "A title",
        "version": "1.3",
        "time": times,
    }
    return {**known, **more}


def rows(told: dict[str, Any], said_so_far: list[Message]) -> list[Any]:
    revert = json.dumps(told["revert"]) if "revert" in told else None
    known = [told["id"], "prj", told.get("parentID"), told["directory"], told["title"], "1.3", revert, START, START]
    statements: list[Any] = [(f"INSERT INTO session VALUES ({', '.join('?' * 9)})", known)]
    for info, parts in said_so_far:
        data = {key: value for key, value in info.items() if key not in {"id", "sessionID"}}
        row = [info["id"], told["id"], info["time"]["created"], START, json.dumps(data)]
        statements.append(("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row))
        for part in parts:
            data = {key: value for key, value in part.items() if key not in {"id", "sessionID", "messageID"}}
            row = [part["id"], info["id"], told["id"], START, START, json.dumps(data)]
            statements.append(("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row))
    return statements


def database(path: Path, *said_so_far: Message, **more: Any) -> Path:
    return make_database(path, *TABLES, *rows(session(**more), list(said_so_far)))


def tree(storage: Path, *said_so_far: Message, flat: bool = False, **more: Any) -> Path:
    told = session(**more)
    path = write(storage / "session" / "prj" / f"{told['id']}.json", told)
    for info, parts in said_so_far:
        write(storage / "message" / told["id"] / f"{info['id']}.json", info)
        for part in parts:
            folder = storage / "part" if flat else storage / "part" / info["id"]
            write(folder / f"{part['id']}.json", part)
    return path


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def exported(path: Path, *said_so_far: Message) -> Path:
    told = [{"info": info, "parts": parts} for info, parts in said_so_far]
    return write(path, {"info": session(), "messages": told})


TALK: tuple[Message, ...] = (
    user(1, text("List the files"), text("Called the Read tool", synthetic=True)),
    assistant(
        2,
        {"type": "step-start", "snapshot": "abc"},
        {"type": "reasoning", "text": "ls will do", "time": {"start": START + 2100, "end": START + 2200}},
        tool("completed", output="a.txt", metadata={"exit": 0}, time={"start": START + 2300, "end": START + 2400}),
        text("One file.", time={"start": START + 2500, "end": START + 2600}),
        {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": {"input": 2}},
        providerID="anthropic",
        agent="build",
        path={"cwd": "/app/lib", "root": "/app"},
        tokens={"input": 2, "output": 7},
        cost=0.5,
    ),
)
SAID = [
    ("user", "speech", "List the files"),
    ("system", "injected", "Called the Read tool"),
    ("assistant", "thinking", "ls will do"),
    ("tool", "tool", ""),
    ("assistant", "speech", "One file."),
]


def test_the_database_gives_speech_thinking_and_calls_with_their_results(tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", *TALK, parentID="ses_00")
    items = read_all(READER, path)
    assert said(items) == SAID
    assert skipped(items) == {"part/step-start": 1, "part/step-finish": 1}
    assert title(items) == "A title"
    assert settings(items) == {
        "source": "opencode",
        "session_id": SESSION,
        "file": str(path),
        "cwd": "/app",
        "version": "1.3",
        "project_id": "prj",
        "parent_session_id": "ses_00",
    }
    call = messages(items)[3]
    assert (call.event_id, call.tool_name, call.tool_args, call.tool_result) == (
        "prt_2_2",
        "bash",
        {"command": "ls"},
        "a.txt",
    )
    assert call.created_at == datetime.fromtimestamp(START / 1000 + 2.3, UTC)
    assert call.metadata == {
        "kind": "tool",
        "message_id": "msg_2",
        "model": "m-1",
        "provider": "anthropic",
        "mode": "build",
        "cwd": "/app/lib",
        "call_id": "call_1",
        "session_sqlite_path": str(path),
        "session_sqlite_table": "part",
        "session_sqlite_part_id": "prt_2_2",
        "session_host": HOST,
    }


def test_usage_is_kept_once_a_message(tmp_path: Path) -> None:
    records = messages(read_all(READER, database(tmp_path / "opencode.db", *TALK)))
    assert [record.metadata.get("usage") for record in records] == [None, None, {"input": 2, "output": 7}, None, None]
    assert [record.metadata.get("cost") for record in records] == [None, None, 0.5, None, None]


def test_database_trees_and_exports_say_the_same_under_the_same_ids(tmp_path: Path) -> None:
    sources = [
        database(tmp_path / "opencode.db", *TALK),
        tree(tmp_path / "storage", *TALK),
        tree(tmp_path / "old" / "storage", *TALK, flat=True),
        exported(tmp_path / "export.json", *TALK),
        write(tmp_path / "list.json", [{"info": info, "parts": parts} for info, parts in TALK]),
    ]
    for path in sources:
        reader = detect(path)
        assert reader is not None
        assert reader.harness == "opencode"
        items = read_all(reader, path)
        assert said(items) == SAID
        assert ids(items) == ["prt_1_0", "prt_1_1", "prt_2_1", "prt_2_2", "prt_2_3"]
        assert set(session_keys(items)) == {f"opencode:{SESSION}"}
        assert ids(read_all(reader, path)) == ids(items)


def test_rows_without_a_database_carry_no_pointer(tmp_path: Path) -> None:
    records = messages(read_all(READER, tree(tmp_path / "storage", *TALK)))
    assert [key for record in records for key in record.metadata if key.startswith("session_")] == []


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (text("Go on", synthetic=True), [("system", "injected", "Go on")]),
        (text("Shown only", ignored=True), [("system", "notice", "Shown only")]),
        (text("  \n"), []),
        ({"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"},
         [("user", "speech", "[image image/png, 3 bytes]")]),
        ({"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///app/a.txt"},
         [("system", "injected", "[file a.txt]")]),
        ({"type": "subtask", "prompt": "Look for bugs", "agent": "explore", "description": "bugs"},
         [("system", "injected", "Look for bugs")]),
        ({"type": "compaction", "auto": True}, []),
        ({"type": "compaction", "summary": "So far"}, [("system", "summary", "So far")]),
        ({"type": "agent", "name": "explore"}, []),
        ({"type": "snapshot", "snapshot": "abc"}, []),
        ({"type": "hologram"}, []),
    ],
)  # fmt: skip
def test_parts_of_a_prompt(tmp_path: Path, part: dict[str, Any], expected: list[Any]) -> None:
    items = read_all(READER, database(tmp_path / "opencode.db", user(1, part)))
    assert said(items) == expected
    assert (skipped(items) == {}) is bool(expected)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "patch", "hash": "abc", "files": ["/a", "/b"]}, [("system", "notice", "[patch /a, /b]")]),
        ({"type": "patch", "hash": "abc", "files": []}, []),
        ({"type": "retry", "attempt": 2, "error": {"name": "APIError", "data": {"message": "overloaded"}}},
         [("system", "notice", "overloaded")]),
        ({"type": "file", "mime": "text/plain", "filename": "a.log", "url": "file:///a.log"},
         [("system", "notice", "[file a.log]")]),
    ],
)  # fmt: skip
def test_parts_of_an_answer(tmp_path: Path, part: dict[str, Any], expected: list[Any]) -> None:
    assert said(read_all(READER, database(tmp_path / "opencode.db", assistant(1, part)))) == expected


def test_what_a_compaction_says_is_a_summary(tmp_path: Path) -> None:
    talk = [
        assistant(1, text("Goal: list files"), summary=True),
        assistant(2, text("Done"), summary={"title": None, "body": ""}),
    ]
    assert said(read_all(READER, database(tmp_path / "opencode.db", *talk))) == [
        ("assistant", "summary", "Goal: list files"),
        ("assistant", "speech", "Done"),
    ]


def test_a_failed_call_keeps_its_error_and_an_aborted_message_says_so(tmp_path: Path) -> None:
    error = {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}
    talk = assistant(1, tool("error", error="no such command"), error=error)
    items = read_all(READER, database(tmp_path / "opencode.db", talk))
    call, notice = messages(items)
    assert (call.tool_result, call.metadata["is_error"]) == ("no such command", True)
    assert (notice.event_id, notice.role, notice.content) == ("msg_1:error", "system", "The operation was aborted.")
    failed = assistant(1, tool("completed", output="", metadata={"exit": 2}))
    (record,) = messages(read_all(READER, database(tmp_path / "second" / "opencode.db", failed)))
    assert (record.tool_result, record.metadata["exit_code"], record.metadata["is_error"]) == ("", 2, True)


def test_pictures_that_a_tool_gives_are_named(tmp_path: Path) -> None:
    files = [{"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}]
    talk = assistant(1, tool("completed", output="shot", attachments=files))
    (record,) = messages(read_all(READER, database(tmp_path / "opencode.db", talk)))
    assert record.tool_result == "shot\n[image image/png, 3 bytes]"


def test_what_may_still_change_waits_until_nobody_writes_any_more(tmp_path: Path) -> None:
    talk = [
        user(1, text("Go")),
        assistant(
            2,
            {"type": "reasoning", "text": "half a th", "time": {"start": START}},
            tool("running"),
            text("half an an", time={"start": START}),
            done=False,
        ),
    ]
    for path in (database(tmp_path / "opencode.db", *talk), tree(tmp_path / "storage", *talk)):
        items = read_all(READER, path, settled=False)
        assert said(items) == [("user", "speech", "Go")]
        assert is_incomplete(items)
        assert read_all(READER, path, abandoned=False) == items
        settled = read_all(READER, path)
        assert counts(settled) == {
            ("user", "speech"): 1,
            ("assistant", "thinking"): 1,
            ("tool", "tool"): 1,
            ("assistant", "speech"): 1,
        }
        assert messages(settled)[2].tool_result is None
        assert not is_incomplete(settled)


def test_of_a_database_that_is_written_what_nobody_went_on_with_is_given(tmp_path: Path) -> None:
    long_ago = START - 6 * 3_600_000
    talk = assistant(1, tool("running"), text("half an an"), done=False)
    for number, changed in enumerate((long_ago, START)):
        told = assistant(1, *talk[1], done=False)
        told[0]["time"]["created"] = long_ago
        path = database(tmp_path / str(number) / "opencode.db", told)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE message SET time_updated = ?", [long_ago])
            connection.execute("UPDATE part SET time_updated = ?", [changed])
        items = read_all(READER, path, settled=False)
        assert is_incomplete(items) is (changed == START)
        assert [record.role for record in messages(items)] == (["tool", "assistant"] if changed == long_ago else [])


def test_a_prompt_whose_parts_are_not_there_yet_waits_for_them(tmp_path: Path) -> None:
    path = tree(tmp_path / "storage", user(1, summary={"title": "Go"}))
    assert messages(read_all(READER, path, abandoned=False)) == []
    assert said(read_all(READER, path)) == [("user", "speech", "Go")]


def test_what_is_done_within_a_message_under_way_is_given(tmp_path: Path) -> None:
    talk = assistant(1, text("First.", time={"start": START, "end": START}), tool("pending"), done=False)
    items = read_all(READER, database(tmp_path / "opencode.db", talk), settled=False)
    assert said(items) == [("assistant", "speech", "First.")]


def test_what_was_taken_back_is_marked(tmp_path: Path) -> None:
    talk = [user(1, text("one")), user(2, text("two")), assistant(3, text("three"))]
    whole = read_all(READER, database(tmp_path / "opencode.db", *talk, revert={"messageID": "msg_2"}))
    assert [record.metadata.get("off_path") for record in messages(whole)] == [None, True, True]
    part = tree(
        tmp_path / "storage", user(1, text("one"), text("two")), revert={"messageID": "msg_1", "partID": "prt_1_1"}
    )
    assert [record.metadata.get("off_path") for record in messages(read_all(READER, part))] == [None, True]


def test_damage_touches_nothing_else(tmp_path: Path) -> None:
    path = database(
        tmp_path / "opencode.db",
        user(1, text("one")),
        assistant(2, text("lost speaker"), tool("completed", output="x")),
        assistant(3, {"type": "tool", "tool": "bash"}, text("three")),
    )
    make_database(
        path,
        "UPDATE message SET data = '{\"role\": \"assist' WHERE id = 'msg_2'",
        ("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", ["prt_9", "msg_9", SESSION, START, START, "{}"]),
        ("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", ["prt_1_9", "msg_1", SESSION, START, START, "[1]"]),
    )
    items = read_all(READER, path)
    assert said(items) == [("user", "speech", "one"), ("tool", "tool", ""), ("assistant", "speech", "three")]
    assert sorted(damaged(items)) == [
        "not JSON",
        "not JSON",
        "part without message",
        "part/tool of unexpected shape",
        "text of an unknown speaker",
    ]


def test_a_part_that_is_too_long_is_counted(tmp_path: Path) -> None:
    talk = [user(1, text("x" * 50_000), text("short")), user(2, text("after"))]
    for path in (database(tmp_path / "opencode.db", *talk), tree(tmp_path / "storage", *talk)):
        items = read_all(READER, path, max_line=20_000)
        assert [words for _, _, words in said(items)] == ["short", "after"]
        assert damaged(items) == ["line too long"]


def test_a_database_of_few_columns_is_read(tmp_path: Path) -> None:
    path = make_database(
        tmp_path / "opencode.db",
        "CREATE TABLE session (id text)",
        "CREATE TABLE message (id text, session_id text, data text)",
        "CREATE TABLE part (id text, message_id text, session_id text, data text)",
        ("INSERT INTO message VALUES ('msg_1', 's', ?)", [json.dumps({"role": "user", "time": {"created": START}})]),
        ("INSERT INTO part VALUES ('prt_1', 'msg_1', 's', ?)", [json.dumps(text("hello"))]),
    )
    items = read_all(READER, path)
    assert said(items) == [("user", "speech", "hello")]
    assert title(items) == "hello"


def test_the_newer_table_is_read_for_sessions_that_have_no_other_messages(tmp_path: Path) -> None:
    content = [
        {"type": "reasoning", "id": "r1", "text": "hm"},
        {"type": "tool", "id": "call_1", "name": "bash", "time": {"created": START + 2000},
         "state": {"status": "completed", "input": {"command": "ls"}, "content": [{"type": "text", "text": "a.txt"}]}},
        {"type": "text", "text": "One file."},
    ]  # fmt: skip
    newer = [
        ("evt_1", "user", {"text": "List", "time": {"created": START}}),
        ("evt_2", "synthetic", {"text": "reminder", "time": {"created": START}}),
        ("evt_3", "assistant", {"content": content, "time": {"created": START + 1000, "completed": START + 3000}}),
        ("evt_4", "shell", {"command": "pwd", "output": "/app", "time": {"created": START, "completed": START}}),
        ("evt_5", "compaction", {"summary": "So far", "time": {"created": START}}),
        ("evt_6", "model-switched", {"model": {"id": "m"}, "time": {"created": START}}),
    ]
    path = database(tmp_path / "opencode.db")
    make_database(
        path,
        "CREATE TABLE session_message (id text, session_id text, type text, time_created integer, data text)",
        *(
            ("INSERT INTO session_message VALUES (?, ?, ?, ?, ?)", [name, SESSION, kind, place, json.dumps(data)])
            for place, (name, kind, data) in enumerate(newer)
        ),
    )
    items = read_all(READER, path)
    assert said(items) == [
        ("user", "speech", "List"),
        ("system", "injected", "reminder"),
        ("assistant", "thinking", "hm"),
        ("tool", "tool", ""),
        ("assistant", "speech", "One file."),
        ("tool", "tool", ""),
        ("system", "summary", "So far"),
    ]
    assert [record.tool_result for record in messages(items) if record.role == "tool"] == ["a.txt", "/app"]
    assert len(set(ids(items))) == 7
    assert skipped(items) == {"part/model-switched": 1}


def test_rows_that_stand_only_in_the_log_of_a_running_harness_are_read(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with held_open(path, "PRAGMA journal_mode = WAL", *TABLES, *rows(session(), list(TALK))):
        before = folder_bytes(tmp_path)
        reader = detect(path)
        assert reader is not None
        assert said(read_all(reader, path, settled=False)) == SAID
        assert folder_bytes(tmp_path) == before


def test_a_prompt_whose_parts_are_gone_is_known_by_its_summary(tmp_path: Path) -> None:
    path = tree(tmp_path / "storage", user(1, summary={"title": "Open it", "body": "Open README"}), assistant(2))
    items = read_all(READER, path)
    assert said(items) == [("user", "speech", "Open README")]
    assert messages(items)[0].metadata["lost"] == "parts"
    assert skipped(items) == {"message without parts": 1}
    early = read_all(READER, path, settled=False)
    assert said(early) == []
    assert is_incomplete(early)


def test_a_file_of_the_tree_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tree(tmp_path / "storage", *TALK)
    part = tmp_path / "storage" / "part" / "msg_2" / "prt_2_3.json"
    whole = part.read_bytes()
    for place in range(0, len(whole), 7):
        part.write_bytes(whole[:place])
        items = read_all(READER, path, settled=False)
        assert said(items) == SAID[:-1]
        assert is_incomplete(items)
    assert damaged(read_all(READER, path)) == ["not JSON"]
    part.write_bytes(whole)
    assert said(read_all(READER, path, settled=False)) == SAID


def test_the_state_of_a_tree_covers_every_file_that_is_read(tmp_path: Path) -> None:
    for flat in (False, True):
        storage = tmp_path / str(flat) / "storage"
        path = tree(storage, *TALK, flat=flat)
        seen = [READER.state(path)]
        for file in sorted(storage.rglob("*.json")):
            file.write_text(file.read_text() + " ")
            seen.append(READER.state(path))
        assert len({state.size for state in seen}) == 11
    with pytest.raises(FileNotFoundError):
        READER.state(tmp_path / "storage" / "session" / "prj" / "missing.json")


def test_ids_that_lead_out_of_the_tree_are_no_names_of_folders(tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere" / "prt_1.json", {"id": "prt_1", **text("secret")})
    path = tree(tmp_path / "storage", user(1))
    write(tmp_path / "storage" / "message" / SESSION / "msg_1.json", {**user(1)[0], "id": "../../elsewhere"})
    (tmp_path / "storage" / "part").mkdir()
    assert said(read_all(READER, path)) == []
    assert secret.exists()


def test_events_give_the_last_state_of_each_part(tmp_path: Path) -> None:
    info, parts = assistant(1, text("One", time={"start": START}), text("x"))
    grown = {**parts[0], "text": "One file.", "time": {"start": START, "end": START}}
    told = [
        {"type": "session.created", "properties": {"info": session(title="New session - 2026-02-06T06:56:52.806Z")}},
        {"type": "message.updated", "properties": {"info": info}},
        {"type": "message.part.updated", "properties": {"part": parts[0]}},
        {"type": "message.part.updated", "properties": {"part": grown}},
        {"type": "session.idle", "properties": {"sessionID": SESSION}},
    ]
    path = write(tmp_path / "events.json", told)
    reader = detect(path)
    assert reader is not None
    items = read_all(reader, path)
    assert said(items) == [("assistant", "speech", "One file.")]
    assert ids(items) == ["prt_1_0"]
    assert skipped(items) == {"message.updated": 1, "message.part.updated": 1, "session.idle": 1}


def test_an_export_that_was_cut_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    data = exported(tmp_path / "whole.json", *TALK).read_bytes()
    path = tmp_path / "cut.json"
    lengths = []
    for place in range(200, len(data), 23):
        path.write_bytes(data[:place])
        if READER.sniff(head_of(path)):
            items = read_all(READER, path, settled=False)
            assert is_incomplete(items)
            assert said(items) == SAID[: len(said(items))]
            lengths.append(len(said(items)))
    assert lengths == sorted(lengths)
    assert {0, 2} <= set(lengths)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("package.json", '{"name": "x", "version": "1", "directory": "/", "id": "1"}'),
        ("data.json", '[{"info": {"title": "x"}, "parts": []}]'),
        ("events.json", '[{"type": "session.x", "properties": {}}]'),
        pytest.param("msg_1.json", json.dumps(TALK[0][0]), id="a message"),
        pytest.param("prt_1.json", json.dumps(TALK[0][1][0]), id="a part"),
        ("README.md", "# info"),
        ("opencode.db", "no database"),
        ("empty.json", ""),
    ],
)
def test_other_files_are_left_alone(tmp_path: Path, name: str, content: str) -> None:
    assert detect(write(tmp_path / name, content)) is None


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    notes = make_database(
        tmp_path / "notes.db",
        "CREATE TABLE message (id INTEGER, body TEXT)",
        "CREATE TABLE session (id INTEGER)",
        "CREATE TABLE part (id INTEGER, name TEXT)",
    )
    assert detect(notes) is None
    empty = make_database(tmp_path / "opencode.db", "CREATE TABLE other (id INTEGER)")
    items = read_all(READER, empty)
    assert (said(items), skipped(items)) == ([], {"database without sessions": 1})


# The real samples


def test_the_sample_database_and_its_export(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "opencode"
    expected = {("user", "speech"): 2, ("assistant", "speech"): 2, ("tool", "tool"): 1}
    kept, dumped = (read_all(READER, folder / name) for name in ("derived_opencode.db", "native_messages-after-2.json"))
    assert counts(kept) == counts(dumped) == expected
    assert said(kept) == said(dumped)
    assert ids(kept) == ids(dumped)
    assert [entry[2] for entry in said(kept)][1] == "Hello from OpenCode"
    assert skipped(kept) == {"part/step-start": 3, "part/step-finish": 3}
    assert title(kept) == title(dumped) == "Hello from OpenCode"
    call = next(record for record in messages(kept) if record.role == "tool")
    assert call.tool_args["command"] == "ls -la"
    assert (call.tool_result or "").startswith("total 24\n")


def test_the_sample_trees(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "transcripts" / "opencode"
    large = read_all(READER, folder / "storage_v2/session/proj_test/ses_s_stage0_large.json")
    assert said(large) == [
        ("user", "speech", "Step 1"),
        ("tool", "tool", ""),
        ("system", "injected", "Command failed with exit code 1."),
        ("system", "notice", "[file error.log]"),
        ("assistant", "thinking", "Investigating failing command."),
        ("system", "notice", "[patch /tmp/large/error.log]"),
        ("system", "notice", "The operation was aborted."),
        ("user", "speech", "Step 2"),
        ("assistant", "speech", "Ok"),
    ]
    assert skipped(large) == {"part/step-start": 1, "part/step-finish": 1, "part/compaction without text": 1}
    small = read_all(READER, folder / "storage_v2/session/proj_test/ses_s_stage0_small.json")
    assert said(small) == [
        ("user", "speech", "Hello"),
        ("tool", "tool", ""),
        ("assistant", "speech", "Found 2 files."),
    ]
    legacy = read_all(READER, folder / "storage_legacy/session/proj_test/ses_s_stage0_drift.json")
    assert said(legacy) == [
        ("user", "speech", "Open README"),
        ("tool", "tool", ""),
        ("assistant", "speech", "Read README and extracted the title."),
    ]
    copied = shutil.copytree(folder / "storage_v2", tmp_path / "storage")
    shutil.rmtree(copied / "message")
    gone = read_all(READER, copied / "session/proj_test/ses_s_stage0_small.json")
    assert (said(gone), title(gone)) == ([], "OpenCode Small")


def test_every_sample_file_is_known_or_is_part_of_one(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "opencode"
    found = {str(path.relative_to(folder)): detect(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    known = {name for name, reader in found.items() if reader is not None}
    assert known == {
        "derived_opencode.db",
        "native_messages-after-2.json",
        "native_session-details.json",
        "native_session-events.json",
        "storage_legacy/session/proj_test/ses_s_stage0_drift.json",
        "storage_v2/session/proj_test/ses_s_stage0_large.json",
        "storage_v2/session/proj_test/ses_s_stage0_small.json",
    }
    assert skipped(read_all(READER, folder / "native_session-events.json")) == {
        "session.status": 10,
        "session.diff": 5,
        "session.idle": 2,
    }
