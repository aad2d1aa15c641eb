"""Following sessions while they are written, into a real store that comes and goes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.transcripts import watch as module
from rivet_pipeline.transcripts.importer import Importer, import_paths
from rivet_pipeline.transcripts.reports import FileReport
from rivet_pipeline.transcripts.watch import Watcher, watch

FIRST_DAY = date(2022, 11, 1)
MAX_LINE = 1 << 20


def row(number: int, text: str | None = None) -> bytes:
    value = {
        "type": "user",
        "uuid": f"u{number}",
        "sessionId": "s1",
        "isSidechain": False,
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "message": {"role": "user", "content": text or f"prompt {number}"},
    }
    return json.dumps(value).encode() + b"\n"


def append(path: Path, *parts: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(b"".join(parts))


def texts(connection: Connection) -> list[str]:
    return [
        found["content"] for found in connection.execute("SELECT content FROM ros_messages ORDER BY created_at, seq")
    ]


class Watch:
    """A watcher over one folder, what it reported, and a store that can be taken away."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.reports: list[FileReport] = []
        self.connections: list[Connection] = []
        self.away = False
        self.watcher = Watcher(self.connect, lambda _: [folder], self.importer, self.reports.append)

    def connect(self) -> Connection:
        if self.away:
            raise StoreUnavailableError("the store is away.")
        self.connections.append(connect(self.url))
        return self.connections[-1]

    def importer(self, connection: Connection) -> Importer:
        return Importer(connection, first_day=FIRST_DAY, max_line=MAX_LINE)

    def look(self) -> list[FileReport]:
        self.reports.clear()
        self.watcher.look()
        return list(self.reports)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "sessions"
    made.mkdir()
    return made


@pytest.fixture
def watched(database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(module, "_WALK_SECONDS", 0.0)
    monkeypatch.setattr(module, "_WALK_SHARE", float("inf"))
    made = Watch(database_url, folder)
    yield made
    made.watcher.close()


def test_only_what_is_new_is_read_and_stored(watched: Watch, folder: Path, connection: Connection) -> None:
    path = folder / "a.jsonl"
    append(path, row(1), row(2))
    assert [report.new for report in watched.look()] == [2]
    assert watched.look() == []
    append(path, row(3))
    (report,) = watched.look()
    assert (report.new, report.known) == (1, 0)
    assert texts(connection) == ["prompt 1", "prompt 2", "prompt 3"]


def test_half_a_line_waits_for_its_end(watched: Watch, folder: Path, connection: Connection) -> None:
    path = folder / "a.jsonl"
    append(path, row(1), row(2)[:40])
    watched.look()
    assert texts(connection) == ["prompt 1"]
    append(path, row(2)[40:60])
    assert watched.look() == []
    append(path, row(2)[60:])
    assert [report.new for report in watched.look()] == [1]
    assert texts(connection) == ["prompt 1", "prompt 2"]


def test_a_new_file_is_found(watched: Watch, folder: Path, connection: Connection) -> None:
    watched.look()
    (folder / "deep").mkdir()
    append(folder / "deep" / "b.jsonl", row(7))
    assert [report.new for report in watched.look()] == [1]


@pytest.mark.parametrize("how", ["in place", "by another file", "shorter"])
def test_a_rewritten_file_is_read_anew(watched: Watch, folder: Path, connection: Connection, how: str) -> None:
    path = folder / "a.jsonl"
    append(path, row(1), row(2))
    watched.look()
    if how == "by another file":
        append(folder / "new", row(1), row(8), row(9), row(10))
        (folder / "new").replace(path)
    elif how == "in place":
        path.write_bytes(row(8) + row(9, "much longer than what stood there before") + row(10))
    else:
        path.write_bytes(row(9))
    watched.look()
    assert "prompt 2" in texts(connection)
    assert any("prompt 9" in text or "much longer" in text for text in texts(connection))
    append(path, row(11))
    watched.look()
    assert texts(connection)[-1] == "prompt 11"
    assert len(texts(connection)) == len(set(texts(connection)))


def test_a_file_that_goes_away_takes_nothing_with_it(watched: Watch, folder: Path, connection: Connection) -> None:
    path = folder / "a.jsonl"
    append(path, row(1))
    watched.look()
    path.unlink()
    assert watched.look() == []
    append(path, row(1), row(2))
    watched.look()
    assert texts(connection) == ["prompt 1", "prompt 2"]


def test_a_store_that_is_away_costs_no_message(watched: Watch, folder: Path, connection: Connection) -> None:
    path = folder / "a.jsonl"
    append(path, row(1))
    watched.look()
    watched.away = True
    watched.connections[-1].close()
    append(path, row(2))
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="away"):
            watched.look()
    append(path, row(3))
    watched.away = False
    assert [(report.new, report.known) for report in watched.look()] == [(2, 1)]
    assert texts(connection) == ["prompt 1", "prompt 2", "prompt 3"]


