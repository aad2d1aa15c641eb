"""A leaf mined once more: names, what a person accepted and what was superseded stay; nothing stands there twice."""

from __future__ import annotations

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.read import read_topic
from rivet_pipeline.wiki.requests import MOST_CANDIDATES, read_request
from rivet_pipeline.wiki.review import decide
from rivet_pipeline_tests.integration.chat_server import chat_server, says
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.test_wiki_mining import assert_sound, statuses, texts
from rivet_pipeline_tests.integration.test_wiki_model import SENTENCE, answer, miner_at, patch
from rivet_pipeline_tests.integration.test_wiki_review import patch_ids
from rivet_pipeline_tests.integration.wiki_rows import (
    ScriptedMiner,
    add_leaf,
    change_leaf,
    conversation_of,
    draft,
    mine,
    tag,
)


@pytest.mark.parametrize("changed", [False, True], ids=["a newer version", "a changed text"])
def test_a_page_keeps_its_names_when_its_leaf_is_mined_again_in_other_words(
    connection: Connection, pool: Pool, changed: bool
) -> None:
    add_leaf(connection, "Gauges are polled")
    mine(pool, ScriptedMiner(lambda _: [draft("Gauge poller", "It polls gauges")]))
    leaf = add_leaf(connection, "The poller daemon", days=1)
    first = draft("Poller daemon", "It polls five gauges", aliases=["Gauge poller", "Pollerd"])
    mine(pool, ScriptedMiner(lambda _: [first]))
    assert read_topic(connection, "Poller daemon").aliases == ("Poller daemon", "Pollerd")  # type: ignore[union-attr]
    if changed:
        change_leaf(connection, leaf, "The poller daemon, in other words")
    again = ScriptedMiner(lambda _: [draft("Gauge poller", "All five gauges are polled by it")])
    connection.execute("UPDATE ros_wiki_extractions SET pipeline_version = 9 WHERE leaf_id <> %s", [leaf])
    mine(pool, again, version=5)
    page = read_topic(connection, "Pollerd")
    assert page is not None
    assert (page.slug, page.aliases) == ("gauge-poller", ("Poller daemon", "Pollerd"))
    assert texts(connection, "gauge-poller") == ["It polls gauges", "All five gauges are polled by it"]
    assert_sound(connection)


def test_a_tag_that_was_accepted_since_becomes_a_name_though_the_sentences_are_the_same(
    connection: Connection, pool: Pool
) -> None:
    leaf = add_leaf(connection, "Importer | It polls gauges | @Gauges")
    mine(pool)
    tag(connection, conversation_of(connection, leaf), "topic:tides", by="mara")
    mine(pool, version=5)
    assert read_topic(connection, "importer").entities == ("Gauges", "topic:tides")  # type: ignore[union-attr]
    assert statuses(connection) == ["applied"]
    mine(pool, version=6)
    assert read_topic(connection, "importer").revision == 2  # type: ignore[union-attr]
    assert_sound(connection)


def test_what_a_person_accepted_stays_after_review_was_switched_off(connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "Importer | It polls gauges | It sleeps")
    mine(pool, review=True)
    decide(connection, patch_ids(connection), "accept", by="mara")
    mine(pool, ScriptedMiner(lambda _: [draft("Importer", "It has a clock")]), version=5)
    assert set(texts(connection, "importer")) == {"It polls gauges", "It sleeps", "It has a clock"}
    # The same words but for an article do not stand beside what was accepted; a word more, or another one, does.
    same = "Migrations run before the deploy step"
    add_leaf(connection, f"Gauge service | {same} | It counts", days=1)
    mine(pool, review=True, version=5)
    decide(connection, patch_ids(connection), "accept", by="mara")
    again, other = "The migrations run before the deploy step", "Migrations run after the deploy step"
    newer = [draft("Gauge service", again, other, "It counts", "It waits"), draft("Tide clock", again)]
    mine(pool, ScriptedMiner(lambda request: newer if same in request.text else []), version=6)
    assert set(texts(connection, "gauge-service")) == {same, other, "It counts", "It waits"}
    assert read_topic(connection, "tide-clock") is None
    # As far as the leaf still says it, and while the leaf is trusted.
    change_leaf(connection, leaf, "Importer | It sleeps")
    mine(pool, version=5)
    assert texts(connection, "importer") == ["It sleeps"]
    change_leaf(connection, leaf, "Importer | It sleeps | Nobody knows where", grounding=0.1)
    mine(pool, version=5)
    assert read_topic(connection, "importer") is None
    assert_sound(connection)


