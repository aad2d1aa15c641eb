"""The asset checks: each passes over a sound store and fails over one that has just the fault it looks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import get_settings
from rivet_pipeline.transcripts.spool import Spool
from rivet_pipeline_tests.integration.pipeline import DAY, Pipeline, capture

#: Fault by check: SQL that plants it in a store of one conversation with eight leaves, their branch and their vectors.
FAULTS = {
    ("messages", "no_duplicate_events"): """
        INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
        SELECT conversation_id, event_id || '-again', agent, channel, role, content, created_at
        FROM ros_messages ORDER BY seq LIMIT 1""",
    ("tool_call_text", "nothing_overdue"): """
        INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_result)
        SELECT id, 'untold', 'opus', 'test', 'tool', 'Bash', 'fine' FROM ros_conversations;
        UPDATE ros_conversations SET revision = revision + 1""",
    ("tool_call_text", "every_call_told"): """
        INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_result)
        SELECT id, 'untold', 'opus', 'test', 'tool', 'Bash', 'fine' FROM ros_conversations""",
    ("message_embeddings", "one_width"): """
        INSERT INTO ros_embedding_models (name, dimensions) VALUES ('unindexed', 256);
        INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                    embedding)
        SELECT k.id, 'message', o.id, 0, o.text_hash, 0, 1, '[1,2,3]'
        FROM ros_messages AS o JOIN ros_embedding_models AS k ON k.name = 'unindexed' ORDER BY o.seq LIMIT 1""",
    ("summary_embeddings", "one_width"): """
        INSERT INTO ros_embedding_models (name, dimensions) VALUES ('unindexed', 256);
        INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                    embedding)
        SELECT k.id, 'summary', o.id, 0, o.text_hash, 0, 1, '[1,2,3]'
        FROM ros_summaries AS o JOIN ros_embedding_models AS k ON k.name = 'unindexed' ORDER BY o.seq LIMIT 1""",
    ("message_embeddings", "nothing_overdue"): """
        DELETE FROM ros_stage_marks WHERE stage = 'message_embeddings';
        DELETE FROM ros_embeddings WHERE owner_id = (SELECT id FROM ros_messages ORDER BY seq LIMIT 1)""",
    ("leaf_summaries", "nothing_overdue"): """
        DELETE FROM ros_stage_marks WHERE stage = 'leaf_summaries';
        DELETE FROM ros_summary_sources WHERE summary_id = (SELECT id FROM ros_summaries ORDER BY seq LIMIT 1)""",
    ("branch_summaries", "nothing_overdue"): "UPDATE ros_summaries SET parent_id = NULL",
    ("root_summaries", "nothing_overdue"): """
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                   pipeline_version, input_hash)
        SELECT conversation_id, 'branch', content, 10, earliest_at, latest_at, model, 5, 'x'
        FROM ros_summaries, generate_series(1, 5) WHERE kind = 'branch'""",
    ("summary_embeddings", "nothing_overdue"): "DELETE FROM ros_embeddings WHERE owner_kind = 'summary'",
    **{
        (stage, "nothing_failing"): f"""
        INSERT INTO ros_failures (stage, item, cause, error) VALUES ('{stage}', 'some', 'content', 'no')"""
        for stage in (
            "tool_call_text",
            "message_embeddings",
            "leaf_summaries",
            "tag_proposals",
            "branch_summaries",
            "root_summaries",
            "summary_embeddings",
            "wiki_patches",
            "wiki_embeddings",
        )
    },
    ("wiki_patches", "nothing_overdue"): """
        DELETE FROM ros_wiki_extractions WHERE leaf_id = (SELECT leaf_id FROM ros_wiki_extractions LIMIT 1)""",
    ("wiki_patches", "nothing_stale"): """
        UPDATE ros_refinement_versions SET version = version + 1 WHERE stage = 'wiki_patches'""",
    ("wiki_topics", "every_sentence_cited"): "DELETE FROM ros_wiki_citations",
    ("wiki_topics", "pages_are_their_patches"): """
        UPDATE ros_wiki_topics SET page = jsonb_set(page, '{archived}', '7')""",
    ("wiki_topics", "pages_are_bounded"): "UPDATE ros_wiki_topics SET bullets = 1000",
    ("wiki_embeddings", "one_width"): """
        INSERT INTO ros_embedding_models (name, dimensions) VALUES ('unindexed', 256);
        INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end,
                                    embedding)
        SELECT k.id, 'topic', o.id, 0, o.text_hash, 0, 1, '[1,2,3]'
        FROM ros_wiki_topics AS o JOIN ros_embedding_models AS k ON k.name = 'unindexed' LIMIT 1""",
    ("tag_proposals", "nothing_overdue"): "DELETE FROM ros_tag_extractions",
    ("tag_proposals", "nothing_stale"): "UPDATE ros_tag_extractions SET pipeline_version = 0",
    ("tag_proposals", "none_dropped"): "UPDATE ros_tag_extractions SET status = 'dropped', error = 'http-503: busy'",
    ("tag_proposals", "no_orphans"): """
        INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source, proposed_by)
        SELECT 'summary', gen_random_uuid(), id, 'topic', 'gone', 'accepted', 'person', 'ada' FROM ros_conversations""",
    ("tag_proposals", "no_aliases"): """
        INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source, proposed_by)
        SELECT 'conversation', id, id, 'topic', 'pg', 'accepted', 'person', 'ada' FROM ros_conversations;
        INSERT INTO ros_tag_taxonomy (tag_key, tag_value, status, alias_of, source, proposed_by)
        VALUES ('topic', 'pg', 'accepted', 'postgres', 'person', 'ada')""",
    ("leaf_summaries", "no_orphans"): """
        DELETE FROM ros_summary_sources WHERE summary_id = (SELECT id FROM ros_summaries ORDER BY seq LIMIT 1)""",
    ("branch_summaries", "no_orphans"): "UPDATE ros_summaries SET parent_id = NULL",
    ("root_summaries", "no_orphans"): """
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                   pipeline_version, input_hash)
        SELECT conversation_id, 'root', content, 10, earliest_at, latest_at, model, 5, 'x'
        FROM ros_summaries WHERE kind = 'branch'""",
    **{
        (f"{kind}_summaries", "nothing_stale"): f"""
        UPDATE ros_refinement_versions SET version = version + 1 WHERE stage = '{kind}_summaries'"""
        for kind in ("leaf", "branch")
    },
    ("root_summaries", "nothing_stale"): """
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                   pipeline_version, input_hash)
        SELECT conversation_id, 'root', content, 10, earliest_at, latest_at, model, 4, 'x'
        FROM ros_summaries WHERE kind = 'branch'""",
    ("leaf_summaries", "grounded"): "UPDATE ros_summaries SET grounding = 0.5 WHERE kind = 'leaf'",
    ("branch_summaries", "grounded"): "UPDATE ros_summaries SET grounding = 0.5 WHERE kind = 'branch'",
    ("leaf_summaries", "covered"): "UPDATE ros_summaries SET coverage = 0.3 WHERE kind = 'leaf'",
    ("branch_summaries", "covered"): "UPDATE ros_summaries SET coverage = 0.3 WHERE kind = 'branch'",
    ("root_summaries", "covered"): """
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                   pipeline_version, input_hash, coverage)
        SELECT conversation_id, 'root', content, 10, earliest_at, latest_at, model, 5, 'x', 0.2
        FROM ros_summaries WHERE kind = 'branch'""",
    ("root_summaries", "grounded"): """
        INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                   pipeline_version, input_hash, grounding)
        SELECT conversation_id, 'root', content, 10, earliest_at, latest_at, model, 5, 'x', 0.2
        FROM ros_summaries WHERE kind = 'branch'""",
}
#: What stops nobody's work while it is put right.
WARNINGS = {
    "every_call_told",
    "nothing_overdue",
    "nothing_failing",
    "nothing_stale",
    "none_dropped",
    "grounded",
    "covered",
    "no_duplicate_events",
}


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    """The spool that the checks of a test look at, empty at first."""
    monkeypatch.setenv("RIVETOS_CAPTURE_SPOOL", str(tmp_path / "spool"))
    get_settings.cache_clear()
    yield Spool(tmp_path / "spool")
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture(scope="module")
def sound(server: EmbeddedServer, instance: dg.DagsterInstance) -> Iterator[str]:
    """A database with a sound store: one conversation refined, with every kind of row but roots, and a page."""
    with connect(server.url("postgres")) as admin:
        admin.execute("CREATE DATABASE test_sound")
        with connect(server.url("test_sound")) as connection:
            apply_migrations(connection)
            made = Pipeline(server.url("test_sound"), connection, instance)
            capture(connection, "test:1", count=80, word="We decided to keep the importer on port 8437.")
            connection.execute("UPDATE ros_conversations SET title = 'Importer port'")
            assert made.run(DAY).success
            assert made.rows("SELECT title FROM ros_wiki_topics") == [{"title": "Importer port"}]
            assert made.counts()["summaries"] == 9
        yield "test_sound"
        admin.execute("DROP DATABASE test_sound WITH (FORCE)")


@pytest.fixture
def pipeline(server: EmbeddedServer, sound: str, instance: dg.DagsterInstance) -> Iterator[Pipeline]:
    """A copy of the sound store."""
    with connect(server.url("postgres")) as admin:
        admin.execute(f"CREATE DATABASE test_faulty TEMPLATE {sound}".encode())
        with connect(server.url("test_faulty")) as connection:
            yield Pipeline(server.url("test_faulty"), connection, instance)
        admin.execute("DROP DATABASE test_faulty WITH (FORCE)")


def check(pipeline: Pipeline) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
    """All checks, as the hourly job asks them."""
    result = pipeline.defs.resolve_job_def("check_everything").execute_in_process(instance=pipeline.instance)
    assert result.success
    return {(one.asset_key.to_user_string(), one.check_name): one for one in result.get_asset_check_evaluations()}


def test_a_sound_store_passes_every_check(pipeline: Pipeline) -> None:
    found = check(pipeline)
    assert set(found) == {*FAULTS, ("messages", "captures_delivered"), ("retrieval_quality", "no_drop")}
    assert [key for key, evaluation in found.items() if not evaluation.passed] == []


@pytest.mark.parametrize("key", sorted(FAULTS), ids=".".join)
def test_a_planted_fault_is_found(pipeline: Pipeline, key: tuple[str, str]) -> None:
    pipeline.connection.execute(FAULTS[key].encode())
    found = check(pipeline)[key]
    assert not found.passed
    assert (found.severity == dg.AssetCheckSeverity.WARN) == (key[1] in WARNINGS)
    assert found.metadata["at_fault"].value
    assert str(found.metadata["examples"].value).count("\n") >= 2  # a table with the rows at fault


def test_a_capture_that_was_refused_is_found(pipeline: Pipeline, spool: Spool) -> None:
    spool.put_dead(b'{"session_key": "s:1"}', "s:1", reason="answered 400: no", status=400)
    found = check(pipeline)["messages", "captures_delivered"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "answered 400: no" in str(found.metadata["examples"].value)


def test_checks_of_an_empty_store_pass(database_url: str, connection: Connection, instance: dg.DagsterInstance) -> None:
    found = check(Pipeline(database_url, connection, instance))
    assert [key for key, evaluation in found.items() if not evaluation.passed] == []
