"""The `rivet` command in this process against a real store: what it prints and how it exits."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from rivet_pipeline.cli import search as search_module
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import add_summary, add_tag
from rivet_pipeline_tests.integration.rivet_command import Ran, Run, rivet_command

HOSTILE = "sessions \x1b[31m\x1b]0;title\x07 [red]markup[/red] [/] \u202egnp.exe \x9b2J end"


@pytest.fixture
def run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs the command line with the given words, on the test's store, in a wide terminal."""
    with rivet_command(database_url, tmp_path, monkeypatch, capsys) as call:
        yield call


@pytest.fixture
def filled(connection: Connection) -> Connection:
    texts = [
        ("user", "Where should sessions live?", datetime(2026, 3, 7, 22, 59, tzinfo=UTC)),
        (
            "assistant",
            "We keep sessions in Postgres, one store and one backup.",
            datetime(2026, 3, 7, 23, 0, tzinfo=UTC),
        ),
        ("user", HOSTILE, datetime(2026, 3, 9, 8, 0, tzinfo=UTC)),
    ]
    messages = [
        MessageRecord(event_id=str(number), role="user" if role == "user" else "assistant", content=text, created_at=at)
        for number, (role, text, at) in enumerate(texts)
    ]
    messages.append(
        MessageRecord(
            event_id="tool",
            role="tool",
            tool_name="Bash",
            tool_result="x" * 900,
            created_at=datetime(2026, 3, 9, 9, 0, tzinfo=UTC),
        )
    )
    session = SessionRecord("codex:s1", "codex", "cli", title="[bold]Where\x1b[2J sessions live")
    write_batch(connection, session, messages, first_day=date(2022, 11, 1))
    return connection


