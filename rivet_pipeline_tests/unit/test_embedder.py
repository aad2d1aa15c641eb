"""The embedding models: unit vectors or an error with the right cause, whatever a server does."""

from __future__ import annotations

import itertools
import json
import logging
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import numpy as np
import pytest

from rivet_pipeline.errors import RivetError
from rivet_pipeline.models import factory
from rivet_pipeline.models.credentials import TokenCommand
from rivet_pipeline.models.embedder import PROBE, HttpEmbedder, WordLlamaEmbedder, unit_rows
from rivet_pipeline.models.factory import QueryEmbedder, build_embedder, build_query_embedder, embedder_name
from rivet_pipeline.models.protocols import ModelError, Vectors
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.embedding_server import Answer, EmbeddingServer, Fault, vector, vectors

TEXTS = [f"text number {number}" for number in range(20)]


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[EmbeddingServer, HttpEmbedder]]]:
    opened: list[tuple[EmbeddingServer, HttpEmbedder]] = []

    def start(
        fault: Fault | None = None, *, batch: int = 32, dimensions: int | None = 8, key: str | None = None
    ) -> tuple[EmbeddingServer, HttpEmbedder]:
        server = EmbeddingServer(8, fault).__enter__()
        embedder = HttpEmbedder(server.url, "stub", key, batch, dimensions)
        opened.append((server, embedder))
        return server, embedder

    yield start
    for server, embedder in opened:
        embedder.close()
        server.__exit__(None, None, None)


Serve = Callable[..., tuple[EmbeddingServer, HttpEmbedder]]


def expected(texts: list[str]) -> Vectors:
    return unit_rows([vector(text, 8) for text in texts], count=len(texts), width=8)


def test_wordllama_works_without_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("network used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    embedder = WordLlamaEmbedder()
    rows = embedder.embed(["The cat sat on the mat.", "x", "\u4eca\u5929", "a\ud83d"])
    assert rows.shape == (4, embedder.dimensions) == (4, 256)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


def test_wordllama_gives_the_vectors_of_the_wheel() -> None:
    import wordllama

    texts = ["short", "a much longer text " * 40, "getUserById(PROJ-1234)", "na\u00efve caf\u00e9 \U0001f600"]
    reference = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True).embed(
        texts, norm=True
    )
    assert np.allclose(WordLlamaEmbedder().embed(texts), reference, atol=1e-5)


def test_wordllama_sums_a_very_long_text_in_parts() -> None:
    rows = WordLlamaEmbedder().embed(["the quick fox " * 20_000, "the quick fox"])
    assert float(rows[0] @ rows[1]) > 0.98


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u2003"])
def test_wordllama_never_gives_a_vector_for_nothing(text: str) -> None:
    with pytest.raises(ModelError, match="empty-text") as caught:
        WordLlamaEmbedder().embed(["fine", text])
    assert caught.value.cause == "content"


def test_wordllama_leaves_logging_alone() -> None:
    before = (list(logging.getLogger().handlers), logging.getLogger().level)
    WordLlamaEmbedder().embed(["load it"])
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_wordllama_of_no_texts_is_an_empty_table() -> None:
    assert WordLlamaEmbedder().embed([]).shape == (0, 256)


def test_rows_come_in_the_order_of_the_texts(serve: Serve) -> None:
    server, embedder = serve(batch=7, dimensions=None, key="secret")
    assert np.allclose(embedder.embed(TEXTS), expected(TEXTS), atol=1e-6)
    assert [len(texts) for texts in server.requests] == [1, 7, 7, 6]
    assert server.bodies[0] == {"model": "stub", "input": [PROBE], "path": "/v1/embeddings"}
    assert server.authorization[0] == "Bearer secret"
    assert embedder.dimensions == 8
    assert embedder.name == "stub"


def test_an_address_that_ends_in_v1_is_not_doubled(serve: Serve) -> None:
    server, _ = serve()
    embedder = HttpEmbedder(server.url + "/v1/", "stub", dimensions=8)
    embedder.embed(["one"])
    embedder.close()
    assert server.bodies[0]["path"] == "/v1/embeddings"


def test_unpaired_surrogates_are_not_sent(serve: Serve) -> None:
    server, embedder = serve()
    embedder.embed(["\ud604\ud99c", "\ud83d\ude00 pair"])
    assert server.requests == [["\ud604\ufffd", "\U0001f600 pair"]]


