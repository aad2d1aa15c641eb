"""Redoing by hand: what it would take, that an interruption loses nothing, and the command as it is typed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from rivet_pipeline.cli import main as cli
from rivet_pipeline.cli import remine as command
from rivet_pipeline.db.pool import Connection, Pool, connect, open_pool
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.compact import announce_summarizer, summarize_branches, summarize_leaves, summarize_roots
from rivet_pipeline.summaries.extractive import MODEL, ExtractiveSummarizer
from rivet_pipeline.summaries.remine import KINDS, Progress, RemineReport, Scope, estimate_remine, remine
from rivet_pipeline.summaries.types import SummaryDraft, SummaryRequest
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION
from rivet_pipeline_tests.integration.chat_server import GOOD, Reply, chat_server, says
from rivet_pipeline_tests.integration.pipeline import DAY, CountingSummarizer, capture
from rivet_pipeline_tests.integration.test_summaries import chat

OLDER = SUMMARY_PIPELINE_VERSION - 1

#: Exit code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(database_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `rivet memory remine` with the given words on the test's store."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("RIVETOS_PG_URL", database_url)
        monkeypatch.setenv("RIVETOS_HOME", str(tmp_path))
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr("sys.argv", ["rivet", "memory", "remine", *words])
        monkeypatch.setattr("sys.stdin", io.StringIO())
        get_settings.cache_clear()
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            get_settings.cache_clear()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def old(connection: Connection, pool: Pool, days: int = 3, count: int = 50) -> None:
    """A tree a day, made by the version before this one."""
    for place in range(days):
        capture(connection, f"test:{place}", day=DAY + timedelta(days=place), count=count)
    connection.execute("UPDATE ros_conversations SET updated_at = now() - interval '1 hour'")
    for level in (summarize_leaves, summarize_branches, summarize_roots):
        level(pool, days=None, summarizer=ExtractiveSummarizer(), version=OLDER)


def versions(connection: Connection) -> dict[tuple[str, int], int]:
    found = connection.execute(
        "SELECT kind, pipeline_version AS version, count(*) AS n FROM ros_summaries GROUP BY kind, pipeline_version"
    ).fetchall()
    return {(row["kind"], row["version"]): row["n"] for row in found}


def revisions(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) AS n FROM ros_summary_revisions").fetchone()
    assert row is not None
    return int(row["n"])


# --- what it would take ---


def test_an_estimate_counts_rows_days_and_tokens_and_changes_nothing(connection: Connection, pool: Pool) -> None:
    old(connection, pool)
    announced = "SELECT stage, model, version, changed_at FROM ros_refinement_versions ORDER BY stage"
    before = connection.execute(announced.encode()).fetchall()
    leaf, branch, root = estimate_remine(connection, ExtractiveSummarizer(), Scope())
    assert [(cost.kind, cost.rows, cost.days, cost.version) for cost in (leaf, branch, root)] == [
        ("leaf", 15, 3, 15),
        ("branch", 3, 3, 3),
        ("root", 0, 0, 0),
    ]
    characters = connection.execute("SELECT sum(length(content)) / 4 AS n FROM ros_messages").fetchone()
    assert characters is not None
    assert leaf.input_tokens > characters["n"]  # the texts, and the instructions with each of them
    assert leaf.output_tokens > 0
    assert (root.input_tokens, root.output_tokens) == (0, 0)
    assert connection.execute(announced.encode()).fetchall() == before
    assert versions(connection) == {("leaf", OLDER): 15, ("branch", OLDER): 3}


def test_tokens_that_the_service_counted_are_taken_as_they_were(connection: Connection, pool: Pool) -> None:
    capture(connection, count=20)
    with chat_server(lambda _: says(GOOD)) as server:
        summarizer = chat(server)
        summarize_leaves(pool, days=None, summarizer=summarizer, version=OLDER)
        leaf = estimate_remine(connection, summarizer, Scope())[0]
        assert (leaf.rows, leaf.input_tokens, leaf.output_tokens) == (2, 22, 14)
        asked = len(server.asked)
        remine(pool, summarizer, Scope())
        assert len(server.asked) == asked + 2


def test_an_estimate_says_what_may_follow_above(connection: Connection, pool: Pool) -> None:
    old(connection, pool, days=1, count=400)
    leaf, branch, root = estimate_remine(connection, ExtractiveSummarizer(), Scope(kinds=("leaf",)))
    # They are stale themselves: nothing more follows.
    assert (leaf.rows, branch.may_follow, root.may_follow) == (40, 0, 0)
    remine(pool, ExtractiveSummarizer(), Scope())
    leaf, branch, root = estimate_remine(connection, ExtractiveSummarizer(), Scope(kinds=("leaf",)), force=True)
    assert (leaf.requested, branch.may_follow, root.may_follow) == (40, 5, 1)
    assert estimate_remine(connection, ExtractiveSummarizer(), Scope())[0].rows == 0


def test_a_scope_is_levels_and_days(connection: Connection, pool: Pool) -> None:
    old(connection, pool)
    second = DAY + timedelta(days=1)
    for scope, rows in (
        (Scope(since=second), [10, 2, 0]),
        (Scope(before=second), [5, 1, 0]),
        (Scope(since=second, before=second + timedelta(days=1)), [5, 1, 0]),
        (Scope(kinds=("branch",), since=second), [0, 2, 0]),
        (Scope(since=date(2030, 1, 1)), [0, 0, 0]),
    ):
        assert [cost.rows for cost in estimate_remine(connection, ExtractiveSummarizer(), scope)] == rows
    report = remine(pool, ExtractiveSummarizer(), Scope(kinds=("leaf",), before=second))
    assert [(found.stage, found.rows) for found in report.reports] == [("leaf_summaries", 5)]
    assert report.left == 0
    assert versions(connection)["leaf", OLDER] == 10


# --- doing it ---


@pytest.mark.parametrize("freed", [True, False])
def test_what_another_worker_held_is_tried_once_more_at_the_end(
    connection: Connection, pool: Pool, database_url: str, monkeypatch: pytest.MonkeyPatch, freed: bool
) -> None:
    old(connection, pool)
    held = connection.execute("SELECT id FROM ros_conversations WHERE day = %s", [DAY]).fetchone()
    assert held is not None
    waits: list[float] = []
    with connect(database_url) as other:
        for kind in KINDS:
            other.execute(
                "SELECT pg_advisory_lock(hashtext(%s), hashtext(%s))", [f"ros_{kind}_summaries", str(held["id"])]
            )

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if freed:
                other.execute("SELECT pg_advisory_unlock_all()")

        monkeypatch.setattr("rivet_pipeline.summaries.remine.time.sleep", wait)
        report = remine(pool, CountingSummarizer(), Scope())
    assert len(waits) == 1
    assert [found.rows for found in report.reports] == ([15, 3, 0] if freed else [10, 2, 0])
    assert report.left == (0 if freed else 6)


def test_what_stands_on_the_work_of_another_pass_is_left_to_it(
    connection: Connection, pool: Pool, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(connection, pool)
    monkeypatch.setattr("rivet_pipeline.summaries.remine.time.sleep", lambda _: None)
    inner: list[RemineReport] = []

    class Reworded(CountingSummarizer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            draft = super().summarize(request)
            return replace(draft, text=f"{draft.text}\nSaid anew.")

    class Overtaken(Reworded):
        """A whole pass of another process goes by while the first leaf is asked for."""

        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            if not inner:
                inner.append(RemineReport())
                with open_pool(database_url, max_size=2, application_name="other") as other:
                    inner[0] = remine(other, Reworded(), Scope())
            return super().summarize(request)

    report = remine(pool, Overtaken(), Scope())
    assert [found.rows for found in inner[0].reports] == [10, 2, 0]
    assert inner[0].left == 6
    assert [found.rows for found in report.reports] == [5, 1, 0]
    assert report.left == 0
    assert revisions(connection) == 18


def test_a_level_that_is_asked_for_alone_waits_for_no_other(connection: Connection, pool: Pool) -> None:
    old(connection, pool)
    report = remine(pool, CountingSummarizer(), Scope(kinds=("branch",)))
    assert ([found.rows for found in report.reports], report.left) == ([3], 0)


def test_days_are_redone_from_the_oldest_and_leaves_before_what_stands_on_them(
    connection: Connection, pool: Pool
) -> None:
    old(connection, pool)
    summarizer = CountingSummarizer()
    steps: list[Progress] = []
    report = remine(pool, summarizer, Scope(), progress=steps.append)
    assert [found.rows for found in report.reports] == [15, 3, 0]
    assert (report.left, report.stopped) == (0, None)
    assert [request.kind for request in summarizer.requests] == ["leaf"] * 15 + ["branch"] * 3
    began = [request.earliest_at for request in summarizer.requests[:15]]
    assert began == sorted(began)
    assert [(step.done, step.known) for step in steps] == [(number, 18) for number in range(1, 19)]
    summarizer.requests.clear()
    assert [found.rows for found in remine(pool, summarizer, Scope()).reports] == [0, 0, 0]
    assert summarizer.requests == []


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupted_pass_is_gone_on_with(connection: Connection, pool: Pool, force: bool) -> None:
    old(connection, pool)
    version = OLDER if force else SUMMARY_PIPELINE_VERSION

    class Interrupted(CountingSummarizer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            if len(self.requests) == 7:
                raise KeyboardInterrupt
            return super().summarize(request)

    with pytest.raises(KeyboardInterrupt):
        remine(pool, Interrupted(), Scope(), force=force, version=version)
    assert revisions(connection) == 7
    summarizer = CountingSummarizer()
    report = remine(pool, summarizer, Scope(), version=version)
    assert (len(summarizer.requests), report.left) == (11, 0)
    assert revisions(connection) == 18


def test_force_redoes_what_has_not_changed(connection: Connection, pool: Pool) -> None:
    old(connection, pool, days=1)
    assert [found.rows for found in remine(pool, CountingSummarizer(), Scope(), version=OLDER).reports] == [0, 0, 0]
    forced = remine(pool, CountingSummarizer(), Scope(kinds=("leaf",)), force=True, version=OLDER)
    assert [found.rows for found in forced.reports] == [5]
    assert revisions(connection) == 5


def test_a_service_that_is_down_ends_the_pass_after_one_question(connection: Connection, pool: Pool) -> None:
    old(connection, pool)
    with chat_server(lambda _: Reply({"error": "no credit"}, 402)) as server:
        report = remine(pool, chat(server), Scope())
        assert len(server.asked) == 1
        assert report.stopped is not None
        assert "no credit" in report.stopped
        assert report.left == 18
        assert [found.failures for found in report.reports] == [1, 0, 0]


# --- as it is typed ---


def test_a_dry_run_shows_the_price_and_changes_nothing(connection: Connection, pool: Pool, run: Run) -> None:
    old(connection, pool)
    code, out, _ = run("--dry-run")
    assert code == 0
    assert f"Would be made again by {MODEL}" in out
    (leaf,) = [line for line in out.splitlines() if " leaf " in line]
    assert "older version 15" in leaf
    assert "no token is sent" in out
    assert versions(connection) == {("leaf", OLDER): 15, ("branch", OLDER): 3}
    code, out, _ = run("--dry-run", "--json", "--since", str(DAY + timedelta(days=2)), "--stage", "leaf")
    answer = json.loads(out)
    assert code == 0
    assert (answer["model"], answer["model_before"], answer["sends_tokens"]) == (MODEL, MODEL, False)
    assert [(level["kind"], level["rows"], level["days"]) for level in answer["levels"]] == [
        ("leaf", 5, 1),
        ("branch", 0, 0),
        ("root", 0, 0),
    ]


def test_another_model_than_the_pipelines_is_pointed_out(connection: Connection, pool: Pool, run: Run) -> None:
    announce_summarizer(connection, "qwen-of-the-pipeline")
    assert "has worked with qwen-of-the-pipeline so far" in run("--dry-run")[1]


def test_the_command_redoes_and_says_so(connection: Connection, pool: Pool, run: Run) -> None:
    old(connection, pool)
    code, out, err = run()
    assert (code, err.strip()) == (0, "")
    assert "Made again: 15 leaf_summaries, 3 branch_summaries, 0 root_summaries." in out
    assert versions(connection) == {("leaf", SUMMARY_PIPELINE_VERSION): 15, ("branch", SUMMARY_PIPELINE_VERSION): 3}
    code, out, _ = run()
    assert (code, out.strip()) == (0, f"Nothing is stale for {MODEL}.")
    code, out, _ = run("--force", "--json", "--stage", "branch")
    assert (code, json.loads(out)["redone"]) == (0, {"branch_summaries": 3})


def test_a_service_that_is_down_is_one_line_and_exit_1(
    connection: Connection, pool: Pool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(connection, pool, days=1)
    with chat_server(lambda _: Reply({"error": "no credit"}, 402)) as server:
        monkeypatch.setattr(command, "build_summarizer", lambda _: chat(server))
        code, out, err = run()
        assert (code, out) == (1, "")
        assert "stopped, the model can not be asked: http-402" in err
        assert "6 are left" in err
        code, out, _ = run("--json")
        assert (code, json.loads(out)["left"]) == (1, 6)


def test_ctrl_c_says_how_to_go_on(
    connection: Connection, pool: Pool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(connection, pool, days=1)

    class Interrupted(ExtractiveSummarizer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "build_summarizer", lambda _: Interrupted())
    code, _, err = run()
    assert code == 130
    assert "run it again, without --force, to go on" in err


@pytest.mark.parametrize(
    "words",
    [["--since", "yesterday"], ["--stage", "twig"], ["--since", "2026-03-02", "--before", "2026-03-02"], ["now"]],
)
def test_a_wrong_command_line_is_exit_2_and_changes_nothing(
    connection: Connection, pool: Pool, run: Run, words: list[str]
) -> None:
    old(connection, pool, days=1, count=10)
    assert run(*words)[0] == 2
    assert versions(connection) == {("leaf", OLDER): 1}


def test_levels_go_from_the_bottom_up() -> None:
    assert KINDS == ("leaf", "branch", "root")
