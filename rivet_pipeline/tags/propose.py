"""The stage `tag_proposals`: leaves in, suggested tags out, on each leaf and on its conversation.

What a tagger suggests stands in `chat_tagger.py` and `keyphrases.py`; here is the pass over what is due: one call and
one transaction a leaf. Tagging is best effort: a leaf whose tagger fails twice goes without, and is counted. When leaf
after leaf fails the service is at fault: the pass ends, and one entry in the failure ledger lets the stage rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import UUID

from rivet_pipeline.db.ledger import SERVICE, clear_failures, record_failure
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import announce_refinement
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.models.texts import clean_outgoing
from rivet_pipeline.stages import Stage, StageReport
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.tables import installed, require_tables, statement, write_lock
from rivet_pipeline.tags.types import Proposal, TagAnswer, Tagger, TagRequest
from rivet_pipeline.tags.vocabulary import accepted_vocabulary
from rivet_pipeline.versions import TAGS_VERSION

STAGE: Stage = "tag_proposals"

#: A leaf shorter than this, in characters, says too little to be tagged; of a longer one so much is read.
SHORTEST, LONGEST = 120, 12_000

#: How much of a title and of an agent's name a tagger is shown, and of the vocabulary and the current tags.
_TITLE, _AGENT, _VOCABULARY, _CURRENT = 200, 80, 200, 40

#: Calls a leaf gets: one, and one more.
_ATTEMPTS = 2

#: After so many leaves in a row that the service failed it is at fault, not they.
_MOST_FAILURES = 3

#: The vocabulary is read again after so many leaves.
_VOCABULARY_LEAVES = 25


@dataclass(slots=True)
class TagReport:
    """What a pass did. `stage.rows` are tags written; the rest counts leaves, and conversations tagged by the rule."""

    stage: StageReport
    tagged: int = 0
    skipped: int = 0
    dropped: int = 0
    ruled: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One leaf on its way through a pass."""

    id: UUID
    conversation_id: UUID
    day: date
    text_hash: UUID
    content: str
    title: str
    agent: str


def announce_tagger(connection: Connection, tagger: Tagger | None) -> bool:
    """Says with what leaves are tagged from now on; None: not at all, and nothing is due. True when that is new."""
    if not installed(connection):
        return False
    if tagger is None:
        return connection.execute("DELETE FROM ros_refinement_versions WHERE stage = %s", [STAGE]).rowcount > 0
    return announce_refinement(connection, STAGE, model=tagger.name, version=TAGS_VERSION)


def propose_tags(pool: Pool, *, days: Sequence[date] | None, tagger: Tagger | None, outdated: bool = True) -> TagReport:
    """Tags the leaves of those days (None: all) that no tagger has seen as they are now.

    With `outdated` also those that only a tagger of an older version has. Holds one connection of the pool.
    Conversations of those days that lack their rule tag get it. `tagger` None: tagging is off, and nothing but that is
    done.
    """
    report = TagReport(StageReport(STAGE, model=tagger.name if tagger else None))
    with pool.connection() as connection:
        require_tables(connection)
        announce_tagger(connection, tagger)
        report.ruled = apply_rule(connection, days=days)
        if tagger is not None:
            _Pass(connection, tagger, report).drain(_due(connection, days, outdated=outdated))
    return report


def apply_rule(connection: Connection, *, days: Sequence[date] | None = None) -> int:
    """Writes the `project:` tags that capture could not write. Returns how many."""
    row = connection.execute(
        """
        SELECT count(*) FILTER (WHERE ros_apply_project_rule(id, session_key, settings)) AS written
        FROM ros_unruled_conversations WHERE %(days)s::date[] IS NULL OR day = ANY(%(days)s::date[])
        """,
        {"days": None if days is None else list(days)},
    ).fetchone()
    return int(row["written"]) if row else 0


def ask_again(connection: Connection, *, since: date | None, before: date | None, dropped_only: bool) -> int:
    """Has leaves tagged anew although nothing has changed: those of days, or only those that went without tags.

    What people have decided stays, and what they have rejected is not proposed again. Returns how many leaves.
    """
    require_tables(connection)
    return connection.execute(
        """
        DELETE FROM ros_tag_extractions AS x USING ros_summaries AS s
        WHERE s.id = x.summary_id AND (NOT %(dropped)s OR x.status = 'dropped')
          AND s.day >= coalesce(%(since)s::date, '-infinity') AND s.day < coalesce(%(before)s::date, 'infinity')
        """,
        {"dropped": dropped_only, "since": since, "before": before},
    ).rowcount


