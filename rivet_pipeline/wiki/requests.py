"""Reads what a miner is shown of a leaf: its text, its session, the accepted tags, and pages it may be about.

Nothing is decided here. Tags that nobody has looked at yet are left out; the rule's tag asks for pages only where the
summary itself speaks of it.
"""

from __future__ import annotations

import re
from datetime import datetime
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.wiki.pages import page_from_json
from rivet_pipeline.wiki.search import TopicHit, search_topics
from rivet_pipeline.wiki.types import SAME_SESSION, Candidate, MineRequest, Tag

#: Pages that a miner is shown, and characters of the leaf that are searched with.
MOST_CANDIDATES = 8
_SEARCHED = 500

#: Pages that one search brings.
_FOUND = 5

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
    found: dict[str, Candidate] = {}
    rows = connection.execute(
        """
        SELECT t.slug, t.title, t.page FROM ros_wiki_topics AS t
        WHERE t.status = 'live' AND t.id IN (
            SELECT p.topic_id FROM ros_wiki_patches AS p JOIN ros_summaries AS s ON s.id = p.leaf_id
            WHERE s.conversation_id = %s AND p.status = 'applied')
        ORDER BY t.slug
        """,
        [conversation_id],
    ).fetchall()
    for row in rows:
        page = page_from_json(row["page"])
        found[row["slug"]] = Candidate(row["slug"], row["title"], page.aliases, page, SAME_SESSION)
    for query, why in _queries(request):
        for hit in _hits(connection, query, request.latest_at):
            found.setdefault(hit.slug, Candidate(hit.slug, hit.title, hit.page.aliases, hit.page, why))
    return tuple(sorted(found.values(), key=lambda one: not one.page.stood_at(request.latest_at))[:MOST_CANDIDATES])


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
