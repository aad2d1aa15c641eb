"""The dates that a query names: `in August 2023`, `on 3 June`, `2022-05-01`, `between August 11 and August 15 2023`.

Beside them times that are named from the present (`last week`, `relative_dates.py`).

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

from rivet_pipeline.retrieval.relative_dates import relative_times

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
    r"\b(?:before|until|till|prior\s+to|up\s+to|(?:earlier|older)\s+than)\s+"
    rf"(?:(?:the|{_WEEKDAY})[\s,]+)*\Z",
    re.IGNORECASE,
)
_LOOKED_BACK = 80
_SINCE = re.compile(rf"\bsince\s+(?:(?:the|about|around|early|mid|late|{_WEEKDAY})[\s,-]+)*\Z", re.IGNORECASE)
_ENDING_MONTH = re.compile(rf"\b{_MONTH}\s+\Z", re.IGNORECASE)
_LONE_YEAR = re.compile(rf"\b{_YEAR}")
#: The beginning of a time: a day, a month or a year stands behind it (`from Anna` is none).
_SPAN = re.compile(
    r"\b(?:between|from)\s+(?:(?:the|this|last|early|late|mid|about|around|(?:beginning|start|middle|end)\s+of"
    rf"|(?:(?:first|second|third)\s+)?(?:week(?:end)?|half)\s+of|{_WEEKDAY})(?!\w)[\s,-]*)*"
    rf"(?:(?:19|20)[0-9]{{2}}\b|{_SOME_MONTH}|[0-3]?[0-9](?:(?:st|nd|rd|th)\b|(?:\s+of)?\s+{_SOME_MONTH}))",
    re.IGNORECASE,
)
#: The year of a date.
_IN_LAST_YEAR = re.compile(r"(?<=[\w,.])\s+(?:(?:in|of)\s+)?last\s+year\b(?!['\u2019])", re.IGNORECASE)
_LAST = re.compile(r"\blast\s+\Z", re.IGNORECASE)
_THIS = re.compile(r"\bthis\s+(?:(?:early|late|mid)[\s-]+)?\Z", re.IGNORECASE)

#: Days are those of UTC here and somebody's own in the query; what was said a day aside may be of the same day.
_ASIDE = timedelta(days=1)

#: Two dates without a year, the later one of which is still to come (`from 3 June to 5 June` on 4 June), begin less
#: than this apart: any three months.
_SOON = timedelta(days=93)

#: Leap years are four years apart, and eight around most turns of a century.
_LEAP_YEARS_APART = 8

#: Between quotation marks or in code.
_QUOTED = re.compile(
    r"\"[^\"]*\"|`[^`]*`|\u201c[^\u201c\u201d]*\u201d|\u201e[^\u201c-\u201e]*[\u201c\u201d]"
    r"|\u00ab[^\u00ab\u00bb]*\u00bb|\u2039[^\u2039\u203a]*\u203a|(?<!\w)'[^']+'(?!\w)|(?<!\w)\u2018[^\u2018]+\u2019(?!\w)"
    r"|\{[^{}]*\}?|\[[^][]*\]|(?<=\w)\([^()]*\)?"
)

#: Blanks that a pasted text may have, each one sign.
_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ")

#: What makes two times the ends of one: what stands before the first and between them; and one that goes on.
_BEGINS = re.compile(r"\b(?:between|from)\s+\Z", re.IGNORECASE | re.ASCII)
_JOINS = re.compile(
    r"\s*(?:[-\u2013]|\b(?:and|to|until|till|through|up\s+to)\b)\s*(?:the\s+)?", re.IGNORECASE | re.ASCII
)
_NOW = r"(?:today|now|tonight|this\s+(?:morning|afternoon|evening|week|weekend|month|year))"
_UNTIL_NOW = re.compile(
    rf"\s*(?:(?:[-\u2013]|\b(?:to|until|till|through|up\s+to)\b)\s*{_NOW}|\bonwards?)\b", re.IGNORECASE | re.ASCII
)
_AND_NOW = re.compile(rf"\s*(?:,|\b(?:and|or)\b)\s*{_NOW}\b", re.IGNORECASE | re.ASCII)
_NOW_AND = re.compile(rf"\b{_NOW}\s*(?:,|\b(?:and|or)\b)\s*\Z", re.IGNORECASE | re.ASCII)

#: A clock's time within a day that is named; it is not looked for.
_AT = re.compile(
    r"\s+(?:at|around|about)\s+(?:[01]?[0-9]|2[0-3])(?::[0-5][0-9](?:\s*[ap]\.?m\b)?|\s*[ap]\.?m\b|\s+o'clock\b)",
    re.IGNORECASE | re.ASCII,
)

#: Where a query names a date, what is counted from that and not from the present, and a year that is the date's.
_FROM_DATE = re.compile(r"\s+(?:before|prior\s+to|after)\b", re.IGNORECASE | re.ASCII)
_OF_LAST_YEAR = re.compile(r"last\s+year\b", re.IGNORECASE | re.ASCII)

#: How many times of one query count.
MOST_TIMES = 3

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` to `end` (exclusive), both aware."""

    start: datetime
    end: datetime


class Named(NamedTuple):
    """A time that a query names, where in it the words stand that do, and whether it is a date."""

    period: Period
    start: int
    end: int
    is_date: bool


def without(query: str, named: Sequence[Named]) -> str:
    """A query without the words that name some of its times, which are in its order."""
    for one in reversed(named):
        query = f"{query[: one.start]} {query[one.end :]}"
    return query