def reap_tags(connection: Connection) -> int:
    """Deletes tags, and what is remembered beside them, of conversations and summaries that are gone.

    Returns how many tags. Also writes the rule tags that are missing (see `apply_rule`).
    """
    if not installed(connection):
        return 0
    apply_rule(connection)
    row = connection.execute(statement("reap_orphans")).fetchone()
    return int(row["tags"]) if row else 0


def _due(connection: Connection, days: Sequence[date] | None, *, outdated: bool) -> list[UUID]:
    rows = connection.execute(
        """
        SELECT t.id FROM ros_taggable_leaves AS t JOIN ros_summaries AS s ON s.id = t.id
        WHERE (t.fresh OR (t.stale AND %(outdated)s)) AND NOT ros_is_blocked('tag_proposals', 'service')
          AND (%(days)s::date[] IS NULL OR t.day = ANY(%(days)s::date[]))
        ORDER BY t.fresh DESC, t.day, s.earliest_at, s.seq
        """,
        {"days": None if days is None else list(days), "outdated": outdated},
    ).fetchall()
    return [row["id"] for row in rows]


class _Pass:
    """One pass on one connection."""

    def __init__(self, connection: Connection, tagger: Tagger, report: TagReport) -> None:
        self._connection = connection
        self._tagger = tagger
        self._report = report
        self._vocabulary: list[Literal] = []
        self._in_a_row = 0

    def drain(self, leaves: Sequence[UUID]) -> None:
        """Works through leaves until the service stops it."""
        for place, leaf_id in enumerate(leaves):
            if place % _VOCABULARY_LEAVES == 0:
                self._vocabulary = accepted_vocabulary(self._connection, limit=_VOCABULARY)
            with self._alone(leaf_id) as mine:
                leaf = self._load(leaf_id) if mine else None
                if leaf is not None:
                    self._tag(leaf)
            if self._in_a_row >= _MOST_FAILURES:
                return

    @contextmanager
    def _alone(self, leaf_id: UUID) -> Iterator[bool]:
        """Whether no other worker is at this leaf; none comes to it until the block ends."""
        lock = ["SELECT pg_try_advisory_lock(%s) AS mine", "SELECT pg_advisory_unlock(%s)"]
        number = int.from_bytes(leaf_id.bytes[:8], "big", signed=True)
        row = self._connection.execute(lock[0].encode(), [number]).fetchone()
        mine = bool(row and row["mine"])
        try:
            yield mine
        finally:
            if mine:
                self._connection.execute(lock[1].encode(), [number])

    def _load(self, leaf_id: UUID) -> _Leaf | None:
        row = self._connection.execute(
            """
            SELECT s.id, s.conversation_id, s.day, s.text_hash, s.content, coalesce(c.title, '') AS title, c.agent
            FROM ros_taggable_leaves AS t
            JOIN ros_summaries AS s ON s.id = t.id
            JOIN ros_conversations AS c ON c.id = s.conversation_id
            WHERE t.id = %s
            """,
            [leaf_id],
        ).fetchone()
        return None if row is None else _Leaf(**row)

    def _tag(self, leaf: _Leaf) -> None:
        day = self._report.stage.days[leaf.day]
        began = time.monotonic()
        if len(leaf.content.strip()) < SHORTEST:
            self._remember(leaf, "skipped")
            self._report.skipped += 1
            return
        answer, error = self._ask(leaf)
        if answer is not None:
            day.rows += self._write(leaf, answer.proposals)
            day.tokens += answer.tokens
            self._report.tagged += 1
            self._in_a_row = 0
        else:
            assert error is not None
            self._drop(leaf, error)
            day.failures += 1
        day.characters += min(len(leaf.content), LONGEST)
        day.seconds += time.monotonic() - began

    def _ask(self, leaf: _Leaf) -> tuple[TagAnswer | None, ModelError | None]:
        request = self._request(leaf)
        failure: ModelError | None = None
        for _ in range(_ATTEMPTS):
            self._report.stage.days[leaf.day].model_calls += self._tagger.source == "model"
            try:
                return self._tagger.propose(request), None
            except ModelError as error:
                failure = error
            except Exception as error:
                # One leaf that our own code can not take must not stop all others; stats shows it.
                return None, ModelError("content", "defect", f"{type(error).__name__}: {error}")
        return None, failure

    def _request(self, leaf: _Leaf) -> TagRequest:
        rows = self._connection.execute(
            """
            SELECT DISTINCT tag_key, tag_value FROM ros_tags
            WHERE status = 'accepted' AND (entity_id = %(summary)s OR entity_id = %(conversation)s)
            ORDER BY tag_key, tag_value LIMIT %(limit)s
            """,
            {"summary": leaf.id, "conversation": leaf.conversation_id, "limit": _CURRENT},
        ).fetchall()
        return TagRequest(
            text=clean_outgoing(leaf.content)[:LONGEST],
            title=" ".join(clean_outgoing(leaf.title).split())[:_TITLE],
            agent=" ".join(clean_outgoing(leaf.agent).split())[:_AGENT],
            vocabulary=self._vocabulary,
            current=[Literal(row["tag_key"], row["tag_value"]) for row in rows],
        )

    def _write(self, leaf: _Leaf, proposals: Sequence[Proposal]) -> int:
        """Stores what was suggested; returns how many rows that made or changed."""
        offered = [one for one in proposals if not one.removal]
        with self._connection.transaction():
            write_lock(self._connection, {one.literal.key for one in proposals})
            values = self._values(leaf, offered)
            self._connection.execute(statement("withdraw_outdated"), values)
            written = self._count("insert_proposals", values)
            self._connection.execute(statement("insert_values"), values)
            written += self._count("suggest_removals", self._values(leaf, [one for one in proposals if one.removal]))
            self._remember(leaf, "done", proposals=written)
            clear_failures(self._connection, stage=STAGE, items=[SERVICE])
        return written

    def _count(self, name: str, values: dict[str, Any]) -> int:
        return self._connection.execute(statement(name), values).rowcount

    def _values(self, leaf: _Leaf, proposals: Sequence[Proposal]) -> dict[str, Any]:
        return {
            "summary": leaf.id,
            "conversation": leaf.conversation_id,
            "source": self._tagger.source,
            "model": self._tagger.name[:300],
            "version": TAGS_VERSION,
            "keys": [one.literal.key for one in proposals],
            "values": [one.literal.value for one in proposals],
            "displays": [one.display for one in proposals],
            "confidences": [one.confidence for one in proposals],
            "reasons": [one.reason[:400] for one in proposals],
        }

    def _drop(self, leaf: _Leaf, error: ModelError) -> None:
        """The leaf goes without tags; when others before it did too, so that the service is at fault, it rests."""
        self._in_a_row = 0 if error.cause == "content" else self._in_a_row + 1
        self._report.dropped += 1
        if len(self._report.errors) < _MOST_FAILURES:
            self._report.errors.append(clean_outgoing(str(error))[:300])
        with self._connection.transaction():
            self._remember(leaf, "dropped", error=str(error))
            if self._in_a_row >= _MOST_FAILURES:
                record_failure(self._connection, stage=STAGE, item=SERVICE, error=error, day=leaf.day)

    def _remember(self, leaf: _Leaf, status: str, *, proposals: int = 0, error: str = "") -> None:
        self._connection.execute(
            """
            INSERT INTO ros_tag_extractions (summary_id, text_hash, status, model, pipeline_version, proposals, error)
            VALUES (%(id)s, %(hash)s, %(status)s, %(model)s, %(version)s, %(proposals)s, %(error)s)
            ON CONFLICT (summary_id) DO UPDATE SET
                text_hash = excluded.text_hash, status = excluded.status, model = excluded.model,
                pipeline_version = excluded.pipeline_version, proposals = excluded.proposals, error = excluded.error,
                tagged_at = now()
            """,
            {
                "id": leaf.id,
                "hash": leaf.text_hash,
                "status": status,
                "model": self._tagger.name[:300],
                "version": TAGS_VERSION,
                "proposals": proposals,
                "error": clean_outgoing(error)[:1000],
            },
        )
