"""The headings of the extractive summarizer's topics: phrases that somebody said, and no heap of words."""

from __future__ import annotations

import re

import pytest

from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.headings import Told, heading
from rivet_pipeline.summaries.sentences import from_summaries
from rivet_pipeline.summaries.terms import terms_of
from rivet_pipeline.summaries.types import SourceMessage, SummaryRequest
from rivet_pipeline_tests.unit.summary_samples import CONVERSATION, child, leaf_request, message


def told(*texts: str, voice: str = "user") -> list[Told]:
    return [Told(text, voice, 1.0, dict.fromkeys(terms_of(text), 1.0)) for text in texts]


def headings(*messages: SourceMessage) -> list[str]:
    text = ExtractiveSummarizer().summarize(SummaryRequest("leaf", CONVERSATION, messages=messages)).text
    return re.findall(r"^\*\*(.+)\*\*$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            ["We chose the exclusion constraint then.", "The exclusion constraint is what keeps it sound."],
            "exclusion constraint",
        ),
        (["The harbour office edits bookings by hand.", "Ask the harbour office."], "harbour office"),
        (
            ["Ich brauche bald einen Bericht für den Hafenmeister.", "Der Bericht für den Hafenmeister ist kurz."],
            "Bericht für den Hafenmeister",
        ),
        (["It listens on port 8437.", "Use port 8437 for it."], "port 8437"),
        (["`tide_importer` answers.", "I restart **tide_importer** now."], "tide_importer"),
    ],
)  # fmt: skip
def test_a_topic_is_headed_by_the_phrase_that_names_it(texts: list[str], expected: str) -> None:
    assert heading(told(*texts), set()).split(", ")[0] == expected


def test_every_phrase_of_a_heading_was_said_in_one_breath() -> None:
    said = " ".join(f"{one.content} {one.tool_result or ''} {one.tool_args or ''}" for one in leaf_request().messages)
    plain = " ".join(re.sub(r"[`*\"]", "", said).split())
    found = headings(*leaf_request().messages)
    assert found
    assert [phrase for line in found for phrase in line.split(", ") if phrase not in plain] == []


def test_verbs_adverbs_and_numbers_begin_and_end_no_phrase() -> None:
    texts = ["Unfortunately the tooltip cuts 12 letters.", "Sometimes a tooltip stays; 12 tooltips meanwhile remained."]
    words = heading(told(*texts), set()).replace(",", "").split()
    assert "tooltip" in words
    assert not {"cuts", "stays", "12", "Sometimes", "Unfortunately", "meanwhile", "remained"} & {words[0], words[-1]}


def test_a_topic_in_which_nobody_speaks_is_headed_by_its_calls() -> None:
    calls = told("Bash: cd /srv/app && uv run pytest -q → 12 passed", "Read: /srv/app/src/health.py", voice="tool")
    assert heading(calls, set()) == "Bash: uv, Read: health.py"


@pytest.mark.parametrize(
    ("call", "expected"),
    [("Glob: *.py → 12 files", "Glob: .py"), ("Glob: src/**/*.py → 12 files", "Glob: .py"), ("Glob: ** → 1", "Glob")],
)
def test_a_heading_of_a_call_holds_no_star(call: str, expected: str) -> None:
    line = heading(told(call, voice="tool"), set())
    assert line == expected
    # So its parent knows it for a heading, and does not quote it as what somebody said.
    assert from_summaries([child(0, f"**{line}**\n- a bullet of it")])[0].text == "a bullet of it"


def test_two_phrases_of_a_heading_share_no_word() -> None:
    (line,) = headings(
        message(0, "user", "The unique index on the tide table failed. The tide table has two rows of one time."),
        message(1, "assistant", "The unique index refuses the two rows of the tide table."),
    )
    first, *second = line.split(", ")
    assert not set(terms_of(first)) & set(terms_of(" ".join(second)))


def test_an_earlier_heading_is_not_said_again_when_there_is_another() -> None:
    used: set[str] = set()
    one = heading(told("The nightly backup failed.", "The nightly backup ran late."), used)
    other = heading(told("The nightly backup keeps a stale lock.", "Remove the stale lock of it."), used)
    assert (one, other) == ("nightly backup", "stale lock")


@pytest.mark.parametrize(
    "text",
    [
        "\u4eca\u5929\u8ba8\u8bba\u4e86\u90e8\u7f72\u65b9\u6848\u3002\u51b3\u5b9a\u4f7f\u7528 Postgres\u3002",
        "\u0642\u0631\u0631\u0646\u0627 \u0646\u0642\u0644 \u0627\u0644\u0628\u064a\u0627\u0646\u0627\u062a.",
        "\U0001f600\U0001f600",
        "** ** `",
        "x" * 5_000,
        "a" + " b" * 3_000,
    ],
)  # fmt: skip
def test_any_writing_gets_a_short_heading_of_one_line(text: str) -> None:
    (line,) = headings(message(0, "user", text))
    assert 0 < len(line) <= 130
    assert "*" not in line
