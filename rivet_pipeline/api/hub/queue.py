"""The review queue as one list: tags and patches by session, the mark that names each in a form, the way back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.snippets import shorten
from rivet_pipeline.tags.review import Item
from rivet_pipeline.tags.types import PendingSession, PendingTag
from rivet_pipeline.wiki.read import TopicPage
from rivet_pipeline.wiki.review import PatchView
from rivet_pipeline.wiki.types import SECTIONS, Section, claim_key

Verdict = Literal["accept", "reject"]

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TAG_MARK = re.compile(rf"(?P<kind>tag|removal)(?P<rows>(?: {_UUID}\.-?\d{{1,18}})+)")
_PATCH_MARK = re.compile(rf"patch (?P<id>{_UUID})")
_UNDO_TAGS = re.compile(rf"tags (?P<id>{_UUID})")
_UNDO_PATCHES = re.compile(rf"(?P<verdict>accept|reject)(?P<ids>(?: {_UUID})+)")

#: Sentences of a page that stand around what a patch adds to a section.
_CONTEXT = 2


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a patch: `same` for what the page says, `added`, `removed`, or `again` for what it says already."""

    change: Literal["same", "added", "removed", "again"]
    text: str


@dataclass(frozen=True, slots=True)
class DiffSection:
    """What a patch does to a section of its page."""

    heading: str
    lines: list[DiffLine]


@dataclass(frozen=True, slots=True)
class PatchItem:
    """A patch in the queue. `page` is what it would change, as it is now; None while there is none."""

    mark: str
    patch: PatchView
    page: TopicPage | None
    diff: list[DiffSection]


@dataclass(frozen=True, slots=True)
class TagItem:
    """A tag in the queue."""

    mark: str
    tag: PendingTag
    reason: str
    proposed_by: str
    confidence: float | None


@dataclass(slots=True)
class SessionGroup:
    """A session with all that waits. `session` is None where no tag waits, and for what the wiki itself proposes."""

    title: str
    session: PendingSession | None = None
    tags: list[TagItem] = field(default_factory=list)
    patches: list[PatchItem] = field(default_factory=list)


def group(
    sessions: Sequence[PendingSession], patches: Sequence[PatchView], pages: Mapping[UUID, TopicPage]
) -> list[SessionGroup]:
    """The queue by session, sessions with tags first, then those with patches alone, then the wiki's own proposals.

    `pages`: by patch the page that it would change.
    """
    groups: dict[str | None, SessionGroup] = {}
    for session in sessions:
        groups[session.session_key] = SessionGroup(
            session.title or session.session_key, session, [tag_item(tag) for tag in session.tags]
        )
    for patch in sorted(patches, key=lambda patch: patch.session_key is None):
        title = patch.session_title or patch.session_key or "The wiki's own proposals"
        found = groups.setdefault(patch.session_key, SessionGroup(title))
        page = pages.get(patch.id)
        found.patches.append(PatchItem(f"patch {patch.id}", patch, page, patch_diff(patch, page)))
    return list(groups.values())


def tag_item(tag: PendingTag) -> TagItem:
    """A waiting tag with the mark that names its rows, as they were seen."""
    kind = "removal" if tag.removal else "tag"
    first = tag.rows[0]
    return TagItem(
        mark=" ".join([kind, *(f"{row.id}.{row.revision}" for row in tag.rows)]),
        tag=tag,
        reason=first.removal_reason if tag.removal else first.reason,
        proposed_by=first.proposed_by,
        confidence=None if tag.removal else first.confidence,
    )


