"""The chat client over a real socket: what is retried, what a failure is called, what is taken off an answer."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from rivet_pipeline.models import chat as chat_module
from rivet_pipeline.models.chat import Endpoint, OpenAIChat
from rivet_pipeline.models.credentials import FixedKey, TokenCommand
from rivet_pipeline.models.factory import build_chat
from rivet_pipeline.models.protocols import ChatAnswer, ModelError
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.integration.chat_server import ChatServer, Reply, chat_server, says


def ask(server: ChatServer, sleeps: list[float] | None = None, deadline: float = 3600.0) -> ChatAnswer:
    noted = sleeps if sleeps is not None else []
    chat = OpenAIChat(server.url, "m", "own-secret-key", deadline, sleep=noted.append)
    return chat.complete(system="s", user="u", max_tokens=7000)


def in_turn(*replies: Reply) -> Callable[[object], Reply]:
    left = list(replies)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


def test_the_request_and_the_answer() -> None:
    with chat_server(lambda _: says("A plain answer.")) as server:
        answer = ask(server)
    assert answer == ChatAnswer("A plain answer.", "stand-in", 11, 7)
    assert server.asked == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            "max_tokens": 7000,
            "temperature": 0.3,
        }
    ]
    assert server.headers[0]["authorization"] == "Bearer own-secret-key"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 529])
def test_transient_statuses_are_retried_three_times_with_growing_waits(status: int) -> None:
    sleeps: list[float] = []
    with chat_server(lambda _: Reply({"error": "busy"}, status)) as server, pytest.raises(ModelError) as caught:
        ask(server, sleeps)
    assert (caught.value.cause, caught.value.name) == ("transient", f"http-{status}")
    assert "busy" in caught.value.detail
    assert len(server.asked) == 4
    assert [5 <= sleeps[0] <= 6, 10 <= sleeps[1] <= 12, 15 <= sleeps[2] <= 18] == [True] * 3


def test_a_service_that_comes_back_is_used() -> None:
    sleeps: list[float] = []
    with chat_server(in_turn(Reply({}, 503), Reply(hang_up=True), says("Here again."))) as server:
        assert ask(server, sleeps).text == "Here again."
    assert len(sleeps) == 2


def test_retry_after_is_waited_for_and_a_long_one_is_handed_on() -> None:
    sleeps: list[float] = []
    with chat_server(in_turn(Reply({}, 429, {"Retry-After": "31"}), says("Now."))) as server:
        assert ask(server, sleeps).text == "Now."
    assert sleeps == [31.0]
    with (
        chat_server(lambda _: Reply({}, 429, {"Retry-After": "3600"})) as server,
        pytest.raises(ModelError) as caught,
    ):
        ask(server)
    assert caught.value.retry_after == 3600.0
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "cause", "name"),
    [
        (Reply({"error": "key"}, 401), "permanent", "http-401"),
        (Reply({"error": "pay"}, 402), "permanent", "http-402"),
        (Reply({"error": "no"}, 403), "permanent", "http-403"),
        (Reply({"error": {"code": "model_not_found"}}, 400), "permanent", "unknown-model"),
        (Reply({"error": "bad field"}, 400), "content", "http-400"),
        (Reply({"error": "odd"}, 422), "content", "http-422"),
        (Reply({"error": "maximum context length is 8192"}, 400), "content", "too-long"),
        (Reply({"error": "big"}, 413), "content", "too-long"),
        (says("half an answ", finish="length"), "content", "truncated"),
        (says("<think>so much to thi", finish="length"), "content", "truncated"),
        (says("<think>all of it was thought"), "content", "empty"),
        (says(""), "content", "empty"),
        (says(None), "content", "empty"),
        (says(None, reasoning_content="thoughts"), "content", "empty"),
        (says(None, refusal="I can not do that"), "content", "refusal"),
        (says("x", finish="content_filter"), "content", "refusal"),
    ],
)
def test_what_is_not_retried(reply: Reply, cause: str, name: str) -> None:
    with chat_server(lambda _: reply) as server, pytest.raises(ModelError) as caught:
        ask(server)
    assert (caught.value.cause, caught.value.name) == (cause, name)
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"<html>gateway</html>", b"", b"[]", b'{"choices": []}', b'{"error": {"code": 1}}'])
def test_an_answer_that_is_none_is_transient(body: bytes) -> None:
    with chat_server(lambda _: Reply(body)) as server, pytest.raises(ModelError) as caught:
        ask(server)
    assert (caught.value.cause, caught.value.name) == ("transient", "bad-response")


def test_no_server_is_transient_and_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ModelError) as caught:
        OpenAIChat(f"http://127.0.0.1:{port}/v1", "m", sleep=lambda _: None).complete(system="", user="", max_tokens=1)
    assert (caught.value.cause, caught.value.name) == ("transient", "unreachable")
    assert "refused" in caught.value.detail


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_deadline_covers_a_server_that_never_answers(scheme: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        chat = OpenAIChat(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/v1", "m", deadline_seconds=0.2)
        with pytest.raises(ModelError) as caught:
            chat.complete(system="s", user="u", max_tokens=1)
    assert (caught.value.cause, caught.value.name) == ("transient", "timeout")


def test_what_goes_out_is_valid_json_for_every_parser() -> None:
    with chat_server(lambda _: says("fine")) as server:
        OpenAIChat(server.url, "m").complete(system="s", user="a\ud83dz \ud83d\ude00 \x00\x07\t\n", max_tokens=1)
    assert server.asked[0]["messages"][1]["content"] == "a\ufffdz 😀 \t\n"
    assert "authorization" not in server.headers[0]


def test_a_failure_names_each_attempt_and_keeps_the_services_words_without_the_key() -> None:
    turns = in_turn(
        Reply({}, 503), Reply(hang_up=True), Reply(b"<html>"), Reply({"error": "own-secret-key is busy"}, 429)
    )
    with chat_server(turns) as server, pytest.raises(ModelError) as caught:
        ask(server)
    assert (caught.value.cause, caught.value.name) == ("transient", "http-429")
    assert caught.value.detail == (
        'status 429: {"error": "*** is busy"} (attempts: http-503, unreachable, bad-response, http-429)'
    )


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/v1", "http://[::1/v1", "127.0.0.1/v1", "http://host:port/v1"])
def test_an_address_that_is_none_is_permanent(url: str) -> None:
    with pytest.raises(ModelError) as caught:
        OpenAIChat(url, "m").complete(system="s", user="u", max_tokens=1)
    assert (caught.value.cause, caught.value.name) == ("permanent", "bad-url")


def test_a_password_in_the_address_stands_in_no_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chat = OpenAIChat(f"http://user:hunter22@127.0.0.1:{port}/v1", "m", sleep=lambda _: None)
    with pytest.raises(ModelError) as caught:
        chat.complete(system="s", user="u", max_tokens=1)
    assert "hunter22" not in str(caught.value)
    assert f"http://127.0.0.1:{port}/v1/chat/completions" in caught.value.detail


# --- fallbacks ---


@pytest.fixture
def servers() -> Iterator[tuple[ChatServer, ChatServer, ChatServer]]:
    good = says("A plain answer.")
    with chat_server(lambda _: good) as one, chat_server(lambda _: good) as two, chat_server(lambda _: good) as three:
        yield one, two, three


Servers = tuple[ChatServer, ChatServer, ChatServer]


def chain(servers: Servers, deadline: float = 3600.0) -> OpenAIChat:
    one, two, three = servers
    others = [Endpoint(two.url, "second", FixedKey("second-secret-key")), Endpoint(three.url, "third")]
    return OpenAIChat(one.url, "first", "own-secret-key", deadline, fallbacks=others, sleep=lambda _: None)


def calls(servers: Servers) -> list[int]:
    return [len(server.asked) for server in servers]


def complete(chat: OpenAIChat) -> ChatAnswer:
    return chat.complete(system="s", user="u", max_tokens=7000)


def test_the_first_service_is_asked_alone_while_it_answers(servers: Servers) -> None:
    chat = chain(servers)
    assert [complete(chat).fallback for _ in range(3)] == [False] * 3
    assert calls(servers) == [3, 0, 0]


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        (Reply(hang_up=True), 4), (Reply({}, 500), 4), (Reply({}, 429), 4), (Reply(b"<html>"), 4),
        (Reply({}, 429, {"Retry-After": "900"}), 1),
        (Reply({}, 401), 1), (Reply({}, 402), 1), (Reply({}, 403), 1), (Reply({}, 404), 1),
    ],
)  # fmt: skip
def test_a_service_that_can_not_answer_gives_way_to_the_next(servers: Servers, reply: Reply, asked: int) -> None:
    servers[0].script = lambda _: reply
    answer = complete(chain(servers))
    assert (answer.text, answer.fallback) == ("A plain answer.", True)
    assert calls(servers) == [asked, 1, 0]
    assert [server.asked[0]["model"] for server in servers[:2]] == ["first", "second"]


def test_no_service_is_sent_the_key_of_another(servers: Servers) -> None:
    servers[0].script = servers[1].script = lambda _: Reply({}, 403)
    complete(chain(servers))
    sent = [server.headers[0].get("authorization") for server in servers]
    assert sent == ["Bearer own-secret-key", "Bearer second-secret-key", None]
    assert [b"secret" in raw for server in servers for raw in server.raw] == [False] * 3


@pytest.mark.parametrize(
    "reply",
    [Reply({"error": "odd"}, 400), Reply({"error": "big"}, 413), says("cut", finish="length"), says(""),
     says(None, refusal="no")],
)  # fmt: skip
def test_a_bad_answer_is_no_reason_to_ask_another(servers: Servers, reply: Reply) -> None:
    servers[0].script = lambda _: reply
    with pytest.raises(ModelError) as caught:
        complete(chain(servers))
    assert (caught.value.cause, caught.value.fallback) == ("content", False)
    assert calls(servers) == [1, 0, 0]


def test_a_fallbacks_bad_answer_says_so_and_why_it_was_asked(servers: Servers) -> None:
    servers[0].script = lambda _: Reply({"error": "no credit"}, 402)
    servers[1].script = lambda _: says("cut", finish="length")
    with pytest.raises(ModelError) as caught:
        complete(chain(servers))
    assert (caught.value.cause, caught.value.name, caught.value.fallback) == ("content", "truncated", True)
    assert "before it first at http" in caught.value.detail
    assert "no credit" in caught.value.detail
    assert calls(servers) == [1, 1, 0]


@pytest.mark.parametrize(
    ("replies", "cause", "name", "retry_after"),
    [
        ((Reply({}, 401), Reply({}, 402), Reply({}, 403)), "permanent", "http-401", None),
        ((Reply({}, 401), Reply({}, 503), Reply({}, 403)), "transient", "http-503", None),
        (tuple(Reply({}, 429, {"Retry-After": wait}) for wait in ("900", "600", "700")), "transient", "http-429", 600),
        ((Reply({}, 429, {"Retry-After": "900"}), Reply({}, 401), Reply({}, 500)), "transient", "http-429", None),
    ],
)  # fmt: skip
def test_when_all_fail_one_failure_holds_every_cause(
    servers: Servers, replies: tuple[Reply, ...], cause: str, name: str, retry_after: float | None
) -> None:
    for server, reply in zip(servers, replies, strict=True):
        server.script = lambda _, reply=reply: reply  # type: ignore[misc]
    with pytest.raises(ModelError) as caught:
        complete(chain(servers))
    assert (caught.value.cause, caught.value.name, caught.value.retry_after) == (cause, name, retry_after)
    for model, reply in zip(("first", "second", "third"), replies, strict=True):
        assert f"{model} at http" in caught.value.detail
        assert f"http-{reply.status}" in caught.value.detail


def test_a_dead_service_costs_one_probe_and_is_asked_again_when_it_has_rested(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers[0].script = lambda _: Reply({}, 503)
    chat = chain(servers)
    for _ in range(3):
        assert complete(chat).fallback
    assert calls(servers) == [4, 3, 0]
    # While it rests it is still the last resort.
    servers[1].script = servers[2].script = lambda _: Reply({}, 403)
    servers[0].script = lambda _: says("Back again.")
    assert complete(chat).text == "Back again."
    assert calls(servers) == [5, 4, 1]

    monkeypatch.setattr(chat_module, "REST_SECONDS", 0.0)
    servers[0].script = lambda _: Reply({}, 403)
    servers[1].script = servers[2].script = lambda _: says("A plain answer.")
    chat = chain(servers)
    assert [complete(chat).fallback for _ in range(2)] == [True, True]
    assert calls(servers) == [7, 6, 1]


def test_a_service_that_hangs_leaves_the_others_their_share_of_the_time(servers: Servers) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        answer = complete(OpenAIChat(url, "first", None, 0.6, fallbacks=[Endpoint(servers[1].url, "second")]))
    assert answer.fallback


def test_the_settings_name_services_keys_and_tokens(servers: Servers, tmp_path: Path) -> None:
    one, two, three = servers
    one.script = two.script = lambda _: Reply({}, 402)
    settings = Settings.model_validate(
        {
            "compactor_url": one.url,
            "compactor_model": "first",
            "compactor_token_command": "printf %s own-secret-token",
            "compactor_fallbacks": f"{one.url}/|cheaper, {two.url}/|second,{three.url},",
            "compactor_fallback_keys": f"{two.url}|second-secret-key",
        }
    )
    chat = build_chat(settings)
    assert chat is not None
    assert (chat.model, complete(chat).text) == ("first", "A plain answer.")
    asked = [request["model"] for server in servers for request in server.asked]
    assert asked == ["first", "cheaper", "second", "first"]
    sent = [headers.get("authorization") for server in servers for headers in server.headers]
    # The same address is the same service, and may have the same token.
    assert sent == ["Bearer own-secret-token"] * 2 + ["Bearer second-secret-key", None]


def test_the_extra_body_goes_over_the_wire_to_its_own_address_alone(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = servers
    one.script = lambda _: Reply({}, 402)
    monkeypatch.setenv("RIVETOS_COMPACTOR_URL", one.url)
    monkeypatch.setenv("RIVETOS_COMPACTOR_MODEL", "first")
    monkeypatch.setenv("RIVETOS_COMPACTOR_FALLBACKS", f"{one.url}/|cheaper,{two.url}|second")
    monkeypatch.setenv("RIVETOS_COMPACTOR_FALLBACK_KEYS", f"{one.url}|own-key-of-the-cheaper-one")
    monkeypatch.setenv(
        "RIVETOS_COMPACTOR_EXTRA_BODY",
        '{"temperature": 0.9, "repeat_penalty": 1.2, "chat_template_kwargs": {"enable_thinking": false}}',
    )
    chat = build_chat(Settings())
    assert chat is not None
    assert complete(chat).text == "A plain answer."
    extra = {"temperature": 0.9, "repeat_penalty": 1.2, "chat_template_kwargs": {"enable_thinking": False}}
    plain = {key: value for key, value in two.asked[0].items() if key != "model"}
    assert one.asked == [{**plain, "model": "first", **extra}, {**plain, "model": "cheaper", **extra}]
    # Another server may refuse what it does not know.
    assert (two.asked[0]["model"], two.asked[0]["temperature"], plain.keys() & extra.keys()) == (
        "second",
        0.3,
        {"temperature"},
    )


# --- tokens ---

COUNTING = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
count = int(path.read_text()) + 1 if path.exists() else 1
path.write_text(str(count))
print(f"token-{count:04d}")
"""


