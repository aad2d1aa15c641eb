"""Times as a page shows them: in the service's zone, with its name, and exact for machines. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from markupsafe import Markup

_TO = "\N{EN DASH}"


class Clock:
    """Shows times in one zone."""

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone

    def local(self, moment: datetime) -> datetime:
        """The moment (aware) on this clock."""
        return moment.astimezone(self.zone)

    def stamp(self, moment: datetime) -> Markup:
        """Day, time and zone: `29 Sep 2026, 08:17 CEST`."""
        here = self.local(moment)
        return self._time(moment, f"{here.day} {here:%b %Y, %H:%M} {here.tzname()}")

    def date(self, moment: datetime) -> Markup:
        """The day alone: `9 Sep 2026`."""
        here = self.local(moment)
        return self._time(moment, f"{here.day} {here:%b %Y}")

    def minute(self, moment: datetime) -> Markup:
        """Time and zone: `08:17 CEST`."""
        here = self.local(moment)
        return self._time(moment, f"{here:%H:%M} {here.tzname()}")

    def span(self, first: datetime, last: datetime) -> Markup:
        """A period: day and both times, or two days."""
        begin, end = self.local(first), self.local(last)
        if begin.date() == end.date():
            till = "" if f"{begin:%H:%M}" == f"{end:%H:%M}" else f"{_TO}{end:%H:%M}"
            return self._time(first, f"{begin.day} {begin:%b %Y, %H:%M}{till} {end.tzname()}")
        return self._time(first, f"{begin.day} {begin:%b %Y} {_TO} {end.day} {end:%b %Y}")

    def _time(self, moment: datetime, text: str) -> Markup:
        exact = moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        here = self.local(moment)
        title = f"{here:%A}, {here.day} {here:%B %Y, %H:%M:%S} {here.tzname()}"
        return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, title, text)


def long_day(day: date) -> str:
    """`Tuesday, 29 September 2026`."""
    return f"{day:%A}, {day.day} {day:%B %Y}"


def short_day(day: date) -> str:
    """`29 Sep`."""
    return f"{day.day} {day:%b}"


def ago(moment: datetime, now: datetime) -> str:
    """About how long ago: `3 h ago`, `12 days ago`."""
    seconds = max(0, round((now - moment).total_seconds()))
    for size, unit in ((86_400, "day"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or (unit != "day" and seconds >= size):
            count = seconds // size
            return f"{count} {unit}{'s' if unit == 'day' and count != 1 else ''} ago"
    return "just now"
