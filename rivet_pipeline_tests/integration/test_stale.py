"""What makes a summary stale, what it costs to ask, and that exactly that is made again."""

from __future__ import annotations

import hashlib
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from rivet_pipeline.db.ledger import SERVICE, record_failure
from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.db.stale import (
    announce_refinement,
    forget_settled_changes,
    request_remine,
    stale_days,
    stale_rows_on,
)
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.summaries.compact import (
    announce_summarizer,
    resummarize,
    summarize_branches,
    summarize_leaves,
    summarize_roots,
)
from rivet_pipeline.summaries.level import Work
from rivet_pipeline.summaries.types import SummaryDraft, SummaryRequest
from rivet_pipeline.tool_calls.render import Renderer
from rivet_pipeline.tool_calls.write import write_tool_texts
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import SessionRecord, ToolResult
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION
from rivet_pipeline_tests.integration.pipeline import DAY, FIRST_DAY, capture, capture_calls
from rivet_pipeline_tests.integration.test_pending import nodes

NEXT = SUMMARY_PIPELINE_VERSION + 1


class Writer:
    """A summarizer that writes what `say` returns and keeps what it was asked."""

    def __init__(self, model: str = "writer-1") -> None:
        self.model = model
        self.asked: list[SummaryRequest] = []
        self.down = False

    def say(self, request: SummaryRequest) -> str:
        # A time to the second stands in no source, and would be an invention.
        return f"{request.kind} of {request.message_count} messages, at first {request.inputs[0].content[:40]}"

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        self.asked.append(request)
        if self.down:
            raise ModelError("transient", "http-503", "busy")
        return SummaryDraft(self.say(request))

    @property
    def kinds(self) -> list[str]:
        return [request.kind for request in self.asked]


class Loud(Writer):
    """Writes another text."""

    def say(self, request: SummaryRequest) -> str:
        return super().say(request).upper()


def tree(connection: Connection, pool: Pool, *, count: int = 50, session: str = "test:1", **more: Any) -> UUID:
    """A conversation with leaves and, from 50 messages on, a branch over them."""
    conversation = capture(connection, session, count=count, **more)
    connection.execute("UPDATE ros_conversations SET updated_at = now() - interval '1 hour'")
    for level in (summarize_leaves, summarize_branches, summarize_roots):
        level(pool, days=None, summarizer=Writer())
    return conversation


def stale(connection: Connection) -> dict[tuple[str, str], int]:
    """Stale rows by kind and reason."""
    rows = connection.execute(
        "SELECT kind, reason, count(*) AS n FROM ros_stale_summaries GROUP BY kind, reason"
    ).fetchall()
    return {(row["kind"], row["reason"]): row["n"] for row in rows}


def change_message(connection: Connection, conversation: UUID, number: int = 0) -> None:
    """A tool result that came late, as capture writes it."""
    session = SessionRecord(session_key="test:1", agent="opus", channel="test")
    result = ToolResult(session, event_id(connection, conversation, number), "fatal: the disk is full")
    assert write_batch(connection, session, [result], first_day=FIRST_DAY).conversation_id == conversation


def event_id(connection: Connection, conversation: UUID, number: int) -> str:
    row = connection.execute(
        "SELECT event_id FROM ros_messages WHERE conversation_id = %s ORDER BY created_at, seq OFFSET %s LIMIT 1",
        [conversation, number],
    ).fetchone()
    assert row is not None
    return str(row["event_id"])


def one(connection: Connection, query: str, *parameters: Any) -> Any:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return next(iter(row.values()))


# --- what a row is made from ---


