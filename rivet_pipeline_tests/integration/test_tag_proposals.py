"""The stage `tag_proposals` over a real store: what is asked about, what is written, what is dropped, what is "
"redone."""

from __future__ import annotations

import threading
from datetime import date
from typing import Any

import pytest

from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import stale_days
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.tags import propose
from rivet_pipeline.tags.literals import Literal, read_literal
from rivet_pipeline.tags.propose import announce_tagger, ask_again, propose_tags
from rivet_pipeline.tags.quality import dropped_leaves, outdated_leaves
from rivet_pipeline.tags.review import add_tag, decide_literal
from rivet_pipeline.tags.types import TagAnswer
from rivet_pipeline.tags.vocabulary import Entry, decide_values, list_values, merge_values, upsert_value
from rivet_pipeline.versions import TAGS_VERSION
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.tagging import (
    FailingTagger,
    ScriptedTagger,
    leaf,
    proposal,
    rows,
    standing,
    tag_all,
)

DAY = date(2026, 3, 1)
CACHING = read_literal("topic:caching")


def due(connection: Connection) -> int:
    return sum(item.items for item in pending_days(connection) if item.stage == "tag_proposals")


def test_a_suggestion_stands_on_the_leaf_and_on_its_conversation(connection: Connection, pool: Pool) -> None:
    session = add_conversation(connection, settings={"project": "shop"})
    connection.execute("UPDATE ros_conversations SET title = 'A  title' WHERE id = %s", [session])
    summary = leaf(connection, session, "Line two.")
    tagger = ScriptedTagger([proposal("topic:caching", display="Caching!")])
    assert due(connection) == 0
    announce_tagger(connection, tagger)
    assert due(connection) == 1
    report = tag_all(pool, tagger)
    assert standing(connection) == {
        ("conversation", "project:shop", "accepted"),
        ("conversation", "topic:caching", "suggested"),
        ("summary", "topic:caching", "suggested"),
    }
    [row] = rows(connection, "SELECT * FROM ros_tags WHERE entity_kind = 'summary'")
    assert (row["entity_id"], row["conversation_id"], row["display"]) == (summary, session, "Caching!")
    assert (row["source"], row["proposed_by"], row["pipeline_version"], row["reason"]) == (
        "model",
        "tagger-1",
        TAGS_VERSION,
        "it says so",
    )
    assert row["confidence"] == pytest.approx(0.8)
    [asked] = tagger.asked
    assert (asked.title, asked.agent, list(map(str, asked.current))) == ("A title", "claude", ["project:shop"])
    day = report.stage.days[DAY]
    assert (day.rows, day.model_calls, day.tokens, day.failures) == (2, 1, 10, 0)
    assert (report.tagged, report.dropped, report.skipped) == (1, 0, 0)


def test_a_second_pass_asks_nobody_and_writes_nothing(connection: Connection, pool: Pool) -> None:
    leaf(connection)
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    before = rows(connection, "SELECT t.*, t.xmin::text FROM ros_tags AS t ORDER BY id")
    again = ScriptedTagger(["topic:other"])
    report = tag_all(pool, again)
    assert again.asked == []
    assert (report.stage.rows, report.stage.model_calls) == (0, 0)
    assert rows(connection, "SELECT t.*, t.xmin::text FROM ros_tags AS t ORDER BY id") == before
    assert due(connection) == 0


def test_an_unseen_value_comes_into_the_vocabulary_as_suggested(connection: Connection, pool: Pool) -> None:
    upsert_value(connection, CACHING, by="ada")
    add_tag(connection, "conversation", add_conversation(connection), Literal("topic", "redis"), by="ada")
    leaf(connection)
    tagger = ScriptedTagger(["topic:caching", "topic:redis", "topic:new"])
    tag_all(pool, tagger)
    assert list(map(str, tagger.asked[0].vocabulary)) == ["topic:caching", "topic:redis"]
    found = {one.value: (one.status, one.source) for one in list_values(connection)}
    assert found == {"caching": ("accepted", "person"), "redis": ("accepted", "person"), "new": ("suggested", "model")}


