"""When a batch is due, as pure arithmetic."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from rivet_pipeline.summaries.batches import BatchRules, leaf_size, parent_size

RULES = BatchRules(10, 5, timedelta(minutes=15), 2, timedelta(days=4), 8, 5, 5, 3)
ACTIVE, IDLE, STALE = timedelta(minutes=14), timedelta(minutes=15), timedelta(days=4)


@pytest.mark.parametrize(
    ("waiting", "rest", "size"),
    [
        (10, ACTIVE, 10),
        (27, ACTIVE, 10),
        (9, ACTIVE, 0),
        (9, IDLE, 9),
        (5, IDLE, 5),
        (4, IDLE, 0),
        (4, STALE, 4),
        (2, STALE, 2),
        (1, STALE, 0),
        (0, STALE, 0),
    ],
)
def test_leaves(waiting: int, rest: timedelta, size: int) -> None:
    assert leaf_size(waiting, rest, RULES) == size


@pytest.mark.parametrize(
    ("kind", "waiting", "rest", "size"),
    [
        ("branch", 8, ACTIVE, 8),
        ("branch", 7, ACTIVE, 0),
        ("branch", 5, IDLE, 5),
        ("branch", 4, STALE, 0),
        ("root", 5, ACTIVE, 5),
        ("root", 3, IDLE, 3),
        ("root", 4, ACTIVE, 0),
        ("root", 2, STALE, 0),
    ],
)
def test_parents(kind: Literal["branch", "root"], waiting: int, rest: timedelta, size: int) -> None:
    assert parent_size(kind, waiting, rest, RULES) == size
