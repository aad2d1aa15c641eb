"""Which sentences of a page can not hold together, so that the newer one stands and the older becomes history. Pure.

Only what can be told from the words alone: the same sentence with another figure, a decision that is taken back by its
date or by its object, and what a patch itself says it replaces. Order does not matter: the result depends on the set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from uuid import UUID

from rivet_pipeline.wiki.types import Bullet, Section

#: The sections in which a decision can be taken back.
_DECIDED: frozenset[Section] = frozenset({"summary", "decisions"})

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar", "february februar", "march märz", "april", "may mai", "june juni", "july juli", "august",
            "september", "october oktober", "november", "december dezember",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_DAY = re.compile(rf"\b(\d{{1,2}})\.?(?:st|nd|rd|th)?\s+({'|'.join(_MONTHS)})\b", re.IGNORECASE)
_ISO_DAY = re.compile(r"\b\d{4}-(\d\d)-(\d\d)\b")

_TAKEN_BACK = re.compile(
    r"\b(?:reversed?|revoked?|withdrawn|overturned|no longer (?:holds|valid)|aufgehoben|zurückgenommen)\b",
    re.IGNORECASE,
)
#: A verb that ends the use of what follows it.
_ENDS = re.compile(
    r"\b(?:we|i|let's|then)?\s*(?:drop|dropped|dropping|remove|removed|abandon|abandoned|retire|retired|stop using"
    r"|stopped using|no longer use|get rid of|switch off|move away from|replace|replaced)\s+(?:the\s+)?"
    r"(?P<object>[A-Z][\w.+-]*(?:\s[A-Z][\w.+-]*)?|`[^`]+`)"
)
#: A word that takes a thing into use.
_BEGINS = re.compile(
    r"\b(?:put|use[sd]?|using|introduce|take|took|add|added|adopt|choose|chose|chosen|keep|kept|with|in favou?r of|go"
    r"|going|pick|picked|decided|deploy|install)\b",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"(?<![\w#])\d+(?:[.,:]\d+)*")
_DATES = re.compile(rf"{_ISO_DAY.pattern}(?:T[\d:]+Z?)?|{_DAY.pattern}(?:\s+\d{{4}})?", re.IGNORECASE)
_SPACE = re.compile(r"[^\w#]+", re.UNICODE)

#: A sentence of fewer words than this says too little beside its figures.
_LEAST_WORDS = 3


def superseded(
    claims: Mapping[UUID, tuple[Section, Bullet]], replaces: Iterable[tuple[UUID, UUID]]
) -> dict[UUID, UUID]:
    """The sentences that no longer hold, each with the one that took its place.

    Args:
        claims: The sentences by key, with their sections.
        replaces: Pairs (newer, older) that patches name; the one said last wins, whichever that is.
    """
    pairs = [pair for pair in replaces if pair[0] in claims and pair[1] in claims and pair[0] != pair[1]]
    pairs += _other_figures(claims)
    pairs += _taken_back(claims)
    gone: dict[UUID, UUID] = {}
    for first, second in sorted(set(pairs), key=lambda pair: (str(pair[0]), str(pair[1]))):
        older, newer = sorted((first, second), key=lambda key: (claims[key][1].as_of, str(key)))
        if claims[older][1].as_of == claims[newer][1].as_of:
            # Said at once: the patch that named the pair knows which is which.
            newer, older = first, second
        best = gone.get(older)
        if best is None or _rank(claims, newer) > _rank(claims, best):
            gone[older] = newer
    return _without_circles(gone, claims)


def _rank(claims: Mapping[UUID, tuple[Section, Bullet]], key: UUID) -> tuple[object, str]:
    return claims[key][1].as_of, str(key)


def _without_circles(gone: dict[UUID, UUID], claims: Mapping[UUID, tuple[Section, Bullet]]) -> dict[UUID, UUID]:
    """Two sentences of one moment that replace each other both hold."""
    return {
        older: newer
        for older, newer in gone.items()
        if not (gone.get(newer) == older and claims[older][1].as_of == claims[newer][1].as_of)
    }


def skeleton(text: str) -> str | None:
    """A sentence without its figures and dates; None when it has none or says too little without them."""
    undated = _DATES.sub(" ", text)
    if _FIGURE.search(undated) is None:
        return None
    words = _SPACE.sub(" ", _FIGURE.sub(" ", undated).casefold()).split()
    return " ".join(words) if len(words) >= _LEAST_WORDS else None


def _other_figures(claims: Mapping[UUID, tuple[Section, Bullet]]) -> list[tuple[UUID, UUID]]:
    """Pairs of sentences that differ in nothing but their figures."""
    groups: dict[tuple[Section, str], list[UUID]] = {}
    for key, (section, bullet) in claims.items():
        bare = skeleton(bullet.text)
        if bare is not None and section in {"summary", "facts", "decisions"}:
            groups.setdefault((section, bare), []).append(key)
    pairs = []
    for keys in groups.values():
        keys.sort(key=lambda key: _rank(claims, key))
        pairs += [(keys[-1], older) for older in keys[:-1]]
    return pairs


def _taken_back(claims: Mapping[UUID, tuple[Section, Bullet]]) -> list[tuple[UUID, UUID]]:
    """Pairs of a decision and the later one that takes it back."""
    decisions = [(key, bullet) for key, (section, bullet) in claims.items() if section in _DECIDED]
    pairs = []
    for newer, later in decisions:
        days = _days(later.text) if _TAKEN_BACK.search(later.text) else set()
        objects = [match["object"].strip("`") for match in _ENDS.finditer(later.text)]
        pairs += [
            (newer, older)
            for older, earlier in decisions
            if earlier.as_of < later.as_of
            and ((earlier.as_of.month, earlier.as_of.day) in days or _takes_in(earlier.text, objects))
        ]
    return pairs


def _days(text: str) -> set[tuple[int, int]]:
    """The days that a text names, as (month, day)."""
    named = {(_MONTHS[match[2].casefold()], int(match[1])) for match in _DAY.finditer(text)}
    return named | {(int(match[1]), int(match[2])) for match in _ISO_DAY.finditer(text)}


def _takes_in(text: str, objects: list[str]) -> bool:
    """Whether a sentence takes one of the things into use, and does not itself end its use."""
    return any(
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
        and _BEGINS.search(text) is not None
        and _ENDS.search(text) is None
        for name in objects
    )
