"""What an import has to say: about each source, and about all of them. Plain counting; nothing is read or written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rivet_pipeline.transcripts.lines import without_compression
from rivet_pipeline.transcripts.records import Damaged, Incomplete, ReadItem, Skipped

Status = Literal["read", "unchanged", "passed_over", "not_a_transcript", "unreadable", "incomplete"]


@dataclass(slots=True)
class FileReport:
    """What one file came to. `known` counts messages that were there before."""

    path: str
    status: Status
    harness: str | None = None
    new: int = 0
    known: int = 0
    damaged: int = 0
    skipped: int = 0
    problem: str | None = None
    conversations: set[str] = field(default_factory=set)
    damaged_by_reason: Counter[str] = field(default_factory=Counter)
    skipped_by_reason: Counter[str] = field(default_factory=Counter)

    def count(self, item: ReadItem) -> None:
        """Counts an item that is no message: damaged, skipped, or not finished."""
        if isinstance(item, Damaged):
            self.damage(item.reason)
        elif isinstance(item, Skipped):
            self.skipped += 1
            self.skipped_by_reason[item.reason] += 1
        elif isinstance(item, Incomplete):
            self.status, self.problem = "incomplete", f"what begins at line {item.line} is not finished yet"

    def damage(self, reason: str) -> None:
        """Counts a record that could not be read or stored."""
        self.damaged += 1
        self.damaged_by_reason[reason] += 1

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON, without the reasons, which stand in the whole import's report."""
        keys = ("path", "status", "harness", "new", "known", "damaged", "skipped", "problem")
        return {**{key: getattr(self, key) for key in keys}, "conversations": len(self.conversations)}


@dataclass(slots=True)
class ImportReport:
    """What an import did, in all and by file. `missing` are the paths that do not exist."""

    files: list[FileReport] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def conversations(self) -> set[str]:
        """The session keys met in the files."""
        return set().union(*(file.conversations for file in self.files))

    @property
    def transcripts(self) -> int:
        """Files that were read, now or by an earlier import."""
        return self.count("read") + self.count("unchanged") + self.count("incomplete")

    def count(self, status: Status) -> int:
        """The number of files with a status."""
        return sum(1 for file in self.files if file.status == status)

    def by_harness(self) -> dict[str, int]:
        """The transcripts of each harness, read now or earlier."""
        read = (file.harness for file in self.files if file.status in {"read", "unchanged", "incomplete"})
        return dict(Counter(harness for harness in read if harness is not None))

    def messages(self) -> dict[str, int]:
        """Messages new and known, records damaged and skipped."""
        return {key: sum(getattr(file, key) for file in self.files) for key in ("new", "known", "damaged", "skipped")}

    def reasons(self, which: Literal["damaged", "skipped"]) -> dict[str, int]:
        """How often each reason for damage or skipping came up, the most frequent first."""
        total: Counter[str] = Counter()
        for file in self.files:
            total.update(file.damaged_by_reason if which == "damaged" else file.skipped_by_reason)
        return dict(sorted(total.items(), key=lambda entry: (-entry[1], entry[0])))

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON; `files` is the number of transcripts."""
        detail = {
            "read": self.count("read"),
            "unchanged": self.count("unchanged"),
            "incomplete": self.count("incomplete"),
            "passed_over": self.count("passed_over"),
            "not_transcripts": self.count("not_a_transcript"),
            "unreadable": self.count("unreadable"),
            "missing": len(self.missing),
        }
        return {
            "files": self.transcripts,
            "files_detail": detail,
            "by_harness": self.by_harness(),
            "conversations": len(self.conversations),
            "messages": self.messages(),
            "damaged_by_reason": self.reasons("damaged"),
            "skipped_by_reason": self.reasons("skipped"),
            "per_file": [
                file.as_json()
                for file in self.files
                if file.status != "not_a_transcript" or without_compression(Path(file.path)).suffix == ".jsonl"
            ],
            "missing": self.missing,
        }
