"""The stage `tool_call_text` over a real store: what is told, when, once, and what that sets in motion and what not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from rivet_pipeline.db.pending import pending_days
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.quality import duplicate_events
from rivet_pipeline.embedding.embed import embed_messages
from rivet_pipeline.summaries.compact import refine_level
from rivet_pipeline.tool_calls.render import Renderer
from rivet_pipeline.tool_calls.types import Sentence, ToolCall
from rivet_pipeline.tool_calls.write import Backlog, preview_texts, read_backlog, write_tool_texts
from rivet_pipeline.transcripts.full_payload import load_message, memory_get_full
from rivet_pipeline.transcripts.ingest import WriteResult, write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult
from rivet_pipeline_tests.integration.memory_rows import add_message, find
from rivet_pipeline_tests.integration.pipeline import (
    DAY,
    FIRST_DAY,
    CountingEmbedder,
    CountingSummarizer,
    CountingWriter,
    Row,
    capture_calls,
)

SESSION = SessionRecord(session_key="test:1", agent="opus", channel="test")


def rows(connection: Connection, query: str, *values: Any) -> list[Row]:
    return connection.execute(query.encode(), values or None).fetchall()


def texts(connection: Connection) -> list[str]:
    return [row["content"] for row in rows(connection, "SELECT content FROM ros_messages ORDER BY created_at, seq")]


def pending(connection: Connection) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in pending_days(connection):
        found[item.stage] = found.get(item.stage, 0) + item.items
    return found


def rest(connection: Connection, minutes: float) -> None:
    """Lets the conversations have been silent for so long."""
    connection.execute("UPDATE ros_conversations SET updated_at = %s", [datetime.now(UTC) - timedelta(minutes=minutes)])


def tell(pool: Pool, writer: Any = None, **options: Any) -> int:
    return write_tool_texts(pool, days=None, writer=writer or Renderer(), **options).rows


def call(number: int = 0, **more: Any) -> MessageRecord:
    return MessageRecord(
        event_id=f"call-{number}",
        role="tool",
        tool_name="Bash",
        tool_args={"command": "git status"},
        created_at=datetime(2026, 3, 2, 9, tzinfo=UTC),
        **more,
    )


def send(connection: Connection, *items: MessageRecord | ToolResult) -> WriteResult:
    return write_batch(connection, SESSION, items, first_day=FIRST_DAY)


# --- what is told ---------------------------------------------------------------------------------------------------


def test_a_call_without_words_gets_its_sentence_once(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=3)
    report = write_tool_texts(pool, days=[DAY], writer=Renderer())
    assert texts(connection) == [f"Ran `make part-{n}` in the shell (Build part {n})." for n in range(3)]
    day = report.days[DAY]
    assert (day.rows, day.failures, day.model_calls) == (3, 0, 0)
    assert day.characters == sum(map(len, texts(connection)))
    for row in rows(connection, "SELECT metadata FROM ros_messages"):
        assert row["metadata"]["content_made_by"] == "rendering-1"
        made_at = datetime.fromisoformat(row["metadata"]["content_made_at"])
        assert abs(datetime.now(UTC) - made_at) < timedelta(minutes=5)
        assert row["metadata"]["kind"] == "tool"
    before = rows(connection, "SELECT id, xmin::text AS x FROM ros_messages ORDER BY id")
    other = CountingWriter()
    other.name = "another"
    assert tell(pool, other) == 0
    assert other.asked == []
    assert rows(connection, "SELECT id, xmin::text AS x FROM ros_messages ORDER BY id") == before
    with pytest.raises(psycopg.errors.RestrictViolation):
        connection.execute("UPDATE ros_messages SET content = 'other words'")


def test_only_what_lacks_words_and_is_refined_is_told(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, "heartbeat:1")
    capture_calls(connection, "test:noise", settings={"noise": True})
    for kind in ("injected", "progress", "replay"):
        capture_calls(connection, f"test:{kind}", count=1, kind=kind)
    send(connection, call(0, content="I look at the state.", tool_result="clean"))
    send(connection, MessageRecord(event_id="result", role="tool", tool_result="of an unknown call"))
    rest(connection, 60)
    assert tell(pool) == 0
    assert read_backlog(connection) == Backlog(0, 0, 0)
    assert "tool_call_text" not in pending(connection)
    marks = rows(connection, "SELECT count(*) AS n FROM ros_stage_marks WHERE stage = 'tool_call_text'")
    assert marks == rows(connection, "SELECT count(*) AS n FROM ros_conversations")


def test_days_are_kept_apart(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, "test:1", count=2)
    capture_calls(connection, "test:2", count=3, day=DAY + timedelta(days=1))
    report = write_tool_texts(pool, days=[DAY + timedelta(days=1)], writer=Renderer())
    assert {day: found.rows for day, found in report.days.items()} == {DAY + timedelta(days=1): 3}
    assert pending(connection)["tool_call_text"] == 2


def test_a_capture_can_not_pass_words_off_as_made(connection: Connection, pool: Pool) -> None:
    send(connection, call(0, content="My own words.", metadata={"content_made_by": "x", "content_made_at": "y"}))
    (row,) = rows(connection, "SELECT metadata, ros_captured_content(content, metadata) AS said FROM ros_messages")
    assert row == {"metadata": {}, "said": "My own words."}


# --- when -----------------------------------------------------------------------------------------------------------


def test_a_call_waits_for_its_result(connection: Connection, pool: Pool) -> None:
    send(connection, call())
    rest(connection, 14)
    assert (tell(pool), read_backlog(connection)) == (0, Backlog(0, 1, 0))
    assert "tool_call_text" not in pending(connection)
    send(connection, ToolResult(SESSION, "call-0", "fatal: not a repository", {"is_error": True}))
    assert [(item.items, item.timed) for item in pending_days(connection) if item.stage == "tool_call_text"] == [
        (1, False)
    ]
    assert tell(pool) == 1
    assert texts(connection) == ["Ran `git status` in the shell; it failed: fatal: not a repository."]


def test_a_call_whose_result_never_comes_is_told_when_the_conversation_rests(
    connection: Connection, pool: Pool
) -> None:
    send(connection, call())
    rest(connection, 16)
    assert [(item.items, item.timed) for item in pending_days(connection) if item.stage == "tool_call_text"] == [
        (1, True)
    ]
    assert tell(pool) == 1
    assert texts(connection) == ["Ran `git status` in the shell."]


def test_a_result_after_the_text_is_still_filled_in(connection: Connection, pool: Pool) -> None:
    send(connection, call())
    rest(connection, 16)
    tell(pool)
    result = send(connection, ToolResult(SESSION, "call-0", "clean", {"is_error": False}))
    assert (result.new, result.known, result.filled) == (0, 1, 1)
    (row,) = rows(connection, "SELECT content, tool_result, metadata FROM ros_messages")
    assert (row["content"], row["tool_result"]) == ("Ran `git status` in the shell.", "clean")
    assert (row["metadata"]["content_made_by"], row["metadata"]["is_error"]) == ("rendering-1", False)
    assert tell(pool) == 0


def test_a_result_that_comes_while_the_sentence_is_made_is_not_missed(connection: Connection, pool: Pool) -> None:
    send(connection, call())
    rest(connection, 16)

    class Slow(Renderer):
        def write(self, call: ToolCall) -> Sentence:
            if call.result is None:
                send(connection, ToolResult(SESSION, "call-0", "fatal: gone", {"is_error": True}))
            return super().write(call)

    assert tell(pool, Slow()) == 0
    assert texts(connection) == [""]
    assert tell(pool, Slow()) == 1
    assert texts(connection) == ["Ran `git status` in the shell; it failed: fatal: gone."]


# --- captures afterwards --------------------------------------------------------------------------------------------


def test_the_same_transcript_again_is_known(connection: Connection, pool: Pool) -> None:
    items: list[MessageRecord | ToolResult] = [
        call(0, tool_result="clean"),
        call(1),
        ToolResult(SESSION, "call-1", "clean"),
        call(2),
    ]
    send(connection, *items)
    rest(connection, 16)
    assert tell(pool) == 3
    before = rows(connection, "SELECT id, xmin::text AS x FROM ros_messages ORDER BY id")
    revision = rows(connection, "SELECT revision FROM ros_conversations")
    again = send(connection, *items)
    assert (again.new, again.filled, again.clashed) == (0, 0, 0)
    assert again.known == len(items)
    assert rows(connection, "SELECT id, xmin::text AS x FROM ros_messages ORDER BY id") == before
    assert rows(connection, "SELECT revision FROM ros_conversations") == revision


def test_made_texts_are_no_duplicates_and_no_words_of_a_file(connection: Connection, pool: Pool) -> None:
    send(connection, *[call(n, tool_result="clean") for n in range(2)])
    tell(pool)
    assert len(set(texts(connection))) == 1
    assert duplicate_events(connection, FIRST_DAY).at_fault == 0
    (first, _) = rows(connection, "SELECT id FROM ros_messages ORDER BY seq")
    message = load_message(connection, first["id"])
    assert message is not None
    full = memory_get_full(message, max_line=1000)
    assert (full.status, {one.name for one in full.sections}) == ("complete", {"content", "tool_args", "tool_result"})


# --- what it sets in motion -----------------------------------------------------------------------------------------


def test_another_text_gets_another_vector_and_nothing_else_is_woken(connection: Connection, pool: Pool) -> None:
    embedder = CountingEmbedder()
    capture_calls(connection, count=10)
    embed_messages(pool, embedder, days=None)
    refine_level(pool, "leaf", days=None, summarizer=CountingSummarizer())
    connection.execute(
        "INSERT INTO ros_stage_marks SELECT 'messages', id, revision FROM ros_conversations ON CONFLICT DO NOTHING"
    )
    assert set(pending(connection)) == {"tool_call_text", "summary_embeddings", "wiki_patches"}
    old = rows(connection, "SELECT owner_id, content_hash FROM ros_embeddings ORDER BY owner_id")
    tell(pool)
    assert pending(connection) == {"message_embeddings": 10, "summary_embeddings": 1, "wiki_patches": 1}
    embedder.texts.clear()
    embed_messages(pool, embedder, days=None)
    assert sorted(embedder.texts)[0] == "Ran `make part-0` in the shell (Build part 0).\nfine"
    new = rows(connection, "SELECT owner_id, content_hash FROM ros_embeddings ORDER BY owner_id")
    assert [row["owner_id"] for row in new] == [row["owner_id"] for row in old]
    assert not {row["content_hash"] for row in new} & {row["content_hash"] for row in old}
    assert pending(connection) == {"summary_embeddings": 1, "wiki_patches": 1}


def test_a_stage_that_had_not_seen_all_is_not_marked_as_if(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=10)
    assert pending(connection)["leaf_summaries"] == 1
    tell(pool)
    assert (pending(connection)["messages"], pending(connection)["leaf_summaries"]) == (1, 1)


@pytest.mark.parametrize("order", ["texts first", "leaves first"])
def test_whatever_the_order_no_leaf_is_made_twice(connection: Connection, pool: Pool, order: str) -> None:
    capture_calls(connection, count=10)
    summarizer = CountingSummarizer()
    if order == "texts first":
        tell(pool)
    refine_level(pool, "leaf", days=None, summarizer=summarizer)
    assert tell(pool) == (0 if order == "texts first" else 10)
    for _ in range(2):
        refine_level(pool, "leaf", days=None, summarizer=summarizer)
    assert len(summarizer.requests) == 1
    assert [message.content for message in summarizer.requests[0].messages] == [""] * 10
    assert rows(connection, "SELECT count(*) AS n FROM ros_summary_revisions") == [{"n": 0}]
    (leaf,) = rows(connection, "SELECT content FROM ros_summaries")
    assert "make part-0" in leaf["content"]


def test_the_leaf_of_told_calls_is_that_of_untold_ones(connection: Connection, pool: Pool) -> None:
    for session in ("test:told", "test:untold"):
        capture_calls(connection, session, count=10)
        refine_level(pool, "leaf", days=None, summarizer=CountingSummarizer())
        tell(pool)
    made = rows(connection, "SELECT content, grounding FROM ros_summaries")
    assert made[0] == made[1]


def test_a_result_that_comes_late_makes_the_leaf_again(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=10, result=None)
    rest(connection, 16)
    summarizer = CountingSummarizer()
    refine_level(pool, "leaf", days=None, summarizer=summarizer)
    assert tell(pool) == 10
    refine_level(pool, "leaf", days=None, summarizer=summarizer)
    assert len(summarizer.requests) == 1
    send(connection, ToolResult(SESSION, "call-3", "part 3 is built"))
    refine_level(pool, "leaf", days=None, summarizer=summarizer)
    assert len(summarizer.requests) == 2


# --- failures -------------------------------------------------------------------------------------------------------


def model(**state: Any) -> CountingWriter:
    writer = CountingWriter()
    writer.name, writer.asks_a_model = "small-1", True
    for name, value in state.items():
        setattr(writer, name, value)
    return writer


def due_now(connection: Connection) -> None:
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")


def test_a_model_that_is_down_costs_one_call_and_holds_up_nothing(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=10)
    writer = model(down=True)
    report = write_tool_texts(pool, days=None, writer=writer)
    assert (len(writer.asked), report.rows, report.failures, report.model_calls) == (1, 0, 1, 1)
    assert rows(connection, "SELECT item, cause, error FROM ros_failures") == [
        {"item": "service", "cause": "transient", "error": "http-503: busy"}
    ]
    assert "tool_call_text" not in pending(connection)
    assert tell(pool, writer) == 0
    assert len(writer.asked) == 1
    assert embed_messages(pool, CountingEmbedder(), days=None).rows == 10
    assert refine_level(pool, "leaf", days=None, summarizer=CountingSummarizer()).rows == 1

    due_now(connection)
    writer.down = False
    assert pending(connection)["tool_call_text"] == 10
    assert tell(pool, writer) == 10
    assert rows(connection, "SELECT * FROM ros_failures") == []
    assert rows(connection, "SELECT DISTINCT metadata ->> 'content_made_by' AS by FROM ros_messages") == [
        {"by": "small-1"}
    ]


def test_a_call_that_fails_fails_alone_and_is_given_up_in_sight(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=10)
    writer = model(poison="part-4")
    assert tell(pool, writer) == 9
    for _ in range(4):
        due_now(connection)
        tell(pool, writer)
    assert len(writer.asked) == 9 + 3
    (failed,) = rows(connection, "SELECT stage, item, attempts, next_attempt_at, day FROM ros_failures")
    (untold,) = rows(connection, "SELECT id::text AS id FROM ros_messages WHERE content = ''")
    assert failed == {
        "stage": "tool_call_text", "item": untold["id"], "attempts": 3, "next_attempt_at": None, "day": DAY,
    }  # fmt: skip
    assert read_backlog(connection) == Backlog(0, 0, 1)
    assert "tool_call_text" not in pending(connection)


def test_a_late_result_lets_a_given_up_call_be_tried_again(connection: Connection, pool: Pool) -> None:
    send(connection, call())
    rest(connection, 16)
    writer = model(poison="git")
    for _ in range(3):
        tell(pool, writer)
        due_now(connection)
    assert read_backlog(connection).resting == 1
    send(connection, ToolResult(SESSION, "call-0", "clean"))
    assert read_backlog(connection) == Backlog(1, 0, 0)


def test_a_defect_of_ours_stops_one_call_only(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=3)

    class Broken(Renderer):
        def write(self, call: ToolCall) -> Sentence:
            if call.args["command"] == "make part-1":
                raise ZeroDivisionError("oh")
            return super().write(call)

    assert tell(pool, Broken()) == 2
    assert rows(connection, "SELECT cause, error FROM ros_failures") == [
        {"cause": "content", "error": "defect: ZeroDivisionError: oh"}
    ]


def test_a_pass_with_a_model_ends_in_time_and_the_next_goes_on(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=5)
    writer = model()
    assert tell(pool, writer, seconds=0) == 1
    assert pending(connection)["tool_call_text"] == 4
    assert tell(pool, writer, seconds=0) == 1
    assert tell(pool, writer, seconds=None) == 3
    assert texts(connection)[0] == "Ran `make part-0` in the shell (Build part 0)."
    assert len(writer.asked) == 5


def test_a_failing_call_does_not_use_up_the_pass_of_others(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=3)
    writer = model(poison="part-0")
    assert tell(pool, writer, seconds=0) == 0
    due_now(connection)
    assert tell(pool, writer, seconds=0) == 1
    assert [text != "" for text in texts(connection)] == [False, True, False]


# --- size, company --------------------------------------------------------------------------------------------------


class Pages(Renderer):
    """Keeps how many calls were written before each was asked about: a page is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.written: list[int] = []

    def write(self, call: ToolCall) -> Sentence:
        if not len(self.written) % 50 or len(str(call.args)) > 10_000:
            (row,) = rows(self.connection, "SELECT count(*) AS n FROM ros_messages WHERE content <> ''")
            self.written.append(row["n"])
        else:
            self.written.append(self.written[-1])
        return super().write(call)