def test_a_row_keeps_the_hash_of_what_it_was_made_from(connection: Connection, pool: Pool) -> None:
    tree(connection, pool)
    sources = """SELECT m.id, m.text_hash FROM ros_summary_sources AS x JOIN ros_messages AS m ON m.id = x.message_id
                 WHERE x.summary_id = %s ORDER BY m.created_at, m.seq"""
    children = "SELECT id, text_hash FROM ros_summaries WHERE parent_id = %s ORDER BY earliest_at, seq"
    for kind, below in (("leaf", sources), ("branch", children)):
        made = connection.execute("SELECT id, input_hash FROM ros_summaries WHERE kind = %s LIMIT 1", [kind]).fetchone()
        assert made is not None
        inputs = [f"{row['id']} {row['text_hash']}" for row in connection.execute(below.encode(), [made["id"]])]
        lines = [kind, "writer-1", str(SUMMARY_PIPELINE_VERSION), *inputs]
        assert made["input_hash"] == hashlib.sha256("\n".join(lines).encode()).hexdigest()
        assert one(connection, "SELECT ros_inputs_today(%s)", made["id"]) == "\n".join(inputs)


def test_a_call_that_gets_its_text_later_changes_no_hash(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=10)
    summarize_leaves(pool, days=None, summarizer=Writer())
    hashes = "SELECT array_agg(text_hash::text ORDER BY id) FROM ros_messages"
    before, inputs = one(connection, hashes), one(connection, "SELECT ros_inputs_today(id) FROM ros_summaries")
    assert write_tool_texts(pool, days=None, writer=Renderer()).rows == 10
    assert not set(before) & set(one(connection, hashes))
    told = connection.execute("SELECT id, tool_result FROM ros_messages ORDER BY created_at, seq").fetchall()
    # What was captured: no words, a newline, the result.
    captured = [(row["id"], hashlib.md5(f"\n{row['tool_result']}".encode(), usedforsecurity=False)) for row in told]
    lines = [f"{id_} {UUID(digest.hexdigest())}" for id_, digest in captured]
    assert one(connection, "SELECT ros_inputs_today(id) FROM ros_summaries") == "\n".join(lines) == inputs
    whole = "\n".join(["leaf", "writer-1", str(SUMMARY_PIPELINE_VERSION), *lines])
    assert one(connection, "SELECT input_hash FROM ros_summaries") == hashlib.sha256(whole.encode()).hexdigest()
    assert (stale(connection), one(connection, "SELECT count(*) FROM ros_changed_texts")) == ({}, 0)


def test_a_summary_knows_the_day_of_its_conversation(connection: Connection, pool: Pool) -> None:
    tree(connection, pool, day=date(2026, 2, 14))
    assert one(connection, "SELECT array_agg(DISTINCT day) FROM ros_summaries") == [date(2026, 2, 14)]


# --- what is stale ---


def test_nothing_is_stale_before_anybody_says_what_is_current(connection: Connection, pool: Pool) -> None:
    tree(connection, pool)
    connection.execute("DELETE FROM ros_refinement_versions")
    assert stale(connection) == {}
    announce_summarizer(connection, "writer-1")
    assert stale(connection) == {}
    assert stale_days(connection) == []


@pytest.mark.parametrize(
    ("model", "version", "found"),
    [
        ("writer-1", NEXT, {("leaf", "version"): 5, ("branch", "version"): 1}),
        ("writer-2", SUMMARY_PIPELINE_VERSION, {("leaf", "model"): 5, ("branch", "model"): 1}),
        ("a-model-before-it", SUMMARY_PIPELINE_VERSION, {("leaf", "model"): 5, ("branch", "model"): 1}),
        ("writer-2", NEXT, {("leaf", "version"): 5, ("branch", "version"): 1}),
        # An older program than the one that made them must not undo its work.
        ("writer-1", SUMMARY_PIPELINE_VERSION - 1, {}),
        ("writer-2", SUMMARY_PIPELINE_VERSION - 1, {}),
    ],
)
def test_an_older_version_or_another_model_makes_stale(
    connection: Connection, pool: Pool, model: str, version: int, found: dict[tuple[str, str], int]
) -> None:
    tree(connection, pool)
    announce_summarizer(connection, model, version=version)
    assert stale(connection) == found


