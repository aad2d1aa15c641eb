"""The hits of a term: joined from pieces, looked up by position, kept within bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.retrieval.postings import Postings
from rivet_pipeline.retrieval.term_hits import Hits, KeptHits, Norms


def sparse(**frequencies: int) -> Postings:
    """Postings by ordinal, `d3=2`: the document 3 holds the term twice."""
    ordinals = np.array([int(name[1:]) for name in frequencies], dtype="<u2")
    return Postings(ordinals, np.array(list(frequencies.values()), dtype="u1"), len(ordinals))


def dense(*frequencies: int) -> Postings:
    """Postings with an entry for each document."""
    times = np.array(frequencies, dtype="u1")
    return Postings(None, times, int(np.count_nonzero(times)))


NORMS = Norms(np.arange(1, 12, dtype=np.float32), (1.2, 0.75, 5.0))


def test_pieces_are_joined_by_position_whatever_their_form() -> None:
    hits = Hits.join([sparse(d1=2, d3=1), None, dense(0, 5, 0, 1)], (0, 4, 7, 11), NORMS)
    assert hits.positions.tolist() == [1, 3, 8, 10]
    assert hits.frequencies.tolist() == [2, 1, 5, 1]
    assert hits.saturated == pytest.approx([2 / 4, 1 / 5, 5 / 14, 1 / 12])
    assert hits.times_at(np.arange(11)).tolist() == [0, 2, 0, 1, 0, 0, 0, 0, 5, 0, 1]
    other = hits.with_norms(Norms(NORMS.of_documents * 2, (1.2, 0.75, 10.0)))
    assert other.saturated == pytest.approx([2 / 6, 1 / 9, 5 / 23, 1 / 23])
    assert hits.with_norms(NORMS) is hits


def test_a_term_that_stands_nowhere_has_no_hits() -> None:
    hits = Hits.join([None, None], (0, 4, 7), NORMS)
    assert len(hits) == 0
    assert hits.times_at(np.array([0, 5])).tolist() == [0, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=80), st.integers(300, 3_000))
def test_what_is_kept_stays_within_its_bound(keys: list[int], most: int) -> None:
    kept = KeptHits(most)
    for key in keys:
        count = 1 + key
        hits = Hits(np.arange(count, dtype=np.int32), np.ones(count, "u1"), np.ones(count, np.float32), NORMS.made_with)
        kept.keep(key, hits)
        assert kept.find(key) in (hits, None)
        found = [one for one in map(kept.find, range(31)) if one is not None]
        assert sum(one.size for one in found) == kept.bytes_kept <= most


def test_the_hits_that_were_not_asked_for_go_first() -> None:
    hits = Hits(np.arange(9, dtype=np.int32), np.ones(9, "u1"), np.ones(9, np.float32), NORMS.made_with)
    kept = KeptHits(2 * hits.size)
    kept.keep(1, hits)
    kept.keep(2, hits)
    assert kept.find(1) is hits
    kept.keep(3, hits)
    assert (kept.find(1), kept.find(2), kept.find(3)) == (hits, None, hits)
