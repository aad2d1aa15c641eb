"""Taggers over real sockets, in both wire shapes: what they send, to whom, and twenty ways in which one may "
"misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.settings import Settings
from rivet_pipeline.tags.chat_tagger import ChatTagger, ClassifierTagger
from rivet_pipeline.tags.factory import OFF, build_tagger, tagger_name
from rivet_pipeline.tags.keyphrases import KeyphraseTagger
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.types import Tagger, TagRequest
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER
from rivet_pipeline_tests.integration.chat_server import ChatServer, Reply, Script, chat_server, says
from rivet_pipeline_tests.integration.tagging import leaf, standing, tag_all

GOOD = [{"key": "topic", "value": "Caching", "confidence": 0.9, "reason": "it says so"}]
REQUEST = TagRequest(
    "The cache was emptied.", "A title", "opus", [Literal("topic", "caching")], [Literal("project", "shop")]
)

Shape = str
shapes = pytest.mark.parametrize("shape", ["openai", "native"])


def answer(shape: Shape, tags: Any) -> Reply:
    """A service's answer with these tags."""
    return says(json.dumps(tags)) if shape == "openai" else Reply({"tags": tags})


@contextmanager
def service(shape: Shape, script: Script) -> Iterator[tuple[ChatServer, Settings]]:
    """A stand-in, and the settings that name it as the tagger's own service."""
    path = "/v1/chat/completions" if shape == "openai" else "/v1/tags"
    with chat_server(script, path=path) as server:
        yield (
            server,
            Settings(
                tagger_url=server.url if shape == "openai" else f"{server.url}/tags",
                tagger_model="tagger-9",
                tagger_api_key=SecretStr("tagger-secret-key"),
                tagger_wire_shape=shape,  # type: ignore[arg-type]
                tagger_timeout_seconds=1.0,
            ),
        )


def built(settings: Settings) -> Tagger:
    tagger = build_tagger(settings)
    assert tagger is not None
    return tagger


@shapes
def test_what_is_sent_and_what_comes_of_the_answer(shape: Shape) -> None:
    with service(shape, lambda request: answer(shape, GOOD)) as (server, settings):
        tagger = built(settings)
        found = tagger.propose(REQUEST)
    assert [str(one.literal) for one in found.proposals] == ["topic:caching"]
    assert (tagger.name, tagger.source, tagger_name(settings)) == ("tagger-9", "model", "tagger-9")
    assert server.headers[0]["authorization"] == "Bearer tagger-secret-key"
    [asked] = server.asked
    assert asked["model"] == "tagger-9"
    if shape == "openai":
        system, user = (message["content"] for message in asked["messages"])
        assert system.startswith(OWN_TRAFFIC_MARKER)
        assert "The cache was emptied." in user
        assert "vocabulary: topic:caching" in user
        assert found.tokens == 18
    else:
        del asked["model"]
        assert asked == {
            "text": "The cache was emptied.",
            "title": "A title",
            "agent": "opus",
            "keys": ["project", "topic"],
            "vocabulary": ["topic:caching"],
            "current": ["project:shop"],
            "max": 8,
        }


def refuse(status: int, **headers: str) -> Callable[[Shape], Reply]:
    return lambda shape: Reply({"error": {"message": "not today, tagger-secret-key"}}, status, headers=headers)


def raw(body: bytes, **more: Any) -> Callable[[Shape], Reply]:
    return lambda shape: Reply(body, **more)


def tags(value: Any) -> Callable[[Shape], Reply]:
    return lambda shape: answer(shape, value)


