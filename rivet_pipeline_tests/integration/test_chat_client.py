"""The chat client over a real socket: what is retried, what a failure is called, what is taken off an answer."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from rivet_pipeline.models.chat import OpenAIChat
from rivet_pipeline.models.protocols import ChatAnswer, ModelError
from rivet_pipeline_tests.integration.chat_server import ChatServer, Reply, chat_server, says


def ask(server: ChatServer, sleeps: list[float] | None = None, deadline: float = 3600.0) -> ChatAnswer:
    noted = sleeps if sleeps is not None else []
    chat = OpenAIChat(server.url, "m", "key", deadline, sleep=noted.append)
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
    assert server.headers[0]["authorization"] == "Bearer key"


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


def test_the_deadline_covers_a_server_that_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        chat = OpenAIChat(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "m", deadline_seconds=0.2)
        with pytest.raises(ModelError) as caught:
            chat.complete(system="s", user="u", max_tokens=1)
    assert (caught.value.cause, caught.value.name) == ("transient", "timeout")


def test_what_goes_out_is_valid_json_for_every_parser() -> None:
    with chat_server(lambda _: says("fine")) as server:
        OpenAIChat(server.url, "m").complete(system="s", user="a\ud83dz \ud83d\ude00 \x00\x07\t\n", max_tokens=1)
    assert server.asked[0]["messages"][1]["content"] == "a\ufffdz 😀 \t\n"
    assert "authorization" not in server.headers[0]
