"""`memory_search`: what retrieval finds, as a text for an agent. Finding and ranking is `retrieval/search.py`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tools.budget import Page, clip_tokens, count, label, quote, when
from rivet_pipeline.api.tools.reading import (
    FOOTER_TOKENS,
    Bounds,
    OptionalRole,
    PeriodArguments,
    Query,
    bounds_of,
    filters_said,
    fingerprint,
    next_steps,
    read_seen,
    write_seen,
)
from rivet_pipeline.api.tools.surface import (
    DEFAULT_TOKENS,
    Cursor,
    MaxTokens,
    Tool,
    lenient,
    lenient_whole,
    register,
)
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.tokens import byte_tokens
from rivet_pipeline.retrieval.lineage import Budget, Lineage, LineageSummary, read_lineage
from rivet_pipeline.retrieval.search import MAX_LIMIT, search
from rivet_pipeline.retrieval.types import Hit, Mode, Scope, SearchRequest, SearchResponse, manner
from rivet_pipeline.shortening import clip

#: How much of a hit is shown, in characters: a message as it is up to this, else its snippet; a summary that is
#: unfolded. So many summaries of an answer are unfolded, with so many of their sources.
_SHORT, _SUMMARY = 600, 4_000

#: How much of a session's tags is shown with a hit, in characters.
_TAGS = 240

_UNFOLDED, _SOURCES = 3, 4

#: Less room than this, in tokens, is left to the next page.
_LEAST_TOKENS = 150

#: What it means for an answer that meaning could not be used.
_BY_WORDS = "results are found and ranked by words alone"
_NOT_AT_ALL = "nothing could be looked for by meaning; mode `fts` or `hybrid` looks by words"


class SearchArguments(PeriodArguments):
    """The arguments of memory_search."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "where do sessions live", "window": "last_14d", "limit": 5}]}
    )

    query: Query = Field(description="What to look for, in words: a question, names, identifiers, paths.")
    mode: Annotated[Mode, lenient("hybrid")] = Field(
        "hybrid",
        description="By words and meaning; by words alone (`fts`); by meaning alone (`vector`); by reading the texts "
        "for the query as it stands, signs too, or spelled nearly so (`trigram`), or for a regular expression of "
        "Postgres (`regex`).",
    )
    scope: Annotated[Scope, lenient("both")] = Field("both", description="What to look through.")
    role: OptionalRole = None
    limit: Annotated[int, lenient_whole(10, 1, MAX_LIMIT)] = Field(10, ge=1, le=MAX_LIMIT)
    expand: Annotated[bool, lenient(True)] = Field(
        True, description="Unfold the best summaries: their whole text and some of the messages they were made from."
    )
    max_tokens: MaxTokens = DEFAULT_TOKENS
    cursor: Cursor = None


def _search(resources: Resources, arguments: SearchArguments) -> str:
    bounds = bounds_of(arguments, resources)
    listing = _listing(arguments)
    seen = read_seen(arguments.cursor, listing)
    request = SearchRequest(
        query=arguments.query,
        mode=arguments.mode,
        scope=arguments.scope,
        # One more than is shown says whether there is more.
        limit=min(MAX_LIMIT, len(seen) + arguments.limit + 1),
        agent=arguments.agent,
        role=arguments.role,
        conversation_id=arguments.conversation_id,
        since=bounds.since,
        before=bounds.before,
        tag=arguments.tag,
    )
    with resources.connection() as connection:
        response = search(
            connection, request, embed_query=resources.vectors.on(connection), now=datetime.now(resources.zone)
        )
        fresh = [hit for hit in response.hits if hit.id.bytes[-4:] not in seen]
        if not fresh:
            return _nothing(resources, arguments, bounds, response, paged=bool(seen))
        texts = _Texts(resources, connection, arguments, bounds, response)
        shown = texts.show(fresh[: arguments.limit])
    resources.accesses.record(shown)
    done = [hit.id for hit in response.hits if hit.id.bytes[-4:] in seen] + [hit.id for hit in shown]
    texts.finish(fresh, shown, write_seen(listing, done))
    return texts.page.text()