def test_a_blank_text_is_not_sent(serve: Serve) -> None:
    server, embedder = serve()
    with pytest.raises(ModelError, match="empty-text"):
        embedder.embed(["one", " \n"])
    assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(413, {"error": "batch size 20 > maximum allowed batch size 8"}),
        Answer(500, {"error": {"message": "input is too large to process. increase the physical batch size"}}),
        Answer(400, {"error": {"message": "This model's maximum context length is 8192 tokens"}}),
    ],
)
def test_too_large_a_request_shrinks_and_is_not_sent_again(serve: Serve, answer: Answer) -> None:
    server, embedder = serve(lambda texts: answer if len(texts) > 8 else None)
    assert np.allclose(embedder.embed(TEXTS), expected(TEXTS), atol=1e-6)
    assert [len(texts) for texts in server.requests] == [20, 10, 5, 5, 5, 5]
    embedder.embed(TEXTS)
    assert [len(texts) for texts in server.requests[6:]] == [5, 5, 5, 5]


def test_a_shrunk_batch_grows_again(serve: Serve) -> None:
    first = iter([Answer(413, {})])
    server, embedder = serve(lambda _: next(first, None), batch=20)
    for _ in range(12):
        embedder.embed(TEXTS)
    assert len(server.requests[1]) == 10
    assert len(server.requests[-1]) == 20


def test_one_text_that_is_too_large_says_so(serve: Serve) -> None:
    server, embedder = serve(lambda texts: Answer(413, {}) if "huge" in texts else None)
    with pytest.raises(ModelError) as caught:
        embedder.embed(["huge"])
    assert (caught.value.cause, caught.value.name) == ("content", "too-large")
    assert len(server.requests) == 1


def poison(texts: list[str]) -> Answer | None:
    broken = Answer(500, {"error": {"message": "failed to encode response: json: unsupported value: NaN"}})
    return broken if any("POISON" in text for text in texts) else None


def test_one_text_that_breaks_a_sound_server_is_at_fault_itself(serve: Serve) -> None:
    _, embedder = serve(poison)
    for texts in (["a POISON text"], ["fine", "a POISON text"]):
        with pytest.raises(ModelError, match="http-500") as caught:
            embedder.embed(texts)
        assert caught.value.cause == "content"


@pytest.mark.parametrize(
    ("answer", "cause", "name"),
    [
        (Answer(500, {}), "transient", "http-500"),
        (Answer(503, {}), "transient", "http-503"),
        (Answer(408, {}), "transient", "http-408"),
        (Answer(425, {}), "transient", "http-425"),
        (Answer(429, {}), "transient", "http-429"),
        (Answer(401, {}), "permanent", "http-401"),
        (Answer(403, {}), "permanent", "http-403"),
        (Answer(404, {}), "permanent", "http-404"),
        (Answer(400, {"error": "no such model"}), "permanent", "http-400"),
        (Answer(307, {}), "permanent", "http-307"),
        (Answer(200, b"<html>login</html>"), "transient", "bad-answer"),
        (Answer(200, {"data": [{"index": 0, "embedding": "AAAA"}]}), "transient", "bad-answer"),
        (Answer(200, {"data": []}), "permanent", "missing-rows"),
        (Answer(200, {"data": [{"index": 0, "embedding": [1.0] * 7}]}), "permanent", "wrong-width"),
    ],
)
def test_what_fails_for_every_text_is_not_the_texts_fault(serve: Serve, answer: Answer, cause: str, name: str) -> None:
    _, embedder = serve(lambda _: answer)
    with pytest.raises(ModelError) as caught:
        embedder.embed(["one"])
    assert (caught.value.cause, caught.value.name) == (cause, name)


@pytest.mark.parametrize(
    ("embedding", "name"),
    [
        ([1.0] * 7, "wrong-width"),
        ([], "wrong-width"),
        ([1.0] * 7 + [float("nan")], "not-finite"),
        ([1.0] * 7 + [float("inf")], "not-finite"),
        ([1.0] * 7 + [None], "not-finite"),
        ([0.0] * 8, "zero-vector"),
    ],
)
def test_a_wrong_vector_for_one_text_is_that_texts_failure(serve: Serve, embedding: list[float], name: str) -> None:
    def fault(texts: list[str]) -> Answer | None:
        return Answer(200, {"data": [{"index": 0, "embedding": embedding}]}) if texts == ["odd"] else None

    _, embedder = serve(fault)
    with pytest.raises(ModelError) as caught:
        embedder.embed(["odd"])
    assert (caught.value.cause, caught.value.name) == ("content", name)


