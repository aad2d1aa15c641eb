"""The embedding stages against a real Postgres and a real HTTP server: what fails is set apart, the rest embedded."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.embedding import embed, registry
from rivet_pipeline.embedding.embed import embed_messages, embed_summaries
from rivet_pipeline.embedding.registry import RegisteredModel, promote_filling_model, register_model
from rivet_pipeline.models.embedder import PROBE, HttpEmbedder, WordLlamaEmbedder
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline_tests.embedding_server import Answer, EmbeddingServer, Fault, vector

JUNE = date(2026, 6, 1)
JULY = date(2026, 7, 1)

Serve = Callable[..., tuple[EmbeddingServer, HttpEmbedder]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    opened: list[tuple[EmbeddingServer, HttpEmbedder]] = []

    def start(
        fault: Fault | None = None, *, name: str = "stub", width: int = 8
    ) -> tuple[EmbeddingServer, HttpEmbedder]:
        server = EmbeddingServer(width, fault).__enter__()
        embedder = HttpEmbedder(server.url, name, dimensions=width)
        opened.append((server, embedder))
        return server, embedder

    yield start
    for server, embedder in opened:
        embedder.close()
        server.__exit__(None, None, None)


def converse(connection: Connection, key: str, texts: list[str], day: date = JUNE) -> UUID:
    """One conversation with these messages; each is a write of its own in the revision."""
    row = connection.execute(
        "INSERT INTO ros_conversations (session_key, agent, day, revision) VALUES (%s, 'tester', %s, %s) RETURNING id",
        [key, day, len(texts)],
    ).fetchone()
    assert row is not None
    for number, text in enumerate(texts):
        connection.execute(
            """
            INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at)
            VALUES (%s, %s, 'tester', 'test', 'user', %s, %s)
            """,
            [row["id"], f"e{number}", text, datetime(day.year, day.month, day.day, 12, number % 60, tzinfo=UTC)],
        )
    found: UUID = row["id"]
    return found


def call_tool(connection: Connection, conversation: UUID, event: str, *, result: str | None) -> UUID:
    row = connection.execute(
        """
        INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_args, tool_result)
        VALUES (%s, %s, 'tester', 'test', 'assistant', 'Bash', '{"command": "make test"}', %s) RETURNING id
        """,
        [conversation, event, result],
    ).fetchone()
    assert row is not None
    touch(connection, conversation)
    found: UUID = row["id"]
    return found


def touch(connection: Connection, conversation: UUID) -> None:
    connection.execute("UPDATE ros_conversations SET revision = revision + 1 WHERE id = %s", [conversation])


def rows(connection: Connection, query: str, parameters: list[Any] | None = None) -> list[dict[str, Any]]:
    return connection.execute(query, parameters).fetchall()


def embedded(connection: Connection) -> dict[str, int]:
    """How many vectors each message's content has."""
    found = rows(
        connection,
        """
        SELECT m.content, count(*) AS vectors FROM ros_embeddings AS e JOIN ros_messages AS m ON m.id = e.owner_id
        WHERE e.content_hash = m.text_hash GROUP BY m.id, m.content
        """,
    )
    return {row["content"]: row["vectors"] for row in found}


def failures(connection: Connection) -> list[tuple[str, str, str]]:
    found = rows(
        connection,
        """
        SELECT coalesce(m.content, f.item) AS item, f.cause, f.error
        FROM ros_failures AS f LEFT JOIN ros_messages AS m ON m.id::text = f.item ORDER BY 1
        """,
    )
    return [(row["item"], row["cause"], row["error"].split(":")[0]) for row in found]


def pending(connection: Connection) -> int:
    return int(rows(connection, "SELECT count(*) AS n FROM ros_pending_message_embeddings")[0]["n"])


def marked(connection: Connection) -> int:
    return int(rows(connection, "SELECT count(*) AS n FROM ros_stage_marks WHERE stage = 'message_embeddings'")[0]["n"])


def rest_over(connection: Connection) -> None:
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")


