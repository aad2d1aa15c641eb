"""Whether texts contain an identifier, in any of the ways in which the same one is written. Pure functions.

What an identifier is stands in `grounding.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property

#: Each unit and how else it is written.
_UNITS = {
    "ms": "millisecond milliseconds msec",
    "s": "sec secs second seconds",
    "min": "mins minute minutes",
    "h": "hour hours hr hrs",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years",
    "%": "percent",
    "byte": "bytes b",
    "row": "rows",
    "line": "lines",
    "file": "files",
    "test": "tests",
    "token": "tokens",
    "char": "chars character characters",
}
_AS_WRITTEN = "ns µs kb mb gb tb kib mib gib hz khz mhz ghz px pt em rem dpi fps k x mm cm m km kg kw usd eur"
_UNIT_OF = {unit: unit for unit in re.split(" ", _AS_WRITTEN)} | {
    form: unit for unit, forms in _UNITS.items() for form in (unit, *forms.split())
}

#: A figure of thousands in groups: a comma, an apostrophe or a space of any kind between them.
_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:[,'\u2019 \u00a0\u202f]\d{3})+(?![\d])")
_WITH_UNIT = re.compile(r"(\d)[\s-]?(%|[a-z]+)(?![^\W\d_])")
_FIGURE = re.compile(r"\d[\d.]*(?:%|[a-z]+)?")

_REFERENCE = re.compile(
    r"(?:(?:\b(?:prs?|mrs?|gh|pull requests?|merge requests?|issues?|tickets?|pull|issue|bug)[ ./-]{0,2}"
    r"(?:no\.? ?|nr\.? ?|number )?[#!]?|(?<![\w&])[#!]|/(?:pulls?|issues|merge_requests)/))(\d+)\b"
)
_REFERENCE_TOKEN = re.compile(r"(?:#|(?:prs?|mrs?|pull requests?|merge requests?|issues?|tickets?) )(\d+)")

#: The first three letters of each month, English and where it differs German.
_MONTH_OF = {
    "jan": 1, "feb": 2, "mar": 3, "mär": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9,
    "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12,
}  # fmt: skip
_MONTH = rf"({'|'.join(_MONTH_OF)})[a-z]{{0,6}}\.?"
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of)? {_MONTH}(?:,? (\d{{4}}))?\b")
_MONTH_FIRST = re.compile(rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?\b")
_ISO = re.compile(
    r"(?<!\d)(\d{4}-\d{2}-\d{2})(?:[t ](\d{2}:\d{2})(?::\d{2}(?:\.\d+)?)?\s?(z|utc|[+-]\d{2}:?\d{2})?)?(?!\d)"
)

_MONTH_AND_YEAR = re.compile(rf"\b{_MONTH} (\d{{4}})\b")
#: Days in figures of other forms: 2026/9/3, 3.9.2026 and 3.9. as German has them, 3/9/2026 that may be 9/3/2026.
_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?!\d)")
_DOTTED = re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(?:\s?(\d{4}))?(?!\d)")
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4})(?!\d)")
#: 3/Sep/2026 as logs have it, 20260903 as names of files do.
_LOGGED = re.compile(rf"(?<!\d)(\d{{1,2}})[/-]{_MONTH}[/-](\d{{4}})(?!\d)")
_COMPACT = re.compile(r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")

#: A time of day, on its own or behind a date.
_CLOCK = re.compile(r"(?<![\d:.])(\d{1,2}):(\d{2})(:\d{2})?(?!\d)(?:[.,]\d+)?\s?([ap]m\b|[ap]\.m\b\.?)?")
_FULL_HOUR = re.compile(r"(?<![\d:.])(\d{1,2})\s?([ap]m\b|[ap]\.m\b\.?|uhr\b(?! \d)|o'clock\b)")

_VERSION = re.compile(r"v\d+(?:\.\d+)+(?:[-+.\w]*)?")
_HEXADECIMAL = re.compile(r"(?=.*\d)(?=.*[a-f])[a-f0-9]{7,63}")
#: Stands for the year of a day that is named without one.
_ANY_YEAR = "0000"

_CAPITAL_WORDS = re.compile(r"[A-Z][a-zà-ÿ]+\.?(?: [A-Z](?:\.|[a-zà-ÿ]*))+")
_TITLES = frozenset({"mr", "mrs", "ms", "dr", "prof", "herr", "herrn", "frau"})

_ELLIPSIS = re.compile(r"\s*(?:…|\.\.\.)\s*")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")


def flat(text: str) -> str:
    """A text in lower case with single spaces and plain quotes, without code formatting, bold type and colours."""
    return " ".join(_PLAIN.sub("", text).translate(_QUOTES).split()).casefold()


_PLAIN = re.compile(r"`+|\*\*|\x1b\[[0-9;?]*[A-Za-z]")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u201e\u00bb\u00ab\u2013\u00a0\u202f", '\'\'"""""-  ')


