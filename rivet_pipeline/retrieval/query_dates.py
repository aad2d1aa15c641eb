"""The dates that a query names: `in August 2023`, `on 3 June`, `2022-05-01`, `between August 11 and August 15 2023`.

Times that are named from the present (`last week`) are read where there is no date (`relative_dates.py`).

What was said at such a time is likely to be meant, whatever words it used; `scoring.py` says by how much. A filter is
the caller's to set (`windows.py`); nothing here leaves a row out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.retrieval.relative_dates import relative_days

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
_MONTH += r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
#: Not the minutes or the hour of a clock (`10:30 June 5`, `May 3 - 10:30`).
_DAY = r"(?<![0-9]:)(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?\b(?!:[0-9])"
_THE_DAY = rf"(?:the\s+)?{_DAY}"
_YEAR = r"(?P<year>(?:19|20)[0-9]{2})\b"
_ALSO = "and|or|to|until"
_CLOCK = r"(?:T[0-9:.]+(?:Z|[+-][0-9:]+)?)?"
_FIRST = r"(?<![0-9]:)(?P<first>[0-3]?[0-9])(?:st|nd|rd|th)?"
_TO = r"(?:\s*[-\u2013]\s*|\s+(?:to|until)\s+"
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?"
_SOME_MONTH = _MONTH.replace("P<month>", ":")
_NO_MONTH = rf"(?!\s+(?:of\s+)?{_SOME_MONTH}|\s?[ap]\.?m\b)"

#: The spellings, the most exact first. A month alone must stand behind a word of time (or another date and `and`) and
#: be written with a capital.
_SPELLINGS = tuple(
    re.compile(pattern, flags | re.ASCII)
    for pattern, flags in (
        (
            rf"(?<![\w./-]){_YEAR}(?P<sep>[-/])(?P<number>[01]?[0-9])(?:(?P=sep)(?P<day>[0-3]?[0-9]){_CLOCK})?(?![\w/-])",
            0,
        ),
        # Two days of one month.
        (rf"\b{_FIRST}{_TO}|\s+and\s+){_THE_DAY}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?", re.IGNORECASE),
        (
            rf"\b(?P<between>between\s+)?{_MONTH}\s+{_FIRST}{_TO}|(?(between)\s+and\s+|(?!))){_THE_DAY}{_NO_MONTH}(?:,?\s+{_YEAR})?",
            re.IGNORECASE,
        ),
        (rf"\b{_DAY}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?", re.IGNORECASE),
        (rf"\b{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?", re.IGNORECASE),
        (rf"\b{_MONTH}(?:,|\s+of)?\s+{_YEAR}", re.IGNORECASE),
        (
            rf"\b(?i:in|of|during|since|by|this|early|late|mid|last|between|from|(?P<also>{_ALSO}))[\s-]+(?=[A-Z])(?i:{_MONTH})",
            0,
        ),
    )
)
#: Words too, when they are written small and no year says otherwise.
_WORDS = ("may", "mar", "march")
#: What stands right before a date that is the end of a time, which began nobody knows when (`before 6 October`). But
#: who asks for the week before a date means one that was spoken of then.
_ENDS = re.compile(
    r"(?P<unit>\b(?:week|weekend|night|evening|morning|month|year|(?:mon|tues|wednes|thurs|fri|satur|sun)?day)s?\s+)?"
    r"\b(?:before|until|till|prior\s+to|up\s+to|earlier\s+than)\s+"
    rf"(?:(?:the|{_WEEKDAY})[\s,]+)*\Z",
    re.IGNORECASE,
)
_LOOKED_BACK = 80
_ENDING_MONTH = re.compile(rf"\b{_MONTH}\s+\Z", re.IGNORECASE)
_LONE_YEAR = re.compile(rf"\b{_YEAR}")
#: The beginning of a time: a day, a month or a year stands behind it (`from Anna` is none).
_SPAN = re.compile(
    r"\b(?:between|from)\s+(?:(?:the|this|last|early|late|mid|about|around|(?:beginning|start|middle|end)\s+of"
    rf"|(?:(?:first|second|third)\s+)?(?:week(?:end)?|half)\s+of|{_WEEKDAY})(?!\w)[\s,-]*)*"
    rf"(?:(?:19|20)[0-9]{{2}}\b|{_SOME_MONTH}|[0-3]?[0-9](?:(?:st|nd|rd|th)\b|(?:\s+of)?\s+{_SOME_MONTH}))",
    re.IGNORECASE,
)
_THIS = re.compile(r"\bthis\s+(?:(?:early|late|mid)[\s-]+)?\Z", re.IGNORECASE)

#: Days are those of UTC here and somebody's own in the query; what was said a day aside may be of the same day.
_ASIDE = timedelta(days=1)

#: Two dates without a year, the later one of which is still to come (`from 3 June to 5 June` on 4 June), begin less
#: than this apart: any three months.
_SOON = timedelta(days=93)

#: Leap years are four years apart, and eight around most turns of a century.
_LEAP_YEARS_APART = 8

#: How many times of one query count.
MOST_TIMES = 3

#: Words that ask what there was at a time and not of what. Texts of that time that hold them still come first.
_ASKING = re.compile(
    r"\b(?:happen(?:s|ed|ing)?|occur(?:s|red)?|go(?:es|ing)?|went|c[oa]me|chang(?:e[sd]?|ing)|news?|busy|done"
    r"|work(?:s|ed|ing)?|discuss(?:e[sd]|ing|ions?)?|talk(?:s|ed|ing)?|sp[eo]ken?|sa(?:y|ys|id)|t[eo]ll?d?"
    r"|chat(?:s|ted|ting)?|mention(?:s|ed)?|decid(?:e[sd]?|ing)|decisions?|learn(?:s|ed|t)?"
    r"|conversations?|sessions?|messages?|memor(?:y|ies)|notes?|activit(?:y|ies)|summar(?:y|ies|i[sz]e)|recap|overview"
    r"|list|show|give|find|get|look|recall|remember|remind|please|anything|something|everything|things?|stuff)\b",
    re.IGNORECASE,
)

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` to `end` (exclusive), both aware."""

    start: datetime
    end: datetime


