"""Reads pages and lists of pages for people and agents. Plain data, nothing is changed.

Everything a reader shows stands in the dataclasses here: sections with their sentences, each with its citations, and a
citation's summary, session and time, from where the lineage leads to the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.wiki.names import fold, slugify
from rivet_pipeline.wiki.pages import page_from_json
from rivet_pipeline.wiki.search import excerpt
from rivet_pipeline.wiki.types import SECTIONS, Bullet, Decision, Page, Section

#: Pages that a page names as near to it by what they share.
_NEIGHBOURS = 6

#: A page whose newest sentence is older than this many days is aging, or stale.
AGING_DAYS, STALE_DAYS = 7, 30


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A page in a list. `latest_at` is the time of its newest sentence, `updated_at` that of its last change (UTC)."""

    slug: str
    title: str
    excerpt: str
    bullets: int
    revision: int
    aliases: tuple[str, ...]
    entities: tuple[str, ...]
    latest_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Citation:
    """A leaf summary that a sentence stands on. `label` names it within the page; `at` is its newest message's time."""

    label: str
    leaf_id: UUID
    conversation_id: UUID
    session_key: str
    session_title: str | None
    agent: str
    at: datetime
    messages: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a page with its citations, the newest last. `first_at`, `as_of`: said first and last (UTC)."""

    key: UUID
    text: str
    first_at: datetime
    as_of: datetime
    citations: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of a page in its place."""

    name: Section
    heading: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A sentence that held once, of which section, and the text and time of what took its place."""

    sentence: Sentence
    section: Section
    superseded_at: datetime
    superseded_by: str


@dataclass(frozen=True, slots=True)
class Link:
    """A name that a page refers to. `slug` is None where no page goes by it yet."""

    title: str
    slug: str | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A whole page. `archived` counts sentences that its caps left out; `open_patches` wait for a person.

    `redirected_from`: the address that was asked for, where that is another one.
    """

    topic_id: UUID
    slug: str
    title: str
    status: str
    aliases: tuple[str, ...]
    entities: tuple[str, ...]
    related: tuple[Link, ...]
    sections: tuple[PageSection, ...]
    history: tuple[HistoryEntry, ...]
    citations: tuple[Citation, ...]
    archived: int
    open_patches: int
    revision: int
    first_at: datetime | None
    latest_at: datetime | None
    updated_at: datetime
    redirected_from: str | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """One version of a page and what made it."""

    slug: str
    revision: int
    title: str
    cause: str
    patch_id: UUID | None
    created_at: datetime
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A patch in a list: the title it was proposed under, its status, how its page was found, its first sentence.

    `leaf_id` is the summary it was mined from, `slug` the page it belongs to; None: it has none yet.
    """

    title: str
    status: str
    decision: Decision
    says: str
    leaf_id: UUID
    slug: str | None


@dataclass(frozen=True, slots=True)
class WantedPage:
    """A name that leaves speak of often and that has no page."""

    name: str
    leaves: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the wiki lacks: pages, mined leaves, and pages that nobody has added to for long (the oldest first)."""

    wanted: list[WantedPage]
    unmined: int
    failed: int
    older_version: int
    stalest: list[TopicLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is."""

    pages: int
    sentences: int
    patches: dict[str, int]
    leaves: dict[str, int]


# --- lists ----------------------------------------------------------------------------------------------------------

_LINE = "slug, title, page, bullets, revision, aliases, entities, latest_at, updated_at"


def list_topics(
    connection: Connection, *, entity: str | None = None, limit: int = 100, offset: int = 0
) -> tuple[list[TopicLine], int]:
    """Pages by title, and how many there are. `entity`: only those that speak of this name."""
    rows = connection.execute(
        f"""
        SELECT {_LINE}, count(*) OVER () AS total FROM ros_wiki_topics
        WHERE status = 'live' AND (%(key)s::text IS NULL OR keys @> ARRAY[%(key)s::text])
        ORDER BY lower(title), slug LIMIT %(limit)s OFFSET %(offset)s
        """,  # noqa: S608 - the columns are of this module
        {"key": None if entity is None else fold(entity), "limit": limit, "offset": offset},
    ).fetchall()
    if offset and not rows:
        return [], list_topics(connection, entity=entity, limit=1)[1]
    return [_line(row) for row in rows], rows[0]["total"] if rows else 0


def recent_changes(connection: Connection, *, limit: int = 20) -> list[Revision]:
    """The latest versions of all pages, the newest first, each with the sentences it added and removed."""
    rows = connection.execute(
        """
        SELECT t.slug, r.revision, r.title, r.cause, r.patch_id, r.created_at, r.page, b.page AS before
        FROM ros_wiki_revisions AS r JOIN ros_wiki_topics AS t ON t.id = r.topic_id
        LEFT JOIN ros_wiki_revisions AS b ON b.topic_id = r.topic_id AND b.revision = r.revision - 1
        ORDER BY r.created_at DESC, r.topic_id, r.revision DESC LIMIT %s
        """,
        [limit],
    ).fetchall()
    return [_revision(row["slug"], row, row["before"]) for row in rows]


def _revision(slug: str, row: dict[str, Any], former: dict[str, Any] | None) -> Revision:
    """A version beside the one before it."""
    now = {bullet.key: bullet.text for bullet in page_from_json(row["page"]).bullets}
    before = {bullet.key: bullet.text for bullet in page_from_json(former or {}).bullets}
    return Revision(
        slug,
        row["revision"],
        row["title"],
        row["cause"],
        row["patch_id"],
        row["created_at"],
        tuple(text for key, text in now.items() if key not in before),
        tuple(text for key, text in before.items() if key not in now),
    )


def newest_patches(connection: Connection, days: Sequence[date], *, of_each: int = 5) -> dict[date, list[PatchLine]]:
    """The newest patches from the leaves of each of those days (UTC) that has any."""
    rows = connection.execute(
        """
        SELECT day, title, status, decision, coalesce(says, '') AS says, leaf_id, slug FROM (
            SELECT s.day, p.title, p.status, p.decision, p.payload #>> '{claims,0,text}' AS says, p.seq, p.leaf_id,
                   t.slug, row_number() OVER (PARTITION BY s.day ORDER BY p.seq DESC) AS place
            FROM ros_wiki_patches AS p
            JOIN ros_summaries AS s ON s.id = p.leaf_id
            LEFT JOIN ros_wiki_topics AS t ON t.id = p.topic_id
            WHERE s.kind = 'leaf' AND s.day = ANY(%s)
        ) AS patches WHERE place <= %s ORDER BY day, seq DESC
        """,
        [list(days), of_each],
    ).fetchall()
    found: dict[date, list[PatchLine]] = {}
    for row in rows:
        found.setdefault(row.pop("day"), []).append(PatchLine(**row))
    return found


def read_counts(connection: Connection) -> Counts:
    """Pages, sentences, patches by status, and leaves by what came of them."""
    pages = connection.execute(
        "SELECT count(*) AS pages, coalesce(sum(bullets), 0)::bigint AS bullets FROM ros_wiki_topics "
        "WHERE status = 'live'"
    ).fetchone()
    patches = connection.execute("SELECT status, count(*) AS n FROM ros_wiki_patches GROUP BY status").fetchall()
    leaves = connection.execute("SELECT outcome, count(*) AS n FROM ros_wiki_extractions GROUP BY outcome").fetchall()
    assert pages is not None
    return Counts(
        pages["pages"],
        pages["bullets"],
        {row["status"]: row["n"] for row in patches},
        {row["outcome"]: row["n"] for row in leaves},
    )


def read_gaps(connection: Connection, *, limit: int = 10) -> Gaps:
    """What the wiki lacks."""
    wanted = connection.execute(
        """
        SELECT often.name, often.leaves
        FROM (
            -- Compared byte by byte: a language's own order costs several times as much.
            SELECT m.key COLLATE "C" AS key, min(m.name COLLATE "C") AS name, count(*) AS leaves
            FROM ros_wiki_extractions AS x CROSS JOIN LATERAL unnest(x.mention_keys, x.mentions) AS m (key, name)
            GROUP BY m.key COLLATE "C" HAVING count(*) > 1
            ORDER BY leaves DESC, 1 LIMIT 500
        ) AS often
        WHERE NOT EXISTS (
            SELECT 1 FROM ros_wiki_topics AS t WHERE t.status = 'live' AND t.alias_keys @> ARRAY[often.key])
        ORDER BY often.leaves DESC, often.key LIMIT %s
        """,
        [limit],
    ).fetchall()
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM ros_unmined_leaves) AS unmined,
               (SELECT count(*) FROM ros_failures WHERE stage = 'wiki_patches' AND item <> 'service') AS failed,
               (SELECT count(*) FROM ros_stale_wiki_patches) AS older
        """
    ).fetchone()
    stalest = connection.execute(
        f"SELECT {_LINE} FROM ros_wiki_topics WHERE status = 'live' ORDER BY latest_at, slug LIMIT %s",  # noqa: S608
        [limit],
    ).fetchall()
    assert row is not None
    return Gaps(
        [WantedPage(found["name"], found["leaves"]) for found in wanted],
        row["unmined"],
        row["failed"],
        row["older"],
        [_line(found) for found in stalest],
    )


