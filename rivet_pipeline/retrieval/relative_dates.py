"""The times that a query names from the present: `yesterday`, `last week`, `two weeks ago`, `in the past 3 months`.

Only the past: `today` and `this week` are left out; what is fresh counts anyway, and they as often begin an order
as a question. Pure functions.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_NUMBERS |= {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_NUMBER = rf"(?P<number>[0-9]{{1,3}}|{'|'.join(_NUMBERS)}|(?:a\s+)?couple(?:\s+of)?|(?:a\s+)?few)"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = r"(?P<weekday>mon|tues|wednes|thurs|fri|satur|sun)day"

#: Not within code, a quotation or another number: `--since=yesterday`, `'2 weeks ago'`, `1.5 years ago`.
_FREE = r"(?<![\w=.,$'\"`/-])"

#: Of the last ones as many as are said, or one, where it is not a calendar's (`last week`).
_ROLLING = (
    rf"(?P<rolling>(?:(?:the|my|our)\s+)?(?:last|past)\s+{_NUMBER}\s+{_UNIT}"
    r"|(?:(?:the|my|our)\s+(?:last|past)|past)\s+(?P<one>day|week|month|year))"
)

#: The spellings, the longer ones first.
_SPELLINGS = tuple(
    re.compile(_FREE + pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"{_NUMBER}\s+{_UNIT}\s+ago\b",
        rf"(?:in|over|during|within|from)\s+{_ROLLING}\b(?!\s+of\b|['\u2019])",
        r"(?P<earlier>(?:the\s+)?day\s+before\s+yesterday)\b",
        r"(?P<yesterday>yesterday|last\s+night)\b(?!['\u2019]s\s+date|\(|\.\w)",
        rf"(?P<former>(?:last|previous)\s+(?:{_WEEKDAY}|(?P<weekend>weekend)|(?P<last>week|month|year)))\b(?!\s+of\b)",
    )
)

#: What makes a number of days another time, which is not told: `more than two weeks ago`, `half a year ago`, `twenty
#: two days ago`, `two or three weeks ago`, `a week and 2 days ago`.
_COUNTED = rf"(?:[0-9]+|{'|'.join(_NUMBERS)})"
_OPEN = re.compile(
    r"\b(?:(?:more|less|longer|older|earlier|further)\s+than|over|half|hundred(?:\s+and)?"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    rf"|{_COUNTED}\s+(?:(?:day|week|month|year)s?)?(?:\s*(?:to|or|and))?)\s+\Z",
    re.IGNORECASE | re.ASCII,
)

#: Whose or which last week it is, when not the calendar's: `my last week at work`, `for the last week`, `next to last`.
_OWN = re.compile(r"\b(?:my|your|his|her|its|our|their|the|to)\s+\Z", re.IGNORECASE | re.ASCII)

#: An option of a command: `--since yesterday`.
_OPTION = re.compile(r"(?:^|\s)--?\w[\w-]*\s+\Z", re.ASCII)

#: What makes a time the beginning of one that goes on.
_SINCE = re.compile(r"\b(?:since|after|(?<!no\s)(?<!not\s)(?:newer|later)\s+than)\s+\Z", re.IGNORECASE | re.ASCII)
_LOOKED_BACK = 30

#: How many days a unit has, to count back by and, half of it on both sides, as what `ago` may mean.
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

#: How many units `a couple of` and `a few` are, from and to.
_COUPLE, _FEW = (1, 3), (2, 6)


class RelativeDays(NamedTuple):
    """Where in a query such a time is named, and its first and its last day, midnights in the zone of the present."""

    start: int
    end: int
    first: datetime
    last: datetime


def relative_days(query: str, now: datetime) -> list[RelativeDays]:
    """The times that a query names from the present, in its order.

    `last week` is the week from Monday to Sunday before this one, `last month` the one before this; `in the past month`
    ends today. `last Friday` is the latest Friday before today. `two weeks ago` is that day and half a week on both
    sides, `5 days ago` the day alone. `since yesterday` ends today.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    found: list[RelativeDays] = []
    taken = [False] * len(query)
    for pattern in _SPELLINGS:
        for match in pattern.finditer(query):
            before = query[max(0, match.start() - _LOOKED_BACK) : match.start()]
            parts = match.groupdict()
            if any(taken[match.start() : match.end()]) or _is_another(parts, before):
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            first, last = _days(parts, today)
            found.append(RelativeDays(*match.span(), first, today if _SINCE.search(before) else last))
    return sorted(found)


def _is_another(parts: dict[str, str | None], before: str) -> bool:
    """Whether what stands before a spelling makes it none of these times."""
    is_ago = parts.get("number") is not None and parts.get("rolling") is None
    return bool(
        _OPTION.search(before)
        or (is_ago and _OPEN.search(before))
        or (parts.get("former") is not None and _OWN.search(before))
    )


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
    if parts.get("last"):
        return _last(str(parts["last"]).lower(), today)
    days = _DAYS[str(parts["unit"] or parts["one"]).lower()]
    least, most = _range(parts["number"])
    if parts.get("rolling"):
        return _back(today, days * most), today
    aside = days // 2 if least == most else 0
    return _back(today, days * most + aside), _back(today, days * least - aside)


def _last(unit: str, today: datetime) -> tuple[datetime, datetime]:
    """The whole unit before the one that today is in."""
    if unit == "week":
        return _back(today, today.weekday() + 7), _back(today, today.weekday() + 1)
    if unit == "month":
        last = _back(today.replace(day=1), 1)
        return last.replace(day=1), last
    last = _back(today.replace(month=1, day=1), 1)
    return last.replace(month=1, day=1), last


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
