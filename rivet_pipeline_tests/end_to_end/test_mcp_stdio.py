"""`rivet mcp` as a program: every line of its standard output is JSON-RPC, whatever happens to the store or to it."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from rivet_pipeline.api.tools import TOOLS
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import add_message

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "rivet_pipeline.cli.main", "mcp"]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Server:
    """A running `rivet mcp`, spoken to in raw lines; every line it says is parsed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def write(self, raw: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(raw)
        self.process.stdin.flush()

    def send(self, number: int, method: str, **params: Any) -> None:
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.write(json.dumps(frame).encode() + b"\n")

    def call(self, number: int, name: str, **arguments: Any) -> None:
        self.send(number, "tools/call", name=name, arguments=arguments)

    def hello(self) -> None:
        self.send(0, "initialize", **HELLO)
        assert self.answer(0)["serverInfo"]["name"] == "rivet"
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def next(self) -> dict[str, Any] | None:
        line = self._lines.get(timeout=60)
        if line is None:
            return None
        assert line.endswith(b"\n")
        frame: dict[str, Any] = json.loads(line)
        assert frame["jsonrpc"] == "2.0"
        return frame

    def answer(self, number: int) -> dict[str, Any]:
        """The result with this id. Whatever else is said meanwhile must be a frame too."""
        while True:
            frame = self.next()
            assert frame is not None, "it ended"
            if frame.get("id") == number:
                result: dict[str, Any] = frame["result"]
                return result

    def rest(self) -> list[dict[str, Any]]:
        """Every frame to the end, which must come."""
        frames = []
        while (frame := self.next()) is not None:
            frames.append(frame)
        self.process.wait(60)
        return frames


@contextmanager
def running(tmp_path: Path, **environment: str) -> Iterator[Server]:
    with (tmp_path / "stderr").open("wb") as log:
        process = subprocess.Popen(
            COMMAND,
            env={**os.environ, "RIVETOS_HOME": str(tmp_path / "home"), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


def test_the_sdks_client_calls_every_tool(database_url: str, connection: Connection, tmp_path: Path) -> None:
    message = str(add_message(connection, "The lamp is green."))
    environment = {
        "RIVETOS_PG_URL": database_url,
        "RIVETOS_HOME": str(tmp_path / "home"),
        "RIVETOS_MCP_ENABLE_MEMORY_WRITE": "1",
        "RIVETOS_MEMORY_AGENT": "grokbot",
    }
    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env={**os.environ, **environment})

    async def run() -> None:
        with (tmp_path / "stderr").open("w") as log:
            async with Client(stdio_client(parameters, errlog=log)) as client:
                for tool in (await client.list_tools()).tools:
                    arguments = TOOLS[tool.name].arguments.model_json_schema()["examples"][0]
                    if tool.name == "memory_get_full":
                        arguments = {"id": message}
                    answer = await client.call_tool(tool.name, arguments)
                    assert answer.is_error is (tool.name == "wiki_read"), answer.content

    anyio.run(run)
    assert connection.execute("SELECT DISTINCT agent FROM ros_messages ORDER BY 1").fetchall() == [
        {"agent": "claude"},
        {"agent": "grokbot"},
    ]


def test_without_a_store_it_starts_says_so_and_survives_garbage(tmp_path: Path) -> None:
    with running(tmp_path, RIVETOS_PG_URL=f"postgresql://nobody:hunter2@/x?host={tmp_path}") as server:
        server.hello()
        server.send(1, "tools/list")
        assert "memory_search" in json.dumps(server.answer(1))
        server.call(2, "memory_search", query="lamp")
        failed = server.answer(2)
        assert failed["isError"] is True
        assert "Start it with `rivet up`" in text_of(failed)
        assert "hunter2" not in text_of(failed)
        server.write(b'not json\n\n\xff\xfe\n{"jsonrpc": "2.0"}\n[]\n' + b"x" * 300_000 + b"\n{\n")
        server.call(3, "memory_search", limit="many", querry="lamp")
        wrong = server.answer(3)
        assert wrong["isError"] is True
        assert "querry: there is no such argument" in text_of(wrong)
        server.write(b'{"jsonrpc":"2.0","id":4,"meth')
        server.write(b'od":"ping"}\n{"half')
        assert server.answer(4) == {}
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert [frame for frame in server.rest() if "result" in frame] == []
    assert server.process.returncode == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_a_line_that_is_no_json_is_answered_with_a_parse_error(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.hello()
        for line in (b"garbage\n", b"\xff\xfe\n", b'{"half": \n', b"x" * (17 * 1024 * 1024) + b"\n"):
            server.write(line)
            frame = server.next()
            assert frame is not None
            assert (frame["id"], frame["error"]["code"]) == (None, -32700), line[:10]
            assert frame["error"]["message"].startswith("Parse error: the line is ")
        server.send(1, "ping")
        assert server.answer(1) == {}


def test_a_store_that_dies_in_a_call_and_comes_back(database_url: str, connection: Connection, tmp_path: Path) -> None:
    add_message(connection, "The lamp is green.")
    with running(tmp_path, RIVETOS_PG_URL=database_url) as server:
        server.hello()
        server.call(1, "memory_browse")
        assert "The lamp is green." in text_of(server.answer(1))
        with connection.transaction():
            connection.execute("LOCK TABLE ros_messages IN ACCESS EXCLUSIVE MODE")
            server.call(2, "memory_browse")
            with connect(database_url) as other:
                waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
                while not (rows := other.execute(waiting).fetchall()):
                    pass
                other.execute("SELECT pg_terminate_backend(%s)", [rows[0]["pid"]])
            failed = server.answer(2)
        assert failed["isError"] is True
        assert "This says nothing about what the memory holds." in text_of(failed)
        server.call(3, "memory_browse")
        assert "The lamp is green." in text_of(server.answer(3))
        with connection.transaction():
            connection.execute("LOCK TABLE ros_messages IN ACCESS EXCLUSIVE MODE")
            server.call(4, "memory_browse")
            with connect(database_url) as other:
                while not other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                    pass
            server.process.send_signal(signal.SIGTERM)
            assert [frame for frame in server.rest() if "result" in frame] == []
    assert server.process.returncode == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_a_client_that_closes_in_a_call_ends_it(database_url: str, connection: Connection, tmp_path: Path) -> None:
    with running(tmp_path, RIVETOS_PG_URL=database_url) as server:
        server.hello()
        server.call(1, "memory_stats")
        server.answer(1)
        with connection.transaction():
            connection.execute("LOCK TABLE ros_messages IN ACCESS EXCLUSIVE MODE")
            server.call(2, "memory_browse")
            assert server.process.stdin is not None
            server.process.stdin.close()
            server.rest()
    assert server.process.returncode == 0


def inspect(target: list[str], *words: str, **environment: str) -> Any:
    """What the MCP inspector's command line prints for one request to a server."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx is not installed: the MCP inspector comes from npm")
    command = [npx, "--yes", "@modelcontextprotocol/inspector", "--cli", *target, *words]
    ran = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=170, check=False
    )
    if "npm error" in ran.stderr or "npm ERR!" in ran.stderr:
        pytest.skip(f"npm could not bring the MCP inspector: {ran.stderr.strip().splitlines()[0][:200]}")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspectors_command_line_lists_and_calls(database_url: str, tmp_path: Path, transport: str) -> None:
    environment = {"RIVETOS_PG_URL": database_url, "RIVETOS_HOME": str(tmp_path / "home")}
    search = ("--method", "tools/call", "--tool-name", "memory_search", "--tool-arg", "query=lamp", "limit=5")
    with running_api(Settings(), database_url) as base:
        target = COMMAND if transport == "stdio" else [f"{base}/mcp", "--transport", "http"]
        listed = inspect(target, "--method", "tools/list", **environment)["tools"]
        called = inspect(target, *search, **environment)
    assert "memory_search" in [tool["name"] for tool in listed]
    assert "No results" in text_of(called)
