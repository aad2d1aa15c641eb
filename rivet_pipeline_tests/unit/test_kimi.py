"""What Kimi's records become, of wire files and of the older context files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.records import Message, ToolResult
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    counts,
    damaged,
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

START = 1_780_000_000_000
META = {"type": "metadata", "protocol_version": "1.4", "created_at": START}


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def prompt(words: str, at: int = 0, kind: str = "turn.prompt", origin: str = "user") -> dict[str, Any]:
    return {"type": kind, "input": text(words), "origin": {"kind": origin}, "time": START + at}


def append(words: str, at: int = 0, **origin: str) -> dict[str, Any]:
    message = {"role": "user", "content": text(words), "toolCalls": [], "origin": origin or {"kind": "user"}}
    return {"type": "context.append_message", "message": message, "time": START + at}


def event(kind: str, at: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "context.append_loop_event", "event": {"type": kind, **more}, "time": START + at}


def call(native: str, name: str = "Bash", **args: Any) -> dict[str, Any]:
    return event("tool.call", uuid=native, toolCallId=native, name=name, args=args)


def result(native: str, output: Any, **more: Any) -> dict[str, Any]:
    return event("tool.result", parentUuid=native, toolCallId=native, result={"output": output, **more})


def agent_file(folder: Path, slot: str, *rows: Any) -> Path:
    return write(folder / "sessions" / "wd_app_1" / "session_abc" / "agents" / slot / "wire.jsonl", META, *rows)


def test_a_prompt_that_is_written_twice_stands_once(tmp_path: Path) -> None:
    items = read(write(tmp_path / "a.jsonl", META, prompt("hi"), append("hi", 1), prompt("hi", 2), append("hi", 3)))
    assert said(items) == [("user", "speech", "hi")] * 2
    assert messages(items)[0].created_at == datetime.fromtimestamp(START / 1000 + 0.001, UTC)
    assert len({record.event_id for record in messages(items)}) == 2


def test_a_prompt_that_never_came_to_the_model_is_kept_when_nothing_follows_any_more(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", META, prompt("hi"), append("hi"), prompt("stop", 1, "turn.steer"))
    waiting = read(path, settled=False)
    assert is_incomplete(waiting)
    assert said(waiting) == [("user", "speech", "hi")]
    assert read(path, abandoned=False) == waiting
    settled = read(path)
    assert said(settled)[1:] == [("user", "speech", "stop")]
    write(path, META, prompt("hi"), append("hi"), prompt("stop", 1, "turn.steer"), append("stop", 2))
    assert {record.event_id for record in messages(read(path))} == {record.event_id for record in messages(settled)}


def test_who_put_a_message_there_decides_what_it_is(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            META,
            append("<system-reminder>Plan mode is on.</system-reminder>", kind="injection", variant="plan_mode"),
            append("Skill text.", kind="skill_activation"),
            append("Go on.", kind="system_trigger", name="goal_continuation"),
            append("<notification/>", kind="background_task"),
            append("Count the files.", kind="system_trigger", name="subagent"),
            append("Really.", kind="user"),
        )
    )
    kinds = [kind for _, kind, _ in said(items)]
    assert kinds == ["injected", "injected", "injected", "notice", "speech", "speech"]
    assert [role for role, _, _ in said(items)] == ["system"] * 4 + ["user"] * 2


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (
            "<git-context>\nBranch: main\n</git-context>\n\nCount them.",
            [("system", "injected", "<git-context>\nBranch: main\n</git-context>"), ("user", "speech", "Count them.")],
        ),
        ("<git-context>\nBranch: ma…", [("system", "injected", "<git-context>\nBranch: ma…")]),
        ("Explain <git-context> to me.", [("user", "speech", "Explain <git-context> to me.")]),
    ],
)
def test_a_sub_agents_task_is_told_from_the_context_before_it(
    tmp_path: Path, task: str, expected: list[tuple[str, str, str]]
) -> None:
    path = agent_file(tmp_path, "agent-0", append(task, kind="system_trigger", name="subagent"))
    assert said(read(path)) == expected


def test_the_answer_and_its_thoughts_have_their_own_ids(tmp_path: Path) -> None:
    think = event("content.part", uuid="u-1", part={"type": "think", "think": "Hm."})
    speak = event("content.part", uuid="u-2", part={"type": "text", "text": "Hello."})
    items = read(write(tmp_path / "a.jsonl", META, think, speak, event("step.end", usage={"output": 1})))
    assert said(items) == [("assistant", "thinking", "Hm."), ("assistant", "speech", "Hello.")]
    assert [record.event_id for record in messages(items)] == ["u-1", "u-2"]
    assert skipped(items)["loop event/step.end"] == 1


def test_calls_wait_for_their_results_and_failed_ones_are_kept(tmp_path: Path) -> None:
    rows = [
        call("Bash_0", command="ls"),
        call("Bash_1", command="make"),
        result("Bash_1", "failed", isError=True, truncated=True, note="<system>cut</system>"),
        result("Bash_0", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        call("Read_2", "Read", path="x"),
    ]
    items = read(write(tmp_path / "a.jsonl", META, *rows))
    assert [(record.event_id, record.tool_args) for record in messages(items)] == [
        ("tool:Bash_0", {"command": "ls"}),
        ("tool:Bash_1", {"command": "make"}),
        ("tool:Read_2", {"path": "x"}),
    ]
    assert results(items) == {"tool:Bash_1": "failed", "tool:Bash_0": "a\nb"}
    failed = next(item for item in items if isinstance(item, ToolResult))
    assert failed.metadata["is_error"] is True
    assert failed.metadata["note"] == "<system>cut</system>"


def test_an_id_that_begins_anew_is_another_call(tmp_path: Path) -> None:
    rows = [call("Bash_0", command="ls"), result("Bash_0", "a"), call("Bash_0", command="pwd"), result("Bash_0", "b")]
    items = read(write(tmp_path / "a.jsonl", META, *rows))
    assert [record.event_id for record in messages(items)] == ["tool:Bash_0", "tool:Bash_0:2"]
    assert results(items) == {"tool:Bash_0": "a", "tool:Bash_0:2": "b"}


def test_a_plan_that_is_only_shown_is_the_calls_arguments(tmp_path: Path) -> None:
    shown = event("tool.call", toolCallId="E_0", name="ExitPlanMode", args={}, display={"kind": "plan", "plan": "1."})
    assert messages(read(write(tmp_path / "a.jsonl", META, shown)))[0].tool_args == {"kind": "plan", "plan": "1."}


def test_sub_agents_belong_to_their_parents_session(tmp_path: Path) -> None:
    main = agent_file(tmp_path, "main", append("count"), call("Bash_0", command="ls"), result("Bash_0", "x"))
    task = append("Count them.", kind="system_trigger", name="subagent")
    sub = agent_file(tmp_path, "agent-0", task, call("Bash_0", command="wc"), result("Bash_0", "1"))
    state = {"title": "Counting", "workDir": "/app", "agents": {}}
    (sub.parents[2] / "state.json").write_text(json.dumps(state))
    from_main, from_sub = read(main), read(sub)
    sessions = {item.session.session_key for item in [*from_main, *from_sub] if isinstance(item, Message)}
    assert sessions == {"kimi-code:session_abc"}
    assert titles(from_main) == titles(from_sub) == ["Counting"]
    ids = [record.event_id for record in [*messages(from_main), *messages(from_sub)]]
    assert len(set(ids)) == len(ids) == 4
    assert all(record.metadata["agent_id"] == "agent-0" for record in messages(from_sub))
    assert all(record.metadata["sidechain"] is True for record in messages(from_sub))
    assert results(from_sub) == {"tool:agent-0:Bash_0": "1"}
    first = next(item.session for item in from_main if isinstance(item, Message))
    assert first.settings["cwd"] == "/app"
    assert first.settings["file"] == str(main)


def test_the_state_file_is_part_of_what_is_read(tmp_path: Path) -> None:
    from rivet_pipeline.transcripts.readers.kimi import KimiReader

    path = agent_file(tmp_path, "main", append("hi"))
    before = KimiReader().state(path)
    (path.parents[2] / "state.json").write_text('{"title": "A"}')
    assert KimiReader().state(path) != before
    (path.parents[2] / "state.json").write_text("not JSON")
    assert titles(read(path)) == ["hi"]


def test_machinery_that_says_something_is_kept(tmp_path: Path) -> None:
    denied = {"type": "permission.record_approval_result", "action": "Running: rm", "time": START}
    rows = [
        {"type": "config.update", "systemPrompt": "You are Kimi.", "cwd": "/app", "time": START},
        {"type": "config.update", "systemPrompt": "You are Kimi.", "time": START},
        {"type": "turn.cancel", "time": START},
        {"type": "turn.ended", "reason": "failed", "error": {"message": "no quota"}, "time": START},
        {"type": "turn.ended", "reason": "completed", "time": START},
        {**denied, "result": {"decision": "rejected", "feedback": "Do not."}},
        {**denied, "result": {"decision": "approved"}},
        {"type": "context.apply_compaction", "summary": "We did x.", "contextSummary": "Before: We did x."},
        {"type": "brand.new", "time": START},
    ]
    items = read(write(tmp_path / "a.jsonl", META, *rows))
    assert said(items) == [
        ("system", "injected", "You are Kimi."),
        ("system", "notice", "[turn cancelled]"),
        ("system", "notice", "[turn ended: failed] no quota"),
        ("system", "notice", "[rejected] Running: rm"),
        ("user", "speech", "Do not."),
        ("system", "summary", "We did x."),
    ]
    assert skipped(items)["brand.new"] == 1
    assert skipped(items)["config.update"] == 1


def test_damage_touches_no_neighbour(tmp_path: Path) -> None:
    cut = '{"type":"context.append_loop_event","event":{"type":"content.part","uuid":"aa'
    shapeless = {"type": "context.append_message", "message": 5, "time": START}
    items = read(write(tmp_path / "a.jsonl", META, append("one"), cut, "", "[1]", shapeless, append("two")))
    assert said(items) == [("user", "speech", "one"), ("user", "speech", "two")]
    assert damaged(items) == {"cut short": 1, "not an object": 1, "context.append_message of unexpected shape": 1}


CONTEXT = [
    {"role": "_system_prompt", "content": "You are Kimi."},
    {"role": "_checkpoint", "id": 0},
    {"role": "user", "content": "go on"},
    {
        "role": "assistant",
        "content": [{"type": "think", "think": "Hm."}, {"type": "text", "text": "Yes."}],
        "tool_calls": [
            {"type": "function", "id": "Shell:0", "function": {"name": "Shell", "arguments": '{"c": "ls"}'}}
        ],
    },
    {"role": "_usage", "token_count": 12},
    {"role": "tool", "content": [{"type": "text", "text": "a.txt"}], "tool_call_id": "Shell:0"},
    {"role": "user", "content": "go on"},
]


def test_a_context_file(tmp_path: Path) -> None:
    items = read(write(tmp_path / "6f-id" / "context.jsonl", *CONTEXT))
    assert said(items) == [
        ("system", "injected", "You are Kimi."),
        ("user", "speech", "go on"),
        ("assistant", "thinking", "Hm."),
        ("assistant", "speech", "Yes."),
        ("tool", "tool", "Shell"),
        ("user", "speech", "go on"),
    ]
    assert messages(items)[4].tool_args == {"c": "ls"}
    assert list(results(items).values()) == ["a.txt"]
    assert next(iter(results(items))) == messages(items)[4].event_id
    assert skipped(items) == {"_checkpoint": 1, "_usage": 1}
    assert {item.session.session_key for item in items if isinstance(item, Message)} == {"kimi-code:6f-id"}


def test_a_context_is_dated_by_the_wire_file_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "s" / "context.jsonl", *CONTEXT)
    assert [record.created_at for record in messages(read(path))] == [None] * 6
    older = {"timestamp": START / 1000, "message": {"type": "TurnBegin", "payload": {"user_input": "go on"}}}
    wire = write(path.with_name("wire.jsonl"), {**META, "protocol_version": "1.1"}, older)
    times = [record.created_at for record in messages(read(path))]
    assert times == [datetime.fromtimestamp(START / 1000, UTC)] + [None] * 5
    # It says what the context says, in another form.
    assert messages(read(wire)) == []
    assert skipped(read(wire)) == {"metadata": 1, "older wire/TurnBegin": 1}


def test_sub_agents_of_a_context(tmp_path: Path) -> None:
    items = read(write(tmp_path / "s-1" / "subagents" / "a-1" / "context.jsonl", *CONTEXT))
    assert {item.session.session_key for item in items if isinstance(item, Message)} == {"kimi-code:s-1"}
    assert {record.metadata["agent_id"] for record in messages(items)} == {"a-1"}
    assert all("a-1:" in record.event_id for record in messages(items))
    assert titles(items) == []


def test_a_context_that_began_anew_loses_no_word(tmp_path: Path) -> None:
    first = write(tmp_path / "s" / "context_1.jsonl", *CONTEXT)
    again = {"role": "assistant", "tool_calls": [{"id": "Shell:0", "function": {"name": "Shell", "arguments": "{}"}}]}
    second = write(tmp_path / "s" / "context.jsonl", {"role": "user", "content": "Summary."}, CONTEXT[-1], again)
    old, new = identities(read(first)), identities(read(second))
    assert not set(old) & set(new[2:])
    assert len({event_id for _, event_id, _ in [*old, *new]}) == len(old) + len(new)


@pytest.mark.parametrize(
    ("name", "expected", "answered"),
    [
        # Read in the file: 8 turn.prompt with their messages, 5 injections and the system prompt, 22 think parts,
        # 6 text parts, 19 calls with 19 results, one compaction.
        (
            "wire_1.4_assistant-tools.jsonl",
            {
                ("user", "speech"): 8,
                ("system", "injected"): 6,
                ("assistant", "thinking"): 22,
                ("assistant", "speech"): 6,
                ("tool", "tool"): 19,
                ("system", "summary"): 1,
            },
            19,
        ),
        # "hi", "hi" and the steered "stop"; two cancelled turns.
        ("wire_all-types.jsonl", {("user", "speech"): 3, ("system", "injected"): 1, ("system", "notice"): 2}, 0),
        (
            "wire_subagent_agent-0.jsonl",
            {
                # The context before the task was cut, and the task with it.
                ("system", "injected"): 2,
                ("assistant", "thinking"): 3,
                ("assistant", "speech"): 1,
                ("tool", "tool"): 2,
            },
            2,
        ),
        (
            "rivet_pv14-main.jsonl",
            {
                ("user", "speech"): 1,
                ("system", "injected"): 1,
                ("assistant", "thinking"): 1,
                ("assistant", "speech"): 1,
                ("tool", "tool"): 3,
                ("system", "notice"): 1,
            },
            2,
        ),
        ("rivet_pv14-agent-0.jsonl", {("user", "speech"): 1, ("system", "injected"): 2, ("assistant", "speech"): 1}, 0),
        (
            "rivet_pv15-main.jsonl",
            {
                ("user", "speech"): 1,
                ("system", "injected"): 1,
                ("assistant", "thinking"): 1,
                ("assistant", "speech"): 1,
                ("tool", "tool"): 1,
            },
            1,
        ),
        ("rivet_malformed-main.jsonl", {("user", "speech"): 2, ("assistant", "speech"): 1}, 0),
    ],
)
def test_the_samples(
    shared_data: Path, tmp_path: Path, name: str, expected: dict[tuple[str, str], int], answered: int
) -> None:
    path = shared_data / "transcripts" / "kimi-cli" / name
    items = read(path)
    assert counts(items) == expected
    assert len(results(items)) == answered
    assert results(items).keys() <= {record.event_id for record in messages(items)}
    check_cuts(path, tmp_path)


def test_the_words_of_a_sample(shared_data: Path) -> None:
    items = read(shared_data / "transcripts" / "kimi-cli" / "wire_1.4_assistant-tools.jsonl")
    spoken = [words for role, kind, words in said(items) if (role, kind) == ("user", "speech")]
    assert spoken == [
        "hi",
        "hi",
        "hi",
        "run ls command",
        "cat /nonexistent-file-xyz",
        "run subagent to count swift files in this repo",
        "plan counting all html files in this repo",
        'read README.md then grep for "Kimi"',
    ]
    failed = [item for item in items if isinstance(item, ToolResult) and item.metadata.get("is_error")]
    assert [item.event_id for item in failed] == ["tool:Bash_2"]
    assert titles(items) == ["hi"]
