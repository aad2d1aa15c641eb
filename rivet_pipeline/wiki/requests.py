"""Reads what a miner is shown of a leaf: its text, its session, the accepted tags, and pages it may be about.

Nothing is decided here. Tags that nobody has looked at yet are left out; the rule's tag asks for pages only where the
summary itself speaks of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.wiki.pages import build_page, page_from_json
from rivet_pipeline.wiki.search import TopicHit, search_topics
from rivet_pipeline.wiki.store import applied_patches
from rivet_pipeline.wiki.types import MOST_PATCHES, SAME_SESSION, Candidate, MineRequest, Page, Tag

#: Pages that a miner is shown, and characters of the leaf that are searched with.
MOST_CANDIDATES = 8
_SEARCHED = 500

#: Pages that one search brings, and pages that the session's former leaves do: a long session must leave room.
_FOUND, _OF_SESSION = 5, 4

_FRAME = re.compile(r"\APeriod \d{4}-\d\d-\d\dT[^\n]*\n\s*(?=\S)")


def read_request(connection: Connection, leaf_id: UUID) -> MineRequest:
    """Everything about one leaf."""
    row = connection.execute(
        """
        SELECT s.id, s.content, s.earliest_at, s.latest_at, s.conversation_id, c.title, c.agent
        FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id WHERE s.id = %s
        """,
        [leaf_id],
    ).fetchone()
    assert row is not None
    tags = read_tags(connection, leaf_id, row["conversation_id"])
    request = MineRequest(
        leaf_id, row["content"], row["earliest_at"], row["latest_at"], row["title"], row["agent"], tags
    )
    candidates = _candidates(connection, request, row["conversation_id"])
    return MineRequest(
        leaf_id, row["content"], row["earliest_at"], row["latest_at"], row["title"], row["agent"], tags, candidates
    )


def read_tags(connection: Connection, leaf_id: UUID, conversation_id: UUID) -> tuple[Tag, ...]:
    """The accepted tags of a leaf and of its session."""
    rows = connection.execute(
        """
        SELECT tag_key, tag_value, bool_or(decided_by IS NOT NULL) AS reviewed FROM ros_tags
        WHERE status = 'accepted' AND conversation_id = %s AND (entity_kind = 'conversation' OR entity_id = %s)
        GROUP BY tag_key, tag_value ORDER BY tag_key, tag_value
        """,
        [conversation_id, leaf_id],
    ).fetchall()
    return tuple(Tag(row["tag_key"], row["tag_value"], row["reviewed"]) for row in rows)


def mentions(text: str, name: str) -> bool:
    """Whether a text speaks of a name as a word of its own, its hyphens written as spaces or not."""
    forms = {re.escape(name), re.escape(name.replace("-", " "))}
    return re.search(rf"(?<!\w)(?:{'|'.join(sorted(forms))})(?!\w)", text, re.IGNORECASE) is not None


def spoken_text(text: str) -> str:
    """A summary without the line that says when and in which session it was."""
    return _FRAME.sub("", text)


def _candidates(connection: Connection, request: MineRequest, conversation_id: UUID) -> tuple[Candidate, ...]:
    """Pages of the session's former leaves, the latest first, and what the searches bring."""
    found: dict[str, tuple[UUID, Candidate]] = {}
    rows = connection.execute(
        """
        SELECT t.id, t.slug, t.title, t.page FROM ros_wiki_topics AS t
        JOIN (SELECT p.topic_id, max(p.as_of) AS latest FROM ros_wiki_patches AS p
              JOIN ros_summaries AS s ON s.id = p.leaf_id
              WHERE s.conversation_id = %(conversation)s AND p.status = 'applied'
                AND s.latest_at <= %(until)s AND s.id <> %(leaf)s
              GROUP BY p.topic_id) AS said ON said.topic_id = t.id
        WHERE t.status = 'live' ORDER BY said.latest DESC, t.slug LIMIT %(most)s
        """,
        {"conversation": conversation_id, "until": request.latest_at, "leaf": request.leaf_id, "most": _OF_SESSION},
    ).fetchall()
    for row in rows:
        page = page_from_json(row["page"])
        found[row["slug"]] = row["id"], Candidate(row["slug"], row["title"], page.aliases, page, SAME_SESSION)
    for query, why in _queries(request):
        for hit in _hits(connection, query, request.latest_at):
            candidate = Candidate(hit.slug, hit.title, hit.page.aliases, hit.page, why)
            found.setdefault(hit.slug, (hit.topic_id, candidate))
    own = _own_pages(connection, request.leaf_id)
    mine = {
        topic: _without_leaf(connection, topic, found.get(candidate.slug, (topic, candidate))[1], request.leaf_id)
        for topic, candidate in own.items()
    }
    known = [mine.get(topic, candidate) for topic, candidate in found.values()]
    known.sort(key=lambda one: not one.page.stood_at(request.latest_at))
    # Its own pages are never left out, so that a leaf that is mined again does not choose others.
    slugs = {candidate.slug for candidate in own.values()}
    others = [one.slug for one in known if one.slug not in slugs][: MOST_CANDIDATES - len(slugs)]
    besides = [candidate for candidate in mine.values() if candidate.slug not in found]
    return (*(one for one in known if one.slug in slugs or one.slug in others), *besides)


def _own_pages(connection: Connection, leaf_id: UUID) -> dict[UUID, Candidate]:
    """The pages that stand on an earlier mining of a leaf."""
    rows = connection.execute(
        """
        SELECT id, slug, title FROM ros_wiki_topics
        WHERE status = 'live'
          AND id IN (SELECT topic_id FROM ros_wiki_patches WHERE leaf_id = %s AND status = 'applied')
        ORDER BY slug LIMIT %s
        """,
        [leaf_id, MOST_PATCHES],
    ).fetchall()
    return {
        row["id"]: Candidate(row["slug"], row["title"], (), Page(row["title"]), "an earlier mining of this summary")
        for row in rows
    }


def _without_leaf(connection: Connection, topic_id: UUID, candidate: Candidate, leaf_id: UUID) -> Candidate:
    """A page as it would be if the leaf had never been mined.

    What the leaf brought would else be taken for known: its names were not said again, and what it supersedes is not
    there to be named.
    """
    others = [patch for patch in applied_patches(connection, topic_id) if patch.leaf_id != leaf_id]
    page = build_page(candidate.title, others)
    return replace(candidate, aliases=page.aliases, page=page)


def _hits(connection: Connection, query: str, when: datetime) -> list[TopicHit]:
    """The pages that stood when a leaf was said, then those that came later, which must not crowd them out."""
    earlier = search_topics(connection, query, limit=_FOUND, begun_by=when).hits
    if len(earlier) == _FOUND:
        return earlier
    known = {hit.topic_id for hit in earlier}
    both = search_topics(connection, query, limit=_FOUND).hits
    return [*earlier, *(hit for hit in both if hit.topic_id not in known)][:_FOUND]


def _queries(request: MineRequest) -> list[tuple[str, str]]:
    """What pages are looked for with, and how a page found so is labelled."""
    queries = [(f"{tag.key}:{tag.value}".replace("-", " "), "tag hint") for tag in request.reviewed]
    text = spoken_text(request.text)
    queries += [(value.replace("-", " "), "tag hint") for value in request.ran_in if mentions(text, value)]
    return [*queries, (f"{request.title or ''} {text[:_SEARCHED]}", "search")]
