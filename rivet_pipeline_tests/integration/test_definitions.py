"""What Dagster is told: every asset with its place in the graph, and bodies that only pass work on."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster import AssetKey
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

import rivet_pipeline.assets
from rivet_pipeline.assets.partitions import backfill_policy, conversation_days
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.db.store import store_url
from rivet_pipeline.definitions import build_defs, default_jobs, default_schedules, default_sensors, defs
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.shipped import shipped
from rivet_pipeline.stages import STAGES, WHOLE_STAGES
from rivet_pipeline.versions import (
    EMBEDDING_VERSION,
    LEXICON_VERSION,
    MESSAGES_VERSION,
    RETRIEVAL_QUALITY_VERSION,
    SUMMARY_PIPELINE_VERSION,
    TAGS_VERSION,
    TOOL_TEXT_VERSION,
    WIKI_PAGE_VERSION,
    WIKI_PIPELINE_VERSION,
)

DEPENDENCIES = {
    "messages": set(),
    "tool_call_text": {"messages"},
    "message_embeddings": {"messages", "tool_call_text"},
    "leaf_summaries": {"messages"},
    "tag_proposals": {"leaf_summaries"},
    "branch_summaries": {"leaf_summaries"},
    "root_summaries": {"branch_summaries"},
    "summary_embeddings": {"leaf_summaries", "branch_summaries", "root_summaries"},
    "wiki_patches": {"leaf_summaries"},
    "wiki_topics": {"wiki_patches"},
    "wiki_embeddings": {"wiki_topics"},
    "lexicon": {"messages", "leaf_summaries", "branch_summaries", "root_summaries"},
    "retrieval_quality": {"lexicon"},
}
GROUPS = {
    "messages": "conversations",
    "tool_call_text": "conversations",
    "message_embeddings": "search",
    "leaf_summaries": "summaries",
    "tag_proposals": "tags",
    "branch_summaries": "summaries",
    "root_summaries": "summaries",
    "summary_embeddings": "search",
    "wiki_patches": "wiki",
    "wiki_topics": "wiki",
    "wiki_embeddings": "wiki",
    "lexicon": "search",
    "retrieval_quality": "search",
}
KINDS = {
    "messages": {"postgres"},
    "tool_call_text": {"postgres"},
    "message_embeddings": {"postgres", "pgvector"},
    "leaf_summaries": {"postgres", "llm"},
    "tag_proposals": {"postgres"},
    "branch_summaries": {"postgres", "llm"},
    "root_summaries": {"postgres", "llm"},
    "summary_embeddings": {"postgres", "pgvector"},
    "wiki_patches": {"postgres"},
    "wiki_topics": {"postgres"},
    "wiki_embeddings": {"postgres", "pgvector"},
    "lexicon": {"postgres"},
    "retrieval_quality": {"postgres"},
}
VERSIONS = {
    "messages": str(MESSAGES_VERSION),
    "tool_call_text": f"{TOOL_TEXT_VERSION}/rendering-1",
    "message_embeddings": f"{EMBEDDING_VERSION}/wordllama-l2-supercat-256",
    "leaf_summaries": f"{SUMMARY_PIPELINE_VERSION}/extractive-2",
    "tag_proposals": f"{TAGS_VERSION}/keyphrases-1",
    "branch_summaries": f"{SUMMARY_PIPELINE_VERSION}/extractive-2",
    "root_summaries": f"{SUMMARY_PIPELINE_VERSION}/extractive-2",
    "summary_embeddings": f"{EMBEDDING_VERSION}/wordllama-l2-supercat-256",
    "wiki_patches": f"{WIKI_PIPELINE_VERSION}/extractive-wiki-1",
    "wiki_topics": str(WIKI_PAGE_VERSION),
    "wiki_embeddings": f"{EMBEDDING_VERSION}/wordllama-l2-supercat-256",
    "lexicon": str(LEXICON_VERSION),
    "retrieval_quality": str(RETRIEVAL_QUALITY_VERSION),
}
SPECS = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def bodies() -> Iterator[tuple[str, int]]:
    """The name and length in lines of every asset's function, its docstring left out."""
    for path in Path(rivet_pipeline.assets.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any("asset" in ast.unparse(one) for one in node.decorator_list):
                first = node.body[1] if ast.get_docstring(node) else node.body[0]
                yield node.name, (node.end_lineno or 0) - first.lineno + 1


def test_the_assets_are_the_stages_and_those_of_retrieval() -> None:
    assert set(SPECS) == {*STAGES, *WHOLE_STAGES, "lexicon", "retrieval_quality"}
    assert set(DEPENDENCIES) == set(SPECS)


@pytest.mark.parametrize("name", sorted(DEPENDENCIES))
def test_an_asset_says_what_it_is(name: str) -> None:
    spec = SPECS[name]
    assert {dep.asset_key.to_user_string() for dep in spec.deps} == DEPENDENCIES[name]
    assert spec.group_name == GROUPS[name]
    assert spec.kinds == KINDS[name]
    assert spec.owners == ["team:memory"]
    assert spec.code_version == VERSIONS[name]
    assert len(spec.description or "") > 40


def test_the_stages_of_a_run_stand_in_the_order_of_the_graph() -> None:
    for place, stage in enumerate(STAGES):
        assert DEPENDENCIES[stage] <= set(STAGES[:place])


def test_a_partition_is_a_utc_day_and_today_is_one() -> None:
    assert conversation_days.timezone == "UTC"
    now = datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC)
    assert conversation_days.get_partition_keys(current_time=now)[-1] == "2026-03-02"
    assert conversation_days.get_first_partition_key() == Settings().first_day.isoformat()
    graph = defs.resolve_asset_graph()
    for stage in STAGES:
        node = graph.get(AssetKey(stage))
        assert node.partitions_def == conversation_days
        assert node.backfill_policy == backfill_policy
    assert {graph.get(AssetKey(name)).partitions_def for name in ("lexicon", *WHOLE_STAGES)} == {None}
    assert backfill_policy.max_partitions_per_run == 31


