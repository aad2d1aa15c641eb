"""The identifiers of a text, and which of a summary's identifiers its sources contain. Pure functions.

An identifier is what a reader would search for or act on and what a model must not invent: a path, a hash, a version,
a figure with its unit, a pull request, an address, a date, a name in quotes or in code formatting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: How many missing identifiers are kept with a summary.
MAX_MISSING = 50

_EXTENSIONS = (
    r"py|pyi|ts|tsx|js|jsx|mjs|json|jsonl|toml|ya?ml|md|sql|sh|html?|css|scss|go|rs|java|kt|c|cc|cpp|h|hpp|rb|php|cfg|ini"
    r"|lock|txt|csv|log|env|xml|svg|png|jpe?g|gif|pdf|db|sqlite|ipynb"
)
_UNITS = (
    r"ns|µs|ms|s|sec|secs|seconds?|min|mins|minutes?|hours?|h|days?|weeks?|%|B|kB|KB|KiB|MB|MiB|GB|GiB|TB|Hz|kHz|MHz|GHz"
    r"|px|pt|em|rem|dpi|fps|rows?|lines?|files?|tests?|tokens?|chars?|characters?|bytes?|°C|k|x|\u00d7|\u20ac|USD|EUR"
)

_PATTERNS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"```[^\n]*\n.*?```", re.DOTALL),
        (r"(?<!`)`([^`\n]{1,200})`(?!`)", 0),
        (r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`)\]}]+", re.IGNORECASE),
        (r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?", 0),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE),
        (r"(?<![\w.])(?:[A-Za-z]:\\|\\\\)[\w.\\ -]+[\w]", 0),
        (r"(?<![\w/.~@-])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?", 0),
        (r"(?<![\w/.~@-])(?:~|\.{1,2})/[\w.@+-]+", 0),
        (r"(?<![\w/.@+-])[\w@.+-]+(?:/[\w@.+-]+)+\.[A-Za-z]\w{0,7}\b", 0),
        (rf"(?<![\w/.-])[A-Za-z_][\w-]*(?:\.[\w-]+)*\.(?:{_EXTENSIONS})\b", 0),
        (r"(?<![\w.#-])[a-f0-9]{7,64}(?![\w-])", 0),
        (r"\b[A-Z][A-Z0-9]+-\d+\b", 0),
        (r"(?<![\w&])#\d+\b", 0),
        (rf"(?<![\w.,-])\d+(?:[.,]\d+)*\s?(?:{_UNITS})(?!\w)", 0),
        (r"(?<![\w.])v?\d+\.\d+(?:\.\d+)*(?:[-+](?:[A-Za-z]\w*)(?:\.\w+)*)?(?![\w])", 0),
        (r"(?<![\w.,:/-])\d{2,}(?:[.,]\d+)*(?![\w:/-])", 0),
        (r"(?<![\w`.])(?:[a-z0-9]+_)+[a-z0-9]+(?![\w])|(?<![\w`])[A-Z0-9]+(?:_[A-Z0-9]+)+(?!\w)", 0),
        (r"(?<![\w`])[a-z]+(?:[A-Z][a-z0-9]+)+(?!\w)|(?<![\w`])(?:[A-Z][a-z0-9]+){2,}(?!\w)", 0),
        (r"(?<![\w-])--[a-z][\w-]+", 0),
        (r"\"([^\"\n]{2,80})\"|\u201c([^\u201d\n]{2,80})\u201d", 0),
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

    The share is None for a summary without identifiers. Case and white space do not count; an identifier must stand
    as a word of its own, so that `12 ms` is not found in `112 ms`. At most `MAX_MISSING` missing ones are returned.
    """
    wanted = identifiers(summary)
    if not wanted:
        return None, []
    haystack = "\n".join(_flat(source) for source in sources)
    missing = [token for token in wanted if not _contains(haystack, _flat(token))]
    return (len(wanted) - len(missing)) / len(wanted), missing[:MAX_MISSING]


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


def _contains(haystack: str, needle: str) -> bool:
    start = haystack.find(needle)
    while start >= 0:
        end = start + len(needle)
        before = haystack[start - 1] if start else " "
        after = haystack[end] if end < len(haystack) else " "
        if not (_joins(before, needle[0]) or _joins(needle[-1], after)):
            return True
        start = haystack.find(needle, start + 1)
    return False


def _joins(left: str, right: str) -> bool:
    return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")
