"""What becomes of leaves: mined once a text and a version, trusted ones, with reviewed tags; failures stay failures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.stale import stale_days
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.pages import build_page, page_to_json
from rivet_pipeline.wiki.quality import oversized_pages, stale_extractions, uncited_sentences, unlike_their_patches
from rivet_pipeline.wiki.read import list_topics, read_gaps, read_topic
from rivet_pipeline.wiki.requests import read_request
from rivet_pipeline.wiki.store import applied_patches
from rivet_pipeline.wiki.topics import refresh_topics, wiki_is_due
from rivet_pipeline.wiki.types import MineRequest, PatchDraft
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.wiki_rows import (
    ScriptedMiner,
    add_leaf,
    change_leaf,
    conversation_of,
    draft,
    mine,
    say_lines,
    tag,
)


def texts(connection: Connection, slug: str) -> list[str]:
    page = read_topic(connection, slug)
    return [] if page is None else [one.text for section in page.sections for one in section.sentences]


def statuses(connection: Connection) -> list[str]:
    return [row["status"] for row in connection.execute("SELECT status FROM ros_wiki_patches ORDER BY seq")]


def pending(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) AS n FROM ros_pending_wiki_patches").fetchone()
    assert row is not None
    return int(row["n"])


def assert_sound(connection: Connection) -> None:
    for question in (uncited_sentences, unlike_their_patches, oversized_pages):
        finding = question(connection)
        assert finding.at_fault == 0, finding.examples


def test_a_leaf_is_mined_once(connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "Importer | It listens on 8437\nImporter clock | It is in UTC")
    miner = ScriptedMiner(say_lines)
    report = mine(pool, miner)
    assert (report.rows, report.failures, report.model_calls) == (2, 0, 1)
    assert mine(pool, miner).rows == 0
    assert len(miner.asked) == 1
    assert texts(connection, "importer") == ["It listens on 8437"]
    assert pending(connection) == 0
    row = connection.execute("SELECT leaf_id, outcome, patches FROM ros_wiki_extractions").fetchone()
    assert row == {"leaf_id": leaf, "outcome": "patches", "patches": 2}
    assert_sound(connection)


def test_pages_that_came_later_do_not_crowd_out_those_that_a_leaf_was_shown(connection: Connection, pool: Pool) -> None:
    for place in range(5):
        add_leaf(connection, f"Basin {'abcde'[place]} | The gate of the quay is old", days=-9)
    leaf = add_leaf(connection, "Quay gate | It is open", title="Gate of the quay")
    mine(pool)
    shown = {one.title for one in read_request(connection, leaf).candidates}
    for place in range(22):
        add_leaf(
            connection,
            f"Lamp q{'abcdefghijklmnopqrstuv'[place]} | The quay gate, the gate of the quay, is open at the gate",
            days=9,
        )
    mine(pool)
    assert list_topics(connection)[1] == 28
    assert len(shown) == 5
    assert shown <= {one.title for one in read_request(connection, leaf).candidates}


def test_nothing_to_keep_is_an_outcome_and_not_pending_again(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Nothing of note.")
    miner = ScriptedMiner(lambda _: [])
    mine(pool, miner)
    mine(pool, miner)
    assert len(miner.asked) == 1
    assert connection.execute("SELECT outcome FROM ros_wiki_extractions").fetchall() == [{"outcome": "none"}]


def test_untrusted_leaves_and_noise_sessions_are_not_mined(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Alpha | It runs", grounding=0.2)
    add_leaf(connection, "Beta | It runs", conversation=add_conversation(connection, key="heartbeat:1"))
    miner = ScriptedMiner(say_lines)
    mine(pool, miner)
    assert miner.asked == []
    assert pending(connection) == 0


def test_more_than_three_patches_are_cut(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "\n".join(f"Page {word} | It holds" for word in ("one", "two", "three", "four", "five")))
    assert mine(pool).rows == 3


def test_a_changed_leaf_is_mined_again_and_what_it_no_longer_says_is_not_cited_from_it(
    connection: Connection, pool: Pool
) -> None:
    first = add_leaf(connection, "Importer | It listens on a port | It polls five gauges")
    second = add_leaf(connection, "Importer | It polls five gauges", days=1)
    mine(pool)
    change_leaf(connection, first, "Importer | It listens on a port")
    assert pending(connection) == 1
    mine(pool)
    page = read_topic(connection, "importer")
    assert page is not None
    cited = {
        one.text: {citation.leaf_id for citation in one.citations}
        for section in page.sections
        for one in section.sentences
    }
    assert cited == {"It listens on a port": {first}, "It polls five gauges": {second}}
    assert statuses(connection).count("replaced") == 1
    assert_sound(connection)


def test_a_leaf_that_lost_its_trust_takes_its_words_with_it(connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "Importer | It listens on 8437")
    mine(pool)
    change_leaf(connection, leaf, "Importer | It listens on 9999", grounding=0.1)
    mine(pool)
    assert read_topic(connection, "importer") is None
    assert connection.execute("SELECT outcome FROM ros_wiki_extractions").fetchall() == [{"outcome": "untrusted"}]
    assert pending(connection) == 0


def test_a_leaf_that_changes_while_it_is_mined_stays_pending(connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "Importer | It listens on 8437")

    def slow(request: MineRequest) -> Sequence[PatchDraft]:
        if "8437" in request.text:
            change_leaf(connection, leaf, "Importer | It listens on 9000")
        return say_lines(request)

    mine(pool, ScriptedMiner(slow))
    assert pending(connection) == 1
    assert connection.execute("SELECT count(*) AS n FROM ros_wiki_patches").fetchone() == {"n": 0}
    mine(pool)
    assert texts(connection, "importer") == ["It listens on 9000"]


def test_a_newer_version_mines_each_leaf_once_more_after_the_new_ones(connection: Connection, pool: Pool) -> None:
    old = add_leaf(connection, "Importer | It listens on 8437")
    mine(pool)
    new = add_leaf(connection, "Backup | It runs at night", days=5)
    miner = ScriptedMiner(say_lines)
    mine(pool, miner, version=5)
    assert [request.leaf_id for request in miner.asked] == [new, old]
    mine(pool, miner, version=5)
    assert len(miner.asked) == 2
    # The same answer changes nothing.
    assert statuses(connection) == ["applied", "applied"]
    assert [row["revision"] for row in connection.execute("SELECT revision FROM ros_wiki_topics")] == [1, 1]


def test_what_an_older_version_mined_is_stale_and_not_pending(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It listens on 8437")
    mine(pool)
    connection.execute("UPDATE ros_refinement_versions SET version = 5 WHERE stage = 'wiki_patches'")
    assert pending(connection) == 0
    assert [(day.stage, day.items, day.ready) for day in stale_days(connection)] == [("wiki_patches", 1, 1)]
    assert stale_extractions(connection).at_fault == 1
    assert read_gaps(connection).older_version == 1


def test_a_content_failure_stays_a_failure_until_the_text_or_the_version_changes(
    connection: Connection, pool: Pool
) -> None:
    leaf = add_leaf(connection, "Importer | It listens on 8437")
    add_leaf(connection, "Backup | It runs at night", days=1)

    def refuses(request: MineRequest) -> Sequence[PatchDraft]:
        if "8437" in request.text:
            raise ModelError("content", "wrong-shape", "no")
        return say_lines(request)

    miner = ScriptedMiner(refuses)
    for _ in range(4):
        connection.execute(
            "UPDATE ros_failures SET next_attempt_at = now() - interval '1 second' WHERE next_attempt_at > now()"
        )
        mine(pool, miner)
    row = connection.execute("SELECT item, cause, attempts, next_attempt_at FROM ros_failures").fetchone()
    assert row == {"item": str(leaf), "cause": "content", "attempts": 3, "next_attempt_at": None}
    assert texts(connection, "backup") == ["It runs at night"]
    assert connection.execute("SELECT count(*) AS n FROM ros_wiki_extractions").fetchone() == {"n": 1}
    assert read_gaps(connection).unmined == 1
    change_leaf(connection, leaf, "Importer | It listens on 9000")
    mine(pool, miner)
    assert texts(connection, "importer") == ["It listens on 9000"]
    assert connection.execute("SELECT count(*) AS n FROM ros_failures").fetchone() == {"n": 0}


def test_a_service_that_is_down_ends_the_pass_with_one_entry(connection: Connection, pool: Pool) -> None:
    for place in range(3):
        add_leaf(connection, f"Page {place} | It holds", days=place)

    def down(_: MineRequest) -> Sequence[PatchDraft]:
        raise ModelError("transient", "http-503", "busy")

    miner = ScriptedMiner(down)
    assert mine(pool, miner).failures == 1
    assert len(miner.asked) == 1
    assert connection.execute("SELECT item, cause FROM ros_failures").fetchall() == [
        {"item": "service", "cause": "transient"}
    ]
    assert pending(connection) == 0
    connection.execute("UPDATE ros_failures SET next_attempt_at = now()")
    assert mine(pool).rows == 3


def test_a_defect_of_ours_is_a_failure_of_its_leaf_alone(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "bad")
    add_leaf(connection, "Backup | It runs at night", days=1)

    def breaks(request: MineRequest) -> Sequence[PatchDraft]:
        return say_lines(request) or [draft("One of two", str(1 // 0))]

    report = mine(pool, ScriptedMiner(breaks))
    assert (report.rows, report.failures) == (1, 1)


@pytest.mark.parametrize("title", ["We moved it to the host", "", "x" * 200])
def test_a_sentence_as_title_is_a_failure(connection: Connection, pool: Pool, title: str) -> None:
    add_leaf(connection, "x")
    assert mine(pool, ScriptedMiner(lambda _: [draft(title, "It holds")])).failures == 1
    row = connection.execute("SELECT error FROM ros_failures").fetchone()
    assert row is not None
    assert row["error"].startswith("bad-title")


# --- tags -----------------------------------------------------------------------------------------------------------


def test_reviewed_tags_are_hints_and_become_names_and_the_rules_tag_does_neither(
    connection: Connection, pool: Pool
) -> None:
    leaf = add_leaf(connection, "The kelpie importer: Importer | It listens | @kelpie | @project:kelpie | @TG-02")
    conversation = conversation_of(connection, leaf)
    tag(connection, conversation, "project:kelpie")
    tag(connection, conversation, "topic:tides", by="mara")
    miner = ScriptedMiner(
        lambda request: [draft("Importer", "It listens", entities=["kelpie", "project:kelpie", "TG-02"])]
    )
    mine(pool, miner)
    (request,) = miner.asked
    assert [(one.key, one.value) for one in request.reviewed] == [("topic", "tides")]
    assert request.ran_in == ["kelpie"]
    row = connection.execute("SELECT entities FROM ros_wiki_topics").fetchone()
    assert row == {"entities": ["TG-02", "topic:tides"]}


def test_the_rules_tag_that_a_person_accepts_is_a_reviewed_tag(connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "x")
    tag(connection, conversation_of(connection, leaf), "project:kelpie", by="mara")
    miner = ScriptedMiner(lambda _: [draft("Importer", "It listens", entities=["kelpie"])])
    mine(pool, miner)
    row = connection.execute("SELECT entities FROM ros_wiki_topics").fetchone()
    assert row == {"entities": ["kelpie", "project:kelpie"]}


def test_suggested_tags_are_not_used_and_tags_accepted_later_inform_later_leaves_alone(
    connection: Connection, pool: Pool
) -> None:
    conversation = add_conversation(connection)
    add_leaf(connection, "Importer | It listens", conversation=conversation)
    tag(connection, conversation, "topic:tides", by="mara")
    connection.execute("UPDATE ros_tags SET status = 'suggested', decided_by = NULL, decided_at = NULL")
    miner = ScriptedMiner(say_lines)
    mine(pool, miner)
    connection.execute("UPDATE ros_tags SET status = 'accepted', decided_by = 'mara', decided_at = now()")
    assert mine(pool, miner).rows == 0
    add_leaf(connection, "Importer | It polls", conversation=conversation, days=1)
    mine(pool, miner)
    assert [[one.value for one in request.tags] for request in miner.asked] == [[], ["tides"]]


def test_the_rules_tag_asks_for_pages_only_where_the_summary_speaks_of_it(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Kelpie | It syncs notes")
    mine(pool)
    silent = add_leaf(connection, "Nothing to see", days=1)
    spoken = add_leaf(connection, "It was about Kelpie all day long", days=2)
    for leaf in (silent, spoken):
        tag(connection, conversation_of(connection, leaf), "project:kelpie")
    miner = ScriptedMiner(lambda _: [])
    mine(pool, miner)
    why = {request.leaf_id: [candidate.why for candidate in request.candidates] for request in miner.asked}
    assert why == {silent: [], spoken: ["tag hint"]}


def test_a_reviewed_tag_asks_for_pages_whatever_the_summary_says(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Kelpie | It syncs notes")
    mine(pool)
    leaf = add_leaf(connection, "Nothing to see", days=1)
    tag(connection, conversation_of(connection, leaf), "project:kelpie", by="mara")
    miner = ScriptedMiner(lambda _: [])
    mine(pool, miner)
    assert [candidate.slug for candidate in miner.asked[0].candidates] == ["kelpie"]


def test_a_reviewed_topic_names_the_page_for_the_miner_without_a_model(connection: Connection, pool: Pool) -> None:
    text = "- 2026-03-02T11:00Z opus/user: We decided to keep surge warning thresholds at 263 cm."
    leaf = add_leaf(connection, text, title="Assorted chores")
    tag(connection, conversation_of(connection, leaf), "topic:surge-warning", by="mara")
    assert mine(pool, DeterministicMiner()).rows == 1  # type: ignore[arg-type]
    assert texts(connection, "surge-warning") == ["We decided to keep surge warning thresholds at 263 cm."]


# --- at once --------------------------------------------------------------------------------------------------------


def at_once(*jobs: Any) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_four_workers_make_one_page_of_one_subject_and_mine_each_leaf_once(connection: Connection, pool: Pool) -> None:
    leaves: list[UUID] = [
        add_leaf(connection, f"Importer | Sentence number {'x' * place} of it | @PR #{place}", days=place)
        for place in range(12)
    ]
    miner = ScriptedMiner(say_lines)
    at_once(*[lambda: mine(pool, miner)] * 4)
    assert sorted(map(str, {request.leaf_id for request in miner.asked})) == sorted(map(str, leaves))
    assert [row["slug"] for row in connection.execute("SELECT slug FROM ros_wiki_topics")] == ["importer"]
    assert statuses(connection) == ["applied"] * 12
    assert len(texts(connection, "importer")) == 12
    assert_sound(connection)


def test_pages_of_older_rules_are_made_again(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It listens on 8437")
    mine(pool)
    assert not wiki_is_due(connection)
    connection.execute("UPDATE ros_wiki_topics SET page_version = 0, page = jsonb_set(page, '{archived}', '7')")
    assert wiki_is_due(connection)
    report = refresh_topics(connection)
    assert (report.rebuilt, report.changed, report.counts.pages) == (1, 1, 1)
    row = connection.execute("SELECT id, title, page, revision FROM ros_wiki_topics").fetchone()
    assert row is not None
    assert row["page"] == page_to_json(build_page(row["title"], applied_patches(connection, row["id"])))
    assert row["revision"] == 2
    assert refresh_topics(connection).rebuilt == 0
