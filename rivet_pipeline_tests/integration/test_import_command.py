"""`rivet import` as a person or a script meets it: what it prints where, and its exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rivet_pipeline.cli.import_ import import_command, run_import
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import get_settings

ROW = {
    "type": "user",
    "uuid": "u1",
    "sessionId": "s1",
    "timestamp": "2026-01-01T00:00:00Z",
    "message": {"role": "user", "content": "hello"},
}


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(ROW) + '\n[1]\n{"type":"mode"}\n')
    return path


def call(url: str, *paths: Path, as_json: bool = False) -> int:
    return run_import(url, list(paths), first_day=date(2022, 11, 1), max_line=1 << 20, as_json=as_json)


def test_the_table_says_what_happened(database_url: str, transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(database_url, transcript) == 0
    printed = capsys.readouterr()
    lines = {" ".join(line.strip("│┃| ").replace("│", " ").split()) for line in printed.out.splitlines()}
    assert {"transcripts 1", "of claude-code 1", "read now 1", "conversations 1"} <= lines
    assert {"messages new 1", "messages known 0", "not an object 1", "mode 1"} <= lines
    assert printed.err == ""


def test_json_is_the_only_thing_on_stdout(
    database_url: str, transcript: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(database_url, transcript.parent, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == 1
    assert found["conversations"] == 1
    assert found["messages"] == {"new": 1, "known": 0, "damaged": 1, "skipped": 1}
    assert found["skipped_by_reason"] == {"mode": 1}


def test_a_missing_path_fails_but_the_others_are_imported(
    database_url: str, transcript: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(database_url, transcript, transcript.parent / "typo") == 1
    printed = capsys.readouterr()
    assert printed.err == f"{transcript.parent / 'typo'} does not exist; check the spelling.\n"
    assert "messages new" in printed.out


def test_a_folder_without_transcripts_fails_in_one_line(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert call(database_url, tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("no transcript found (1 other files)")
    assert printed.err.count("\n") == 1


def application() -> typer.Typer:
    app = typer.Typer()
    app.command("import")(import_command)
    return app


def test_the_command_uses_the_configured_store(
    database_url: str, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIVETOS_PG_URL", database_url)
    get_settings.cache_clear()
    try:
        done = CliRunner().invoke(application(), [str(transcript), "--json", "--agent", "mine"])
    finally:
        get_settings.cache_clear()
    assert done.exit_code == 0
    assert json.loads(done.stdout)["messages"]["new"] == 1


def test_an_unreachable_store_is_one_line_and_exit_code_1(transcript: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVETOS_PG_URL", "postgresql://nobody@127.0.0.1:1/none")
    get_settings.cache_clear()
    try:
        done = CliRunner().invoke(application(), [str(transcript)])
    finally:
        get_settings.cache_clear()
    assert done.exit_code == 1
    assert done.stderr.startswith("the database can not be reached")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def configured(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with sessions of two harnesses, and a store."""
    home = tmp_path / "home"
    claude, codex = home / ".claude/projects/p", home / ".codex/sessions/2026"
    claude.mkdir(parents=True)
    codex.mkdir(parents=True)
    (claude / "s1.jsonl").write_text(json.dumps(ROW) + "\n")
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "question"}]}
    rows = [
        {"timestamp": "2026-01-02T00:00:00Z", "type": "session_meta", "payload": {"id": "c1"}},
        {"timestamp": "2026-01-02T00:00:01Z", "type": "response_item", "payload": said},
    ]
    (codex / "rollout-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    old = datetime(2026, 1, 3, tzinfo=UTC).timestamp()
    os.utime(claude / "s1.jsonl", (old, old))
    for name, value in (
        ("HOME", home), ("RIVETOS_PG_URL", database_url), ("CLAUDE_CONFIG_DIR", home / ".claude"),
        ("CODEX_HOME", home / ".codex"), ("XDG_DATA_HOME", home / "data"),
    ):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    get_settings.cache_clear()
    yield home
    get_settings.cache_clear()


def run_json(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(application(), [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_discovered_stores_are_previewed_and_then_imported(configured: Path, connection: Connection) -> None:
    preview = run_json("--discover", "--dry-run")
    assert (preview["messages"]["new"], preview["by_harness"]) == (2, {"claude-code": 1, "codex": 1})
    assert connection.execute("SELECT 1 FROM ros_messages").fetchone() is None
    assert connection.execute("SELECT 1 FROM ros_import_files").fetchone() is None
    assert run_json("--discover")["messages"]["new"] == 2
    again = run_json("--discover", "--dry-run")
    assert (again["messages"]["new"], again["messages"]["known"]) == (0, 2)


def test_a_preview_tells_what_is_new_in_a_file_that_has_grown(configured: Path) -> None:
    run_json("--discover")
    with (configured / ".claude/projects/p/s1.jsonl").open("a") as stream:
        stream.write(json.dumps({**ROW, "uuid": "u2", "message": {"role": "user", "content": "more"}}) + "\n")
    assert run_json("--discover", "--dry-run")["messages"] == {"new": 1, "known": 2, "damaged": 0, "skipped": 0}


def test_only_one_harness_or_only_what_changed_since(configured: Path) -> None:
    assert run_json("--discover", "--since", "2026-01-04")["by_harness"] == {"codex": 1}
    only = run_json(str(configured), "--harness", "claude-code")
    assert (only["by_harness"], only["files_detail"]["passed_over"]) == ({"claude-code": 1}, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--discover"),
        (["--discover", "x"], "not both"),
        (["--discover", "--harness", "cloud-code"], "claude-code"),
        (["--discover", "--since", "soon"], "soon"),
        (["--discover", "--agent", " "], "blank"),
    ],
)
def test_a_wrong_command_line_names_the_option(configured: Path, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(application(), arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_a_home_without_any_store_says_so(configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    get_settings.cache_clear()
    done = CliRunner().invoke(application(), ["--discover"])
    assert done.exit_code == 1
    assert done.stderr.startswith("no harness keeps sessions")
