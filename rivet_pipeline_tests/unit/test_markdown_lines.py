"""Lines of Markdown, and what stands in a code block."""

from __future__ import annotations

import io

import pytest

from rivet_pipeline.transcripts.readers.branches import off_path, path_to
from rivet_pipeline.transcripts.readers.markdown import LOOK_AHEAD, Quotes, TextLine, TextLines, Undecided
from rivet_pipeline.transcripts.records import Damaged


def lines(text: str) -> TextLines:
    return TextLines(io.BytesIO(text.encode()), max_line=100)


def hidden(text: str, *, settled: bool = True) -> list[str]:
    """The lines that begin with MARK and are quoted."""
    found, source = [], lines(text)
    quotes = Quotes(source, lambda line: line.startswith("MARK"), settled=settled)
    for line in source:
        assert isinstance(line, TextLine)
        if line.text.startswith("MARK"):
            if quotes.hides(line.number):
                found.append(line.text)
            else:
                quotes.restart()
        else:
            quotes.take(line.text)
    return found


def test_lines_can_be_seen_before_they_are_taken() -> None:
    source = lines("a\nb\r\nc")
    assert [line.text for line in source.ahead(2)] == ["a", "b"]
    assert list(source) == [TextLine(1, "a", True), TextLine(2, "b", True), TextLine(3, "c", False)]
    assert list(source.ahead(1)) == []


def test_a_line_that_is_too_long_is_stepped_over() -> None:
    source = lines("a\n" + "x" * 3_000_000 + "\nb\n")
    assert list(source) == [TextLine(1, "a", True), Damaged(2, "line too long"), TextLine(3, "b", True)]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("MARK\n", []),
        ("```\nMARK\n```\nMARK\n", ["MARK"]),
        ("~~~\n```\nMARK\n~~~\nMARK\n", ["MARK"]),
        ("````\n```\nMARK 1\n```\nMARK 2\n````\nMARK 3\n", ["MARK 1", "MARK 2"]),
        ("```\nMARK\n```python\n```\n", []),
        ("```\nMARK\n", []),
        ("```\nMARK 1\n```\nx\n```\nMARK 2\n", []),
        ("```\nMARK 1\n```\nx\n```\ny\n```\nMARK 2\n", ["MARK 1"]),
        ("````\n```python\nMARK 1\n```python\n```\n````\nMARK 2\n", ["MARK 1"]),
        ("```\n<<<<<<< SEARCH\nMARK 1\n>>>>>>> REPLACE\n```\nMARK 2\n", ["MARK 1"]),
        ("``` not `a` fence\nMARK\n```\nx\n```\n", []),
        ("<<<<<<< SEARCH\n```\nMARK\n=======\n>>>>>>> REPLACE\nMARK\n", ["MARK"]),
        ("<<<<<<< SEARCH\nMARK\n<<<<<<< SEARCH\n>>>>>>> REPLACE\n", []),
        ("```\n" + "MARK\n" * 3 + "```\n", ["MARK"] * 3),
        ("```\nMARK\n" + "x\n" * LOOK_AHEAD + "```\n", []),
    ],
)
def test_marks_in_blocks_that_end_are_quoted(text: str, quoted: list[str]) -> None:
    assert hidden(text) == quoted


def test_a_block_that_may_still_end_decides_nothing() -> None:
    for text in ("```\nMARK\n", "```\nMARK\nx\n``"):
        with pytest.raises(Undecided):
            hidden(text, settled=False)
    with pytest.raises(Undecided):
        hidden("```\nMARK\n```\n", settled=False)
    assert hidden("```\nMARK 1\n```\nMARK 2\n", settled=False) == ["MARK 1"]


def test_the_way_to_a_leaf() -> None:
    parents = {"a": None, "b": "a", "c": "b", "x": "y", "y": "x", "z": "gone"}
    assert path_to("c", parents) == ["a", "b", "c"]
    assert path_to("x", parents) == ["y", "x"]
    assert path_to("z", parents) == ["z"]
    assert path_to("gone", parents) == []
    assert path_to(None, parents) == []


@pytest.mark.parametrize(
    ("leaf", "parents", "off"),
    [
        ("c", {"a": None, "b": "a", "c": "b"}, set()),
        ("c", {"a": None, "b": "a", "b2": "a", "b3": "b2", "c": "b"}, {"b2", "b3"}),
        ("a", {"a": None, "b": "a"}, {"b"}),
        ("b", {"b": "root", "b2": "root"}, {"b2"}),
        ("b", {"b": None, "b2": None}, set()),
        ("c", {"a": None, "b": "a", "c": "gone"}, set()),
        ("c", {"c": None, "x": "y", "y": "x"}, set()),
        ("x", {"x": "y", "y": "x"}, set()),
        (None, {"a": None}, set()),
    ],
)
def test_branches(leaf: str | None, parents: dict[str, str | None], off: set[str]) -> None:
    assert off_path(leaf, parents) == off
