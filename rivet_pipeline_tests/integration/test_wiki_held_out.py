"""Sessions that the miner's rules were not made for: a robot's firmware and a bakery, in English, Spanish, Japanese."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.wiki.read import list_topics, read_topic
from rivet_pipeline_tests.integration.wiki_pages import check_page, mined, texts
from rivet_pipeline_tests.wiki_sessions import BAKERY, ROBOT

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
    with mined(server, "wiki_held_out", ROBOT + BAKERY) as url:
        yield url


@pytest.fixture
def wiki(held_out: str) -> Iterator[Connection]:
    with connect(held_out) as connection:
        yield connection


def test_the_pages_are_the_subjects(wiki: Connection) -> None:
    assert {topic.title for topic in list_topics(wiki)[0]} == {*SAYS, "Standing preferences"}


@pytest.mark.parametrize("title", SAYS)
def test_what_was_decided_holds_and_what_was_reversed_is_history(wiki: Connection, title: str) -> None:
    check_page(wiki, title, SAYS[title])


def test_what_somebody_wants_always_stands_apart(wiki: Connection) -> None:
    found = read_topic(wiki, "standing-preferences")
    assert found is not None
    assert [words for words in WISHES if not any(words in text for text in texts(found))] == []
