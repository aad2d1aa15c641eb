"""Times that people write."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from rivet_pipeline.api.times import parse_time


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-03-08T10:00:00Z", "2026-03-08T10:00:00+00:00"),
        ("2026-03-08T10:00:00+02:00", "2026-03-08T08:00:00+00:00"),
        ("2026-03-08T10:00:00 02:00", "2026-03-08T08:00:00+00:00"),
        ("2026-03-08 10:00:00.5-05:00", "2026-03-08T15:00:00.500000+00:00"),
        (" 2026-03-08T10:00Z ", "2026-03-08T10:00:00+00:00"),
    ],
)
def test_an_instant_is_read_in_utc(text: str, utc: str) -> None:
    assert parse_time(text).isoformat() == utc


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-03-08", "no time zone"),
        ("2026-03-08T10:00:00", "no time zone"),
        ("2026-03-08 10:00", "no time zone"),
        ("yesterday", ", or, of a period, window=yesterday$"),
        ("past 7 days", ", or, of a period, window=last_7d$"),
        ("someday", "not an ISO 8601 time"),
        ("", "not an ISO 8601 time"),
        ("+10000-01-01T00:00:00Z", "not an ISO 8601 time"),
        ("9999-12-31T23:59:59-14:00", "outside the years"),
    ],
)
def test_what_names_no_instant_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_time(text)


def test_with_a_zone_a_local_time_is_read_there() -> None:
    assert parse_time("2026-07-01", zone=ZoneInfo("Europe/Berlin")).isoformat() == "2026-06-30T22:00:00+00:00"
