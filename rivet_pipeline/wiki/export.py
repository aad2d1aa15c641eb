"""Writes the wiki into a folder of Markdown files, one a page. Only what has changed is written, in whole files.

A list of the files that an export wrote stands in the folder, with what they held. Every other file, and one that
somebody has written in since, is never touched: neither overwritten nor removed, whatever it is called.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import RivetError
from rivet_pipeline.wiki.markdown import index_markdown, note_name, page_markdown
from rivet_pipeline.wiki.read import TopicPage, list_topics, read_topic

#: The list of what an export wrote, with a hash of each file as it was written.
MANIFEST = ".rivet-wiki.json"

#: The page that lists all pages. No slug has an underscore, so no page can want this name.
INDEX = "_index.md"

_PAGES_AT_ONCE = 1000

#: What an export that was killed has left behind of a file, and after how many seconds it is certainly that.
_HALF, _LEFT_BEHIND = re.compile(r"\.rivet-[0-9a-f]{32}-\w{8}\.tmp"), 3600.0


@dataclass(slots=True)
class ExportReport:
    """What an export did: names of files. `left_alone` are in the way and were not written by an export."""

    written: list[str] = field(default_factory=list)
    unchanged: int = 0
    removed: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)


def export_wiki(connection: Connection, folder: Path) -> ExportReport:
    """Brings a folder up to date with the wiki; the folder is made where it is missing.

    Raises `RivetError` when the folder can not be written.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        pages = list(_pages(connection))
    texts = {f"{note_name(page.slug)}.md": page_markdown(page) for page in pages}
    texts[INDEX] = index_markdown(pages)
    try:
        return _bring_up_to_date(folder, texts)
    except OSError as error:
        raise RivetError(f"the wiki can not be written to {folder}: {error.strerror or error}") from error


def _pages(connection: Connection) -> Iterator[TopicPage]:
    """All pages by title."""
    offset = 0
    while True:
        lines, _ = list_topics(connection, limit=_PAGES_AT_ONCE, offset=offset)
        for line in lines:
            page = read_topic(connection, line.slug)
            if page is not None:
                yield page
        if len(lines) < _PAGES_AT_ONCE:
            return
        offset += _PAGES_AT_ONCE


def _bring_up_to_date(folder: Path, texts: dict[str, str]) -> ExportReport:
    folder.mkdir(parents=True, exist_ok=True)
    _remove_halves(folder)
    known, manifest = _read_manifest(folder), folder / MANIFEST
    report = ExportReport()
    wanted = {name: _digest(text.encode("utf-8")) for name, text in texts.items()}
    files: dict[str, str] = {}
    seen: dict[str, str | None] = {}
    for name in sorted(wanted.keys() | known.keys()):
        there = seen[name] = _there(folder / name)
        if name in wanted and (there is None or there in known.get(name, ())) and there != wanted[name]:
            report.written.append(name)
            files.update({name: there} if there is not None else {})
        elif name in wanted and there == wanted[name]:
            report.unchanged += 1
            files[name] = wanted[name]
        elif there is not None and there not in known.get(name, ()):
            # Not ours, or somebody has written in it since. It is ours again when it is as an export wrote it.
            report.left_alone.append(name)
            files.update({name: known[name][0]} if name in known else {})
        elif there is not None:
            report.removed.append(name)
            files[name] = there
    if report.written:
        # Said before it is done: who is killed on the way finds in it what is his.
        _write_list(manifest, {"files": files, "writing": {name: wanted[name] for name in report.written}})
    may = {name: {None, seen[name], wanted.get(name)} for name in seen}
    for name in _as_seen(folder, report.written, report.left_alone, may):
        _write(folder / name, texts[name])
        files[name] = wanted[name]
    for name in _as_seen(folder, report.removed, report.left_alone, may):
        (folder / name).unlink(missing_ok=True)
        del files[name]
    report.left_alone.sort()
    _write_list(manifest, {"files": files})
    return report


def _as_seen(folder: Path, names: list[str], left_alone: list[str], may: dict[str, set[str | None]]) -> Iterator[str]:
    """The names, one by one, of files that nobody has written in since they were looked at.

    The others go from `names` to `left_alone`. What another export has written meanwhile is ours.
    """
    for name in tuple(names):
        if _there(folder / name) in may[name]:
            yield name
        else:
            names.remove(name)
            left_alone.append(name)


def _there(path: Path) -> str | None:
    """The hash of a file, None where nothing is; of what is no plain file a text that no hash is."""
    if path.is_file() and not path.is_symlink():
        return _digest(path.read_bytes())
    return "no plain file" if path.exists() or path.is_symlink() else None


def _read_manifest(folder: Path) -> dict[str, list[str]]:
    """The hashes that each file of an export may have: as it was written, and as one was about to write it."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    found: dict[str, list[str]] = {}
    try:
        lists = json.loads(path.read_text(encoding="utf-8"))
        for files in (lists["files"], lists.get("writing", {})):
            for name, digest in files.items():
                if Path(name).name == name:
                    found.setdefault(name, []).append(str(digest))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RivetError(f"{path} is no list of an export; remove it, or export to another folder") from error
    return found


def _write_list(path: Path, lists: dict[str, dict[str, str]]) -> None:
    text = json.dumps(lists, indent=1, sort_keys=True) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        _write(path, text)


def _remove_halves(folder: Path) -> None:
    """Removes what killed exports have left; nobody else calls a file so."""
    for path in folder.iterdir():
        # Another export may be at it just now.
        with suppress(FileNotFoundError):
            old = _HALF.fullmatch(path.name) and time.time() - path.lstat().st_mtime > _LEFT_BEHIND
            if old and path.is_file() and not path.is_symlink():
                path.unlink()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, text: str) -> None:
    """A whole file or none: readers never see half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".rivet-{uuid4().hex}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