def test_a_connection_that_breaks_in_the_middle_is_made_again(
    watched: Watch, folder: Path, connection: Connection
) -> None:
    path = folder / "a.jsonl"
    append(path, row(1))
    watched.look()
    pid = watched.connections[-1].info.backend_pid
    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
    append(path, row(2))
    with pytest.raises(StoreUnavailableError):
        watched.look()
    watched.look()
    assert texts(connection) == ["prompt 1", "prompt 2"]


def test_what_was_stored_before_is_not_read_again_after_a_restart(
    watched: Watch, folder: Path, database_url: str, connection: Connection
) -> None:
    path = folder / "a.jsonl"
    append(path, row(1))
    rested = time.time() - 2 * module.CLOSE_AFTER
    os.utime(path, (rested, rested))
    import_paths(database_url, [folder], first_day=FIRST_DAY, max_line=MAX_LINE)
    assert watched.look() == []
    assert watched.watcher.look() == 0


def test_a_file_that_has_rested_is_read_to_its_end(
    watched: Watch, folder: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1", "content": "typed while it ran"}
    append(folder / "a.jsonl", row(1), json.dumps({**queued, "timestamp": "2026-01-01T00:00:02Z"}).encode() + b"\n")
    watched.look()
    assert texts(connection) == ["prompt 1"]
    monkeypatch.setattr(module, "CLOSE_AFTER", -1.0)
    monkeypatch.setattr("rivet_pipeline.transcripts.importer.SETTLED_AFTER", -1.0)
    watched.look()
    watched.look()
    assert texts(connection) == ["prompt 1"]
    monkeypatch.setattr(module, "ABANDONED_AFTER", -1.0)
    monkeypatch.setattr("rivet_pipeline.transcripts.importer.ABANDONED_AFTER", -1.0)
    watched.look()
    assert texts(connection) == ["prompt 1", "typed while it ran"]
    assert connection.execute("SELECT count(*) AS n FROM ros_import_files").fetchone() == {"n": 1}


def test_more_files_than_are_kept_open_are_all_followed(
    watched: Watch, folder: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    paths = [folder / f"{number}.jsonl" for number in range(5)]
    for number, path in enumerate(paths):
        append(path, row(number))
    watched.look()
    for number, path in enumerate(paths):
        append(path, row(number + 10))
    watched.look()
    assert sorted(texts(connection)) == sorted(f"prompt {number}" for number in [*range(5), *range(10, 15)])


def test_an_unreadable_database_is_told_once_and_stops_nothing(
    watched: Watch, folder: Path, connection: Connection
) -> None:
    append(folder / "a.jsonl", row(1))
    (folder / "b.jsonl.zst").write_bytes(b"no zstd")
    first = watched.look()
    assert sorted(report.status for report in first) == ["read", "unreadable"]
    assert watched.look() == []


def test_the_loop_says_once_that_the_store_is_away_and_waits_longer_and_longer(watched: Watch, folder: Path) -> None:
    waits: list[float] = []
    said: list[str] = []
    watched.away = True

    def stopped(seconds: float) -> bool:
        waits.append(seconds)
        watched.away = len(waits) < 4
        return len(waits) == 6

    watch(watched.watcher, interval=0.5, say=said.append, stopped=stopped)
    assert waits == [1.0, 2.0, 4.0, 8.0, 0.5, 0.5]
    assert len(said) == 2


def test_any_row_can_be_followed(watched: Watch, folder: Path, connection: Connection) -> None:
    path = folder / "a.jsonl"
    data = b"".join(row(number) for number in range(1, 6))
    for start in range(0, len(data), 37):
        append(path, data[start : start + 37])
        watched.look()
    found: list[Any] = texts(connection)
    assert found == [f"prompt {number}" for number in range(1, 6)]