class Named(NamedTuple):
    """A time that a query names, and where in it the words stand that do."""

    period: Period
    start: int
    end: int


class Times(NamedTuple):
    """The times that a query names: dates, or, where there is none, such as are named from the present."""

    dates: tuple[Named, ...] = ()
    from_present: tuple[Named, ...] = ()


def without(query: str, named: Sequence[Named]) -> str:
    """A query without the words that name some times: who asks what was said then does not look for these."""
    for one in reversed(named):
        query = f"{query[: one.start]} {query[one.end :]}"
    return query


def without_asking(query: str) -> str:
    """A query without the words that ask what there was at a time and do not say of what: `what happened`.

    Words that are too common to be looked for (`what`, `did`, `we`) stay.
    """
    return _ASKING.sub(" ", query)


def read_times(query: str, now: datetime) -> Times:
    """The times that a query names; most name none.

    Dates are a day wider on both sides than they are in UTC. One without a year is that of a year named elsewhere in
    the query, else the last one that has begun by `now`; `this December` is that of this year. Two dates behind
    `between` or `from` are one period, and so are two days of a month (`3-5 June`); the first says which year. A date
    that does not exist is none, neither is one to come, at which nothing was said yet, nor one that ends a time without
    a beginning (`until 3 June`). At most three count, the first ones.

    Times named from the present (`last week`) are in days of the zone of `now`; they are all there, in the order of the
    query, and may be the same ones.
    """
    dates = _read_dates(query, now)
    if dates:
        return Times(dates=tuple(one for one in dates if one.period.start <= now))
    return Times(
        from_present=tuple(
            Named(Period(one.first.astimezone(UTC), (one.last + timedelta(days=1)).astimezone(UTC)), one.start, one.end)
            for one in relative_days(query, now)
            if not _ENDS.search(query[max(0, one.start - _LOOKED_BACK) : one.start])
        )
    )


