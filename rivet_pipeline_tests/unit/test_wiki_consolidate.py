"""How much the names of a page weigh, and that no pair of pages about one subject is passed over."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from rivet_pipeline.wiki.consolidate import _heaviest, _near_pairs, _reason, _told, _weight
from rivet_pipeline.wiki.names import fold


def test_the_order_of_the_names_is_nothing() -> None:
    frequency = Counter({f"name {number}": number * number for number in range(300)})
    names = sorted(frequency)
    weights = {_weight(names[turn:] + names[:turn], frequency) for turn in range(len(names))}
    assert len(weights) == 1


WORDS = "amber birch cedar delta ember flint grove heron iris jade kelp lotus maple north ocean pearl".split()  # noqa: SIM905


def page(chance: random.Random, place: int) -> dict[str, Any]:
    title = " ".join(chance.sample(WORDS, chance.randint(1, 5)))
    names = [f"{word}-{chance.randint(0, 9)}" for word in chance.sample(WORDS, chance.randint(0, 6))]
    return {
        "slug": f"page-{place:03}",
        "title": title,
        "alias_keys": [fold(title), *chance.sample(WORDS, 1)],
        "entities": names,
        "bullets": place,
        "search_text": " ".join([title, *names, *chance.sample(WORDS, 6)]),
    }


def test_the_pairs_that_are_looked_at_are_all_for_which_there_is_a_reason() -> None:
    for turn in range(10):
        chance = random.Random(turn)
        told, often = _told([page(chance, place) for place in range(60)])
        reasons = {
            (left, right): reason
            for left in range(60)
            for right in range(left + 1, 60)
            if (reason := _reason(told[left], told[right], often)) is not None
        }
        near = _near_pairs(told, often)
        assert reasons.keys() <= near
        assert len(near) < 60 * 59 / 2


def test_pages_of_a_few_common_words_are_not_all_compared_with_each_other() -> None:
    rows = [
        {
            "slug": f"page-{place:04}",
            "title": f"Backup of the {word} server {place}x{place * 7 % 1000}",
            "alias_keys": [f"page {place}"],
            "entities": ["Postgres", word],
            "bullets": 1,
            "search_text": f"Backup server {word}",
        }
        for place in range(1000)
        for word in [WORDS[place % len(WORDS)]]
    ]
    assert len(_near_pairs(*_told(rows))) < 1000 * len(WORDS) * 5


def test_pages_that_share_exactly_the_least_are_looked_at() -> None:
    for size in (5, 10, 15, 20):
        for frequency in range(2, 12):
            names = [f"name {number:02}" for number in range(size)]
            often = Counter(dict.fromkeys(names, frequency))
            shared = set(names[-(size * 6 // 10) :])
            assert shared & set(_heaviest(names, often)), (size, frequency)
