"""Who may speak to the API, over real HTTP."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr

from rivet_pipeline.api.app import serve
from rivet_pipeline.api.security import check_bind, exposure_warning, is_loopback
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.errors import RivetError, StoreUnavailableError
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api

TOKEN = "a-long-random-text-é"


@pytest.fixture(scope="module")
def store(server: EmbeddedServer) -> Iterator[str]:
    with module_store(server, "api_security_module") as url:
        yield url


@pytest.fixture(scope="module")
def open_base(store: str) -> Iterator[str]:
    with running_api(Settings(), store) as address:
        yield address


@pytest.fixture(scope="module")
def closed_base(store: str) -> Iterator[str]:
    with running_api(Settings(api_host="0.0.0.0", api_token=SecretStr(TOKEN)), store) as address:
        yield address


@pytest.fixture
def own_base(database_url: str) -> Iterator[str]:
    with running_api(Settings(), database_url) as address:
        yield address


def raw_get(base: str, path: str, *headers: str) -> bytes:
    """The first line of the answer to a request with exactly these headers."""
    address = urlsplit(base)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 80), timeout=30) as connection:
        lines = [f"GET {path} HTTP/1.1", "Connection: close", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        return connection.makefile("rb").readline()


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:5174", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "a.localhost."]
)
def test_loopback_names_are_answered(open_base: str, host: str) -> None:
    assert raw_get(open_base, "/openapi.json", f"Host: {host}").split()[1] == b"200"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", b"421"),
        ("127.0.0.1.evil.example", b"421"),
        ("localhost.evil.example:5174", b"421"),
        ("169.254.1.1", b"421"),
        ("0.0.0.0", b"421"),
        ("user@localhost", b"400"),
        ("localhost:port", b"400"),
        ("localhost/path", b"400"),
        ("", b"400"),
    ],
)
def test_a_rebound_name_is_refused_everywhere(open_base: str, host: str, status: bytes) -> None:
    for path in ("/openapi.json", "/healthz", "/nowhere"):
        assert raw_get(open_base, path, f"Host: {host}").split()[1] == status


def test_two_host_headers_are_refused(open_base: str) -> None:
    assert raw_get(open_base, "/openapi.json", "Host: localhost", "Host: evil.example").split()[1] == b"400"


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:3000",
        "http://127.0.0.1",
        "file://",
        "http://localhost:99999",
        "x",
    ],
)
def test_a_page_of_another_origin_can_neither_read_nor_write(open_base: str, store: str, origin: str) -> None:
    batch = {
        "session_key": "s:1",
        "agent": "a",
        "channel": "c",
        "messages": [{"event_id": "1", "role": "user", "content": "planted"}],
    }
    for method, path, body in (("GET", "/openapi.json", None), ("POST", "/api/capture", batch)):
        answer = httpx.request(method, open_base + path, json=body, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert httpx.options(open_base + "/api/capture", headers={"Origin": origin}).status_code == 403
    with connect(store) as connection:
        assert connection.execute("SELECT count(*) AS rows FROM ros_messages").fetchone() == {"rows": 0}


def test_the_same_origin_is_answered(open_base: str) -> None:
    assert httpx.get(open_base + "/openapi.json", headers={"Origin": open_base}).status_code == 200


@pytest.mark.parametrize(
    ("site", "mode", "destination", "status"),
    [
        ("cross-site", "no-cors", "script", 403),
        ("same-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_fetch_metadata_tells_embedded_requests_from_visits(
    open_base: str, site: str, mode: str, destination: str, status: int
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}
    assert httpx.get(open_base + "/docs", headers=headers).status_code == status


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer a-long-random-text-"],
)
def test_with_a_token_every_path_but_healthz_needs_it(closed_base: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {b"Authorization": authorization.encode()}
    for path in ("/openapi.json", "/docs", "/api/capture", "/nowhere", "/healthz/"):
        answer = httpx.get(closed_base + path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert httpx.get(closed_base + "/healthz", headers=headers).json() == {"status": "ok"}


def test_the_token_opens_and_any_host_name_is_then_good(closed_base: str) -> None:
    headers = {b"Authorization": f"bearer {TOKEN}".encode(), b"Host": b"memory.home.example:5174"}
    assert httpx.get(closed_base + "/openapi.json", headers=headers).status_code == 200


def test_a_configured_host_is_answered_beside_loopback(database_url: str) -> None:
    with running_api(Settings(api_host="memory.home.example", api_token=SecretStr("t")), database_url) as base:
        good = raw_get(base, "/openapi.json", "Host: memory.home.example:5174", "Authorization: Bearer t")
        bad = raw_get(base, "/openapi.json", "Host: other.example", "Authorization: Bearer t")
    assert (good.split()[1], bad.split()[1]) == (b"200", b"421")


def test_security_headers_and_a_request_id_are_on_every_answer(open_base: str) -> None:
    for path in ("/healthz", "/docs", "/nowhere", "/api/capture"):
        answer = httpx.get(open_base + path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert len(answer.headers["x-request-id"]) == 32
        assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]


def test_unknown_paths_and_parameters_are_problems(open_base: str) -> None:
    missing = httpx.get(open_base + "/api/nothing")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json()["requestId"] == missing.headers["x-request-id"]
    assert httpx.get(open_base + "/healthz?deep=1").status_code == 400


def test_an_unexpected_error_is_answered_with_its_request_id_alone(
    own_base: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    connection.execute("ALTER TABLE ros_conversations ADD CONSTRAINT never CHECK (agent <> 'a')")
    batch = {"session_key": "s:1", "agent": "a", "channel": "c", "messages": []}
    answer = httpx.post(own_base + "/api/capture", json=batch)
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.json()["detail"]
    assert "never" not in answer.text
    assert "Traceback" not in answer.text
    logged = [record for record in caplog.records if answer.headers["x-request-id"] in record.getMessage()]
    assert len(logged) == 1
    assert logged[0].exc_info is not None


def test_a_store_that_is_gone_answers_503_and_says_so(own_base: str, connection: Connection) -> None:
    connection.execute("ALTER TABLE ros_conversations RENAME TO elsewhere")
    batch = {"session_key": "s:1", "agent": "a", "channel": "c", "messages": []}
    answer = httpx.post(own_base + "/api/capture", json=batch)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert "rivet up" in answer.json()["detail"]
    assert httpx.get(own_base + "/healthz").status_code == 200


def test_the_docs_page_is_whole_without_other_servers(open_base: str) -> None:
    page = httpx.get(open_base + "/docs").text
    assert "/api/capture" in page
    assert "event_id" in page
    assert "/openapi.json" in page
    assert "<script" not in page
    assert "https://" not in page
    document = httpx.get(open_base + "/openapi.json").json()
    links, anchors = re.findall(r"href='#([^']+)'", page), re.findall(r"id='([^']+)'", page)
    assert set(links) <= set(anchors)
    assert len(anchors) == len(set(anchors)) >= sum(map(len, document["paths"].values()))
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["summary"]
            assert operation["description"]
            assert "422" not in operation["responses"]


def test_a_public_address_without_a_token_is_refused_in_one_line() -> None:
    with pytest.raises(RivetError, match="RIVETOS_API_TOKEN") as caught:
        check_bind(Settings(api_host="0.0.0.0"))
    assert "\n" not in str(caught.value)
    check_bind(Settings(api_host="0.0.0.0", api_token=SecretStr("t")))
    check_bind(Settings())
    with pytest.raises(RivetError, match="RIVETOS_API_TOKEN"):
        serve(Settings(api_host="192.168.1.5"), "postgresql://nowhere")


def test_serving_on_a_taken_port_or_without_a_store_says_what_to_do(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RivetError, match="set RIVETOS_API_PORT"):
        serve(Settings(api_port=taken.getsockname()[1]), database_url)
    with pytest.raises(StoreUnavailableError, match="can not be reached"):
        serve(Settings(), f"postgresql://postgres@/x?host={tmp_path}")


def every_route(base: str) -> list[tuple[str, str]]:
    """The method and an address of every route that is documented, and of those that are not."""
    paths = httpx.get(base + "/openapi.json").json()["paths"]
    routes = [(method.upper(), path.replace("{", "").replace("}", "")) for path in paths for method in paths[path]]
    return [*routes, ("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json"), ("POST", "/mcp"), ("GET", "/mcp")]


def test_every_route_stands_behind_the_guard(open_base: str, closed_base: str) -> None:
    routes = every_route(open_base)
    assert ("POST", "/api/memory/tool/memory_search") in routes
    for method, path in routes:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}, 403),
        ):
            answer = httpx.request(method, open_base + path, headers=headers)
            assert answer.status_code == status, (method, path)
            assert answer.headers["content-type"] == "application/problem+json"
            assert "access-control-allow-origin" not in answer.headers
        if path != "/healthz":
            assert httpx.request(method, closed_base + path).status_code == 401, (method, path)


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_every_write_takes_json_alone(open_base: str, media_type: str) -> None:
    writes = [(method, path) for method, path in every_route(open_base) if method in {"POST", "PUT", "PATCH"}]
    assert len(writes) > 3
    for method, path in writes:
        headers = {"Content-Type": media_type} if media_type else {}
        answer = httpx.request(method, open_base + path, content=b"{}", headers=headers)
        assert answer.status_code == 415, (method, path)


def test_a_program_that_runs_wild_is_slowed_down(store: str) -> None:
    with running_api(Settings(api_write_rate=1), store) as base, httpx.Client(base_url=base) as client:
        path = "/api/memory/tool/memory_stats"
        answers = [client.post(path, json={"unknown": 1}) for _ in range(30)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert [answer.status_code for answer in answers[:10]] == [400] * 10
        assert refused
        assert int(refused[0].headers["retry-after"]) >= 1
        assert "writes a second" in refused[0].json()["detail"]
        assert client.get("/healthz").status_code == 200


def test_no_secret_is_answered_or_logged(
    database_url: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(
        api_token=SecretStr("token-5e1c"),
        embed_api_key=SecretStr("embed-5e1c"),
        compactor_api_key=SecretStr("compactor-5e1c"),
        pg_url=SecretStr(f"{database_url}&password=password-5e1c"),
    )
    caplog.set_level("DEBUG")
    headers = {"Authorization": "Bearer token-5e1c"}
    with running_api(settings, database_url) as base, httpx.Client(base_url=base, headers=headers) as client:
        said = [
            client.get("/api/memory/stats").text,
            client.get("/api/memory/health").text,
            client.post("/api/memory/tool/memory_stats", json={}).text,
            client.get("/docs").text,
            client.get("/openapi.json").text,
            client.get("/api/memory/search", params={"q": "x", "bad": "1"}).text,
        ]
        connection.execute("ALTER TABLE ros_messages RENAME TO elsewhere")
        said.append(client.get("/api/memory/browse").text)
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("rivet_pipeline")]
    assert not [text for text in [*said, *logged] if "5e1c" in text]


def test_other_machines_without_tls_are_warned_of() -> None:
    assert exposure_warning(Settings()) is None
    warning = exposure_warning(Settings(api_host="0.0.0.0", api_token=SecretStr("t")))
    assert warning is not None
    assert "without TLS" in warning
    assert "\n" not in warning


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("[::1]", True), ("127.255.0.1", True), ("10.0.0.1", False), ("localhost.example", False)],
)
def test_loopback_is_known_by_name_and_address(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