def test_help_lists_every_command_and_loads_none_of_their_libraries() -> None:
    script = (
        "import sys; sys.argv = ['rivet', '--help']\n"
        "from rivet_pipeline.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as left:\n    print('code', left.code)\n"
        "print([name for name in ('numpy', 'psycopg', 'dagster', 'fastapi', 'pydantic') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for command in ("up", "import", "search", "browse", "stats", "doctor", "serve"):
        assert f" {command} " in shown
    assert "Exit codes" in shown
    assert shown.splitlines()[-2:] == ["code 0", "[]"]


@pytest.mark.parametrize("command", ["search", "browse", "stats", "doctor", "serve"])
def test_each_command_explains_itself_with_an_example(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    assert "Example: " in ran.out
    assert f"rivet {command}" in ran.out
    if command != "serve":
        assert "--json" in ran.out


@pytest.mark.parametrize("command", ["up", "import"])
def test_every_command_loads(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    assert f"Usage: rivet {command}" in ran.out


def test_an_empty_query_is_told_what_to_give(run: Run) -> None:
    for query in ("", " \t"):
        ran = run("search", query)
        assert (ran.code, ran.out) == (2, "")
        assert "is empty; give what to look for" in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "words",
    [
        ["serch"],
        ["search"],
        ["search", "x", "--limit", "51"],
        ["search", "x", "--mode", "magic"],
        ["search", "x", "--since", "someday"],
        ["search", "x", "--window", "someday"],
        ["search", "x", "--since", "2026-03-08", "--before", "2026-03-08"],
        ["search", "x", "--agent", " "],
        ["search", "x", "--conversation", "7"],
        ["browse", "--limit", "201"],
        ["browse", "--agnet", "codex"],
        ["browse", "--cursor", "nonsense"],
        ["stats", "--agent", ""],
    ],
)
def test_a_wrong_command_line_exits_with_2(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("command", [["search", "x"], ["browse"], ["stats"]])
def test_a_store_that_can_not_be_reached_is_one_line_and_1(run: Run, tmp_path: Path, command: list[str]) -> None:
    for asked in (command, [*command, "--json"]):
        ran = run(*asked, RIVETOS_PG_URL=f"postgresql://postgres:secret@/x?host={quote(str(tmp_path))}")
        assert ran.code == 1
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1
        assert "RIVETOS_PG_URL" in ran.err
        assert "secret" not in ran.err


def test_a_bad_setting_is_one_line_with_its_name(run: Run) -> None:
    ran = run("stats", RIVETOS_TIMEZONE="Mars/Olympus")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert ran.err.startswith("rivet: RIVETOS_TIMEZONE is wrong: 'Mars/Olympus' is no IANA time zone")


def test_an_interrupt_exits_with_130_and_without_a_trace(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        logging.getLogger("psycopg").warning("error ignored in rollback")
        logging.getLogger("psycopg.pool").warning("error connecting")
        raise KeyboardInterrupt

    monkeypatch.setattr(search_module, "search", interrupted)
    ran = run("search", "x")
    assert (ran.code, ran.out) == (130, "")
    assert "Traceback" not in ran.err
    assert caplog.messages == ["error connecting"]


def test_search_shows_hits_with_their_time_in_the_zone(run: Run, filled: Connection) -> None:
    ran = run("search", "sessions backup", "--explain")
    assert ran.code == 0
    first, second = ran.out.splitlines()[:2]
    assert first.startswith(" 1. 0.")
    assert "2026-03-08 00:00 CET" in first
    assert "codex/assistant" in first
    assert "We keep sessions in Postgres" in second
    assert "text 1.00 · semantic" in ran.out
    assert "session 1.00" in ran.out
    assert "nothing is embedded yet" in ran.err
    assert filled.execute("SELECT count(*) AS n FROM ros_access").fetchone() == {"n": 3}


def test_a_summary_is_shown_with_its_period_and_kind(run: Run, connection: Connection) -> None:
    add_summary(
        connection,
        "Sessions moved to Postgres.",
        kind="branch",
        agents=["codex"],
        earliest=datetime(2026, 3, 7, 22, tzinfo=UTC),
        latest=datetime(2026, 3, 8, 9, tzinfo=UTC),
    )
    heading = run("search", "sessions").out.splitlines()[0]
    assert "2026-03-07 23:00 CET to 2026-03-08 10:00 CET" in heading
    assert "branch summary of 3 messages, codex" in heading


def test_search_as_json_has_the_shape_of_the_api(run: Run, filled: Connection) -> None:
    ran = run("search", "backup", "--json", "--limit", "1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["query"] == "backup"
    assert ran.json["results"][0]["createdAt"] == "2026-03-07T23:00:00Z"
    assert ran.json["degraded"]["reason"]


def test_a_search_without_hits_is_no_error_and_says_what_to_try(run: Run, filled: Connection) -> None:
    ran = run("search", "zebra", "--since", "2026-03-01", "--agent", "codex")
    assert ran.code == 0
    assert "Nothing found for “zebra”" in ran.out
    assert "widen it" in ran.out
    assert "--agent" in ran.out
    assert run("search", "zebra", "--json").json["results"] == []
    assert "[red]" in run("search", "[red]zebra").out


def test_texts_are_read_for_a_literal_or_an_expression(run: Run, filled: Connection) -> None:
    ran = run("search", "essions in Postg", "--mode", "trigram")
    assert ran.code == 0
    assert "We keep sessions in Postgres" in ran.out
    assert run("search", r"post\w+s", "--mode", "regex", "--json").json["degraded"] is None
    for words, says in (
        (["(", "--mode", "regex"], "parentheses () not balanced"),
        (["x", "--tag", "shop"], "key:value"),
    ):
        refused = run("search", *words)
        assert refused.code == 2
        assert says in " ".join(refused.err.split())


def test_a_conversation_is_named_by_anything_in_it(run: Run, filled: Connection) -> None:
    row = filled.execute("SELECT id, conversation_id FROM ros_messages ORDER BY seq LIMIT 1").fetchone()
    assert row is not None
    other = SessionRecord(session_key="test:other", agent="me", channel="test")
    said = MessageRecord(event_id="1", role="user", content="Other sessions.", created_at=None)
    write_batch(filled, other, [said], first_day=date(2022, 11, 1))
    for named in (str(row["conversation_id"]), str(row["conversation_id"])[:8], str(row["id"])[:8]):
        listed = run("browse", "--conversation", named, "--json").json["messages"]
        assert {message["conversationId"] for message in listed} == {str(row["conversation_id"])}
        found = run("search", "sessions", "--conversation", named, "--json").json["results"]
        assert {hit["conversationId"] for hit in found} == {str(row["conversation_id"])}
    for wrong in ("00000000", "00000000-0000-0000-0000-000000000000", "nonsense"):
        for command in (["search", "x"], ["browse"]):
            refused = run(*command, "--conversation", wrong)
            assert (refused.code, refused.out) == (2, "")
            assert "no conversation" in refused.err or "is no id" in refused.err


def test_a_thought_is_told_from_an_answer(run: Run, filled: Connection) -> None:
    thought = MessageRecord("t", "assistant", "Perhaps a lighthouse.", metadata={"kind": "thinking"})
    write_batch(filled, SessionRecord("test:t", "me", "test"), [thought], first_day=date(2022, 11, 1))
    for command in (["search", "lighthouse"], ["browse", "--session", "test:t"]):
        assert "me/assistant (thinking)" in run(*command).out
    assert "codex/assistant (" not in run("browse").out


def test_hits_show_the_tags_of_their_session(run: Run, filled: Connection) -> None:
    row = filled.execute("SELECT conversation_id AS id FROM ros_messages LIMIT 1").fetchone()
    assert row is not None
    add_tag(filled, "project:shop", conversation=row["id"])
    assert "#project:shop" in run("search", "sessions", "--tag", "project:shop").out
    nothing = run("search", "sessions", "--tag", "project:other")
    assert "no session carries the tag project:other" in nothing.out
    assert "--tag" in nothing.out
    assert run("browse", "--tag", "project:shop", "--json").json["period"]["zone"]


def test_a_time_without_an_offset_is_read_in_the_configured_zone(run: Run, filled: Connection) -> None:
    def times(*words: str) -> list[str]:
        return [
            hit["createdAt"] for hit in run("search", "sessions", "--role", "user", "--json", *words).json["results"]
        ]

    assert times("--before", "2026-03-08") == ["2026-03-07T22:59:00Z"]
    assert times("--before", "2026-03-07T22:59:00Z") == []
    assert times("--since", "2026-03-08") == ["2026-03-09T08:00:00Z"]


@pytest.mark.parametrize("words", [["search", "sessions markup"], ["browse"], ["browse", "--full"], ["stats"]])
def test_what_a_transcript_says_never_drives_the_terminal(run: Run, filled: Connection, words: list[str]) -> None:
    for asked in (words, [*words, "--json"] if "--full" not in words else words):
        ran = run(*asked, FORCE_COLOR="", NO_COLOR="1")
        assert ran.code == 0
        assert not [character for character in ran.out if ord(character) < 32 and character != "\n"]
        assert not set("\x7f\x9b\u202e\u200e") & set(ran.out)
    if words[0] != "stats":
        shown = run(*words).out
        assert r"\x1b[31m" in shown
        assert "[red]markup[/red] [/]" in shown
        assert r"\u202e" in shown


def test_json_gives_back_the_very_text(run: Run, filled: Connection) -> None:
    contents = [message["content"] for message in run("browse", "--json").json["messages"]]
    assert HOSTILE in contents


def test_browse_lists_in_either_order_and_pages(run: Run, filled: Connection) -> None:
    newest = run("browse", "--limit", "3")
    assert newest.out.index("[tool: Bash]") < newest.out.index("We keep sessions")
    assert "Where should sessions live?" not in newest.out
    assert "100 more characters" in newest.out
    assert "x" * 900 in run("browse", "--full", "--json").out
    cursor = newest.out.split("--cursor ")[1].split()[0]
    rest = run("browse", "--limit", "3", "--cursor", cursor).out
    assert "Where should sessions live?" in rest
    assert "More:" not in rest
    back = run("browse", "--limit", "3", "--cursor", rest.split("--cursor ")[1].split()[0]).out
    assert back.split("More:")[0] == newest.out.split("More:")[0]
    oldest = run("browse", "--order", "asc", "--no-tools").out
    assert oldest.index("Where should") < oldest.index("We keep")
    assert "Bash" not in oldest
    nothing = run("browse", "--window", "today")
    assert (nothing.code, nothing.out) == (0, "No message in this listing. Widen the period, or leave filters out.\n")


def test_stats_put_what_needs_a_person_first(run: Run, filled: Connection) -> None:
    filled.execute(
        "INSERT INTO ros_failures (stage, item, cause, error) VALUES ('leaf_summaries', 'x', 'content', %s)",
        ["[b]refused\x1b"],
    )
    ran = run("stats")
    assert ran.code == 0
    assert ran.out.startswith("! leaf_summaries: 1 items fail")
    assert r"[b]refused\x1b" in ran.out
    assert "messages: 4" in ran.out
    assert "2026-03-09 10:00 CET" in ran.out
    figures = run("stats", "--json", "--agent", "nobody").json
    assert figures["figures"]["totals"]["messages"] == 0
    assert figures["alerts"]


def verdicts(ran: Ran) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in ran.json["checks"]}


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def ports() -> dict[str, str]:
    return {"RIVETOS_API_PORT": free_port(), "RIVETOS_DAGSTER_PORT": free_port()}


def test_doctor_finds_a_sound_store_sound(run: Run) -> None:
    ran = run("doctor", "--json", **ports())
    assert ran.code == 0
    assert ran.json["ok"] is True
    found = verdicts(ran)
    for name in ("python", "settings", "home", "API port", "database", "extensions", "migrations", "embedding model"):
        assert found[name] == "ok", ran.out
    details = {check["name"]: check["detail"] for check in ran.json["checks"]}
    assert "vector 0." in details["extensions"]
    assert "256 dimensions" in details["embedding model"]
    plain = run("doctor", **ports())
    assert plain.code == 0
    assert "ok    python" in plain.out


def test_doctor_says_when_the_store_is_not_set_up(run: Run, tmp_path: Path, connection: Connection) -> None:
    ran = run("doctor", "--json", RIVETOS_PG_URL="", **ports())
    assert (ran.code, verdicts(ran)["database"]) == (0, "warn")
    assert not (tmp_path / "home").exists()
    connection.execute("DELETE FROM ros_migrations WHERE name = '0004_pending'")
    behind = run("doctor", "--json", **ports())
    assert verdicts(behind)["migrations"] == "warn"
    assert "0004_pending" in behind.out


class _Models(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Bearer key":
            self.send_response(401)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "small-chat"}]}')

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def models() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_doctor_fails_with_what_to_do(run: Run, tmp_path: Path, models: HTTPServer) -> None:
    file = tmp_path / "file"
    file.write_text("")
    nowhere = free_port()
    wrong = {
        "RIVETOS_PG_URL": f"postgresql://postgres@/x?host={quote(str(tmp_path))}",
        "RIVETOS_HOME": str(file / "home"),
        "RIVETOS_API_PORT": str(models.server_port),
        "RIVETOS_DAGSTER_PORT": str(models.server_port),
        "RIVETOS_EMBED_URL": f"http://127.0.0.1:{nowhere}",
        "RIVETOS_EMBED_MODEL": "m",
        "RIVETOS_COMPACTOR_URL": f"http://127.0.0.1:{nowhere}",
        "RIVETOS_COMPACTOR_MODEL": "m",
    }
    ran = run("doctor", "--json", **wrong)
    assert (ran.code, ran.json["ok"]) == (1, False)
    found = verdicts(ran)
    for name in ("home", "API port", "Dagster port", "database", "embedding model", "chat server"):
        assert found[name] == "fail", ran.out
    plain = run("doctor", **wrong)
    assert plain.code == 1
    assert "set RIVETOS_API_PORT" in plain.out
    assert "Traceback" not in plain.out + plain.err


def test_doctor_asks_the_chat_server_for_its_models(run: Run, models: HTTPServer) -> None:
    chat = {
        "RIVETOS_COMPACTOR_URL": f"http://127.0.0.1:{models.server_port}/v1",
        "RIVETOS_COMPACTOR_MODEL": "small-chat",
        **ports(),
    }
    assert verdicts(run("doctor", "--json", **chat))["chat server"] == "fail"
    command = chat | {"RIVETOS_COMPACTOR_TOKEN_COMMAND": "printf key"}
    assert verdicts(run("doctor", "--json", **command))["chat server"] == "ok"
    command["RIVETOS_COMPACTOR_TOKEN_COMMAND"] = "false"
    assert verdicts(run("doctor", "--json", **command))["chat server"] == "fail"
    chat |= {"RIVETOS_COMPACTOR_API_KEY": "key", "RIVETOS_COMPACTOR_TOKEN_COMMAND": ""}
    assert verdicts(run("doctor", "--json", **chat))["chat server"] == "ok"
    chat["RIVETOS_COMPACTOR_FALLBACKS"] = "nowhere"
    assert verdicts(run("doctor", "--json", **chat))["chat server"] == "fail"
    chat["RIVETOS_COMPACTOR_FALLBACKS"] = ""
    chat["RIVETOS_COMPACTOR_MODEL"] = "another"
    assert verdicts(run("doctor", "--json", **chat))["chat server"] == "warn"


def test_doctor_knows_our_own_api(run: Run, database_url: str) -> None:
    with running_api(Settings(), database_url) as base:
        ran = run("doctor", "--json", **{**ports(), "RIVETOS_API_PORT": base.rpartition(":")[2]})
    assert verdicts(ran)["API port"] == "ok"
    assert "it is running" in ran.out


def test_doctor_reports_a_bad_setting_and_a_public_address(run: Run) -> None:
    bad = run("doctor", "--json", RIVETOS_API_PORT="many")
    assert (bad.code, verdicts(bad)["settings"]) == (1, "fail")
    assert "RIVETOS_API_PORT" in bad.out
    public = run("doctor", "--json", **{**ports(), "RIVETOS_API_HOST": "0.0.0.0"})
    assert (public.code, verdicts(public)["API address"]) == (1, "fail")


def test_the_settings_table_names_every_variable(run: Run) -> None:
    table = run("doctor", "--settings-table").out
    for field in Settings.model_fields.values():
        assert f"| `{field.validation_alias}` |" in table
        assert field.description
    assert "| `RIVETOS_API_PORT` | `5174` | The API's port. |" in table
    assert len({line.count(" | ") for line in table.splitlines()[2:]}) == 1
