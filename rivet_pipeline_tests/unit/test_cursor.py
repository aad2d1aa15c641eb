"""What Cursor's agent transcripts become, as JSON lines and as text."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.transcripts.readers.cursor import CursorReader
from rivet_pipeline.transcripts.reading import Reading
from rivet_pipeline.transcripts.records import Damaged, Message, Paused, ReadItem, ToolResult
from rivet_pipeline_tests.unit.reading import (
    check_cuts,
    is_incomplete,
    messages,
    read,
    results,
    said,
    skipped,
    titles,
    write,
)


def row(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "message": {"content": [*blocks]}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def answer(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "content": [text(words)], **more}


def test_the_users_words_are_told_from_what_was_put_around_them(tmp_path: Path) -> None:
    prompt = "Some rules.\n<user_query>\nfix <b>it</b>\n</user_query>\n<open_files>a</open_files>"
    items = read(write(tmp_path / "u-1.jsonl", row("user", text(prompt)), row("assistant", text("Ok."))))
    assert said(items) == [
        ("system", "injected", "Some rules."),
        ("user", "speech", "fix <b>it</b>"),
        ("system", "injected", "<open_files>a</open_files>"),
        ("assistant", "speech", "Ok."),
    ]
    two = "<user_query>\none\n</user_query>\n<user_query>\ntwo\n</user_query>"
    assert said(read(write(tmp_path / "u-2.jsonl", row("user", text(two))))) == [("user", "speech", "one\ntwo")]
    assert titles(items) == ["fix <b>it</b>"]
    assert {item.session.session_key for item in items if isinstance(item, Message)} == {"cursor:u-1"}
    assert all(record.created_at is None for record in messages(items))


def test_results_belong_to_the_calls_before_them(tmp_path: Path) -> None:
    items = read(
        write(
            tmp_path / "a.jsonl",
            row("assistant", use("Grep", q=1), use("Read", p="a"), use("Read", p="b")),
            row("user", answer("of b", name="Read"), answer("of grep", tool_use_id="t9")),
            row("user", text("now something else")),
            row("user", answer("late", tool_use_id="t1")),
        )
    )
    grep, read_a, read_b = messages(items)[:3]
    found = results(items)
    assert found[read_a.event_id] == "of b"
    assert found[grep.event_id] == "of grep"
    assert read_b.event_id not in found
    assert found["tool:t1"] == "late"
    paired = [item.metadata.get("paired_by") for item in items if isinstance(item, ToolResult)]
    assert paired == ["position", "position", None]


def test_what_stands_at_cursors_own_place_is_cursors(tmp_path: Path) -> None:
    dated = {**row("user", text("hi")), "timestamp": 1}
    assert read(write(tmp_path / "a.jsonl", dated)) == []
    assert said(read(write(tmp_path / "agent-transcripts" / "u" / "u.jsonl", dated))) == [("user", "speech", "hi")]


def test_errors_and_ends(tmp_path: Path) -> None:
    rows = [
        row("user", text("hi")),
        {"type": "error", "error": "upstream timeout"},
        row("assistant", text("[REDACTED]")),
        {"type": "turn_ended", "status": "success"},
        {"type": "turn_ended", "status": "error"},
        {"type": "brand_new"},
    ]
    items = read(write(tmp_path / "a.jsonl", *rows))
    assert said(items)[1:] == [("system", "notice", "upstream timeout"), ("system", "notice", "[turn ended: error]")]
    assert skipped(items) == {"redacted text": 1, "turn_ended": 1, "brand_new": 1}


def test_the_same_words_twice_are_two_messages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", row("user", text("yes")))
    first = messages(read(path))[0].event_id
    both = [
        record.event_id for record in messages(read(write(path, row("user", text("yes")), row("user", text("yes")))))
    ]
    assert both[0] == first
    assert len(set(both)) == 2


def test_sub_agents_belong_to_their_parents_session(tmp_path: Path) -> None:
    path = write(tmp_path / "u-1" / "subagents" / "u-2.jsonl", row("user", text("count")))
    items = read(path)
    record = messages(items)[0]
    assert {item.session.session_key for item in items if isinstance(item, Message)} == {"cursor:u-1"}
    assert (record.metadata["agent_id"], record.metadata["sidechain"]) == ("u-2", True)
    assert titles(items) == []


OLD = """user:
<open_files>a.py</open_files>
<user_query>
compare these:
assistant:
[Tool call] nothing
</user_query>

assistant:
[Thinking] Let me see.
Two lines.

I will look.
[Tool call] Read
  path: a.py
  note: first
second

[Tool result] Read
print(1)

[Tool call] Grep
  pattern: x
[Tool result] Grep

assistant:
It prints 1.

