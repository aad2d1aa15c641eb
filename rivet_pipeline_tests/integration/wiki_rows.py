"""Leaves for the wiki's tests, and a miner that says what a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.stages import StageReport
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.types import Claim, MineAnswer, MineRequest, PatchDraft, Section
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def at(days: float) -> datetime:
    """So many days after the first of the tests' days."""
    return NOON + timedelta(days=days)


def add_leaf(
    connection: Connection,
    text: str,
    *,
    days: float = 0,
    conversation: UUID | None = None,
    title: str | None = None,
    grounding: float | None = None,
    messages: Sequence[str] = ("What was said.",),
) -> UUID:
    """A leaf over messages of its own."""
    conversation = conversation or add_conversation(connection)
    if title is not None:
        connection.execute("UPDATE ros_conversations SET title = %s WHERE id = %s", [title, conversation])
    row = connection.execute(
        """
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, agents, model,
                                   pipeline_version, input_hash, grounding)
        VALUES (%s, 'leaf', %s, %s, %s, %s, '{claude}', 'test', 5, 'x', %s) RETURNING id
        """,
        [conversation, text, len(messages), at(days) - timedelta(minutes=5), at(days), grounding],
    ).fetchone()
    assert row is not None
    for place, message in enumerate(messages):
        connection.execute(
            "INSERT INTO ros_summary_sources (summary_id, message_id, ordinal) VALUES (%s, %s, %s)",
            [row["id"], add_message(connection, message, conversation=conversation), place],
        )
    leaf: UUID = row["id"]
    return leaf


def change_leaf(connection: Connection, leaf: UUID, text: str, *, grounding: float | None = None) -> None:
    """The leaf made again with another text."""
    connection.execute(
        "UPDATE ros_summaries SET content = %s, grounding = %s, metadata = %s WHERE id = %s",
        [text, grounding, Jsonb({"redone_at": datetime.now(UTC).isoformat()}), leaf],
    )


def tag(connection: Connection, conversation: UUID, literal: str, *, by: str | None = None) -> None:
    """An accepted tag: the rule's, or a person's (`by`)."""
    key, value = literal.split(":", 1)
    connection.execute(
        """
        INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source, proposed_by,
                              decided_by, decided_at)
        VALUES ('conversation', %(id)s, %(id)s, %(key)s, %(value)s, 'accepted', %(source)s, 'test', %(by)s,
                CASE WHEN %(by)s::text IS NULL THEN NULL ELSE now() END)
        """,
        {"id": conversation, "key": key, "value": value, "source": "person" if by else "rule", "by": by},
    )


def conversation_of(connection: Connection, leaf: UUID) -> UUID:
    row = connection.execute("SELECT conversation_id FROM ros_summaries WHERE id = %s", [leaf]).fetchone()
    assert row is not None
    found: UUID = row["conversation_id"]
    return found


def draft(
    title: str,
    *texts: str,
    when: datetime = NOON,
    section: Section = "facts",
    entities: Sequence[str] = (),
    aliases: Sequence[str] = (),
) -> PatchDraft:
    """A patch with a claim for each text."""
    claims = tuple(Claim(section, text, when) for text in texts)
    return PatchDraft(title, claims, aliases=tuple(aliases), entities=tuple(entities))


class ScriptedMiner:
    """Answers what `script` says for a request, and keeps the requests."""

    def __init__(self, script: Callable[[MineRequest], Sequence[PatchDraft]]) -> None:
        self.model = "scripted-1"
        self.script = script
        self.asked: list[MineRequest] = []

    def mine(self, request: MineRequest) -> MineAnswer:
        self.asked.append(request)
        return MineAnswer(tuple(self.script(request)), calls=1)


def say_lines(request: MineRequest) -> list[PatchDraft]:
    """A patch for each line `Title | sentence | sentence | @name` of a leaf; @ marks an entity."""
    drafts = []
    for line in request.text.splitlines():
        if "|" in line:
            title, *parts = (part.strip() for part in line.split("|"))
            texts = [part for part in parts if not part.startswith("@")]
            names = [part[1:] for part in parts if part.startswith("@")]
            drafts.append(draft(title, *texts, when=request.latest_at, entities=names))
    return drafts


def mine(pool: Pool, miner: ScriptedMiner | None = None, *, review: bool = False, version: int = 4) -> StageReport:
    """One pass over everything."""
    return mine_leaves(pool, days=None, miner=miner or ScriptedMiner(say_lines), review=review, version=version)