class Spellings:
    """Some texts, ready to be asked for identifiers."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._flat = "\n".join(map(flat, texts))

    def contain(self, identifier: str) -> bool:
        """Whether a text holds the identifier as a word of its own, as it is or in another spelling of the same.

        The same are: other case, white space, quotes or code formatting; a figure with or without separators of
        thousands, its unit spelt out, abbreviated or set apart; a pull request or issue as `#7`, `PR 7`, `GH-7` or the
        end of an address; a date alone or as part of a time, in ISO form or in English or German words; a time to the
        minute with or without seconds, or in another offset; a month of a year that a date is in; a time of day in
        twelve or twenty-four hours, alone or behind a date; a name of several words, one by one; a version with or
        without its `v`; the beginning of a hash; an address with or without a slash at its end; a quotation with `…`
        in it, piece by piece.
        """
        token = flat(identifier)
        return (
            self._holds(token)
            or self._as_name(identifier)
            or any(
                asked(token)
                for asked in (
                    self._as_figure,
                    self._as_reference,
                    self._as_moment,
                    self._as_month,
                    self._as_day,
                    self._as_clock,
                    self._as_version,
                    self._as_hash,
                    self._as_address,
                    self._as_quotation,
                )
            )
        )

    def _holds(self, token: str) -> bool:
        return bool(token) and _contains(self._flat, token)

    def _as_name(self, identifier: str) -> bool:
        """A name of several words is held when each, without titles and initials, begins a word of the texts."""
        words = [word for word in re.findall(r"[^\W\d_]{2,}", identifier) if word.casefold() not in _TITLES]
        named = _CAPITAL_WORDS.fullmatch(identifier) is not None and bool(words)
        folded = [word.casefold() for word in words]
        # A search for a substring is some hundred times as quick as one for the beginning of a word.
        return (
            named
            and all(word in self._flat for word in folded)
            and all(re.search(rf"(?<![^\W\d_]){word}", self._flat) for word in folded)
        )

    def _as_figure(self, token: str) -> bool:
        figure = _figures(token)
        return _FIGURE.fullmatch(figure) is not None and _contains(self._figures, figure)

    @cached_property
    def _figures(self) -> str:
        return _figures(self._flat)

    def _as_reference(self, token: str) -> bool:
        match = _REFERENCE_TOKEN.fullmatch(token)
        return match is not None and match.group(1) in self._references

    @cached_property
    def _references(self) -> set[str]:
        return set(_REFERENCE.findall(self._flat))

    def _as_moment(self, token: str) -> bool:
        match = _ISO.fullmatch(token)
        return match is not None and not _moments([match]).isdisjoint(self._moments)

    @cached_property
    def _moments(self) -> set[str]:
        found = list(_ISO.finditer(self._flat))
        days = {match.group(1) for match in found}
        # A date in words without its year is of one of the years that the texts speak of.
        years = {day[:4] for day in days} | set(re.findall(r"\b20\d\d\b", self._flat))
        return _moments(found) | days | set(_days_in_words(self._flat, years))

    def _as_month(self, token: str) -> bool:
        """A month of a year is any day in it."""
        match = _MONTH_AND_YEAR.fullmatch(token)
        month = f"{match.group(2)}-{_MONTH_OF[match.group(1)]:02d}" if match else token
        return re.fullmatch(r"\d{4}-\d\d", month) is not None and any(day.startswith(month) for day in self._days)

    def _as_day(self, token: str) -> bool:
        """A date in another form than ISO's; without its year it is any such day that the texts name."""
        if _DAY_FIRST.fullmatch(token) or _MONTH_FIRST.fullmatch(token):
            return any(map(self._has_day, _days_in_words(token, {_ANY_YEAR})))
        forms = (_YEAR_FIRST, _DOTTED, _SLASHED)
        return any(form.fullmatch(token) for form in forms) and any(map(self._has_day, _days_in_figures(token)))

    def _has_day(self, stated: str) -> bool:
        year, _, day = stated.partition("-")
        years = {year, _ANY_YEAR} if year != _ANY_YEAR else {known[:4] for known in self._days}
        return any(f"{one}-{day}" in self._days for one in years)

    @cached_property
    def _days(self) -> set[str]:
        """Each day that the texts name, in ISO form, with `_ANY_YEAR` where none is stated."""
        days = {moment[:10] for moment in self._moments}
        days |= set(_days_in_words(self._flat, {_ANY_YEAR}))
        days |= set(_days_in_figures(self._flat))
        for day, name, year in _LOGGED.findall(self._flat):
            days.add(f"{year}-{_MONTH_OF[name]:02d}-{int(day):02d}")
        return days | {"-".join(found) for found in _COMPACT.findall(self._flat)}

    def _as_clock(self, token: str) -> bool:
        match, hour = _CLOCK.fullmatch(token), _FULL_HOUR.fullmatch(token)
        times = _times_of_day(match) if match else _hours(hour.group(1), hour.group(2), ":00") if hour else set()
        return not times.isdisjoint(self._clocks)

    @cached_property
    def _clocks(self) -> set[str]:
        clocks = {time for match in _CLOCK.finditer(self._flat) for time in _times_of_day(match)}
        clocks |= {moment[11:] for moment in self._moments}
        for hour, half in _FULL_HOUR.findall(self._flat):
            clocks |= _hours(hour, half, ":00")
        return clocks

    def _as_version(self, token: str) -> bool:
        if _VERSION.fullmatch(token):
            return self._holds(token[1:])
        return _VERSION.fullmatch(f"v{token}") is not None and self._holds(f"v{token}")

    def _as_hash(self, token: str) -> bool:
        if _HEXADECIMAL.fullmatch(token) is None:
            return False
        return re.search(rf"(?<![^\W_]){token}[a-f0-9]*(?![^\W_])", self._flat) is not None

    def _as_address(self, token: str) -> bool:
        return _ADDRESS.match(token) is not None and self._holds(token.rstrip("/"))

    def _as_quotation(self, token: str) -> bool:
        pieces = [piece for piece in _ELLIPSIS.split(token) if len(piece) > 1]
        return _ELLIPSIS.search(token) is not None and bool(pieces) and all(piece in self._flat for piece in pieces)


