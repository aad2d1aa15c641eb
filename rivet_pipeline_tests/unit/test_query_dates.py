"""Which dates a query names, and how well a moment fits them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivet_pipeline.retrieval.query_dates import Period, read_times, shares_of_time, without

NOW = datetime(2026, 3, 10, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def named_periods(query: str, now: datetime = NOW) -> tuple[Period, ...]:
    return tuple(one.period for one in read_times(query, now))


def days(query: str, now: datetime = NOW, *, aside: int = 1) -> list[tuple[str, str]]:
    """First and last day of each period, without the day of slack that dates have on both sides."""
    slack = timedelta(days=aside)
    return [
        ((one.start + slack).date().isoformat(), (one.end - slack - timedelta(days=1)).date().isoformat())
        for one in named_periods(query, now)
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what did we decide in August 2023?", [("2023-08-01", "2023-08-31")]),
        ("who came on 3 June, 2023?", [("2023-06-03", "2023-06-03")]),
        ("who came on the 3rd of june 2023", [("2023-06-03", "2023-06-03")]),
        ("the outage of Dec 1,2023", [("2023-12-01", "2023-12-01")]),
        ("the outage of 2024-02-29", [("2024-02-29", "2024-02-29")]),
        ("the plan for 2024-02", [("2024-02-01", "2024-02-29")]),
        ("what broke on Aug 15th?", [("2025-08-15", "2025-08-15")]),
        ("what broke in February?", [("2026-02-01", "2026-02-28")]),
        ("what broke in December?", [("2025-12-01", "2025-12-31")]),
        ("the books of January and March", [("2026-01-01", "2026-01-31"), ("2026-03-01", "2026-03-31")]),
        ("where was I between August 11 and August 15 2023", [("2023-08-11", "2023-08-15")]),
        ("the last of 31 February 2024", [("2024-02-01", "2024-02-29")]),
        ("where was I from 1 May to 3 May 2024", [("2024-05-01", "2024-05-03")]),
        ("where was I between June and August 2023", [("2023-06-01", "2023-08-31")]),
        ("where was I from March to May 2023", [("2023-03-01", "2023-05-31")]),
        ("who came on 29 February", [("2024-02-29", "2024-02-29")]),
        ("who came on 3 June last year", [("2025-06-03", "2025-06-03")]),
        ("who came in February of last year", [("2025-02-01", "2025-02-28")]),
        ("who came last March", [("2025-03-01", "2025-03-31")]),
        ("who came last January", [("2026-01-01", "2026-01-31")]),
        ("what came since 3 March", [("2026-03-03", "2026-03-10")]),
        ("what came since January", [("2026-01-01", "2026-03-10")]),
        ("in the books of January or yesterday", [("2026-01-01", "2026-01-31"), ("2026-03-10", "2026-03-08")]),
        ("where was I between 3 and 5 May 2024", [("2024-05-03", "2024-05-05")]),
        ("where was I between May 3 and 5, 2024", [("2024-05-03", "2024-05-05")]),
        ("the trip of 3-5 May 2024", [("2024-05-03", "2024-05-05")]),
        ("the trip of May 3rd to 5th 2024", [("2024-05-03", "2024-05-05")]),
        ("May 3 and 5 people of 2024", [("2024-05-03", "2024-05-03")]),
        ("between May 3 and 5 June 2024", [("2024-05-03", "2024-06-05")]),
        ("the trip of 5-3 May 2024", [("2024-05-03", "2024-05-03")]),
        ("what failed at 2024-05-03T06:41", [("2024-05-03", "2024-05-03")]),
        ("what failed at 2024-05-03T06:41:07.5Z?", [("2024-05-03", "2024-05-03")]),
        ("what is planned this March", [("2026-03-01", "2026-03-31")]),
        ("where was I in the week before 3 May 2024", [("2024-05-03", "2024-05-03")]),
        ("where was I from 3 May until 5 May 2024", [("2024-05-03", "2024-05-05")]),
        ("where was I from March until 5 May 2024", [("2024-03-01", "2024-05-05")]),
        ("where was I from early March until 5 May 2024", [("2024-03-01", "2024-05-05")]),
        ("where was I from Friday, 3 May until Sunday, 5 May 2024", [("2024-05-03", "2024-05-05")]),
        ("where was I from Fri, 3 May until Sun, 5 May 2024", [("2024-05-03", "2024-05-05")]),
        ("where was I from the beginning of March until 5 May 2024", [("2024-03-01", "2024-05-05")]),
        ("where was I from the end of March until Sun. 5 May 2024", [("2024-03-01", "2024-05-05")]),
        ("where was I from the second week of March until 5 May 2024", [("2024-03-01", "2024-05-05")]),
        ("where was I from around 3 May until 5 May 2024", [("2024-05-03", "2024-05-05")]),
        ("where was I from last March until 5 May 2024", [("2024-03-01", "2024-05-05")]),
        ("everything from 2023 until 5 May 2024", [("2024-05-05", "2024-05-05")]),
        (
            "what came from Anna on 3 May 2024 and on 5 May 2024",
            [("2024-05-03", "2024-05-03"), ("2024-05-05", "2024-05-05")],
        ),
        ("the 3rd to the 5th of May 2024", [("2024-05-03", "2024-05-05")]),
        ("between the 3rd and the 5th of May 2024", [("2024-05-03", "2024-05-05")]),
        ("May 3rd to the 5th, 2024", [("2024-05-03", "2024-05-05")]),
        ("the call of May 3 - 10:30", [("2025-05-03", "2025-05-03")]),
        ("the call of May 3 - 5 pm", [("2025-05-03", "2025-05-03")]),
        ("the call of May 3 pm", [("2025-05-03", "2025-05-03")]),
        ("the call at 9:03 - 5 June", [("2025-06-05", "2025-06-05")]),
        ("the call at 10:30 May 3", [("2025-05-03", "2025-05-03")]),
    ],
)
def test_dates_are_read(query: str, expected: list[tuple[str, str]]) -> None:
    assert days(query) == expected


@pytest.mark.parametrize(
    ("now", "query", "expected"),
    [
        (datetime(2026, 6, 4, tzinfo=UTC), "the trip of 3-5 June", [("2026-06-03", "2026-06-05")]),
        (datetime(2026, 6, 4, tzinfo=UTC), "the trip of June 3-5", [("2026-06-03", "2026-06-05")]),
        (datetime(2026, 6, 4, tzinfo=UTC), "what broke from 3 June to 5 June", [("2026-06-03", "2026-06-05")]),
        (datetime(2026, 6, 2, tzinfo=UTC), "where was I from last March until 5 May", [("2026-03-01", "2026-05-05")]),
        (datetime(2026, 4, 2, tzinfo=UTC), "where was I from March to May", [("2026-03-01", "2026-05-31")]),
        (datetime(2026, 8, 2, tzinfo=UTC), "where was I from July to October", [("2026-07-01", "2026-10-31")]),
        (datetime(2026, 12, 24, tzinfo=UTC), "from 20 December to 5 January", [("2026-12-20", "2027-01-05")]),
        (datetime(2028, 2, 28, tzinfo=UTC), "from 27 February to 3 March", [("2028-02-27", "2028-03-03")]),
        (datetime(2028, 2, 27, tzinfo=UTC), "from 26 February to 28 February", [("2028-02-26", "2028-02-28")]),
        (datetime(2028, 2, 28, tzinfo=UTC), "from 27 February to 29 February", [("2028-02-27", "2028-02-29")]),
        (datetime(2028, 1, 5, tzinfo=UTC), "from January to February", [("2028-01-01", "2028-02-29")]),
        (
            datetime(2026, 3, 10, tzinfo=UTC),
            "what broke between March and December",
            [("2026-03-01", "2026-03-31"), ("2025-12-01", "2025-12-31")],
        ),
        (datetime(2026, 6, 2, tzinfo=UTC), "the trip of 3-5 June", [("2025-06-03", "2025-06-05")]),
        (datetime(2026, 2, 28, tzinfo=UTC), "the trip of 27-29 February", [("2024-02-27", "2024-02-29")]),
        (datetime(2026, 11, 30, tzinfo=UTC), "what is planned this December", [("2026-12-01", "2026-12-31")]),
        (datetime(2026, 11, 30, tzinfo=UTC), "what is planned in December", [("2025-12-01", "2025-12-31")]),
        (
            datetime(2026, 11, 30, tzinfo=UTC),
            "the plan of 2024 for this early December",
            [("2026-12-01", "2026-12-31")],
        ),
        (datetime(2026, 6, 4, tzinfo=UTC), "what is planned this December", []),
    ],
)
def test_a_year_that_is_not_named_is_that_of_the_first_day_or_of_this(
    now: datetime, query: str, expected: list[tuple[str, str]]
) -> None:
    assert days(query, now) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what did we do yesterday?", [("2026-03-09", "2026-03-09")]),
        ("what broke last night", [("2026-03-09", "2026-03-09")]),
        ("what was said the day before yesterday", [("2026-03-08", "2026-03-08")]),
        ("was it day before yesterday", [("2026-03-08", "2026-03-08")]),
        ("last week's decision about the parser", [("2026-03-02", "2026-03-08")]),
        ("the decision from last week", [("2026-03-02", "2026-03-08")]),
        ("what did I bake Last Weekend", [("2026-03-07", "2026-03-08")]),
        ("what was invoiced last month", [("2026-02-01", "2026-02-28")]),
        ("what was said in last month's retro", [("2026-02-01", "2026-02-28")]),
        ("the trip of last year", [("2025-01-01", "2025-12-31")]),
        ("photos from last year", [("2025-01-01", "2025-12-31")]),
        ("who came last Friday", [("2026-03-06", "2026-03-06")]),
        ("who came last Tuesday", [("2026-03-03", "2026-03-03")]),
        ("the flight 5 days ago", [("2026-03-05", "2026-03-05")]),
        ("the book I read a week ago", [("2026-02-28", "2026-03-06")]),
        ("the book I read two weeks ago", [("2026-02-21", "2026-02-27")]),
        ("the festival a month ago", [("2026-01-24", "2026-02-23")]),
        ("what I cooked a couple of days ago", [("2026-03-07", "2026-03-09")]),
        ("what I cooked a few days ago", [("2026-03-04", "2026-03-08")]),
        ("trips in the past three months", [("2025-12-10", "2026-03-10")]),
        ("what we fixed over the last 2 weeks", [("2026-02-24", "2026-03-10")]),
        ("sports during the past month", [("2026-02-08", "2026-03-10")]),
        ("what changed since yesterday", [("2026-03-09", "2026-03-10")]),
        ("nothing later than yesterday", [("2026-03-09", "2026-03-10")]),
        ("nothing, no later than yesterday", [("2026-03-09", "2026-03-09")]),
        ("what changed since last year", [("2025-01-01", "2026-03-10")]),
        ("what did we go over yesterday", [("2026-03-09", "2026-03-09")]),
        ("what happened at the party two weeks ago", [("2026-02-21", "2026-02-27")]),
        ("who did I speak to a week ago", [("2026-02-28", "2026-03-06")]),
        ("between last Friday and yesterday", [("2026-03-06", "2026-03-09")]),
        ("from two weeks ago until yesterday", [("2026-02-21", "2026-03-09")]),
        ("what came from Ann last Friday and yesterday", [("2026-03-06", "2026-03-06"), ("2026-03-09", "2026-03-09")]),
        ("between yesterday and last Friday", [("2026-03-09", "2026-03-09"), ("2026-03-06", "2026-03-06")]),
        ("what did we do yesterday morning", [("2026-03-09", "2026-03-09")]),
        ("what we did last 7 days", [("2026-03-03", "2026-03-10")]),
        ("the last hour", []),
        ("in the last hour", [("2026-03-09", "2026-03-10")]),
        ("what happened in the last 7 days", [("2026-03-03", "2026-03-10")]),
        ("past two weeks", [("2026-02-24", "2026-03-10")]),
        ("in the last 24 hours", [("2026-03-09", "2026-03-10")]),
        ("in the last 25 hours", [("2026-03-08", "2026-03-10")]),
        ("this past week", [("2026-03-03", "2026-03-10")]),
        ("the previous week", [("2026-03-02", "2026-03-08")]),
        ("what did we do the previous month?", [("2026-02-01", "2026-02-28")]),
        ("the revenue of last quarter", [("2025-10-01", "2025-12-31")]),
        ("we met a fortnight ago", [("2026-02-21", "2026-02-27")]),
        ("the baby came thirteen weeks ago", [("2025-12-06", "2025-12-12")]),
        ("the flight twenty days ago", [("2026-02-18", "2026-02-18")]),
        ("twenty two days ago", [("2026-02-16", "2026-02-16")]),
        ("twenty-two days ago", [("2026-02-16", "2026-02-16")]),
        ("from two weeks ago to last week", [("2026-02-21", "2026-03-08")]),
        ("from last month to last week", [("2026-02-01", "2026-03-08")]),
        ("compared to last week", [("2026-03-02", "2026-03-08")]),
        ("what changed from yesterday to today", [("2026-03-09", "2026-03-10")]),
        ("yesterday and today", [("2026-03-09", "2026-03-10")]),
        ("from last Monday until now", [("2026-03-09", "2026-03-10")]),
        ("what happened between 5 March and yesterday", [("2026-03-04", "2026-03-09")]),
        ("since about two weeks ago", [("2026-02-21", "2026-03-10")]),
        ("since late last week", [("2026-03-02", "2026-03-10")]),
        ("over the weekend", [("2026-03-07", "2026-03-08")]),
        ("the past weekend", [("2026-03-07", "2026-03-08")]),
        ("what happened past month", [("2026-02-08", "2026-03-10")]),
        ("in the previous 7 days", [("2026-03-03", "2026-03-10")]),
        ("in the last 24h", [("2026-03-09", "2026-03-10")]),
        ("in the last 7d", [("2026-03-03", "2026-03-10")]),
        ("26 hours ago", [("2026-03-08", "2026-03-08")]),
        ("several weeks ago", [("2026-01-27", "2026-02-24")]),
        ("a day or two ago", [("2026-03-08", "2026-03-09")]),
        ("the week before last", [("2026-02-23", "2026-03-01")]),
        ("the weekend before last", [("2026-02-28", "2026-03-01")]),
        ("the month before last", [("2026-01-01", "2026-01-31")]),
        ("last Fri", [("2026-03-06", "2026-03-06")]),
        ('what of the "redis" yesterday "too"', [("2026-03-09", "2026-03-09")]),
        ("what did we decide yesterday about the launch on 2026-12-24", [("2026-03-09", "2026-03-09")]),
        ("not yesterday but last week", [("2026-03-02", "2026-03-08")]),
        ("what changed since Monday", [("2026-03-09", "2026-03-10")]),
        ("what changed since the weekend", [("2026-03-07", "2026-03-10")]),
        ("what changed since Monday, 2 March", [("2026-03-01", "2026-03-11")]),
        ("what came on Monday", []),
        ("today and yesterday", [("2026-03-09", "2026-03-10")]),
        ("what did we do last week and this week", [("2026-03-02", "2026-03-10")]),
        ("yesterday, today and last week", [("2026-03-09", "2026-03-10"), ("2026-03-02", "2026-03-08")]),
        ("this week and last week", [("2026-03-02", "2026-03-10")]),
        ("on 3 March and today", [("2026-03-02", "2026-03-04")]),
        ("yesterday onwards", [("2026-03-09", "2026-03-10")]),
        ("starting yesterday", [("2026-03-09", "2026-03-10")]),
        ("older than last week", []),
        ("anything except yesterday", []),
        ("anything but last week", []),
        ("the plan other than yesterday", []),
        ("what did we do yesterday at 16:00", [("2026-03-09", "2026-03-09")]),
        ("the notes of last\u00a0week", [("2026-03-02", "2026-03-08")]),
    ],
)
def test_times_are_named_from_the_present(query: str, expected: list[tuple[str, str]]) -> None:
    assert days(query, aside=0) == expected


def test_who_names_a_date_counts_from_that_and_not_from_the_present() -> None:
    assert days("what was on last weekend before 3 June 2024") == [("2024-06-03", "2024-06-03")]


def test_on_a_sunday_the_last_weekend_is_the_one_before() -> None:
    sunday = datetime(2026, 3, 15, 23, 59, tzinfo=UTC)
    assert days("the party last weekend", sunday, aside=0) == [("2026-03-07", "2026-03-08")]
    assert days("notes from last week", sunday, aside=0) == [("2026-03-02", "2026-03-08")]
    assert days("last Sunday", sunday, aside=0) == [("2026-03-08", "2026-03-08")]


def test_yesterday_is_that_of_the_zone_also_when_the_clock_was_put_forward() -> None:
    # Midnight in Berlin is 23:00 in UTC, and 22:00 in summer.
    now = datetime(2026, 3, 30, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert named_periods("what broke yesterday", now) == (
        Period(datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)),
    )


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("what did we do in the last two weeks about the queue", "what did we do about the queue"),
        ("what changed since yesterday in the parser, and last Friday?", "what changed in the parser, and ?"),
        ("between last Friday and yesterday redis", "redis"),
        ("yesterday?", "?"),
        ("what was said in August 2023", "what was said in August 2023"),
        ("how many days ago", "how many days ago"),
    ],
)
def test_the_words_of_such_a_time_are_not_looked_for(query: str, rest: str) -> None:
    named = [one for one in read_times(query, NOW) if not one.is_date]
    assert " ".join(without(query, named).split()) == rest


@pytest.mark.parametrize(
    "query",
    [
        "how many days ago did I meet Emma",
        "more than two weeks ago",
        "over a month ago",
        "half a year ago",
        "1.5 years ago",
        "0 days ago",
        "100 fortnights",
        "\u201cyesterday\u201d",
        "\u2018last week\u2019",
        "\u00ablast week\u00bb",
        "the tag #yesterday",
        "@yesterday",
        "yesterday=1",
        "yesterday = 1",
        "not yesterday",
        "not within the last 30 days",
        '"what happened last month"',
        "\u201cwhat happened last month\u201d",
        "{{ yesterday }}",
        "HEAD@{1 day ago}",
        "[last week]",
        "foo(yesterday)",
        "enum { TODAY, YESTERDAY",
        "`Nothing happened yesterday`",
        "every last Friday we freeze",
        "Anna's last week",
        "previous month button",
        "two days after last Friday",
        "the day after yesterday",
        "the next to last week",
        '"on 3 June 2024"',
        "keep logs for the last 7 days",
        "my last 3 days at work",
        "every last 2 weeks of a quarter",
        "1,000 days ago",
        "2-3 weeks ago",
        "two or three weeks ago",
        "a hundred and two days ago",
        "1 week 2 days ago",
        "the last two days of the sprint",
        "the last week of the sprint",
        "from the last week of the sprint",
        "the week before last week",
        "two days before yesterday",
        "when was my last day at work",
        "print yesterday's date in bash",
        "yesterday.strftime fails",
        "git log --since yesterday",
        "no more than my last week at work",
        "for the last week we use redis",
        "the second to last week",
        "in the past years we moved a lot",
        "over the last weeks",
        "git log --since=yesterday",
        "git log --since='2 weeks ago'",
        "SELECT yesterday()",
        "rotate the logs for the last 7 days",
        "what did we do before yesterday",
        "everything until last week",
        "at last we may ship",
        "the last weeks",
        "today we write the parser",
        "blasts from the pastor",
        "the lastweek table",
        # Letters that only ignoring case makes one of these words.
        "last FR\u0130DAY",
        "n\u0131ne days ago",
        "last \u017funday",
        "5 \u017feptember",
    ],
)
def test_what_is_no_time_from_the_present_names_none(query: str) -> None:
    assert named_periods(query, NOW) == ()


def test_a_long_text_full_of_times_is_read_quickly() -> None:
    began = time.process_time()
    assert len(named_periods("2 days ago a line of a log, yesterday too\n" * 2_000, NOW)) == 4_000
    # Going through all that stands before each of them took minutes.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "query",
    [
        "0 June",
        "mails from Anna before 3 June 2024",
        "the vote between Anna and Ben until the 3rd of June 2024",
        "mails from 3 machines before 3 June 2024",
        "the launch of 2026-12-24",
        "say it to April",
        "we may march on",
        "it may 2 times fail",
        "may I ask April and June about Jan",
        "31 February",
        "the port 2023",
        "photo-2024-05-01.jpg",
        "release 2024-05-01-rc1",
        "v2024.05",
        "",
        "decide in august",
        "who came before 3 June 2024",
        "what was open until the 3rd of June",
        "from " + "fri, " * 200 + "before " + "fri, " * 10 + "3 June 2024",
        "who came before Fri, 3 June 2024",
        "who came before Friday the 3rd of June 2024",
        "everything up to 2024-05-03",
        "what we had before August 2024",
    ],
)
def test_what_is_no_date_names_none(query: str) -> None:
    assert named_periods(query, NOW) == ()


_SOME = st.sampled_from(
    [
        "last",
        "past",
        "the",
        "a",
        "couple",
        "of",
        "few",
        "two",
        "999",
        "0",
        "day",
        "week",
        "weekend",
        "month",
        "years",
        "ago",
        "yesterday",
        "before",
        "friday",
        "night",
        "in",
        "over",
        "3",
        "June",
        "until",
    ]
)


@given(st.one_of(st.text(max_size=200), st.lists(_SOME, max_size=9).map(" ".join)))
def test_any_text_is_read(query: str) -> None:
    for period in named_periods(query, NOW):
        assert period.start < period.end


def test_the_last_days_of_time_are_no_error() -> None:
    assert named_periods("in December 2099", datetime(2100, 1, 1, tzinfo=UTC))
    assert named_periods("1900-01-01", NOW)


def test_a_moment_within_counts_whole_and_later_ones_ever_less() -> None:
    period = Period(NOW, NOW + timedelta(days=2))
    moments = [NOW - timedelta(seconds=1), NOW, *(NOW + timedelta(days=one) for one in (1.999, 2, 8))]
    at = np.array([(moment - EPOCH) // timedelta(microseconds=1) for moment in moments], dtype=np.int64)
    assert shares_of_time([period], at, 7.0).tolist() == pytest.approx([0, 1, 1, 0.5 ** (1 / 7), 0.5])
    later = Period(NOW + timedelta(days=8), NOW + timedelta(days=9))
    assert shares_of_time([period, later], at, 7.0)[4] == 1
