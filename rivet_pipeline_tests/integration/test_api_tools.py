"""The tools over real HTTP: what the write tools store and say, what is refused, and one session's history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import escape
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from rivet_pipeline.api.tools import TOOLS
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api

WRITING = Settings(enable_memory_write=True, memory_agent="grokbot", memory_persona="pirate")
APPEND, INGEST = "/api/memory/tool/memory_append", "/api/memory/tool/memory_ingest_session"
WORDS = {"session_id": "chat:one", "role": "user", "content": "We ship on Thursday."}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with running_api(WRITING, database_url) as base, httpx.Client(base_url=base, timeout=30) as opened:
        yield opened


@pytest.fixture(scope="module")
def refuser(server: EmbeddedServer) -> Iterator[httpx.Client]:
    """A client of an API that no test of this module makes store anything."""
    with (
        module_store(server, "api_tools_module") as url,
        running_api(WRITING, url) as base,
        httpx.Client(base_url=base, timeout=30) as opened,
    ):
        yield opened
        with connect(url) as connection:
            assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() == {"n": 0}


@pytest.fixture(scope="module")
def reader(server: EmbeddedServer) -> Iterator[httpx.Client]:
    """A client of an API without the write tools."""
    with (
        module_store(server, "api_tools_reader") as url,
        running_api(Settings(), url) as base,
        httpx.Client(base_url=base, timeout=30) as opened,
    ):
        yield opened


def call(client: httpx.Client, path: str, **arguments: Any) -> dict[str, Any]:
    answer = client.post(path, json=arguments)
    assert answer.status_code == 200, answer.text
    assert answer.json()["ok"] is True
    result: dict[str, Any] = answer.json()["result"]
    return result


def stored(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute(
        "SELECT m.*, c.session_key, c.title FROM ros_messages m JOIN ros_conversations c ON c.id = m.conversation_id"
        " ORDER BY m.created_at, m.seq"
    ).fetchall()


def test_an_appended_message_is_stored_once_and_attributed(client: httpx.Client, connection: Connection) -> None:
    first = call(client, APPEND, **WORDS)
    again = call(client, APPEND, **WORDS, event_id=" ", channel="null", agent=None)
    row = stored(connection)[0]
    assert first == {
        "id": str(row["id"]),
        "event_id": row["event_id"],
        "session_id": "chat:one",
        "source": "mcp",
        "agent": "grokbot",
        "channel": "mcp",
        "persona": "pirate",
        "truncated": False,
        "full_content_length": 20,
        "full_tool_result_length": None,
        "skipped": False,
        "filled": False,
        "conflict": False,
    }
    assert again == {**first, "skipped": True}
    assert len(stored(connection)) == 1
    assert (row["agent"], row["channel"], row["title"]) == ("grokbot", "mcp", "Session chat:one")
    assert row["metadata"] == {"source": "mcp", "persona": "pirate"}


def test_a_call_attributes_for_itself(client: httpx.Client, connection: Connection) -> None:
    call(client, APPEND, **WORDS, agent="opus", channel="den", source="bridge", persona="clown")
    row = stored(connection)[0]
    assert (row["agent"], row["channel"]) == ("opus", "den")
    assert row["metadata"] == {"source": "bridge", "persona": "clown"}


def test_a_title_that_is_there_or_was_left_out_stays(client: httpx.Client, connection: Connection) -> None:
    for key, title in (("chat:titled", "Shipping"), ("chat:bare", None)):
        message = {"event_id": "e", "role": "user", "content": "x"}
        batch = {"session_key": key, "agent": "grokbot", "channel": "c", "title": title, "messages": [message]}
        assert client.post("/api/capture", json=batch).status_code == 200
        call(client, APPEND, **{**WORDS, "session_id": key})
    titles = {row["session_key"]: row["title"] for row in stored(connection)}
    assert titles == {"chat:titled": "Shipping", "chat:bare": None}


def test_a_known_event_id_is_skipped_and_other_words_are_reported(client: httpx.Client, connection: Connection) -> None:
    first = call(client, APPEND, **WORDS, event_id="17")
    other = call(client, APPEND, **{**WORDS, "content": "We ship on Friday."}, event_id="17")
    assert other == {**first, "skipped": True, "conflict": True, "full_content_length": 18}
    assert [row["content"] for row in stored(connection)] == ["We ship on Thursday."]


def test_a_late_tool_result_is_filled_in_once(client: httpx.Client, connection: Connection) -> None:
    tool = {"session_id": "s", "role": "tool", "tool_name": "Bash", "tool_args": {"command": "ls"}, "event_id": "c1"}
    answers = [call(client, APPEND, **tool, **more) for more in ({}, {"tool_result": "a"}, {"tool_result": "b"})]
    assert [(answer["skipped"], answer["filled"]) for answer in answers] == [
        (False, False),
        (True, True),
        (True, False),
    ]
    assert [row["tool_result"] for row in stored(connection)] == ["a"]


def test_calls_that_differ_in_result_or_arguments_are_all_stored(client: httpx.Client, connection: Connection) -> None:
    for arguments in ({"command": "ls"}, {"command": "pwd"}):
        for result in (None, "", "a", "b"):
            call(client, APPEND, session_id="s", role="tool", tool_name="Bash", tool_args=arguments, tool_result=result)
    assert len(stored(connection)) == 8


def test_twenty_appends_at_once_without_an_event_id(client: httpx.Client, connection: Connection) -> None:
    with ThreadPoolExecutor(20) as writers:
        answers = list(
            writers.map(lambda number: call(client, APPEND, **{**WORDS, "content": f"{number % 4}"}), range(40))
        )
    assert sum(not answer["skipped"] for answer in answers) == 4
    assert len({answer["id"] for answer in answers}) == 4
    assert sorted(row["content"] for row in stored(connection)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("text", "kept", "length"),
    [
        ("x" * 15_999 + "🚀", "x" * 15_999, 16_001),
        ("x" * 15_998 + "🚀", "x" * 15_998 + "🚀", 16_000),
        ("x" * 15_990 + "…[truncated]", "x" * 15_990 + "…[truncate", 16_002),
    ],
)
def test_the_cap_counts_utf16_units_and_splits_no_character(
    client: httpx.Client, connection: Connection, text: str, kept: str, length: int
) -> None:
    answer = call(client, APPEND, session_id="s", role="tool", content=text, tool_name="t", tool_result=text)
    kept = kept if length > 16_000 else text
    row = stored(connection)[0]
    assert len(kept.encode("utf-16-le")) // 2 <= 16_000
    assert (row["content"], row["tool_result"]) == (kept, kept)
    assert (answer["full_content_length"], answer["full_tool_result_length"]) == (length, length)
    assert answer["truncated"] is (length > 16_000)
    assert row["metadata"].get("truncated", False) is (length > 16_000)
    assert call(client, APPEND, session_id="s", role="tool", content=text, tool_name="t", tool_result=text)["skipped"]


def test_what_can_not_be_stored_is_replaced_in_every_field(client: httpx.Client, connection: Connection) -> None:
    bad = r"a\u0000b \ud83d \ud83d\ude80"
    fields = ("session_id", "content", "tool_name", "tool_result", "event_id", "agent", "channel", "source", "persona")
    body = {**dict.fromkeys(fields, "BAD"), "role": "tool", "tool_args": {"BAD": ["BAD", {"k": "BAD"}]}}
    raw = json.dumps(body).replace("BAD", bad)
    answer = client.post(APPEND, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    good = "a\ufffdb \ufffd 🚀"
    row = stored(connection)[0]
    for field in ("session_key", "content", "tool_name", "tool_result", "event_id", "agent", "channel"):
        assert row[field] == good
    assert row["metadata"] == {"source": good, "persona": good}
    assert row["tool_args"] == {good: [good, {"k": good}]}


@pytest.mark.parametrize("path", [APPEND, INGEST, "/api/capture"])
def test_the_six_characters_of_an_escape_survive(client: httpx.Client, connection: Connection, path: str) -> None:
    literal = r"write \u0000 and \ud83d as they are"
    message = {"role": "user", "content": literal, "event_id": "e"}
    bodies = {
        APPEND: {"session_id": "s", **message},
        INGEST: {"session_id": "s", "messages": [message]},
        "/api/capture": {"session_key": "s", "agent": "a", "channel": "c", "messages": [message]},
    }
    assert client.post(path, json=bodies[path]).status_code == 200
    assert [row["content"] for row in stored(connection)] == [literal]


def test_a_session_is_ingested_in_order_with_its_times_and_repeats(
    client: httpx.Client, connection: Connection
) -> None:
    messages = [
        {"role": "user", "content": "Ship?", "created_at": "2026-03-08T10:15:00+01:00"},
        {"role": "assistant", "content": "Yes.", "created_at": "2026-03-08T09:15:00Z"},
        {"role": "assistant", "content": "Yes."},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "1", "name": "Bash", "input": {"command": "ls"}},
                {"id": "2", "name": "Read", "input": None},
            ],
        },
    ]
    first = call(client, INGEST, session_id="chat:two", messages=messages)
    again = call(client, INGEST, session_id="chat:two", messages=messages)
    rows = stored(connection)
    assert [row["content"] for row in rows] == ["Ship?", "Yes.", "Yes.", ""]
    assert {row["created_at"].isoformat() for row in rows} == {"2026-03-08T09:15:00+00:00"}
    assert (rows[3]["tool_name"], rows[3]["tool_args"]) == ("Bash", {"command": "ls"})
    assert [made["name"] for made in rows[3]["metadata"]["tool_calls"]] == ["Bash", "Read"]
    assert first == {
        "session_id": "chat:two",
        "source": "mcp",
        "agent": "grokbot",
        "channel": "mcp",
        "persona": "pirate",
        "ingested": 4,
        "skipped": 0,
        "ids": [str(row["id"]) for row in rows],
        "truncated": False,
        "full_content_length": 5,
    }
    assert again == {**first, "ingested": 0, "skipped": 4}


def test_an_ingested_session_may_name_its_events(client: httpx.Client, connection: Connection) -> None:
    messages = [{"role": "user", "content": f"{number}", "event_id": f"e{number}"} for number in range(5)]
    call(client, INGEST, session_id="s", messages=messages[:3])
    answer = call(client, INGEST, session_id="s", messages=messages[2:])
    assert (answer["ingested"], answer["skipped"]) == (2, 1)
    assert len(stored(connection)) == 5


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (APPEND, {}, "session_id"),
        (APPEND, {**WORDS, "session_id": " "}, "session_id"),
        (APPEND, {"session_id": "s", "content": "x"}, "role"),
        (APPEND, {**WORDS, "role": None}, "role"),
        (APPEND, {**WORDS, "role": "robot"}, "role"),
        (APPEND, {**WORDS, "content": " "}, "content"),
        (APPEND, {**WORDS, "content": 5}, "content"),
        (APPEND, {**WORDS, "content": "", "tool_name": " "}, "content"),
        (APPEND, {**WORDS, "tool_args": "ls"}, "tool_args"),
        (APPEND, {**WORDS, "tool_args": ["ls"]}, "tool_args"),
        (APPEND, {**WORDS, "tool_result": {"a": 1}}, "tool_result"),
        (APPEND, {**WORDS, "agent": "x" * 201}, "agent"),
        (APPEND, {**WORDS, "persna": "x"}, "persna"),
        (APPEND, [], "body"),
        (APPEND, "text", "body"),
        (APPEND, None, "body"),
        (INGEST, {"session_id": "s"}, "messages"),
        (INGEST, {"session_id": "s", "messages": []}, "messages"),
        (INGEST, {"session_id": "s", "messages": {}}, "messages"),
        (INGEST, {"session_id": "s", "messages": [WORDS]}, "messages[0].session_id"),
        (INGEST, {"session_id": "s", "messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
        ("/api/memory/tool/memory_get_full", {}, "id"),
        ("/api/memory/tool/memory_get_full", {"id": " "}, "id"),
        ("/api/memory/tool/memory_get_full", {"id": "17"}, "id"),
        ("/api/memory/tool/memory_get_full", {"id": "/etc/passwd"}, "id"),
        ("/api/memory/tool/memory_get_full", {"id": "0" * 32, "path": "/etc/passwd"}, "path"),
        ("/api/memory/tool/memory_get_full", {"id": "0" * 32, "offset": -1}, "offset"),
        ("/api/memory/tool/memory_get_full", {"id": "0" * 32, "section": "x"}, "section"),
    ],
)
def test_wrong_arguments_are_refused_with_the_field(refuser: httpx.Client, path: str, body: object, field: str) -> None:
    answer = refuser.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400
    problem = answer.json()
    assert problem["errors"][0]["field"] == field
    assert problem["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize("time", ["yesterday", "2026-03-08T10:00:00", 1_770_000_000, "2026-02-30T10:00:00Z"])
def test_one_bad_time_names_its_place_and_nothing_is_written(refuser: httpx.Client, time: object) -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": f"{number}"} for number in range(5)]
    messages[3]["created_at"] = time
    answer = refuser.post(INGEST, json={"session_id": "s", "messages": messages})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("messages[3].created_at: ")


def test_an_unknown_tool_or_message_is_not_found(refuser: httpx.Client) -> None:
    for name in ("memory_forget", "", "a/b", "../capture"):
        answer = refuser.post(f"/api/memory/tool/{quote(name, safe='')}", json={})
        assert answer.status_code == 404
        assert "memory_append, memory_ingest_session, memory_get_full" in answer.json()["detail"]
    unknown = "0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"
    answer = refuser.post("/api/memory/tool/memory_get_full", json={"id": unknown})
    assert answer.status_code == 404
    assert unknown in answer.json()["detail"]


def test_a_tool_with_a_reading_side_only_reads_unless_writing_is_enabled(reader: httpx.Client) -> None:
    path = "/api/memory/tool/memory_tags"
    assert reader.post(path, json={}).json() == {"ok": True, "result": "Nothing waits for a review."}
    for body in ({"action": "decide"}, {"tag": "topic:x", "action": "add", "session_key": "any"}):
        answer = reader.post(path, json=body)
        assert answer.status_code == 400, answer.text
        assert "action" in answer.json()["detail"]


@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if tool.writes and tool.read_only is None])
def test_the_write_tools_are_off_unless_enabled(reader: httpx.Client, name: str) -> None:
    for body in (WORDS, {}, None):
        answer = reader.post(f"/api/memory/tool/{name}", json=body)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert "RIVETOS_MCP_ENABLE_MEMORY_WRITE=1" in answer.json()["detail"]
    assert name not in reader.get("/openapi.json").text
    assert "memory_get_full" in reader.get("/openapi.json").text


@pytest.mark.parametrize("name", list(TOOLS))
def test_every_tool_takes_json_by_post_only(refuser: httpx.Client, name: str) -> None:
    path = f"/api/memory/tool/{name}"
    answer = refuser.post(path, content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert refuser.get(path).status_code == 405
    answer = refuser.post(path, content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("body: not JSON")


@pytest.mark.parametrize("name", list(TOOLS))
def test_bodies_are_bounded(refuser: httpx.Client, name: str) -> None:
    limit = 1024 * 1024 if name == "memory_ingest_session" else 256 * 1024
    path, headers = f"/api/memory/tool/{name}", {"content-type": "application/json"}
    # What a tool asks for beside an object is its own business.
    assert refuser.post(path, content=b" " * (limit - 2) + b"{}", headers=headers).status_code in {200, 400}
    answer = refuser.post(path, content=b" " * (limit - 1) + b"{}", headers=headers)
    assert answer.status_code == 413
    assert f"{limit:,} bytes" in answer.json()["detail"]


def test_every_tool_is_documented(refuser: httpx.Client) -> None:
    page = refuser.get("/docs").text
    for tool in TOOLS.values():
        assert f"/api/memory/tool/{tool.name}" in page
        assert escape(tool.doc) in page
        example = tool.arguments.model_json_schema()["examples"][0]
        assert tool.arguments.model_validate(example)


KEY = "claude-code:a b/ç/5b0f?x=1#y%2F:z/messages"


def test_a_sessions_history_comes_oldest_first_in_pages(client: httpx.Client, connection: Connection) -> None:
    for agent in ("opus", "codex"):
        messages = [
            {
                "event_id": f"e{number}",
                "role": "user",
                "content": f"{agent} {number}",
                "created_at": "2026-03-08T10:00:00Z",
            }
            for number in range(25)
        ]
        batch = {"session_key": KEY, "agent": agent, "channel": "c", "messages": messages}
        assert client.post("/api/capture", json=batch).status_code == 200
    call(client, APPEND, **WORDS)
    path, cursor, seen = f"/api/conversations/{quote(KEY, safe='')}/messages", None, []
    while True:
        page = client.get(path, params={"limit": 7} if cursor is None else {"limit": 7, "cursor": cursor}).json()
        seen += [message["content"] for message in page["messages"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert seen == [f"{agent} {number}" for agent in ("opus", "codex") for number in range(25)]
    whole = client.get(path).json()
    assert [message["content"] for message in whole["messages"]] == seen
    assert {message["sessionId"] for message in whole["messages"]} == {KEY}


def test_a_sessions_history_comes_in_either_order_and_without_tools(client: httpx.Client) -> None:
    messages: list[dict[str, object]] = [
        {"event_id": f"e{number}", "role": "user", "content": f"{number}", "created_at": f"2026-03-08T10:0{number}:00Z"}
        for number in range(4)
    ]
    messages[2] |= {"role": "tool", "tool_name": "Bash", "tool_result": "ok"}
    batch = {"session_key": "s:1", "agent": "opus", "channel": "c", "messages": messages}
    assert client.post("/api/capture", json=batch).status_code == 200

    def read(**query: object) -> tuple[list[str], str | None]:
        page = client.get("/api/conversations/s%3A1/messages", params={**query}).json()  # type: ignore[dict-item]
        return [message["content"] for message in page["messages"]], page["nextCursor"]

    assert read()[0] == ["0", "1", "2", "3"]
    assert len(client.get("/api/conversations/opus%3As%3A1/messages").json()["messages"]) == 4
    assert read(order="desc", include_tools="false")[0] == ["3", "1", "0"]
    first, cursor = read(order="desc", limit=3)
    assert (first, read(order="desc", limit=3, cursor=cursor)[0]) == (["3", "2", "1"], ["0"])
    wrong = client.get("/api/conversations/s%3A1/messages", params={"cursor": cursor or "", "order": "asc"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (400, "cursor")


def test_an_unchanged_page_is_told_by_its_tag(client: httpx.Client) -> None:
    path = "/api/conversations/s%3A1/messages"
    message: dict[str, object] = {"event_id": "e", "role": "tool", "tool_name": "Bash"}
    batch = {"session_key": "s:1", "agent": "opus", "channel": "c", "messages": [message]}
    client.post("/api/capture", json=batch)
    first = client.get(path)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    for sent in (tag, f'"other", W/{tag}'):
        unchanged = client.get(path, headers={"If-None-Match": sent})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    message["tool_result"] = "late"
    client.post("/api/capture", json=batch)
    changed = client.get(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    assert client.get(path, params={"order": "desc"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("unknown", 404),
        ("claude-code%3Aa%2Fb", 404),
        ("a%00b", 404),
        ("unknown/messages/x", 404),
    ],
)
def test_an_unknown_session_is_not_found(refuser: httpx.Client, path: str, status: int) -> None:
    answer = refuser.get(f"/api/conversations/{path}/messages")
    assert answer.status_code == status
    assert "session key" in answer.json()["detail"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=x", "order=up", "tools=0"])
def test_a_bad_page_is_refused(refuser: httpx.Client, query: str) -> None:
    answer = refuser.get(f"/api/conversations/x/messages?{query}")
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(query.partition("=")[0])
