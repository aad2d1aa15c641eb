"""Opens the SQLite databases in which some harnesses keep their sessions, without writing a byte into or beside them.

What the tables mean is the readers' business.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from rivet_pipeline.transcripts.readers.shared import file_state
from rivet_pipeline.transcripts.reading import SourceState

#: How a SQLite database begins.
MAGIC = b"SQLite format 3\x00"

#: How long, in seconds, a lock of the harness is waited for.
_BUSY_SECONDS = 5.0


def sqlite_state(path: Path) -> SourceState:
    """The state of a database together with its write-ahead log. Raises `OSError` when it can not be seen."""
    return file_state(path, _beside(path, "-wal"))


def is_sqlite(data: bytes) -> bool:
    """Whether a file's first bytes are those of a SQLite database."""
    return data.startswith(MAGIC)


def tables(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The tables of a database and the names of their columns."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [name])} for name in names
    }


@contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees what was committed, the write-ahead log included, and writes nothing.

    Rows come as `sqlite3.Row`; bytes in texts that are not UTF-8 become U+FFFD. Raises `OSError` when the file can not
    be read, or turns out to be damaged while it is read.
    """
    with _readable(path) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            yield connection
        except sqlite3.Error as error:
            raise OSError(f"not a sound SQLite database: {error}") from error


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    with ExitStack() as stack:
        try:
            connection = _open(path, stack)
        except sqlite3.Error as error:
            raise OSError(f"not a readable SQLite database: {error}") from error
        stack.callback(connection.close)
        yield connection


def _open(path: Path, stack: ExitStack) -> sqlite3.Connection:
    if not _is_whole(path):
        raise sqlite3.DatabaseError("the file is shorter than it says")
    log = _beside(path, "-wal")
    if not log.exists() or log.stat().st_size == 0:
        # Nothing is in the log. A plain read-only connection to a database in WAL mode would lay files beside it, or
        # fail where it may not.
        return _connect(path, "immutable=1")
    try:
        return _connect(path, "mode=ro")
    except sqlite3.Error:
        return _connect(stack.enter_context(_private_copy(path, log)), "mode=rw")


def _is_whole(path: Path) -> bool:
    """Whether a database holds as many pages as it says. SQLite itself reads what is missing as zeros.

    The header's fields stand in the file format's description (sqlite.org/fileformat.html, 1.3).
    """
    with path.open("rb") as stream:
        header = stream.read(100)
    if len(header) < 100 or not is_sqlite(header):
        return False
    number = {offset: int.from_bytes(header[offset : offset + 4], "big") for offset in (24, 28, 92)}
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65_536 if page_size == 1 else page_size
    # An old writer leaves the number of pages out of date, and the two counters then differ.
    return number[24] != number[92] or path.stat().st_size >= number[28] * page_size


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, timeout=_BUSY_SECONDS)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def _private_copy(path: Path, log: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rivet-sqlite-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, _beside(copy, "-wal"))
        yield copy


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
