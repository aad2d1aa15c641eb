"""The ways out: `/api/memory/search`, `/synthesis`, `/expand`, `/browse`, `/lineage` and `/stats`.

What is found is `retrieval`'s.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.concurrency import run_in_threadpool

from rivet_pipeline.api.answers import browse_answer, lineage_answer, search_answer, stats_answer
from rivet_pipeline.api.context_answers import expansion_answer, synthesis_answer, unfolded_answer
from rivet_pipeline.api.context_models import (
    ExpandQuery,
    ExpansionAnswer,
    SynthesisAnswer,
    SynthesisQuery,
    UnfoldedSearchAnswer,
    UnfoldingSearchQuery,
)
from rivet_pipeline.api.dependencies import FromApp, Resources
from rivet_pipeline.api.models import (
    BrowseAnswer,
    BrowseQuery,
    LineageAnswer,
    LineageQuery,
    StatsAnswer,
    StatsQuery,
)
from rivet_pipeline.api.problems import BAD_REQUEST, NOT_FOUND
from rivet_pipeline.api.times import period
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval.browse import browse
from rivet_pipeline.retrieval.expand import expand_hits, expand_more, expand_summary
from rivet_pipeline.retrieval.lineage import Budget, read_lineage
from rivet_pipeline.retrieval.search import read_chosen, search
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.retrieval.types import BrowseRequest, SearchRequest
from rivet_pipeline.transcripts.spool import Spool

router = APIRouter(prefix="/api/memory", tags=["memory"])


@router.get("/search", summary="Find messages and summaries")
async def search_memory(query: Annotated[UnfoldingSearchQuery, Query()], resources: FromApp) -> UnfoldedSearchAnswer:
    """Finds by words and by meaning, best first, in one list; with `mode` also by reading the texts themselves.

    `degraded` says when meaning could not be used, and why, how far back texts were read, or that the text index is too
    far behind for exact ranks. An answer without results carries a `reason`. An expression that Postgres can not take,
    or not in time, is a 400. `expand` unfolds the best summaries to what they were made from; `synthesize` adds an
    answer in words, for which the hits wait 20 seconds at most; `/api/memory/synthesis` lets them go first. Neither can
    fail the hits.
    """
    # A plain function would be run in a thread by FastAPI, and so would its answer's validation: two hops, not one.
    return await run_in_threadpool(_search, query, resources)


def _search(query: UnfoldingSearchQuery, resources: Resources) -> UnfoldedSearchAnswer:
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
        tag=query.tag,
    )
    with resources.connection() as connection:
        try:
            response = search(
                connection, request, embed_query=resources.vectors.on(connection), now=datetime.now(resources.zone)
            )
        except InvalidInputError as error:
            raise InvalidInputError("q" if error.field == "query" else error.field, error.problem) from error
        expansions = None
        if query.expand:
            expansions = expand_hits(connection, response.query, response.hits, characters=query.expand_chars)
    resources.accesses.record(response.hits)
    synthesis = None
    if query.synthesize:
        # The connection is given back: a model may take its time.
        unfolded = expansions.expansions if expansions is not None else ()
        synthesis = resources.synthesizer.answer(response.query, response.hits, unfolded)
    answer = search_answer(request, response, explain=query.explain, zone=resources.zone.key)
    return unfolded_answer(answer, expansions, synthesis)


@router.get("/synthesis", summary="Answer in words from hits", responses=NOT_FOUND | BAD_REQUEST)
def synthesize_memory(query: Annotated[SynthesisQuery, Query()], resources: FromApp) -> SynthesisAnswer:
    """Answers a question in words from the hits of a search that are named by their ids, and cites them.

    For a client that shows the hits first. Takes 20 seconds at most; where there is no answer, `reason` says why. It is
    made as with `synthesize=true` of a search, and counts as no access.
    """
    with resources.connection() as connection:
        hits = read_chosen(connection, query.q, query.id)
        unfolded = expand_hits(connection, query.q, hits, characters=query.expand_chars) if query.expand else None
    # The connection is given back: a model may take its time.
    expansions = () if unfolded is None else unfolded.expansions
    return synthesis_answer(resources.synthesizer.answer(query.q, hits, expansions))


@router.get("/expand", summary="Unfold a summary further", responses=NOT_FOUND | BAD_REQUEST)
def expand_memory(query: Annotated[ExpandQuery, Query()], resources: FromApp) -> ExpansionAnswer:
    """Gives what a summary was made from, the most relevant first, a part at a time.

    Send `more` of an expansion to go on with it, or the `id` of a summary (and `q`) to begin.
    """
    if (query.more is None) is (query.id is None):
        raise InvalidInputError("more", "or id is needed, and not both")
    with resources.connection() as connection:
        if query.more is not None:
            return expansion_answer(expand_more(connection, query.more, characters=query.chars))
        assert query.id is not None
        return expansion_answer(expand_summary(connection, query.id, query.q, characters=query.chars))


@router.get("/browse", summary="List messages by time")
def browse_memory(query: Annotated[BrowseQuery, Query()], resources: FromApp) -> BrowseAnswer:
    """Lists whole messages, newest first unless `order=asc`.

    The order is total, so following `nextCursor` shows each message once; `previousCursor` leads back.
    """
    since, before = period(query.since, query.before, query.window, zone=resources.zone, now=datetime.now(UTC))
    request = BrowseRequest(
        agent=query.agent,
        role=query.role,
        tool_name=query.tool_name,
        conversation_id=query.conversation_id,
        session_key=query.session_key,
        since=since,
        before=before,
        tag=query.tag,
        limit=query.limit,
        newest_first=query.order == "desc",
        include_tools=query.include_tools,
        cursor=query.cursor,
    )
    with resources.connection() as connection:
        return browse_answer(request, browse(connection, request), zone=resources.zone.key)


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
