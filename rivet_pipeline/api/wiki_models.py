"""What goes over the wire of `/api/wiki`: parameters, bodies and answers, and how the wiki's data becomes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rivet_pipeline.api.models import Words
from rivet_pipeline.wiki.markdown import page_markdown
from rivet_pipeline.wiki.read import (
    Citation,
    Counts,
    Gaps,
    HistoryEntry,
    Link,
    PageSection,
    Revision,
    Sentence,
    TopicLine,
    TopicPage,
    WantedPage,
)
from rivet_pipeline.wiki.review import MOST_DECISIONS, Outcome, PatchView, Verdict
from rivet_pipeline.wiki.search import WikiSearch
from rivet_pipeline.wiki.types import Decision, PatchKind, PatchStatus, Section

Status = Literal["proposed", "applied", "rejected", "reverted", "replaced"]

#: The largest figure that the store knows.
MOST_ROWS = 2**63 - 1

#: The verdict that each state of a decision asks for.
VERDICTS: dict[str, Verdict] = {"accepted": "accept", "rejected": "reject", "reverted": "revert"}


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    # Read from the attributes of the wiki's own dataclasses, which have the same names.
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, from_attributes=True
    )


class WikiQuery(_Query):
    """Which pages are listed."""

    q: Words | None = Field(None, min_length=1, max_length=2000, description="What to look for; absent: all pages.")
    entity: Words | None = Field(None, min_length=1, description="Only pages that speak of this name; not beside `q`.")
    limit: int = Field(20, ge=1, le=500, description="How many pages at most.")
    offset: int = Field(0, ge=0, le=MOST_ROWS, description="How many pages to pass over; not beside `q`.")


class LimitQuery(_Query):
    """How long a list is."""

    limit: int = Field(20, ge=1, le=200, description="How many entries at most.")


class PatchesQuery(_Query):
    """Which patches are listed, the newest first."""

    state: Status | None = Field(None, description="Only patches of this state; absent: what waits for a decision.")
    slug: Words | None = Field(
        None, min_length=1, description="Only patches of this page: its address, or a name it goes by."
    )
    leaf: UUID | None = Field(None, description="Only patches from this leaf summary.")
    limit: int = Field(50, ge=1, le=200, description="How many patches at most.")
    before: int | None = Field(None, ge=0, le=MOST_ROWS, description="Continue after a former answer: its `next`.")


class DecideBody(BaseModel):
    """A decision on patches."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"ids": ["0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"], "state": "accepted", "decided_by": "mara"}]
        },
    )

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_DECISIONS)]
    state: Literal["accepted", "rejected", "reverted"] = Field(description="What becomes of the patches.")
    decided_by: Words = Field(min_length=1, max_length=200, description="Who decides.")


class RevertBody(BaseModel):
    """Who takes a patch back."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"decided_by": "mara"}]})

    decided_by: Words = Field(min_length=1, max_length=200, description="Who decides.")


class TopicLineAnswer(_Answer):
    """A page in a list."""

    slug: str
    title: str
    excerpt: str
    bullets: int
    revision: int
    aliases: list[str]
    entities: list[str]
    latest_at: datetime | None = Field(description="The time of its newest sentence.")
    updated_at: datetime


class TopicHitAnswer(_Answer):
    """A page that a search found, with its score from 0 to 1."""

    slug: str
    title: str
    score: float
    excerpt: str
    latest_at: datetime | None


class WikiListAnswer(_Answer):
    """Pages by title."""

    topics: list[TopicLineAnswer]
    total: int


class WikiSearchAnswer(_Answer):
    """Pages, best first. `degraded` says why meaning was not used; `reason` why there is nothing."""

    query: str
    results: list[TopicHitAnswer]
    degraded: str | None
    reason: str | None


class CitationAnswer(_Answer):
    """A leaf summary behind a sentence; `/api/memory/lineage/{leafId}` leads to its messages."""

    label: str
    leaf_id: UUID
    conversation_id: UUID
    session_key: str
    session_title: str | None
    agent: str
    at: datetime
    messages: int


class ReferenceAnswer(_Answer):
    """A sentence's citation: the whole id, for `/api/memory/lineage/{leafId}`, and the label that people read."""

    label: str
    leaf_id: UUID


class SentenceAnswer(_Answer):
    """One sentence, when it was said first and last, and its citations."""

    key: UUID
    text: str
    first_at: datetime
    as_of: datetime
    citations: list[ReferenceAnswer]


class SectionAnswer(_Answer):
    """A section of a page."""

    name: Section
    heading: str
    sentences: list[SentenceAnswer]


class FormerAnswer(_Answer):
    """A sentence that held once, and what took its place."""

    sentence: SentenceAnswer
    section: Section
    superseded_at: datetime
    superseded_by: str


class LinkAnswer(_Answer):
    """A page that is related; without a `slug` there is none yet."""

    title: str
    slug: str | None


class PageAnswer(_Answer):
    """A whole page."""

    slug: str
    title: str
    aliases: list[str]
    entities: list[str]
    sections: list[SectionAnswer]
    history: list[FormerAnswer]
    related: list[LinkAnswer]
    citations: list[CitationAnswer]
    archived: int = Field(description="Sentences that the page's caps left out; its revisions keep them.")
    open_patches: int
    revision: int
    first_at: datetime | None
    latest_at: datetime | None
    updated_at: datetime
    redirected_from: str | None
    markdown: str


class RevisionAnswer(_Answer):
    """One version of a page: what made it, and the sentences that came and went."""

    slug: str
    revision: int
    title: str
    cause: str
    patch_id: UUID | None
    created_at: datetime
    added: list[str]
    removed: list[str]


