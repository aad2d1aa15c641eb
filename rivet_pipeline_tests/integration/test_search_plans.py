"""Every hot statement of a search is answered by its index, as `docs/retrieval.md` says.

The statements are those that a search really sends, explained with the values it sent and under the settings it sets
(`tune_session`: no sequential scans, because the planner does not know what a row of a transcript costs). Walks are
explained without sorts, because at this size sorting all vectors costs less than walking their graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import index_state
from rivet_pipeline.retrieval.filters import statement, tune_session
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.scoring import PROFILE
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.retrieval.vector_pieces import refresh_vector_pieces
from rivet_pipeline_tests.api_server import module_store
from rivet_pipeline_tests.integration.memory_rows import NOW, WIDTH, add_message, hash_embed, register_model

_FILL = f"""
INSERT INTO ros_conversations (session_key, agent, day)
    SELECT 'plan:' || n, 'claude', '2026-03-01' FROM generate_series(1, 100) AS n;
INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
    SELECT c.id, c.number || '-' || n, 'claude', 'test', 'user', 'kestrel note ' || n || ' of ' || c.number,
           timestamptz '2026-03-01' + c.number * interval '1 hour' + n * interval '1 minute'
    FROM ros_conversations AS c, generate_series(1, 30) AS n;
INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, agents, model,
                           pipeline_version, input_hash)
    SELECT c.id, 'leaf', 'kestrel summary ' || n || ' of ' || c.number, 10, now(), now(), '{{claude}}', 'm', 1, 'h'
    FROM ros_conversations AS c, generate_series(1, 5) AS n;
INSERT INTO ros_summary_sources (summary_id, message_id, ordinal)
    SELECT s.id, m.id, m.n FROM (
        SELECT *, row_number() OVER (PARTITION BY conversation_id ORDER BY seq) AS n FROM ros_summaries) AS s
    JOIN (SELECT *, row_number() OVER (PARTITION BY conversation_id ORDER BY seq) AS n FROM ros_messages) AS m
      ON m.conversation_id = s.conversation_id AND m.n / 7 = s.n;
INSERT INTO ros_access (kind, id, access_count) SELECT 'message', id, 1 FROM ros_messages;
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
    SELECT 1, o.kind, o.id, 0, o.text_hash, 0, 1,
           (SELECT array_agg(random()) FROM generate_series(1, {WIDTH}) WHERE o.id IS NOT NULL)::real[]::halfvec
    FROM (SELECT 'message' AS kind, id, text_hash FROM ros_messages
          UNION ALL SELECT 'summary', id, text_hash FROM ros_summaries) AS o;