def _figures(text: str) -> str:
    """A flat text with its figures in one form: no separators of thousands, the unit short and right behind."""
    plain = _GROUPS.sub(lambda match: re.sub(r"\D", "", match.group()), text)
    return _WITH_UNIT.sub(
        lambda match: match.group(1) + _UNIT_OF[match.group(2)] if match.group(2) in _UNIT_OF else match.group(), plain
    )


def _moments(found: Iterable[re.Match[str]]) -> set[str]:
    """Each match of `_ISO` as a day, or as a minute: as it is written, and in UTC where it states its offset."""
    moments: set[str] = set()
    for match in found:
        day, minute, offset = match.groups()
        if minute is None:
            moments.add(day)
            continue
        moments.add(f"{day} {minute}")
        if offset and offset not in {"z", "utc"}:
            try:
                moment = datetime.fromisoformat(f"{day}T{minute}{offset}")
            except ValueError:
                continue
            moments.add(moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M"))
    return moments


def _days_in_words(text: str, years: set[str]) -> Iterable[str]:
    dates = [(day, month, year) for day, month, year in _DAY_FIRST.findall(text)]
    dates += [(day, month, year) for month, day, year in _MONTH_FIRST.findall(text)]
    for day, month, stated in dates:
        for year in [stated] if stated else years:
            yield f"{year}-{_MONTH_OF[month]:02d}-{int(day):02d}"


def _days_in_figures(text: str) -> Iterable[str]:
    dates = [(year, month, day) for year, _, month, day in _YEAR_FIRST.findall(text)]
    dates += [(year or _ANY_YEAR, month, day) for day, month, year in _DOTTED.findall(text)]
    for one, other, year in _SLASHED.findall(text):
        dates += [(year, one, other), (year, other, one)]
    for year, month, day in dates:
        yield f"{year}-{int(month):02d}-{int(day):02d}"


def _times_of_day(match: re.Match[str]) -> set[str]:
    """A match of `_CLOCK` in 24 hours; with its seconds, and behind a text that has them also without."""
    hour, minute, seconds, half = match.groups()
    times = _hours(hour, half or "", f":{minute}{seconds or ''}")
    # Only a text is searched for times; a token that states seconds matches as a whole.
    return times | (_hours(hour, half or "", f":{minute}") if seconds and match.end() < len(match.string) else set())


def _hours(hour: str, half: str, rest: str) -> set[str]:
    """The time in 24 hours. `7:30` without a word for its half of the day may be of either, `07:30` is of one."""
    number = int(hour)
    if half.startswith("a"):
        return {f"{number % 12:02d}{rest}"}
    if half.startswith("p"):
        return {f"{number % 12 + 12:02d}{rest}"}
    either = len(hour) == 1 and number > 0
    return {f"{number:02d}{rest}"} | ({f"{number + 12:02d}{rest}"} if either else set())


def _contains(haystack: str, needle: str) -> bool:
    start = haystack.find(needle)
    while start >= 0:
        end = start + len(needle)
        before = haystack[start - 1] if start else " "
        after = haystack[end] if end < len(haystack) else " "
        # "5433" is no part of "1.5433"; "17" is one of "17.6".
        decimals = needle[0].isdigit() and before in ".," and start > 1 and haystack[start - 2].isdigit()
        if not (decimals or _joins(before, needle[0]) or _joins(needle[-1], after)):
            return True
        start = haystack.find(needle, start + 1)
    return False


def _joins(left: str, right: str) -> bool:
    return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")
