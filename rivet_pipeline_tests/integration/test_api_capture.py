"""POST /api/capture over real HTTP: what is stored, and how each bad batch is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts import projects
from rivet_pipeline_tests.api_server import module_store, running_api

LIMIT = 64 * 1024


@pytest.fixture
def base(database_url: str) -> Iterator[str]:
    with running_api(Settings(capture_max_body=LIMIT), database_url) as address:
        yield address


@pytest.fixture(scope="module")
def refuser(server: EmbeddedServer) -> Iterator[httpx.Client]:
    """A client of an API that no test of this module makes store anything."""
    with (
        module_store(server, "api_capture_module") as url,
        running_api(Settings(capture_max_body=LIMIT), url) as base,
        httpx.Client(base_url=base, timeout=30) as opened,
    ):
        yield opened
        with connect(url) as connection:
            assert stored(connection) == []


@pytest.fixture
def client(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=30) as opened:
        yield opened


def batch(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "session_key": "claude-code:one",
        "agent": "claude-code",
        "channel": "cli",
        "messages": list(messages),
        **fields,
    }


def message(event_id: str = "e1", **fields: Any) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "role": "user",
        "content": "Sessions live in Postgres.",
        "created_at": "2026-03-08T10:00:00+01:00",
        **fields,
    }


def stored(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute("SELECT * FROM ros_messages ORDER BY created_at, seq").fetchall()


def test_a_batch_is_stored_once_and_its_times_are_utc(client: httpx.Client, connection: Connection) -> None:
    body = batch(
        message(),
        message("e2", role="assistant", content="", tool_name="Bash", tool_args={"command": "ls"}),
        title="Where sessions live",
        settings={"cwd": "/home/ada/shop"},
    )
    first = client.post("/api/capture", json=body)
    assert first.status_code == 200
    answer = first.json()
    assert {key: answer[key] for key in ("ok", "inserted", "skipped", "filled")} == {
        "ok": True,
        "inserted": 2,
        "skipped": 0,
        "filled": 0,
    }
    again = client.post("/api/capture", json=body).json()
    assert (again["inserted"], again["skipped"], again["conversation_id"]) == (0, 2, answer["conversation_id"])
    rows = stored(connection)
    assert [row["event_id"] for row in rows] == ["e1", "e2"]
    assert rows[0]["created_at"].isoformat() == "2026-03-08T09:00:00+00:00"
    assert rows[1]["tool_args"] == {"command": "ls"}


def test_a_late_result_fills_its_call_and_finalize_closes(client: httpx.Client, connection: Connection) -> None:
    call = message("call", role="assistant", content="", tool_name="Bash")
    client.post("/api/capture", json=batch(call))
    answer = client.post("/api/capture", json=batch({**call, "tool_result": "a.txt"}, finalize=True)).json()
    assert (answer["inserted"], answer["skipped"], answer["filled"]) == (0, 1, 1)
    assert stored(connection)[0]["tool_result"] == "a.txt"
    assert connection.execute("SELECT active FROM ros_conversations").fetchall() == [{"active": False}]


def test_the_project_of_the_folder_is_kept(client: httpx.Client, connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "copy" / ".git").mkdir(parents=True)
    (tmp_path / "copy" / ".git" / "config").write_text('[remote "origin"]\n\turl = git@example.org:team/shop.git\n')
    (tmp_path / "copy" / "src").mkdir()
    folders = [None, str(tmp_path / "copy" / "src"), str(tmp_path / "elsewhere"), "", 7, "/"]
    found = []
    for number, cwd in enumerate(folders):
        answer = client.post("/api/capture", json=batch(message(f"e{number}"), settings={"cwd": cwd}))
        assert answer.status_code == 200
        row = connection.execute("SELECT settings -> 'project' AS project FROM ros_conversations").fetchone()
        assert row is not None
        found.append(row["project"])
    # Where a session began is where it belongs.
    assert found == [None, "shop", "shop", "shop", "shop", "shop"]
    assert len(stored(connection)) == len(folders)


def test_a_folder_that_can_not_be_looked_at_costs_no_message(
    client: httpx.Client, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> str:
        raise AssertionError(path)

    monkeypatch.setattr(projects, "_found", fail)
    answer = client.post("/api/capture", json=batch(message(), settings={"cwd": "/srv/shop"}))
    assert answer.json()["inserted"] == 1
    assert connection.execute("SELECT settings ->> 'project' AS p FROM ros_conversations").fetchall() == [{"p": "shop"}]


def test_a_backfill_says_when_its_conversation_was(client: httpx.Client, connection: Connection) -> None:
    untimed = {**message(), "created_at": None}
    span = {"created_at": "2026-03-01T10:00:00Z", "updated_at": "2026-03-02T10:00:00Z"}
    assert client.post("/api/capture", json=batch(untimed, **span)).status_code == 200
    assert stored(connection)[0]["created_at"].isoformat() == "2026-03-01T10:00:00+00:00"
    row = connection.execute("SELECT day::text, updated_at FROM ros_conversations").fetchone()
    assert row == {"day": "2026-03-01", "updated_at": datetime(2026, 3, 2, 10, tzinfo=UTC)}


def test_a_title_and_a_task_id_stay_until_others_come_and_words_reopen(
    client: httpx.Client, connection: Connection
) -> None:
    task = "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"
    found = []
    batches: list[dict[str, Any]] = [
        {"title": "First", "task_id": task, "finalize": True},
        {},
        {"title": " ", "finalize": True},
        {"title": "Last"},
    ]
    for number, fields in enumerate(batches):
        assert client.post("/api/capture", json=batch(message(f"e{number}"), **fields)).status_code == 200
        row = connection.execute("SELECT title, task_id::text, active FROM ros_conversations").fetchone()
        assert row is not None
        found.append(tuple(row.values()))
    assert found == [("First", task, False), ("First", task, True), ("First", task, False), ("Last", task, True)]


def test_long_texts_are_capped_and_say_so(client: httpx.Client, connection: Connection) -> None:
    long = "🚀" * 8_001
    client.post("/api/capture", json=batch(message(content=long, tool_result="x" * 16_001)))
    row = stored(connection)[0]
    assert row["content"] == "🚀" * 8_000
    assert len(row["tool_result"]) == 16_000
    assert row["metadata"]["truncated"] is True
    assert row["metadata"]["full_content_length"] == 16_002
    assert row["metadata"]["full_tool_result_length"] == 16_001


def test_names_of_six_kilobytes_are_taken_and_found(client: httpx.Client, connection: Connection) -> None:
    name, folder, title = "claude-code:" + "k" * 6_000, "/srv/" + "deep/" * 1_200 + "shop", "t" * 6_000
    body = batch(
        message(content="the quokkas moved"),
        session_key=name,
        title=title,
        settings={"cwd": folder, "tag": "g" * 6_000},
    )
    for new in (1, 0):
        answer = client.post("/api/capture", json=body)
        assert (answer.status_code, answer.json()["inserted"]) == (200, new)
    [conversation] = connection.execute("SELECT session_key, title, settings FROM ros_conversations").fetchall()
    # Of a title as much is kept as a list can show.
    assert (conversation["session_key"], title.startswith(conversation["title"])) == (name, True)
    assert len(conversation["title"]) >= 100
    assert (conversation["settings"]["cwd"], conversation["settings"]["tag"]) == (folder, "g" * 6_000)
    [hit] = client.get("/api/memory/search", params={"q": "quokkas"}).json()["results"]
    [listed] = client.get("/api/memory/browse", params={"session_key": name}).json()["messages"]
    assert hit["id"] == listed["id"]
    # A line that is refused takes nothing of its batch in, however long the names are.
    other = batch(message("e2"), message("e3", role="robot"), session_key=name + "x", settings={"cwd": folder + "x"})
    assert client.post("/api/capture", json=other).status_code == 400
    assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 1}
    assert len(stored(connection)) == 1


def test_unstorable_characters_are_replaced_and_the_row_lands(client: httpx.Client, connection: Connection) -> None:
    raw = json.dumps(batch(message(content="CONTENT", metadata={"k": "META"})))
    raw = raw.replace("CONTENT", r"a\u0000b \ud83d \ud83d\ude80").replace("META", r"x\u0000")
    answer = client.post("/api/capture", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    row = stored(connection)[0]
    assert row["content"] == "a\ufffdb \ufffd 🚀"
    assert row["metadata"]["k"] == "x\ufffd"


def test_twenty_writers_of_one_batch_all_succeed_and_leave_each_event_once(
    client: httpx.Client, connection: Connection
) -> None:
    body = batch(*(message(f"e{number}") for number in range(20)), message("e0"))
    with ThreadPoolExecutor(20) as writers:
        answers = list(writers.map(lambda _: client.post("/api/capture", json=body), range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert sum(answer.json()["inserted"] for answer in answers) == 20
    assert len(stored(connection)) == 20


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (batch(message(), message("e2"), message("e3"), message("e4", role="robot")), "messages[3].role"),
        (batch(message(role=None)), "messages[0].role"),
        (batch({"role": "user", "content": "x"}), "messages[0].event_id"),
        (batch(message("  ")), "messages[0].event_id"),
        (batch(message(content=" ")), "messages[0].content"),
        (batch(message(content=5)), "messages[0].content"),
        (batch(message(tool_result={"a": 1})), "messages[0].tool_result"),
        (batch(message(metadata=[1])), "messages[0].metadata"),
        (batch(message(created_at="2026-03-08T10:00:00")), "messages[0].created_at"),
        (batch(message(created_at="29.12.2023, 22:42:04")), "messages[0].created_at"),
        (batch(message(created_at=1_770_000_000)), "messages[0].created_at"),
        (batch(message(created_at="0001-01-01T00:00:00+14:00")), "messages[0].created_at"),
        (batch(message(toolresult="x")), "messages[0].toolresult"),
        (batch(message(), agent=" "), "agent"),
        (batch(message(), agent="x" * 201), "agent"),
        (batch(message(), session_key=""), "session_key"),
        (batch(message(), channel=None), "channel"),
        (batch(message(), settings="x"), "settings"),
        (batch(message(), task_id="7"), "task_id"),
        (batch(message(), finalize="yes"), "finalize"),
        (batch(message(), created_at="yesterday"), "created_at"),
        (batch(message(), updated_at=1_770_000_000), "updated_at"),
        (batch(message(), titel="x"), "titel"),
        ({**batch(), "messages": {}}, "messages"),
        ([], "body"),
        ("text", "body"),
    ],
)
def test_a_bad_batch_is_refused_with_the_field(refuser: httpx.Client, body: object, field: str) -> None:
    answer = refuser.post("/api/capture", json=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["detail"].startswith(f"{field}: ")
    assert problem["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("raw", "detail"),
    [
        (b"", "body: is required"),
        (b"{", "body: not JSON"),
        (b'{"agent": NaN', "body: not JSON"),
        (b"\xff\xfe\xff", "body: not JSON in UTF-8"),
        (b"[" * 50_000, "body: "),
    ],
)
def test_what_is_not_json_is_refused(refuser: httpx.Client, raw: bytes, detail: str) -> None:
    answer = refuser.post("/api/capture", content=raw, headers={"content-type": "application/json; charset=utf-8"})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(detail)


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "", "text/json"])
def test_only_json_is_taken(refuser: httpx.Client, media_type: str) -> None:
    raw = json.dumps(batch(message())).encode()
    answer = refuser.post("/api/capture", content=raw, headers={"content-type": media_type})
    assert answer.status_code == 415


def test_a_parameter_given_twice_is_refused_before_the_body_is_looked_at(refuser: httpx.Client) -> None:
    answer = refuser.post("/api/capture?agent=a&agent=b", json={"session_key": ""})
    assert answer.status_code == 400
    assert "more than once" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_other_methods_are_refused(refuser: httpx.Client, method: str) -> None:
    answer = refuser.request(method, "/api/capture")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not(client: httpx.Client, connection: Connection) -> None:
    shell = len(json.dumps(batch(message(content=""))))
    exact = json.dumps(batch(message(content="x" * (LIMIT - shell)))).encode()
    assert len(exact) == LIMIT
    headers = {"content-type": "application/json"}
    assert client.post("/api/capture", content=exact, headers=headers).status_code == 200
    answer = client.post("/api/capture", content=exact + b" ", headers=headers)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert "RIVETOS_CAPTURE_MAX_BODY" in answer.json()["detail"]
    assert len(stored(connection)) == 1


def test_a_chunked_body_over_the_limit_is_refused_without_being_parsed(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(80):
            yield b"not json at all " * 1024

    answer = client.post("/api/capture", content=chunks(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_an_announced_body_over_the_limit_is_refused_before_it_is_sent(base: str) -> None:
    address = urlsplit(base)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 80), timeout=30) as raw:
        raw.sendall(
            b"POST /api/capture HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
        )
        assert raw.recv(200).startswith(b"HTTP/1.1 413 ")
