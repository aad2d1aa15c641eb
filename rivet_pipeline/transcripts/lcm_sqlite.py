"""Opens somebody else's SQLite file without leaving a trace beside it. What stands in the file is not known here.

A file in WAL mode is more than one file: what was written last stands in `-wal`, and whoever reads shares locks in
`-shm`. A plain read-only connection makes both files when they are missing, so the way in is chosen by what is there.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rivet_pipeline.errors import RivetError

#: The first bytes of every SQLite file (SQLite file format, section 1.3), and where WAL mode stands: read version 2.
_MAGIC = b"SQLite format 3\x00"
_READ_VERSION = 19

#: How often a copy is begun again when the file was written to meanwhile.
_ATTEMPTS = 5


class LcmSourceError(RivetError):
    """The store that is to be moved can not be read, or is none."""


@contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads one state of the file and writes nothing in its folder, for the length of the block.

    A live file is read through its own locks; one whose `-shm` is gone, or whose last transaction was not rolled back,
    through a private copy; one that nobody has open, as it lies. Text that is no UTF-8 comes with U+FFFD.
    Raises `LcmSourceError` when the file is missing, empty, no SQLite database, or changed under the reader.
    """
    path, wal_mode = _checked(path)
    if _size(path, "-journal") or (_size(path, "-wal") and not Path(f"{path}-shm").exists()):
        with _private_copy(path) as copy, _reading(f"{copy.as_uri()}", path) as connection:
            yield connection
    elif _size(path, "-wal"):
        with _reading(f"{path.as_uri()}?mode=ro&readonly_shm=1", path) as connection:
            yield connection
    elif wal_mode:
        before = path.stat()
        with _reading(f"{path.as_uri()}?immutable=1", path) as connection:
            yield connection
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise LcmSourceError(f"{path} was written to while it was read; run the command again.")
    else:
        with _reading(f"{path.as_uri()}?mode=ro", path) as connection:
            yield connection


def _checked(path: Path) -> tuple[Path, bool]:
    """The real path, and whether the file is in WAL mode."""
    try:
        path = path.expanduser().resolve()
        if path.is_dir():
            raise LcmSourceError(f"{path} is a folder; name the SQLite file in it, such as ~/.openclaw/lcm.db.")
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        raise LcmSourceError(f"{path} does not exist; check the spelling.") from None
    except OSError as error:
        raise LcmSourceError(f"{path} can not be read: {error.strerror or error}.") from error
    if not head:
        raise LcmSourceError(f"{path} is empty; nothing was ever stored in it.")
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise LcmSourceError(
            f"{path} is no SQLite database; name the file of an LCM store, or a postgresql:// address."
        )
    return path, head[_READ_VERSION] == 2


def _size(path: Path, suffix: str) -> int:
    try:
        return Path(f"{path}{suffix}").stat().st_size
    except OSError:
        return 0


@contextmanager
def _reading(uri: str, path: Path) -> Iterator[sqlite3.Connection]:
    """One connection in one read transaction, so that everything it answers is of the same moment."""
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield connection
    except sqlite3.Error as error:
        raise LcmSourceError(f"{path} can not be read as an SQLite database: {error}.") from error
    finally:
        connection.close()


@contextmanager
def _private_copy(path: Path) -> Iterator[Path]:
    """The file and its log in a folder of our own, both of the same moment."""
    with tempfile.TemporaryDirectory(prefix="rivet-lcm-") as folder:
        copy = Path(folder) / "copy.db"
        for _ in range(_ATTEMPTS):
            before = _states(path)
            try:
                for suffix in before:
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise LcmSourceError(f"{path} can not be copied to read it: {error.strerror or error}.") from error
            if _states(path) == before:
                yield copy
                return
        raise LcmSourceError(f"{path} is being written to; stop its program, or run the command again.")


def _states(path: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for suffix in ("", "-wal", "-journal"):
        file = Path(f"{path}{suffix}")
        if file.exists():
            status = file.stat()
            found[suffix] = (status.st_size, status.st_mtime_ns)
    return found
