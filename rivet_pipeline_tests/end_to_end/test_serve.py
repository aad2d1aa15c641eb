"""`rivet serve` as a program: it answers, keeps what it acknowledged, and leaves in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from rivet_pipeline.db.pool import Connection

pytestmark = pytest.mark.slow


@contextmanager
def serving(url: str, home: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `rivet serve` that answers, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {"RIVETOS_PG_URL": url, "RIVETOS_HOME": str(home), "RIVETOS_API_PORT": str(port), **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "rivet_pipeline.cli.main", "serve"],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in the background has made us ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    base = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not _answers(base):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process, base
    finally:
        process.kill()
        process.communicate()


def _answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _capture(base: str, event: str) -> httpx.Response:
    message = {"event_id": event, "role": "user", "content": "kept"}
    batch = {"session_key": "s:1", "agent": "a", "channel": "c", "messages": [message]}
    return httpx.post(f"{base}/api/capture", json=batch, timeout=30)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order_and_quietly(
    database_url: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with serving(database_url, tmp_path) as (process, base):
        assert _capture(base, "e1").status_code == 200
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == code
    assert output == ""


def test_what_was_acknowledged_survives_a_kill(database_url: str, tmp_path: Path, connection: Connection) -> None:
    with serving(database_url, tmp_path) as (process, base):
        for number in range(5):
            assert _capture(base, f"e{number}").status_code == 200
        process.kill()
    assert connection.execute("SELECT count(*) AS n FROM ros_messages").fetchone() == {"n": 5}


def test_a_public_address_without_a_token_does_not_start(database_url: str, tmp_path: Path) -> None:
    settings = {"RIVETOS_PG_URL": database_url, "RIVETOS_HOME": str(tmp_path), "RIVETOS_API_HOST": "0.0.0.0"}
    ran = subprocess.run(
        [sys.executable, "-m", "rivet_pipeline.cli.main", "serve"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert len(ran.stderr.splitlines()) == 1
    assert "RIVETOS_API_TOKEN" in ran.stderr
