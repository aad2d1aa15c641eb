"""The ways out: `/api/memory/search`, `/browse`, `/lineage` and `/stats`. What is found is `retrieval`'s."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query

from rivet_pipeline.api.answers import browse_answer, lineage_answer, search_answer, stats_answer
from rivet_pipeline.api.dependencies import FromApp
from rivet_pipeline.api.models import (
    BrowseAnswer,
    BrowseQuery,
    LineageAnswer,
    LineageQuery,
    SearchAnswer,
    SearchQuery,
    StatsAnswer,
    StatsQuery,
)
from rivet_pipeline.api.problems import NOT_FOUND
from rivet_pipeline.api.times import period
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.retrieval.browse import browse
from rivet_pipeline.retrieval.lineage import Budget, read_lineage
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.retrieval.types import BrowseRequest, SearchRequest
from rivet_pipeline.transcripts.spool import Spool

router = APIRouter(prefix="/api/memory", tags=["memory"])


@router.get("/search", summary="Find messages and summaries")
def search_memory(query: Annotated[SearchQuery, Query()], resources: FromApp) -> SearchAnswer:
    """Finds by words and by meaning, best first, in one list.

    `degraded` says when meaning could not be used, and why. An answer without results carries a `reason`.
    """
    since, before = period(query.since, query.before, query.window, zone=resources.zone, now=datetime.now(UTC))
    request = SearchRequest(
        query=query.q,
        mode=query.mode,
        scope=query.scope,
        limit=query.limit,
        agent=query.agent,
        role=query.role,
        conversation_id=query.conversation_id,
        since=since,
        before=before,
    )
    with resources.connection() as connection:
        response = search(connection, request, embed_query=resources.vectors.on(connection))
    resources.accesses.record(response.hits)
    return search_answer(request, response, explain=query.explain)


@router.get("/browse", summary="List messages by time")
def browse_memory(query: Annotated[BrowseQuery, Query()], resources: FromApp) -> BrowseAnswer:
    """Lists whole messages, newest first unless `order=asc`.

    The order is total, so following `nextCursor` shows each message once.
    """
    since, before = period(query.since, query.before, query.window, zone=resources.zone, now=datetime.now(UTC))
    request = BrowseRequest(
        agent=query.agent,
        role=query.role,
        tool_name=query.tool_name,
        conversation_id=query.conversation_id,
        since=since,
        before=before,
        limit=query.limit,
        newest_first=query.order == "desc",
        include_tools=query.include_tools,
        cursor=query.cursor,
    )
    with resources.connection() as connection:
        return browse_answer(browse(connection, request))


@router.get("/lineage/{id}", summary="Trace a summary to its words, or a message to its summaries", responses=NOT_FOUND)
def memory_lineage(
    wanted: Annotated[UUID, Path(alias="id", description="The id of a summary or of a message.")],
    query: Annotated[LineageQuery, Query()],
    resources: FromApp,
) -> LineageAnswer:
    """Gives, for a summary, the summaries over it and below it down to the messages, and for a message those over it.

    Excerpts are first lines, cut; `/api/memory/tool/memory_get_full` has a message's whole text.
    """
    budget = Budget(query.summaries, query.messages, query.excerpt)
    with resources.connection() as connection:
        lineage = read_lineage(connection, wanted, budget)
    if lineage is None:
        raise NotFoundError(f"No summary and no message has the id {wanted}; /api/memory/search gives the ids.")
    return lineage_answer(lineage)


@router.get("/stats", summary="What the memory holds")
def memory_stats(query: Annotated[StatsQuery, Query()], resources: FromApp) -> StatsAnswer:
    """Counts messages, conversations and summaries, what waits for the pipeline or in the spool, and what failed."""
    with resources.connection() as connection:
        spool = Spool(resources.settings.spool_folder)
        stats = collect_stats(connection, agent=query.agent, spool=spool)
    return stats_answer(stats, datetime.now(UTC))
