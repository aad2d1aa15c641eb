"""What the rows of an LCM store become: sessions, messages, times. No database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rivet_pipeline.transcripts.lcm import (
    ConversationMapper,
    LeftOut,
    Moved,
    is_archived,
    make_session,
    order_times,
    read_files,
    read_time,
)
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult

NOW = datetime(2026, 3, 10, tzinfo=UTC)
AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
SESSION = SessionRecord("lcm:s:1", "vale", "lcm")


def mapper(files: dict[str, dict[str, Any]] | None = None) -> ConversationMapper:
    return ConversationMapper(SESSION, files or {})


def message(number: int, role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"message_id": number, "seq": number, "role": role, "content": content, **more}


def part(ordinal: int, part_type: str, **more: Any) -> dict[str, Any]:
    return {"part_id": f"p{ordinal}", "ordinal": ordinal, "part_type": part_type, **more}


def take(row: dict[str, Any], *parts: dict[str, Any], using: ConversationMapper | None = None) -> Moved:
    found = (using or mapper()).take(row, parts, AT)
    assert isinstance(found, Moved)
    return found


def records(moved: Moved) -> list[MessageRecord]:
    return [item for item in moved.items if isinstance(item, MessageRecord)]


def test_words_alone_are_one_row_of_the_speaker() -> None:
    moved = take(message(7, "user", "hello"), part(0, "text", text_content="hello"))
    (record,) = records(moved)
    assert (record.event_id, record.role, record.content, record.created_at) == ("lcm:7", "user", "hello", AT)
    assert dict(record.metadata) == {"lcm_id": "7", "lcm_seq": "7"}
    assert moved.rows == ("lcm:7",)


def test_thought_words_and_call_stay_in_order_and_the_words_stand_for_the_message() -> None:
    moved = take(
        message(7, "assistant", "I look."),
        part(0, "reasoning", text_content="Why though"),
        part(1, "text", text_content="I look."),
        part(2, "tool", tool_call_id="c", tool_name="exec", tool_input='{"command": "ls"}'),
    )
    assert [(r.event_id, r.role, r.content, r.metadata.get("kind")) for r in records(moved)] == [
        ("lcm:7:0", "assistant", "Why though", "thinking"),
        ("lcm:7", "assistant", "I look.", None),
        ("lcm:7:2", "tool", "", "tool"),
    ]
    assert records(moved)[2].tool_args == {"command": "ls"}
    assert (moved.main, moved.rows) == ("lcm:7", ("lcm:7:0", "lcm:7", "lcm:7:2"))


def test_without_words_the_first_row_stands_for_the_message() -> None:
    moved = take(message(7, "assistant", ""), part(0, "tool", tool_call_id="c", tool_name="exec", tool_input="{}"))
    assert (moved.main, moved.rows) == ("lcm:7", ("lcm:7",))


def test_a_result_fills_the_row_of_its_call() -> None:
    using = mapper()
    call = part(0, "tool", tool_call_id="c", tool_name="exec", tool_input="{}")
    take(message(7, "assistant", ""), call, using=using)
    moved = take(
        message(8, "tool", "two files"),
        part(0, "text", text_content="two files", tool_call_id="c", tool_name="exec"),
        using=using,
    )
    (item,) = moved.items
    assert isinstance(item, ToolResult)
    assert (item.event_id, item.tool_result) == ("lcm:7", "two files")
    assert item.metadata["lcm_result_id"] == "8"
    assert (moved.result, moved.main, moved.rows) == (True, "lcm:7", ("lcm:7",))


def test_a_call_id_that_comes_again_goes_with_its_latest_call() -> None:
    using = mapper()
    events = []
    for number in (1, 3):
        take(message(number, "assistant", ""), part(0, "tool", tool_call_id="c", tool_name="exec"), using=using)
        answer = message(number + 1, "tool", f"answer {number}")
        (item,) = take(answer, part(0, "text", tool_call_id="c"), using=using).items
        assert isinstance(item, ToolResult)
        events.append((item.event_id, item.tool_result))
    assert events == [("lcm:1", "answer 1"), ("lcm:3", "answer 3")]


def test_a_result_without_its_call_is_a_row_of_its_own() -> None:
    moved = take(message(8, "tool", "two files"), part(0, "text", tool_call_id="gone", tool_name="exec"))
    (record,) = records(moved)
    assert (record.event_id, record.role, record.content) == ("lcm:8", "tool", "")
    assert (record.tool_name, record.tool_result, record.metadata["kind"]) == ("exec", "two files", "tool")


def test_a_call_with_its_output_in_one_part_keeps_both() -> None:
    error = part(1, "tool", tool_name="exec", tool_error="exit 2")
    moved = take(message(7, "assistant", ""), part(0, "tool", tool_name="read", tool_output='"line 1"'), error)
    assert [(r.tool_name, r.tool_result, r.metadata.get("is_error")) for r in records(moved)] == [
        ("read", "line 1", None),
        ("exec", "exit 2", True),
    ]


def test_result_blocks_give_their_text() -> None:
    blocks = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
    raw = json.dumps({"rawType": "tool_result", "raw": {"type": "tool_result", "content": blocks}})
    moved = take(message(7, "user", ""), part(0, "tool", tool_call_id="gone", metadata=raw))
    assert [r.tool_result for r in records(moved)] == ["first\nsecond"]


def test_input_that_is_no_json_is_kept_as_text_and_noted() -> None:
    moved = take(message(7, "assistant", ""), part(0, "tool", tool_name="exec", tool_input='{"command": '))
    assert records(moved)[0].tool_args == '{"command": '
    assert moved.notes == ("tool input is no JSON, or nested too deeply: kept as text",)


def test_metadata_that_is_no_json_is_noted_and_the_part_is_kept() -> None:
    moved = take(message(7, "assistant", ""), part(0, "tool", tool_name="exec", tool_input="{}", metadata="{oops"))
    assert records(moved)[0].tool_name == "exec"
    assert moved.notes == ("metadata of a part is no JSON, left out",)


def test_input_that_is_nested_too_deeply_is_kept_as_text() -> None:
    shallow, deep = "[" * 99 + "1" + "]" * 99, "[" * 700 + "]" * 700
    moved = take(message(7, "assistant", ""), part(0, "tool", tool_name="a", tool_input=shallow))
    assert (moved.notes, isinstance(records(moved)[0].tool_args, list)) == ((), True)
    assert records(take(message(7, "assistant", ""), part(0, "tool", tool_input=deep)))[0].tool_args == deep


@pytest.mark.parametrize("content", [None, "", "  \n"])
def test_a_message_that_says_nothing_is_left_out(content: str | None) -> None:
    found = mapper().take(message(7, "user", content), [part(0, "step_start")], AT)
    assert found == LeftOut("empty: no content and no part that says anything")


def test_null_content_with_text_parts_is_what_the_parts_say() -> None:
    moved = take(message(7, "user", None), part(0, "text", text_content="a"), part(1, "text", text_content="b"))
    assert [r.content for r in records(moved)] == ["a\nb"]


def test_words_that_the_content_lacks_get_a_row() -> None:
    moved = take(message(7, "user", "[stub]"), part(0, "text", text_content="the whole"))
    assert [(r.event_id, r.content) for r in records(moved)] == [("lcm:7", "[stub]"), ("lcm:7:0", "the whole")]


def test_parts_that_say_all_of_the_content_and_more_are_what_was_said() -> None:
    moved = take(message(7, "user", "hi"), part(0, "text", text_content='{"text": "hi", "from": "Ada"}'))
    assert [(r.event_id, r.content) for r in records(moved)] == [("lcm:7", '{"text": "hi", "from": "Ada"}')]


def test_a_larger_copy_of_the_content_is_what_was_said() -> None:
    assert records(take(message(7, "user", "short", large_content="the long text")))[0].content == "the long text"


def test_suppressed_words_stay_suppressed() -> None:
    found = mapper().take(message(7, "user", "secret", suppressed_at="2026-03-01"), [], AT)
    assert found == LeftOut("suppressed in the source")


def test_system_words_are_a_notice_and_runtime_context_is_injected() -> None:
    assert records(take(message(1, "system", "Model changed")))[0].metadata["kind"] == "notice"
    leak = "OpenClaw runtime context for the immediately preceding user message. More."
    assert records(take(message(2, "assistant", leak)))[0].metadata["kind"] == "injected"


def test_an_unknown_role_is_kept_as_system_and_noted() -> None:
    moved = take(message(1, "developer", "Be brief"))
    assert (records(moved)[0].role, records(moved)[0].metadata["lcm_role"]) == ("system", "developer")
    assert moved.notes == ("unknown role, kept as system",)


def test_a_picture_is_a_placeholder_without_its_bytes() -> None:
    raw = {"type": "image", "source": {"media_type": "image/png", "data": "QUJD" * 100}}
    picture = part(0, "file", metadata=json.dumps({"raw": raw}))
    assert records(take(message(1, "user", ""), picture))[0].content == "[image image/png, 300 bytes]"
    with_words = records(take(message(2, "user", "see"), picture))
    assert [r.content for r in with_words] == ["see"]
    assert with_words[0].metadata["files"] == ["[image image/png, 300 bytes]"]


def test_parts_without_words_stay_in_the_metadata() -> None:
    parts = [part(0, "step_finish", step_reason="stop", step_cost=0.5), part(1, "patch", patch_hash="abc")]
    marks = records(take(message(1, "assistant", "done"), *parts))[0].metadata["lcm_marks"]
    assert marks == [
        {"type": "step_finish", "step_reason": "stop", "step_cost": 0.5},
        {"type": "patch", "patch_hash": "abc"},
    ]


def test_reasoning_beside_the_blocks_is_a_thought() -> None:
    about = json.dumps({"topLevelReasoningField": "reasoning_content", "topLevelReasoningContent": "hm"})
    moved = take(message(1, "assistant", "ok"), part(0, "text", text_content="ok", metadata=about))
    assert [(r.event_id, r.content, r.metadata.get("kind")) for r in records(moved)] == [
        ("lcm:1", "ok", None),
        ("lcm:1:reasoning", "hm", "thinking"),
    ]


def test_a_large_file_is_named_where_it_is_mentioned() -> None:
    row = {"file_id": "file_00112233aabbccdd", "file_name": "a.log", "storage_uri": "/x/a.log", "byte_size": 9}
    moved = take(message(1, "user", "[LCM File: file_00112233AABBCCDD | a.log]"), using=mapper(read_files([row])))
    assert records(moved)[0].metadata["lcm_files"] == [
        {"id": "file_00112233aabbccdd", "name": "a.log", "uri": "/x/a.log", "bytes": 9}
    ]


@pytest.mark.parametrize(
    ("row", "agent", "key", "whose"),
    [
        ({"conversation_id": 3, "session_id": "s"}, None, "lcm:s:3", "openclaw"),
        ({"conversation_id": 3, "session_id": "s", "session_key": "agent:vale:main"}, None, "lcm:s:3", "vale"),
        ({"conversation_id": 3, "session_id": "s", "agent_id": "opus"}, None, "lcm:s:3", "opus"),
        ({"conversation_id": 3, "session_id": "s", "agent_id": "opus"}, "me", "lcm:s:3", "me"),
        ({"conversation_id": 3, "session_id": "s", "session_key": "codex:9f"}, None, "codex:9f", "openclaw"),
        ({"conversation_id": None}, None, "lcm:none", "openclaw"),
    ],
)
def test_session_keys_and_agents(row: dict[str, Any], agent: str | None, key: str, whose: str) -> None:
    session = make_session(row, agent=agent, files={})
    assert (session.session_key, session.agent) == (key, whose)


@pytest.mark.parametrize(
    ("active", "expected"), [(1, False), (0, True), ("true", False), ("false", True), (None, False)]
)
def test_archived_in_either_spelling(active: Any, expected: bool) -> None:
    assert is_archived({"active": active}) is expected


@pytest.mark.parametrize(
    "value",
    [
        "2026-03-02 09:00:00",
        "2026-03-02T09:00:00.000Z",
        "2026-03-02 09:00:00+00",
        "2026-03-02 10:00:00+01:00",
        1772442000,
        1772442000000,
        1772442000000000,
        "1772442000",
        "1772442000000",
    ],
)
def test_times_in_every_spelling(value: Any) -> None:
    assert read_time(value, NOW) == AT


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "soon",
        "0001-01-01 00:00:00",
        "20000-01-01 00:00:00+00",
        "infinity",
        -5,
        9e30,
        "2027-01-01",
        True,
        b"x",
    ],
)
def test_absurd_times_are_none(value: Any) -> None:
    assert read_time(value, NOW) is None


def minutes(*values: int | None) -> list[datetime | None]:
    return [None if value is None else AT + timedelta(minutes=value) for value in values]


@pytest.mark.parametrize(
    ("stated", "placed"),
    [
        ([0, 1, 1, 2], [0, 1, 1, 2]),
        ([0, None, 2], [0, 0, 2]),
        ([None, 5], [3, 5]),
        ([None, 1], [1, 1]),
        # One clock that ran ahead does not take the others with it.
        ([0, 1, 900, 2, 3], [0, 1, 1, 2, 3]),
        ([5, 6, 0, 7], [5, 6, 6, 7]),
        ([None, None], [3, 3]),
        ([], []),
    ],
)
def test_order_is_kept_and_few_times_give_way(stated: list[int | None], placed: list[int | None]) -> None:
    assert order_times(minutes(*stated), AT + timedelta(minutes=3)) == minutes(*placed)


def test_without_any_time_there_is_none() -> None:
    assert order_times([None], None) == [None]
