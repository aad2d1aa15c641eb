"""What was thought, or added by a harness, is told apart from what was said, whatever a capture calls its kind."""

from __future__ import annotations

import pytest

from rivet_pipeline.retrieval.types import manner


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("thinking", " (thinking)"), ("notice", " (notice)"), ("speech", ""), (None, ""), (["thinking"], ""), ({}, "")],
)
def test_only_a_known_kind_is_shown(kind: object, shown: str) -> None:
    assert manner(kind) == shown
