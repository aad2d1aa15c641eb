"""The harness formats that can be read, one module each. A new harness is a new module and one more entry here."""

from __future__ import annotations

from pathlib import Path

from rivet_pipeline.transcripts.lines import open_stream, without_compression
from rivet_pipeline.transcripts.readers.aider import AiderReader
from rivet_pipeline.transcripts.readers.antigravity import AntigravityReader
from rivet_pipeline.transcripts.readers.chatgpt import ChatGptReader
from rivet_pipeline.transcripts.readers.claude_ai import ClaudeAiReader
from rivet_pipeline.transcripts.readers.claude_code import ClaudeCodeReader
from rivet_pipeline.transcripts.readers.codex import CodexReader
from rivet_pipeline.transcripts.readers.copilot import CopilotReader
from rivet_pipeline.transcripts.readers.cursor import CursorReader
from rivet_pipeline.transcripts.readers.cursor_db import CursorDatabaseReader
from rivet_pipeline.transcripts.readers.droid import DroidReader
from rivet_pipeline.transcripts.readers.gemini_aistudio import GeminiAiStudioReader
from rivet_pipeline.transcripts.readers.gemini_cli import GeminiCliReader
from rivet_pipeline.transcripts.readers.grok import GrokReader
from rivet_pipeline.transcripts.readers.hermes import HermesLinesReader, HermesReader
from rivet_pipeline.transcripts.readers.kimi import KimiReader
from rivet_pipeline.transcripts.readers.opencode import OpenCodeReader
from rivet_pipeline.transcripts.readers.pi import OpenClawReader, PiReader
from rivet_pipeline.transcripts.readers.polylogue import PolylogueReader
from rivet_pipeline.transcripts.readers.qwen_code import QwenCodeReader
from rivet_pipeline.transcripts.readers.specstory import SpecStoryReader
from rivet_pipeline.transcripts.reading import HEAD_BYTES, Head, Reader

#: In the order in which they are asked.
READERS: tuple[Reader, ...] = (
    ClaudeCodeReader(),
    CodexReader(),
    GeminiCliReader(),
    GeminiAiStudioReader(),
    QwenCodeReader(),
    AntigravityReader(),
    AiderReader(),
    SpecStoryReader(),
    ChatGptReader(),
    ClaudeAiReader(),
    KimiReader(),
    GrokReader(),
    PiReader(),
    OpenClawReader(),
    CopilotReader(),
    DroidReader(),
    CursorReader(),
    PolylogueReader(),
    OpenCodeReader(),
    HermesLinesReader(),
    HermesReader(),
    CursorDatabaseReader(),
)

#: How far a line file is read for its format when the first 64 KiB do not tell: a pasted picture makes a long line.
_FAR_HEAD_BYTES = 8 * 1024 * 1024


def may_be_transcript(path: Path) -> bool:
    """Whether a file's name is one that some reader would look into."""
    suffix = without_compression(path).suffix
    return any(suffix in reader.suffixes for reader in READERS)


def detect(path: Path) -> Reader | None:
    """The reader for a file, judged by its name and its beginning; None when none knows it.

    Raises `OSError` when the file can not be read.
    """
    if not may_be_transcript(path):
        return None
    with open_stream(path) as stream:
        data = stream.read(HEAD_BYTES)
        reader = _recognise(Head(path, data, whole=len(data) < HEAD_BYTES))
        if reader is None and len(data) == HEAD_BYTES and without_compression(path).suffix == ".jsonl":
            data += stream.read(_FAR_HEAD_BYTES)
            reader = _recognise(Head(path, data, whole=len(data) < HEAD_BYTES + _FAR_HEAD_BYTES))
    return reader


def _recognise(head: Head) -> Reader | None:
    asked = (reader for reader in READERS if head.path.suffix in reader.suffixes)
    return next((reader for reader in asked if reader.sniff(head)), None)
