"""The Retry-After header, as every client here reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: No service is waited for longer than this at a time, in seconds.
LONGEST_PAUSE = 86_400.0


def retry_after_seconds(value: str | None) -> float | None:
    """The header's value in seconds, whether it is a number or a date; from 0 to a day, None when it is neither."""
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), LONGEST_PAUSE) if seconds == seconds else None