def with_command(server: ChatServer, folder: Path) -> OpenAIChat:
    command = TokenCommand([sys.executable, "-c", COUNTING, str(folder / "count")], 300)
    return OpenAIChat(server.url, "m", command, sleep=lambda _: None)


def sent(server: ChatServer) -> list[str]:
    return [headers["authorization"].removeprefix("Bearer ") for headers in server.headers]


def test_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    with chat_server(in_turn(says("One."), Reply({"error": "expired"}, 401), says("Two."))) as server:
        chat = with_command(server, tmp_path)
        assert [complete(chat).text, complete(chat).text] == ["One.", "Two."]
    assert sent(server) == ["token-0001", "token-0001", "token-0002"]


def test_a_token_that_stays_refused_is_permanent_and_shown_to_nobody(tmp_path: Path) -> None:
    def quoting(_request: object) -> Reply:
        return Reply({"error": f"{sent(server)[-1]} is no token of ours"}, 401)

    with chat_server(quoting) as server:
        chat = with_command(server, tmp_path)
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                complete(chat)
            assert (caught.value.cause, caught.value.name) == ("permanent", "http-401")
            assert "*** is no token of ours" in caught.value.detail
    assert sent(server) == ["token-0001", "token-0002", "token-0002", "token-0003"]


def test_a_token_command_that_fails_asks_nobody_and_gives_way_to_a_fallback(servers: Servers) -> None:
    one, two, _ = servers
    command = TokenCommand([sys.executable, "-c", "import sys; sys.exit('log in first')"], 300)
    with pytest.raises(ModelError) as caught:
        complete(OpenAIChat(one.url, "m", command))
    assert (caught.value.cause, caught.value.name) == ("permanent", "token-command")
    assert "status 1: log in first" in caught.value.detail
    assert complete(OpenAIChat(one.url, "m", command, fallbacks=[Endpoint(two.url, "second")])).fallback
    assert calls(servers) == [0, 1, 0]


def test_a_key_that_no_header_can_carry_is_permanent(servers: Servers) -> None:
    with pytest.raises(ModelError, match="bad-key") as caught:
        complete(OpenAIChat(servers[0].url, "m", "two\nlines-secret"))
    assert caught.value.cause == "permanent"
    assert calls(servers) == [0, 0, 0]


def test_a_transport_can_replace_the_network() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=says("From nowhere.").body))
    assert complete(OpenAIChat("https://example.org/v1", "m", transport=transport)).text == "From nowhere."
