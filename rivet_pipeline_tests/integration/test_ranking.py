"""What surroundings do to a row's place: neighbours, the summary tree, the conversation, repetition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.models.protocols import Vectors
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.query_vectors import _weighed, weigh_words
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    add_conversation,
    add_message,
    add_summary,
    add_vector,
    find,
    ids,
    register_model,
)


def made_from(connection: Connection, summary: UUID, *messages: UUID) -> None:
    for ordinal, message in enumerate(messages):
        connection.execute(
            "INSERT INTO ros_summary_sources (summary_id, message_id, ordinal) VALUES (%s, %s, %s)",
            [summary, message, ordinal],
        )


def test_an_answer_is_found_by_the_words_of_its_question(connection: Connection) -> None:
    register_model(connection)
    conversation = add_conversation(connection)
    add_message(connection, "Which paint covers the hull?", conversation=conversation, age_days=3.002, embed=True)
    answer = add_message(
        connection, "Blue, two coats.", conversation=conversation, role="assistant", age_days=3.001, embed=True
    )
    add_message(connection, "Thanks, bye.", conversation=conversation, age_days=3.0, embed=True)
    for number in range(200):
        add_message(connection, f"entry {number} of something else entirely", age_days=3, embed=True)
    hits = find(connection, "which paint covers the hull", embedded=True).hits
    assert hits[1].id == answer
    assert hits[1].parts.text == 0
    assert hits[1].parts.neighbours > hits[0].parts.neighbours


def test_a_neighbour_outside_of_the_filters_is_not_found(connection: Connection) -> None:
    register_model(connection)
    conversation = add_conversation(connection)
    question = add_message(connection, "Which paint?", conversation=conversation, age_days=2, embed=True)
    add_message(connection, "Blue.", conversation=conversation, role="assistant", age_days=1, embed=True)
    add_message(connection, "tick", conversation=conversation, age_days=1.5, metadata={"kind": "progress"})
    filters: list[dict[str, Any]] = [{"role": "user"}, {"before": NOW - timedelta(days=1.8)}]
    for wanted in filters:
        assert ids(find(connection, "which paint", embedded=True, **wanted).hits) == [question]


def test_progress_ticks_stand_between_no_neighbours(connection: Connection) -> None:
    register_model(connection)
    conversation = add_conversation(connection)
    add_message(connection, "Which paint?", conversation=conversation, age_days=2, embed=True)
    add_message(connection, "tick", conversation=conversation, age_days=1.5, metadata={"kind": "progress"})
    answer = add_message(connection, "Blue.", conversation=conversation, role="assistant", age_days=1, embed=True)
    hits = {hit.id: hit for hit in find(connection, "which paint", embedded=True).hits}
    assert hits[answer].parts.neighbours > 0
    assert len(hits) == 2


def test_words_alone_bring_no_row_without_them(connection: Connection) -> None:
    conversation = add_conversation(connection)
    question = add_message(connection, "Which paint?", conversation=conversation, age_days=2)
    add_message(connection, "Blue.", conversation=conversation, age_days=1)
    assert ids(find(connection, "which paint").hits) == [question]


def test_a_summary_and_what_it_was_made_from_lend_to_each_other_and_the_lower_one_steps_back(
    connection: Connection,
) -> None:
    conversation = add_conversation(connection)
    message = add_message(connection, "The ledger moves on Friday.", conversation=conversation)
    summary = add_summary(connection, "The ledger moves on Friday.", conversation=conversation)
    alone = find(connection, "ledger moves").hits
    assert [hit.parts.tree for hit in alone] == [0, 0]
    assert [hit.parts.diversity for hit in alone] == [1, 1]
    made_from(connection, summary, message)
    tied = find(connection, "ledger moves").hits
    assert all(hit.parts.tree > 0 for hit in tied)
    assert tied[0].parts.diversity == 1
    assert tied[1].parts.diversity < 1
    assert tied[0].score > alone[0].score


def test_a_summarys_parent_is_its_relative_too(connection: Connection) -> None:
    conversation = add_conversation(connection)
    leaf = add_summary(connection, "The ledger moves on Friday.", conversation=conversation)
    branch = add_summary(connection, "The ledger moves.", conversation=conversation, kind="branch")
    connection.execute("UPDATE ros_summaries SET parent_id = %s WHERE id = %s", [branch, leaf])
    assert all(hit.parts.tree > 0 for hit in find(connection, "ledger moves").hits)


def test_one_conversation_does_not_fill_the_list(connection: Connection) -> None:
    crowded = add_conversation(connection)
    for _ in range(30):
        add_message(connection, "the tide gauge is late", conversation=crowded)
    others = {add_message(connection, "the tide gauge is late today") for _ in range(4)}
    hits = find(connection, "tide gauge late", limit=24).hits
    assert others < set(ids(hits))
    assert ids(find(connection, "tide gauge late", limit=10).hits) == ids(hits)[:10]
    within = find(connection, "tide gauge late", limit=20, conversation_id=crowded).hits
    assert all(hit.parts.diversity == 1 for hit in within)


def test_a_row_of_a_conversation_about_the_matter_stands_above_a_like_one_elsewhere(connection: Connection) -> None:
    about = add_conversation(connection)
    add_message(connection, "The winch of the ferry broke.", conversation=about, age_days=5)
    add_message(connection, "A new winch takes a week.", conversation=about, age_days=4)
    wanted = add_message(connection, "The ferry is repaired.", conversation=about, age_days=3)
    elsewhere = add_message(connection, "The ferry is repainted.", age_days=3)
    found = ids(find(connection, "winch of the ferry").hits)
    assert found.index(wanted) < found.index(elsewhere)


@pytest.mark.parametrize("embedded", [True, False])
def test_scores_and_parts_stay_within_the_scale(connection: Connection, embedded: bool) -> None:
    register_model(connection)
    conversation = add_conversation(connection)
    for number in range(40):
        add_message(connection, f"gauge {number % 7} late", conversation=conversation, age_days=number - 5, embed=True)
    hits = find(connection, "gauge 3 late", embedded=embedded, limit=40).hits
    assert hits
    for hit in hits:
        values = [hit.score, *(getattr(hit.parts, name) for name in hit.parts.__dataclass_fields__)]
        assert all(0 <= value <= 1 for value in values), hit
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_the_words_of_a_question_are_weighed_by_what_they_tell(connection: Connection) -> None:
    assert weigh_words(connection, "what did Ada say about winches") is None
    for number in range(50):
        add_message(connection, f"Ada says what she did about matter {number}")
    add_message(connection, "a winch")
    refresh_lexicon(connection)
    question, winch, frame = (
        weigh_words(connection, "what did Ada say about winches"),
        WordLlamaEmbedder().embed(["winches"])[0],
        WordLlamaEmbedder().embed(["what did Ada say about"])[0],
    )
    assert question is not None
    assert float(question @ question) == pytest.approx(1, abs=1e-5)
    plain = WordLlamaEmbedder().embed(["what did Ada say about winches"])[0]
    assert question @ winch > plain @ winch
    assert question @ frame < plain @ frame
    assert weigh_words(connection, "…") is None
    assert weigh_words(connection, "") is None


def test_a_weighed_question_is_remembered_until_its_words_tell_something_else(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        add_message(connection, f"Ada says what she did about matter {number}")
    add_message(connection, "a capstan")
    refresh_lexicon(connection)
    embedded: list[tuple[str, ...]] = []
    embed = WordLlamaEmbedder.embed

    def count(model: WordLlamaEmbedder, texts: Sequence[str]) -> Vectors:
        embedded.append(tuple(texts))
        return embed(model, texts)

    monkeypatch.setattr(WordLlamaEmbedder, "embed", count)
    _weighed.cache_clear()
    first = weigh_words(connection, "which capstan does Ada mean, remembered")
    assert first is not None
    assert not first.flags.writeable
    assert weigh_words(connection, "which capstan does  Ada mean, remembered") is first
    assert embedded == [("which", "capstan", "does", "Ada", "mean", "remembered")]
    for number in range(30):
        add_message(connection, f"capstan {number}")
    refresh_lexicon(connection)
    later = weigh_words(connection, "which capstan does Ada mean, remembered")
    assert later is not None
    assert len(embedded) == 2
    assert later @ embed(WordLlamaEmbedder(), ["capstan"])[0] < first @ embed(WordLlamaEmbedder(), ["capstan"])[0]


def test_what_was_said_at_the_date_that_is_asked_for_stands_first(connection: Connection) -> None:
    register_model(connection)
    then = "2023-08-14"
    age = (NOW - datetime(2023, 8, 14, 12, tzinfo=UTC)) / timedelta(days=1)
    add_message(connection, "The volunteers painted the school", age_days=1, embed=True)
    asked = add_message(
        connection, "volunteers met", conversation=add_conversation(connection), age_days=age, embed=True
    )
    for query in (f"what of the volunteers on {then}", "what of the volunteers in August 2023"):
        hit = find(connection, query, embedded=True).hits[0]
        assert (hit.id, hit.parts.named) == (asked, 1)
    assert find(connection, "what of the volunteers", embedded=True).hits[0].id != asked


def test_a_date_brings_rows_that_words_and_meaning_of_all_times_would_not(connection: Connection) -> None:
    age = (NOW - datetime(2023, 8, 14, 12, tzinfo=UTC)) / timedelta(days=1)
    asked = add_message(
        connection, "the meeting was moved to the hall", conversation=add_conversation(connection), age_days=age
    )
    for number in range(150):
        add_message(connection, f"meeting {number}", age_days=1)
    assert asked not in ids(find(connection, "meeting", limit=10).hits)
    assert find(connection, "meeting in August 2023", limit=10).hits[0].id == asked


def test_a_date_is_no_filter_and_leaves_the_filters_as_they_are(connection: Connection) -> None:
    age = (NOW - datetime(2023, 8, 14, 12, tzinfo=UTC)) / timedelta(days=1)
    add_message(connection, "the ledger was closed", age_days=age)
    new = add_message(connection, "the ledger was opened", age_days=1)
    assert new in ids(find(connection, "ledger in August 2023").hits)
    assert ids(find(connection, "ledger in August 2023", since=NOW - timedelta(days=7)).hits) == [new]


def test_a_date_at_which_nothing_was_said_changes_no_score(connection: Connection) -> None:
    # The row is older than the date: what was said before a time can not be of it.
    add_message(connection, "the ledger of the harbour was closed", age_days=2_000)
    fresh = add_message(connection, "the ledger of the harbour was opened", age_days=1)
    hits = find(connection, "the ledger in August 2023", before=NOW - timedelta(days=1_500)).hits
    assert [hit.parts.named for hit in hits] == [0]
    assert hits[0].parts.temporal > 0
    assert find(connection, "the ledger of 2199-12-24").hits[0].id == fresh


def test_a_long_list_shows_further_conversations_after_its_first_rows(connection: Connection) -> None:
    for _ in range(3):
        loud = add_conversation(connection)
        for number in range(20):
            add_message(connection, f"kestrel number {number} over the kestrel field", conversation=loud, age_days=1)
    for _ in range(9):
        add_message(
            connection,
            "one kestrel, and much else of a long day " * 6,
            conversation=add_conversation(connection),
            age_days=90,
        )
    hits = find(connection, "kestrel", limit=50).hits
    assert len({hit.conversation_id for hit in hits[:10]}) == 3
    assert len({hit.conversation_id for hit in hits[:17]}) == 10
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    default = find(connection, "kestrel", limit=20).hits
    assert ids(default[:10]) == ids(hits[:10])
    assert len({hit.conversation_id for hit in default}) == 10
    short = find(connection, "kestrel", limit=10).hits
    assert len({hit.conversation_id for hit in short}) == 3
    assert any(hit.parts.diversity < 1 for hit in hits[17:])


def test_of_further_conversations_those_come_first_that_hold_words_near_in_meaning(connection: Connection) -> None:
    model = WordLlamaEmbedder()
    register_model(connection, name=model.name, width=model.dimensions)

    def say(text: str, conversation: UUID, age_days: float = 1) -> None:
        message = add_message(connection, text, conversation=conversation, age_days=age_days)
        add_vector(connection, "message", message, model.embed([text])[0])

    loud = add_conversation(connection)
    for number in range(30):
        say(f"dog food, dog food, bag {number} of dog food", loud)
    for _ in range(14):
        other = add_conversation(connection)
        say("he paid for the food", other)
        say("The invoice came on Monday.", other)
    wanted = add_conversation(connection)
    say("he paid for the food", wanted, 200)
    say(
        "On Monday the roof, the invoice, the plumber, the lawyer and the train to the coast; then he got a puppy.",
        wanted,
        200,
    )
    refresh_lexicon(connection)

    request = SearchRequest("dog food", limit=50)
    response = search(connection, request, embed_query=lambda query: model.embed([query])[0], now=NOW)
    order = list(dict.fromkeys(hit.conversation_id for hit in response.hits))
    assert response.degraded is None
    assert len({hit.conversation_id for hit in response.hits[:10]}) == 1
    assert order[:2] == [loud, wanted]
