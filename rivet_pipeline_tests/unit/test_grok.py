"""What Grok Build's updates and chat rows become, and that a session stands once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers.grok import GrokReader
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Message, Paused, ToolResult
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    counts,
    identities,
    is_incomplete,
    messages,
    read,
    results,
    said,
    skipped,
    titles,
    write,
)

NATIVE = "019e5f82-f0e5-7d41-a38c-000000000001"
START = 1_779_718_885


class Stream:
    """Rows of an update stream, numbered and stamped as Grok does it."""

    def __init__(self) -> None:
        self.number = 0

    def row(self, kind: str, *, prompt: str | None = None, event: bool = True, **update: Any) -> dict[str, Any]:
        self.number += 1
        meta: dict[str, Any] = {"agentTimestampMs": (START + self.number) * 1000 + 250}
        if event:
            meta["eventId"] = f"{NATIVE}-{self.number}"
        if prompt:
            meta["promptId"] = prompt
        parameters = {"sessionId": NATIVE, "update": {"sessionUpdate": kind, **update}, "_meta": meta}
        return {"timestamp": START + self.number, "method": "session/update", "params": parameters}

    def user(self, words: str, index: int = 0) -> dict[str, Any]:
        meta = {"promptIndex": index, "modelId": "grok-x"}
        return self.row("user_message_chunk", content={"type": "text", "text": words}, _meta=meta)

    def agent(self, words: str, prompt: str = "p") -> dict[str, Any]:
        return self.row("agent_message_chunk", prompt=prompt, content={"type": "text", "text": words})

    def thought(self, words: str, prompt: str = "p") -> dict[str, Any]:
        return self.row("agent_thought_chunk", prompt=prompt, content={"type": "text", "text": words})

    def call(self, native: str, title: str = "read_file", **more: Any) -> dict[str, Any]:
        return self.row("tool_call", prompt="p", toolCallId=native, title=title, **more)

    def update(self, native: str, **more: Any) -> dict[str, Any]:
        return self.row("tool_call_update", prompt="p", toolCallId=native, **more)

    def hook(self, name: str) -> dict[str, Any]:
        return {**self.row("hook_execution", event=False, event_name=name), "method": "_x.ai/session/update"}


def content(words: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


def test_pieces_are_joined_into_whole_messages(tmp_path: Path) -> None:
    s = Stream()
    rows = [
        s.user("what did "),
        s.user("we do?"),
        s.thought("<thinking>I should "),
        s.row("available_commands_update", availableCommands=[]),
        s.thought("<tool_use> look."),
        s.agent("We did "),
        s.agent("a lot."),
        s.hook("stop"),
        s.agent("More.", "q"),
    ]
    items = read(write(tmp_path / "updates.jsonl", *rows))
    assert said(items) == [
        ("user", "speech", "what did we do?"),
        ("assistant", "thinking", "<thinking>I should <tool_use> look."),
        ("assistant", "speech", "We did a lot."),
        ("assistant", "speech", "More."),
    ]
    first = messages(items)[0]
    assert first.event_id == f"{NATIVE}-1@{(START + 1) * 1000 + 250}"
    assert first.created_at == datetime.fromtimestamp(START + 1.25, UTC)
    assert first.metadata["model"] == "grok-x"
    assert titles(items) == ["what did we do?"]


def test_a_message_that_may_grow_is_held_back(tmp_path: Path) -> None:
    s = Stream()
    rows = [s.user("hi"), s.agent("Hel")]
    path = write(tmp_path / "updates.jsonl", *rows)
    growing = read(path, settled=False)
    assert said(growing) == [("user", "speech", "hi")]
    assert is_incomplete(growing)
    early = messages(read(path))[1]
    assert early.content == "Hel"
    whole = messages(read(write(path, *rows, s.agent("lo."), s.hook("stop")), settled=False))
    assert [record.content for record in whole] == ["hi", "Hello."]
    assert whole[1].event_id == early.event_id


def test_a_prompt_that_is_written_into_its_answer_parts_neither(tmp_path: Path) -> None:
    s = Stream()
    rows = [s.agent("Sure, "), s.user("please do"), s.agent("I will."), s.user("thanks", 1), s.agent("Welcome.", "q")]
    items = read(write(tmp_path / "updates.jsonl", *rows))
    assert [words for _, _, words in said(items)] == ["please do", "Sure, I will.", "thanks", "Welcome."]


def test_calls_and_what_they_came_to(tmp_path: Path) -> None:
    s = Stream()
    rows = [
        s.call("c1", rawInput={"target_file": "a"}),
        s.update("c1", title="Read `a`", rawInput={"variant": "ReadFile", "target_file": "a"}),
        s.call("c2", "use_tool", rawInput={"tool_name": "db__find", "tool_input": {"q": 1}}),
        s.update("c1", status="in_progress", content=content("par")),
        s.update("c1", status="completed", content=content("partly"), rawOutput={"type": "ReadFile"}),
        s.update("c2", status="completed", rawOutput={"type": "MCP", "output": {"OkayOutput": "found"}}),
        s.call("c3", "run_terminal_command"),
        s.update("c3", title="Execute", rawInput={"command": "make"}),
        s.update(
            "c3", status="failed", content=content(""), rawOutput={"output_for_prompt": "exit: 2", "exit_code": 2}
        ),
        s.call("c4", "odd", rawInput={"x": 1}),
        s.update(
            "c4", status="completed", rawOutput={"type": "Odd", "bytes": list(b"sixteen bytes and more"), "n": [1]}
        ),
        s.call("c5", "open", rawInput={"x": 2}),
    ]
    items = read(write(tmp_path / "updates.jsonl", *rows))
    calls = {record.event_id: (record.tool_name, record.tool_args) for record in messages(items)}
    assert calls == {
        "tool:c1": ("read_file", {"target_file": "a"}),
        "tool:c2": ("db__find", {"q": 1}),
        "tool:c3": ("run_terminal_command", {"command": "make"}),
        "tool:c4": ("odd", {"x": 1}),
        "tool:c5": ("open", {"x": 2}),
    }
    assert results(items) == {
        "tool:c1": "partly",
        "tool:c2": "found",
        "tool:c3": "exit: 2",
        "tool:c4": '{"type": "Odd", "bytes": "sixteen bytes and more", "n": [1]}',
    }
    failed = [item.event_id for item in items if isinstance(item, ToolResult) and item.metadata.get("is_error")]
    assert failed == ["tool:c3"]


def test_a_call_whose_beginning_is_damaged_is_known_by_its_update(tmp_path: Path) -> None:
    s = Stream()
    rows = [
        '{"method": "session/update", "params": {"sess',
        s.update("c1", title="Read `a`", rawInput={"target_file": "a"}),
        s.update("c1", status="completed", rawOutput={"content": "words"}),
    ]
    items = read(write(tmp_path / "updates.jsonl", *rows))
    assert said(items) == [("tool", "tool", "Read `a`")]
    assert results(items) == {"tool:c1": "words"}


def test_a_call_waits_for_its_arguments(tmp_path: Path) -> None:
    s = Stream()
    path = write(tmp_path / "updates.jsonl", s.user("go"), s.call("c1", "read_file"))
    waiting = read(path, settled=False)
    assert is_incomplete(waiting)
    assert counts(waiting) == {("user", "speech"): 1}
    assert read(path, abandoned=False) == waiting
    assert said(read(path))[1] == ("tool", "tool", "read_file")


def test_machinery_of_the_stream(tmp_path: Path) -> None:
    s = Stream()
    entries = [{"content": "Look", "status": "completed"}, {"content": "Fix", "status": "pending"}]
    rows = [
        s.user("<system-reminder>be brief</system-reminder>\nhi"),
        s.row("plan", entries=entries),
        s.row("memory_flush_started"),
        s.row("memory_flush_completed", result="nothing to store"),
        s.row("current_mode_update"),
        s.row("user_message_chunk", content={"type": "image", "mimeType": "image/png", "data": "AAAA"}),
    ]
    items = read(write(tmp_path / "updates.jsonl", *rows))
    assert said(items) == [
        ("system", "notice", "- [completed] Look\n- [pending] Fix"),
        ("system", "notice", "[memory flush] nothing to store"),
        ("system", "injected", "<system-reminder>be brief</system-reminder>"),
        ("user", "speech", "hi"),
        ("user", "speech", "[image image/png, 3 bytes]"),
    ]
    assert skipped(items) == {"memory_flush_started": 1, "current_mode_update": 1}


SUMMARY = {
    "info": {"id": NATIVE, "cwd": "/app"},
    "session_summary": "Old title",
    "generated_title": "New title",
    "current_model_id": "grok-x",
    "head_branch": "main",
    "parent_session_id": "p-1",
    "created_at": "2026-05-25T14:21:17.423609472Z",
}
CHAT: list[dict[str, Any]] = [
    {"type": "system", "content": "You are Grok"},
    {"type": "user", "content": [{"type": "text", "text": "policy"}], "synthetic_reason": "project_instructions"},
    {"type": "user", "content": [{"type": "text", "text": "hi"}], "prompt_index": 0},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "zz"},
    {
        "type": "assistant",
        "content": "Hello.",
        "model_id": "grok-x",
        "tool_calls": [
            {"id": "c1", "name": "read_file", "arguments": '{"p": "a"}'},
            {"id": "c2", "name": "run", "arguments": "not JSON"},
        ],
    },
    {"type": "tool_result", "tool_call_id": "c2", "content": "two"},
    {"type": "tool_result", "tool_call_id": "c1", "content": "one"},
    {"type": "user", "content": [{"type": "text", "text": "wait"}], "synthetic_reason": "interjection"},
]


def test_a_chat_history(tmp_path: Path) -> None:
    path = write(tmp_path / NATIVE / "chat_history.jsonl", *CHAT)
    path.with_name("summary.json").write_text(json.dumps(SUMMARY))
    items = read(path)
    assert said(items) == [
        ("system", "injected", "You are Grok"),
        ("system", "injected", "policy"),
        ("user", "speech", "hi"),
        ("assistant", "thinking", "Hm."),
        ("assistant", "speech", "Hello."),
        ("tool", "tool", "read_file"),
        ("tool", "tool", "run"),
        ("user", "speech", "wait"),
    ]
    assert results(items) == {"tool:c1": "one", "tool:c2": "two"}
    assert [record.tool_args for record in messages(items)][5:7] == [{"p": "a"}, "not JSON"]
    session = next(item.session for item in items if isinstance(item, Message))
    assert session.session_key == f"grok-build:{NATIVE}"
    assert session.title == "New title"
    assert session.settings["git_branch"] == "main"
    assert session.settings["parent_session_id"] == "p-1"
    times = [record.created_at for record in messages(items)]
    assert times == [datetime(2026, 5, 25, 14, 21, 17, 423609, UTC)] + [None] * 7


def test_the_older_form_of_a_chat_history_says_the_same(tmp_path: Path) -> None:
    function = {"name": "read_file", "arguments": '{"p": "a"}'}
    call = {"id": "c1", "type": "function", "function": function}
    old = [
        {"role": "system", "content": "You are Grok"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello.", "tool_calls": [call], "reasoning_content": "Hm."},
        {"role": "tool", "content": "one", "tool_call_id": "c1"},
    ]
    new = [CHAT[0], CHAT[2], CHAT[3], {**CHAT[4], "tool_calls": [{"id": "c1", **function}]}, CHAT[6]]
    first = write(tmp_path / NATIVE / "chat_history.jsonl", *old)
    second = write(tmp_path / "b" / NATIVE / "source-v1.jsonl", *new)
    assert identities(read(first)) == identities(read(second))


def test_a_session_is_read_from_its_richest_file(tmp_path: Path) -> None:
    chat = write(tmp_path / NATIVE / "chat_history.jsonl", *CHAT)
    assert len(messages(read(chat))) == 8
    before = GrokReader().state(chat)
    s = Stream()
    updates = write(tmp_path / NATIVE / "updates.jsonl", s.hook("session_start"))
    assert GrokReader().state(chat) != before
    # Nothing is said in the stream yet, and it may still be.
    assert is_incomplete(read(chat, settled=False))
    assert messages(read(chat, settled=False)) == []
    assert is_incomplete(read(chat, abandoned=False))
    assert messages(read(chat, abandoned=False)) == []
    assert len(messages(read(chat))) == 8
    write(updates, s.hook("session_start"), s.user("hi"))
    assert messages(read(chat)) == []
    assert skipped(read(chat)) == {"the session is read from updates.jsonl": 1}
    assert said(read(updates)) == [("user", "speech", "hi")]


def test_a_file_that_is_stepped_over_can_be_followed(tmp_path: Path) -> None:
    chat = write(tmp_path / NATIVE / "chat_history.jsonl", *CHAT)
    write(tmp_path / NATIVE / "updates.jsonl", Stream().user("hi"))
    how = Reading("a", follow=True)
    items = list(islice(GrokReader().read(chat, how), 3))
    assert isinstance(items[1], Paused)
    assert isinstance(items[2], Paused)


@pytest.mark.parametrize(
    ("name", "expected", "answered"),
    [
        # Read in the file: 3 prompts, 8 thoughts, 3 answers, 10 calls, each completed; a memory flush with its outcome.
        (
            "updates_real_acp-chunks.jsonl",
            {
                ("user", "speech"): 3,
                ("assistant", "thinking"): 8,
                ("assistant", "speech"): 3,
                ("tool", "tool"): 10,
                ("system", "notice"): 1,
            },
            10,
        ),
        (
            "chat_history.jsonl",
            {
                ("system", "injected"): 2,
                ("user", "speech"): 2,
                ("assistant", "thinking"): 2,
                ("assistant", "speech"): 1,
                ("tool", "tool"): 3,
            },
            2,
        ),
        (
            "subagent_chat_history.jsonl",
            {("system", "injected"): 1, ("user", "speech"): 1, ("assistant", "speech"): 2, ("tool", "tool"): 1},
            1,
        ),
        (
            "agentsview_current_chat_history.jsonl",
            {
                ("system", "injected"): 2,
                ("user", "speech"): 2,
                ("assistant", "thinking"): 1,
                ("assistant", "speech"): 2,
                ("tool", "tool"): 2,
            },
            1,
        ),
        (
            "agentsview_legacy_source-v1.jsonl",
            {
                ("system", "injected"): 1,
                ("user", "speech"): 1,
                ("assistant", "thinking"): 1,
                ("assistant", "speech"): 2,
                ("tool", "tool"): 1,
            },
            1,
        ),
    ],
)
def test_the_samples(
    shared_data: Path, tmp_path: Path, name: str, expected: dict[tuple[str, str], int], answered: int
) -> None:
    path = shared_data / "transcripts" / "grok-cli" / name
    items = read(path)
    assert counts(items) == expected
    assert len(results(items)) == answered
    assert results(items).keys() <= {record.event_id for record in messages(items)}
    check_cuts(path, tmp_path, beside=sorted(path.parent.glob("*summary.json")))


def test_the_words_of_the_real_stream(shared_data: Path) -> None:
    items = read(shared_data / "transcripts" / "grok-cli" / "updates_real_acp-chunks.jsonl")
    spoken = [words for role, _, words in said(items) if role == "user"]
    assert spoken == ["what did we do yesterday?", "yeah it was a busy day", "thanks that was what I needed"]
    thoughts = [words for _, kind, words in said(items) if kind == "thinking"]
    assert "<thinking>" in thoughts[0]
    tools = [words for role, _, words in said(items) if role == "tool"]
    assert tools.count("rivetos__memory_browse") == 3


def test_a_session_that_stands_in_two_files_of_one_name_stands_once(shared_data: Path) -> None:
    folder = shared_data / "transcripts" / "grok-cli"
    items = read(folder / "agentsview_legacy_chat_history.jsonl")
    assert skipped(items) == {"the session is read from agentsview_legacy_source-v1.jsonl": 1}
    assert messages(items) == []
    assert titles(read(folder / "agentsview_legacy_source-v1.jsonl")) == ["Audit Grok compatibility"]
