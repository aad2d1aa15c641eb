"""Nearest neighbours inside a filter: as many as there are, by the best chunk, and never a vector without direction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.models.factory import QueryEmbedder
from rivet_pipeline.retrieval import vector
from rivet_pipeline.retrieval.filters import resolve_tag, tune_session
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline_tests.api_server import module_store
from rivet_pipeline_tests.integration.memory_rows import (
    add_conversation,
    add_message,
    add_tag,
    add_vector,
    register_model,
)

ROWS, WIDTH, INSIDE = 20_000, 8, 100
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def crowd(server: EmbeddedServer) -> Iterator[tuple[Connection, UUID]]:
    """20,000 rows with vectors, one in 200 of them inside one conversation, of one agent, role and day."""
    with module_store(server, "vector_scopes_module") as url, connect(url) as connection:
        model = register_model(connection, width=WIDTH)
        connection.execute(f"DROP INDEX ros_embeddings_hnsw_{model}".encode())
        outside, inside = add_conversation(connection), add_conversation(connection, agent="codex")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
               SELECT CASE WHEN n %% 200 = 0 THEN %(inside)s ELSE %(outside)s END, n::text,
                      CASE WHEN n %% 200 = 0 THEN 'codex' ELSE 'claude' END, 'test',
                      CASE WHEN n %% 200 = 0 THEN 'assistant' ELSE 'user' END, 'n',
                      %(start)s + CASE WHEN n %% 200 = 0 THEN interval '400 days' ELSE n * interval '1 second' END
               FROM generate_series(1, %(rows)s) AS n""",
            {"inside": inside, "outside": outside, "rows": ROWS, "start": START},
        )
        # Those inside lie on the far side of the query, so that a walk meets them last.
        connection.execute(
            """INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                           embedding)
               SELECT %(model)s, 'message', m.id, 0, m.text_hash, 0, 1,
                      (SELECT array_agg(CASE WHEN d = 1 THEN CASE WHEN m.agent = 'codex' THEN -1 ELSE 1 END
                                             ELSE random() - 0.5 END)
                       FROM generate_series(1, %(width)s) AS d WHERE m.id IS NOT NULL)::real[]::halfvec
               FROM ros_messages AS m""",
            {"model": model, "width": WIDTH},
        )
        # As the store has it, but for a graph that is made three times as quick and need not be as good.
        connection.execute(
            f"""CREATE INDEX ros_embeddings_hnsw_{model} ON ros_embeddings
                USING hnsw ((embedding::halfvec({WIDTH})) halfvec_cosine_ops) WITH (m = 5, ef_construction = 10)
                WHERE model_id = {model}""".encode()
        )
        add_tag(connection, "topic:inside", conversation=inside)
        connection.execute("ANALYZE")
        yield connection, inside


@pytest.mark.parametrize("wanted", [20, 100])
def test_a_filter_never_leaves_fewer_hits_than_there_are(
    crowd: tuple[Connection, UUID], monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    connection, inside = crowd
    model = vector.serving_model(connection)
    assert model is not None
    query = np.array([1.0] + [0.1] * (WIDTH - 1), dtype=np.float32)
    scopes: tuple[dict[str, Any], ...] = (
        {},
        {"conversation_id": inside},
        {"agent": "codex"},
        {"role": "assistant"},
        {"tag": "topic:inside"},
        {"since": START + timedelta(days=300)},
        {"agent": "codex", "role": "assistant"},
    )
    for small, walk_cost in ((vector._SMALL_SCOPE, vector._WALK_COST), (0, 0.0)):
        monkeypatch.setattr(vector, "_SMALL_SCOPE", small)
        monkeypatch.setattr(vector, "_WALK_COST", walk_cost)
        for scope in scopes:
            request = resolve_tag(connection, SearchRequest("n", scope="messages", **scope))
            with connection.transaction():
                tune_session(connection, ef_search=40)
                found = vector.nearest(connection, model, query, request, wanted=wanted).similarities
            assert len(found) == min(wanted, INSIDE if scope else ROWS), (small, scope)
            order = list(found.values())
            assert order == sorted(order, reverse=True)


def test_a_tag_of_a_small_scope_is_compared_exactly(crowd: tuple[Connection, UUID]) -> None:
    connection, _ = crowd
    model = vector.serving_model(connection)
    assert model is not None
    query = np.array([-1.0] + [0.2] * (WIDTH - 1), dtype=np.float32)
    request = resolve_tag(connection, SearchRequest("n", scope="messages", tag="topic:inside"))
    with connection.transaction():
        tune_session(connection, ef_search=40)
        found = vector.nearest(connection, model, query, request, wanted=10).similarities
    exact = connection.execute(
        """SELECT m.seq FROM ros_messages AS m JOIN ros_embeddings AS e ON e.owner_id = m.id
           WHERE m.agent = 'codex' ORDER BY e.embedding <=> %s::halfvec LIMIT 10""",
        [vector.vector_text(query)],
    ).fetchall()
    assert [seq for _, seq in found] == [row["seq"] for row in exact]


def test_a_long_text_counts_once_by_its_best_chunk(connection: Connection) -> None:
    register_model(connection, width=2)
    long = add_message(connection, "a long one")
    for chunk in range(30):
        add_vector(connection, "message", long, np.array([1.0, 0.3 + chunk / 100], dtype=np.float32), chunk=chunk)
    others = [add_message(connection, f"short {number}") for number in range(5)]
    for number, other in enumerate(others):
        add_vector(connection, "message", other, np.array([0.5, 1.0 + number], dtype=np.float32))
    model = vector.serving_model(connection)
    assert model is not None
    request = SearchRequest("x", scope="messages")
    with connection.transaction():
        tune_session(connection, ef_search=40)
        found = vector.nearest(connection, model, np.array([1.0, 0.0], dtype=np.float32), request, wanted=6)
    assert len(found.similarities) == 6
    assert max(found.similarities.values()) == pytest.approx(1 / np.hypot(1, 0.3), abs=1e-3)


@pytest.mark.parametrize("values", ["[0,0]", "[1e-9,0]", "[NaN,1]", "[Infinity,1]"])
def test_a_vector_without_direction_is_not_stored(connection: Connection, values: str) -> None:
    register_model(connection, width=2)
    owner = add_message(connection, "a text")
    with pytest.raises(psycopg.Error):
        connection.execute(
            """INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                           embedding)
               SELECT k.id, 'message', m.id, 0, m.text_hash, 0, 1, %s::halfvec
               FROM ros_embedding_models AS k, ros_messages AS m WHERE m.id = %s""",
            [values, owner],
        )
    assert connection.execute("SELECT count(*) AS n FROM ros_embeddings").fetchone() == {"n": 0}


def test_a_query_is_embedded_once_and_few_are_remembered() -> None:
    class Counting:
        name = "counting"
        asked = 0

        def embed(self, texts: list[str]) -> np.ndarray:
            self.asked += 1
            return np.ones((len(texts), 3), dtype=np.float32)

    model = Counting()
    queries = QueryEmbedder(model, size=2)  # type: ignore[arg-type]
    for query in ("a", "a ", " a", "b", "a", "c", "a"):
        assert queries.embed(query)[0] is not None
    assert model.asked == 3
    queries.embed("b")
    assert model.asked == 4
