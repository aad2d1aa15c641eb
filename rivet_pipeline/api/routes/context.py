"""`/api/memory/context`: what an agent is given of its memory at a turn. What goes in is `retrieval`'s."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rivet_pipeline.api.context_answers import context_answer
from rivet_pipeline.api.context_models import ContextAnswer, ContextQuery
from rivet_pipeline.api.dependencies import FromApp
from rivet_pipeline.retrieval.context import ContextRequest, build_context

router = APIRouter(prefix="/api/memory", tags=["memory"])

#: How long, in seconds, a turn waits for a connection before it goes on without its memory.
CONNECTION_WAIT = 2.0


@router.get("/context", summary="What an agent is given at a turn")
def memory_context(query: Annotated[ContextQuery, Query()], resources: FromApp) -> ContextAnswer:
    """Puts together the workspace files, the session's latest and the best of a search within a budget of tokens.

    Never fails a turn: what can not be had is left out and named in `degraded`, the database included. Nothing that is
    injected counts as an access.
    """
    request = ContextRequest(
        query=query.q,
        session_key=query.session_key,
        agent=query.agent,
        budget=query.budget,
        folder=resources.settings.workspace_folder,
        zone=resources.zone,
    )
    return context_answer(
        build_context(lambda: resources.pool.connection(timeout=CONNECTION_WAIT), request, embed=resources.vectors.on)
    )
