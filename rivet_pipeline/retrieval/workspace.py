"""The workspace files of an agent: its soul, its rules, its notes of today. Read only, from one configured folder.

No path ever comes from a caller. What leads out of the folder is refused, what is no regular file too, and no file is
read beyond a bound. Nothing here raises: what can not be read is named.
"""

from __future__ import annotations

import codecs
import os
import stat
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rivet_pipeline.retrieval.quoting import clean

#: In the order in which they are shown; today's notes come after them (the seeds' list).
WORKSPACE_FILES = ("SOUL.md", "IDENTITY.md", "USER.md", "AGENTS.md", "TOOLS.md", "MEMORY.md")

#: The most that is read of one file, in bytes; far more than a turn's context holds.
MOST_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """One file: its name within the folder, its text, its size in bytes, and whether the text is only its beginning."""

    name: str
    text: str
    size: int
    cut: bool


@dataclass(frozen=True, slots=True)
class Workspace:
    """What the folder holds, and which of its files could not be read and why: (name, reason)."""

    files: list[WorkspaceFile]
    problems: list[tuple[str, str]]


def read_workspace(folder: Path | None, today: date) -> Workspace:
    """The workspace files and the notes of a day. Missing and blank files, and a missing folder, are no problem."""
    found = Workspace([], [])
    if folder is None:
        return found
    for name in (*WORKSPACE_FILES, f"memory/{today.isoformat()}.md"):
        try:
            file = _read(folder, name)
        except OSError as error:
            found.problems.append((name, error.strerror or type(error).__name__))
        except ValueError as error:
            found.problems.append((name, str(error)))
        else:
            if file is not None and file.text.strip():
                found.files.append(file)
    return found


def _read(folder: Path, name: str) -> WorkspaceFile | None:
    """One file, None when there is none. Raises `OSError`, and `ValueError` with the reason of a refusal."""
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / name))
    if not path.is_relative_to(root):
        raise ValueError("refused: a symbolic link leads out of the folder")
    try:
        # The path is resolved; what became a link since is not followed, and a pipe does not hold us up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("refused: it is no regular file")
        data = _read_bytes(descriptor, MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    cut = len(data) > MOST_BYTES
    data = data[:MOST_BYTES]
    # A character that the bound cut in two is left out; any other that can not be read is replaced.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=not cut)
    return WorkspaceFile(name, clean("\n".join(text.splitlines())), max(status.st_size, len(data)), cut)


def _read_bytes(descriptor: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(descriptor, most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
