"""Finds the page that a proposal is about: by address, redirect, alias, shared names, or a search with a margin.

The first that answers decides, and its reason is kept with the patch. A name that many pages share identifies none of
them: pages that swallow every subject of a project come from nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.wiki.names import fold, keys_of, numbered_apart, slugify, title_terms
from rivet_pipeline.wiki.subjects import telling_terms
from rivet_pipeline.wiki.types import Decision, PatchDraft

#: A name on this many pages, or on this share of them, is common: it counts for little and never as one of two.
COMMON_PAGES, COMMON_SHARE = 4, 0.15

#: The share of the proposal's own weight that a page must hold to be its subject, by names and by a search.
LEAST_SHARED, LEAST_SEARCHED = 0.4, 0.6

#: How much better than the second page the first must be.
MARGIN = 1.25

#: Names alone can not tell pages apart before there are a few pages.
_FEWEST_PAGES = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """The page of a proposal, None for a new one, how that was found and why, in a sentence."""

    topic_id: UUID | None
    decision: Decision
    reason: str


@dataclass(frozen=True, slots=True)
class _Rival:
    """A page that shares something with the proposal. `score`: the shared part of the proposal's weight, 0 to 1."""

    topic_id: UUID
    title: str
    shared: tuple[str, ...]
    score: float
    enough: bool


def resolve(connection: Connection, draft: PatchDraft, ran_in: Collection[str] = ()) -> Identity:
    """The page that the draft changes. Runs in the caller's transaction, under the wiki's lock.

    Args:
        connection: The store.
        draft: The proposal.
        ran_in: Values of the automatic project tag: where the session ran, which only breaks a tie.
    """
    return (
        _by_slug(connection, slugify(draft.title))
        or _by_alias(connection, draft)
        or _by_names(connection, draft, ran_in)
        or _by_part(connection, draft, ran_in)
        or _by_search(connection, draft)
        or Identity(None, "new", f"no page is named {draft.title!r} or shares two names, or a rare one, with it")
    )


def _by_slug(connection: Connection, slug: str) -> Identity | None:
    row = connection.execute("SELECT id, title FROM ros_wiki_topics WHERE slug = %s AND status <> 'merged'", [slug])
    found = row.fetchone()
    if found is not None:
        return Identity(found["id"], "slug", f"the page {found['title']!r} has this address")
    row = connection.execute(
        """
        SELECT t.id, t.title FROM ros_wiki_redirects AS r JOIN ros_wiki_topics AS t ON t.id = r.topic_id
        WHERE r.from_slug = %s AND t.status <> 'merged'
        """,
        [slug],
    )
    found = row.fetchone()
    if found is not None:
        return Identity(found["id"], "redirect", f"{slug} leads to the page {found['title']!r}")
    return None


def _by_alias(connection: Connection, draft: PatchDraft) -> Identity | None:
    """A page that goes by the proposal's title, or whose title is one of the proposal's other names; only one such."""
    rows = connection.execute(
        """
        SELECT id, title, alias_keys FROM ros_wiki_topics
        WHERE status <> 'merged' AND (alias_keys @> ARRAY[%(title)s]::text[] OR alias_keys && %(aliases)s::text[])
        ORDER BY id LIMIT 20
        """,
        {"title": fold(draft.title), "aliases": [fold(alias) for alias in draft.aliases]},
    ).fetchall()
    own = [row for row in rows if fold(draft.title) in row["alias_keys"]]
    named = own or [row for row in rows if fold(row["title"]) in {fold(alias) for alias in draft.aliases}]
    if len(named) != 1:
        return None
    return Identity(named[0]["id"], "alias", f"the page {named[0]['title']!r} goes by this name")


# --- shared names ---------------------------------------------------------------------------------------------------


def _by_names(connection: Connection, draft: PatchDraft, ran_in: Collection[str]) -> Identity | None:
    home = {key for value in ran_in for key in (fold(value), *title_terms(value))}
    keys = [key for key in keys_of(draft.title, draft.entities) if key not in home]
    weights, common, pages = _weigh(connection, keys)
    if not keys or pages < _FEWEST_PAGES:
        return None
    own = set(title_terms(draft.title))
    rivals = [_rival(row, keys, weights, common, own) for row in _sharing(connection, keys, draft.title)]
    rivals = sorted((rival for rival in rivals if rival.enough), key=lambda one: (-one.score, str(one.topic_id)))
    if not rivals:
        return None
    best = rivals[0]
    if len(rivals) > 1 and best.score < MARGIN * rivals[1].score:
        near = [rival for rival in rivals if rival.score * MARGIN > best.score]
        tied = _break_tie(near, draft, ran_in)
        if tied is None:
            return None
        best = tied
    shown = ", ".join(best.shared[:6])
    return Identity(
        best.topic_id, "entities", f"the page {best.title!r} shares {shown} ({best.score:.0%} of its weight)"
    )


def _by_part(connection: Connection, draft: PatchDraft, ran_in: Collection[str]) -> Identity | None:
    """The one page whose title is a part of the proposal's, or the other way round, if both speak of one more thing."""
    home = {key for value in ran_in for key in (fold(value), *title_terms(value))}
    own = set(telling_terms(draft.title)) - home
    keys = sorted(own | {fold(name) for name in draft.entities} - home)
    if not own:
        return None
    parts = []
    for row in _sharing(connection, keys, draft.title):
        named = set(telling_terms(row["title"])) - home
        if named and (named <= own or own <= named):
            # A word of one title that the other page speaks of counts; what both titles name does not.
            parts.append((row, sorted(set(row["shared"]) - (own & named))))
    if len(parts) != 1 or not parts[0][1]:
        return None
    row, shared = parts[0]
    return Identity(
        row["id"],
        "entities",
        f"of all titles only that of {row['title']!r} names the same, and both speak of {shared[0]}",
    )