"""

#: By search and statement, the indexes that must answer it.
_EXPECTED: dict[tuple[str, str], set[str]] = {
    ("plain", "index_state"): {"ros_messages_seq", "ros_summaries_seq_key"},
    ("plain", "read_postings"): {"ros_postings_pkey"},
    ("plain", "nearest_walk message"): {"ros_embeddings_hnsw_1", "ros_messages_pkey"},
    ("plain", "nearest_walk summary"): {"ros_embeddings_hnsw_1_summaries", "ros_summaries_hash"},
    ("plain", "features"): {"ros_messages_seq", "ros_summaries_seq_key", "ros_access_pkey", "ros_embeddings_pkey"},
    ("plain", "neighbours"): {"ros_messages_seq", "ros_messages_conversation"},
    ("plain", "relatives"): {"ros_summaries_seq_key"},
    ("plain", "read_hits"): {"ros_messages_seq", "ros_conversations_pkey"},
    ("since part of a second", "check_texts"): {"ros_messages_seq", "ros_summaries_seq_key"},
    ("one conversation", "nearest_exact message"): {"ros_messages_conversation", "ros_embeddings_pkey"},
    ("one conversation", "nearest_exact summary"): {"ros_summaries_conversation"},
    ("within a filter", "nearest_given message"): {"ros_messages_seq", "ros_embeddings_pkey"},
    ("within a filter", "nearest_given summary"): {"ros_vector_changes_waiting"},
    ("unindexed", "index_messages"): {"ros_messages_seq"},
    ("far behind", "match"): {"ros_messages_tsv"},
    ("texts", "scan message"): {"ros_messages_created"},
    ("texts", "scan summary"): {"ros_summaries_latest"},
    ("texts", "similar_terms"): {"ros_lexicon_similar"},
    ("texts", "similar message"): {"ros_messages_created", "ros_messages_tsv", "ros_messages_seq"},
    ("texts", "similar summary"): {"ros_summaries_latest", "ros_summaries_tsv", "ros_summaries_seq_key"},
    ("texts of an agent", "scan message"): {"ros_messages_agent"},
    ("texts of a conversation", "scan message"): {"ros_messages_conversation"},
    ("expression", "scan message"): {"ros_messages_created"},
    ("expression", "scan summary"): {"ros_summaries_latest"},
}

_NAMES = {statement(name.split()[0]).splitlines()[0]: name.split()[0] for _, name in _EXPECTED}

#: Which statements are sent must not depend on how busy the machine is.
_PATIENT = replace(PROFILE, pattern_seconds=60.0)

Plans = dict[tuple[str, str], list[Any]]


def nodes(plan: Any) -> list[Any]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


def sent(connection: Connection, query: str = "kestrel 7", **options: Any) -> list[tuple[str, Any]]:
    """The statements of one search and their values."""
    found: list[tuple[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        execute = psycopg.Cursor.execute

        def spy(self: Any, query: Any, params: Any = None, **others: Any) -> Any:
            found.append((query.decode() if isinstance(query, bytes) else str(query), params))
            return execute(self, query, params, **others)

        patch.setattr(psycopg.Cursor, "execute", spy)
        request = SearchRequest(query, limit=50, **options)
        response = search(connection, request, embed_query=hash_embed, now=NOW, profile=_PATIENT)
    assert response.hits
    assert response.degraded is None
    return found


def explain(connection: Connection, name: str, statements: list[tuple[str, Any]]) -> Plans:
    plans: Plans = {}
    with connection.transaction():
        tune_session(connection, ef_search=100)
        for text, values in statements:
            kind = _NAMES.get(text.splitlines()[0])
            if kind is None:
                continue
            connection.execute(
                "SELECT set_config('enable_sort', %s, true)", ["off" if kind == "nearest_walk" else "on"]
            )
            row = connection.execute(f"EXPLAIN (FORMAT JSON)\n{text}".encode(), values, prepare=False).fetchone()
            assert row is not None
            if kind.startswith("nearest") or kind in {"scan", "similar"}:
                kind += " summary" if "ros_summaries" in text else " message"
            plans.setdefault((name, kind), []).extend(nodes(row["QUERY PLAN"][0]["Plan"]))
    return plans


@pytest.fixture(scope="module")
def plans(server: EmbeddedServer) -> Iterator[Plans]:
    with module_store(server, "search_plans_module") as url, connect(url) as connection:
        register_model(connection)
        for part in _FILL.split(";"):
            connection.execute(part.encode())
        refresh_lexicon(connection)
        refresh_vector_pieces(connection)
        connection.execute("VACUUM ANALYZE")
        row = connection.execute("SELECT id FROM ros_conversations LIMIT 1").fetchone()
        assert row is not None
        found = explain(connection, "plain", sent(connection))
        found |= explain(
            connection, "since part of a second", sent(connection, since=NOW - timedelta(days=3_650, microseconds=1))
        )
        found |= explain(connection, "one conversation", sent(connection, conversation_id=row["id"]))
        found |= explain(connection, "within a filter", sent(connection, agent="claude"))
        found |= explain(connection, "texts", sent(connection, "kestral note 7", mode="trigram"))
        found |= explain(connection, "texts of an agent", sent(connection, mode="trigram", agent="claude"))
        found |= explain(
            connection, "texts of a conversation", sent(connection, mode="trigram", conversation_id=row["id"])
        )
        found |= explain(connection, "expression", sent(connection, r"kestrel \w+ 7\b", mode="regex"))
        for number in range(3):
            add_message(connection, f"kestrel 7, late {number}")
        found |= explain(connection, "unindexed", sent(connection))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index_state, "MOST_LIVE", 1)
            found |= explain(connection, "far behind", sent(connection))
        yield found


@pytest.mark.parametrize("asked", _EXPECTED, ids=" ".join)
def test_a_hot_statement_is_answered_by_its_index(plans: Plans, asked: tuple[str, str]) -> None:
    used = {node["Index Name"] for node in plans[asked] if "Index Name" in node}
    assert _EXPECTED[asked] <= used


def test_no_statement_goes_through_a_table_of_texts_or_vectors(plans: Plans) -> None:
    read = [node["Relation Name"] for every in plans.values() for node in every if node["Node Type"] == "Seq Scan"]
    assert set(read) <= {"ros_corpus"}


def test_a_plan_made_for_few_accesses_does_not_go_through_them_all(plans: Plans) -> None:
    access = [node for node in plans["plain", "features"] if node.get("Index Name") == "ros_access_pkey"]
    assert access
    assert all("id" in node["Index Cond"] for node in access)


def test_vectors_of_chosen_summaries_are_looked_up_by_their_owners(plans: Plans) -> None:
    used = {node.get("Index Name", "") for node in plans["within a filter", "nearest_given summary"]}
    assert used & {"ros_embeddings_of_summaries", "ros_embeddings_pkey"}
    assert not any("hnsw" in name for name in used)


def test_what_every_search_asks_is_planned_once_a_connection(connection: Connection) -> None:
    register_model(connection)
    for number in range(30):
        add_message(connection, f"kestrel note {number}", embed=True)
    refresh_lexicon(connection)
    refresh_vector_pieces(connection)
    for number in range(15):
        # New rows are read by each search that finds some.
        add_message(connection, f"kestrel note {number}, late")
        for filters in ({}, {"agent": "claude"}):
            sent(connection, f"kestrel note {number}", **filters)
    kept = connection.execute(
        """SELECT split_part(statement, chr(10), 1) AS name, sum(generic_plans) AS generic, sum(custom_plans) AS others
           FROM pg_prepared_statements GROUP BY 1"""
    ).fetchall()
    plans = {row["name"]: (int(row["generic"]), int(row["others"])) for row in kept}
    for name, statements in (
        ("index_state", 1),
        ("index_messages", 1),
        ("nearest_walk", 2),
        ("vector_state", 1),
        ("features", 2),
        ("neighbours", 1),
    ):
        generic, others = plans[f"-- {name}"]
        assert generic > 0, name
        # Postgres plans the first five for their values, to compare.
        assert others <= 5 * statements, name
