"""How subjects are named: addresses, comparison, what may be a title, and what a session is about."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.wiki.markdown import note_name
from rivet_pipeline.wiki.names import (
    LONGEST_SLUG,
    fold,
    is_subject,
    names_another_number,
    numbered_apart,
    slugify,
    tidy_title,
    title_terms,
)
from rivet_pipeline.wiki.subjects import subject_of

SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Receipt scanner", "receipt-scanner"),
        ("Deployment to fly", "deployment-to-fly"),
        ("getUserById", "get-user-by-id"),
        ("Straße nach Łódź", "strasse-nach-lodz"),
        ("../../etc/passwd", "etc-passwd"),
        ("C++ / C#", "c-c"),
    ],
)
def test_a_title_becomes_an_address(title: str, slug: str) -> None:
    assert slugify(title) == slug


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_every_title_has_an_address_that_is_safe_as_a_file(title: str) -> None:
    slug = slugify(title)
    assert SLUG.fullmatch(slug)
    assert len(slug) <= LONGEST_SLUG
    assert slugify(slug) == slug
    assert "/" not in note_name(slug)


def test_titles_without_latin_letters_have_addresses_of_their_own() -> None:
    assert slugify("潮位メモ") != slugify("部署方案")
    assert slugify("潮位メモ") == slugify("潮位メモ")


def test_two_long_titles_with_one_beginning_have_two_addresses() -> None:
    assert slugify("x" * 100 + " one") != slugify("x" * 100 + " two")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Fly.io deploys", "fly io deploy"),
        ("café", "Cafe\u0301"),
        ("Storage-Boxes", "storage box"),
        ("\uff21\uff30\uff29", "api"),
    ],
)
def test_names_that_mean_the_same_are_folded_alike(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    "title", ["Receipt scanner", "Deployment to fly", "CI on tidewatch", "kelpie", "潮位メモ", "Postgres 17"]
)
def test_subjects_can_be_titles(title: str) -> None:
    assert is_subject(title)


@pytest.mark.parametrize(
    "title",
    [
        "We moved the sessions to Postgres",
        "The importer is slow.",
        "Fix the importer, please",
        "Why does it fail?",
        "Two\nlines",
        "a b c d e f g h i",
        "x" * 200,
        "...",
        "",
        "This session was about ports",
    ],
)
def test_sentences_can_not(title: str) -> None:
    assert not is_subject(title)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("Chapter 3", "Chapter 4", True),
        ("Gauge TG-04", "Gauge TG-07", True),
        ("Kelpie 0.10.0", "Kelpie 0.11", True),
        ("Double booking of berth N7", "Leak at berth N9", True),
        ("Week 03", "Week 3", False),
        ("Chapter 3", "Chapter", False),
        ("Postgres 15 to 17", "Postgres 17", False),
        ("Release v2.1", "Release 2.1", False),
        ("Gauge TG-04", "Gauge TG04", False),
        ("Gauge TG-04", "Gauge TG 4", False),
        ("Section 3a", "Section 3b", True),
        ("Backup of node01", "Backup of node02", True),
        ("Backup of node01", "Backup of node 1", False),
        ("Berth N7", "Berth S7", True),
        ("Deadline of chapter-3", "Deadline of chapter 3", False),
    ],
)
def test_things_of_different_numbers_are_different_things(one: str, other: str, apart: bool) -> None:
    assert numbered_apart(one, other) is apart
    assert numbered_apart(other, one) is apart


@pytest.mark.parametrize(
    ("text", "title", "other"),
    [
        ("Lindqvist wants chapter 4 by 30 April.", "Chapter 3", True),
        ("Chapters 3 and chapter 4 share a table.", "Chapter 4", False),
        ("The panel has 31 towns.", "Chapter 3", False),
        ("kelpie 0.11: keep both copies.", "Kelpie 0.10.0", True),
        ("kelpie 0.11.2 fixes the upload.", "Kelpie 0.11", False),
        ("Decision: retry limit 8, because the quay is slow.", "Retry limit 5", False),
        ("Decision: retry limit 0.8 s.", "Retry limit 0.5", False),
        ("Chapters 3 and 4 share a table.", "Chapter 4", False),
        ("Chapters 2, 3 and 4 share a table.", "Chapter 4", False),
        ("Chapters 3 to 6 share a table.", "Chapter 5", False),
        ("Chapters 3 and 4 share a table.", "Chapter 6", True),
        ("Section 3b is too long.", "Section 3a", True),
        ("node02 has a new disk.", "Backup of node01", True),
        ("Chapter 3, 4 tables of it, has the old estimator.", "Chapter 4", True),
        ("Chapter 3 - 20 pages - has the old estimator.", "Chapter 5", True),
        ("Chapter 3 \u2013 20 pages \u2013 has the old estimator.", "Chapter 5", True),
        ("Chapters 2, 3, and 4 share a table.", "Chapter 4", False),
        ("Chapters 3-6 share a table.", "Chapter 5", False),
        ("Chapters 1-3, 5 and 7 share a table.", "Chapter 2", False),
        ("Chapters 1-3, 5 and 7 share a table.", "Chapter 7", False),
        ("Each stage 30s long has its own log.", "Stage 2", False),
        ("We run 5k jobs a night.", "Run 3", False),
        ("Section 3b is too long.", "Section 3", False),
        ("Section 3 is too long.", "Section 3b", False),
        ("Section 30 is too long.", "Section 3b", True),
    ],
)
def test_a_sentence_about_another_number_is_not_about_this_one(text: str, title: str, other: bool) -> None:
    assert names_another_number(text, title) is other


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("Chapter 3: which estimator", "Chapter 3"),
        ("Chapter 4 outline, deadlines", "Chapter 4"),
        ("Deadline for chapter 4 moved", "Deadline for chapter 4"),
        ("Menu for Opa's 80th birthday, 24 guests", "Menu for Opa's 80th birthday"),
        ("Bed 2: slugs ate the beans", "Bed 2"),
        ("Restoring tables 15: slow", "Restoring tables"),
        ("Redis for predictions", "Redis"),
    ],
)
def test_what_tells_a_thing_from_its_like_is_part_of_its_name(title: str, subject: str) -> None:
    found = subject_of(title, "We put Redis in front. The chapter has a deadline.")
    assert found is not None
    assert found[0] == subject


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("Tide gauge importer: service, port and house rules", "Tide gauge importer"),
        ("The prediction endpoint is too slow for the quay displays", "Prediction endpoint"),
        ("Nightly restic backup on brine stopped silently", "Nightly restic backup"),
        ("CI on tidewatch is red every third run", "CI on tidewatch"),
        ("Double booking of berth N7: exclusion constraint", "Double booking of berth N7"),
        ("Dropping Redis: predictions move into Postgres", "predictions"),
        ("kelpie 0.10.0: SQLite manifest and release", "kelpie"),
        ("Migration day: tidewatch moves from Postgres 15 to 17", "Postgres migration"),
        ("Gauge TG-04 in Tangholm was offline from 2 to 4 October", "Gauge TG-04"),
        ("Haruka reports from her Mac that Kelpie uploads notes.md again", "Kelpie"),
        ("Morgenbericht für das Hafenbüro", "Morgenbericht"),
        ("Fix the receipt scanner", "Receipt scanner"),
        ("Add dark mode to the settings page", "Dark mode"),
        ("Deployment to fly", "Deployment to fly"),
        ("Order cutoff for next-day bread", "Order cutoff"),
        ("Pedidos duplicados en la web de la panadería", "Pedidos duplicados"),
        ("Copia de seguridad de la tienda", "Copia de seguridad"),
        ("注文締切の変更", "注文締切"),
        # An order or an infinitive, and what it is done to.
        ("Build a sortable data table in React", "Sortable data table"),
        ("Use the Spinner instead of the inlined custom spinner", "Spinner"),
        ("Migrar la API de facturas a FastAPI", "API de facturas"),
        ("Migração do banco de dados para Postgres 16", "Migração do banco de dados"),
        # What a plan, a lesson or a choice is for, about or of.
        ("Training plan for the Hamburg marathon", "Training plan for Hamburg marathon"),
        ("Incident review: checkout outage on 4 May", "checkout outage"),
        ("Préparer le cours sur la Révolution française", "Révolution française"),
        ("Choix de la file d'attente pour les e-mails", "File d'attente"),
        ("DATEV-Export der Zeiterfassung", "DATEV-Export"),
        ("Corriger les doublons dans l'import des adhérents", "Doublons dans l'import"),
        ("La app de turnos no envía recordatorios", "app de turnos"),
        # The "do" of a question is no Portuguese one, and an article with a capital or a name in capitals is none.
        ("How do backups work on the NAS", "backups"),
        ("How do restic backups work on the NAS", "restic backups"),
        ("Why du shows more than zpool", "zpool"),
        ("Relatório do mês para o cliente", "Relatório do mês"),
        ("Series A funding", "Series"),
        ("Hepatitis A vaccine", "Hepatitis"),
        ("Route Las Palmas", "Route"),
        ("DI container for the importer", "DI container"),
        ("To-do list of the team", "To-do list of team"),
        ("What do.py in the importer is", "do.py"),
        # Where all is in capitals they tell no name.
        ("LES SAUVEGARDES ET LES JOURNAUX", "SAUVEGARDES"),
        ("MIGRAR LA API DE FACTURAS", "API DE FACTURAS"),
        ("DI", "DI"),
        # A Japanese title's subject is what its mark of a case stands behind.
        ("経費精算アプリの通知をメールからSlackに変更", "経費精算アプリの通知"),
    ],
)
def test_a_session_is_about_the_first_thing_that_its_title_names(title: str, subject: str) -> None:
    found = subject_of(title, "")
    assert found is not None
    assert found[0] == tidy_title(subject)


@pytest.mark.parametrize(
    ("title", "body"),
    [
        ("run the build for this workspace and tell me if it compiles", "The build works."),
        ('ntfy woke me: "tank is DEGRADED". Please look', "The tank is degraded."),
        ("alright, read it in full", "alright"),
        ("Search if claude can use the web", "A search was started."),
    ],
)
def test_one_common_word_of_a_sentence_is_no_subject(title: str, body: str) -> None:
    assert subject_of(title, body) is None


def test_names_in_capitals_and_things_of_other_languages_carry_a_title() -> None:
    assert title_terms("CA of heron") == ["ca", "heron"]
    assert title_terms("ca of heron") == ["ca", "heron"]
    assert title_terms("DI") == ["di"]
    assert title_terms("Hay prices") == ["hay", "price"]
    assert title_terms("LES SAUVEGARDES ET LES JOURNAUX") == ["sauvegarde", "journaux"]
    assert title_terms("Ça marche dans les tests") == ["marche", "test"]
    assert title_terms("Doublons di Redis") == ["doublon", "redis"]


def test_a_common_word_before_a_colon_and_a_name_are_subjects() -> None:
    for title, body, subject in [
        ("Sourdough again: summer schedule", "The sourdough rose.", "Sourdough"),
        ("start phoenix in background", "The Phoenix server runs, says Phoenix.", "phoenix"),
    ]:
        found = subject_of(title, body)
        assert found is not None
        assert found[0] == subject


@pytest.mark.parametrize("title", ["", "Hello", "please look at this", "12 34", "???", "and then we did it again"])
def test_a_title_that_names_nothing_gives_no_subject(title: str) -> None:
    assert subject_of(title, "") is None


@pytest.mark.parametrize(
    ("title", "names", "subject"),
    [
        ("kelpie 0.10.0: SQLite manifest and release", (), "kelpie 0.10.0"),
        ("Haruka reports from her Mac that kelpie uploads notes.md again", ("notes.md", "NFC"), "kelpie NFC"),
        ("Haruka reports from her Mac that kelpie uploads notes.md again", (), None),
        ("kelpie push: resets", ("MTU",), "kelpie push"),
    ],
)
def test_all_of_a_project_is_no_subject(title: str, names: tuple[str, ...], subject: str | None) -> None:
    found = subject_of(title, "", ["kelpie"], names)
    assert (found[0] if found else None) == (subject and tidy_title(subject))


def test_the_directory_only_breaks_a_tie() -> None:
    assert subject_of("Haruka says alpha, beta", "", ["beta"]) is not None
    first = subject_of("alpha and beta", "alpha", ["beta"])
    assert first is not None
    assert first[0] == "alpha"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_title_is_read_without_an_error_and_gives_a_subject_or_none(title: str) -> None:
    found = subject_of(title, title)
    assert found is None or is_subject(tidy_title(found[0]))
