"""The harness formats that can be read, one module each. A new harness is a new module and one more entry here."""

from __future__ import annotations

from pathlib import Path

from rivet_pipeline.transcripts.readers.claude_code import ClaudeCodeReader
from rivet_pipeline.transcripts.readers.codex import CodexReader
from rivet_pipeline.transcripts.readers.shared import HEAD_BYTES
from rivet_pipeline.transcripts.records import Reader

#: In the order in which they are asked.
READERS: tuple[Reader, ...] = (ClaudeCodeReader(), CodexReader())


def detect(path: Path) -> Reader | None:
    """The reader for a file, judged by its name and first 64 KiB; None when none knows it.

    Raises `OSError` when the file can not be read.
    """
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    return next((reader for reader in READERS if reader.sniff(path, head)), None)