def test_taggers_are_offered_what_a_person_has_accepted_of_their_suggestions(
    connection: Connection, pool: Pool
) -> None:
    session = add_conversation(connection)
    leaf(connection, session)
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:redis"]))
    decide_literal(connection, session, CACHING, "accepted", by="ada")
    leaf(connection, add_conversation(connection, key="k:2"))
    tagger = ScriptedTagger([])
    tag_all(pool, tagger)
    assert list(map(str, tagger.asked[0].vocabulary)) == ["topic:caching"]
    decide_values(connection, [Entry(CACHING, "rejected")], by="ada")
    leaf(connection, add_conversation(connection, key="k:3"))
    tag_all(pool, tagger)
    assert list(tagger.asked[1].vocabulary) == []


@pytest.mark.parametrize("on", ["session", "leaf"])
def test_what_was_rejected_is_never_suggested_again(connection: Connection, pool: Pool, on: str) -> None:
    session = add_conversation(connection)
    summary = leaf(connection, session)
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    decide_literal(connection, session, CACHING, "rejected", by="ada")
    if on == "session":
        leaf(connection, session, "Another one.")
    else:
        connection.execute("UPDATE ros_summaries SET content = content || ' More.' WHERE id = %s", [summary])
    tagger = ScriptedTagger(["topic:caching"])
    tag_all(pool, tagger)
    assert len(tagger.asked) == 1
    assert {status for _, _, status in standing(connection)} == {"rejected"}


def test_what_the_session_has_accepted_is_not_asked_about_again_on_its_leaves(
    connection: Connection, pool: Pool
) -> None:
    session = add_conversation(connection)
    leaf(connection, session)
    add_tag(connection, "conversation", session, CACHING, by="ada")
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    assert standing(connection) == {("conversation", "topic:caching", "accepted")}


def test_merged_values_are_written_as_what_they_mean_and_rejected_ones_not(connection: Connection, pool: Pool) -> None:
    upsert_value(connection, Literal("topic", "cache"), by="ada")
    merge_values(connection, "topic", "cache", "caching", by="ada")
    known = upsert_value(connection, Literal("topic", "misc"), by="ada")
    decide_values(connection, [Entry(Literal("topic", "misc"), "rejected", known.revision)], by="ada")
    leaf(connection)
    tag_all(pool, ScriptedTagger(["topic:cache", "topic:misc", "topic:caching"]))
    assert standing(connection) == {
        ("conversation", "topic:caching", "suggested"),
        ("summary", "topic:caching", "suggested"),
    }


def test_only_trusted_leaves_of_real_sessions_are_asked_about(connection: Connection, pool: Pool) -> None:
    leaf(connection, add_conversation(connection, key="heartbeat:1"))
    leaf(connection, add_conversation(connection, settings={"noise": True}))
    leaf(connection, kind="branch")
    quarantined = leaf(connection, words="Invented.")
    connection.execute("UPDATE ros_summaries SET grounding = 0.1 WHERE id = %s", [quarantined])
    short = leaf(connection)
    connection.execute("UPDATE ros_summaries SET content = 'Short.' WHERE id = %s", [short])
    tagger = ScriptedTagger(["topic:caching"])
    report = tag_all(pool, tagger)
    assert tagger.asked == []
    assert (report.skipped, report.tagged) == (1, 0)
    assert due(connection) == 0
    assert standing(connection) == set()
    connection.execute("UPDATE ros_summaries SET grounding = 0.9 WHERE id = %s", [quarantined])
    assert tag_all(pool, tagger).tagged == 1


def test_days_are_kept_apart(connection: Connection, pool: Pool) -> None:
    leaf(connection)
    tagger = ScriptedTagger(["topic:caching"])
    assert propose_tags(pool, days=[date(2026, 3, 2)], tagger=tagger).tagged == 0
    assert propose_tags(pool, days=[DAY], tagger=tagger).tagged == 1


