"""Reads Aider's chat history: one Markdown file a folder, to which every run appends.

Only what the writer of the file leaves behind is told here. It marks what was typed by `#### ` and what the program
printed by `> `; both end in two blanks, and the rest is the model's. A print of several lines has the mark on its first
and the blanks on its last line only.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rivet_pipeline.transcripts.lines import open_stream
from rivet_pipeline.transcripts.readers.markdown import CodeBlocks, Quotes, TextLine, TextLines, Undecided
from rivet_pipeline.transcripts.readers.shared import ContentIds, FileReader, Said, make_title, parse_time, present
from rivet_pipeline.transcripts.reading import Head, Reading
from rivet_pipeline.transcripts.records import (
    Damaged,
    Incomplete,
    Message,
    MessageRecord,
    ReadItem,
    SessionRecord,
    SessionUpdate,
    Skipped,
)

HARNESS = "aider"

_FILE_NAME = ".aider.chat.history.md"

_HEADER = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_TYPED = re.compile(r"####( |$)")
_PRINTED = re.compile(r">( |$)")
_END = "  "
#: How a print of several lines ends: with the two blanks behind something.
_LAST_PRINTED = re.compile(r".*\S  ")

#: What stands in a file that was cut at its head, beside what was typed: the report that follows every answer.
_REPORT = re.compile(r"> (Tokens: \S+ sent|Applied edit to )")

#: Lines that tell what the program did for the model, as distinct from what it merely says.
_DEEDS = re.compile(
    r"(Applied edit to|Did not apply edit to|Skipping edits to|Creating empty file|Committing |Commit [0-9a-f]{6,} "
    r"|Removed: |Running |Fix lint errors in|Attempt to fix|Add the output to the chat\?|Added \d+ lines? of output)"
)
_VERSION = re.compile(r"^Aider v(\S+)", re.MULTILINE)
_MODEL = re.compile(r"^(?:Main m|M)odels?: (\S+)", re.MULTILINE)

#: A command without arguments, or the enter key alone.
_BARE_COMMAND = re.compile(r"/[\w-]+|<blank>")
#: A command whose argument is put to the model as a prompt of its own.
_ASKING = re.compile(r"/(?:ask|code|architect|context|help)\s+(.*)", re.DOTALL)
#: A command that runs something, whose output is printed.
_RUNNING = re.compile(r"(/(run|test|git|lint|commit|undo)\b|!)")
#: Prompts that the program makes of a linter's or a command's output.
_MADE_UP = ("# Fix any errors below, if possible.", "I ran this command:")

_THINKING = re.compile(r"\s*<(think|thinking|thinking-content-[0-9a-f]+)>(.*?)</\1>", re.DOTALL)

#: How many lines identify a session that has no header.
_IDENTIFYING_LINES = 20

#: How many lines are looked at for how marks end in a file.
_TELLING_LINES = 500

_NO_ZONE = "local, zone unknown"
_BEFORE_NEXT = "before the next session"

_MODE_LINE = re.compile(r"-\*-.*-\*-\s*")

_Part = Literal["typed", "printed", "answer"]


class AiderReader(FileReader):
    """`.aider.chat.history.md`, and files that read like one."""

    harness = HARNESS
    agent = "rivet-aider"
    suffixes = frozenset({".md"})

    def sniff(self, head: Head) -> bool:
        """Whether a run begins in it, or marks such as it leaves stand in it, outside of any code block."""
        blocks = CodeBlocks()
        named = head.path.name.endswith(_FILE_NAME)
        typed = printed = reported = other = False
        for line in head.text.splitlines():
            if not blocks.open:
                ended = named or line.endswith(_END)
                typed = typed or (ended and _TYPED.match(line) is not None)
                printed = printed or (ended and _PRINTED.match(line) is not None)
                reported = reported or _REPORT.match(line) is not None
                if _HEADER.fullmatch(line) and (named or typed or printed or not other):
                    return True
                other = other or not (_MODE_LINE.fullmatch(line) or not line.strip())
            blocks.take(line)
        return typed and (named or reported)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The file's sessions in file order, a prompt, an answer or a stretch of output at a time."""
        head = _look(path, how)
        if head is not None and head.until is None and not how.settled:
            # The first header, when it comes, tells how late what stands before it can be.
            yield Incomplete(1)
            return
        with open_stream(path) as stream:
            lines = TextLines(stream, max_line=how.max_line, advance=how.advance)
            yield from _History(path, how, lines, head).items()


@dataclass(frozen=True, slots=True)
class _Headless:
    """What is known of the text before the first header."""

    key: str
    until: datetime | None


