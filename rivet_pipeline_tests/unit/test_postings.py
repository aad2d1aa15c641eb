"""The packed formats of the text index, and what is chosen from its scores."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.retrieval.index_pieces import newest
from rivet_pipeline.retrieval.postings import (
    Documents,
    bare_words,
    cjk_pairs,
    decode_row,
    encode_postings,
    find_postings,
    term_key,
)
from rivet_pipeline.retrieval.text_scoring import top

DOCUMENTS = 700


@st.composite
def terms(draw: st.DrawFn) -> dict[int, dict[int, int]]:
    """By key the documents with frequencies: rare ones, some with rows of their own, some in most documents."""
    seed, count = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 60))
    rng = np.random.default_rng(seed)
    found: dict[int, dict[int, int]] = {}
    for _ in range(count):
        held = int(rng.choice([1, 2, 40, 127, 128, 200, 233, 234, 500, DOCUMENTS]))
        places = np.sort(rng.choice(DOCUMENTS, held, replace=False)).tolist()
        found[int(rng.integers(0, 2**63 - 1))] = {place: int(rng.integers(1, 256)) for place in places}
    return found


@settings(max_examples=25, deadline=None)
@given(terms())
def test_postings_come_out_as_they_went_in(wanted: dict[int, dict[int, int]]) -> None:
    keys = sorted(wanted)
    rows = list(
        encode_postings(
            np.array(keys, dtype=np.int64),
            np.array([len(wanted[key]) for key in keys], dtype=np.int64),
            np.array([place for key in keys for place in wanted[key]], dtype=np.int64),
            np.array([times for key in keys for times in wanted[key].values()], dtype=np.int64),
            DOCUMENTS,
        )
    )
    assert [row.first_key for row in rows] == sorted(row.first_key for row in rows)
    assert all(before.last_key < after.first_key for before, after in pairwise(rows))
    decoded: dict[int, dict[int, int]] = {}
    for row in rows:
        found_keys, counts, ordinals, frequencies = decode_row(row)
        ends = np.cumsum(counts)
        for key, start, end in zip(found_keys.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True):
            decoded[key] = dict(zip(ordinals[start:end].tolist(), frequencies[start:end].tolist(), strict=True))
        assert find_postings(row, row.first_key + 1) is None or row.first_key + 1 in wanted
    assert decoded == wanted
    for key, held in wanted.items():
        row = next(row for row in rows if row.first_key <= key <= row.last_key)
        postings = find_postings(row, key)
        assert postings is not None
        assert postings.found == len(held)
        places = np.flatnonzero(postings.frequencies) if postings.ordinals is None else postings.ordinals
        assert places.tolist() == list(held)
        assert (postings.ordinals is None) == (len(held) > DOCUMENTS / 3 and len(held) >= 128)


def _documents(seqs: list[int], names: tuple[tuple[str, ...], ...]) -> Documents:
    columns = np.array([[seq, 5, 6, 7, 8, seq % len(names), 1, 2] for seq in seqs], dtype=np.int64).reshape(-1, 8).T
    return Documents.of(columns, names)


def test_documents_are_packed_and_joined_with_their_agents() -> None:
    first, second = _documents([1, 2, 2**40], (("a",), ("a", "b"))), _documents([7], (("b",), ("a", "b")))
    again = Documents.unpack(first.pack(), [list(names) for names in first.names])
    assert again.seq.tolist() == [1, 2, 2**40]
    assert again.pack() == first.pack()
    joined = Documents.join([first, second])
    assert [joined.names[number] for number in joined.agents.tolist()] == [("a", "b"), ("a",), ("a",), ("a", "b")]
    assert len(Documents.join([])) == 0


def test_of_a_row_in_several_pieces_the_newest_counts() -> None:
    pieces = [np.array([1, 2, 3]), np.array([2]), np.array([3, 4]), np.array([2])]
    assert newest(pieces).tolist() == [True, False, False, False, True, True, True]
    assert newest([]).tolist() == []


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=60),
    st.integers(0, 20),
)
def test_the_top_is_that_of_a_sort(pairs: list[tuple[int, int]], count: int) -> None:
    values = np.array([value for value, _ in pairs], dtype=np.float32)
    ties = np.array([tie for _, tie in pairs], dtype=np.int64)
    chosen = top(values, count, ties).tolist()
    assert len(set(chosen)) == min(count, len(pairs))
    assert sorted((pairs[place] for place in chosen), reverse=True) == sorted(pairs, reverse=True)[:count]


def test_a_pair_is_no_word_and_runs_end_where_other_signs_stand() -> None:
    assert cjk_pairs("我们去公园,公园 a公 园") == {
        b"\0" + pair.encode(): times for pair, times in (("我们", 1), ("们去", 1), ("去公", 1), ("公园", 2))
    }
    assert term_key(b"\0" + "公园".encode()) != term_key("公园".encode())
    assert 0 <= term_key(b"word") < 2**63


def test_scripts_without_spaces_have_pairs_too() -> None:
    assert set(cjk_pairs("ไปประชุม 2 ครั้ง")) >= {b"\0" + pair.encode() for pair in ("ปร", "ชุ", "ุม", "คร")}
    for text, pair in (("ພາສາລາວ", "ລາ"), ("ភាសាខ្មែរ", "្ម"), ("မြန်မာစာ", "မာ")):
        assert b"\0" + pair.encode() in cjk_pairs(text), text
    assert not cjk_pairs("déjà vu, שלום עולם, привет")


def test_words_with_marks_are_terms_without_them_too() -> None:
    text = "\u05e9\u05c1\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd שלום الْكِتَابُ أحمد کـــتاب"
    assert bare_words(text) == {word.encode(): 1 for word in ("שלום", "الكتاب", "احمد", "کتاب")}
    # Where every mark counts, and where the analyser takes them off itself.
    assert not bare_words("नमस्ते café вы́пить ไม้ שלום الكتاب \u05b8")


def test_a_word_longer_than_any_lexeme_is_no_term() -> None:
    assert set(bare_words("أ" + "ب" * 1_022)) == {("\u0627" + "ب" * 1_022).encode()}
    assert not bare_words("أ" + "ب" * 1_023)
