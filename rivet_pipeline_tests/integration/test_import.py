"""Importing files into a real store: counts, idempotence, resumption, damage, bounded memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.readers import claude_code
from rivet_pipeline.transcripts.reports import ImportReport

FIRST_DAY = date(2022, 11, 1)
MAX_LINE = 64 * 1024 * 1024


def user(number: int, text: str | None = None, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"{session}-u{number}",
        "sessionId": session,
        "isSidechain": False,
        "cwd": "/app",
        "timestamp": f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
        "message": {"role": "user", "content": text or f"prompt {number}"},
        **more,
    }


def call(number: int, tool: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": tool, "name": "Bash", "input": {"command": "ls"}}
    return {**user(number), "type": "assistant", "message": {"role": "assistant", "content": [block]}}


def result(number: int, tool: str, text: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool, "content": text}
    return user(number, message={"role": "user", "content": [block]})


def write(path: Path, *rows: dict[str, Any], end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows) + end)
    return path


def run(store: str | Pool, *paths: Path, **more: Any) -> ImportReport:
    return import_paths(store, paths, first_day=FIRST_DAY, max_line=more.pop("max_line", MAX_LINE), **more)


def texts(connection: Connection, session: str = "claude-code:s1") -> list[str]:
    rows = connection.execute(
        """
        SELECT content FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
        WHERE c.session_key = %s ORDER BY m.created_at, m.seq
        """,
        [session],
    ).fetchall()
    return [row["content"] for row in rows]


def test_a_second_import_reads_nothing_and_adds_nothing(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    write(tmp_path / "a.jsonl", user(1), call(2, "t1"), result(3, "t1", "files"), {"type": "mode"})
    first = run(database_url, tmp_path)
    second = run(database_url, tmp_path)
    assert first.messages() == {"new": 2, "known": 0, "damaged": 0, "skipped": 1}
    assert second.messages() == {"new": 0, "known": 2, "damaged": 0, "skipped": 1}
    assert (first.count("read"), second.count("unchanged")) == (1, 1)
    assert second.as_json()["files"] == 1
    assert second.as_json()["conversations"] == 1
    row = connection.execute("SELECT tool_result, tool_args FROM ros_messages WHERE role = 'tool'").fetchone()
    assert row == {"tool_result": "files", "tool_args": {"command": "ls"}}


def test_a_touched_file_is_read_again_and_its_messages_are_known(database_url: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", user(1), call(2, "t1"), result(3, "t1", "files"), result(4, "gone", "orphan"))
    first = run(database_url, path)
    os.utime(path, (1, 1))
    second = run(database_url, path)
    assert first.messages()["new"] == 3
    assert second.count("read") == 1
    assert (second.messages()["new"], second.messages()["known"]) == (0, 3)


def test_a_result_in_a_later_import_reaches_its_call(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", user(1), call(2, "t1"))
    run(database_url, path)
    write(path, user(1), call(2, "t1"), result(3, "t1", "late"))
    report = run(database_url, path)
    assert report.messages()["new"] == 0
    assert connection.execute("SELECT tool_result FROM ros_messages WHERE role = 'tool'").fetchall() == [
        {"tool_result": "late"}
    ]


def test_half_a_last_line_is_read_once_it_is_whole(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole, half = json.dumps(user(1)), json.dumps(user(2))
    path.write_text(whole + "\n" + half[:40])
    first = run(database_url, path)
    again = run(database_url, path)
    path.write_text(whole + "\n" + half)
    last = run(database_url, path)
    assert [report.count("incomplete") for report in (first, again, last)] == [1, 1, 0]
    assert [report.messages()["new"] for report in (first, again, last)] == [1, 0, 1]
    assert [report.messages()["damaged"] for report in (first, again, last)] == [0, 0, 0]
    assert texts(connection) == ["prompt 1", "prompt 2"]


def test_the_history_written_again_at_every_turn_is_stored_once(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", *[user(1), user(2), user(3)] * 3)
    assert run(database_url, path).messages() == {"new": 3, "known": 6, "damaged": 0, "skipped": 0}
    assert texts(connection) == ["prompt 1", "prompt 2", "prompt 3"]


def test_an_id_that_comes_back_with_other_words_keeps_both(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", user(1, "first words"), user(1, "other words"))
    assert run(database_url, path).messages()["new"] == 2
    assert sorted(texts(connection)) == ["first words", "other words"]


def test_damage_is_counted_by_reason_and_its_neighbours_are_stored(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    one, two, three, four = (json.dumps(user(number)).encode() for number in (1, 2, 3, 4))
    long = json.dumps(user(9, "x" * 20_000)).encode()
    path.write_bytes(b"\n".join([one[:70] + two, b"\x00" * 300 + three, long, b"[1]", b"oops", four]) + b"\n")
    report = run(database_url, path, max_line=10_000)
    assert report.reasons("damaged") == {"cut short": 1, "line too long": 1, "not an object": 1, "not JSON": 1}
    assert texts(connection) == ["prompt 2", "prompt 3", "prompt 4"]
    assert run(database_url, path, max_line=10_000).count("unchanged") == 1
    assert run(database_url, path, max_line=100_000).messages()["new"] == 1


def test_unstorable_characters_do_not_stop_a_file(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(user(1, "nul \x00, half \ud83d, pair \U0001f600")).encode() + b"\n")
    assert run(database_url, path).messages()["new"] == 1
    assert texts(connection) == ["nul \ufffd, half \ufffd, pair \U0001f600"]


def test_many_conversations_in_one_file_keep_their_order(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    rows = [user(number, session=f"s{number % 90}") for number in range(900)]
    report = run(database_url, write(tmp_path / "a.jsonl", *rows))
    assert len(report.conversations) == 90
    assert report.messages()["new"] == 900
    assert texts(connection, "claude-code:s7") == [f"prompt {number}" for number in range(7, 900, 90)]


def test_titles_settings_and_days_of_conversations(database_url: str, connection: Connection, tmp_path: Path) -> None:
    sub_agent = {**user(86_399, "look around"), "isSidechain": True, "uuid": "x", "agentId": "7"}
    sub_agent["timestamp"] = "2026-01-05T00:00:00Z"
    write(tmp_path / "s1" / "subagents" / "agent-7.jsonl", sub_agent)
    path = write(tmp_path / "s1.jsonl", user(1, "  fix \n the parser "), {"type": "pr-link", "prUrl": "https://x/1"})
    run(database_url, tmp_path)
    row = connection.execute("SELECT title, day, agent, channel, settings FROM ros_conversations").fetchone()
    assert row == {
        "title": "fix the parser",
        "day": date(2026, 1, 1),
        "agent": "rivet-claude",
        "channel": "claude-code",
        "settings": {
            "source": "claude-code",
            "session_id": "s1",
            "cwd": "/app",
            "project": "app",
            "file": str(path),
            "pr_url": "https://x/1",
        },
    }
    assert texts(connection)[-1] == "look around"


def test_a_title_alone_makes_no_conversation(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"type": "ai-title", "aiTitle": "Nothing said", "sessionId": "s9"})
    assert run(database_url, path).messages()["new"] == 0
    assert connection.execute("SELECT 1 FROM ros_conversations").fetchall() == []


def test_another_agent_name_makes_other_conversations(pool: Pool, connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", user(1))
    run(pool, path)
    assert run(pool, path, agent="mine").messages()["new"] == 1
    agents = connection.execute("SELECT agent FROM ros_conversations ORDER BY agent").fetchall()
    assert [row["agent"] for row in agents] == ["mine", "rivet-claude"]


def test_folders_links_loops_and_strangers(database_url: str, tmp_path: Path) -> None:
    write(tmp_path / "p" / "a.jsonl", user(1))
    (tmp_path / "p" / "again").symlink_to(tmp_path / "p")
    (tmp_path / "p" / "copy.jsonl").symlink_to(tmp_path / "p" / "a.jsonl")
    (tmp_path / "p" / "nowhere.jsonl").symlink_to(tmp_path / "missing")
    (tmp_path / "p" / "notes.txt").write_text("not a transcript")
    (tmp_path / "p" / "other.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "p" / "empty.jsonl").touch()
    os.mkfifo(tmp_path / "p" / "pipe.jsonl")
    report = run(database_url, tmp_path / "p", tmp_path / "p" / "a.jsonl", tmp_path / "absent")
    assert report.as_json()["files_detail"] == {
        "read": 1,
        "unchanged": 0,
        "incomplete": 0,
        "passed_over": 0,
        "not_transcripts": 3,
        "unreadable": 1,
        "missing": 1,
    }
    assert report.messages()["new"] == 1


def test_a_vanished_source_takes_nothing_with_it(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", user(1))
    run(database_url, tmp_path)
    path.unlink()
    assert run(database_url, tmp_path).transcripts == 0
    assert texts(connection) == ["prompt 1"]


def test_progress_ends_at_the_total(database_url: str, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", user(1), user(2))
    (tmp_path / "b.txt").write_text("other")
    seen: list[tuple[str, int, int]] = []
    run(database_url, tmp_path, progress=lambda path, done, total: seen.append((path.name, done, total)))
    assert seen[-1][1] == seen[-1][2] == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_failing_store_is_said_in_one_line(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", user(1))
    connection.execute("DROP TABLE ros_import_files")
    with pytest.raises(StoreUnavailableError, match="import stopped because the store failed") as raised:
        run(database_url, path)
    assert "\n" not in str(raised.value)


CHILD = """
import sys
from datetime import date
from pathlib import Path
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.readers import claude_code