def test_an_answer_that_says_the_same_twice_is_one_patch(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It polls gauges\nimporter | It polls gauges.\nImporter clock | It is in UTC")
    assert mine(pool).rows == 2
    assert connection.execute("SELECT patches FROM ros_wiki_extractions").fetchone() == {"patches": 2}
    mine(pool, version=5)
    assert statuses(connection) == ["applied", "applied"]


def test_a_model_is_shown_a_page_as_it_was_before_the_leaf_and_supersedes_again(
    connection: Connection, pool: Pool
) -> None:
    add_leaf(connection, "- 2026-03-02T11:00Z opus/user: The importer listens on port 8437.")
    with chat_server(lambda _: says(answer(patch()))) as server:
        miner = miner_at(server.url)
        mine_leaves(pool, days=None, miner=miner)
        leaf = add_leaf(
            connection, "- 2026-03-05T11:00Z opus/user: The tide gauge importer moved to port 9000.", days=3
        )
        moved = {"section": "facts", "text": "The importer moved to port 9000.", "replaces": [1]}
        server.script = lambda _: says(answer(patch(page="tide-gauge-importer", claims=[moved])))
        mine_leaves(pool, days=None, miner=miner)
        first = server.asked[-1]["messages"]
        again = {"section": "facts", "text": "Port 9000 is where the importer moved to.", "replaces": [1]}
        server.script = lambda _: says(answer(patch(page="tide-gauge-importer", aliases=[], claims=[again])))
        connection.execute("UPDATE ros_wiki_extractions SET pipeline_version = 9 WHERE leaf_id <> %s", [leaf])
        mine_leaves(pool, days=None, miner=miner, version=WIKI_PIPELINE_VERSION + 1)
        assert len(server.asked) == 3
        assert server.asked[-1]["messages"] == first
    page = read_topic(connection, "tide-gauge-importer")
    assert page is not None
    assert texts(connection, "tide-gauge-importer") == ["Port 9000 is where the importer moved to."]
    assert [former.sentence.text for former in page.history] == [SENTENCE]
    assert_sound(connection)


def test_a_long_session_leaves_room_for_pages_that_are_searched_for(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Receipt scanner | It reads receipts of the till")
    session = add_conversation(connection)
    for place in range(MOST_CANDIDATES + 4):
        add_leaf(connection, f"A{place}th thing | It is of {place}", days=1 + place, conversation=session)
    mine(pool)
    leaf = add_leaf(connection, "The receipt scanner reads receipts of the till", days=40, conversation=session)
    shown = [candidate.slug for candidate in read_request(connection, leaf).candidates]
    assert "receipt-scanner" in shown
    # The session's latest, not those that come first in the alphabet.
    assert shown[0] == f"a{MOST_CANDIDATES + 3}th-thing"


def test_what_was_refused_does_not_return_in_other_words_of_its_leaf(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | The importer listens on port 8437 of the host | The importer polls five gauges")
    mine(pool)
    (patch,) = patch_ids(connection, "applied")
    decide(connection, [patch], "revert", by="mara")
    said = ["Port 8437 of the host is where the importer is listening", "The importer listens on port 9000 of the host"]
    mine(pool, ScriptedMiner(lambda _: [draft("Importer", *said)]), version=5)
    assert texts(connection, "importer") == [said[1]]
    assert_sound(connection)


def test_who_takes_one_of_two_like_sentences_back_keeps_the_other(connection: Connection, pool: Pool) -> None:
    kept, twice = "The importer listens on port 8437 of the host", "The importer is listening on port 8437 of the host"
    add_leaf(connection, f"Importer | {kept}\nGauge service | {twice}")
    mine(pool)
    decide(connection, patch_ids(connection, "applied")[1:], "revert", by="mara")
    other = "Port 8437 of the host is where the importer is listening"
    mine(pool, ScriptedMiner(lambda _: [draft("Importer", other)]), version=5)
    assert texts(connection, "importer") == [other]


def test_a_page_of_its_own_is_always_among_those_a_leaf_is_shown(connection: Connection, pool: Pool) -> None:
    for place in range(MOST_CANDIDATES):
        topic = add_conversation(connection)
        add_leaf(connection, f"Receipt scanner {place} | It reads receipts of till {place}", conversation=topic)
    session = add_conversation(connection)
    for place in range(4):
        add_leaf(connection, f"A{place}th thing | It is of {place}", days=1 + place, conversation=session)
    mine(pool)
    leaf = add_leaf(
        connection, "Till roll | The receipt scanner wants receipts of the till", days=9, conversation=session
    )
    tag(connection, session, "topic:receipt-scanner", by="mara")
    before = read_request(connection, leaf).candidates
    assert len(before) == MOST_CANDIDATES
    mine(pool, ScriptedMiner(lambda _: [draft("Till roll", "It wants receipts of the till")]))
    again = read_request(connection, leaf).candidates
    assert len(again) == MOST_CANDIDATES
    assert (again[-1].slug, again[-1].page.bullets) == ("till-roll", [])
    assert [one.slug for one in again[:-1]] == [one.slug for one in before[:-1]]
