"""Small things for the tests of tags: taggers that answer as they are told, and leaves long enough to be tagged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from typing import Literal as OneOf
from uuid import UUID

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import announce_refinement
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.stages import StageReport
from rivet_pipeline.tags import propose as stage
from rivet_pipeline.tags.literals import Literal, read_literal
from rivet_pipeline.tags.propose import TagReport, propose_tags
from rivet_pipeline.tags.read import list_tags
from rivet_pipeline.tags.types import Proposal, Tag, TagAnswer, TagRequest
from rivet_pipeline_tests.integration.memory_rows import add_summary

Row = dict[str, Any]

ALL: Any = ("suggested", "accepted", "rejected")
CACHING = Literal("topic", "caching")

#: Enough words for a leaf to be tagged.
WORDS = (
    "The service was deployed to the cluster and the cache in front of it was emptied, so that nobody saw the prices "
    "of last week any more. "
)


class ScriptedTagger:
    """A tagger as a model: it answers what `script` says of a request, and keeps the requests."""

    source: OneOf["model", "keyphrases"] = "model"

    def __init__(
        self, script: Callable[[TagRequest], Sequence[str | Proposal]] | Sequence[str | Proposal] = ()
    ) -> None:
        self.script = script if callable(script) else lambda request: script
        self.name = "tagger-1"
        self.asked: list[TagRequest] = []

    def propose(self, request: TagRequest) -> TagAnswer:
        self.asked.append(request)
        answer = self.script(request)
        return TagAnswer([one if isinstance(one, Proposal) else proposal(one) for one in answer], tokens=10)


class FailingTagger(ScriptedTagger):
    """Fails as often as it is told, with one cause; then it answers."""

    def __init__(self, times: int, cause: Any = "transient", tags: Sequence[str] = ("topic:caching",)) -> None:
        super().__init__(tags)
        self.left = times
        self.cause = cause

    def propose(self, request: TagRequest) -> TagAnswer:
        if self.left > 0:
            self.left -= 1
            self.asked.append(request)
            raise ModelError(self.cause, "http-503", "busy")
        return super().propose(request)


def proposal(tag: str, **more: Any) -> Proposal:
    return Proposal(read_literal(tag), confidence=0.8, reason="it says so", **more)


def leaf(connection: Connection, conversation: UUID | None = None, words: str = "", **more: Any) -> UUID:
    """A leaf that may be tagged."""
    return add_summary(connection, WORDS + words, conversation=conversation, **more)


def tag_all(pool: Pool, tagger: Any) -> TagReport:
    return propose_tags(pool, days=None, tagger=tagger)


def propose(connection: Connection, summary: UUID, tags: Sequence[str]) -> None:
    """What the stage writes when a tagger suggests these tags for a leaf."""
    announce_refinement(connection, "tag_proposals", model="tagger-1", version=1)
    connection.execute("DELETE FROM ros_tag_extractions WHERE summary_id = %s", [summary])
    report = TagReport(StageReport("tag_proposals"))
    one_pass = stage._Pass(connection, ScriptedTagger(tags), report)
    found = one_pass._load(summary)
    assert found is not None
    one_pass._write(found, [proposal(tag) for tag in tags])


def rows(connection: Connection, query: str, *values: Any) -> list[Row]:
    return connection.execute(query.encode(), values or None).fetchall()


def standing(connection: Connection) -> set[tuple[str, str, str]]:
    """What stands: (kind, literal, status)."""
    found = rows(connection, "SELECT entity_kind, tag_key || ':' || tag_value AS tag, status FROM ros_tags")
    return {(row["entity_kind"], row["tag"], row["status"]) for row in found}


def tag(connection: Connection, value: str = "caching", kind: str = "conversation") -> Tag:
    [found] = [
        one for one in list_tags(connection, key="topic", statuses=ALL) if (one.value, one.entity_kind) == (value, kind)
    ]
    return found


def has(connection: Connection, conversation: UUID, literal: str) -> bool:
    key, value = literal.split(":")
    [row] = rows(connection, "SELECT ros_conversation_has_tag(%s, %s, %s) AS has", conversation, key, value)
    return bool(row["has"])
