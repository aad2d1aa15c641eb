"""Other lives in six languages, by which rules were mended: pages, history, wishes, and tags against a gold list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.tags.keyphrases import KeyphraseTagger
from rivet_pipeline.wiki.quality import oversized_pages, uncited_sentences, unlike_their_patches
from rivet_pipeline.wiki.read import list_topics, read_topic
from rivet_pipeline_tests.integration.tagging import rows, tag_all
from rivet_pipeline_tests.integration.wiki_pages import Says, check_page, mined, texts
from rivet_pipeline_tests.wiki_sessions_abroad import ABROAD

#: What holds, what stands in the history, and what stands nowhere on the page, by title.
SAYS: dict[str, Says] = {
    "API de facturas": (
        ("seguimos con Flask hasta septiembre", "tarda ahora 140 ms"),
        (),
        ("Impresionante", "Tenemos", "migrarla"),
    ),
    # The second session replaces what the first one has decided, under another title.
    "Checkout outage": (
        ("Root cause: commit a91c0de", "PgBouncer in front of the checkout database", "a review by the platform team"),
        ("lowering the pool size of checkout to 4",),
        ("Probably", "went from 180", "OK then"),
    ),
    "DATEV-Export": (
        ("nur freigegebene Stunden", "muss fünfstellig sein"),
        (),
        # He agreed to an export, and not to this one.
        ("per Cronjob", "Viertelstunden", "Einverstanden"),
    ),
    "File d'attente": (
        ("SKIP LOCKED", "cinq tentatives, et les échecs sont gardés trente jours"),
        (),
        ("Je pense", "quatre secondes"),
    ),
    "Kleingarten": (
        ("eine Tropfbewässerung mit einer Tauchpumpe", "Wir streichen die Bewässerung um 20 Uhr"),
        ("um 6 Uhr und um 20 Uhr",),
        ("leer", "Baumarkt"),
    ),
    "Migração do banco de dados": (
        ("Recomendo usar o pgloader", "a migração para Postgres 16 acontece no dia 21 de março"),
        (),
        ("ainda este mês", "Precisamos"),
    ),
    "Révolution française": (
        ("deux séances sur la Terreur", "chaque groupe présente un personnage", "compte 20 points"),
        ("le contrôle sur la Révolution aura lieu le 13 mars",),
        ("trop court", "cette grille", "Bonjour"),
    ),
    "Ristrutturazione del bagno": (
        ("piastrelle grandi e chiare", "Prendiamo il piatto in ceramica"),
        ("una doccia 80x120 con il piatto in resina",),
        ("forse", "troppo alto"),
    ),
    "Training plan for Hamburg marathon": (
        ("the goal time for Hamburg is 4:10 now", "one Maurten gel every 8 km", "Let's cut the taper"),
        ("goal time is 3:55", "I suggest four runs a week"),
        ("hurts", "Great choice", "talk next week"),
    ),
    "経費精算アプリの通知": (
        ("毎朝9時にSlackで送り", "10万円以上"),
        (),
        ("誰も読んでいません", "slack.yml"),
    ),
}
WISHES = (
    "A partir de agora, nada de SQL direto",
    "Ab jetzt bitte Commit-Nachrichten immer auf Deutsch",
    "D'ora in poi scrivimi sempre i prezzi",
    "Désormais, les messages de commit en anglais",
    "los importes siempre con Decimal",
    "vouvoyez les élèves",
    "今後、返答は敬語で",
)


@pytest.fixture(scope="module")
def abroad(server: EmbeddedServer) -> Iterator[str]:
    with mined(server, "wiki_abroad", tuple(told.session for told in ABROAD)) as url:
        with open_pool(url, max_size=2) as pool:
            assert tag_all(pool, KeyphraseTagger()).dropped == 0
        yield url


@pytest.fixture
def wiki(abroad: str) -> Iterator[Connection]:
    with connect(abroad) as connection:
        yield connection


def test_there_is_a_page_for_each_subject_and_no_other(wiki: Connection) -> None:
    assert {topic.title for topic in list_topics(wiki)[0]} == {*SAYS, "Standing preferences"}


@pytest.mark.parametrize("title", SAYS)
def test_a_page_says_what_holds_and_what_was_replaced_is_history(wiki: Connection, title: str) -> None:
    check_page(wiki, title, SAYS[title])


def test_what_is_wanted_from_now_on_stands_apart_and_a_decision_does_not(wiki: Connection) -> None:
    found = read_topic(wiki, "standing-preferences")
    assert found is not None
    wanted = texts(found)
    assert [words for words in WISHES if not any(words in text for text in wanted)] == []
    assert not any("review by the platform team" in text for text in wanted)


def test_every_sentence_is_cited_and_every_page_is_what_its_patches_make(wiki: Connection) -> None:
    for question in (uncited_sentences, unlike_their_patches, oversized_pages):
        assert question(wiki).at_fault == 0


def test_the_tags_are_those_that_a_person_expects(wiki: Connection) -> None:
    found: dict[str, set[str]] = {}
    for row in rows(
        wiki,
        """SELECT c.title, t.tag_key || ':' || t.tag_value AS tag FROM ros_tags AS t
           JOIN ros_conversations AS c ON c.id = t.conversation_id
           WHERE t.entity_kind = 'conversation' AND t.tag_key IN ('project', 'topic')""",
    ):
        found.setdefault(row["title"], set()).add(row["tag"])
    wrong, missed, right, wanted = [], [], 0, 0
    for told in ABROAD:
        tags = found[told.session.title]
        groups = [{f"topic:{value}" for value in group} for group in told.expected]
        groups.append({f"project:{told.session.folder}"})
        fine = set[str]().union(*groups, (f"topic:{value}" for value in told.also))
        wrong += [(told.session.title, tag) for tag in sorted(tags - fine)]
        missed += [(told.session.title, min(group)) for group in groups if not group & tags]
        right, wanted = right + len(tags & fine), wanted + len(groups)
    assert right / (right + len(wrong)) >= 0.9, wrong
    assert (wanted - len(missed)) / wanted >= 0.7, missed
