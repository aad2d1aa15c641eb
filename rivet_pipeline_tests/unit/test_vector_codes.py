"""Codes choose among the rows that are asked for, and what they choose is near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rivet_pipeline.retrieval.text_scoring import Numbers
from rivet_pipeline.retrieval.vector_codes import (
    LEAST_SQUARE,
    RANGE,
    THRESHOLD,
    Codes,
    _fewest,
    _packed,
    _weighed,
    unpack_piece,
)


def codes_of(owners: list[int], vectors: NDArray[np.float32]) -> Codes:
    """One piece for each range, packed as the store has them, around the mean of many vectors."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centre = units.mean(axis=0) if len(units) > 10 else np.zeros(vectors.shape[1], dtype=np.float32)
    numbers = np.array(owners)
    pieces, words = [], -(-vectors.shape[1] // 64)
    for number in np.unique(numbers // RANGE).tolist():
        at = np.flatnonzero(numbers // RANGE == number)
        offsets = (numbers[at] - number * RANGE).astype("<u2").tobytes()
        pieces.append(unpack_piece(number, offsets, coded(units[at], centre), words, centre))
    return Codes.join(tuple(map(str, range(len(pieces)))), pieces, words, centre)


def coded(units: NDArray[np.float32], centre: NDArray[np.float32]) -> bytes:
    """The codes as the store writes them: which components are above the centre, and which are far from it."""
    square = max(LEAST_SQUARE, 1 - float(centre @ centre)) / len(centre)
    bits = np.stack([units > centre, abs(units - centre) > THRESHOLD * np.sqrt(square)], axis=1)
    return np.packbits(bits, axis=2).tobytes()


def asked(*numbers: int, known: int | NDArray[np.bool_] = 50_001, live: Sequence[int] = ()) -> Numbers:
    """These numbers are asked for; up to `known` all are known, or those with a flag."""
    flags = np.ones(known, dtype=bool) if isinstance(known, int) else known
    index, wanted = np.flatnonzero(flags), np.array(numbers, dtype=np.int64)
    of_index = np.isin(wanted, index)
    places = np.searchsorted(index, wanted[of_index])
    return Numbers(places, index, flags, wanted[~of_index], np.array(live, dtype=np.int64))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("width", [8, 64, 100, 256])
@pytest.mark.parametrize("middle", [0.0, 1.0], ids=["around zero", "on one side"])
def test_the_nearest_rows_are_nearly_always_among_the_chosen(
    random: np.random.Generator, width: int, middle: float
) -> None:
    vectors = (middle + random.standard_normal((20_000, width))).astype(np.float32)
    query = vectors[1_234] + 0.3 * random.standard_normal(width).astype(np.float32)
    codes = codes_of(list(range(1, 20_001)), vectors)
    chosen, is_all = codes.choose(asked(*range(1, 20_001)), query / np.linalg.norm(query), 2_000)
    assert not is_all
    assert len(chosen) == 2_000
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    best = np.argsort(-cosines)[:10] + 1
    assert 1_235 in chosen
    assert len(np.intersect1d(chosen, best)) >= 8


@pytest.mark.parametrize("width", [7, 64, 100, 256])
def test_a_code_is_taken_for_one_of_four_values_a_dimension(random: np.random.Generator, width: int) -> None:
    vectors = (0.3 + random.standard_normal((300, width))).astype(np.float32)
    codes = codes_of(list(range(1, 301)), vectors)
    units, centre = vectors / np.linalg.norm(vectors, axis=1, keepdims=True), codes.centre
    deviation = np.sqrt((1 - centre @ centre) / width)
    apart = units - centre
    taken = centre + deviation * np.sign(apart) * np.where(abs(apart) > THRESHOLD * deviation, 1.5104, 0.4528)
    query = units[7]
    among = np.array([5, 299, 0, 7])
    expected = (taken @ query / np.linalg.norm(taken, axis=1))[among]
    # The query's components are told in few bits, which is far less of an error than the vectors' own four values.
    assert codes._similarities(among, query) == pytest.approx(expected, abs=0.03)
    assert codes.lengths == pytest.approx(np.linalg.norm(taken, axis=1), abs=1e-4)
    assert np.abs(expected - (units @ query)[among]).max() < 0.25


@pytest.mark.parametrize("width", [7, 64, 100, 256])
@pytest.mark.parametrize("bits", [5, 12])
def test_bits_that_are_counted_together_add_up_to_the_weighed_sum(
    random: np.random.Generator, width: int, bits: int
) -> None:
    first, second = (random.random((2, 50, width)) > 0.5).astype(np.uint8)
    weights = random.standard_normal(width).astype(np.float32)
    weights[0] = 0.0
    taken = np.where(first > 0, 1, -1) * np.where(second > 0, 1.5104, 0.4528)
    step = np.abs(weights).max() / (2**bits - 1)
    told = np.sign(weights) * np.rint(np.abs(weights) / step) * step
    lines = [list(np.stack([_packed(row) for row in rows], axis=1)) for rows in (first, second)]
    found = _weighed(lines[0], lines[1], weights, bits)
    assert found == pytest.approx(taken @ told, abs=1e-4)
    assert np.abs(weights - told).max() <= step / 2 + 1e-6


def test_only_rows_that_are_asked_for_are_chosen(random: np.random.Generator) -> None:
    vectors = random.standard_normal((5_000, 64)).astype(np.float32)
    owners = list(range(3, 3 + 5_000 * 7, 7))
    codes = codes_of(owners, vectors)
    chosen, _ = codes.choose(asked(*owners[::2], 1, 2), vectors[0], 100)
    assert len(chosen) == 100
    assert set(chosen.tolist()) <= set(owners[::2])


def test_few_rows_are_all_chosen_and_rows_without_a_vector_are_not(random: np.random.Generator) -> None:
    codes = codes_of([5, 5, 9, 40_000], random.standard_normal((4, 10)).astype(np.float32))
    chosen, is_all = codes.choose(asked(5, 6, 40_000), np.ones(10, dtype=np.float32), 50)
    assert (chosen.tolist(), is_all) == ([5, 40_000], True)


def test_a_row_of_several_chunks_is_chosen_once_by_its_best() -> None:
    vectors = np.array([[-1.0] * 8, [1.0] * 8, [1.0] * 7 + [-1.0], [-1.0] * 7 + [1.0]], dtype=np.float32)
    codes = codes_of([1, 1, 2, 3], vectors)
    chosen, is_all = codes.choose(asked(1, 2, 3), np.ones(8, dtype=np.float32), 2)
    assert (chosen.tolist(), is_all) == ([1, 2], False)


def test_rows_of_many_near_chunks_leave_room_for_others(random: np.random.Generator) -> None:
    query = random.standard_normal(64).astype(np.float32)
    near = query + 0.1 * random.standard_normal((400, 64)).astype(np.float32)
    others = random.standard_normal((2_000, 64)).astype(np.float32)
    codes = codes_of([1] * 200 + [2] * 200 + list(range(3, 2_003)), np.concatenate([near, others]))
    chosen, is_all = codes.choose(asked(*range(1, 2_003)), query / np.linalg.norm(query), 40)
    assert (len(chosen), is_all) == (40, False)
    assert {1, 2} < set(chosen.tolist())


def test_nothing_is_chosen_of_nothing() -> None:
    query = np.ones(64, dtype=np.float32)
    chosen, is_all = codes_of([], np.empty((0, 64), dtype=np.float32)).choose(asked(1, 2), query, 5)
    assert (chosen.tolist(), is_all) == ([], True)
    chosen, is_all = codes_of([4], query[None, :]).choose(asked(), query, 5)
    assert (chosen.tolist(), is_all) == ([], True)


def test_rows_of_which_nothing_is_known_are_asked_for(random: np.random.Generator) -> None:
    codes = codes_of([3, 4, 4, 7, 8, 60_000], random.standard_normal((6, 64)).astype(np.float32))
    known = np.ones(9, dtype=bool)
    known[[3, 7]] = False
    query = np.ones(64, dtype=np.float32)
    chosen, _ = codes.choose(asked(4, known=known), query, 9)
    assert chosen.tolist() == [3, 4, 7, 60_000]
    # Of a row that the index has not yet it is known all the same whether it is shown.
    chosen, _ = codes.choose(asked(4, 7, known=known, live=[3, 7]), query, 9)
    assert chosen.tolist() == [4, 7, 60_000]
    chosen, _ = codes.choose(asked(4, 9, 70_000, known=60_001), query, 9)
    assert chosen.tolist() == [4]


def test_a_first_look_at_some_bits_hardly_loses_the_nearest(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = random.standard_normal((20_000, 256)).astype(np.float32)
    codes = codes_of(list(range(1, 20_001)), vectors)
    looks: list[tuple[int, range]] = []
    add_apart = Codes._add_apart

    def counting(self: Codes, apart: Any, among: Any, wanted: Any, words: range) -> None:
        looks.append((len(among), words))
        add_apart(self, apart, among, wanted, words)

    monkeypatch.setattr(Codes, "_add_apart", counting)
    found = 0
    for number in range(20):
        query = vectors[number] + 0.8 * random.standard_normal(256).astype(np.float32)
        chosen, _ = codes.choose(asked(*range(1, 20_001)), query / np.linalg.norm(query), 10)
        found += number + 1 in chosen
    assert found >= 19
    assert looks[0] == (20_000, range(2))
    assert looks[1][0] < 10_000
    assert looks[1][1] == range(2, 4)


@pytest.mark.parametrize("count", [100, 5_000, 60_000])
def test_of_very_many_about_as_many_as_wanted_are_taken(random: np.random.Generator, count: int) -> None:
    apart = random.binomial(256, 0.5, 300_000).astype(np.int16)
    fewest = _fewest(apart, count)
    assert (np.diff(fewest) > 0).all()
    assert 0.9 * count <= len(fewest) <= 2 * count
    highest = apart[fewest].max()
    assert np.isin(np.flatnonzero(apart < highest), fewest).all()


@pytest.mark.parametrize("count", [100, 4_000])
def test_what_is_near_may_stand_in_step_with_what_is_looked_at(random: np.random.Generator, count: int) -> None:
    # Every fifteenth of 300,000 is looked at.
    for period, place in ((15, 0), (15, 7), (30, 0), (5, 0)):
        apart = random.binomial(256, 0.5, 300_000).astype(np.int16)
        apart[place::period] -= 30
        fewest = _fewest(apart, count)
        assert 0.9 * count <= len(fewest) <= 2 * count
        assert np.isin(np.flatnonzero(apart < apart[fewest].max()), fewest).all()


def test_numbers_beyond_the_flags_are_asked_for(random: np.random.Generator) -> None:
    codes = codes_of([3, 4, 7, 60_000], random.standard_normal((4, 64)).astype(np.float32))
    chosen, _ = codes.choose(asked(4, known=6), np.ones(64, dtype=np.float32), 5)
    assert chosen.tolist() == [4, 7, 60_000]


def test_very_many_equal_codes_are_not_all_compared(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []
    similarities = Codes._similarities

    def counting(self: Codes, among: NDArray[np.int64], query: NDArray[np.float32]) -> NDArray[np.float32]:
        judged.append(len(among))
        found: NDArray[np.float32] = similarities(self, among, query)
        return found

    monkeypatch.setattr(Codes, "_similarities", counting)
    codes = codes_of(list(range(1, 40_001)), np.tile(random.standard_normal(64).astype(np.float32), (40_000, 1)))
    chosen, _ = codes.choose(asked(*range(1, 40_001)), np.ones(64, dtype=np.float32), 100)
    assert len(chosen) == 100
    assert judged == [4_800]


def test_a_centre_that_is_one_of_the_vectors_still_tells_near_from_far(random: np.random.Generator) -> None:
    vectors = random.standard_normal((5_000, 64)).astype(np.float32)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centre = units[0] * np.float32(1.0001)
    words = unpack_piece(0, np.arange(5_000).astype("<u2").tobytes(), coded(units, centre), 1, centre)
    codes = Codes.join(("one",), [words], 1, centre)
    chosen, _ = codes.choose(asked(known=0), units[1_234], 500)
    best = np.argsort(-(units @ units[1_234]))[:10]
    assert len(np.intersect1d(chosen, best)) >= 8
