"""Proposes which pages should be one and which should be two. Proposes only: a person accepts or rejects each.

What was rejected, or taken back, is not proposed again. Pages are alike when their names are, or when most of the rarer
names of the smaller one stand in the other; a page is too long when its caps have left out more than a few sentences.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.summaries.grounding import telling_words
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.miner import PREFERENCES_TITLE, names_in
from rivet_pipeline.wiki.names import fold, is_subject, numbered_apart, slugify, tidy_title, title_terms
from rivet_pipeline.wiki.store import applied_patches, content_hash, lock_wiki
from rivet_pipeline.wiki.subjects import telling_terms
from rivet_pipeline.wiki.types import Claim

MODEL = "consolidation-1"

#: The share of the smaller page's weight that the other must hold, and how alike titles must be to count alone.
_LEAST_SHARED, _ALIKE_TITLES = 0.6, 0.75
_FEWEST_SHARED = 3

#: The share of the shorter page's words, by rarity, that a page with a word of its title in common must hold, and how
#: many of them. A word of more titles than this is that of a whole field.
_LEAST_WORDS_SHARED, _FEWEST_WORDS_SHARED = 0.2, 4
_MOST_TITLES = 3

#: A page whose archive holds this many sentences is too long for its subject.
SPLIT_FROM = 12

#: A new page takes over at least this many sentences, and leaves at least as many.
_LEAST_PART = 6

#: Names on more pages than this share are no likeness.
_COMMON = 0.15


@dataclass(frozen=True, slots=True)
class Proposals:
    """What a consolidation proposed: (kept, gone) titles of merges, (page, new page) titles of splits."""

    merges: list[tuple[str, str]]
    splits: list[tuple[str, str]]


def consolidate(connection: Connection) -> Proposals:
    """Proposes merges and splits of the pages as they are. Applies none.

    The pages are compared before the wiki is locked: that takes seconds where there are thousands.
    """
    rows = connection.execute(
        "SELECT id, slug, title, aliases, alias_keys, entities, bullets, archived, latest_at, search_text "
        "FROM ros_wiki_topics WHERE status = 'live' ORDER BY slug"
    ).fetchall()
    alike = likes(rows)
    parts = [(row, part) for row in rows if row["archived"] >= SPLIT_FROM and (part := _part(connection, row))]
    with connection.transaction():
        lock_wiki(connection)
        _retire_outdated(connection)
        live = connection.execute("SELECT id FROM ros_wiki_topics WHERE status = 'live'").fetchall()
        standing = {row["id"] for row in live}
        merges = [
            (kept["title"], gone["title"])
            for kept, gone, reason in alike
            if {kept["id"], gone["id"]} <= standing
            and _propose(connection, "merge", kept, gone, reason, {}, title=kept["title"])
        ]
        splits = [
            (row["title"], part.title)
            for row, part in parts
            if row["id"] in standing and _propose_split(connection, row, part)
        ]
    return Proposals(merges, splits)


def _retire_outdated(connection: Connection) -> None:
    """Proposals about pages that are merged, empty or one by now are no longer asked about."""
    connection.execute(
        """
        UPDATE ros_wiki_patches AS p SET status = 'replaced' FROM ros_wiki_topics AS t
        WHERE p.kind <> 'edit' AND p.status = 'proposed' AND t.id IN (p.topic_id, p.other_id)
          AND (t.status <> 'live' OR p.topic_id = p.other_id)
        """
    )


# --- merges ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """What a page is compared by: the words of its title, those that tell it, its rarer names, the words it says."""

    row: dict[str, Any]
    title: frozenset[str]
    telling: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Frequencies:
    """On how many pages a name stands, in how many titles a telling word, in how many texts a word."""

    names: Counter[str]
    titled: Counter[str]
    spoken: Counter[str]


def likes(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """Pairs of pages about one subject: the longer one, the other, and why."""
    told, often = _told(rows)
    found = []
    for left, right in sorted(_near_pairs(told, often)):
        one, other = told[left], told[right]
        reason = _reason(one, other, often)
        if reason is None or numbered_apart(one.row["title"], other.row["title"]):
            continue
        if PREFERENCES_TITLE not in (one.row["title"], other.row["title"]):
            kept, gone = sorted((one.row, other.row), key=lambda row: (-row["bullets"], row["slug"]))
            found.append((kept, gone, reason))
    return found


def _told(rows: Sequence[dict[str, Any]]) -> tuple[list[_Told], _Frequencies]:
    names = [{fold(entity) for entity in row["entities"]} for row in rows]
    frequency = Counter(name for spoken in names for name in spoken)
    common = {name for name, pages in frequency.items() if pages > max(3, _COMMON * len(rows))}
    told = [
        _Told(
            row,
            frozenset(title_terms(row["title"])),
            frozenset(telling_terms(row["title"])),
            frozenset(spoken - common),
            frozenset(telling_words(row["search_text"])),
        )
        for row, spoken in zip(rows, names, strict=True)
    ]
    titled = Counter(term for one in told for term in one.telling)
    return told, _Frequencies(frequency, titled, Counter(word for one in told for word in one.words))


def _reason(one: _Told, other: _Told, often: _Frequencies) -> str | None:
    """Why two pages are about one subject; None when they are not."""
    return (
        _likeness(one, other)
        or _shared_names(one, other, often.names)
        or _part_of(one, other, often.titled)
        or _shared_words(one, other, often)
    )


def _near_pairs(told: Sequence[_Told], often: _Frequencies) -> set[tuple[int, int]]:
    """The pairs for which there can be a reason, found by what is rare in them: not all pairs of thousands of pages."""
    in_titles = Counter(term for one in told for term in one.title)
    holders: dict[tuple[str, str], list[int]] = defaultdict(list)
    named: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(told):
        # Of two titles that are so much alike, the rarest of this many words of each hold one of both.
        rarest = sorted(one.title, key=lambda term: (in_titles[term], term))
        fewest = len(rarest) - math.ceil(_ALIKE_TITLES * len(rarest)) + 1
        keys = [*(("title", term) for term in rarest[:fewest]), *(("alias", key) for key in one.row["alias_keys"])]
        keys += [("telling", term) for term in one.telling if often.titled[term] <= _MOST_TITLES]
        for key in keys:
            holders[key].append(place)
        for name in one.names:
            named[name].append(place)
    pairs = {(left, right) for places in holders.values() for left in places for right in places if left < right}
    for place, one in enumerate(told):
        for name in _heaviest(one.names, often.names) if len(one.names) >= _FEWEST_SHARED else ():
            pairs |= {(min(place, other), max(place, other)) for other in named[name] if other != place}
    return pairs


def _heaviest(names: Collection[str], frequency: Counter[str]) -> list[str]:
    """The rarest names, without all of which the rest weighs less than two pages about one subject must share."""
    ordered = sorted(names, key=lambda name: (frequency[name], name))
    # A rounding must not keep two pages apart that share exactly the least.
    spare = (1 - _LEAST_SHARED) * _weight(names, frequency) + 1e-9
    taken, place = 0.0, 0
    while place < len(ordered) and taken <= spare:
        taken += _rarity(ordered[place], frequency)
        place += 1
    return ordered[:place]


def _likeness(one: _Told, other: _Told) -> str | None:
    """Why two pages go by one name; None when they do not."""
    titles = len(one.title & other.title) / len(one.title | other.title) if one.title | other.title else 0.0
    if titles < _ALIKE_TITLES and not set(one.row["alias_keys"]) & set(other.row["alias_keys"]):
        return None
    return f"{one.row['title']!r} and {other.row['title']!r} go by nearly the same name"


def _shared_names(one: _Told, other: _Told, frequency: Counter[str]) -> str | None:
    """Why two pages speak of the same things; None when they do not."""
    shared = one.names & other.names
    if len(shared) < _FEWEST_SHARED:
        return None
    share = _weight(shared, frequency) / _weight(min((one.names, other.names), key=len), frequency)
    if share < _LEAST_SHARED:
        return None
    return f"they share {', '.join(sorted(shared)[:6])}: {share:.0%} of what the shorter one speaks of"


def _part_of(one: _Told, other: _Told, titled: Counter[str]) -> str | None:
    """Why one page's title is half of another's, where no third title has its words; None where it is not."""
    part = one.telling & other.telling
    whole = 2 * len(part) >= len(one.telling | other.telling)
    if not whole or part not in (one.telling, other.telling) or any(titled[term] > 2 for term in part):
        return None
    titles = f"{one.row['title']!r} and {other.row['title']!r}"
    return f"of all titles only those of {titles} name {', '.join(sorted(part))}"


def _shared_words(one: _Told, other: _Told, often: _Frequencies) -> str | None:
    """Why two pages whose titles have a rare word in common say much the same; None when they do not."""
    named = {term for term in one.telling & other.telling if often.titled[term] <= _MOST_TITLES}
    if not named:
        return None
    shared = (one.words & other.words) - named
    weight = _weight(min((one.words, other.words), key=len), often.spoken)
    share = _weight(shared, often.spoken) / weight if weight else 0.0
    if len(shared) < _FEWEST_WORDS_SHARED or share < _LEAST_WORDS_SHARED:
        return None
    return f"both are named by {', '.join(sorted(named))} and speak of {', '.join(sorted(shared)[:6])} ({share:.0%})"


def _weight(names: Collection[str], frequency: Counter[str]) -> float:
    """The rarity of all the names, the same in whatever order a set gives them."""
    return math.fsum(_rarity(name, frequency) for name in names)


def _rarity(name: str, frequency: Counter[str]) -> float:
    return 1 / math.log(2 + frequency[name])


# --- splits ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Sentences of a page that may have one of their own, of this title."""

    title: str
    claims: list[Claim]


