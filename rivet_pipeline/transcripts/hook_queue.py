"""The jobs that hooks have left: taken by one worker each, put back when it fails, kept when they fail for good.

How they come to be is `hook_jobs.py`'s business, what a payload means `hook_payloads.py`'s, and what is done with it
the worker's (`live.py`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rivet_pipeline.transcripts.hook_jobs import JOB_SUFFIX, MAGIC, log

#: So often a job is tried before it is kept in `dead/`.
MAX_ATTEMPTS = 5

#: A worker ends itself after so many seconds; a job that is held longer has lost its worker.
DEADLINE_SECONDS = 120
_STALE_SECONDS = DEADLINE_SECONDS + 30

#: `dead/` keeps this many jobs, the newest.
_MAX_DEAD = 200

_TAKEN_SUFFIX = ".taken"


@dataclass(slots=True)
class Job:
    """One job: a file `<stem>.<attempts>.job`, or `….<process>.taken`. The stem stays the same over all attempts."""

    path: Path
    harness: str = ""
    session_key: str = ""
    task_id: str = ""
    cwd: str = ""
    #: When the hook was called, in seconds since the epoch.
    time: float = 0.0
    payload: bytes = field(default=b"", repr=False)

    @property
    def stem(self) -> str:
        """What names the job over all attempts; sorts by the time of the hook."""
        return self.path.name.split(".")[0]

    @property
    def attempts(self) -> int:
        """How often the job has failed."""
        return int(self.path.name.split(".")[1])

    def read(self) -> bool:
        """Reads what the hook left; False when that is no job at all. Raises `OSError` when it can not be read."""
        parts = self.path.read_bytes().split(b"\0", 6)
        if len(parts) != 7 or parts[0] != MAGIC:
            return False
        self.harness, self.session_key, self.task_id, self.cwd = (os.fsdecode(part) for part in parts[1:5])
        self.payload = parts[6]
        try:
            self.time = float(parts[5])
        except ValueError:
            return False
        return True


class Jobs:
    """The jobs of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "hook-jobs"
        self.dead_folder = self.folder / "dead"

    def waiting(self) -> list[Job]:
        """The jobs that nobody has, the oldest first."""
        return self._jobs(JOB_SUFFIX)

    def _jobs(self, suffix: str) -> list[Job]:
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.name.endswith(suffix))
        except OSError:
            return []
        return [Job(path) for path in paths if path.name.count(".") >= 2 and path.name.split(".")[1].isdecimal()]

    def take(self, job: Job) -> bool:
        """Takes a job for this process; False when another was quicker."""
        try:
            job.path = job.path.rename(self.folder / f"{job.stem}.{job.attempts}.{os.getpid()}{_TAKEN_SUFFIX}")
            os.utime(job.path)
        except OSError:
            return False
        return True

    def put_back(self, job: Job, *, failed: bool = False) -> None:
        """Leaves a job for later."""
        try:
            job.path = job.path.rename(self.folder / f"{job.stem}.{job.attempts + failed}{JOB_SUFFIX}")
        except OSError as error:
            self.log(job, f"can not be put back: {error.strerror}")

    def finish(self, job: Job) -> None:
        """Removes a job that is done."""
        with suppress(OSError):
            job.path.unlink()

    def fail(self, job: Job, reason: str) -> None:
        """Counts a failed attempt, and buries the job after the last one."""
        attempts = job.attempts + 1
        self.log(job, f"attempt {attempts} failed: {reason}")
        if attempts >= MAX_ATTEMPTS:
            self.bury(job, f"failed {attempts} times: {reason}")
        else:
            self.put_back(job, failed=True)

    def bury(self, job: Job, reason: str) -> None:
        """Keeps a job in `dead/` with its reason beside it."""
        self.dead_folder.mkdir(mode=0o700, exist_ok=True)
        target = self.dead_folder / f"{job.stem}{JOB_SUFFIX}"
        target.with_suffix(".reason").write_text(f"{reason}\n", encoding="utf-8", errors="replace")
        target.with_suffix(".reason").chmod(0o600)
        with suppress(FileNotFoundError):
            job.path = job.path.rename(target)
        self.log(job, f"is kept in {self.dead_folder}: {reason}")
        for old in sorted(self.dead_folder.glob(f"*{JOB_SUFFIX}"))[:-_MAX_DEAD]:
            old.unlink(missing_ok=True)
            old.with_suffix(".reason").unlink(missing_ok=True)

    def dead(self) -> int:
        """How many jobs are kept because they failed."""
        return sum(1 for _ in self.dead_folder.glob(f"*{JOB_SUFFIX}"))

    def log(self, job: Job, line: str) -> None:
        """Adds a line about a job to the hooks' log."""
        log(str(self.home), f"{job.harness or 'hook'}: job {job.stem} {line}")

    def sweep(self) -> None:
        """Counts an attempt for every job whose worker was killed, and removes payloads that were cut short."""
        for job in self._jobs(_TAKEN_SUFFIX):
            if _lost(job):
                self.fail(job, "its worker was killed, or took too long")
        for path in self.folder.glob(".*.tmp"):
            if _age(path) > _STALE_SECONDS:
                path.unlink(missing_ok=True)

    @contextmanager
    def session_lock(self, session: str) -> Iterator[bool]:
        """The right to work for a session, for the length of the block; False when another worker has it.

        It goes with the process that has it, however that ends.
        """
        folder = self.folder / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        # A few hundred names keep sessions apart well enough, and never have to be cleared away.
        name = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:2]
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def _lost(job: Job) -> bool:
    """Whether the worker that took a job is gone, or has had it for longer than it may."""
    owner = job.path.name.split(".")[2]
    if _age(job.path) > _STALE_SECONDS or not owner.isdecimal():
        return True
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