def test_stale_days_are_counted_by_stage_and_say_what_waits(connection: Connection, pool: Pool) -> None:
    tree(connection, pool)
    tree(connection, pool, count=10, session="test:2", day=DAY + timedelta(days=1))
    announce_summarizer(connection, "writer-1", version=NEXT)
    assert [(day.stage, day.day, day.items, day.ready) for day in stale_days(connection)] == [
        ("branch_summaries", DAY, 1, 1),
        ("leaf_summaries", DAY, 5, 5),
        ("leaf_summaries", DAY + timedelta(days=1), 1, 1),
    ]
    assert stale_rows_on(connection, "leaf_summaries", [DAY, DAY + timedelta(days=2)]) == {DAY: 5}
    leaf = one(connection, "SELECT id FROM ros_summaries WHERE kind = 'leaf' AND day = %s LIMIT 1", DAY)
    record_failure(
        connection, stage="leaf_summaries", item=str(leaf), error=ModelError("content", "refusal", "no"), day=DAY
    )
    assert [day.ready for day in stale_days(connection)] == [1, 4, 1]
    record_failure(
        connection, stage="branch_summaries", item=SERVICE, error=ModelError("transient", "http-503", "busy"), day=DAY
    )
    # One service answers for all levels.
    assert [(day.items, day.ready) for day in stale_days(connection)] == [(1, 0), (5, 0), (1, 0)]


def test_noise_and_rows_from_elsewhere_are_never_stale(connection: Connection, pool: Pool) -> None:
    noisy = tree(connection, pool, count=10)
    moved = tree(connection, pool, count=10, session="test:2")
    connection.execute("UPDATE ros_conversations SET settings = '{\"noise\": true}' WHERE id = %s", [noisy])
    connection.execute("UPDATE ros_summaries SET pipeline_version = 0 WHERE conversation_id = %s", [moved])
    change_message(connection, noisy)
    announce_summarizer(connection, "writer-1", version=NEXT)
    assert stale(connection) == {}
    # A person who asks for all gets what came from elsewhere, too.
    assert request_remine(connection, kinds=["leaf"]) == 1
    assert stale(connection) == {("leaf", "requested"): 1}
    assert [report.rows for report in resummarize(pool, days=None, summarizer=Writer(), version=NEXT)] == [1, 0, 0]
    assert stale(connection) == {}


def test_a_row_that_lost_its_sources_fails_in_sight_and_is_given_up(connection: Connection, pool: Pool) -> None:
    tree(connection, pool, count=10)
    connection.execute("DELETE FROM ros_summary_sources")
    writer = Writer()
    for _ in range(5):
        resummarize(pool, days=None, summarizer=writer, version=NEXT)
        connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
    assert writer.asked == []
    failed = connection.execute("SELECT cause, error, attempts, next_attempt_at FROM ros_failures").fetchall()
    assert failed == [
        {
            "cause": "content",
            "error": "no-sources: nothing that it was made from is left",
            "attempts": 3,
            "next_attempt_at": None,
        }
    ]


# --- changed texts ---


def test_a_late_result_makes_the_leaf_above_it_stale_and_pending(connection: Connection, pool: Pool) -> None:
    conversation = tree(connection, pool)
    change_message(connection, conversation)
    assert stale(connection) == {("leaf", "source"): 1}
    assert ("leaf_summaries", 1) in {(item.stage, item.items) for item in pending_days(connection)}
    writer = Writer()
    assert [report.rows for report in resummarize(pool, days=None, summarizer=writer)] == [1, 0, 0]
    assert "disk is full" in str(writer.asked[0].messages[0].tool_result)
    assert stale(connection) == {}
    assert one(connection, "SELECT count(*) FROM ros_changed_texts") == 0


def test_a_leaf_redone_to_the_same_text_leaves_its_parent_alone(connection: Connection, pool: Pool) -> None:
    conversation = tree(connection, pool)
    before = one(connection, "SELECT xmin::text FROM ros_summaries WHERE kind = 'branch'")
    change_message(connection, conversation)
    writer = Writer()
    resummarize(pool, days=None, summarizer=writer)
    assert writer.kinds == ["leaf"]
    assert one(connection, "SELECT xmin::text FROM ros_summaries WHERE kind = 'branch'") == before


