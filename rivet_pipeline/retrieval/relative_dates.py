"""The times that a query names from the present: `yesterday`, `last week`, `two weeks ago`, `in the past 3 months`.

Only the past: `today` and `this week` are left out; what is fresh counts anyway, and they as often begin an order
as a question. Pure functions.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

_NAMES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
_NUMBERS = {name: number for number, name in enumerate(f"{_NAMES} eighteen nineteen".split(), 1)} | {"a": 1, "an": 1}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_NUMBERS |= _TENS
_NUMBER = rf"(?P<number>[1-9][0-9]{{0,2}}|{'|'.join(_NUMBERS)}|(?:a\s+)?couple(?:\s+of)?|(?:a\s+)?few)"
_UNIT = r"(?P<unit>day|week|fortnight|month|year)s?"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = r"(?P<weekday>mon|tues|wednes|thurs|fri|satur|sun)day"

#: Not within code, a quotation or another number: `--since=yesterday`, `'2 weeks ago'`, `#yesterday`, `1.5 years ago`.
_FREE = r"(?<![\w=.,$@#'\"`\u2018\u201a\u201c\u201e\u00ab\u2039/-])"

#: What may not stand behind: an assignment, a call, a part of a name.
_ENDED = r"\b(?!\s*=|\(|[.@-]\w)"

#: Of the last ones as many as are said, or one, where it is not a calendar's (`last week`).
_ROLLING = (
    rf"(?P<rolling>(?:(?:the|my|our)\s+)?(?:last|past)\s+{_NUMBER}\s+(?:{_UNIT}|(?P<hours>hours?))"
    r"|(?:(?:the|my|our)\s+(?:last|past)|(?:this\s+)?past)\s+(?P<one>day|week|fortnight|month|year))"
)

_YESTERDAY = r"yesterday(?:\s+(?:morning|afternoon|evening|night))?|last\s+(?:night|evening)"
_CALENDAR = r"(?P<weekend>weekend)|(?P<last>week|month|quarter|year)"

#: The spellings, the longer ones first.
_SPELLINGS = tuple(
    re.compile(_FREE + pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"{_NUMBER}\s+{_UNIT}\s+ago{_ENDED}",
        rf"(?:in|over|during|within|from)\s+{_ROLLING}{_ENDED}(?!\s+of\b|['\u2019])",
        rf"(?P<bare>(?:last|past)\s+{_NUMBER}\s+(?:{_UNIT}|(?P<hours>hours?))){_ENDED}(?!\s+of\b|['\u2019])",
        rf"(?P<bare>this\s+past\s+(?P<one>week|month|year)){_ENDED}(?!\s+of\b|['\u2019])",
        rf"(?P<earlier>(?:the\s+)?day\s+before\s+yesterday){_ENDED}",
        rf"(?P<yesterday>{_YESTERDAY}){_ENDED}(?!['\u2019]s\s+date)",
        rf"(?P<former>(?:last|(?:the\s+)?previous)\s+(?:{_WEEKDAY}|{_CALENDAR})){_ENDED}(?!\s+of\b)",
    )
)

#: What makes a number of days another time, which is not told: `more than two weeks ago`, `half a year ago`, `twenty
#: two days ago`, `two or three weeks ago`, `a week and 2 days ago`.
_COUNTED = rf"(?:[0-9]+|{'|'.join(_NUMBERS)})"
_OPEN = re.compile(
    r"\b(?:(?:more|less|longer|older|earlier|further)\s+than|over|half|hundred(?:\s+and)?"
    rf"|{'|'.join(_TENS)}"
    rf"|{_COUNTED}\s+(?:(?:day|week|fortnight|month|year)s?)?(?:\s*(?:to|or|and))?)\s+\Z",
    re.IGNORECASE | re.ASCII,
)

#: Whose or which last week it is, when not the calendar's: `my last week at work`, `for the last week`, `next to last`.
_OWN = re.compile(r"\b(?:my|your|his|her|its|our|their|the|to)\s+\Z", re.IGNORECASE | re.ASCII)

#: How long something is rather than when, or whose: `keep logs for the last 7 days`, `my last 3 days at work`.
_LASTING = re.compile(
    r"\b(?:(?:for|every|each|by)\s+(?:(?:the|my|our)\s+)?|(?:my|your|his|her|its|our|their)\s+)\Z",
    re.IGNORECASE | re.ASCII,
)

#: Another time than this.
_NOT = re.compile(r"\bnot\s+(?:(?:from|in|on|of)\s+)?\Z", re.IGNORECASE | re.ASCII)

#: An option of a command: `--since yesterday`.
_OPTION = re.compile(r"(?:^|\s)--?\w[\w-]*\s+\Z", re.ASCII)

#: What makes a time the beginning of one that goes on; it names the time too.
_SINCE = re.compile(
    r"\b(?:(?:ever\s+)?since|after|(?<!no\s)(?<!not\s)(?:newer|later)\s+than)\s+\Z", re.IGNORECASE | re.ASCII
)
#: Two times that are the ends of one: what stands before the first and between them.
_FROM = re.compile(r"\b(?:between|from)\s+\Z", re.IGNORECASE | re.ASCII)
_TO = re.compile(r"\s+(?:and|to|until|till|through|up\s+to)\s+", re.IGNORECASE | re.ASCII)
_LOOKED_BACK = 30

#: How many days a unit has, to count back by, and how many on both sides `ago` may mean.
_DAYS = {"day": (1, 0), "week": (7, 3), "fortnight": (14, 3), "month": (30, 15), "year": (365, 182)}

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
    sides, `5 days ago` the day alone. `since yesterday` ends today. `between last Friday and yesterday` is one time.
    """
    found: list[RelativeDays] = []
    taken = [False] * len(query)
    for pattern in _SPELLINGS:
        for match in pattern.finditer(query):
            before = query[max(0, match.start() - _LOOKED_BACK) : match.start()]
            parts = match.groupdict()
            if any(taken[match.start() : match.end()]) or _is_another(parts, before):
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            first, last = _days(parts, now)
            since = _SINCE.search(before)
            if since is None:
                found.append(RelativeDays(*match.span(), first, last))
            else:
                start = match.start() - len(since[0])
                found.append(RelativeDays(start, match.end(), first, _midnight(now)))
    return _joined(query, sorted(found))


