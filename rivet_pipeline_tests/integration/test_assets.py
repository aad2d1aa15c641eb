"""The assets in real runs over a real store: what a run writes, what it shows, and what it leaves alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest

from rivet_pipeline.db import pending
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.stages import STAGES
from rivet_pipeline.summaries import compact
from rivet_pipeline_tests.integration.pipeline import DAY, Pipeline, capture, capture_calls, materializations

NEXT = DAY + timedelta(days=1)
QUIET = DAY + timedelta(days=2)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def pipeline(database_url: str, connection: Connection, instance: dg.DagsterInstance) -> Pipeline:
    return Pipeline(database_url, connection, instance)


def test_a_run_over_days_refines_their_conversations_and_shows_each_day(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=20)
    capture(pipeline.connection, "test:2", count=10, day=NEXT)
    result = pipeline.run(DAY, QUIET)
    assert result.success
    assert pipeline.counts() == {"messages": 30, "summaries": 3, "embeddings": 33, "failures": 0, "revisions": 0}
    assert pipeline.pending() == set()

    for stage in STAGES:
        assert set(materializations(result, stage)) == {str(DAY), str(NEXT), str(QUIET)}, stage
    messages = materializations(result, "messages")
    assert messages[str(DAY)]["dagster/row_count"] == messages[str(DAY)]["tool_calls"] + 20
    assert messages[str(DAY)]["conversations"] == 1
    assert "| opus | 20 |" in messages[str(DAY)]["agents"]
    leaves = materializations(result, "leaf_summaries")
    assert [leaves[str(day)]["dagster/row_count"] for day in (DAY, NEXT, QUIET)] == [2, 1, 0]
    assert [leaves[str(day)]["model_calls"] for day in (DAY, NEXT, QUIET)] == [2, 1, 0]
    assert leaves[str(DAY)]["model"] == "extractive-2"
    assert leaves[str(DAY)]["run_rows_written"] == 3
    vectors = materializations(result, "message_embeddings")
    assert [vectors[str(day)]["rows_written"] for day in (DAY, NEXT, QUIET)] == [20, 10, 0]
    assert vectors[str(DAY)]["model"] == "wordllama-l2-supercat-256"
    assert f"| {NEXT} | 10 | 0 |" in vectors[str(DAY)]["run_days"]


def test_dagster_keeps_each_days_own_figures(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10)
    pipeline.run(DAY, NEXT)
    for day, rows in ((DAY, 10), (NEXT, 0)):
        records = pipeline.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=dg.AssetKey("message_embeddings"), asset_partitions=[str(day)]), limit=1
        ).records
        kept = records[0].asset_materialization
        assert kept is not None
        assert kept.metadata["rows_written"].value == rows
        assert kept.metadata["run_rows_written"].value == 10


def test_a_second_run_asks_no_model_writes_no_row_and_still_says_what_is_there(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10)
    pipeline.run(DAY, NEXT)
    before, calls = pipeline.counts(), pipeline.models.calls
    written = pipeline.rows("SELECT max(xmin::text::bigint) AS x FROM ros_embeddings")
    result = pipeline.run(DAY, NEXT)
    assert (pipeline.counts(), pipeline.models.calls) == (before, calls)
    assert pipeline.rows("SELECT max(xmin::text::bigint) AS x FROM ros_embeddings") == written
    again = materializations(result, "leaf_summaries")[str(DAY)]
    assert (again["rows_written"], again["dagster/row_count"], again["model_calls"]) == (0, 1, 0)
    assert again["run_days"] == "Nothing needed work."


def test_a_day_with_nothing_is_materialised_with_noughts(pipeline: Pipeline) -> None:
    result = pipeline.run(QUIET)
    assert result.success
    assert materializations(result, "messages")[str(QUIET)]["dagster/row_count"] == 0
    for stage in STAGES[1:]:
        shown = materializations(result, stage)[str(QUIET)]
        figures = ("dagster/row_count", "rows_written", "failures", "model_calls", "characters", "tokens", "seconds")
        assert {name: shown[name] for name in figures} == dict.fromkeys(figures, 0), stage
    assert pipeline.models.calls == 0


def test_a_poisonous_conversation_fails_alone_and_in_sight(pipeline: Pipeline) -> None:
    poisoned = capture(pipeline.connection, "test:bad", count=10, word="arsenic")
    capture(pipeline.connection, "test:good", count=10)
    pipeline.models.summarizer.poison = "arsenic"
    pipeline.models.embedder.poison = "arsenic"
    result = pipeline.run(DAY)
    assert result.success
    leaves = pipeline.rows(
        "SELECT s.session_key FROM ros_summaries JOIN ros_conversations AS s ON s.id = conversation_id"
    )
    assert leaves == [{"session_key": "test:good"}]
    assert materializations(result, "leaf_summaries")[str(DAY)]["failures"] == 1
    assert materializations(result, "message_embeddings")[str(DAY)]["failures"] == 10
    assert materializations(result, "message_embeddings")[str(DAY)]["rows_written"] == 10
    failed = pipeline.rows("SELECT item, cause, error FROM ros_failures WHERE stage = 'leaf_summaries'")
    assert failed == [{"item": str(poisoned), "cause": "content", "error": "refusal: would rather not"}]
    assert pipeline.pending() == set()


def test_a_service_that_is_down_stops_its_stage_in_sight_and_heals(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10)
    pipeline.models.embedder.down = True
    pipeline.models.summarizer.down = True
    result = pipeline.run(DAY)
    assert result.success
    for stage in ("message_embeddings", "leaf_summaries"):
        assert materializations(result, stage)[str(DAY)]["failures"] == 1, stage
    failed = pipeline.rows("SELECT stage, item, cause FROM ros_failures ORDER BY stage")
    assert failed == [
        {"stage": stage, "item": "service", "cause": "transient"} for stage in ("leaf_summaries", "message_embeddings")
    ]
    assert pipeline.counts()["summaries"] == 0
    calls = pipeline.models.calls
    pipeline.run(DAY)
    assert pipeline.models.calls == calls  # not asked again before its time

    pipeline.models.embedder.down = False
    pipeline.models.summarizer.down = False
    pipeline.retry_now()
    assert {"message_embeddings", "leaf_summaries"} <= pipeline.pending()
    pipeline.run(DAY)
    assert pipeline.counts() == {"messages": 10, "summaries": 1, "embeddings": 11, "failures": 0, "revisions": 0}


def test_another_summarizer_redoes_its_day_and_keeps_the_older_texts(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=20)
    capture(pipeline.connection, "test:2", count=10, day=NEXT)
    pipeline.run(DAY, NEXT)
    older = {row["id"]: row["content"] for row in pipeline.rows("SELECT id, content FROM ros_summaries")}
    pipeline.models.summarizer.model = "other-1"
    pipeline.models.summarizer.requests.clear()
    result = pipeline.run(DAY)
    assert len(pipeline.models.summarizer.requests) == 2
    assert materializations(result, "leaf_summaries")[str(DAY)]["rows_written"] == 2
    revisions = pipeline.rows("SELECT summary_id, content, model FROM ros_summary_revisions")
    assert [(row["content"], row["model"]) for row in revisions] == [
        (older[row["summary_id"]], "extractive-2") for row in revisions
    ]
    models = pipeline.rows(
        """SELECT c.day, array_agg(DISTINCT s.model) AS models
           FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
           GROUP BY c.day ORDER BY c.day"""
    )
    assert models == [{"day": DAY, "models": ["other-1"]}, {"day": NEXT, "models": ["extractive-2"]}]


def test_a_raised_version_redoes_exactly_what_is_older(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(pipeline.connection, "test:1", count=10)
    pipeline.run(DAY)
    defaults = compact.refine_level.__kwdefaults__
    assert defaults is not None
    raised = defaults["version"] + 1
    monkeypatch.setitem(defaults, "version", raised)
    capture(pipeline.connection, "test:later", count=10)
    pipeline.models.summarizer.requests.clear()
    result = pipeline.run(DAY)
    assert len(pipeline.models.summarizer.requests) == 2  # one redone, one new
    assert materializations(result, "leaf_summaries")[str(DAY)]["stale_left"] == 0
    assert pipeline.rows("SELECT DISTINCT pipeline_version AS v FROM ros_summaries") == [{"v": raised}]
    assert pipeline.rows("SELECT pipeline_version AS v FROM ros_summary_revisions") == [{"v": raised - 1}]
    pipeline.run(DAY)
    assert len(pipeline.models.summarizer.requests) == 2


def test_a_day_says_how_many_of_its_summaries_are_left_stale(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=20)
    capture(pipeline.connection, "test:2", count=10, day=NEXT)
    assert "stale_left" not in materializations(pipeline.run(DAY, NEXT), "message_embeddings")[str(DAY)]
    pipeline.models.summarizer.model = "other-1"
    pipeline.models.summarizer.down = True
    shown = materializations(pipeline.run(DAY, QUIET), "leaf_summaries")
    assert [shown[str(day)]["stale_left"] for day in (DAY, NEXT, QUIET)] == [2, 1, 0]
    assert shown[str(DAY)]["run_stale_left"] == 3
    pipeline.models.summarizer.down = False
    pipeline.retry_now()
    shown = materializations(pipeline.run(DAY), "leaf_summaries")
    assert shown[str(DAY)]["stale_left"] == 0
    assert pipeline.rows("SELECT day, items::int FROM ros_stale_days") == [{"day": NEXT, "items": 1}]


@pytest.mark.parametrize(("job", "made"), [("resummarize_days", {"summaries"}), ("reembed_days", {"embeddings"})])
def test_the_jobs_for_parts_of_the_graph_do_their_part(pipeline: Pipeline, job: str, made: set[str]) -> None:
    capture(pipeline.connection, "test:1", count=10)
    assert pipeline.run(DAY, job=job).success
    counts = pipeline.counts()
    assert counts["messages"] == 10
    assert (counts["summaries"] > 0) == ("summaries" in made)
    assert counts["embeddings"] == (10 if job == "reembed_days" else counts["summaries"])


def test_tool_calls_are_told_and_embedded_in_the_same_run(pipeline: Pipeline) -> None:
    capture_calls(pipeline.connection, "test:1", count=10)
    capture_calls(pipeline.connection, "test:2", count=4, day=NEXT, result=None)
    result = pipeline.run(DAY, NEXT)
    assert result.success
    told = materializations(result, "tool_call_text")
    assert [told[str(day)]["rows_written"] for day in (DAY, NEXT)] == [10, 4]
    assert [told[str(day)]["dagster/row_count"] for day in (DAY, NEXT)] == [10, 4]
    assert (told[str(DAY)]["model"], told[str(DAY)]["model_calls"], told[str(DAY)]["failures"]) == ("rendering-1", 0, 0)
    assert "Ran `make part-0` in the shell (Build part 0).\nfine" in pipeline.models.embedder.texts
    # Not once before, as a bare call.
    assert not [text for text in pipeline.models.embedder.texts if text.startswith("Bash: ")]
    assert pipeline.pending() == set()
    counts, calls = pipeline.counts(), pipeline.models.calls
    again = pipeline.run(DAY, NEXT)
    assert (pipeline.counts(), pipeline.models.calls) == (counts, calls)
    assert materializations(again, "tool_call_text")[str(DAY)]["rows_written"] == 0


def test_a_model_for_tool_calls_that_is_down_holds_up_no_other_stage(pipeline: Pipeline) -> None:
    capture_calls(pipeline.connection, "test:1", count=10)
    pipeline.models.writer.asks_a_model = pipeline.models.writer.down = True
    result = pipeline.run(DAY)
    assert result.success
    told = materializations(result, "tool_call_text")[str(DAY)]
    assert (told["rows_written"], told["failures"], told["model_calls"]) == (0, 1, 1)
    assert pipeline.counts() == {"messages": 10, "summaries": 1, "embeddings": 11, "failures": 1, "revisions": 0}
    pipeline.models.writer.down = False
    pipeline.retry_now()
    pipeline.models.summarizer.requests.clear()
    pipeline.run(DAY)
    assert pipeline.counts() == {"messages": 10, "summaries": 1, "embeddings": 11, "failures": 0, "revisions": 0}
    assert pipeline.models.summarizer.requests == []
    assert pipeline.pending() == set()


def test_the_job_for_tool_calls_does_them_and_their_vectors(pipeline: Pipeline) -> None:
    capture_calls(pipeline.connection, "test:1", count=10)
    assert pipeline.run(DAY, job="tell_calls_days").success
    assert pipeline.counts() == {"messages": 10, "summaries": 0, "embeddings": 10, "failures": 0, "revisions": 0}
    assert pipeline.rows("SELECT count(*) AS n FROM ros_messages WHERE content = ''") == [{"n": 0}]


def test_a_job_makes_what_failed_due_again(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:bad", count=10, word="arsenic")
    pipeline.models.summarizer.poison = pipeline.models.embedder.poison = "arsenic"
    pipeline.run(DAY)
    rest_for_an_hour(pipeline)
    job = pipeline.defs.resolve_job_def("retry_failed")

    said: list[str] = []

    def retry(**config: object) -> int:
        ran = job.execute_in_process(
            instance=pipeline.instance, run_config={"ops": {"retry_failed_items": {"config": config}}}
        )
        assert ran.success
        (output,) = (event for event in ran.all_node_events if event.event_type_value == "STEP_OUTPUT")
        said.append(str(output.step_output_data.metadata["tried_again"].value))
        return int(ran.output_for_node("retry_failed_items"))

    blocked = "SELECT stage, count(*) AS n FROM ros_blocked_items GROUP BY stage ORDER BY stage"
    everything = pipeline.rows(blocked)
    assert everything == [{"stage": "leaf_summaries", "n": 1}, {"stage": "message_embeddings", "n": 10}]
    assert retry(task="leaf_summaries", dry_run=True) == 1
    assert retry(task="all", error="no such words") == 0
    assert pipeline.rows(blocked) == everything
    assert retry(task="leaf_summaries", error="RATHER not") == 1
    assert pipeline.rows(blocked) == [{"stage": "message_embeddings", "n": 10}]
    assert retry() == 11
    assert pipeline.rows(blocked) == []
    assert {"leaf_summaries", "message_embeddings"} <= pipeline.pending()
    assert said[-1] == "when the sensor `pending_work` asks for them"
    # A summary that could not be made again is no pending work.
    pipeline.models.summarizer.poison = None
    pipeline.run(DAY)
    pipeline.connection.execute(
        "INSERT INTO ros_failures (stage, item, day, cause, attempts, error) "
        "SELECT 'leaf_summaries', id::text, day, 'content', 3, 'refusal: would rather not' FROM ros_summaries"
    )
    assert retry(task="leaf_summaries") == 1
    assert said[-1].endswith("except 1, tried again when summaries are made again: a backfill, `rivet memory remine`")


def rest_for_an_hour(pipeline: Pipeline) -> None:
    """Lets no failure of a slow test be due again meanwhile."""
    pipeline.connection.execute("UPDATE ros_failures SET next_attempt_at = now() + interval '1 hour'")


def queue(pipeline: Pipeline) -> dict[str, str]:
    """What the job `queue_status` shows."""
    ran = pipeline.defs.resolve_job_def("queue_status").execute_in_process(instance=pipeline.instance)
    (output,) = (event for event in ran.all_node_events if event.event_type_value == "STEP_OUTPUT")
    shown = {name: str(value.value) for name, value in output.step_output_data.metadata.items()}
    assert str(ran.output_for_node("read_queue_status")) == shown["due"]
    return shown


def test_a_queue_that_is_too_long_to_count_is_shown_as_such(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(pipeline.connection, "test:long", count=10)
    monkeypatch.setattr(pending, "COUNTED", 0)
    ran = pipeline.defs.resolve_job_def("queue_status").execute_in_process(instance=pipeline.instance)
    (output,) = (event for event in ran.all_node_events if event.event_type_value == "STEP_OUTPUT")
    due = str(output.step_output_data.metadata["due"].value)
    assert due == f"at most {ran.output_for_node('read_queue_status')}"


def test_a_job_shows_the_queue_of_every_stage_and_why_it_rests(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:bad", count=10, word="arsenic")
    pipeline.models.summarizer.poison = pipeline.models.embedder.poison = "arsenic"
    pipeline.run(DAY)
    rest_for_an_hour(pipeline)
    pipeline.connection.execute(
        "UPDATE ros_failures SET next_attempt_at = CASE WHEN item = (SELECT min(item) FROM ros_failures WHERE stage = "
        "'message_embeddings') THEN now() END WHERE item IN (SELECT item FROM ros_failures WHERE stage = "
        "'message_embeddings' ORDER BY item LIMIT 3)"
    )
    capture(pipeline.connection, "test:new", count=10)
    shown = queue(pipeline)
    assert (shown["resting"], shown["given_up"]) == ("8", "2")
    assert "| leaf_summaries | 1 | 1 | 1 | 0 |" in shown["queue"]
    assert all(stage in shown["queue"] for stage in STAGES)
    header = "| items | stage | cause | due again | resting | given up | next try | latest error |"
    assert shown["failures"].startswith(header)
    assert re.search(
        r"\| 1 \| leaf_summaries \| content \| 0 \| 1 \| 0 \| at \d{4}-\d\d-\d\d \d\d:\d\d UTC \|", shown["failures"]
    )
    assert "| 10 | message_embeddings | content | 1 | 7 | 2 | now |" in shown["failures"]
    assert "rather not" in shown["failures"]


def test_a_queue_without_failures_says_so(pipeline: Pipeline) -> None:
    assert queue(pipeline)["failures"] == "Nothing has failed."


def test_each_days_summaries_link_to_the_words_of_the_newest(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=20)
    capture(pipeline.connection, "test:2", count=1, day=NEXT)
    result = pipeline.run(DAY, NEXT)
    leaves = materializations(result, "leaf_summaries")
    (newest,) = pipeline.rows("SELECT id FROM ros_summaries ORDER BY seq DESC LIMIT 1")
    assert leaves[str(DAY)]["lineage"] == f"http://127.0.0.1:5174/hub/s/{newest['id']}"
    assert "lineage" not in leaves[str(NEXT)]
    assert "lineage" not in materializations(result, "branch_summaries")[str(DAY)]


def test_the_lexicon_counts_what_came(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10, word="zeppelin")
    result = pipeline.defs.resolve_job_def("refresh_lexicon").execute_in_process(instance=pipeline.instance)
    (shown,) = materializations(result, "lexicon").values()
    assert (shown["messages_added"], shown["documents"], shown["rows_behind"]) == (10, 10, 0)
    assert pipeline.rows("SELECT df FROM ros_lexicon WHERE term = 'zeppelin'") == [{"df": 10}]


def test_the_lexicon_codes_the_vectors_that_came(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1", count=10)
    pipeline.run(DAY)
    result = pipeline.defs.resolve_job_def("refresh_lexicon").execute_in_process(instance=pipeline.instance)
    (shown,) = materializations(result, "lexicon").values()
    names = ("vector_pieces_written", "vectors_coded", "vector_changes_waiting")
    assert tuple(shown[name] for name in names) == (2, 11, 0)
    assert shown["vector_codes_mb"] == 0.0
    assert pipeline.rows("SELECT source, rows FROM ros_vector_pieces ORDER BY source") == [
        {"source": "message", "rows": 10},
        {"source": "summary", "rows": 1},
    ]


def test_a_store_that_is_away_fails_the_run(instance: dg.DagsterInstance, connection: Connection) -> None:
    lost = Pipeline("postgresql://nobody@127.0.0.1:9/nothing", connection, instance)
    assert not lost.run(DAY, raise_on_error=False).success
