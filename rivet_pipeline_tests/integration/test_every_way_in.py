"""One session of a thousand messages, through every way in at once: each event once, and nobody gets an error."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline_tests.api_server import running_api

MESSAGES = 1_000
SESSION, AGENT = "9c1f0a52-3d0e-4f0a-8f43-1a2b3c4d5e6f", "rivet-claude"
BEGAN = datetime(2026, 3, 8, 9, tzinfo=UTC)


def make_session() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of a Claude Code session and its messages as the other ways in are told them.

    Prompts, answers and tool calls take turns; some texts and results are longer than the cap, some say the same.
    """
    lines: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []

    def add(kind: str, uuid: str, content: Any) -> None:
        lines.append(
            {
                "type": kind,
                "uuid": uuid,
                "timestamp": (BEGAN + timedelta(seconds=len(lines))).isoformat(),
                "sessionId": SESSION,
                "isSidechain": False,
                "message": {"role": kind, "content": content},
            }
        )

    for number in range(MESSAGES):
        long = "🚀" * 9_000 if number % 250 == 7 else ""
        if number % 3 == 2:
            native, arguments = f"toolu_{number}", {"command": f"sed -n {number}p notes"}
            add("assistant", f"a{number}", [{"type": "tool_use", "id": native, "name": "Bash", "input": arguments}])
            result = f"result {number}{long}"
            add("user", f"r{number}", [{"type": "tool_result", "tool_use_id": native, "content": result}])
            said = {"role": "tool", "tool_name": "Bash", "tool_args": arguments, "tool_result": result}
            messages.append({"event_id": f"tool:{native}", **said})
        else:
            role, text = ("user", "assistant")[number % 3], f"words {number % 50}{long}"
            add(role, f"u{number}", text)
            messages.append({"event_id": f"u{number}", "role": role, "content": text})
    return lines, messages


def test_twenty_writers_of_one_session_through_every_way_in(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    lines, messages = make_session()
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    key = f"claude-code:{SESSION}"
    whose = {"session_id": key, "agent": AGENT, "channel": "claude-code"}

    with (
        running_api(Settings(enable_memory_write=True), database_url) as base,
        httpx.Client(base_url=base, timeout=120, limits=httpx.Limits(max_connections=20)) as client,
    ):

        def post(route: str, body: dict[str, Any]) -> int:
            answer = client.post(route, json=body)
            assert answer.status_code == 200, answer.text
            result = answer.json().get("result") or answer.json()
            return int(result.get("inserted", result.get("ingested", not result.get("skipped"))))

        def capture() -> int:
            batch = {"session_key": key, "agent": AGENT, "channel": "claude-code"}
            parts = [messages[start : start + 100] for start in range(0, MESSAGES, 100)]
            return sum(post("/api/capture", {**batch, "messages": part}) for part in parts)

        def ingest() -> int:
            return post("/api/memory/tool/memory_ingest_session", {**whose, "messages": messages})

        def append() -> int:
            shuffled = random.sample(messages, MESSAGES)
            return sum(post("/api/memory/tool/memory_append", {**whose, **message}) for message in shuffled)

        def bring_in() -> int:
            report = import_paths(database_url, [path], first_day=date(2022, 11, 1), max_line=1_000_000)
            assert report.count("unreadable") == 0
            return report.messages()["new"]

        ways: list[Callable[[], int]] = [*[capture] * 7, *[ingest] * 5, *[append] * 2, *[bring_in] * 6]
        random.shuffle(ways)
        with ThreadPoolExecutor(20) as writers:
            new = [future.result() for future in [writers.submit(way) for way in ways]]

    assert sum(new) == MESSAGES
    rows = connection.execute("SELECT event_id, role, content, tool_result, metadata FROM ros_messages").fetchall()
    assert Counter(row["event_id"] for row in rows) == Counter(message["event_id"] for message in messages)
    assert connection.execute("SELECT session_key, agent FROM ros_conversations").fetchall() == [
        {"session_key": key, "agent": AGENT}
    ]
    told = {message["event_id"]: message for message in messages}
    for row in rows:
        message = told[row["event_id"]]
        assert row["role"] == message["role"]
        for name in ("content", "tool_result"):
            text, whole = row[name] or "", message.get(name) or ""
            # Import keeps texts whole, the other ways in cut them; whoever came first decided.
            assert text == whole or (row["metadata"]["truncated"] and whole.startswith(text) and len(text) >= 8_000)
