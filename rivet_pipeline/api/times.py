"""Reads the times that people and programs write. Pure; nothing of HTTP or of a terminal belongs here."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

#: In a query string a `+` that was not escaped arrives as a space: `2026-03-08T10:00:00 02:00`.
_LOST_PLUS = re.compile(r"(?P<time>:.*\d) (?P<offset>\d\d:?\d\d)$")

_HOW = "write it as 2026-03-08T10:00:00Z or 2026-03-08T11:00:00+01:00"


def parse_time(text: str, *, zone: tzinfo | None = None) -> datetime:
    """The instant that an ISO 8601 text names, in UTC.

    A text without an offset is read in `zone`; without a `zone` it is refused, because nobody could say which day it
    means. Raises `ValueError` with what to write instead.
    """
    stripped = _LOST_PLUS.sub(r"\g<time>+\g<offset>", text.strip())
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(f"{text[:80]!r} is not an ISO 8601 time; {_HOW}") from None
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{text[:80]!r} has no time zone; {_HOW}")
        moment = moment.replace(tzinfo=zone)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text[:80]!r} is outside the years 1 to 9999 in UTC") from None
