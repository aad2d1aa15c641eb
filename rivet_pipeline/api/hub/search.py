"""The search page, which is the hub's start: what was asked, what was found and why it stands where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, get_args
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from markupsafe import Markup
from pydantic import BaseModel, BeforeValidator, Field

from rivet_pipeline.api.hub.pages import FromHub, HubRoute, Page
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.api.hub.texts import bare, tidy
from rivet_pipeline.api.hub.times import Clock
from rivet_pipeline.api.times import period
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.conversation import Conversation, known_agents, list_conversations
from rivet_pipeline.retrieval.scoring import PROFILE
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.snippets import mark_words
from rivet_pipeline.retrieval.types import Hit, Mode, Scope, ScoreParts, SearchRequest, manner
from rivet_pipeline.retrieval.windows import WINDOWS
from rivet_pipeline.summaries.signals import STOP_WORDS
from rivet_pipeline.tags.read import count_tags
from rivet_pipeline.transcripts.cleaning import clean_text

router = APIRouter(route_class=HubRoute, include_in_schema=False)

_SCOPES = (("both", "everything"), ("messages", "messages"), ("summaries", "summaries"))
_MODES = (
    ("hybrid", "words and meaning"),
    ("fts", "words"),
    ("vector", "meaning"),
    ("trigram", "exact or similar text"),
    ("regex", "regular expression"),
)
#: What may stand around a word.
_SIGNS = ".,;:!?()[]{}\"'\u201c\u201d\u201e\u00ab\u00bb"

#: Tags that the form suggests.
_TAGS = 50
_RECENT = 20


def _absent(value: object) -> object:
    """A form sends what was left out as a blank."""
    if not isinstance(value, str):
        return value
    return clean_text(value) if value.strip() else None


def _known(value: object, known: tuple[str, ...]) -> object:
    return value if value in known else known[0]


class Asked(BaseModel):
    """What the search form sends. An unknown scope or mode is the first one: an address may be old."""

    q: Annotated[str | None, BeforeValidator(_absent)] = Field(None, max_length=2000)
    agent: Annotated[str | None, BeforeValidator(_absent)] = Field(None, max_length=200)
    window: Annotated[str | None, BeforeValidator(_absent)] = Field(None, max_length=100)
    tag: Annotated[str | None, BeforeValidator(_absent)] = Field(None, max_length=200)
    scope: Annotated[Scope, BeforeValidator(lambda value: _known(value, ("both", *get_args(Scope))))] = "both"
    mode: Annotated[Mode, BeforeValidator(lambda value: _known(value, get_args(Mode)))] = "hybrid"


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One part of a score, 0 to 1, and its weight; None for what goes into the score through others."""

    label: str
    value: float
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class HitView:
    """A hit as the page shows it."""

    id: UUID
    source: str
    label: str
    title: str
    agent: str
    when: Markup
    link: str
    parts: list[tuple[str, bool]]
    score: float
    why: list[ScorePart]
    kept: str
    conversation_id: UUID
    message_count: int | None


def hit_view(query: str, hit: Hit, clock: Clock) -> HitView:
    """What the page shows of a hit; its link leads to the place in the conversation."""
    is_summary = hit.source == "summary"
    return HitView(
        id=hit.id,
        source=hit.source,
        label=f"{hit.kind} summary" if is_summary else hit.tool_name or f"{hit.role}{manner(hit.kind)}",
        title=hit.title or hit.session_key,
        agent=hit.agent,
        when=clock.span(hit.earliest_at or hit.created_at, hit.created_at)
        if is_summary
        else clock.stamp(hit.created_at),
        link=f"{ROOT}/s/{hit.id}" if is_summary else f"{ROOT}/m/{hit.id}",
        parts=mark_words(telling(query), tidy(hit.snippet) if is_summary else _said(hit)),
        score=hit.score,
        why=_why(hit.parts),
        kept=_kept(hit.parts),
        conversation_id=hit.conversation_id,
        message_count=hit.message_count,
    )


def telling(query: str) -> str:
    """A query without the words that stand in every text, which would only dazzle; as it is when it has no others."""
    kept = [word for word in query.split() if word.strip(_SIGNS).casefold() not in STOP_WORDS]
    return " ".join(kept) or query


def _said(hit: Hit) -> str:
    """A message's snippet; the stars and backticks of a tool are its own."""
    return hit.snippet if hit.tool_name or hit.kind == "tool" else bare(hit.snippet)


