"""Whether an answer is written in letters that its source hardly has. Pure functions over the scripts of Unicode.

Languages that share a script are not told apart, and code, addresses and identifiers do not count: they are the same in
every language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache

#: Fewer letters than this, in the answer or in the source, say nothing.
MIN_LETTERS = 20

#: A script is that of a text from this share of its letters on, and is foreign to a text below the other.
MOSTLY, HARDLY = 0.5, 0.05

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*+`|\b[a-z][a-z0-9+.-]{1,20}://[^\s<>]*+", re.DOTALL | re.IGNORECASE)
_ASCII_RUN = re.compile(r"[A-Za-z0-9_./\\:@#+~-]++")
_IDENTIFIER = re.compile(r"[0-9_/\\@]|[a-z][A-Z]|\w\.\w")


def wrong_language(answer: str, source: str) -> bool:
    """Whether most letters of the answer are of a script of which the source has almost none."""
    written, read = _scripts(answer), _scripts(source)
    if min(written.total(), read.total()) < MIN_LETTERS:
        return False
    script, most = written.most_common(1)[0]
    return most > MOSTLY * written.total() and read[script] < HARDLY * read.total()


def _scripts(text: str) -> Counter[str]:
    """How many letters of each script the prose of a text has."""
    prose = _ASCII_RUN.sub(_only_words, _CODE.sub(" ", text))
    found: Counter[str] = Counter()
    for letter, count in Counter(filter(str.isalpha, prose)).items():
        found[_script(letter)] += count
    return found


def _only_words(match: re.Match[str]) -> str:
    return "" if _IDENTIFIER.search(match.group()) else match.group()


@cache
def _script(letter: str) -> str:
    """The first word of the letter's name: LATIN, CYRILLIC, CJK, HANGUL, ARABIC …; both kinds of kana are one."""
    name = unicodedata.name(letter, "UNNAMED").split()[0]
    return "KANA" if name in {"HIRAGANA", "KATAKANA"} else name
