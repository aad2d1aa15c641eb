"""A literal text as an expression: every spelling of it, and nothing else. Python reads these expressions alike."""

from __future__ import annotations

import re
import unicodedata

import pytest

from rivet_pipeline.retrieval.literal import LONGEST_FOLDED, literal_pattern


def fits(text: str, other: str) -> bool:
    return re.fullmatch(literal_pattern(text), other, re.IGNORECASE) is not None


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("cafe", ["cafe", "CAFE", "caf\u00e9", "cafe\u0301", "CAF\u00c9"]),
        ("caf\u00e9", ["cafe", "cafe\u0301"]),
        ("cafe\u0301", ["cafe", "caf\u00e9"]),
        ("strasse", ["straße", "STRASSE", "STRAẞE"]),
        ("Größe", ["groesse"[:2] + "osse", "GRÖSSE", "größe"]),
        ("istanbul", ["\u0130stanbul", "\u0131stanbul", "ISTANBUL", "i\u0307stanbul"]),
        ("smorrebrod", ["smørrebrød"]),
        ("oeuvre", ["œuvre"]),
        ("が", ["\u304b\u3099", "が"]),
        ("\uff21bc", ["\uff21bc", "abc"]),
        ("ABC", ["\uff21\uff22\uff23", "\uff41\uff42\uff43"]),
        ("office", ["o\ufb03ce", "o\ufb00ice", "of\ufb01ce", "OFFICE"]),
        ("o\ufb03ce", ["office", "oFFice"]),
        ("off", ["o\ufb00", "o\ufb03", "O\ufb04"]),
        ("of", ["o\ufb00", "o\ufb01", "o\ufb03"]),
        ("stras", ["stra\u00df"]),
        ("ice", ["\ufb03ce", "\ufb01ce", "ICE"]),
        ("fice", ["\ufb03ce", "\ufb00ice", "\ufb01ce"]),
        ("\ufb01ce", ["\ufb03ce", "\ufb00ice"]),
        ("lag", ["\ufb02ag", "\ufb04ag"]),
        ("se", ["\u00dfe"]),
        ("f", ["\ufb00", "\ufb01", "\ufb03"]),
        ("5 \u00b5m", ["5 \u03bcm", "5 \u039cm"]),
        ("\u017fo \u03d1", ["so \u03b8"]),
        ("\ufb01nal \ufb02ag", ["final flag", "FINAL \ufb02ag"]),
        ("Σισυφος", ["Σίσυφος", "ΣΊΣΥΦΟΣ", "Σι\u0301\u03c3\u03c5\u03c6\u03bf\u03c2"]),
        ("ΣΊΣΥΦΟΣ", ["\u03c3\u03b9\u03c3\u03c5\u03c6\u03bf\u03c2"]),
        ("елка", ["ёлка", "ЁЛКА"]),
        ("ёлка", ["елка"]),
        ("שלום", ["שָׁלוֹם"]),
        ("שָׁלוֹם", ["שלום"]),
        ("محمد", ["مُحَمَّد"]),
        ("배포", [unicodedata.normalize("NFD", "배포")]),
        ("a.b*[c]{2}(d)|e\\f^g$?+", ["A.B*[c]{2}(d)|e\\f^g$?+"]),
        ("100%_x", ["100%_X"]),
    ],
)
def test_a_text_fits_in_all_its_spellings(text: str, others: list[str]) -> None:
    assert fits(text, text)
    assert [other for other in others if not fits(text, other)] == []


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a.b", "axb"),
        ("a_b", "axb"),
        ("100%", "1000"),
        ("公园", "公司"),
        ("и", "i"),
        ("sse", "\u00dfx"),
        ("offx", "o\ufb03x"),
        ("fce", "\ufb03ce"),
        ("ace", "\ufb03ce"),
        ("мои", "мой"),
    ],
)
def test_another_text_does_not_fit(text: str, other: str) -> None:
    assert not fits(text, other)


@pytest.mark.parametrize("text", ["\u0640", "\u0640\u0640", "\u0301", "\u064e\u0640", "\u0640 \u0640", "-\u0640"])
def test_marks_without_a_letter_are_not_in_every_text(text: str) -> None:
    assert fits(text, text)
    assert not re.search(literal_pattern(text), "an ordinary - text", re.IGNORECASE)


def test_every_sign_fits_itself_and_no_other() -> None:
    signs = [chr(code) for code in range(0x20, 0x250) if not unicodedata.category(chr(code)).startswith("C")]
    for sign in signs:
        assert fits(sign, sign), hex(ord(sign))
        if not sign.isalpha() and sign.isascii():
            assert [other for other in signs if fits(sign, other)] == [sign]


@pytest.mark.parametrize("sign", ["™", "Ⅳ", "\u2160", "№", "㎏", "℃", "Ⓐ", "①", "½", "²", "…", *"ℹºªℝⁿﬆ𝐢ǆₐ"])
def test_a_sign_that_is_made_of_letters_is_none_of_them(sign: str) -> None:
    assert fits(sign, sign)
    assert not any(
        re.search(literal_pattern(sign), text, re.IGNORECASE) for text in ("a title", "give", "kg no 1/4 ..", "store d")
    )


def test_the_longest_text_stays_an_expression_of_reasonable_length() -> None:
    assert len(literal_pattern("e" * LONGEST_FOLDED)) < 20_000
