"""Named windows across zones and clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.windows import WINDOWS, normalise_window, resolve_window

NOW = datetime(2026, 3, 11, 9, 30, tzinfo=UTC)  # a Wednesday


def test_days_are_cut_in_the_stated_zone() -> None:
    late = datetime(2026, 3, 11, 23, 30, tzinfo=UTC)
    assert resolve_window("today", zone="UTC", now=late).since == datetime(2026, 3, 11, tzinfo=UTC)
    berlin = resolve_window("today", zone="Europe/Berlin", now=late)
    assert berlin.since == datetime(2026, 3, 11, 23, tzinfo=UTC)
    assert (berlin.before, berlin.zone) == (None, "Europe/Berlin")


def test_yesterday_may_have_twenty_three_or_twenty_five_hours() -> None:
    spring = resolve_window("yesterday", zone="Europe/Berlin", now=datetime(2026, 3, 30, 12, tzinfo=UTC))
    autumn = resolve_window("yesterday", zone="Europe/Berlin", now=datetime(2026, 10, 26, 12, tzinfo=UTC))
    assert spring.before is not None
    assert autumn.before is not None
    assert spring.before - spring.since == timedelta(hours=23)
    assert autumn.before - autumn.since == timedelta(hours=25)


def test_a_week_begins_on_monday_and_last_week_is_seven_rolling_days() -> None:
    assert resolve_window("this_week", zone="UTC", now=NOW).since == datetime(2026, 3, 9, tzinfo=UTC)
    assert resolve_window("last week", zone="UTC", now=NOW).since == NOW - timedelta(days=7)
    assert resolve_window("last_24h", zone="Asia/Tokyo", now=NOW).since == NOW - timedelta(hours=24)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Past 7 days", "last_7d"),
        ("last seven days", "last_7d"),
        ("last-7-d", "last_7d"),
        ("past week", "last_7d"),
        ("last two weeks", "last_14d"),
        ("past 14 days", "last_14d"),
        ("last_7_days", "last_7d"),
        ("last 24 hours", "last_24h"),
        ("last 24h", "last_24h"),
        ("last twenty-four hours", "last_24h"),
        ("last day", "last_24h"),
        ("This Morning", "this_morning"),
        ("morning", "this_morning"),
        ("week", "this_week"),
        (" YESTERDAY ", "yesterday"),
    ],
)
def test_usual_spellings_are_understood(written: str, expected: str) -> None:
    assert normalise_window(written) == expected


@pytest.mark.parametrize("written", ["", "   ", "tomorrow", "last_30d", "last year", "todayish", "🚀"])
def test_an_unknown_window_is_an_error_that_lists_the_choices(written: str) -> None:
    with pytest.raises(InvalidInputError, match="last_14d") as caught:
        resolve_window(written, zone="UTC", now=NOW)
    assert all(window in caught.value.problem for window in WINDOWS)


@given(
    name=st.sampled_from(WINDOWS),
    zone=st.sampled_from(["UTC", "America/Sao_Paulo", "Asia/Kolkata", "Pacific/Apia", "America/Havana"]),
    now=st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_a_window_lies_in_the_past_and_is_not_empty(name: str, zone: str, now: datetime) -> None:
    window = resolve_window(name, zone=zone, now=now)
    assert window.since <= now
    assert window.since.utcoffset() == timedelta(0)
    assert window.before is None or window.since < window.before <= now
