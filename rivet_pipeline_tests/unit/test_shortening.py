"""One line, and cut to so many characters."""

from __future__ import annotations

import pytest

from rivet_pipeline.shortening import clip, one_line


@pytest.mark.parametrize(
    ("text", "limit", "wanted"),
    [
        ("harbour", 7, "harbour"),
        ("harbour", 6, "harbo…"),
        ("a b c", 3, "a…"),
        ("ab", 1, "…"),
        ("ab", 0, "…"),
        ("", 0, ""),
    ],
)
def test_a_text_is_cut_to_a_limit_that_holds_the_ellipsis(text: str, limit: int, wanted: str) -> None:
    assert clip(text, limit) == wanted


def test_clipping_leaves_line_breaks_alone() -> None:
    assert clip("one\ntwo", 20) == "one\ntwo"


def test_whatever_parts_lines_and_words_becomes_one_blank() -> None:
    assert one_line("  one\r\n\ttwo\u2028three ") == "one two three"
    assert one_line(" \n ") == ""


def test_a_line_is_cut_after_its_white_space_was_run_together() -> None:
    assert one_line("one \n\n two", 7) == "one two"
    assert one_line("one \n\n two", 6) == "one t…"
    assert one_line("one two", 5) == "one…"
