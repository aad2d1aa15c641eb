"""What becomes of a Claude.ai export."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers.claude_ai import ClaudeAiReader
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head, Reading
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

Object = dict[str, Any]


def message(uuid: str, sender: str, content: Any, **more: Any) -> Object:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {
        "uuid": uuid,
        "sender": sender,
        "text": "the flat text",
        "content": content,
        "created_at": "2026-01-01T10:00:00.123456Z",
        "attachments": [],
        "files": [],
        **more,
    }


def conversation(*chat: Any, **more: Any) -> Object:
    return {
        "uuid": "c1",
        "name": "A talk",
        "created_at": "2026-01-01T09:00:00+00:00",
        "updated_at": "2026-01-01T11:00:00Z",
        "account": {"uuid": "me"},
        "chat_messages": list(chat),
        **more,
    }


def read(tmp_path: Path, document: Any, *, settled: bool = True) -> list[ReadItem]:
    path = tmp_path / "conversations.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return list(ClaudeAiReader().read(path, Reading("claude-ai", settled=settled)))


def messages(items: list[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: list[ReadItem]) -> list[tuple[str, str, str]]:
    return [(record.role, record.metadata.get("kind", "speech"), record.content) for record in messages(items)]


def results(items: list[ReadItem]) -> list[tuple[str, str]]:
    return [(item.event_id, item.tool_result) for item in items if isinstance(item, ToolResult)]


def reasons(items: list[ReadItem]) -> list[str]:
    return [item.reason for item in items if isinstance(item, Damaged | Skipped)]


def counts(items: list[ReadItem]) -> Counter[tuple[str, str]]:
    return Counter((role, kind) for role, kind, _ in said(items))


HELLO = message("m1", "human", "Hello")


def test_a_conversation_carries_its_session_and_times(tmp_path: Path) -> None:
    items = read(tmp_path, [conversation(HELLO, model="claude-x", project={"uuid": "p", "name": "Tea"})])
    [found] = [item for item in items if isinstance(item, Message)]
    assert (found.session.session_key, found.session.agent, found.session.title) == (
        "claude-ai:c1",
        "claude-ai",
        "A talk",
    )
    assert found.session.settings == {
        "source": "claude-ai",
        "session_id": "c1",
        "file": str(tmp_path / "conversations.json"),
        "model": "claude-x",
        "project": "Tea",
    }
    assert found.record == MessageRecord(
        "m1",
        "user",
        "Hello",
        metadata={"message_id": "m1"},
        created_at=datetime(2026, 1, 1, 10, 0, 0, 123_456, UTC),
    )


def test_an_array_one_object_and_a_list_by_name_are_read_alike(tmp_path: Path) -> None:
    one = conversation(HELLO)
    assert (
        messages(read(tmp_path, [one]))
        == messages(read(tmp_path, one))
        == messages(read(tmp_path, {"conversations": [one]}))
    )
    assert len(messages(read(tmp_path, one))) == 1


def test_content_blocks_win_over_the_flat_text(tmp_path: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "summaries": []},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two", "citations": []},
        {"type": "token_budget"},
        {"type": "voice_note", "title": "t", "text": "spoken"},
    ]
    items = read(tmp_path, conversation(message("m1", "assistant", blocks, text="hm one two")))
    assert [(record.event_id, record.content) for record in messages(items)] == [
        ("m1", "hm"),
        ("m1:1", "one\ntwo\nspoken"),
    ]
    assert said(items)[0][:2] == ("assistant", "thinking")
    assert reasons(items) == ["content/token_budget"]
    old = {key: value for key, value in HELLO.items() if key != "content"}
    assert said(read(tmp_path, conversation(old))) == [("user", "speech", "the flat text")]


def test_thoughts_within_a_text_stand_apart(tmp_path: Path) -> None:
    text = "First.\n\n<antThinking>hm</antThinking>\n\n<antArtifact>code</antArtifact>"
    items = read(tmp_path, conversation(message("m1", "assistant", text), message("m2", "human", text)))
    assert said(items) == [
        ("assistant", "speech", "First."),
        ("assistant", "thinking", "hm"),
        ("assistant", "speech", "<antArtifact>code</antArtifact>"),
        ("user", "speech", text),
    ]


def test_calls_are_joined_with_their_results(tmp_path: Path) -> None:
    blocks = [
        {"type": "text", "text": "Look:"},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": 1}},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "found"}], "is_error": True},
        {"type": "tool_use", "name": "artifacts", "input": {"command": "create"}},
        {"type": "tool_result", "name": "artifacts", "content": "OK"},
        {"type": "tool_use", "name": "artifacts", "input": {"command": "create"}},
        {"type": "tool_result", "name": "unasked", "content": "alone"},
        {"type": "text", "text": "Done."},
    ]
    items = read(tmp_path, conversation(message("m1", "assistant", blocks)))
    calls = [record for record in messages(items) if record.role == "tool"]
    assert [(call.tool_name, call.tool_args) for call in calls] == [
        ("search", {"q": 1}),
        ("artifacts", {"command": "create"}),
        ("artifacts", {"command": "create"}),
    ]
    assert [words for _, kind, words in said(items) if kind == "speech"] == ["Look:", "Done."]
    assert results(items)[:2] == [("tool:t1", "found"), (calls[1].event_id, "OK")]
    assert results(items)[2][1] == "alone"
    assert len({record.event_id for record in messages(items)} | {event_id for event_id, _ in results(items)}) == 6
    assert next(item.metadata["is_error"] for item in items if isinstance(item, ToolResult)) is True


def test_attached_texts_are_injected_and_files_stand_as_placeholders(tmp_path: Path) -> None:
    attached = [
        {"file_name": "a.txt", "file_type": "txt", "file_size": 5, "extracted_content": "inside"},
        {"file_name": "b.bin", "file_type": "bin", "file_size": 2048, "extracted_content": ""},
        "strange",
    ]
    files = [{"file_kind": "image", "file_name": "c.png", "file_uuid": "f"}]
    items = read(
        tmp_path, conversation(message("m1", "human", "See.", attachments=attached, files=files, files_v2=files))
    )
    assert [(record.event_id, record.role, record.content) for record in messages(items)] == [
        ("m1:attachment:0", "system", "[file a.txt]\ninside"),
        ("m1", "user", "See.\n[file b.bin, bin, 2,048 bytes]\n[file]\n[image c.png]"),
    ]
    assert messages(items)[0].metadata == {"kind": "injected", "file_name": "a.txt", "message_id": "m1"}


def test_other_branches_are_kept_and_marked(tmp_path: Path) -> None:
    root = "00000000-0000-4000-8000-000000000000"
    chat = [
        message("m1", "human", "Why?", parent_message_uuid=root),
        message("m2", "assistant", "Dunno.", parent_message_uuid="m1"),
        message("m3", "assistant", "Because.", parent_message_uuid="m1"),
        message("m4", "human", "Other start", parent_message_uuid=root),
    ]
    items = read(tmp_path, conversation(*chat, current_leaf_message_uuid="m3"))
    off = [record.content for record in messages(items) if record.metadata.get("off_path")]
    assert off == ["Dunno.", "Other start"]
    items = read(tmp_path, conversation(*chat[:3]))
    assert [record.content for record in messages(items) if record.metadata.get("off_path")] == ["Dunno."]
    items = read(tmp_path, conversation(HELLO, message("m2", "assistant", "Hi"), current_leaf_message_uuid="m1"))
    assert not any(record.metadata.get("off_path") for record in messages(items))


def test_a_summary_is_kept(tmp_path: Path) -> None:
    items = read(tmp_path, conversation(HELLO, summary="They greeted."))
    assert said(items)[-1] == ("system", "summary", "They greeted.")
    assert messages(items)[-1].created_at == datetime(2026, 1, 1, 11, tzinfo=UTC)


def test_absent_times_and_names(tmp_path: Path) -> None:
    untimed = {key: value for key, value in HELLO.items() if key != "created_at"}
    items = read(tmp_path, conversation(untimed, {**untimed, "uuid": "m2"}, name=""))
    assert [record.created_at for record in messages(items)] == [datetime(2026, 1, 1, 9, tzinfo=UTC), None]
    assert messages(items)[0].metadata["time_source"] == "conversation"
    assert [item.session.title for item in items if isinstance(item, SessionUpdate)] == ["Hello"]


def test_ids_that_are_missing_are_made_of_content(tmp_path: Path) -> None:
    bare = {key: value for key, value in HELLO.items() if key != "uuid"}
    value = conversation(bare, bare)
    del value["uuid"]
    items = read(tmp_path, value)
    assert len({record.event_id for record in messages(items)}) == 2
    [key] = {item.session.session_key for item in items if isinstance(item, Message)}
    assert len(key) == len("claude-ai:") + 32
    assert messages(read(tmp_path, [value])) == messages(items)


@pytest.mark.parametrize(
    ("content", "words", "reason"),
    [
        (None, "the flat text", "message content is not a list"),
        ("bare", "bare\nthe flat text", "message content is not a list"),
        ("the flat text", "the flat text", "message content is not a list"),
        ({"type": "text"}, "the flat text", "message content is not a list"),
        ([{"type": "text", "text": None}], "the flat text", "text block without text"),
        ([{"type": "text", "text": 12}], "the flat text", "text block without text"),
        (["bare"], "the flat text", "text block without text"),
        ([{"type": "brand_new", "data": 1}], "the flat text", "content/brand_new"),
        ([{"type": "brand_new", "text": "words"}], "words", None),
        ([], "the flat text", None),
        ([{"type": "text", "text": ""}], "the flat text", None),
    ],
)
def test_a_wrong_content_is_counted_and_what_can_be_read_is_kept(
    tmp_path: Path, content: Any, words: str, reason: str | None
) -> None:
    items = read(tmp_path, conversation({**HELLO, "content": content}, message("m2", "human", "next")))
    assert [record.content for record in messages(items)] == [words, "next"]
    assert reasons(items) == ([reason] if reason else [])


def test_damage_is_counted_and_touches_no_neighbour(tmp_path: Path) -> None:
    strange = conversation(
        "text",
        {"uuid": "x", "sender": "robot", "text": "hi"},
        {"uuid": "y", "sender": ["human"]},
        {"uuid": "z", "sender": "human", "text": "  "},
        {**HELLO, "attachments": "none", "files": None},
        uuid="c2",
    )
    without = {"uuid": "c3", "name": "x"}
    items = read(tmp_path, [5, without, conversation(uuid="c4"), {**without, "chat_messages": {}}, strange])
    assert said(items) == [("user", "speech", "Hello")]
    assert Counter(reasons(items)) == {
        "conversation of unexpected shape": 1,
        "conversation without a list of messages": 2,
        "conversation without messages": 1,
        "message of unexpected shape": 1,
        "message of an unknown sender": 2,
        "user without text": 1,
    }


def test_projects_and_memories_are_kept_as_context(tmp_path: Path) -> None:
    project = {
        "uuid": "p1",
        "name": "Tea",
        "description": "All about tea",
        "is_private": True,
        "is_starter_project": False,
        "prompt_template": "Be brief.",
        "created_at": "2026-01-01T00:00:00Z",
        "docs": [{"uuid": "d1", "filename": "green.md", "content": "Green tea"}, None],
    }
    items = read(tmp_path, [project, {**project, "uuid": "p2", "description": "", "prompt_template": "", "docs": []}])
    assert said(items) == [
        ("system", "injected", "All about tea"),
        ("system", "injected", "Be brief."),
        ("system", "injected", "[file green.md]\nGreen tea"),
    ]
    assert {item.session.session_key for item in items if isinstance(item, Message)} == {"claude-ai:project:p1"}
    assert reasons(items) == ["empty project"]
    memories = {"conversations_memory": "Likes tea", "project_memories": {"p1": "Green"}, "account_uuid": "me"}
    for document in ([memories], memories):
        items = read(tmp_path, document)
        assert [words for _, _, words in said(items)] == ["Likes tea", "Green"]
        assert {item.session.session_key for item in items if isinstance(item, Message)} == {"claude-ai:memories:me"}


def test_a_beginning_gives_what_the_whole_gives(tmp_path: Path) -> None:
    chat = [message(f"m{number}", "human", f"words {number}") for number in range(3)]
    for document in (conversation(*chat), [conversation(*chat), conversation(HELLO, uuid="c2")]):
        whole = json.dumps(document)
        expected = messages(read(tmp_path, whole))
        for cut in range(1, len(whole), 13):
            items = read(tmp_path, whole[:cut], settled=False)
            assert messages(items) == expected[: len(messages(items))]
            assert any(isinstance(item, Incomplete) for item in items)
    cut_off = json.dumps(conversation(*chat))
    assert len(messages(read(tmp_path, cut_off[: cut_off.index("words 2")], settled=False))) == 2


def test_a_cut_conversation_waits_for_what_its_messages_belong_to(tmp_path: Path) -> None:
    value = conversation(HELLO, message("m2", "human", "again"))
    unnamed = json.dumps({"chat_messages": value["chat_messages"], **value})
    assert messages(read(tmp_path, unnamed[: unnamed.index('"uuid": "c1"')], settled=False)) == []
    forked = [{**HELLO, "uuid": uuid, "parent_message_uuid": "root"} for uuid in ("m1", "m2")]
    assert messages(read(tmp_path, json.dumps(conversation(*forked))[:-2], settled=False)) == []


@pytest.mark.parametrize(
    ("document", "known"),
    [
        ([conversation(HELLO)], True),
        (conversation(HELLO), True),
        ([conversation(message("m1", "human", "x" * 100_000))], True),
        ([{"uuid": "p", "name": "x", "is_starter_project": True, "prompt_template": "", "docs": []}], True),
        ([{"conversations_memory": "x", "account_uuid": "me"}], True),
        ([{"uuid": "u", "full_name": "Me", "email_address": "me@example.com"}], False),
        ({"invalid": "This is not a conversation"}, False),
        ([{"title": "x", "mapping": {}, "create_time": 1}], False),
        ({"name": "app", "version": "1.0.0", "dependencies": {}}, False),
        ("chat_messages", False),
        ([], False),
    ],
)
def test_it_is_recognised_by_content(tmp_path: Path, document: Any, known: bool) -> None:
    data = json.dumps(document).encode()[:HEAD_BYTES]
    assert ClaudeAiReader().sniff(Head(tmp_path / "conversations.json", data, whole=True)) is known


@pytest.mark.parametrize(
    ("name", "expected", "wrong"),
    [
        (
            # Two questions, the first with a picture, and two answers with a thought and an artefact in each.
            "claude-bakery-chat.json",
            {("user", "speech"): 2, ("assistant", "speech"): 4, ("assistant", "thinking"): 2},
            {},
        ),
        (
            "conversation-rendering-tests.json",
            {
                ("user", "speech"): 3,
                ("assistant", "speech"): 6,
                ("assistant", "thinking"): 1,
                ("tool", "tool"): 1,
                ("system", "summary"): 1,
            },
            {},
        ),
        (
            # Content that is null (3) and a string (6), text that is null (4) and a number (8), an unknown block (7).
            "conversation-with-errors.json",
            {
                ("user", "speech"): 3,
                ("assistant", "speech"): 6,
                ("assistant", "thinking"): 1,
                ("tool", "tool"): 1,
                ("system", "summary"): 1,
            },
            {"message content is not a list": 2, "text block without text": 2, "content/unknown_type": 1},
        ),
        (
            "conversations-multiple-errors.json",
            {("user", "speech"): 3, ("assistant", "speech"): 1},
            {
                "conversation without a list of messages": 1,
                "conversation without messages": 1,
                "message content is not a list": 2,
            },
        ),
        ("conversations.json", {("user", "speech"): 3, ("assistant", "speech"): 3}, {}),
        (
            "sample_conversations.json",
            {
                ("user", "speech"): 4,
                ("assistant", "speech"): 4,
                ("assistant", "thinking"): 1,
                ("tool", "tool"): 2,
            },
            {},
        ),
    ],
)
def test_the_samples(shared_data: Path, name: str, expected: dict[tuple[str, str], int], wrong: dict[str, int]) -> None:
    path = shared_data / "transcripts/claude-ai-export" / name
    items = list(ClaudeAiReader().read(path, Reading("claude-ai")))
    assert counts(items) == expected
    assert Counter(reasons(items)) == wrong
    ids = [(item.session.session_key, item.record.event_id) for item in items if isinstance(item, Message)]
    assert len(set(ids)) == len(ids)
