"""Writes the wiki into a folder of Markdown files, one a page. Only what has changed is written, in whole files.

A list of the files that an export wrote stands in the folder, with what they held. Every other file, and one that
somebody has written in since, is never touched: neither overwritten nor removed, whatever it is called.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import RivetError
from rivet_pipeline.wiki.markdown import index_markdown, page_markdown
from rivet_pipeline.wiki.read import list_topics, read_topic

#: The list of what an export wrote, with a hash of each file as it was written.
MANIFEST = ".rivet-wiki.json"

#: The page that lists all pages. No slug has an underscore, so no page can want this name.
INDEX = "_index.md"

#: Names that Windows keeps for devices: a page of such a name gets one of its own.
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})

_PAGES_AT_ONCE = 10_000


@dataclass(slots=True)
class ExportReport:
    """What an export did: names of files. `left_alone` are in the way and were not written by an export."""

    written: list[str] = field(default_factory=list)
    unchanged: int = 0
    removed: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)


def file_name(slug: str) -> str:
    """The name of a page's file: safe on every system."""
    return f"{slug}-page.md" if slug in _DEVICES else f"{slug}.md"


def export_wiki(connection: Connection, folder: Path) -> ExportReport:
    """Brings a folder up to date with the wiki; the folder is made where it is missing.

    Raises `RivetError` when the folder can not be written.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        lines, _ = list_topics(connection, limit=_PAGES_AT_ONCE)
        pages = [page for line in lines if (page := read_topic(connection, line.slug)) is not None]
    texts = {file_name(page.slug): page_markdown(page) for page in pages}
    texts[INDEX] = index_markdown(pages)
    try:
        return _bring_up_to_date(folder, texts)
    except OSError as error:
        raise RivetError(f"the wiki can not be written to {folder}: {error.strerror or error}") from error


def _bring_up_to_date(folder: Path, texts: dict[str, str]) -> ExportReport:
    folder.mkdir(parents=True, exist_ok=True)
    known = _read_manifest(folder)
    report = ExportReport()
    ours: dict[str, str] = {}
    for name, text in sorted(texts.items()):
        path, digest = folder / name, _digest(text.encode("utf-8"))
        there = _digest(path.read_bytes()) if path.is_file() and not path.is_symlink() else None
        if there is None and (path.exists() or path.is_symlink()):
            report.left_alone.append(name)
            continue
        if there not in (None, digest, known.get(name)):
            # Not ours, or somebody has written in it since.
            report.left_alone.append(name)
            continue
        if there == digest:
            report.unchanged += 1
        else:
            _write(path, text)
            report.written.append(name)
        ours[name] = digest
    for name in sorted(known.keys() - texts.keys()):
        path = folder / name
        if path.is_file() and not path.is_symlink():
            if _digest(path.read_bytes()) != known[name]:
                # Somebody has written in it since.
                report.left_alone.append(name)
                continue
            path.unlink()
            report.removed.append(name)
    manifest = json.dumps({"files": ours}, indent=1, sort_keys=True) + "\n"
    if not (folder / MANIFEST).exists() or (folder / MANIFEST).read_text(encoding="utf-8") != manifest:
        _write(folder / MANIFEST, manifest)
    return report


def _read_manifest(folder: Path) -> dict[str, str]:
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name: str(digest) for name, digest in files.items() if Path(name).name == name}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RivetError(f"{path} is no list of an export; remove it, or export to another folder") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, text: str) -> None:
    """A whole file or none: readers never see half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".rivet-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
