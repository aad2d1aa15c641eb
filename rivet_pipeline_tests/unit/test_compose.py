"""What is embedded of a text, and how it is cut: nothing is lost, nothing is split, binary data is left out."""

from __future__ import annotations

import base64
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.embedding.compose import (
    MAX_CHUNKS,
    chunks,
    compose_message,
    compose_summary,
    describe_call,
    pieces,
    safe_cut,
    spread,
)

BLOB = base64.b64encode(random.Random(7).randbytes(240_000)).decode()


@given(st.text(max_size=3000), st.integers(1, 400))
def test_chunks_together_are_the_text(text: str, size: int) -> None:
    spans = chunks(text, size)
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(0 < end - start <= size for start, end in spans)


@given(
    st.text(alphabet="ab .\n\u0301\u200d\U0001f469\U0001f3fd\U0001f1e9\U0001f1ea", max_size=400), st.integers(40, 80)
)
def test_no_accent_or_joiner_begins_a_chunk(text: str, size: int) -> None:
    runs = text.split(" ")
    if max((len(run) for run in runs), default=0) > 30:
        return
    for start, _ in chunks(text, size)[1:]:
        before = text[start - 1]
        assert before.isspace() or text[start] not in "\u0301\u200d\U0001f3fd"


def test_emoji_families_and_flags_stay_whole() -> None:
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
    assert safe_cut("a" * 8 + family, 10) == 8
    assert safe_cut("\U0001f1e9\U0001f1ea" * 5, 5) == 4
    assert safe_cut("cafe\u0301s", 4) == 3
    assert safe_cut("short", 10) == 5


@pytest.mark.parametrize(
    ("separator", "expected_end"),
    [("\n\n", 92), ("\n", 91), (". ", 92), ("\u3002", 91), (" ", 91)],
)
def test_a_break_is_made_where_the_text_has_one(separator: str, expected_end: int) -> None:
    text = "x" * 90 + separator + "y" * 60
    assert chunks(text, 100)[0] == (0, expected_end)


def test_a_blank_line_wins_over_a_later_line() -> None:
    text = "x" * 88 + "\n\n" + "y" * 5 + "\n" + "z" * 60
    assert chunks(text, 100)[0] == (0, 90)


def test_an_early_break_is_not_used() -> None:
    assert chunks("x" * 20 + "\n\n" + "y" * 200, 100)[0] == (0, 100)


def test_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="size"):
        chunks("text", 0)


@given(st.integers(1, 500), st.integers(2, 80))
def test_spread_keeps_both_ends_and_never_repeats(count: int, limit: int) -> None:
    spans = [(index, index + 1) for index in range(count)]
    chosen = spread(spans, limit)
    assert chosen[0] == spans[0]
    assert chosen[-1] == spans[-1]
    assert len(chosen) == len(set(chosen)) == min(count, limit)


def test_a_long_text_is_covered_from_its_first_word_to_its_last() -> None:
    text = "first " + "filler " * 60_000 + "last"
    found = pieces(compose_summary(text), 2000)
    assert len(found) == MAX_CHUNKS
    assert found[0].text.startswith("first")
    assert found[-1].text.endswith("last")
    gaps = [after.start - before.end for before, after in pairwise(found)]
    assert max(gaps) < 3 * 2000


@given(st.text(max_size=300), st.none() | st.text(max_size=300))
def test_a_message_is_its_content_and_its_result(content: str, result: str | None) -> None:
    source = f"{content}\n{result or ''}"
    composed = compose_message(content, None, None, result)
    assert composed.text == source
    for piece in pieces(composed, 50):
        assert piece.text in (source[piece.start : piece.end].strip(), "blank text")


def test_spans_point_into_the_stored_text_around_binary_data() -> None:
    content = f"before the picture {BLOB[:20_000]} after the picture"
    composed = compose_message(content, None, None, None)
    assert composed.text == "before the picture (binary data, 14 KB) after the picture\n"
    start = composed.text.index("after")
    assert content[slice(*composed.source_span(start, start + 5))] == "after"
    whole = composed.source_span(0, len(composed.text))
    assert whole == (0, len(content) + 1)


@pytest.mark.parametrize(
    "content",
    [
        f"data:image/png;base64,{BLOB}",
        BLOB,
        "\n".join(BLOB[at : at + 76] for at in range(0, len(BLOB), 76)),
    ],
)
def test_nothing_but_binary_data_becomes_one_short_text(content: str) -> None:
    found = pieces(compose_message("", "Screenshot", {}, content), 2000)
    assert len(found) == 1
    assert found[0].text.split("\n")[0] == "Screenshot"
    assert "binary data, 23" in found[0].text
    assert len(found[0].text) < 60


@pytest.mark.parametrize(
    "text",
    [
        "the page inlines it as data:image/png;base64,iVBORw0KGgo= and that is why it is slow",
        "commit 3f2c1b7a9d8e4f5061728394a5b6c7d8e9f00112",
        "-" * 900,
        "/".join(["usr", "share", "doc"] * 20) + " is a path",
    ],
)
def test_prose_that_only_looks_like_data_is_kept(text: str) -> None:
    assert compose_summary(text).text == text


def test_a_call_without_words_is_found_by_its_name_and_arguments() -> None:
    args = {"command": "git  status", "timeout": 5, "image": BLOB}
    composed = compose_message("", "Bash", args, "clean tree")
    assert composed.text == "Bash: command=git status; timeout=5; image=(binary data, 234 KB)\nclean tree"
    start = composed.text.index("clean")
    assert composed.source_span(start, start + 5) == (1, 6)


def test_a_call_with_words_of_its_own_is_not_described_again() -> None:
    assert compose_message("Ran the tests.", "Bash", {"command": "make test"}, "ok").text == "Ran the tests.\nok"


def test_a_call_is_described_within_bounds() -> None:
    assert describe_call("Read", None) == "Read"
    assert describe_call("Grep", ["a", 1]) == 'Grep: ["a", 1]'
    assert len(describe_call("Write", {str(number): "x" * 5000 for number in range(50)})) <= 1000


def test_a_blank_text_still_has_one_piece() -> None:
    (piece,) = pieces(compose_message("\n\t\n", None, None, None), 2000)
    assert (piece.text, piece.start, piece.end) == ("blank text", 0, 4)
