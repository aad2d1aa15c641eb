"""The harness formats that can be read, one module each. A new harness is a new module and one more entry here."""

from __future__ import annotations

from pathlib import Path

from rivet_pipeline.transcripts.readers.claude_code import ClaudeCodeReader
from rivet_pipeline.transcripts.readers.codex import CodexReader
from rivet_pipeline.transcripts.readers.shared import HEAD_BYTES
from rivet_pipeline.transcripts.records import Reader

#: In the order in which they are asked.
READERS: tuple[Reader, ...] = (ClaudeCodeReader(), CodexReader())


#: How far a file is read for its format when the first 64 KiB do not tell: a pasted picture makes a long line.
_FAR_HEAD_BYTES = 8 * 1024 * 1024


def detect(path: Path) -> Reader | None:
    """The reader for a file, judged by its name and first 64 KiB, else its first 8 MiB; None when none knows it.

    Raises `OSError` when the file can not be read.
    """
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
        reader = next((reader for reader in READERS if reader.sniff(path, head)), None)
        if reader is None and len(head) == HEAD_BYTES:
            head += stream.read(_FAR_HEAD_BYTES)
            reader = next((reader for reader in READERS if reader.sniff(path, head)), None)
    return reader
