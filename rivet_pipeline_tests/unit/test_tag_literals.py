"""How tags are spelled: one spelling for what reads alike, bounds, and the way a literal is parted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.tags.literals import (
    MAX_DISPLAY,
    MAX_KEY,
    MAX_VALUE,
    Literal,
    display_of,
    read_key,
    read_literal,
    read_pair,
    read_value,
    tag_text,
)

anything = st.text(st.characters(exclude_categories=()), max_size=80)


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        ("Connection Pooling", "connection-pooling"),
        ("  tabs\tand\nlines  ", "tabs-and-lines"),
        ("src/app", "src-app"),
        ("--a -- b--", "a-b"),
        ("\uff26\uff35\uff2c\uff2c\u3000\uff37\uff29\uff24\uff34\uff28", "full-width"),
        ("ﬁle", "file"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("NUL\x00byte", "nul-byte"),
        ("lone\ud83d", "lone"),
        ("Straße", "straße"),
        ("ΟΔΟΣ", "οδοσ"),
        ("İstanbul", "istanbul"),
        ("Cafe\u0301", "café"),
        ("日本語 タグ", "日本語-タグ"),
        ("c++", "c++"),
        ("🚀", "🚀"),
        ("///", ""),
    ],
)
def test_what_reads_alike_is_spelled_alike(typed: str, spelled: str) -> None:
    assert tag_text(typed, MAX_VALUE) == spelled


@given(anything, st.integers(1, 140))
def test_a_spelling_is_its_own_spelling_storable_and_within_bounds(text: str, longest: int) -> None:
    spelled = tag_text(text, longest)
    assert tag_text(spelled, longest) == spelled
    assert len(spelled) <= longest
    assert spelled.strip("-") == spelled
    assert "--" not in spelled
    assert "\x00" not in spelled
    spelled.encode()


@given(anything)
def test_a_value_is_read_or_refused_and_never_anything_else(text: str) -> None:
    try:
        value = read_value(text)
    except InvalidInputError:
        return
    assert 0 < len(value) <= MAX_VALUE
    assert read_value(value) == value
    assert read_value(f"  {value} ") == value


@given(st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True), st.text("abc:äß日 ", min_size=1))
def test_a_literal_is_parted_at_its_first_colon(key: str, value: str) -> None:
    try:
        spelled = read_value(value)
    except InvalidInputError:
        return
    for colon in (":", "\uff1a", "\ufe13", "\ufe55", " : "):
        literal = read_literal(f"{key.upper()}{colon}{value}")
        assert literal == Literal(read_key(key), spelled)
        assert read_literal(str(literal)) == literal


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("caching", "caching"),
        ("topic:caching", "caching"),
        ("Topic\uff1a Web  Sockets", "web-sockets"),
        ("std:cache", "std:cache"),
        ("topic: ", "topic:"),
        ("topic:topic:x", "topic:x"),
    ],
)
def test_a_value_may_be_given_with_its_own_key_before_it(typed: str, value: str) -> None:
    assert read_pair("topic", typed) == Literal("topic", value)


@pytest.mark.parametrize("text", ["", "topic", ":", "topic:", ":caching", "topic: / ", "\u200b:x", "x" * 9000])
def test_what_is_no_literal_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(InvalidInputError, match="tag: "):
        read_literal(text)


def test_too_long_is_refused_and_not_cut() -> None:
    assert read_value("a" * MAX_VALUE) == "a" * MAX_VALUE
    with pytest.raises(InvalidInputError, match="longer than 128"):
        read_value("a" * (MAX_VALUE + 1))
    assert read_key("k" * MAX_KEY) == "k" * MAX_KEY
    with pytest.raises(InvalidInputError, match="longer than 64"):
        read_key("k" * (MAX_KEY + 1))
    assert read_key("my:key") == "my-key"


def test_the_display_form_is_kept_where_it_says_more() -> None:
    assert display_of("Connection  Pooling", "connection-pooling") == "Connection Pooling"
    assert display_of("caching", "caching") == ""
    assert display_of("something else", "caching") == ""
    assert len(display_of("A" * 500, tag_text("A" * 500, MAX_VALUE))) <= MAX_DISPLAY


@pytest.mark.parametrize("text", ["topic:a\ud83c", "topic:\udf89", "to\ud800pic:x", "topic:a\ufffdb", "\ufffd:x"])
def test_half_a_character_is_refused_and_not_stored_as_another(text: str) -> None:
    with pytest.raises(InvalidInputError, match="half a character"):
        read_literal(text)
    key, _, value = text.partition(":")
    with pytest.raises(InvalidInputError, match="half a character"):
        read_key(key) and read_value(value)
