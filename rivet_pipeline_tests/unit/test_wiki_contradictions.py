"""Which sentences of a page a later decision ends, and which only have a word or a figure in common with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rivet_pipeline.wiki.contradictions import superseded
from rivet_pipeline.wiki.types import Bullet, claim_key

FIRST = datetime(2026, 9, 1, tzinfo=UTC)


def ends(decision: str, earlier: str) -> bool:
    """Whether the earlier sentence no longer holds after the decision."""
    said = [("facts", earlier, FIRST), ("decisions", decision, FIRST + timedelta(days=9))]
    bullets = {claim_key(text): (section, Bullet(claim_key(text), text, day, day, ())) for section, text, day in said}
    return claim_key(earlier) in superseded(bullets, ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decision", "earlier"),
    [
        ("Agreed: the pool gets 42 workers, not 30.", "Postgres keeps 30 connections open."),
        ("Agreed, restic stays, no problem.", "The problem was a stale lock of restic."),
        ("Decided: no data, once written, is lost.", "Data is kept in Postgres for a year."),
        ("We drop Python 3.9.", "The importer is written in Python and runs as a timer."),
        ("We drop Python 3.9.", "The importer needs Python 3.12 or newer."),
        ("We removed tests that flake on Windows.", "Tests run on every push to main."),
        ("We remove support for Windows builds.", "The support plan of Kelpie lasts a year."),
        ("Acordado, restic queda, sin cambios.", "Los cambios de restic van a main."),
        ("Entschieden, restic bleibt, kein Problem.", "Das Problem war ein altes Lock."),
        ("Decided: the release waits, no rush.", "The rush of orders comes at eight."),
        ("Chapter 4 is due on 20 May now, not 30 April.", "Chapter 4 has 30 pages."),
        ("Chapter 4 is due on 20 May now, not 30 April.", "Chapter 4 has 30 pages since April."),
        ("The lease ends on 20 May now, not 30 April.", "Chapter 4 is due on 30 April."),
        ("The importer keeps backups for 14 days, not 30 days.", "The importer waits 30 seconds."),
        ("The importer keeps backups for 14 days, not 30 days.", "The printer jams every 30 days."),
        ("The importer waits 20 s, not 30 s.", "The importer has 30 gauges."),
        ("The importer waits 20 s, not 30 s.", "The importer sleeps for 30 m."),
        ("Decided: the cache entry is dropped after five minutes.", "The cache entry has a key of 16 bytes."),
        ("Le contrôle du 13 mars est annulé, chaque groupe présente.", "Le contrôle du 20 mars dure une heure."),
        ("Decided: when the queue is full the oldest message is dropped.", "The oldest message carries the header."),
        ("Decided: the oldest message is dropped, if the queue is full.", "The oldest message carries the header."),
        ("Decided: after 30 days the oldest message is dropped.", "The oldest message carries the header."),
        ("Entschieden: wenn es regnet, ist die Tour gestrichen.", "Die Tour dauert vier Stunden."),
        ("Decidido: si llueve, la ruta está cancelada.", "La ruta dura cuatro horas."),
        ("The font is Inter, sans serif.", "The serif of the logo is 2 px high."),
        ("The font is Noto Sans Mono.", "The mono build of the player has 2 MB."),
    ],
)
def test_a_word_or_a_figure_in_common_ends_nothing(decision: str, earlier: str) -> None:
    assert not ends(decision, earlier)


@pytest.mark.parametrize(
    ("decision", "earlier"),
    [
        ("We drop Redis from tidewatch.", "Decision, 3 September: we put Redis in front of it."),
        ("We drop Python 3.9.", "The importer runs on Python 3.9 too."),
        ("We remove support for Windows builds.", "The nightly job has support for Windows builds."),
        ("Only ANALYZE then, no index.", "The query needs a B-tree index on the time."),
        ("Keep 14 days of backups only, not 30.", "Backups are kept for 30 days."),
        ("Redisの使用をやめます。", "Redis holds the sessions of the shop."),
        ("Redis is gone from the stack.", "Redis holds the sessions of the shop."),
        ("Chapter 4 is due on 20 May now, not 30 April.", "Lindqvist wants chapter 4 by 30 April."),
        ("Chapter 4 is due on 20 May now, not 30 April.", "The deadline of chapter 4 is 2026-04-30."),
        ("The importer keeps backups for 14 days, not 30 days.", "The importer deletes backups after 30 days."),
        ("The importer waits 20 ms, not 30 ms.", "The importer sleeps for 30ms."),
        ("The importer waits 20 s, not 30 s.", "The importer sleeps for 30 s."),
        ("The importer waits 20 s, not 30 s.", "The importer sleeps for 30s."),
        ("The goal is not 3:55 any more, it is 4:10 now.", "The goal time is 3:55."),
        ("We put PgBouncer there, and the pool size of 4 is dropped.", "I propose a pool size of 4 for each replica."),
        ("Le contrôle du 13 mars est annulé, chaque groupe présente.", "Le contrôle aura lieu le 13 mars."),
        ("After the review, the nightly export is dropped.", "The nightly export runs at 02:00."),
        ("The nightly export is dropped, after two outages.", "The nightly export runs at 02:00."),
        ("Once the review is done, the nightly export is dropped.", "The nightly export runs at 02:00."),
        ("Prendiamo la ceramica invece della resina.", "Decisione: il piatto è in resina."),
        ("Usamos views em vez de procedures.", "As procedures ficam no banco."),
        ("Wir streichen die Bewässerung um 20 Uhr.", "Die Bewässerung ist um 6 Uhr und um 20 Uhr."),
    ],
)
def test_what_rests_on_the_thing_that_goes_is_history(decision: str, earlier: str) -> None:
    assert ends(decision, earlier)


@pytest.mark.parametrize(
    ("decision", "holds"),
    [
        ("The decision of 1 September is cancelled.", False),
        ("La décision du 1 septembre a été annulée.", False),
        ("La decisione del 1 settembre è stata annullata.", False),
        ("The decision of 1 September was later cancelled.", False),
        ("We cancelled the decision of 1 September.", False),
        ("Nous avons annulé la décision du 1 septembre.", False),
        ("Décision annulée : celle du 1 septembre.", False),
        ("Décision du 1 septembre annulée.", False),
        ("Decisión cancelada, la del 1 de septiembre.", False),
        ("Cancelled: the decision of 1 September.", False),
        ("The decision of 1 September was not cancelled.", True),
        ("Decision of 1 September never cancelled.", True),
        ("Cancelled orders of 1 September are refunded.", True),
        ("La commande annulée du 1 septembre est remboursée.", True),
    ],
)
def test_what_is_said_of_cancelled_things_takes_no_decision_back(decision: str, holds: bool) -> None:
    earlier = "The shop ships on Mondays."
    said = [("decisions", earlier, FIRST), ("decisions", decision, FIRST + timedelta(days=9))]
    bullets = {claim_key(text): (section, Bullet(claim_key(text), text, day, day, ())) for section, text, day in said}
    assert (claim_key(earlier) not in superseded(bullets, ())) is holds  # type: ignore[arg-type]


@pytest.mark.parametrize("signs", ["a", "A", "move away from-", "- ", "`"])
def test_a_long_sentence_ends_nothing_by_its_length(signs: str) -> None:
    assert not ends(signs * (20_000 // len(signs)), "Redis holds the sessions of the shop.")
