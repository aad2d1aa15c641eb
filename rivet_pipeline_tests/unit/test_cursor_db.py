"""What the messages of Cursor's chats and of its agent's stores become."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.cursor_db import CursorDatabaseReader
from rivet_pipeline.transcripts.readers.shared import HOST
from rivet_pipeline_tests.unit.database_files import (
    counts,
    damaged,
    folder_bytes,
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

READER = CursorDatabaseReader()
AGENT = "f1ff7b74-0a28-4dd4-a452-e01ae080eb20"
CHAT = "98251e54-8aed-4515-b2b4-08895453eedd"
START = 1_781_256_145_540
BEGAN = datetime.fromtimestamp(START / 1000, UTC)

STORE_TABLES = [
    "CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)",
]
STATE_TABLES = [
    "CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)",
    "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)",
]


# The agent's store


def blob(message: dict[str, Any] | bytes) -> tuple[str, bytes]:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return hashlib.sha256(data).hexdigest(), data


def node(*names: str, workspace: str | None = None) -> bytes:
    """A protobuf message of the names of blobs, with a number and a place among them."""
    fields = b"".join(b"\x0a\x20" + bytes.fromhex(name) for name in names)
    place = workspace.encode() if workspace else b""
    return b"\x28\x96\x01" + fields + (b"\x4a" + bytes([len(place)]) + place if place else b"")


def store(path: Path, talk: list[dict[str, Any]], *, dropped: list[Any] | None = None, **meta: Any) -> Path:
    blobs = [blob(message) for message in [*(dropped or []), *talk]]
    root = blob(node(*(blob(message)[0] for message in talk), workspace=meta.pop("workspace", None)))
    known = {"agentId": AGENT, "name": "Backup", "createdAt": START, "latestRootBlobId": root[0], **meta}
    return make_database(path, *STORE_TABLES, *store_rows([*blobs, root], known))


def store_rows(blobs: list[tuple[str, bytes]], meta: dict[str, Any]) -> list[Any]:
    rows: list[Any] = [(f"INSERT OR IGNORE INTO blobs VALUES ('{name}', x'{data.hex()}')", []) for name, data in blobs]
    return [*rows, ("INSERT INTO meta VALUES ('0', ?)", [json.dumps(meta).encode().hex()])]


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": [{"type": "text", "text": (
        "<user_info>\nWorkspace Path: /code/demo\n</user_info>\n<user_query>\nBack it up\n</user_query>")}]},
    {"role": "assistant", "id": "1", "providerOptions": {"cursor": {"modelName": "m-1"}}, "content": [
        {"type": "redacted-reasoning", "data": "zzz"},
        {"type": "reasoning", "text": "A shell will do"},
        {"type": "text", "text": "I look."},
        {"type": "tool-call", "toolCallId": "t1", "toolName": "Shell", "args": {"command": "ls"}}]},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "t1", "toolName": "Shell", "result": "a b"}]},
    {"role": "user", "content": "<user_query>go on</user_query>"},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    {"role": "user", "content": "<user_query>go on</user_query>"},
]  # fmt: skip
SAID = [
    ("system", "injected", "You are an agent."),
    ("system", "injected", "<user_info>\nWorkspace Path: /code/demo\n</user_info>"),
    ("user", "speech", "Back it up"),
    ("assistant", "thinking", "A shell will do"),
    ("assistant", "speech", "I look."),
    ("tool", "tool", ""),
    ("user", "speech", "go on"),
    ("assistant", "speech", "Done."),
    ("user", "speech", "go on"),
]


def test_a_store_is_told_in_the_order_of_its_root(tmp_path: Path) -> None:
    path = store(tmp_path / "chats" / "h" / AGENT / "store.db", TALK, lastUsedModel="m-0", mode="default")
    reader = detect(path)
    assert isinstance(reader, CursorDatabaseReader)
    items = read_all(reader, path)
    assert said(items) == SAID
    assert len(set(ids(items))) == 9
    assert ids(read_all(reader, path)) == ids(items)
    assert title(items) == "Backup"
    assert settings(items) == {
        "source": "cursor",
        "session_id": AGENT,
        "file": str(path),
        "model": "m-0",
        "mode": "default",
        "cwd": "/code/demo",
    }
    call = messages(items)[5]
    assert (call.tool_name, call.tool_args) == ("Shell", {"command": "ls"})
    assert call.created_at == BEGAN
    assert call.metadata == {
        "kind": "tool",
        "message_id": "1",
        "model": "m-1",
        "call_id": "t1",
        "session_sqlite_path": str(path),
        "session_sqlite_table": "blobs",
        "session_sqlite_part_id": blob(TALK[2])[0],
        "session_host": HOST,
        "time_source": "position",
    }
    (answer,) = results(items)
    assert (answer.event_id, answer.tool_result) == (call.event_id, "a b")
    assert answer.metadata["result_sqlite_part_id"] == blob(TALK[3])[0]


def test_nodes_below_the_root_are_followed_and_rings_end(tmp_path: Path) -> None:
    one, two = blob(TALK[4]), blob(TALK[5])
    inner = blob(node(one[0], two[0]))
    # A name that nothing has, and the root's own inner node once more.
    root = blob(node(inner[0], "ab" * 32, inner[0], workspace="file:///code/demo"))
    meta = {"agentId": AGENT, "latestRootBlobId": root[0], "name": "New Agent"}
    path = make_database(tmp_path / "store.db", *STORE_TABLES, *store_rows([two, one, inner, root], meta))
    items = read_all(READER, path)
    assert said(items) == [("user", "speech", "go on"), ("assistant", "speech", "Done.")]
    assert settings(items)["cwd"] == "/code/demo"
    assert title(items) == "go on"


def test_what_the_root_left_behind_is_kept_and_marked(tmp_path: Path) -> None:
    dropped = [
        {"role": "user", "content": "<user_query>first try</user_query>"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}]},
    ]
    path = store(tmp_path / "store.db", TALK, dropped=dropped)
    items = read_all(READER, path)
    assert said(items) == [("user", "speech", "first try"), *SAID]
    assert [record.metadata.get("off_path") for record in messages(items)][:2] == [True, None]
    assert skipped(items)["said on the path too"] == 1
    assert title(items) == "Backup"
    early = read_all(READER, path, abandoned=False)
    assert early == read_all(READER, path, settled=False)
    assert said(early) == SAID
    assert is_incomplete(early)


def test_a_store_of_which_only_the_log_holds_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "chats" / "h" / AGENT / "store.db"
    root = blob(node(blob(TALK[4])[0]))
    rows = store_rows([blob(TALK[4]), root], {"agentId": AGENT, "latestRootBlobId": root[0]})
    with held_open(path, "PRAGMA journal_mode = WAL", *STORE_TABLES, *rows):
        before = folder_bytes(path.parent)
        reader = detect(path)
        assert isinstance(reader, CursorDatabaseReader)
        assert said(read_all(reader, path, settled=False)) == [("user", "speech", "go on")]
        assert folder_bytes(path.parent) == before


def test_damaged_and_foreign_blobs_are_counted(tmp_path: Path) -> None:
    talk: list[Any] = [{"role": "user", "content": "hello"}, {"role": "user", "content": ["x"]}, {"todo": 1}]
    dropped: list[Any] = [b'{"role": "user", "cont', b"\x00\x01binary", {"role": "user", "content": "y" * 9000}]
    path = store(tmp_path / "store.db", talk, dropped=dropped)
    items = read_all(READER, path, max_line=5000)
    assert said(items) == [("user", "speech", "hello")]
    assert sorted(damaged(items)) == ["line too long", "message of unexpected shape", "not JSON"]
    assert skipped(items) == {"blob/binary": 1, "blob/json": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain <b>markup</b>", [("user", "speech", "plain <b>markup</b>")]),
        ("<git_status>x</git_status>\nwords",
         [("system", "injected", "<git_status>x</git_status>"), ("user", "speech", "words")]),
        ("<user_info>x</user_info>", [("system", "injected", "<user_info>x</user_info>")]),
        ("a<user_query>b</user_query>c<user_query>\nd\n</user_query>",
         [("system", "injected", "a"), ("user", "speech", "b"), ("system", "injected", "c"), ("user", "speech", "d")]),
        (" ", []),
    ],
)  # fmt: skip
def test_prompts_are_told_from_what_is_put_around_them(tmp_path: Path, text: str, expected: list[Any]) -> None:
    assert said(read_all(READER, store(tmp_path / "store.db", [{"role": "user", "content": text}]))) == expected


def test_the_agents_transcript_says_the_same_under_the_same_ids(tmp_path: Path) -> None:
    kept = read_all(READER, store(tmp_path / "store.db", TALK[1:]))
    blocks = [
        *TALK[1]["content"],
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}},
        {"type": "text", "text": "<user_query>go on</user_query>"},
        {"type": "text", "text": "Done."},
        {"type": "text", "text": "<user_query>go on</user_query>"},
    ]
    speakers = ["user", "assistant", "assistant", "user", "assistant", "user"]
    path = tmp_path / "agent-transcripts" / f"{AGENT}.jsonl"
    path.parent.mkdir()
    rows = [{"role": role, "message": {"content": [block]}} for role, block in zip(speakers, blocks, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader = detect(path)
    assert reader is not None
    told = read_all(reader, path)
    assert set(session_keys(told)) == set(session_keys(kept))
    assert ids(told) == [record.event_id for record in messages(kept) if record.metadata.get("kind") != "thinking"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("x", "x"),
        ({"type": "text", "value": "x"}, "x"),
        ([{"type": "text", "text": "x"}, {"type": "image", "mimeType": "image/png", "data": "AAAA"}],
         "x\n[image image/png, 3 bytes]"),
        ({"a": 1}, '{"a": 1}'),
        (None, ""),
    ],
)  # fmt: skip
def test_results_in_every_form(tmp_path: Path, result: Any, text: str) -> None:
    block = {"type": "tool-result", "toolCallId": "t", "toolName": "Read", "result": result, "isError": True}
    items = read_all(READER, store(tmp_path / "store.db", [{"role": "tool", "content": [block]}]))
    (answer,) = results(items)
    assert (answer.tool_result, answer.metadata["is_error"], answer.metadata["tool_name"]) == (text, True, "Read")


# The editor's chats


def state(path: Path, *entries: tuple[str, Any]) -> Path:
    rows = [
        ("INSERT INTO cursorDiskKV VALUES (?, ?)", [key, value if isinstance(value, str) else json.dumps(value)])
        for key, value in entries
    ]
    return make_database(path, *STATE_TABLES, *rows)


def chat(*names: str, **more: Any) -> tuple[str, dict[str, Any]]:
    headers = [{"bubbleId": name, "type": 1} for name in names]
    known = {"_v": 10, "composerId": CHAT, "createdAt": START, "fullConversationHeadersOnly": headers}
    return f"composerData:{CHAT}", {**known, **more}


def bubble(name: str, kind: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return f"bubbleId:{CHAT}:{name}", {"bubbleId": name, "type": kind, **more}


def called(status: str, **more: Any) -> dict[str, Any]:
    return {"name": "run_terminal_cmd", "toolCallId": "t1", "rawArgs": '{"command": "ls"}', "status": status, **more}


def test_a_chat_is_told_in_the_order_of_its_headers(tmp_path: Path) -> None:
    path = state(
        tmp_path / "state.vscdb",
        bubble("b3", 2, toolFormerData=called("completed", result="a.txt", userDecision="accepted")),
        bubble("b2", 2, text="I look.", thinking={"text": "ls"}, createdAt="2026-06-12T09:22:30.000Z",
               modelInfo={"modelName": "m-1"}, tokenCount={"inputTokens": 3, "outputTokens": 4}),
        bubble("b1", 1, text="List", workspaceUris=["file:///code/demo"], createdAt="2026-06-12T09:22:26.000Z"),
        chat("b1", "b2", "b3", "b4", name="Listing", modelConfig={"modelName": "m-0"}, createdOnBranch="main"),
    )  # fmt: skip
    reader = detect(path)
    assert isinstance(reader, CursorDatabaseReader)
    items = read_all(reader, path)
    assert said(items) == [
        ("user", "speech", "List"),
        ("assistant", "thinking", "ls"),
        ("assistant", "speech", "I look."),
        ("tool", "tool", ""),
    ]
    assert ids(items) == ["b1", "b2:thinking", "b2", "b3:tool"]
    assert set(session_keys(items)) == {f"cursor:{CHAT}"}
    assert skipped(items) == {"message that is gone": 1}
    assert title(items) == "Listing"
    known = settings(items)
    assert (known["cwd"], known["model"], known["git_branch"]) == ("/code/demo", "m-0", "main")
    thought, call = messages(items)[1], messages(items)[3]
    assert thought.metadata["usage"] == {"inputTokens": 3, "outputTokens": 4}
    assert (call.tool_name, call.tool_args, call.tool_result) == ("run_terminal_cmd", {"command": "ls"}, "a.txt")
    assert call.created_at == datetime(2026, 6, 12, 9, 22, 30, 0, UTC)
    assert call.metadata == {
        "kind": "tool",
        "call_id": "t1",
        "user_decision": "accepted",
        "tool_status": "completed",
        "session_sqlite_path": str(path),
        "session_sqlite_table": "cursorDiskKV",
        "session_sqlite_part_id": f"bubbleId:{CHAT}:b3",
        "session_host": HOST,
        "time_source": "position",
    }


def test_chats_of_older_versions_hold_their_messages_themselves(tmp_path: Path) -> None:
    told = [{"bubbleId": "b1", "type": 1, "text": "Hello"}, {"type": 2, "text": "Hi", "codeBlocks": [{"content": "x"}]}]
    more = {"b9": {"bubbleId": "b9", "type": 2, "text": "", "codeBlocks": [{"content": "print(1)"}]}}
    path = state(tmp_path / "state.vscdb", chat(conversation=told, conversationMap=more))
    items = read_all(READER, path)
    assert said(items) == [
        ("user", "speech", "Hello"),
        ("assistant", "speech", "Hi"),
        ("assistant", "speech", "print(1)"),
    ]
    assert ids(items) == ["b1", f"{CHAT}:1", "b9"]
    assert all("session_sqlite_path" not in record.metadata for record in messages(items))
    assert title(items) == "Hello"


def test_a_prompt_with_pictures_context_and_rich_text(tmp_path: Path) -> None:
    rich = {"root": {"children": [{"children": [{"text": "Look "}, {"text": "here"}]}]}}
    chunk = {"relativeWorkspacePath": "a.py", "lines": ["x = 1", "y = 2"]}
    images = [{"mimeType": "image/png", "data": "AAAA"}]
    path = state(
        tmp_path / "state.vscdb",
        chat("b1"),
        bubble("b1", 1, text="", richText=json.dumps(rich), attachedCodeChunks=[chunk], images=images),
    )
    items = read_all(READER, path)
    assert said(items) == [
        ("system", "injected", "a.py\nx = 1\ny = 2"),
        ("user", "speech", "Look here\n[image image/png, 3 bytes]"),
    ]
    assert ids(items) == ["b1:context:0", "b1"]


def test_what_went_wrong_is_kept(tmp_path: Path) -> None:
    error = json.dumps({"clientVisibleErrorMessage": "File not found"})
    path = state(
        tmp_path / "state.vscdb",
        chat("b1", "b2"),
        bubble("b1", 2, toolFormerData=called("error", error=error)),
        bubble("b2", 2, text="", errorDetails={"message": "Connection lost"}),
    )
    items = read_all(READER, path)
    call, notice = messages(items)
    assert (call.tool_result, call.metadata["is_error"]) == ("File not found", True)
    assert (notice.event_id, notice.role, notice.content) == ("b2:error", "system", "Connection lost")


def test_of_a_conversation_left_long_ago_what_was_being_written_is_given(tmp_path: Path) -> None:
    path = state(tmp_path / "state.vscdb", chat("b1", status="generating"), bubble("b1", 2, text="half an an"))
    items = read_all(READER, path, settled=False)
    assert said(items) == [("assistant", "speech", "half an an")]
    assert not is_incomplete(items)


def test_what_is_still_being_written_waits(tmp_path: Path) -> None:
    path = state(
        tmp_path / "state.vscdb",
        chat("b1", "b2", "b3", status="generating", lastUpdatedAt=time.time() * 1000),
        bubble("b1", 1, text="Go"),
        bubble("b2", 2, toolFormerData=called("loading")),
        bubble("b3", 2, text="half an an"),
    )
    early = read_all(READER, path, settled=False)
    assert said(early) == [("user", "speech", "Go")]
    assert is_incomplete(early)
    assert read_all(READER, path, abandoned=False) == early
    items = read_all(READER, path)
    assert counts(items) == {("user", "speech"): 1, ("tool", "tool"): 1, ("assistant", "speech"): 1}
    assert messages(items)[1].tool_result is None
    assert not is_incomplete(items)


def test_messages_without_a_header_or_a_chat_are_kept(tmp_path: Path) -> None:
    path = state(
        tmp_path / "state.vscdb",
        chat("b1"),
        bubble("b1", 1, text="Go"),
        bubble("b0", 1, text="taken back"),
        ("bubbleId:lost:b5", {"type": 1, "text": "still here"}),
        ("composerData:draft", {"composerId": "draft", "text": "half"}),
        ("composerData:gone", "null"),
        ("checkpointId:x", "{}"),
    )
    items = read_all(READER, path)
    assert list(zip(session_keys(items), said(items), strict=True)) == [
        (f"cursor:{CHAT}", ("user", "speech", "Go")),
        (f"cursor:{CHAT}", ("user", "speech", "taken back")),
        ("cursor:lost", ("user", "speech", "still here")),
    ]
    assert [record.metadata.get("off_path") for record in messages(items)] == [None, True, None]
    assert skipped(items) == {"conversation without messages": 1}


def test_damage_touches_nothing_else(tmp_path: Path) -> None:
    path = state(
        tmp_path / "state.vscdb",
        ("composerData:broken", '{"composerId": "brok'),
        chat("b1", "b2", "b3", "b4"),
        bubble("b1", 3, text="whose?"),
        (f"bubbleId:{CHAT}:b2", '{"type": 1, "te'),
        bubble("b3", 1, text="z" * 9000),
        bubble("b4", 1, text="after"),
    )
    items = read_all(READER, path, max_line=5000)
    assert said(items) == [("user", "speech", "after")]
    assert sorted(damaged(items)) == ["line too long", "message of unexpected shape", "not JSON", "not JSON"]


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    code = make_database(tmp_path / "state.vscdb", STATE_TABLES[0])
    notes = make_database(tmp_path / "notes.db", "CREATE TABLE blobs (id TEXT, body BLOB)", STORE_TABLES[1])
    plain = tmp_path / "chats" / "h" / "u" / "store.db"
    plain.parent.mkdir(parents=True)
    plain.write_text("no database")
    assert [detect(path) for path in (code, notes, plain)] == [None, None, None]


def test_the_sample_store_has_a_title_and_no_messages(shared_data: Path) -> None:
    path = shared_data / "transcripts" / "cursor" / "agent_store.db"
    reader = detect(path)
    assert isinstance(reader, CursorDatabaseReader)
    items = read_all(reader, path)
    assert (said(items), title(items)) == ([], "Test Session")
    assert settings(items)["session_id"] == "a1b2c3d4-e5f6-7890-abcd-ef1234567890"
