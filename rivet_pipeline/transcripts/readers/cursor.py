"""Cursor's agent transcripts: `~/.cursor/projects/<project>/agent-transcripts/**/<id>.jsonl`, and the older `.txt`.

They are a reduced copy: no ids, no times, calls without ids, results mostly absent. Cursor's databases are another
reader's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rivet_pipeline.transcripts.lines import TOO_LONG, Line, open_stream
from rivet_pipeline.transcripts.readers.blocks import (
    Call,
    Part,
    Result,
    Row,
    Teller,
    Telling,
    add_part,
    parts_of,
    split_prompt,
)
from rivet_pipeline.transcripts.readers.shared import LineReader, Said, Transcript, mapping, present, text_of
from rivet_pipeline.transcripts.reading import Head, Reading
from rivet_pipeline.transcripts.records import Damaged, Incomplete, Paused, ReadItem, SessionRecord, Skipped

HARNESS = "cursor"

_FOLDER = "agent-transcripts"
_QUERY = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.DOTALL)
_REDACTED = "[REDACTED]"

_MACHINERY = frozenset({"error", "turn_ended"})

#: Keys by which records of other formats with the same messages are told from Cursor's.
_FOREIGN = frozenset({"type", "uuid", "sessionId", "session_id", "timestamp", "id", "parentId"})

_SPEAKER = re.compile(r"(user|assistant):\s*")
_MARK = re.compile(r"\[(Thinking|Tool call|Tool result)\]\s?(.*)")
_ARGUMENT = re.compile(r"  ([\w.-]+): ?(.*)", re.DOTALL)


class CursorReader(LineReader):
    """Reads Cursor's agent transcripts, as JSON lines and as text."""

    harness = HARNESS
    agent = "rivet-cursor"
    suffixes = frozenset({".jsonl", ".txt"})

    def sniff(self, head: Head) -> bool:
        """Whether the file is an agent transcript."""
        if head.path.suffix == ".txt":
            return _is_text(head)
        spoken = [record for record in head.records if record.get("type") not in _MACHINERY]
        return bool(spoken) and _is_message(spoken[0], at_home=_FOLDER in head.path.parts)

    def start(self, path: Path, agent: str) -> Transcript:
        """The state with which a file of JSON lines is read."""
        return _Lines(path, agent)

    def read(self, path: Path, how: Reading) -> Iterator[ReadItem]:
        """The transcript in its order. Raises `OSError` when it can not be read at all."""
        if path.suffix != ".txt":
            yield from super().read(path, how)
            return
        with open_stream(path) as stream:
            yield from _Text(path, how).read(stream)


def _is_text(head: Head) -> bool:
    first = head.text.lstrip("\ufeff \r\n").partition("\n")[0]
    if not _SPEAKER.fullmatch(first):
        return False
    return _FOLDER in head.path.parts or "<user_query>" in head.text or "\n[Tool call] " in head.text


def _is_message(record: dict[str, Any], *, at_home: bool) -> bool:
    content = mapping(record.get("message")).get("content")
    speaks = record.get("role") in {"user", "assistant"} and isinstance(content, list | str)
    return speaks and (at_home or not record.keys() & _FOREIGN)


def _teller(path: Path, agent: str) -> tuple[Teller, dict[str, Any]]:
    """The conversation that a transcript belongs to, and what each of its messages carries.

    A sub-agent's transcript stands in `subagents/` under its session's folder.
    """
    sub = path.parent.name == "subagents"
    native = path.parents[1].name if sub else path.stem
    settings = {"source": HARNESS, "session_id": native, "file": None if sub else str(path)}
    session = SessionRecord(f"{HARNESS}:{native}", agent, HARNESS, None, present(settings))
    common = {"sidechain": True, "agent_id": path.stem} if sub else {}
    scope = f"{path.stem}:" if sub else ""
    # A block of a text has no line of its own, and is stored whole.
    return Teller(path, session, scope=scope, pointer=path.suffix != ".txt"), common


def _words(text: str) -> list[Said]:
    """A prompt as the user's words and what Cursor put around them."""
    said: list[Said] = []
    position = 0
    for query in _QUERY.finditer(text):
        said.append(Said("system", "injected", text[position : query.start()].strip()))
        said.append(Said("user", "speech", query.group(1)))
        position = query.end()
    if not said:
        return split_prompt(text)
    said.append(Said("system", "injected", text[position:].strip()))
    return [part for part in said if part.text.strip()]


