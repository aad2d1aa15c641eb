"""The wiki: its pages, one page with the sources of every sentence, its history, and what is missing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from rivet_pipeline.api.hub.pages import FromHub, HubRoute
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.api.models import Words
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.wiki.read import list_topics, read_gaps, read_history, read_topic, recent_changes
from rivet_pipeline.wiki.search import search_topics

router = APIRouter(prefix=f"{ROOT}/wiki", route_class=HubRoute, include_in_schema=False)

_PAGE = 60


@router.get("")
def wiki_page(
    page: FromHub,
    q: Annotated[Words, Query(max_length=1000)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=10_000)] = 1,
) -> Response:
    """All pages, or those that a search finds; what changed last; what is missing."""
    with page.resources.connection() as connection:
        found = None
        if q.strip():
            found = search_topics(connection, q, limit=20, embed_query=page.resources.vectors.on(connection))
        topics, total = list_topics(connection, limit=_PAGE, offset=(number - 1) * _PAGE)
        changes = recent_changes(connection, limit=8)
        gaps = read_gaps(connection)
    return page.render(
        "wiki.html",
        section="wiki",
        q=q,
        found=found,
        topics=topics,
        total=total,
        number=number,
        pages=max(1, -(-total // _PAGE)),
        changes=changes,
        gaps=gaps,
    )


@router.get("/{slug}")
def topic_page(slug: str, page: FromHub) -> Response:
    """One page."""
    with page.resources.connection() as connection:
        topic = read_topic(connection, slug[:300])
    if topic is None:
        raise NotFoundError(f"There is no page {slug[:100]!r}.")
    numbers = {citation.leaf_id: number for number, citation in enumerate(topic.citations, start=1)}
    return page.render("topic.html", section="wiki", topic=topic, numbers=numbers)


@router.get("/{slug}/history")
def topic_history(slug: str, page: FromHub) -> Response:
    """The versions of a page, each with what it added and took away."""
    with page.resources.connection() as connection:
        topic = read_topic(connection, slug[:300])
        revisions = read_history(connection, slug[:300])
    if topic is None or revisions is None:
        raise NotFoundError(f"There is no page {slug[:100]!r}.")
    return page.render("history.html", section="wiki", topic=topic, revisions=revisions)
