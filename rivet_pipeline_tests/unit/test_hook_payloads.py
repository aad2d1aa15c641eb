"""What is understood of the payloads that harnesses document, and of those that they do not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.hook_payloads import AGENTS, BadPayloadError, UnknownEventError, parse_payload
from rivet_pipeline.transcripts.readers import READERS

AT = datetime(2026, 3, 8, 10, tzinfo=UTC)


def payload(event: str = "UserPromptSubmit", **fields: Any) -> bytes:
    common = {"session_id": "abc", "transcript_path": "/t/abc.jsonl", "cwd": "/home/ada/shop"}
    return json.dumps({**common, "hook_event_name": event, **fields}).encode()


def test_a_prompt_in_snake_case_and_in_camel_case() -> None:
    snake = parse_payload("claude-code", payload(prompt="hello"))
    camel = parse_payload(
        "claude-code",
        b'{"sessionId": "abc", "transcriptPath": "/t/abc.jsonl", "cwd": "/home/ada/shop",'
        b' "hookEventName": "user_prompt_submit", "prompt": "hello"}',
    )
    assert (snake.name, snake.session_id, snake.transcript, snake.cwd, snake.prompt) == (
        "UserPromptSubmit",
        "abc",
        Path("/t/abc.jsonl"),
        "/home/ada/shop",
        "hello",
    )
    assert camel.fields | {"hook_event_name": "UserPromptSubmit"} == snake.fields
    assert (camel.name, camel.session_id, camel.transcript) == (snake.name, snake.session_id, snake.transcript)


def test_a_prompt_in_parts_is_one_text() -> None:
    event = parse_payload("qwen-code", payload(prompt=[{"type": "text", "text": "one"}, "two"]))
    assert event.prompt == "one\ntwo"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"5",
        b"{",
        b"[" * 100_000,
        b"{}",
        b'{"hook_event_name": 5}',
        b'{"hook_event_name": null, "session_id": "x"}',
    ],
)
def test_what_tells_of_no_event_is_bad(raw: bytes) -> None:
    with pytest.raises(BadPayloadError):
        parse_payload("codex", raw)


def test_an_event_that_is_not_ours_is_told_apart() -> None:
    with pytest.raises(UnknownEventError, match="PreCompact"):
        parse_payload("claude-code", payload("PreCompact"))


@pytest.mark.parametrize("path", [None, "", 5, "a\x00b", {}])
def test_a_transcript_that_is_no_path_is_none(path: Any) -> None:
    assert parse_payload("codex", payload(transcript_path=path)).transcript is None


def test_the_payload_itself_as_messages() -> None:
    prompt = parse_payload("codex", payload(prompt=" do it ", turn_id="t1", model="m")).records("job", AT)
    assert [(one.role, one.content, one.created_at) for one in prompt] == [("user", " do it ", AT)]
    assert prompt[0].metadata == {
        "source": "hook",
        "hook_event": "UserPromptSubmit",
        "turn_id": "t1",
        "model": "m",
    }
    assert prompt[0].event_id.startswith("hook:")
    stop = parse_payload("codex", payload("Stop", last_assistant_message="done"))
    assert [(one.role, one.content) for one in stop.records("job", AT)] == [("assistant", "done")]
    agent = parse_payload("claude-code", payload("SubagentStop", agent_id="a1", last_assistant_message="found"))
    assert agent.records("job", AT)[0].metadata["sidechain"] is True
    assert parse_payload("codex", payload("Stop", last_assistant_message=None)).records("job", AT) == []
    assert parse_payload("codex", payload("SessionEnd", reason="other")).records("job", AT) == []


def test_the_same_words_twice_are_two_and_the_same_call_tried_twice_is_one() -> None:
    event = parse_payload("codex", payload(prompt="continue"))
    ids = [event.records(job, AT)[0].event_id for job in ("one", "two", "one")]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize(
    ("response", "result"),
    [
        ("plain", "plain"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"stdout": "x", "stderr": ""}, '{"stdout": "x", "stderr": ""}'),
        (None, None),
        ([], ""),
    ],
)
def test_a_tool_call_with_its_result(response: Any, result: str | None) -> None:
    fields = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"}
    (record,) = parse_payload("claude-code", payload("PostToolUse", tool_response=response, **fields)).records("j", AT)
    assert (record.event_id, record.role, record.tool_name) == ("tool:toolu_1", "tool", "Bash")
    assert (record.tool_args, record.tool_result) == ({"command": "ls"}, result)
    assert record.metadata["kind"] == "tool"
    (codex,) = parse_payload("codex", payload("PostToolUse", **fields)).records("j", AT)
    assert codex.event_id == "call:toolu_1"
    nameless = {**fields, "tool_use_id": None}
    assert parse_payload("codex", payload("PostToolUse", **nameless)).records("j", AT)[0].event_id.startswith("hook:")


def test_a_sub_agents_transcript_is_named_or_found(tmp_path: Path) -> None:
    named = parse_payload("claude-code", payload("SubagentStop", agent_transcript_path="/t/agent.jsonl"))
    assert named.agent_transcript == Path("/t/agent.jsonl")
    main = tmp_path / "abc.jsonl"
    fields = {"transcript_path": str(main), "agent_id": "a1"}
    beside = parse_payload("claude-code", payload("SubagentStop", **fields))
    assert beside.agent_transcript == tmp_path / "agent-a1.jsonl"
    inside = tmp_path / "abc" / "subagents" / "agent-a1.jsonl"
    inside.parent.mkdir(parents=True)
    inside.write_text("")
    assert parse_payload("claude-code", payload("SubagentStop", **fields)).agent_transcript == inside
    hostile = {**fields, "agent_id": "../../etc/passwd"}
    assert parse_payload("claude-code", payload("SubagentStop", **hostile)).agent_transcript is None


def test_agents_are_called_as_their_readers_call_them() -> None:
    called = {reader.harness: reader.agent for reader in READERS}
    assert {name: agent for name, agent in AGENTS.items() if name in called} == {
        name: called[name] for name in AGENTS if name in called
    }