def test_model_stages_wait_in_pools() -> None:
    graph = defs.resolve_asset_graph()
    pools = {stage: set(graph.get(AssetKey(stage)).pools or ()) for stage in SPECS}
    assert {stage for stage in pools if pools[stage] == {"llm"}} == {
        "leaf_summaries",
        "branch_summaries",
        "root_summaries",
    }
    assert {stage for stage in pools if pools[stage] == {"embedder"}} == {
        "message_embeddings",
        "summary_embeddings",
        "wiki_embeddings",
    }


def test_every_job_schedule_and_sensor_resolves_and_says_what_it_is_for() -> None:
    dg.Definitions.validate_loadable(defs)
    for job in default_jobs:
        resolved = defs.resolve_job_def(job.name)
        assert resolved.description
        assert (resolved.partitions_def == conversation_days) == job.name.endswith("_days")
    automations: list[dg.ScheduleDefinition | dg.SensorDefinition] = [*default_schedules, *default_sensors]
    for automation in automations:
        assert automation.description, automation.name
        # Redoing what stands already costs money where the model does: a person switches it on.
        expected = "STOPPED" if automation.name == "remine_stale" else "RUNNING"
        assert automation.default_status.value == expected, automation.name


def test_all_checks_are_in_the_job_that_runs_them_hourly() -> None:
    chosen = defs.resolve_job_def("check_everything").asset_layer.asset_graph.asset_check_keys
    assert chosen == defs.resolve_asset_graph().asset_check_keys
    assert len(chosen) >= 15


def test_two_definitions_do_not_share_what_tests_hand_in() -> None:
    first, second = (build_defs(resources={"store": StoreResource(database=name)}) for name in ("one", "two"))
    assert first.resources is not None
    assert second.resources is not None
    assert first.resources["store"] != second.resources["store"]


def test_asset_bodies_are_short() -> None:
    lengths = dict(bodies())
    # The levels of the summary tree share one function, and so do the two kinds of vectors.
    bodies_there = {"messages", "tool_call_text", "level", "tag_proposals", "vectors", "lexicon", "retrieval_quality"}
    assert bodies_there <= set(lengths)
    assert {name: length for name, length in lengths.items() if length > 25} == {}


def test_what_dagster_shows_holds_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVETOS_PG_URL", "postgresql://someone:very-secret@db.example:5432/store")
    get_settings.cache_clear()
    try:
        assert "very-secret" in store_url(get_settings())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Dagster reads a field of its own that it deprecates
            shown = serialize_value(RepositorySnap.from_def(build_defs().get_repository_def()))
    finally:
        monkeypatch.undo()
        get_settings.cache_clear()
    assert "idle_conversations" in shown
    assert "very-secret" not in shown
    assert "db.example" not in shown


def test_pools_hold_back_runs_and_not_steps() -> None:
    instance = yaml.safe_load(shipped("dagster.yaml").read_text(encoding="utf-8"))
    assert instance["concurrency"]["pools"]["granularity"] == "run"
    assert instance["run_monitoring"]["free_slots_after_run_end_seconds"] <= 30
    assert instance["telemetry"] == {"enabled": False}
