"""`/api/conversations/{key}/messages`: one session's history. What a page holds is `retrieval`'s."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from rivet_pipeline.api.answers import browse_answer
from rivet_pipeline.api.dependencies import FromApp
from rivet_pipeline.api.models import BrowseAnswer, SessionMessagesQuery, Words
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.retrieval.browse import browse
from rivet_pipeline.retrieval.types import BrowseRequest
from rivet_pipeline.transcripts.store_state import holds_session

router = APIRouter(prefix="/api/conversations", tags=["memory"])

#: The most messages of one page of a session.
MAX_LIMIT = 1000


@router.get("/{key:path}/messages", summary="List one session's messages")
def session_messages(
    key: Annotated[
        Words, Path(description="The session key, URL-encoded.", examples=["claude-code:5b0f4f0e-2f58-4a7e"])
    ],
    query: Annotated[SessionMessagesQuery, Query()],
    resources: FromApp,
) -> BrowseAnswer:
    """Lists whole messages, oldest first, those of all agents of the session.

    The order is total, so following `nextCursor` shows each message once, also while more are captured.
    """
    request = BrowseRequest(session_key=key, limit=query.limit, cursor=query.cursor, newest_first=False)
    with resources.connection() as connection:
        response = browse(connection, request, max_limit=MAX_LIMIT)
        if not response.messages and not holds_session(connection, key):
            raise NotFoundError(f"No conversation has the session key {key[:200]!r}; /api/memory/browse lists them.")
    return browse_answer(request, response, zone=resources.zone.key)