def _sharing(connection: Connection, keys: Sequence[str], title: str) -> list[dict[str, Any]]:
    """The pages that share one of the keys, but for those of another number: chapter 4 is not chapter 3."""
    rows = connection.execute(
        """
        SELECT id, title, alias_keys, ARRAY(SELECT unnest(keys) INTERSECT SELECT unnest(%(keys)s::text[])) AS shared
        FROM ros_wiki_topics WHERE status = 'live' AND keys && %(keys)s::text[]
        """,
        {"keys": list(keys)},
    ).fetchall()
    return [row for row in rows if not numbered_apart(title, row["title"])]


def _weigh(connection: Connection, keys: Sequence[str]) -> tuple[dict[str, float], set[str], int]:
    """How much each key tells (the rarer the more), the common ones, and how many pages there are."""
    rows = connection.execute(
        """
        SELECT k.key, count(t.id) AS pages, (SELECT count(*) FROM ros_wiki_topics WHERE status = 'live') AS total
        FROM unnest(%s::text[]) AS k (key)
        LEFT JOIN ros_wiki_topics AS t ON t.status = 'live' AND t.keys @> ARRAY[k.key]
        GROUP BY k.key
        """,
        [list(keys)],
    ).fetchall()
    total = int(rows[0]["total"]) if rows else 0
    weights = {row["key"]: math.log(1 + (total + 1) / (row["pages"] + 1)) for row in rows}
    limit = max(COMMON_PAGES, COMMON_SHARE * total)
    return weights, {row["key"] for row in rows if row["pages"] >= limit}, total


def _rival(
    row: dict[str, Any], keys: Sequence[str], weights: dict[str, float], common: set[str], own: set[str]
) -> _Rival:
    """A page beside the proposal. Something of what they share must be in the name of one of the two."""
    shared = sorted(row["shared"], key=lambda key: (-weights[key], key))
    telling = [key for key in shared if key not in common]
    score = sum(weights[key] for key in shared) / sum(weights[key] for key in keys)
    named = own.union(row["alias_keys"], *(alias.split() for alias in row["alias_keys"]))
    enough = (
        score >= LEAST_SHARED
        and (len(telling) >= 2 or any(_is_rare(key) for key in telling))
        and any(key in named for key in telling)
    )
    return _Rival(row["id"], row["title"], tuple(shared), score, enough)


def _is_rare(key: str) -> bool:
    """Whether a key names one thing: a file, a ticket, a version, a name of several words."""
    return " " in key or any(character.isdigit() for character in key)


def _break_tie(rivals: Sequence[_Rival], draft: PatchDraft, ran_in: Collection[str]) -> _Rival | None:
    """The one of several pages that the proposal's other words, or else its directory, speak of; None of several."""
    for words in (draft.hints, tuple(ran_in)):
        spoken = {term for word in words for term in title_terms(word)}
        found = Counter({rival: len(spoken & set(title_terms(rival.title))) for rival in rivals}).most_common(2)
        if found[0][1] > 0 and (len(found) == 1 or found[0][1] > found[1][1]):
            return found[0][0]
    return None


# --- search ---------------------------------------------------------------------------------------------------------


def _by_search(connection: Connection, draft: PatchDraft) -> Identity | None:
    """The page whose title says nearly the same in other forms of the words, if no other comes near it."""
    rows = connection.execute(
        """
        WITH asked AS (SELECT ros_query_terms(%s) AS terms),
        found AS (
            SELECT t.id, t.title,
                   (SELECT max(cardinality(ARRAY(SELECT unnest(a.terms) INTERSECT SELECT unnest(n.terms)))::float
                               / nullif(cardinality(ARRAY(SELECT unnest(a.terms) UNION SELECT unnest(n.terms))), 0))
                    FROM unnest(ARRAY[t.title] || t.aliases) AS name
                    CROSS JOIN LATERAL (SELECT ros_query_terms(name) AS terms) AS n) AS alike
            FROM ros_wiki_topics AS t CROSS JOIN asked AS a
            WHERE t.status = 'live' AND cardinality(a.terms) > 1
              AND t.content_tsv @@ (
                  SELECT string_agg('''' || replace(replace(term, '\\', '\\\\'), '''', '''''') || ''':A',
                                    ' | ')::tsquery
                  FROM unnest(a.terms) AS term)
        )
        SELECT id, title, alike FROM found ORDER BY alike DESC NULLS LAST, id LIMIT 10
        """,
        [draft.title],
    ).fetchall()
    rows = [row for row in rows if not numbered_apart(draft.title, row["title"])]
    if not rows or (rows[0]["alike"] or 0) < LEAST_SEARCHED:
        return None
    if len(rows) > 1 and rows[0]["alike"] < MARGIN * (rows[1]["alike"] or 0):
        return None
    return Identity(
        rows[0]["id"], "search", f"the page {rows[0]['title']!r} has nearly this title ({rows[0]['alike']:.0%})"
    )
