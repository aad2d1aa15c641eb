"""The sentences that are made of tool calls without a model: true, telling, short, and of any arguments at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.tool_calls.render import Renderer, render
from rivet_pipeline.tool_calls.types import LONGEST, ToolCall

SAID: list[tuple[str, Any, str]] = [
    ("Bash", {"command": "git status"}, "Ran `git status` in the shell."),
    (
        "Bash",
        {"command": "npm test", "description": "Run the tests.", "timeout": 5},
        "Ran `npm test` in the shell (Run the tests).",
    ),
    ("Bash", {"command": "npm run dev", "run_in_background": True}, "Started `npm run dev` in the shell."),
    ("Bash", {"command": "echo `date`"}, "Ran `` echo `date` `` in the shell."),
    ("Bash", {"command": "cd a\n  ls"}, "Ran `cd a ls` in the shell."),
    (
        "shell",
        {"command": ["bash", "-lc", "rg --files"], "workdir": "/repo"},
        "Ran `rg --files` in the shell, in /repo.",
    ),
    ("shell", {"command": ["ls", "-l"]}, "Ran `ls -l` in the shell."),
    ("exec_command", '{"cmd": "make test"}', "Ran `make test` in the shell."),
    (
        "Read",
        {"file_path": "src/app/user_store.py", "offset": 1, "limit": 40},
        "Read src/app/user_store.py (lines 1-40).",
    ),
    ("Read", {"file_path": "a.py", "limit": 40}, "Read a.py (the first 40 lines)."),
    ("Read", {"file_path": "a.py", "offset": 12}, "Read a.py (from line 12)."),
    ("read_file", {"path": "a.py", "offset": 12, "limit": 3}, "Read a.py (3 lines from offset 12)."),
    ("read_file", {"path": "a.py", "start_line": 3, "end_line": 9}, "Read a.py (lines 3-9)."),
    ("view", {"path": "a.py", "view_range": [3, 9]}, "Read a.py (lines 3-9)."),
    ("Write", {"file_path": "a.md", "content": "one\ntwo\n"}, "Wrote a.md (2 lines)."),
    ("Write", {"file_path": "a.md", "content": "one"}, "Wrote a.md (1 line)."),
    (
        "Edit",
        {"file_path": "a.py", "old_string": "x = 1\ny", "new_string": "x = 2\ny"},
        "Edited a.py, `x = 1` to `x = 2`.",
    ),
    (
        "Edit",
        {"file_path": "a.css", "old_string": "a {\n}", "new_string": "a {\n  top: 0;\n}"},
        "Edited a.css, added `top: 0;`.",
    ),
    ("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": ""}, "Edited a.py, removed `x = 1`."),
    (
        "Edit",
        {"file_path": "a.py", "old_string": "x", "new_string": "y", "replace_all": True},
        "Edited a.py, `x` to `y`, everywhere.",
    ),
    ("MultiEdit", {"file_path": "a.py", "edits": [{}, {}]}, "Edited a.py (2 edits)."),
    (
        "apply_patch",
        "*** Begin Patch\n*** Update File: src/a.py\n-x\n+y\n*** Add File: b.py\n+z\n*** End Patch",
        "Patched src/a.py and b.py.",
    ),
    ("apply_patch", {"changes": {"/tmp/a.txt": {"type": "update"}}}, "Patched /tmp/a.txt."),
    ("Grep", {"pattern": "TODO", "path": "src", "glob": "*.py"}, "Searched src for `TODO` (only *.py)."),
    ("Grep", {"pattern": "TODO"}, "Searched the files for `TODO`."),
    ("Glob", {"pattern": "**/*.md", "path": "docs"}, "Listed the files that match `**/*.md` in docs."),
    ("LS", {"path": "."}, "Listed `.`."),
    ("WebSearch", {"query": "pgvector hnsw build"}, "Searched the web for “pgvector hnsw build”."),
    ("web_search", {"queries": ["a", "b"]}, "Searched the web for “a, b”."),
    (
        "WebFetch",
        {"url": "https://x.org/a", "prompt": "Which version?"},
        "Fetched https://x.org/a, asking “Which version?”.",
    ),
    (
        "TodoWrite",
        {
            "todos": [
                "broken",
                {"content": "Build", "status": "completed"},
                {"content": "Test", "status": "in_progress"},
            ]
        },
        "Updated the to-do list: 1 of 2 tasks done, now “Test”.",
    ),
    ("update_plan", {"plan": [{"step": "Build", "status": "pending"}]}, "Made a to-do list of 1 task: Build."),
    (
        "Task",
        {"subagent_type": "reviewer", "description": "Check the auth code", "prompt": "long"},
        "Started a sub-agent (reviewer) for “Check the auth code”.",
    ),
    ("AskUserQuestion", {"questions": [{"question": "Redis?"}, {}]}, "Asked the user “Redis?” and 1 more question."),
    (
        "mcp__github__create_issue",
        {"title": "Slow search", "labels": ["bug", "db"], "body": ""},
        "Called github's create_issue with title “Slow search” and labels bug and db.",
    ),
    ("mcp__a__b__c", {"n": 3}, "Called a's b__c with n 3."),
    ("TaskUpdate", {"taskId": "1", "status": "done"}, "Called TaskUpdate with taskId “1” and status “done”."),
    ("many", dict.fromkeys("abcdef", 1), "Called many with a 1, b 1, c 1, d 1 and 2 more arguments."),
    ("TaskList", {}, "Called TaskList without arguments."),
    ("odd", None, "Called odd."),
    ("git", "status", "Called git with input “status”."),
    # Arguments of another shape than the tool's own are named as they are.
    ("Read", {"file_path": 5}, "Called Read with file_path 5."),
    ("Bash", {"command": {"x": 1}}, 'Called Bash with command {"x": 1}.'),
]


@pytest.mark.parametrize(("name", "args", "said"), SAID, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(SAID)])
def test_a_call_is_told_by_what_its_arguments_say(name: str, args: Any, said: str) -> None:
    assert render(ToolCall(name, args, "fine")) == said


FAILED: list[tuple[str | None, dict[str, Any], str]] = [
    ("ls: x: No such file", {"is_error": True}, "Ran `ls x` in the shell; it failed: ls: x: No such file."),
    (
        "Exit code 2\nls: x: gone.",
        {"is_error": True, "exit_code": 2},
        "Ran `ls x` in the shell; it failed with exit code 2: ls: x: gone.",
    ),
    ("", {"exit_code": 1}, "Ran `ls x` in the shell; it failed with exit code 1."),
    (None, {"is_error": True}, "Ran `ls x` in the shell; it failed."),
    (
        "Traceback (most recent call last):\n  File x\nValueError: bad level",
        {"is_error": True},
        "Ran `ls x` in the shell; it failed: ValueError: bad level.",
    ),
    (
        "<tool_use_error>File has not been read yet.</tool_use_error>",
        {"is_error": True},
        "Ran `ls x` in the shell; it failed: File has not been read yet.",
    ),
    ("\x1b[31mred\x1b[0m", {"is_error": True}, "Ran `ls x` in the shell; it failed: red."),
    # Words of a result are no verdict: only what the capture noted is.
    ("error: 0 failed", {"exit_code": 0}, "Ran `ls x` in the shell."),
    ("fine", {"is_error": False}, "Ran `ls x` in the shell."),
]


@pytest.mark.parametrize(("result", "metadata", "said"), FAILED)
def test_a_failure_is_told_with_its_reason(result: str | None, metadata: dict[str, Any], said: str) -> None:
    assert render(ToolCall("Bash", {"command": "ls x"}, result, metadata)) == said


def test_long_and_binary_arguments_are_cut_and_named() -> None:
    text = render(
        ToolCall("Bash", {"command": "word " * 5000, "description": "why " * 500}, "no " * 900, {"is_error": True})
    )
    assert len(text) <= LONGEST
    assert "…" in text
    assert "; it failed: no" in text
    assert render(ToolCall("upload", {"image": "iVBORw0KGgo" * 100, "name": "a.png"})) == (
        "Called upload with image “(1,100 characters of data)” and name “a.png”."
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from([name for name, _, _ in SAID]) | st.text(min_size=1, max_size=30)
KNOWN_KEYS = st.sampled_from(
    ["command", "file_path", "path", "offset", "limit", "view_range", "edits", "old_string", "todos", "plan",
     "questions", "query", "queries", "url", "changes", "pattern", "content", "description", "prompt", "paths"]
)  # fmt: skip


@given(NAMES, JSON | st.dictionaries(KNOWN_KEYS, JSON, max_size=5), st.none() | st.text(), st.booleans())
def test_any_arguments_give_one_short_line_that_ends(name: str, args: Any, result: str | None, failed: bool) -> None:
    text = render(ToolCall(name, args, result, {"is_error": failed}))
    assert 5 <= len(text) <= LONGEST
    assert text == " ".join(text.split())
    assert text.endswith(".")
    assert failed == ("; it failed" in text) or "; it failed" in f"{name}{args}{result}"
    assert text == Renderer().write(ToolCall(name, args, result, {"is_error": failed})).text
