"""What has gone wrong for others who capture transcripts, each with the value that is right, through the real store."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rivet_pipeline.assets.partitions import conversation_days
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.embedding.compose import compose_message
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.retrieval.windows import resolve_window
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord

FIRST_DAY = date(2022, 11, 1)
NOW = datetime.now(UTC).replace(microsecond=0)


def user(number: int, text: str, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"{session}-{number}",
        "parentUuid": f"{session}-{number - 1}" if number > 1 else None,
        "sessionId": session,
        "isSidechain": False,
        "cwd": "/work",
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "message": {"role": "user", "content": text},
        **more,
    }


def lay(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bring_in(url: str, *paths: Path) -> dict[str, int]:
    return import_paths(url, paths, first_day=FIRST_DAY, max_line=1 << 24).messages()


def texts(connection: Connection) -> list[str]:
    return [row["content"] for row in connection.execute("SELECT content FROM ros_messages ORDER BY created_at, seq")]


def say(connection: Connection, text: str, when: datetime | None = None, session: str = "s:1") -> None:
    write_batch(
        connection,
        SessionRecord(session, "a", "test"),
        [MessageRecord(f"{session}-{text[:50]}-{when}", "user", text, created_at=when)],
        first_day=FIRST_DAY,
    )


def find(connection: Connection, query: str) -> list[str]:
    return [hit.content for hit in search(connection, SearchRequest(query), embed_query=None).hits]


def test_a_parent_that_was_never_written_loses_no_row(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    rows = [user(1, "one"), user(2, "two", parentUuid="0b5f9d8e-0000-4000-8000-000000000000"), user(3, "three")]
    bring_in(database_url, lay(tmp_path / "a.jsonl", *rows))
    assert texts(connection) == ["one", "two", "three"]


def test_two_folders_of_one_spelling_are_two_projects(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "-x-a-b"
    lay(folder / "one.jsonl", user(1, "first", "p1", cwd="/x/a-b"))
    lay(folder / "two.jsonl", user(1, "second", "p2", cwd="/x/a/b"))
    bring_in(database_url, folder)
    found = connection.execute("SELECT session_key, settings ->> 'cwd' AS cwd FROM ros_conversations").fetchall()
    assert {row["session_key"]: row["cwd"] for row in found} == {
        "claude-code:p1": "/x/a-b",
        "claude-code:p2": "/x/a/b",
    }


def test_sessions_without_a_pointer_to_each_other_stay_separate(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    lay(tmp_path / "a.jsonl", user(1, "before /clear", "one"))
    lay(tmp_path / "b.jsonl", user(1, "after /clear", "two"))
    bring_in(database_url, tmp_path)
    assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 2}


def test_a_call_whose_file_was_cut_keeps_open_until_its_result_comes(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a listing"}
    rows = [
        user(1, "list it"),
        user(2, "", type="assistant", message={"role": "assistant", "content": [call]}),
        user(3, "", message={"role": "user", "content": [result]}),
    ]
    path = lay(tmp_path / "a.jsonl", *rows[:2])
    bring_in(database_url, path)
    question = "SELECT tool_name, tool_result FROM ros_messages WHERE role = 'tool'"
    assert connection.execute(question).fetchall() == [{"tool_name": "Bash", "tool_result": None}]
    lay(path, *rows)
    bring_in(database_url, path)
    assert connection.execute(question).fetchall() == [{"tool_name": "Bash", "tool_result": "a listing"}]


def codex_turn(number: int, at: datetime) -> list[dict[str, Any]]:
    return [
        {
            "timestamp": at.isoformat().replace("+00:00", "Z"),
            "type": "response_item",
            "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": f"{word} {number}"}]},
        }
        for role, kind, word in (("user", "input_text", "question"), ("assistant", "output_text", "answer"))
    ]


def test_a_forks_copied_history_adds_no_turn(database_url: str, connection: Connection, tmp_path: Path) -> None:
    parent, child = "019fc8be-0000-7ca3-9e29-000000000001", "019fc8be-0000-7ca3-9e29-000000000002"
    start = datetime(2026, 3, 1, 9, tzinfo=UTC)
    later = start + timedelta(hours=5)

    def meta(native: str, at: datetime, **more: Any) -> dict[str, Any]:
        stamp = at.isoformat().replace("+00:00", "Z")
        return {"timestamp": stamp, "type": "session_meta", "payload": {"id": native, "timestamp": stamp, **more}}

    parents_turns = [row for n in (1, 2, 3) for row in codex_turn(n, start + timedelta(minutes=n))]
    copied = [row for n in (1, 2, 3) for row in codex_turn(n, later)]
    own = codex_turn(4, later + timedelta(minutes=2))
    lay(tmp_path / f"rollout-a-{parent}.jsonl", meta(parent, start), *parents_turns)
    lay(tmp_path / f"rollout-b-{child}.jsonl", meta(child, later, forked_from_id=parent), *copied, *own)
    bring_in(database_url, tmp_path)
    totals = collect_stats(connection).figures["totals"]
    assert (totals["turns"], totals["replays"]) == (4, 6)
    assert sorted(text for text in find(connection, "question 2") if "2" in text) == ["answer 2", "question 2"]
    settings = connection.execute(
        "SELECT settings FROM ros_conversations WHERE session_key = %s", [f"codex:{child}"]
    ).fetchone()
    assert settings is not None
    assert settings["settings"]["parent_session_id"] == parent


def test_a_clock_that_is_years_ahead_wins_nothing(connection: Connection) -> None:
    say(connection, "deploy notes of today", NOW - timedelta(hours=1))
    say(connection, "deploy notes from 2031", datetime(2031, 1, 1, tzinfo=UTC), session="s:2")
    say(connection, "deploy notes from the far end", datetime(9999, 12, 31, tzinfo=UTC), session="s:3")
    rows = connection.execute("SELECT max(created_at) AS newest, max(updated_at) AS active FROM ros_conversations")
    found = rows.fetchone()
    assert found is not None
    assert found["active"] <= datetime.now(UTC)
    flagged = connection.execute(
        "SELECT metadata ->> 'event_ts' AS said FROM ros_messages WHERE metadata ? 'event_ts' ORDER BY seq"
    ).fetchall()
    assert [row["said"][:4] for row in flagged] == ["2031", "9999"]


def test_a_session_without_times_is_from_when_its_file_was_written(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    rows = [{"role": "user", "message": {"content": [{"type": "text", "text": f"line {n}"}]}} for n in range(3)]
    path = lay(tmp_path / "agent-transcripts" / "c1.jsonl", *rows)
    then = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
    os.utime(path, (then.timestamp(), then.timestamp()))
    bring_in(database_url, path)
    assert texts(connection) == ["line 0", "line 1", "line 2"]
    assert connection.execute("SELECT day FROM ros_conversations").fetchone() == {"day": then.date()}


def test_what_stands_before_the_first_time_stays_before_it(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    rows = [user(1, "undated", timestamp=None), user(2, "dated"), user(3, "later")]
    bring_in(database_url, lay(tmp_path / "a.jsonl", *rows))
    assert texts(connection) == ["undated", "dated", "later"]


@pytest.mark.parametrize(
    ("day", "hours"),
    [(date(2026, 3, 8), 23), (date(2026, 11, 1), 25), (date(2026, 7, 1), 24)],
)
def test_a_days_messages_add_up_whatever_the_clocks_do(connection: Connection, day: date, hours: int) -> None:
    zone = ZoneInfo("America/New_York")
    noon_after = datetime(day.year, day.month, day.day, 12, tzinfo=zone) + timedelta(days=1)
    window = resolve_window("yesterday", zone=zone.key, now=noon_after)
    assert window.before is not None
    assert window.before - window.since == timedelta(hours=hours)
    inside = [window.since, window.before - timedelta(seconds=1)]
    outside = [window.since - timedelta(seconds=1), window.before]
    for number, moment in enumerate([*inside, *outside]):
        say(connection, f"word {number}", moment)
    counted = connection.execute(
        "SELECT array_agg(content ORDER BY seq) AS texts FROM ros_messages WHERE created_at >= %s AND created_at < %s",
        [window.since, window.before],
    ).fetchone()
    assert counted == {"texts": ["word 0", "word 1"]}


def test_every_instant_belongs_to_exactly_one_partition(connection: Connection) -> None:
    twice = [datetime.fromisoformat(f"2026-11-01T01:30:00{offset}") for offset in ("-04:00", "-05:00")]
    for number, moment in enumerate([*twice, datetime.fromisoformat("2026-10-31T23:59:59.999999-00:00")]):
        say(connection, "x", moment, session=f"s:{number}")
    days = connection.execute("SELECT day FROM ros_conversations ORDER BY session_key").fetchall()
    assert [row["day"] for row in days] == [date(2026, 11, 1), date(2026, 11, 1), date(2026, 10, 31)]
    keys = conversation_days.get_partition_keys()
    assert len(keys) == len(set(keys))
    assert all(keys.count(row["day"].isoformat()) == 1 for row in days)


def test_half_a_character_is_no_one_elses_trouble(connection: Connection, pool: Pool) -> None:
    for number in range(10):
        say(
            connection, f"We decided number {number}: 현\ud99c stays with \x00 in \U0001f600 it", NOW, f"s:{number % 1}"
        )
    assert all("\ufffd" in text and "\U0001f600" in text for text in texts(connection))
    hits = find(connection, "decided 현")
    assert hits
    report = summarize_leaves(pool, days=None, summarizer=ExtractiveSummarizer())
    summary = connection.execute("SELECT content FROM ros_summaries").fetchone()
    assert (report.rows, summary is not None) == (1, True)
    assert summary is not None
    composed = compose_message(texts(connection)[0], None, None, None).text
    for text in (*hits, summary["content"], composed):
        assert text.encode("utf-8").decode("utf-8") == text
        assert not any(0xD800 <= ord(character) <= 0xDFFF for character in json.loads(json.dumps(text)))
    assert WordLlamaEmbedder().embed([summary["content"]]).shape[0] == 1
