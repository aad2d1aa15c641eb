"""The summary tree in a real database, with the extractive summarizer and with a stand-in chat service."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.models.chat import OpenAIChat
from rivet_pipeline.stages import StageReport
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer
from rivet_pipeline.summaries.compact import resummarize, summarize_branches, summarize_leaves, summarize_roots
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.types import Summarizer, SummaryDraft, SummaryRequest
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER, SUMMARY_PIPELINE_VERSION
from rivet_pipeline_tests.integration.chat_server import GOOD, ChatServer, Reply, chat_server, says

ACTIVE, IDLE, STALE = timedelta(0), timedelta(minutes=16), timedelta(days=5)


def talk(connection: Connection, count: int, *, rest: timedelta = ACTIVE, session: str = "test:1", **more: Any) -> UUID:
    """A conversation of `count` messages, the last of them `rest` ago."""
    last = datetime.now(UTC) - rest
    conversation = connection.execute(
        """
        INSERT INTO ros_conversations (session_key, agent, channel, title, day, revision, updated_at)
        VALUES (%s, 'opus', 'cli', 'Test', %s, 1, %s) RETURNING id
        """,
        [session, more.get("day", last.date()), last],
    ).fetchone()
    assert conversation is not None
    add(connection, conversation["id"], count, last=last, content=more.get("content"))
    return UUID(str(conversation["id"]))


def add(
    connection: Connection, conversation: UUID, count: int, *, last: datetime | None = None, content: str | None = None
) -> None:
    """More messages, and what the one writer does with them."""
    last = last or datetime.now(UTC)
    for number in range(count):
        connection.execute(
            """
            INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
            VALUES (%s, gen_random_uuid()::text, 'opus', 'cli', %s, %s, %s)
            """,
            [
                conversation,
                "assistant" if number % 2 else "user",
                content or f"Step {number} of the deployment changed file src/part_{number}.py on host db-{number}.",
                last - timedelta(seconds=count - number - 1),
            ],
        )
    connection.execute(
        "UPDATE ros_conversations SET revision = revision + 1, updated_at = %s WHERE id = %s", [last, conversation]
    )


def all_levels(pool: Pool, summarizer: Summarizer) -> list[StageReport]:
    return [
        summarize(pool, days=None, summarizer=summarizer)
        for summarize in (summarize_leaves, summarize_branches, summarize_roots)
    ]


def rows(connection: Connection, query: str, *parameters: Any) -> list[Any]:
    """The first column of every row."""
    return [next(iter(row.values())) for row in connection.execute(query, parameters)]


def kinds(connection: Connection) -> dict[str, int]:
    found = connection.execute("SELECT kind, count(*) AS n FROM ros_summaries GROUP BY kind").fetchall()
    return {row["kind"]: row["n"] for row in found}


def pending(connection: Connection) -> list[tuple[str, int]]:
    found = connection.execute("SELECT stage, items FROM ros_pending_days WHERE stage LIKE '%_summaries'").fetchall()
    return [(row["stage"], row["items"]) for row in found]


def try_again_now(connection: Connection) -> None:
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")


class Counting:
    """The extractive summarizer, counted; `name` and `broken` may be changed."""

    def __init__(self) -> None:
        self.calls: list[SummaryRequest] = []
        self.model = "extractive-2"
        self.broken: str | None = None

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        self.calls.append(request)
        if self.broken is not None and any(self.broken in message.content for message in request.messages):
            raise RecursionError("a text our code can not take")
        return ExtractiveSummarizer().summarize(request)


def chat(server: ChatServer) -> ChatSummarizer:
    return ChatSummarizer(OpenAIChat(server.url, "m", sleep=lambda _: None))


# --- when ---


@pytest.mark.parametrize(
    ("count", "rest", "leaves"),
    [(10, ACTIVE, [10]), (9, ACTIVE, []), (5, IDLE, [5]), (4, IDLE, []), (2, STALE, [2]), (1, STALE, []),
     (23, ACTIVE, [10, 10]), (26, IDLE, [10, 10, 6]), (23, STALE, [10, 10, 3]), (21, STALE, [10, 10])],
)  # fmt: skip
def test_when_leaves_are_made(
    connection: Connection, pool: Pool, count: int, rest: timedelta, leaves: list[int]
) -> None:
    talk(connection, count, rest=rest)
    report = summarize_leaves(pool, days=None, summarizer=Counting())
    assert rows(connection, "SELECT message_count FROM ros_summaries ORDER BY seq") == leaves
    assert report.rows == report.model_calls == len(leaves)
    assert pending(connection) == []


def test_a_day_that_is_done_is_marked_before_the_next_one_begins(connection: Connection, pool: Pool) -> None:
    for number, day in enumerate((date(2026, 3, 1), date(2026, 3, 1), date(2026, 3, 2))):
        talk(connection, 10, rest=IDLE, session=f"s{number}", day=day)
    marks = []

    class Watching(Counting):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            marks.extend(rows(connection, "SELECT count(*) FROM ros_stage_marks WHERE stage = 'leaf_summaries'"))
            return super().summarize(request)

    assert summarize_leaves(pool, days=None, summarizer=Watching()).rows == 3
    assert marks == [0, 0, 2]


@pytest.mark.parametrize(
    ("count", "leaves", "branches"), [(4, [], 0), (5, [5], 0), (17, [10, 7], 0), (47, [10, 10, 10, 10, 7], 1)]
)
def test_a_session_that_is_over_need_not_rest(
    connection: Connection, pool: Pool, count: int, leaves: list[int], branches: int
) -> None:
    conversation = talk(connection, count, rest=ACTIVE)
    connection.execute("UPDATE ros_conversations SET active = false")
    at_once = rows(connection, "SELECT NOT timed FROM ros_pending_days WHERE stage = 'leaf_summaries'")
    assert at_once == [True] * bool(leaves)
    summarize_leaves(pool, days=None, summarizer=Counting())
    at_once = rows(connection, "SELECT NOT timed FROM ros_pending_days WHERE stage = 'branch_summaries'")
    assert at_once == [True] * branches
    summarize_branches(pool, days=None, summarizer=Counting())
    assert rows(connection, "SELECT message_count FROM ros_summaries WHERE kind = 'leaf' ORDER BY seq") == leaves
    assert kinds(connection).get("branch", 0) == branches
    # Whoever goes on with it is waited for again.
    add(connection, conversation, 6)
    connection.execute("UPDATE ros_conversations SET active = true")
    assert summarize_leaves(pool, days=None, summarizer=Counting()).rows == (1 if count == 4 else 0)


def test_a_row_says_what_it_is_made_from(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 10)
    summarize_leaves(pool, days=None, summarizer=Counting())
    row = connection.execute("SELECT * FROM ros_summaries").fetchone()
    assert row is not None
    assert (row["conversation_id"], row["kind"], row["message_count"], row["agents"]) == (
        conversation,
        "leaf",
        10,
        ["opus"],
    )
    assert (row["model"], row["pipeline_version"]) == ("extractive-2", SUMMARY_PIPELINE_VERSION)
    assert (row["grounding"], row["ungrounded"]) == (1.0, [])
    assert len(row["input_hash"]) == 64
    assert row["metadata"].keys() >= {"seconds", "calls", "prompt_tokens", "completion_tokens", "identifiers"}
    span = connection.execute("SELECT min(created_at) AS a, max(created_at) AS b FROM ros_messages").fetchone()
    assert span == {"a": row["earliest_at"], "b": row["latest_at"]}
    order = "SELECT s.ordinal FROM ros_summary_sources AS s JOIN ros_messages AS m ON m.id = s.message_id ORDER BY {}"
    assert rows(connection, order.format("m.created_at, m.seq")) == list(range(10))


def test_only_the_days_that_are_asked_for(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, session="test:1", day=date(2026, 6, 1))
    talk(connection, 10, session="test:2", day=date(2026, 6, 2))
    report = summarize_leaves(pool, days=[date(2026, 6, 2)], summarizer=Counting())
    assert list(report.days) == [date(2026, 6, 2)]
    assert kinds(connection) == {"leaf": 1}
    assert summarize_leaves(pool, days=[], summarizer=Counting()).rows == 0


def test_noise_and_injected_messages_are_never_summarised(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, session="heartbeat:1", rest=STALE)
    marked = talk(connection, 10, session="test:marked", rest=STALE)
    injected = talk(connection, 0, session="test:injected", rest=STALE)
    connection.execute("UPDATE ros_conversations SET settings = '{\"noise\": true}' WHERE id = %s", [marked])
    for number in range(10):
        connection.execute(
            """
            INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, metadata)
            VALUES (%s, %s, 'opus', 'cli', 'user', 'context', '{"kind": "injected"}')
            """,
            [injected, str(number)],
        )
    summarizer = Counting()
    assert [report.rows for report in all_levels(pool, summarizer)] == [0, 0, 0]
    assert summarizer.calls == []
    assert pending(connection) == []


# --- the tree ---


def test_a_tree_grows_to_its_root_in_one_pass(connection: Connection, pool: Pool) -> None:
    talk(connection, 400, rest=IDLE)
    reports = all_levels(pool, Counting())
    assert [report.rows for report in reports] == [40, 5, 1]
    assert rows(connection, "SELECT count(*) FROM ros_summaries WHERE parent_id IS NULL") == [1]
    root = connection.execute("SELECT * FROM ros_summaries WHERE kind = 'root'").fetchone()
    span = connection.execute("SELECT min(created_at) AS a, max(created_at) AS b FROM ros_messages").fetchone()
    assert root is not None
    assert root["message_count"] == 400
    assert span == {"a": root["earliest_at"], "b": root["latest_at"]}
    branches = "SELECT count(*) FROM ros_summaries WHERE kind = 'leaf' GROUP BY parent_id ORDER BY min(earliest_at)"
    assert rows(connection, branches) == [8] * 5
    # The oldest leaves stand under the oldest branch.
    assert rows(
        connection,
        "SELECT bool_and(l.earliest_at BETWEEN b.earliest_at AND b.latest_at) FROM ros_summaries AS l "
        "JOIN ros_summaries AS b ON b.id = l.parent_id WHERE l.kind = 'leaf'",
    ) == [True]


def test_an_idle_rest_makes_a_smaller_branch(connection: Connection, pool: Pool) -> None:
    talk(connection, 50, rest=IDLE)
    assert [report.rows for report in all_levels(pool, Counting())] == [5, 1, 0]
    talk(connection, 50, rest=ACTIVE, session="test:2")
    assert [report.rows for report in all_levels(pool, Counting())] == [5, 0, 0]


def test_a_second_pass_asks_nothing_and_writes_nothing(connection: Connection, pool: Pool) -> None:
    talk(connection, 131, rest=STALE)
    all_levels(pool, Counting())
    before = rows(connection, "SELECT id || content FROM ros_summaries ORDER BY seq")
    summarizer = Counting()
    assert [report.rows for report in all_levels(pool, summarizer)] == [0, 0, 0]
    assert summarizer.calls == []
    assert rows(connection, "SELECT id || content FROM ros_summaries ORDER BY seq") == before


def test_a_grown_conversation_gets_one_more_leaf(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 10)
    all_levels(pool, Counting())
    add(connection, conversation, 10)
    assert pending(connection) == [("leaf_summaries", 1)]
    summarizer = Counting()
    all_levels(pool, summarizer)
    assert len(summarizer.calls) == 1
    assert kinds(connection) == {"leaf": 2}


def test_marks_are_set_only_where_time_alone_makes_nothing_due(connection: Connection, pool: Pool) -> None:
    done = talk(connection, 11, session="test:done")
    talk(connection, 12, session="test:two-left")
    summarize_leaves(pool, days=None, summarizer=Counting())
    marked = "SELECT conversation_id FROM ros_stage_marks WHERE stage = 'leaf_summaries'"
    assert rows(connection, marked) == [done]
    add(connection, done, 1, last=datetime.now(UTC) - STALE)
    assert pending(connection) == [("leaf_summaries", 1)]


# --- two at once ---


@pytest.mark.parametrize("locks", [True, False])
def test_two_workers_put_each_message_into_one_leaf(
    connection: Connection, pool: Pool, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    if not locks:
        # Without the try-lock both workers do the same work, and the unique keys decide.
        from rivet_pipeline.summaries import compact

        monkeypatch.setattr(compact, "try_lock", lambda *_: _Always())
    for number in range(3):
        talk(connection, 100, session=f"test:{number}", rest=IDLE)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                all_levels(pool, ExtractiveSummarizer())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert rows(connection, "SELECT count(*) FROM ros_summary_sources") == [300]
    assert rows(connection, "SELECT sum(message_count) FROM ros_summaries WHERE kind = 'leaf'") == [300]
    assert kinds(connection)["leaf"] == 30
    # How many branches there are depends on which leaves the other worker had made; that each holds its own does not.
    lost = """
        SELECT count(*) FROM ros_summaries AS b
        WHERE b.kind = 'branch'
          AND b.message_count IS DISTINCT FROM
              (SELECT sum(l.message_count) FROM ros_summaries AS l WHERE l.parent_id = b.id)
    """
    assert rows(connection, lost) == [0]
    assert rows(connection, "SELECT count(*) >= 3 FROM ros_summaries WHERE kind = 'branch'") == [True]
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


class _Always:
    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass


def test_a_conversation_another_worker_holds_is_left_to_it(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 10)
    connection.execute("SELECT pg_advisory_lock(hashtext('ros_leaf_summaries'), hashtext(%s))", [str(conversation)])
    summarizer = Counting()
    assert summarize_leaves(pool, days=None, summarizer=summarizer).rows == 0
    assert summarizer.calls == []
    connection.execute("SELECT pg_advisory_unlock_all()")
    assert summarize_leaves(pool, days=None, summarizer=summarizer).rows == 1


def test_no_transaction_is_open_while_the_model_is_asked(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    open_ones: list[list[Any]] = []

    class Looking(Counting):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %%'"
            )
            open_ones.append(rows(connection, query))
            return super().summarize(request)

    summarize_leaves(pool, days=None, summarizer=Looking())
    assert open_ones == [[0]]


# --- failures ---


@pytest.mark.parametrize(
    ("reply", "cause", "error"),
    [
        (Reply({"error": "quota"}, 429, {"Retry-After": "900"}), "transient", "http-429"),
        (Reply({"error": "down"}, 500), "transient", "http-500"),
        (Reply(hang_up=True), "transient", "unreachable"),
        (Reply(b"<html>"), "transient", "bad-response"),
        (Reply({"error": "key"}, 401), "permanent", "http-401"),
        (says("I'm sorry, I can't do this for you today."), "content", "refusal"),
        (says("Summary unavailable due to size limits."), "content", "placeholder"),
        (says("cut", finish="length"), "content", "truncated"),
        (says("<think>only thoughts"), "content", "empty"),
        (says("It was deployed once more. " * 200), "content", "repetition"),
    ],
)
def test_a_failing_model_leaves_no_row_and_the_work_pending(
    connection: Connection, pool: Pool, reply: Reply, cause: str, error: str
) -> None:
    conversation = talk(connection, 10)
    with chat_server(lambda _: reply) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
        assert (report.rows, report.failures) == (0, 1)
        assert rows(connection, "SELECT count(*) FROM ros_summaries") == [0]
        failure = connection.execute("SELECT * FROM ros_failures").fetchone()
        assert failure is not None
        item = str(conversation) if cause == "content" else "service"
        assert (failure["stage"], failure["item"], failure["cause"]) == ("leaf_summaries", item, cause)
        assert failure["error"].startswith(error)
        assert failure["next_attempt_at"] > datetime.now(UTC)
        assert rows(connection, "SELECT count(*) FROM ros_stage_marks") == [0]
        assert pending(connection) == []
        try_again_now(connection)
        assert pending(connection) == [("leaf_summaries", 1)]
        server.script = lambda _: says(GOOD)
        assert summarize_leaves(pool, days=None, summarizer=chat(server)).rows == 1
    assert rows(connection, "SELECT content FROM ros_summaries") == [GOOD]
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


def test_a_service_that_is_down_is_asked_once_a_pass(connection: Connection, pool: Pool) -> None:
    for number in range(3):
        talk(connection, 10, session=f"test:{number}")
    with chat_server(lambda _: Reply({"error": "quota"}, 429, {"Retry-After": "900"})) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
        assert (len(server.asked), report.model_calls, report.failures) == (1, 1, 1)
        wait = "SELECT next_attempt_at > now() + interval '800 seconds' FROM ros_failures"
        assert rows(connection, wait) == [True]
        # What failed was the service: the stage rests as a whole, and nothing is asked until its time comes.
        assert pending(connection) == []
        assert summarize_leaves(pool, days=None, summarizer=chat(server)).model_calls == 0
        try_again_now(connection)
        assert pending(connection) == [("leaf_summaries", 3)]
        server.script = lambda _: says(GOOD)
        assert summarize_leaves(pool, days=None, summarizer=chat(server)).rows == 3
        assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


def test_one_bad_conversation_does_not_stop_the_others(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, session="test:bad", content="poison in the text")
    talk(connection, 10, session="test:good")
    summarizer = Counting()
    summarizer.broken = "poison"
    report = summarize_leaves(pool, days=None, summarizer=summarizer)
    assert (report.rows, report.failures) == (1, 1)
    assert rows(connection, "SELECT cause || ' ' || error FROM ros_failures") == [
        "content defect: RecursionError: a text our code can not take"
    ]


def test_a_truncated_answer_halves_the_batch(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)

    def short_of_room(request: dict[str, Any]) -> Reply:
        messages = request["messages"][1]["content"].count("opus/user]") + request["messages"][1]["content"].count(
            "opus/assistant]"
        )
        return says(GOOD) if messages <= 3 else says("cut", finish="length")

    with chat_server(short_of_room) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
    assert rows(connection, "SELECT message_count FROM ros_summaries ORDER BY earliest_at, seq") == [2, 3, 2, 3]
    assert (report.failures, report.model_calls) == (0, 7)


def test_a_chat_leaf_is_asked_by_the_rules_and_its_tokens_counted(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    text = "**Deployment**\n- `src/part_1.py` and `src/part_2.py` changed on db-3 at 2031-04-18T12:00Z."
    with chat_server(lambda _: says("<think>well</think>" + text)) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
    (request,) = server.asked
    assert request["max_tokens"] == 7000
    assert [m["content"].startswith(OWN_TRAFFIC_MARKER) for m in request["messages"]] == [True, True]
    assert rows(connection, "SELECT content FROM ros_summaries") == [text]
    # The answer's one identifier that no message holds is named with it.
    assert rows(connection, "SELECT ungrounded FROM ros_summaries") == [["2031-04-18T12:00Z"]]
    assert sum(day.tokens for day in report.days.values()) == 18


# --- made again ---


def versions(connection: Connection) -> Sequence[tuple[Any, ...]]:
    found = connection.execute("SELECT kind, model, pipeline_version FROM ros_summaries ORDER BY seq").fetchall()
    return [tuple(row.values()) for row in found]


def test_nothing_is_made_again_without_a_difference(connection: Connection, pool: Pool) -> None:
    talk(connection, 400, rest=IDLE)
    all_levels(pool, Counting())
    summarizer = Counting()
    assert [report.rows for report in resummarize(pool, days=None, summarizer=summarizer)] == [0, 0, 0]
    assert summarizer.calls == []


def test_another_model_makes_every_level_again_and_keeps_the_older_texts(connection: Connection, pool: Pool) -> None:
    talk(connection, 50, rest=IDLE)
    all_levels(pool, Counting())
    ids = rows(connection, "SELECT id FROM ros_summaries ORDER BY seq")
    sources = rows(connection, "SELECT message_id FROM ros_summary_sources ORDER BY summary_id, ordinal")
    older = rows(connection, "SELECT content FROM ros_summaries ORDER BY seq")
    with chat_server(lambda _: says(GOOD)) as server:
        reports = resummarize(pool, days=None, summarizer=chat(server))
        assert [report.rows for report in reports] == [5, 1, 0]
        assert [report.rows for report in resummarize(pool, days=None, summarizer=chat(server))] == [0, 0, 0]
        assert len(server.asked) == 6
    assert rows(connection, "SELECT id FROM ros_summaries ORDER BY seq") == ids
    assert rows(connection, "SELECT message_id FROM ros_summary_sources ORDER BY summary_id, ordinal") == sources
    assert set(versions(connection)) == {
        ("leaf", "m", SUMMARY_PIPELINE_VERSION),
        ("branch", "m", SUMMARY_PIPELINE_VERSION),
    }
    kept = connection.execute(
        "SELECT r.revision, r.content, r.model FROM ros_summary_revisions AS r "
        "JOIN ros_summaries AS s ON s.id = r.summary_id ORDER BY s.seq"
    ).fetchall()
    assert [(row["revision"], row["content"], row["model"]) for row in kept] == [
        (1, text, "extractive-2") for text in older
    ]


def test_a_new_version_is_redone_for_the_days_asked_for(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, session="test:1", day=date(2026, 6, 1))
    talk(connection, 10, session="test:2", day=date(2026, 6, 2))
    all_levels(pool, Counting())
    reports = resummarize(pool, days=[date(2026, 6, 2)], summarizer=Counting(), version=SUMMARY_PIPELINE_VERSION + 1)
    assert [dict(report.days).keys() for report in reports] == [{date(2026, 6, 2)}, set(), set()]
    assert sorted(row[2] for row in versions(connection)) == [SUMMARY_PIPELINE_VERSION, SUMMARY_PIPELINE_VERSION + 1]


def test_force_makes_all_again(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    all_levels(pool, Counting())
    summarizer = Counting()
    assert [report.rows for report in resummarize(pool, days=None, summarizer=summarizer, force=True)] == [1, 0, 0]
    assert rows(connection, "SELECT revision FROM ros_summary_revisions") == [1]


def test_a_failing_redo_keeps_the_older_text(connection: Connection, pool: Pool) -> None:
    talk(connection, 50, rest=IDLE)
    all_levels(pool, Counting())
    older = rows(connection, "SELECT content FROM ros_summaries ORDER BY seq")
    with chat_server(lambda _: Reply({"error": "down"}, 429, {"Retry-After": "900"})) as server:
        reports = resummarize(pool, days=None, summarizer=chat(server))
        assert [(report.rows, report.failures) for report in reports] == [(0, 1)]
        assert len(server.asked) == 1
    assert rows(connection, "SELECT content FROM ros_summaries ORDER BY seq") == older
    assert rows(connection, "SELECT count(*) FROM ros_summary_revisions") == [0]
    assert rows(connection, "SELECT item FROM ros_failures") == ["service"]


def test_a_late_tool_result_makes_its_leaf_and_branch_stale(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 49, rest=IDLE)
    connection.execute(
        """
        INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, created_at)
        VALUES (%s, 'call', 'opus', 'cli', 'tool', 'Bash', now() - interval '16 minutes')
        """,
        [conversation],
    )
    all_levels(pool, Counting())
    connection.execute(
        "UPDATE ros_messages SET tool_result = 'fatal: the disk of db-99 is full' WHERE event_id = 'call'"
    )
    assert [report.rows for report in resummarize(pool, days=None, summarizer=Counting())] == [1, 1, 0]
    assert rows(connection, "SELECT count(*) FROM ros_summaries WHERE content LIKE '%%db-99 is full%%'") >= [1]
