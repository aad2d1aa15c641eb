"""`/api/conversations/{key}/messages`: one session's history. What a page holds is `retrieval`'s."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from rivet_pipeline.api.answers import browse_answer
from rivet_pipeline.api.dependencies import FromApp
from rivet_pipeline.api.models import BrowseAnswer, SessionMessagesQuery, Words
from rivet_pipeline.api.problems import NOT_FOUND
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.retrieval.browse import browse, page_tag
from rivet_pipeline.retrieval.types import BrowseRequest
from rivet_pipeline.transcripts.store_state import holds_session

router = APIRouter(prefix="/api/conversations", tags=["memory"])

#: The most messages of one page of a session.
MAX_LIMIT = 1000

_UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The page is the one whose `ETag` was sent in `If-None-Match`."}
}


@router.get(
    "/{key:path}/messages",
    summary="List one session's messages",
    response_model=BrowseAnswer,
    responses={**NOT_FOUND, **_UNCHANGED},
)
def session_messages(
    key: Annotated[
        Words, Path(description="The session key, URL-encoded.", examples=["claude-code:5b0f4f0e-2f58-4a7e"])
    ],
    query: Annotated[SessionMessagesQuery, Query()],
    resources: FromApp,
    response: Response,
    if_none_match: Annotated[str | None, Header(description="An `ETag` of this page; 304 says it still holds.")] = None,
) -> BrowseAnswer | Response:
    """Lists whole messages, oldest first unless `order=desc`, those of all agents of the session.

    A key that nothing is known under is tried without
    its harness: `codex:17` as `17`.

    The order is total, so following `nextCursor` shows each message once, also while more are captured. An `ETag`
    changes with the page, so that who looks again and again is told so in a few bytes when there is nothing new.
    """
    with resources.connection() as connection:
        # Some programs capture under the native id alone, and are asked for by harness and id.
        known = next((one for one in (key, key.partition(":")[2]) if one and holds_session(connection, one)), None)
        request = BrowseRequest(
            session_key=known or key,
            limit=query.limit,
            cursor=query.cursor,
            newest_first=query.order == "desc",
            include_tools=query.include_tools,
        )
        page = browse(connection, request, max_limit=MAX_LIMIT)
    if known is None:
        raise NotFoundError(f"No conversation has the session key {key[:200]!r}; /api/memory/browse lists them.")
    tag = f'"{page_tag(page)}"'
    # A page is nobody else's to keep, and must be asked for again.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in {one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")}:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return browse_answer(request, page, zone=resources.zone.key)