def test_many_calls_go_in_pages_and_large_arguments_make_them_small(connection: Connection, pool: Pool) -> None:
    conversation = capture_calls(connection, count=0)
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_args, tool_result)
           SELECT %s, 'many-' || n, 'opus', 'test', 'tool', 'Write', jsonb_build_object('file_path', 'f' || n), 'ok'
           FROM generate_series(1, 1100) AS n""",
        [conversation],
    )
    writer = Pages(connection)
    assert tell(pool, writer) == 1100
    assert writer.written[450] == 0
    assert writer.written[550] >= 400
    assert writer.written[1050] >= 900
    # Digits of hashes hardly pack, so each of these is about as large in the table as in memory.
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_args, tool_result)
           SELECT %s, 'large-' || n, 'opus', 'test', 'tool', 'Write',
                  jsonb_build_object('file_path', 'f' || n, 'content', (
                      SELECT string_agg(md5((n * 100000 + k)::text), ' ') FROM generate_series(1, 90000) AS k)), 'ok'
           FROM generate_series(1, 4) AS n""",
        [conversation],
    )
    connection.execute("UPDATE ros_conversations SET revision = revision + 1")
    large = Pages(connection)
    assert tell(pool, large) == 4
    assert large.written[0] == 1100
    assert large.written[-1] > 1100


