"""Which identifiers of a summary its sources contain, and which sources left something in it. Pure functions.

An identifier is what a reader would search for or act on and what a model must not invent: a path, a hash, a version,
a figure with its unit, a pull request, an address, a date, a name in quotes or in code formatting. How a source may
write the same identifier differently stands in `spellings.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rivet_pipeline.summaries.signals import STOP_WORDS
from rivet_pipeline.summaries.spellings import Spellings

#: How many missing identifiers are kept with a summary.
MAX_MISSING = 50

_EXTENSIONS = (
    r"py|pyi|ts|tsx|js|jsx|mjs|json|jsonl|toml|ya?ml|md|sql|sh|html?|css|scss|go|rs|java|kt|c|cc|cpp|h|hpp|rb|php|cfg|ini"
    r"|lock|txt|csv|log|env|xml|svg|png|jpe?g|gif|pdf|db|sqlite|ipynb"
)
_UNITS = (
    r"ns|µs|ms|s|sec|secs|seconds?|min|mins|minutes?|hours?|hrs?|h|days?|weeks?|months?|years?|%|percent|B|kB|KB|KiB|MB|MiB|GB|GiB|TB|Hz|kHz|MHz|GHz"
    r"|mm|cm|m|km|kg|kW|px|pt|em|rem|dpi|fps|rows?|lines?|files?|tests?|tokens?|chars?|characters?|bytes?|°C|k|x|\u00d7|\u20ac|USD|EUR"
)

_MONTH = (
    r"(?:Jan(?:uary?)?|Feb(?:ruary?)?|Mar(?:ch)?|März|Mär|Apr(?:il)?|May|Mai|June?|Juni|July?|Juli|Aug(?:ust)?"
    r"|Sept?(?:ember)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)\b\.?"
)
_HALF_DAY = r"(?:[ap]m\b|[ap]\.m\.)"
_CLOCK = (
    r"(?<![\w.:/+])(?<![CT]-)(?:(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-5]\d)?"
    rf"(?:\s?{_HALF_DAY})?|(?:0?[1-9]|1[0-2])\s?{_HALF_DAY})(?![\w:/]|\.\d)"
)
_DOMAINS = "com|org|net|io|dev|app|ai|edu|gov|info|local|lan|internal|de|eu|uk|fr|ch|at|nl|no|se"
#: Two words and more with capitals behind one without, or one behind a title. A heading, the beginning of a sentence
#: and a German noun have capitals too, and are no names.
_NAME = (
    r"\b[a-zà-ÿ]{2,},? ([A-Z][a-zà-ÿ]+(?: [A-Z](?:\.|[a-zà-ÿ]+\b|\b(?!['\u2019\w])))+)"
    r"|\b(?:Mrs?|Ms|Dr|Prof|Herrn?|Frau)\.? [A-Z][a-zà-ÿ]+"
)

_PATTERNS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"```[^\n]*\n.*?```", re.DOTALL),
        (r"(?<!`)`([^`\n]{1,200})`(?!`)", 0),
        (r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`)\]}]+", re.IGNORECASE),
        (r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?", 0),
        (rf"(?<![\w.])\d{{1,2}}(?:st|nd|rd|th|\.)?(?: of)? {_MONTH}(?:,? \d{{4}}\b)?", 0),
        (rf"\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:,? \d{{4}}\b)?", 0),
        (rf"\b{_MONTH} \d{{4}}\b", 0),
        (_CLOCK, re.IGNORECASE),
        (r"(?<![\w.:/+-])(?:19|20)\d\d(?:-\d{1,2}-|/\d{1,2}/)\d{1,2}(?![\w/-])", 0),
        (r"(?<![\w.:/+-])\d{1,2}(?:\.\d{1,2}\.|/\d{1,2}/)(?:19|20)\d\d(?![\w/-]|\.\d)", 0),
        (r"(?<![\w.:/+-])(?:19|20)\d\d-\d\d(?![\w-])", 0),
        (rf"(?<![\w/.@+-])(?:[\w.+-]+@)?(?:[A-Za-z\d-]+\.)+(?:{_DOMAINS})\b(?![\w(-]|\.\w)", 0),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE),
        (r"(?<![\w.])(?:[A-Za-z]:\\|\\\\)[\w.\\ -]+[\w]", 0),
        (r"(?<![\w/.~@-])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?", 0),
        (r"(?<![\w/.~@-])(?:~|\.{1,2})/[\w.@+-]+", 0),
        (r"(?<![\w/.@+-])[\w@.+-]+(?:/[\w@.+-]+)+\.[A-Za-z]\w{0,7}\b", 0),
        (rf"(?<![\w/.-])[A-Za-z_][\w-]*(?:\.[\w-]+)*\.(?:{_EXTENSIONS})\b", 0),
        (r"(?<![\w.#-])[a-f0-9]{7,64}(?![\w-])", 0),
        (r"\b[A-Z][A-Z0-9]+-\d+\b", 0),
        (r"(?<![\w&])#\d+\b", 0),
        (r"\b(?:PRs?|MRs?|pull requests?|merge requests?|issues?|tickets?)[ ]\d+\b(?![.,:/-]\d)", re.IGNORECASE),
        (rf"(?<![\w.,-])\d+(?:[.,]\d+)*\s?(?:{_UNITS})(?!\w)", 0),
        (r"(?<![\w.])v?\d+\.\d+(?:\.\d+)*(?:[-+](?:[A-Za-z]\w*)(?:\.\w+)*)?(?![\w])", 0),
        (r"(?<![\w.,:/-])(?:\d{2,}|\d(?=,\d{3}\b))(?:[.,]\d+)*(?![\w:/-])", 0),
        (r"(?<![\w`.])(?:[a-z0-9]+_)+[a-z0-9]+(?![\w])|(?<![\w`])[A-Z0-9]+(?:_[A-Z0-9]+)+(?!\w)", 0),
        (r"(?<![\w`])[a-z]+(?:[A-Z][a-z0-9]+)+(?!\w)|(?<![\w`])(?:[A-Z][a-z0-9]+){2,}(?!\w)", 0),
        (r"(?<![\w-])--[a-z][\w-]+", 0),
        (r"\"([^\"\n\u2192]{2,240})\"|[\u201c\u201e]([^\u201c\u201d\n]{2,240})[\u201c\u201d]", 0),
        (r"\u00bb([^\u00ab\n]{2,240})\u00ab|\u00ab([^\u00bb\n]{2,240})\u00bb|\u300c([^\u300d\n]{2,240})\u300d", 0),
        (r"(?<!\w)'([^'\n\u2192]{2,80})'(?!\w)|(?<!\w)\u2018([^\u2019\n]{2,80})\u2019(?!\w)", 0),
        (_NAME, 0),
    )
)
_EDGES = ".,;:!?)]}>\"'"
_WORD = re.compile(r"\w")


def identifiers(text: str) -> list[str]:
    """The distinct identifiers of a text in the order of their first appearance, as they are written there."""
    found: dict[str, int] = {}
    taken = bytearray(len(text))
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(taken[start:end]):
                continue
            whole = match.group(0)
            if whole.startswith("```"):
                # Code blocks are quoted text: their own identifiers are found by the patterns below.
                continue
            taken[start:end] = b"\x01" * (end - start)
            token = next((group for group in match.groups() if group), whole).strip().rstrip(_EDGES)
            if _is_identifier(token):
                found.setdefault(token, start)
    return sorted(found, key=lambda token: (found[token], token))


def _is_identifier(token: str) -> bool:
    if len(token) < 2 or _WORD.search(token) is None:
        return False
    is_hex = re.fullmatch(r"[a-f0-9]{7,64}", token) is not None
    # "defaced" and "1000000" are hexadecimal too; a hash has letters and digits.
    return not is_hex or token.isdigit() or (any(c.isdigit() for c in token) and any(c.isalpha() for c in token))


def ground(summary: str, sources: Sequence[str]) -> tuple[float | None, list[str]]:
    """The share of the summary's identifiers that a source contains, 0 to 1, and those that none contains.

    The share is None for a summary without identifiers. An identifier must stand as a word of its own, so that `12 ms`
    is not found in `112 ms`; how it may be written stands at `Spellings`. At most `MAX_MISSING` missing ones are
    returned.
    """
    wanted = identifiers(summary)
    if not wanted:
        return None, []
    spellings = Spellings(sources)
    missing = [token for token in wanted if not spellings.contain(token)]
    return (len(wanted) - len(missing)) / len(wanted), missing[:MAX_MISSING]


# --- coverage -------------------------------------------------------------------------------------------------------

_TELLING_LENGTH = 4
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W_]+", re.UNICODE)


def telling_words(text: str) -> set[str]:
    """What of a text could be recognised in a summary of it, folded to lower case.

    Words of four letters or figures and more that are no stop words; of scripts without spaces each pair of signs.
    The parts of an identifier are words as well.
    """
    words: set[str] = set()
    for match in _WORDS.finditer(text):
        word = match.group().casefold()
        if word[0] >= "\u3040":
            words.update(word[place : place + 2] for place in range(len(word) - 1))
        elif len(word) >= _TELLING_LENGTH and word not in STOP_WORDS:
            words.add(word)
    return words


def covered(summary: str, sources: Sequence[str]) -> list[bool | None]:
    """For each source whether the summary holds one of its own words, those that no other source has.

    None where a source has no such word: nothing can be said of it then.
    """
    each = [telling_words(source) for source in sources]
    holders = Counter(word for words in each for word in words)
    told = telling_words(summary)
    own = [{word for word in words if holders[word] == 1} for words in each]
    return [not told.isdisjoint(words) if words else None for words in own]
