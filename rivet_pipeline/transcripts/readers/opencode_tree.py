"""OpenCode's trees of small JSON files: `storage/{session/<project>,message/<session>,part/<message>}/*.json`.

A session's file stands for its messages and their parts. In the oldest trees all parts stand in `part/` itself.
What a message becomes is decided in `opencode_parts.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rivet_pipeline.transcripts.documents import Member, read_document
from rivet_pipeline.transcripts.lines import NOT_AN_OBJECT, NOT_JSON, TOO_LONG, open_stream
from rivet_pipeline.transcripts.readers.opencode_parts import OpenCodeSession, Part
from rivet_pipeline.transcripts.readers.shared import file_state, text_of
from rivet_pipeline.transcripts.reading import Reading, SourceState
from rivet_pipeline.transcripts.records import Damaged, Incomplete, ReadItem, SessionUpdate


def tree_state(path: Path) -> SourceState:
    """The state of a session's file, its messages and their parts. Raises `OSError` when the file can not be seen."""
    return file_state(path, *_Tree(path).files())


def read_tree(path: Path, how: Reading) -> Iterator[ReadItem]:
    """The messages of the session whose file this is."""
    session: dict[str, Any] = {}
    incomplete = False
    with open_stream(path) as stream:
        for item in read_document(stream, arrays=(), max_value=how.max_line, advance=how.advance):
            if isinstance(item, Member):
                session[item.key] = item.value
            elif isinstance(item, Damaged | Incomplete):
                incomplete = True
                yield item
    if not isinstance(session.get("id"), str):
        return
    found = OpenCodeSession(session, how.agent, path, given_up=how.given_up)
    yield SessionUpdate(found.talk.session)
    tree = _Tree(path, session["id"])
    for number, file in enumerate(tree.messages(), start=1):
        info = _load(file, how)
        if isinstance(info, str):
            yield Damaged(number, info)
        elif info is None:
            found.held = True
        else:
            info.setdefault("id", file.stem)
            yield from found.message(number, info, _parts(tree.parts(text_of(info["id"])), found, how))
    if found.held and not incomplete:
        yield Incomplete(1)


def _parts(files: Iterable[Path], session: OpenCodeSession, how: Reading) -> Iterator[Part | Damaged]:
    for place, file in enumerate(files, start=1):
        value = _load(file, how)
        if value is None:
            session.held = True
        elif isinstance(value, str):
            yield Damaged(place, value)
        else:
            yield Part(text_of(value.get("id")) or file.stem, value, place)


def _load(file: Path, how: Reading) -> dict[str, Any] | str | None:
    """What a file says; what is wrong with it when it says nothing; None when it is still being written."""
    try:
        if file.stat().st_size > how.max_line:
            return TOO_LONG
        value = json.loads(file.read_bytes().decode("utf-8", "replace").replace("\x00", ""), strict=False)
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, RecursionError):
        return NOT_JSON if how.settled else None
    return value if isinstance(value, dict) else NOT_AN_OBJECT


class _Tree:
    """Where the files of a session are."""

    def __init__(self, path: Path, session: str | None = None) -> None:
        storage = path.parents[2] if len(path.parents) > 2 else path.parent
        self._parts = storage / "part"
        # A name that leads elsewhere is nobody's id.
        names = [name for name in (session, path.stem, path.stem.removeprefix("ses_")) if name and _is_name(name)]
        folders = [storage / "message" / name for name in names]
        self._messages = next((folder for folder in folders if folder.is_dir()), folders[-1] if folders else None)
        self._flat: dict[str, list[Path]] | None = None

    def files(self) -> Iterator[Path]:
        """Everything that belongs to the session, folders included."""
        if self._messages is None or not self._messages.is_dir():
            return
        yield self._messages
        flat = False
        for message in self.messages():
            yield message
            folder = self._parts / message.stem
            if not folder.is_dir():
                folder = self._parts / _id_of(message)
            if folder.is_dir():
                yield folder
                yield from _json_files(folder)
            else:
                flat = True
        if flat:
            yield from _json_files(self._parts)

    def messages(self) -> list[Path]:
        """The message files, whose names are in the order of their time."""
        return _json_files(self._messages) if self._messages is not None else []

    def parts(self, message: str) -> list[Path]:
        """The files of a message's parts."""
        if _is_name(message) and (self._parts / message).is_dir():
            return _json_files(self._parts / message)
        if self._flat is None:
            self._flat = {}
            for file in _json_files(self._parts):
                self._flat.setdefault(_field(file, "messageID"), []).append(file)
        return self._flat.get(message, [])


def _is_name(name: str) -> bool:
    return Path(name).name == name and name not in {".", ".."}


def _json_files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".json" and file.is_file())
    except OSError:
        return []


def _id_of(message: Path) -> str:
    found = _field(message, "id")
    return found if _is_name(found) else message.stem


def _field(file: Path, key: str) -> str:
    """A text that stands in a file; nothing when it can not be read."""
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    return text_of(value.get(key)) if isinstance(value, dict) else ""
