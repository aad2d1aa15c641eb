"""How many batches a second `POST /api/capture` stores durably, against bare inserts of the same rows in the same run.

A real API process on a real socket, with a temporary embedded server as it runs in production (fsync on). Eight
clients, a connection each, post batches of one message for some seconds: each client to a session of its own, then all
to one session, whose lock lets one writer in at a time. The baseline is a psycopg loop with as many threads that does
nothing but INSERT and COMMIT the same rows into the same table.

    python -m benchmarks.capture_rate [--seconds 10] [--clients 8]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from psycopg.types.json import Jsonb

from benchmarks.sessions import message_text, texts_of
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import connect

#: Texts made before the clock runs; clients take them in turn.
TEXTS = 2_000

#: One attempt to store one message: its number.
Store = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Load:
    """What some clients did: each batch's milliseconds, and the seconds until the last one was done."""

    milliseconds: Sequence[float]
    seconds: float

    @property
    def rate(self) -> float:
        """Batches a second."""
        return len(self.milliseconds) / self.seconds

    def percentile(self, share: float) -> float:
        """The milliseconds that `share` percent of the batches stayed within."""
        return float(np.percentile(self.milliseconds, share))


def drive(stores: Sequence[Store], seconds: float) -> Load:
    """Lets every client store one message after another, all at once, for some seconds. Raises what a client raised."""
    numbers = count()
    times: list[list[float]] = [[] for _ in stores]
    problems: list[BaseException] = []
    ready = threading.Barrier(len(stores) + 1)
    stop = threading.Event()

    def work(store: Store, mine: list[float]) -> None:
        try:
            store(next(numbers))
            ready.wait()
            while not stop.is_set():
                begun = time.perf_counter()
                store(next(numbers))
                mine.append(1000 * (time.perf_counter() - begun))
        except BaseException as error:
            problems.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=pair) for pair in zip(stores, times, strict=True)]
    for thread in threads:
        thread.start()
    try:
        ready.wait()
    except threading.BrokenBarrierError:
        problems.append(RuntimeError("a client failed at its first batch"))
    begun = time.perf_counter()
    stop.wait(0 if problems else seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return Load([each for mine in times for each in mine], time.perf_counter() - begun)


def posting(port: int, texts: Sequence[str], session: str) -> Store:
    """A client with a connection of its own that posts messages of one session."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    headers = {"Content-Type": "application/json"}

    def store(number: int) -> None:
        message = {
            "event_id": f"event-{number}",
            "role": "user" if number % 3 == 0 else "assistant",
            "content": texts[number % len(texts)],
            "metadata": {"cwd": "/home/ada/src/shop"},
            "created_at": datetime.now(UTC).isoformat(),
        }
        batch = {"session_key": session, "agent": "claude-code", "channel": "cli", "messages": [message]}
        connection.request("POST", "/api/capture", json.dumps(batch).encode(), headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or json.loads(body)["inserted"] != 1:
            raise RuntimeError(f"capture answered {answer.status}: {body[:300]!r}")

    return store


def inserting(url: str, texts: Sequence[str], session: str) -> Store:
    """A client with a database connection of its own that inserts the same rows, each in its own transaction."""
    connection = connect(url)
    row = connection.execute(
        """
        INSERT INTO ros_conversations (session_key, agent, channel, day) VALUES (%s, 'claude-code', 'cli', current_date)
        RETURNING id
        """,
        [session],
    ).fetchone()
    assert row is not None

    def store(number: int) -> None:
        # Autocommit: the statement is its own transaction, durable when it returns.
        connection.execute(
            """
            INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, metadata, created_at)
            VALUES (%s, %s, 'claude-code', 'cli', %s, %s, %s, %s)
            """,
            [
                row["id"],
                f"event-{number}",
                "user" if number % 3 == 0 else "assistant",
                texts[number % len(texts)],
                Jsonb({"cwd": "/home/ada/src/shop"}),
                datetime.now(UTC),
            ],
        )

    return store


@contextmanager
def api_process(url: str, home: Path) -> Iterator[int]:
    """`rivet serve` over the store at `url`, in a process of its own; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment: dict[str, Any] = {
        **os.environ,
        "RIVETOS_PG_URL": url,
        "RIVETOS_HOME": str(home),
        "RIVETOS_API_PORT": str(port),
    }
    process = subprocess.Popen([sys.executable, "-m", "rivet_pipeline.cli.main", "serve"], env=environment)
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the API did not start")
            time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _answers(port: int) -> bool:
    """Whether the API is ready. Health looks at the embedding model, whose loading would disturb the first seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/api/memory/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def stored(url: str) -> int:
    """The messages in the store."""
    with connect(url) as connection:
        row = connection.execute("SELECT count(*) AS stored FROM ros_messages").fetchone()
        assert row is not None
        return int(row["stored"])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each of the three loads lasts")
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    rng = random.Random(3)
    source = texts_of(rng, os.environ.get("RIVET_SHARED_DATA"))
    texts = [message_text(source, rng) for _ in range(TEXTS)]
    clients = range(options.clients)
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "postgres")
        server.start()
        try:
            with connect(server.url("postgres")) as connection:
                connection.execute("CREATE DATABASE benchmark")
            url = server.url("benchmark")
            with connect(url) as connection:
                apply_migrations(connection)
            bare = drive([inserting(url, texts, f"bare:{client}") for client in clients], options.seconds)
            before = stored(url)
            with api_process(url, Path(folder)) as port:
                own = drive([posting(port, texts, f"own:{client}") for client in clients], options.seconds)
                shared = drive([posting(port, texts, "shared") for _ in clients], options.seconds)
            landed = stored(url) - before
        finally:
            server.stop()
    # Every client's first batch is not timed.
    answered = len(own.milliseconds) + len(shared.milliseconds) + 2 * options.clients
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{options.clients} clients, {options.seconds:g} s each, batches of one message; load {load}")
    print(f"{answered:,} batches answered, {landed:,} messages stored\n")
    print(f"{'':32}{'batches/s':>12}{'p50 ms':>10}{'p95 ms':>10}{'of bare':>10}")
    for name, load_ in (
        ("bare INSERT, COMMIT", bare),
        ("capture, a session each", own),
        ("capture, one session", shared),
    ):
        share = load_.rate / bare.rate
        print(f"{name:32}{load_.rate:>12.0f}{load_.percentile(50):>10.1f}{load_.percentile(95):>10.1f}{share:>10.2f}")
    if answered != landed:
        raise SystemExit("messages were lost, or stored twice")


if __name__ == "__main__":
    main()