def test_a_missing_row_is_noticed(serve: Serve) -> None:
    def fault(texts: list[str]) -> Answer | None:
        answer = vectors(texts, 8)
        return Answer(200, {"data": answer.body["data"][1:]}) if len(texts) > 1 else None

    _, embedder = serve(fault)
    with pytest.raises(ModelError, match="missing-rows"):
        embedder.embed(["one", "two"])


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("2", 2, 2),
        ("-5", 0, 0),
        ("99999999", 86_400, 86_400),
    ],
)
def test_retry_after_is_kept(serve: Serve, value: str, low: float, high: float) -> None:
    _, embedder = serve(lambda _: Answer(429, {}, {"retry-after": value}))
    with pytest.raises(ModelError) as caught:
        embedder.embed(["one"])
    assert caught.value.retry_after is not None
    assert low <= caught.value.retry_after <= high


def test_a_retry_after_that_is_a_date_is_the_time_until_then(serve: Serve) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    _, embedder = serve(lambda _: Answer(429, {}, {"retry-after": date}))
    with pytest.raises(ModelError) as caught:
        embedder.embed(["one"])
    assert caught.value.retry_after is not None
    assert 6600 < caught.value.retry_after <= 7200


@pytest.mark.parametrize("value", ["soon", "", "nan"])
def test_a_retry_after_that_says_nothing_is_none(serve: Serve, value: str) -> None:
    _, embedder = serve(lambda _: Answer(429, {}, {"retry-after": value}))
    with pytest.raises(ModelError) as caught:
        embedder.embed(["one"])
    assert caught.value.retry_after is None


def test_the_key_is_not_in_the_error(serve: Serve) -> None:
    _, embedder = serve(lambda _: Answer(401, {"error": "bad key sk-hidden"}), key="sk-hidden")
    with pytest.raises(ModelError) as caught:
        embedder.embed(["one"])
    assert "sk-hidden" not in str(caught.value)
    assert "***" in str(caught.value)


def test_a_server_that_is_down_is_transient() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        embedder = HttpEmbedder(f"http://127.0.0.1:{taken.getsockname()[1]}", "stub", dimensions=8)
        with pytest.raises(ModelError) as caught:
            embedder.embed(TEXTS)
        embedder.close()
    assert (caught.value.cause, caught.value.name) == ("transient", "no-connection")


