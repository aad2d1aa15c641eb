"""Tells which project a folder belongs to, by what git left beside it. Reads files only: no git, no network, no store.

Sessions are captured from folders that are gone, on network drives that hang, or made by somebody else. So nothing here
raises or waits for long: what can not be found out in time is answered with the folder's own name.
"""

from __future__ import annotations

import os
import queue
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import unquote

from rivet_pipeline.transcripts.cleaning import clean_text

#: The bounds of a look: length of a path, folders upwards, bytes of a file of git's, seconds in all.
_MAX_PATH = 4096
_MAX_LEVELS = 16
_MAX_FILE = 256 * 1024
_SECONDS = 1.5

#: A drive that hangs keeps a look waiting for ever; no more than this many may be lost that way.
_looks = threading.BoundedSemaphore(4)

_MAX_NAME = 100

#: Folders that hold people's homes, and homes themselves, of this machine and of others, also as Windows' drives are
#: mounted; and where everything temporary lies side by side.
_HOMES = re.compile(
    r"/|/root|(/mnt|/cygdrive)/[a-z]|((/mnt|/cygdrive)?/[a-z]/Users|/home|/Users|/(var|export)/home)(/[^/]+)?"
    r"|(/private)?(/var)?/tmp"
)
_WINDOWS_HOMES = re.compile(r"[A-Za-z]:\\?|[A-Za-z]:\\Users(\\[^\\]+)?", re.IGNORECASE)

_SECTION = re.compile(r'\[\s*(?P<name>[\w.-]+)\s*(?:"(?P<part>(?:[^"\\]|\\.)*)")?\s*\]')
_HOST_ALONE = re.compile(r"(https?|ssh|git)://[^/]*/*", re.IGNORECASE)
_URL = re.compile(r"\s*url\s*=\s*(?P<url>.*?)\s*", re.IGNORECASE)


def project_of(cwd: str) -> str | None:
    """The name of the project that an absolute local folder belongs to; None when it belongs to none.

    It is the name of the repository at the remote `origin`, else of the folder that holds the repository (for a git
    worktree the main one's), else of the folder itself, which need not exist. A home folder, what only a home's own
    repository holds, and a folder for everything temporary is no project. Answers within 1.5 seconds.
    """
    path = cwd.strip()
    if not 0 < len(path) <= _MAX_PATH or "\x00" in path:
        return None
    if PureWindowsPath(path).is_absolute() and not path.startswith("/"):
        return _windows_name(path)
    path = os.path.normpath(path)
    if not path.startswith("/") or path.startswith("//") or _is_home(path):
        return None
    fallback = _name(Path(path).name)
    return _look(path, fallback)


def planned_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from a session's own settings: the project, when its `cwd` names a folder. Never raises."""
    cwd = settings.get("cwd")
    project = project_of(cwd) if isinstance(cwd, str) else None
    return {} if project is None else {"project": project}


def _windows_name(path: str) -> str | None:
    plain = str(PureWindowsPath(path))
    if plain.startswith("\\\\") or _WINDOWS_HOMES.fullmatch(plain):
        return None
    return _name(PureWindowsPath(plain).name)


def _is_home(path: str) -> bool:
    try:
        home = str(Path.home())
    except RuntimeError:
        home = "/"
    return path == home or _HOMES.fullmatch(path) is not None


def _look(path: str, fallback: str | None) -> str | None:
    looks = _looks
    if not looks.acquire(blocking=False):
        return fallback
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def look() -> None:
        try:
            answers.put(_found(path) or fallback)
        except Exception:
            # Whatever is wrong with a folder, the session that names it counts more.
            answers.put(fallback)
        finally:
            looks.release()

    try:
        threading.Thread(target=look, name="project", daemon=True).start()
    except RuntimeError:
        # No thread is to be had.
        looks.release()
        return fallback
    try:
        return answers.get(timeout=_SECONDS)
    except queue.Empty:
        return fallback


def _found(path: str) -> str | None:
    """The repository's name for a folder that exists; None when it stands in none."""
    if not Path(path).is_dir():
        return None
    for folder in _upwards(Path(path).resolve()):
        entry = folder / ".git"
        try:
            mode = entry.stat().st_mode
        except FileNotFoundError:
            if _is_bare(folder):
                return _origin(folder) or _main_name(folder)
            continue
        if stat.S_ISDIR(mode):
            return _repository(entry, folder)
        if stat.S_ISREG(mode):
            return _linked(entry, folder)
    return None


def _upwards(folder: Path) -> Iterator[Path]:
    for candidate in [folder, *folder.parents][:_MAX_LEVELS]:
        if _is_home(str(candidate)):
            return
        yield candidate


def _repository(git: Path, folder: Path) -> str | None:
    return _origin(git) or _name(folder.name)


def _linked(pointer: Path, folder: Path) -> str | None:
    """The project of a folder whose `.git` is a file: a worktree of a repository elsewhere, or a submodule."""
    named = _text(pointer).strip()
    if not named.startswith("gitdir:"):
        return _name(folder.name)
    git = Path(os.path.normpath(folder / named.removeprefix("gitdir:").strip()))
    common = _text(git / "commondir").strip()
    if not common and (git.parent.name != "worktrees" or _text(git / "config")):
        # A submodule is a repository of its own, with a configuration of its own.
        return _repository(git, folder)
    # Where the main repository is gone, or not on this machine, its place says the name.
    shared = Path(os.path.normpath(git / common)) if common else git.parent.parent
    return _origin(shared) or _main_name(shared) or _name(folder.name)


def _main_name(shared: Path) -> str | None:
    """The name of the repository whose git folder this is: `shop/.git`, `shop/.bare` or `shop.git`.

    One that lies in a home itself, as `~/.dotfiles` does, has its own name.
    """
    is_inside = shared.name.startswith(".") and not _is_home(str(shared.parent))
    main = shared.parent if is_inside else shared
    return _name(main.name.removesuffix(".git"))


def _is_bare(folder: Path) -> bool:
    """Whether a folder is itself a git folder: that of a repository without a working copy, or a `.git`."""
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _origin(git: Path) -> str | None:
    """The name of the repository at `origin`, out of the configuration in a git folder."""
    in_origin = False
    for line in _text(git / "config").splitlines():
        stripped = line.strip()
        if section := _SECTION.match(stripped):
            in_origin = section["name"].lower() == "remote" and section["part"] == "origin"
            stripped = stripped[section.end() :]
        if in_origin and (found := _URL.fullmatch(stripped)):
            return _repository_name(found["url"])
    return None


def _repository_name(url: str) -> str | None:
    """The last part of a remote's address, however it is spelt: `git@host:team/shop.git`, `https://host/team/shop`."""
    plain = re.split(r'\s[#;]|[?#"]', url.strip().strip('"'), maxsplit=1)[0].strip()
    if _HOST_ALONE.fullmatch(plain):
        return None
    # Of a repository's own git folder the name stands before it.
    parts = [part for part in re.split(r"[/\\:]", plain) if part not in ("", ".git")]
    last = parts[-1] if parts else ""
    return _name((unquote(last) if "://" in plain else last).removesuffix(".git").removesuffix(".bundle"))


def _name(text: str) -> str | None:
    """The text as a project's name; None when it is none."""
    name = " ".join(clean_text(text).split())[:_MAX_NAME].strip()
    # A name that could not be read whole could not be typed either.
    return None if name in {"", ".", "..", "/"} or "\ufffd" in name else name


def _text(path: Path) -> str:
    """A small regular file's text; nothing when it is missing, large or something else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE:
            return ""
        return stream.read(_MAX_FILE).decode("utf-8", "replace")
