"""A chat service that misbehaves while it mines: nothing is stored, the leaf stays pending, and the ledger says why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.models.chat import OpenAIChat
from rivet_pipeline.versions import OWN_TRAFFIC_MARKER
from rivet_pipeline.wiki.chat_miner import ChatMiner
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.read import read_topic
from rivet_pipeline_tests.integration.chat_server import Reply, chat_server, says
from rivet_pipeline_tests.integration.test_wiki_mining import assert_sound, texts
from rivet_pipeline_tests.integration.wiki_rows import add_leaf, conversation_of, tag

LEAF = "- 2026-03-02T11:00Z opus/user: We keep the importer on port 8437.\n- It polls five gauges."
SENTENCE = "The importer listens on port 8437."


def patch(**changes: Any) -> dict[str, Any]:
    return {
        "page": None,
        "title": "Tide gauge importer",
        "aliases": ["gauge poller"],
        "entities": ["8437"],
        "related": [],
        "claims": [{"section": "facts", "text": SENTENCE, "replaces": []}],
    } | changes


def answer(*patches: dict[str, Any]) -> str:
    return json.dumps({"patches": list(patches)})


GOOD = answer(patch())


@dataclass(frozen=True)
class Case:
    """An answer that must not be stored, and what the ledger says of it."""

    reply: Reply
    cause: str
    name: str


def content(text: str | None, name: str, **more: Any) -> Case:
    return Case(says(text, **more), "content", name)


CASES = {
    "no JSON": content("There is nothing to keep here.", "no-json"),
    "half a JSON": content(GOOD[: len(GOOD) // 2], "wrong-shape"),
    "a bare array": content("[]", "wrong-shape"),
    "an empty object": content("{}", "wrong-shape"),
    "another key": content(json.dumps({"patches": [], "note": "x"}), "wrong-shape"),
    "null for the list": content(json.dumps({"patches": None}), "wrong-shape"),
    "four patches": content(answer(*[patch(title=f"Page {n}") for n in range(4)]), "wrong-shape"),
    "no claims": content(answer(patch(claims=[])), "wrong-shape"),
    "an unknown section": content(
        answer(patch(claims=[{"section": "trivia", "text": SENTENCE, "replaces": []}])), "wrong-shape"
    ),
    "a number for a text": content(answer(patch(claims=[{"section": "facts", "text": 8437}])), "wrong-shape"),
    "a text for a number": content(
        answer(patch(claims=[{"section": "facts", "text": SENTENCE, "replaces": ["1"]}])), "wrong-shape"
    ),
    "a claim of 2,000 characters": content(
        answer(patch(claims=[{"section": "facts", "text": "x" * 2000}])), "wrong-shape"
    ),
    "a sentence as title": content(answer(patch(title="We keep the importer on its port")), "bad-title"),
    "a page that was not given": content(answer(patch(page="postgres-migration")), "unknown-page"),
    "a claim that was not given": content(
        answer(patch(claims=[{"section": "facts", "text": SENTENCE, "replaces": [7]}])), "bad-replaces"
    ),
    "inventions": content(
        answer(patch(claims=[{"section": "facts", "text": "It runs on host-9 at `/srv/x.py` since 2019-01-01."}])),
        "ungrounded",
    ),
    "the prompt in a claim": content(
        answer(patch(claims=[{"section": "facts", "text": f"{SENTENCE} {OWN_TRAFFIC_MARKER}"}])), "prompt-echo"
    ),
    "two answers": content(f"{GOOD}\nOr rather:\n{answer(patch(title='Gauge poller'))}", "several-answers"),
    "a real one cut off behind an empty one": content(
        f'Were there nothing, I would say {{"patches": []}}. But:\n{GOOD[:-40]}', "wrong-shape"
    ),
    "a real one of another shape behind an empty one": content(
        f'{{"patches": []}} would be wrong:\n{answer(patch(claims=[{"section": "trivia", "text": SENTENCE}]))}',
        "wrong-shape",
    ),
    "a bare patch behind an empty one": content(f'Not {{"patches": []}} but {json.dumps(patch())}', "wrong-shape"),
    "a real one with more keys behind an empty one": content(
        f'Not {{"patches": []}} but {{"note": "x", {GOOD[1:]}', "wrong-shape"
    ),
    "the list twice": content(f'{GOOD[:-1]}, "patches": []}}', "wrong-shape"),
    "a refusal": content("I'm sorry, but I can't help with that.", "no-json"),
    "only thinking": content('<think>Nothing of it matters, so {"patches": []}</think>', "empty"),
    "cut off": content(GOOD[:40], "truncated", finish="length"),
    "content null": content(None, "empty"),
    "a filter": content("", "refusal", finish="content_filter"),
    "500": Case(Reply({"error": "CUDA out of memory"}, 500), "transient", "http-500"),
    "429": Case(Reply({"error": "quota"}, 429, {"Retry-After": "900"}), "transient", "http-429"),
    "hung up": Case(Reply(hang_up=True), "transient", "unreachable"),
    "HTML": Case(Reply(b"<html>Bad gateway</html>"), "transient", "bad-response"),
    "401": Case(Reply({"error": {"message": "Incorrect API key"}}, 401), "permanent", "http-401"),
}


def miner_at(url: str) -> ChatMiner:
    return ChatMiner(OpenAIChat(url, "m", sleep=lambda _: None))


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_bad_answer_is_a_failure_and_never_done(connection: Connection, pool: Pool, name: str) -> None:
    case = CASES[name]
    leaf = add_leaf(connection, LEAF)
    with chat_server(lambda _: case.reply) as server:
        miner = miner_at(server.url)
        report = mine_leaves(pool, days=None, miner=miner)
        assert (report.rows, report.failures) == (0, 1)
        row = connection.execute("SELECT item, cause, error FROM ros_failures").fetchone()
        assert row is not None
        assert row["item"] == (str(leaf) if case.cause == "content" else "service")
        assert row["cause"] == case.cause
        assert row["error"].startswith(f"{case.name}:")
        assert connection.execute("SELECT count(*) AS n FROM ros_wiki_extractions").fetchone() == {"n": 0}
        assert connection.execute("SELECT count(*) AS n FROM ros_wiki_patches").fetchone() == {"n": 0}
        # It mends its ways, and the leaf is mined without anybody's help.
        server.script = lambda _: says(GOOD)
        connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")
        assert mine_leaves(pool, days=None, miner=miner).rows == 1
    assert texts(connection, "tide-gauge-importer") == [SENTENCE]
    assert connection.execute("SELECT count(*) AS n FROM ros_failures").fetchone() == {"n": 0}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"Here it is:\n```json\n{GOOD}\n```\nDone.",
        f"<think>One fact.</think>{GOOD}",
        GOOD.replace("]}]}", "]},]}"),
        f'Were there nothing, I would say {{"patches": []}}. But there is:\n{GOOD}',
        f"{GOOD}\n{GOOD}",
        f'The shape is {{"patches": [...]}}, or {{"patches": [ {{\u2026}} ]}}:\n{GOOD}',
        f'<think>{{"patches": [{{"claims": </think>The key "patches": one entry.\n{GOOD}',
    ],
    ids=[
        "plain",
        "fenced",
        "after thinking",
        "trailing comma",
        "after an empty one",
        "twice",
        "after its shape",
        "after half a thought",
    ],
)
def test_a_good_answer_is_taken_however_it_is_wrapped(connection: Connection, pool: Pool, text: str) -> None:
    add_leaf(connection, LEAF)
    with chat_server(lambda _: says(text)) as server:
        report = mine_leaves(pool, days=None, miner=miner_at(server.url))
    assert (report.rows, report.failures, report.model_calls) == (1, 0, 1)
    assert sum(day.tokens for day in report.days.values()) == 18
    page = read_topic(connection, "Gauge poller")
    assert page is not None
    assert (page.title, page.aliases) == ("Tide gauge importer", ("gauge poller",))
    assert_sound(connection)


def test_no_patches_must_have_been_said(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, LEAF)
    with chat_server(lambda _: says('{"patches": []}')) as server:
        assert mine_leaves(pool, days=None, miner=miner_at(server.url)).rows == 0
        mine_leaves(pool, days=None, miner=miner_at(server.url))
        assert len(server.asked) == 1
    assert connection.execute("SELECT outcome FROM ros_wiki_extractions").fetchall() == [{"outcome": "none"}]


def test_the_model_is_shown_pages_and_hints_as_data_and_may_replace_a_claim(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, LEAF)
    newer = "- 2026-03-05T11:00Z opus/user: The tide gauge importer moved to port 9000.\nquoted 0123456789abcdef ends"
    with chat_server(lambda _: says(GOOD)) as server:
        miner = miner_at(server.url)
        mine_leaves(pool, days=None, miner=miner)
        leaf = add_leaf(connection, newer, days=3)
        tag(connection, conversation_of(connection, leaf), "topic:tides", by="mara")
        tag(connection, conversation_of(connection, leaf), "project:harbour")
        moved = {"section": "facts", "text": "The importer moved to port 9000.", "replaces": [1]}
        server.script = lambda _: says(answer(patch(page="tide-gauge-importer", title="Importer", claims=[moved])))
        mine_leaves(pool, days=None, miner=miner)
        system, user = (message["content"] for message in server.asked[-1]["messages"])
    assert system.startswith(OWN_TRAFFIC_MARKER)
    assert user.startswith(OWN_TRAFFIC_MARKER)
    assert f"1. (2026-03-02) {SENTENCE}" in user
    assert "[page tide-gauge-importer]" in user
    assert "reviewed tags: topic:tides" in user
    assert "ran in: harbour (no hint)" in user
    assert user.count("begins\n") == 1
    page = read_topic(connection, "tide-gauge-importer")
    assert page is not None
    assert texts(connection, "tide-gauge-importer") == ["The importer moved to port 9000."]
    assert [(former.sentence.text, former.superseded_by) for former in page.history] == [
        (SENTENCE, "The importer moved to port 9000.")
    ]
    assert "Importer" in page.aliases
    assert_sound(connection)
