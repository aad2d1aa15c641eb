"""The asset `tag_proposals` in the real definitions: what a run does and what Dagster shows of it."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from rivet_pipeline.assets.reasons import NEW_ROWS, REASON
from rivet_pipeline.automation.instance import RANGE_END, RANGE_START
from rivet_pipeline.db.pool import Connection
from rivet_pipeline_tests.integration.pipeline import DAY, Pipeline, capture, materializations
from rivet_pipeline_tests.integration.tagging import FailingTagger, ScriptedTagger, rows, standing


@pytest.fixture
def pipeline(database_url: str, connection: Connection) -> Iterator[Pipeline]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Pipeline(database_url, connection, instance)


def test_one_run_of_the_chain_tags_the_leaves_it_has_just_made(pipeline: Pipeline) -> None:
    capture(pipeline.connection, count=10)
    tagger = ScriptedTagger(["topic:caching"])
    pipeline.models.tagger = tagger
    shown = materializations(pipeline.run(), "tag_proposals")[DAY.isoformat()]
    assert standing(pipeline.connection) == {
        ("conversation", "topic:caching", "suggested"),
        ("summary", "topic:caching", "suggested"),
    }
    told = {name: shown[name] for name in ("rows_written", "model_calls", "tokens", "failures", "awaiting_review")}
    assert told == {"rows_written": 2, "model_calls": 1, "tokens": 10, "failures": 0, "awaiting_review": 2}
    assert (shown["run_leaves_tagged"], shown["run_leaves_dropped"], shown["model"]) == (1, 0, "tagger-1")
    assert shown["dagster/row_count"] == 2
    again = materializations(pipeline.run(), "tag_proposals")[DAY.isoformat()]
    assert (again["rows_written"], again["model_calls"], len(tagger.asked)) == (0, 0, 1)


def test_leaves_of_an_older_version_wait_for_a_person(pipeline: Pipeline) -> None:
    capture(pipeline.connection, count=10)
    tagger = ScriptedTagger(["topic:caching"])
    pipeline.models.tagger = tagger
    pipeline.run()
    pipeline.connection.execute("UPDATE ros_tag_extractions SET pipeline_version = 0")
    capture(pipeline.connection, "test:2", count=10)
    live = {RANGE_START: str(DAY), RANGE_END: str(DAY), REASON: NEW_ROWS}
    chain = pipeline.defs.resolve_job_def("refine_days")
    assert chain.execute_in_process(instance=pipeline.instance, tags=live).success
    assert len(tagger.asked) == 2
    pipeline.run()
    assert len(tagger.asked) == 3


def test_a_dropped_leaf_is_shown_and_the_run_succeeds(pipeline: Pipeline) -> None:
    capture(pipeline.connection, count=10)
    pipeline.models.tagger = FailingTagger(100)
    result = pipeline.run()
    assert result.success
    shown = materializations(result, "tag_proposals")[DAY.isoformat()]
    assert (shown["failures"], shown["run_leaves_dropped"]) == (1, 1)
    assert shown["run_drop_reasons"] == "- http-503: busy"
    assert "tag_proposals" not in pipeline.pending()


def test_switched_off_the_run_succeeds_and_tags_nothing(pipeline: Pipeline) -> None:
    capture(pipeline.connection, count=10)
    pipeline.models.tagger = None
    assert pipeline.run(job="retag_days").success
    assert standing(pipeline.connection) == set()
    assert rows(pipeline.connection, "SELECT 1 FROM ros_refinement_versions WHERE stage = 'tag_proposals'") == []


def test_the_hourly_job_reaps_orphans(pipeline: Pipeline) -> None:
    pipeline.connection.execute(
        """
        INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source, proposed_by)
        VALUES ('summary', gen_random_uuid(), gen_random_uuid(), 'topic', 'gone', 'accepted', 'person', 'ada')
        """
    )
    result = pipeline.defs.resolve_job_def("tidy_tags").execute_in_process(instance=pipeline.instance)
    assert result.success
    assert result.output_for_node("sweep_tags") == 1
    assert standing(pipeline.connection) == set()
