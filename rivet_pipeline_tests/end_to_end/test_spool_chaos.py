"""The API killed and started again at random while agents capture through the spool: all there, once, in order."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from rivet_pipeline.client import CaptureClient
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.transcripts.spool import Spool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AGENTS, CAPTURES = 4, 1_250
#: So many kills, while the agents are at work.
KILLS = 5

#: One agent: a message at a time, each written when the one before it was acknowledged, in a session of its own and in
#: one that all share.
AGENT = """
import sys
from pathlib import Path
from rivet_pipeline.client import CaptureBatch, CaptureClient, Refused
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord
from rivet_pipeline.transcripts.spool import Spool

url, folder, agent, captures = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
counts = {}
with CaptureClient(url, None, Spool(folder)) as client:
    for number in range(captures):
        key = "chaos:shared" if number % 10 == 0 else f"chaos:{agent}"
        record = MessageRecord(f"{agent}-{number}", "user", f"{agent} says {number}")
        outcome = client.write(CaptureBatch(SessionRecord(key, "chaos", "test"), [record]))
        name = type(outcome).__name__
        counts[name] = counts.get(name, 0) + 1
print(counts)
"""


class Service:
    """A `rivet serve` that can be killed and started again on the same port."""

    def __init__(self, database_url: str, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            "RIVETOS_PG_URL": database_url,
            "RIVETOS_HOME": str(home),
            "RIVETOS_API_PORT": str(port),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rivet_pipeline.cli.main", "serve"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{self.url}/healthz", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                assert time.monotonic() < deadline, "the API does not answer"
                time.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)


def test_captures_through_a_service_that_is_killed_again_and_again(
    database_url: str, connection: Connection, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool")
    service = Service(database_url, tmp_path / "home")
    service.start()
    chance = random.Random(20260308)
    try:
        service.wait()
        agents = [
            subprocess.Popen(
                [sys.executable, "-c", AGENT, service.url, str(spool.folder), f"agent{number}", str(CAPTURES)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(AGENTS)
        ]
        kills = 0
        while any(agent.poll() is None for agent in agents):
            time.sleep(chance.uniform(0.5, 2.0))
            if kills < KILLS:
                service.kill()
                kills += 1
                time.sleep(chance.uniform(0.0, 0.5))
                service.start()
                service.wait()
        said = [agent.communicate()[0] for agent in agents]
        assert [agent.returncode for agent in agents] == [0] * AGENTS
        assert kills == KILLS
        assert any("Written" in one for one in said)
        assert any("Spooled" in one for one in said)
        with CaptureClient(service.url, None, spool) as client:
            assert client.replay(wait=10).stopped is None
    finally:
        service.kill()
    assert spool.files() == []
    assert spool.dead() == []
    rows = connection.execute(
        """SELECT session_key, content FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = conversation_id
           ORDER BY m.created_at, m.seq"""
    ).fetchall()
    assert len(rows) == AGENTS * CAPTURES
    for number in range(AGENTS):
        mine = [row for row in rows if row["content"].startswith(f"agent{number} ")]
        for shared in (True, False):
            heard = [row["content"] for row in mine if (row["session_key"] == "chaos:shared") == shared]
            told = [f"agent{number} says {count}" for count in range(CAPTURES) if (count % 10 == 0) == shared]
            assert heard == told
