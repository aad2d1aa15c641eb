"""What becomes of a ChatGPT export."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers import detect
from rivet_pipeline.transcripts.readers.chatgpt import ChatGptReader
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head, Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionUpdate,
    Skipped,
)

Object = dict[str, Any]

#: 2026-01-01 00:00:00 UTC.
START = 1_767_225_600.0


def node(
    key: str,
    parent: str | None,
    role: str,
    content: Any,
    *,
    at: float | None = 0,
    name: str | None = None,
    recipient: str = "all",
    metadata: Object | None = None,
    **more: Any,
) -> tuple[str, Object]:
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    message = {
        "id": key,
        "author": {"role": role, "name": name, "metadata": {}},
        "create_time": None if at is None else START + at,
        "content": content,
        "status": "finished_successfully",
        "recipient": recipient,
        "metadata": metadata or {},
        **more,
    }
    return key, {"id": key, "message": message, "parent": parent, "children": []}


def conversation(*nodes: tuple[str, Any], current: str | None = None, **more: Any) -> Object:
    return {
        "title": "A talk",
        "create_time": START,
        "mapping": dict(nodes),
        "current_node": current or nodes[-1][0],
        "conversation_id": "c1",
        **more,
    }


def read(tmp_path: Path, document: Any, *, settled: bool = True, agent: str = "chatgpt") -> list[ReadItem]:
    path = tmp_path / "conversations.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return list(ChatGptReader().read(path, Reading(agent, settled=settled)))


def messages(items: list[ReadItem]) -> list[MessageRecord]:
    return [item.record for item in items if isinstance(item, Message)]


def said(items: list[ReadItem]) -> list[tuple[str, str, str]]:
    return [(record.role, record.metadata.get("kind", "speech"), record.content) for record in messages(items)]


def reasons(items: list[ReadItem]) -> list[str]:
    return [item.reason for item in items if isinstance(item, Damaged | Skipped)]


def counts(items: list[ReadItem]) -> Counter[tuple[str, str]]:
    return Counter((role, kind) for role, kind, _ in said(items))


ROOT = ("root", {"id": "root", "message": None, "parent": None, "children": ["q"]})
QUESTION = node("q", "root", "user", "Why?")
ANSWER = node("a", "q", "assistant", "Because.", at=1.5, metadata={"model_slug": "gpt-x"})


def test_a_conversation_carries_its_session_and_times(tmp_path: Path) -> None:
    items = read(tmp_path, [conversation(ROOT, QUESTION, ANSWER, default_model_slug="gpt-x", is_archived=True)])
    found = [item for item in items if isinstance(item, Message)]
    assert said(items) == [("user", "speech", "Why?"), ("assistant", "speech", "Because.")]
    assert {(item.session.session_key, item.session.agent, item.session.title) for item in found} == {
        ("chatgpt:c1", "chatgpt", "A talk")
    }
    assert found[0].session.settings == {
        "source": "chatgpt",
        "session_id": "c1",
        "file": str(tmp_path / "conversations.json"),
        "model": "gpt-x",
        "archived": True,
    }
    assert found[1].record == MessageRecord(
        "a",
        "assistant",
        "Because.",
        metadata={"model": "gpt-x"},
        created_at=datetime(2026, 1, 1, 0, 0, 1, 500_000, UTC),
    )
    assert reasons(items) == ["node without a message"]


def test_an_array_one_object_and_a_list_by_name_are_read_alike(tmp_path: Path) -> None:
    one = conversation(ROOT, QUESTION, ANSWER)
    expected = messages(read(tmp_path, [one]))
    assert messages(read(tmp_path, one)) == expected
    assert messages(read(tmp_path, {"conversations": [one]})) == expected
    assert len(expected) == 2


def test_other_branches_are_kept_and_marked(tmp_path: Path) -> None:
    other = node("a1", "q", "assistant", "Dunno.", at=1)
    deeper = node("q2", "a1", "user", "Really?", at=2)
    items = read(tmp_path, conversation(ROOT, QUESTION, ANSWER, other, deeper, current="a"))
    assert [(record.content, record.metadata.get("off_path", False)) for record in messages(items)] == [
        ("Why?", False),
        ("Dunno.", True),
        ("Really?", True),
        ("Because.", False),
    ]


@pytest.mark.parametrize("current", [None, "gone", 7])
def test_without_a_current_node_the_latest_leaf_counts(tmp_path: Path, current: Any) -> None:
    value = conversation(
        ROOT, QUESTION, node("late", "q", "assistant", "Late.", at=9), node("early", "q", "assistant", "Early.", at=3)
    )
    value["current_node"] = current
    off = {record.content for record in messages(read(tmp_path, value)) if record.metadata.get("off_path")}
    assert off == {"Early."}


def test_cycles_and_missing_nodes_lose_nothing(tmp_path: Path) -> None:
    nodes = [
        node("x", "y", "user", "in a cycle"),
        node("y", "x", "assistant", "with the other"),
        node("lost", "gone", "user", "without its parent", at=1),
        node("next", "lost", "assistant", "and what follows", at=2),
        node("self", "self", "user", "its own parent", at=3),
    ]
    items = read(tmp_path, conversation(*nodes, current="next"))
    assert {words for _, _, words in said(items)} == {
        "in a cycle",
        "with the other",
        "without its parent",
        "and what follows",
        "its own parent",
    }
    assert not any(record.metadata.get("off_path") for record in messages(items))


def test_lists_of_children_serve_where_parents_are_missing(tmp_path: Path) -> None:
    first, second = node("a", None, "assistant", "two", at=None), node("q", None, "user", "one", at=None)
    second[1]["children"] = ["a", 5]
    assert [words for _, _, words in said(read(tmp_path, conversation(first, second, current="a")))] == ["one", "two"]


def test_absent_times_keep_the_order(tmp_path: Path) -> None:
    untimed = conversation(
        node("s", None, "system", "Be kind.", at=None),
        node("q", "s", "user", "Why?", at=5),
        node("a", "q", "assistant", "Because.", at=None),
    )
    without = {**untimed, "conversation_id": "c2"}
    del without["create_time"], without["mapping"]["a"]["message"]["create_time"]
    items = read(tmp_path, [untimed, without, conversation(QUESTION, conversation_id="c3")])
    start = datetime.fromtimestamp(START, UTC)
    assert [(record.content, record.created_at) for record in messages(items)] == [
        ("Be kind.", start),
        ("Why?", start.replace(second=5)),
        ("Because.", None),
        ("Be kind.", start.replace(second=5)),
        ("Why?", start.replace(second=5)),
        ("Because.", None),
        ("Why?", start),
    ]
    assert messages(items)[0].metadata["time_source"] == "conversation"


@pytest.mark.parametrize(
    ("role", "content", "metadata", "expected"),
    [
        ("user", {"content_type": "text", "parts": ["a", "", "b"]}, {}, ("user", "speech", "a\nb")),
        ("user", "as it is", {}, ("user", "speech", "as it is")),
        ("user", "unseen", {"is_visually_hidden_from_conversation": True}, ("system", "injected", "unseen")),
        ("system", "instructions", {}, ("system", "injected", "instructions")),
        ("critic", "well", {}, ("system", "notice", "well")),
        (
            "user",
            {"content_type": "user_editable_context", "user_profile": "I am", "user_instructions": "be brief"},
            {},
            ("system", "injected", "I am\nbe brief"),
        ),
        (
            "assistant",
            {"content_type": "model_editable_context", "model_set_context": "likes tea"},
            {},
            ("system", "injected", "likes tea"),
        ),
        (
            "assistant",
            {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "first this"}, "x"]},
            {},
            ("assistant", "thinking", "Plan\nfirst this"),
        ),
        (
            "assistant",
            {"content_type": "reasoning_recap", "content": "Thought for 5s"},
            {},
            ("assistant", "thinking", "Thought for 5s"),
        ),
        ("assistant", {"content_type": "code", "language": "py", "text": "x=1"}, {}, ("assistant", "speech", "x=1")),
        (
            "assistant",
            {"content_type": "system_error", "name": "Timeout", "text": "too slow"},
            {},
            ("system", "notice", "Timeout\ntoo slow"),
        ),
        ("assistant", {"content_type": "brand_new", "text": "words"}, {}, ("assistant", "speech", "words")),
        (
            "user",
            {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "image_asset_pointer", "asset_pointer": "file://file-1", "size_bytes": 2048},
                    {"content_type": "audio_transcription", "text": "spoken"},
                    {
                        "content_type": "real_time_user_audio_video_asset_pointer",
                        "audio_asset_pointer": {"asset_pointer": "x://f2", "format": "wav"},
                    },
                    "look",
                ],
            },
            {"attachments": [{"id": "file-1", "name": "a"}, {"name": "b", "mime_type": "text/plain", "size": 9}]},
            (
                "user",
                "speech",
                "[image file://file-1, 2,048 bytes]\nspoken\n[audio x://f2, wav]\nlook\n[file b, text/plain, 9 bytes]",
            ),
        ),
    ],
)  # fmt: skip
def test_kinds_of_content(
    tmp_path: Path, role: str, content: Any, metadata: Object, expected: tuple[str, str, str]
) -> None:
    assert said(read(tmp_path, conversation(node("m", None, role, content, metadata=metadata)))) == [expected]


def test_a_call_is_joined_with_its_first_output(tmp_path: Path) -> None:
    quote = {"content_type": "tether_quote", "url": "u", "domain": "d", "text": "words", "title": "t"}
    display = {"content_type": "tether_browsing_display", "result": "found", "summary": "in short"}
    items = read(
        tmp_path,
        conversation(
            node("q", None, "user", "Search!"),
            node("c", "q", "assistant", '{"query": "tea"}', recipient="browser.search"),
            node("r", "c", "tool", display, name="browser", at=1),
            node("r2", "r", "tool", quote, name="browser", at=2),
            node("p", "r2", "assistant", {"content_type": "code", "text": "1/0"}, recipient="python", at=3),
            node("e", "p", "tool", {"content_type": "system_error", "name": "E", "text": "zero"}, name="python", at=4),
            node("open", "e", "assistant", "draw", recipient="dalle.text2im", at=5),
        ),
    )
    found = [
        (record.event_id, record.tool_name, record.tool_args, record.tool_result)
        for record in messages(items)
        if record.role == "tool"
    ]
    assert found == [
        ("c", "browser.search", {"query": "tea"}, "in short\nfound"),
        ("r2", "browser", None, "t\nu\nd\nwords"),
        ("p", "python", "1/0", "E\nzero"),
        ("open", "dalle.text2im", "draw", None),
    ]
    assert {record.metadata["kind"] for record in messages(items)[1:]} == {"tool"}
    assert messages(items)[1].metadata["result_message_id"] == "r"
    assert messages(items)[3].metadata["is_error"] is True


def test_the_output_on_the_current_path_is_the_calls(tmp_path: Path) -> None:
    output = {"content_type": "execution_output", "text": "old"}
    items = read(
        tmp_path,
        conversation(
            node("c", None, "assistant", "x", recipient="python"),
            node("r1", "c", "tool", output, name="python", at=1),
            node("r2", "c", "tool", {**output, "text": "new"}, name="python", at=2),
        ),
    )
    assert [(record.tool_result, record.metadata.get("off_path")) for record in messages(items)] == [
        ("new", None),
        ("old", True),
    ]


def test_damage_is_counted_and_touches_no_neighbour(tmp_path: Path) -> None:
    strange = conversation(
        QUESTION,
        ("n1", "text"),
        ("n2", {"message": 5, "parent": "q"}),
        ("n3", {"message": {"author": None, "content": None}, "parent": "q"}),
        ("n4", {"message": {"author": {"role": "user"}, "content": {"parts": "text"}}, "parent": ["q"]}),
        ANSWER,
    )
    items = read(tmp_path, [None, {"title": "x"}, {"mapping": []}, strange, conversation(QUESTION, title=None)])
    assert [words for _, _, words in said(items)] == ["Why?", "Because.", "Why?"]
    assert Counter(reasons(items)) == {
        "conversation without a tree of nodes": 3,
        "node of unexpected shape": 1,
        "message of unexpected shape": 1,
        "nobody without text": 1,
        "user without text": 1,
    }


def test_a_conversation_without_an_id_or_a_title_is_kept(tmp_path: Path) -> None:
    value = conversation(QUESTION, title=" ")
    del value["conversation_id"]
    items = read(tmp_path, value)
    [key] = {item.session.session_key for item in items if isinstance(item, Message)}
    assert len(key) == len("chatgpt:") + 32
    assert [item.session.title for item in items if isinstance(item, SessionUpdate)] == ["Why?"]
    assert [item.session.session_key for item in read(tmp_path, [value]) if isinstance(item, Message)] == [key]


def test_ids_are_unique_in_a_conversation(tmp_path: Path) -> None:
    twin = node("other", "q", "user", "Why?")
    twin[1]["message"]["id"] = "q"
    bare = node("bare", "other", "user", "Well?")
    del bare[1]["message"]["id"]
    items = read(tmp_path, conversation(QUESTION, twin, bare))
    assert [record.event_id for record in messages(items)] == ["q", "q:2", "bare"]


def test_a_beginning_gives_the_conversations_that_are_whole(tmp_path: Path) -> None:
    whole = json.dumps([conversation(QUESTION, ANSWER), conversation(QUESTION, conversation_id="c2")])
    for cut in (len(whole) // 3, len(whole) - 30, len(whole) - 1):
        items = read(tmp_path, whole[:cut], settled=False)
        expected = messages(read(tmp_path, whole))
        assert messages(items) == expected[: len(messages(items))]
        assert isinstance(items[-1], Incomplete)
    assert len(messages(read(tmp_path, whole[:-1], settled=False))) == 3


def test_one_conversation_waits_for_its_end(tmp_path: Path) -> None:
    whole = json.dumps(conversation(QUESTION, ANSWER))
    assert messages(read(tmp_path, whole[:-20], settled=False)) == []
    assert len(messages(read(tmp_path, whole[:-20]))) == 2


@pytest.mark.parametrize(
    ("document", "known"),
    [
        ([conversation(ROOT, QUESTION)], True),
        (conversation(ROOT, QUESTION), True),
        ([conversation(ROOT, node("q", "root", "user", "x" * 100_000))], True),
        ([{**conversation(ROOT), "mapping": {}}], True),
        ([{"uuid": "x", "name": "y", "chat_messages": []}], False),
        ({"name": "app", "version": "1.0.0", "dependencies": {}}, False),
        ({"version": 3, "mappings": "AAAA", "sources": []}, False),
        ({"index": {"mapping": {"properties": {"id": {"type": "keyword"}}}, "create_time": 1}}, False),
        ({"index": {"mapping": {"properties": {"message": {"type": "text"}}}, "create_time": 1}}, False),
        ([], False),
        ([1], False),
    ],
)
def test_it_is_recognised_by_content(tmp_path: Path, document: Any, known: bool) -> None:
    data = json.dumps(document).encode()[:HEAD_BYTES]
    assert ChatGptReader().sniff(Head(tmp_path / "conversations.json", data, whole=True)) is known


@pytest.mark.parametrize(
    ("name", "document", "harness"),
    [
        ("conversations.json", [conversation(ROOT, QUESTION)], "chatgpt"),
        ("conversations.json", [{"uuid": "c", "name": "x", "chat_messages": [{"uuid": "m"}]}], "claude-ai"),
        ("conversations.json", [{"id": 1, "messages": []}], None),
        ("package.json", {"name": "app", "version": "1.0.0", "scripts": {"test": "x"}}, None),
    ],
)
def test_exports_of_one_name_are_told_apart(tmp_path: Path, name: str, document: Any, harness: str | None) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(document))
    reader = detect(path)
    assert (reader.harness if reader else None) == harness


def sample(shared_data: Path, name: str) -> list[ReadItem]:
    return list(ChatGptReader().read(shared_data / "transcripts/chatgpt-export" / name, Reading("chatgpt")))


def test_the_real_export(shared_data: Path) -> None:
    items = sample(shared_data, "conversations_code-interpreter_real.json")
    # 45 nodes: a root, two empty system messages, 8 questions, 12 answers, 11 calls and their 11 outputs.
    assert counts(items) == {("user", "speech"): 8, ("assistant", "speech"): 12, ("tool", "tool"): 11}
    assert Counter(reasons(items)) == {"node without a message": 1, "system without text": 2}
    calls = [record for record in messages(items) if record.role == "tool"]
    assert [call.tool_result for call in calls[:3]] == ["0", "0", "1/3"]
    assert all(call.tool_name == "python" and call.tool_result for call in calls)
    times = [record.created_at for record in messages(items) if record.created_at]
    assert times == sorted(times)
    assert len(times) == 31


def test_the_export_with_empty_lists_of_children(shared_data: Path) -> None:
    items = sample(shared_data, "conversations_children-broken.json")
    assert counts(items) == {("user", "speech"): 21, ("assistant", "speech"): 14}
    assert len({item.session.session_key for item in items if isinstance(item, Message)}) == 7
    assert not any(record.metadata.get("off_path") for record in messages(items))
    assert [words for _, _, words in said(items)][:3] == [
        "Hi, what's up?",
        "I'm here to assist you. What would you like to know?",
        "How do you work?",
    ]


def test_the_sample_with_a_branch(shared_data: Path) -> None:
    items = sample(shared_data, "example_branch.json")
    assert counts(items) == {("user", "speech"): 3, ("assistant", "speech"): 2}
    off = [record.content for record in messages(items) if record.metadata.get("off_path")]
    assert off == ["Actually, can you help me with Python instead?"]


def test_the_sample_of_new_shapes(shared_data: Path) -> None:
    items = sample(shared_data, "native-conversation-v1.json")
    assert counts(items) == {
        ("system", "injected"): 1,
        ("user", "speech"): 1,
        ("assistant", "speech"): 2,
        ("assistant", "thinking"): 2,
        ("tool", "tool"): 1,
    }
    call = next(record for record in messages(items) if record.role == "tool")
    assert (call.tool_args, call.tool_result) == ({"query": "fixture evidence"}, "Privacy-safe tool result.")
