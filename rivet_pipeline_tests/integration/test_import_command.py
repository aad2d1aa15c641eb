"""`rivet import` as a person or a script meets it: what it prints where, and its exit code."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rivet_pipeline.cli.import_ import import_command, run_import
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
    assert {"files 1", "conversations 1", "messages new 1", "messages known 0", "not an object 1", "mode 1"} <= lines
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