#: How a service may misbehave, and the cause or the name of that failure; a number: it is none but so many tags.
MISBEHAVIOURS: dict[str, tuple[Callable[[Shape], Reply], str | int]] = {
    "too many requests": (refuse(429, **{"retry-after": "3600"}), "transient"),
    "an internal error": (refuse(500), "transient"),
    "a bad gateway": (refuse(502), "transient"),
    "unavailable": (refuse(503), "transient"),
    "a wrong key": (refuse(401), "permanent"),
    "forbidden": (refuse(403), "permanent"),
    "nothing there": (refuse(404), "permanent"),
    "a bad request": (refuse(400), "content"),
    "a redirect": (refuse(302, location="http://127.0.0.1:1/elsewhere"), "permanent"),
    "it hangs up": (lambda shape: Reply(hang_up=True), "transient"),
    "it resets": (lambda shape: Reply(b"x" * 5000, reset_after=20), "transient"),
    "it drips": (lambda shape: Reply(b"y" * 400, drip=0.05), "transient"),
    "a head without end": (lambda shape: Reply(wire=(b"HTTP/1.1 200 OK\r\nx: ", *[b"y"] * 399)), "timeout"),
    "hints without end": (lambda shape: Reply(wire=(b"HTTP/1.1 103 Early Hints\r\n\r\n",)), "timeout"),
    "a chunk's length without end": (
        lambda shape: Reply(wire=(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", *[b"0"] * 399)),
        "timeout",
    ),
    "no length and no end": (lambda shape: Reply(wire=(b"HTTP/1.1 200 OK\r\n\r\n{}", *[b" "] * 399)), "timeout"),
    "an empty body": (raw(b""), "transient"),
    "a page": (raw(b"<html><body>It works!</body></html>"), "transient"),
    "half of a document": (raw(b'{"choices": [{"mess'), "transient"),
    "no UTF-8": (raw(b"\xff\xfe\x00{}"), "transient"),
    "a strange packing": (raw(b"{}", headers={"content-encoding": "br"}), "transient"),
    "broken gzip": (raw(b"\x1f\x8bnonsense", headers={"content-encoding": "gzip"}), "transient"),
    "nested without end": (raw(b"[" * 100_000), "transient"),
    "another shape": (tags({"labels": "caching"}), "content"),
    "words without sense": (tags(["nothing", "at all"]), "content"),
    "a number": (tags(42), "content"),
    "nothing to tag": (tags([]), 0),
    "some of it unsound": (tags([None, {"key": 5}, *GOOD, {"key": "topic", "value": "\x00"}]), 1),
    "a thousand tags": (tags([{"key": "topic", "value": f"value {n}"} for n in range(1000)]), 8),
    "NULs": (tags([{"tag": "topic:ca\x00ching"}]), 1),
    "lone surrogates": (tags([{"tag": "topic:caching\ud83d"}]), "content"),
}


@shapes
@pytest.mark.parametrize("how", MISBEHAVIOURS)
def test_misbehaviour_has_a_name_and_never_leaves_a_half_answer(shape: Shape, how: str) -> None:
    reply, outcome = MISBEHAVIOURS[how]
    with service(shape, lambda request: reply(shape)) as (server, settings):
        if isinstance(outcome, int):
            assert len(built(settings).propose(REQUEST).proposals) == outcome
        else:
            with pytest.raises(ModelError) as failed:
                built(settings).propose(REQUEST)
            assert outcome in (failed.value.cause, failed.value.name)
            assert "tagger-secret-key" not in str(failed.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        says(json.dumps(GOOD), finish="length"),
        says(json.dumps(GOOD), finish="content_filter"),
        says(None, refusal="I would rather not."),
        says("<think>" + json.dumps(GOOD)),
    ],
)
def test_an_unfinished_or_refused_chat_answer_is_none(reply: Reply) -> None:
    with service("openai", lambda request: reply) as (_, settings), pytest.raises(ModelError) as failed:
        built(settings).propose(REQUEST)
    assert failed.value.cause == "content"


@shapes
def test_a_leaf_is_asked_about_twice_and_then_goes_without(connection: Connection, pool: Pool, shape: Shape) -> None:
    leaf(connection)
    with service(shape, lambda request: Reply({"error": "busy"}, 503)) as (server, settings):
        report = tag_all(pool, built(settings))
    assert (len(server.asked), report.dropped) == (2, 1)
    assert "http-503" in report.errors[0]
    assert standing(connection) == set()


@shapes
def test_a_whole_pass_over_the_socket(connection: Connection, pool: Pool, shape: Shape) -> None:
    leaf(connection)
    with service(shape, lambda request: answer(shape, GOOD)) as (_, settings):
        assert tag_all(pool, built(settings)).tagged == 1
    assert standing(connection) == {
        ("conversation", "topic:caching", "suggested"),
        ("summary", "topic:caching", "suggested"),
    }


# --- who is asked, and with which key ---


def test_nothing_configured_is_this_process() -> None:
    assert isinstance(build_tagger(Settings()), KeyphraseTagger)
    assert tagger_name(Settings()) == "keyphrases-1"


def test_switched_off_is_nobody() -> None:
    for word in (False, "0", "false", "off", "no"):
        settings = Settings(session_tagging=word)  # type: ignore[arg-type]
        assert build_tagger(settings) is None
        assert tagger_name(settings) == OFF


def test_without_an_own_service_the_compactors_model_is_asked_with_its_key() -> None:
    with chat_server(lambda request: says(json.dumps(GOOD))) as server:
        settings = Settings(
            compactor_url=server.url, compactor_model="compactor-1", compactor_api_key=SecretStr("compactor-secret")
        )
        assert built(settings).propose(REQUEST).proposals
        assert tagger_name(settings) == "compactor-1"
        named = settings.model_copy(update={"tagger_model": "small-1"})
        assert built(named).propose(REQUEST).proposals
        assert (tagger_name(named), built(named).name) == ("small-1", "small-1")
    assert [asked["model"] for asked in server.asked] == ["compactor-1", "small-1"]
    assert {headers["authorization"] for headers in server.headers} == {"Bearer compactor-secret"}


@shapes
def test_no_key_goes_to_another_service(shape: Shape) -> None:
    with service(shape, lambda request: answer(shape, GOOD)) as (server, settings):
        both = settings.model_copy(
            update={
                "compactor_url": "http://127.0.0.1:1/v1",
                "compactor_model": "compactor-1",
                "compactor_api_key": SecretStr("compactor-secret"),
                "tagger_api_key": None,
            }
        )
        assert built(both).propose(REQUEST).proposals
    assert "authorization" not in server.headers[0]


def test_a_key_without_a_service_of_its_own_is_refused() -> None:
    with_compactor = {"compactor_url": "http://127.0.0.1:1/v1", "compactor_model": "m"}
    for secret in ({"tagger_api_key": SecretStr("k")}, {"tagger_token_command": SecretStr("echo k")}):
        with pytest.raises(InvalidInputError, match="needs RIVETOS_TAGGER_URL"):
            build_tagger(Settings(**with_compactor, **secret))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="native needs RIVETOS_TAGGER_URL"):
        build_tagger(Settings(tagger_wire_shape="native"))
    with pytest.raises(InvalidInputError, match="RIVETOS_TAGGER_MODEL"):
        build_tagger(Settings(tagger_url="http://127.0.0.1:1/v1"))
    with pytest.raises(InvalidInputError, match="keep one of the two"):
        build_tagger(
            Settings(
                tagger_url="http://127.0.0.1:1/v1",
                tagger_model="m",
                tagger_api_key=SecretStr("k"),
                tagger_token_command=SecretStr("echo k"),
            )
        )