def test_switched_off_nothing_is_due_and_nothing_asked(connection: Connection, pool: Pool) -> None:
    leaf(connection)
    announce_tagger(connection, ScriptedTagger())
    assert due(connection) == 1
    report = tag_all(pool, None)
    assert (report.tagged, report.stage.model) == (0, None)
    assert due(connection) == 0
    assert standing(connection) == set()
    assert tag_all(pool, ScriptedTagger(["topic:caching"])).tagged == 1


# --- failures ---


def test_a_failure_is_tried_once_more_and_then_succeeds(connection: Connection, pool: Pool) -> None:
    leaf(connection)
    tagger = FailingTagger(1)
    report = tag_all(pool, tagger)
    assert len(tagger.asked) == 2
    assert (report.tagged, report.dropped, report.stage.days[DAY].model_calls) == (1, 0, 2)


@pytest.mark.parametrize("cause", ["transient", "content", "permanent"])
def test_a_leaf_that_fails_twice_is_dropped_counted_and_not_pending(
    connection: Connection, pool: Pool, cause: Any
) -> None:
    leaf(connection)
    tagger = FailingTagger(2, cause)
    report = tag_all(pool, tagger)
    assert len(tagger.asked) == 2
    assert (report.dropped, report.stage.failures, report.errors) == (1, 1, ["http-503: busy"])
    assert due(connection) == 0
    assert dropped_leaves(connection).at_fault == 1
    stats = collect_stats(connection)
    assert stats.figures["tags"]["dropped"] == 1
    assert any("went without tags" in alert for alert in stats.alerts)
    assert tag_all(pool, tagger).tagged == 0
    assert ask_again(connection, since=None, before=None, dropped_only=True) == 1
    assert tag_all(pool, tagger).tagged == 1
    assert dropped_leaves(connection).at_fault == 0


def test_a_service_that_is_down_stops_the_pass_and_what_is_left_catches_up(connection: Connection, pool: Pool) -> None:
    for number in range(6):
        leaf(connection, words=f"Leaf {number}.")
    down = FailingTagger(1000)
    report = tag_all(pool, down)
    assert (report.dropped, len(down.asked)) == (3, 6)
    assert due(connection) == 0
    [failure] = rows(connection, "SELECT item, cause, error FROM ros_failures WHERE stage = 'tag_proposals'")
    assert failure == {"item": "service", "cause": "transient", "error": "http-503: busy"}
    assert tag_all(pool, down).dropped == 0
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")
    assert due(connection) == 3
    assert tag_all(pool, ScriptedTagger(["topic:caching"])).tagged == 3
    assert rows(connection, "SELECT 1 FROM ros_failures") == []


def test_leaves_at_fault_do_not_stop_the_pass(connection: Connection, pool: Pool) -> None:
    for number in range(5):
        leaf(connection, words=f"Leaf {number}.")

    def script(request: Any) -> list[str]:
        if "Leaf 4" not in request.text:
            raise ModelError("content", "no-sound-tag", "nonsense")
        return ["topic:caching"]

    report = tag_all(pool, ScriptedTagger(script))
    assert (report.tagged, report.dropped) == (1, 4)
    assert rows(connection, "SELECT 1 FROM ros_failures") == []


def test_a_defect_of_ours_costs_one_leaf(connection: Connection, pool: Pool) -> None:
    leaf(connection, words="Leaf A.")
    leaf(connection, words="Leaf B.")

    def script(request: Any) -> list[str]:
        if "Leaf A" in request.text:
            raise ZeroDivisionError("oops")
        return ["topic:caching"]

    report = tag_all(pool, ScriptedTagger(script))
    assert (report.tagged, report.errors) == (1, ["defect: ZeroDivisionError: oops"])


# --- done again ---