def _line(row: dict[str, Any]) -> TopicLine:
    page = page_from_json(row["page"])
    return TopicLine(
        row["slug"],
        row["title"],
        excerpt(page),
        row["bullets"],
        row["revision"],
        tuple(row["aliases"]),
        tuple(row["entities"]),
        row["latest_at"],
        row["updated_at"],
    )


# --- one page -------------------------------------------------------------------------------------------------------


def read_topic(connection: Connection, wanted: str) -> TopicPage | None:
    """The page at an address, or that goes by a name; redirects are followed. None when there is none.

    Args:
        connection: The store.
        wanted: A slug, a title or an alias.
    """
    row = _find(connection, wanted)
    if row is None:
        return None
    page = page_from_json(row["page"])
    cited = _citations(connection, {leaf for bullet in page.all_bullets for leaf in bullet.leaves})
    texts = {bullet.key: bullet.text for bullet in page.all_bullets}
    waiting = connection.execute(
        "SELECT count(*) AS n FROM ros_wiki_patches WHERE status = 'proposed' AND (topic_id = %s OR other_id = %s)",
        [row["id"], row["id"]],
    ).fetchone()
    return TopicPage(
        topic_id=row["id"],
        slug=row["slug"],
        title=row["title"],
        status=row["status"],
        aliases=page.aliases,
        entities=page.entities,
        related=_related(connection, row["id"], page, row["keys"]),
        sections=tuple(
            PageSection(name, heading, tuple(_sentence(bullet, cited) for bullet in page.sections[name]))
            for name, heading in SECTIONS.items()
            if page.sections.get(name)
        ),
        history=tuple(
            HistoryEntry(
                _sentence(former.bullet, cited),
                former.section,
                former.superseded_at,
                texts.get(former.superseded_by, ""),
            )
            for former in page.history
        ),
        citations=tuple(sorted(cited.values(), key=lambda citation: (citation.at, citation.label))),
        archived=page.archived,
        open_patches=waiting["n"] if waiting else 0,
        revision=row["revision"],
        first_at=row["first_at"],
        latest_at=row["latest_at"],
        updated_at=row["updated_at"],
        redirected_from=None if slugify(wanted) == row["slug"] else wanted,
    )


