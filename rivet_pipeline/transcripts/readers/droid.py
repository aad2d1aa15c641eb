"""Factory Droid's session files: `~/.factory/sessions/<project>/<session id>.jsonl`, settings beside them.

What its records become is decided here. The output of `droid exec` on a pipe is another format and is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import Line
from rivet_pipeline.transcripts.readers.blocks import Part, Row, Teller, Telling, add_part, parts_of, split_prompt
from rivet_pipeline.transcripts.readers.shared import (
    LineReader,
    Said,
    file_state,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head, SourceState
from rivet_pipeline.transcripts.records import ReadItem, SessionRecord, Skipped

HARNESS = "droid"

#: What a session is called before it has a title.
_UNTITLED = "New Session"


class DroidReader(LineReader):
    """Reads Factory Droid session files."""

    harness = HARNESS
    agent = "rivet-droid"

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with the start of a Droid session."""
        first = head.records[0] if head.records else {}
        named = isinstance(first.get("id"), str) and bool(first.keys() & {"cwd", "title", "sessionTitle", "owner"})
        return first.get("type") == "session_start" and named

    def state(self, path: Path) -> SourceState:
        """The state of the session file and of its settings."""
        return file_state(path, _settings_path(path))

    def start(self, path: Path, agent: str) -> _Session:
        """The state with which a file is read."""
        return _Session(path, agent)


def _settings_path(path: Path) -> Path:
    return path.with_name(path.name.partition(".")[0] + ".settings.json")


def _model(path: Path) -> Any:
    """The model that the settings beside the session name; None when there are none."""
    try:
        return mapping(json.loads(_settings_path(path).read_text("utf-8", "replace"))).get("model")
    except (OSError, ValueError, RecursionError):
        return None


class _Session(Telling):
    """The state of one reading."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self.teller = Teller(path, SessionRecord(f"{HARNESS}:{path.stem}", agent, HARNESS))

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one record comes to."""
        value = line.value
        kind = text_of(value.get("type"))[:80]
        if kind == "session_start":
            return [self._start(line)]
        if kind == "message":
            return self._message(line, value["message"])
        if kind == "compaction_state":
            summary = text_of(value.get("summaryText") or value.get("summary"))
            said = [Said("system", "summary", summary)] if summary.strip() else []
            return self._tell(self._row(line), kind, said)
        return [Skipped(line.number, kind or "without type")]

    def _start(self, line: Line) -> ReadItem:
        value = line.value
        if self.teller.session.settings:
            return Skipped(line.number, "session_start, not the first")
        native = text_of(value["id"])
        settings = {
            "source": HARNESS,
            "session_id": native,
            "cwd": value.get("cwd"),
            "file": str(self.path),
            "version": value.get("version"),
            "model": _model(self.path),
            "parent_session_id": value.get("callingSessionId"),
        }
        agent = self.teller.session.agent
        self.teller = Teller(self.path, SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, None, present(settings)))
        titles = (text_of(value.get(key)) for key in ("sessionTitle", "title"))
        title = next((title for title in titles if title.strip() and title != _UNTITLED), "")
        if title := make_title(title) or "":
            return self.teller.update(title=title)
        return Skipped(line.number, "session_start")

    def _row(self, line: Line) -> Row:
        native = line.value.get("id")
        message = mapping(line.value.get("message"))
        identifier = native if isinstance(native, str) and native else None
        time = parse_time(line.value.get("timestamp"))
        return Row(line.number, identifier, time, {"model": message.get("model")}, {"usage": message.get("usage")})

    def _message(self, line: Line, message: dict[str, Any]) -> Iterator[ReadItem]:
        role = text_of(message.get("role"))
        if role not in {"user", "assistant", "system"}:
            return iter([Skipped(line.number, f"message/{role[:60]}")])
        parts, passed = parts_of(message.get("content"), "assistant" if role == "assistant" else "user")
        return self._tell(self._row(line), f"message/{role}", _spoken(parts, role), passed)

    def _tell(self, row: Row, what: str, parts: Iterable[Part], passed: Iterable[str] = ()) -> Iterator[ReadItem]:
        items = list(self.teller.tell(row, parts, passed))
        yield from items or [Skipped(row.line, f"{what} without text")]


def _spoken(parts: Iterable[Part], role: str) -> list[Part]:
    """The parts, what the harness put around the user's words told from them."""
    told: list[Part] = []
    for part in parts:
        if not isinstance(part, Said) or role == "assistant":
            told.append(part)
        elif role == "system":
            told.append(Said("system", "injected", part.text))
        else:
            for said in split_prompt(part.text):
                add_part(told, said)
    return told
