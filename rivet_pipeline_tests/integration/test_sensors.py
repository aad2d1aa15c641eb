"""What is asked of Dagster and when: the sensor and the schedule over a real store and a real Dagster storage."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.automation import sensors
from rivet_pipeline.automation.instance import (
    AUTOMATION_TAG,
    LEXICON_TAG,
    POOL_LIMITS,
    RANGE_END,
    RANGE_START,
    end_leftover_runs,
    ensure_pool_limits,
)
from rivet_pipeline.automation.plan import DOWNSTREAM, DayRange, PlannedRun
from rivet_pipeline.automation.schedules import idle_conversations
from rivet_pipeline.automation.sensors import MAX_REMINE_ROWS, MAX_REMINE_RUNS, MAX_RUNS_PER_TICK, pending_work
from rivet_pipeline.automation.sensors import remine_stale as remine_stale_sensor
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.event_log import trim_event_log
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.errors import InvalidInputError, StoreUnavailableError
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval import lexicon, vector_pieces
from rivet_pipeline.stages import STAGES, SUMMARY_STAGES, Stage
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline_tests.integration.pipeline import (
    DAY,
    CountingEmbedder,
    CountingModels,
    CountingSummarizer,
    Pipeline,
    capture,
)

CHAIN = set(STAGES)

#: What no chat model has a part in, and what one makes.
BESIDE = {"messages", "tool_call_text", "message_embeddings"}
LEVELS = set(SUMMARY_STAGES)


@pytest.fixture(scope="module")
def storage_url(server: EmbeddedServer) -> Iterator[str]:
    with connect(server.url("postgres")) as connection:
        connection.execute("CREATE DATABASE test_dagster_storage")
    yield server.url("test_dagster_storage")
    with connect(server.url("postgres")) as connection:
        connection.execute("DROP DATABASE test_dagster_storage WITH (FORCE)")


@pytest.fixture(scope="module")
def module_instance(storage_url: str) -> Iterator[dg.DagsterInstance]:
    url = storage_url.replace("postgresql://", "postgresql+psycopg2://", 1)
    with (
        tempfile.TemporaryDirectory(prefix="rivet-dagster-") as home,
        dg.instance_for_test(
            overrides={"storage": {"postgres": {"postgres_url": url}}, "telemetry": {"enabled": False}}, temp_dir=home
        ) as instance,
    ):
        yield instance


@pytest.fixture
def instance(module_instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """The module's instance, emptied."""
    module_instance.run_storage.wipe()
    module_instance.event_log_storage.wipe()
    for limit in module_instance.event_log_storage.get_pool_limits():
        module_instance.event_log_storage.delete_concurrency_limit(limit.name)
    return module_instance


@pytest.fixture
def pipeline(database_url: str, connection: Connection, instance: dg.DagsterInstance) -> Pipeline:
    return Pipeline(database_url, connection, instance)


def tick(pipeline: Pipeline) -> list[dg.RunRequest]:
    """What one tick of the sensor asks for; a skip is nothing."""
    resources = {"store": pipeline.store, "models": pipeline.models}
    with dg.build_sensor_context(instance=pipeline.instance, resources=resources) as context:
        result = pending_work(context)
    if isinstance(result, dg.SkipReason):
        assert result.skip_message
        return []
    assert isinstance(result, dg.SensorResult)
    return list(result.run_requests or [])


def ask_schedule(pipeline: Pipeline) -> list[dg.RunRequest]:
    with dg.build_schedule_context(
        instance=pipeline.instance,
        scheduled_execution_time=datetime.now(UTC),
        resources={"store": pipeline.store},
    ) as context:
        result = idle_conversations(context)
    if isinstance(result, dg.SkipReason):
        return []
    assert isinstance(result, list)
    return result


def days(request: dg.RunRequest) -> tuple[str, str]:
    return request.tags[RANGE_START], request.tags[RANGE_END]


def stages(request: dg.RunRequest) -> set[str]:
    return {key.to_user_string() for key in request.asset_selection or ()}


