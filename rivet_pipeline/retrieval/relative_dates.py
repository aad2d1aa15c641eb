"""The times that a query names from the present: `yesterday`, `last week`, `two weeks ago`, `over the past 3 months`.

Only the past: `today` and `this week` are left out; what is fresh counts anyway, and they as often begin an order
as a question. Pure functions.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_NUMBERS |= {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_NUMBER = rf"(?P<number>[0-9]{{1,3}}|{'|'.join(_NUMBERS)}|(?:a\s+)?couple(?:\s+of)?|(?:a\s+)?few)"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = r"(?P<weekday>mon|tues|wednes|thurs|fri|satur|sun)day"
#: What makes a number of days no time: `how many days ago`, `more than two weeks ago`.
_OPEN = re.compile(r"\b(?:more|less|longer|older|earlier|further)\s+than\s+\Z|\bover\s+\Z", re.IGNORECASE)

#: The spellings, the longer ones first.
_SPELLINGS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_NUMBER}\s+{_UNIT}\s+ago\b",
        rf"\b(?:in|over|during|within|for|from)\s+(?:the\s+|my\s+|our\s+)?(?P<rolling>last|past)\s+(?:{_NUMBER}\s+)?{_UNIT}\b(?!\s+of\b)",
        r"\b(?P<earlier>the\s+day\s+before\s+yesterday)\b",
        r"\b(?P<yesterday>yesterday|last\s+night)\b(?!['\u2019]s\s+date)",
        rf"\b(?:last|previous)\s+(?:{_WEEKDAY}|(?P<weekend>weekend)|{_UNIT}(?<!s))\b(?!\s+of\b)",
    )
)

#: How many days a unit has, to count back by and, half of it on both sides, as what `ago` may mean.
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

#: How many units `a couple of` and `a few` are, from and to.
_COUPLE, _FEW = (1, 3), (2, 6)


def relative_days(query: str, now: datetime) -> list[tuple[int, datetime, datetime]]:
    """Where in the query each such time stands, and its first and last day (midnights in the zone of `now`).

    `last week` is the week from Monday to Sunday before this one, `last month` the one before this; `the past month`
    ends today. `last Friday` is the latest Friday before today. `two weeks ago` is that day and half a week on both
    sides, `5 days ago` the day alone; with `more than` before it, it is no time. A time before the year 1 is none.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    found: list[tuple[int, datetime, datetime]] = []
    taken = [False] * len(query)
    for pattern in _SPELLINGS:
        for match in pattern.finditer(query):
            if any(taken[match.start() : match.end()]) or _OPEN.search(query, 0, match.start()):
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            try:
                found.append((match.start(), *_days(match.groupdict(), today)))
            except OverflowError:
                continue
    return sorted(found)


def _days(parts: dict[str, str | None], today: datetime) -> tuple[datetime, datetime]:
    if parts.get("earlier"):
        return _back(today, 2), _back(today, 2)
    if parts.get("yesterday"):
        return _back(today, 1), _back(today, 1)
    if parts.get("weekday"):
        number = _WEEKDAYS.index(str(parts["weekday"])[:3].lower())
        day = _back(today, (today.weekday() - number - 1) % 7 + 1)
        return day, day
    if parts.get("weekend"):
        # On a Saturday or a Sunday the one before this one is meant.
        return _back(today, today.weekday() + 2), _back(today, today.weekday() + 1)
    unit = str(parts["unit"]).lower()
    if parts.get("rolling"):
        return _back(today, _DAYS[unit] * _range(parts.get("number"))[1]), today
    if "number" in parts:
        least, most = _range(parts["number"])
        aside = _DAYS[unit] // 2 if least == most else 0
        return _back(today, _DAYS[unit] * most + aside), _back(today, _DAYS[unit] * least - aside)
    return _last(unit, today)


def _last(unit: str, today: datetime) -> tuple[datetime, datetime]:
    """The whole unit before the one that today is in."""
    if unit == "week":
        return _back(today, today.weekday() + 7), _back(today, today.weekday() + 1)
    first = {"day": today, "month": today.replace(day=1), "year": today.replace(month=1, day=1)}[unit]
    last = _back(first, 1)
    return {"day": last, "month": last.replace(day=1), "year": last.replace(month=1, day=1)}[unit], last


def _range(number: str | None) -> tuple[int, int]:
    """From and to how many; one without a number."""
    if number is None:
        return 1, 1
    number = number.lower()
    if number.isdigit():
        return int(number), int(number)
    if "couple" in number:
        return _COUPLE
    if "few" in number:
        return _FEW
    return _NUMBERS[number], _NUMBERS[number]


def _back(day: datetime, days: int) -> datetime:
    return day - timedelta(days=days)