def address_of(connection: Connection, wanted: str) -> str:
    """The slug of the page that goes by an address or a name; that of the name itself where no page has it now.

    A page of which nothing holds any more keeps its address, and that of a page that was merged with it.
    """
    held = connection.execute(
        """
        SELECT t.slug FROM ros_wiki_topics AS t
        LEFT JOIN ros_wiki_redirects AS r ON r.topic_id = t.id AND r.from_slug = %(slug)s
        WHERE t.status <> 'merged' AND (t.slug = %(slug)s OR r.from_slug IS NOT NULL)
        ORDER BY (t.slug = %(slug)s) DESC, t.slug LIMIT 1
        """,
        {"slug": slugify(wanted)},
    ).fetchone()
    row = held or _find(connection, wanted)
    return slugify(wanted) if row is None else row["slug"]


def _find(connection: Connection, wanted: str) -> dict[str, Any] | None:
    return connection.execute(
        """
        SELECT t.* FROM ros_wiki_topics AS t
        LEFT JOIN ros_wiki_redirects AS r ON r.topic_id = t.id AND r.from_slug = %(slug)s
        WHERE t.status = 'live'
          AND (t.slug = %(slug)s OR r.from_slug IS NOT NULL OR (%(key)s <> '' AND t.alias_keys @> ARRAY[%(key)s::text]))
        ORDER BY (t.slug = %(slug)s) DESC, (r.from_slug IS NOT NULL) DESC, t.slug LIMIT 1
        """,
        {"slug": slugify(wanted), "key": fold(wanted)},
    ).fetchone()