def show(path, done, total):
    print(done, flush=True)

import_paths(sys.argv[1], [Path(sys.argv[2])], first_day=date(2022, 11, 1), max_line=1 << 26, progress=show)
"""


def test_an_import_killed_in_mid_file_goes_on_where_it_was(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    count = 6_000
    path = write(tmp_path / "a.jsonl", *[user(number, f"prompt {number} " + "word " * 60) for number in range(count)])
    child = subprocess.Popen([sys.executable, "-c", CHILD, database_url, str(path)], stdout=subprocess.PIPE)
    stored = 0
    deadline = time.monotonic() + 60
    while stored < 400 and time.monotonic() < deadline:
        row = connection.execute("SELECT count(*) AS stored FROM ros_messages").fetchone()
        assert row is not None
        stored = row["stored"]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
    landed = len(texts(connection))
    assert 400 <= landed < count
    report = run(database_url, path)
    # The transaction that was open at the kill may have been committed by the server afterwards.
    assert report.messages()["new"] + report.messages()["known"] == count
    assert report.messages()["known"] >= landed
    assert len(texts(connection)) == len(set(texts(connection))) == count
    assert run(database_url, path).messages() == {"new": 0, "known": count, "damaged": 0, "skipped": 0}


MEASURE = r"""
import re, sys
from datetime import date
from pathlib import Path
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.readers import claude_code