def enter(
    instance: dg.DagsterInstance, request: dg.RunRequest, status: DagsterRunStatus, *, job: str = "__ASSET_JOB"
) -> dg.DagsterRun:
    """The requested run, in a state of its life, without its process."""
    location = RegisteredCodeLocationOrigin("rivet_pipeline")
    run = dg.DagsterRun(
        job_name=job,
        run_id=str(uuid4()),
        status=status,
        tags=dict(request.tags),
        asset_selection=None if request.asset_selection is None else frozenset(request.asset_selection),
        remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job),
    )
    instance.add_run(run)
    return run


def fail(instance: dg.DagsterInstance, request: dg.RunRequest) -> None:
    instance.report_run_failed(enter(instance, request, DagsterRunStatus.STARTED), "on purpose")


def carry_out(pipeline: Pipeline, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """The requested run for real, in this process, with the assets and checks it asks for."""
    job = pipeline.defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(request.asset_selection or ()),
        asset_check_selection=set(request.asset_check_keys) if request.asset_check_keys is not None else None,
    )
    return job.execute_in_process(instance=pipeline.instance, tags=dict(request.tags), raise_on_error=False)


def make_old(connection: Connection, session: str, age: timedelta) -> None:
    connection.execute(
        "UPDATE ros_conversations SET updated_at = %s WHERE session_key = %s", [datetime.now(UTC) - age, session]
    )


# --- the sensor ---


def test_an_empty_store_asks_for_nothing(pipeline: Pipeline) -> None:
    assert tick(pipeline) == []


@pytest.mark.parametrize(
    ("stages_of_it", "priority"),
    [
        (("messages", "message_embeddings"), "1"),
        (("leaf_summaries", "tag_proposals", "wiki_patches"), "1"),
        (("tag_proposals", "wiki_patches"), None),
        (("branch_summaries", "root_summaries"), None),
    ],
)
def test_new_messages_are_let_go_before_what_only_follows(
    stages_of_it: tuple[Stage, ...], priority: str | None
) -> None:
    request = sensors.run_request(PlannedRun(DayRange(DAY, DAY), stages_of_it), reason="new rows")
    assert request.tags.get("dagster/priority") == priority


