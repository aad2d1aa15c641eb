"""One search: candidates of both arms, and of them one list of messages and summaries (`ranking.py`).

Reads what is materialised and never waits for the pipeline. Counting accesses is the caller's (`access.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.models.embedder import UNKNOWN_WORDS
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval import lexical, patterns, scoring, vector
from rivet_pipeline.retrieval.features import SemanticSide
from rivet_pipeline.retrieval.filters import (
    number_array,
    resolve_tag,
    statement,
    tune_session,
)
from rivet_pipeline.retrieval.named_times import Asked, read_asked, rows_of
from rivet_pipeline.retrieval.postings import LONGEST_WORD
from rivet_pipeline.retrieval.quoting import one_line
from rivet_pipeline.retrieval.ranking import Scored, rank
from rivet_pipeline.retrieval.scoring import PROFILE, Profile
from rivet_pipeline.retrieval.snippets import make_snippet, snippet_around, without_frame
from rivet_pipeline.retrieval.types import Hit, Key, ScoreParts, SearchRequest, SearchResponse
from rivet_pipeline.transcripts.cleaning import clean_text

#: The fewest and most hits of one search.
MIN_LIMIT, MAX_LIMIT = 1, 50

#: How wide the graph of vectors is searched: about the chunks asked of it; the walk goes on when that is not enough.
_EF_SEARCH = 100

#: The modes that read the texts, and what they look for.
_WANTED = {"trigram": "this text or one that is spelled like it", "regex": "anything that fits the expression"}
_READING = frozenset(_WANTED)

#: How much of a query is looked for, in characters (`ros_query_terms`).
_MOST_CHARACTERS = 8_000

#: A query of at most so many words may be a part of one, rather than a question.
_FEW_WORDS = 3

#: What a face says of a query without any sign, whichever it is.
EMPTY_QUERY = "is empty; give what to look for: a question, a name, an identifier or a path"

#: Why a memory that nothing was put into finds nothing.
EMPTY_MEMORY = (
    "the memory is empty: nothing was captured or imported yet (`rivet import --discover` takes in the sessions that "
    "are on this machine)"
)

#: The agents' names, each one step in the index of messages.
_AGENTS = """
    WITH RECURSIVE names AS (
        (SELECT agent FROM ros_messages ORDER BY agent LIMIT 1)
        UNION ALL
        SELECT (SELECT m.agent FROM ros_messages AS m WHERE m.agent > n.agent ORDER BY m.agent LIMIT 1)
        FROM names AS n WHERE n.agent IS NOT NULL
    )
    SELECT agent FROM names WHERE agent IS NOT NULL LIMIT %s"""

#: Rows by id, with what their headings need.
_CHOSEN = """
    SELECT 'message' AS source, seq, id, created_at AS at, role, tool_name FROM ros_messages WHERE id = ANY (%(ids)s)
    UNION ALL
    SELECT 'summary', seq, id, latest_at, NULL, NULL FROM ros_summaries WHERE id = ANY (%(ids)s)"""
_NO_PARTS = ScoreParts(0.0, 0.0, 0.0, 0.0)

#: How many agents an answer names, and characters of a name.
_MOST_AGENTS, _LONGEST_AGENT = 12, 60

EmbedQuery = Callable[[str], NDArray[np.float32]]


def search(
    connection: Connection,
    request: SearchRequest,
    *,
    embed_query: EmbedQuery | None,
    now: datetime | None = None,
    profile: Profile = PROFILE,
) -> SearchResponse:
    """The best messages and summaries for a query, best first; ties by time (newer first), then id.

    `embed_query` gives the query's vector of the model that serves (`vector.serving_model`); None, a `ModelError` from
    it or a vector of another width leave the semantic part out, and `degraded` says so. `limit` is cut to 1 to 50;
    times are aware, and days such as `yesterday` are those of the zone of `now`. An answer without hits says why in
    `reason`. Database errors are raised, never turned into an empty answer. Inside a transaction of the caller's the
    planner settings of a search stay until that one ends.
    """
    now = now or datetime.now(UTC)
    request = replace(
        request, limit=max(MIN_LIMIT, min(MAX_LIMIT, request.limit)), query=clean_text(request.query).strip()
    )
    refused = _refuse(request)
    if refused is not None:
        return SearchResponse(request.query, [], reason=refused)
    request = resolve_tag(connection, request)
    if request.tagged == ():
        return SearchResponse(
            request.query, [], reason=f"no session carries the tag {one_line(request.tag or '', 200)}"
        )
    query = request.query
    asked = Asked(request)
    if request.mode not in _READING:
        asked = read_asked(connection, request, now)
    request = asked.request
    # The model is asked before the transaction begins: it may be slow, and a snapshot must not wait for it.
    side = _embed(connection, request, embed_query)
    with _pipelined(connection, request), connection.transaction():
        tune_session(connection, ef_search=_EF_SEARCH)
        if request.mode in _READING:
            response = _search_texts(connection, request, side, now, profile)
        else:
            response = _search(connection, query, asked, side, now, profile)
        if not response.hits:
            response = replace(response, reason=_why_unknown(connection, request) or response.reason)
        return replace(response, times=asked.times)


def _pipelined(connection: Connection, request: SearchRequest) -> AbstractContextManager[Any]:
    """A pipeline for a whole search: what is asked is sent at once, and waited for where its answer is read.

    Modes that read texts go without: they go on after a statement has failed.
    """
    return nullcontext() if request.mode in _READING else connection.pipeline()


def read_chosen(connection: Connection, query: str, ids: Sequence[UUID]) -> list[Hit]:
    """Messages and summaries by id, in the order given, as hits of a query; their scores are 0: nothing is searched.

    Raises `NotFoundError` for an id that is none of either.
    """
    rows = connection.execute(_CHOSEN, {"ids": list(ids)}).fetchall()
    by_id = {
        row["id"]: Scored(
            (row["source"], row["seq"]), row["id"], row["at"], 0.0, _NO_PARTS, row["role"], row["tool_name"]
        )
        for row in rows
    }
    for wanted in ids:
        if wanted not in by_id:
            raise NotFoundError(f"No summary and no message has the id {wanted}; /api/memory/search gives the ids.")
    return _read_hits(connection, query, [by_id[wanted] for wanted in dict.fromkeys(ids)])


def _why_unknown(connection: Connection, request: SearchRequest) -> str | None:
    """That there is nothing to find at all, or that a filter names what there is not; None when neither is so.

    A memory that nothing was put into, and a name mistyped, are no "nothing".
    """
    if connection.execute("SELECT 1 FROM ros_messages LIMIT 1").fetchone() is None:
        return EMPTY_MEMORY
    if request.conversation_id is not None:
        known = connection.execute("SELECT 1 FROM ros_conversations WHERE id = %s", [request.conversation_id])
        if known.fetchone() is None:
            return f"there is no conversation with the id {request.conversation_id}"
    return None if request.agent is None else _why_unknown_agent(connection, request.agent)


def _why_unknown_agent(connection: Connection, agent: str) -> str | None:
    """That nobody has this name, and who there is; None when somebody has it."""
    if connection.execute("SELECT 1 FROM ros_messages WHERE agent = %s LIMIT 1", [agent]).fetchone() is not None:
        return None
    rows = connection.execute(_AGENTS, [_MOST_AGENTS + 1]).fetchall()
    meant = next((row["agent"] for row in rows if _bare(row["agent"]) == _bare(agent)), None)
    if meant is not None:
        return f"no message is by an agent {_named(agent)}; there is one that is written {_named(meant)}"
    names = [one_line(row["agent"], _LONGEST_AGENT) for row in rows[:_MOST_AGENTS]]
    more = " and others" if len(rows) > _MOST_AGENTS else ""
    return f"no message is by an agent {_named(agent)}; there are {', '.join(names)}{more}"


def _bare(agent: str) -> str:
    return agent.strip().casefold()


def _named(agent: str) -> str:
    """A name between quotation marks, with the blanks around it: these may be what is wrong with it."""
    start, end = (" " if blank else "" for blank in (agent[:1].isspace(), agent[-1:].isspace()))
    return f"'{start}{one_line(agent, _LONGEST_AGENT)}{end}'"


def _refuse(request: SearchRequest) -> str | None:
    """Why a query can not be looked for, None when it can. Signs are something to look for only in the texts."""
    if not request.query:
        return "the query is empty"
    if request.role is not None and request.scope == "summaries":
        return "a summary has no role; search for messages, or leave the role out"
    if request.mode in _READING:
        return None
    # U+FFFD is what became of signs that can not be stored.
    if any(one.isalnum() or (ord(one) > 0x2000 and one != "\ufffd") for one in request.query):
        return None
    return "the query holds no word to search for; mode trigram looks for signs as well"


def _search_texts(
    connection: Connection, request: SearchRequest, side: SemanticSide, now: datetime, profile: Profile
) -> SearchResponse:
    """Modes trigram and regex: what holds the pattern, and below it what holds something similar."""
    wanted = max(profile.lexical_kept, 4 * request.limit)
    candidates: set[Key] = set()
    if request.mode == "regex":
        pattern = patterns.read_regex(connection, request.query, profile)
    else:
        pattern = patterns.literal_of(request.query)
        candidates = _by_words(connection, request, wanted, now, profile)
    found = patterns.find(connection, request, pattern, candidates=candidates, wanted=wanted, profile=profile)
    scored: list[Scored] = []
    for likeness, literal in ((dict.fromkeys(found.literal, 1.0), True), (found.similar, False)):
        texts = lexical.TextScores(likeness, best=1.0)
        ranked = rank(connection, request, list(likeness), texts, {}, side, literal=False, now=now, profile=profile)
        scored += [replace(one, score=scoring.lift_verbatim(one.score, literal)) for one in ranked]
    hits = _place_snippets(connection, _read_hits(connection, request.query, scored[: request.limit]), scored, pattern)
    reason = None if hits else f"no text{_within(request)} holds {_WANTED[request.mode]}"
    return SearchResponse(request.query, hits, None, reason, found.partial)


def _by_words(connection: Connection, request: SearchRequest, wanted: int, now: datetime, profile: Profile) -> set[Key]:
    """The rows that the text arm would score, those with the exact text among them."""
    found = lexical.score_texts(connection, request, literal=True, extra=[], now=now, kept=wanted, profile=profile)
    return set(found.scores)


def _place_snippets(
    connection: Connection, hits: list[Hit], scored: list[Scored], pattern: patterns.Pattern
) -> list[Hit]:
    """The hits with snippets that show where the pattern stands."""
    keys = {one.id: one.key for one in scored}
    places = patterns.find_places(connection, (keys[hit.id] for hit in hits), pattern)
    placed: list[Hit] = []
    for hit in hits:
        place = places.get(keys[hit.id])
        if place is not None:
            in_result, start, end = place
            text = (hit.tool_result or "") if in_result else hit.content
            hit = replace(hit, snippet=snippet_around(text, start, end))
        placed.append(hit)
    return placed


def _embed(connection: Connection, request: SearchRequest, embed_query: EmbedQuery | None) -> SemanticSide:
    if request.mode not in ("hybrid", "vector"):
        return SemanticSide()
    if not request.query:
        return SemanticSide(unknown=True)
    if embed_query is None:
        return SemanticSide(degraded="semantic search is off: no embedding model is configured")
    model = vector.serving_model(connection)
    if model is None:
        return SemanticSide(degraded="semantic search is off: nothing is embedded yet")
    try:
        query = np.asarray(embed_query(request.query), dtype=np.float32).reshape(-1)
    except ModelError as error:
        if error.name == UNKNOWN_WORDS:
            return SemanticSide(unknown=True)
        return SemanticSide(degraded=f"semantic search is off: the embedding service failed ({error.name})")
    refused = vector.refuse_vector(model, query)
    if refused is not None:
        return SemanticSide(degraded=f"semantic search is off: {refused}")
    return SemanticSide(model, query)


def _search(
    connection: Connection, query: str, asked: Asked, side: SemanticSide, now: datetime, profile: Profile
) -> SearchResponse:
    """Modes hybrid, fts and vector; `query` is the whole one, of which `asked` may lack words that name a time."""
    request, periods = asked.request, asked.periods
    literal = scoring.looks_literal(request.query)
    if literal:
        # Whatever holds the query as it stands holds this too.
        request = replace(request, query=scoring.literal_text(request.query))
    limit = request.limit
    if request.mode == "vector":
        # A row's surroundings are told from the candidates, so a short list begins as a long one does if it has the
        # same ones. With words it would take too long.
        request = replace(request, limit=MAX_LIMIT)
    words = rows = None
    if request.mode != "vector" or vector.is_narrow(request):
        kept = max(profile.lexical_kept, 4 * request.limit)
        rows = lexical.TextSearch(connection, request, literal=literal, now=now, kept=kept, profile=profile)
    if request.mode != "vector" and rows is not None:
        words = rows
        if not words.has_words and not periods:
            return SearchResponse(query, [], side.degraded, _why_no_words(query))
    similarities: dict[Key, float] = {}
    if side.model is not None and side.query is not None and not asked.is_only:
        wanted = max(profile.vector_kept, 2 * request.limit)
        meanwhile = None if words is None else words.score
        within = None if rows is None else rows.within
        similarities = vector.nearest(
            connection, side.model, side.query, request, wanted=wanted, meanwhile=meanwhile, within=within
        ).similarities
        if request.mode == "hybrid":
            similarities = {row: near for row, near in similarities.items() if near >= scoring.LEAST_SIMILARITY}
    dated = rows_of(connection, request, side, asked, now, profile)
    extra = list(dict.fromkeys([*similarities, *dated]))
    texts = lexical.TextScores() if words is None else words.best(extra)
    keys = list(dict.fromkeys(dated if asked.is_only else [*texts.scores, *extra]))
    scored = rank(
        connection,
        replace(asked.bounded, query=request.query, limit=request.limit),
        keys,
        texts,
        similarities,
        side,
        literal=literal,
        now=now,
        profile=asked.profile(profile),
        periods=periods,
    )
    hits = _read_hits(connection, request.query, scored[:limit], literal=literal)
    reason = None if hits else _why_nothing(replace(request, query=query), side)
    if words is None:
        return SearchResponse(query, hits, side.degraded, reason)
    # Where not all was read that might hold the query, nobody can say that nothing does.
    by_meaning = hits and words.has_words and not texts.matched and words.partial is None
    unmatched = _why_unmatched(request, asked) if by_meaning and not asked.is_only else None
    return SearchResponse(query, hits, side.degraded, reason, words.partial, words.behind, unmatched)


def _why_nothing(request: SearchRequest, side: SemanticSide) -> str:
    if request.mode == "vector" and side.degraded is not None:
        return f"{side.degraded}, and mode vector asks for nothing else"
    if request.mode == "vector" and side.unknown:
        return "the embedding model knows no word of the query, and mode vector asks for nothing else"
    where = _where(request)
    if request.mode == "vector":
        return f"{where} has a vector"
    if len(request.query) > _MOST_CHARACTERS:
        return f"{where} holds any of the words in the query's first {_MOST_CHARACTERS:,} characters; the rest is cut"
    unknown = ", and the embedding model knows none of them" if side.unknown else ""
    # Of a short query a part of a word may have been meant: the first digits of a hash, one sign of several.
    inside = "; mode trigram looks inside of words as well" if len(request.query.split()) <= _FEW_WORDS else ""
    return f"{where} holds any of the query's words{unknown}{inside}"


def _why_unmatched(request: SearchRequest, asked: Asked) -> str:
    """That no word brought the hits: what is near to any text is easily taken for an answer."""
    other, of_time = (" other", "of that time or ") if asked.periods else ("", "")
    shown = f"what is shown is {of_time}near in meaning and may be beside the point"
    return f"{_where(request)} holds any of the query's{other} words; {shown}"


def _where(request: SearchRequest) -> str:
    if _within(request):
        return "nothing within these filters"
    return {"messages": "no message", "summaries": "no summary"}.get(request.scope, "no message or summary")


def _why_no_words(query: str) -> str:
    """Why no word of a query that holds some could be looked for."""
    if len(query) > _MOST_CHARACTERS:
        return (
            f"the query is too long: it is cut at {_MOST_CHARACTERS:,} of its {len(query):,} characters, and "
            "these hold no word that can be looked for"
        )
    if any(len(word.encode()) > LONGEST_WORD for word in query.split()):
        return f"a word of more than {LONGEST_WORD:,} bytes is in no index; mode trigram looks for the text as it is"
    return "the query holds only words that are too common to search for, or signs; mode trigram looks for these"


def _within(request: SearchRequest) -> str:
    """` within these filters` when there are any."""
    return " within these filters" if request.is_filtered else ""


def _snippet(query: str, body: str, *, literal: bool) -> str:
    """The part of a text that shows why it was found; of a literal query where it stands as it is."""
    snippet = make_snippet(query, body)
    if literal and query.lower() not in snippet.lower():
        place = re.search(re.escape(query), body, re.IGNORECASE)
        if place is not None:
            return snippet_around(body, *place.span())
    return snippet


def _read_hits(connection: Connection, query: str, scored: list[Scored], *, literal: bool = False) -> list[Hit]:
    if not scored:
        return []
    rows = connection.execute(
        statement("read_hits"),
        {
            "messages": number_array(one.key[1] for one in scored if one.key[0] == "message"),
            "summaries": number_array(one.key[1] for one in scored if one.key[0] == "summary"),
        },
    ).fetchall()
    by_key = {(row["source"], row["seq"]): row for row in rows}
    hits: list[Hit] = []
    for one in scored:
        row = by_key[one.key]
        body = "\n".join(part for part in (row["content"], row["tool_result"]) if part)
        hits.append(
            Hit(
                id=one.id,
                source=one.key[0],
                score=one.score,
                parts=one.parts,
                content=row["content"],
                tool_result=row["tool_result"],
                snippet=_snippet(query, without_frame(body) if one.key[0] == "summary" else body, literal=literal),
                created_at=one.at,
                role=one.role,
                agent=row["agent"],
                kind=row["kind"],
                tool_name=one.tool_name,
                conversation_id=row["conversation_id"],
                session_key=row["session_key"],
                title=row["title"],
                earliest_at=row["earliest_at"],
                message_count=row["message_count"],
                tags=tuple(row["tags"]),
            )
        )
    return hits