class _Lines(Telling):
    """The state of one reading of a transcript in JSON lines."""

    def __init__(self, path: Path, agent: str) -> None:
        self.teller, self.common = _teller(path, agent)

    def take(self, line: Line) -> Iterable[ReadItem]:
        """What one record comes to."""
        value = line.value
        kind = text_of(value.get("type"))[:80]
        role = value.get("role")
        row = Row(line.number, metadata={**self.common, "model": value.get("model")})
        if role in {"user", "assistant"}:
            return list(self._message(row, role, value["message"])) or [Skipped(line.number, f"{role} without text")]
        error = value.get("error")
        words = text_of(mapping(error).get("message") or error or value.get("message"))
        if kind == "error" or (kind == "turn_ended" and value.get("status") != "success"):
            text = words or f"[turn ended: {text_of(value.get('status'))}]"
            return self.teller.tell(row, [Said("system", "notice", text)])
        return [Skipped(line.number, kind or "without role")]

    def _message(self, row: Row, role: str, message: dict[str, Any]) -> Iterator[ReadItem]:
        parts, passed = parts_of(message.get("content"), "assistant" if role == "assistant" else "user")
        told: list[Part] = []
        for part in parts:
            if isinstance(part, Said) and part.text.strip() == _REDACTED:
                passed = [*passed, "redacted text"]
            elif isinstance(part, Said) and part.role == "user":
                for said in _words(part.text):
                    add_part(told, said)
            else:
                told.append(part)
        if any(isinstance(part, Said) and part.role == "user" for part in told):
            self.teller.calls.forget_nameless()
        return self.teller.tell(row, told, passed)


class _Text:
    """The state of one reading of a transcript in text: the block that is being read."""

    def __init__(self, path: Path, how: Reading) -> None:
        self.how = how
        self.teller, self.common = _teller(path, how.agent)
        self.speaker = ""
        #: What the block is: a speaker's words, or what its mark says.
        self.what, self.name = "", ""
        self.lines: list[str] = []
        self.began = 0
        #: Whether a line that is too long goes on.
        self.cut = False

    def read(self, stream: BinaryIO) -> Iterator[ReadItem]:
        """The items of the text. Its last block is complete only when nobody writes any more."""
        follow, longest = self.how.follow, self.how.max_line
        number, more = 0, True
        while more or follow:
            start = stream.tell() if follow else 0
            raw = stream.readline(longest + 1)
            # A piece of a line that is too long, or the end of one, is stepped over.
            ended, cut = raw.endswith(b"\n"), len(raw) > longest
            more = ended or cut
            if follow and not more:
                stream.seek(start)
                yield Paused()
            elif more or (raw and self.how.settled):
                number += not self.cut
                yield from self._raw_line(number, raw, cut=cut or self.cut)
                self.cut = (cut or self.cut) and not ended
                if self.how.advance is not None:
                    self.how.advance(len(raw))
        if self.how.settled:
            yield from self._end()
            yield from self.teller.finish()
        elif self.what or raw:
            yield Incomplete(self.began)

    def _raw_line(self, number: int, raw: bytes, *, cut: bool) -> Iterable[ReadItem]:
        if cut:
            return [] if self.cut else [Damaged(number, TOO_LONG)]
        text = raw.replace(b"\x00", b"").decode("utf-8", "replace").removeprefix("\ufeff")
        return self._line(number, text.rstrip("\r\n"))

    def _line(self, number: int, text: str) -> Iterator[ReadItem]:
        if self._in_query():
            self.lines.append(text)
            return
        speaker, mark = _SPEAKER.fullmatch(text), _MARK.match(text)
        if speaker:
            yield from self._end()
            self.speaker = self.what = speaker.group(1)
        elif mark and self.speaker == "assistant":
            yield from self._end()
            self.what = mark.group(1)
            self.name = mark.group(2).strip()
            self.lines = [mark.group(2)] if self.what == "Thinking" else []
        elif self.what == "Thinking" and not text.strip():
            # What follows a thought is speech.
            yield from self._end()
            self.what = self.speaker
        else:
            self.lines.append(text)
            return
        self.began = number

    def _in_query(self) -> bool:
        """Whether a prompt is open, in which nothing is a mark."""
        if self.what != "user":
            return False
        return any("<user_query>" in line for line in self.lines) and not any("</user_query>" in x for x in self.lines)

    def _end(self) -> Iterator[ReadItem]:
        what, name, text = self.what, self.name, "\n".join(self.lines).strip("\n")
        self.what, self.name, self.lines = "", "", []
        row = Row(self.began, metadata=self.common)
        parts: list[Part] = []
        if what == "user":
            self.teller.calls.forget_nameless()
            parts = [*_words(text)]
        elif what == "Tool call":
            parts = [Call(name or "tool", _arguments(text))]
        elif not text.strip() or text.strip() == _REDACTED:
            pass
        elif what == "Tool result":
            parts = [Result(text, name=name or None)]
        elif what:
            parts = [Said("assistant", "thinking" if what == "Thinking" else "speech", text)]
        yield from self.teller.tell(row, parts)
        if what and not parts and (text or what == "Tool result"):
            yield Skipped(self.began, f"{what} without text")


def _arguments(text: str) -> Any:
    """The indented `name: value` lines under a call; a value may go on over further lines."""
    arguments: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        if match := _ARGUMENT.fullmatch(line):
            name = match.group(1)
            arguments[name] = match.group(2)
        elif name:
            arguments[name] += f"\n{line}"
        elif line.strip():
            return text
    return {key: value.rstrip("\n") for key, value in arguments.items()}