def test_a_leaf_redone_to_another_text_makes_its_branch_and_root_follow(connection: Connection, pool: Pool) -> None:
    conversation = tree(connection, pool, count=400)
    change_message(connection, conversation)
    writer = Loud()
    assert [report.rows for report in resummarize(pool, days=None, summarizer=writer)] == [1, 1, 1]
    assert writer.kinds == ["leaf", "branch", "root"]
    assert writer.asked[1].children[0].content.startswith("LEAF OF 10 MESSAGES, AT FIRST STEP 0")
    assert stale(connection) == {}


def test_a_new_version_of_the_leaves_alone_redoes_parents_only_where_a_text_changed(
    connection: Connection, pool: Pool
) -> None:
    tree(connection, pool)
    same = Writer()
    assert resummarize(pool, days=None, summarizer=same, kinds=["leaf"], version=NEXT)[0].rows == 5
    assert [report.rows for report in resummarize(pool, days=None, summarizer=same, kinds=["branch"])] == [0]
    other = Loud()
    assert resummarize(pool, days=None, summarizer=other, kinds=["leaf"], version=NEXT + 1)[0].rows == 5
    assert stale(connection) == {("branch", "source"): 1}
    assert [report.rows for report in resummarize(pool, days=None, summarizer=other, kinds=["branch"])] == [1]


def test_what_hangs_on_a_summary_stays_with_it(connection: Connection, pool: Pool) -> None:
    tree(connection, pool)
    connection.execute("INSERT INTO ros_access (kind, id, access_count) SELECT 'summary', id, 7 FROM ros_summaries")
    shape = "SELECT array_agg(id || coalesce(parent_id::text, '') ORDER BY seq) FROM ros_summaries"
    sources = "SELECT array_agg(summary_id || ' ' || message_id ORDER BY summary_id, ordinal) FROM ros_summary_sources"
    before = one(connection, shape), one(connection, sources)
    older = connection.execute("SELECT id, content, model FROM ros_summaries ORDER BY id").fetchall()
    resummarize(pool, days=None, summarizer=Loud("writer-2"))
    assert (one(connection, shape), one(connection, sources)) == before
    assert one(connection, "SELECT count(*) FROM ros_access JOIN ros_summaries USING (id) WHERE access_count = 7") == 6
    kept = "SELECT summary_id AS id, content, model FROM ros_summary_revisions ORDER BY summary_id"
    assert connection.execute(kept.encode()).fetchall() == older