@shapes
def test_a_token_is_minted_again_when_it_is_refused(shape: Shape, tmp_path: Any) -> None:
    counter = tmp_path / "count"
    counter.write_text("")
    command = f"sh -c 'printf x >> {counter}; wc -c < {counter} | tr -d \" \"'"

    def script(request: Any) -> Reply:
        return answer(shape, GOOD) if server.headers[-1]["authorization"] == "Bearer 2" else Reply({}, 401)

    with service(shape, script) as (server, settings):
        minted = settings.model_copy(update={"tagger_api_key": None, "tagger_token_command": SecretStr(command)})
        assert built(minted).propose(REQUEST).proposals
    assert [headers["authorization"] for headers in server.headers] == ["Bearer 1", "Bearer 2"]


def test_the_variables_are_read_under_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RIVETOS_TAGGER_URL": "http://127.0.0.1:1/classify",
        "RIVETOS_TAGGER_MODEL": "m",
        "RIVETOS_TAGGER_API_KEY": "k",
        "RIVETOS_TAGGER_WIRE_SHAPE": "native",
        "RIVETOS_TAGGER_TIMEOUT_SECONDS": "7",
        "SESSION_TAGGING": "1",
    }.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert isinstance(build_tagger(settings), ClassifierTagger)
    assert settings.tagger_timeout_seconds == 7
    monkeypatch.setenv("RIVETOS_TAGGER_WIRE_SHAPE", "openai")
    assert isinstance(build_tagger(Settings()), ChatTagger)
    monkeypatch.setenv("SESSION_TAGGING", "0")
    assert build_tagger(Settings()) is None
