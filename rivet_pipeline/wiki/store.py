"""Keeps patches and pages in step: the wiki's lock, what counts for a page, and the page made again of it.

Every function runs in the caller's transaction, under the lock that `lock_wiki` takes. What is mined, who decides and
what is merged stands in the modules that call it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.versions import WIKI_PAGE_VERSION
from rivet_pipeline.wiki.names import fold, slugify
from rivet_pipeline.wiki.pages import alias_keys, build_page, identity_keys, page_from_json, page_to_json, search_text
from rivet_pipeline.wiki.types import AppliedPatch, Claim, Decision, Page, PatchDraft

#: Splits of splits are followed this far.
_DEEPEST_SPLIT = 5


def lock_wiki(connection: Connection) -> None:
    """Makes this transaction the only one that changes pages. Held for milliseconds: no model is asked under it."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('ros_wiki'))")


def content_hash(title: str, keys: Iterable[UUID]) -> UUID:
    """The identity of a proposal: its subject and what it claims."""
    text = "\n".join([fold(title), *sorted(map(str, keys))])
    return UUID(hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest())


# --- payloads -------------------------------------------------------------------------------------------------------


def draft_to_json(draft: PatchDraft, ran_in: Sequence[str] = ()) -> dict[str, Any]:
    """A draft as its patch stores it."""
    return {
        "claims": [
            {
                "section": claim.section,
                "text": claim.text,
                "as_of": claim.as_of.astimezone(UTC).isoformat(),
                "weight": claim.weight,
                "replaces": [str(key) for key in claim.replaces],
            }
            for claim in draft.claims
        ],
        "aliases": list(draft.aliases),
        "entities": list(draft.entities),
        "related": list(draft.related),
        "hints": list(draft.hints),
        "ran_in": list(ran_in),
    }


def draft_from_json(title: str, payload: dict[str, Any]) -> PatchDraft:
    """The draft of an edit's payload."""
    return PatchDraft(
        title=title,
        claims=tuple(
            Claim(
                claim["section"],
                claim["text"],
                datetime.fromisoformat(claim["as_of"]),
                claim["weight"],
                tuple(map(UUID, claim["replaces"])),
            )
            for claim in payload.get("claims", ())
        ),
        aliases=tuple(payload.get("aliases", ())),
        entities=tuple(payload.get("entities", ())),
        related=tuple(payload.get("related", ())),
        hints=tuple(payload.get("hints", ())),
    )


# --- what counts for a page -----------------------------------------------------------------------------------------


def applied_patches(connection: Connection, topic_id: UUID, depth: int = 0) -> list[AppliedPatch]:
    """What counts for a page: the edits that were applied to it, and what it took over from pages that were split.

    What went to another page and came back with a later split, by a merge of the page that it ended on, stands here.
    """
    rows = connection.execute(
        """
        SELECT kind, title, leaf_id, topic_id, other_id, decision, payload FROM ros_wiki_patches
        WHERE status = 'applied' AND (topic_id = %(id)s OR (kind = 'split' AND other_id = %(id)s)) ORDER BY seq
        """,
        {"id": topic_id},
    ).fetchall()
    found: list[AppliedPatch] = []
    dropped: frozenset[UUID] = frozenset()
    for row in rows:
        keys = frozenset(map(UUID, row["payload"].get("keys", ())))
        if row["kind"] == "edit":
            found.append(_edit(row))
        elif row["kind"] == "merge":
            found.append(AppliedPatch(None, aliases=tuple(row["payload"]["aliases"])))
        elif row["topic_id"] == row["other_id"]:
            # Split once, and merged again since.
            continue
        elif row["topic_id"] == topic_id:
            dropped |= keys
        else:
            dropped -= keys
            if depth < _DEEPEST_SPLIT:
                found += [_part(patch, keys) for patch in applied_patches(connection, row["topic_id"], depth + 1)]
    found.append(AppliedPatch(None, drops=dropped))
    return [patch for patch in found if patch.claims or patch.aliases or patch.drops]


def _edit(row: dict[str, Any]) -> AppliedPatch:
    draft = draft_from_json(row["title"], row["payload"])
    aliases = names_brought(draft, row["decision"])
    return AppliedPatch(row["leaf_id"], draft.claims, aliases, draft.entities, draft.related)


def names_brought(draft: PatchDraft, decision: Decision) -> tuple[str, ...]:
    """The names by which a page goes for a patch of it.

    The title under which it was proposed is one, unless only shared names led to the page: what two subjects speak of
    is a name of neither.
    """
    return draft.aliases if decision == "entities" else (draft.title, *draft.aliases)


def _part(patch: AppliedPatch, keys: frozenset[UUID]) -> AppliedPatch:
    """What a page takes over from another one: only those claims, without the other's names."""
    return AppliedPatch(patch.leaf_id, tuple(claim for claim in patch.claims if claim.key in keys), (), patch.entities)


# --- pages ----------------------------------------------------------------------------------------------------------


