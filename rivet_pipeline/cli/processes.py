"""Starts, watches and stops the programs that `rivet up` runs. Knows nothing of what they are.

The programs stay in our process group, so that whoever kills the group kills them too. Each is recorded in a file with
its start time; should only we be killed, the next start finds and ends what was left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rivet_pipeline.errors import RivetError

#: A program that ends by itself is started again this often; then something is wrong that a person must see.
MAX_RESTARTS = 3

_STOP_SECONDS = 15.0


@dataclass(slots=True)
class Program:
    """One program under watch."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0

    def start(self) -> None:
        """Starts the program with its output in the log file."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                list(self.command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(self.environment)
            )

    @property
    def running(self) -> bool:
        """Whether the program has been started and has not ended."""
        return self.process is not None and self.process.poll() is None


@dataclass(slots=True)
class Supervisor:
    """The programs of one `rivet up`, recorded in `record` while they run."""

    record: Path
    programs: list[Program] = field(default_factory=list)

    def start(self, program: Program) -> None:
        """Starts one more program."""
        program.start()
        self.programs.append(program)
        self._write_record()

    def revive(self) -> list[str]:
        """Starts again what has ended by itself; returns the names.

        Raises `RivetError` naming the log of a program that has ended too often.
        """
        revived = []
        for program in self.programs:
            if program.running:
                continue
            if program.restarts >= MAX_RESTARTS:
                raise RivetError(f"{program.name} ended {MAX_RESTARTS + 1} times; the reason stands in {program.log}")
            program.restarts += 1
            program.start()
            revived.append(program.name)
        if revived:
            self._write_record()
        return revived

    def stop(self) -> None:
        """Asks every program to stop, waits, and kills what does not; the last started goes first."""
        processes = [program.process for program in reversed(self.programs) if program.process is not None]
        trees = [child for process in processes if process.poll() is None for child in _descendants(process.pid)]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _end(trees, patience=3.0)
        self.record.unlink(missing_ok=True)

    def _write_record(self) -> None:
        entries = []
        for program in self.programs:
            if program.process is not None and program.running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    created = psutil.Process(program.process.pid).create_time()
                    entries.append({"name": program.name, "pid": program.process.pid, "created": created})
        self.record.write_text(json.dumps(entries), encoding="utf-8")


def end_leftovers(record: Path) -> list[str]:
    """Ends the programs that a killed `rivet up` left running; returns their names.

    A process id that has since been given to another program is recognised by its start time and left alone.
    """
    try:
        entries = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    ended: list[str] = []
    for entry in entries:
        try:
            process = psutil.Process(entry["pid"])
            if abs(process.create_time() - entry["created"]) > 1.0:
                continue
        except psutil.NoSuchProcess:
            continue
        _end([*_descendants(process.pid), process], patience=10.0)
        ended.append(entry["name"])
    record.unlink(missing_ok=True)
    return ended


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _end(processes: Sequence[psutil.Process], *, patience: float) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(list(processes), timeout=patience)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Holds a lock file for the block. Raises `RivetError` when another process holds it."""
    with lock.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.seek(0)
            raise RivetError(
                f"rivet up is already running for {lock.parent.parent} (process {handle.read().strip() or 'unknown'}); "
                "stop it with Ctrl-C, or set RIVETOS_HOME to another folder."
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def require_free_port(host: str, port: int, variable: str) -> None:
    """Raises `RivetError` naming the variable to change when something listens on the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RivetError(
                f"port {port} on {host} can not be used ({error.strerror}); set {variable} to a free one."
            ) from error


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
