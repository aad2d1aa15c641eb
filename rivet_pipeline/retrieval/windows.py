"""Named time windows (`today`, `last_7d`) and what they mean in a zone. Pure functions.

Days begin at local midnight of the stated IANA zone, so a day may have 23 or 25 hours; `last_…` are rolling hours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from rivet_pipeline.errors import InvalidInputError

#: In the order in which an error lists them.
WINDOWS = ("today", "yesterday", "this_morning", "this_week", "last_24h", "last_7d", "last_14d")

_ROLLING = {"last_24h": timedelta(hours=24), "last_7d": timedelta(days=7), "last_14d": timedelta(days=14)}

_NUMBERS = {"one": "1", "two": "2", "seven": "7", "fourteen": "14", "twenty_four": "24"}

_SAME = {
    "morning": "this_morning",
    "week": "this_week",
    "last_week": "last_7d",
    "last_1_week": "last_7d",
    "last_1_weeks": "last_7d",
    "last_2_week": "last_14d",
    "last_2_weeks": "last_14d",
    "last_fortnight": "last_14d",
    "last_day": "last_24h",
    "last_1_day": "last_24h",
    "last_1d": "last_24h",
}


@dataclass(frozen=True, slots=True)
class Window:
    """A resolved window: `since` inclusive, `before` exclusive (None: open), both UTC, cut in `zone`."""

    name: str
    since: datetime
    before: datetime | None
    zone: str


def normalise_window(name: str) -> str:
    """The canonical form of what people and models write: `Past 7 days`, `last two weeks`, `This morning`.

    Returns the best it can; whether the outcome is a window is for `resolve_window` to say.
    """
    text = re.sub(r"[\s_-]+", "_", name.strip().lower()).strip("_")
    text = re.sub(r"^(?:the_)?(?:past|previous|last)(?=_|$)", "last", text)
    for word, number in _NUMBERS.items():
        text = re.sub(rf"(?<=last_){word}(?=_|$)", number, text)
    text = re.sub(r"^last_(\d+)_?(?:d|day|days)$", r"last_\1d", text)
    text = re.sub(r"^last_(\d+)_?(?:h|hr|hrs|hour|hours)$", r"last_\1h", text)
    return _SAME.get(text, text)


def resolve_window(name: str, *, zone: str, now: datetime | None = None) -> Window:
    """The bounds of a named window as of `now` (aware; default the present) in an IANA zone.

    today and this_morning: local midnight to open end; yesterday: between two local midnights; this_week: from Monday's
    local midnight; last_24h, last_7d, last_14d: rolling. Raises `InvalidInputError` listing the choices on any other
    name, a blank one included.
    """
    canonical = normalise_window(name)
    if canonical not in WINDOWS:
        read_as = f" (read as {canonical!r})" if canonical and canonical != name else ""
        raise InvalidInputError("window", f"{name!r}{read_as} is no window; choose one of {', '.join(WINDOWS)}")
    now = now or datetime.now(UTC)
    if canonical in _ROLLING:
        return Window(canonical, now.astimezone(UTC) - _ROLLING[canonical], None, zone)
    today = now.astimezone(ZoneInfo(zone)).date()
    if canonical == "yesterday":
        return Window(canonical, _midnight(today - timedelta(days=1), zone), _midnight(today, zone), zone)
    if canonical == "this_week":
        return Window(canonical, _midnight(today - timedelta(days=today.weekday()), zone), None, zone)
    return Window(canonical, _midnight(today, zone), None, zone)


def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)
