"""Opens an LCM store that is a SQLite file, and says in one line why it can not. What its tables mean is not known."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rivet_pipeline.errors import RivetError
from rivet_pipeline.transcripts import sqlite_source


class LcmSourceError(RivetError):
    """The store that is to be moved can not be read, or is none."""


@contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads one state of the file and writes nothing in its folder, for the length of the block.

    Raises `LcmSourceError` when the file is missing, empty, no SQLite database, or can not be read now.
    """
    path = _checked(path)
    try:
        with sqlite_source.open_sqlite(path) as connection:
            connection.row_factory = None
            connection.isolation_level = None
            # One transaction, so that everything it answers is of the same moment.
            connection.execute("BEGIN")
            yield connection
    except sqlite_source.DatabaseInUseError as error:
        raise LcmSourceError(
            f"{path} is locked or being written to by its program; stop that program, or run the command again."
        ) from error
    except OSError as error:
        raise LcmSourceError(f"{path} can not be read: {error.strerror or error}.") from error


def _checked(path: Path) -> Path:
    """The real path of what may be a SQLite file."""
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
    if not sqlite_source.is_sqlite(head):
        raise LcmSourceError(
            f"{path} is no SQLite database; name the file of an LCM store, or a postgresql:// address."
        )
    return path
