"""When two sentences say the same, and when one may correct the other."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from rivet_pipeline.wiki.extract import _is_new
from rivet_pipeline.wiki.refusals import says_the_same, worded_alike
from rivet_pipeline.wiki.types import Claim

SAID = "The importer listens on port 8437 of the host."


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (SAID.upper(), True),
        ("Port 8437 of the host is where the importer is listening", True),
        ("The importer listens on port 9000 of the host.", False),
        ("The importer does not listen on port 8437 of the host.", False),
        ("The importer doesn\u2019t listen on port 8437 of the host.", False),
        ("The gateway listens on port 8437 of the router.", False),
        ("The importer listens on port 8437 of the host for readings of every gauge along the river.", False),
        ("Always the importer is listening on port 8437 of the host.", True),
    ],
)
def test_sentences_that_say_the_same(other: str, same: bool) -> None:
    assert says_the_same(SAID, other) is same
    assert says_the_same(other, SAID) is same


def test_a_sentence_of_two_words_is_compared_word_by_word_only() -> None:
    assert not says_the_same("It polls gauges", "It polls gauges!")


@pytest.mark.parametrize(
    ("said", "corrected"),
    [
        (
            "The nightly invoice copy of the Hamburg office server writes to Postgres",
            "The nightly invoice copy of the Hamburg office server writes to MySQL",
        ),
        (
            "The nightly mirror of the Hamburg archive server is enabled for every guest",
            "The nightly mirror of the Hamburg archive server is disabled for every guest",
        ),
        ("The invoice store moved from SQLite to Postgres", "The invoice store moved from Postgres to SQLite"),
        ("The invoice store moved from SQLite to Postgres", "The invoice store moved from Postgres back to SQLite"),
        ("The import limit of gauges was raised from 30 to 45", "The import limit of gauges was raised from 45 to 30"),
    ],
)
def test_a_correction_is_not_the_sentence_that_it_corrects(said: str, corrected: str) -> None:
    assert not says_the_same(said, corrected)
    assert not says_the_same(corrected, said)
    assert says_the_same(said, f"{said}!")


@pytest.mark.parametrize(
    ("said", "again", "alike"),
    [
        ("Migrations run before the deploy step", "Migrations run after the deploy step", False),
        ("The nightly export of invoices is on", "The nightly export of invoices is off", False),
        ("All invoices of the shop are printed", "Some invoices of the shop are printed", False),
        ("The shop writes its invoices to Postgres", "The shop writes its invoices to Postgres nightly", False),
        ("The shop sends transactions to Postgres", "The shop sends transports to Postgres", False),
        ("The parser of the shop is written in C", "The parser of the shop is written in C++", False),
        ("The shop keeps type A invoices", "The shop keeps type invoices", False),
        ("The shop writes the invoices to Postgres", "A shop writes invoice to `Postgres`.", True),
    ],
)
def test_a_sentence_is_worded_as_another_where_no_word_could_change_it(said: str, again: str, alike: bool) -> None:
    assert worded_alike(said, again) is alike
    assert worded_alike(again, said) is alike


def test_a_wording_that_replaces_more_than_the_accepted_one_is_new() -> None:
    noon, older = datetime(2026, 3, 2, 12, tzinfo=UTC), uuid4()
    accepted = Claim("facts", "The shop writes the invoices to Postgres", noon)
    again = Claim("facts", "The shop writes invoices to Postgres", noon, replaces=(older,))
    assert _is_new(again, {accepted.key: accepted})
    accepted = Claim("facts", accepted.text, noon, replaces=(older,))
    assert not _is_new(again, {accepted.key: accepted})
