"""`rivet redact` as it is typed: what it prints, what it asks, how it exits; never the secret."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from rivet_pipeline.cli import main as cli
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import get_settings
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message, add_summary

GITHUB = "gh" + "p_" + "Kq7Zr2Xv9Lm4Nb6Tc8Wd1Yf3Hg5Jp0Sa2Qe7"

#: Exit code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(database_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `rivet redact` with the given words on the test's store; `typed` is its standard input."""

    def call(*words: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setenv("RIVETOS_PG_URL", database_url)
        monkeypatch.setenv("RIVETOS_HOME", str(tmp_path))
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr("sys.argv", ["rivet", "redact", *words])
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        get_settings.cache_clear()
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            get_settings.cache_clear()
        out, err = capsys.readouterr()
        assert GITHUB not in out + err
        return code, out, err

    return call


@pytest.fixture
def told(connection: Connection) -> str:
    conversation = add_conversation(connection)
    identity = add_message(
        connection,
        f"the key is {GITHUB}, use it",
        conversation=conversation,
        metadata={"session_jsonl_path": "/nowhere/session.jsonl"},
    )
    add_message(connection, f"once more {GITHUB}", conversation=conversation)
    add_summary(connection, f"They used {GITHUB}.", conversation=conversation)
    return str(identity)


def holds(connection: Connection) -> int:
    row = connection.execute(
        "SELECT (SELECT count(*) FROM ros_messages WHERE content LIKE %(s)s)"
        " + (SELECT count(*) FROM ros_summaries WHERE content LIKE %(s)s) AS n",
        {"s": f"%{GITHUB}%"},
    ).fetchone()
    assert row is not None
    return int(row["n"])


def test_a_dry_run_shows_what_it_would_do_and_does_nothing(connection: Connection, run: Run, told: str) -> None:
    code, out, _ = run("--literal", GITHUB, "--dry-run")
    assert code == 0
    assert "Would be replaced" in out
    assert "the key is [redacted:literal], use it" in out
    assert "/nowhere/session.jsonl (not on this machine)" in out
    assert holds(connection) == 3


def test_a_message_by_the_beginning_of_its_id(connection: Connection, run: Run, told: str) -> None:
    code, out, _ = run(told[:8], "--yes", "--reason", "pasted by mistake")
    assert code == 0
    assert "github_token 1" in out
    assert "1 other messages of this conversation hold the same value" in out
    assert "revoke it" in out
    assert holds(connection) == 1
    rows = connection.execute("SELECT DISTINCT reason, rule FROM ros_redactions").fetchall()
    assert rows == [{"reason": "pasted by mistake", "rule": "shapes"}]


@pytest.mark.parametrize("words", [["--pattern", "ghp_[A-Za-z0-9]{36}"], ["--shapes"]])
def test_everywhere_as_json(connection: Connection, run: Run, told: str, words: list[str]) -> None:
    code, out, _ = run(*words, "--yes", "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["applied"], answer["rows"]) == (True, 3)
    assert answer["files"] == ["/nowhere/session.jsonl"]
    assert holds(connection) == 0
    assert json.loads(run(*words, "--yes", "--json")[1])["rows"] == 0


def test_the_secret_may_come_from_standard_input(connection: Connection, run: Run, told: str) -> None:
    assert run("--literal", "-", "--yes", typed=GITHUB + "\n")[0] == 0
    assert holds(connection) == 0


def test_a_whole_message(connection: Connection, run: Run, told: str) -> None:
    code, out, _ = run(told, "--whole", "--yes")
    assert code == 0
    assert "message 1" in out
    row = connection.execute("SELECT content FROM ros_messages WHERE id = %s", [told]).fetchone()
    assert row == {"content": "[redacted:message]"}


def test_it_does_not_replace_when_nobody_can_be_asked(connection: Connection, run: Run, told: str) -> None:
    code, out, err = run("--literal", GITHUB)
    assert code == 2
    assert "Would be replaced" in out
    assert "--yes" in err
    assert holds(connection) == 3


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["12345678", "--literal", "abcdef"],
        ["--pattern", "(", "--yes"],
        ["--literal", "ab", "--yes"],
        ["--literal", "abcdef", "--whole", "--yes"],
        ["--literal", "abcdef", "--json"],
        ["00000000", "--yes"],
    ],
)
def test_a_wrong_command_line_ends_with_two(run: Run, told: str, words: list[str]) -> None:
    code, _, err = run(*words)
    assert code == 2
    assert err.strip()


def test_nothing_to_replace_is_no_error(run: Run, told: str) -> None:
    code, out, _ = run("--literal", "nobody said this", "--yes")
    assert code == 0
    assert "Nothing to replace." in out


def test_a_row_that_fails_is_named_and_ends_with_one(connection: Connection, run: Run, told: str) -> None:
    connection.execute(
        "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$"
    )
    connection.execute("CREATE TRIGGER p BEFORE UPDATE ON ros_summaries FOR EACH ROW EXECUTE FUNCTION poison()")
    code, out, err = run("--literal", GITHUB, "--yes")
    assert code == 1
    assert "ros_messages" in out
    assert "poisoned" in err
    assert holds(connection) == 1
