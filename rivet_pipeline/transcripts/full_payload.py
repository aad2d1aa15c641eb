"""Finds the whole of a message that was cut when it was captured, in the transcript that its row points to.

Read-only. The file is named by the row alone, and read by the reader that knows its format, up to the message; so every
harness whose rows carry a pointer can be read back. What was stored is held against what is found: a file that now says
something else is not quoted. How an answer is worded is the caller's business.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.cleaning import clean_event_id, clean_text, utf16_units
from rivet_pipeline.transcripts.ingest_plan import result_event_id
from rivet_pipeline.transcripts.lines import without_compression
from rivet_pipeline.transcripts.readers import READERS, detect
from rivet_pipeline.transcripts.reading import Reader, Reading
from rivet_pipeline.transcripts.records import Damaged, Message, ReadItem, ToolResult

#: A section of an answer holds at most this many characters; the rest is asked for by its offset.
SECTION_CHARACTERS = 512 * 1024

#: How the files end that are looked into, whatever a row says.
_LINE_FILES = frozenset({".jsonl", ".json", ".md"})
_DATABASES = frozenset({".db", ".sqlite", ".sqlite3", ".vscdb"})

#: Put behind a cut text by capture programs of old.
_OLD_MARKER = "\n…[truncated]"

#: How each part of a message is cut is noted under its own key.
_LENGTH_KEYS = {
    "content": "full_content_length",
    "tool_args": "full_tool_args_length",
    "tool_result": "full_tool_result_length",
}

#: complete: nothing was cut. kept: it came whole by an import and is stored. recovered: read back. gone: the file is no
#: more. elsewhere: it is on another machine. changed: it does not hold these words any more. unreadable: it can not be
#: read. no_pointer: no file was noted. redacted: the words were taken out on purpose.
Status = Literal[
    "complete", "kept", "recovered", "gone", "elsewhere", "changed", "unreadable", "no_pointer", "redacted"
]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it is stored."""

    id: UUID
    event_id: str
    session_key: str
    agent: str
    role: str
    content: str
    tool_name: str | None
    tool_args: Any
    tool_result: str | None
    metadata: Mapping[str, Any]
    #: Its parts in full, as far as they came later than the cut ones.
    whole: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a message: `text` is what stands from `offset` on, `length` the whole's, both in characters.

    `recovered` says that it was read back from the transcript. `next_offset` is None at the end.
    """

    name: str
    text: str
    offset: int
    length: int
    recovered: bool

    @property
    def next_offset(self) -> int | None:
        """Where the text goes on."""
        end = self.offset + len(self.text)
        return end if end < self.length else None


@dataclass(frozen=True, slots=True)
class FullPayload:
    """A message in full, or as much of it as there is, and why not more.

    `path` and `place` (a line from 0, or a part's id) are what the row points to, `host` the machine it names;
    `problem` says what went wrong there.
    """

    message: StoredMessage
    status: Status
    sections: tuple[Section, ...]
    path: str | None = None
    place: int | str | None = None
    host: str | None = None
    problem: str | None = None


def load_message(connection: Connection, message_id: UUID) -> StoredMessage | None:
    """The message with this id; None when there is none."""
    row = connection.execute(
        """
        SELECT m.id, m.event_id, c.session_key, m.agent, m.role, m.content, m.tool_name, m.tool_args, m.tool_result,
               m.metadata,
               jsonb_strip_nulls(jsonb_build_object('content', f.content, 'tool_result', f.tool_result))
               || CASE WHEN f.tool_args IS NULL THEN '{}' ELSE jsonb_build_object('tool_args', f.tool_args) END AS whole
        FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
        LEFT JOIN ros_full_texts AS f ON f.message_id = m.id
        WHERE m.id = %s
        """,
        [message_id],
    ).fetchone()
    return None if row is None else StoredMessage(**row)


def memory_get_full(
    message: StoredMessage,
    *,
    max_line: int,
    section: str | None = None,
    offset: int = 0,
    host: str | None = None,
) -> FullPayload:
    """The whole of a stored message. Reads a file only when the message was cut, and only the one its row names.

    `offset` begins every section there, in characters; `section` asks for one of them. `max_line` bounds a line of the
    file in bytes. `host` is this machine's name, for tests. Needs no connection: a large file takes a while.
    """
    here = host or socket.gethostname()
    answer = _recover(message, max_line, here)
    parts = {
        name: (text, name in answer.parts)
        for name, stored in _stored_parts(message).items()
        if (text := answer.parts.get(name, stored)) is not None
    }
    sections = tuple(
        Section(name, text[offset : offset + SECTION_CHARACTERS], offset, len(text), recovered)
        for name, (text, recovered) in parts.items()
        if section in (None, name)
    )
    pointer = _pointer(message.metadata)
    return FullPayload(
        message,
        answer.status,
        sections,
        path=pointer.path if pointer else None,
        place=pointer.place if pointer else None,
        host=_text(message.metadata.get("session_host")),
        problem=answer.problem,
    )


@dataclass(frozen=True, slots=True)
class _Pointer:
    path: str
    endings: frozenset[str]
    place: int | str | None
    result_line: int | None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: Status
    problem: str | None
    parts: Mapping[str, str]


def _only(status: Status, problem: str | None = None) -> _Answer:
    return _Answer(status, problem, {})


def _stored_parts(message: StoredMessage) -> dict[str, str | None]:
    return {
        "content": message.content or None,
        "tool_args": _arguments(message.tool_args),
        "tool_result": message.tool_result,
    }


def _arguments(value: Any) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _kept(value: Any) -> str | None:
    return None if value is None else _arguments(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _pointer(metadata: Mapping[str, Any]) -> _Pointer | None:
    """Where the row says its words stand; a database before a file of lines."""
    if path := _text(metadata.get("session_sqlite_path")):
        return _Pointer(path, _DATABASES, _text(metadata.get("session_sqlite_part_id")), None)
    if path := _text(metadata.get("session_jsonl_path")):
        line, result_line = metadata.get("session_jsonl_line"), metadata.get("result_jsonl_line")
        return _Pointer(
            path,
            _LINE_FILES,
            line if isinstance(line, int) else None,
            result_line if isinstance(result_line, int) else None,
        )
    return None


def _recover(message: StoredMessage, max_line: int, here: str) -> _Answer:
    metadata = message.metadata
    if "redacted" in metadata:
        return _only("redacted")
    if metadata.get("truncated") is not True:
        return _only("complete")
    kept = {name: text for name in _LENGTH_KEYS if (text := _kept(message.whole.get(name))) is not None}
    if kept.keys() >= {name for name, key in _LENGTH_KEYS.items() if metadata.get(key) is not None} and kept:
        return _Answer("kept", None, kept)
    pointer = _pointer(metadata)
    if pointer is None:
        return _only("no_pointer")
    answer = _from_file(message, pointer, max_line)
    host = _text(metadata.get("session_host"))
    if answer.status != "recovered" and host is not None and host != here:
        # What stands under the same path on this machine is another file.
        return _only("elsewhere")
    return answer


def _from_file(message: StoredMessage, pointer: _Pointer, max_line: int) -> _Answer:
    path = Path(pointer.path)
    if not path.is_absolute() or without_compression(path).suffix not in pointer.endings:
        return _only("unreadable", "the row names no transcript file")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return _only("unreadable", "it is no regular file")
        reader = detect(path)
        if reader is None or not _is_of(reader, message):
            return _only("changed", "it holds no session of this kind any more")
        return _search(_Search(message, pointer), reader.read(path, Reading(message.agent, max_line)))
    except (FileNotFoundError, NotADirectoryError):
        return _only("gone")
    except (OSError, ValueError, sqlite3.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return _only("unreadable", " ".join(reason.split()))


def _is_of(reader: Reader, message: StoredMessage) -> bool:
    """Whether the reader is the one of the row's harness, as far as its session key tells."""
    named = message.session_key.partition(":")[0]
    return named == reader.harness or named not in {known.harness for known in READERS}


def _search(search: _Search, items: Iterator[ReadItem]) -> _Answer:
    for item in items:
        search.look(item)
        if search.done:
            break
    return search.answer()


class _Search:
    """What is looked for in a file and what was found of it.

    A message is known by its event id. Rows that were captured under ids of another program's are known by their place,
    when what stands there begins with the words that are stored.
    """

    def __init__(self, message: StoredMessage, pointer: _Pointer) -> None:
        self.pointer = pointer
        self.role = message.role
        metadata = message.metadata
        self.ids = {message.event_id, _text(metadata.get("clashes_with")) or message.event_id}
        stored = _stored_parts(message)
        if "content_made_by" in metadata:
            # No file holds a text that was made for the row afterwards.
            stored["content"] = None
        cut = {name for name, key in _LENGTH_KEYS.items() if metadata.get(key) is not None}
        #: What was cut, and the beginning that is stored of it.
        self.wanted = {name: (stored[name] or "").removesuffix(_OLD_MARKER) for name in cut or _LENGTH_KEYS}
        if not cut:
            self.wanted = {name: text for name, text in self.wanted.items() if text} or {"content": ""}
        #: How long the whole of it was, in UTF-16 code units. Arguments are measured in other units.
        self.lengths = {
            name: length
            for name in ("content", "tool_result")
            if stored[name] is not None and isinstance(length := metadata.get(_LENGTH_KEYS[name]), int)
        }
        #: Texts that begin as they should, and have another length: that length.
        self.other_lengths: dict[str, int] = {}
        self.found: dict[str, str] = {}
        self.by_place: dict[str, str] = {}
        self.met = False
        self.damage: str | None = None

    @property
    def done(self) -> bool:
        """Whether nothing is left to be found."""
        return self.met and self.wanted.keys() <= self.found.keys()

    def look(self, item: ReadItem) -> None:
        """Takes from an item what is looked for."""
        if isinstance(item, Message):
            record = item.record
            parts = {
                "content": record.content,
                "tool_args": _arguments(record.tool_args),
                "tool_result": record.tool_result,
            }
            there = record.role == self.role and self._is_there(record.metadata)
            self._take({clean_event_id(record.event_id)}, parts, there=there)
        elif isinstance(item, ToolResult):
            call = clean_event_id(item.event_id)
            there = self._is_there(item.metadata)
            self._take({call, result_event_id(call)}, {"tool_result": item.tool_result}, there=there)
        elif isinstance(item, Damaged) and item.line - 1 in (self.pointer.place, self.pointer.result_line):
            self.damage = f"line {item.line} is damaged ({item.reason})"

    def _take(self, ids: set[str], parts: Mapping[str, str | None], *, there: bool) -> None:
        named = not self.ids.isdisjoint(ids)
        if not named and not there:
            return
        texts = {name: clean_text(text) for name, text in parts.items() if text and name in self.wanted}
        fitting = {name: text for name, text in texts.items() if self._goes_on(name, text)}
        if named:
            self.met = True
            self.found = {**fitting, **self.found}
        else:
            self.by_place = {**fitting, **self.by_place}

    def _goes_on(self, name: str, text: str) -> bool:
        """Whether a text is one that the stored beginning was cut from. Arguments are stored in another spelling."""
        if name == "tool_args":
            return True
        if not text.startswith(self.wanted[name]):
            return False
        length = utf16_units(text)
        if length != self.lengths.get(name, length):
            self.other_lengths[name] = length
            return False
        return True

    def _is_there(self, metadata: Mapping[str, Any]) -> bool:
        if isinstance(self.pointer.place, str):
            return metadata.get("session_sqlite_part_id") == self.pointer.place
        lines = {metadata.get("session_jsonl_line"), metadata.get("result_jsonl_line")} - {None}
        return not lines.isdisjoint({self.pointer.place, self.pointer.result_line})

    def answer(self) -> _Answer:
        """What was found, when it is all that was looked for."""
        parts = {**self.by_place, **self.found}
        if self.wanted.keys() <= parts.keys():
            return _Answer("recovered", None, parts)
        if self.damage is not None:
            return _only("unreadable", self.damage)
        missing: Sequence[str] = sorted(self.wanted.keys() - parts.keys())
        problem = "it holds other words under this message's id" if self.met else "it does not hold this message"
        changed = [name for name in missing if name in self.other_lengths]
        if changed:
            lengths = (f"{name}: {self.other_lengths[name]:,} instead of {self.lengths[name]:,}" for name in changed)
            return _only("changed", f"it was changed: other lengths, in UTF-16 units ({', '.join(lengths)})")
        return _Answer("changed", f"{problem} ({', '.join(missing)})", {})
