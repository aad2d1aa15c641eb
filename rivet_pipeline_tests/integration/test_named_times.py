"""Searches that name a time: what was said then comes first, and what is left out of the query is told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.types import Mode, NamedTime, Scope
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    add_conversation,
    add_message,
    add_summary,
    add_tag,
    find,
    ids,
    register_model,
)

YESTERDAY = (NOW - timedelta(days=1)).date()


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
def test_what_was_said_last_week_comes_before_what_speaks_of_weeks(connection: Connection, mode: Mode) -> None:
    register_model(connection)
    # NOW is a Tuesday: last week ended on Sunday.
    asked = add_message(connection, "the queue is durable from now on", age_days=5, embed=True)
    add_message(connection, "look at the queue again last week or next week", age_days=20, embed=True)
    add_message(connection, "today somebody asked for the queue in passing, and had tea", age_days=0.1, embed=True)
    answer = find(connection, "what of the queue last week?", embedded=mode == "hybrid", mode=mode)
    assert (answer.hits[0].id, answer.hits[0].parts.named) == (asked, 1)
    assert answer.query == "what of the queue last week?"


@pytest.mark.parametrize("agent", [None, "claude"])
def test_a_time_from_the_present_at_which_nothing_was_said_is_none(connection: Connection, agent: str | None) -> None:
    conversation = add_conversation(connection, agent="codex")
    if agent is not None:
        # Somebody else did say something.
        add_message(connection, "nothing", conversation=conversation, agent="codex", age_days=700)
    add_message(connection, "we moved the queue here 2 years ago", age_days=30)
    add_message(connection, "the queue of today", age_days=0.1)
    hits = find(connection, "where was the queue 2 years ago", agent=agent).hits
    assert hits[0].content == "we moved the queue here 2 years ago"
    assert [hit.parts.named for hit in hits] == [0, 0]


@pytest.mark.parametrize("mode", ["fts", "hybrid", "vector"])
@pytest.mark.parametrize("query", ["what did we do yesterday?", "yesterday"])
def test_who_asks_for_a_time_alone_is_told_what_was_said_then(connection: Connection, mode: Mode, query: str) -> None:
    register_model(connection)
    add_message(connection, "yesterday was too hot", age_days=40, embed=True)
    first, second = (
        add_message(connection, text, age_days=1, embed=True) for text in ("the sail was mended", "and the mast set up")
    )
    answer = find(connection, query, embedded=mode != "fts", mode=mode)
    assert answer.query == query
    assert answer.unmatched is None
    if mode != "vector":
        assert set(ids(answer.hits[:2])) == {first, second}
    assert {first, second} <= set(ids(answer.hits))


def test_an_answer_says_which_days_a_time_was_read_as(connection: Connection) -> None:
    add_message(connection, "the sail was mended", age_days=1)
    answer = find(connection, "what of the sail yesterday")
    (time,) = answer.times
    yesterday = (NOW - timedelta(days=1)).date()
    assert (time.words, time.since.date(), time.before.date()) == ("yesterday", yesterday, NOW.date())
    assert answer.notes == (f"'yesterday' is read as {yesterday}",)
    # Nothing was said then, so the words are looked for as they are.
    unsaid = find(connection, "what of the sail  last\tyear")
    assert [(one.words, one.said) for one in unsaid.times] == [("last\tyear", False)]
    assert unsaid.notes[0].startswith("'last year' would be 2025-01-01 to 2025-12-31, and nothing within the search")
    assert ids(unsaid.hits) == ids(answer.hits)
    # A date is what it is.
    assert find(connection, f"what of the sail on {yesterday}").times == ()
    assert find(connection, "yesterday", mode="trigram").times == ()


def test_a_note_names_the_first_and_the_last_day_in_the_zone_of_the_user() -> None:
    zone = ZoneInfo("Europe/Berlin")
    week = NamedTime("last week", datetime(2026, 3, 23, tzinfo=zone), datetime(2026, 3, 30, tzinfo=zone))
    assert week.note([]) == "'last week' is read as 2026-03-23 to 2026-03-29"


def test_of_two_times_the_one_at_which_nothing_was_said_stays_a_text(connection: Connection) -> None:
    add_message(connection, "we left redis two years ago", age_days=60)
    asked = add_message(connection, "redis is back", age_days=5)
    hits = find(connection, "did we have redis two years ago or last week").hits
    assert {hit.id: hit.parts.named for hit in hits}[asked] == 1
    assert len(hits) == 2


ASKING = [
    "catch me up on yesterday",
    "hey, what happened yesterday and today?",
    "yesterday's chat history",
    "what did the user ask yesterday?",
    f"what happened on {YESTERDAY:%A, %d %B}?",
    f"what happened since {YESTERDAY:%d %B}?",
    "what happened yesterday",
    "what happened yesterday morning?",
    "since yesterday",
    "what did we decide since yesterday",
    "what did we discuss after yesterday",
    "anything new since yesterday",
    "show yesterday's messages",
    "any errors yesterday?",
    "what happened today and yesterday",
    "what did we do yesterday at 16:00?",
    f"what happened on {YESTERDAY}",
    f"what did we decide on {YESTERDAY:%d %B}?",
]


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
@pytest.mark.parametrize("query", ASKING)
def test_words_that_only_ask_do_not_keep_away_what_was_said_then(
    connection: Connection, mode: Mode, query: str
) -> None:
    register_model(connection)
    for number in range(30):
        text = f"what happened is what we decide, discuss and message since then, anything new in show {number}"
        add_message(connection, text, age_days=40 + number, embed=True)
    said = {
        add_message(connection, text, age_days=age, embed=True)
        for text, age in (("the sail was mended", 1), ("and the mast set up", 0.9), ("it rains", 1.1))
    }
    answer = find(connection, query, embedded=mode == "hybrid", mode=mode, limit=5)
    assert said <= set(ids(answer.hits))
    assert not any("nothing" in note for note in answer.notes)
    # Nothing else was asked for.
    assert set(ids(answer.hits)) == said


@pytest.mark.parametrize("text", ["we decided for redis", "Decision: it is redis."])
@pytest.mark.parametrize("mode", ["fts", "hybrid"])
def test_of_a_time_what_holds_the_asking_words_comes_first(connection: Connection, mode: Mode, text: str) -> None:
    register_model(connection)
    conversation = add_conversation(connection)
    first = add_message(connection, text, conversation=conversation, age_days=1.1, embed=True)
    for number in range(5):
        add_message(connection, f"tea {number}", conversation=conversation, age_days=1 - number / 100, embed=True)
    answer = find(connection, "what did we decide yesterday", embedded=mode == "hybrid", mode=mode)
    assert answer.hits[0].id == first
    assert len(answer.hits) == 6


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
def test_what_was_said_at_a_time_is_told_of_every_conversation(connection: Connection, mode: Mode) -> None:
    register_model(connection)
    conversations = [add_conversation(connection) for _ in range(4)]
    for number, conversation in enumerate(conversations):
        for part in range(12):
            age = 1.3 - number / 10 - part / 1_000
            add_message(connection, f"tea {part} of {number}", conversation=conversation, age_days=age, embed=True)
    answer = find(connection, "what happened yesterday", embedded=mode == "hybrid", mode=mode, limit=5)
    assert {hit.conversation_id for hit in answer.hits} == set(conversations)
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)


def test_a_date_by_itself_is_looked_for_in_texts_too(connection: Connection) -> None:
    add_message(connection, "tea", age_days=1)
    told = add_message(connection, f"the mast broke on {YESTERDAY:%d %B}", age_days=0.1)
    assert told in ids(find(connection, f"{YESTERDAY:%d %B}").hits)


def test_a_note_tells_the_minute_from_which_hours_are_counted(connection: Connection) -> None:
    add_message(connection, "the sail was mended", age_days=0.01)
    since = NOW - timedelta(hours=3)
    (note,) = find(connection, "what of the sail in the last 3 hours").notes
    assert note == f"'in the last 3 hours' is read as {since:%Y-%m-%d %H:%M} to {NOW.date()}"


def test_times_beyond_what_somebody_types_are_none(connection: Connection) -> None:
    add_message(connection, "the sail was mended", age_days=1)
    assert find(connection, "the sail " * 120 + "yesterday").times == ()


def test_a_time_that_is_asked_for_alone_keeps_to_the_filters(connection: Connection) -> None:
    add_message(connection, "the sail was mended", age_days=1)
    by_codex = add_message(connection, "the mast is up", agent="codex", age_days=1)
    start = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    bounds: dict[str, Any] = {"since": start - timedelta(days=1), "before": start}
    assert ids(find(connection, "since yesterday", agent="codex", **bounds).hits) == [by_codex]
    assert find(connection, "yesterday", agent="codex", since=start).hits == []


@pytest.mark.parametrize(
    "filters", [{"role": "tool"}, {"tag": "project:boat"}, {"conversation": True}, {"scope": "summaries"}]
)
def test_a_time_of_which_nothing_is_within_the_filters_is_no_time(
    connection: Connection, filters: dict[str, Any]
) -> None:
    add_message(connection, "today's matter", age_days=1)
    conversation = add_conversation(connection)
    old = add_message(
        connection, "yesterday it rained", conversation=conversation, role="tool", tool_name="Read", age_days=40
    )
    add_tag(connection, "project:boat", conversation=conversation)
    if "scope" in filters:
        long_ago = NOW - timedelta(days=40)
        old = add_summary(connection, "yesterday it rained", earliest=long_ago, latest=long_ago)
    if "conversation" in filters:
        filters = {"conversation_id": conversation}
    answer = find(connection, "yesterday", **filters)
    assert ids(answer.hits) == [old]
    assert [(one.words, one.said) for one in answer.times] == [("yesterday", False)]
    assert "its words are looked for" in answer.notes[0]


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
@pytest.mark.parametrize("scope", ["summaries", "both"])
def test_summaries_of_a_time_are_found_by_it_alone(connection: Connection, mode: Mode, scope: Scope) -> None:
    register_model(connection)
    add_message(connection, "the sail was mended", age_days=1, embed=True)
    then = NOW - timedelta(days=1)
    summary = add_summary(connection, "- A sail.", earliest=then, latest=then, embed=True)
    add_summary(connection, "- A happening of old.", earliest=NOW - timedelta(days=9), latest=NOW - timedelta(days=9))
    answer = find(connection, "what happened yesterday", embedded=mode == "hybrid", mode=mode, scope=scope)
    assert [hit.id for hit in answer.hits if hit.source == "summary"] == [summary]
    assert len(answer.hits) == (1 if scope == "summaries" else 2)


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
def test_a_third_of_a_list_is_of_the_time_that_is_named(connection: Connection, mode: Mode) -> None:
    register_model(connection)
    for number in range(30):
        add_message(connection, f"the sail was mended {number}", age_days=30, embed=True)
    said = [add_message(connection, f"tea {number}", age_days=1 - number / 100, embed=True) for number in range(9)]
    answer = find(connection, "what of the sail yesterday", embedded=mode == "hybrid", mode=mode, limit=10)
    assert [hit.id in said for hit in answer.hits] == [False] * 7 + [True] * 3
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    if mode == "fts":
        # Of what says nothing of it the newest.
        assert ids(answer.hits)[7:] == said[:-4:-1]


def test_whatever_the_words_a_time_is_answered_by_what_was_said_then(connection: Connection) -> None:
    tea = add_message(connection, "tea", age_days=1)
    answer = find(connection, "the greebles of yesterday")
    assert ids(answer.hits) == [tea]
    assert answer.unmatched is not None
    assert "holds any of the query's other words; what is shown is of that time" in answer.unmatched


def test_a_note_says_when_nothing_that_is_shown_is_of_the_time(connection: Connection) -> None:
    register_model(connection)
    add_message(connection, "tea", age_days=1)
    add_message(connection, "the sail was mended", age_days=30, embed=True)
    (note,) = find(connection, "what of the sail yesterday", embedded=True, mode="vector").notes
    assert note == f"'yesterday' is read as {YESTERDAY}; nothing that is shown is of that time"


@pytest.mark.parametrize("query", ["yesterday?", "(yesterday)", "since yesterday:"])
def test_meaning_alone_is_asked_for_the_words_of_a_time_where_there_are_no_others(
    connection: Connection, query: str
) -> None:
    register_model(connection)
    asked = add_message(connection, "the sail was mended", age_days=1, embed=True)
    assert ids(find(connection, query, embedded=True, mode="vector").hits) == [asked]


def test_times_at_which_nothing_was_said_take_no_place_and_repeated_ones_are_one(connection: Connection) -> None:
    asked = add_message(connection, "redis is in", age_days=1)
    add_message(connection, "redis is out", age_days=3)
    query = "redis last year, 5 days ago, 6 days ago, 7 days ago or yesterday, yesterday, yesterday"
    answer = find(connection, query)
    assert answer.hits[0].id == asked
    assert [(one.words, one.said) for one in answer.times] == [
        ("last year", False),
        ("5 days ago", False),
        ("yesterday", True),
    ]
