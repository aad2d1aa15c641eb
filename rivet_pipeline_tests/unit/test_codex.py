"""What each kind of Codex row becomes, and that what is said twice stands once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rivet_pipeline.transcripts.readers.codex import CodexReader
from rivet_pipeline.transcripts.readers.shared import HOST
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Message,
    MessageRecord,
    ReadItem,
    SessionUpdate,
    Skipped,
    ToolResult,
)

Rows = list[dict[str, Any]]

NATIVE = "019fc8be-3658-7ca3-9e29-000000000001"
PARENT = "019fc8be-0000-7ca3-9e29-000000000002"
START = datetime(2026, 3, 1, 9, 0, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def wrap(kind: str, payload: dict[str, Any], seconds: float = 0) -> dict[str, Any]:
    return {"timestamp": at(seconds), "type": kind, "payload": payload}


def meta(native: str = NATIVE, seconds: float = 0, **more: Any) -> dict[str, Any]:
    payload = {
        "id": native,
        "timestamp": at(seconds),
        "cwd": "/app",
        "cli_version": "0.50.0",
        "git": {"branch": "main"},
    }
    return wrap("session_meta", {**payload, **more}, seconds)


def item(seconds: float = 0, **payload: Any) -> dict[str, Any]:
    return wrap("response_item", payload, seconds)


def event(kind: str, seconds: float = 0, **payload: Any) -> dict[str, Any]:
    return wrap("event_msg", {"type": kind, **payload}, seconds)


def user(words: str, seconds: float = 0, **more: Any) -> dict[str, Any]:
    return item(seconds, type="message", role="user", content=[{"type": "input_text", "text": words}], **more)


def assistant(words: str, seconds: float = 0, **more: Any) -> dict[str, Any]:
    return item(seconds, type="message", role="assistant", content=[{"type": "output_text", "text": words}], **more)


def read_all(tmp_path: Path, rows: Rows, name: str = "rollout.jsonl") -> list[ReadItem]:
    path = tmp_path / name
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
    return list(CodexReader().read(path, Reading("rivet-gpt")))


def messages(items: list[ReadItem]) -> list[MessageRecord]:
    return [found.record for found in items if isinstance(found, Message)]


def said(items: list[ReadItem]) -> list[tuple[str, str, str]]:
    return [(record.role, record.metadata.get("kind", "speech"), record.content) for record in messages(items)]


def results(items: list[ReadItem]) -> list[ToolResult]:
    return [found for found in items if isinstance(found, ToolResult)]


def titles(items: list[ReadItem]) -> list[str]:
    return [found.session.title for found in items if isinstance(found, SessionUpdate) and found.session.title]


def test_a_message_carries_session_time_model_and_place(tmp_path: Path) -> None:
    rows = [meta(), wrap("turn_context", {"model": "gpt-x", "cwd": "/app/lib"}, 1), user("Fix it", 2, id="msg-1")]
    items = read_all(tmp_path, rows)
    found = next(entry for entry in items if isinstance(entry, Message))
    assert (found.session.session_key, found.session.channel, found.session.agent) == (
        f"codex:{NATIVE}",
        "codex",
        "rivet-gpt",
    )
    assert found.session.settings == {
        "source": "codex",
        "session_id": NATIVE,
        "file": str(tmp_path / "rollout.jsonl"),
        "cwd": "/app",
        "git_branch": "main",
        "version": "0.50.0",
    }
    assert found.record.created_at == START + timedelta(seconds=2)
    assert found.record.metadata == {
        "cwd": "/app/lib",
        "git_branch": "main",
        "version": "0.50.0",
        "model": "gpt-x",
        "message_id": "msg-1",
        "session_jsonl_path": str(tmp_path / "rollout.jsonl"),
        "session_jsonl_line": 2,
        "session_host": HOST,
    }
    assert titles(items) == ["Fix it"]


BOTH = [
    (user("hello"), event("user_message", message="hello")),
    (assistant("hi there"), event("agent_message", message="hi there")),
    (assistant("hi there"), event("task_complete", last_agent_message="hi there")),
    (
        item(type="reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="gAAAA"),
        event("agent_reasoning", text="hm"),
    ),
    (user("hello"), event("item_completed", item={"type": "UserMessage", "content": [{"text": "hello"}]})),
]


@pytest.mark.parametrize("pair", BOTH, ids=["user", "assistant", "complete", "reasoning", "item"])
def test_each_form_alone_or_both_in_either_order_say_it_once_with_one_id(
    tmp_path: Path, pair: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    response, told = pair
    filler = [event("token_count"), item(type="ghost_snapshot")]
    forms = [[response], [told], [response, *filler, told], [told, *filler, response]]
    ids = [[record.event_id for record in messages(read_all(tmp_path, [meta(), *rows]))] for rows in forms]
    assert all(found == ids[0] for found in ids)
    assert len(ids[0]) == 1


def test_the_same_words_said_again_are_said_again(tmp_path: Path) -> None:
    turn = [
        user("go on"),
        event("user_message", message="go on"),
        event("agent_message", message="ok"),
        assistant("ok"),
    ]
    items = read_all(tmp_path, [meta(), *turn, *turn, *turn])
    assert [words for _, _, words in said(items)] == ["go on", "ok"] * 3
    assert len({record.event_id for record in messages(items)}) == 6


def test_a_thought_and_an_answer_of_the_same_words_are_two(tmp_path: Path) -> None:
    items = read_all(tmp_path, [meta(), event("agent_reasoning", text="Done."), assistant("Done.")])
    assert [kind for _, kind, _ in said(items)] == ["thinking", "speech"]


def test_a_file_that_has_grown_gives_the_same_ids(tmp_path: Path) -> None:
    start = [meta(), user("hello"), event("agent_reasoning", text="hm")]
    grown = [*start, item(type="reasoning", summary=[{"text": "hm"}, {"text": "and"}]), assistant("hi")]
    before, after = messages(read_all(tmp_path, start)), messages(read_all(tmp_path, grown))
    assert [record.event_id for record in after][: len(before)] == [record.event_id for record in before]
    assert [record.content for record in after] == ["hello", "hm", "and", "hi"]


@pytest.mark.parametrize(
    ("prompt", "kinds", "speech"),
    [
        ("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>", ["injected"], ""),
        ("<user_instructions>\nbe brief\n</user_instructions>", ["injected"], ""),
        ("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nbe brief\n</INSTRUCTIONS>", ["injected"], ""),
        (
            "# Context from my IDE setup:\n\n## Open tabs:\n- a.ts\n\n## My request for Codex:\nMake it faster\n",
            ["injected", "speech"],
            "Make it faster",
        ),
        ("# Context from my IDE setup:\n\n## Open tabs:\n- a.ts\n", ["injected"], ""),
        ("<turn_aborted>\nthe user stopped\n</turn_aborted>", ["notice"], ""),
        ("<button>does not work", ["speech"], "<button>does not work"),
        ("<b>x</b> is bold", ["speech"], "<b>x</b> is bold"),
    ],
)
def test_the_request_is_told_from_what_is_glued_to_it(
    tmp_path: Path, prompt: str, kinds: list[str], speech: str
) -> None:
    items = read_all(tmp_path, [meta(), user(prompt), event("user_message", message=prompt)])
    assert [kind for _, kind, _ in said(items)] == kinds
    assert "".join(words for role, _, words in said(items) if role == "user") == speech
    assert titles(items) == ([speech] if speech else [])


def test_developers_are_no_users(tmp_path: Path) -> None:
    content = [{"type": "input_text", "text": "rules"}]
    assert said(read_all(tmp_path, [meta(), item(type="message", role="developer", content=content)])) == [
        ("system", "injected", "rules")
    ]


def test_a_picture_is_a_placeholder_of_its_own(tmp_path: Path) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 4000}
    prompt = item(type="message", role="user", content=[{"type": "input_text", "text": "look"}, picture])
    rows = [meta(), prompt, event("user_message", message="look", images=[picture["image_url"]])]
    assert [words for _, _, words in said(read_all(tmp_path, rows))] == ["look", "[image image/png, 3,000 bytes]"]


def test_encrypted_reasoning_is_left_out(tmp_path: Path) -> None:
    items = read_all(tmp_path, [meta(), item(type="reasoning", summary=[], content=None, encrypted_content="gAAAA")])
    assert messages(items) == []
    assert [found.reason for found in items if isinstance(found, Skipped)] == ["response_item/reasoning"]


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        ({"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}'}, "shell", {"command": ["ls"]}),
        ({"type": "function_call", "name": "shell", "arguments": {"a": 1}}, "shell", {"a": 1}),
        ({"type": "function_call", "name": "shell", "arguments": "{broken"}, "shell", "{broken"),
        ({"type": "function_call", "name": "go", "namespace": "browser", "arguments": "{}"}, "browser.go", {}),
        ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"}, "apply_patch", "*** Begin"),
        ({"type": "local_shell_call", "action": {"command": ["ls"]}}, "local_shell", {"command": ["ls"]}),
        ({"type": "web_search_call", "action": {"query": "q"}}, "web_search", {"query": "q"}),
    ],
)
def test_calls(tmp_path: Path, call: dict[str, Any], name: str, arguments: Any) -> None:
    [record] = messages(read_all(tmp_path, [meta(), item(call_id="c1", **call)]))
    assert (record.event_id, record.role, record.content) == ("call:c1", "tool", "")
    assert (record.tool_name, record.tool_args, record.metadata["kind"]) == (name, arguments, "tool")


@pytest.mark.parametrize(
    ("output", "expected", "failed"),
    [
        ("Plan updated", "Plan updated", None),
        ('{"output":"a\\nb","metadata":{"exit_code":0}}', "a\nb", None),
        ('{"output":"boom","metadata":{"exit_code":2}}', "boom", True),
        ('{"not":"ours"}', '{"not":"ours"}', None),
        ("{broken", "{broken", None),
        ({"type": "input_text", "text": "x"}, "x", None),
        ({"content": "no", "success": False}, "no", True),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb", None),
    ],
)
def test_outputs(tmp_path: Path, output: Any, expected: str, failed: bool | None) -> None:
    call = item(type="function_call", call_id="c1", name="x", arguments="{}")
    rows = [meta(), call, item(type="function_call_output", call_id="c1", output=output)]
    [result] = results(read_all(tmp_path, rows))
    assert (result.event_id, result.tool_result, result.metadata.get("is_error")) == ("call:c1", expected, failed)


def test_an_end_event_speaks_only_for_a_call_that_no_item_told_of(tmp_path: Path) -> None:
    ended = event("exec_command_end", call_id="c1", command=["ls"], aggregated_output="files", exit_code=1)
    [record] = messages(read_all(tmp_path, [meta(), ended]))
    assert (record.event_id, record.tool_name, record.tool_result) == ("call:c1", "exec_command", "files")
    assert record.metadata["is_error"] is True
    call = item(type="function_call", call_id="c1", name="shell", arguments="{}")
    output = item(type="function_call_output", call_id="c1", output="files")
    items = read_all(tmp_path, [meta(), call, ended, output])
    assert [found.tool_name for found in messages(items)] == ["shell"]
    assert [found.tool_result for found in results(items)] == ["files"]


def test_tool_servers_and_their_errors(tmp_path: Path) -> None:
    invocation = {"server": "docs", "tool": "find", "arguments": {"q": 1}}
    good = {"Ok": {"content": [{"type": "text", "text": "found"}], "isError": False}}
    rows = [
        meta(),
        event("mcp_tool_call_end", call_id="c1", invocation=invocation, result=good),
        event("mcp_tool_call_end", call_id="c2", invocation=invocation, result={"Err": "gone"}),
    ]
    found = messages(read_all(tmp_path, rows))
    assert [(record.tool_name, record.tool_args, record.tool_result) for record in found] == [
        ("docs.find", {"q": 1}, "found"),
        ("docs.find", {"q": 1}, "gone"),
    ]
    assert [record.metadata.get("is_error") for record in found] == [None, True]


def test_the_form_without_envelopes(tmp_path: Path) -> None:
    rows: Rows = [
        {"id": NATIVE, "timestamp": at(0), "instructions": None, "git": {"branch": "old"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"created_at": at(3), "role": "assistant", "content": "done", "model": "m"},
        {"created_at": at(4), "type": "function_call", "function": {"name": "translate"}, "arguments": {"to": "es"}},
        {"created_at": at(5), "type": "function_result", "name": "translate", "result": "hola"},
        {"timestamp": at(6), "type": "error", "text": "simulated"},
    ]
    items = read_all(tmp_path, rows)
    assert {found.session.session_key for found in items if isinstance(found, Message)} == {f"codex:{NATIVE}"}
    assert [(role, kind) for role, kind, _ in said(items)] == [
        ("user", "speech"),
        ("tool", "tool"),
        ("assistant", "speech"),
        ("tool", "tool"),
        ("system", "notice"),
    ]
    assert [found.tool_result for found in results(items)] == ["ok", "hola"]
    assert results(items)[1].event_id == messages(items)[3].event_id
    assert messages(items)[2].created_at == START + timedelta(seconds=3)


def test_a_session_without_a_first_row_is_named_by_its_file(tmp_path: Path) -> None:
    items = read_all(tmp_path, [user("hi")], f"rollout-2026-03-01T09-00-00-{NATIVE}.jsonl")
    assert next(found for found in items if isinstance(found, Message)).session.session_key == f"codex:{NATIVE}"


def test_the_first_session_row_wins(tmp_path: Path) -> None:
    items = read_all(tmp_path, [meta(), meta("another"), user("hi")])
    assert {found.session.session_key for found in items if isinstance(found, Message)} == {f"codex:{NATIVE}"}


def turn(number: int, seconds: float, turn_id: str | None = None) -> Rows:
    more = {"metadata": {"turn_id": turn_id}} if turn_id else {}
    return [
        user(f"question {number}", seconds, **more),
        event("user_message", seconds, message=f"question {number}"),
        item(seconds, type="function_call", call_id=f"c{number}", name="x", arguments="{}", **more),
        item(seconds, type="function_call_output", call_id=f"c{number}", output="y", **more),
        assistant(f"answer {number}", seconds, **more),
    ]


def test_a_forks_copied_history_is_a_replay_and_its_own_turn_is_speech(tmp_path: Path) -> None:
    rows = [meta(forked_from_id=PARENT), *turn(1, 0.01), *turn(2, 0.02), *turn(3, 0.03), *turn(4, 60)]
    items = read_all(tmp_path, rows)
    spoken = [words for _, kind, words in said(items) if kind == "speech"]
    assert spoken == ["question 4", "answer 4"]
    assert len([record for record in messages(items) if record.metadata.get("kind") == "replay"]) == 9
    assert titles(items) == ["question 4"]
    assert next(f for f in items if isinstance(f, Message)).session.settings["parent_session_id"] == PARENT


def made_at(seconds: float) -> str:
    milliseconds = int((START + timedelta(seconds=seconds)).timestamp() * 1000)
    return str(UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | 1))


def test_turn_ids_tell_a_replay_even_when_the_new_turn_follows_at_once(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "agent_role": "explorer"}}}
    rows = [
        meta(source=source),
        meta(PARENT),
        *turn(1, 0.01, made_at(-900)),
        *turn(2, 0.02, made_at(-600)),
        *turn(3, 0.03, made_at(0.02)),
    ]
    items = read_all(tmp_path, rows)
    assert [words for _, kind, words in said(items) if kind == "speech"] == ["question 3", "answer 3"]


def test_a_sub_agent_that_replays_nothing_is_all_its_own(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT}}}
    items = read_all(tmp_path, [meta(source=source), *turn(1, 0.01)])
    assert [words for _, kind, words in said(items) if kind == "speech"] == ["question 1", "answer 1"]
    assert next(f for f in items if isinstance(f, Message)).session.settings["parent_session_id"] == PARENT


def test_a_prompt_given_again_after_an_abort_is_a_replay(tmp_path: Path) -> None:
    rows = [
        meta(),
        user("do it", 1),
        event("turn_aborted", 2, reason="interrupted"),
        user("do it", 3),
        assistant("ok", 4),
        user("do it", 5),
    ]
    assert said(read_all(tmp_path, rows)) == [
        ("user", "speech", "do it"),
        ("system", "notice", "turn aborted: interrupted"),
        ("user", "replay", "do it"),
        ("assistant", "speech", "ok"),
        ("user", "speech", "do it"),
    ]


def test_a_compaction_restates_only_what_was_never_heard(tmp_path: Path) -> None:
    def restated(words: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}

    compacted = wrap(
        "compacted", {"message": "so far", "replacement_history": [restated("heard"), restated("unheard")]}
    )
    items = read_all(tmp_path, [meta(), user("heard"), compacted, compacted, user("unheard")])
    assert said(items) == [
        ("user", "speech", "heard"),
        ("system", "summary", "so far"),
        ("user", "replay", "unheard"),
        ("system", "summary", "so far"),
        ("user", "speech", "unheard"),
    ]


def test_reviews_errors_names_and_agents(tmp_path: Path) -> None:
    review = {"overall_explanation": "Looks fine.", "findings": [{"title": "Typo", "body": "in line 3"}]}
    letter = item(
        type="agent_message", author="a", recipient="b", content=[{"type": "input_text", "text": "take over"}]
    )
    rows = [
        meta(),
        event("error", message="rate limit"),
        event("error", error={"kind": "rate_limit", "message": "slow down"}),
        event("exited_review_mode", review_output=review),
        event("thread_name_updated", thread_name="Review of the parser"),
        letter,
        event("brand_new_event"),
        wrap("brand_new_row", {}),
    ]
    items = read_all(tmp_path, rows)
    assert said(items) == [
        ("system", "notice", "rate limit"),
        ("system", "notice", "slow down"),
        ("assistant", "speech", "Looks fine.\nTypo\nin line 3"),
        ("assistant", "speech", "take over"),
    ]
    assert titles(items) == ["Review of the parser"]
    assert messages(items)[3].metadata["author"] == "a"
    skipped = [found.reason for found in items if isinstance(found, Skipped)]
    assert skipped == ["event_msg/brand_new_event", "brand_new_row"]


def test_strange_rows_never_stop_the_reading(tmp_path: Path) -> None:
    rows: Rows = [
        meta(),
        item(type="message", role="user", content=7),
        item(type="message", role="user"),
        item(type="reasoning", summary=5),
        wrap("compacted", {"replacement_history": 7}),
        {"type": "response_item", "payload": None},
        {"type": 5, "payload": {}},
        {"timestamp": {"a": 1}, "type": "event_msg", "payload": {"type": "agent_message", "message": {"x": 1}}},
        user("the end"),
    ]
    items = read_all(tmp_path, rows)
    assert [words for _, _, words in said(items)] == ["7", '{"x": 1}', "the end"]
    assert [found.line for found in items if isinstance(found, Damaged)] == [4, 5]


def test_undated_rows_at_the_start_are_from_the_sessions_day(tmp_path: Path) -> None:
    undated = [meta(), user("one"), user("two", 5), user("three")]
    for entry in (undated[0], undated[1], undated[3]):
        del entry["timestamp"]
    times = [record.created_at for record in messages(read_all(tmp_path, undated))]
    assert times == [START, START + timedelta(seconds=5), None]