def _citations(connection: Connection, leaves: set[UUID]) -> dict[UUID, Citation]:
    rows = connection.execute(
        """
        SELECT s.id, s.conversation_id, s.latest_at, s.message_count, c.session_key, c.title, c.agent
        FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id WHERE s.id = ANY(%s)
        """,
        [list(leaves)],
    ).fetchall()
    return {
        row["id"]: Citation(
            str(row["id"])[:8],
            row["id"],
            row["conversation_id"],
            row["session_key"],
            row["title"],
            row["agent"],
            row["latest_at"],
            row["message_count"],
        )
        for row in rows
    }


def _sentence(bullet: Bullet, cited: dict[UUID, Citation]) -> Sentence:
    return Sentence(
        bullet.key,
        bullet.text,
        bullet.first_at,
        bullet.as_of,
        tuple(cited[leaf] for leaf in bullet.leaves if leaf in cited),
    )


def _related(connection: Connection, topic_id: UUID, page: Page, keys: Sequence[str]) -> tuple[Link, ...]:
    """What the page's patches relate it to, and the pages that share most of its rarer names."""
    named = connection.execute(
        """
        SELECT n.name, (SELECT t.slug FROM ros_wiki_topics AS t
                        WHERE t.status = 'live' AND t.alias_keys @> ARRAY[n.key] ORDER BY t.slug LIMIT 1) AS slug
        FROM unnest(%s::text[], %s::text[]) AS n (name, key)
        """,
        [list(page.related), [fold(name) for name in page.related]],
    ).fetchall()
    near = connection.execute(
        """
        SELECT t.slug, t.title, count(*) AS shared
        FROM ros_wiki_topics AS t CROSS JOIN LATERAL unnest(t.keys) AS k (key)
        WHERE t.status = 'live' AND t.id <> %(id)s AND t.keys && %(keys)s::text[] AND k.key = ANY(%(keys)s::text[])
        GROUP BY t.slug, t.title HAVING count(*) > 1 ORDER BY shared DESC, t.slug LIMIT %(limit)s
        """,
        {"id": topic_id, "keys": list(keys), "limit": _NEIGHBOURS},
    ).fetchall()
    links = {row["slug"] or row["name"]: Link(row["name"], row["slug"]) for row in named if row["name"]}
    for row in near:
        links.setdefault(row["slug"], Link(row["title"], row["slug"]))
    return tuple(sorted(links.values(), key=lambda link: (link.title.casefold(), link.slug or "")))


def read_history(connection: Connection, wanted: str, *, limit: int = 50) -> list[Revision] | None:
    """The versions of a page, the newest first, each with the sentences it added and removed; None without a page."""
    row = _find(connection, wanted)
    if row is None:
        return None
    rows = connection.execute(
        "SELECT revision, title, page, cause, patch_id, created_at FROM ros_wiki_revisions WHERE topic_id = %s "
        "ORDER BY revision DESC LIMIT %s",
        [row["id"], limit + 1],
    ).fetchall()
    befores = [*(found["page"] for found in rows[1:]), None]
    return [_revision(row["slug"], found, before) for found, before in zip(rows, befores, strict=True)][:limit]


def read_revision(connection: Connection, wanted: str, revision: int) -> Page | None:
    """One former version of a page; None when there is none."""
    row = _find(connection, wanted)
    if row is None:
        return None
    found = connection.execute(
        "SELECT page FROM ros_wiki_revisions WHERE topic_id = %s AND revision = %s", [row["id"], revision]
    ).fetchone()
    return None if found is None else page_from_json(found["page"])
