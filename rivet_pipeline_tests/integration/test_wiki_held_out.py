"""Sessions that the miner's rules were not made for: a robot's firmware and a bakery, in English, Spanish, Japanese."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.read import TopicPage, list_topics, read_topic
from rivet_pipeline_tests.api_server import module_store
from rivet_pipeline_tests.wiki_sessions import BAKERY, ROBOT, store_sessions

#: What holds, what stands in the history, and what stands nowhere, by page.
SAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "Arm trajectory": (("We chose quintic splines", "never exceed 1.2 m/s"), (), ("watchdog", "gripper")),
    "Arm watchdog": (("a watchdog window of 200 ms",), (), ("gripper", "sounds like", "camera")),
    "Gripper calibration": (
        ("we drop the boot calibration", "stays at 12 N"),
        ("the gripper is calibrated at every boot", "I propose to calibrate", "Calibrate the gripper at every boot"),
        ("loose connector", "eggs", "too long for the cooks", "I noted"),
    ),
    "Order cutoff": (
        ("the order cutoff is 20:00",),
        ("the order cutoff is 18:00",),
        ("We need", "could be", "complain"),
    ),
    "Database backup of shop": (
        ("Keep 14 days of backups only", "shop-backup.timer"),
        ("kept for 30 days",),
        ("There is no backup", "half way"),
    ),
    "Pedidos duplicados": (
        ("queda sin efecto: eliminamos la clave única",),
        ("cada pedido lleva una clave única", "Propongo una clave única", "Rechaza pedidos duplicados"),
        ("impresora", "Creo que", "desde el lunes", "mañana"),
    ),
    "注文締切": (("土曜日の注文締切は21時にします",), (), ("たぶん", "早すぎる")),
}
WISHES = ("no blocking calls in the control loop", "always show prices with VAT", "siempre en español y en catalán")


@pytest.fixture(scope="module")
def held_out(server: EmbeddedServer) -> Iterator[str]:
    with module_store(server, "wiki_held_out") as url, open_pool(url, max_size=3) as pool:
        with pool.connection() as connection:
            store_sessions(connection, ROBOT + BAKERY)
        summarize_leaves(pool, days=None, summarizer=ExtractiveSummarizer())
        assert mine_leaves(pool, days=None, miner=DeterministicMiner()).failures == 0
        yield url


@pytest.fixture
def wiki(held_out: str) -> Iterator[Connection]:
    with connect(held_out) as connection:
        yield connection


def texts(found: TopicPage) -> list[str]:
    return [sentence.text for section in found.sections for sentence in section.sentences]


def test_the_pages_are_the_subjects(wiki: Connection) -> None:
    assert {topic.title for topic in list_topics(wiki)[0]} == {*SAYS, "Standing preferences"}


@pytest.mark.parametrize("title", SAYS)
def test_what_was_decided_holds_and_what_was_reversed_is_history(wiki: Connection, title: str) -> None:
    found = read_topic(wiki, title)
    assert found is not None
    holds, history, nowhere = SAYS[title]
    told, former = texts(found), [entry.sentence.text for entry in found.history]
    assert [words for words in holds if not any(words in text for text in told)] == []
    assert [words for words in history if any(words in text for text in told)] == []
    assert [words for words in history if not any(words in text for text in former)] == []
    assert [(words, text) for words in nowhere for text in told if words in text] == []


def test_what_somebody_wants_always_stands_apart(wiki: Connection) -> None:
    found = read_topic(wiki, "standing-preferences")
    assert found is not None
    assert [words for words in WISHES if not any(words in text for text in texts(found))] == []
