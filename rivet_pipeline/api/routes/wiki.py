"""`/api/wiki`: pages found, listed and read, their history, what is missing, and the review of patches.

Addresses that are no page begin with an underscore, which no page's address has.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import PlainTextResponse

from rivet_pipeline.api.dependencies import FromApp, Resources, json_only
from rivet_pipeline.api.models import NoQuery
from rivet_pipeline.api.problems import NOT_FOUND
from rivet_pipeline.api.wiki_models import (
    VERDICTS,
    CountsAnswer,
    DecideBody,
    DecidedAnswer,
    GapsAnswer,
    LimitQuery,
    PageAnswer,
    PatchesAnswer,
    PatchesQuery,
    RevertBody,
    RevisionsAnswer,
    WikiListAnswer,
    WikiQuery,
    WikiSearchAnswer,
    counts_answer,
    decided_answer,
    gaps_answer,
    list_answer,
    page_answer,
    patches_answer,
    revisions_answer,
    search_answer,
)
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.wiki.markdown import page_markdown
from rivet_pipeline.wiki.names import slugify
from rivet_pipeline.wiki.read import (
    TopicPage,
    address_of,
    list_topics,
    read_counts,
    read_gaps,
    read_history,
    read_topic,
    recent_changes,
)
from rivet_pipeline.wiki.review import decide, list_patches, revert
from rivet_pipeline.wiki.search import search_topics

router = APIRouter(prefix="/api/wiki", tags=["wiki"])

Slug = Annotated[str, Path(max_length=200, description="The page's address, or a name it goes by.")]
Nothing = Annotated[NoQuery, Query()]


@router.get("", summary="List pages, or find them")
def wiki(query: Annotated[WikiQuery, Query()], resources: FromApp) -> WikiSearchAnswer | WikiListAnswer:
    """Without `q` lists pages by title; with it finds them by words and by meaning, best first."""
    if query.q is not None and (query.entity is not None or query.offset):
        raise InvalidInputError("q", "can not be combined with entity or offset; leave them out")
    with resources.connection() as connection:
        if query.q is None:
            return list_answer(*list_topics(connection, entity=query.entity, limit=query.limit, offset=query.offset))
        embed = resources.vectors.on(connection)
        return search_answer(query.q, search_topics(connection, query.q, limit=query.limit, embed_query=embed))


@router.get("/_recent", summary="The latest changes of pages")
def wiki_recent(query: Annotated[LimitQuery, Query()], resources: FromApp) -> RevisionsAnswer:
    """Lists the latest versions of all pages, and what made each."""
    with resources.connection() as connection:
        return revisions_answer(recent_changes(connection, limit=query.limit))


@router.get("/_gaps", summary="What the wiki lacks")
def wiki_gaps(query: Annotated[LimitQuery, Query()], resources: FromApp) -> GapsAnswer:
    """Names often spoken of without a page, leaf summaries that were not mined, and the pages that are oldest."""
    with resources.connection() as connection:
        return gaps_answer(read_gaps(connection, limit=query.limit))


@router.get("/_counts", summary="How much the wiki holds")
def wiki_counts(_: Nothing, resources: FromApp) -> CountsAnswer:
    """Counts pages, sentences, patches by state and leaf summaries by what came of them."""
    with resources.connection() as connection:
        return counts_answer(read_counts(connection))


@router.get("/_patches", summary="List patches")
def wiki_patches(query: Annotated[PatchesQuery, Query()], resources: FromApp) -> PatchesAnswer:
    """Lists patches with the page each changes, how that page was found and the leaf summary it came from."""
    with resources.connection() as connection:
        patches, following = list_patches(
            connection,
            statuses=[query.state or "proposed"],
            slug=None if query.slug is None else address_of(connection, query.slug),
            leaf_id=query.leaf,
            limit=query.limit,
            before=query.before,
        )
    return patches_answer(patches, following)


@router.post("/_patches/decide", summary="Accept, reject or take back patches", dependencies=[Depends(json_only)])
def wiki_decide(body: DecideBody, resources: FromApp) -> DecidedAnswer:
    """Decides on patches, each by itself; what was so decided already is no error."""
    with resources.connection() as connection:
        return decided_answer(decide(connection, body.ids, VERDICTS[body.state], by=body.decided_by))


@router.post(
    "/_patches/{id}/revert",
    summary="Take an applied patch back",
    dependencies=[Depends(json_only)],
    responses=NOT_FOUND,
)
def wiki_revert(
    patch: Annotated[UUID, Path(alias="id", description="The patch's id.")], body: RevertBody, resources: FromApp
) -> DecidedAnswer:
    """Takes one patch back; those that came after it stay."""
    with resources.connection() as connection:
        return decided_answer([revert(connection, patch, by=body.decided_by)])


@router.get("/{slug}", summary="A page", responses=NOT_FOUND)
def wiki_page(slug: Slug, _: Nothing, resources: FromApp) -> PageAnswer:
    """Gives the page's sections with their citations, its history and its Markdown; follows redirects and names."""
    return page_answer(_page(resources, slug))


@router.get("/{slug}/raw", summary="A page as Markdown", response_class=PlainTextResponse, responses=NOT_FOUND)
def wiki_raw(slug: Slug, _: Nothing, resources: FromApp) -> PlainTextResponse:
    """Gives the page as the export writes it."""
    return PlainTextResponse(page_markdown(_page(resources, slug)), media_type="text/markdown; charset=utf-8")


@router.get("/{slug}/history", summary="The versions of a page", responses=NOT_FOUND)
def wiki_history(slug: Slug, query: Annotated[LimitQuery, Query()], resources: FromApp) -> RevisionsAnswer:
    """Lists the page's versions, the newest first, each with the sentences that came and went."""
    with resources.connection() as connection:
        found = read_history(connection, slug, limit=query.limit)
    if found is None:
        raise NotFoundError(_no_page(slug))
    return revisions_answer(found)


def _page(resources: Resources, slug: str) -> TopicPage:
    with resources.connection() as connection:
        page = read_topic(connection, slug)
    if page is None:
        raise NotFoundError(_no_page(slug))
    return page


def _no_page(slug: str) -> str:
    return f"There is no page {slugify(slug)!r} yet; /api/wiki?q=… finds what there is."
