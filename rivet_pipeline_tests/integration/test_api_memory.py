"""Search, browse, stats and health over real HTTP, against a real store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.embedding.embed import embed_messages, embed_summaries
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.integration.memory_rows import add_summary

WORDS = {
    "e1": ("user", "Where should the sessions live, in Redis or in Postgres?", "2026-03-08T06:59:59Z"),
    "e2": ("assistant", "We keep sessions in Postgres: one store, one backup.", "2026-03-08T07:00:00Z"),
    "e3": ("user", "The café's menu is in src/app/user_store.py", "2026-03-09T07:00:00Z"),
}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with filled_api(database_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(server: EmbeddedServer) -> Iterator[httpx.Client]:
    with module_store(server, "api_memory_module") as url, filled_api(url) as opened:
        yield opened


@contextmanager
def filled_api(url: str) -> Iterator[httpx.Client]:
    settings = Settings(timezone="Europe/Berlin")
    with running_api(settings, url) as base, httpx.Client(base_url=base, timeout=30) as opened:
        messages: list[dict[str, Any]] = [
            {"event_id": key, "role": role, "content": text, "created_at": at}
            for key, (role, text, at) in WORDS.items()
        ]
        messages.append(
            {
                "event_id": "t1",
                "role": "tool",
                "content": "",
                "tool_name": "Bash",
                "tool_args": {"command": "ls"},
                "tool_result": "migration_0007.sql",
                "created_at": "2026-03-09T08:00:00Z",
            }
        )
        batch = {
            "session_key": "claude-code:s1",
            "agent": "claude-code",
            "channel": "cli",
            "title": "Where sessions live",
            "messages": messages,
        }
        assert opened.post("/api/capture", json=batch).status_code == 200
        yield opened


def get(client: httpx.Client, path: str, **parameters: str | int) -> dict[str, Any]:
    answer = client.get(f"/api/memory/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_captured_message_is_found_by_its_words_at_once(reader: httpx.Client) -> None:
    body = get(reader, "search", q="sessions Postgres backup")
    assert (body["query"], body["mode"], body["scope"]) == ("sessions Postgres backup", "hybrid", "both")
    best = body["results"][0]
    assert best["content"] == WORDS["e2"][1]
    assert (best["source"], best["role"], best["agent"], best["sessionId"]) == (
        "message",
        "assistant",
        "claude-code",
        "claude-code:s1",
    )
    assert best["createdAt"] == "2026-03-08T07:00:00Z"
    assert best["title"] == "Where sessions live"
    assert 0 < best["score"] <= 1
    assert best["parts"] is None
    assert "Postgres" in best["snippet"]
    # Nothing is embedded yet, and the answer says so.
    assert set(body["degraded"]) == {"reason", "effect"}
    assert "words alone" in body["degraded"]["effect"]


def test_explain_adds_the_parts_and_fts_is_not_degraded(reader: httpx.Client) -> None:
    body = get(reader, "search", q="café", mode="fts", explain="true")
    assert body["degraded"] is None
    assert [hit["content"] for hit in body["results"]] == [WORDS["e3"][1]]
    parts = body["results"][0]["parts"]
    assert {"text", "semantic", "temporal", "importance", "neighbours", "tree", "session", "sessionBest"} < set(parts)
    assert {"within", "noise", "diversity"} < set(parts)
    assert all(0 <= value <= 1 for value in parts.values())


def test_filters_reach_the_search(reader: httpx.Client) -> None:
    assert [hit["role"] for hit in get(reader, "search", q="sessions", role="user")["results"]] == ["user"]
    assert get(reader, "search", q="sessions", agent="codex")["results"] == []
    late = get(reader, "search", q="sessions", since="2026-03-08T07:00:00Z")["results"]
    assert [hit["createdAt"] for hit in late] == ["2026-03-08T07:00:00Z"]
    early = get(reader, "search", q="sessions", before="2026-03-08T08:00:00+01:00")["results"]
    assert [hit["createdAt"] for hit in early] == ["2026-03-08T06:59:59Z"]
    conversation = early[0]["conversationId"]
    assert len(get(reader, "search", q="sessions", conversation_id=conversation, limit=1)["results"]) == 1
    assert get(reader, "search", q="sessions", scope="summaries")["results"] == []


def test_texts_are_read_for_a_literal_or_an_expression(reader: httpx.Client) -> None:
    found = get(reader, "search", q="essions in Postg", mode="trigram")
    assert [hit["content"] for hit in found["results"]] == [WORDS["e2"][1]]
    assert found["degraded"] is None
    found = get(reader, "search", q=r"migration_\d+\.sql", mode="regex")
    assert [hit["toolName"] for hit in found["results"]] == ["Bash"]
    assert "migration_0007.sql" in found["results"][0]["snippet"]
    assert found["results"][0]["tags"] == []


def test_every_answer_names_its_period_and_zone(reader: httpx.Client) -> None:
    bounds = {"since": "2026-03-08T07:00:00+01:00", "before": "2026-03-09T00:00:00Z"}
    for path, parameters in (("search", {"q": "sessions"}), ("browse", {})):
        body = get(reader, path, **parameters, **bounds)
        expected = {"zone": "Europe/Berlin", "since": "2026-03-08T06:00:00Z", "before": "2026-03-09T00:00:00Z"}
        assert body["period"] == expected
        open_ended = get(reader, path, **parameters)
        assert open_ended["period"] == {"zone": "Europe/Berlin", "since": None, "before": None}
        day = get(reader, path, window="yesterday", **parameters)["period"]
        length = datetime.fromisoformat(day["before"]) - datetime.fromisoformat(day["since"])
        assert length.total_seconds() / 3600 in (23, 24, 25)


@pytest.mark.parametrize(
    "query", ["", "   ", "the", "&|!()", "🚀", '"', "'; DROP TABLE ros_messages;--", "a\x00b", "%", "\\"]
)
def test_any_query_is_answered_and_no_hit_has_a_reason(reader: httpx.Client, query: str) -> None:
    body = get(reader, "search", q=query)
    assert body["results"] == []
    assert body["reason"]


@pytest.mark.parametrize(
    ("path", "parameters", "field", "says"),
    [
        ("search", {}, "q", "is required"),
        ("search", {"q": "x", "limit": "51"}, "limit", "50"),
        ("search", {"q": "x", "limit": "0"}, "limit", "1"),
        ("search", {"q": "x", "mode": "magic"}, "mode", "hybrid"),
        ("search", {"q": "x", "scope": "all"}, "scope", "summaries"),
        ("search", {"q": "x", "role": "robot"}, "role", "assistant"),
        ("search", {"q": "x", "agent": " "}, "agent", "blank"),
        ("search", {"q": "x", "conversation_id": "7"}, "conversation_id", "UUID"),
        ("search", {"q": "x", "since": "2026-03-08T10:00:00"}, "since", "2026-03-08T10:00:00Z"),
        ("search", {"q": "x", "before": "2026-03-08"}, "before", "no time zone"),
        ("search", {"q": "x", "since": "1770000000"}, "since", "ISO 8601"),
        ("search", {"q": "x", "window": "someday"}, "window", "last_7d"),
        ("search", {"q": "x", "window": ""}, "window", "last_7d"),
        ("search", {"q": "x", "since": "2026-03-08T10:00:00Z", "window": "x"}, "window", "last_7d"),
        (
            "search",
            {"q": "x", "since": "2026-03-08T10:00:00Z", "before": "2026-03-08T10:00:00Z"},
            "before",
            "later than since",
        ),
        ("search", {"q": "x", "agnet": "codex"}, "agnet", "agent"),
        ("search", {"q": "x", "tag": "shop"}, "tag", "key:value"),
        ("browse", {"tag": "shop"}, "tag", "key:value"),
        ("search", {"q": "(", "mode": "regex"}, "q", "parentheses () not balanced"),
        ("search", {"q": "***=x", "mode": "regex"}, "q", "mode trigram"),
        ("search", {"q": "x", "explain": "perhaps"}, "explain", "boolean"),
        ("browse", {"limit": "201"}, "limit", "200"),
        ("browse", {"order": "random"}, "order", "asc"),
        ("browse", {"cursor": "nonsense"}, "cursor", "former page"),
        ("browse", {"tool": "Bash"}, "tool", "tool_name"),
        ("stats", {"agents": "x"}, "agents", "agent"),
        ("health", {"deep": "1"}, "deep", "unknown parameter"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_name(
    reader: httpx.Client, path: str, parameters: dict[str, str], field: str, says: str
) -> None:
    answer = reader.get(f"/api/memory/{path}", params=parameters)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["errors"][0]["field"] == field
    assert problem["detail"].startswith(f"{field}: ")
    assert says in problem["detail"]


@pytest.mark.parametrize("path", ["search", "browse", "stats", "health"])
def test_only_get_reads(reader: httpx.Client, path: str) -> None:
    answer = reader.post(f"/api/memory/{path}?q=x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_browse_pages_through_everything_once_in_order(reader: httpx.Client) -> None:
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        page = get(reader, "browse", limit=1, order="asc", **cursor)
        seen += [message["createdAt"] for message in page["messages"]]
        cursor = {"cursor": page["nextCursor"]}
    assert page["nextCursor"] is None
    assert seen == ["2026-03-08T06:59:59Z", "2026-03-08T07:00:00Z", "2026-03-09T07:00:00Z", "2026-03-09T08:00:00Z"]
    newest = get(reader, "browse")["messages"]
    assert [message["createdAt"] for message in newest] == seen[::-1]


def test_browse_shows_whole_messages_and_filters_them(reader: httpx.Client) -> None:
    call = get(reader, "browse", tool_name="Bash")["messages"]
    assert [(one["toolResult"], one["toolArgs"]) for one in call] == [("migration_0007.sql", {"command": "ls"})]
    assert len(get(reader, "browse", include_tools="false")["messages"]) == 3
    assert len(get(reader, "browse", role="user")["messages"]) == 2
    assert get(reader, "browse", window="today")["messages"] == []


def test_a_search_says_what_it_read_as_a_time(client: httpx.Client) -> None:
    zone = ZoneInfo("Europe/Berlin")
    today = datetime.now(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    said = {"event_id": "y1", "role": "user", "content": "the backup is late", "created_at": yesterday.isoformat()}
    batch = {"session_key": "claude-code:s2", "agent": "claude-code", "channel": "cli", "messages": [said]}
    assert client.post("/api/capture", json=batch).status_code == 200
    found = get(client, "search", q="what about the backup yesterday")
    assert found["results"][0]["content"] == "the backup is late"
    (time,) = found["times"]
    assert time["words"] == "yesterday"
    assert [datetime.fromisoformat(time[end]) for end in ("since", "before")] == [yesterday, today]
    assert f"&#39;yesterday&#39; is read as {yesterday.date()}." in client.get("/hub?q=the+backup+yesterday").text
    assert get(client, "search", q="the backup")["times"] == []


def test_a_search_counts_as_an_access_and_browsing_does_not(client: httpx.Client, connection: Connection) -> None:
    get(client, "browse")
    get(client, "search", q="café")
    deadline = time.monotonic() + 30
    while not (rows := connection.execute("SELECT kind, access_count FROM ros_access").fetchall()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert rows == [{"kind": "message", "access_count": 1}]


def test_stats_count_what_was_captured(reader: httpx.Client) -> None:
    body = get(reader, "stats")
    assert body["figures"]["totals"]["messages"] == 4
    assert body["figures"]["totals"]["toolCalls"] == 1
    assert body["figures"]["totals"]["firstAt"] == "2026-03-08T06:59:59Z"
    assert body["figures"]["byAgent"] == {"claude-code": 4}
    assert body["figures"]["recentSessions"][0]["sessionKey"] == "claude-code:s1"
    assert body["errors"] == {}
    assert get(reader, "stats", agent="codex")["figures"]["totals"]["messages"] == 0


def test_health_is_ok_while_work_waits_and_degraded_by_failures(client: httpx.Client, connection: Connection) -> None:
    body = get(client, "health")
    assert (body["status"], body["database"], body["embeddings"]["status"]) == ("ok", "ok", "ok")
    assert (body["pending"]["messages"], body["pendingAtMost"]) == (1, [])
    assert set(body["failures"].values()) == {0}
    connection.execute(
        "INSERT INTO ros_failures (stage, item, cause, error) VALUES ('leaf_summaries', 'x', 'content', 'refused')"
    )
    worse = get(client, "health")
    assert (worse["status"], worse["failures"]["content"], worse["failures"]["givenUp"]) == ("degraded", 1, 1)


def test_what_is_embedded_is_found_by_meaning_and_summaries_stand_in_the_same_list(
    client: httpx.Client, connection: Connection, pool: Pool
) -> None:
    row = connection.execute("SELECT id FROM ros_conversations").fetchone()
    assert row is not None
    summary = add_summary(
        connection,
        "Sessions were moved into Postgres.",
        conversation=row["id"],
        earliest=datetime(2026, 3, 8, 6, 59, 59, tzinfo=UTC),
        latest=datetime(2026, 3, 8, 7, 0, tzinfo=UTC),
        agents=["claude-code"],
    )
    assert embed_messages(pool, WordLlamaEmbedder(), days=None).rows == 4
    assert embed_summaries(pool, WordLlamaEmbedder(), days=None).rows == 1
    body = get(client, "search", q="which database holds user logins", mode="vector", explain="true")
    assert body["degraded"] is None
    assert max(hit["parts"]["semantic"] for hit in body["results"]) > 0
    both = get(client, "search", q="sessions Postgres")["results"]
    assert {hit["source"] for hit in both} == {"message", "summary"}
    found = next(hit for hit in both if hit["source"] == "summary")
    assert (found["id"], found["kind"], found["role"], found["messageCount"]) == (str(summary), "leaf", None, 3)
    assert (found["earliestAt"], found["createdAt"]) == ("2026-03-08T06:59:59Z", "2026-03-08T07:00:00Z")
    assert get(client, "stats")["figures"]["embeddings"]["coverage"] == 1.0


class _Broken(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def test_an_embedding_server_that_refuses_degrades_health_and_search_says_so(database_url: str) -> None:
    with HTTPServer(("127.0.0.1", 0), _Broken) as broken:
        threading.Thread(target=broken.serve_forever, daemon=True).start()
        settings = Settings(embed_url=f"http://127.0.0.1:{broken.server_port}", embed_model="m")
        with connect(database_url) as connection:
            connection.execute("SELECT ros_register_embedding_model('m', 8)")
        with running_api(settings, database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
            health = get(client, "health")
            search = get(client, "search", q="anything")
        broken.shutdown()
    assert health["status"] == "degraded"
    assert health["embeddings"]["status"] == "unavailable"
    assert "401" in health["embeddings"]["reason"]
    assert "401" in search["degraded"]["reason"]


def test_vectors_of_another_model_are_not_compared(database_url: str) -> None:
    with connect(database_url) as connection:
        connection.execute("SELECT ros_register_embedding_model('former-model', 256)")
    with running_api(Settings(), database_url) as base, httpx.Client(base_url=base, timeout=30) as client:
        body = get(client, "search", q="anything")
    assert "former-model still serves" in body["degraded"]["reason"]


def test_a_database_that_goes_away_is_503_and_comes_back(client: httpx.Client, connection: Connection) -> None:
    name = connection.info.dbname
    with connect(f"{_other_database(connection)}") as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = %s AND starts_with(application_name, 'rivet-api')
            """,
            [name],
        )
        try:
            for path in ("search?q=x", "health"):
                answer = client.get(f"/api/memory/{path}")
                assert answer.status_code == 503
                assert answer.headers["content-type"] == "application/problem+json"
            assert client.get("/healthz").status_code == 200
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    deadline = time.monotonic() + 60
    while client.get("/api/memory/browse").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert len(get(client, "browse")["messages"]) == 4


def _other_database(connection: Connection) -> str:
    return f"postgresql://postgres@/postgres?host={connection.info.host}"