def _joined(query: str, found: list[RelativeDays]) -> list[RelativeDays]:
    """The same with two that are the ends of one time as this one."""
    joined: list[RelativeDays] = []
    for one in found:
        former = joined[-1] if joined else None
        if former is not None and former.first <= one.first and _TO.fullmatch(query, former.end, one.start):
            whence = _FROM.search(query, max(0, former.start - _LOOKED_BACK), former.start)
            if whence is not None:
                joined[-1] = RelativeDays(whence.start(), one.end, former.first, one.last)
                continue
        joined.append(one)
    return joined


def _is_another(parts: dict[str, str | None], before: str) -> bool:
    """Whether what stands before a spelling makes it none of these times."""
    is_rolling = parts.get("rolling") is not None or parts.get("bare") is not None
    is_ago = parts.get("number") is not None and not is_rolling
    return bool(
        _OPTION.search(before)
        or _NOT.search(before)
        or (is_ago and _OPEN.search(before))
        or (parts.get("bare") is not None and _LASTING.search(before))
        or (parts.get("former") is not None and _OWN.search(before))
    )


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _days(parts: dict[str, str | None], now: datetime) -> tuple[datetime, datetime]:
    today = _midnight(now)
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
    least, most = _range(parts.get("number"))
    if parts.get("hours"):
        return _midnight(now - timedelta(hours=most)), today
    days, aside = _DAYS[str(parts.get("unit") or parts["one"]).lower()]
    if parts.get("rolling") or parts.get("bare"):
        return _back(today, days * most), today
    aside = aside if least == most else 0
    return _back(today, days * most + aside), _back(today, days * least - aside)


def _last(unit: str, today: datetime) -> tuple[datetime, datetime]:
    """The whole unit before the one that today is in."""
    if unit == "week":
        return _back(today, today.weekday() + 7), _back(today, today.weekday() + 1)
    if unit == "month":
        last = _back(today.replace(day=1), 1)
        return last.replace(day=1), last
    if unit == "quarter":
        last = _back(today.replace(month=(today.month - 1) // 3 * 3 + 1, day=1), 1)
        return last.replace(month=last.month - 2, day=1), last
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