class RevisionsAnswer(_Answer):
    """Versions, the newest first."""

    revisions: list[RevisionAnswer]


class WantedAnswer(_Answer):
    """A name that leaf summaries speak of often and that has no page."""

    name: str
    leaves: int


class GapsAnswer(_Answer):
    """What the wiki lacks."""

    wanted: list[WantedAnswer]
    unmined: int = Field(description="Leaf summaries that were not mined as they are now.")
    failed: int = Field(description="Those of them that stand in the failure ledger.")
    older_version: int = Field(description="Leaf summaries that an older version has mined.")
    stalest: list[TopicLineAnswer]


class CountsAnswer(_Answer):
    """How much there is: patches by state, leaf summaries by what came of them."""

    pages: int
    sentences: int
    patches: dict[str, int]
    leaves: dict[str, int]


class PatchAnswer(_Answer):
    """One patch. `decision` and `reason` say how its page was found."""

    id: UUID
    kind: PatchKind
    status: PatchStatus = Field(serialization_alias="state")
    title: str
    slug: str | None
    page_title: str | None
    other_slug: str | None
    claims: list[tuple[str, str]] = Field(description="Section and sentence.")
    entities: list[str]
    decision: Decision
    reason: str
    leaf_id: UUID | None
    session_key: str | None
    session_title: str | None
    as_of: datetime
    model: str
    created_at: datetime
    decided_by: str | None
    decided_at: datetime | None


class PatchesAnswer(_Answer):
    """Patches, the newest first; `next` goes on as `before`."""

    patches: list[PatchAnswer]
    next: int | None


class OutcomeAnswer(_Answer):
    """What became of a decision on one patch; `problem` says why nothing did."""

    id: UUID
    status: PatchStatus | None = Field(serialization_alias="state")
    changed: bool
    problem: str | None


class DecidedAnswer(_Answer):
    """What became of a decision, patch by patch in the order of the ids."""

    decided: list[OutcomeAnswer]


def list_answer(topics: list[TopicLine], total: int) -> WikiListAnswer:
    """A list's answer."""
    return WikiListAnswer(topics=[_line(topic) for topic in topics], total=total)


def search_answer(query: str, found: WikiSearch) -> WikiSearchAnswer:
    """A search's answer."""
    return WikiSearchAnswer(
        query=query,
        results=[TopicHitAnswer.model_validate(hit) for hit in found.hits],
        degraded=found.degraded,
        reason=found.reason,
    )


def page_answer(page: TopicPage) -> PageAnswer:
    """A page's answer."""
    return PageAnswer(
        slug=page.slug,
        title=page.title,
        aliases=list(page.aliases),
        entities=list(page.entities),
        sections=[_section(section) for section in page.sections],
        history=[_former(entry) for entry in page.history],
        related=[_link(link) for link in page.related],
        citations=[_citation(citation) for citation in page.citations],
        archived=page.archived,
        open_patches=page.open_patches,
        revision=page.revision,
        first_at=page.first_at,
        latest_at=page.latest_at,
        updated_at=page.updated_at,
        redirected_from=page.redirected_from,
        markdown=page_markdown(page),
    )


def _line(topic: TopicLine) -> TopicLineAnswer:
    return TopicLineAnswer.model_validate(topic)


def _sentence(sentence: Sentence) -> SentenceAnswer:
    return SentenceAnswer(
        key=sentence.key,
        text=sentence.text,
        first_at=sentence.first_at,
        as_of=sentence.as_of,
        citations=[ReferenceAnswer.model_validate(citation) for citation in sentence.citations],
    )


def _section(section: PageSection) -> SectionAnswer:
    return SectionAnswer(name=section.name, heading=section.heading, sentences=list(map(_sentence, section.sentences)))


def _former(entry: HistoryEntry) -> FormerAnswer:
    return FormerAnswer(
        sentence=_sentence(entry.sentence),
        section=entry.section,
        superseded_at=entry.superseded_at,
        superseded_by=entry.superseded_by,
    )


def _link(link: Link) -> LinkAnswer:
    return LinkAnswer.model_validate(link)


def _citation(citation: Citation) -> CitationAnswer:
    return CitationAnswer.model_validate(citation)


def revisions_answer(revisions: list[Revision]) -> RevisionsAnswer:
    """The answer of a list of versions."""
    return RevisionsAnswer(revisions=[RevisionAnswer.model_validate(one) for one in revisions])


def gaps_answer(gaps: Gaps) -> GapsAnswer:
    """What the wiki lacks."""
    return GapsAnswer(
        wanted=[_wanted(one) for one in gaps.wanted],
        unmined=gaps.unmined,
        failed=gaps.failed,
        older_version=gaps.older_version,
        stalest=[_line(topic) for topic in gaps.stalest],
    )


def _wanted(wanted: WantedPage) -> WantedAnswer:
    return WantedAnswer.model_validate(wanted)


def counts_answer(counts: Counts) -> CountsAnswer:
    """How much there is."""
    return CountsAnswer.model_validate(counts)


def patches_answer(patches: list[PatchView], following: int | None) -> PatchesAnswer:
    """The answer of a list of patches."""
    return PatchesAnswer(patches=[PatchAnswer.model_validate(patch) for patch in patches], next=following)


def decided_answer(outcomes: list[Outcome]) -> DecidedAnswer:
    """What became of a decision."""
    return DecidedAnswer(decided=[OutcomeAnswer.model_validate(outcome) for outcome in outcomes])