def patch_diff(patch: PatchView, page: TopicPage | None) -> list[DiffSection]:
    """What a patch adds and takes away, section by section, each with a little of what the page says there now."""
    claims: dict[Section, list[str]] = {name: [] for name in SECTIONS}
    for section, text in patch.claims:
        if section in claims:
            claims[section].append(text)
    replaced = set(patch.replaces)
    sections = {} if page is None else {part.name: part.sentences for part in page.sections}
    diff = []
    for name, heading in SECTIONS.items():
        present = sections.get(name, ())
        known = {sentence.key for sentence in present}
        added = [DiffLine("again" if claim_key(text) in known else "added", text) for text in claims[name]]
        removed = [DiffLine("removed", sentence.text) for sentence in present if sentence.key in replaced]
        if added or removed:
            around = [sentence for sentence in present if sentence.key not in replaced][-_CONTEXT:]
            said = {line.text for line in added}
            context = [DiffLine("same", sentence.text) for sentence in around if sentence.text not in said]
            diff.append(DiffSection(heading, [*context, *removed, *added]))
    return diff


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a form decides about."""

    tags: list[Item]
    patches: list[UUID]


def read_marks(marks: Iterable[str], verdict: Verdict) -> Chosen:
    """The tags and patches that a form names. Raises `InvalidInputError` for a mark that is none of ours."""
    chosen = Chosen([], [])
    for mark in dict.fromkeys(marks):
        if (found := _TAG_MARK.fullmatch(mark)) is not None:
            decision = _TAG_DECISIONS[found["kind"], verdict]
            for row in found["rows"].split():
                identity, _, revision = row.partition(".")
                chosen.tags.append(Item(UUID(identity), decision, int(revision)))
        elif (found := _PATCH_MARK.fullmatch(mark)) is not None:
            chosen.patches.append(UUID(found["id"]))
        else:
            raise InvalidInputError("item", f"{mark[:60]!r} names nothing of this queue; load the page again")
    return chosen


def count_settled(marks: Iterable[str], failed: Iterable[UUID | None]) -> int:
    """How many of the things that a form names were decided in every row."""
    names = {str(one) for one in failed}
    return sum(not any(name in mark for name in names) for mark in set(marks))


_TAG_DECISIONS: dict[tuple[str, Verdict], Literal["accepted", "rejected", "removed", "kept"]] = {
    ("tag", "accept"): "accepted",
    ("tag", "reject"): "rejected",
    ("removal", "accept"): "removed",
    ("removal", "reject"): "kept",
}


@dataclass(frozen=True, slots=True)
class Undo:
    """How a decision is taken back: the tags' by its id in their log, the patches' one by one."""

    tags: UUID | None = None
    patches: tuple[UUID, ...] = ()
    verdict: Verdict = "accept"

    def marks(self) -> list[str]:
        """As a form carries it."""
        found = [] if self.tags is None else [f"tags {self.tags}"]
        return found + ([" ".join([self.verdict, *map(str, self.patches)])] if self.patches else [])


def read_undo(marks: Iterable[str]) -> Undo | None:
    """What a form wants taken back, None when it names nothing. Raises `InvalidInputError`."""
    tags: UUID | None = None
    patches: tuple[UUID, ...] = ()
    verdict: Verdict = "accept"
    for mark in marks:
        if (found := _UNDO_TAGS.fullmatch(mark)) is not None:
            tags = UUID(found["id"])
        elif (found := _UNDO_PATCHES.fullmatch(mark)) is not None:
            verdict = "accept" if found["verdict"] == "accept" else "reject"
            patches = tuple(UUID(identity) for identity in found["ids"].split())
        else:
            raise InvalidInputError("undo", f"{mark[:60]!r} names no decision; load the page again")
    return Undo(tags, patches, verdict) if tags is not None or patches else None


#: So many decisions can be taken back one by one, and so long are the words for each, in characters.
_MOST_DONE, _LONGEST_WORDS = 50, 60


@dataclass(frozen=True, slots=True)
class Done:
    """A decision that can be taken back, with the words for it."""

    words: str
    undo: Undo


def trail_after(trail: Sequence[Done], done: Done) -> list[Done]:
    """The decisions of a page, oldest first, and one more; the oldest are forgotten when there are too many."""
    return [*trail, done][-_MOST_DONE:]


def write_trail(trail: Sequence[Done], longest: int | None = None) -> str:
    """The decisions as a form or, in at most `longest` bytes for the latest ones, as an address carries them."""
    lines = ["\t".join([shorten(" ".join(done.words.split()), _LONGEST_WORDS), *done.undo.marks()]) for done in trail]
    while lines and longest is not None and len("\n".join(lines).encode()) > longest:
        del lines[0]
    return "\n".join(lines)


def read_trail(text: str) -> list[Done]:
    """What `write_trail` wrote. Raises `InvalidInputError`."""
    trail = []
    for line in text.split("\n") if text else []:
        words, *marks = line.split("\t")
        undo = read_undo(marks)
        if undo is not None:
            trail.append(Done(words, undo))
    return trail
