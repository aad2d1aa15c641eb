"""`rivet up`: the whole memory on this machine, in one terminal, until Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import httpx
import psycopg
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from rivet_pipeline.cli.processes import (
    MAX_RESTARTS,
    Program,
    Supervisor,
    end_leftovers,
    free_port,
    only_one,
    require_free_port,
)
from rivet_pipeline.cli.spool import said
from rivet_pipeline.client import CaptureClient, Replayed
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.ledger import try_services_again, waiting_failures
from rivet_pipeline.db.pending import PendingDay, amount, pending_days
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.db.store import dagster_url, embedded_server, prepare, prepare_dagster, stop_unless_used, store_url
from rivet_pipeline.errors import RivetError, StoreUnavailableError
from rivet_pipeline.retrieval.lexicon import is_due
from rivet_pipeline.retrieval.vector_pieces import vector_pieces_due
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.shipped import shipped
from rivet_pipeline.stages import STAGES
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.store_state import has_imported_from, holds_only, latest_title

#: What the demo sessions can answer.
DEMO_QUESTION = "why did we drop redis"

_DEMO = Path(str(files("rivet_pipeline") / "demo"))

_READY_SECONDS = 180.0

#: How long nothing is said of the work while no stage is done.
_QUIET_SECONDS = 15.0

#: And so long at most before what was started is looked after again.
_LONGEST_PAUSE = 5.0


class _StopRequested(Exception):  # noqa: N818 - a request, not an error
    """Ctrl-C or SIGTERM."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one RIVETOS_HOME."""

    root: Path

    @property
    def logs(self) -> Path:
        """Where the programs' output goes."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """What only matters while we run: the lock and the record of programs."""
        return self.root / "run"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME."""
        return self.root / "dagster"

    def prepare(self) -> None:
        """Makes the folders. Raises `RivetError` when the place can not be written."""
        try:
            for folder in (self.root, self.logs, self.run, self.dagster):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.run / "writable"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise RivetError(
                f"{self.root} can not be written ({error.strerror}); set RIVETOS_HOME to a folder that can."
            ) from error


def up_command(
    demo: Annotated[bool, typer.Option(help="Import the demo sessions when the store is empty.")] = True,
    once: Annotated[bool, typer.Option("--once", help="Stop when everything pending is done.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the sessions of the installed harnesses too, as `rivet watch` does.")
    ] = False,
) -> None:
    """Start the store, Dagster and the API, work off what is pending, and stay up until Ctrl-C.

    Example: rivet up
    """
    settings = get_settings()
    console = Console(highlight=False)
    began = time.monotonic()
    home = Home(settings.home)
    home.prepare()
    with _stop_signals(), only_one(home.run / "up.lock"):
        for name in end_leftovers(home.run / "programs.json"):
            console.print(f"Ended {name}, which an earlier start had left running.")
        if settings.api_port == settings.dagster_port:
            raise RivetError(f"the API and Dagster can not share port {settings.api_port}; set RIVETOS_DAGSTER_PORT.")
        require_free_port(settings.api_host, settings.api_port, "RIVETOS_API_PORT")
        require_free_port("127.0.0.1", settings.dagster_port, "RIVETOS_DAGSTER_PORT")
        try:
            with _store(settings, console) as url:
                if demo:
                    _import_demo(settings, url, console)
                _run(settings, home, url, console, began, once=once, follow=watch)
        except _StopRequested:
            console.print("Stopped. All data is kept; `rivet up` goes on where it was.")


