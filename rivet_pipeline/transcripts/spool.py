"""The spool: captures that could not be delivered, one private JSON file each, until they can.

Only its files belong here. Who posts them, and what an answer means for them, is the client's business.

A file's name says when it was made and, in its last part, which session it is of, so that the order is the order of
the names and a writer can see what waits without opening anything. What was refused moves to `dead/` byte for byte,
with its reason beside it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rivet_pipeline.errors import RivetError

_NAME = re.compile(r"(?P<ms>\d{1,16})-.*\.json")
_OWN_NAME = re.compile(r"\d+-\d+-(?P<mark>[0-9a-f]{8}-[0-9a-f]{4})-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\.json")
_REASON = ".reason.json"
_ATTEMPTS = ".attempts"

#: A capture that has waited longer than this, in seconds, is worth telling a person.
WAITING_TOO_LONG = 600.0

#: A file half written by a process that was killed is removed after this many seconds.
_STALE_SECONDS = 3600.0


class SpoolError(RivetError):
    """The spool's folder can not be read or written."""


class DamagedSpoolFileError(Exception):
    """A file in the spool holds no capture; `str(error)` says why."""


@dataclass(frozen=True, slots=True, order=True)
class SpoolFile:
    """One file that waits. Files sort by name, which is the order in which they were spooled."""

    name: str
    path: Path

    @property
    def mark(self) -> str | None:
        """Which session it is of, as `session_mark` says; None when its name was not given by us."""
        match = _OWN_NAME.fullmatch(self.name)
        return match["mark"] if match else None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a listing says of a file; `session_key` is None when it can not be read. Seconds and bytes."""

    name: str
    session_key: str | None
    messages: int
    age: float
    size: int
    attempts: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Dead:
    """A capture that was refused. `when` is aware UTC; `status` is the HTTP status, if it was one."""

    name: str
    session_key: str | None
    reason: str
    status: int | None
    when: datetime | None
    size: int


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """The spool in figures. `oldest_seconds` is None when nothing waits; `problem` says why it can not be read."""

    depth: int
    oldest_seconds: float | None
    dead: int
    bytes: int
    problem: str | None = None

    @property
    def complaints(self) -> list[str]:
        """What in this needs a person, a line each, with what to do."""
        lines = [f"the capture spool: {self.problem}"] if self.problem else []
        if self.oldest_seconds is not None and self.oldest_seconds > WAITING_TOO_LONG:
            minutes = self.oldest_seconds / 60
            lines.append(
                f"captures wait for the API ({self.depth}), the oldest for {minutes:,.0f} min; `rivet spool replay` "
                "sends them or says why not"
            )
        if self.dead:
            lines.append(f"captures were refused ({self.dead}); `rivet spool dead` says why, and can try again")
        return lines


def session_mark(session_key: str) -> str:
    """The part of a file's name that stands for its session."""
    digest = hashlib.sha256(session_key.encode("utf-8", "replace")).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}"


def _unique(session_key: str) -> str:
    """A version 8 UUID (RFC 9562: its content is ours) that begins with the session's mark."""
    rest = secrets.token_hex(9)
    return f"{session_mark(session_key)}-8{rest[:3]}-{'89ab'[int(rest[3], 16) % 4]}{rest[4:7]}-{rest[6:18]}"