def test_a_newer_version_asks_again_and_takes_back_what_it_would_not_say(
    connection: Connection, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = add_conversation(connection)
    leaf(connection, session)
    leaf(connection, session, "Another.")
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:vague", "topic:wrong", "topic:kept"]))
    decide_literal(connection, session, Literal("topic", "wrong"), "rejected", by="ada")
    decide_literal(connection, session, Literal("topic", "kept"), "accepted", by="ada")
    monkeypatch.setattr(propose, "TAGS_VERSION", TAGS_VERSION + 1)
    tagger = ScriptedTagger(["topic:caching", "topic:new", "topic:wrong"])
    announce_tagger(connection, tagger)
    assert due(connection) == 0
    assert [(item.stage, item.items, item.ready) for item in stale_days(connection)] == [("tag_proposals", 2, 2)]
    assert outdated_leaves(connection).at_fault == 1
    assert tag_all(pool, tagger).tagged == 2
    assert outdated_leaves(connection).at_fault == 0
    assert {(tag, status) for kind, tag, status in standing(connection) if kind == "conversation"} == {
        ("topic:caching", "suggested"),
        ("topic:new", "suggested"),
        ("topic:wrong", "rejected"),
        ("topic:kept", "accepted"),
    }
    assert tag_all(pool, tagger).tagged == 0


def test_a_leaf_that_was_made_again_is_asked_about_again(connection: Connection, pool: Pool) -> None:
    summary = leaf(connection)
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    connection.execute("UPDATE ros_summaries SET content = content || ' And more.' WHERE id = %s", [summary])
    assert due(connection) == 1
    tag_all(pool, ScriptedTagger(["topic:redis"]))
    assert {tag for _, tag, _ in standing(connection)} == {"topic:redis"}


def test_wanted_days_are_asked_about_again(connection: Connection, pool: Pool) -> None:
    leaf(connection)
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    assert ask_again(connection, since=date(2026, 3, 2), before=None, dropped_only=False) == 0
    assert ask_again(connection, since=DAY, before=date(2026, 3, 2), dropped_only=False) == 1
    assert due(connection) == 1


# --- removals ---


def test_a_removal_is_suggested_of_what_nobody_has_reviewed_and_refused_once(
    connection: Connection, pool: Pool
) -> None:
    session = add_conversation(connection, settings={"project": "shop"})
    leaf(connection, session)
    add_tag(connection, "conversation", session, CACHING, by="ada")
    remove = [proposal("project:shop", removal=True), proposal("topic:caching", removal=True)]
    tag_all(pool, ScriptedTagger(remove))
    found = rows(connection, "SELECT tag_value, removal, removal_reason FROM ros_tags ORDER BY tag_value")
    assert found == [
        {"tag_value": "caching", "removal": None, "removal_reason": ""},
        {"tag_value": "shop", "removal": "suggested", "removal_reason": "it says so"},
    ]
    decide_literal(connection, session, Literal("project", "shop"), "kept", by="ada")
    leaf(connection, session, "Another.")
    tag_all(pool, ScriptedTagger(remove))
    assert {row["removal"] for row in rows(connection, "SELECT removal FROM ros_tags")} == {None, "refused"}


# --- others at the same time ---


def test_two_workers_ask_about_a_leaf_once(connection: Connection, pool: Pool) -> None:
    for number in range(8):
        leaf(connection, words=f"Leaf {number}.")
    barrier = threading.Barrier(2, timeout=20)
    taggers = [ScriptedTagger(["topic:caching"]), ScriptedTagger(["topic:caching"])]

    def work(tagger: ScriptedTagger) -> None:
        barrier.wait()
        tag_all(pool, tagger)

    threads = [threading.Thread(target=work, args=(tagger,)) for tagger in taggers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [request.text for tagger in taggers for request in tagger.asked]
    assert len(texts) == len(set(texts)) == 8
    assert len(rows(connection, "SELECT 1 FROM ros_tags")) == 16


def test_a_merge_between_question_and_answer_is_followed(connection: Connection, pool: Pool) -> None:
    session = add_conversation(connection)
    leaf(connection, session)
    upsert_value(connection, Literal("topic", "cache"), by="ada")

    class Slow(ScriptedTagger):
        def propose(self, request: Any) -> TagAnswer:
            merge_values(connection, "topic", "cache", "caching", by="ada")
            return super().propose(request)

    tag_all(pool, Slow(["topic:cache"]))
    assert {tag for _, tag, _ in standing(connection)} == {"topic:caching"}
