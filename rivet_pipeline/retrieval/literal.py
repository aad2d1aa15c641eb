"""A text as a regular expression of Postgres that finds it however it is spelled. Pure functions.

Case, accents and Unicode's ways of writing the same sign make no difference; every other sign means itself. Folding the
stored texts instead would cost twenty times as much as looking for all spellings of one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from rivet_pipeline.retrieval.postings import ARABIC_POINTS, HEBREW_POINTS

#: A longer text is looked for letter by letter: so many alternatives would take longer to prepare than to find.
LONGEST_FOLDED = 200

_MARKS = "[\u0300-\u036f]*"

#: The points and vowel signs of Hebrew and Arabic, which are seldom written, and the stroke that only stretches a word;
#: the letters that take them, and those that may carry a hamza or a madda.
_POINTS = f"[{HEBREW_POINTS}{ARABIC_POINTS}]*"
_POINTED = re.compile("[\u05d0-\u05ea\u0621-\u063f\u0641-\u064a\u0671-\u06d3]")
_STROKE = "\u0640"
_WITH_HAMZA = {"\u0627": "\u0622\u0623\u0625", "\u0648": "\u0624", "\u064a": "\u0626"}

#: Letters that stand for several, and letters that have no decomposition; as the analyser's dictionary has them.
_RUNS = {
    "ffi": "\ufb03",
    "ffl": "\ufb04",
    "ss": "ßẞ",
    "ae": "æÆ",
    "oe": "œŒ",
    "ij": "ĳĲ",
    "ff": "\ufb00",
    "fi": "\ufb01",
    "fl": "\ufb02",
}
_ALONE = {"o": "øØ", "d": "đĐ", "l": "łŁ", "i": "\u0131", "h": "ħĦ", "\u0435": "\u0451\u0401", "\u03c3": "\u03c2"}
_SINGLE = {letter: run for run, letters in _RUNS.items() for letter in letters}

#: Where the accented and the wide forms stand: Latin, Greek, Latin and Greek with more marks, full-width letters.
_FORMS = ((0xC0, 0x250), (0x370, 0x400), (0x1E00, 0x2000), (0xFF21, 0xFF5B))
_GREEK = re.compile("[\u03b1-\u03c9]")


@cache
def _variants() -> dict[str, str]:
    """The other forms of each small letter, Latin from a to z or Greek."""
    variants = dict(_ALONE)
    for start, end in _FORMS:
        for character in map(chr, range(start, end)):
            base = _base(character)
            if _is_plain(base) and base != character.lower():
                variants[base] = variants.get(base, "") + character
    return variants


def _base(character: str) -> str:
    """The letter below the marks, in small; of a sign that is no letter the sign itself."""
    if not character.isalpha():
        return character
    for base, forms in _ALONE.items():
        if character in forms:
            return base
    return unicodedata.normalize("NFKD", character)[0].lower()


def _is_plain(base: str) -> bool:
    return (base.isascii() and base.isalpha()) or _GREEK.match(base) is not None or base in _ALONE


def literal_pattern(text: str) -> str:
    """The expression, for `~*`. `text` is at most `LONGEST_FOLDED` characters and holds no NUL."""
    text = unicodedata.normalize("NFC", text)
    if not any(one.isalnum() and one != _STROKE for one in text):
        # Marks without any letter are what is looked for; with or without them would be every text.
        return "".join(one if _is_mark(one) else _one(one) for one in text)
    parts: list[str] = []
    place = 0
    while place < len(text):
        run = next((run for run in _RUNS if text[place : place + len(run)].lower() == run), None)
        end = place + (1 if run is None else len(run))
        part = _one(text[place]) if run is None else _run(run)
        # The text may begin and end within a sign that stands for several letters.
        ways = [part]
        if place == 0:
            ways += _ended_by(run or _SINGLE.get(text[0], text[0].lower()))
        begun = "" if end < len(text) else _begun_by(text[place:].lower())
        if begun:
            ways.append(f"[{begun}]")
        parts.append(f"(?:{'|'.join(ways)})" if len(ways) > 1 else part)
        place = end
    return "".join(parts)


def _begun_by(letters: str) -> str:
    return "".join(signs for run, signs in _RUNS.items() if run.startswith(letters) and run != letters)


def _ended_by(letters: str) -> list[str]:
    """Signs that end with the letters, or with the first of them, and the letters that are left."""
    ways = []
    for count in range(1, len(letters) + 1):
        signs = "".join(signs for run, signs in _RUNS.items() if run.endswith(letters[:count]) and len(run) > count)
        if signs:
            ways.append(f"[{signs}]{''.join(map(_letter, letters[count:]))}")
    return ways


def _run(run: str) -> str:
    """Letters that one sign may stand for, or for the first two or the last two of them."""
    ways = ["".join(map(_letter, run)), f"[{_RUNS[run]}]"]
    if len(run) > 2:
        ways += [f"[{_RUNS[run[:2]]}]{_letter(run[2])}", f"{_letter(run[0])}[{_RUNS[run[1:]]}]"]
    return f"(?:{'|'.join(ways)})"


def _one(character: str) -> str:
    if character in _SINGLE:
        return f"(?:{_run(_SINGLE[character])}|{character})"
    if _is_mark(character):
        # A mark that has no letter of its own to join: with or without it.
        return f"{character}?"
    base = _base(character)
    if _is_plain(base) and not _is_made_of_letters(character):
        return _letter(base, character)
    points = _POINTS if _POINTED.match(character) else ""
    apart = unicodedata.normalize("NFD", character)
    if apart[0] in _WITH_HAMZA and len(apart) <= 2:
        return f"[{apart[0]}{_WITH_HAMZA[apart[0]]}]{points}"
    if apart != character:
        return f"(?:{character}|{apart}){points}"
    return f"\\{character}" if character.isascii() and not character.isalnum() else character + points


def _is_mark(character: str) -> bool:
    return unicodedata.combining(character) > 0 or character == _STROKE


def _is_made_of_letters(character: str) -> bool:
    """Whether it is a sign of its own (`ª`, `ﬆ`, `ǆ`) and no other form of one letter, as `µ` and the wide ones are."""
    how, *letters = unicodedata.decomposition(character).split() or [""]
    return how.startswith("<") and how != "<wide>" and not (how == "<compat>" and len(letters) == 1)


def _letter(base: str, also: str = "") -> str:
    """One letter in any of its forms, and the character that was typed when it is none of them."""
    forms = base + _variants().get(base, "")
    return f"[{forms}{also if also.lower() not in forms and also not in forms else ''}]{_MARKS}"