@contextmanager
def _stop_signals() -> Iterator[None]:
    """Turns the first Ctrl-C or SIGTERM into `_StopRequested`; while stopping, further ones are ignored."""

    def request(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _StopRequested

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _store(settings: Settings, console: Console) -> Iterator[str]:
    """The migrated store. An embedded server is ours to stop, also when a killed start had left it running."""
    server = embedded_server(settings) if settings.pg_url is None else None
    try:
        if server is not None:
            console.print(f"Postgres: {'started' if server.start() else 'already running'} in {server.data}")
        else:
            console.print("Postgres: the server of RIVETOS_PG_URL")
        for name in prepare(settings):
            console.print(f"Migration {name} applied")
        prepare_dagster(settings)
        with connect(store_url(settings)) as connection:
            try_services_again(connection)
        yield store_url(settings)
    finally:
        if server is not None and not stop_unless_used(server):
            console.print("Postgres keeps running: another program is still connected to it.")


def _import_demo(settings: Settings, url: str, console: Console) -> None:
    with connect(url) as connection:
        # Also after a start that was interrupted in the middle of this: what is there already is known.
        if not holds_only(connection, _DEMO):
            return
    with open_pool(url, max_size=2) as pool:
        for agent in sorted(path for path in _DEMO.iterdir() if path.is_dir()):
            report = import_paths(
                pool,
                [agent],
                first_day=settings.first_day,
                max_line=settings.import_max_line,
                agent=agent.name,
                redact=settings.capture_redaction,
            )
            new = report.messages()["new"]
            if new:
                count = len(report.conversations)
                console.print(f"Demo sessions of {agent.name}: {count} conversations, {new} messages")


def _run(settings: Settings, home: Home, url: str, console: Console, began: float, *, once: bool, follow: bool) -> None:
    supervisor = Supervisor(home.run / "programs.json")
    try:
        _start_programs(settings, home, url, supervisor, console, follow=follow)
        api = _address(settings.api_host, settings.api_port)
        dagster = _address("127.0.0.1", settings.dagster_port)
        console.print(f"Hub:        {api}/hub")
        console.print(f"API:        {api}/docs")
        console.print(f"Dagster UI: {dagster}")
        _replay_spool(settings, console)
        watch = _Watch(settings, supervisor, console)
        _work_off(url, watch, console)
        _print_example(settings, url, api, console)
        console.print(f"\nReady after {time.monotonic() - began:.0f} s.")
        console.print(f"Hub:        {api}/hub")
        console.print(f"API:        {api}/docs")
        console.print(f"Dagster UI: {dagster}")
        if not once:
            console.print("New messages are picked up by themselves. Ctrl-C stops everything.")
            while True:
                watch.tend()
                time.sleep(2.0)
    finally:
        supervisor.stop()


def _start_programs(
    settings: Settings, home: Home, url: str, supervisor: Supervisor, console: Console, *, follow: bool
) -> None:
    shutil.copyfile(shipped("dagster.yaml"), home.dagster / "dagster.yaml")
    port = free_port()
    workspace = home.dagster / "workspace.yaml"
    server = {"host": "127.0.0.1", "port": port, "location_name": "rivet_pipeline"}
    workspace.write_text(json.dumps({"load_from": [{"grpc_server": server}]}), encoding="utf-8")
    environment = {
        **os.environ,
        "RIVETOS_HOME": str(settings.home),
        "DAGSTER_HOME": str(home.dagster),
        "RIVETOS_DAGSTER_PG_URL": dagster_url(settings),
        # Events of a range run are written in batches, and planned once a run instead of once a day: measured 56 s
        # against 9 s for a thousand days.
        "DAGSTER_EVENT_BATCH_SIZE": "50",
    }

    def program(name: str, *arguments: str) -> Program:
        return Program(name, [sys.executable, "-m", *arguments], home.logs / f"{name}.log", environment)

    supervisor.start(program("api", "rivet_pipeline.cli.main", "serve", "--no-watch"))
    if follow:
        supervisor.start(program("watch", "rivet_pipeline.cli.main", "watch"))
    supervisor.start(
        program(
            "dagster-code", "dagster", "api", "grpc", "-m", "rivet_pipeline.definitions", "-h", "127.0.0.1",
            "-p", str(port), "--location-name", "rivet_pipeline", "--use-python-environment-entry-point",
        )
    )  # fmt: skip
    daemon = program("dagster-daemon", "dagster._daemon", "run", "-w", str(workspace))
    webserver = program(
        "dagster-webserver",
        "dagster_webserver",
        "-h",
        "127.0.0.1",
        "-p",
        str(settings.dagster_port),
        "-w",
        str(workspace),
    )
    with console.status("Starting Dagster and the API …"):
        _end_leftover_runs(home, environment)
        _wait(supervisor, "dagster-code", lambda: _listens(port), console)
        supervisor.start(daemon)
        # Both make Dagster's tables when they find none, so they are not started at the same moment.
        _wait(supervisor, "dagster-daemon", lambda: _has_dagster_tables(settings), console)
        supervisor.start(webserver)
        _wait(supervisor, "api", lambda: _answers(f"{_address(settings.api_host, settings.api_port)}/healthz"), console)
        _wait(
            supervisor,
            "dagster-webserver",
            lambda: _answers(f"{_address('127.0.0.1', settings.dagster_port)}/server_info"),
            console,
        )


def _replay_spool(settings: Settings, console: Console) -> None:
    """Sends what was captured while nothing ran. What can not be sent stays, and is told by stats and health."""
    try:
        with CaptureClient.from_settings(settings) as client:
            done = client.replay()
    except RivetError as error:
        console.print(f"Capture spool: {error}", markup=False)
        return
    if done != Replayed():
        console.print(f"Capture spool: {said(done)}", markup=False)


def _end_leftover_runs(home: Home, environment: Mapping[str, str]) -> None:
    """A program of its own, because Dagster reads its place from the environment of its process."""
    log = home.logs / "dagster-leftovers.log"
    with log.open("ab") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "rivet_pipeline.automation.leftovers"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            check=False,
        )
    if ended.returncode != 0:
        raise RivetError(f"Dagster's storage can not be opened; the reason stands in {log}")


