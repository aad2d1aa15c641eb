"""Where the harnesses keep their sessions on this machine. Looks at names only; what is in the files is the readers'.

A place is listed here with the harness it belongs to; several harnesses keep theirs at several places, or wherever they
were started. No place is made, changed, or needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rivet_pipeline.settings import Settings


@dataclass(frozen=True, slots=True)
class Store:
    """A folder or file that exists, in which a harness keeps sessions."""

    harness: str
    path: Path


def find_stores(settings: Settings, *, home: Path | None = None, projects: Iterable[Path] = ()) -> list[Store]:
    """The stores of the installed harnesses that exist, each path once.

    `home` is the user's home folder (None: that of this process); `projects` are folders in which agents have worked,
    where some harnesses leave their history.
    """
    found: dict[Path, Store] = {}
    for harness, pattern in _places(settings, home or Path.home(), projects):
        for path in _matches(pattern):
            found.setdefault(path.resolve(), Store(harness, path))
    return list(found.values())


def _places(settings: Settings, home: Path, projects: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Every harness with the places it may use; `*` stands for any part of one name."""
    yield "claude-code", settings.claude_home / "projects"
    yield "claude-code", home / ".config/claude/projects"
    yield "codex", settings.codex_home / "sessions"
    yield "codex", settings.codex_home / "archived_sessions"
    yield "gemini-cli", home / ".gemini/tmp"
    for variant in ("antigravity", "antigravity-cli", "antigravity-ide"):
        yield "antigravity", home / ".gemini" / variant / "brain"
    yield "qwen-code", settings.qwen_home / "projects"
    yield "qwen-code", settings.qwen_home / "tmp"
    yield "kimi-code", settings.kimi_home / "sessions"
    yield "kimi-code", home / ".kimi/sessions"
    yield "grok-build", home / ".grok/sessions"
    if settings.opencode_db is not None:
        yield "opencode", settings.opencode_db
    yield "opencode", settings.data_home / "opencode/opencode.db"
    yield "opencode", settings.data_home / "opencode/opencode-*.db"
    yield "opencode", settings.data_home / "opencode/storage/session"
    yield "opencode", settings.data_home / "opencode/project/*/storage/session"
    for folder in (settings.hermes_home, settings.hermes_home / "profiles/*"):
        yield "hermes", folder / "state.db"
        yield "hermes", folder / "sessions"
    yield "cursor", home / ".cursor/projects/*/agent-transcripts"
    yield "cursor", home / ".cursor/chats"
    for application in (".config/Cursor", "Library/Application Support/Cursor", "AppData/Roaming/Cursor"):
        yield "cursor", home / application / "User/globalStorage/state.vscdb"
    yield "pi", home / ".pi/agent/sessions"
    yield "openclaw", home / ".openclaw/agents/*/sessions"
    yield "copilot-cli", home / ".copilot/session-state"
    yield "droid", home / ".factory/sessions"
    for folder in (home, *projects):
        yield "aider", folder / ".aider.chat.history.md"
        yield "specstory", folder / ".specstory/history"


def _matches(pattern: Path) -> list[Path]:
    """The paths that exist of a pattern. A folder that can not be listed has none."""
    found = [Path(pattern.anchor)]
    for name in pattern.parts[1:]:
        found = [match for path in found for match in _step(path, name)]
    return found


def _step(path: Path, name: str) -> list[Path]:
    try:
        if "*" in name:
            return sorted(child for child in path.iterdir() if fnmatchcase(child.name, name))
        child = path / name
        return [child] if child.exists() else []
    except OSError:
        return []
