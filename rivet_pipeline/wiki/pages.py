"""Makes a page of the patches that count for it. Pure functions of the set: the order in which they came is nothing.

So a patch can be taken back without touching what came after it, two workers can not disagree, and an older leaf that
is mined late changes history and not the present. Nothing grows without bound here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from rivet_pipeline.wiki.contradictions import superseded
from rivet_pipeline.wiki.names import fold, keys_of
from rivet_pipeline.wiki.types import SECTIONS, AppliedPatch, Bullet, Former, Page, Section, union

#: How many sentences a section holds. What is too much goes to the archive: the patches and the revisions keep it.
SECTION_CAPS: dict[Section, int] = {"summary": 5, "decisions": 12, "facts": 12, "preferences": 12, "open": 8}

#: How many former sentences, leaves behind one sentence and names a page holds.
HISTORY_CAP, CITATION_CAP = 40, 12
ALIAS_CAP, ENTITY_CAP, RELATED_CAP = 32, 32, 48

#: Characters of a page's text that are searched and embedded.
SEARCH_CAP = 8_000


def build_page(title: str, patches: Sequence[AppliedPatch]) -> Page:
    """The page that these patches make together."""
    ordered = sorted(patches, key=_order)
    dropped = frozenset().union(*(patch.drops for patch in ordered)) if ordered else frozenset()
    claims = _claims(ordered, dropped)
    pairs = [(claim.key, older) for patch in ordered for claim in patch.claims for older in claim.replaces]
    gone = superseded(claims, pairs)
    sections, archived = _capped({key: found for key, found in claims.items() if key not in gone})
    former = sorted(
        (Former(claims[key][1], claims[key][0], claims[newer][1].as_of, newer) for key, newer in gone.items()),
        key=lambda one: (one.superseded_at, one.bullet.as_of, str(one.bullet.key)),
        reverse=True,
    )
    newest_first = ordered[::-1]
    return Page(
        title=title,
        aliases=_names([patch.aliases for patch in newest_first], ALIAS_CAP, besides=title),
        entities=_names([patch.entities for patch in newest_first], ENTITY_CAP),
        related=_names([patch.related for patch in newest_first], RELATED_CAP, besides=title),
        sections=sections,
        history=tuple(former[:HISTORY_CAP]),
        archived=archived + max(0, len(former) - HISTORY_CAP),
    )


def _order(patch: AppliedPatch) -> tuple[object, ...]:
    """By moment and leaf, then by all that it says, so that a page depends on the set of its patches alone."""
    said = [(one.as_of, one.section, one.text, one.weight, [str(key) for key in one.replaces]) for one in patch.claims]
    drops = sorted(map(str, patch.drops))
    return _moment(patch), str(patch.leaf_id), said, patch.aliases, patch.entities, patch.related, drops


def _moment(patch: AppliedPatch) -> datetime:
    return max((claim.as_of for claim in patch.claims), default=datetime.min.replace(tzinfo=UTC))


def _names(parts: Sequence[Sequence[str]], cap: int, besides: str | None = None) -> tuple[str, ...]:
    """The newest names within the cap, in the order of the alphabet, so that a page changes only where it does."""
    kept = union(parts, cap, fold=[besides] if besides else None)
    return tuple(sorted(kept, key=lambda name: (name.casefold(), name)))


def _claims(patches: Sequence[AppliedPatch], dropped: frozenset[UUID]) -> dict[UUID, tuple[Section, Bullet]]:
    """Every sentence once, in the section and wording in which it was said last, with all leaves that say it."""
    found: dict[UUID, tuple[Section, Bullet]] = {}
    for patch in patches:
        for claim in patch.claims:
            if claim.key in dropped:
                continue
            leaves = (patch.leaf_id,) if patch.leaf_id is not None else ()
            bullet = Bullet(claim.key, claim.text, claim.as_of, claim.as_of, leaves, claim.weight)
            known = found.get(claim.key)
            if known is not None:
                bullet = _joined(known[1], bullet)
            found[claim.key] = (claim.section, bullet)
    return found


def _joined(known: Bullet, again: Bullet) -> Bullet:
    leaves = tuple(dict.fromkeys((*(leaf for leaf in known.leaves if leaf not in again.leaves), *again.leaves)))
    return replace(
        again if again.as_of >= known.as_of else known,
        first_at=min(known.first_at, again.first_at),
        as_of=max(known.as_of, again.as_of),
        leaves=leaves[-CITATION_CAP:],
        weight=max(known.weight, again.weight),
    )


def _capped(claims: dict[UUID, tuple[Section, Bullet]]) -> tuple[dict[Section, tuple[Bullet, ...]], int]:
    """The sections within their caps, each oldest first, and how many sentences that left out.

    The weightiest stay, of equals the newest. What is too much for the summary is a fact like others.
    """
    sections: dict[Section, list[Bullet]] = {name: [] for name in SECTIONS}
    for section, bullet in claims.values():
        sections[section].append(bullet)
    kept: dict[Section, tuple[Bullet, ...]] = {}
    archived = 0
    for name, bullets in sections.items():
        best = sorted(bullets, key=lambda bullet: (bullet.weight, bullet.as_of, str(bullet.key)), reverse=True)
        cap = SECTION_CAPS[name]
        if name == "summary":
            sections["facts"] += best[cap:]
        else:
            archived += max(0, len(best) - cap)
        if best:
            kept[name] = tuple(sorted(best[:cap], key=lambda bullet: (bullet.first_at, str(bullet.key))))
    return kept, archived


# --- what is derived of a page -------------------------------------------------------------------------------------


def search_text(page: Page) -> str:
    """What is searched and embedded of a page: its names first, then its sentences."""
    names = [page.title, *page.aliases, *page.entities]
    text = "\n".join([" · ".join(names), *(bullet.text for bullet in page.bullets)])
    return text[:SEARCH_CAP]


def alias_keys(page: Page) -> list[str]:
    """The names under which a proposal is this page, folded."""
    return sorted({key for key in map(fold, (page.title, *page.aliases)) if key})


def identity_keys(page: Page) -> list[str]:
    """What a page shares with a proposal about the same subject, folded."""
    named = {key for name in (page.title, *page.aliases) for key in keys_of(name, ())}
    return sorted({*named, *alias_keys(page), *keys_of(page.title, page.entities)})


def page_to_json(page: Page) -> dict[str, Any]:
    """A page as it is stored: times as ISO 8601 in UTC, ids as text."""
    return {
        "title": page.title,
        "aliases": list(page.aliases),
        "entities": list(page.entities),
        "related": list(page.related),
        "sections": {name: [_bullet_to_json(bullet) for bullet in page.sections[name]] for name in page.sections},
        "history": [
            {
                **_bullet_to_json(former.bullet),
                "section": former.section,
                "superseded_at": former.superseded_at.isoformat(),
                "superseded_by": str(former.superseded_by),
            }
            for former in page.history
        ],
        "archived": page.archived,
    }


def page_from_json(value: dict[str, Any]) -> Page:
    """The page of a stored value; an empty value is an empty page."""
    return Page(
        title=value.get("title", ""),
        aliases=tuple(value.get("aliases", ())),
        entities=tuple(value.get("entities", ())),
        related=tuple(value.get("related", ())),
        sections={
            cast(Section, name): tuple(map(_bullet_from_json, bullets))
            for name, bullets in value.get("sections", {}).items()
        },
        history=tuple(
            Former(
                _bullet_from_json(entry),
                cast(Section, entry["section"]),
                datetime.fromisoformat(entry["superseded_at"]),
                UUID(entry["superseded_by"]),
            )
            for entry in value.get("history", ())
        ),
        archived=value.get("archived", 0),
    )


def _bullet_to_json(bullet: Bullet) -> dict[str, Any]:
    return {
        "key": str(bullet.key),
        "text": bullet.text,
        "first_at": bullet.first_at.isoformat(),
        "as_of": bullet.as_of.isoformat(),
        "leaves": [str(leaf) for leaf in bullet.leaves],
        "weight": bullet.weight,
    }


def _bullet_from_json(value: dict[str, Any]) -> Bullet:
    return Bullet(
        UUID(value["key"]),
        value["text"],
        datetime.fromisoformat(value["first_at"]),
        datetime.fromisoformat(value["as_of"]),
        tuple(map(UUID, value["leaves"])),
        value["weight"],
    )
