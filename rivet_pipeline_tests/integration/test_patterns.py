"""Modes that read the texts: what they find, how long they may take, and what they say about it."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval import filters, lexical, patterns, scoring
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import Mode, SearchRequest
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    add_conversation,
    add_message,
    add_summary,
    add_vector,
    find,
    hash_embed,
    ids,
    register_model,
)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "parentheses () not balanced"),
        ("*x", "quantifier operand invalid"),
        ("foo\\", "invalid escape"),
        ("[z-a]", "invalid character range"),
        ("x{1,300}", "invalid repetition count"),
        ("((x{1,255}){1,255}){1,255}", "too complex"),
        ("(.{1,200}){1,200}z", "too large for Postgres (invalid memory alloc"),
        ("***=(", "may not begin with ***"),
        ("***:x", "may not begin with ***"),
        ("(?q)a.b", "change the grammar"),
        ("(?xi)a b", "change the grammar"),
        ("(?#only a comment)", "fits an empty text"),
        ("x*", "fits an empty text"),
        ("a" * 1001, "at most 1,000 characters"),
    ],
)
def test_a_wrong_expression_is_refused_in_the_engines_words(connection: Connection, pattern: str, says: str) -> None:
    add_message(connection, "an ordinary text")
    with connection.transaction():
        with pytest.raises(InvalidInputError, match="query: ") as refused:
            find(connection, pattern, mode="regex")
        assert says in refused.value.problem
        assert "\n" not in str(refused.value)
        # The caller's transaction goes on.
        assert find(connection, "ordin[a-z]+", mode="regex").hits


def test_an_expression_is_that_of_the_engine(connection: Connection) -> None:
    first = add_message(connection, "Deploy failed\nERROR 42: disk full", age_days=2)
    second = add_message(connection, "[tool]", role="tool", tool_name="Bash", tool_result="error 43 again", age_days=1)
    third = add_summary(connection, "They met Error 44 twice.")
    assert set(ids(find(connection, r"error \d+", mode="regex").hits)) == {first, second, third}
    assert ids(find(connection, r"(?c)ERROR \d+", mode="regex").hits) == [first]
    assert set(ids(find(connection, r"(?n)^error", mode="regex", scope="messages").hits)) == {first, second}
    assert ids(find(connection, r"^error", mode="regex").hits) == [second]
    assert ids(find(connection, r"\m4[34]\M", mode="regex", scope="summaries").hits) == [third]
    assert find(connection, r"error \d{3}", mode="regex").reason == "no text holds anything that fits the expression"
    # The bound of a word as everybody else writes it; to the engine it would be a backspace.
    assert set(ids(find(connection, r"\berror\b", mode="regex").hits)) == {first, second, third}
    assert find(connection, r"\brror", mode="regex").hits == []
    assert set(ids(find(connection, r"\Brror [[:digit:]]+\b", mode="regex").hits)) == {first, second, third}
    assert find(connection, r"[\b]error", mode="regex").hits == []
    assert find(connection, r"error\\bx", mode="regex").hits == []
    for part in ("[:space:]", "[. .]", "[= =]"):
        assert set(ids(find(connection, rf"\berror[{part}\b]4", mode="regex").hits)) == {first, second, third}
    # What takes other engines minutes.
    assert find(connection, "(a+)+$", mode="regex", agent="nobody").hits == []
    add_message(connection, "a" * 40 + "!")
    assert len(find(connection, "(a+)+$", mode="regex").hits) == 0


def test_a_text_may_begin_and_end_within_a_ligature(connection: Connection) -> None:
    wanted = add_message(connection, "the o\ufb03ce of red \ufb02ags")
    for query in ("office", "fice", "ice", "lags", "the of"):
        hits = find(connection, query, mode="trigram").hits
        assert [(hit.id, hit.score >= 0.5) for hit in hits] == [(wanted, True)], query


def test_a_pattern_that_takes_too_long_is_stopped(connection: Connection) -> None:
    add_message(connection, "ab" * 3000 + "c")
    profile = replace(scoring.PROFILE, pattern_seconds=0.3)
    request = SearchRequest(r"^(.+)(.+)(.+)(.+)\1\2\3\4c$", mode="regex")
    with connection.transaction():
        with pytest.raises(InvalidInputError, match=r"more than 0\.3 s; write a simpler pattern, or narrow"):
            search(connection, request, embed_query=None, now=NOW, profile=profile)
        assert find(connection, "ab", mode="trigram").hits
        row = connection.execute("SELECT current_setting('statement_timeout') AS timeout").fetchone()
    assert row == {"timeout": "0"}


#: Too short to be told by trigrams, so that only reading tells which texts hold them.
SHORT = ["ab", "_a", "公", "部署", "手順", "배포"]


@pytest.mark.parametrize("query", SHORT)
@pytest.mark.parametrize("mode", ["trigram", "regex"])
def test_a_short_pattern_reads_texts_only_within_the_time_that_is_left(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, mode: Mode, query: str
) -> None:
    wanted = add_message(connection, f"before{query}after")
    refresh_lexicon(connection)
    heads = {filters.statement(name).splitlines()[0]: name for name in ("scan", "hold", "places", "similar")}
    timeout, timeouts = "0", []
    execute = psycopg.Cursor.execute

    def spy(self: Any, query: Any, params: Any = None, **others: Any) -> Any:
        nonlocal timeout
        text = query.decode() if isinstance(query, bytes) else str(query)
        if text.startswith("SELECT set_config('statement_timeout'"):
            [timeout] = params
        elif text.splitlines()[0] in heads:
            timeouts.append((heads[text.splitlines()[0]], timeout))
        return execute(self, query, params, **others)

    monkeypatch.setattr(psycopg.Cursor, "execute", spy)
    request = SearchRequest(query, mode=mode)
    profile = replace(scoring.PROFILE, pattern_seconds=50.0)
    assert ids(search(connection, request, embed_query=None, now=NOW, profile=profile).hits) == [wanted]
    assert {"scan", "places"} <= {name for name, _ in timeouts}
    assert all(0 < int(timeout.removesuffix("ms")) <= 50_000 for _, timeout in timeouts)
    assert timeout == "0"


@pytest.mark.parametrize("query", SHORT)
def test_a_short_pattern_is_stopped_when_the_time_is_up(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    add_message(connection, f"before {query} after")
    refresh_lexicon(connection)
    statement = patterns._statement
    reading = b"FROM block AS last"

    def slow(name: str, *rest: Any) -> bytes:
        text = statement(name, *rest)
        assert name != "scan" or text.count(reading) == 1
        return text.replace(reading, reading + b" CROSS JOIN pg_sleep(600)")

    monkeypatch.setattr(patterns, "_statement", slow)
    profile = replace(scoring.PROFILE, pattern_seconds=0.3)
    with pytest.raises(InvalidInputError, match=r"more than 0\.3 s"):
        search(connection, SearchRequest(query, mode="regex"), embed_query=None, now=NOW, profile=profile)
    with connection.transaction():
        row = connection.execute("SELECT current_setting('statement_timeout') AS timeout").fetchone()
    assert row == {"timeout": "0"}


def test_what_time_does_not_allow_is_said(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = add_conversation(connection)
    for number in range(60):
        text = f"xerophyte{number} number" if number % 20 == 0 else f"row {number}"
        add_message(connection, text, conversation=conversation, age_days=number)
    ticks = itertools.count(0, 6)
    monkeypatch.setattr(patterns, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(patterns, "_FIRST_BLOCK", 5)
    monkeypatch.setattr(patterns, "_LEAST_BLOCK", 5)
    response = find(connection, "erophyte", mode="regex", scope="messages")
    assert response.hits
    assert len(response.hits) < 3
    assert response.partial is not None
    assert "of the newest" in response.partial
    assert f"back to {NOW.year}" in response.partial
    # Whole words are found however old.
    response = find(connection, "xerophyte40", mode="trigram", scope="messages")
    assert "xerophyte40 number" in [hit.content for hit in response.hits]


def test_blocks_meet_and_nothing_is_read_twice(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_FIRST_BLOCK", 3)
    monkeypatch.setattr(patterns, "_MOST_BLOCK", 3)
    monkeypatch.setattr(patterns, "_LEAST_BLOCK", 1)
    conversation = add_conversation(connection)
    # Many of one moment, so that the sequence number alone parts the blocks.
    rows = {add_message(connection, f"snark {number}", conversation=conversation) for number in range(20)}
    summaries = {add_summary(connection, f"snark of summary {number}") for number in range(8)}
    response = find(connection, "snark", mode="regex", limit=50)
    assert len(response.hits) == 28
    assert set(ids(response.hits)) == rows | summaries
    assert response.partial is None


def test_filters_hold_while_texts_are_read(connection: Connection) -> None:
    ours = add_conversation(connection, agent="codex")
    new = add_message(connection, "gimble one", agent="codex", conversation=ours, role="assistant")
    old = add_message(connection, "gimble two", agent="codex", conversation=ours, age_days=10)
    add_message(connection, "gimble three")
    add_message(connection, "gimble four", metadata={"kind": "progress"})
    heartbeat = add_conversation(connection, key="heartbeat:2")
    add_message(connection, "gimble five", conversation=heartbeat)
    summary = add_summary(connection, "gimble six", agents=["codex"], conversation=ours)
    for mode in ("trigram", "regex"):
        assert set(ids(find(connection, "gimbl", mode=mode, agent="codex").hits)) == {new, old, summary}
        assert ids(find(connection, "gimbl", mode=mode, role="assistant").hits) == [new]
        assert set(ids(find(connection, "gimbl", mode=mode, conversation_id=ours).hits)) == {new, old, summary}
        assert ids(find(connection, "gimbl", mode=mode, before=NOW - timedelta(days=5)).hits) == [old]
        assert ids(find(connection, "gimbl", mode=mode, scope="summaries").hits) == [summary]
        nothing = find(connection, "gimbl", mode=mode, agent="codex", role="system")
        assert "within these filters" in str(nothing.reason)


def test_a_misspelt_word_finds_what_is_spelled_like_it_below_what_holds_it(connection: Connection) -> None:
    meant = add_message(connection, "the chrysanthemum order is late", age_days=300)
    for number in range(200):
        add_message(connection, f"remark {number} about gardens")
    refresh_lexicon(connection)
    response = find(connection, "chrysantemum", mode="trigram")
    assert ids(response.hits) == [meant]
    assert 0 < response.hits[0].score < 0.5
    exact = add_message(connection, "a chrysantemum, as they wrote it", age_days=400)
    hits = find(connection, "chrysantemum", mode="trigram").hits
    assert ids(hits) == [exact, meant]
    assert hits[0].score >= 0.5 > hits[1].score


def test_the_first_of_what_is_spelled_alike_does_not_depend_on_how_many_are_asked_for(connection: Connection) -> None:
    add_message(connection, "the chrysanthemum order is late", age_days=300)
    add_message(connection, "many chrysanthemums came today")
    first = ids(find(connection, "chrysantemum", mode="trigram", limit=10).hits)
    assert len(first) == 2
    assert ids(find(connection, "chrysantemum", mode="trigram", limit=1).hits) == first[:1]


def test_equal_hits_stand_in_a_fixed_order(connection: Connection) -> None:
    for _ in range(12):
        add_message(connection, "the very same mimsy")
    for mode in ("trigram", "regex"):
        first = ids(find(connection, "mims", mode=mode).hits)
        assert first == sorted(first)
        assert ids(find(connection, "mims", mode=mode, limit=5).hits) == first[:5]


def test_the_snippet_shows_the_place(connection: Connection) -> None:
    add_message(connection, "filler " * 200 + "exit status 137 " + "filler " * 200)
    add_message(connection, "ran it", role="tool", tool_name="Bash", tool_result="noise " * 300 + "exit status 139")
    hits = find(connection, r"exit status 13\d", mode="regex").hits
    assert {("137" in hit.snippet, "139" in hit.snippet) for hit in hits} == {(True, False), (False, True)}
    assert all(len(hit.snippet) <= 300 for hit in hits)
    assert "xit statu" in find(connection, "xit statu", mode="trigram", limit=1).hits[0].snippet


def test_the_exact_text_is_selected_however_many_rows_share_its_parts(connection: Connection) -> None:
    wanted = add_message(
        connection,
        "[tool] Bash",
        role="tool",
        tool_name="Bash",
        tool_result="padding " * 300 + "at /srv/app/user_store.py:42 raised KeyError" + " padding" * 300,
        age_days=900,
    )
    called = add_message(connection, "then client.getUserByBadge(x) " + "and more " * 200, age_days=900)
    summary = add_summary(
        connection,
        "It broke in src/api/user_store.py:42, they say.",
        earliest=NOW - timedelta(days=901),
        latest=NOW - timedelta(days=900),
    )
    conversation = add_conversation(connection)
    for number in range(120):
        add_message(
            connection, f"user_store.py and main.py 42 app {number} get user by badge", conversation=conversation
        )
    refresh_lexicon(connection)
    profile = replace(scoring.PROFILE, candidates=10, lexical_kept=5, pattern_seconds=60.0)
    for mode in ("fts", "hybrid", "trigram"):
        for query, holders in (
            ("user_store.py:42", {wanted, summary}),
            ("app/user_store.py:42", {wanted}),
            ("getUserByBadge", {called}),
        ):
            request = SearchRequest(query, mode=mode, limit=4)
            hits = search(connection, request, embed_query=None, now=NOW, profile=profile).hits
            assert set(ids(hits[: len(holders)])) == holders, (mode, query)


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_literal_query_finds_its_text_beyond_what_is_indexed(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, refreshed: bool
) -> None:
    filling = "lorem ipsum dolor " * 3_000
    said = add_message(connection, filling * 4 + "see lib/Quokka/main.rs:77 there", age_days=3)
    result = add_message(
        connection,
        "[tool]",
        role="tool",
        tool_name="Bash",
        tool_result=filling * 2 + "at lib/Quokka/main.rs:77",
        age_days=2,
    )
    # Distinct words fill a tsvector before its characters are used up, and the half of them is indexed.
    deseret = str.maketrans("0123456789abcdef", "".join(chr(0x10428 + digit) for digit in range(16)))
    words = " ".join(f"{number:012x}-{number + 9_000:012x}" for number in range(6_500)).translate(deseret)
    distinct = add_message(connection, words + " lib/Quokka/main.rs:77", age_days=4)
    assert len(words) < 200_000 < len(words.encode())
    row = connection.execute(
        "SELECT content_tsv @@ 'quokka' AS held FROM ros_messages WHERE id = %s", [distinct]
    ).fetchone()
    assert row == {"held": False}
    others = [
        add_message(connection, f"main.rs of lib, Quokka {number} 77", age_days=number / 10) for number in range(9)
    ]
    add_message(connection, filling * 4)
    if refreshed:
        refresh_lexicon(connection)
    for mode in ("fts", "hybrid"):
        for limit in (3, 50):
            response = find(connection, "lib/quokka/main.rs:77", mode=mode, limit=limit)
            assert set(ids(response.hits)[:3]) == {said, result, distinct}
            assert all("lib/Quokka/main.rs:77" in hit.snippet for hit in response.hits[:3])
            assert all(hit.score >= 0.5 for hit in response.hits[:3])
            assert response.partial is None
    found = find(connection, "lib/quokka/main.rs:77", role="tool").hits
    assert ids(found) == [result]
    assert set(ids(find(connection, "lib/quokka/main.rs:77", scope="summaries").hits)) == set()
    # Where no text holds it and not all are read, that is said.
    monkeypatch.setattr(lexical, "_LONG_BYTES", 300_000)
    response = find(connection, "lib/quokka/main.rs:78")
    assert response.partial is not None
    assert "the newest 1 were read to their end" in response.partial
    assert set(ids(find(connection, "lib/quokka/main.rs:77").hits)) >= set(others)


def test_messages_that_are_indexed_to_their_end_hide_no_longer_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling = "lorem ipsum dolor " * 4_000
    texts = ["see lib/Quokka/main.rs:77 there", "see lib/Quokka/main.rs:79 there"]
    longer, oldest = [add_message(connection, filling * 3 + text, age_days=9 + n) for n, text in enumerate(texts)]
    for number in range(5):
        add_message(connection, filling, age_days=number)
    refresh_lexicon(connection)
    monkeypatch.setattr(lexical, "_LONG_ROWS", 2)
    for query, wanted in (("lib/quokka/main.rs:77", longer), ("lib/quokka/main.rs:79", oldest)):
        response = find(connection, query, mode="fts")
        assert ids(response.hits)[:1] == [wanted]
        assert response.partial is None
    # The bytes that are read are those of all together.
    monkeypatch.setattr(lexical, "_LONG_BYTES", 3 * len(filling))
    response = find(connection, "lib/quokka/main.rs:79", mode="fts")
    assert response.hits == []
    assert "the newest 1 were read to their end" in str(response.partial)


def test_what_only_the_unindexed_end_of_a_text_holds_is_held(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_model(connection)
    query = "lib/quokka/main.rs:77"
    filling = "lorem ipsum dolor " * 12_000
    held = add_message(connection, f"{filling} see {query} there")
    add_message(connection, filling, age_days=3)
    near = add_message(connection, "the harbour at dawn")
    for message in (held, near):
        add_vector(connection, "message", message, hash_embed(query))
    refresh_lexicon(connection)
    response = find(connection, query, embedded=True)
    assert set(ids(response.hits)) == {held, near}
    assert response.unmatched is None
    # Where it was not read to its end, nobody knows.
    monkeypatch.setattr(lexical, "_LONG_BYTES", 1_000)
    response = find(connection, "lib/quokka/main.rs:78", embedded=True)
    assert (response.partial is None, response.unmatched) == (False, None)


def test_a_short_list_of_mode_vector_is_the_beginning_of_a_long_one(connection: Connection) -> None:
    register_model(connection)
    rng = random.Random(11)
    words = ["tide", "gauge", "harbour", "redis", "timer", "backup", "report", "wind", "mole", "quay"]
    for _ in range(12):
        conversation = add_conversation(connection)
        for number in range(20):
            text = " ".join(rng.choices(words, k=rng.randint(1, 9)))
            add_message(connection, text, conversation=conversation, age_days=20 - number, embed=True)
    refresh_lexicon(connection)
    for query in ("redis backup", "why the harbour timer reports wind", "tide gauge"):
        long = ids(find(connection, query, mode="vector", embedded=True, limit=50).hits)
        assert len(long) == 50
        for limit in (1, 3, 5, 10, 20, 35):
            assert ids(find(connection, query, mode="vector", embedded=True, limit=limit).hits) == long[:limit]


def test_a_lock_is_no_timeout_of_a_pattern(connection: Connection, database_url: str) -> None:
    add_message(connection, "some text")
    connection.execute("SET statement_timeout = '40ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute("SELECT pg_sleep(1)")
    connection.execute("SET statement_timeout = '20s'")
    assert find(connection, "some", mode="regex").hits
    row = connection.execute("SELECT current_setting('statement_timeout') AS timeout").fetchone()
    assert row == {"timeout": "20s"}