def test_a_text_that_changes_while_its_summary_is_made_makes_it_stale(connection: Connection, pool: Pool) -> None:
    conversation = capture(connection)

    class Slow(Writer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            if not self.asked:
                change_message(connection, conversation)
                # Nobody has made the leaf yet, and so nobody may take the change for settled.
                assert forget_settled_changes(connection) == 0
            return super().summarize(request)

    writer = Slow()
    summarize_leaves(pool, days=None, summarizer=writer)
    assert stale(connection) == {("leaf", "source"): 1}
    assert [report.rows for report in resummarize(pool, days=None, summarizer=writer)] == [1, 0, 0]
    assert stale(connection) == {}


def test_a_child_that_changes_while_its_parent_is_made_makes_it_stale(connection: Connection, pool: Pool) -> None:
    capture(connection, count=80)
    summarize_leaves(pool, days=None, summarizer=Writer())

    class Slow(Writer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            connection.execute("UPDATE ros_summaries SET content = 'redone' WHERE id = %s", [request.children[3].id])
            forget_settled_changes(connection)
            return super().summarize(request)

    summarize_branches(pool, days=None, summarizer=Slow())
    assert stale(connection) == {("branch", "source"): 1}


def test_a_change_after_the_look_is_not_forgotten_with_the_one_before_it(
    connection: Connection, pool: Pool, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = tree(connection, pool, count=10)
    change_message(connection, conversation)
    resummarize(pool, days=None, summarizer=Writer())
    connection.execute("INSERT INTO ros_changed_texts (kind, id) SELECT 'message', message_id FROM ros_summary_sources")
    # Between the look and the deletion nine texts stay and one changes once more.
    execute = psycopg.Connection.execute

    def between(self: Connection, query: Any, *arguments: Any, **options: Any) -> Any:
        if self is connection and b"DELETE FROM ros_changed_texts" in (
            query if isinstance(query, bytes) else query.encode()
        ):
            with connect(database_url) as other:
                execute(
                    other,
                    """UPDATE ros_changed_texts SET change = change + 1
                       WHERE id = (SELECT id FROM ros_changed_texts LIMIT 1)""",
                )
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", between)
    assert forget_settled_changes(connection) == 9


def test_a_capture_under_way_is_not_waited_for(connection: Connection, pool: Pool, database_url: str) -> None:
    conversation = tree(connection, pool, count=10)
    connection.execute("INSERT INTO ros_changed_texts (kind, id) SELECT 'message', message_id FROM ros_summary_sources")
    with connect(database_url) as capturing, capturing.transaction():
        capturing.execute(
            "UPDATE ros_messages SET tool_result = 'late' WHERE event_id = %s", [event_id(connection, conversation, 4)]
        )
        connection.execute("SET statement_timeout = '10s'")
        assert forget_settled_changes(connection) == 9
    assert stale(connection) == {("leaf", "source"): 1}


def test_an_outage_between_a_leaf_and_its_branch_leaves_the_branch_pending(connection: Connection, pool: Pool) -> None:
    conversation = tree(connection, pool)
    change_message(connection, conversation)
    resummarize(pool, days=None, summarizer=Loud(), kinds=["leaf"])
    down = Loud()
    down.down = True
    resummarize(pool, days=None, summarizer=down, kinds=["branch"])
    stages = {item.stage for item in pending_days(connection)}
    assert "branch_summaries" not in stages
    connection.execute("UPDATE ros_failures SET next_attempt_at = now()")
    assert "branch_summaries" in {item.stage for item in pending_days(connection)}
    assert resummarize(pool, days=None, summarizer=Loud(), kinds=["branch"])[0].rows == 1
    assert "branch_summaries" not in {item.stage for item in pending_days(connection)}


# --- exactly what is stale, once ---


def test_two_workers_ask_for_each_stale_summary_once(connection: Connection, pool: Pool) -> None:
    for number in range(4):
        tree(connection, pool, session=f"test:{number}")
    writers = [Loud("writer-2"), Loud("writer-2")]
    errors: list[BaseException] = []
    ready = threading.Barrier(2)

    def work(writer: Writer) -> None:
        try:
            ready.wait()
            resummarize(pool, days=None, summarizer=writer, kinds=["leaf"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[writer]) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    resummarize(pool, days=None, summarizer=writers[0], kinds=["leaf"])  # what one left to the other's lock
    asked = [request.input_ids[0] for writer in writers for request in writer.asked]
    assert len(asked) == len(set(asked)) == 20
    assert one(connection, "SELECT count(*) FROM ros_summary_revisions") == 20


def test_a_row_that_somebody_else_redid_meanwhile_is_not_asked_for_again(connection: Connection, pool: Pool) -> None:
    tree(connection, pool, count=20)

    class Overtaken(Writer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            if not self.asked:
                self.asked.append(request)
                # Its lock is on the conversation: another session of the pool can not do this, a person's SQL can.
                connection.execute(
                    "UPDATE ros_summaries SET input_hash = 'theirs', model = 'writer-2' WHERE earliest_at > %s",
                    [request.earliest_at],
                )
                return SummaryDraft(self.say(request))
            return super().summarize(request)

    writer = Overtaken("writer-2")
    report = resummarize(pool, days=None, summarizer=writer, kinds=["leaf"])[0]
    assert (len(writer.asked), report.rows) == (1, 1)


def test_nothing_is_redone_for_a_model_that_somebody_has_replaced_meanwhile(connection: Connection, pool: Pool) -> None:
    tree(connection, pool, count=10)
    writer = Writer("writer-2")
    with pool.connection() as other:
        work = Work(other, "leaf", writer, SUMMARY_PIPELINE_VERSION)
        announce_summarizer(connection, "writer-3")
        assert work.redo(None)
    assert writer.asked == []


def test_what_is_wanted_again_is_redone_once_and_stands_until_then(connection: Connection, pool: Pool) -> None:
    tree(connection, pool)
    assert request_remine(connection, kinds=["leaf", "branch"], days=[DAY]) == 6
    assert request_remine(connection, kinds=["leaf", "branch"], since=DAY, before=DAY + timedelta(days=1)) == 0
    assert request_remine(connection, kinds=["leaf"], before=DAY) == 0
    assert stale(connection) == {("leaf", "requested"): 5, ("branch", "requested"): 1}
    writer = Writer()
    assert [report.rows for report in resummarize(pool, days=None, summarizer=writer)] == [5, 1, 0]
    assert stale(connection) == {}
    assert [report.rows for report in resummarize(pool, days=None, summarizer=writer)] == [0, 0, 0]


# --- saying what is current ---


def test_saying_the_same_again_changes_nothing(connection: Connection) -> None:
    assert announce_refinement(connection, "leaf_summaries", model="m", version=1)
    before = one(connection, "SELECT xmin::text FROM ros_refinement_versions")
    assert not announce_refinement(connection, "leaf_summaries", model="m", version=1)
    assert one(connection, "SELECT xmin::text FROM ros_refinement_versions") == before


def test_another_model_tries_again_what_the_former_could_not_do(connection: Connection) -> None:
    announce_refinement(connection, "leaf_summaries", model="m", version=1)
    for stage in ("leaf_summaries", "branch_summaries"):
        for item, error in (
            ("a", ModelError("content", "refusal", "no")),
            ("b", ModelError("transient", "http-503", "busy")),
            (SERVICE, ModelError("permanent", "http-401", "who are you")),
        ):
            record_failure(connection, stage=stage, item=item, error=error, day=None)
    announce_refinement(connection, "leaf_summaries", model="other", version=1)
    left = connection.execute("SELECT stage, item FROM ros_failures ORDER BY stage, item").fetchall()
    assert [(row["stage"], row["item"]) for row in left] == [
        ("branch_summaries", "a"),
        ("branch_summaries", "b"),
        ("branch_summaries", SERVICE),
        ("leaf_summaries", "b"),
    ]


def test_a_changed_text_is_another_try_for_what_was_given_up(connection: Connection, pool: Pool) -> None:
    conversation = tree(connection, pool, count=10)

    class Refusing(Writer):
        def summarize(self, request: SummaryRequest) -> SummaryDraft:
            self.asked.append(request)
            raise ModelError("content", "refusal", "would rather not")

    refusing = Refusing()
    change_message(connection, conversation)
    for _ in range(6):
        resummarize(pool, days=None, summarizer=refusing)
        connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
    assert len(refusing.asked) == 3
    change_message(connection, conversation, 1)
    assert [report.rows for report in resummarize(pool, days=None, summarizer=Writer())] == [1, 0, 0]
    assert one(connection, "SELECT count(*) FROM ros_failures") == 0


# --- what it costs to ask ---

_MANY = """
INSERT INTO ros_conversations (session_key, agent, day, revision)
SELECT 'test:' || n, 'opus', date '2026-01-01' + n % 60, 1 FROM generate_series(1, 500) AS n;
INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
SELECT c.id, n::text, 'opus', 'test', 'user', 'word' || n FROM ros_conversations AS c, generate_series(1, 4) AS n;
INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                           pipeline_version, input_hash)
SELECT conversation_id, 'leaf', 'text', 1, created_at, created_at, 'm', 5, 'x' FROM ros_messages;
INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                           pipeline_version, input_hash)
SELECT id, 'branch', 'text', 4, now(), now(), 'm', 5, 'x' FROM ros_conversations;
UPDATE ros_summaries AS s SET parent_id = b.id FROM ros_summaries AS b
WHERE b.kind = 'branch' AND s.kind = 'leaf' AND b.conversation_id = s.conversation_id;
INSERT INTO ros_summary_sources (summary_id, message_id, ordinal)
SELECT s.id, m.id, 0
FROM (SELECT id, conversation_id, row_number() OVER (PARTITION BY conversation_id ORDER BY seq) AS n
      FROM ros_summaries WHERE kind = 'leaf') AS s
JOIN ros_messages AS m ON m.conversation_id = s.conversation_id AND m.event_id = s.n::text;
INSERT INTO ros_refinement_versions (stage, model, version)
SELECT kind || '_summaries', 'm', 5 FROM unnest(ARRAY['leaf', 'branch', 'root']) AS kind
"""


def looked_at(connection: Connection, query: str) -> dict[str, int]:
    """The rows that a question really looks at, by table, those of an index alone under the index's name."""
    plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode()).fetchone()
    assert plan is not None
    rows: dict[str, int] = {}
    for node in nodes(plan["QUERY PLAN"][0]["Plan"]):
        name = node.get("Index Name" if node["Node Type"] == "Index Only Scan" else "Relation Name")
        if name is not None:
            found = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            rows[name] = rows.get(name, 0) + round(found)
    return {name: count for name, count in rows.items() if count}


@pytest.fixture
def many(connection: Connection) -> Connection:
    for statement in _MANY.split(";"):
        connection.execute(statement.encode())
    connection.execute("VACUUM ANALYZE ros_summaries, ros_summary_sources, ros_messages, ros_conversations")
    return connection


@pytest.mark.parametrize("view", ["ros_stale_days", "ros_pending_changed_summaries"])
def test_when_nothing_is_stale_no_summary_and_no_message_is_looked_at(many: Connection, view: str) -> None:
    found = looked_at(many, f"SELECT * FROM {view}")
    found.pop("ros_refinement_versions", None)
    # Each walk along the index sees that its first entry is not among those it looks for.
    assert set(found) <= {"ros_summaries_made_by"}
    assert sum(found.values()) <= 6


def test_a_new_version_is_seen_in_the_index_alone(many: Connection) -> None:
    announce_summarizer(many, "m", version=6)
    found = looked_at(many, "SELECT * FROM ros_stale_days")
    assert 2500 <= found.pop("ros_summaries_made_by") <= 2506
    assert set(found) <= {"ros_refinement_versions"}


def test_a_changed_text_costs_a_look_at_what_stands_above_it(many: Connection) -> None:
    many.execute("UPDATE ros_messages SET tool_result = 'late' WHERE event_id = '2' AND seq % 100 = 2")
    changed = one(many, "SELECT count(*) FROM ros_changed_texts")
    assert changed > 0
    found = looked_at(many, "SELECT * FROM ros_pending_changed_summaries")
    assert found["ros_summaries"] <= 2 * changed
    assert found.get("ros_summary_sources", 0) <= 2 * changed
    # Its summaries' hashes are made up here: each of them is one that differs.
    assert stale(many) == {("leaf", "source"): changed}


def test_a_store_that_was_there_before_changes_were_noted_is_looked_through_once(connection: Connection) -> None:
    """The migration's last statements, over a leaf whose message changed before there was a trigger."""
    for statement in _MANY.split(";"):
        connection.execute(statement.encode())
    connection.execute(
        "UPDATE ros_summaries AS s SET input_hash = ros_input_hash(kind, model, pipeline_version, ros_inputs_today(id))"
    )
    changed = one(connection, "SELECT id FROM ros_summaries WHERE kind = 'leaf' LIMIT 1")
    connection.execute("UPDATE ros_summaries SET input_hash = 'older' WHERE id = %s", [changed])
    from rivet_pipeline.db.migrations import read_migrations

    text = next(one for one in read_migrations() if one.name == "0011_stale").text
    connection.execute(text[text.index("INSERT INTO ros_changed_texts (kind, id)\nSELECT 'message', x") :].encode())
    assert stale(connection) == {("leaf", "source"): 1}
    assert one(connection, "SELECT id FROM ros_stale_summaries") == changed


def test_days_are_utc_and_ids_are_kept_in_the_row(connection: Connection) -> None:
    conversation = uuid4()
    connection.execute(
        "INSERT INTO ros_conversations (id, session_key, agent, day) VALUES (%s, 'test:x', 'opus', '2026-01-02')",
        [conversation],
    )
    connection.execute(
        """INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                      pipeline_version, input_hash, day)
           VALUES (%s, 'leaf', 'x', 1, %s, %s, 'm', 1, 'x', '1999-01-01')""",
        [conversation, datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)],
    )
    assert one(connection, "SELECT day FROM ros_summaries") == date(2026, 1, 2)