def _listing(arguments: SearchArguments) -> bytes:
    names = ("query", "mode", "scope", "agent", "role", "conversation_id", "since", "before", "window", "tag")
    return fingerprint(*(getattr(arguments, name) for name in names))


class _Texts:
    """One answer under construction."""

    def __init__(
        self,
        resources: Resources,
        connection: Connection,
        arguments: SearchArguments,
        bounds: Bounds,
        response: SearchResponse,
    ) -> None:
        self._resources = resources
        self._connection = connection
        self._arguments = arguments
        self._zone = resources.zone
        self.page = Page(arguments.max_tokens)
        self._head = _head(resources, arguments, bounds, response)

    def show(self, hits: Sequence[Hit]) -> list[Hit]:
        """Adds the hits that the budget holds, the first one at least; returns them."""
        summaries = sum(hit.source == "summary" for hit in hits)
        counts = f"{count(len(hits), 'result')} ({count(summaries, 'summary')}, "
        counts += f"{count(len(hits) - summaries, 'message')}), best first; times are in {self._zone.key}."
        self.page.parts.append("\n".join([self._head[0], counts, *self._head[1:]]))
        shown: list[Hit] = []
        unfolded = 0
        for number, hit in enumerate(hits, 1):
            unfold = self._arguments.expand and hit.source == "summary" and unfolded < _UNFOLDED
            unfolded += unfold
            if not self._show(number, hit, unfold=unfold):
                break
            shown.append(hit)
        return shown

    def _show(self, number: int, hit: Hit, *, unfold: bool) -> bool:
        heading, body = self._heading(number, hit), _body(hit, whole=unfold)
        sources = self._sources(hit.id) if unfold else ""
        if self.page.add("\n".join(part for part in (heading, body, sources) if part), reserve=FOOTER_TOKENS):
            return True
        room = self.page.left - FOOTER_TOKENS - byte_tokens(heading) - 40
        if room < _LEAST_TOKENS and number > 1:
            return False
        self.page.parts.append(f"{heading}\n{clip_tokens(body, max(40, room))}")
        return True

    def _heading(self, number: int, hit: Hit) -> str:
        parts = [f"## {number}. {hit.source}" + (f" ({hit.kind})" if hit.source == "summary" else "")]
        parts.append(label(hit.agent, 60) + (f"/{hit.role}{manner(hit.kind)}" if hit.role else ""))
        if hit.tool_name:
            parts.append(f"tool {label(hit.tool_name, 60)}")
        if hit.earliest_at is not None and hit.earliest_at != hit.created_at:
            parts.append(f"{when(hit.earliest_at, self._zone)} to {when(hit.created_at, self._zone)}")
        else:
            parts.append(when(hit.created_at, self._zone))
        if hit.message_count:
            parts.append(count(hit.message_count, "message"))
        parts.append(f"score {hit.score:.3f}")
        where = [f"id `{hit.id}`", f"conversation `{hit.conversation_id}`", label(hit.title or hit.session_key)]
        tags = label(f"tags {', '.join(hit.tags)}", _TAGS) if hit.tags else ""
        return " · ".join(parts) + "\n" + " · ".join(part for part in [*where, tags] if part)

    def _sources(self, summary: UUID) -> str:
        lineage = read_lineage(self._connection, summary, Budget(summaries=_SOURCES, messages=_SOURCES, excerpt=160))
        if lineage is None or lineage.summary is None:
            return ""
        lines = _source_lines(lineage, self._resources)
        return "\n".join(["Made from:", *lines]) if lines else ""

    def finish(self, fresh: Sequence[Hit], shown: Sequence[Hit], cursor: str) -> None:
        """Adds what was left out and what to do next."""
        wanted = min(len(fresh), self._arguments.limit)
        lines = []
        if len(shown) < wanted:
            lines.append(
                f"Cut to stay within {self._arguments.max_tokens:,} tokens: {wanted - len(shown)} of {wanted} results "
                "are not shown."
            )
        if len(fresh) > len(shown):
            lines.append(f"More: call memory_search again with the same arguments and cursor=`{cursor}`.")
        steps = [("memory_get_full", "memory_get_full with a message's id shows all of it.")]
        around = "memory_browse with a conversation id shows what was said before and after."
        lines.append(next_steps(self._resources, [*steps, ("memory_browse", around)]))
        self.page.parts.append("\n".join(line for line in lines if line))


