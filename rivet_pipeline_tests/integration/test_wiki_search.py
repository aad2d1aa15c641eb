"""Pages by words against BM25 computed page by page from their texts."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.scoring import PROFILE, bm25_term, idf
from rivet_pipeline.wiki import search as wiki_search
from rivet_pipeline_tests.integration.wiki_rows import at

#: Words that the analyser leaves as they are, from common to rare.
WORDS = ["balok", "tamir", "dunak", "verig", "sohup", "kolim", "parun", "getob"]
WEIGHTS = [40, 25, 15, 10, 6, 3, 2, 1]

#: A page as the test knows it: title, text, when it began, and its other names.
Pages = dict[UUID, tuple[str, str, datetime, list[str]]]


def add_page(connection: Connection, pages: Pages, title: str, text: str, days: float = 0, *names: str) -> UUID:
    # As `pages.search_text` has it: the names stand first.
    text = f"{title}\n{text}"
    row = connection.execute(
        """INSERT INTO ros_wiki_topics (slug, title, search_text, status, first_at, alias_keys)
           VALUES (%s, %s, %s, 'live', %s, %s) RETURNING id""",
        [f"page-{len(pages)}", title, text, at(days), list(names)],
    ).fetchone()
    assert row is not None
    found: UUID = row["id"]
    pages[found] = title, text, at(days), list(names)
    return found


def expected(pages: Pages, query: str, begun_by: datetime | None = None) -> dict[UUID, float]:
    """BM25 with a word of the title counting three times; a page's name adds the most that a word of it alone can."""
    among = {key: page for key, page in pages.items() if begun_by is None or page[2] <= begun_by}
    lengths = {key: len(text.encode()) for key, (_, text, _, _) in among.items()}
    mean = sum(lengths.values()) / max(len(lengths), 1)
    scores: dict[UUID, float] = {}
    for word in dict.fromkeys(query.split()):
        times = {key: 2 * page[0].split().count(word) + page[1].split().count(word) for key, page in among.items()}
        df = sum(1 for tf in times.values() if tf)
        for key, tf in times.items():
            if tf:
                weight = idf(len(among), df)
                added = bm25_term(weight=weight, tf=tf, length=lengths[key], mean_length=mean)
                scores[key] = scores.get(key, 0.0) + added
    for key, page in among.items():
        if set(page[3]) & set(query.split()):
            scores[key] = scores.get(key, 0.0) + idf(len(among), 1) * (PROFILE.k1 + 1)
    return scores


@pytest.mark.parametrize("seed", range(3))
def test_pages_are_scored_by_bm25(connection: Connection, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(wiki_search, "_POOL", 1_000)
    rng, pages = random.Random(seed), Pages()
    for number in range(60):
        title = " ".join(rng.choices(WORDS, WEIGHTS, k=rng.choice([1, 1, 2, 3])))
        text = " ".join(rng.choices(WORDS, WEIGHTS, k=rng.choice([0, 1, 5, 30, 90])))
        add_page(connection, pages, title, text, rng.random() * 50, *(["getob"] if number == 9 else []))
    connection.execute("UPDATE ros_wiki_topics SET status = 'empty' WHERE slug = 'page-3'")
    pages = {key: page for number, (key, page) in enumerate(pages.items()) if number != 3}
    for number in range(30):
        query = " ".join(rng.choices(WORDS, k=rng.choice([1, 2, 4])))
        begun_by = None if number % 3 else at(rng.random() * 50)
        found, wanted = wiki_search._by_words(connection, query, begun_by), expected(pages, query, begun_by)
        assert found == pytest.approx(wanted, rel=1e-9), query
        assert list(found) == sorted(found, key=lambda key: (-found[key], key)), query


def test_how_often_and_in_how_long_a_text_decides_and_pages_alike_keep_their_order(connection: Connection) -> None:
    pages = Pages()
    short = add_page(connection, pages, "balok", "kolim")
    often = add_page(connection, pages, "tamir", "kolim kolim kolim")
    long = add_page(connection, pages, "dunak", "kolim " + "verig " * 60)
    titled = add_page(connection, pages, "kolim", "sohup sohup sohup")
    alike = [add_page(connection, pages, "parun", "getob balok tamir") for _ in range(8)]
    found = list(wiki_search._by_words(connection, "kolim", None))
    assert found.index(titled) < found.index(short)
    assert found.index(often) < found.index(short) < found.index(long)
    both = wiki_search._by_words(connection, "getob balok tamir parun", None)
    assert len({both[key] for key in alike}) == 1
    assert list(both)[:8] == sorted(alike)


def test_a_page_begun_later_is_no_document_of_an_earlier_time(connection: Connection) -> None:
    pages = Pages()
    add_page(connection, pages, "balok", "kolim", 0)
    before = wiki_search._by_words(connection, "kolim", at(1))
    for number in range(5):
        add_page(connection, pages, "tamir", "kolim " * number, 3)
    assert wiki_search._by_words(connection, "kolim", at(3) - timedelta(hours=1)) == before