def _wait(supervisor: Supervisor, name: str, ready: Any, console: Console) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not ready():
        for revived in supervisor.revive():
            console.print(f"{revived} ended while starting and is started again.")
        if time.monotonic() > deadline:
            log = next(program.log for program in supervisor.programs if program.name == name)
            raise RivetError(f"{name} is not ready after {_READY_SECONDS:.0f} s; the reason stands in {log}")
        time.sleep(0.2)


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0).is_success
    except httpx.HTTPError:
        return False


def _has_dagster_tables(settings: Settings) -> bool:
    with connect(dagster_url(settings).replace("postgresql+psycopg2", "postgresql", 1)) as connection:
        row = connection.execute("SELECT to_regclass('daemon_heartbeats') IS NOT NULL AS there").fetchone()
        return bool(row and row["there"])


@dataclass(slots=True)
class _Watch:
    """Keeps what we started alive, and says so when it had to."""

    settings: Settings
    supervisor: Supervisor
    console: Console
    server_failures: int = 0

    def tend(self) -> None:
        """Starts again what has ended by itself. Raises `RivetError` when that has failed too often."""
        if self.settings.pg_url is None:
            self._tend_server(embedded_server(self.settings))
        for name in self.supervisor.revive():
            self.console.print(f"{name} had ended and was started again; its log is in {self.settings.home / 'logs'}.")

    def _tend_server(self, server: EmbeddedServer) -> None:
        try:
            # A program of ours that was started again may have been quicker than we.
            if server.start(anew=False) or self.server_failures:
                self.console.print(f"Postgres had ended and was started again; its log is {server.log}.")
            self.server_failures = 0
        except StoreUnavailableError:
            # Right after a kill the old server's memory is still held; the next try may do.
            self.server_failures += 1
            if self.server_failures > MAX_RESTARTS:
                raise


def _work_off(url: str, watch: _Watch, console: Console) -> None:
    """Shows what is pending until nothing is. Dagster does the work; this only looks."""
    most: dict[str, tuple[int, bool]] = {}
    told = Progress()
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            asked = time.monotonic()
            try:
                with connect(url, application_name="rivet-up") as connection:
                    pending = pending_days(connection)
                    waiting = _is_waiting(connection, pending)
                    resting = waiting_failures(connection)
            except (psycopg.OperationalError, StoreUnavailableError):
                watch.tend()
                time.sleep(1.0)
                continue
            took = time.monotonic() - asked
            live.update(_progress(pending, most))
            line = told.line(pending, time.monotonic())
            if line is not None and not console.is_terminal:
                console.print(line, soft_wrap=True)
            if not waiting:
                break
            watch.tend()
            # Whoever works it off needs the store more than we do.
            time.sleep(_pause(took))
    console.print(_worked_off(most))
    if resting:
        console.print(f"{resting} items rest after failures and are tried again later; `rivet stats` shows why.")


