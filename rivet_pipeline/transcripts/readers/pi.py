"""Session files of pi, and of OpenClaw, which writes the same form.

`~/.pi/agent/sessions/<project>/<time>_<id>.jsonl`, `~/.openclaw/agents/<agent>/sessions/<id>.jsonl`: a header, then
entries. Entries of a newer file form a tree (`id`, `parentId`); file order is kept and no branch is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.lines import Line
from rivet_pipeline.transcripts.readers.blocks import (
    Call,
    Part,
    Result,
    Row,
    Teller,
    Telling,
    add_part,
    parts_of,
    result_text,
)
from rivet_pipeline.transcripts.readers.shared import (
    LineReader,
    RecentSet,
    Said,
    make_title,
    mapping,
    parse_time,
    present,
    text_of,
)
from rivet_pipeline.transcripts.reading import Head
from rivet_pipeline.transcripts.records import ReadItem, SessionRecord, Skipped

#: Folders of OpenClaw, under the names it has had.
_OPENCLAW_HOMES = frozenset({".openclaw", ".clawdbot", ".moltbot"})

_ENTRIES = 65_536


class PiReader(LineReader):
    """Reads pi session files of versions 1 to 3."""

    harness = "pi"
    agent = "rivet-deepseek"

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a session header, and is not OpenClaw's."""
        return _is_session(head) and not _is_openclaw(head)

    def start(self, path: Path, agent: str) -> _Session:
        """The state with which a file is read."""
        return _Session(path, agent, self.harness)


