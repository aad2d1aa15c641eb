"""Text is made fit for storage and says the same afterwards."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.transcripts.cleaning import (
    cap_utf16,
    clean_event_id,
    clean_json,
    clean_text,
    content_event_id,
    utf16_units,
)


def test_nul_and_lone_surrogates_become_replacement_characters() -> None:
    assert clean_text("a\x00b\ud83dc") == "a\ufffdb\ufffdc"


def test_a_pair_written_as_two_escapes_is_joined() -> None:
    assert clean_text(json.loads('"\\ud83d\\ude80 go"')) == "🚀 go"


def test_the_six_literal_characters_stay() -> None:
    assert clean_text(r"a\u0000b") == r"a\u0000b"


def test_json_is_cleaned_at_any_depth() -> None:
    assert clean_json({"k\x00": ["\ud800", {"n": float("nan")}]}) == {"k\ufffd": ["\ufffd", {"n": "nan"}]}


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_length_is_counted_in_utf16_units_also_of_halves_of_pairs(text: str) -> None:
    assert utf16_units(text) == sum(2 if ord(character) > 0xFFFF else 1 for character in text)


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_cleaned_text_can_be_encoded_and_is_stable(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert clean_text(cleaned) == cleaned
    assert "\x00" not in cleaned


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_cap_keeps_the_longest_whole_prefix(text: str, limit: int) -> None:
    kept = cap_utf16(text, limit)
    assert text.startswith(kept)
    assert utf16_units(kept) <= limit
    if kept != text:
        assert utf16_units(kept) + utf16_units(text[len(kept)]) > limit


def test_long_or_empty_event_ids_become_hashes() -> None:
    assert clean_event_id(" abc ") == "abc"
    assert clean_event_id("x" * 6000).startswith("sha256:")
    assert clean_event_id("").startswith("sha256:")


def test_content_ids_do_not_run_parts_together() -> None:
    assert content_event_id("ab", "c") != content_event_id("a", "bc")
