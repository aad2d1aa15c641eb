"""What a live hook does: it leaves its payload as a job, starts a worker, and is gone. `hook_queue.py` takes the jobs.

A hook runs inside somebody else's agent, so this imports next to nothing, waits for nothing, and never raises: that is
why it does with `os` what `pathlib` does elsewhere, and is handed the environment instead of settings.
"""

from __future__ import annotations

import os
import sys
import time

# Importing typing, or collections, would take half as long as all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The first bytes of every job; a file that begins otherwise is none of ours.
MAGIC = b"rivet-hook-1"

#: Whose hooks are known.
HARNESSES = ("claude-code", "codex", "qwen-code")

#: A larger payload is not kept, in bytes; it is read all the same, lest its writer fail.
MAX_PAYLOAD = 64 * 1024 * 1024

#: A caller that neither writes nor closes is waited for so long, in seconds.
_PATIENCE = 2.0

#: A log over this size, in bytes, begins anew; one older is kept beside it.
_MAX_LOG = 1024 * 1024

#: How the files of jobs end that nobody has taken.
JOB_SUFFIX = ".job"

#: What the worker is started with. The package it belongs to is named, the folder the agent works in is not trusted.
_START = "import sys; sys.path.insert(0, sys.argv[1]); from rivet_pipeline.live import main; main(sys.argv[2])"


def home_folder(environment: Mapping[str, str]) -> str:
    """RIVETOS_HOME as the settings read it. Here because reading them takes longer than a hook may."""
    return os.path.abspath(os.path.expanduser(environment.get("RIVETOS_HOME") or "~/.rivetos"))


def leave_job(harness: str, environment: Mapping[str, str], descriptor: int = 0) -> None:
    """Keeps the payload on a descriptor as a job and starts a worker for it. Never raises; a problem is logged."""
    home = home_folder(environment)
    try:
        _private(home)
        _private(os.path.join(home, "hook-jobs"))
        if _receive(home, harness, environment, descriptor):
            _start_worker(home)
    except Exception as error:
        log(home, f"{harness}: the payload was not kept: {type(error).__name__}: {error}")


def _receive(home: str, harness: str, environment: Mapping[str, str], descriptor: int) -> bool:
    name = f"{int(time.time() * 1000):013d}-{os.urandom(6).hex()}"
    target = os.path.join(home, "hook-jobs", f"{name}.0{JOB_SUFFIX}")
    temporary = os.path.join(home, "hook-jobs", f".{name}.tmp")
    about = (harness, environment.get("RIVETOS_SESSION_KEY", ""), environment.get("RIVETOS_TASK_ID", ""))
    head = [MAGIC, *map(os.fsencode, (*about, _working_folder(), str(time.time())))]
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        _write(file, b"".join(part + b"\0" for part in head))
        size = 0
        for chunk in _chunks(descriptor):
            size += len(chunk)
            if size <= MAX_PAYLOAD:
                _write(file, chunk)
        problem = _refusal(harness, size)
        if problem is None:
            os.rename(temporary, target)
            return True
        log(home, f"{harness}: the payload was not kept: {problem}")
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(file)
    os.unlink(temporary)
    return False


def _refusal(harness: str, size: int) -> str | None:
    if harness not in HARNESSES and size == 0:
        return unknown_harness(harness)
    return "empty" if size == 0 else f"{size:,} bytes are too many" if size > MAX_PAYLOAD else None


def unknown_harness(harness: str) -> str:
    """What is wrong with a harness that is none of ours."""
    return f"unknown harness {harness[:80]!r}; known are {', '.join(HARNESSES)}"


def _chunks(descriptor: int) -> Iterator[bytes]:
    """What stands on a descriptor, to its end, or for as long as its writer goes on writing."""
    import select

    if os.isatty(descriptor):
        return
    while select.select([descriptor], [], [], _PATIENCE)[0]:
        chunk = os.read(descriptor, 1024 * 1024)
        if not chunk:
            return
        yield chunk


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _private(folder: str) -> None:
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o700, exist_ok=True)


def _start_worker(home: str) -> None:
    """Starts a worker in a session of its own, with nothing of the caller's open, and does not wait for it."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    words = [sys.executable, "-P", "-c", _START, root, home]
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    os.posix_spawn(sys.executable, words, os.environ, file_actions=nothing, setsid=True)


def log(home: str, line: str) -> None:
    """Adds a line to `logs/hooks.log` in the home, which stays small. Never raises."""
    try:
        folder = os.path.join(home, "logs")
        _private(home)
        _private(folder)
        path = os.path.join(folder, "hooks.log")
        if os.path.exists(path) and os.path.getsize(path) > _MAX_LOG:
            os.replace(path, path + ".1")
        text = " ".join(line.split())[:1000]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, f"{stamp} {text}\n".encode("utf-8", "replace"))
        finally:
            os.close(file)
    except OSError:
        pass
