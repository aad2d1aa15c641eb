"""A filtered search by meaning compares what codes choose, and finds what comparing every vector finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import filters, index_state, vector, vector_codes
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.search import MAX_LIMIT, search
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.retrieval.vector_pieces import refresh_vector_pieces
from rivet_pipeline_tests.api_server import module_store
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    add_conversation,
    add_message,
    add_summary,
    add_tag,
    add_vector,
    hash_embed,
    register_model,
)

_ROWS, _NEW, _SUMMARIES = 2_000, 40, 600
_WORDS = "anchor buoy chart delta ebb fjord gale harbour inlet jetty keel ledge mast oar pier"
_NEAREST = ("nearest_given", "nearest_walk", "nearest_exact")
_SINCE = NOW - timedelta(days=500)

#: What summaries are filtered by: agents they contain, and periods they overlap.
_SUMMARY_FILTERS: tuple[dict[str, Any], ...] = (
    {"agent": "codex"},
    {"agent": "claude"},
    {"since": _SINCE},
    {"before": _SINCE},
    {"agent": "codex", "since": _SINCE},
    {"since": _SINCE, "before": _SINCE + timedelta(days=5)},
)

_FILTERS: tuple[dict[str, Any], ...] = (
    {"agent": "codex"},
    {"role": "assistant"},
    {"since": _SINCE},
    {"before": _SINCE},
    {"agent": "claude", "since": _SINCE, "role": "user"},
    {"tag": "topic:inside"},
    {"agent": "codex", "scope": "messages", "before": _SINCE},
)


@pytest.fixture(scope="module")
def store(server: EmbeddedServer) -> Iterator[Connection]:
    """Messages of two agents over years, all coded; then some more, some with another vector and some without one."""
    with module_store(server, "vector_codes_module") as url, connect(url) as connection:
        register_model(connection)
        words = np.random.default_rng(3)
        conversations = [add_conversation(connection, agent=agent) for agent in ("claude", "codex")]
        add_tag(connection, "topic:inside", conversation=conversations[1])

        def add(count: int) -> list[UUID]:
            return [
                add_message(
                    connection,
                    " ".join(words.choice(_WORDS.split(), size=6)),
                    conversation=conversations[number % 2],
                    agent=("claude", "codex")[number % 2],
                    role=("user", "assistant")[number // 2 % 2],
                    age_days=float(number % 1_000),
                    embed=True,
                )
                for number in range(count)
            ]

        with connection.transaction():
            old = add(_ROWS)
        refresh_lexicon(connection)
        refresh_vector_pieces(connection)
        with connection.transaction():
            add(_NEW)
            connection.execute("DELETE FROM ros_embeddings WHERE owner_id = ANY (%s)", [old[:20]])
            for identity in old[10:30]:
                connection.execute("DELETE FROM ros_embeddings WHERE owner_id = %s", [identity])
                add_vector(connection, "message", identity, hash_embed("anchor anchor buoy"))
        yield connection


def nearest_of_all(connection: Connection, query: str, wanted: int, **filters: Any) -> list[float]:
    """The similarities of the nearest rows within the filters, every vector compared."""
    rows = connection.execute(
        """SELECT 1 - min(e.embedding::halfvec(64) <=> %(vector)s::halfvec(64)) AS near
           FROM ros_messages AS m JOIN ros_embeddings AS e ON e.owner_id = m.id
           WHERE (%(agent)s::text IS NULL OR m.agent = %(agent)s) AND (%(role)s::text IS NULL OR m.role = %(role)s)
             AND (%(since)s::timestamptz IS NULL OR m.created_at >= %(since)s)
             AND (%(before)s::timestamptz IS NULL OR m.created_at < %(before)s)
             AND (%(tag)s::text IS NULL OR m.agent = 'codex')
           GROUP BY m.id ORDER BY near DESC LIMIT %(wanted)s""",
        dict.fromkeys(("agent", "role", "since", "before", "tag"))
        | {name: value for name, value in filters.items() if name != "scope"}
        | {"vector": vector.vector_text(hash_embed(query)), "wanted": wanted},
    ).fetchall()
    return [row["near"] for row in rows]


def statements_of(connection: Connection, query: str, **options: Any) -> tuple[list[float], set[str]]:
    """The similarities that mode vector finds, and which statements looked for them."""
    asked: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        execute = psycopg.Cursor.execute

        def spy(self: Any, text: Any, *values: Any, **others: Any) -> Any:
            head = (text.decode() if isinstance(text, bytes) else str(text)).splitlines()[0]
            asked.update(name for name in _NEAREST if statement(name).splitlines()[0] == head)
            return execute(self, text, *values, **others)

        patch.setattr(psycopg.Cursor, "execute", spy)
        response = search(
            connection, SearchRequest(query, mode="vector", limit=10, **options), embed_query=hash_embed, now=NOW
        )
    assert response.degraded is None
    return sorted((hit.parts.semantic for hit in response.hits), reverse=True), asked


@dataclass(frozen=True, slots=True)
class Summary:
    """What the test knows of a summary: its vector is of unit length."""

    id: UUID
    agents: list[str]
    earliest: datetime
    latest: datetime
    vector: NDArray[np.float32]

    def passes(self, agent: str | None = None, since: datetime | None = None, before: datetime | None = None) -> bool:
        return (
            (agent is None or agent in self.agents)
            and (since is None or self.latest >= since)
            and (before is None or self.earliest < before)
        )


@pytest.fixture(scope="module")
def summaries(server: EmbeddedServer) -> Iterator[tuple[Connection, list[Summary]]]:
    """Summaries of one agent or both over years and up to 40 days each, all coded but the last ones."""
    with module_store(server, "vector_codes_summaries") as url, connect(url) as connection:
        register_model(connection)
        numbers = np.random.default_rng(5)
        conversation = add_conversation(connection)
        made: list[Summary] = []

        def add(count: int) -> None:
            for number in range(len(made), len(made) + count):
                text = " ".join(numbers.choice(_WORDS.split(), size=6))
                agents = (["claude"], ["codex"], ["claude", "codex"])[number % 3]
                latest = NOW - timedelta(days=float(numbers.integers(0, 1_000)))
                earliest = latest - timedelta(days=float(numbers.integers(0, 40)))
                identity = add_summary(
                    connection,
                    text,
                    conversation=conversation,
                    agents=agents,
                    earliest=earliest,
                    latest=latest,
                    embed=True,
                )
                made.append(Summary(identity, agents, earliest, latest, hash_embed(text)))

        with connection.transaction():
            add(_SUMMARIES)
            # Messages share the vectors' table and must not be taken for summaries.
            for text in ("anchor buoy", "gale harbour inlet", "pier"):
                add_message(connection, text, conversation=conversation, embed=True)
        refresh_lexicon(connection)
        refresh_vector_pieces(connection)
        with connection.transaction():
            add(_NEW)
        yield connection, made


@pytest.mark.parametrize("query", ["anchor buoy", "gale harbour inlet", "pier"])
@pytest.mark.parametrize("filters", _SUMMARY_FILTERS, ids=" ".join)
def test_codes_find_the_summaries_that_comparing_every_vector_finds(
    summaries: tuple[Connection, list[Summary]], query: str, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, made = summaries
    looked: list[dict[Any, float]] = []
    nearest = vector.nearest

    def spy(*given: Any, **options: Any) -> Any:
        found = nearest(*given, **options)
        looked.append(found.similarities)
        return found

    monkeypatch.setattr(vector, "nearest", spy)
    near = hash_embed(query)
    every = sorted(
        ((float(one.vector @ near), one) for one in made if one.passes(**filters)), key=lambda pair: -pair[0]
    )
    found, asked = statements_of(connection, query, scope="summaries", **filters)
    assert asked == {"nearest_given"}
    assert len(found) == 10
    [similarities] = looked
    seqs = connection.execute("SELECT id, seq FROM ros_summaries").fetchall()
    numbers = {row["id"]: row["seq"] for row in seqs}
    exact = {("summary", numbers[one.id]): similarity for similarity, one in every}
    assert set(similarities) <= set(exact)
    assert all(similarity == pytest.approx(exact[key], abs=2e-3) for key, similarity in similarities.items())
    # Rows at one distance may change places.
    best = sorted(similarities.values(), reverse=True)[:10]
    assert best == pytest.approx([similarity for similarity, _ in every[:10]], abs=2e-3)


@pytest.mark.parametrize("query", ["anchor buoy", "gale harbour inlet", "pier"])
@pytest.mark.parametrize("filters", _FILTERS, ids=" ".join)
def test_codes_find_what_comparing_every_vector_finds(store: Connection, query: str, filters: dict[str, Any]) -> None:
    found, asked = statements_of(store, query, **filters)
    assert asked == {"nearest_given"}
    assert len(found) == 10
    every = nearest_of_all(store, query, 2 * MAX_LIMIT, **filters)
    # The list is by score, which is more than similarity, so each of it must be among the nearest there are.
    assert min(found) >= every[-1] - 1e-3


def test_a_tag_of_very_many_sessions_is_known_to_the_choice(store: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if they were too many to be bound by their ids.
    monkeypatch.setattr(filters, "FEW_TAGGED", 0)
    chosen, choose = [], vector_codes.Codes.choose

    def noting(self: vector_codes.Codes, *values: Any) -> Any:
        found = choose(self, *values)
        chosen.extend(found[0].tolist())
        return found

    monkeypatch.setattr(vector_codes.Codes, "choose", noting)
    found, asked = statements_of(store, "anchor buoy", tag="topic:inside", scope="messages")
    assert asked == {"nearest_given"}
    assert len(found) == 10
    outside = store.execute(
        "SELECT count(*) AS n FROM ros_messages WHERE seq = ANY (%s) AND agent <> 'codex'", [chosen]
    ).fetchone()
    assert chosen
    assert outside == {"n": 0}


def test_codes_of_an_earlier_version_are_left_alone(store: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "CODES", vector_codes.CodeCache())
    with store.transaction(force_rollback=True):
        store.execute("UPDATE ros_vector_pieces SET codes = substring(codes FOR octet_length(codes) / 2)")
        found, asked = statements_of(store, "pier", agent="codex")
    assert "nearest_given" not in asked
    assert len(found) == 10


def test_new_changed_and_removed_vectors_count_at_once(store: Connection) -> None:
    found, asked = statements_of(store, "anchor anchor buoy", role="user")
    assert asked == {"nearest_given"}
    assert found == pytest.approx(nearest_of_all(store, "anchor anchor buoy", 10, role="user"), abs=1e-3)
    assert found[0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(vector_codes, "MOST_CHANGED", 3), (vector_codes, "MOST_BYTES", 100), (index_state, "MOST_LIVE", 3)],
    ids=["too many changes", "too much memory", "far behind"],
)
def test_without_codes_the_filter_is_walked_or_compared_whole(
    store: Connection, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: int
) -> None:
    monkeypatch.setattr(module, name, value)
    found, asked = statements_of(store, "gale harbour inlet", agent="codex", scope="messages")
    assert asked
    assert "nearest_given" not in asked
    assert min(found) >= nearest_of_all(store, "gale harbour inlet", 60, agent="codex")[-1] - 1e-3


def test_rows_without_a_word_are_within_a_filter_too(store: Connection) -> None:
    conversation = add_conversation(store, agent="gull")
    for text in ("\U0001f44d", "the", "gale"):
        add_message(store, text, conversation=conversation, agent="gull", embed=True)
    refresh_lexicon(store)
    refresh_vector_pieces(store)
    found, asked = statements_of(store, "gale", agent="gull", scope="messages")
    assert asked == {"nearest_given"}
    assert len(found) == 3


def test_a_filter_that_nothing_passes_asks_for_nothing(store: Connection) -> None:
    _, asked = statements_of(store, "gale", agent="nobody", scope="summaries")
    assert asked == set()


def test_codes_made_anew_during_a_search_are_noticed(store: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = vector_codes.CACHE.codes

    def then_refreshed(connection: Connection, *model: Any) -> Any:
        found = codes(connection, *model)
        if "message" in found:
            connection.execute(
                """INSERT INTO ros_vector_pieces (model_id, source, number, rows, offsets, codes)
                   VALUES (1, 'message', 7, 1, '\\x0000', '\\x0000')"""
            )
        return found

    monkeypatch.setattr(vector_codes.CACHE, "codes", then_refreshed)
    try:
        found, asked = statements_of(store, "pier", role="user", scope="messages")
    finally:
        store.execute("DELETE FROM ros_vector_pieces WHERE number = 7")
    assert {"nearest_given"} < asked
    assert len(found) == 10


def test_a_piece_that_is_gone_when_it_is_read_is_noticed(store: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "CODES", vector_codes.CodeCache())
    monkeypatch.setattr(vector_codes, "unpack_piece", lambda *_: pytest.fail("nothing is there to unpack"))
    monkeypatch.setattr(
        vector_codes,
        "statement",
        lambda _: (
            """SELECT 'message' AS source, true AS coded, '[1]'::halfvec::real[] AS centre, 1 AS database,
                      ARRAY[gen_random_uuid()::text] AS pieces, 5 AS chunks, 0 AS changed, 1 AS newest"""
        ),
    )
    found, asked = statements_of(store, "pier", role="user")
    assert "nearest_given" not in asked
    assert len(found) == 10


def test_a_model_that_is_not_coded_yet_is_walked(store: Connection) -> None:
    store.execute("UPDATE ros_embedding_models SET coded = false")
    try:
        _, asked = statements_of(store, "pier", agent="codex", scope="messages")
    finally:
        store.execute("UPDATE ros_embedding_models SET coded = true")
    assert asked
    assert "nearest_given" not in asked
