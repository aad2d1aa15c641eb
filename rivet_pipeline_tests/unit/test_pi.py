"""What entries of pi and OpenClaw session files become."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.records import Message, ToolResult
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    counts,
    damaged,
    is_incomplete,
    messages,
    read,
    results,
    said,
    skipped,
    titles,
    write,
)

HEAD = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-03-01T09:00:00.000Z", "cwd": "/app"}


def entry(number: int, role: str, content: Any, *, parent: int | None = None, **message: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"e{number}",
        "parentId": f"e{number - 1 if parent is None else parent}",
        "timestamp": f"2026-03-01T09:01:{number:02}.000Z",
        "message": {"role": role, "content": content, **message},
    }


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_a_conversation(tmp_path: Path) -> None:
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a"}}
    thought = {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "x" * 3000}
    usage = {"input": 3, "output": 4}
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    items = read(
        write(
            tmp_path / "2026_s-1.jsonl",
            HEAD,
            entry(1, "user", [text("look"), picture]),
            entry(2, "assistant", [thought, text("Yes."), call], model="m-1", usage=usage, stopReason="toolUse"),
            entry(3, "toolResult", [text("words")], toolCallId="t1", toolName="read", isError=True),
            entry(4, "user", "thanks"),
        )
    )
    assert said(items) == [
        ("user", "speech", "look\n[image image/png, 3 bytes]"),
        ("assistant", "thinking", "Hm."),
        ("assistant", "speech", "Yes."),
        ("tool", "tool", "read"),
        ("user", "speech", "thanks"),
    ]
    assert [record.event_id for record in messages(items)] == ["e1", "e2", "e2:1", "tool:t1", "e4"]
    assert results(items) == {"tool:t1": "words"}
    assert [record.metadata.get("usage") for record in messages(items)] == [None, usage, None, None, None]
    assert messages(items)[2].metadata["model"] == "m-1"
    assert messages(items)[0].created_at == datetime(2026, 3, 1, 9, 1, 1, tzinfo=UTC)
    session = next(item.session for item in items if isinstance(item, Message))
    assert (session.session_key, session.agent, session.channel) == ("pi:s-1", "rivet-deepseek", "pi")
    assert session.settings["cwd"] == "/app"
    assert titles(items) == ["look [image image/png, 3 bytes]"]


def test_the_user_runs_a_command(tmp_path: Path) -> None:
    shell: dict[str, Any] = {"command": "make", "output": "broken", "exitCode": 2, "cancelled": False}
    items = read(write(tmp_path / "a.jsonl", HEAD, entry(1, "bashExecution", None, **shell)))
    record = messages(items)[0]
    assert (record.role, record.tool_name, record.tool_args, record.tool_result) == (
        "tool",
        "bash",
        {"command": "make"},
        "broken",
    )
    assert record.metadata["by"] == "user"
    assert record.metadata["is_error"] is True


def test_machinery(tmp_path: Path) -> None:
    rows = [
        {"type": "session_info", "id": "i", "name": "A name"},
        {"type": "compaction", "id": "c", "summary": "We did x.", "firstKeptEntryId": "e1"},
        {"type": "branch_summary", "id": "b", "summary": "Tried y."},
        {"type": "custom_message", "id": "m", "customType": "note", "content": "Context.", "display": False},
        {"type": "custom", "id": "n", "customType": "state", "data": {}},
        {"type": "model_change", "id": "o", "modelId": "m-2"},
        entry(1, "hookMessage", "From a hook."),
        entry(2, "assistant", [], stopReason="error", errorMessage="overloaded"),
        entry(3, "narrator", "x"),
        {"type": "message", "id": "p"},
    ]
    items = read(write(tmp_path / "a.jsonl", HEAD, *rows))
    assert said(items) == [
        ("system", "summary", "We did x."),
        ("system", "summary", "Tried y."),
        ("system", "injected", "Context."),
        ("system", "injected", "From a hook."),
        ("system", "notice", "overloaded"),
    ]
    assert titles(items) == ["A name"]
    assert damaged(items) == {"message of unexpected shape": 1}
    assert skipped(items) == {"session": 1, "custom/state": 1, "model_change": 1, "message/narrator": 1}


def test_a_result_may_stand_before_its_call(tmp_path: Path) -> None:
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}
    early = entry(1, "toolResult", "words", toolCallId="t1", isError=True)
    orphan = entry(2, "toolResult", "left", toolCallId="t9")
    path = write(tmp_path / "a.jsonl", HEAD, early, orphan, entry(3, "assistant", [call]))
    items = read(path)
    record = messages(items)[0]
    assert (record.event_id, record.tool_result, record.metadata["is_error"]) == ("tool:t1", "words", True)
    assert results(items) == {"tool:t9": "left"}
    growing = read(path, settled=False)
    assert is_incomplete(growing)
    assert results(growing) == {}


def test_a_branch_is_kept_and_marked(tmp_path: Path) -> None:
    rows = [entry(1, "user", "one"), entry(2, "assistant", "no"), entry(3, "assistant", "yes", parent=1)]
    records = messages(read(write(tmp_path / "a.jsonl", HEAD, *rows)))
    assert [record.content for record in records] == ["one", "no", "yes"]
    assert [record.metadata.get("branches_from") for record in records] == [None, None, "e1"]


def test_what_a_session_copied_is_a_replay_where_the_other_file_stands(tmp_path: Path) -> None:
    old = {**entry(1, "user", "before"), "timestamp": "2026-02-28T09:00:00Z"}
    parent = write(tmp_path / "2026_s-0.jsonl", {**HEAD, "id": "s-0"}, old)
    head = {**HEAD, "parentSession": "/elsewhere/2026_s-0.jsonl"}
    path = write(tmp_path / "2026_s-1.jsonl", head, old, entry(2, "user", "after"))
    items = read(path)
    assert said(items) == [("user", "replay", "before"), ("user", "speech", "after")]
    assert titles(items) == ["after"]
    session = next(item.session for item in items if isinstance(item, Message))
    assert session.settings["parent_session_id"] == "s-0"
    parent.unlink()
    assert said(read(path))[0] == ("user", "speech", "before")


def test_entries_without_ids_are_known_by_what_they_say(tmp_path: Path) -> None:
    rows = [{key: value for key, value in entry(n, "user", "yes").items() if key != "id"} for n in (1, 2)]
    path = write(tmp_path / "a.jsonl", HEAD, rows[0])
    first = messages(read(path))[0].event_id
    both = [record.event_id for record in messages(read(write(path, HEAD, *rows)))]
    assert both[0] == first
    assert len(set(both)) == 2


def test_a_history_that_is_written_again_stands_once(tmp_path: Path) -> None:
    rows = [entry(1, "user", "yes"), entry(2, "assistant", [{"type": "toolCall", "id": "t", "name": "x"}])]
    items = read(write(tmp_path / "a.jsonl", HEAD, *rows, *rows, entry(1, "user", "no")))
    assert said(items) == [("user", "speech", "yes"), ("tool", "tool", "x"), ("user", "speech", "no")]
    assert skipped(items)["repeats an earlier row"] == 2
    assert len({record.event_id for record in messages(items)}) == 3


@pytest.mark.parametrize(
    ("folder", "rows"),
    [
        (".openclaw/agents/main/sessions", [HEAD]),
        ("x", [{**HEAD, "cwd": "/home/me/.openclaw/workspace"}]),
        ("x", [HEAD, {"type": "custom", "id": "c", "customType": "model-snapshot"}]),
        ("x", [HEAD, {"type": "custom_message", "id": "c", "customType": "openclaw.runtime-context", "content": "x"}]),
    ],
)
def test_openclaw_is_told_from_pi(tmp_path: Path, folder: str, rows: list[Any]) -> None:
    items = read(write(tmp_path / folder / "s-1.jsonl", *rows, entry(1, "user", "hi")))
    session = next(item.session for item in items if isinstance(item, Message))
    assert (session.session_key, session.agent, session.channel) == ("openclaw:s-1", "rivet-openclaw", "openclaw")


@pytest.mark.parametrize(
    ("name", "expected", "answered"),
    [
        # Read in the file: 6 prompts; of 9 model messages 5 have text, 5 have thoughts and 4 have calls, 5 in all; one
        # was aborted.
        (
            "pi_before-compaction_head.jsonl",
            {
                ("user", "speech"): 6,
                ("assistant", "speech"): 5,
                ("assistant", "thinking"): 5,
                ("tool", "tool"): 5,
                ("system", "notice"): 1,
            },
            5,
        ),
        (
            "openclaw_large.jsonl",
            {("system", "injected"): 1, ("user", "speech"): 1, ("assistant", "speech"): 2, ("tool", "tool"): 2},
            2,
        ),
    ],
)
def test_the_samples(
    shared_data: Path, tmp_path: Path, name: str, expected: dict[tuple[str, str], int], answered: int
) -> None:
    path = shared_data / "transcripts" / "other" / name
    items = read(path)
    assert counts(items) == expected
    assert len(results(items)) == answered
    assert results(items).keys() <= {record.event_id for record in messages(items)}
    assert not [item for item in items if isinstance(item, ToolResult) and item.metadata.get("is_error")]
    check_cuts(path, tmp_path)