class Spool:
    """The spool in one folder. The folder is made, for its owner alone, when something is first put into it."""

    #: Of this process, over all spools: files of one millisecond keep their order.
    _counter = 0
    _last_ms = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dead_folder = folder / "dead"

    # Putting

    def put(self, body: bytes, session_key: str) -> Path:
        """Keeps a capture; it is on the disk when this returns. Raises `SpoolError` when it can not be kept."""
        try:
            return self._write(self.folder, self._name(session_key), body)
        except OSError as error:
            raise SpoolError(
                f"nothing can be spooled in {self.folder} ({error.strerror}); make it writable."
            ) from error

    def put_dead(self, body: bytes, session_key: str, *, reason: str, status: int | None) -> Path:
        """Keeps a capture that was refused before it ever waited."""
        name = self._name(session_key)
        try:
            self._explain(name, reason, status)
            return self._write(self.dead_folder, name, body)
        except OSError as error:
            raise SpoolError(f"nothing can be kept in {self.dead_folder} ({error.strerror}).") from error

    @classmethod
    def _name(cls, session_key: str) -> str:
        # A clock that is set back does not reorder what one process says.
        cls._last_ms = max(cls._last_ms, int(time.time() * 1000))
        cls._counter += 1
        return f"{cls._last_ms:013d}-{cls._counter:06d}-{_unique(session_key)}.json"

    def _write(self, folder: Path, name: str, body: bytes) -> Path:
        _private(self.folder)
        _private(folder)
        temporary = folder / f".{name}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(body)
                stream.flush()
                os.fsync(stream.fileno())
            target = folder / name
            temporary.rename(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync(folder)
        return target

    # Looking

    def files(self) -> list[SpoolFile]:
        """What waits, the oldest first. Raises `SpoolError` when the folder can not be read."""
        try:
            return sorted(SpoolFile(entry.name, self.folder / entry.name) for entry in _json_files(self.folder))
        except OSError as error:
            raise SpoolError(f"{self.folder} can not be read ({error.strerror}); check whose it is.") from error

    def waits(self, session_key: str) -> bool:
        """Whether something of a session waits, as far as the names tell."""
        mark = session_mark(session_key)
        return any(file.mark == mark for file in self.files())

    def read(self, file: SpoolFile) -> dict[str, Any]:
        """A file's capture. Raises `DamagedSpoolFileError`, or `FileNotFoundError` when it is gone."""
        try:
            raw = file.path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DamagedSpoolFileError(f"can not be read: {error.strerror}") from error
        if not raw.strip(b"\x00 \t\r\n"):
            raise DamagedSpoolFileError("empty")
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise DamagedSpoolFileError(f"not JSON: {error}") from error
        if not isinstance(body, dict) or not isinstance(body.get("session_key"), str):
            raise DamagedSpoolFileError("no capture: without a session_key")
        if not isinstance(body.get("messages", []), list):
            raise DamagedSpoolFileError("no capture: its messages are no list")
        return body

    def listing(self) -> list[Waiting]:
        """What waits, the oldest first, with what each file says of itself."""
        listed = []
        for file in self.files():
            try:
                size = file.path.stat().st_size
                body = self.read(file)
            except FileNotFoundError:
                continue
            except DamagedSpoolFileError:
                body = {}
            attempts, error = self._attempts(file)
            key, messages = body.get("session_key"), body.get("messages") or []
            listed.append(Waiting(file.name, key, len(messages), _age(file.path), size, attempts, error))
        return listed

    def status(self) -> SpoolStatus:
        """The spool in figures, without opening a file. Never raises."""
        try:
            waiting = list(_json_files(self.folder))
            dead = sum(1 for _ in _json_files(self.dead_folder))
            size = sum(_size(entry) for entry in waiting)
        except OSError as error:
            return SpoolStatus(0, None, 0, 0, f"{self.folder} can not be read ({error.strerror})")
        oldest = min((entry.name for entry in waiting), default=None)
        return SpoolStatus(len(waiting), _age(self.folder / oldest) if oldest else None, dead, size)

    # Replaying

    @contextmanager
    def lock(self, wait: float) -> Iterator[bool]:
        """The right to replay, for the length of the block; False when another has it for longer than `wait` seconds.

        Raises `SpoolError` when the folder can not be written.
        """
        try:
            _private(self.folder)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolError(f"{self.folder} can not be written ({error.strerror}); check whose it is.") from error
        try:
            yield _locked(descriptor, wait)
        finally:
            os.close(descriptor)

    def remove(self, file: SpoolFile) -> None:
        """Forgets a capture that was delivered."""
        file.path.unlink(missing_ok=True)
        self._attempts_path(file).unlink(missing_ok=True)

    def note_attempt(self, file: SpoolFile, error: str) -> int:
        """Counts a failed delivery of this file; the number of them so far."""
        attempts = self._attempts(file)[0] + 1
        text = json.dumps({"attempts": attempts, "error": error, "at": _now()})
        temporary = self.folder / f".{file.name}.attempts.tmp"
        with suppress(OSError):
            temporary.write_text(text, encoding="utf-8")
            temporary.chmod(0o600)
            temporary.rename(self._attempts_path(file))
        return attempts

    def _attempts(self, file: SpoolFile) -> tuple[int, str | None]:
        try:
            noted = json.loads(self._attempts_path(file).read_text(encoding="utf-8"))
            return int(noted["attempts"]), str(noted["error"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0, None

    def _attempts_path(self, file: SpoolFile) -> Path:
        return self.folder / f"{file.name}{_ATTEMPTS}"

    def bury(self, file: SpoolFile, *, reason: str, status: int | None = None) -> None:
        """Moves a file to `dead/` as it is, its reason beside it. Raises `SpoolError` when that can not be done."""
        try:
            self._explain(file.name, reason, status)
            file.path.rename(self.dead_folder / file.name)
            _sync(self.dead_folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SpoolError(f"{file.path} can not be moved to dead/ ({error.strerror}).") from error
        self._attempts_path(file).unlink(missing_ok=True)

    def _explain(self, name: str, reason: str, status: int | None) -> None:
        text = json.dumps({"reason": reason, "status": status, "when": _now()}, ensure_ascii=False, indent=2)
        self._write(self.dead_folder, name.removesuffix(".json") + _REASON, text.encode("utf-8", "replace"))

    def sweep(self) -> None:
        """Removes what a process that was killed has left half written."""
        limit = time.time() - _STALE_SECONDS
        for folder in (self.folder, self.dead_folder):
            with suppress(OSError):
                for path in folder.glob(".*.tmp"):
                    if path.lstat().st_mtime < limit:
                        path.unlink(missing_ok=True)

    # The dead

    def dead(self) -> list[Dead]:
        """What was refused, the oldest first. Raises `SpoolError` when the folder can not be read."""
        try:
            files = sorted(
                SpoolFile(entry.name, self.dead_folder / entry.name) for entry in _json_files(self.dead_folder)
            )
        except OSError as error:
            raise SpoolError(f"{self.dead_folder} can not be read ({error.strerror}); check whose it is.") from error
        return [self._dead(file) for file in files]

    def _dead(self, file: SpoolFile) -> Dead:
        try:
            key = self.read(file)["session_key"]
        except (DamagedSpoolFileError, FileNotFoundError):
            key = None
        try:
            said = json.loads(self._reason_path(file).read_text(encoding="utf-8"))
            reason, status, when = str(said["reason"]), said["status"], datetime.fromisoformat(said["when"])
        except (OSError, ValueError, TypeError, KeyError):
            reason, status, when = "unknown: its reason is missing", None, None
        size = file.path.stat().st_size if file.path.exists() else 0
        return Dead(file.name, key, reason, status, when, size)

    def _reason_path(self, file: SpoolFile) -> Path:
        return self.dead_folder / (file.name.removesuffix(".json") + _REASON)

    def revive(self) -> int:
        """Puts everything that was refused back, in its former place; the number of captures. Raises `SpoolError`."""
        revived = 0
        for dead in self.dead():
            file = SpoolFile(dead.name, self.dead_folder / dead.name)
            try:
                file.path.rename(self.folder / dead.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SpoolError(f"{file.path} can not be put back ({error.strerror}).") from error
            self._reason_path(file).unlink(missing_ok=True)
            revived += 1
        if revived:
            _sync(self.folder)
        return revived


def _private(folder: Path) -> None:
    """Makes a folder that only its owner can enter, also when it was there with wider rights."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        # A mode is given to the last folder alone, and the one before is RIVETOS_HOME.
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        return
    if mode & 0o077:
        folder.chmod(0o700)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _json_files(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and not entry.name.startswith(".") and not entry.name.endswith(_REASON):
                    yield entry
    except FileNotFoundError:
        return


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _age(path: Path) -> float:
    """Seconds since a file was spooled, by its name or, when that does not say, by its last change."""
    match = _NAME.fullmatch(path.name)
    if match:
        made = int(match["ms"]) / 1000
    else:
        try:
            made = path.stat().st_mtime
        except OSError:
            return 0.0
    return max(time.time() - made, 0.0)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _locked(descriptor: int, wait: float) -> bool:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True