def _pause(took: float) -> float:
    """How long to wait after a look of so many seconds. What we started is to be tended every few seconds."""
    return min(max(0.5, 4 * took), _LONGEST_PAUSE)


def _worked_off(most: Mapping[str, tuple[int, bool]]) -> str:
    """What is said at the end, by the most that each stage had to do, and whether that is a bound."""
    done = ", ".join(f"{stage} {amount(most[stage][0], at_most=most[stage][1])}" for stage in STAGES if stage in most)
    return f"Nothing is pending{f' (worked off: {done})' if done else ''}."


def _is_waiting(connection: Connection, pending: list[PendingDay]) -> bool:
    return any(not item.timed for item in pending) or is_due(connection) or vector_pieces_due(connection)


def _progress(pending: list[PendingDay], most: dict[str, tuple[int, bool]]) -> Table:
    """The table of what is left. Keeps in `most` the largest amount of each stage, and whether that is a bound."""
    table = Table(title="Dagster is materialising what is pending", title_justify="left", box=None)
    for column in ("stage", "days", "items left", ""):
        table.add_column(column)
    for stage in STAGES:
        items = [item for item in pending if item.stage == stage]
        left = sum(item.items for item in items)
        if left > most.get(stage, (0, False))[0]:
            most[stage] = (left, any(item.at_most for item in items))
        done = round(20 * (1 - left / most[stage][0])) if stage in most else 0
        bar = "█" * done + "·" * (20 - done) if stage in most else ""
        table.add_row(stage, str(len({item.day for item in items})), _left(items), bar)
    return table


def _left(items: Sequence[PendingDay]) -> str:
    return amount(sum(item.items for item in items), at_most=any(item.at_most for item in items))


class Progress:
    """What is said of the work where no table can be drawn: few lines, however slow the machine is."""

    def __init__(self) -> None:
        self._left: set[str] = set()
        self._line = ""
        self._at = -_QUIET_SECONDS

    def line(self, pending: list[PendingDay], now: float) -> str | None:
        """What is pending, when it is worth a line: at first, when a stage is done, and after 15 seconds of other news.

        `now` is a monotonic clock's, in seconds.
        """
        left = {str(item.stage) for item in pending}
        line = _progress_line(pending)
        is_due = not self._line or bool(self._left - left) or now - self._at >= _QUIET_SECONDS
        self._left = left
        if not is_due or line == self._line:
            return None
        self._line, self._at = line, now
        return line


def _progress_line(pending: list[PendingDay]) -> str:
    parts = [
        f"{stage} {_left([item for item in pending if item.stage == stage])}"
        for stage in STAGES
        if any(item.stage == stage for item in pending)
    ]
    return f"Pending: {', '.join(parts) or 'the lexicon'}"


def _print_example(settings: Settings, url: str, api: str, console: Console) -> None:
    with connect(url) as connection:
        question = DEMO_QUESTION if has_imported_from(connection, _DEMO) else latest_title(connection)
    if question is None:
        console.print("The store is empty: import transcripts with `rivet import ~/.claude/projects`.")
        return
    token = settings.api_token.get_secret_value() if settings.api_token else None
    # As bytes: httpx writes a text in ASCII alone, and the API reads the token as UTF-8.
    headers = {b"Authorization": f"Bearer {token}".encode()} if token else {}
    answer = httpx.get(
        f"{api}/api/memory/search", params={"q": question, "limit": "3"}, headers=headers, timeout=30.0
    ).json()
    console.print(f'\nExample: rivet search "{question}"', markup=False)
    for number, hit in enumerate(answer.get("results", []), start=1):
        text = " ".join(hit["snippet"].split())
        who = f"{hit['agent']}/{hit['role'] or hit['kind']}"
        console.print(f"  {number}. {hit['score']:.2f}  {hit['createdAt'][:16]}Z  {who}  {text}", markup=False)
