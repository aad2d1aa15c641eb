"""Reads the times and periods that people and programs write. Pure; nothing of HTTP or of a terminal belongs here."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.windows import WINDOWS, normalise_window, resolve_window

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
        named = normalise_window(stripped)
        # Where times are filters there is a window beside them.
        instead = f", or, of a period, window={named}" if named in WINDOWS else ""
        raise ValueError(f"{text[:80]!r} is not an ISO 8601 time; {_HOW}{instead}") from None
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{text[:80]!r} has no time zone; {_HOW}")
        moment = moment.replace(tzinfo=zone)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text[:80]!r} is outside the years 1 to 9999 in UTC") from None


def period(
    since: datetime | None, before: datetime | None, window: str | None, *, zone: ZoneInfo, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """The bounds that a request asks for. `since` and `before` win over `window`, whose name must be good all the same.

    Raises `InvalidInputError` for an unknown window, naming the choices, and for bounds with nothing between them.
    """
    named = resolve_window(window, zone=zone.key, now=now) if window is not None else None
    if named is not None and since is None and before is None:
        return named.since, named.before
    if since is not None and before is not None and since >= before:
        raise InvalidInputError("before", "must be later than since; before is exclusive")
    return since, before
