"""Search: what is found, in which order, and what an odd query or a missing model does."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import numpy as np
import psycopg
import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval import index_state, lexical, scoring, unindexed, vector
from rivet_pipeline.retrieval.filters import tune_session
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import Mode, SearchRequest, Source
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    WIDTH,
    add_conversation,
    add_message,
    add_summary,
    add_vector,
    find,
    hash_embed,
    ids,
    register_model,
)

ODD_QUERIES = [
    "", "   ", "the", "to be or not to be", "&|!()", "🚀", '"', "'", ":*", "@nasa", "don't", "a=b", "GB/s", "x\\y",
    "50%", "100%", "%", "_", "%a_b%", "case_1", "C:\\", "\\", "<x>", "field:value", "'; DROP TABLE messages;--",
    "(", "*x", "foo\\", "[z-a]", "x{1,300}", "((x{1,255}){1,255}){1,255}", "***=(", "(?#x)", "(a+)+$", "pve-01",
    "foo & bar | !baz <-> qux", "-1234", "%s %(name)s", "{braces}", "w" * 5000, "x y " * 3000, "a\tb\nc", "…",
    "de\u0301", "\u200b", "部", "部署", "。", "İstanbul", "Ω", "1e999", "NULL", "$1",
]  # fmt: skip


EVERY_ROW: dict[Source, int] = {"message": 0, "summary": 0}
NO_ROW: dict[Source, list[int]] = {"message": [], "summary": []}


def test_no_query_is_an_error_and_an_empty_answer_says_why(connection: Connection) -> None:
    register_model(connection)
    add_message(connection, "an ordinary sentence about deployments", embed=True)
    for query in ODD_QUERIES:
        for mode in ("fts", "hybrid", "vector"):
            response = find(connection, query, embedded=True, mode=mode)
            assert response.hits or response.reason, (query, mode)
    assert find(connection, "deployments").hits


def test_queries_without_a_word_answer_nothing_with_a_reason(connection: Connection) -> None:
    add_message(connection, 'the quick brown fox and, of the others, "one"')
    for query in ("", "  ", "the", "&|!()", '"', "of the"):
        response = find(connection, query)
        assert response.hits == [], query
        assert response.reason, query


TEXTS_AND_QUERIES = [
    ("bump react-dom to 19", "react-dom"),
    ("bump react-dom to 19", "react dom"),
    ("see photo-2024.jpg", "photo-2024"),
    ("see photo-2024.jpg", "jpg"),
    ("a blue t-shirt", "t-shirt"),
    ("ticket PROJ-1234 is closed", "PROJ-1234"),
    ("ticket PROJ-1234 is closed", "1234"),
    ("the gpt-4o model", "gpt-4o"),
    ("on 2026-03-08 we met", "2026-03-08"),
    ("poseidon-1234a sank", "poseidon-1234a"),
    ("open src/app/user_store.py please", "user_store.py"),
    ("open src/app/user_store.py please", "src/app/user_store.py"),
    ("open src/app/user_store.py please", "user_store"),
    ("at render (/app/src/App.tsx:42:13)", "App.tsx:42:13"),
    ("call getUserById first", "user"),
    ("call getUserById first", "getUserById"),
    ("write __init__ again", "__init__"),
    ("foo.png is broken", "foo"),
    ("ask @nasa about it", "@nasa"),
    ("we need 50% more GB/s", "50%"),
    ("we need 50% more GB/s", "GB/s"),
    ("set field:value there", "field:value"),
    ("node pve-01 is down", "pve-01"),
    ("今天讨论了部署方案", "部署"),
    ("今天讨论了部署方案", "方案"),
    ("我们去了绿禾公园散步", "绿禾公园"),
    ("我们去了绿禾公园散步", "公园"),
    ("デプロイ手順を確認した", "手順"),
    ("배포 절차를 확인했다", "절차"),
    ("un café noir", "cafe"),
    ("un cafe noir", "café"),
    ("un cafe\u0301 noir", "caf\u00e9"),
    ("die Größe stimmt", "grosse"),
    ("die Größe stimmt", "GRÖSSE"),
    ("nach İstanbul fliegen", "istanbul"),
    ("la política cambió", "politica"),
]


@pytest.mark.parametrize("mode", ["hybrid", "fts", "vector", "trigram", "regex"])
def test_an_agent_that_nobody_is_called_is_named_with_those_there_are(connection: Connection, mode: Mode) -> None:
    register_model(connection)
    assert "agent" not in str(find(connection, "parsers", mode=mode, embedded=True, agent="claude").reason)
    for agent in ("codex", "claude-code", "codex"):
        add_message(connection, "about parsers", agent=agent, embed=True)
    asked = find(connection, "parsers", mode=mode, embedded=True, agent="claude")
    assert (asked.hits, asked.reason) == ([], "no message is by an agent 'claude'; there are claude-code, codex")
    assert find(connection, "parsers", mode=mode, embedded=True, agent="codex").hits
    known = find(connection, "parsers", mode=mode, embedded=True, agent="codex", before=NOW - timedelta(days=1))
    assert "no message is by" not in str(known.reason)


def test_a_name_that_is_only_written_otherwise_is_told_how(connection: Connection) -> None:
    add_message(connection, "about parsers", agent="rivet-codex")
    for agent in (" rivet-codex", "Rivet-Codex"):
        reason = find(connection, "parsers", agent=agent).reason
        assert reason == f"no message is by an agent '{agent}'; there is one that is written 'rivet-codex'"


@pytest.mark.parametrize("mode", ["hybrid", "fts", "vector", "trigram", "regex"])
def test_an_empty_memory_says_that_it_is_empty(connection: Connection, mode: Mode) -> None:
    for options in ({}, {"agent": "codex"}, {"conversation_id": uuid4()}):
        reason = find(connection, "kestrel", mode=mode, embedded=True, **options).reason
        assert reason is not None
        assert reason.startswith("the memory is empty: nothing was captured or imported yet")


def test_a_part_of_a_word_that_finds_nothing_is_sent_to_mode_trigram(connection: Connection) -> None:
    register_model(connection)
    add_message(connection, "the commit is 9f8e7d6c5b4a39281706")
    hint = "; mode trigram looks inside of words as well"
    assert str(find(connection, "9f8e7d6c").reason).endswith(hint)
    assert find(connection, "9f8e7d6c", mode="trigram").hits
    assert hint not in str(find(connection, "why was the deploy of Friday stopped").reason)
    assert find(connection, "kestrel", mode="vector", embedded=True).reason == "no message or summary has a vector"


def test_hits_that_hold_no_word_of_the_query_are_told_apart(connection: Connection) -> None:
    register_model(connection)
    near = add_message(connection, "the harbour at dawn")
    add_vector(connection, "message", near, hash_embed("quantum lattice"))
    response = find(connection, "quantum lattice", embedded=True)
    assert ids(response.hits) == [near]
    assert str(response.unmatched).startswith("no message or summary holds any of the query's words; ")
    within = find(connection, "quantum lattice", embedded=True, agent="claude")
    assert str(within.unmatched).startswith("nothing within these filters holds any of the query's words; ")
    messages = find(connection, "quantum lattice", embedded=True, scope="messages")
    assert str(messages.unmatched).startswith("no message holds any of the query's words; ")
    assert find(connection, "quantum lattice", embedded=True, mode="vector").unmatched is None
    assert find(connection, "harbour lattice", embedded=True).unmatched is None
    nothing = find(connection, "quantum lattice")
    assert (nothing.hits, nothing.unmatched) == ([], None)


def test_filters_that_nothing_can_pass_say_so(connection: Connection) -> None:
    add_message(connection, "kestrel")
    nowhere = uuid4()
    for mode in ("fts", "trigram"):
        assert find(connection, "kestrel", mode=mode, conversation_id=nowhere).reason == (
            f"there is no conversation with the id {nowhere}"
        )
        asked = find(connection, "kestrel", mode=mode, role="user", scope="summaries")
        assert asked.reason == "a summary has no role; search for messages, or leave the role out"


def test_texts_are_found_as_they_are_asked_for(connection: Connection) -> None:
    add_message(connection, "something else entirely, about gardens")
    for text, query in TEXTS_AND_QUERIES:
        with connection.transaction(force_rollback=True):
            wanted = add_message(connection, text, age_days=200)
            assert ids(find(connection, query).hits) == [wanted], query
            refresh_lexicon(connection)
            assert ids(find(connection, query).hits) == [wanted], query


def test_cjk_characters_apart_are_not_the_word(connection: Connection) -> None:
    add_message(connection, "部门签署了文件")
    assert find(connection, "部署").hits == []


def test_a_signs_query_is_literal(connection: Connection) -> None:
    add_message(connection, "caseX1 differs")
    wanted = add_message(connection, "case_1 holds")
    assert ids(find(connection, "case_1").hits)[0] == wanted


def test_a_word_only_in_a_tool_result_is_found(connection: Connection) -> None:
    wanted = add_message(
        connection, "[tool] Bash", role="tool", tool_name="Bash", tool_result="exit 3: flibbertigibbet not installed"
    )
    hit = find(connection, "flibbertigibbet").hits[0]
    assert hit.id == wanted
    assert "flibbertigibbet" in hit.snippet


def test_a_literal_query_puts_the_exact_text_first(connection: Connection) -> None:
    wanted = add_message(
        connection, "long ago: src/app/user_store.py:42 raised KeyError " + "padding " * 50, age_days=900
    )
    for number in range(30):
        add_message(connection, f"user store app src py 42 number {number}")
    refresh_lexicon(connection)
    hits = find(connection, "user_store.py:42").hits
    assert hits[0].id == wanted
    assert len(hits) > 1
    assert all(0 <= hit.score <= 1 for hit in hits)


def test_new_rows_are_found_although_the_lexicon_is_behind(connection: Connection) -> None:
    for number in range(20):
        add_message(connection, f"an old row about parsers number {number}")
    refresh_lexicon(connection)
    wanted = add_message(connection, "a brand new row about xylophones and parsers")
    assert ids(find(connection, "xylophones").hits) == [wanted]
    assert find(connection, "xylophones parsers").hits[0].id == wanted


def test_common_words_alone_still_find(connection: Connection) -> None:
    for number in range(60):
        add_message(connection, f"error in the parser of file{number}", age_days=number)
    refresh_lexicon(connection)
    profile = replace(scoring.PROFILE, candidates=10)
    for query in ("error", "error parser", "parser file7 error"):
        response = search(
            connection, SearchRequest(query, mode="fts", limit=5), embed_query=None, now=NOW, profile=profile
        )
        assert len(response.hits) == 5
    assert "file7" in response.hits[0].content


@pytest.mark.parametrize("counted", [True, False])
def test_of_many_rows_with_a_common_word_the_newest_are_taken(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    monkeypatch.setattr(unindexed, "_MOST_MATCHES", 20)
    monkeypatch.setattr(index_state, "MOST_LIVE", 10)
    for number in range(100):
        add_message(connection, f"error number {number}", age_days=100 - number)
    newest = add_message(connection, "error zeugma")
    if counted:
        refresh_lexicon(connection)
    profile = replace(scoring.PROFILE, candidates=5)
    for query in ("error", "error zeugma"):
        response = search(
            connection, SearchRequest(query, mode="fts", limit=3), embed_query=None, now=NOW, profile=profile
        )
        assert newest in ids(response.hits), query
        assert len(response.hits) == 3
        assert all(hit.created_at > NOW - timedelta(days=10) for hit in response.hits), query
    old = SearchRequest("error", mode="fts", limit=3, before=NOW - timedelta(days=98))
    assert len(search(connection, old, embed_query=None, now=NOW, profile=profile).hits) == 2


def test_a_rare_word_selects_and_common_ones_only_score(connection: Connection) -> None:
    for number in range(60):
        add_message(connection, f"error in the parser {number}")
    rare = add_message(connection, "an error with a zeugma in it", age_days=300)
    refresh_lexicon(connection)
    parsed = unindexed.parse_query(connection, "the parser error zeugma")
    profile = replace(scoring.PROFILE, candidates=10)
    found = unindexed.select_candidates(
        connection, parsed, SearchRequest("x", limit=1), above=EVERY_ROW, changed=NO_ROW, now=NOW, profile=profile
    )
    row = connection.execute("SELECT seq FROM ros_messages WHERE id = %s", [rare]).fetchone()
    assert row is not None
    assert found["message"] == [row["seq"]]


def test_bm25_of_the_index_and_in_sql_is_that_of_the_scoring_module(connection: Connection) -> None:
    texts = ["alpha beta gamma", "alpha alpha delta epsilon", "beta beta beta zeta", "gamma eta theta iota kappa alpha"]
    for text in texts:
        add_message(connection, text)
    add_summary(connection, "alpha beta in a summary")
    refresh_lexicon(connection)
    request = SearchRequest("alpha beta", limit=50)
    parsed = unindexed.parse_query(connection, "alpha beta")
    candidates = unindexed.select_candidates(connection, parsed, request, above=EVERY_ROW, changed=NO_ROW, now=NOW)
    in_sql = unindexed.score_texts(connection, parsed, candidates, now=NOW, kept=100)
    result = lexical.score_texts(connection, request, now=NOW, kept=100)
    rows = connection.execute(
        """SELECT 'message' AS source, seq, content, octet_length(content) AS bytes FROM ros_messages
           UNION ALL SELECT 'summary', seq, content, octet_length(content) FROM ros_summaries"""
    ).fetchall()
    mean = sum(row["bytes"] for row in rows) / len(rows)
    for row in rows:
        expected = 0.0
        for term in ("alpha", "beta"):
            df = sum(term in other["content"].split() for other in rows)
            tf = row["content"].split().count(term)
            if tf:
                weight = scoring.idf(len(rows), df)
                expected += scoring.bm25_term(weight=weight, tf=tf, length=row["bytes"], mean_length=mean)
        key = (row["source"], row["seq"])
        assert in_sql.get(key, 0.0) == pytest.approx(expected)
        assert result.scores.get(key, 0.0) == pytest.approx(expected, rel=1e-5)
    assert result.best == pytest.approx(max(result.scores.values()))


def test_messages_and_summaries_are_one_list_and_a_summary_can_win(connection: Connection) -> None:
    add_message(connection, "we spoke about the ledger migration among " + "many other things of that long day, " * 9)
    summary = add_summary(connection, "Ledger migration decided: switch on Friday.")
    message = add_message(connection, "ledger notes", age_days=30)
    hits = find(connection, "ledger migration").hits
    assert hits[0].id == summary
    assert {hit.source for hit in hits} == {"message", "summary"}
    assert message in ids(hits)
    assert (hits[0].kind, hits[0].role, hits[0].message_count) == ("leaf", None, 3)


def test_equal_scores_stand_in_a_fixed_order(connection: Connection) -> None:
    for _ in range(12):
        add_message(connection, "the very same sentence")
    first = ids(find(connection, "same sentence").hits)
    assert first == sorted(first)
    assert first == ids(find(connection, "same sentence").hits)
    assert ids(find(connection, "same sentence", limit=5).hits) == first[:5]


def test_scores_are_the_weighted_parts(connection: Connection) -> None:
    register_model(connection)
    add_message(connection, "tomatoes want much sun", age_days=10, embed=True)
    hit = find(connection, "tomatoes", embedded=True).hits[0]
    assert hit.parts.text == pytest.approx(1)
    assert hit.parts.temporal == pytest.approx(math.exp(-0.5))
    assert hit.parts.semantic == pytest.approx(
        float(hash_embed("tomatoes") @ hash_embed("tomatoes want much sun")), abs=1e-3
    )
    assert hit.parts.importance == 0.6
    own = (0.3 * hit.parts.text + 0.3 * hit.parts.semantic) / 0.6
    context = scoring.in_context(own=own, lent=0, session=hit.parts.session, session_best=own)
    assert hit.parts.session == 1
    assert hit.score == pytest.approx(0.6 * context + 0.3 * hit.parts.temporal + 0.1 * hit.parts.importance)


def test_noise_is_left_out_and_stubs_come_last(connection: Connection) -> None:
    prose = add_message(connection, "the quokka report is finished and was sent to everybody", age_days=5)
    stub = add_message(connection, "[tool call] quokka", role="assistant", tool_name="quokka")
    injected = add_message(connection, "quokka quokka quokka", metadata={"kind": "injected"})
    add_message(connection, "quokka progress", metadata={"kind": "progress"})
    add_message(connection, "quokka replay", metadata={"kind": "replay"})
    heartbeat = add_conversation(connection, key="heartbeat:1")
    beat = add_message(connection, "quokka heartbeat", conversation=heartbeat)
    marked = add_conversation(connection, settings={"noise": True})
    add_message(connection, "quokka of the pipeline", conversation=marked)
    found = ids(find(connection, "quokka").hits)
    assert found[0] == prose
    assert set(found) == {prose, stub, injected}
    assert ids(find(connection, "quokka", conversation_id=heartbeat).hits) == [beat]


def test_machinery_stands_below_speech_that_says_as_much(connection: Connection) -> None:
    register_model(connection)
    speech = add_message(
        connection,
        "We drop Redis because one Postgres is enough for the queue, and nobody wants to run a second server.",
        role="assistant",
        age_days=6,
        embed=True,
    )
    aside = add_message(connection, "Redis is still in the compose file.", role="assistant", age_days=6, embed=True)
    notice = add_message(
        connection, "<bash-stdout>drop-redis</bash-stdout>", role="system", metadata={"kind": "notice"}, embed=True
    )
    # In a store of three rows a word that all of them hold weighs nothing.
    for number in range(20):
        add_message(connection, f"The boat of berth {number} leaves at noon.", embed=True)
    for embedded in (True, False):
        hits = find(connection, "why did we drop redis", embedded=embedded).hits
        assert hits[0].id == speech
        assert ids(hits).index(notice) > ids(hits).index(aside)


def test_an_old_exact_answer_stands_above_new_rows_with_one_common_word(connection: Connection) -> None:
    register_model(connection)
    wanted = add_message(
        connection,
        "We chose the lease table over advisory locks for the scheduler.",
        role="assistant",
        age_days=300,
        embed=True,
    )
    for number in range(scoring.PROFILE.lexical_kept + 50):
        add_message(connection, f"the scheduler ran job {number} today without any trouble", embed=True)
    for counted in (False, True):
        if counted:
            refresh_lexicon(connection)
        for embedded in (True, False):
            hits = find(connection, "lease table or advisory locks in the scheduler", embedded=embedded).hits
            assert hits[0].id == wanted, (counted, embedded)
            assert hits[0].score > hits[1].score


def test_of_more_rows_than_are_scored_exactly_the_best_is_among_them(connection: Connection) -> None:
    conversation = add_conversation(connection)
    for number in range(150):
        add_message(connection, f"zeugma in row {number} and some more words", conversation=conversation)
    for number in range(150):
        add_message(connection, f"parser of row {number} and some more words", conversation=conversation)
    both = add_message(connection, "zeugma of the parser and some more words", conversation=conversation, age_days=90)
    refresh_lexicon(connection)
    profile = replace(scoring.PROFILE, lexical_kept=20)
    parsed = unindexed.parse_query(connection, "zeugma parser")
    request = SearchRequest("zeugma parser", limit=5)
    found = unindexed.select_candidates(
        connection, parsed, request, above=EVERY_ROW, changed=NO_ROW, now=NOW, profile=profile
    )
    row = connection.execute("SELECT seq FROM ros_messages WHERE id = %s", [both]).fetchone()
    assert row is not None
    assert row["seq"] in found["message"]
    assert len(found["message"]) <= 30
    response = search(connection, request, embed_query=None, now=NOW, profile=profile)
    # The scale of the text part is that of the best text of all, however old.
    assert [hit.parts.text for hit in response.hits if hit.id == both] == [1.0]
    assert all(hit.parts.text < 0.7 for hit in response.hits if hit.id != both)


def test_filters_apply_inside_and_find_as_many_as_there_are(connection: Connection) -> None:
    register_model(connection)
    for number in range(300):
        add_message(connection, f"common talk about releases {number}", embed=True)
    conversation = add_conversation(connection, agent="codex")
    for number in range(7):
        add_message(
            connection,
            f"releases {number} in the small one " + "words that make it a poor match " * 4,
            agent="codex",
            conversation=conversation,
            role="assistant",
            age_days=400 + number,
            embed=True,
        )
    refresh_lexicon(connection)
    profile = replace(scoring.PROFILE, candidates=20, vector_kept=5, lexical_kept=10)
    since, before = NOW - timedelta(days=403.5), NOW - timedelta(days=399)
    for mode in ("fts", "vector", "hybrid"):
        for options, expected in (
            ({"agent": "codex"}, 7),
            ({"role": "assistant"}, 7),
            ({"conversation_id": conversation}, 7),
            ({"since": since, "before": before}, 4),
            ({"agent": "codex", "since": since}, 4),
            ({"agent": "nobody"}, 0),
        ):
            request = SearchRequest("releases talk", mode=mode, limit=7, **options)
            response = search(connection, request, embed_query=hash_embed, now=NOW, profile=profile)
            assert len(response.hits) == expected, (mode, options)
            if expected and "agent" in options:
                assert {hit.agent for hit in response.hits} == {"codex"}


def test_the_walk_of_the_graph_goes_on_until_the_filter_has_enough(connection: Connection) -> None:
    register_model(connection)
    other = add_conversation(connection)
    for number in range(400):
        add_message(connection, f"target {number}", conversation=other, embed=True)
    for number in range(30):
        add_message(connection, f"unrelated far away {number}", role="assistant", conversation=other, embed=True)
    connection.execute("ANALYZE")
    model = vector.serving_model(connection)
    assert model is not None
    with connection.transaction():
        tune_session(connection, ef_search=20)
        request = SearchRequest("target", role="assistant", scope="messages")
        found = vector.nearest(connection, model, hash_embed("target"), request, wanted=25)
    assert len(found.similarities) == 25


def test_a_summary_is_filtered_by_the_period_and_the_agents_it_covers(connection: Connection) -> None:
    march = add_summary(
        connection, "harbour works", earliest=NOW - timedelta(days=9), latest=NOW - timedelta(days=7), agents=["a", "b"]
    )
    assert ids(find(connection, "harbour", since=NOW - timedelta(days=8)).hits) == [march]
    assert ids(find(connection, "harbour", before=NOW - timedelta(days=8)).hits) == [march]
    assert find(connection, "harbour", since=NOW - timedelta(days=6)).hits == []
    assert find(connection, "harbour", before=NOW - timedelta(days=9)).hits == []
    assert ids(find(connection, "harbour", agent="b").hits) == [march]
    assert find(connection, "harbour", agent="c").hits == []
    assert find(connection, "harbour", scope="messages").hits == []
    assert find(connection, "harbour", role="user").hits == []


def test_meaning_finds_what_words_do_not_and_the_best_chunk_counts(connection: Connection) -> None:
    register_model(connection)
    wanted = add_message(connection, "an opaque text")
    add_vector(connection, "message", wanted, hash_embed("nothing of the kind"), chunk=0)
    add_vector(connection, "message", wanted, hash_embed("seabird colony"), chunk=1)
    add_message(connection, "another opaque text", embed=True)
    response = find(connection, "seabird colony", embedded=True)
    assert response.hits[0].id == wanted
    assert response.hits[0].parts.semantic == pytest.approx(1, abs=1e-2)
    assert response.degraded is None
    assert ids(response.hits).count(wanted) == 1


def test_without_a_model_the_answer_says_so_and_holds_no_made_up_part(connection: Connection) -> None:
    add_message(connection, "a sentence about kestrels " + "and so on " * 200)
    response = find(connection, "kestrels", mode="hybrid")
    assert response.degraded
    assert response.hits[0].parts.semantic == 0
    only = find(connection, "kestrels", mode="vector")
    assert only.hits == []
    assert only.degraded
    assert only.reason


def test_a_model_that_fails_or_has_another_width_degrades(connection: Connection) -> None:
    register_model(connection)
    add_message(connection, "a sentence about kestrels", embed=True)

    def failing(_: str) -> np.ndarray:
        raise ModelError("transient", "timeout", "after 8 s")

    request = SearchRequest("kestrels")
    for embed, words in (
        (failing, "timeout"),
        (lambda _: np.ones(WIDTH + 1, dtype=np.float32), str(WIDTH + 1)),
        (lambda _: np.full(WIDTH, np.nan, dtype=np.float32), "finite"),
        (lambda _: np.zeros(WIDTH, dtype=np.float32), "finite"),
    ):
        response = search(connection, request, embed_query=embed, now=NOW)
        assert response.degraded is not None
        assert words in response.degraded
        assert len(response.hits) == 1


def test_only_the_serving_models_vectors_are_compared(connection: Connection) -> None:
    register_model(connection)
    near = add_message(connection, "kestrel", embed=True)
    register_model(connection, name="newer", width=WIDTH)
    response = find(connection, "kestrel", embedded=True, mode="vector")
    assert ids(response.hits) == [near]
    assert response.hits[0].parts.semantic == pytest.approx(1, abs=1e-2)


def test_an_error_is_never_an_empty_answer(connection: Connection) -> None:
    add_message(connection, "kestrels")
    connection.execute("ALTER TABLE ros_access RENAME TO ros_access_gone")
    with pytest.raises(psycopg.Error):
        find(connection, "kestrels")


def test_limits_are_kept_within_bounds(connection: Connection) -> None:
    for number in range(60):
        add_message(connection, f"kestrel {number}")
    assert len(find(connection, "kestrel", limit=1000).hits) == 50
    assert len(find(connection, "kestrel", limit=0).hits) == 1


def test_a_very_old_and_a_future_row_are_scored(connection: Connection) -> None:
    old = add_message(connection, "kestrel of old", age_days=60_000)
    future = add_message(connection, "kestrel to come", age_days=-30)
    hits = find(connection, "kestrel").hits
    assert ids(hits) == [future, old]
    assert (hits[0].parts.temporal, hits[1].parts.temporal) == (1.0, 0.0)