def _part(connection: Connection, row: dict[str, Any]) -> _Part | None:
    """The clearest group of a page's sentences, but for those that another page has taken over."""
    patches = applied_patches(connection, row["id"])
    dropped = frozenset[UUID]().union(*(patch.drops for patch in patches))
    told = {claim.key: claim for patch in patches for claim in patch.claims if claim.key not in dropped}
    claims = list(told.values())
    group, title = _clearest_group(claims, set(title_terms(row["title"])))
    return None if title is None or slugify(title) == row["slug"] else _Part(title, group)


def _propose_split(connection: Connection, row: dict[str, Any], part: _Part) -> bool:
    """Proposes that these sentences get a page of their own. Says whether that is new."""
    taken = connection.execute(
        "SELECT 1 FROM ros_wiki_topics WHERE slug = %s AND status <> 'empty'", [slugify(part.title)]
    ).fetchone()
    if taken is not None:
        return False
    payload = {
        "keys": sorted(str(claim.key) for claim in part.claims),
        "claims": [
            {"section": claim.section, "text": claim.text, "as_of": claim.as_of.isoformat(), "weight": claim.weight,
             "replaces": []}
            for claim in part.claims
        ],
    }  # fmt: skip
    reason = (
        f"{row['title']!r} has left out {row['archived']} sentences; "
        f"{len(part.claims)} of them all speak of {part.title}"
    )
    return _propose(connection, "split", row, None, reason, payload, title=part.title)


