"""A text as a regular expression of Postgres that finds it however it is spelled. Pure functions.

Case, accents and Unicode's ways of writing the same sign make no difference; every other sign means itself. Folding the
stored texts instead would cost twenty times as much as looking for all spellings of one.
"""

from __future__ import annotations

import unicodedata
from functools import cache

#: A longer text is looked for letter by letter: so many alternatives would take longer to prepare than to find.
LONGEST_FOLDED = 200

_MARKS = "[\u0300-\u036f]*"

#: Letters that stand for two, and letters that have no decomposition; as the analyser's dictionary has them.
_PAIRS = {"ss": "ßẞ", "ae": "æÆ", "oe": "œŒ"}
_ALONE = {"o": "øØ", "d": "đĐ", "l": "łŁ", "i": "\u0131", "h": "ħĦ"}
_SINGLE = {letter: pair for pair, letters in _PAIRS.items() for letter in letters}


@cache
def _variants() -> dict[str, str]:
    """The accented forms of each small letter from a to z (Latin-1, Latin Extended)."""
    variants = dict(_ALONE)
    for code in [*range(0xC0, 0x250), *range(0x1E00, 0x1F00)]:
        base = _base(chr(code))
        if base.isascii() and base.isalpha():
            variants[base] = variants.get(base, "") + chr(code)
    return variants


def _base(character: str) -> str:
    return unicodedata.normalize("NFKD", character)[0].lower()


def literal_pattern(text: str) -> str:
    """The expression, for `~*`. `text` is at most `LONGEST_FOLDED` characters and holds no NUL."""
    text = unicodedata.normalize("NFC", text)
    parts: list[str] = []
    place = 0
    while place < len(text):
        pair = text[place : place + 2].lower()
        if pair in _PAIRS:
            parts.append(f"(?:{_letter(pair[0])}{_letter(pair[1])}|[{_PAIRS[pair]}])")
            place += 2
        else:
            parts.append(_one(text[place]))
            place += 1
    return "".join(parts)


def _one(character: str) -> str:
    if character in _SINGLE:
        return f"(?:{_SINGLE[character]}|{character})"
    if unicodedata.combining(character):
        # A mark that has no letter of its own to join: with or without it.
        return f"{character}?"
    base = _base(character)
    if base.isascii() and base.isalpha():
        return _letter(base, character)
    apart = unicodedata.normalize("NFD", character)
    if apart != character:
        return f"(?:{character}|{apart})"
    return f"\\{character}" if character.isascii() and not character.isalnum() else character


def _letter(base: str, also: str = "") -> str:
    """One letter from a to z in any of its forms, and the character that was typed when it is none of them."""
    forms = base + _variants().get(base, "")
    return f"[{forms}{also if also.lower() not in forms and also not in forms else ''}]{_MARKS}"