def test_captures_ask_for_one_run_of_the_chain_over_their_days(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    capture(pipeline.connection, "test:2", day=DAY + timedelta(days=4))
    (request,) = tick(pipeline)
    assert days(request) == (str(DAY), str(DAY + timedelta(days=4)))
    assert stages(request) == CHAIN
    assert request.tags[AUTOMATION_TAG] == "true"
    assert request.run_key is None
    assert {key.name for key in request.asset_check_keys or ()} == {"nothing_overdue", "nothing_failing"}
    assert {key.asset_key.to_user_string() for key in request.asset_check_keys or ()} == CHAIN - {"messages"}


@pytest.mark.parametrize(
    "status", [DagsterRunStatus.QUEUED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
)
def test_what_a_live_run_covers_is_not_asked_for_again(pipeline: Pipeline, status: DagsterRunStatus) -> None:
    capture(pipeline.connection, "test:1")
    (request,) = tick(pipeline)
    enter(pipeline.instance, request, status)
    assert tick(pipeline) == []
    capture(pipeline.connection, "test:2", day=DAY + timedelta(days=1))
    others = tick(pipeline)
    assert {days(other) for other in others} == {(str(DAY + timedelta(days=1)),) * 2}
    # What waits for the pool that the live run holds is asked for beside what does not.
    assert [stages(other) for other in others] == (
        [CHAIN] if status == DagsterRunStatus.QUEUED else [BESIDE, CHAIN - BESIDE]
    )


@pytest.mark.parametrize("job", [None, "resummarize_days", "refine_days"])
def test_a_chat_service_that_hangs_does_not_stop_the_embeddings_of_its_days(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, job: str | None
) -> None:
    monkeypatch.setattr(sensors, "ASKS_A_SERVICE", True)
    capture(pipeline.connection, "test:1")
    beside, behind = tick(pipeline)
    assert (stages(beside), stages(behind)) == (BESIDE, CHAIN - BESIDE)
    assert carry_out(pipeline, beside).success
    if job is None:
        enter(pipeline.instance, behind, DagsterRunStatus.STARTED)
    else:  # by its name, as a person launches it: Dagster then names no assets
        hung = dg.RunRequest(tags={RANGE_START: str(DAY - timedelta(days=9)), RANGE_END: str(DAY)})
        enter(pipeline.instance, hung, DagsterRunStatus.STARTED, job=job)
    capture(pipeline.connection, "test:2")
    requests = tick(pipeline)
    assert stages(requests[0]) == BESIDE
    assert not any(LEVELS & stages(request) for request in requests)
    assert carry_out(pipeline, requests[0]).success
    assert pipeline.counts() | {"embeddings": 20, "summaries": 0} == pipeline.counts()
    assert not any(BESIDE & stages(request) for request in tick(pipeline))


def test_an_idle_import_is_summarised_at_once_by_a_service_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "ASKS_A_SERVICE", True)
    capture(pipeline.connection, "test:1", count=6)
    make_old(pipeline.connection, "test:1", timedelta(minutes=1))
    assert [stages(request) for request in tick(pipeline)] == [BESIDE]
    make_old(pipeline.connection, "test:1", timedelta(minutes=16))
    assert [stages(request) for request in tick(pipeline)] == [BESIDE, CHAIN - BESIDE]


def test_a_run_that_ends_well_forgives_only_its_own_stages(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "ASKS_A_SERVICE", True)
    capture(pipeline.connection, "test:1")
    beside, behind = tick(pipeline)
    fail(pipeline.instance, behind)
    good = enter(pipeline.instance, beside, DagsterRunStatus.STARTED)
    success = dg.DagsterEvent(event_type_value="PIPELINE_SUCCESS", job_name=good.job_name)
    pipeline.instance.report_dagster_event(success, run_id=good.run_id)
    assert not any(LEVELS & stages(request) for request in tick(pipeline))
    later(monkeypatch, timedelta(seconds=31))
    assert {stage for request in tick(pipeline) for stage in stages(request)} >= LEVELS


def test_the_requested_run_does_the_work_and_the_next_tick_finds_none(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    (request,) = tick(pipeline)
    result = carry_out(pipeline, request)
    assert result.success
    assert pipeline.counts() == {"messages": 10, "summaries": 1, "embeddings": 11, "failures": 0, "revisions": 0}
    evaluations = result.get_asset_check_evaluations()
    assert len(evaluations) == 2 * len(CHAIN - {"messages"})
    assert all(evaluation.passed for evaluation in evaluations)
    (lexicon,) = tick(pipeline)
    assert stages(lexicon) == {"lexicon"}
    assert carry_out(pipeline, lexicon).success
    assert tick(pipeline) == []


def test_the_lexicon_waits_for_all_else_and_is_asked_for_once(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    (request,) = tick(pipeline)
    assert LEXICON_TAG not in request.tags
    carry_out(pipeline, request)
    (lexicon,) = tick(pipeline)
    enter(pipeline.instance, lexicon, DagsterRunStatus.QUEUED)
    assert tick(pipeline) == []


def test_the_lexicon_does_not_wait_for_ever_while_rows_keep_coming(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexicon, "LEAST_BEHIND_BUSY", 10)
    capture(pipeline.connection, "test:1")
    assert [LEXICON_TAG in request.tags for request in tick(pipeline)] == [False, True]


def test_the_lexicon_is_asked_for_when_only_vectors_came(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_pieces, "LEAST_BEHIND", 10)
    capture(pipeline.connection, "test:1")
    for _ in ("the days", "the lexicon"):
        assert carry_out(pipeline, tick(pipeline)[0]).success
    change = "UPDATE ros_embeddings SET created_at = now() WHERE owner_id IN (SELECT id FROM ros_messages LIMIT %s)"
    for messages, asked in ((4, []), (6, [{"lexicon"}])):
        pipeline.connection.execute(change, [messages])
        assert [stages(request) for request in tick(pipeline)] == asked
    assert carry_out(pipeline, dg.RunRequest(asset_selection=[dg.AssetKey("lexicon")])).success
    assert tick(pipeline) == []


def test_a_failing_lexicon_rests_before_it_is_asked_for_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(pipeline.connection, "test:1")
    carry_out(pipeline, tick(pipeline)[0])
    (lexicon,) = tick(pipeline)
    fail(pipeline.instance, lexicon)
    assert tick(pipeline) == []
    later(monkeypatch, timedelta(seconds=31))
    assert [stages(request) for request in tick(pipeline)] == [{"lexicon"}]


def later(monkeypatch: pytest.MonkeyPatch, wait: timedelta) -> None:
    """The sensor's clock goes ahead."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + wait

    monkeypatch.setattr(sensors, "datetime", Clock)


def test_a_failed_run_rests_and_is_asked_for_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(pipeline.connection, "test:1")
    fail(pipeline.instance, tick(pipeline)[0])
    assert tick(pipeline) == []
    later(monkeypatch, timedelta(seconds=31))
    (again,) = tick(pipeline)
    fail(pipeline.instance, again)
    assert tick(pipeline) == []
    later(monkeypatch, timedelta(seconds=61))
    assert len(tick(pipeline)) == 1


def test_a_good_run_forgives_the_failures_before_it(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    (request,) = tick(pipeline)
    fail(pipeline.instance, request)
    assert carry_out(pipeline, request).success
    capture(pipeline.connection, "test:2")
    assert len(tick(pipeline)) == 1


def test_a_run_over_a_resting_day_is_not_asked_for_with_its_neighbours(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    fail(pipeline.instance, tick(pipeline)[0])
    for offset in (-1, 1):
        capture(pipeline.connection, f"test:beside{offset}", day=DAY + timedelta(days=offset))
    assert [days(request) for request in tick(pipeline)] == [
        (str(DAY + timedelta(days=offset)),) * 2 for offset in (-1, 1)
    ]


def test_a_store_that_is_away_fails_the_tick(pipeline: Pipeline) -> None:
    pipeline.store = StoreResource(database="postgresql://nobody@127.0.0.1:9/nothing")
    with pytest.raises(StoreUnavailableError):
        tick(pipeline)


def test_pool_limits_are_set_once_and_a_persons_stays(pipeline: Pipeline) -> None:
    def limits() -> dict[str, int]:
        return {limit.name: limit.limit for limit in pipeline.instance.event_log_storage.get_pool_limits()}

    tick(pipeline)
    assert limits() == POOL_LIMITS
    pipeline.instance.event_log_storage.set_concurrency_slots("llm", 7)
    tick(pipeline)
    assert limits() == {**POOL_LIMITS, "llm": 7}


def test_another_embedding_model_wakes_what_it_has_not_embedded(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    for _ in range(2):
        carry_out(pipeline, tick(pipeline)[0])
    assert tick(pipeline) == []

    class Other(CountingEmbedder):
        name = "other-256"

    pipeline.models.embedder = Other()
    (request,) = tick(pipeline)
    assert stages(request) == {"message_embeddings", "summary_embeddings"}
    assert pipeline.models.embedder.texts == []  # the tick itself embeds nothing
    assert carry_out(pipeline, request).success
    serving = pipeline.rows("SELECT name FROM ros_embedding_models WHERE serving")
    assert serving == [{"name": "other-256"}]
    (codes,) = tick(pipeline)
    assert stages(codes) == {"lexicon"}
    assert carry_out(pipeline, codes).success
    assert tick(pipeline) == []


def test_an_embedding_service_that_can_not_be_asked_is_on_record_and_stops_nothing_else(pipeline: Pipeline) -> None:
    class Away(CountingEmbedder):
        name = "away"

        @property
        def dimensions(self) -> int:  # type: ignore[override]
            self.texts.append("probe")
            if self.down:
                raise ModelError("transient", "no-connection", "nobody is there")
            return 256

    pipeline.models.embedder = away = Away()
    away.down = True
    capture(pipeline.connection, "test:1")
    assert len(tick(pipeline)) == 1
    assert pipeline.rows("SELECT stage, item FROM ros_failures") == [{"stage": "message_embeddings", "item": "service"}]
    tick(pipeline)
    assert away.texts == ["probe"]  # not asked again before its time

    away.down = False
    pipeline.retry_now()
    tick(pipeline)
    assert pipeline.rows("SELECT name, filling FROM ros_embedding_models") == [{"name": "away", "filling": True}]
    assert pipeline.counts()["failures"] == 0


def test_years_of_days_are_worked_off_oldest_first_a_few_months_at_a_time(pipeline: Pipeline) -> None:
    first = date(2023, 1, 1)
    pipeline.connection.execute(
        """INSERT INTO ros_conversations (session_key, agent, day, revision)
           SELECT 'test:' || n, 'opus', %s::date + n, 1 FROM generate_series(0, 999) AS n""",
        [first],
    )
    asked: list[tuple[date, date]] = []
    while requests := tick(pipeline):
        assert len(requests) <= MAX_RUNS_PER_TICK
        for request in requests:
            enter(pipeline.instance, request, DagsterRunStatus.QUEUED)
            asked.append((date.fromisoformat(days(request)[0]), date.fromisoformat(days(request)[1])))
    assert asked[0][0] == first
    assert asked[-1][1] == first + timedelta(days=999)
    assert all((end - start).days < 31 for start, end in asked)
    assert all(after[0] == before[1] + timedelta(days=1) for before, after in pairwise(asked))


# --- redoing what is stale ---


def remine_tick(pipeline: Pipeline) -> list[dg.RunRequest] | str:
    """What one tick of `remine_stale` asks for, or why it asks for nothing."""
    resources = {"store": pipeline.store, "models": pipeline.models}
    with dg.build_sensor_context(instance=pipeline.instance, resources=resources) as context:
        result = remine_stale_sensor(context)
    if isinstance(result, dg.SkipReason):
        return str(result.skip_message)
    assert isinstance(result, dg.SensorResult)
    return list(result.run_requests or [])


def remine_requests(pipeline: Pipeline) -> list[dg.RunRequest]:
    asked = remine_tick(pipeline)
    assert isinstance(asked, list), asked
    return asked


def refined(pipeline: Pipeline, number: int, *, apart: int = 1) -> list[date]:
    """So many days with one summarised conversation each."""
    found = [DAY + timedelta(days=apart * place) for place in range(number)]
    for day in found:
        capture(pipeline.connection, f"test:{day}", day=day)
    with open_pool(pipeline.url, max_size=2) as pool:
        summarize_leaves(pool, days=None, summarizer=pipeline.models.summarizer)
    return found


def test_remining_asks_for_nothing_while_nothing_is_stale(pipeline: Pipeline) -> None:
    assert remine_tick(pipeline) == "nothing is stale"
    refined(pipeline, 2)
    assert remine_tick(pipeline) == "nothing is stale"


def test_remining_redoes_every_stale_summary_and_then_rests(pipeline: Pipeline) -> None:
    found = refined(pipeline, 3, apart=20)
    capture(pipeline.connection, "test:new", day=found[1])
    pipeline.models.summarizer.model = "other-1"
    requests = remine_requests(pipeline)
    assert [days(request) for request in requests] == [(str(day), str(day)) for day in found]
    for request in requests:
        assert stages(request) == set(DOWNSTREAM["leaf_summaries"])
        assert (request.tags["rivet/reason"], request.tags["dagster/priority"]) == ("stale", "-1")
        assert request.tags[AUTOMATION_TAG] == "true"
        assert carry_out(pipeline, request).success
    assert remine_tick(pipeline) == "nothing is stale"
    assert pipeline.rows("SELECT model, count(*)::int AS n FROM ros_summaries GROUP BY model") == [
        {"model": "other-1", "n": 4}
    ]
    assert pipeline.counts()["revisions"] == 3


def test_remining_takes_a_few_ranges_at_a_time_the_oldest_first_and_leaves_live_days_alone(
    pipeline: Pipeline,
) -> None:
    found = refined(pipeline, 12, apart=20)
    pipeline.models.summarizer.model = "other-1"
    enter(
        pipeline.instance,
        dg.RunRequest(tags={RANGE_START: str(found[1]), RANGE_END: str(found[1])}),
        DagsterRunStatus.STARTED,
    )
    requests = remine_requests(pipeline)
    assert [days(request)[0] for request in requests] == [str(day) for day in (found[0], *found[2:5])]
    assert len(requests) == MAX_REMINE_RUNS
    runs = [enter(pipeline.instance, request, DagsterRunStatus.QUEUED) for request in requests]
    assert remine_tick(pipeline) == "stale: 12 rows; live or resting runs cover the oldest of them"
    pipeline.instance.report_run_canceled(runs[0])
    again = remine_requests(pipeline)
    assert [days(request)[0] for request in again] == [str(found[0])]


def test_one_remining_run_holds_no_more_rows_than_it_may(pipeline: Pipeline) -> None:
    found = refined(pipeline, 4)
    pipeline.connection.execute(
        """INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                      pipeline_version, input_hash)
           SELECT conversation_id, kind, content, message_count, earliest_at, latest_at, model, 1, 'x'
           FROM ros_summaries, generate_series(1, %s)""",
        [MAX_REMINE_ROWS // 2],
    )
    requests = remine_requests(pipeline)
    assert [days(request) for request in requests] == [(str(found[n]), str(found[n + 1])) for n in (0, 2)]


def test_remining_rests_with_the_model_service_and_asks_it_once_a_time(pipeline: Pipeline) -> None:
    refined(pipeline, 3)
    pipeline.models.summarizer.model = "other-1"
    pipeline.models.summarizer.requests.clear()
    pipeline.models.summarizer.down = True
    for probes in (1, 2, 3):
        (request,) = remine_requests(pipeline)
        assert carry_out(pipeline, request).success
        assert len(pipeline.models.summarizer.requests) == probes
        assert remine_tick(pipeline) == "stale and waiting after a failure: 3 rows; see `rivet stats`"
        pipeline.retry_now()
    pipeline.models.summarizer.down = False
    (request,) = remine_requests(pipeline)
    assert carry_out(pipeline, request).success
    assert remine_tick(pipeline) == "nothing is stale"


def test_remining_leaves_what_can_not_be_redone_in_sight(pipeline: Pipeline) -> None:
    found = refined(pipeline, 2)
    capture(pipeline.connection, "test:bad", day=found[0], word="arsenic")
    pipeline.run(found[0])
    pipeline.models.summarizer.model = "other-1"
    pipeline.models.summarizer.poison = "arsenic"
    for _ in range(3):
        requests = remine_requests(pipeline)
        carry_out(pipeline, requests[0])
        pipeline.connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
    assert remine_tick(pipeline) == "stale and waiting after a failure: 1 rows; see `rivet stats`"


def test_the_live_sensor_says_what_is_current_and_leaves_the_stale_alone(pipeline: Pipeline) -> None:
    refined(pipeline, 1)
    for _ in ("the days", "the lexicon"):
        for request in tick(pipeline):
            carry_out(pipeline, request)
    pipeline.models.summarizer.model = "other-1"
    assert tick(pipeline) == []
    assert pipeline.rows("SELECT stage, reason FROM ros_stale_summaries") == [
        {"stage": "leaf_summaries", "reason": "model"}
    ]


def test_a_summarizer_that_is_configured_wrongly_does_not_stop_the_live_sensor(pipeline: Pipeline) -> None:
    class Wrong(CountingModels):
        @property
        def summarizer(self) -> CountingSummarizer:
            raise InvalidInputError("RIVETOS_COMPACTOR_MODEL", "is needed")

        @summarizer.setter
        def summarizer(self, _: CountingSummarizer) -> None:
            pass

    pipeline.models = Wrong()
    capture(pipeline.connection, "test:1")
    assert len(tick(pipeline)) == 1
    with pytest.raises(InvalidInputError):
        remine_tick(pipeline)


def test_what_a_changed_text_made_stale_is_live_work(pipeline: Pipeline) -> None:
    refined(pipeline, 1)
    for request in tick(pipeline):
        carry_out(pipeline, request)
    pipeline.connection.execute("UPDATE ros_messages SET tool_result = 'late' WHERE seq = 1")
    (request,) = tick(pipeline)
    assert stages(request) == set(DOWNSTREAM["leaf_summaries"])
    carry_out(pipeline, request)
    assert pipeline.rows("SELECT * FROM ros_stale_summaries") == []


def test_a_new_message_on_an_old_day_leaves_what_another_model_made(pipeline: Pipeline) -> None:
    refined(pipeline, 1)
    for _ in ("the days", "the lexicon"):
        for request in tick(pipeline):
            carry_out(pipeline, request)
    pipeline.models.summarizer.model = "other-1"
    pipeline.models.summarizer.requests.clear()
    capture(pipeline.connection, "test:late")
    (request,) = tick(pipeline)
    assert stages(request) == CHAIN
    assert carry_out(pipeline, request).success
    assert len(pipeline.models.summarizer.requests) == 1  # the new leaf
    assert pipeline.rows("SELECT reason FROM ros_stale_summaries") == [{"reason": "model"}]
    # A backfill over the same day is what a person asked for.
    assert pipeline.run(DAY).success
    assert len(pipeline.models.summarizer.requests) == 2
    assert pipeline.rows("SELECT DISTINCT model FROM ros_summaries") == [{"model": "other-1"}]


def test_a_live_run_redoes_what_changed_and_what_was_asked_for_whoever_made_it(pipeline: Pipeline) -> None:
    refined(pipeline, 1)
    for session in ("test:wanted", "test:left"):
        capture(pipeline.connection, session)
        for request in tick(pipeline):
            carry_out(pipeline, request)
    pipeline.models.summarizer.model = "other-1"
    pipeline.models.summarizer.requests.clear()
    tick(pipeline)
    pipeline.connection.execute(
        """INSERT INTO ros_remine_requests (summary_id)
           SELECT s.id FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
           WHERE c.session_key = 'test:wanted'"""
    )
    pipeline.connection.execute(
        """UPDATE ros_messages AS m SET tool_result = 'late' FROM ros_conversations AS c
           WHERE c.id = m.conversation_id AND c.session_key = %s AND m.seq = (
               SELECT min(seq) FROM ros_messages WHERE conversation_id = c.id)""",
        [f"test:{DAY}"],
    )
    (request,) = [request for request in tick(pipeline) if LEVELS & stages(request)]
    assert carry_out(pipeline, request).success
    assert len(pipeline.models.summarizer.requests) == 2
    assert pipeline.rows("SELECT reason FROM ros_stale_summaries") == [{"reason": "model"}]
    # Nothing is asked for again and again.
    assert not any(LEVELS & stages(request) for request in tick(pipeline))


# --- the schedule ---


def test_the_schedule_asks_only_for_what_time_made_due(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:idle", count=6)
    make_old(pipeline.connection, "test:idle", timedelta(minutes=1))
    carry_out(pipeline, tick(pipeline)[0])
    assert ask_schedule(pipeline) == []
    capture(pipeline.connection, "test:busy", count=12, day=DAY + timedelta(days=1))
    make_old(pipeline.connection, "test:busy", timedelta(minutes=1))
    assert ask_schedule(pipeline) == []
    make_old(pipeline.connection, "test:idle", timedelta(minutes=16))
    (request,) = ask_schedule(pipeline)
    assert days(request) == (str(DAY),) * 2
    assert stages(request) == set(DOWNSTREAM["leaf_summaries"])
    assert request.tags["rivet/reason"] == "idle"
    enter(pipeline.instance, request, DagsterRunStatus.QUEUED)
    assert ask_schedule(pipeline) == []


def test_the_sensor_leaves_to_the_schedule_what_time_made_due(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:idle", count=6)
    make_old(pipeline.connection, "test:idle", timedelta(minutes=1))
    for _ in range(2):
        carry_out(pipeline, tick(pipeline)[0])
    make_old(pipeline.connection, "test:idle", timedelta(minutes=16))
    assert tick(pipeline) == []
    (request,) = ask_schedule(pipeline)
    assert carry_out(pipeline, request).success
    assert pipeline.counts()["summaries"] == 1


# --- what a killed start leaves, and the log ---


def test_a_run_whose_process_is_gone_is_ended_and_its_days_are_asked_for_at_once(pipeline: Pipeline) -> None:
    capture(pipeline.connection, "test:1")
    (request,) = tick(pipeline)
    killed = enter(pipeline.instance, request, DagsterRunStatus.STARTED)
    queued = enter(
        pipeline.instance,
        dg.RunRequest(tags={RANGE_START: "2024-01-01", RANGE_END: "2024-01-01"}),
        DagsterRunStatus.QUEUED,
    )
    storage = pipeline.instance.event_log_storage
    assert storage.claim_concurrency_slot("llm", killed.run_id, "leaf_summaries").is_claimed
    assert tick(pipeline) == []

    assert end_leftover_runs(pipeline.instance) == [killed.run_id]
    states = {run.run_id: run.status for run in pipeline.instance.get_runs()}
    assert states == {killed.run_id: DagsterRunStatus.CANCELED, queued.run_id: DagsterRunStatus.QUEUED}
    assert storage.get_concurrency_info("llm").active_slot_count == 0
    assert [days(again) for again in tick(pipeline)] == [days(request)]
    assert end_leftover_runs(pipeline.instance) == []


def test_housekeeping_trims_the_event_log_and_keeps_what_was_materialised(pipeline: Pipeline, storage_url: str) -> None:
    capture(pipeline.connection, "test:1")
    carry_out(pipeline, tick(pipeline)[0])
    kinds = "SELECT coalesce(dagster_event_type, 'LOG') AS kind, count(*) AS n FROM event_logs GROUP BY 1"
    with connect(storage_url) as log:
        log.execute(
            """INSERT INTO event_logs (run_id, event, timestamp)
               SELECT run_id, event, timestamp FROM event_logs WHERE dagster_event_type = 'STEP_START'"""
        )
        before = {row["kind"]: row["n"] for row in log.execute(kinds).fetchall()}
        assert before["LOG"] == before["STEP_START"] > 0
        assert trim_event_log(storage_url.replace("postgresql", "postgresql+psycopg2", 1)) == 0
        log.execute("UPDATE event_logs SET timestamp = timestamp - interval '8 days'")
        assert trim_event_log(storage_url) == before["LOG"]
        log.execute("UPDATE event_logs SET timestamp = timestamp - interval '31 days'")
        assert trim_event_log(storage_url) > 0
        after = {row["kind"]: row["n"] for row in log.execute(kinds).fetchall()}
    assert set(before) - set(after) >= {"LOG", "ENGINE_EVENT", "ASSET_MATERIALIZATION_PLANNED", "STEP_OUTPUT"}
    for kept in ("ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION", "PIPELINE_SUCCESS", "STEP_SUCCESS"):
        assert after[kept] == before[kept], kept
    latest = pipeline.instance.get_latest_materialization_event(dg.AssetKey("leaf_summaries"))
    assert latest is not None


def test_limits_are_left_alone_where_dagster_keeps_none() -> None:
    with dg.DagsterInstance.ephemeral() as plain:
        ensure_pool_limits(plain)
        assert not plain.event_log_storage.supports_global_concurrency_limits
