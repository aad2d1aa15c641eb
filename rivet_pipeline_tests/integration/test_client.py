"""The capture client against real sockets: what each answer does to a batch, and to what waits."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rivet_pipeline.client import (
    MAX_ATTEMPTS,
    MAX_BODY,
    CaptureBatch,
    CaptureClient,
    Refused,
    Spooled,
    Written,
    make_bodies,
)
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.settings import Settings
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult
from rivet_pipeline.transcripts.spool import Spool, SpoolError
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.scripted_api import STORED, Answer, ScriptedApi, scripted_api

AT = datetime(2026, 3, 8, 10, tzinfo=UTC)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with scripted_api() as running:
        yield running


@pytest.fixture
def client(api: ScriptedApi, spool: Spool) -> Iterator[CaptureClient]:
    with CaptureClient(api.url, "token", spool, timeout=5) as opened:
        yield opened


def nobody() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def batch(*texts: str, session: str = "s:1", **fields: Any) -> CaptureBatch:
    items = [MessageRecord(text[:40], "user", text, created_at=AT) for text in texts]
    return CaptureBatch(SessionRecord(session, "a", "c"), items, **fields)


def spool_some(spool: Spool, *texts: str, session: str = "s:1") -> None:
    with CaptureClient(nobody(), None, spool) as away:
        for text in texts:
            assert isinstance(away.write(batch(text, session=session)), Spooled)


def failing_on(*texts: str, answer: Answer = (500, {"detail": "broken"})) -> Any:
    """Answers so when one of the texts is in the batch, and stores anything else."""
    return lambda body: answer if {one.get("content") for one in body["messages"]} & set(texts) else STORED


def test_a_batch_is_stored_with_the_token_and_its_own_times(client: CaptureClient, api: ScriptedApi) -> None:
    assert client.write(batch("hello", finalize=True)) == Written(1, 0, 0)
    assert api.headers[0]["Authorization"] == "Bearer token"
    assert api.bodies[0]["finalize"] is True
    assert api.bodies[0]["messages"][0]["created_at"] == AT.isoformat()


def test_a_message_without_a_time_gets_one_before_it_is_spooled(spool: Spool) -> None:
    session = SessionRecord("s:1", "a", "c")
    items = [MessageRecord("a", "user", "a"), MessageRecord("b", "user", "b", created_at=AT)]
    items.append(MessageRecord("c", "user", "c"))
    before = datetime.now(UTC)
    with CaptureClient(nobody(), None, spool) as away:
        away.write(CaptureBatch(session, [*items, ToolResult(session, "t", "r")]))
    first, second, third, result = spool.read(spool.files()[0])["messages"]
    assert before <= datetime.fromisoformat(first["created_at"]) <= datetime.now(UTC)
    assert first["metadata"]["time_source"] == "capture"
    assert datetime.fromisoformat(second["created_at"]) == datetime.fromisoformat(third["created_at"]) == AT
    assert third["metadata"]["time_source"] == "position"
    assert "time_source" not in result["metadata"]


@pytest.mark.parametrize("answer", [(500, "x"), (502, ""), (503, {"detail": "away"}), (401, {}), (403, {}), (408, "")])
def test_what_is_not_about_the_capture_keeps_it(
    client: CaptureClient, api: ScriptedApi, spool: Spool, answer: Answer
) -> None:
    api.answer = lambda _: answer
    outcome = client.write(batch("kept"))
    assert isinstance(outcome, Spooled)
    assert str(answer[0] if answer else "") in outcome.reason
    assert len(spool.files()) == 1
    api.answer = lambda _: STORED
    assert client.replay().sent == 1
    assert (spool.files(), spool.dead()) == ([], [])


@pytest.mark.parametrize("answer", [(429, {}), (425, {}), (302, ""), (200, "<html>"), (200, {"status": "ok"}), None])
def test_strange_answers_keep_it_too(client: CaptureClient, api: ScriptedApi, spool: Spool, answer: Answer) -> None:
    api.answer = lambda _: answer
    assert isinstance(client.write(batch("kept")), Spooled)
    assert isinstance(client.write(batch("kept behind")), Spooled)
    api.answer = lambda _: STORED
    client.replay()
    assert api.contents[-2:] == ["kept", "kept behind"]


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_refused_batch_is_kept_with_its_reason(
    client: CaptureClient, api: ScriptedApi, spool: Spool, status: int
) -> None:
    api.answer = lambda _: (status, {"detail": "agent: must not be blank"})
    outcome = client.write(batch("bad"))
    assert isinstance(outcome, Refused)
    assert outcome.status == status
    (dead,) = spool.dead()
    assert (dead.status, dead.session_key) == (status, "s:1")
    assert "agent: must not be blank" in dead.reason
    assert json.loads(outcome.files[0].read_bytes())["messages"][0]["content"] == "bad"


def test_only_the_messages_at_fault_are_refused(client: CaptureClient, api: ScriptedApi, spool: Spool) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        bad = [number for number, one in enumerate(body["messages"]) if one["content"].startswith("bad")]
        if bad:
            return 400, {"detail": "no", "errors": [{"field": f"messages[{bad[0]}].content", "problem": "no"}]}
        return STORED

    api.answer = answer
    assert isinstance(client.write(batch("good 1", "bad 1", "good 2", "bad 2", "good 3")), Refused)
    assert [one["content"] for one in api.bodies[-1]["messages"]] == ["good 1", "good 2", "good 3"]
    assert len(spool.dead()) == 2
    spool_some(spool, "good 4")
    assert client.replay().sent == 1


def test_what_waits_is_sent_first_and_in_order(client: CaptureClient, api: ScriptedApi, spool: Spool) -> None:
    spool_some(spool, "1", "2", "3")
    assert client.write(batch("4")) == Written(1, 0, 0)
    assert api.contents == ["1", "2", "3", "4"]


def test_at_most_fifty_are_replayed_before_a_write_and_the_rest_keeps_its_order(
    client: CaptureClient, api: ScriptedApi, spool: Spool
) -> None:
    spool_some(spool, *map(str, range(60)))
    assert isinstance(client.write(batch("60")), Spooled)
    assert api.contents == [str(number) for number in range(50)]
    assert client.write(batch("other", session="s:2")) == Written(1, 0, 0)
    assert api.contents == [*(str(number) for number in range(61)), "other"]


def test_a_replay_stops_when_nothing_gets_through(client: CaptureClient, api: ScriptedApi, spool: Spool) -> None:
    for number in range(5):
        spool_some(spool, str(number), session=f"s:{number}")
    api.answer = lambda _: (503, {"detail": "the database is away"})
    for _ in range(MAX_ATTEMPTS + 2):
        assert isinstance(client.write(batch("live", session="s:9")), Spooled)
    assert len(api.bodies) == 2 * (MAX_ATTEMPTS + 2)
    # An outage is nobody's fault: no attempt is counted, and nothing is buried.
    assert {one.attempts for one in spool.listing()} == {0}
    assert spool.dead() == []


def test_a_poison_file_blocks_its_own_session_only_and_is_buried_in_the_end(
    client: CaptureClient, api: ScriptedApi, spool: Spool
) -> None:
    spool_some(spool, "poison", "behind", session="s:1")
    spool_some(spool, "fine", session="s:2")
    api.answer = failing_on("poison")
    assert client.write(batch("live", session="s:3")) == Written(1, 0, 0)
    assert api.contents == ["poison", "fine", "live"]
    assert isinstance(client.write(batch("behind it", session="s:1")), Spooled)
    for number in range(MAX_ATTEMPTS - 1):
        assert isinstance(client.write(batch(f"live {number}", session="s:3")), Written)
    (dead,) = spool.dead()
    assert dead.session_key == "s:1"
    assert f"failed {MAX_ATTEMPTS} times" in dead.reason
    assert "answered 500" in dead.reason
    client.replay()
    assert api.contents[-2:] == ["behind", "behind it"]
    assert spool.files() == []


def test_a_capture_that_kills_the_connection_is_poison_too(
    client: CaptureClient, api: ScriptedApi, spool: Spool
) -> None:
    spool_some(spool, "poison", session="s:1")
    spool_some(spool, "fine", session="s:2")
    api.answer = failing_on("poison", answer=None)
    done = client.replay()
    assert (done.sent, done.waiting) == (1, 1)
    assert spool.listing()[0].attempts == 1


def test_damaged_files_never_stop_the_others(client: CaptureClient, api: ScriptedApi, spool: Spool) -> None:
    spool_some(spool, "1")
    for raw in (b"", b"{", b"null", b"\x00\x00"):
        spool.put(raw, "s:1")
    spool_some(spool, "2")
    assert client.write(batch("3")) == Written(1, 0, 0)
    assert api.contents == ["1", "2", "3"]
    assert len(spool.dead()) == 4
    assert all(dead.reason.startswith("damaged: ") for dead in spool.dead())
    assert spool.revive() == 4
    assert client.replay().buried == 4


def test_a_spooled_file_that_is_refused_goes_to_the_dead_and_the_next_ones_go_on(
    client: CaptureClient, api: ScriptedApi, spool: Spool
) -> None:
    spool_some(spool, "bad", "good")
    api.answer = failing_on("bad", answer=(422, {"detail": "no"}))
    assert client.write(batch("live")) == Written(1, 0, 0)
    assert api.contents == ["bad", "good", "live"]
    assert [dead.status for dead in spool.dead()] == [422]


def test_while_another_replays_a_writer_spools_its_own(client: CaptureClient, api: ScriptedApi, spool: Spool) -> None:
    spool_some(spool, "1")
    with spool.lock(0) as mine:
        assert mine
        assert isinstance(client.write(batch("2", session="s:2")), Spooled)
        assert client.replay(wait=0).busy
    assert api.bodies == []
    assert client.replay().sent == 2


def test_two_that_replay_at_once_send_each_file_once(api: ScriptedApi, spool: Spool) -> None:
    texts = [str(number) for number in range(40)]
    spool_some(spool, *texts)

    def replay(_: int) -> int:
        with CaptureClient(api.url, None, Spool(spool.folder)) as one:
            return one.replay(wait=20).sent

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(replay, range(4))) == 40
    assert api.contents == texts


def test_a_large_batch_is_cut_and_only_the_last_part_finalizes(client: CaptureClient, api: ScriptedApi) -> None:
    texts = [f"{number} " + "ü" * 100_000 for number in range(20)]
    assert isinstance(client.write(batch(*texts, finalize=True)), Written)
    assert len(api.bodies) > 4
    assert max(api.sizes) <= MAX_BODY
    assert api.contents == texts
    assert [body.get("finalize", False) for body in api.bodies] == [False] * (len(api.bodies) - 1) + [True]


def test_a_part_that_is_not_taken_keeps_the_rest_behind_it(
    client: CaptureClient, api: ScriptedApi, spool: Spool
) -> None:
    texts = [f"{number} " + "x" * 300_000 for number in range(6)]
    api.answer = lambda body: STORED if len(api.bodies) == 1 else (503, {})
    outcome = client.write(batch(*texts))
    assert isinstance(outcome, Spooled)
    assert len(outcome.files) == len(spool.files()) == 2
    api.answer = lambda _: STORED
    assert client.write(batch("last")) == Written(1, 0, 0)
    sent = dict.fromkeys(text[:1] for text in api.contents)
    assert list(sent) == ["0", "1", "2", "3", "4", "5", "l"]


def test_a_message_that_is_too_large_alone_is_cut_as_the_service_would() -> None:
    huge = "🚀" * 500_000
    arguments = {"file": "y" * 900_000}
    metadata = {"session_jsonl_path": "/t.jsonl", "junk": "z" * 900_000}
    item = MessageRecord("e", "tool", huge, "Write", arguments, huge, metadata, AT)
    settings = {"cwd": "/home/ada", "dump": "d" * 1_000_000}
    (body,) = make_bodies(CaptureBatch(SessionRecord("s:1", "a", "c", settings=settings), [item]), AT)
    assert len(json.dumps(body, ensure_ascii=False).encode()) <= MAX_BODY
    (message,) = body["messages"]
    assert message["content"] == message["tool_result"] == "🚀" * 8_000
    assert message["tool_args"] == {"_elided": True, "bytes": len(json.dumps(arguments, separators=(",", ":")))}
    assert message["metadata"]["full_content_length"] == message["metadata"]["full_tool_result_length"] == 1_000_000
    assert message["metadata"]["truncated"] is True
    assert message["metadata"]["session_jsonl_path"] == "/t.jsonl"
    assert body["settings"]["cwd"] == "/home/ada"
    assert body["settings"]["dump"]["_elided"] is True


def test_what_json_can_not_hold_is_sent_all_the_same(client: CaptureClient, api: ScriptedApi) -> None:
    deep: Any = "x"
    for _ in range(3_000):
        deep = [deep]
    item = MessageRecord("e\x00", "user", "a\x00b\ud83d", "T", {"deep": deep}, metadata={"n": float("nan")})
    assert isinstance(client.write(CaptureBatch(SessionRecord("s:1", "a", "c", "t\udfff"), [item])), Written)
    (message,) = api.bodies[0]["messages"]
    assert message["content"] == "a\ufffdb\ufffd"
    assert json.dumps(message["tool_args"]).count("[") == 3_000
    assert "x" in json.dumps(message["tool_args"])


@pytest.mark.parametrize("token", ["tokené", "voilà", "tajneą", "密码"])
def test_a_token_beyond_ascii_is_sent_and_known_again(database_url: str, spool: Spool, token: str) -> None:
    settings = Settings(api_token=SecretStr(token))
    with running_api(settings, database_url) as url, CaptureClient(url, token, spool) as client:
        assert client.write(batch("one")) == Written(1, 0, 0)


def test_a_sent_twice_batch_is_in_the_store_once(database_url: str, connection: Connection, spool: Spool) -> None:
    settings = Settings(api_token=SecretStr("right"))
    with running_api(settings, database_url) as url:
        with CaptureClient(url, "wrong", spool) as wrong:
            outcome = wrong.write(batch("one", "two"))
            assert isinstance(outcome, Spooled)
            assert "401" in outcome.reason
        with CaptureClient(url, "right", spool) as right:
            assert right.write(batch("two", "three")) == Written(1, 1, 0)
            refused = right.write(
                CaptureBatch(
                    SessionRecord("s:1", "a", "c"),
                    [
                        MessageRecord("four", "user", "four", created_at=AT),
                        MessageRecord("five", "user", "  "),
                    ],
                )
            )
            assert isinstance(refused, Refused)
            assert "messages[1].content" in refused.reason
    rows = connection.execute("SELECT content FROM ros_messages ORDER BY created_at, seq").fetchall()
    assert [row["content"] for row in rows] == ["one", "two", "three", "four"]
    assert len(spool.dead()) == 1
    assert spool.files() == []


def test_a_spool_that_can_not_be_used_is_no_reason_to_lose_what_the_api_takes(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with CaptureClient(api.url, None, Spool(tmp_path / "file")) as client:
        assert client.write(batch("stored")) == Written(1, 0, 0)
        api.answer = lambda _: (503, {})
        with pytest.raises(SpoolError, match="nothing can be spooled"):
            client.write(batch("neither"))


def test_a_password_in_the_address_is_not_shown(spool: Spool) -> None:
    with CaptureClient(nobody().replace("//", "//ada:secret@"), None, spool) as client:
        outcome = client.write(batch("x"))
    assert isinstance(outcome, Spooled)
    assert "127.0.0.1" in outcome.reason
    assert "secret" not in outcome.reason


def test_with_redaction_no_secret_reaches_the_spool_or_the_wire(api: ScriptedApi, spool: Spool) -> None:
    secret = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6"
    deep: Any = secret
    for _ in range(3_000):
        deep = [deep]
    items = [
        MessageRecord("1", "user", "x" * 15_990 + f" {secret} " + "y" * 900_000, created_at=AT),
        MessageRecord("2", "tool", "", "T", {"deep": deep, "token": secret}, secret, created_at=AT),
    ]
    with CaptureClient(nobody(), None, spool, redact=True) as away:
        away.write(CaptureBatch(SessionRecord("s:1", "a", "c", f"use {secret}", {"k": secret}), items))
    assert not [file for file in spool.files() if b"ghp_" in file.path.read_bytes()]
    with CaptureClient(api.url, None, spool) as client:
        client.replay()
    assert api.bodies[0]["title"] == "use [redacted:github_token]"
    assert api.bodies[0]["messages"][0]["metadata"]["redacted"] == {"github_token": 1}