def test_two_passes_at_once_write_each_text_once(connection: Connection, pool: Pool) -> None:
    for session in range(6):
        capture_calls(connection, f"test:{session}", count=40)
    wrote: list[int] = []
    threads = [threading.Thread(target=lambda: wrote.append(tell(pool))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(wrote) == 240
    assert "" not in texts(connection)
    assert rows(connection, "SELECT * FROM ros_failures") == []


def test_a_conversation_without_untold_calls_costs_no_look_at_its_messages(connection: Connection) -> None:
    conversation = capture_calls(connection, count=0)
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
           SELECT %s, n::text, 'opus', 'test', 'user', 'word ' || n FROM generate_series(1, 2000) AS n""",
        [conversation],
    )
    connection.execute("ANALYZE ros_messages")
    (row,) = rows(connection, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM ros_pending_tool_call_text")
    plan = str(row["QUERY PLAN"])
    assert "ros_messages_untold" in plan
    assert "Rows Removed by Filter': 2000" not in plan


def test_the_backlog_can_be_looked_at_before(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=8)
    send(connection, call(100))
    rest(connection, 1)
    assert read_backlog(connection) == Backlog(8, 1, 0)
    shown = preview_texts(connection, Renderer(), limit=2)
    assert [one.text for one in shown] == [f"Ran `make part-{n}` in the shell (Build part {n})." for n in range(2)]
    assert set(texts(connection)) == {""}
    assert preview_texts(connection, model(), limit=2) == []


# --- retrieval ------------------------------------------------------------------------------------------------------


def test_a_told_call_is_found_by_what_it_did(connection: Connection, pool: Pool) -> None:
    send(connection, call(0, tool_result="nothing to commit"))
    assert find(connection, "ran git status in the shell").hits == []
    tell(pool)
    (hit,) = find(connection, "ran git status in the shell").hits
    assert hit.content == "Ran `git status` in the shell."


def test_a_made_text_does_not_lift_a_call_out_of_what_it_weighed(connection: Connection, pool: Pool) -> None:
    conversation = capture_calls(connection, count=3)
    tell(pool)
    add_message(connection, "Why do we build part 1 with make?", conversation=conversation, age_days=30)
    hits = find(connection, "make build part 1").hits
    assert hits[0].content.startswith("Why do we build")


def test_a_flood_of_told_calls_leaves_room_for_what_was_said(connection: Connection, pool: Pool) -> None:
    conversation = capture_calls(connection, count=0)
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_args, tool_result,
                                     created_at)
           SELECT %s, 'many-' || n, 'opus', 'test', 'tool', 'Bash', '{"command": "git status"}', 'clean',
                  timestamptz '2026-03-10 11:00Z' + n * interval '1 second'
           FROM generate_series(1, 1500) AS n""",
        [conversation],
    )
    said: UUID = add_message(
        connection,
        "The git status in the prompt of the shell made every command slow in the large checkout, so we turned it off "
        "and use a background job that refreshes it every minute instead.",
        age_days=5,
    )
    tell(pool)
    assert said in [hit.id for hit in find(connection, "git status shell", limit=10).hits[:3]]


def test_the_writers_failure_is_no_text(connection: Connection, pool: Pool) -> None:
    capture_calls(connection, count=1)

    class Empty(Renderer):
        def write(self, call: ToolCall) -> Sentence:
            return Sentence("  \n ")

    assert tell(pool, Empty()) == 0
    assert rows(connection, "SELECT cause, error FROM ros_failures") == [
        {"cause": "content", "error": "empty: the writer gave no text"}
    ]
