"""The part of a text that is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.retrieval.snippets import (
    SNIPPET_CHARACTERS,
    make_snippet,
    mark_words,
    shorten,
    snippet_around,
    without_frame,
)

FILLER = "lorem ipsum dolor sit amet " * 60


@pytest.mark.parametrize(
    ("query", "planted"),
    [
        ("deploy script", "the deploy script broke"),
        ("deployment", "we deployed it on Friday"),
        ("cafe", "un café noir"),
        ("café", "un cafe\u0301 noir"),
        ("部署", "今天讨论了部署方案"),
        ("部署方案的讨论", "今天讨论了部署方案"),
        ("user_store.py", "see src/app/user_store.py now"),
        ("(foo|bar)*", "a bar stool"),
    ],
)
def test_the_words_asked_for_are_shown(query: str, planted: str) -> None:
    snippet = make_snippet(query, f"{FILLER}{planted} {FILLER}")
    assert planted in snippet
    assert snippet.startswith("…")
    assert snippet.endswith("…")


def test_the_window_with_most_different_words_wins() -> None:
    text = f"parser {FILLER} the parser error of the lexer {FILLER} error"
    assert "parser error of the lexer" in make_snippet("lexer parser error", text)


def test_a_short_text_is_shown_whole_and_one_without_the_words_from_its_beginning() -> None:
    assert make_snippet("x", "  short\n\ntext ") == "short text"
    assert make_snippet("absent", FILLER).startswith("lorem ipsum")


@given(query=st.text(max_size=60), text=st.text(max_size=2000))
def test_a_snippet_is_never_longer_than_it_may_be(query: str, text: str) -> None:
    assert len(make_snippet(query, text)) <= SNIPPET_CHARACTERS


@given(st.text(alphabet="ab \u0130\u00df\ufb01\u0301部", max_size=900))
def test_a_snippet_is_made_of_the_text(text: str) -> None:
    snippet = make_snippet("ab 部", text).strip("…")
    assert snippet in " ".join(text.split())


def test_a_snippet_around_a_place_holds_it_and_keeps_to_the_limit() -> None:
    text = "word " * 400 + "the place" + " word" * 400
    start = text.index("the place")
    snippet = snippet_around(text, start, start + 9, limit=80)
    assert "the place" in snippet
    assert len(snippet) <= 80
    assert snippet.startswith("…")
    assert snippet.endswith("…")
    assert snippet_around("the place", 0, 9, limit=80) == "the place"
    assert snippet_around("x" * 200 + "end", 200, 203, limit=60).endswith("end")
    assert snippet_around("one\n two", 5, 8) == "one two"


def test_a_text_is_shortened_after_a_word_where_it_has_some() -> None:
    assert shorten("three short words", 20) == "three short words"
    assert shorten("three short words and more", 20) == "three short words…"
    assert shorten("three short words an", 18) == "three short words…"
    assert shorten("x" * 30, 20) == "x" * 19 + "…"


def test_what_stands_around_a_place_is_cut_at_words() -> None:
    text = "alpha beta gamma " * 40
    place = text.index("gamma", 300)
    snippet = snippet_around(text, place, place + 5, limit=60)
    assert set(snippet.strip("…").split()) <= {"alpha", "beta", "gamma"}
    assert "gamma" in snippet


def test_a_summary_is_shown_without_the_line_of_its_period() -> None:
    text = "Period 2026-09-24T06:47Z → 2026-09-24T06:59Z · agents opus · 2 messages\n\n**Topic**"
    assert without_frame(text) == "**Topic**"
    assert without_frame(f"[segment 1 of 2 of message 7]\n{text}") == "**Topic**"
    assert without_frame("[part 1 of 3]\n**Topic**\n\n[part 2 of 3]\n- more") == "**Topic**\n\n[part 2 of 3]\n- more"
    assert without_frame("Period of calm") == "Period of calm"
    assert without_frame("[part of a name]\nIt begins.") == "[part of a name]\nIt begins."


def test_pairs_of_signs_are_marked_as_the_run_that_they_are() -> None:
    assert mark_words("ประชุม", "วันนี้เราประชุมเรื่อง") == [("วันนี้เรา", False), ("ประชุม", True), ("เรื่อง", False)]
    assert mark_words("部署方案", "今天讨论了部署方案") == [("今天讨论了", False), ("部署方案", True)]
    assert mark_words("公园", "公园公园") == [("公园", True), ("公园", True)]


def test_a_part_of_a_run_without_spaces_is_shown() -> None:
    text = "คำนำ " * 100 + "วันนี้เราประชุมเรื่องการปรับใช้" + " ท้าย" * 100
    assert "เราประชุมเรื่อง" in make_snippet("ประชุม", text)


def test_a_snippet_begins_with_a_line_where_one_begins_shortly_before_the_words() -> None:
    before = "\n".join(f"- step {number}: nothing to report, all is quiet here" for number in range(20))
    line = "- 2026-03-02T10:12Z ada/user: the lighthouse keeper was paid twice"
    text = f"{before}\n\n**ferry, jobs of 30 s**\n{line}\n{before}"
    assert make_snippet("lighthouse keeper paid", text).startswith(
        "…- 2026-03-02T10:12Z ada/user: the lighthouse keeper"
    )
    place = text.index("lighthouse")
    assert snippet_around(text, place, place + 10).startswith("…**ferry, jobs of 30 s** - 2026")


def test_a_part_may_keep_its_lines() -> None:
    before = "\n".join(f"- step {number}: nothing to report" for number in range(30))
    text = f"{before}\n- the lighthouse keeper\n  was paid twice\n{before}"
    shown = make_snippet("lighthouse keeper", text, limit=120, lines=True)
    assert "- the lighthouse keeper\n  was paid twice\n- step 0" in shown
    assert len(shown) <= 120
    assert make_snippet("lighthouse", "two\n  lines\n", limit=120, lines=True) == "two\n  lines"


def test_a_line_that_begins_late_costs_a_snippet_no_room() -> None:
    words = "".join(f"word{number} " for number in range(180))
    for text in (f"{words}\nUse kestrel.", f"{words}\n{words} kestrel {words}"):
        place = text.index("kestrel")
        for shown in (make_snippet("kestrel", text), snippet_around(text, place, place + 7)):
            assert "kestrel" in shown
            assert SNIPPET_CHARACTERS * 3 // 4 < len(shown) <= SNIPPET_CHARACTERS


def test_a_snippet_of_the_end_of_a_text_uses_its_room() -> None:
    text = "".join(f"word{number} " for number in range(200)) + "the lighthouse keeper"
    shown = make_snippet("lighthouse keeper", text)
    assert shown.endswith("the lighthouse keeper")
    assert len(shown) > SNIPPET_CHARACTERS - 20
