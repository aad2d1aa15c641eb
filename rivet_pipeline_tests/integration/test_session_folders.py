"""Sessions that stand in folders of several files become one conversation, each word once."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.reports import ImportReport

FIRST_DAY = date(2022, 11, 1)
START = 1_780_000_000_000
NATIVE = "019e5f82-f0e5-7d41-a38c-000000000001"


def write(path: Path, *rows: dict[str, Any], settled: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if settled:
        os.utime(path, (0, 0))


def run(store: str, path: Path) -> ImportReport:
    return import_paths(store, [path], first_day=FIRST_DAY, max_line=1024 * 1024)


def rows(connection: Connection) -> list[tuple[Any, ...]]:
    found = connection.execute(
        """
        SELECT c.session_key, c.title, m.role, m.content || coalesce(m.tool_name, '') AS words, m.tool_result
        FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
        ORDER BY c.session_key, m.created_at, m.seq
        """
    ).fetchall()
    return [tuple(row.values()) for row in found]


def kimi(words: str, at: int, kind: str = "user", name: str = "") -> dict[str, Any]:
    origin = {"kind": kind, "name": name}
    message = {"role": "user", "content": [{"type": "text", "text": words}], "origin": origin}
    return {"type": "context.append_message", "message": message, "time": START + at}


def kimi_event(kind: str, at: int, **more: Any) -> dict[str, Any]:
    event = {"type": kind, "toolCallId": "Bash_0", "name": "Bash", **more}
    return {"type": "context.append_loop_event", "event": event, "time": START + at}


def test_a_kimi_session_and_its_sub_agent(database_url: str, connection: Connection, tmp_path: Path) -> None:
    session = tmp_path / "wd_app" / "session_1"
    write(
        session / "agents" / "main" / "wire.jsonl",
        kimi("count", 0),
        kimi_event("tool.call", 1, args={"c": "ls"}),
        kimi_event("tool.result", 4, result={"output": "a"}),
    )
    write(
        session / "agents" / "agent-0" / "wire.jsonl",
        kimi("Count them.", 2, "system_trigger", "subagent"),
        kimi_event("tool.call", 3, args={"c": "wc"}),
        kimi_event("tool.result", 3, result={"output": "1"}),
    )
    (session / "state.json").write_text('{"title": "Counting", "workDir": "/app"}')
    os.utime(session / "state.json", (0, 0))
    assert run(database_url, tmp_path).messages()["new"] == 4
    key = "kimi-code:session_1"
    assert rows(connection) == [
        (key, "Counting", "user", "count", None),
        (key, "Counting", "tool", "Bash", "a"),
        (key, "Counting", "user", "Count them.", None),
        (key, "Counting", "tool", "Bash", "1"),
    ]
    # A new name for the session is noticed, though neither agent wrote anything.
    (session / "state.json").write_text('{"title": "Counted", "workDir": "/app"}')
    assert run(database_url, tmp_path).messages()["new"] == 0
    assert {row[1] for row in rows(connection)} == {"Counted"}


def grok(kind: str, number: int, words: str) -> dict[str, Any]:
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": words}}
    meta = {"eventId": f"{NATIVE}-{number}", "agentTimestampMs": START + number, "promptId": kind}
    return {
        "timestamp": START // 1000,
        "method": "session/update",
        "params": {"sessionId": NATIVE, "update": update, "_meta": meta},
    }


def test_a_grok_session_that_grows(database_url: str, connection: Connection, tmp_path: Path) -> None:
    folder = tmp_path / "%2Fapp" / NATIVE
    summary = {"info": {"id": NATIVE, "cwd": "/app"}, "generated_title": "A title"}
    write(
        folder / "chat_history.jsonl", {"type": "user", "content": [{"type": "text", "text": "hi"}], "prompt_index": 0}
    )
    write(folder / "summary.json", summary)
    stream = [grok("user_message_chunk", 1, "hi"), grok("agent_message_chunk", 2, "Hel")]
    write(folder / "updates.jsonl", *stream, settled=False)
    first = run(database_url, tmp_path)
    assert first.count("incomplete") == 1
    assert [row[3] for row in rows(connection)] == ["hi"]
    write(folder / "updates.jsonl", *stream, grok("agent_message_chunk", 3, "lo."))
    run(database_url, tmp_path)
    assert [row[:4] for row in rows(connection)] == [
        (f"grok-build:{NATIVE}", "A title", "user", "hi"),
        (f"grok-build:{NATIVE}", "A title", "assistant", "Hello."),
    ]
