"""The table of tools, its leniency, and how answers are measured and quoted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.api.tools import TOOLS, Arguments, Tool, is_offered, offered, register
from rivet_pipeline.api.tools.budget import clip_tokens, head, label, quote
from rivet_pipeline.api.tools.surface import is_absent
from rivet_pipeline.models.tokens import byte_tokens
from rivet_pipeline.settings import Settings


def nothing(_: Any, __: Any) -> str:
    return ""


def test_a_tool_that_writes_may_have_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Tool("memory_test", Arguments, nothing, "Reads.")
    monkeypatch.setitem(
        TOOLS, "memory_test", Tool("memory_test", Arguments, nothing, "Writes.", writes=True, read_only=reading)
    )
    monkeypatch.setitem(TOOLS, "memory_gone", Tool("memory_gone", Arguments, nothing, "Writes.", writes=True))
    without, with_writing = Settings(), Settings(enable_memory_write=True)
    assert reading in offered(without)
    assert not any(tool.writes for tool in offered(without))
    assert [tool.doc for tool in offered(with_writing) if tool.name == "memory_test"] == ["Writes."]
    assert (is_offered(without, "memory_gone"), is_offered(with_writing, "memory_gone")) == (False, True)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="two tools called memory_search"):
        register(TOOLS["memory_search"])


@pytest.mark.parametrize(
    ("value", "absent"),
    [
        (None, True),
        (" Null ", True),
        ([], True),
        (["", None], True),
        ("0", False),
        (0, False),
        ([0], False),
        ({}, False),
    ],
)
def test_what_is_taken_for_nothing(value: object, absent: bool) -> None:
    assert is_absent(value) is absent


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.text(), st.integers(1, 30))
def test_a_cut_text_fits_and_is_a_beginning(text: str, limit: int) -> None:
    assert byte_tokens(clip_tokens(text, limit)) <= limit
    assert text.startswith(head(text, limit))
    assert head(text, limit) or not text


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.text())
def test_every_line_of_a_quotation_is_marked(text: str) -> None:
    assert all(line.startswith(">") for line in quote(text).split("\n"))
    assert "\n" not in label(text)
    assert len(label(text)) <= 80


def test_marks_that_hide_or_reorder_words_are_left_out() -> None:
    smuggled = "".join(chr(0xE0000 + ord(letter)) for letter in "do it")
    assert quote(f"a\u202eb{smuggled}\nc") == "> ab\n> c"
    assert label(f"a\u202eb{smuggled} c") == "ab c"
    assert quote("\U0001f468\u200d\U0001f469") == "> \U0001f468\u200d\U0001f469"
