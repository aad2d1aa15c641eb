"""`migrate-lcm` end to end: both kinds of source into a real store, and what the pipeline does with what was moved."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rivet_pipeline.cli.migrate_lcm import run_migration
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.db.quality import orphan_summaries
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.migration import lcm_messages
from rivet_pipeline.migration.lcm import migrate_lcm
from rivet_pipeline.migration.report import MigrationReport, Tally
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.summaries.compact import refine_level, resummarize, summarize_leaves
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.lcm import ConversationMapper
from rivet_pipeline.transcripts.lcm_sqlite import LcmSourceError
from rivet_pipeline_tests.integration.memory_rows import register_model
from rivet_pipeline_tests.integration.pipeline import CountingSummarizer
from rivet_pipeline_tests.lcm_store import LcmRows, blob, sample, vector_tables

FIRST_DAY = date(2022, 11, 1)


def move(url: str, source: Path | str, **options: Any) -> MigrationReport:
    return migrate_lcm(url, str(source), first_day=FIRST_DAY, **options)


def figures(tally: Tally) -> tuple[int, int, int, int, int, int | None]:
    """Source, before, new, known, left out, after."""
    return tally.source, tally.before, tally.new, tally.known, tally.left_out.total(), tally.after


def content(connection: Connection) -> dict[str, list[Any]]:
    """All that was moved, by names that do not depend on when it was."""
    queries = {
        "conversations": """
            SELECT session_key, agent, channel, title, settings, active, day, created_at, updated_at
            FROM ros_conversations ORDER BY 1, 2""",
        "messages": """
            SELECT c.session_key, m.event_id, m.role, m.content, m.tool_name, m.tool_args, m.tool_result,
                   m.metadata - 'pending_result' AS metadata, m.created_at
            FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
            ORDER BY c.session_key, m.created_at, m.seq""",
        "summaries": """
            SELECT c.session_key, s.metadata, s.kind, s.content, s.message_count, s.earliest_at, s.latest_at, s.agents,
                   s.model, s.pipeline_version, s.created_at, p.metadata ->> 'lcm_id' AS parent,
                   (SELECT array_agg(m.event_id ORDER BY x.ordinal) FROM ros_summary_sources AS x
                    JOIN ros_messages AS m ON m.id = x.message_id WHERE x.summary_id = s.id) AS sources
            FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
            LEFT JOIN ros_summaries AS p ON p.id = s.parent_id
            ORDER BY c.session_key, s.metadata ->> 'lcm_id'""",
        "embeddings": """
            SELECT k.name, e.owner_kind, coalesce(m.event_id, s.metadata ->> 'lcm_id') AS owner, e.chunk, e.char_start,
                   e.char_end, e.embedding::text AS vector,
                   e.content_hash = coalesce(m.text_hash, s.text_hash) AS current
            FROM ros_embeddings AS e JOIN ros_embedding_models AS k ON k.id = e.model_id
            LEFT JOIN ros_messages AS m ON m.id = e.owner_id LEFT JOIN ros_summaries AS s ON s.id = e.owner_id
            ORDER BY 1, 2, 3, 4""",
    }
    return {name: connection.execute(query.encode()).fetchall() for name, query in queries.items()}


def rows(connection: Connection, query: str, *parameters: Any) -> list[Any]:
    """The first column of every row."""
    return [next(iter(row.values())) for row in connection.execute(query.encode(), parameters)]


def with_vectors() -> LcmRows:
    store = sample()
    for row in store.rows["messages"]:
        row["embedding"] = blob(1.0, 0.5, float(row["message_id"]))
    for row in store.rows["summaries"]:
        row["embedding"] = blob(0.25, 1.0, 0.0)
    return store


def test_everything_is_moved_once_and_counted(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = with_vectors().sqlite(tmp_path / "lcm.db")
    first = move(database_url, path)
    assert first.problems() == []
    assert {name: figures(tally) for name, tally in first.kinds().items()} == {
        "conversations": (2, 0, 2, 0, 0, 2),
        "messages": (26, 0, 26, 0, 0, 26),
        "message parts": (24, 0, 24, 0, 0, None),
        "large files": (1, 0, 1, 0, 0, 1),
        "summaries": (5, 0, 5, 0, 0, 5),
        "summary sources": (21, 0, 21, 0, 0, 21),
        "summary parents": (4, 0, 4, 0, 0, 4),
        "embeddings lcm-3": (31, 0, 31, 0, 0, 31),
    }
    moved = content(connection)
    again = move(database_url, path)
    assert again.problems() == []
    assert {name: tally.new for name, tally in again.kinds().items() if tally.new} == {}
    assert {name: tally.known for name, tally in again.kinds().items()} == {
        name: tally.source for name, tally in first.kinds().items()
    }
    assert content(connection) == moved


def test_what_became_of_the_rows(database_url: str, connection: Connection, tmp_path: Path) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    moved = content(connection)
    assert [(c["session_key"], c["agent"], c["title"], c["active"], c["day"]) for c in moved["conversations"]] == [
        ("lcm:session-1:1", "vale", "Move the registry to harbour", True, date(2026, 3, 2)),
        ("lcm:session-2:2", "vale", None, False, date(2026, 3, 2)),
    ]
    assert moved["conversations"][0]["updated_at"] == datetime(2026, 3, 2, 9, 0, 24, tzinfo=UTC)
    settings = moved["conversations"][0]["settings"]["lcm"]
    assert settings["session_file"] == "/home/u/.openclaw/s/session-1.jsonl"
    assert settings["files"]["file_00112233aabbccdd"]["summary"] == "A build log."
    call = next(row for row in moved["messages"] if row["event_id"] == "lcm:21:2")
    assert (call["role"], call["tool_name"], call["tool_args"]) == ("tool", "exec", {"command": "crane manifest app"})
    assert call["tool_result"] == "sha256:feedbeef zanzibar-digest"
    assert call["metadata"]["kind"] == "tool"
    assert [row["event_id"] for row in moved["messages"][19:24]] == [
        "lcm:20",
        "lcm:21:0",
        "lcm:21",
        "lcm:21:2",
        "lcm:23",
    ]
    tree = {row["metadata"]["lcm_id"]: row for row in moved["summaries"]}
    assert {name: (row["kind"], row["parent"], row["metadata"]["lcm_depth"]) for name, row in tree.items()} == {
        "sum_a": ("leaf", "sum_c", 0),
        "sum_b": ("leaf", "sum_c", 0),
        "sum_c": ("branch", "sum_d", 1),
        "sum_d": ("root", "sum_e", 2),
        "sum_e": ("root", None, 3),
    }
    assert tree["sum_b"]["sources"] == [*(f"lcm:{n}" for n in range(11, 21)), "lcm:21:0", "lcm:21", "lcm:21:2"]
    assert (tree["sum_a"]["model"], tree["sum_a"]["pipeline_version"]) == ("glm-5", 0)
    assert tree["sum_e"]["message_count"] == 23
    assert tree["sum_e"]["earliest_at"] == datetime(2026, 3, 2, 9, 0, 1, tzinfo=UTC)
    assert tree["sum_e"]["latest_at"] == datetime(2026, 3, 2, 9, 0, 21, tzinfo=UTC)


@pytest.fixture
def other_database(server: EmbeddedServer, database_url: str) -> str:
    """A second database with pgvector, for a source."""
    name = f"lcm_{database_url.split('?')[0].rsplit('/', 1)[1]}"
    with connect(server.url("postgres")) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name}".encode())
        admin.execute(f"CREATE DATABASE {name}".encode())
    with connect(server.url(name)) as made:
        made.execute("CREATE EXTENSION vector")
    return server.url(name)


def test_a_postgres_store_comes_to_the_same(
    database_url: str, connection: Connection, server: EmbeddedServer, other_database: str, tmp_path: Path
) -> None:
    with_vectors().postgres(other_database, schema="public")
    report = move(database_url, other_database)
    assert report.problems() == []
    assert figures(report.messages) == (26, 0, 26, 0, 0, 26)
    assert figures(report.embeddings["lcm-3"]) == (31, 0, 31, 0, 0, 31)
    from_postgres = content(connection)
    again = move(database_url, with_vectors().sqlite(tmp_path / "lcm.db"))
    # The same store as a file is the same store: nothing is new.
    assert again.problems() == []
    assert [again.messages.new, again.summaries.new, again.sources.new, again.embeddings["lcm-3"].new] == [0, 0, 0, 0]
    assert content(connection) == from_postgres


def test_a_postgres_store_beside_the_memory_in_its_own_schema(database_url: str, connection: Connection) -> None:
    sample().postgres(database_url, schema="openclaw", prefix="lcm_")
    report = move(database_url, database_url)
    assert report.problems() == []
    assert figures(report.summaries) == (5, 0, 5, 0, 0, 5)
    assert rows(connection, "SELECT count(*) FROM openclaw.lcm_messages") == [26]


def test_which_of_several_postgres_stores(database_url: str, tmp_path: Path) -> None:
    sample().postgres(database_url, schema="one")
    small = LcmRows()
    small.conversation(1)
    small.message(1, 1, "user", "hello")
    small.postgres(database_url, schema="two")
    with pytest.raises(LcmSourceError, match="several LCM stores; name one of the schemas one, two"):
        move(database_url, database_url)
    joint = "&" if "?" in database_url else "?"
    assert move(database_url, f"{database_url}{joint}options=-csearch_path%3Dtwo").messages.source == 1


def test_a_postgres_source_that_is_none_is_one_line(database_url: str) -> None:
    with pytest.raises(LcmSourceError, match="holds no LCM store: no schema has the tables conversations and messages"):
        move(database_url, database_url)
    with pytest.raises(LcmSourceError) as caught:
        move(database_url, "postgresql://somebody:hunter2@127.0.0.1:1/lcm")
    assert "can not be reached" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_search_finds_a_moved_message_and_its_tool_result(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    found = search(connection, SearchRequest("layer_7.tar", mode="fts"), embed_query=None)
    assert "layer_7.tar" in found.hits[0].content
    assert search(connection, SearchRequest("zanzibar-digest", mode="fts"), embed_query=None).hits
    moved = search(connection, SearchRequest("moved in March", mode="fts"), embed_query=None)
    assert any(hit.source == "summary" for hit in moved.hits)


def test_lineage_leads_from_the_root_to_the_words(database_url: str, connection: Connection, tmp_path: Path) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    words = rows(
        connection,
        """
        WITH RECURSIVE below AS (
            SELECT id FROM ros_summaries WHERE metadata ->> 'lcm_id' = 'sum_e'
            UNION ALL SELECT s.id FROM ros_summaries AS s JOIN below AS b ON s.parent_id = b.id)
        SELECT m.event_id FROM below JOIN ros_summary_sources AS x ON x.summary_id = below.id
        JOIN ros_messages AS m ON m.id = x.message_id""",
    )
    assert sorted(words) == sorted([*(f"lcm:{n}" for n in range(1, 22)), "lcm:21:0", "lcm:21:2"])


def refine(pool: Pool, summarizer: CountingSummarizer) -> int:
    asked = len(summarizer.requests)
    for kind in ("leaf", "branch", "root"):
        refine_level(pool, kind, days=None, summarizer=summarizer)
    return len(summarizer.requests) - asked


def test_the_pipeline_summarises_only_what_the_source_had_not(
    database_url: str, pool: Pool, connection: Connection, tmp_path: Path
) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    texts = rows(connection, "SELECT content FROM ros_summaries ORDER BY seq")
    summarizer = CountingSummarizer()
    assert refine(pool, summarizer) == 2
    # The two tails: one of what came after the last leaf, one of the conversation without a summary.
    assert [len(request.messages) for request in summarizer.requests] == [2, 2]
    assert rows(connection, "SELECT content FROM ros_summaries WHERE pipeline_version = 0 ORDER BY seq") == texts
    assert rows(connection, "SELECT count(*) FROM ros_summary_revisions") == [0]
    assert rows(connection, "SELECT count(*) = count(DISTINCT message_id) FROM ros_summary_sources") == [True]
    assert refine(pool, summarizer) == 0
    assert connection.execute("SELECT * FROM ros_pending_days WHERE stage LIKE '%_summaries'").fetchall() == []
    assert move(database_url, tmp_path / "lcm.db").problems() == []
    assert refine(pool, summarizer) == 0


def test_moved_summaries_are_made_again_when_somebody_asks(
    database_url: str, pool: Pool, connection: Connection, tmp_path: Path
) -> None:
    path = sample().sqlite(tmp_path / "lcm.db")
    move(database_url, path)
    summarizer = CountingSummarizer()
    resummarize(pool, days=None, summarizer=summarizer, force=True)
    assert rows(connection, "SELECT DISTINCT model FROM ros_summaries") == ["extractive-2"]
    assert sorted(rows(connection, "SELECT model FROM ros_summary_revisions")) == ["glm-5"] * 5
    again = move(database_url, path)
    assert (again.problems(), again.summaries.new, again.summaries.known) == ([], 0, 5)
    assert rows(connection, "SELECT DISTINCT model FROM ros_summaries") == ["extractive-2"]


def test_no_stage_summarises_a_conversation_that_is_on_its_way(
    database_url: str, pool: Pool, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def write_and_refine(*args: Any, **options: Any) -> Any:
        result = write_batch(*args, **options)
        made.append(summarize_leaves(pool, days=None, summarizer=CountingSummarizer()).rows)
        return result

    monkeypatch.setattr(lcm_messages, "write_batch", write_and_refine)
    report = move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    # While the first conversation is written nothing is due in it, though 24 messages lie there; later only its tail.
    assert made[:2] == [0, 0]
    assert sum(made) == 1
    assert figures(report.sources) == (21, 0, 21, 0, 0, 21)


def large() -> LcmRows:
    """Three conversations of some hundred messages with calls, results, leaves and vectors."""
    store = LcmRows()
    for conversation in (1, 2, 3):
        store.conversation(conversation)
        first = conversation * 1000
        for number in range(first, first + 260, 2):
            store.message(number, conversation, "assistant", "", created_at="2026-03-02 09:00:00")
            store.part(number, 0, "tool", tool_call_id=f"c{number}", tool_name="exec", tool_input='{"n": 1}')
            answer = f"result {number} of host-{number}"
            store.message(number + 1, conversation, "tool", answer, embedding=blob(1, 2, number))
            store.part(number + 1, 0, "text", text_content=answer, tool_call_id=f"c{number}", tool_name="exec")
        for leaf in range(0, 250, 10):
            store.leaf(
                f"s{first + leaf}", conversation, range(first + leaf, first + leaf + 10), f"Hosts from {leaf} on."
            )
        below = [f"s{first + leaf}" for leaf in range(0, 250, 10)]
        store.condensed(f"c{conversation}", conversation, below, "All the hosts.")
    return store


_KILLED = """
import os, signal, sys
from datetime import date
from rivet_pipeline.migration.lcm import migrate_lcm
at = int(sys.argv[3])
migrate_lcm(sys.argv[1], sys.argv[2], first_day=date(2022, 11, 1),
            progress=lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if done == at else None)