def _look(path: Path, how: Reading) -> _Headless | None:
    """What stands before the first header; None when nothing does."""
    first: list[str] = []
    with open_stream(path) as stream:
        for line in TextLines(stream, max_line=how.max_line):
            if isinstance(line, Damaged):
                continue
            if header := _HEADER.fullmatch(line.text):
                return _Headless(_short_hash("\n".join(first)), parse_time(header[1])) if first else None
            if line.text.strip() and len(first) < _IDENTIFYING_LINES:
                first.append(line.text)
    return _Headless(_short_hash("\n".join(first)), None) if first else None


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(slots=True)
class _Session:
    """The run that is being read. Its key is known once its first line is."""

    started: datetime | None = None
    time_source: str = _NO_ZONE
    name: str = ""
    key: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    ids: ContentIds = field(default_factory=ContentIds)
    said: bool = False
    titled: bool = False


class _History:
    """One reading of a history."""

    def __init__(self, path: Path, how: Reading, lines: TextLines, head: _Headless | None) -> None:
        self._path = path
        self._how = how
        self._lines = lines
        self._quotes = Quotes(lines, self._is_mark, settled=how.settled)
        self._keys: Counter[str] = Counter()
        self._session = _Session()
        if head is not None:
            self._session.key = f"{HARNESS}:head-{head.key}"
            self._session.started = head.until
            self._session.time_source = _BEFORE_NEXT
        #: Whether marked lines end in two blanks, as they are written; an editor may have taken those away.
        self._strict: bool | None = None
        self._asked = ""
        self._ran = False
        self._previous = ""
        self._part: _Part | None = None
        self._text: list[str] = []
        self._size = 0
        self._began = 1
        #: Whether a print of several lines has not met its end.
        self._printing = False

    def items(self) -> Iterator[ReadItem]:
        """The records in order."""
        number = 1
        try:
            for line in self._lines:
                number = line.number if isinstance(line, TextLine) else line.line
                if isinstance(line, Damaged):
                    yield line
                elif line.ended or self._how.settled:
                    yield from self._take(line)
                    self._previous = line.text
                else:
                    yield Incomplete(self._began if self._text else number)
                    return
        except Undecided:
            yield Incomplete(self._began if self._text else number)
            return
        if self._how.settled:
            yield from self._finish()
        elif any(text.strip() for text in self._text):
            yield Incomplete(self._began)

    def _take(self, line: TextLine) -> Iterator[ReadItem]:
        if line.number == 1 and _MODE_LINE.fullmatch(line.text):
            yield Skipped(1, "an editor's mode line")
            return
        header = _HEADER.fullmatch(line.text)
        part = None if header else self._marked(line)
        if (header or part) and self._part == "answer" and self._quotes.hides(line.number):
            header = part = None
        if header:
            yield from self._finish()
            self._session = _Session(parse_time(header[1]), name=header[1].replace(" ", "T"))
            self._asked, self._ran, self._printing = "", False, False
            return
        text = line.text if part is None else _unmarked(part, line.text)
        if self._printing and part is None:
            self._printing = not self._ends_print(line)
            part = "printed"
        elif part is None:
            # A print is followed by an empty line, and so is a prompt.
            part = self._part if not line.text.strip() else "answer"
        yield from self._add(part, line, text)

    def _is_mark(self, text: str) -> bool:
        marked = _TYPED.match(text) or _PRINTED.match(text)
        return _HEADER.fullmatch(text) is not None or (marked is not None and (text.endswith(_END) or not self._strict))

    def _marked(self, line: TextLine) -> _Part | None:
        """Which part a line is marked as, if any."""
        text = line.text
        typed, printed = _TYPED.match(text), _PRINTED.match(text)
        if not typed and not printed:
            return None
        ended = text.endswith(_END)
        if self._strict is None and printed and not ended:
            self._strict = self._ends_are_marked()
        self._strict = bool(self._strict) or ended
        first = not self._previous.strip()
        if typed:
            if self._strict and not (ended and (first or self._part == "typed")):
                return None
            self._printing = False
            return "typed"
        quoted = self._part == "answer" and not (first and (ended or not self._strict))
        if quoted or (self._printing and not ended):
            return None
        self._printing = bool(self._strict) and not ended
        return "printed"

    def _ends_are_marked(self) -> bool:
        """Whether marks end in blanks, when a print begins without: it may be one of several lines."""
        found = list(self._lines.ahead(_TELLING_LINES))
        for line in found:
            if (_TYPED.match(line.text) or _PRINTED.match(line.text)) and line.text.endswith(_END) and line.ended:
                return True
            if _TYPED.match(line.text) and line.ended:
                return False
        if len(found) < _TELLING_LINES and not self._how.settled:
            raise Undecided
        return False

    def _ends_print(self, line: TextLine) -> bool:
        """Whether a line is the last one of a print: a model's text may hold lines that end likewise."""
        if not _LAST_PRINTED.fullmatch(line.text):
            return False
        following = next(self._lines.ahead(1), None)
        if not self._how.settled and (following is None or not following.ended):
            raise Undecided
        return following is None or not following.text.strip() or _PRINTED.match(following.text) is not None

    def _add(self, part: _Part | None, line: TextLine, text: str) -> Iterator[ReadItem]:
        if part is None:
            return
        apart = part == "typed" and not _TYPED.match(self._previous)
        if part != self._part or apart or self._size > self._how.max_line:
            yield from self._finish()
            self._part, self._began = part, line.number
        if not self._session.key and line.text.strip():
            self._session.key = self._key(line.text)
        if part == "answer":
            self._quotes.take(line.text)
        self._text.append(text)
        self._size += len(line.text) + 1

    def _key(self, first_line: str) -> str:
        """The session's key: its time and first line, which are there before any message and go where the file goes."""
        key = f"{HARNESS}:{self._session.name}-{_short_hash(first_line)}"
        self._keys[key] += 1
        return key if self._keys[key] == 1 else f"{key}-{self._keys[key]}"

    def _finish(self) -> Iterator[ReadItem]:
        part, text = self._part, "\n".join(self._text).strip("\n").rstrip()
        self._part, self._text, self._size = None, [], 0
        self._quotes.restart()
        if not text.strip():
            return
        if part == "printed":
            self._learn(text)
        for said in self._said(part, text):
            yield from self._give(said)

    def _learn(self, text: str) -> None:
        for name, pattern in (("version", _VERSION), ("model", _MODEL)):
            if match := pattern.search(text):
                self._session.settings[name] = match[1]

    def _said(self, part: _Part | None, text: str) -> Iterator[Said]:
        if part == "typed":
            yield self._typed(text)
        elif part == "printed":
            deed = self._ran or any(_DEEDS.match(line) for line in text.splitlines())
            self._ran = False
            yield Said("tool", "tool", text) if deed else Said("system", "notice", text)
        else:
            while match := _THINKING.match(text):
                yield Said("assistant", "thinking", match[2].strip("\n"))
                text = text[match.end() :].lstrip("\n")
            yield Said("assistant", "speech", text)

    def _typed(self, text: str) -> Said:
        asked, self._asked = self._asked, ""
        self._ran = _RUNNING.match(text) is not None
        if asked and text.strip() == asked:
            return Said("user", "replay", text)
        if _BARE_COMMAND.fullmatch(text.strip()):
            return Said("user", "notice", text)
        if text.startswith(_MADE_UP):
            return Said("user", "injected", text)
        if asking := _ASKING.fullmatch(text):
            self._asked = asking[1].strip()
        return Said("user", "speech", text)

    def _give(self, said: Said) -> Iterator[ReadItem]:
        if not said.text.strip():
            return
        session = self._session
        record = self._record()
        metadata: dict[str, Any] = {} if said.kind == "speech" else {"kind": said.kind}
        created_at = None
        if not session.said and session.started is not None:
            created_at = session.started
            metadata["time_source"] = session.time_source
        session.said = True
        event_id = session.ids.next(said.role, said.kind, said.text)
        if said.role == "tool":
            message = MessageRecord(event_id, "tool", "", HARNESS, None, said.text, metadata, created_at)
        else:
            message = MessageRecord(event_id, said.role, said.text, metadata=metadata, created_at=created_at)
        yield Message(record, message)
        if (said.role, said.kind) == ("user", "speech") and not session.titled and (title := _title(said.text)):
            session.titled = True
            yield SessionUpdate(self._record(title))

    def _record(self, title: str | None = None) -> SessionRecord:
        key = self._session.key
        place = {"cwd": str(self._path.parent)} if self._path.name.startswith(_FILE_NAME) else {}
        settings = {"source": HARNESS, "session_id": key.partition(":")[2], **place, "file": str(self._path)}
        settings |= present(self._session.settings)
        return SessionRecord(key, self._how.agent, HARNESS, title, settings)


def _unmarked(part: _Part, text: str) -> str:
    return text[5:].removesuffix(_END) if part == "typed" else text[2:].rstrip()


def _title(prompt: str) -> str | None:
    asking = _ASKING.fullmatch(prompt)
    if asking is None and prompt.startswith(("/", "!")):
        return None
    return make_title(asking[1] if asking else prompt)