def read_times(query: str, now: datetime) -> tuple[Named, ...]:
    """The times that a query names, in its order; most name none. Nothing between quotation marks or in code is one.

    Dates, the first three, are a day wider on both sides than they are in UTC. One without a year is that of a year
    named elsewhere in the query, else the last one that has begun by `now`; `this December` is that of this year. Two
    dates behind `between` or `from` are one period, and so are two days of a month (`3-5 June`); the first says which
    year. A date that does not exist is none, neither is one to come, at which nothing was said yet, nor one that ends a
    time without a beginning (`until 3 June`).

    Times named from the present (`last week`) are in days of the zone of `now`; they are all there, and may be the same
    ones. A time behind `between` or `from` and another one are one (`from 3 June until yesterday`), and so is what goes
    on until today.
    """
    query = _QUOTED.sub(lambda found: "\0" * len(found[0]), query.translate(_BLANKS))
    dates = [one for one in _read_dates(query, now) if one.period.start <= now]
    further = [
        Named(Period(one.since.astimezone(UTC), one.until.astimezone(UTC)), one.start, one.end, is_date=False)
        for one in relative_times(query, now)
        if not (dates and (_FROM_DATE.match(query, one.end) or _OF_LAST_YEAR.match(query, one.start)))
        and not any(one.start < date.end and date.start < one.end for date in dates)
    ]
    return _spans(query, sorted([*dates, *further], key=lambda one: one.start), _tomorrow(now))


def _tomorrow(now: datetime) -> datetime:
    """The end of today in the zone of the present, in UTC."""
    return (now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)).astimezone(UTC)


def _spans(query: str, named: Sequence[Named], end: datetime) -> tuple[Named, ...]:
    """The same times, with those that are the ends of one time as this one, and until `end` what goes on."""
    found: list[Named] = []
    for one in named:
        one = _going_on(query, one, end, found[-1].end if found else 0)
        former = found[-1] if found else None
        if former is not None and former.period.start <= one.period.start and not (former.is_date and one.is_date):
            begins = _BEGINS.search(query, max(0, former.start - _LOOKED_BACK), former.start)
            if begins is not None and _JOINS.fullmatch(query, former.end, one.start):
                found[-1] = Named(Period(former.period.start, one.period.end), begins.start(), one.end, is_date=False)
                continue
        if one.is_date or not _ENDS.search(query[max(0, one.start - _LOOKED_BACK) : one.start]):
            found.append(one)
    return tuple(found)


def _going_on(query: str, one: Named, end: datetime, after: int) -> Named:
    """The same time until `end` where it goes on until the present (`last week and this week`), with a clock's words.

    What stands before place `after` belongs to another time.
    """
    at = None if one.is_date else _AT.match(query, one.end)
    if at is not None:
        one = one._replace(end=at.end())
    going_on, now_and = _UNTIL_NOW.match(query, one.end), None
    if not one.is_date:
        going_on = going_on or _AND_NOW.match(query, one.end)
        now_and = _NOW_AND.search(query, max(after, one.start - _LOOKED_BACK), one.start)
    if (going_on is None and now_and is None) or one.period.start >= end:
        return one
    start = one.start if now_and is None else now_and.start()
    stop = one.end if going_on is None else going_on.end()
    return Named(Period(one.period.start, max(one.period.end, end)), start, stop, one.is_date)


def _read_dates(query: str, now: datetime) -> list[Named]:
    found: list[tuple[re.Match[str], Period]] = []
    taken = [False] * len(query)
    lone = _LONE_YEAR.search(query)
    year = int(lone["year"]) if lone else now.year - 1 if _IN_LAST_YEAR.search(query) else None
    for pattern in _SPELLINGS:
        for match in pattern.finditer(query):
            if any(taken[match.start() : match.end()]) or _is_no_date(match, bool(found)):
                continue
            before = query[max(0, match.start() - _LOOKED_BACK) : match.start()]
            if match.groupdict().get("first") and _ENDING_MONTH.search(before):
                continue
            period = _period(match, now, year)
            if period is None:
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            if _SINCE.search(before) or match[0].lower().startswith("since"):
                period = Period(period.start, max(period.end, _tomorrow(now) + _ASIDE))
            if found or _SPAN.search(before) or not _is_end(before):
                found.append((match, period))
    found = sorted(found, key=lambda one: one[0].start())[:MOST_TIMES]
    named = [Named(period, *match.span(), is_date=True) for match, period in found]
    if len(named) == 2 and _SPAN.search(query):
        first, second = named
        coming = [] if year else _coming(found[1][0], first.period, now)
        joined = _joined(first.period, [second.period, *coming])
        return [Named(period, first.start, second.end, is_date=True) for period in joined] or named
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
    elif parts.get("month") and _stands_before(_THIS, match):
        year = now.year
    elif parts.get("month") and year is None and month == now.month and _stands_before(_LAST, match):
        year = now.year - 1
    if day is None:
        start = _start(year, month, 1, 1, now)
        return None if start is None else Period(start - _ASIDE, (start + timedelta(days=31)).replace(day=1) + _ASIDE)
    first = int(parts["first"]) if parts.get("first") else day
    start = _start(year, month, first, day, now)
    if start is None or (parts.get("first") and first >= day):
        return None
    return Period(start - _ASIDE, start.replace(day=day) + 2 * _ASIDE)


def _stands_before(pattern: re.Pattern[str], match: re.Match[str]) -> bool:
    """Whether that stands right before the month of a date."""
    start = match.start("month")
    return pattern.search(match.string, max(0, start - _LOOKED_BACK), start) is not None


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
