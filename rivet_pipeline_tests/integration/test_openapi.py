"""The whole OpenAPI document against the running API: what is asked as documented is answered as documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from rivet_pipeline.api.app import create_app
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message, add_summary

WRITING = Settings(enable_memory_write=True)


@pytest.fixture(scope="module")
def base(server: EmbeddedServer) -> Iterator[str]:
    with module_store(server, "openapi_module") as url:
        with connect(url) as connection:
            conversation = add_conversation(connection, key="claude-code:lamp")
            add_message(connection, "The lamp is green", conversation=conversation)
            add_summary(connection, "A lamp was looked at.", conversation=conversation)
        with running_api(WRITING, url) as address:
            yield address


DOCUMENT: dict[str, Any] = create_app(WRITING, url="").openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT)


#: Bodies are read leniently on purpose (what clients send for nothing is nothing, numbers may be texts), and how two
#: fields go together is not in a schema, nor what a cursor is.
LENIENT: list[Any] = [positive_data_acceptance]
LENIENT_BODIES = [*LENIENT, negative_data_rejection]


@schema.parametrize()
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_documented(case: schemathesis.Case[Any], base: str) -> None:
    case.call_and_validate(
        base_url=base, timeout=60, excluded_checks=LENIENT if case.method == "GET" else LENIENT_BODIES
    )


OPERATIONS = [(method, path) for path, entry in DOCUMENT["paths"].items() for method in entry]


def example_of(described: dict[str, Any]) -> str:
    examples = (
        described.get("examples") or described["schema"].get("examples") or ["0b9c2c3e-6a1f-4b53-9a5e-7d1f0c2b3a49"]
    )
    return str(examples[0])


def sample(method: str, path: str) -> tuple[str, dict[str, str], Any]:
    """The path, the query and the body of a request as the document gives it for an example."""
    operation = DOCUMENT["paths"][path][method]
    query = {}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(example_of(parameter), safe=""))
        elif parameter.get("required"):
            query[parameter["name"]] = example_of(parameter)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in body:
        body = DOCUMENT["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    return path, query, body.get("examples", [None])[0]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_documented_statuses_of_every_operation_are_real(base: str, method: str, path: str) -> None:
    responses = DOCUMENT["paths"][path][method]["responses"]
    assert "default" in responses
    address, query, body = sample(method, path)
    with httpx.Client(base_url=base, timeout=30) as client:
        good = client.request(method, address, params=query, json=body)
        assert str(good.status_code) in responses, good.text
        bad = client.request(
            method, address, params={**query, "no_such_parameter": "1"}, json=None if body is None else []
        )
        assert bad.status_code == 400
    for answer in (bad, *([good] if good.is_error else [])):
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
        assert answer.json()["detail"].strip()
        assert answer.json()["requestId"] == answer.headers["x-request-id"]


#: What the store can not hold, or can not count to.
UNSTORABLE = (
    "\x00",
    "a\x00b",
    str(2**63),
    str(2**200),
    "-1",
    b"\xed\xa0\x80",  # U+D800, which no UTF-8 may hold
    b"\xff",
    "%",
)
READS = [path for path, entry in DOCUMENT["paths"].items() if "get" in entry]


@pytest.mark.parametrize("path", READS)
def test_no_parameter_can_bring_a_route_down(base: str, path: str) -> None:
    address, query, _ = sample("get", path)
    named = [one for one in DOCUMENT["paths"][path]["get"].get("parameters", []) if one["in"] == "query"]
    with httpx.Client(base_url=base, timeout=30) as client:
        for value in [quote(one) for one in UNSTORABLE]:
            answers = [client.get(path.replace("{", "{X").split("{X")[0] + value)] if "{" in path else []
            for one in named:
                others = {name: given for name, given in query.items() if name != one["name"]}
                sent = "&".join(f"{name}={quote(str(given))}" for name, given in others.items())
                answers.append(client.get(f"{address}?{sent}&{one['name']}={value}"))
            assert [answer.text for answer in answers if answer.status_code >= 500] == []


def test_a_parameter_is_given_once(base: str) -> None:
    answer = httpx.get(f"{base}/api/memory/search?q=lamp&agent=a&agent=b", timeout=30)
    assert (answer.status_code, answer.json()["detail"]) == (400, "agent: is given more than once; give it once")


def test_head_is_get_without_the_body(base: str) -> None:
    for path in ("/healthz", "/api/memory/stats", "/hub", "/docs", "/openapi.json"):
        whole, head = httpx.get(base + path, timeout=30), httpx.head(base + path, timeout=30)
        assert (head.status_code, head.content) == (whole.status_code, b"") == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
    assert httpx.head(base + "/api/capture", timeout=30).status_code == 405