class OpenClawReader(PiReader):
    """Reads OpenClaw session files: told from pi's by where they stand, or by what comes before the first message."""

    harness = "openclaw"
    agent = "rivet-openclaw"

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a session header and bears a mark of OpenClaw."""
        return _is_session(head) and _is_openclaw(head)


def _is_session(head: Head) -> bool:
    first = head.records[0] if head.records else {}
    return first.get("type") == "session" and isinstance(first.get("id"), str) and {"timestamp", "cwd"} <= first.keys()


def _is_openclaw(head: Head) -> bool:
    if _OPENCLAW_HOMES & set(head.path.parts):
        return True
    for record in head.records:
        # A mark behind the first message would come too late: what was stored by then has its key.
        if record.get("type") == "message":
            return False
        if _OPENCLAW_HOMES & set(Path(text_of(record.get("cwd"))).parts):
            return True
        named = (record.get("customType"), record.get("provider"))
        if any(text_of(name).startswith("openclaw") for name in named) or named[0] == "model-snapshot":
            return True
    return False


class _Session(Telling):
    """The state of one reading: the session of the header, and where its tree branches."""

    def __init__(self, path: Path, agent: str, harness: str) -> None:
        self.path = path
        self.began: datetime | None = None
        self.parent_stands = False
        self.last = ""
        self.entries = RecentSet(_ENTRIES)
        record = SessionRecord(f"{harness}:{path.stem}", agent, harness)
        self.harness = harness
        self.teller = Teller(path, record)

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one entry comes to."""
        value = line.value
        kind = text_of(value.get("type"))[:80]
        if kind == "session":
            return [self._header(line)]
        row = self._row(line)
        if isinstance(value.get("id"), str):
            self.last = value["id"]
            self.entries.add(self.last)
        if kind == "message":
            return self._message(row, value["message"])
        if kind in {"compaction", "branch_summary"}:
            return self._say(row, kind, Said("system", "summary", text_of(value.get("summary"))))
        if kind == "custom_message":
            parts, passed = parts_of(value.get("content"), "system")
            said = [Said("system", "injected", part.text) for part in parts if isinstance(part, Said)]
            return self._tell(row, kind, said, passed)
        if kind == "session_info" and (title := make_title(text_of(value.get("name")))):
            return [self.teller.update(title=title)]
        custom = text_of(value.get("customType"))[:60]
        return [Skipped(line.number, f"{kind}/{custom}" if custom else kind or "without type")]

    def _header(self, line: Line) -> ReadItem:
        value = line.value
        if self.began is not None:
            return Skipped(line.number, "session, not the first")
        self.began = parse_time(value.get("timestamp"))
        parent = value.get("parentSession") or value.get("branchedFrom")
        self.parent_stands = isinstance(parent, str) and _stands(parent, self.path)
        native = text_of(value["id"])
        settings = {
            "source": self.harness,
            "session_id": native,
            "cwd": value.get("cwd"),
            "file": str(self.path),
            "model": value.get("modelId"),
            "version": value.get("version"),
            "parent_session_id": _session_of(parent) if isinstance(parent, str) else None,
            "parent_session": parent,
        }
        known = self.teller.session
        record = SessionRecord(f"{self.harness}:{native}", known.agent, self.harness, settings=present(settings))
        self.teller = Teller(self.path, record)
        if title := make_title(text_of(value.get("name"))):
            return self.teller.update(title=title)
        return Skipped(line.number, "session")

    def _row(self, line: Line) -> Row:
        value = line.value
        message = mapping(value.get("message"))
        time = parse_time(value.get("timestamp")) or parse_time(message.get("timestamp"))
        parent = value.get("parentId")
        metadata = {
            "model": message.get("model"),
            "stop_reason": message.get("stopReason"),
            "custom_type": value.get("customType") or message.get("customType"),
            # An entry that follows an earlier one than that before it begins a branch.
            "branches_from": parent if parent != self.last and parent in self.entries else None,
        }
        native = value.get("id")
        copied = self.parent_stands and time is not None and self.began is not None and time < self.began
        return Row(
            line.number,
            native if isinstance(native, str) and native else None,
            time,
            metadata,
            {"usage": message.get("usage")},
            kind="replay" if copied else None,
        )

    def _message(self, row: Row, message: dict[str, Any]) -> Iterator[ReadItem]:
        role = text_of(message.get("role"))
        if role in {"user", "assistant"}:
            parts, passed = parts_of(message.get("content"), "user" if role == "user" else "assistant")
            if error := text_of(message.get("errorMessage")):
                add_part(parts, Said("system", "notice", error))
            return self._tell(row, f"message/{role}", parts, passed)
        if role == "toolResult":
            details = {"is_error": bool(message.get("isError"))}
            name, native = message.get("toolName"), message.get("toolCallId")
            return self._tell(row, role, [Result(result_text(message.get("content")), native, name, details)])
        if role == "bashExecution":
            return self._tell(row, role, [_shell(message)])
        if role in {"branchSummary", "compactionSummary"}:
            return self._say(row, role, Said("system", "summary", text_of(message.get("summary"))))
        if role in {"custom", "hookMessage"}:
            return self._say(row, role, Said("system", "injected", result_text(message.get("content"))))
        return iter([Skipped(row.line, f"message/{role[:60]}")])

    def _say(self, row: Row, what: str, said: Said) -> Iterator[ReadItem]:
        return self._tell(row, what, [said] if said.text.strip() else [])

    def _tell(self, row: Row, what: str, parts: Iterable[Part], passed: Iterable[str] = ()) -> Iterator[ReadItem]:
        items = list(self.teller.tell(row, parts, passed))
        yield from items or [Skipped(row.line, f"{what} without text")]


def _shell(message: dict[str, Any]) -> Call:
    """A command that the user ran in the harness' own shell."""
    code = message.get("exitCode")
    details = {"by": "user", "exit_code": code, "is_error": bool(code), "cancelled": message.get("cancelled")}
    return Call("bash", {"command": message.get("command")}, None, text_of(message.get("output")), present(details))


def _session_of(parent: str) -> str:
    """The id of the session whose file is named: `<time>_<id>.jsonl`."""
    return Path(parent.replace("\\", "/")).stem.rpartition("_")[2]


def _stands(parent: str, path: Path) -> bool:
    """Whether the file that a session was copied from is there, so that its words stand elsewhere."""
    name = Path(parent.replace("\\", "/")).name
    return Path(parent).is_file() or (name != path.name and (path.parent / name).is_file())
