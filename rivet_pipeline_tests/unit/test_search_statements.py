"""Statements of every search are short enough to be kept parsed."""

from __future__ import annotations

from typing import cast

import pytest

from rivet_pipeline.retrieval import features, lexical, ranking, vector
from rivet_pipeline.retrieval.types import Source

#: What psycopg keeps (`psycopg._queries.MAX_CACHED_STATEMENT_LENGTH`).
_KEPT = 4096

_MODEL = vector.ServingModel(12_345, "some", 4_096)


def test_what_a_search_asks_for_each_time_is_parsed_once() -> None:
    assert len(features._features_statement(_MODEL)) <= _KEPT
    assert len(ranking._neighbours_statement()) <= _KEPT
    assert len(lexical._check_statement()) <= _KEPT


@pytest.mark.parametrize("source", ["message", "summary"])
@pytest.mark.parametrize("name", ["nearest_given", "nearest_walk", "nearest_exact"])
def test_and_so_is_what_is_nearest(name: str, source: str) -> None:
    chunks = 1_000_000 if name == "nearest_walk" else None
    for is_filtered in (True, False):
        text = vector._statement(name, cast(Source, source), _MODEL, chunks=chunks, is_filtered=is_filtered)
        assert len(text) <= _KEPT


def test_a_walk_has_no_text_without_the_number_of_its_chunks() -> None:
    with pytest.raises(KeyError, match="chunks"):
        vector._statement("nearest_walk", "message", _MODEL)
