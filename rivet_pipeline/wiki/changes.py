"""Applies patches to pages and takes them back: edits, merges and splits. Each in the caller's transaction, locked.

A page is what its applied patches say together (`pages.py`), so nothing here edits a page: it says which patches count
and has the pages made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.wiki.identity import Identity, resolve
from rivet_pipeline.wiki.names import slugify
from rivet_pipeline.wiki.store import draft_from_json, rebuild, topic_for
from rivet_pipeline.wiki.types import PatchDraft

#: Who applies what nobody has to look at.
AUTOMATIC = "automatic"


def apply_patch(connection: Connection, patch: dict[str, Any], by: str) -> None:
    """Makes a patch count. `patch`: its row, locked. Raises `InvalidInputError` when it no longer fits."""
    if patch["kind"] == "edit":
        _apply_edit(connection, patch, by)
    elif patch["kind"] == "merge":
        _apply_merge(connection, patch, by)
    else:
        _apply_split(connection, patch, by)


def revert_patch(connection: Connection, patch: dict[str, Any], by: str) -> None:
    """Takes an applied patch back; what came after it stays. `patch`: its row, locked."""
    _set_status(connection, patch["id"], "reverted", by)
    topics = [topic for topic in (patch["topic_id"], patch["other_id"]) if topic is not None]
    if patch["kind"] == "merge":
        _part_again(connection, patch)
    rebuild(connection, topics, cause=f"reverted by {by}", patch_id=patch["id"])


def find_topic(connection: Connection, draft: PatchDraft, ran_in: Sequence[str]) -> tuple[UUID, Identity]:
    """The page of a draft, made where there is none yet, and how it was found."""
    identity = resolve(connection, draft, ran_in)
    return identity.topic_id or topic_for(connection, draft.title), identity


def _apply_edit(connection: Connection, patch: dict[str, Any], by: str) -> None:
    leaf = connection.execute("SELECT text_hash FROM ros_summaries WHERE id = %s", [patch["leaf_id"]]).fetchone()
    if leaf is None or leaf["text_hash"] != patch["leaf_hash"]:
        raise InvalidInputError("patch", f"{patch['id']}: its summary has changed since; it is mined again by itself")
    draft = draft_from_json(patch["title"], patch["payload"])
    # Pages may have come and gone since it was proposed.
    topic, identity = find_topic(connection, draft, patch["payload"].get("ran_in", ()))
    connection.execute(
        "UPDATE ros_wiki_patches SET topic_id = %s, decision = %s, reason = %s WHERE id = %s",
        [topic, identity.decision, identity.reason, patch["id"]],
    )
    _set_status(connection, patch["id"], "applied", by)
    rebuild(connection, [topic], cause=f"applied by {by}", patch_id=patch["id"])


def _set_status(connection: Connection, patch_id: UUID, status: str, by: str) -> None:
    connection.execute(
        "UPDATE ros_wiki_patches SET status = %s, decided_by = %s, decided_at = now() WHERE id = %s",
        [status, by, patch_id],
    )


# --- merges ---------------------------------------------------------------------------------------------------------


def _apply_merge(connection: Connection, patch: dict[str, Any], by: str) -> None:
    """Moves all that counts for one page to the other, and leaves a redirect."""
    kept, gone = patch["topic_id"], patch["other_id"]
    if kept == gone:
        raise InvalidInputError("patch", f"{patch['id']}: its pages are one by now")
    rows = connection.execute(
        "SELECT id, slug, title, aliases, status FROM ros_wiki_topics WHERE id = ANY(%s) ORDER BY id FOR UPDATE",
        [[kept, gone]],
    ).fetchall()
    pages = {row["id"]: row for row in rows}
    if any(row["status"] != "live" for row in rows):
        raise InvalidInputError("patch", f"{patch['id']}: one of its pages is merged or empty by now")
    moved = _move(connection, gone, kept, besides=patch["id"])
    taken = _move_parts(connection, gone, kept)
    redirects = connection.execute(
        "UPDATE ros_wiki_redirects SET topic_id = %s WHERE topic_id = %s RETURNING from_slug", [kept, gone]
    ).fetchall()
    connection.execute(
        "INSERT INTO ros_wiki_redirects (from_slug, topic_id, patch_id) VALUES (%s, %s, %s)",
        [pages[gone]["slug"], kept, patch["id"]],
    )
    payload = patch["payload"] | {
        "moved": [str(one) for one in moved],
        "taken": [str(one) for one in taken],
        "redirects": [row["from_slug"] for row in redirects],
        "aliases": [pages[gone]["title"], *pages[gone]["aliases"]],
    }
    connection.execute("UPDATE ros_wiki_patches SET payload = %s WHERE id = %s", [Jsonb(payload), patch["id"]])
    connection.execute("UPDATE ros_wiki_topics SET status = 'merged' WHERE id = %s", [gone])
    _set_status(connection, patch["id"], "applied", by)
    rebuild(connection, [kept, gone], cause=f"merged by {by}", patch_id=patch["id"])


def _move(connection: Connection, source: UUID, target: UUID, *, besides: UUID) -> list[UUID]:
    rows = connection.execute(
        "UPDATE ros_wiki_patches SET topic_id = %s WHERE topic_id = %s AND id <> %s RETURNING id",
        [target, source, besides],
    ).fetchall()
    return [row["id"] for row in rows]


def _move_parts(connection: Connection, source: UUID, target: UUID) -> list[UUID]:
    """What a page took over from pages that were split goes with it."""
    rows = connection.execute(
        "UPDATE ros_wiki_patches SET other_id = %s WHERE kind = 'split' AND other_id = %s RETURNING id",
        [target, source],
    ).fetchall()
    return [row["id"] for row in rows]


def _part_again(connection: Connection, patch: dict[str, Any]) -> None:
    """Gives the merged page back what it brought; what came to the other one since stays there."""
    kept, gone, payload = patch["topic_id"], patch["other_id"], patch["payload"]
    connection.execute(
        "UPDATE ros_wiki_patches SET topic_id = %s WHERE id = ANY(%s) AND topic_id = %s",
        [gone, [UUID(one) for one in payload.get("moved", ())], kept],
    )
    connection.execute(
        "UPDATE ros_wiki_patches SET other_id = %s WHERE id = ANY(%s) AND other_id = %s",
        [gone, [UUID(one) for one in payload.get("taken", ())], kept],
    )
    connection.execute("DELETE FROM ros_wiki_redirects WHERE patch_id = %s", [patch["id"]])
    connection.execute(
        "UPDATE ros_wiki_redirects SET topic_id = %s WHERE from_slug = ANY(%s) AND topic_id = %s",
        [gone, payload.get("redirects", []), kept],
    )
    connection.execute("UPDATE ros_wiki_topics SET status = 'empty' WHERE id = %s AND status = 'merged'", [gone])


# --- splits ---------------------------------------------------------------------------------------------------------


def _apply_split(connection: Connection, patch: dict[str, Any], by: str) -> None:
    """Lets a new page take over some claims of one that has grown too long."""
    source = connection.execute(
        "SELECT status FROM ros_wiki_topics WHERE id = %s FOR UPDATE", [patch["topic_id"]]
    ).fetchone()
    if source is None or source["status"] != "live":
        raise InvalidInputError("patch", f"{patch['id']}: its page is merged or empty by now")
    other = patch["other_id"] or _page_at(connection, patch["title"])
    if other == patch["topic_id"]:
        raise InvalidInputError("patch", f"{patch['id']}: the new page would be the old one")
    connection.execute("UPDATE ros_wiki_patches SET other_id = %s WHERE id = %s", [other, patch["id"]])
    _set_status(connection, patch["id"], "applied", by)
    rebuild(connection, [patch["topic_id"], other], cause=f"split by {by}", patch_id=patch["id"])


def _page_at(connection: Connection, title: str) -> UUID:
    """The page at a title's address, made where there is none; of one that was merged that which says it now."""
    row = connection.execute(
        """
        SELECT r.topic_id FROM ros_wiki_redirects AS r JOIN ros_wiki_topics AS t ON t.slug = r.from_slug
        WHERE r.from_slug = %s AND t.status = 'merged'
        """,
        [slugify(title)],
    ).fetchone()
    return topic_for(connection, title) if row is None else row["topic_id"]