def peak():
    # The high-water mark of this program alone; ru_maxrss begins with that of the one that started it.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

def run(path, limit):
    return import_paths(sys.argv[1], [Path(path)], first_day=date(2022, 11, 1), max_line=limit)

run(sys.argv[2], 1 << 20)
before = peak()
report = run(sys.argv[3], 1 << 20)
print(peak() - before, report.messages()["new"], report.messages()["damaged"])
"""


def test_a_line_of_20_mb_over_the_limit_costs_no_memory(database_url: str, tmp_path: Path) -> None:
    small = write(tmp_path / "small.jsonl", user(1, session="other"), user(2, session="other"))
    big = write(tmp_path / "big.jsonl", user(1), user(2, "x" * 20_000_000), user(3))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, database_url, str(small), str(big)], capture_output=True, text=True, check=True
    )
    grown_kb, new, damaged = (int(part) for part in done.stdout.split())
    assert (new, damaged) == (2, 1)
    assert grown_kb < 8_000


def test_a_line_of_20_mb_within_the_limit_is_stored(database_url: str, connection: Connection, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", user(1), user(2, "word " * 4_000_000), user(3))
    assert run(database_url, path).messages()["new"] == 3
    assert [len(text) for text in texts(connection)] == [8, 20_000_000, 8]


@pytest.mark.parametrize("harness", ["claude-code", "codex"])
def test_every_sample_imports_and_a_second_import_adds_nothing(
    harness: str, shared_data: Path, database_url: str, connection: Connection
) -> None:
    folder = shared_data / "transcripts" / harness
    samples = sorted(folder.rglob("*.jsonl"))
    first = run(database_url, folder)
    assert first.transcripts == len(samples) > 0
    assert {file.harness for file in first.files if file.harness} == {harness}
    assert first.messages()["new"] > 100
    second = run(database_url, folder)
    assert second.count("unchanged") == len(samples)
    connection.execute("TRUNCATE ros_import_files")
    third = run(database_url, folder)
    assert third.count("read") == len(samples)
    assert second.messages()["new"] == third.messages()["new"] == 0
    stored = connection.execute("SELECT count(*) AS stored FROM ros_messages").fetchone()
    assert stored == {"stored": first.messages()["new"]}


@pytest.mark.parametrize("depth", [90, 300, 480, 700, 900, 960, 3_000])
def test_no_depth_of_a_value_stops_an_import(
    database_url: str, connection: Connection, tmp_path: Path, depth: int
) -> None:
    row = call(1, "t1")
    row["message"]["content"][0]["input"] = "@"
    text = json.dumps(row).replace('"@"', '{"d": ' + "[" * depth + '"innermost"' + "]" * depth + "}")
    (tmp_path / "a.jsonl").write_text(text + "\n" + json.dumps(user(2)) + "\n")
    write(tmp_path / "b.jsonl", user(1, session="s2"))
    report = run(database_url, tmp_path)
    assert texts(connection)[-1] == "prompt 2"
    assert texts(connection, "claude-code:s2") == ["prompt 1"]
    stored = connection.execute("SELECT tool_args::text AS args FROM ros_messages WHERE role = 'tool'").fetchone()
    if report.reasons("damaged"):
        assert report.reasons("damaged") == {"nested too deeply": 1}
    else:
        assert stored is not None
        assert "innermost" in stored["args"]


def test_a_defect_of_a_reader_costs_one_file(
    database_url: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, line: Any) -> Any:
        if line.value.get("uuid") == "s1-u2":
            raise RuntimeError("nobody thought of this")
        return real(self, line)

    real = claude_code._Transcript.take
    monkeypatch.setattr(claude_code._Transcript, "take", broken)
    write(tmp_path / "a.jsonl", user(1), user(2), user(3))
    write(tmp_path / "b.jsonl", user(1, session="s2"))
    report = run(database_url, tmp_path)
    assert [(file.status, file.problem) for file in report.files] == [
        ("unreadable", "RuntimeError: nobody thought of this"),
        ("read", None),
    ]
    assert texts(connection) == ["prompt 1"]
    assert texts(connection, "claude-code:s2") == ["prompt 1"]
