"""An evaluation as it is run: the command, the scratch database, the asset and its check, and the ranking's floor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rivet_pipeline.assets.retrieval import no_drop, retrieval_quality
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.scratch import scratch_database
from rivet_pipeline.retrieval.evaluation import keep_run, report
from rivet_pipeline.retrieval.quality_history import quality_history
from rivet_pipeline.settings import get_settings
from rivet_pipeline_tests.integration.pipeline import Pipeline, capture
from rivet_pipeline_tests.integration.rivet_command import Run, rivet_command
from rivet_pipeline_tests.unit.test_evaluation import LOCOMO, LONGMEMEVAL, asked, written

SCRATCH = "SELECT datname FROM pg_database WHERE starts_with(datname, 'rivet_scratch_')"


@pytest.fixture
def run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    with rivet_command(database_url, tmp_path, monkeypatch, capsys) as call:
        yield call


def counts(connection: Connection) -> dict[str, Any]:
    row = connection.execute(
        """SELECT (SELECT count(*) FROM ros_messages) AS messages, (SELECT count(*) FROM ros_embeddings) AS vectors,
                  (SELECT count(*) FROM ros_access) AS accesses, (SELECT count(*) FROM ros_lexicon) AS terms"""
    ).fetchone()
    assert row is not None
    return row


def test_a_locomo_file_is_measured_beside_the_memory(run: Run, tmp_path: Path, connection: Connection) -> None:
    capture(connection)
    before = counts(connection)
    folder = tmp_path / "out" / "deep"
    ran = run("eval", "locomo", str(written(tmp_path, LOCOMO)), "--json", "--output", str(folder))
    assert ran.code == 0, ran.err
    assert ran.json["questions"] == 3
    assert ran.json["judged"] == 2
    for figure in ("turn_recall@10", "session_recall@10", "session_any@5", "session_recall@5"):
        assert ran.json[figure] == 1, figure
    assert ran.json["latency_ms_p50"] > 0
    assert ran.json["groups"]["category 5"]["questions"] == 1
    assert ran.json["embedder"] == "wordllama-l2-supercat-256"
    assert ran.json["hits"] == 50
    lines = (folder / "locomo-questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"conv-1/{number}" for number in range(4)]
    assert json.loads(lines[0])["gold_turns"] == ["locomo:conv-1:1#D1:1"]
    assert counts(connection) == before
    assert connection.execute(SCRATCH).fetchall() == []


def test_the_length_of_the_lists_can_be_chosen(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    ran = run(
        "eval", "longmemeval", str(written(tmp_path, LONGMEMEVAL)), "--hits", "1", "--json", "--output", str(folder)
    )
    assert ran.code == 0, ran.err
    assert ran.json["hits"] == 1
    lines = (folder / "longmemeval-questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert [len(json.loads(line)["turns"]) for line in lines] == [1, 1]
    assert run("eval", "demo", "--hits", "51").code == 2


def test_a_longmemeval_file_is_shown_as_a_table(run: Run, tmp_path: Path) -> None:
    ran = run("eval", "longmemeval", str(written(tmp_path, LONGMEMEVAL)), "--summaries", "--limit", "1")
    assert ran.code == 0, ran.err
    assert "longmemeval: 1 questions" in ran.out
    assert "single-session-user" in ran.out
    assert "abstention" not in ran.out


def test_a_wrong_file_or_line_is_one_line(run: Run, tmp_path: Path, connection: Connection) -> None:
    for kind, data in (("locomo", LONGMEMEVAL), ("longmemeval", LOCOMO), ("locomo", {"a": 1})):
        ran = run("eval", kind, str(written(tmp_path, data)))
        assert (ran.code, ran.out) == (1, ""), kind
        assert len(ran.err.strip().splitlines()) == 1
        assert "file" in ran.err
    assert run("eval", "locomo").code == 2
    assert run("eval", "demo", "x.json").code == 2
    blocked = run("eval", "locomo", str(written(tmp_path, LOCOMO)), "--output", str(tmp_path / "questions.json" / "x"))
    assert (blocked.code, len(blocked.err.strip().splitlines())) == (1, 1)
    assert connection.execute(SCRATCH).fetchall() == []


def test_a_scratch_database_is_dropped_after_an_error_and_one_left_behind_by_the_next(
    database_url: str, connection: Connection
) -> None:
    connection.execute("CREATE DATABASE rivet_scratch_1_left")

    def fail() -> None:
        with scratch_database(database_url) as first:
            names = {row["datname"] for row in connection.execute(SCRATCH).fetchall()}
            assert len(names) == 1
            assert "rivet_scratch_1_left" not in names
            with scratch_database(database_url) as second, connect(second) as other:
                # A second evaluation at the same time leaves the first one alone.
                assert other.execute("SELECT count(*) AS n FROM ros_messages").fetchone() == {"n": 0}
            with connect(first) as still:
                assert still.execute("SELECT 1 AS n").fetchone() == {"n": 1}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert connection.execute(SCRATCH).fetchall() == []


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def test_the_asset_records_figures_and_the_shipped_questions_are_answered(
    database_url: str,
    connection: Connection,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RIVETOS_HOME", str(tmp_path))
    get_settings.cache_clear()
    pipeline = Pipeline(database_url, connection, instance)
    job = pipeline.defs.resolve_job_def("measure_retrieval")
    result = job.execute_in_process(instance=instance)
    assert result.success
    (materialized,) = result.asset_materializations_for_node("retrieval_quality")
    figures: dict[str, Any] = {name: value.value for name, value in materialized.metadata.items()}
    assert (figures["question_set"], figures["degraded"]) == ("demo", "no")
    assert figures["questions"] >= 40
    # The floor of ranking: what it reaches today, less a question or two.
    assert float(figures["turn_recall_at_10"]) >= 0.80
    assert float(figures["turn_ndcg_at_10"]) >= 0.58
    assert figures["session_recall_at_5"] >= 0.94
    assert figures["session_any_at_5"] >= 0.94
    assert figures["latency_ms_p50"] > 0
    head, _, *rows = figures["worst"].splitlines()
    assert head == "| question | text | turn recall@10 | session recall@10 | turn ndcg@10 | session ndcg@10 |"
    least = [float(row.split(" | ")[2]) for row in rows]
    assert least == sorted(least)
    assert least[0] < 1
    assert counts(connection)["messages"] == 0
    kept = (tmp_path / "evaluation" / "demo-questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(kept) == figures["questions"]
    run_file = Path(str(figures["every_question"]))
    assert run_file.parent == tmp_path / "evaluation" / "runs"
    assert run_file.read_text(encoding="utf-8").splitlines() == kept
    history = quality_history(connection)
    assert history is not None
    assert (history.question_set, history.embedder) == ("demo", figures["embedder"])
    assert [one.figures["turn_recall@10"] for one in history.measurements] == [figures["turn_recall_at_10"]]
    get_settings.cache_clear()
    checks = result.get_asset_check_evaluations()
    assert [(check.check_name, check.passed) for check in checks] == [("no_drop", True)]


def test_the_asset_asks_the_file_that_the_setting_names(
    database_url: str,
    connection: Connection,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RIVETOS_HOME", str(tmp_path))
    monkeypatch.setenv("RIVETOS_EVAL_FILE", str(written(tmp_path, LOCOMO)))
    get_settings.cache_clear()
    try:
        pipeline = Pipeline(database_url, connection, instance)
        job = pipeline.defs.resolve_job_def("measure_retrieval")
        result = job.execute_in_process(instance=instance)
    finally:
        get_settings.cache_clear()
    assert result.success
    (materialized,) = result.asset_materializations_for_node("retrieval_quality")
    figures = {name: value.value for name, value in materialized.metadata.items()}
    assert (figures["question_set"], figures["questions"], figures["judged"]) == ("locomo", 3, 2)
    assert figures["turn_recall_at_10"] == 1
    kept = Path(str(figures["every_question"])).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in kept] == [f"conv-1/{number}" for number in range(4)]
    history = quality_history(connection)
    assert history is not None
    assert (history.question_set, history.questions) == ("locomo", 3)
    assert counts(connection)["messages"] == 0


def test_the_check_names_the_questions_that_lost(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    def record(day: int, recalls: dict[str, float]) -> None:
        ones = [asked(name, {"turn_recall@10": value}) for name, value in recalls.items()]
        path = keep_run(report("demo", ones), tmp_path, datetime(2026, 3, day, tzinfo=UTC))
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                "retrieval_quality",
                metadata={
                    "question_set": "demo",
                    "questions": len(ones),
                    "embedder": "a",
                    "turn_recall_at_10": sum(recalls.values()) / len(recalls),
                    "every_question": dg.MetadataValue.path(str(path)),
                },
            )
        )

    record(1, {"kite": 1.0, "boat": 1.0, "tea": 0.0})
    record(2, {"kite": 0.0, "boat": 0.0, "tea": 1.0})
    record(3, {"kite": 0.0, "boat": 1.0, "tea": 0.0})
    result = no_drop(dg.build_asset_check_context(instance=instance))
    assert isinstance(result, dg.AssetCheckResult)
    assert not result.passed
    # Beside the best of the runs, not the one before, where nothing but the tea would have been lost.
    told = str(result.metadata["lost"].value)
    assert "demo-20260301T" in told
    assert "| `kite` | `?` | 1.0 | 0.0 |" in told
    assert "`boat`" not in told
    assert "`tea`" not in told


def test_the_check_fails_on_a_drop_and_compares_like_with_like(instance: dg.DagsterInstance) -> None:
    def record(recall: float, *, embedder: str = "a") -> None:
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                "retrieval_quality",
                metadata={
                    "question_set": "demo",
                    "questions": 52,
                    "embedder": embedder,
                    "turn_recall_at_10": recall,
                    "latency_ms_p50": 5.0,
                },
            )
        )

    def check() -> dg.AssetCheckResult:
        result = no_drop(dg.build_asset_check_context(instance=instance))
        assert isinstance(result, dg.AssetCheckResult)
        return result

    assert check().passed
    for recall in (0.80, 0.80, 0.79):
        record(recall)
    assert check().passed
    record(0.70)
    failed = check()
    assert not failed.passed
    assert "turn_recall_at_10" in str(failed.metadata["drops"].value)
    assert "no earlier run" in str(failed.metadata["lost"].value)
    record(0.60, embedder="b")
    assert check().passed
    assert retrieval_quality.key == dg.AssetKey("retrieval_quality")
