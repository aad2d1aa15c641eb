"""The wiki as Dagster runs it: after the leaves; pages and vectors in a run of their own; old versions when asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from rivet_pipeline.automation.instance import PRIORITY, WIKI_TAG
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import get_settings
from rivet_pipeline.versions import WIKI_PIPELINE_VERSION
from rivet_pipeline_tests.integration.pipeline import DAY, Pipeline, capture
from rivet_pipeline_tests.integration.test_sensors import carry_out, remine_requests, stages, tick


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def pipeline(
    database_url: str,
    connection: Connection,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pipeline]:
    monkeypatch.setenv("RIVETOS_CAPTURE_SPOOL", str(tmp_path / "spool"))
    get_settings.cache_clear()
    yield Pipeline(database_url, connection, instance)
    get_settings.cache_clear()


def test_from_a_capture_to_a_page_with_vectors_and_once_more_for_a_newer_version(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10, word="We decided to keep the importer on port 8437.")
    pipeline.connection.execute("UPDATE ros_conversations SET title = 'Importer port'")
    (request,) = tick(pipeline)
    assert "wiki_patches" in stages(request)
    result = carry_out(pipeline, request)
    assert result.success
    latest = pipeline.instance.get_latest_materialization_event(dg.AssetKey("wiki_patches"))
    assert latest is not None
    assert latest.asset_materialization is not None
    patches = str(latest.asset_materialization.metadata["newest_patches"].value)
    assert "Importer port" in patches
    assert "applied (new page)" in patches
    assert latest.asset_materialization.metadata["rows_written"].value == 1
    assert pipeline.rows("SELECT slug, bullets FROM ros_wiki_topics") == [{"slug": "importer-port", "bullets": 1}]
    # Pages and their vectors follow in a run of their own, when nothing else is pending.
    asked = [request for request in tick(pipeline) if WIKI_TAG in request.tags]
    assert [stages(request) for request in asked] == [{"wiki_topics", "wiki_embeddings"}]
    assert carry_out(pipeline, asked[0]).success
    assert pipeline.rows("SELECT count(*)::int AS n FROM ros_embeddings WHERE owner_kind = 'topic'") == [{"n": 1}]
    assert not [request for request in tick(pipeline) if WIKI_TAG in request.tags]
    # An older version's leaf is mined again only when somebody switches that on, at low priority.
    pipeline.connection.execute("UPDATE ros_wiki_extractions SET pipeline_version = 3")
    assert not any("wiki_patches" in stages(request) for request in tick(pipeline))
    capture(pipeline.connection, "test:2", count=10)
    (live,) = [request for request in tick(pipeline) if "wiki_patches" in stages(request)]
    assert carry_out(pipeline, live).success
    assert pipeline.rows("SELECT pipeline_version FROM ros_wiki_extractions ORDER BY 1") == [
        {"pipeline_version": 3},
        {"pipeline_version": WIKI_PIPELINE_VERSION},
    ]
    (again,) = remine_requests(pipeline)
    assert (stages(again), again.tags[PRIORITY]) == ({"wiki_patches"}, "-1")
    assert carry_out(pipeline, again).success
    assert pipeline.rows("SELECT DISTINCT pipeline_version FROM ros_wiki_extractions") == [
        {"pipeline_version": WIKI_PIPELINE_VERSION}
    ]
    assert pipeline.rows("SELECT count(*)::int AS n FROM ros_wiki_patches") == [{"n": 1}]
    assert pipeline.run(DAY, job="remine_wiki_days").success


def test_the_consolidation_job_proposes_and_applies_nothing(pipeline: Pipeline) -> None:
    result = pipeline.defs.resolve_job_def("consolidate_wiki").execute_in_process(instance=pipeline.instance)
    assert result.success
    assert result.output_for_node("propose_wiki_changes") == 0
