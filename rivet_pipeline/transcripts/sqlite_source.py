"""Opens the SQLite databases in which some harnesses keep their sessions, without writing a byte into or beside them.

What the tables mean is the readers' business.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rivet_pipeline.transcripts.reading import SourceState, file_state

#: How a SQLite database begins.
MAGIC = b"SQLite format 3\x00"

#: How long, in seconds, a lock of the harness is waited for.
BUSY_SECONDS = 5.0

#: The longest value that SQLite itself allows, in bytes.
_MAX_LENGTH = 1_000_000_000

#: A private copy is tried again when the harness wrote in the meantime.
_COPIES = 3


class DatabaseInUseError(OSError):
    """The program that a database belongs to has locked it, or writes to it just now."""


#: The length of a database's header, and what stands in it at offset 18 in WAL mode.
_HEADER, _WAL = 100, 2

_DECLARED = re.compile(
    rb"CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?[\"'`\[]?(\w+)[\"'`\]]?\s*\((.*?)(?=CREATE\s|\Z)",
    re.IGNORECASE | re.DOTALL,
)


def sqlite_state(path: Path) -> SourceState:
    """The state of a database together with its write-ahead log. Raises `OSError` when it can not be seen."""
    return file_state(path, _beside(path, "-wal"))


def is_sqlite(data: bytes) -> bool:
    """Whether a file's first bytes are those of a SQLite database."""
    return data.startswith(MAGIC)


def declared_tables(data: bytes) -> dict[str, str]:
    """The tables that can be seen to be declared in the first pages of a database, with what follows their names."""
    if not is_sqlite(data):
        return {}
    found = _DECLARED.finditer(data)
    return {match[1].decode("utf-8", "replace"): match[2].decode("utf-8", "replace") for match in found}


def tables(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The tables of a database and the names of their columns."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [name])} for name in names
    }


def fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> sqlite3.Row | None:
    """One row; None when there is none, or when it is longer than was allowed when the database was opened."""
    try:
        row: sqlite3.Row | None = connection.execute(sql, parameters).fetchone()
    except sqlite3.DataError:
        return None
    return row


@contextmanager
def open_sqlite(path: Path, max_value: int = _MAX_LENGTH) -> Iterator[sqlite3.Connection]:
    """A connection that sees what was committed, the write-ahead log included, and writes nothing.

    Rows come as `sqlite3.Row`, of at most `max_value` bytes (see `fetch`); bytes in texts that are not UTF-8 become
    U+FFFD. Raises `OSError` when the file can not be read now, being cut off or damaged, and `DatabaseInUseError` when
    the harness has locked it or writes to it; also when that turns out while it is read.
    """
    with _readable(path) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(max_value, _MAX_LENGTH))
        try:
            yield connection
        except sqlite3.Error as error:
            raise _refused(error) from error


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    with ExitStack() as stack:
        try:
            connection, before = _open(path, stack)
        except sqlite3.Error as error:
            raise _refused(error) from error
        stack.callback(connection.close)
        yield connection
        if before is not None and file_state(path) != before:
            raise DatabaseInUseError(
                "the SQLite database was written to while it was read; it is read again the next time"
            )


def _refused(error: sqlite3.Error) -> OSError:
    if _is_locked(error):
        return DatabaseInUseError("the harness has locked the SQLite database; it is read the next time")
    return OSError(f"not a sound SQLite database: {error}")


def _is_locked(error: sqlite3.Error) -> bool:
    # Errors that Python raises itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _open(path: Path, stack: ExitStack) -> tuple[sqlite3.Connection, SourceState | None]:
    """The connection; and the file's state when it was opened as one that nobody changes, which must stay true."""
    log = _beside(path, "-wal")
    state = file_state(path)
    if _check_header(path) and not log.exists():
        # Nobody has it open. A connection that does not know this would lay files beside it.
        return _connect(path, "immutable=1"), state
    try:
        # Without the last word SQLite would write into the index of the log, or make one.
        return _connect(path, "mode=ro&readonly_shm=1"), None
    except sqlite3.Error as error:
        if _is_locked(error):
            raise
    if log.exists() and log.stat().st_size == 0:
        return _connect(path, "immutable=1"), state
    return _connect(stack.enter_context(_private_copy(path)), "mode=rw"), None


def _check_header(path: Path) -> bool:
    """Whether the database is in WAL mode. Raises `OSError` when it is none, or when some of it is missing.

    SQLite itself reads what is missing as zeros. The header's fields stand in the file format's description
    (sqlite.org/fileformat.html, 1.3).
    """
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if not is_sqlite(header):
        raise OSError("not a SQLite database (compressed ones are not read)")
    number = {offset: int.from_bytes(header[offset : offset + 4], "big") for offset in (24, 28, 92)}
    # 65,536 does not fit and is written as 1.
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65_536 if page_size == 1 else max(page_size, 512)
    size = path.stat().st_size
    # An old writer leaves the number of pages out of date, and the two counters then differ.
    short = number[24] == number[92] and size < number[28] * page_size
    if len(header) < _HEADER or short or size % page_size:
        raise OSError("the SQLite database is cut off: it is shorter than it says")
    return header[18] == _WAL


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, timeout=BUSY_SECONDS)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def _private_copy(path: Path) -> Iterator[Path]:
    """A copy, with its log or its journal, as it was at one moment; the harness may be writing meanwhile."""
    with tempfile.TemporaryDirectory(prefix="rivet-sqlite-") as folder:
        copy = Path(folder) / "copy.db"
        for _ in range(_COPIES):
            before = _with_sidecars(path)
            shutil.copyfile(path, copy)
            for ending in ("-wal", "-journal"):
                _beside(copy, ending).unlink(missing_ok=True)
                if _beside(path, ending).exists():
                    shutil.copyfile(_beside(path, ending), _beside(copy, ending))
            if _with_sidecars(path) == before:
                yield copy
                return
    raise DatabaseInUseError("the SQLite database is being written; it is read the next time")


def _with_sidecars(path: Path) -> SourceState:
    return file_state(path, _beside(path, "-wal"), _beside(path, "-journal"))


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