def _why(parts: ScoreParts) -> list[ScorePart]:
    """The four parts by their weights, and what the surroundings lend to the first two, as far as they do."""
    lent = (
        ("from neighbours", parts.neighbours),
        ("from summaries", parts.tree),
        ("the conversation", parts.session),
        ("its best message", parts.session_best),
        ("the date asked for", parts.named),
    )
    return [
        ScorePart("words", parts.text, PROFILE.text),
        ScorePart("meaning", parts.semantic, PROFILE.semantic),
        ScorePart("freshness", parts.temporal, PROFILE.temporal),
        ScorePart("importance", parts.importance, PROFILE.importance),
        *(ScorePart(label, value) for label, value in lent if value),
    ]


def _kept(parts: ScoreParts) -> str:
    """What keeps the score from being the sum of its parts, in words; empty when nothing does."""
    reasons = (
        ("Freshness and importance count {} here, because other results say more.", parts.within),
        ("{} is kept: it is noise or a stub.", parts.noise),
        ("{} is kept: it repeats what stands above it, or others are shown first.", parts.diversity),
    )
    return " ".join(text.format(f"{share:.0%}") for text, share in reasons if share < 0.995)


@dataclass(frozen=True, slots=True)
class Results:
    """What a search answered."""

    hits: list[HitView]
    degraded: str | None
    notes: tuple[str, ...]
    reason: str | None


@router.get(ROOT)
def search_page(asked: Annotated[Asked, Query()], page: FromHub) -> Response:
    """The start page, or what a search found."""
    problem = None
    results = None
    with page.resources.connection() as connection:
        # One that nobody is called is a filter too, and the form says so.
        agents = sorted({*known_agents(connection), *filter(None, [asked.agent])})
        tags = [f"{tag.key}:{tag.value}" for tag in count_tags(connection, limit=_TAGS)]
    recent: list[Conversation] = []
    try:
        if asked.q:
            results = _search(asked, asked.q, page)
        else:
            recent = _recent(asked, page)
    except InvalidInputError as error:
        problem = str(error)
    return page.render(
        "search.html",
        status=400 if problem else 200,
        section="search",
        asked=asked,
        agents=agents,
        tags=tags,
        windows=WINDOWS,
        scopes=_SCOPES,
        modes=_MODES,
        problem=problem,
        results=results,
        recent=recent,
        effect=_effect(asked.mode),
        advice=_advice(asked),
        narrowed=bool(asked.agent or asked.window or asked.tag),
    )


def _period(asked: Asked, page: Page) -> tuple[datetime | None, datetime | None]:
    return period(None, None, asked.window, zone=page.resources.zone, now=datetime.now(UTC))


def _recent(asked: Asked, page: Page) -> list[Conversation]:
    """Without words: the conversations that the filters leave, last active first."""
    since, before = _period(asked, page)
    with page.resources.connection() as connection:
        return list_conversations(
            connection, agent=asked.agent, tag=asked.tag, since=since, before=before, limit=_RECENT
        )


def _search(asked: Asked, query: str, page: Page) -> Results:
    since, before = _period(asked, page)
    request = SearchRequest(
        query=query,
        mode=asked.mode,
        scope=asked.scope,
        limit=20,
        agent=asked.agent,
        tag=asked.tag,
        since=since,
        before=before,
    )
    with page.resources.connection() as connection:
        response = search(
            connection,
            request,
            embed_query=page.resources.vectors.on(connection),
            now=datetime.now(page.resources.zone),
        )
    page.resources.accesses.record(response.hits)
    hits = [hit_view(query, hit, page.clock) for hit in response.hits]
    return Results(hits, response.degraded, response.notes, response.reason)


def _effect(mode: Mode) -> str:
    if mode == "vector":
        return "Nothing could be looked for by meaning; choose words instead."
    return "Results are found and ranked by words alone."


def _advice(asked: Asked) -> str:
    narrowed = [
        name
        for name, value in (
            ("agent", asked.agent),
            ("time", asked.window),
            ("tag", asked.tag),
            ("scope", asked.scope != "both"),
        )
        if value
    ]
    if narrowed:
        return f"Try it without the filter on {' and '.join(narrowed)}."
    return "Try fewer or other words; identifiers are found whole and in parts."
