"""The times that a query names from the present: `yesterday`, `last week`, `two weeks ago`, `in the past 3 months`.

Only the past: `today` and `this week` are left out; what is fresh counts anyway, and they as often begin an order
as a question. Pure functions.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

_NAMES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
_UNITS = {name: number for number, name in enumerate(f"{_NAMES} eighteen nineteen".split(), 1)}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_NUMBERS = _UNITS | _TENS | {"a": 1, "an": 1}
_FEW_WORDS = r"(?:a\s+)?couple(?:\s+of)?|(?:a\s+)?few|several"
_NUMBER = (
    rf"(?P<number>[1-9][0-9]{{0,2}}|(?:{'|'.join(_TENS)})[\s-](?:{'|'.join(list(_UNITS)[:9])})|{'|'.join(_NUMBERS)}"
    rf"|{_FEW_WORDS})"
)
_UNIT = r"(?P<unit>day|week|fortnight|month|year)s?"
_HOURS = r"(?P<hours>hours?|hrs?)"
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SOME_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_WEEKDAY = rf"(?P<weekday>{_SOME_DAY}|(?-i:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b)"

#: Not within a name, an assignment or another number: `#yesterday`, `--since=yesterday`, `1.5 years ago`.
_FREE = r"(?<![\w=.,$@#'\"/-])"

#: What may not stand behind: an assignment, a call (which may be blanked out), a part of a name.
_ENDED = r"\b(?!\s*=|[(\0]|[.@-]\w)"

#: The same, where whose it is does not make it a time: `the last two days of the sprint`, `last 7 days' figures`.
_CLOSED = rf"{_ENDED}(?!\s+of\b|['\u2019])"

#: As many as are said, the last of which is today.
_LAST_ONES = rf"(?:last|past|previous)\s+(?:{_NUMBER}\s+(?:{_UNIT}|{_HOURS})|(?P<short>[1-9][0-9]{{0,2}})(?P<h>h|d))"

#: The same, or one, where it is not a calendar's (`last week`).
_ROLLING = (
    rf"(?P<rolling>(?:(?:the|my|our)\s+)?{_LAST_ONES}"
    r"|(?:(?:the|my|our)\s+(?:last|past)|(?:this\s+)?past)\s+(?P<one>hour|day|week|fortnight|month|year))"
)

_YESTERDAY = r"yesterday(?:\s+(?:morning|afternoon|evening|night))?|last\s+(?:night|evening)"
_CALENDAR = r"(?P<last>week|month|quarter|year)"
_FORMER = rf"last\s+(?:{_WEEKDAY}|(?P<weekend>weekend)|{_CALENDAR})"
_SPELLED = (
    rf"{_NUMBER}\s+(?:{_UNIT}|{_HOURS})\s+ago{_ENDED}",
    rf"a\s+(?P<about>day|week|month|year)\s+or\s+(?:two|so)\s+ago{_ENDED}",
    rf"(?:in|over|during|within|from)\s+{_ROLLING}{_CLOSED}",
    rf"(?P<bare>{_LAST_ONES}){_CLOSED}",
    rf"(?P<bare>(?:this\s+)?past\s+(?P<one>week|month|year)){_CLOSED}",
    rf"(?P<earlier>(?:the\s+)?day\s+before\s+yesterday){_ENDED}",
    rf"(?:the\s+)?(?P<before>week|weekend|month|year)\s+before\s+last{_CLOSED}(?!\s+(?:\w+end|week|month|year|night|{_SOME_DAY}))",
    rf"(?P<yesterday>{_YESTERDAY}){_ENDED}(?!['\u2019]s\s+date)",
    rf"(?:the\s+)?previous\s+(?:{_WEEKDAY}|(?P<weekend>weekend)){_CLOSED}",
    rf"the\s+previous\s+{_CALENDAR}{_CLOSED}",
    rf"(?:(?:over|at)\s+the|(?:the\s+|this\s+)?past)\s+(?P<weekend>weekend){_CLOSED}",
    rf"(?P<former>{_FORMER}){_ENDED}(?!\s+of\b)",
    # Without `last` a day may be one to come; a date's own is none.
    rf"(?<=since ){_WEEKDAY}{_CLOSED}(?!,?\s+(?:the\s+)?(?:\w+\s+)?[0-9])",
    rf"(?<=since )the\s+(?P<weekend>weekend){_CLOSED}",
)

#: The spellings, the longer ones first.
_SPELLINGS = tuple(re.compile(_FREE + pattern, re.IGNORECASE | re.ASCII) for pattern in _SPELLED)

#: What makes a number of days another time, which is not told: `more than two weeks ago`, `half a year ago`, `two or
#: three weeks ago`, `a week and 2 days ago`.
_COUNTED = rf"(?:[0-9]+|{'|'.join(_NUMBERS)})"
_OPEN = re.compile(
    r"\b(?:(?:more|less|longer|older|earlier|further)\s+than|over|half|hundred(?:\s+and)?"
    rf"|{_COUNTED}\s+(?:(?:hour|day|week|fortnight|month|year)s?)?(?:\s*(?:to|or|and))?)\s+\Z",
    re.IGNORECASE | re.ASCII,
)

#: Whose or which last week it is, when not the calendar's: `my last week at work`, `for the last week`, `next to last`.
_OWN = re.compile(
    r"(?:\b(?:my|your|his|her|its|our|their|the|every|each|(?:next|first|second|third)\s+to)|\w['\u2019]s)\s+\Z",
    re.IGNORECASE | re.ASCII,
)

#: How long something is rather than when, or whose: `keep logs for the last 7 days`, `my last 3 days at work`.
_LASTING = re.compile(
    r"\b(?:(?:for|every|each|by)\s+(?:(?:the|my|our)\s+)?|(?:my|your|his|her|its|our|their)\s+)\Z",
    re.IGNORECASE | re.ASCII,
)

#: Another time than this: `not yesterday`, `the day after yesterday`, `two weeks before last Friday`.
_NOT = re.compile(
    r"\b(?:(?:except|besides|(?:(?:any|every)thing|all)\s+but|other\s+than|apart\s+from)\s+(?:for\s+)?(?:the\s+)?"
    r"|not\s+(?:(?:from|in|on|of|over|for|since|during|within)\s+)?(?:the\s+)?"
    r"|(?:hour|day|night|week|month|year)s?\s+after\s+)\Z",
    re.IGNORECASE | re.ASCII,
)

#: An option of a command: `--since yesterday`.
_OPTION = re.compile(r"(?:^|\s)--?\w[\w-]*\s+\Z", re.ASCII)

#: What makes a time the beginning of one that goes on; it names the time too.
_SINCE = re.compile(
    r"\b(?:(?:ever\s+)?since|after|starting|(?<!no\s)(?<!not\s)(?:newer|later)\s+than)\s+"
    r"(?:(?:about|around|early|mid|late|at\s+least)\s+)?\Z",
    re.IGNORECASE | re.ASCII,
)
_LOOKED_BACK = 30

#: How many days a unit has, to count back by, and how many on both sides `ago` may mean.
_DAYS = {"day": (1, 0), "week": (7, 3), "fortnight": (14, 3), "month": (30, 15), "year": (365, 182)}

#: How many units `a couple of` and `a few` are, from and to.
_COUPLE, _FEW = (1, 3), (2, 6)


class RelativeTime(NamedTuple):
    """Where in a query such a time is named, and from when to when (exclusive) it is, in the zone of the present."""

    start: int
    end: int
    since: datetime
    until: datetime


def relative_times(query: str, now: datetime) -> list[RelativeTime]:
    """The times that a query names from the present, in its order.

    `last week` is the week from Monday to Sunday before this one, `last month` the one before this; `in the past month`
    ends today, and `in the last 24 hours` begins so many hours before `now`. `last Friday` is the latest Friday before
    today. `two weeks ago` is that day and half a week on both sides, `5 days ago` the day alone. `since yesterday` ends
    today.
    """
    found: list[RelativeTime] = []
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
            if since is not None:
                last = _midnight(now)
            start = match.start() - (0 if since is None else len(since[0]))
            found.append(RelativeTime(start, match.end(), first, last + timedelta(days=1)))
    return sorted(found)


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
    """From when, and the last day of it."""
    today = _midnight(now)
    if parts.get("earlier"):
        return _back(today, 2), _back(today, 2)
    if parts.get("yesterday"):
        return _back(today, 1), _back(today, 1)
    if parts.get("weekday"):
        number = _WEEKDAYS.index(str(parts["weekday"])[:3].lower())
        day = _back(today, (today.weekday() - number - 1) % 7 + 1)
        return day, day
    if parts.get("weekend") or parts.get("before") == "weekend":
        # On a Saturday or a Sunday the one before this one is meant.
        former = _back(today, 0 if parts.get("weekend") else 7)
        return _back(former, today.weekday() + 2), _back(former, today.weekday() + 1)
    if parts.get("last"):
        return _last(str(parts["last"]).lower(), today)
    if parts.get("before"):
        unit = str(parts["before"]).lower()
        return _last(unit, _last(unit, today)[0])
    return _counted(parts, now)


def _counted(parts: dict[str, str | None], now: datetime) -> tuple[datetime, datetime]:
    """The same of a time that is so many days or hours long or ago."""
    today = _midnight(now)
    least, most = (1, 2) if parts.get("about") else _range(parts.get("number") or parts.get("short"))
    is_rolling = parts.get("rolling") is not None or parts.get("bare") is not None
    if parts.get("hours") or parts.get("h") == "h" or parts.get("one") == "hour":
        since = (now - timedelta(hours=most)).replace(microsecond=0)
        return (since, today) if is_rolling else (_midnight(since), _midnight(now - timedelta(hours=least)))
    unit = "day" if parts.get("h") else str(parts.get("unit") or parts.get("one") or parts.get("about")).lower()
    days, aside = _DAYS[unit]
    if is_rolling:
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
    if "few" in number or number == "several":
        return _FEW
    count = sum(_NUMBERS[part] for part in re.split(r"[\s-]+", number))
    return count, count


def _back(day: datetime, days: int) -> datetime:
    return day - timedelta(days=days)
