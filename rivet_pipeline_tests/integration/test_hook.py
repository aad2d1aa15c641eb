"""`rivet hook` as a harness calls it: a process that takes anything, ends at once and with 0, and says nothing."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts import hook_jobs
from rivet_pipeline.transcripts.hook_payloads import AGENTS
from rivet_pipeline.transcripts.hook_queue import Job, Jobs
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.test_live import SESSION, WHOLE

ROOT = Path(__file__).parents[2]


def hook(
    payload: bytes | None, home: Path, *, harness: str = "claude-code", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RIVETOS_")}
    return subprocess.run(
        [sys.executable, "-m", "rivet_pipeline.cli.entry", "hook", *([harness] if harness else [])],
        input=payload,
        stdin=None if payload is not None else subprocess.DEVNULL,
        capture_output=True,
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(ROOT), "RIVETOS_HOME": str(home), **environment},
        timeout=60,
        check=False,
    )


def silent(ran: subprocess.CompletedProcess[bytes]) -> bool:
    return (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def log_of(home: Path) -> str:
    path = home / "logs" / "hooks.log"
    return path.read_text() if path.exists() else ""


def wait_for(done: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def quiet(home: Path) -> bool:
    """Whether no job waits or is worked on."""
    folder = home / "hook-jobs"
    return not [path for path in folder.glob("*") if path.is_file()]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    yield home
    wait_for(lambda: quiet(home))


def garbage() -> list[bytes]:
    chance = random.Random(7)
    made = [bytes(chance.randrange(256) for _ in range(chance.randrange(1, 3000))) for _ in range(6)]
    sound = json.dumps({"session_id": "x", "hook_event_name": "Stop", "prompt": "ü" * 200}).encode()
    made += [sound[: chance.randrange(len(sound))] for _ in range(4)]
    return [
        *made,
        b"null",
        b"[]",
        b'"text"',
        b"[" * 200_000,
        b'{"session_id": "x", "hook_event_name": ["Stop"]}',
        b"\x00",
    ]


def test_anything_on_standard_input_ends_with_nothing_said(home: Path) -> None:
    for payload in garbage():
        assert silent(hook(payload, home)), payload[:80]
    wait_for(lambda: quiet(home))
    assert Jobs(home).dead() >= 10


def test_an_empty_or_closed_input_and_no_harness_are_as_good(home: Path) -> None:
    assert silent(hook(b"", home))
    assert silent(hook(None, home))
    assert silent(hook(b"{}", home, harness=""))
    assert silent(hook(b"", home, harness="nonsense"))
    closed = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m rivet_pipeline.cli.entry hook codex <&- >&- 2>&-"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RIVETOS_HOME": str(home)},
        timeout=60,
        check=False,
    )
    assert closed.returncode == 0
    assert "empty" in log_of(home)
    assert "unknown harness 'nonsense'; known are claude-code, codex, qwen-code" in log_of(home)
    assert tuple(AGENTS) == hook_jobs.HARNESSES
    assert home.stat().st_mode & 0o077 == 0


def test_fifty_megabytes_are_taken_and_more_than_is_kept_is_read_to_its_end(home: Path) -> None:
    text = b"x" * 1024 * 1024
    for size in (50, 70):
        body = b'{"session_id": "x", "hook_event_name": "PreCompact", "junk": "' + text * size + b'"}'
        assert silent(hook(body, home))
    wait_for(lambda: quiet(home))
    assert "unknown event" in log_of(home)
    assert "bytes are too many" in log_of(home)


def test_a_writer_that_never_closes_is_not_waited_for_for_ever(home: Path) -> None:
    command = [sys.executable, "-m", "rivet_pipeline.cli.entry", "hook", "codex"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RIVETOS_HOME": str(home)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"session_id": "x", "hook_event_name": "PreCompact"}')
        process.stdin.flush()
        assert process.wait(30) == 0
    wait_for(lambda: "unknown event" in log_of(home))


@pytest.mark.parametrize("place", ["a file", "a home that can not be made", "a closed home"])
def test_a_home_that_can_not_be_written_is_no_reason_to_fail(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    homes = {"a file": tmp_path / "file", "a home that can not be made": tmp_path / "file" / "home"}
    home = homes.get(place, Path("/proc/self"))
    assert silent(hook(b'{"session_id": "x", "hook_event_name": "Stop"}', home))
    assert (tmp_path / "file").read_text() == ""


def test_the_job_is_private_and_says_where_the_agent_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_jobs, "_start_worker", lambda home: None)
    monkeypatch.chdir(tmp_path)
    source, sink = os.pipe()
    os.write(sink, b'{"a": "\x00"}')
    os.close(sink)
    environment = {"RIVETOS_HOME": str(tmp_path / "home"), "RIVETOS_SESSION_KEY": "den:ü", "RIVETOS_TASK_ID": "t"}
    hook_jobs.leave_job("codex", environment, source)
    os.close(source)
    (job,) = Jobs(tmp_path / "home").waiting()
    assert stat.S_IMODE(job.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(job.path.parent.stat().st_mode) == 0o700
    assert job.read()
    assert (job.harness, job.session_key, job.task_id, job.cwd) == ("codex", "den:ü", "t", str(tmp_path))
    assert job.payload == b'{"a": "\x00"}'
    assert abs(job.time - time.time()) < 60


def test_a_file_that_is_no_job_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "1-a.0.job"
    for raw in (b"", b"{}", hook_jobs.MAGIC + b"\0a\0b\0c\0d\0no time\0{}"):
        path.write_bytes(raw)
        assert not Job(path).read()


@pytest.mark.parametrize("value", [None, "", "~/rivet", "/tmp/a/../b"])
def test_the_home_is_the_one_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RIVETOS_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("RIVETOS_HOME", value)
    assert os.path.realpath(hook_jobs.home_folder(os.environ)) == os.path.realpath(Settings().home)


def test_nothing_heavy_is_imported_on_the_way(tmp_path: Path) -> None:
    script = (
        "import os, sys\nsys.argv = ['rivet', 'hook', 'codex']\n"
        "os._exit = lambda code: (print(code, sorted(set(sys.modules) & set(heavy))), sys.exit())\n"
        "heavy = 'typer pydantic httpx rich json re pathlib typing subprocess collections hashlib socket'.split()\n"
        "from rivet_pipeline.cli.entry import main\nmain()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RIVETOS_HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert ran.stdout.startswith("0 ")
    loaded = set(ran.stdout.strip()[2:].strip("[]").replace("'", "").split(", "))
    # What site-packages' own start-up files import is not ours to judge.
    bare = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert loaded - set(bare.stdout.split()) <= {""}


def test_the_log_stays_small(tmp_path: Path) -> None:
    for _ in range(1_300):
        hook_jobs.log(str(tmp_path), "x" * 5_000)
    sizes = [path.stat().st_size for path in (tmp_path / "logs").iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 1.1 * 1024 * 1024


def test_a_hook_is_captured_by_the_worker_it_starts_whatever_folder_the_agent_is_in(
    database_url: str, connection: Connection, tmp_path: Path, home: Path
) -> None:
    # A project's own modules must not be taken for ours.
    project = tmp_path / "project"
    project.mkdir()
    for name in ("json", "httpx", "pydantic", "rivet_pipeline"):
        (project / f"{name}.py").write_text("raise SystemExit('imported from the project')\n")
    transcript = tmp_path / f"{SESSION}.jsonl"
    transcript.write_text("".join(json.dumps(one) + "\n" for one in WHOLE))
    payload = {"session_id": SESSION, "transcript_path": str(transcript), "hook_event_name": "SessionEnd"}
    with running_api(Settings(home=home), database_url) as url:
        script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from rivet_pipeline.cli.entry import main; main()"
        ran = subprocess.run(
            [sys.executable, "-P", "-c", script, "hook", "claude-code"],
            input=json.dumps(payload).encode(),
            capture_output=True,
            cwd=project,
            env={**os.environ, "RIVETOS_HOME": str(home), "RIVETOS_API_URL": url},
            timeout=60,
            check=False,
        )
        assert silent(ran)
        wait_for(lambda: quiet(home))
    assert log_of(home) == ""
    assert connection.execute("SELECT count(*) AS n FROM ros_messages").fetchone() == {"n": 3}
    assert connection.execute("SELECT active FROM ros_conversations").fetchone() == {"active": False}
