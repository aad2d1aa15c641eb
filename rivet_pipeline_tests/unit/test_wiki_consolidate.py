"""How much the names of a page weigh."""

from __future__ import annotations

from collections import Counter

from rivet_pipeline.wiki.consolidate import _weight


def test_the_order_of_the_names_is_nothing() -> None:
    frequency = Counter({f"name {number}": number * number for number in range(300)})
    names = sorted(frequency)
    weights = {_weight(names[turn:] + names[:turn], frequency) for turn in range(len(names))}
    assert len(weights) == 1
