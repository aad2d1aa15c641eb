"""MCP over HTTP with the SDK's own client, its errors, and a fuzz of every tool's arguments."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import httpx
import httpx2
import jsonschema_rs
import mcp_types as types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import SecretStr

from rivet_pipeline.api.dependencies import Resources, open_resources
from rivet_pipeline.api.mcp.answers import call_tool
from rivet_pipeline.api.tools import TOOLS, offered
from rivet_pipeline.api.tools.schemas import input_schema
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message, add_summary

WRITING = Settings(enable_memory_write=True, memory_agent="grokbot")


@pytest.fixture(scope="module")
def store(server: EmbeddedServer) -> Iterator[str]:
    with module_store(server, "mcp_module") as url:
        with connect(url) as connection:
            conversation = add_conversation(connection, key="claude-code:lamp")
            for number in range(5):
                add_message(connection, f"The lamp is number {number}", conversation=conversation)
            add_summary(connection, "Five lamps were counted.", conversation=conversation)
        yield url


@pytest.fixture(scope="module")
def resources(store: str) -> Iterator[Resources]:
    with open_resources(WRITING, store) as opened:
        yield opened


@pytest.fixture(scope="module")
def base(store: str) -> Iterator[str]:
    with running_api(WRITING, store) as address:
        yield address


def said(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


def with_client(address: Any, work: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with Client(address, **options) as client:
            await work(client)

    anyio.run(run)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_sdks_client_lists_and_calls_every_tool(base: str, store: str, mode: str) -> None:
    with connect(store) as connection:
        row = connection.execute("SELECT id FROM ros_messages ORDER BY seq LIMIT 1").fetchone()
        assert row is not None
    calls: dict[str, dict[str, Any]] = {
        "memory_search": {"query": "lamp"},
        "memory_browse": {},
        "memory_stats": {},
        "memory_get_full": {"id": str(row["id"])},
        "memory_append": {"session_id": f"mcp:{mode}", "role": "user", "content": "A word."},
        "memory_ingest_session": {"session_id": f"mcp:{mode}", "messages": [{"role": "user", "content": "Another."}]},
    }

    async def work(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [tool.name for tool in offered(WRITING)]
        for tool in listed:
            arguments = calls.get(tool.name, TOOLS[tool.name].arguments.model_json_schema()["examples"][0])
            answer = await client.call_tool(tool.name, arguments)
            assert answer.is_error is (tool.name == "wiki_read"), said(answer)
            assert said(answer)
        wrong = await client.call_tool("memory_search", {"query": "lamp", "window": "last_month"})
        assert wrong.is_error
        assert said(wrong).endswith("Correct window and call again.")
        unknown = await client.call_tool("memory_forget", {})
        assert unknown.is_error
        assert "Call one of memory_search" in said(unknown)

    with_client(base + "/mcp", work, mode=mode)


def test_prompts_and_resources(base: str) -> None:
    async def work(client: Client) -> None:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["recall", "today", "yesterday"]
        prompt = await client.get_prompt("recall", {"topic": "the lamps"})
        assert "the lamps" in prompt.messages[0].content.model_dump()["text"]
        day = await client.get_prompt("yesterday", {"agent": "codex"})
        assert "window=`yesterday`, order=`asc` and agent=`codex`" in day.messages[0].content.model_dump()["text"]
        with pytest.raises(MCPError, match="needs topic"):
            await client.get_prompt("recall", {})
        with pytest.raises(MCPError, match="there are recall, today, yesterday"):
            await client.get_prompt("tomorrow", {})
        found = [row for row in (await client.list_resources()).resources if row.title == "claude-code:lamp"]
        page = (await client.read_resource(found[0].uri)).contents[0]
        assert "> The lamp is number 0" in page.model_dump()["text"]
        templates = [row.uri_template for row in (await client.list_resource_templates()).resource_templates]
        assert templates[:2] == ["memory://conversation/{id}", "memory://message/{id}"]
        for address in ("memory://conversation/", "memory://elsewhere/1", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="Nothing has the address"):
                await client.read_resource(address)
        with pytest.raises(MCPError, match="is no id"):
            await client.read_resource("memory://message/..%2F..%2Fetc%2Fpasswd")

    with_client(base + "/mcp", work)


def test_without_the_flag_nothing_writes(store: str) -> None:
    async def work(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        assert "memory_append" not in [tool.name for tool in tools]
        answer = await client.call_tool("memory_append", {"session_id": "s", "role": "user", "content": "x"})
        assert answer.is_error
        assert "RIVETOS_MCP_ENABLE_MEMORY_WRITE=1" in said(answer)
        assert client.instructions is not None
        assert "memory_search" in client.instructions
        assert "memory_append" not in client.instructions

    with running_api(Settings(), store) as address:
        with_client(address + "/mcp", work)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_the_guard_stands_before_mcp(base: str, store: str) -> None:
    mcp = base + "/mcp"
    assert httpx.post(mcp, json=PING, headers=ACCEPT).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    for headers, status in (
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ):
        answer = httpx.post(
            mcp, content=json.dumps(PING), headers={"Content-Type": "application/json"} | ACCEPT | headers
        )
        assert answer.status_code == status, headers
        assert answer.headers["content-type"] == "application/problem+json"
    for method in ("GET", "DELETE", "PUT"):
        answer = httpx.request(method, mcp)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert (
        httpx.post(mcp, content=b" " * (1024 * 1024 + 1), headers={"Content-Type": "application/json"}).status_code
        == 413
    )


def test_with_a_token_mcp_needs_it(store: str) -> None:
    async def with_token(address: str) -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer long-random"}) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            assert (await client.list_tools()).tools

    with running_api(Settings(api_token=SecretStr("long-random")), store) as address:
        assert httpx.post(address + "/mcp", json=PING, headers=ACCEPT).status_code == 401
        anyio.run(with_token, address + "/mcp")


def test_every_schema_is_plain() -> None:
    for tool in TOOLS.values():
        schema = input_schema(tool.arguments)
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema)
        assert schema["type"] == "object"
        text = json.dumps(schema)
        for word in ('"anyOf"', '"oneOf"', '"allOf"', '"$ref"', '"$defs"', '"nullable"', '"null"'):
            assert word not in text, (tool.name, word)
        for name, argument in schema["properties"].items():
            assert isinstance(argument.get("type", "any"), str), (tool.name, name)
        for example in tool.arguments.model_json_schema()["examples"]:
            jsonschema_rs.validate(schema, example)


#: What clients send where something else was meant, and what has broken services before.
NOTHING: list[Any] = [None, "null", ["null"], "", " ", [], {}]
NUMBERS: list[Any] = ["5", "-1", "1e400", "nan", 5, -1, 0, 2**70, 1.5, True, "true", ["x"]]
TEXTS: list[Any] = [
    "\x00",
    "\ud800",
    "🚀" * 50,
    "'; DROP TABLE ros_messages; --",
    "%_\\",
    "2026-03-08",
    "9999-12-31T23:59:59-23:59",
]
ODD = st.sampled_from([*NOTHING, *NUMBERS, *TEXTS])


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "uuid":
        return st.uuids().map(str)
    if schema.get("format") == "date-time":
        return st.datetimes().map(lambda moment: f"{moment.isoformat()}Z")
    if schema.get("type") == "array":
        return st.lists(values_of(schema["items"]), min_size=schema.get("minItems", 0), max_size=4)
    if schema.get("type") == "object":
        properties = {name: values_of(value) for name, value in schema.get("properties", {}).items()}
        required = {name: properties.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(required, optional=properties)
    if schema.get("type") == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    return st.booleans() if schema.get("type") == "boolean" else st.text(max_size=40)


def arguments_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    schema = input_schema(TOOLS[name].arguments)
    sound = values_of(schema)
    odd = st.fixed_dictionaries({}, optional=dict.fromkeys([*schema["properties"], "unknown"], ODD))
    mixed = st.builds(lambda one, other: {**one, **other}, sound, odd)
    return st.one_of(sound, odd, mixed)


@pytest.mark.parametrize("name", list(TOOLS))
def test_no_arguments_break_a_tool(resources: Resources, name: str) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(arguments_of(name))
    def fuzz(arguments: dict[str, Any]) -> None:
        answer = call_tool(WRITING, lambda: resources, name, arguments)
        assert said(answer)
        assert "something went wrong inside" not in said(answer), said(answer)
        if answer.is_error:
            assert said(answer)[-1] == "."

    fuzz()


def test_a_store_that_is_gone_is_an_error_that_says_what_to_do(database_url: str, connection: Connection) -> None:
    connection.execute("ALTER TABLE ros_messages RENAME TO elsewhere")
    with open_resources(Settings(), database_url) as opened:
        answer = call_tool(Settings(), lambda: opened, "memory_browse", {})
        assert answer.is_error
        assert "Start `rivet up` once" in said(answer)
        opened.pool.close()
        answer = call_tool(Settings(), lambda: opened, "memory_browse", {})
    assert answer.is_error
    assert "This says nothing about what the memory holds." in said(answer)
