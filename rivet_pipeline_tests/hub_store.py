"""A small store for the hub's tests: a long conversation with its summaries, and one whose words are hostile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from rivet_pipeline.db.pool import Connection, open_pool
from rivet_pipeline.summaries.compact import (
    announce_summarizer,
    summarize_branches,
    summarize_leaves,
)
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.review import decide, list_patches
from rivet_pipeline.wiki.types import Claim, MineAnswer, MineRequest, PatchDraft

FIRST_DAY = date(2022, 11, 1)
BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)

#: Every trick that a page must show as text. `fire` is what any of them would call.
HOSTILE = """<script>fire(1)</script><img src=x onerror="fire(2)"><svg onload=fire(3)></svg>
[click me](javascript:fire(4)) <javascript:fire(5)> ![tracker](https://evil.example/pixel.png)
[named]: javascript:fire(6)
<a href="javascript:fire(7)" hx-get="/hub/health" hx-trigger="load">link</a>
</div></article></main><h1>Not the page</h1><style>body{display:none}</style>
{{ 7 * 7 }} {% raw %} \x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 \u202eright to left\u202c zero\u200bwidth &lt;b&gt;
# A heading that is none of the page
"""

#: An id that nothing has.
NOBODY = "4be0643f-1d98-573b-97cd-ca98a65347dd"

LONG = "A long report. " * 900

#: The tags that wait for a review.
LITERALS = [f"topic:subject-{number}" for number in range(10)]


class OneSubjectMiner:
    """Finds the same subject in every leaf, with one sentence of its own; hostile words where the leaf has some."""

    model = "test-miner"

    def mine(self, request: MineRequest) -> MineAnswer:
        text = "<script>fire(8)</script> is never run." if "hostile" in request.text else "Sessions live in Postgres."
        minute = f"Seen at {request.latest_at:%H:%M}: {text}"
        claims = (
            Claim("decisions", text, request.latest_at),
            Claim("facts", minute, request.latest_at),
        )
        return MineAnswer((PatchDraft("Session store", claims, entities=("Postgres",)),), mentions=("Kelpie server",))


@dataclass(frozen=True)
class HubStore:
    """The conversations of the store."""

    plain: UUID
    hostile: UUID


def fill_hub_store(connection: Connection, url: str) -> HubStore:
    """Writes the conversations and makes the summaries."""
    plain = _write(connection, "claude-code:plain", "opus", "Where the sessions live", _plain_messages())
    hostile = _write(
        connection,
        "codex:<b>hostile</b>",
        "codex<i>",
        "<script>fire(0)</script> a title",
        _hostile_messages(),
    )
    _write(connection, "heartbeat:1", "opus", None, [_said("noise", "user", "ping", 0)])
    with open_pool(url, max_size=2) as pool:
        summarizer = ExtractiveSummarizer()
        announce_summarizer(connection, summarizer.model)
        summarize_leaves(pool, days=None, summarizer=summarizer)
        summarize_branches(pool, days=None, summarizer=summarizer)
        mine_leaves(pool, days=None, miner=OneSubjectMiner(), review=True)
    waiting, _ = list_patches(connection, limit=100)
    decide(connection, [patch.id for patch in waiting[-2:]], "accept", by="test")
    add_waiting_tags(connection, plain, LITERALS)
    return HubStore(plain, hostile)


def add_waiting_tags(connection: Connection, conversation: UUID, literals: Sequence[str]) -> None:
    """Tags of a conversation that wait for a review."""
    for literal in literals:
        key, _, value = literal.partition(":")
        connection.execute(
            """INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source,
                                     confidence, reason, proposed_by, pipeline_version)
               VALUES ('conversation', %s, %s, %s, %s, 'suggested', 'model', 0.8, 'it <b>said</b> so', 'test', 1)""",
            [conversation, conversation, key, value],
        )


def _write(connection: Connection, key: str, agent: str, title: str | None, messages: list[MessageRecord]) -> UUID:
    session = SessionRecord(session_key=key, agent=agent, channel="cli", title=title)
    return write_batch(connection, session, messages, first_day=FIRST_DAY).conversation_id


def _said(event: str, role: str, content: str, minute: int, **more: object) -> MessageRecord:
    return MessageRecord(
        event_id=event,
        role=role,  # type: ignore[arg-type]
        content=content,
        created_at=BEGAN + timedelta(minutes=minute),
        **more,  # type: ignore[arg-type]
    )


def _plain_messages() -> list[MessageRecord]:
    messages = []
    for number in range(0, 130, 2):
        messages.append(
            _said(f"u{number}", "user", f"Question {number}: where does part_{number}.py keep its sessions?", number)
        )
        messages.append(
            _said(
                f"a{number}",
                "assistant",
                f"Part {number} keeps them in Postgres, in the table sessions_{number}, **not** in Redis.",
                number + 1,
            )
        )
    messages[3] = _said("long", "assistant", LONG, 3)
    messages[4] = _said("thought", "assistant", "I wonder about the port.", 4, metadata={"kind": "thinking"})
    messages[5] = _said(
        "call",
        "tool",
        "",
        5,
        tool_name="Bash",
        tool_args={"command": "psql -c 'select 1'"},
        tool_result="1\n(1 row)",
        metadata={"kind": "tool"},
    )
    return messages


def _hostile_messages() -> list[MessageRecord]:
    messages = [
        _said(f"h{number}", "assistant" if number % 2 else "user", f"{HOSTILE} hostile {number}", number)
        for number in range(10)
    ]
    messages.append(
        _said(
            "hc",
            "tool",
            "",
            11,
            tool_name="<b>Bash</b>",
            tool_args={"<script>": HOSTILE},
            tool_result=HOSTILE,
            metadata={"kind": "tool"},
        )
    )
    return messages
