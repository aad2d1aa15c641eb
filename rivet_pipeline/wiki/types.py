"""What the wiki is made of: claims, patches, pages. Plain data and one protocol, no work.

Times are aware UTC. A claim is one sentence or bullet; its key is the same wherever and whenever the same is said.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

Section = Literal["summary", "decisions", "facts", "preferences", "open"]

#: The sections of a page in their order, and how each is headed.
SECTIONS: dict[Section, str] = {
    "summary": "Summary",
    "decisions": "Decisions",
    "facts": "Facts",
    "preferences": "Preferences",
    "open": "Open",
}

#: How a page was found for a patch.
Decision = Literal["slug", "redirect", "alias", "entities", "search", "new", "consolidation"]

PatchKind = Literal["edit", "merge", "split"]
PatchStatus = Literal["proposed", "applied", "rejected", "reverted", "replaced"]

#: Characters of a claim's text and of a title.
LONGEST_CLAIM = 400
LONGEST_TITLE = 80

_SIGNS = re.compile(r"[\W_]+", re.UNICODE)


def claim_key(text: str) -> UUID:
    """The identity of what a claim says: its words in lower case, signs and white space aside."""
    folded = _SIGNS.sub(" ", text.casefold()).strip() or text.strip()
    return UUID(hashlib.md5(folded.encode("utf-8", "replace"), usedforsecurity=False).hexdigest())


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence that a patch brings. `replaces`: keys of claims that it contradicts; `weight`: 0 to 1."""

    section: Section
    text: str
    as_of: datetime
    weight: float = 1.0
    replaces: tuple[UUID, ...] = ()

    @property
    def key(self) -> UUID:
        """The identity of what it says."""
        return claim_key(self.text)


@dataclass(frozen=True, slots=True)
class PatchDraft:
    """A change to one page, as a miner proposes it.

    `title` is the subject. `hints` are other words about it that only break a tie between pages.
    """

    title: str
    claims: tuple[Claim, ...]
    aliases: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """A patch that counts for a page. `drops`: keys of claims that another page has taken over."""

    leaf_id: UUID | None
    claims: tuple[Claim, ...] = ()
    aliases: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    drops: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Bullet:
    """One sentence of a page.

    `first_at` and `as_of`: when it was said first and last; `leaves`: the summaries that say it, the newest last.
    """

    key: UUID
    text: str
    first_at: datetime
    as_of: datetime
    leaves: tuple[UUID, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Former:
    """A sentence that held once: what superseded it, and when."""

    bullet: Bullet
    section: Section
    superseded_at: datetime
    superseded_by: UUID


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says. `archived` counts sentences that its caps left out; its patches and revisions keep them."""

    title: str
    aliases: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    sections: dict[Section, tuple[Bullet, ...]] = field(default_factory=dict)
    history: tuple[Former, ...] = ()
    archived: int = 0

    @property
    def bullets(self) -> list[Bullet]:
        """The sentences that hold, section by section."""
        return [bullet for name in SECTIONS for bullet in self.sections.get(name, ())]

    @property
    def all_bullets(self) -> list[Bullet]:
        """Those and the former ones."""
        return [*self.bullets, *(former.bullet for former in self.history)]

    def stood_at(self, when: datetime) -> bool:
        """Whether something of it had been said by then."""
        return any(bullet.first_at <= when for bullet in self.all_bullets)


#: How a candidate was found that an earlier leaf of the same session has brought.
SAME_SESSION = "the same session"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A page that a leaf may be about, as a miner is shown it. `why` says how it was found."""

    slug: str
    title: str
    aliases: tuple[str, ...]
    page: Page
    why: str


@dataclass(frozen=True, slots=True)
class Tag:
    """An accepted tag. `reviewed`: a person accepted or added it; else the rule wrote it from the working directory."""

    key: str
    value: str
    reviewed: bool


@dataclass(frozen=True, slots=True)
class MineRequest:
    """One leaf to be mined. `text` is the summary's; `title` and `agent` the conversation's."""

    leaf_id: UUID
    text: str
    earliest_at: datetime
    latest_at: datetime
    title: str | None
    agent: str
    tags: tuple[Tag, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    @property
    def reviewed(self) -> list[Tag]:
        """The tags that a person has looked at."""
        return [tag for tag in self.tags if tag.reviewed]

    @property
    def ran_in(self) -> list[str]:
        """The values of the rule's tags: where the session ran, and no more than that."""
        known = {(tag.key, tag.value) for tag in self.reviewed}
        return [tag.value for tag in self.tags if not tag.reviewed and (tag.key, tag.value) not in known]


@dataclass(frozen=True, slots=True)
class MineAnswer:
    """What a miner found in one leaf: up to three patches or none, and what of it names the leaf mentions."""

    drafts: tuple[PatchDraft, ...]
    mentions: tuple[str, ...] = ()
    tokens: int = 0
    calls: int = 0


class Miner(Protocol):
    """Finds in a leaf what is worth a page."""

    @property
    def model(self) -> str:
        """Its name, stored with each patch."""
        ...

    def mine(self, request: MineRequest) -> MineAnswer:
        """The patches. Raises `ModelError` when there is no usable answer: never an empty list instead."""
        ...


#: The most patches that one leaf may bring.
MOST_PATCHES = 3


def union(parts: Sequence[Sequence[str]], cap: int, fold: Sequence[str] | None = None) -> tuple[str, ...]:
    """The distinct strings of some lists in order, at most `cap`, compared without regard to case."""
    kept: dict[str, str] = {}
    known = {text.casefold() for text in fold or ()}
    for part in parts:
        for text in part:
            if text.casefold() not in known:
                kept.setdefault(text.casefold(), text)
    return tuple(list(kept.values())[:cap])