def test_a_pass_embeds_everything_once_and_a_second_makes_no_call(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    server, embedder = serve()
    texts = [f"message {number}" for number in range(300)]
    converse(connection, "a", texts)
    converse(connection, "b", ["in July", "", "  "], JULY)
    report = embed_messages(pool, embedder, days=None)
    assert {day: figures.rows for day, figures in report.days.items()} == {JUNE: 300, JULY: 1}
    assert report.days[JUNE].characters == sum(map(len, texts))
    assert report.model_calls == 5
    assert report.failures == 0
    assert report.model == "stub"
    assert sum(embedded(connection).values()) == 301
    assert (pending(connection), marked(connection)) == (0, 2)
    before = len(server.requests)
    again = embed_messages(pool, embedder, days=None)
    assert (again.rows, again.model_calls, dict(again.days)) == (0, 0, {})
    assert len(server.requests) == before


def test_the_stored_vector_is_the_models_unit_vector(connection: Connection, pool: Pool, serve: Serve) -> None:
    _, embedder = serve()
    converse(connection, "a", ["the text"])
    embed_messages(pool, embedder, days=None)
    (row,) = rows(connection, "SELECT embedding, chunk, char_start, char_end FROM ros_embeddings")
    stored = row["embedding"].to_numpy()
    expected = vector("the text", 8)
    length = sum(value * value for value in expected) ** 0.5
    assert stored == pytest.approx([value / length for value in expected], abs=2e-3)
    assert (row["chunk"], row["char_start"], row["char_end"]) == (0, 0, 9)


def test_only_the_days_asked_for(connection: Connection, pool: Pool, serve: Serve) -> None:
    _, embedder = serve()
    converse(connection, "a", ["in June"])
    converse(connection, "b", ["in July"], JULY)
    assert set(embed_messages(pool, embedder, days=[JULY]).days) == {JULY}
    assert embedded(connection) == {"in July": 1}
    assert (pending(connection), marked(connection)) == (1, 1)


def test_a_vector_one_number_short_leaves_only_its_text_without(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    def fault(texts: list[str]) -> Answer | None:
        widths = [767 if text.endswith("0") and text != PROBE else 768 for text in texts]
        data = [
            {"index": index, "embedding": vector(text, width)}
            for index, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        return Answer(200, {"data": data})

    _, embedder = serve(fault, width=768)
    conversation = converse(connection, "a", [f"text {number}" for number in range(1, 41)])
    report = embed_messages(pool, embedder, days=[JUNE])
    assert (report.rows, report.failures) == (36, 4)
    assert len(embedded(connection)) == 36
    assert failures(connection) == [(f"text {number}", "content", "wrong-width") for number in (10, 20, 30, 40)]
    assert marked(connection) == 0
    assert rows(connection, "SELECT DISTINCT day FROM ros_failures") == [{"day": JUNE}]
    assert conversation is not None


def test_a_day_that_is_done_is_marked_while_the_pass_goes_on(
    connection: Connection, pool: Pool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(texts: list[str]) -> Answer | None:
        return Answer(503, {"error": "busy"}) if any("the last" in text for text in texts) else None

    monkeypatch.setattr(embed, "PAGE", 1)
    _, embedder = serve(fault)
    first, second = converse(connection, "a", ["one"]), converse(connection, "b", ["two", "three"])
    converse(connection, "c", ["four", "five", "six", "seven", "the last"], JULY)
    assert embed_messages(pool, embedder, days=None).rows == 7
    # The service stopped the pass in July; nobody need look at June again.
    assert {row["conversation_id"] for row in rows(connection, "SELECT conversation_id FROM ros_stage_marks")} == {
        first,
        second,
    }


def test_what_could_not_be_marked_at_once_is_marked_at_the_end_of_the_pass(
    connection: Connection, pool: Pool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = embed._mark_finished
    calls: list[int] = []

    def nothing_at_first(reader: Connection, model: RegisteredModel, unseen: dict[UUID, int]) -> list[UUID]:
        """As while another pass has found the service down."""
        if unseen:
            calls.append(len(unseen))
        return mark(reader, model, unseen) if len(calls) > 1 else []

    monkeypatch.setattr(embed, "PAGE", 1)
    monkeypatch.setattr(embed, "_mark_finished", nothing_at_first)
    converse(connection, "a", ["one"])
    converse(connection, "b", ["two", "three", "four", "five"], JULY)
    embed_messages(pool, serve()[1], days=None)
    assert calls == [1, 2]
    assert len(rows(connection, "SELECT conversation_id FROM ros_stage_marks")) == 2


def test_marks_are_made_in_the_same_order_by_every_pass(
    connection: Connection, pool: Pool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[UUID] = []
    _, embedder = serve()
    conversations = sorted(converse(connection, f"test:{number}", [f"word {number}"]) for number in range(9))
    embed_messages(pool, embedder, days=None)
    monkeypatch.setattr(embed, "mark_seen", lambda *_, conversation_id, **__: made.append(conversation_id))
    backwards = dict.fromkeys(reversed(conversations), 1)
    assert embed._mark_finished(connection, register_model(connection, embedder), backwards) == conversations
    assert made == conversations


def test_a_poisoned_text_does_not_stop_its_neighbours_and_is_given_up(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    def fault(texts: list[str]) -> Answer | None:
        return Answer(500, {"error": "unsupported value: NaN"}) if any("POISON" in text for text in texts) else None

    server, embedder = serve(fault)
    converse(connection, "a", [f"text {number}" for number in range(63)] + ["a POISON text"])
    assert embed_messages(pool, embedder, days=None).rows == 63
    assert failures(connection) == [("a POISON text", "content", "http-500")]
    for _ in range(3):
        rest_over(connection)
        connection.execute("UPDATE ros_failures SET next_attempt_at = NULL WHERE attempts >= 3")
        embed_messages(pool, embedder, days=None)
    assert rows(connection, "SELECT attempts FROM ros_failures") == [{"attempts": 3}]
    before = len(server.requests)
    embed_messages(pool, embedder, days=None)
    assert len(server.requests) == before
    assert marked(connection) == 0


def test_a_server_that_takes_eight_inputs_gets_eight(connection: Connection, pool: Pool, serve: Serve) -> None:
    def fault(texts: list[str]) -> Answer | None:
        if len(texts) > 8 or sum(map(len, texts)) > 20_000:
            return Answer(413, {"error": "batch too large"})
        if any(len(text) > 1500 for text in texts):
            return Answer(500, {"error": "input is too large to process"})
        return None

    server, embedder = serve(fault)
    long = "A sentence of some length stands here. " * 150
    converse(connection, "a", [f"text {number}" for number in range(100)] + [long])
    report = embed_messages(pool, embedder, days=None)
    assert (report.rows, report.failures) == (101, 0)
    assert embedded(connection)[long] >= 4
    sizes = [len(texts) for texts in server.requests]
    assert sum(1 for size in sizes if size > 8) <= 4
    spans = rows(
        connection,
        "SELECT char_start, char_end FROM ros_embeddings AS e JOIN ros_messages AS m ON m.id = e.owner_id "
        "WHERE m.content = %s ORDER BY chunk",
        [long],
    )
    assert spans[0]["char_start"] == 0
    assert spans[-1]["char_end"] >= len(long)
    assert all(after["char_start"] <= before["char_end"] + 1 for before, after in pairwise(spans))


def test_a_rate_limit_rests_the_stage_as_long_as_it_asks_and_fails_no_message(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    limited = True

    def fault(_: list[str]) -> Answer | None:
        return Answer(429, {"error": "slow down"}, {"retry-after": "600"}) if limited else None

    server, embedder = serve(fault)
    converse(connection, "a", [f"text {number}" for number in range(100)])
    report = embed_messages(pool, embedder, days=[JUNE])
    assert (report.rows, report.failures, len(server.requests)) == (0, 1, 1)
    assert failures(connection) == [("service", "transient", "http-429")]
    (row,) = rows(connection, "SELECT next_attempt_at - last_failed_at AS rest FROM ros_failures")
    assert row["rest"].total_seconds() >= 590
    assert (pending(connection), marked(connection)) == (0, 0)
    embed_messages(pool, embedder, days=[JUNE])
    assert len(server.requests) == 1
    limited = False
    rest_over(connection)
    assert embed_messages(pool, embedder, days=[JUNE]).rows == 100
    assert failures(connection) == []
    assert marked(connection) == 1


def test_what_was_embedded_before_the_service_went_down_is_kept(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    server, embedder = serve()
    server.fault = lambda _: Answer(503, {}) if len(server.requests) > 3 else None
    converse(connection, "a", [f"text {number}" for number in range(200)])
    report = embed_messages(pool, embedder, days=None)
    assert (report.rows, report.failures) == (64, 1)
    assert len(embedded(connection)) == 64
    assert failures(connection) == [("service", "transient", "http-503")]
    server.fault = None
    rest_over(connection)
    assert embed_messages(pool, embedder, days=None).rows == 136
    assert (failures(connection), marked(connection)) == ([], 1)


def test_a_service_that_is_down_before_the_first_pass(connection: Connection, pool: Pool) -> None:
    with EmbeddingServer(8) as server:
        url = server.url
    embedder = HttpEmbedder(url, "stub")
    converse(connection, "a", ["text"])
    report = embed_messages(pool, embedder, days=[JUNE])
    embedder.close()
    assert {day: figures.failures for day, figures in report.days.items()} == {JUNE: 1}
    assert failures(connection) == [("service", "transient", "no-connection")]


def test_a_wrong_key_is_permanent_and_one_entry(connection: Connection, pool: Pool, serve: Serve) -> None:
    _, embedder = serve(lambda _: Answer(401, {"error": "no"}))
    converse(connection, "a", [f"text {number}" for number in range(100)])
    embed_messages(pool, embedder, days=None)
    assert failures(connection) == [("service", "permanent", "http-401")]


def test_a_late_tool_result_is_embedded_and_the_former_chunks_go(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    _, embedder = serve()
    conversation = converse(connection, "a", ["hello"])
    silent = call_tool(connection, conversation, "call-1", result=None)
    embed_messages(pool, embedder, days=None)
    assert len(rows(connection, "SELECT FROM ros_embeddings WHERE owner_id = %s", [silent])) == 0
    connection.execute("UPDATE ros_messages SET content = %s WHERE id = %s", ["Ran the tests. " * 400, silent])
    touch(connection, conversation)
    assert embed_messages(pool, embedder, days=None).rows == 1
    before = rows(connection, "SELECT chunk, content_hash FROM ros_embeddings WHERE owner_id = %s", [silent])
    connection.execute("UPDATE ros_messages SET tool_result = 'all 12 passed' WHERE id = %s", [silent])
    touch(connection, conversation)
    assert pending(connection) == 1
    assert embed_messages(pool, embedder, days=None, chars_per_chunk=6000).rows == 1
    after = rows(connection, "SELECT chunk, content_hash FROM ros_embeddings WHERE owner_id = %s", [silent])
    assert len(before) > len(after) == 2
    assert {row["content_hash"] for row in after}.isdisjoint(row["content_hash"] for row in before)
    assert pending(connection) == 0


def test_a_tool_call_is_sent_with_its_name_and_arguments(connection: Connection, pool: Pool, serve: Serve) -> None:
    server, embedder = serve()
    call_tool(connection, converse(connection, "a", []), "call-1", result="3 failed")
    embed_messages(pool, embedder, days=None)
    assert server.requests == [["Bash: command=make test\n3 failed"]]


def test_a_write_during_the_pass_stays_pending(connection: Connection, pool: Pool, serve: Serve) -> None:
    conversation = converse(connection, "a", ["first"])

    def fault(_: list[str]) -> Answer | None:
        if len(server.requests) == 1:
            call_tool(connection, conversation, "late", result="came in between")
        return None

    server, embedder = serve(fault)
    embed_messages(pool, embedder, days=None)
    assert pending(connection) == 1
    assert embed_messages(pool, embedder, days=None).rows == 1


def test_two_passes_at_once_leave_each_chunk_once(connection: Connection, pool: Pool, serve: Serve) -> None:
    _, embedder = serve()
    texts = [f"text {number} " + "with many words in it " * (number % 7 * 40) for number in range(600)]
    for number in range(0, 600, 50):
        converse(connection, f"c{number}", texts[number : number + 50])
    errors: list[BaseException] = []
    start = threading.Barrier(2)

    def work() -> None:
        start.wait()
        try:
            embed_messages(pool, embedder, days=None)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(embedded(connection)) == 600
    gaps = rows(
        connection,
        """
        SELECT owner_id FROM ros_embeddings GROUP BY owner_id
        HAVING count(*) <> max(chunk) + 1 OR count(DISTINCT content_hash) <> 1
        """,
    )
    assert gaps == []
    assert (pending(connection), marked(connection)) == (0, 12)


def test_a_paraphrase_is_nearest_through_the_index(connection: Connection, pool: Pool) -> None:
    texts = [
        "We decided to keep the customer records in PostgreSQL instead of MongoDB.",
        "The cat slept on the warm windowsill all afternoon.",
        "Quarterly revenue grew by twelve percent in Europe.",
        "Remember to water the tomatoes before the weekend.",
    ]
    words = ["garden", "river", "copper", "window", "button", "market", "engine", "ladder", "violin", "harbour"]
    filler = [" ".join(random.Random(number).sample(words, 6)) for number in range(200)]
    converse(connection, "a", texts + filler)
    embedder = WordLlamaEmbedder()
    embed_messages(pool, embedder, days=None)
    query = embedder.embed(["Which database holds our client data?"])[0]
    model = register_model(connection, embedder)
    nearest = f"""
        SELECT m.content FROM ros_embeddings AS e JOIN ros_messages AS m ON m.id = e.owner_id
        WHERE e.model_id = {model.id} ORDER BY e.embedding::halfvec(256) <=> %s::halfvec(256) LIMIT 1
    """
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan = off")
        # The graph reaches a text that stands apart from a crowd of similar ones only when it looks at enough of them.
        connection.execute("SET LOCAL hnsw.ef_search = 200")
        plan = str(rows(connection, "EXPLAIN " + nearest, [query]))
        assert f"ros_embeddings_hnsw_{model.id}" in plan
        assert rows(connection, nearest, [query]) == [{"content": texts[0]}]


def test_summaries_of_every_level_are_embedded(connection: Connection, pool: Pool, serve: Serve) -> None:
    server, embedder = serve()
    conversation = converse(connection, "a", [])
    for kind in ("leaf", "branch", "root"):
        connection.execute(
            """
            INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                       pipeline_version, input_hash)
            VALUES (%s, %s, %s, 1, now(), now(), 'm', 1, 'h')
            """,
            [conversation, kind, f"the {kind} text"],
        )
    report = embed_summaries(pool, embedder, days=[JUNE])
    assert (report.stage, report.rows, report.days[JUNE].model_calls) == ("summary_embeddings", 3, 1)
    assert embed_summaries(pool, embedder, days=None).rows == 0
    connection.execute("UPDATE ros_summaries SET content = 'a new leaf text' WHERE kind = 'leaf'")
    assert embed_summaries(pool, embedder, days=None).rows == 1
    assert server.requests[-1] == ["a new leaf text"]
    assert rows(connection, "SELECT owner_kind, count(*) AS n FROM ros_embeddings GROUP BY 1") == [
        {"owner_kind": "summary", "n": 3}
    ]


def test_a_new_model_is_filled_beside_the_old_one_and_takes_over(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    _, old = serve(name="old")
    _, new = serve(name="new", width=16)
    converse(connection, "a", [f"text {number}" for number in range(10)])
    converse(connection, "b", ["in July"], JULY)
    embed_messages(pool, old, days=None)
    assert pending(connection) == 0
    register_model(connection, new)
    assert pending(connection) == 11
    embed_messages(pool, new, days=[JUNE])
    serving = "SELECT name FROM ros_embedding_models WHERE serving"
    assert rows(connection, serving) == [{"name": "old"}]
    assert promote_filling_model(connection) is None
    embed_messages(pool, new, days=None)
    assert rows(connection, serving) == [{"name": "new"}]
    assert rows(connection, "SELECT model_id, count(*) AS n FROM ros_embeddings GROUP BY 1 ORDER BY 1") == [
        {"model_id": 1, "n": 11},
        {"model_id": 2, "n": 11},
    ]
    assert promote_filling_model(connection) is None


def test_a_model_of_a_known_name_with_another_width_is_refused(
    connection: Connection, pool: Pool, serve: Serve
) -> None:
    _, narrow = serve()
    _, wide = serve(width=16)
    converse(connection, "a", ["text"])
    embed_messages(pool, narrow, days=None)
    touch(connection, converse(connection, "b", ["another text"]))
    embed_messages(pool, wide, days=None)
    assert failures(connection) == [("service", "permanent", "wrong-width")]
    register_model(connection, serve(name="other", width=4)[1])
    with pytest.raises(ModelError, match="wrong-width"):
        register_model(connection, wide)


def test_many_texts_are_indexed_at_the_end(
    connection: Connection, pool: Pool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BULK_OWNERS", 20)
    _, embedder = serve()
    converse(connection, "a", [f"text {number}" for number in range(50)])
    there = "SELECT to_regclass('ros_embeddings_hnsw_1') IS NOT NULL AS there"
    during: list[Any] = []

    def spy(_: list[str]) -> Answer | None:
        during.append(rows(connection, there)[0]["there"])
        return None

    server, embedder = serve(spy)
    embed_messages(pool, embedder, days=None)
    assert during == [False] * len(server.requests)
    assert rows(connection, there) == [{"there": True}]
    connection.execute("DROP INDEX ros_embeddings_hnsw_1")
    embed_messages(pool, embedder, days=None)
    assert rows(connection, there) == [{"there": True}]
    assert rows(connection, "SELECT FROM pg_locks WHERE locktype = 'advisory'") == []
