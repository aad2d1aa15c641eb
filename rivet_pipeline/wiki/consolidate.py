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
    """Proposes merges and splits of the pages as they are, in one transaction. Applies none."""
    with connection.transaction():
        lock_wiki(connection)
        _retire_outdated(connection)
        rows = connection.execute(
            "SELECT id, slug, title, aliases, alias_keys, entities, bullets, archived, latest_at, search_text "
            "FROM ros_wiki_topics "
            "WHERE status = 'live' ORDER BY slug"
        ).fetchall()
        merges = [
            (kept["title"], gone["title"])
            for kept, gone, reason in _likes(rows)
            if _propose(connection, "merge", kept, gone, reason, {}, title=kept["title"])
        ]
        splits = [
            pair for row in rows if row["archived"] >= SPLIT_FROM and (pair := _split(connection, row)) is not None
        ]
    return Proposals(merges, splits)


def _retire_outdated(connection: Connection) -> None:
    """Proposals about pages that are merged or empty by now are no longer asked about."""
    connection.execute(
        """
        UPDATE ros_wiki_patches AS p SET status = 'replaced' FROM ros_wiki_topics AS t
        WHERE p.kind <> 'edit' AND p.status = 'proposed' AND t.id IN (p.topic_id, p.other_id) AND t.status <> 'live'
        """
    )


# --- merges ---------------------------------------------------------------------------------------------------------


def _likes(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """Pairs of pages about one subject: the longer one, the other, and why."""
    names = [{fold(entity) for entity in row["entities"]} for row in rows]
    frequency = Counter(name for spoken in names for name in spoken)
    common = {name for name, pages in frequency.items() if pages > max(3, _COMMON * len(rows))}
    telling = [spoken - common for spoken in names]
    holders: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        for key in {*telling[place], *title_terms(row["title"]), *row["alias_keys"]}:
            holders[key].append(place)
    words = [telling_words(row["search_text"]) for row in rows]
    titled = Counter(term for row in rows for term in telling_terms(row["title"]))
    spoken = Counter(word for told in words for word in told)
    pairs = {(left, right) for places in holders.values() for left in places for right in places if left < right}
    found = []
    for left, right in sorted(pairs):
        if numbered_apart(rows[left]["title"], rows[right]["title"]):
            continue
        reason = (
            _likeness(rows[left], rows[right])
            or _shared_names(telling[left], telling[right], frequency)
            or _part_of(rows[left], rows[right], titled)
            or _shared_words(rows[left], rows[right], (words[left], words[right]), titled, spoken)
        )
        if reason is not None and PREFERENCES_TITLE not in (rows[left]["title"], rows[right]["title"]):
            kept, gone = sorted((rows[left], rows[right]), key=lambda row: (-row["bullets"], row["slug"]))
            found.append((kept, gone, reason))
    return found


def _likeness(left: dict[str, Any], right: dict[str, Any]) -> str | None:
    """Why two pages go by one name; None when they do not."""
    mine, yours = set(title_terms(left["title"])), set(title_terms(right["title"]))
    titles = len(mine & yours) / len(mine | yours) if mine | yours else 0.0
    if titles < _ALIKE_TITLES and not set(left["alias_keys"]) & set(right["alias_keys"]):
        return None
    return f"{left['title']!r} and {right['title']!r} go by nearly the same name"


def _shared_names(left: set[str], right: set[str], frequency: Counter[str]) -> str | None:
    """Why two pages speak of the same things; None when they do not."""
    shared = left & right
    weight = _weight(min((left, right), key=len), frequency)
    share = _weight(shared, frequency) / weight if weight else 0.0
    if len(shared) < _FEWEST_SHARED or share < _LEAST_SHARED:
        return None
    return f"they share {', '.join(sorted(shared)[:6])}: {share:.0%} of what the shorter one speaks of"


def _part_of(left: dict[str, Any], right: dict[str, Any], titled: Counter[str]) -> str | None:
    """Why one page's title is half of another's, where no third title has its words; None where it is not."""
    mine, yours = set(telling_terms(left["title"])), set(telling_terms(right["title"]))
    part = mine & yours
    whole = 2 * len(part) >= len(mine | yours)
    if not whole or part not in (mine, yours) or any(titled[term] > 2 for term in part):
        return None
    return f"of all titles only those of {left['title']!r} and {right['title']!r} name {', '.join(sorted(part))}"


def _shared_words(
    left: dict[str, Any],
    right: dict[str, Any],
    told: tuple[set[str], set[str]],
    titled: Counter[str],
    spoken: Counter[str],
) -> str | None:
    """Why two pages whose titles have a rare word in common say much the same; None when they do not."""
    named = set(telling_terms(left["title"])) & set(telling_terms(right["title"]))
    named = {term for term in named if titled[term] <= _MOST_TITLES}
    shared = told[0] & told[1] - named
    weight = _weight(min(told, key=len), spoken)
    share = _weight(shared, spoken) / weight if weight else 0.0
    if not named or len(shared) < _FEWEST_WORDS_SHARED or share < _LEAST_WORDS_SHARED:
        return None
    return f"both are named by {', '.join(sorted(named))} and speak of {', '.join(sorted(shared)[:6])} ({share:.0%})"


def _weight(names: Collection[str], frequency: Counter[str]) -> float:
    """The rarity of all the names, the same in whatever order a set gives them."""
    return math.fsum(_rarity(name, frequency) for name in names)


def _rarity(name: str, frequency: Counter[str]) -> float:
    return 1 / math.log(2 + frequency[name])


# --- splits ---------------------------------------------------------------------------------------------------------


def _split(connection: Connection, row: dict[str, Any]) -> tuple[str, str] | None:
    """Proposes that the clearest group of a page's sentences gets a page of its own; the titles of both."""
    patches = applied_patches(connection, row["id"])
    claims = list({claim.key: claim for patch in patches for claim in patch.claims}.values())
    group, title = _clearest_group(claims, set(title_terms(row["title"])))
    if title is None or slugify(title) == row["slug"]:
        return None
    taken = connection.execute(
        "SELECT 1 FROM ros_wiki_topics WHERE slug = %s AND status <> 'empty'", [slugify(title)]
    ).fetchone()
    if taken is not None:
        return None
    payload = {
        "keys": sorted(str(claim.key) for claim in group),
        "claims": [
            {"section": claim.section, "text": claim.text, "as_of": claim.as_of.isoformat(), "weight": claim.weight,
             "replaces": []}
            for claim in group
        ],
    }  # fmt: skip
    reason = f"{row['title']!r} has left out {row['archived']} sentences; {len(group)} of them all speak of {title}"
    if not _propose(connection, "split", row, None, reason, payload, title=title):
        return None
    return row["title"], title


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