def _clearest_group(claims: Sequence[Claim], own: set[str]) -> tuple[list[Claim], str | None]:
    """The sentences that speak of the name that most of them share, and the name as a title."""
    spoken: dict[str, list[Claim]] = defaultdict(list)
    spelt: dict[str, str] = {}
    for claim in claims:
        for name in dict.fromkeys(names_in([claim.text])):
            spoken[fold(name)].append(claim)
            spelt.setdefault(fold(name), name)
    best = max(
        (
            key
            for key, group in spoken.items()
            if not own & set(title_terms(key))
            and is_subject(tidy_title(spelt[key]))
            and _LEAST_PART <= len(group) <= len(claims) - _LEAST_PART
        ),
        key=lambda key: (len(spoken[key]), _closeness(spoken[key]), key),
        default=None,
    )
    return ([], None) if best is None else (spoken[best], tidy_title(spelt[best]))


def _closeness(claims: Sequence[Claim]) -> float:
    """How many words two of the sentences share on average."""
    words = [telling_words(claim.text) for claim in claims]
    shared = [len(left & right) for place, left in enumerate(words) for right in words[place + 1 :]]
    return float(np.mean(shared)) if shared else 0.0


# --- what is stored -------------------------------------------------------------------------------------------------


def _propose(
    connection: Connection,
    kind: str,
    page: dict[str, Any],
    other: dict[str, Any] | None,
    reason: str,
    payload: dict[str, Any],
    *,
    title: str,
) -> bool:
    """Stores a proposal, unless it stands there already or was refused. Says whether it is new."""
    names = sorted([page["slug"], other["slug"] if other is not None else slugify(title)])
    digest = content_hash(f"{kind} {' '.join(names)}", ())
    known = connection.execute(
        "SELECT 1 FROM ros_wiki_patches WHERE kind = %s AND content_hash = %s AND status <> 'replaced' LIMIT 1",
        [kind, digest],
    ).fetchone()
    if known is not None:
        return False
    connection.execute(
        """
        INSERT INTO ros_wiki_patches (kind, status, topic_id, other_id, title, payload, content_hash, decision, reason,
                                      as_of, model, pipeline_version)
        VALUES (%s, 'proposed', %s, %s, %s, %s, %s, 'consolidation', %s, %s, %s, %s)
        """,
        [
            kind,
            page["id"],
            None if other is None else other["id"],
            title,
            Jsonb(payload),
            digest,
            reason,
            page["latest_at"] or datetime.now(UTC),
            MODEL,
            WIKI_PIPELINE_VERSION,
        ],
    )
    return True