def test_a_slow_server_gets_smaller_requests() -> None:
    sizes: list[int] = []

    def slow(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        sizes.append(len(texts))
        if len(texts) > 4:
            raise httpx.ReadTimeout("slow", request=request)
        return httpx.Response(200, json=vectors(texts, 8).body)

    embedder = HttpEmbedder("http://stub", "stub", dimensions=8, transport=httpx.MockTransport(slow))
    assert embedder.embed(TEXTS[:8]).shape == (8, 8)
    assert sizes == [8, 4, 4]


def test_large_and_tiny_numbers_become_unit_vectors() -> None:
    rows = unit_rows([[1e300, 1e300], [1e-300, 0.0]], count=2, width=2)
    assert np.allclose(rows, [[0.5**0.5, 0.5**0.5], [1.0, 0.0]])


def test_the_settings_choose_the_model() -> None:
    assert build_embedder(Settings()).name == "wordllama-l2-supercat-256"
    with pytest.raises(RivetError, match="RIVETOS_EMBED_MODEL"):
        build_embedder(Settings(embed_url="http://localhost:1"))
    named = build_embedder(Settings(embed_url="http://localhost:1", embed_model="bge", embed_dimensions=4))
    assert (named.name, named.dimensions) == ("bge", 4)
    assert embedder_name(Settings(embed_url="http://localhost:1", embed_model="bge")) == "bge"
    assert build_query_embedder(Settings()).name == "wordllama-l2-supercat-256"


class CountingEmbedder:
    name = "counting"
    dimensions = 2

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.down = False
        self.failure = ModelError("transient", "timeout", "no answer")

    def embed(self, texts: list[str]) -> Vectors:
        if self.down:
            raise self.failure
        self.seen += texts
        return np.ones((len(texts), 2), dtype=np.float32)


def test_a_query_is_embedded_once_while_it_is_recent() -> None:
    inner = CountingEmbedder()
    queries = QueryEmbedder(inner, size=2)  # type: ignore[arg-type]
    for query in ("a", " a ", "b", "a", "c", "a", "b"):
        row, reason = queries.embed(query)
        assert row is not None
        assert reason is None
    assert inner.seen == ["a", "b", "c", "b"]


def test_a_query_without_a_vector_says_why_and_is_tried_again() -> None:
    inner = CountingEmbedder()
    queries = QueryEmbedder(inner)  # type: ignore[arg-type]
    inner.down = True
    assert queries.embed("a") == (None, "timeout: no answer")
    inner.down = False
    assert queries.embed("a")[1] is None
    assert inner.seen == ["a"]


class HangingEmbedder(CountingEmbedder):
    """Lets everybody wait until it is let go, and then answers or not."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.calls = 0
        self.lock = threading.Lock()

    def embed(self, texts: list[str]) -> Vectors:
        with self.lock:
            self.calls += 1
        self.go.wait(10)
        return super().embed(texts)


def test_a_service_that_hangs_is_not_asked_by_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_SLOW", 0.0)
    monkeypatch.setattr(factory, "_PATIENCE", 0.01)
    inner = HangingEmbedder()
    inner.down = True
    queries = QueryEmbedder(inner)  # type: ignore[arg-type]
    with ThreadPoolExecutor(12) as threads:
        asked = [threads.submit(queries.embed, f"query {number}") for number in range(12)]
        # Those that may not wait come back first, while the others still do.
        reasons = [one.result()[1] for one in itertools.islice(as_completed(asked), 8)]
        assert reasons == ["busy: other queries are waiting for the embedding service"] * 8
        inner.go.set()
    assert inner.calls == 4
    # Nobody waits again before it has rested.
    assert re.fullmatch(r"resting: no answer; it is asked again in \d+ s", str(queries.embed("later")[1]))
    assert inner.calls == 4
    inner.down = False
    later = time.monotonic() + 16
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: later)
        assert queries.embed("later")[1] is None


def test_a_query_that_is_refused_in_its_own_right_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_SLOW", 0.0)
    inner = CountingEmbedder()
    inner.down, inner.failure = True, ModelError("content", "too-large", "input is too large")
    queries = QueryEmbedder(inner)  # type: ignore[arg-type]
    assert queries.embed("long")[1] == "too-large: input is too large"
    inner.down = False
    assert queries.embed("short")[1] is None


def test_a_token_command_is_asked_again_when_the_server_refuses(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text() + 'I'); "
        "print('token-' + p.read_text())"
    )
    (tmp_path / "count").write_text("")
    refusals = iter([Answer(401, {"error": "token-I has expired"})])
    with EmbeddingServer(8, lambda _: next(refusals, None)) as server:
        settings = Settings.model_validate(
            {
                "embed_url": server.url,
                "embed_model": "stub",
                "embed_dimensions": 8,
                "embed_token_command": shlex.join([sys.executable, "-c", code, str(tmp_path / "count")]),
            }
        )
        embedder = build_embedder(settings)
        assert isinstance(embedder, HttpEmbedder)
        assert np.allclose(embedder.embed(TEXTS), expected(TEXTS), atol=1e-6)
        embedder.embed(TEXTS)
        embedder.close()
    assert server.authorization == ["Bearer token-I", "Bearer token-II", "Bearer token-II"]


def test_a_token_command_that_fails_is_permanent() -> None:
    embedder = HttpEmbedder("http://127.0.0.1:9", "stub", TokenCommand("false", 300), dimensions=8)
    with pytest.raises(ModelError, match="token-command") as caught:
        embedder.embed(["one"])
    embedder.close()
    assert caught.value.cause == "permanent"


def test_wordllama_knows_words_and_no_signs_or_bytes() -> None:
    model = WordLlamaEmbedder()
    assert all(model.knows_words(text) for text in ("hello", "zzqx", "7", "部", "caf\u00e9", "see \U0001f419"))
    assert not any(
        model.knows_words(text) for text in ("\U0001f419\U0001f389", "\ufffd", "\u2026 \u2014", "배포", "", "\x00")
    )
