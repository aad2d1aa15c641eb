"""`rivet spool` and `rivet hooks` in this process, and where the spool's figures are shown."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from rich.console import Console

from rivet_pipeline.cli.up import _replay_spool
from rivet_pipeline.client import CaptureBatch, CaptureClient, Spooled
from rivet_pipeline.settings import Settings, get_settings
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord
from rivet_pipeline.transcripts.spool import Spool
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.test_cli import Run, run

__all__ = ["run"]


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with Claude Code and Codex in it, and the rivet command."""
    for variable, name in (("CLAUDE_CONFIG_DIR", "claude"), ("CODEX_HOME", "codex"), ("QWEN_HOME", "qwen")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    (tmp_path / "claude").mkdir()
    (tmp_path / "codex").mkdir()
    program = tmp_path / "bin" / "rivet"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return tmp_path


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """The spool of the home that the commands of a test have."""
    return Spool(tmp_path / "home" / "capture-spool")


def spool_one(spool: Spool, text: str, session: str = "s:1") -> None:
    with CaptureClient("http://127.0.0.1:9", None, spool) as away:
        batch = CaptureBatch(SessionRecord(session, "a", "c"), [MessageRecord(text, "user", text)])
        assert isinstance(away.write(batch), Spooled)


def spool_old(spool: Spool) -> None:
    """Something that has waited for an hour."""
    spool_one(spool, "new")
    name = f"{int((time.time() - 3600) * 1000):013d}-{uuid.uuid4()}.json"
    spool.files()[0].path.rename(spool.folder / name)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[str]:
    with running_api(Settings(home=tmp_path / "home"), database_url) as url:
        yield url


def test_a_spool_is_listed_and_sent(run: Run, spool: Spool, api: str) -> None:
    assert "Nothing waits" in run("spool", "list").out
    assert run("spool", "replay", "--json").json == {
        "sent": 0,
        "buried": 0,
        "waiting": 0,
        "stopped": None,
        "busy": False,
    }
    spool_one(spool, "one", "s:\x1b[31mred")
    spool_one(spool, "two")
    shown = run("spool", "list").out
    assert "s:1" in shown
    assert "\x1b" not in shown
    listed = run("spool", "list", "--json").json
    assert [file["session_key"] for file in listed["files"]] == ["s:\x1b[31mred", "s:1"]
    away = run("spool", "replay", RIVETOS_API_URL="http://127.0.0.1:9")
    assert away.code == 1
    assert "2 still waiting: http://127.0.0.1:9 can not be reached" in " ".join(away.out.split())
    sent = run("spool", "replay", RIVETOS_API_URL=api)
    assert (sent.code, sent.out) == (0, "2 sent.\n")


def test_a_token_that_is_missing_is_said_in_one_sentence(
    run: Run, spool: Spool, database_url: str, tmp_path: Path
) -> None:
    spool_one(spool, "one")
    with running_api(Settings(home=tmp_path / "home", api_token=SecretStr("x" * 32)), database_url) as url:
        said = " ".join(run("spool", "replay", RIVETOS_API_URL=url).out.split())
    assert "1 still waiting: answered 401: " in said
    assert said.endswith("RIVETOS_API_TOKEN.")


def test_what_was_refused_is_listed_with_its_reason_and_can_be_tried_again(run: Run, spool: Spool, api: str) -> None:
    assert "Nothing was refused" in run("spool", "dead").out
    spool_one(spool, " ")
    sent = run("spool", "replay", RIVETOS_API_URL=api)
    assert (sent.code, sent.out) == (0, "0 sent, 1 refused and kept in dead/.\n")
    assert "messages[0].event_id" in run("spool", "dead").out
    (dead,) = run("spool", "dead", "--json").json["files"]
    assert (dead["status"], dead["session_key"]) == (400, "s:1")
    assert run("spool", "dead", "--retry", "--json").json == {"revived": 1}
    assert len(spool.files()) == 1
    assert "0 put back" in run("spool", "dead", "--retry").out


def test_the_spools_figures_are_shown_everywhere(run: Run, spool: Spool, api: str) -> None:
    health = httpx.get(f"{api}/api/memory/health", timeout=60).json()
    assert (health["status"], health["spool"]) == ("ok", {"depth": 0, "oldestSeconds": None, "dead": 0})
    spool_old(spool)
    spool.put_dead(b"{}", "s:1", reason="answered 400: no", status=400)
    health = httpx.get(f"{api}/api/memory/health", timeout=60).json()
    assert (health["status"], health["spool"]["depth"], health["spool"]["dead"]) == ("degraded", 1, 1)
    assert health["spool"]["oldestSeconds"] > 3500
    stats = httpx.get(f"{api}/api/memory/stats", timeout=60).json()
    assert stats["figures"]["spool"]["depth"] == 1
    assert stats["figures"]["spool"]["oldestSeconds"] > 3500
    assert [line for line in stats["alerts"] if "rivet spool replay" in line]
    assert [line for line in stats["alerts"] if "rivet spool dead" in line]
    shown = run("stats").out
    assert "rivet spool replay" in shown
    assert run("stats", "--json").json["figures"]["spool"]["dead"] == 1
    checks = {check["name"]: check for check in run("doctor", "--json").json["checks"]}
    assert checks["capture spool"]["verdict"] == "warn"
    assert "60 min" in checks["capture spool"]["detail"]


def test_hooks_are_installed_shown_and_taken_out(run: Run, homes: Path) -> None:
    claude = homes / "claude" / "settings.json"
    claude.write_text('{"model": "opus"}\n')
    dry = run("hooks", "install", "--dry-run")
    assert dry.code == 0
    assert '+  "hooks": {' in dry.out
    assert claude.read_text() == '{"model": "opus"}\n'
    done = run("hooks", "install", "--yes")
    assert done.code == 0
    assert "claude-code: installed" in done.out
    assert "codex: installed" in done.out
    assert "qwen" not in done.out
    assert len(list((homes / "claude").glob("settings.json.*.backup"))) == 1
    again = run("hooks", "install", "--yes")
    assert again.out.count("nothing to change") == 2
    states = {one["harness"]: one["state"] for one in run("hooks", "status", "--json").json["harnesses"]}
    assert states == {"claude-code": "installed", "codex": "installed", "qwen-code": "not installed"}
    assert "no such agent here" in run("hooks", "status").out
    removed = run("hooks", "uninstall", "claude-code", "-y")
    assert removed.code == 0
    assert json.loads(claude.read_text()) == {"model": "opus"}
    assert "rivet" in (homes / "codex" / "hooks.json").read_text()


def test_a_configuration_that_is_not_sound_is_left_out_and_the_others_are_not(run: Run, homes: Path) -> None:
    claude = homes / "claude" / "settings.json"
    claude.write_text("{ // mine\n}")
    done = run("hooks", "install", "--yes")
    assert done.code == 1
    assert "nothing was changed" in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert claude.read_text() == "{ // mine\n}"
    assert (homes / "codex" / "hooks.json").exists()
    assert "unreadable" in json.dumps(run("hooks", "status", "--json").json)


def test_saying_no_changes_nothing(run: Run, homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.confirm", lambda _: False)
    assert "left as it is" in run("hooks", "install", "qwen-code").out
    assert not (homes / "qwen").exists()


def test_no_agent_at_all_is_said(run: Run, homes: Path) -> None:
    (homes / "claude").rmdir()
    (homes / "codex").rmdir()
    done = run("hooks", "install")
    assert (done.code, done.out) == (1, "")
    assert "name one" in done.err
    assert run("hooks", "install", "emacs").code == 2


@pytest.mark.parametrize("words", [["hooks"], ["spool"], ["hooks", "--help"], ["spool", "list", "--help"]])
def test_groups_explain_themselves(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert "Usage: rivet" in ran.out + ran.err
    get_settings.cache_clear()


def test_up_sends_what_waits_and_says_so(spool: Spool, api: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", api_url=api)
    out = io.StringIO()
    _replay_spool(settings, Console(file=out))
    assert out.getvalue() == ""
    spool_one(spool, "one")
    _replay_spool(settings, Console(file=out))
    assert out.getvalue() == "Capture spool: 1 sent.\n"
    assert spool.files() == []