def _read_dates(query: str, now: datetime) -> list[Named]:
    found: list[tuple[re.Match[str], Period]] = []
    taken = [False] * len(query)
    lone = _LONE_YEAR.search(query)
    for pattern in _SPELLINGS:
        for match in pattern.finditer(query):
            if any(taken[match.start() : match.end()]) or _is_no_date(match, bool(found)):
                continue
            before = query[max(0, match.start() - _LOOKED_BACK) : match.start()]
            if match.groupdict().get("first") and _ENDING_MONTH.search(before):
                continue
            period = _period(match, now, int(lone["year"]) if lone else None)
            if period is None:
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            if found or _SPAN.search(before) or not _is_end(before):
                found.append((match, period))
    found = sorted(found, key=lambda one: one[0].start())[:MOST_TIMES]
    named = [Named(period, *match.span()) for match, period in found]
    if len(named) == 2 and _SPAN.search(query):
        first, second = named
        coming = [] if lone else _coming(found[1][0], first.period, now)
        joined = _joined(first.period, [second.period, *coming])
        return [Named(period, first.start, second.end) for period in joined] or named
    return named


def _coming(match: re.Match[str], first: Period, now: datetime) -> list[Period]:
    """The date in the year of the first and in the next, when it is soon after the first."""
    year = (first.start + _ASIDE).year
    periods = (_period(match, now, one) for one in (year, year + 1))
    return [period for period in periods if period is not None and period.start < first.start + _SOON]


def _joined(first: Period, lasts: Sequence[Period]) -> list[Period]:
    """The time from the first to the earliest named of `lasts` that begins after it; none when none does."""
    return [Period(first.start, last.end) for last in lasts if first.start < last.start][:1]


def _is_no_date(match: re.Match[str], is_further: bool) -> bool:
    parts = match.groupdict()
    return (parts.get("also") is not None and not is_further) or (
        parts.get("month") in _WORDS and parts.get("year") is None
    )


def _is_end(before: str) -> bool:
    found = _ENDS.search(before)
    return found is not None and found["unit"] is None


def _period(match: re.Match[str], now: datetime, year: int | None) -> Period | None:
    parts = match.groupdict()
    month = int(parts["number"]) if parts.get("number") else _MONTHS.index(parts["month"][:3].lower()) + 1
    day = int(parts["day"]) if parts.get("day") else None
    if parts.get("year"):
        year = int(parts["year"])
    elif parts.get("month") and _THIS.search(match.string, 0, match.start("month")):
        year = now.year
    if day is None:
        start = _start(year, month, 1, 1, now)
        return None if start is None else Period(start - _ASIDE, (start + timedelta(days=31)).replace(day=1) + _ASIDE)
    first = int(parts["first"]) if parts.get("first") else day
    start = _start(year, month, first, day, now)
    if start is None or (parts.get("first") and first >= day):
        return None
    return Period(start - _ASIDE, start.replace(day=day) + 2 * _ASIDE)


def _start(year: int | None, month: int, first: int, last: int, now: datetime) -> datetime | None:
    """The first of two days in that year, without one in the last year that has both and has come to the first.

    None when there is none.
    """
    for one in range(now.year, now.year - _LEAP_YEARS_APART - 1, -1) if year is None else (year,):
        try:
            start = datetime(one, month, first, tzinfo=UTC)
            start.replace(day=last)
        except ValueError:
            continue
        if year is not None or start <= now:
            return start
    return None


def shares_of_time(periods: Sequence[Period], at: NDArray[np.int64], fades_days: float) -> NDArray[np.float64]:
    """How well moments (microseconds since 1970, UTC) fit the nearest of the periods: 1 within, 0 before, fading after.

    What happened is told afterwards rather than before, half as likely with each `fades_days`; the day after a period
    counts as one day after it from its first moment.
    """
    shares = np.zeros(len(at))
    for period in periods:
        start, end = ((moment - _EPOCH) // _MICROSECOND for moment in (period.start, period.end))
        days = np.where(at < end, 0.0, (at - end) / 86_400e6 + 1)
        shares = np.maximum(shares, np.where(at < start, 0.0, 0.5 ** (days / fades_days)))
    return shares