"""


def test_a_kill_in_the_middle_and_again_is_as_once(
    database_url: str, connection: Connection, server: EmbeddedServer, tmp_path: Path, other_database: str
) -> None:
    path = large().sqlite(tmp_path / "lcm.db")
    for at in (150, 500, 700):
        command = [sys.executable, "-c", _KILLED, database_url, str(path), str(at)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    partly = rows(connection, "SELECT count(*) FROM ros_messages")
    assert 0 < partly[0] < 390
    last = move(database_url, path)
    assert last.problems() == []
    assert last.messages.known > 0
    assert last.messages.new > 0
    assert once(server, other_database, path) == content(connection)


def once(server: EmbeddedServer, url: str, path: Path) -> dict[str, list[Any]]:
    """What one undisturbed migration comes to, in another database."""
    from rivet_pipeline.db.migrations import apply_migrations

    with connect(url) as other:
        apply_migrations(other)
        move(url, path)
        return content(other)


@pytest.mark.parametrize("fails_at", [1, 2, 4])
def test_a_store_that_fails_costs_a_line_and_nothing_else(
    database_url: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    path = with_vectors().sqlite(tmp_path / "lcm.db")
    calls: list[int] = []

    def failing(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == fails_at:
            raise psycopg.OperationalError("the server went away")
        return write_batch(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(lcm_messages, "write_batch", failing)
        with pytest.raises(StoreUnavailableError, match="Run it again: what was moved stays"):
            move(database_url, path)
    report = move(database_url, path)
    assert report.problems() == []
    assert report.messages.new + report.messages.known == 26
    assert rows(connection, "SELECT count(*) FROM ros_messages") == [27]


def test_a_message_that_the_store_refuses_does_not_stop_its_neighbours(
    database_url: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(connection: Connection, session: Any, items: Any, **options: Any) -> Any:
        if any(item.event_id == "lcm:5" for item in items):
            raise psycopg.errors.ProgramLimitExceeded("too much")
        return write_batch(connection, session, items, **options)

    monkeypatch.setattr(lcm_messages, "write_batch", refusing)
    report = move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    assert report.problems() == []
    assert (report.messages.new, report.messages.left_out.total()) == (25, 1)
    assert report.sources.left_out == {"its message was not moved": 1}


def damaged() -> LcmRows:
    store = sample()
    store.rows["messages"][3]["content"] = b"Step 4 in bytes \xff"
    store.rows["message_parts"][3]["text_content"] = b"Step 4 in bytes \xff"
    store.conversation(5, session_id="with\0nul", title="a\0b")
    store.message(57, 5, "assistant", "deep")
    store.part(57, 0, "tool", tool_name="deep", tool_input="[" * 700 + "]" * 700)
    store.message(58, 5, "user", "its neighbour")
    store.message(50, 2, "assistant", "with a call")
    store.part(50, 0, "tool", tool_name="exec", tool_input="{not json", metadata='{"raw":')
    store.message(51, 2, "user", None)
    store.message(52, 2, "user", "when was this", created_at="999999-99-99")
    store.message(53, 2, "user", "and this", created_at=-1)
    store.message(54, 99, "user", "the conversation of this word is gone")
    store.message(55, None, "user", "this word never had one")
    store.part(777, 0, "text", text_content="of no message")
    store.message(56, 2, "user", "NUL \0 and a lone \udc80".encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    store.conversation(3)
    store.leaf("sum_x", 1, [22], "raw words " * 30 + "\n[LCM fallback summary; truncated for context management]")
    store.leaf("sum_y", 1, [], "   ")
    store.leaf("sum_z", 1, [5, 24, 4711], "A late leaf.", created_at="2026-03-02 11:00:00")
    store.condensed("sum_w", 1, ["sum_a", "sum_z", "sum_nowhere"], "Another above.", created_at="2026-03-02 13:00:00")
    store.add("summary_parents", summary_id="sum_c", parent_summary_id="sum_e", ordinal=9)
    store.add("summary_parents", summary_id="sum_gone", parent_summary_id="sum_a", ordinal=0)
    store.add("summary_messages", summary_id="sum_gone", message_id=1, ordinal=0)
    store.add("large_files", file_id="file_ffffffffffffffff", conversation_id=1234, storage_uri="/x")
    return store


def test_damage_is_counted_and_stops_nothing(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = damaged().sqlite(tmp_path / "lcm.db")
    report = move(database_url, path)
    assert report.problems() == []
    assert report.conversations.left_out == {"no message in it": 1}
    assert report.messages.left_out == {"empty: no content and no part that says anything": 1}
    assert report.messages.notes == {
        "tool input is no JSON, or nested too deeply: kept as text": 2,
        "metadata of a part is no JSON, left out": 1,
        "time absent or absurd, placed by order": 2,
        "its conversation is missing, kept in one of its own": 2,
    }
    assert report.parts.left_out == {"its message is missing": 1}
    assert rows(connection, "SELECT content FROM ros_messages WHERE event_id = 'lcm:4'") == ["Step 4 in bytes \ufffd"]
    assert rows(connection, "SELECT event_id FROM ros_messages WHERE content = 'its neighbour'") == ["lcm:58"]
    assert report.files.left_out == {"its conversation is missing": 1}
    assert report.summaries.left_out == {
        "a cut text that stands for a summary: no model had answered": 1,
        "empty": 1,
    }
    assert report.sources.left_out == {
        "its summary was not moved, or is no leaf": 1,
        "its message was not moved": 1,
        "its message stands in an earlier leaf, noted in the metadata": 1,
        "its summary is missing": 1,
    }
    assert report.parents.left_out == {
        "a further parent, kept in the metadata": 1,
        "not from a lower level to a higher one": 1,
        "its summary was not moved, or is in another conversation": 1,
        "its summary is missing": 1,
    }
    tree = {row["metadata"]["lcm_id"]: row for row in content(connection)["summaries"]}
    assert tree["sum_a"]["metadata"]["lcm_parents"] == ["sum_w"]
    assert (tree["sum_z"]["sources"], tree["sum_z"]["parent"]) == (["lcm:24"], "sum_w")
    assert tree["sum_z"]["metadata"]["lcm_elsewhere"] == ["5"]
    keys = rows(connection, "SELECT session_key FROM ros_conversations ORDER BY 1")
    assert keys == ["lcm:99", "lcm:none", "lcm:session-1:1", "lcm:session-2:2", "lcm:with\ufffdnul:5"]
    order = rows(
        connection,
        """SELECT event_id FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
           WHERE c.session_key = 'lcm:session-2:2' ORDER BY m.created_at, m.seq""",
    )
    assert order == ["lcm:31", "lcm:32", "lcm:50", "lcm:50:0", "lcm:52", "lcm:53", "lcm:56"]
    when = connection.execute("SELECT created_at, metadata FROM ros_messages WHERE event_id = 'lcm:53'").fetchone()
    assert when is not None
    assert when["created_at"] == datetime(2026, 3, 2, 9, 0, 51, tzinfo=UTC)
    assert when["metadata"]["event_ts"] == "-1"
    moved = content(connection)
    again = move(database_url, path)
    assert again.problems() == []
    assert {name: tally.new for name, tally in again.kinds().items() if tally.new} == {}
    assert content(connection) == moved


def test_summaries_without_sources_do_not_fail_the_checks(
    database_url: str, connection: Connection, pool: Pool, tmp_path: Path
) -> None:
    store = sample()
    store.leaf("sum_l", 2, [], "Of messages that the source has lost.", model="unknown")
    store.condensed("sum_m", 2, [], "Of leaves that it has lost.")
    report = move(database_url, store.sqlite(tmp_path / "lcm.db"))
    assert (report.problems(), report.summaries.new) == ([], 7)
    assert rows(connection, "SELECT model FROM ros_summaries WHERE metadata ->> 'lcm_id' = 'sum_l'") == ["lcm"]
    for kind in ("leaf", "branch", "root"):
        assert orphan_summaries(connection, kind).at_fault == 0
    assert refine(pool, CountingSummarizer()) == 2


def test_what_the_pipeline_did_between_two_runs_stays(
    database_url: str, pool: Pool, connection: Connection, tmp_path: Path
) -> None:
    store = sample()
    bare = sample()
    for table in ("summaries", "summary_messages", "summary_parents"):
        bare.rows[table] = []
    move(database_url, bare.sqlite(tmp_path / "before.db"))
    refine(pool, CountingSummarizer())
    native = rows(connection, "SELECT count(*) FROM ros_summary_sources")
    report = move(database_url, store.sqlite(tmp_path / "after.db"))
    assert report.problems() == []
    assert report.summaries.new == 5
    assert report.sources.left_out == {"its message stands in an earlier leaf, noted in the metadata": 21}
    assert rows(connection, "SELECT count(*) FROM ros_summary_sources") == native


def test_a_store_that_has_grown_gives_what_is_new(database_url: str, connection: Connection, tmp_path: Path) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    grown = sample()
    grown.message(60, 1, "user", "One more thing about the registry.")
    grown.leaf("sum_f", 1, [23, 24, 60], "The end of it.", created_at="2026-03-03 10:00:00")
    grown.condensed("sum_g", 1, ["sum_e", "sum_f"], "All of it.", depth=4)
    report = move(database_url, grown.sqlite(tmp_path / "grown.db"))
    assert report.problems() == []
    assert [report.messages.new, report.summaries.new, report.sources.new, report.parents.new] == [1, 2, 3, 2]
    parent = "SELECT p.metadata ->> 'lcm_id' FROM ros_summaries AS s JOIN ros_summaries AS p ON p.id = s.parent_id "
    assert rows(connection, parent + "WHERE s.metadata ->> 'lcm_id' = 'sum_e'") == ["sum_g"]


def test_a_text_that_changed_in_the_source_is_kept_beside(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"))
    changed = sample()
    changed.rows["messages"][0]["content"] = "Step 1 was something else."
    changed.rows["message_parts"][0]["text_content"] = "Step 1 was something else."
    for _ in range(2):
        report = move(database_url, changed.sqlite(tmp_path / f"changed-{_}.db"))
        assert report.problems() == []
    found = rows(connection, "SELECT content FROM ros_messages WHERE metadata ->> 'lcm_id' = '1' ORDER BY seq")
    assert [text.split(":")[0] for text in found] == ["Step 1", "Step 1 was something else."]


def test_the_same_key_of_a_harness_is_one_conversation(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    store = LcmRows()
    for number in (1, 2):
        store.conversation(number, session_key="codex:9f", active=number == 2)
        store.message(number, number, "user", f"word {number}")
    path = store.sqlite(tmp_path / "lcm.db")
    first, again = move(database_url, path), move(database_url, path)
    assert (first.problems(), again.problems()) == ([], [])
    assert rows(connection, "SELECT session_key FROM ros_conversations") == ["codex:9f"]
    assert rows(connection, "SELECT active FROM ros_conversations") == [True]
    settings = rows(connection, "SELECT settings FROM ros_conversations")[0]
    assert sorted(settings) == ["lcm:1", "lcm:2"]


def test_vectors_of_every_spelling_and_of_every_damage(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    store = sample()
    spellings: list[Any] = [
        blob(1, 2, 3),
        "[1, 2, 3]",
        "[1,2,3]",
        b"[1,2,3]",
        blob(float("nan"), 1, 1),
        blob(0, 0, 0),
        blob(1, 2),
        b"\x01\x02\x03",
        "[1e30, 1, 1]",
        "[1, [2], 3]",
        "soon",
        "[]",
    ]
    for row, value in zip(store.rows["messages"], spellings, strict=False):
        row["embedding"] = value
    path = store.sqlite(tmp_path / "lcm.db")
    report = move(database_url, path, embedding_model="text-embedding-x")
    assert report.problems() == []
    tally = report.embeddings["text-embedding-x"]
    assert (tally.source, tally.new, tally.after) == (12, 4, 4)
    assert tally.left_out == {
        "not a number, or infinite": 1,
        "zero": 1,
        "not of the model's 3 dimensions": 1,
        "not readable as a vector": 3,
        "values too large to store": 1,
        "not between 1 and 4,000 dimensions": 1,
    }
    models = connection.execute("SELECT name, dimensions, filling, serving FROM ros_embedding_models").fetchall()
    assert models == [{"name": "text-embedding-x", "dimensions": 3, "filling": False, "serving": False}]
    again = move(database_url, path, embedding_model="text-embedding-x")
    assert (again.problems(), again.embeddings["text-embedding-x"].known) == ([], 4)


def test_the_vector_of_a_result_stands_for_its_part_of_the_calls_row(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    move(database_url, with_vectors().sqlite(tmp_path / "lcm.db"))
    found = {
        (row["owner"], row["chunk"]): row for row in content(connection)["embeddings"] if row["owner"][:6] == "lcm:21"
    }
    assert set(found) == {("lcm:21", 0), ("lcm:21:2", 1)}
    result = found["lcm:21:2", 1]
    assert (result["vector"], result["char_start"], result["char_end"]) == (
        "[1,0.5,22]",
        1,
        1 + len("sha256:feedbeef zanzibar-digest"),
    )
    assert (found["lcm:21", 0]["char_start"], found["lcm:21", 0]["char_end"]) == (0, len("I look at the manifest."))
    assert all(row["current"] for row in content(connection)["embeddings"])


def test_the_vectors_of_the_extension_are_read_without_it(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = sample().sqlite(tmp_path / "lcm.db")
    vectors = [
        (name, (1.0, float(place), 0.5)) for place, name in enumerate(["sum_a", "sum_b", "sum_c", "sum_d", "sum_e"])
    ]
    vector_tables(path, "voyage-4-large", [*vectors, ("entity-7", (1.0, 1.0, 1.0))])
    report = move(database_url, path)
    assert report.problems() == []
    assert figures(report.embeddings["voyage-4-large"]) == (6, 0, 5, 0, 1, 5)
    moved = {row["owner"]: row["vector"] for row in content(connection)["embeddings"]}
    assert moved == {name: f"[1,{vector[1]:g},0.5]" for name, vector in vectors}
    assert move(database_url, path).embeddings["voyage-4-large"].known == 5


def test_a_dry_run_tells_and_changes_nothing(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = with_vectors().sqlite(tmp_path / "lcm.db")
    planned = move(database_url, path, dry_run=True)
    assert planned.problems() == []
    assert all(found == [] for found in content(connection).values())
    assert rows(connection, "SELECT count(*) FROM ros_embedding_models") == [0]
    done = move(database_url, path)
    assert {n: (t.new, t.known) for n, t in planned.kinds().items()} == {
        n: (t.new, t.known) for n, t in done.kinds().items()
    }
    again = move(database_url, path, dry_run=True)
    assert {name: tally.known for name, tally in again.kinds().items()} == {n: t.new for n, t in done.kinds().items()}


def test_the_agent_that_was_named_gets_everything(database_url: str, connection: Connection, tmp_path: Path) -> None:
    move(database_url, sample().sqlite(tmp_path / "lcm.db"), agent="archive")
    assert rows(connection, "SELECT DISTINCT agent FROM ros_messages") == ["archive"]
    assert rows(connection, "SELECT DISTINCT agents FROM ros_summaries") == [["archive"]]


def test_a_smaller_and_older_schema_is_moved_too(database_url: str, connection: Connection, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "old.db"
    with sqlite3.connect(path) as old:
        old.executescript(
            """
            CREATE TABLE conversations (conversation_id INTEGER PRIMARY KEY, session_id TEXT);
            CREATE TABLE messages (message_id INTEGER PRIMARY KEY, conversation_id INTEGER, seq INTEGER, role TEXT,
                                   content TEXT, created_at INTEGER);
            CREATE TABLE summaries (summary_id TEXT, conversation_id INTEGER, kind TEXT, content TEXT);
            CREATE TABLE summary_messages (summary_id TEXT, message_id INTEGER, ordinal INTEGER);
            INSERT INTO conversations VALUES (1, 's');
            INSERT INTO messages VALUES (1, 1, 1, 'user', 'in milliseconds', 1772442000000);
            INSERT INTO summaries VALUES ('l', 1, 'leaf', 'A leaf.');
            INSERT INTO summary_messages VALUES ('l', 1, 0);
            """
        )
    old.close()
    report = move(database_url, path)
    assert (report.problems(), report.sources.new) == ([], 1)
    assert rows(connection, "SELECT created_at FROM ros_messages") == [datetime(2026, 3, 2, 9, tzinfo=UTC)]


def call(url: str, path: Path | str, **options: Any) -> int:
    return run_migration(url, str(path), first_day=FIRST_DAY, **options)


def test_the_command_prints_counts_and_reasons(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(database_url, damaged().sqlite(tmp_path / "lcm.db")) == 0
    printed = capsys.readouterr()
    lines = [" ".join(line.replace("│", " ").split()) for line in printed.out.splitlines()]
    assert "messages 35 0 34 0 1 34" in lines
    assert "messages left out: empty: no content and no part that says anything (1)" in lines
    assert "messages mended: time absent or absurd, placed by order (2)" in lines
    assert printed.err == ""


def test_json_is_the_only_thing_on_stdout(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(database_url, sample().sqlite(tmp_path / "lcm.db"), as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    assert found["kinds"]["messages"]["new"] == 26
    assert found["kinds"]["summary_sources"]["after"] == 21


def test_counts_that_do_not_add_up_end_with_1(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take: Callable[..., Any] = ConversationMapper.take

    def losing(self: Any, message: Any, parts: Any, created_at: Any) -> Any:
        outcome = take(self, message, parts, created_at)
        return outcome if message["message_id"] != 3 else type(outcome)((), outcome.main, outcome.rows)

    monkeypatch.setattr(ConversationMapper, "take", losing)
    assert call(database_url, sample().sqlite(tmp_path / "lcm.db")) == 1
    assert "does not add up: messages: the memory holds 25 of them now, not 0 + 26 = 26." in capsys.readouterr().err


def test_known_messages_do_not_make_a_conversation_young_again(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = sample().sqlite(tmp_path / "lcm.db")
    for _ in range(2):
        move(database_url, path)
        latest = rows(connection, "SELECT max(updated_at) FROM ros_conversations")[0]
        assert latest == datetime(2026, 3, 2, 9, 0, 32, tzinfo=UTC)
    assert datetime.now(UTC) - latest > timedelta(days=1)


def test_vectors_of_the_model_in_use_need_not_be_made_again(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    register_model(connection, name="in-use", width=3)
    store = with_vectors()
    path = store.sqlite(tmp_path / "lcm.db")
    assert move(database_url, path, embedding_model="in-use").embeddings["in-use"].new == 31
    models = connection.execute("SELECT name, filling, serving FROM ros_embedding_models").fetchall()
    assert models == [{"name": "in-use", "filling": True, "serving": True}]
    # A thought has no vector in LCM, so it alone is left to embed; the call's row has that of its result.
    pending = "SELECT m.event_id FROM ros_pending_message_embeddings AS p JOIN ros_messages AS m ON m.id = p.id"
    assert rows(connection, pending) == ["lcm:21:0"]
    assert rows(connection, "SELECT count(*) FROM ros_pending_summary_embeddings") == [0]
