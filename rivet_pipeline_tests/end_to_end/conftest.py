"""A whole `rivet up` in a home of its own, as a person starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from rivet_pipeline.cli.processes import free_port
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import connect


@dataclass
class Up:
    """One home, and the `rivet up` that runs over it."""

    home: Path
    api_port: int
    dagster_port: int
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def dagster(self) -> str:
        return f"http://127.0.0.1:{self.dagster_port}"

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RIVETOS_", "DAGSTER_"))}
        return {
            **kept,
            "RIVETOS_HOME": str(self.home),
            "RIVETOS_API_PORT": str(self.api_port),
            "RIVETOS_DAGSTER_PORT": str(self.dagster_port),
            "COLUMNS": "200",
            **more,
        }

    def start(self, *arguments: str, **environment: str) -> None:
        """Starts `rivet up` in a process group of its own and collects its output."""
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rivet_pipeline.cli.main", "up", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(**environment),
            start_new_session=True,
        )
        threading.Thread(target=self._collect, args=(self.process,), daemon=True).start()

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip())
        process.stdout.close()

    def wait_for(self, text: str, seconds: float = 240.0) -> None:
        assert self.process is not None
        until(lambda: text in self.output or self.process is None or self.process.poll() is not None, seconds)
        assert text in self.output, self.output

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def kill_group(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def rows(self, query: str) -> list[dict[str, Any]]:
        server = EmbeddedServer(self.home / "postgres")
        with connect(server.url("rivetos")) as connection:
            return connection.execute(query.encode()).fetchall()

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        answer = httpx.post(f"{self.dagster}/graphql", json={"query": query, "variables": variables}, timeout=60)
        body: dict[str, Any] = answer.json()
        assert "errors" not in body, body
        data: dict[str, Any] = body["data"]
        return data


def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something is true. Fails the test when it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        time.sleep(0.3)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="rivet-up-", ignore_cleanup_errors=True) as folder:
        started = Up(Path(folder) / "home", free_port(), free_port())
        started.start()
        try:
            yield started
        finally:
            if started.process is not None and started.process.poll() is None:
                started.stop()
            EmbeddedServer(started.home / "postgres").stop()
