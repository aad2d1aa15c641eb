"""What a redaction leaves behind on the wiki: names that are parts of what was taken out, and keys of former words.

The words themselves are replaced by `transcripts.redact_stored`, in every table. A miner has made names of them
before: `KEY-12` of `KEY-12-QUAY`, a title, an address. Such a name goes where the texts that it came from do not say it
any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.summaries.secret_parts import Parts, as_said
from rivet_pipeline.transcripts.redact_rules import RuleName
from rivet_pipeline.transcripts.redact_stored import RedactionReport
from rivet_pipeline.transcripts.redaction import MARK
from rivet_pipeline.wiki.store import content_hash, draft_from_json, lock_wiki, rebuild

_LISTS = ("aliases", "entities", "related", "hints", "ran_in")


def follow_redaction(connection: Connection, report: RedactionReport, rule: RuleName, os_user: str) -> int:
    """Takes parts of secrets out of what was made of redacted leaves, and makes their pages again, in one transaction.

    What was applied stays applied: a sentence that was redacted gets the key of its new words, wherever it is named.

    Args:
        connection: The store.
        report: What the redaction has done; its `taken` names the secrets.
        rule: How they were named, and
        os_user: who redacts, for the log.

    Returns:
        How many patches, mined leaves and pages have changed.
    """
    with connection.transaction():
        lock_wiki(connection)
        run = _Run(connection, Parts(report.taken), (report.run_id, rule, os_user))
        for leaf in run.redacted_leaves():
            run.leaf(leaf)
        for topic in sorted(run.topics):
            run.topic(topic)
        rebuild(connection, run.topics, cause="redacted")
    return run.changed


@dataclass(frozen=True, slots=True)
class _Leaf:
    id: UUID
    said: str


class _Run:
    """One follow-up over one connection."""

    def __init__(self, connection: Connection, parts: Parts, signed: tuple[UUID, RuleName, str]) -> None:
        self.changed = 0
        #: Pages that something of a redacted leaf stands on.
        self.topics: set[UUID] = set()
        self._connection = connection
        self._parts = parts
        self._signed = signed

    def redacted_leaves(self) -> list[_Leaf]:
        """The mined leaves of which something was taken out, or of whose session's title."""
        rows = self._connection.execute(
            """
            SELECT s.id, s.content, c.title FROM ros_summaries AS s
            JOIN ros_conversations AS c ON c.id = s.conversation_id
            WHERE s.kind = 'leaf' AND (strpos(s.content, %(mark)s) > 0 OR strpos(c.title, %(mark)s) > 0)
              AND (EXISTS (SELECT 1 FROM ros_wiki_patches AS p WHERE p.leaf_id = s.id)
                   OR EXISTS (SELECT 1 FROM ros_wiki_extractions AS x WHERE x.leaf_id = s.id))
            ORDER BY s.id
            """,
            {"mark": MARK},
        ).fetchall()
        return [_Leaf(row["id"], as_said([row["content"], row["title"]])) for row in rows]

    def leaf(self, leaf: _Leaf) -> None:
        """What was made of one leaf: its patches, and the names that it mentions."""
        for patch in self._connection.execute(
            "SELECT id, title, reason, payload, claim_keys, content_hash, topic_id, other_id FROM ros_wiki_patches "
            "WHERE leaf_id = %s ORDER BY seq FOR UPDATE",
            [leaf.id],
        ).fetchall():
            self.topics |= {topic for topic in (patch["topic_id"], patch["other_id"]) if topic is not None}
            self._patch(patch, leaf.said)
        self._mentions(leaf)

    def _patch(self, patch: dict[str, Any], said: str) -> None:
        new: dict[str, Any] = {
            "title": self._parts.without(patch["title"], said)[:120],
            "reason": self._parts.without(patch["reason"], said),
            "payload": self._named(patch["payload"], said),
        }
        keys, hashed = patch["claim_keys"], patch["content_hash"]
        if patch["payload"].get("claims"):
            draft = draft_from_json(new["title"], new["payload"])
            keys = sorted({claim.key for claim in draft.claims})
            hashed = content_hash(draft.title, keys)
        if all(new[name] == patch[name] for name in new) and keys == patch["claim_keys"]:
            return
        self._connection.execute(
            "UPDATE ros_wiki_patches SET title = %s, reason = %s, payload = %s, claim_keys = %s, content_hash = %s "
            "WHERE id = %s",
            [new["title"], new["reason"], Jsonb(new["payload"]), keys, hashed, patch["id"]],
        )
        self._log("ros_wiki_patches", str(patch["id"]))
        gone, come = set(patch["claim_keys"]) - set(keys), set(keys) - set(patch["claim_keys"])
        if len(gone) == len(come) == 1:
            self._renamed(gone.pop(), come.pop())

    def _renamed(self, former: UUID, now: UUID) -> None:
        """Patches that name the sentence (one that it contradicts, one that a split moves) go on naming it."""
        self._connection.execute(
            "UPDATE ros_wiki_patches SET payload = replace(payload::text, %(former)s, %(now)s)::jsonb "
            "WHERE strpos(payload::text, %(former)s) > 0",
            {"former": str(former), "now": str(now)},
        )

    def _named(self, value: dict[str, Any], said: str) -> dict[str, Any]:
        """A payload or a page without names that are parts."""
        kept = {
            name: [one for one in value[name] if not self._parts.hold(one, said)] for name in _LISTS if name in value
        }
        return value | kept

    def _mentions(self, leaf: _Leaf) -> None:
        row = self._connection.execute(
            "SELECT mention_keys, mentions FROM ros_wiki_extractions WHERE leaf_id = %s FOR UPDATE", [leaf.id]
        ).fetchone()
        if row is None:
            return
        pairs = list(zip(row["mention_keys"], row["mentions"], strict=True))
        kept = [pair for pair in pairs if not any(self._parts.hold(name, leaf.said) for name in pair)]
        if kept != pairs:
            self._connection.execute(
                "UPDATE ros_wiki_extractions SET mention_keys = %s, mentions = %s WHERE leaf_id = %s",
                [[key for key, _ in kept], [name for _, name in kept], leaf.id],
            )
            self._log("ros_wiki_extractions", str(leaf.id))

    def topic(self, topic: UUID) -> None:
        """A page's title, address, redirects and versions; its text is made again of its patches."""
        said = as_said(
            text
            for row in self._connection.execute(
                "SELECT DISTINCT s.id, s.content, c.title FROM ros_wiki_patches AS p "
                "JOIN ros_summaries AS s ON s.id = p.leaf_id JOIN ros_conversations AS c ON c.id = s.conversation_id "
                "WHERE %s IN (p.topic_id, p.other_id)",
                [topic],
            ).fetchall()
            for text in (row["content"], row["title"])
        )
        row = self._connection.execute(
            "SELECT slug, title FROM ros_wiki_topics WHERE id = %s FOR UPDATE", [topic]
        ).fetchone()
        assert row is not None
        title = self._parts.without(row["title"], said)[:120]
        slug = f"redacted-{topic.hex[:12]}" if self._parts.hold(row["slug"], said) else row["slug"]
        if (title, slug) != (row["title"], row["slug"]):
            self._connection.execute(
                "UPDATE ros_wiki_topics SET title = %s, slug = %s, page_version = 0 WHERE id = %s", [title, slug, topic]
            )
            self._connection.execute("DELETE FROM ros_embeddings WHERE owner_kind = 'topic' AND owner_id = %s", [topic])
            self._log("ros_wiki_topics", str(topic))
        self._addresses(topic, said)
        self._versions(topic, said)

    def _addresses(self, topic: UUID, said: str) -> None:
        """Former addresses, and the merges that brought them, which keep them to be taken back."""
        for row in self._connection.execute(
            "SELECT from_slug FROM ros_wiki_redirects WHERE topic_id = %s", [topic]
        ).fetchall():
            if self._parts.hold(row["from_slug"], said):
                self._connection.execute("DELETE FROM ros_wiki_redirects WHERE from_slug = %s", [row["from_slug"]])
        for patch in self._connection.execute(
            "SELECT id, title, reason, payload, claim_keys, content_hash FROM ros_wiki_patches "
            "WHERE kind <> 'edit' AND %s IN (topic_id, other_id) ORDER BY seq FOR UPDATE",
            [topic],
        ).fetchall():
            self._patch(patch, said)

    def _versions(self, topic: UUID, said: str) -> None:
        for row in self._connection.execute(
            "SELECT revision, title, page FROM ros_wiki_revisions WHERE topic_id = %s FOR UPDATE", [topic]
        ).fetchall():
            title = self._parts.without(row["title"], said)
            page = self._named(row["page"], said)
            if "title" in page:
                page["title"] = self._parts.without(page["title"], said)
            if (title, page) != (row["title"], row["page"]):
                self._connection.execute(
                    "UPDATE ros_wiki_revisions SET title = %s, page = %s WHERE topic_id = %s AND revision = %s",
                    [title, Jsonb(page), topic, row["revision"]],
                )
                self._log("ros_wiki_revisions", f"{topic} {row['revision']}")

    def _log(self, table: str, key: str) -> None:
        self.changed += 1
        self._connection.execute(
            "INSERT INTO ros_redactions (run_id, rule, os_user, counts, table_name, row_key) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            [*self._signed, Jsonb({"part": 1}), table, key],
        )
