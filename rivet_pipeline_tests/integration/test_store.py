"""Opening and closing the store: who starts the embedded server, who stops it, and what goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr
from rich.console import Console

from rivet_pipeline.api.mcp.stdio import LazyResources
from rivet_pipeline.cli import serve, up, watch
from rivet_pipeline.cli.processes import MAX_RESTARTS, Supervisor
from rivet_pipeline.db import store
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import (
    create_database,
    dagster_url,
    embedded_server,
    kept_running,
    open_store,
    prepare_dagster,
    store_url,
)
from rivet_pipeline.errors import StoreUnavailableError
from rivet_pipeline.settings import Settings


@pytest.fixture
def settings() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory(prefix="rivet-home-", ignore_cleanup_errors=True) as folder:
        made = Settings(home=Path(folder) / "a home with spaces")
        yield made
        embedded_server(made).stop()


def test_the_server_is_started_migrated_and_stopped_and_keeps_its_data(settings: Settings) -> None:
    with open_store(settings) as url, connect(url) as connection:
        connection.execute("INSERT INTO ros_conversations (session_key, agent, day) VALUES ('k', 'a', '2026-01-01')")
    assert not embedded_server(settings).is_running()
    with open_store(settings) as url, connect(url) as connection:
        assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 1}


def test_a_server_that_another_program_has_come_to_use_is_left_running(settings: Settings) -> None:
    code = (
        "import sys; from rivet_pipeline.db.pool import connect; connection = connect(sys.argv[1]); "
        "print('connected', flush=True); sys.stdin.read(); connection.close()"
    )
    with open_store(settings) as url:
        other = subprocess.Popen(
            [sys.executable, "-c", code, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "connected"
    assert embedded_server(settings).is_running()
    assert other.communicate()[0] == ""
    assert other.returncode == 0


def test_our_own_forgotten_connection_does_not_keep_the_server(settings: Settings) -> None:
    with open_store(settings) as url:
        forgotten = connect(url)
    assert not embedded_server(settings).is_running()
    forgotten.close()


def test_a_server_that_ran_before_is_not_stopped(settings: Settings) -> None:
    assert embedded_server(settings).start()
    assert not embedded_server(settings).start()
    with open_store(settings):
        pass
    assert embedded_server(settings).is_running()


def test_a_stale_pid_file_of_a_killed_server_does_not_matter(settings: Settings) -> None:
    server = embedded_server(settings)
    with open_store(settings):
        pass
    (server.data / "postmaster.pid").write_text(f"1\n{server.data}\n1\n5432\n{server.socket_dir}\n\n0 0\nready\n")
    with open_store(settings) as url, connect(url) as connection:
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}


def test_only_its_owner_can_reach_the_server(settings: Settings) -> None:
    with open_store(settings):
        server = embedded_server(settings)
        assert server.data.stat().st_mode & 0o077 == 0
        assert server.socket_dir.stat().st_mode & 0o077 == 0
        assert server.log.stat().st_mode & 0o777 == 0o600
        # As root the server's own account must be able to walk to its folder.
        assert settings.home.stat().st_mode & 0o777 in (0o700, 0o701)


def test_a_home_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreUnavailableError, match="RIVETOS_HOME"):
        EmbeddedServer(tmp_path / "home" / "postgres").start()


def test_dagster_has_a_database_of_its_own_beside_the_store(database_url: str) -> None:
    given = Settings(pg_url=SecretStr(database_url))
    prepare_dagster(given)
    prepare_dagster(given)
    plain = dagster_url(given).replace("postgresql+psycopg2", "postgresql")
    with connect(plain) as connection:
        row = connection.execute("SELECT current_database() AS name").fetchone()
    assert row is not None
    assert row["name"].endswith("_dagster")
    assert store_url(given) == database_url


def test_a_first_start_that_is_interrupted_leaves_no_half_made_data(settings: Settings) -> None:
    code = (
        "import sys; from pathlib import Path; from rivet_pipeline.db.embedded import EmbeddedServer; "
        "EmbeddedServer(Path(sys.argv[1])).start()"
    )
    server = embedded_server(settings)
    starter = subprocess.Popen([sys.executable, "-c", code, str(server.data)])
    deadline = time.monotonic() + 30
    while not list(server.data.parent.glob("postgres.new-*/base")) and time.monotonic() < deadline:
        time.sleep(0.01)
    starter.kill()
    starter.wait()
    assert not (server.data / "PG_VERSION").exists()
    with open_store(settings) as url, connect(url) as connection:
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    # The killed starter's initdb may have gone on writing meanwhile; whatever it left is gone with the next start.
    with open_store(settings):
        assert list(server.data.parent.glob("postgres.new-*")) == []


def test_two_may_start_the_server_at_once(settings: Settings) -> None:
    server = embedded_server(settings)
    with ThreadPoolExecutor(3) as threads:
        started = list(threads.map(lambda _: server.start(), range(3)))
    assert sorted(started) == [False, False, True]


def test_files_that_are_no_database_are_left_alone(settings: Settings) -> None:
    server = embedded_server(settings)
    server.data.mkdir(parents=True)
    (server.data / "diary.txt").write_text("mine")
    with pytest.raises(StoreUnavailableError, match="move them away"):
        server.start()
    assert (server.data / "diary.txt").read_text() == "mine"


def test_processes_that_start_at_the_same_moment_make_one_database(database_url: str) -> None:
    name = f"twins_{uuid4().hex[:12]}"
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(create_database, database_url, name) for _ in range(6)]:
            assert done.result() is None
    with connect(database_url) as connection:
        found = connection.execute("SELECT count(*) AS n FROM pg_database WHERE datname = %s", [name]).fetchone()
        assert found == {"n": 1}
        connection.execute(f"DROP DATABASE {name}".encode())


def test_a_server_that_is_killed_comes_back_for_a_program_that_stays_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "_LOOK_SECONDS", 0.1)
    server = embedded_server(settings)
    # Somebody else had started it, and is gone.
    assert server.start()
    with open_store(settings) as url, kept_running(settings):
        os.kill(int((server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline
            try:
                with connect(url) as connection:
                    connection.execute("SELECT count(*) FROM ros_conversations")
                    if "was started again" in caplog.text:
                        break
            except (StoreUnavailableError, psycopg.OperationalError):
                pass
            time.sleep(0.1)
    assert not server.is_running()


def test_where_the_data_was_moved_away_no_empty_store_is_made(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "_LOOK_SECONDS", 0.1)
    server, away = embedded_server(settings), settings.home / "away"
    assistant = LazyResources(settings)
    with assistant().connection() as connection:
        connection.execute("INSERT INTO ros_conversations (session_key, agent, day) VALUES ('k', 'a', '2026-01-01')")
    server.stop()
    server.data.rename(away)
    with kept_running(settings):
        _until(lambda: "holds no Postgres data any more" in caplog.text)
        with pytest.raises(StoreUnavailableError, match="no Postgres data"):
            assistant()
        with pytest.raises(StoreUnavailableError, match="no Postgres data"):
            watch._connect(settings, store_url(settings))
        tended = up._Watch(settings, Supervisor(settings.home / "programs.json"), Console())
        for _ in range(MAX_RESTARTS):
            tended.tend()
        with pytest.raises(StoreUnavailableError, match="no Postgres data"):
            tended.tend()
        assert not server.data.exists()
        away.rename(server.data)
        _until(lambda: "was started again" in caplog.text)
        with connect(store_url(settings)) as connection:
            assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 1}
    assistant.close()
    assert not server.is_running()


def test_a_program_that_ends_while_the_server_starts_again_leaves_none_behind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(store, "_PATIENCE", 1)
    server, ended = embedded_server(settings), threading.Event()
    assert server.start()
    start = EmbeddedServer.start

    def slowly(self: EmbeddedServer, *, anew: bool = True) -> bool:
        started = start(self, anew=anew)
        ended.wait(60)
        return started

    monkeypatch.setattr(EmbeddedServer, "start", slowly)
    with kept_running(settings):
        server.stop()
        _until(server.is_running)
    ended.set()
    assert not server.is_running()


def test_only_a_serve_of_its_own_looks_after_the_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(serve, "get_settings", lambda: settings)
    monkeypatch.setattr(
        serve, "serve", lambda *_: seen.append("postgres" in {thread.name for thread in threading.enumerate()})
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        serve.serve_command()
        serve.serve_command(watch=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [True, False]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_of_somebody_elses_is_theirs_to_keep(database_url: str) -> None:
    before = threading.active_count()
    with kept_running(Settings(pg_url=SecretStr(database_url))):
        assert threading.active_count() == before
