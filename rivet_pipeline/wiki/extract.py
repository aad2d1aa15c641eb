"""The stage `wiki_patches`: leaves in, patches out, each leaf once a text and a version.

The order of each step is here: lock, read, ask the miner outside any transaction, store if the leaf is as it was read.
What is worth a page says the miner, which page it is `identity.py`, what becomes of a patch `changes.py`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.ledger import SERVICE, clear_failures, record_failure
from rivet_pipeline.db.locks import try_lock
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import announce_refinement
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.stages import Stage, StageReport
from rivet_pipeline.transcripts.cleaning import clean_text
from rivet_pipeline.transcripts.redaction import MARK
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.changes import AUTOMATIC, find_topic
from rivet_pipeline.wiki.identity import resolve
from rivet_pipeline.wiki.names import fold, is_subject
from rivet_pipeline.wiki.pages import ALIAS_CAP
from rivet_pipeline.wiki.refusals import reworded, worded_alike
from rivet_pipeline.wiki.requests import read_request
from rivet_pipeline.wiki.store import (
    content_hash,
    draft_from_json,
    draft_to_json,
    lock_wiki,
    names_brought,
    rebuild,
    refused_claims,
)
from rivet_pipeline.wiki.types import (
    LONGEST_CLAIM,
    MOST_PATCHES,
    Claim,
    MineAnswer,
    Miner,
    MineRequest,
    PatchDraft,
    union,
)

STAGE: Stage = "wiki_patches"

#: Names of one leaf that are counted.
_MOST_MENTIONS = 60


def announce_miner(connection: Connection, miner: Miner, *, version: int = WIKI_PIPELINE_VERSION) -> None:
    """Says with which version leaves are mined from now on, and tries again what failed of a text that has changed."""
    announce_refinement(connection, STAGE, model=miner.model, version=version)
    connection.execute(
        """
        DELETE FROM ros_failures AS f USING ros_summaries AS s
        WHERE f.stage = %s AND f.cause = 'content' AND s.id::text = f.item
          AND (s.metadata ->> 'redone_at')::timestamptz > f.last_failed_at
        """,
        [STAGE],
    )


def mine_leaves(
    pool: Pool,
    *,
    days: Sequence[date] | None,
    miner: Miner,
    review: bool = False,
    version: int = WIKI_PIPELINE_VERSION,
    outdated: bool = True,
) -> StageReport:
    """Mines leaves that were not mined as they are now, then those of an older version; of those days (None: all).

    Holds one connection of the pool. A transient or permanent model failure ends the pass, a content failure its leaf
    only; both are in `ros_failures`, and the leaf stays pending.

    Args:
        pool: The store.
        days: UTC days on which the conversations began.
        miner: What finds the patches.
        review: Leave patches as proposals until a person accepts them.
        version: That of the pipeline, stored with each leaf.
        outdated: Whether leaves of an older version are mined again.

    Returns:
        What was done, by day: `rows` are patches, `characters` those of the leaves.
    """
    report = StageReport(STAGE, model=miner.model)
    with pool.connection() as connection:
        announce_miner(connection, miner, version=version)
        for leaf_id, day in _work(connection, days, outdated=outdated):
            with try_lock(connection, STAGE, leaf_id) as mine:
                if mine and not _Leaf(connection, leaf_id, day, miner, review, version, report).work():
                    break
    return report


def _work(connection: Connection, days: Sequence[date] | None, *, outdated: bool) -> list[tuple[UUID, date]]:
    """What there is to mine, in the order of time; leaves of an older version after all others."""
    rows = connection.execute(
        """
        SELECT id, day FROM (
            SELECT id, day, 0 AS place, latest_at, seq FROM ros_pending_wiki_patches
            UNION ALL
            SELECT id, day, 1, latest_at, seq FROM ros_stale_wiki_patches WHERE %(outdated)s AND NOT waits
        ) AS work
        WHERE %(days)s::date[] IS NULL OR day = ANY(%(days)s::date[])
        ORDER BY place, latest_at, seq
        """,
        {"days": None if days is None else list(days), "outdated": outdated},
    ).fetchall()
    return [(row["id"], row["day"]) for row in rows]


@dataclass(slots=True)
class _Leaf:
    """One leaf on its way through a pass."""

    connection: Connection
    leaf_id: UUID
    day: date
    miner: Miner
    review: bool
    version: int
    report: StageReport

    def work(self) -> bool:
        """Mines the leaf and stores what came of it. False when the service, not the leaf, is at fault."""
        tally = self.report.days[self.day]
        began = time.monotonic()
        try:
            state = self._state()
            if state is None:
                return True
            if state["trusted"]:
                request = read_request(self.connection, self.leaf_id)
                tally.characters += len(request.text)
                answer = self._ask(request)
                tally.rows += self._store(state["text_hash"], request, answer)
            else:
                self._take_back(state["text_hash"])
        except ModelError as error:
            return self._failed(error)
        finally:
            tally.seconds += time.monotonic() - began
        return True

    def _state(self) -> dict[str, Any] | None:
        """The leaf as it is; None when another worker has mined it meanwhile."""
        return self.connection.execute(
            """
            SELECT s.text_hash, ros_is_trusted(s) AS trusted FROM ros_summaries AS s
            WHERE s.id = %s AND NOT EXISTS (
                SELECT 1 FROM ros_wiki_extractions AS x
                WHERE x.leaf_id = s.id AND x.text_hash = s.text_hash AND x.pipeline_version >= %s)
            """,
            [self.leaf_id, self.version],
        ).fetchone()

    def _ask(self, request: MineRequest) -> MineAnswer:
        tally = self.report.days[self.day]
        try:
            answer = self.miner.mine(request)
            drafts = tuple(_checked(draft, request) for draft in answer.drafts[:MOST_PATCHES])
        except ModelError as error:
            tally.model_calls += error.calls
            raise
        except Exception as error:
            # One leaf that our own code can not take must not stop all others; the ledger shows it.
            raise ModelError("content", "defect", f"{type(error).__name__}: {error}") from error
        tally.model_calls += answer.calls
        tally.tokens += answer.tokens
        return replace(answer, drafts=tuple(draft for draft in drafts if draft.claims))

    def _failed(self, error: ModelError) -> bool:
        item = str(self.leaf_id) if error.cause == "content" else SERVICE
        with self.connection.transaction():
            record_failure(self.connection, stage=STAGE, item=item, error=error, day=self.day)
        self.report.days[self.day].failures += 1
        return error.cause == "content"

    def _store(self, text_hash: UUID, request: MineRequest, answer: MineAnswer) -> int:
        """Stores the patches and what the leaf mentions; returns how many patches are new."""
        with self.connection.transaction():
            lock_wiki(self.connection)
            if not self._is_as_read(text_hash):
                return 0
            writer = _Writer(self.connection, self.leaf_id, text_hash, self.miner.model, self.version, request.ran_in)
            written = writer.replace_by(answer.drafts, review=self.review)
            outcome = "patches" if writer.standing else "none"
            self._note(outcome, text_hash, writer.standing, _mentioned(request, answer))
            clear_failures(self.connection, stage=STAGE, items=[SERVICE, str(self.leaf_id)])
        return written

    def _take_back(self, text_hash: UUID) -> None:
        """A leaf that lost its trust says nothing any more."""
        with self.connection.transaction():
            lock_wiki(self.connection)
            if self._is_as_read(text_hash):
                writer = _Writer(self.connection, self.leaf_id, text_hash, self.miner.model, self.version, [])
                writer.replace_by((), review=False, accepted_stay=False)
                self._note("untrusted", text_hash, 0, {})

    def _is_as_read(self, text_hash: UUID) -> bool:
        row = self.connection.execute(
            "SELECT 1 FROM ros_summaries WHERE id = %s AND text_hash = %s FOR SHARE", [self.leaf_id, text_hash]
        ).fetchone()
        return row is not None

    def _note(self, outcome: str, text_hash: UUID, patches: int, mentions: Mapping[str, str]) -> None:
        self.connection.execute(
            """
            INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome, patches,
                                              mention_keys, mentions)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (leaf_id) DO UPDATE SET
                text_hash = excluded.text_hash, pipeline_version = excluded.pipeline_version, model = excluded.model,
                outcome = excluded.outcome, patches = excluded.patches, mention_keys = excluded.mention_keys,
                mentions = excluded.mentions, extracted_at = now()
            """,
            [
                self.leaf_id,
                text_hash,
                self.version,
                self.miner.model,
                outcome,
                patches,
                list(mentions),
                list(mentions.values()),
            ],
        )


def _checked(draft: PatchDraft, request: MineRequest) -> PatchDraft:
    """The draft as it may be stored: clean texts, reviewed tags among its names, where the session ran not among them.

    Raises `ModelError` for a title that is no subject.
    """
    title = clean_text(draft.title).strip()
    if not is_subject(title):
        raise ModelError("content", "bad-title", f"{title[:120]!r} names no subject of a page")
    home = {fold(value) for value in request.ran_in} | {fold(f"project:{value}") for value in request.ran_in}
    names = [clean_text(name).strip()[:80] for name in draft.entities]
    tags = [f"{tag.key}:{tag.value}" for tag in request.reviewed]
    entities = union([tags, [name for name in names if name and fold(name) and fold(name) not in home]], 24)
    return replace(
        draft,
        title=title,
        claims=_clean_claims(draft.claims),
        aliases=tuple(name for name in map(clean_text, draft.aliases) if fold(name) and is_subject(name))[:8],
        entities=entities,
        related=tuple(name for name in map(clean_text, draft.related) if fold(name))[:12],
    )


def _clean_claims(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    found: dict[UUID, Claim] = {}
    for claim in claims:
        text = " ".join(clean_text(claim.text).split())[:LONGEST_CLAIM].strip()
        if text:
            cleaned = replace(claim, text=text)
            found.setdefault(cleaned.key, cleaned)
    return tuple(found.values())


def _mentioned(request: MineRequest, answer: MineAnswer) -> dict[str, str]:
    """The names that the leaf speaks of, folded, and how each is spelt; not where the session ran."""
    home = {fold(value) for value in request.ran_in}
    found: dict[str, str] = {}
    for name in [*answer.mentions, *(name for draft in answer.drafts for name in (draft.title, *draft.entities))]:
        spelt = clean_text(name).strip()[:80]
        if fold(spelt) and fold(spelt) not in home:
            found.setdefault(fold(spelt), spelt)
    return dict(list(found.items())[:_MOST_MENTIONS])


def _texts(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [claim["text"] for row in rows for claim in row["payload"].get("claims", ())]


def _is_new(claim: Claim, accepted: Mapping[UUID, Claim]) -> bool:
    """Whether a sentence tells more than the accepted ones do, or replaces more: what is passed over is lost."""
    return claim.key not in accepted and not any(
        worded_alike(claim.text, one.text) and set(claim.replaces) <= set(one.replaces) for one in accepted.values()
    )


@dataclass(slots=True)
class _Writer:
    """Puts new patches of a leaf in the place of its former ones."""

    connection: Connection
    leaf_id: UUID
    text_hash: UUID
    model: str
    version: int
    ran_in: Sequence[str]
    #: Patches of the leaf that are proposed or applied in the end.
    standing: int = 0
    #: The patch that changed each page.
    made: dict[UUID, UUID] = field(default_factory=dict)
    #: Names that its former patches brought to each page.
    names: dict[UUID, list[str]] = field(default_factory=dict)

    def replace_by(self, drafts: Sequence[PatchDraft], *, review: bool, accepted_stay: bool = True) -> int:
        """Stores the drafts, less what was refused before; what the leaf no longer says no longer counts.

        Returns how many patches are new.
        """
        former = self.connection.execute(
            "SELECT id, title, status, topic_id, payload, content_hash, leaf_hash, claim_keys, decision, decided_by "
            "FROM ros_wiki_patches WHERE leaf_id = %s AND status IN ('proposed', 'applied') ORDER BY seq FOR UPDATE",
            [self.leaf_id],
        ).fetchall()
        refused = self._refused([claim for draft in drafts for claim in draft.claims], former)
        kept = [replace(draft, claims=tuple(c for c in draft.claims if c.key not in refused)) for draft in drafts]
        kept = [draft for draft in kept if draft.claims]
        touched: set[UUID] = set()
        if accepted_stay:
            stay = [row for row in former if row["status"] == "applied" and (review or row["decided_by"] != AUTOMATIC)]
            kept = self._beside_accepted(stay, kept, touched)
        asked: dict[UUID, PatchDraft] = {}
        for draft in kept:
            asked.setdefault(content_hash(draft.title, self._keys(draft)), draft)
        again: set[UUID] = set()
        for row in former:
            if row.get("kept") is True:
                continue
            if row["content_hash"] in asked and row["content_hash"] not in again:
                again.add(row["content_hash"])
                self._says_again(row, asked[row["content_hash"]], touched)
            else:
                self._retire(row, touched)
        new = [draft for key, draft in asked.items() if key not in again]
        for draft in new:
            self._insert(draft, touched, review=review)
        self.standing += len(new) + len(again)
        for topic in sorted(touched):
            rebuild(self.connection, [topic], cause="mined", patch_id=self.made.get(topic))
        return len(new)

    def _refused(self, claims: Sequence[Claim], former: Sequence[dict[str, Any]]) -> set[UUID]:
        """Those of the claims that a person has refused, from this leaf also as it may reword them."""
        rows = self.connection.execute(
            "SELECT payload FROM ros_wiki_patches WHERE leaf_id = %s AND status IN ('rejected', 'reverted')",
            [self.leaf_id],
        ).fetchall()
        refused, standing = _texts(rows), _texts(former)
        again = {claim.key for claim in claims if reworded(claim.text, refused, standing)}
        return again | refused_claims(self.connection, [claim.key for claim in claims])

    def _beside_accepted(
        self, former: Sequence[dict[str, Any]], drafts: list[PatchDraft], touched: set[UUID]
    ) -> list[PatchDraft]:
        """What people have accepted stays as far as the leaf still says it; the drafts bring the rest.

        What differs from it in articles and plurals alone brings nothing.

        A patch out of which something was redacted stays whole: nobody has decided that its page should go.
        """
        said = {claim.key for draft in drafts for claim in draft.claims}
        accepted: dict[UUID, Claim] = {}
        for row in former:
            whole = row["leaf_hash"] == self.text_hash or any(
                MARK in claim["text"] for claim in row["payload"].get("claims", ())
            )
            stays = [key for key in row["claim_keys"] if whole or key in said]
            if len(stays) == len(row["claim_keys"]):
                self._still_says(row["id"])
            elif stays:
                self._cut(row, stays)
                touched.add(row["topic_id"])
            else:
                continue
            row["kept"] = True
            self.standing += 1
            claims = draft_from_json(row["title"], row["payload"]).claims
            accepted |= {claim.key: claim for claim in claims if claim.key in stays}
        rest = [replace(draft, claims=tuple(c for c in draft.claims if _is_new(c, accepted))) for draft in drafts]
        return [draft for draft in rest if draft.claims]

    def _cut(self, row: dict[str, Any], stays: Collection[UUID]) -> None:
        """An accepted patch of which the leaf says only a part: that part, in its place."""
        draft = draft_from_json(row["title"], row["payload"])
        part = replace(draft, claims=tuple(claim for claim in draft.claims if claim.key in stays))
        self.connection.execute(
            "UPDATE ros_wiki_patches SET payload = %s, claim_keys = %s, content_hash = %s, leaf_hash = %s "
            "WHERE id = %s",
            [
                Jsonb(draft_to_json(part, self.ran_in)),
                self._keys(part),
                content_hash(part.title, self._keys(part)),
                self.text_hash,
                row["id"],
            ],
        )

    def _says_again(self, row: dict[str, Any], draft: PatchDraft, touched: set[UUID]) -> None:
        """The same sentences once more, with the names that the leaf has by now."""
        self._still_says(row["id"])
        known = draft_from_json(row["title"], row["payload"])
        ended = {claim.key: claim.replaces for claim in known.claims}
        claims = tuple(
            replace(claim, replaces=tuple(dict.fromkeys((*claim.replaces, *ended.get(claim.key, ())))))
            for claim in draft.claims
        )
        aliases = union([draft.aliases, known.aliases], ALIAS_CAP)
        payload = draft_to_json(replace(draft, claims=claims, aliases=aliases), self.ran_in)
        if payload != row["payload"]:
            self.connection.execute(
                "UPDATE ros_wiki_patches SET payload = %s WHERE id = %s", [Jsonb(payload), row["id"]]
            )
            if row["status"] == "applied":
                touched.add(row["topic_id"])
                self.made[row["topic_id"]] = row["id"]

    def _still_says(self, patch_id: UUID) -> None:
        self.connection.execute(
            "UPDATE ros_wiki_patches SET leaf_hash = %s, pipeline_version = %s WHERE id = %s",
            [self.text_hash, self.version, patch_id],
        )

    def _retire(self, row: dict[str, Any], touched: set[UUID]) -> None:
        self.connection.execute("UPDATE ros_wiki_patches SET status = 'replaced' WHERE id = %s", [row["id"]])
        if row["status"] == "applied":
            touched.add(row["topic_id"])
            known = draft_from_json(row["title"], row["payload"])
            self.names.setdefault(row["topic_id"], []).extend(names_brought(known, row["decision"]))

    def _insert(self, draft: PatchDraft, touched: set[UUID], *, review: bool) -> None:
        topic: UUID | None
        if review:
            identity = resolve(self.connection, draft, self.ran_in)
            topic = identity.topic_id
        else:
            topic, identity = find_topic(self.connection, draft, self.ran_in)
            touched.add(topic)
        # Another wording of the same leaf takes no name from a page: links and later leaves know it by that.
        former = [name for name in self.names.get(topic, ()) if fold(name) != fold(draft.title)] if topic else []
        draft = replace(draft, aliases=union([draft.aliases, former], ALIAS_CAP))
        keys = self._keys(draft)
        row = self.connection.execute(
            """
            INSERT INTO ros_wiki_patches (
                kind, status, leaf_id, leaf_hash, topic_id, title, payload, content_hash, claim_keys, decision, reason,
                as_of, model, pipeline_version, decided_by, decided_at)
            VALUES ('edit', %(status)s, %(leaf)s, %(leaf_hash)s, %(topic)s, %(title)s, %(payload)s, %(hash)s, %(keys)s,
                    %(decision)s, %(reason)s, %(as_of)s, %(model)s, %(version)s, %(by)s,
                    CASE WHEN %(by)s::text IS NULL THEN NULL ELSE now() END)
            RETURNING id
            """,
            {
                "status": "proposed" if review else "applied",
                "leaf": self.leaf_id,
                "leaf_hash": self.text_hash,
                "topic": topic,
                "title": draft.title,
                "payload": Jsonb(draft_to_json(draft, self.ran_in)),
                "hash": content_hash(draft.title, keys),
                "keys": keys,
                "decision": identity.decision,
                "reason": identity.reason,
                "as_of": max(claim.as_of for claim in draft.claims),
                "model": self.model,
                "version": self.version,
                "by": None if review else AUTOMATIC,
            },
        ).fetchone()
        if row is not None and topic is not None and not review:
            self.made.setdefault(topic, row["id"])

    @staticmethod
    def _keys(draft: PatchDraft) -> list[UUID]:
        return sorted({claim.key for claim in draft.claims})
