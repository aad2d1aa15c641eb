"""The demo sessions that ship in the package: sound files, complete pairs, enough of them to show something.

What they say is not tested here; what the readers make of them belongs to the readers' tests.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import rivet_pipeline

DEMO = Path(rivet_pipeline.__file__).parent / "demo"
FILES = sorted(DEMO.glob("*/*.jsonl"))
CLAUDE_FILES = [path for path in FILES if path.parent.name != "codex"]
CODEX_FILES = [path for path in FILES if path.parent.name == "codex"]

#: A root summary needs three branches of at least five leaves, a leaf ten messages; eighteen leaves leave a margin.
LONG_SESSION_MESSAGES = 180


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all(isinstance(row, dict) for row in rows)
    return rows


def times_of(path: Path) -> list[datetime]:
    return [datetime.fromisoformat(row["timestamp"]) for row in rows_of(path) if "timestamp" in row]


def claude_blocks(rows: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    contents = [row["message"]["content"] for row in rows if row["type"] == role]
    return [block for content in contents if isinstance(content, list) for block in content]


def spoken_and_done(path: Path) -> int:
    """How many messages the session holds: texts of both sides, thoughts and tool calls."""
    rows = rows_of(path)
    if path in CODEX_FILES:
        kinds = [(row["type"], row["payload"].get("type")) for row in rows]
        wanted = {("event_msg", "user_message"), ("event_msg", "agent_message"), ("response_item", "reasoning")}
        calls = {("response_item", "function_call"), ("response_item", "custom_tool_call")}
        return sum(kind in wanted | calls for kind in kinds)
    prompts = [row for row in rows if row["type"] == "user" and "permissionMode" in row]
    return len(prompts) + len(claude_blocks(rows, "assistant"))


def test_there_are_three_agents_and_enough_sessions_and_days() -> None:
    days = {times_of(path)[0].astimezone(UTC).date() for path in FILES}
    assert {path.parent.name for path in FILES} == {"opus", "sonnet", "codex"}
    assert len(FILES) >= 14
    assert len(days) >= 12
    assert date(2026, 9, 1) <= min(days)
    assert max(days) <= date(2026, 10, 20)


def test_the_whole_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in FILES) < 700_000


def test_one_session_is_long_enough_for_a_root_summary_and_none_is_trivial() -> None:
    lengths = sorted(spoken_and_done(path) for path in FILES)
    assert lengths[-1] >= LONG_SESSION_MESSAGES
    assert lengths[0] >= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem[-12:]}")
class TestEveryFile:
    def test_time_never_runs_backwards_and_stays_within_one_day(self, path: Path) -> None:
        times = times_of(path)
        assert all(time.tzinfo is not None for time in times)
        assert times == sorted(times)
        assert times[0].astimezone(UTC).date() == times[-1].astimezone(UTC).date()

    def test_it_holds_no_machine_path_but_maras(self, path: Path) -> None:
        homes = path.read_text(encoding="utf-8").split("/home/")[1:]
        assert homes
        assert all(part.startswith("mara/") for part in homes)


@pytest.mark.parametrize("path", CLAUDE_FILES, ids=lambda path: path.stem[:8])
class TestClaudeCode:
    def test_every_call_has_one_result_after_it(self, path: Path) -> None:
        open_calls: set[str] = set()
        seen: Counter[str] = Counter()
        for row in rows_of(path):
            if row["type"] not in ("user", "assistant") or isinstance(row["message"]["content"], str):
                continue
            for block in row["message"]["content"]:
                if block["type"] == "tool_use":
                    open_calls.add(block["id"])
                    seen[block["id"]] += 1
                elif block["type"] == "tool_result":
                    open_calls.remove(block["tool_use_id"])
                    assert "toolUseResult" in row
        assert seen
        assert not open_calls
        assert max(seen.values()) == 1

    def test_rows_form_one_chain_in_one_session(self, path: Path) -> None:
        rows = [row for row in rows_of(path) if "uuid" in row]
        ids = [row["uuid"] for row in rows]
        assert len(ids) == len(set(ids))
        assert {row["sessionId"] for row in rows} == {path.stem}
        known: set[str] = set()
        for row in rows:
            parent = row["parentUuid"] or row.get("logicalParentUuid")
            assert parent in known or not known
            known.add(row["uuid"])

    def test_it_looks_like_what_the_harness_writes(self, path: Path) -> None:
        rows = rows_of(path)
        assert {"user", "assistant", "system", "attachment", "ai-title", "last-prompt"} <= {row["type"] for row in rows}
        kinds = {block["type"] for block in claude_blocks(rows, "assistant")}
        assert kinds == {"text", "thinking", "tool_use"}


@pytest.mark.parametrize("path", CODEX_FILES, ids=lambda path: path.stem[8:18])
class TestCodex:
    def test_every_call_has_one_output_after_it(self, path: Path) -> None:
        open_calls: set[str] = set()
        seen: Counter[str] = Counter()
        for row in rows_of(path):
            payload = row["payload"]
            if payload.get("type") in ("function_call", "custom_tool_call"):
                open_calls.add(payload["call_id"])
                seen[payload["call_id"]] += 1
            elif payload.get("type") in ("function_call_output", "custom_tool_call_output"):
                open_calls.remove(payload["call_id"])
        assert seen
        assert not open_calls
        assert max(seen.values()) == 1

    def test_speech_stands_twice_as_in_real_rollouts(self, path: Path) -> None:
        rows = rows_of(path)
        events = [row["payload"] for row in rows if row["type"] == "event_msg"]
        items = [
            row["payload"] for row in rows if row["type"] == "response_item" and row["payload"]["type"] == "message"
        ]
        said = {item["content"][0]["text"] for item in items}
        told = {event["message"] for event in events if event["type"] in ("user_message", "agent_message")}
        assert told
        assert told <= said
        injected = ("<environment_context>", "# AGENTS.md instructions")
        assert all(text.startswith(injected) for text in said - told)

    def test_the_first_line_names_the_session_of_the_file(self, path: Path) -> None:
        first = rows_of(path)[0]
        assert first["type"] == "session_meta"
        assert path.stem.endswith(first["payload"]["id"])
        assert path.name.startswith(f"rollout-{first['timestamp'][:10]}T")
