"""A small made-up conversation that several tests summarise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rivet_pipeline.summaries.types import ConversationInfo, SourceMessage, SourceSummary, SummaryRequest

START = datetime(2026, 4, 18, 12, 0, 30, tzinfo=UTC)
CONVERSATION = ConversationInfo(UUID(int=7), "opus", "cli", "term-1", "Timer  app")


def message(number: int, role: str, content: str, **more: Any) -> SourceMessage:
    return SourceMessage(UUID(int=number), START + timedelta(minutes=number), "opus", role, content, **more)


MESSAGES = (
    message(0, "user", "Can you set up the project with npm and add a CI job?"),
    message(
        1,
        "assistant",
        "Sure! I will install the dependencies with npm and write .github/workflows/ci.yml. The build "
        "usually takes about 3 minutes on the default runner.",
    ),
    message(
        2,
        "tool",
        "",
        tool_name="Bash",
        tool_args={"command": "npm install"},
        tool_result="added 312 packages in 14s\n3 vulnerabilities",
    ),
    message(3, "user", "No, not npm. Use pnpm instead, we always use pnpm 9.1.0 in this repo."),
    message(
        4,
        "assistant",
        "Understood. I removed package-lock.json and switched to pnpm 9.1.0. The lockfile "
        "pnpm-lock.yaml is committed as 3f2a91c.",
    ),
    message(
        5,
        "tool",
        "",
        tool_name="Bash",
        tool_args={"command": "pnpm test"},
        tool_result='src/timer.test.ts\nTypeError: cannot read properties of undefined (reading "tick")\n'
        "    at Object.<anonymous> (src/timer.test.ts:42:10)\nTests: 1 failed, 11 passed",
    ),
    message(
        6,
        "assistant",
        "One test fails: `src/timer.test.ts:42` expects a `tick` method. The cause is that Timer is "
        "constructed before the clock is injected. We decided to inject the clock through the constructor because "
        "it keeps the tests deterministic.",
    ),
    message(7, "user", "I prefer small commits. Please never squash them. What is the port of the dev server?"),
    message(8, "assistant", "The dev server listens on port 5174. It is configured in vite.config.ts."),
    message(9, "system", "PR #128 was opened from branch feat/timer with 214 lines."),
)


def leaf_request(messages: tuple[SourceMessage, ...] = MESSAGES) -> SummaryRequest:
    return SummaryRequest("leaf", CONVERSATION, messages)


def child(number: int, content: str) -> SourceSummary:
    start = START + timedelta(hours=number)
    return SourceSummary(UUID(int=100 + number), content, start, start + timedelta(minutes=30), 10, ("opus",))
