"""Opening an LCM store's SQLite file: in every state it can be in, and never a byte changed beside it."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rivet_pipeline.transcripts.lcm_source import count_rows, missing_conversations, open_source, read_rows
from rivet_pipeline.transcripts.lcm_sqlite import LcmSourceError
from rivet_pipeline_tests.lcm_store import LcmRows, insert_sqlite, sample


def state(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def messages(path: Path) -> int:
    before = state(path.parent)
    with open_source(str(path)) as source:
        found = count_rows(source, "messages")
    assert state(path.parent) == before
    return found


def one_more(connection: sqlite3.Connection, number: int) -> None:
    rows = LcmRows()
    rows.message(number, 2, "user", "late word")
    insert_sqlite(connection, rows.rows)
    connection.commit()


def test_a_closed_file_is_read_as_it_lies(tmp_path: Path) -> None:
    assert messages(sample().sqlite(tmp_path / "a.db")) == 26
    (tmp_path / "wal").mkdir()
    assert messages(sample().sqlite(tmp_path / "wal" / "a.db", wal=True)) == 26


def test_a_locked_store_says_what_to_do(tmp_path: Path) -> None:
    path = sample().sqlite(tmp_path / "a.db")
    program = sqlite3.connect(path)
    program.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LcmSourceError) as refused:
        messages(path)
    program.close()
    assert str(refused.value) == (
        f"{path} is locked or being written to by its program; stop that program, or run the command again."
    )


_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for number in (100, 101):
    row = "INSERT INTO messages (message_id, conversation_id, seq, role) VALUES (?, 2, 9, 'user')"
    connection.execute(row, [number])
    connection.commit()
    print(number, flush=True)
    sys.stdin.readline()
"""


def test_a_live_store_is_read_with_its_log_and_as_of_one_moment(tmp_path: Path) -> None:
    path = sample().sqlite(tmp_path / "a.db", wal=True)
    command = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "100\n"
        assert (tmp_path / "a.db-wal").stat().st_size > 0
        assert messages(path) == 27
        with open_source(str(path)) as source:
            assert count_rows(source, "messages") == 27
            print(file=writer.stdin, flush=True)
            assert writer.stdout.readline() == "101\n"
            assert count_rows(source, "messages") == 27
        assert messages(path) == 28


@pytest.mark.parametrize("with_shm", [True, False])
def test_what_a_killed_program_left_is_read(tmp_path: Path, with_shm: bool) -> None:
    path = sample().sqlite(tmp_path / "a.db", wal=True)
    writer = sqlite3.connect(path)
    one_more(writer, 100)
    left = tmp_path / "left"
    left.mkdir()
    for suffix in ("", "-wal", "-shm") if with_shm else ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", left / f"a.db{suffix}")
    writer.close()
    assert messages(left / "a.db") == 27


def test_a_transaction_that_was_cut_off_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    path = sample().sqlite(tmp_path / "a.db")
    writer = sqlite3.connect(path)
    # So small a cache that the open transaction is in the file already.
    writer.execute("PRAGMA cache_size = 1")
    writer.executemany(
        "INSERT INTO messages (message_id, conversation_id, seq, role, content) VALUES (?, 2, ?, 'user', ?)",
        [(number, number, "x" * 4000) for number in range(1000, 1200)],
    )
    left = tmp_path / "left"
    left.mkdir()
    for suffix in ("", "-journal"):
        shutil.copyfile(f"{path}{suffix}", left / f"a.db{suffix}")
    writer.rollback()
    writer.close()
    assert (left / "a.db").stat().st_size > path.stat().st_size
    assert messages(left / "a.db") == 26


def test_a_name_with_signs_of_an_address_is_a_name(tmp_path: Path) -> None:
    assert messages(sample().sqlite(tmp_path / "my store?#%20.db")) == 26


def test_text_that_is_no_utf8_stops_nothing(tmp_path: Path) -> None:
    path = sample().sqlite(tmp_path / "a.db")
    with sqlite3.connect(path) as writer:
        writer.execute("UPDATE conversations SET title = CAST(x'41ff42' AS TEXT) WHERE conversation_id = 1")
    writer.close()
    with open_source(str(path)) as source:
        assert next(read_rows(source, "conversations", order=["t.conversation_id"]))["title"] == "A\ufffdB"


def test_a_file_that_changes_under_the_reader_is_told(tmp_path: Path) -> None:
    path = sample().sqlite(tmp_path / "a.db", wal=True)

    def read_while_somebody_writes() -> None:
        with open_source(str(path)) as source:
            assert count_rows(source, "messages") == 26
            writer = sqlite3.connect(path)
            one_more(writer, 100)
            writer.close()

    with pytest.raises(LcmSourceError, match="being written to by its program; stop that program, or run"):
        read_while_somebody_writes()


def test_conversations_that_are_only_named(tmp_path: Path) -> None:
    rows = sample()
    rows.message(41, 99, "user", "lost")
    rows.message(42, None, "user", "more lost")
    with open_source(str(rows.sqlite(tmp_path / "a.db"))) as source:
        assert missing_conversations(source) == [None, 99]


def wrong(path: Path) -> str:
    with pytest.raises(LcmSourceError) as caught, open_source(str(path)):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_lcm_store_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    assert wrong(path) == f"{path} does not exist; check the spelling."
    path.write_bytes(b"")
    assert "is empty" in wrong(path)
    path.write_text("not a database at all, but long enough to be one by its size " * 3)
    assert "is no SQLite database" in wrong(path)
    assert "is a folder" in wrong(tmp_path)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE notes (id INTEGER)")
    other.close()
    assert wrong(path) == f"{path} is no LCM store: it has no table conversations."
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE conversations (id INTEGER, name TEXT)")
        other.execute("CREATE TABLE messages (id INTEGER)")
    other.close()
    assert wrong(path) == f"{path} is no LCM store: it has no column conversations.conversation_id."


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    path = sample().sqlite(tmp_path / "a.db")
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = b"\x5a" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(LcmSourceError, match="can not be read"), open_source(str(path)) as source:
        list(read_rows(source, "messages"))


def test_an_address_of_another_kind_is_told() -> None:
    with pytest.raises(LcmSourceError, match="file or a postgresql:// address"), open_source("mysql://host/db"):
        pass
