"""Drawings made on the server: a year of days, a bar of shares, lines over time. Pure; colours are the style sheet's.

An SVG's own attributes are allowed where a style attribute is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from markupsafe import Markup

_CELL, _GAP = 11, 3
_STEPS = (1, 3, 6, 12)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

#: Colours there are for agents; further ones share the last.
COLOURS = 6


def level(count: int) -> int:
    """How dark a day is drawn, 0 to 4."""
    return sum(count >= step for step in _STEPS)


def year_of_days(counts: Mapping[date, int], last: date, link: str, *, weeks: int = 53) -> Markup:
    """A square a day, a column a week; a day with conversations is a link to `link` with its date behind it."""
    first = last - timedelta(days=last.weekday() + 7 * (weeks - 1))
    parts = []
    for offset in range((last - first).days + 1):
        day = first + timedelta(days=offset)
        x, y = offset // 7 * (_CELL + _GAP), 14 + offset % 7 * (_CELL + _GAP)
        if day.day == 1 and x > 0:
            parts.append(Markup('<text x="{}" y="9">{}</text>').format(x, _MONTHS[day.month - 1]))
        parts.append(_square(day, counts.get(day, 0), x, y, link))
    width, height = weeks * (_CELL + _GAP), 14 + 7 * (_CELL + _GAP)
    return Markup('<svg class="year" viewBox="0 0 {} {}">{}</svg>').format(width, height, Markup("").join(parts))


def _square(day: date, count: int, x: int, y: int, link: str) -> Markup:
    rect = Markup('<rect class="level-{}" x="{}" y="{}" width="{}" height="{}" rx="2"/>').format(
        level(count), x, y, _CELL, _CELL
    )
    if not count:
        return rect
    words = f"{day.isoformat()}: {count} conversation{'' if count == 1 else 's'}"
    # The list below the drawing has the same links for the keyboard.
    return Markup('<a href="{}{}" tabindex="-1" aria-label="{}"><title>{}</title>{}</a>').format(
        link, day.isoformat(), words, words, rect
    )


def shares(counts: Mapping[str, int], order: Sequence[str], most: int) -> Markup:
    """A bar of 100 by 8: each name's share in its colour, as long as the sum is beside `most`."""
    parts = []
    x = 0.0
    for name, count in counts.items():
        width = 100 * count / most if most else 0.0
        colour = min(order.index(name) if name in order else COLOURS, COLOURS - 1) + 1
        parts.append(
            Markup('<rect class="colour-{}" x="{:.2f}" width="{:.2f}" height="8"/>').format(colour, x, max(0.6, width))
        )
        x += width
    return Markup(
        '<svg class="shares" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: its name and its values, 0 to 1, None where there is none."""

    name: str
    values: Sequence[float | None]


_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 190, 40, 10, 24


def lines_over_time(days: Sequence[date], lines: Sequence[Line], title: str, *, name: str) -> Markup:
    """Lines of shares over days, from 0 to 100 %. A table beside it should say the same in figures.

    `name` tells the drawing from others on its page: a word of small letters.
    """
    span = max(1, (days[-1] - days[0]).days) if days else 1
    xs = [_LEFT + (_WIDTH - _LEFT - 10) * (day - days[0]).days / span for day in days]
    if len(days) == 1:
        xs = [_LEFT + (_WIDTH - _LEFT) / 2]
    parts = [_axis()]
    parts += [_line(number, line, xs) for number, line in enumerate(lines, start=1)]
    parts += [_label(x, day) for x, day in _labelled(xs, days)]
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{name}-title" '
        'aria-describedby="{name}-desc"><title id="{name}-title">{}</title><desc id="{name}-desc">{}</desc>{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, _in_words(days, lines), Markup("").join(parts), name=name)


def swatch(number: int) -> Markup:
    """How the line of this number (from 1) is drawn, for a legend."""
    return Markup(
        '<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true">'
        '<g class="series-{}"><polyline points="1,4 25,4"/></g></svg>'
    ).format(number)


def _in_words(days: Sequence[date], lines: Sequence[Line]) -> str:
    """Where each line begins and where it ends."""
    if not days:
        return "Nothing yet."
    told = [f"{days[0].isoformat()} to {days[-1].isoformat()}."]
    for line in lines:
        values = [value for value in line.values if value is not None]
        if values:
            told.append(f"{line.name}: {values[0]:.0%}, at the end {values[-1]:.0%}.")
    return " ".join(told)


def _y(value: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - max(0.0, min(1.0, value)))


def _axis() -> Markup:
    rows = Markup('<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/><text x="{}" y="{:.1f}" class="end">{}</text>')
    return Markup("").join(
        rows.format(_LEFT, _WIDTH, _y(share), _y(share), _LEFT - 6, _y(share) + 4, f"{share:.0%}")
        for share in (0.0, 0.5, 1.0)
    )


def _line(number: int, line: Line, xs: Sequence[float]) -> Markup:
    points = [(x, _y(value)) for x, value in zip(xs, line.values, strict=True) if value is not None]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = Markup("").join(Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3"/>').format(x, y) for x, y in points)
    return Markup('<g class="series-{}"><polyline points="{}"/>{}</g>').format(number, path, dots)


def _labelled(xs: Sequence[float], days: Sequence[date]) -> list[tuple[float, date]]:
    if len(days) < 3:
        return list(zip(xs, days, strict=True))
    middle = len(days) // 2
    return [(xs[0], days[0]), (xs[middle], days[middle]), (xs[-1], days[-1])]


def _label(x: float, day: date) -> Markup:
    anchor = "end" if x > _WIDTH - 60 else "begin" if x < _LEFT + 30 else "middle"
    text = f"{day.day} {_MONTHS[day.month - 1]} {day.year}"
    return Markup('<text x="{:.1f}" y="{}" class="{}">{}</text>').format(x, _HEIGHT - 6, anchor, text)