def topic_for(connection: Connection, title: str) -> UUID:
    """The page at the title's address, made empty where there is none."""
    row = connection.execute(
        """
        INSERT INTO ros_wiki_topics (slug, title) VALUES (%s, %s)
        ON CONFLICT (slug) DO UPDATE SET slug = excluded.slug RETURNING id
        """,
        [slugify(title), title],
    ).fetchone()
    assert row is not None
    found: UUID = row["id"]
    return found


def rebuild(connection: Connection, topics: Iterable[UUID], *, cause: str, patch_id: UUID | None = None) -> int:
    """Makes pages again of what counts for them now, with those that took something over. Returns how many changed."""
    changed = 0
    for topic_id in _with_parts(connection, topics):
        row = connection.execute(
            "SELECT title, status, page, page_version, revision FROM ros_wiki_topics WHERE id = %s FOR UPDATE",
            [topic_id],
        ).fetchone()
        assert row is not None
        page = build_page(row["title"], applied_patches(connection, topic_id))
        stored = page_to_json(page)
        status = row["status"] if row["status"] == "merged" else "live" if page.all_bullets else "empty"
        if stored == row["page"] and status == row["status"] and row["page_version"] == WIKI_PAGE_VERSION:
            continue
        revision = row["revision"] + (stored != row["page"])
        _write_page(connection, topic_id, page, stored, status, revision)
        if stored != row["page"]:
            connection.execute(
                "INSERT INTO ros_wiki_revisions (topic_id, revision, title, page, cause, patch_id) "
                "VALUES (%s, %s, %s, %s, %s, %s)",
                [topic_id, revision, page.title, Jsonb(stored), cause, patch_id],
            )
            changed += 1
    return changed


def _with_parts(connection: Connection, topics: Iterable[UUID]) -> list[UUID]:
    """The pages and all that were split off them, always in the same order."""
    rows = connection.execute(
        """
        WITH RECURSIVE wanted AS (
            SELECT unnest(%s::uuid[]) AS id
            UNION
            SELECT p.other_id FROM wanted AS w JOIN ros_wiki_patches AS p ON p.topic_id = w.id
            WHERE p.kind = 'split' AND p.status IN ('applied', 'reverted') AND p.other_id IS NOT NULL
        )
        SELECT id FROM wanted ORDER BY id
        """,
        [list(topics)],
    ).fetchall()
    return [row["id"] for row in rows]


def _write_page(
    connection: Connection, topic_id: UUID, page: Page, stored: dict[str, Any], status: str, revision: int
) -> None:
    bullets = page.all_bullets
    connection.execute(
        """
        UPDATE ros_wiki_topics
        SET status = %(status)s, aliases = %(aliases)s, entities = %(entities)s, alias_keys = %(alias_keys)s,
            keys = %(keys)s, page = %(page)s, page_version = %(version)s, revision = %(revision)s,
            bullets = %(bullets)s, archived = %(archived)s, search_text = %(text)s,
            first_at = %(first)s, latest_at = %(latest)s, updated_at = now()
        WHERE id = %(id)s
        """,
        {
            "id": topic_id,
            "status": status,
            "aliases": list(page.aliases),
            "entities": list(page.entities),
            "alias_keys": alias_keys(page),
            "keys": identity_keys(page),
            "page": Jsonb(stored),
            "version": WIKI_PAGE_VERSION,
            "revision": revision,
            "bullets": len(page.bullets),
            "archived": page.archived,
            "text": search_text(page),
            "first": min((bullet.first_at for bullet in bullets), default=None),
            "latest": max((bullet.as_of for bullet in bullets), default=None),
        },
    )
    connection.execute("DELETE FROM ros_wiki_citations WHERE topic_id = %s", [topic_id])
    connection.execute(
        """
        INSERT INTO ros_wiki_citations (topic_id, claim_key, leaf_id)
        SELECT DISTINCT %s::uuid, c.key, c.leaf FROM unnest(%s::uuid[], %s::uuid[]) AS c (key, leaf)
        """,
        [
            topic_id,
            [bullet.key for bullet in bullets for _ in bullet.leaves],
            [leaf for bullet in bullets for leaf in bullet.leaves],
        ],
    )


def read_page(connection: Connection, topic_id: UUID) -> Page:
    """The page as it is stored."""
    row = connection.execute("SELECT page FROM ros_wiki_topics WHERE id = %s", [topic_id]).fetchone()
    assert row is not None
    return page_from_json(row["page"])


def refused_claims(connection: Connection, keys: Sequence[UUID]) -> set[UUID]:
    """Those of the claims that a person has rejected, or taken back again."""
    rows = connection.execute(
        """
        SELECT DISTINCT k.key FROM ros_wiki_patches AS p CROSS JOIN LATERAL unnest(p.claim_keys) AS k (key)
        WHERE p.status IN ('rejected', 'reverted')
          AND p.claim_keys && %(keys)s::uuid[] AND k.key = ANY(%(keys)s::uuid[])
        """,
        {"keys": list(keys)},
    ).fetchall()
    return {row["key"] for row in rows}