def _source_lines(lineage: Lineage, resources: Resources) -> list[str]:
    zone = resources.zone
    lines: list[str] = []
    below: list[LineageSummary] = [lineage.summary] if lineage.summary else []
    while below:
        node = below.pop(0)
        below.extend(node.children)
        lines.extend(
            f"- summary ({child.kind}) `{child.id}` {when(child.earliest_at, zone)}: {_plain(child.excerpt)}"
            for child in node.children
        )
        lines.extend(
            f"- `{message.id}` {when(message.created_at, zone)} {message.role}: {_plain(message.excerpt)}"
            for message in node.messages
        )
    left = lineage.omitted_messages + lineage.omitted_summaries
    return [*lines, f"- and {left:,} more"] if lines and left else lines


def _plain(excerpt: str) -> str:
    return f"“{label(excerpt, 160)}”"


def _body(hit: Hit, *, whole: bool) -> str:
    text = "\n".join(part for part in (hit.content, hit.tool_result) if part)
    room = _SUMMARY if whole else _SHORT
    if len(text) <= room:
        return quote(text)
    shown = clip(text, room) if whole else hit.snippet
    rest = "" if hit.source == "summary" else "; memory_get_full with this id shows all of it"
    return f"{quote(shown)}\n[a part of {len(text):,} characters{rest}]"


def _head(resources: Resources, arguments: SearchArguments, bounds: Bounds, response: SearchResponse) -> list[str]:
    lines = [f"# Memory search: “{label(arguments.query, 120)}”"]
    scope = None if arguments.scope == "both" else arguments.scope
    only = filters_said(
        bounds,
        scope=scope,
        agent=arguments.agent,
        role=arguments.role,
        conversation=arguments.conversation_id,
        tag=arguments.tag,
    )
    if only:
        lines.append(f"Only: {only}.")
    if response.degraded is not None:
        lines.append(
            f"Note: {label(response.degraded, 200)}; {_NOT_AT_ALL if arguments.mode == 'vector' else _BY_WORDS}."
        )
    return [*lines, *(f"Note: {label(note, 300)}." for note in response.notes)]


def _nothing(
    resources: Resources, arguments: SearchArguments, bounds: Bounds, response: SearchResponse, *, paged: bool
) -> str:
    head = _head(resources, arguments, bounds, response)
    if paged:
        head.append(f"No more results: a search has {MAX_LIMIT} at most. Narrow the query or the period for others.")
        return "\n".join(head)
    head.append(f"No results: {label(response.reason or 'nothing was found', 300)}.")
    steps = []
    if bounds.said:
        same = "the same " + (f"window=`{label(arguments.window, 30)}`" if arguments.window else "since and before")
        steps.append(("memory_browse", f"memory_browse with {same} lists what was said then."))
        steps.append(("", "memory_search without the period looks through everything."))
    if any((arguments.agent, arguments.role, arguments.conversation_id, arguments.tag, arguments.scope != "both")):
        steps.append(("", "memory_search without the other filters looks further."))
    steps.append(("", "Other words help most: a synonym, a name, an identifier, a path, one word instead of five."))
    steps.append(("memory_stats", "memory_stats says which agents and periods the memory holds at all."))
    return "\n".join(head) + "\n\n" + next_steps(resources, steps)


register(
    Tool(
        "memory_search",
        SearchArguments,
        _search,
        "Finds what was said in former sessions, of all agents on this machine: messages and summaries in one list, "
        "best first, by words and by meaning. Identifiers, paths and quoted words are found as they are written. Every "
        "hit has its id, its conversation and its time. For what was said at a time, use memory_browse.",
        title="Search the memory",
    )
)
