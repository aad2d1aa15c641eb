"""What the events of GitHub Copilot CLI become."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.records import Message, ToolResult
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    counts,
    messages,
    read,
    results,
    said,
    skipped,
    titles,
    write,
)


def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
    time = f"2026-03-01T09:00:{number:02}.000Z"
    return {"type": kind, "data": data, "id": f"e{number}", "timestamp": time, "parentId": f"e{number - 1}"}


CONTEXT = {"cwd": "/app", "branch": "main", "repository": "me/app"}
START = event(0, "session.start", sessionId="s-1", copilotVersion="1.0", selectedModel="m", context=CONTEXT)
ASK = {"toolCallId": "c1", "name": "shell", "arguments": '{"command": "ls"}', "intentionSummary": "List"}


def test_a_conversation(tmp_path: Path) -> None:
    given = "<current_datetime>now</current_datetime>\n\nlist them\n\n<reminder>be brief</reminder>"
    items = read(
        write(
            tmp_path / "folder" / "events.jsonl",
            START,
            event(1, "user.message", content="list them", transformedContent=given),
            event(2, "assistant.message", content="Listing.", reasoningText="Hm.", toolRequests=[ASK], outputTokens=9),
            event(3, "tool.execution_start", toolCallId="c1", toolName="shell", arguments={"command": "ls"}),
            event(4, "tool.execution_complete", toolCallId="c1", success=True, result={"content": "a.txt"}),
            event(5, "assistant.message", content="Done.", toolRequests=[], encryptedContent="zz"),
        )
    )
    assert said(items) == [
        ("user", "speech", "list them"),
        ("system", "injected", given.replace("\nlist them", "")),
        ("assistant", "thinking", "Hm."),
        ("assistant", "speech", "Listing."),
        ("tool", "tool", "shell"),
        ("assistant", "speech", "Done."),
    ]
    assert [record.event_id for record in messages(items)] == ["e1", "e1:1", "e2", "e2:1", "tool:c1", "e5"]
    assert messages(items)[4].tool_args == {"command": "ls"}
    assert [record.metadata.get("output_tokens") for record in messages(items)] == [None, None, 9, None, None, None]
    assert results(items) == {"tool:c1": "a.txt"}
    assert messages(items)[0].created_at == datetime(2026, 3, 1, 9, 0, 1, tzinfo=UTC)
    session = next(item.session for item in items if isinstance(item, Message))
    assert session.session_key == "copilot-cli:s-1"
    assert {"cwd": "/app", "git_branch": "main", "version": "1.0"}.items() <= session.settings.items()
    assert titles(items) == ["list them"]
    assert skipped(items) == {"session.start": 1, "tool.execution_start, given before": 1}


def test_failed_calls_and_those_of_sub_agents(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            START,
            event(1, "tool.execution_start", toolCallId="c1", toolName="task", arguments={}),
            event(2, "assistant.message", content="Sub.", parentToolCallId="c1"),
            event(3, "tool.execution_complete", toolCallId="c1", success=False, error={"message": "denied"}),
            event(4, "tool.execution_complete", toolCallId="c9", success=True, result={"detailedContent": "more"}),
        )
    )
    assert results(items) == {"tool:c1": "denied", "tool:c9": "more"}
    failed = next(item for item in items if isinstance(item, ToolResult))
    assert failed.metadata["is_error"] is True
    assert messages(items)[1].metadata["agent_id"] == "c1"
    assert messages(items)[1].metadata["sidechain"] is True


def test_machinery(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            START,
            event(1, "system.message", content="You are Copilot."),
            event(2, "session.error", message="quota"),
            event(3, "abort", reason="user"),
            event(4, "session.compaction_complete", success=True, summaryContent="We did x."),
            event(5, "session.compaction_complete", success=False),
            event(6, "session.title_changed", title="A title"),
            event(7, "assistant.reasoning", content="Hm."),
            event(8, "assistant.message", content="", reasoningText="Hm.", toolRequests=[]),
            event(9, "hook.start", hookType="x"),
            event(10, "brand.new"),
        )
    )
    assert said(items) == [
        ("system", "injected", "You are Copilot."),
        ("system", "notice", "quota"),
        ("system", "notice", "user"),
        ("system", "summary", "We did x."),
        ("assistant", "thinking", "Hm."),
    ]
    assert titles(items) == ["A title"]
    assert skipped(items)["brand.new"] == 1
    assert skipped(items)["assistant.message"] == 1


def test_the_sample(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "transcripts" / "other" / "copilot-cli_events.jsonl"
    items = read(path)
    # Read in the file. From line 17 on every id and text is the same placeholder, so that rows of one kind repeat each
    # other there: the third answer without thoughts, two results, and the abort, which says what a notice said.
    assert counts(items) == {
        ("system", "notice"): 3,
        ("system", "injected"): 1,
        ("user", "speech"): 2,
        ("assistant", "speech"): 4,
        ("assistant", "thinking"): 2,
        ("tool", "tool"): 3,
    }
    assert skipped(items)["repeats an earlier row"] == 4
    assert said(items)[3:7] == [
        ("user", "speech", "List the files"),
        ("assistant", "speech", "Listing the files."),
        ("tool", "tool", "shell"),
        ("assistant", "speech", "Done"),
    ]
    assert results(items)["tool:call-1"] == "a.txt\nb.txt\n"
    check_cuts(path, tmp_path)