user:
thanks
"""

EXPECTED = [
    ("system", "injected", "<open_files>a.py</open_files>"),
    ("user", "speech", "compare these:\nassistant:\n[Tool call] nothing"),
    ("assistant", "thinking", "Let me see.\nTwo lines."),
    ("assistant", "speech", "I will look."),
    ("tool", "tool", "Read"),
    ("tool", "tool", "Grep"),
    ("assistant", "speech", "It prints 1."),
    ("user", "speech", "thanks"),
]


def old_file(folder: Path, words: str = OLD) -> Path:
    path = folder / "agent-transcripts" / "u-1.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words)
    return path


def test_the_older_form(tmp_path: Path) -> None:
    items = read(old_file(tmp_path))
    assert said(items) == EXPECTED
    calls = [record for record in messages(items) if record.role == "tool"]
    assert calls[0].tool_args == {"path": "a.py", "note": "first\nsecond"}
    assert results(items) == {calls[0].event_id: "print(1)"}
    assert skipped(items) == {"Tool result without text": 1}
    assert titles(items) == ["compare these: assistant: [Tool call] nothing"]
    assert not any("session_jsonl_path" in record.metadata for record in messages(items))


def test_the_last_block_of_the_older_form_may_grow(tmp_path: Path) -> None:
    items = read(old_file(tmp_path), settled=False)
    assert said(items) == EXPECTED[:-1]
    assert is_incomplete(items)
    check_cuts(old_file(tmp_path), tmp_path / "agent-transcripts")


def test_the_older_form_is_followed(tmp_path: Path) -> None:
    path = old_file(tmp_path, "user:\nhi\nassis")
    reading = CursorReader().read(path, Reading("a", follow=True))
    assert isinstance(next(reading), Paused)
    with path.open("a") as stream:
        stream.write("tant:\nhello\n\nuser:\n")
    items: list[ReadItem] = []
    for item in islice(reading, 10):
        if isinstance(item, Paused):
            break
        items.append(item)
    assert said(items) == [("user", "speech", "hi"), ("assistant", "speech", "hello")]


def test_a_line_that_is_too_long_is_stepped_over(tmp_path: Path) -> None:
    path = old_file(tmp_path, "user:\nhi\n" + "x" * 500 + "\nthere\n")
    items = list(CursorReader().read(path, Reading("a", max_line=100)))
    assert said(items) == [("user", "speech", "hi\nthere")]
    assert [item.line for item in items if isinstance(item, Damaged)] == [3]


@pytest.mark.parametrize(
    ("name", "expected", "answered"),
    [
        (
            "agent-transcript_test-session.jsonl",
            [
                ("user", "speech", "run ls command"),
                ("assistant", "speech", "Running the ls command for you."),
                ("tool", "tool", "Shell"),
                ("assistant", "speech", "Here are the directory contents:"),
                ("user", "speech", "now show me the git status"),
                ("tool", "tool", "Shell"),
                ("assistant", "speech", "The repository is clean — no uncommitted changes."),
            ],
            0,
        ),
        (
            "large.jsonl",
            [
                ("user", "speech", "What files are here?"),
                ("assistant", "thinking", "Let me check the directory."),
                ("assistant", "speech", "I will list the files."),
                ("tool", "tool", "Bash"),
                ("assistant", "speech", "There are two files."),
                ("user", "speech", "Read file1.txt."),
                ("tool", "tool", "Read"),
                ("assistant", "speech", "The file contains: hello world."),
                ("user", "speech", "Thanks."),
                ("assistant", "speech", "You are welcome."),
            ],
            2,
        ),
        (
            "schema_drift.jsonl",
            [
                ("user", "speech", "Use the repo context and explain the latest build issue."),
                ("assistant", "thinking", "I should inspect the build log before answering."),
                ("tool", "tool", "read_file"),
                ("assistant", "speech", "Cursor added an unknown block with visible text."),
                ("assistant", "speech", "The build issue is in Example.swift:42."),
            ],
            1,
        ),
        (
            "s2thend_multi-parts.jsonl",
            [("assistant", "speech", "Step 1: search"), ("tool", "tool", "Grep"), ("tool", "tool", "Glob")],
            0,
        ),
        (
            "s2thend_with-tools.jsonl",
            [
                ("user", "speech", "Read foo.txt"),
                ("assistant", "speech", "Reading the file."),
                ("tool", "tool", "Read"),
            ],
            0,
        ),
        (
            "s2thend_error-line.jsonl",
            [("user", "speech", "hi"), ("system", "notice", "Provider Error: upstream timeout")],
            0,
        ),
        (
            "small.jsonl",
            [
                ("user", "speech", "List the files."),
                ("assistant", "speech", "Here are the files."),
                ("user", "speech", "Run ls."),
                ("assistant", "speech", "Running ls."),
                ("tool", "tool", "Bash"),
            ],
            0,
        ),
    ],
)
def test_the_samples(
    shared_data: Path, tmp_path: Path, name: str, expected: list[tuple[str, str, str]], answered: int
) -> None:
    path = shared_data / "transcripts" / "cursor" / name
    items = read(path)
    assert [(role, kind, words.split("\n")[0]) for role, kind, words in said(items)] == expected
    assert len(results(items)) == answered
    assert results(items).keys() <= {record.event_id for record in messages(items)}
    check_cuts(path, tmp_path)
