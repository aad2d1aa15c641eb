"""A Claude Code session that happens while a test runs: its transcript grows, its hooks are called.

Nothing here knows what is asserted about it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

TITLE = "Order queue of the bakery shop"

#: What the session decides, word for word.
DECISION = (
    "We keep the order queue in Postgres, with `LISTEN` and `NOTIFY` in `queue/outbox.py`, and take no RabbitMQ, "
    "because nobody here wants to run a second server."
)


@dataclass
class LiveSession:
    """One session. `environment` is that of the agent, which its hooks get; `calls` how long each took, in seconds."""

    folder: Path
    environment: Mapping[str, str]
    id: str = field(default_factory=lambda: str(uuid4()))
    calls: list[float] = field(default_factory=list)
    _last: str | None = None

    @property
    def key(self) -> str:
        """The session's key in the memory."""
        return f"claude-code:{self.id}"

    @property
    def transcript(self) -> Path:
        """The file that Claude Code would write."""
        return self.folder / f"{self.id}.jsonl"

    def happen(self) -> None:
        """The whole session, from its first prompt to its end."""
        self._asks("The order queue of the bakery shop loses orders when the worker restarts. What do you see?")
        self._calls("toolu_1", "rg -n 'queue.get' queue/", "queue/worker.py:41: order = queue.get()")
        self._answers(
            "`queue/worker.py` takes an order out of memory before it is baked into the table `orders`: a restart at "
            "06:00 loses up to 25 orders. Either RabbitMQ keeps them, or a table `outbox` in Postgres does."
        )
        self._asks("We have Postgres already. Could it wake the worker too, without asking every second?")
        self._answers("Yes: `NOTIFY` in the same transaction that writes the row wakes the worker within 20 ms.")
        self._asks(DECISION)
        self._calls("toolu_2", "pytest -q tests/test_outbox.py", "14 passed in 3.2s")
        self._answers(
            "Done: the worker reads the table `outbox`, and 14 tests pass. A restart loses no order any more."
        )
        self._hook("SessionEnd", reason="prompt_input_exit")

    def _asks(self, text: str) -> None:
        first = self._last is None
        self._row("user", text)
        if first:
            self._write({"type": "ai-title", "sessionId": self.id, "aiTitle": TITLE})
        self._hook("UserPromptSubmit", prompt=text)

    def _calls(self, call: str, command: str, result: str) -> None:
        tool: dict[str, Any] = {"name": "Bash", "input": {"command": command}}
        self._row("assistant", [{"type": "tool_use", "id": call, **tool}])
        self._row("user", [{"type": "tool_result", "tool_use_id": call, "content": result, "is_error": False}])
        self._hook(
            "PostToolUse",
            tool_name=tool["name"],
            tool_input=tool["input"],
            tool_use_id=call,
            tool_response={"stdout": result},
        )

    def _answers(self, text: str) -> None:
        self._row("assistant", [{"type": "text", "text": text}])
        self._hook("Stop", last_assistant_message=text)

    def _row(self, kind: str, content: Any) -> None:
        identity = str(uuid4())
        self._write(
            {
                "type": kind,
                "uuid": identity,
                "parentUuid": self._last,
                "isSidechain": False,
                "sessionId": self.id,
                "cwd": "/home/mara/src/bakery",
                "version": "2.1.232",
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "message": {"role": kind, "content": content},
            }
        )
        self._last = identity

    def _write(self, row: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.transcript.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")

    def _hook(self, event: str, **fields: Any) -> None:
        payload = {
            "session_id": self.id,
            "transcript_path": str(self.transcript),
            "cwd": "/home/mara/src/bakery",
            "hook_event_name": event,
            **fields,
        }
        began = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-m", "rivet_pipeline.cli.entry", "hook", "claude-code"],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env=dict(self.environment),
            timeout=60,
            check=False,
        )
        self.calls.append(time.monotonic() - began)
        if (ran.returncode, ran.stdout, ran.stderr) != (0, b"", b""):
            raise RuntimeError(f"the hook {event} said something: {ran}")
