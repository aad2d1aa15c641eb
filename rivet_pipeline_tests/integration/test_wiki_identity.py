"""Which page a proposal is about: address, redirect, other name, shared names by rarity, a search with a margin."""

from __future__ import annotations

from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.wiki.identity import Identity, resolve
from rivet_pipeline.wiki.review import decide
from rivet_pipeline.wiki.types import PatchDraft
from rivet_pipeline_tests.integration.wiki_rows import add_leaf, draft, mine

FILLERS = "\n".join(
    f"Filler {word} | A sentence about {word} | @{word}" for word in ("ovens", "lamps", "chairs", "rugs")
)


def pages(connection: Connection, pool: Pool, *lines: str) -> None:
    for place, line in enumerate((*lines, *FILLERS.splitlines())):
        add_leaf(connection, line, days=place)
    mine(pool)


def found(connection: Connection, wanted: PatchDraft, *ran_in: str) -> tuple[str | None, Identity]:
    """The slug of the page that a draft is about, and how that was found."""
    identity = resolve(connection, wanted, ran_in)
    row = connection.execute("SELECT slug FROM ros_wiki_topics WHERE id = %s", [identity.topic_id]).fetchone()
    return (row["slug"] if row else None), identity


def test_the_same_address_is_the_same_page(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Receipt scanner | It reads receipts")
    slug, identity = found(connection, draft("receipt-scanner", "x"))
    assert (slug, identity.decision) == ("receipt-scanner", "slug")
    assert "has this address" in identity.reason


def test_a_redirect_leads_to_the_page_that_took_over(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Alpha service | It runs | @alpha", "Beta service | It runs too | @beta")
    ids = {row["slug"]: row["id"] for row in connection.execute("SELECT id, slug FROM ros_wiki_topics")}
    merge(connection, ids["alpha-service"], ids["beta-service"])
    slug, identity = found(connection, draft("Beta service", "x"))
    assert (slug, identity.decision) == ("alpha-service", "redirect")


def merge_proposal(connection: Connection, kept: UUID, gone: UUID) -> UUID:
    row = connection.execute(
        """
        INSERT INTO ros_wiki_patches (kind, status, topic_id, other_id, title, payload, content_hash, decision, reason,
                                      as_of, model, pipeline_version)
        VALUES ('merge', 'proposed', %s, %s, 'm', '{}', gen_random_uuid(), 'consolidation', 'a test', now(), 't', 4)
        RETURNING id
        """,
        [kept, gone],
    ).fetchone()
    assert row is not None
    patch: UUID = row["id"]
    return patch


def merge(connection: Connection, kept: UUID, gone: UUID) -> UUID:
    patch = merge_proposal(connection, kept, gone)
    (outcome,) = decide(connection, [patch], "accept", by="mara")
    assert outcome.problem is None
    return patch


def test_another_name_of_a_page_finds_it_and_a_name_of_two_pages_none(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Receipt scanner | It reads receipts", "Bill reader | It reads bills")
    connection.execute("UPDATE ros_wiki_topics SET alias_keys = alias_keys || '{till roll,ocr}'::text[]")
    connection.execute(
        "UPDATE ros_wiki_topics SET alias_keys = array_remove(alias_keys, 'ocr') WHERE slug <> 'bill-reader'"
    )
    assert found(connection, draft("OCR", "x"))[0] == "bill-reader"
    assert found(connection, draft("OCR", "x"))[1].decision == "alias"
    assert found(connection, draft("Till rolls", "x"))[0] is None
    assert found(connection, draft("Kassenbon", "x", aliases=["Receipt scanners"]))[0] == "receipt-scanner"


def test_two_shared_names_are_the_same_page_and_one_common_name_is_not(connection: Connection, pool: Pool) -> None:
    pages(
        connection,
        pool,
        "Prediction endpoint | It was slow | @Redis | @PR #41",
        *(f"Service {word} | It runs on brine | @brine | @{word}" for word in ("one", "two", "three", "four", "five")),
    )
    slug, identity = found(connection, draft("Redis", "x", entities=["PR #41", "brine"]))
    assert (slug, identity.decision) == ("prediction-endpoint", "entities")
    assert "redis" in identity.reason
    assert found(connection, draft("Boiler", "x", entities=["brine"]))[1].decision == "new"


@pytest.mark.parametrize(("name", "same"), [("wg0.conf", True), ("wireguard", False)])
def test_one_shared_name_is_enough_only_when_it_names_one_thing(
    connection: Connection, pool: Pool, name: str, same: bool
) -> None:
    pages(connection, pool, f"{name} | It was too large | @mtu")
    slug, identity = found(connection, draft("Tunnel", "x", entities=[name]))
    assert (slug is not None) == same
    assert identity.decision == ("entities" if same else "new")


def test_a_word_of_one_title_that_the_other_page_speaks_of_tells_that_they_are_one(
    connection: Connection, pool: Pool
) -> None:
    pages(connection, pool, "Training plan for Hamburg marathon | The goal is 3:55 | @Maurten")
    assert found(connection, draft("Marathon", "x"))[1].decision == "new"
    slug, identity = found(connection, draft("Marathon", "x", entities=["Hamburg"]))
    assert (slug, identity.decision) == ("training-plan-for-hamburg-marathon", "entities")
    assert "hamburg" in identity.reason


def test_names_that_make_up_little_of_the_proposal_do_not_count(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Nightly backup | It runs at night | @restic | @ntfy")
    many = ["restic", "ntfy", "smartctl", "SATA", "zpool", "disk B", "cable", "scrub"]
    assert found(connection, draft("tank", "x", entities=many))[1].decision == "new"


def test_shared_names_must_touch_the_name_of_one_of_the_two(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Berth plan | It has colours | @Thode | @Hedvig")
    assert found(connection, draft("Morning report", "x", entities=["Thode", "Hedvig"]))[1].decision == "new"


def test_a_tie_is_broken_by_other_words_then_by_the_directory_and_else_not_at_all(
    connection: Connection, pool: Pool
) -> None:
    pages(
        connection,
        pool,
        "Prediction endpoint | It used a cache | @Redis | @PR #41",
        "Flaky tests | They shared a cache | @Redis | @PR #41",
    )
    tied = draft("Redis", "x", entities=["PR #41"])
    assert found(connection, tied)[1].decision == "new"
    hinted = PatchDraft(tied.title, tied.claims, entities=tied.entities, hints=("predictions",))
    assert found(connection, hinted)[0] == "prediction-endpoint"
    assert found(connection, tied, "flaky")[0] == "flaky-tests"


def test_where_a_session_ran_is_no_shared_name(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Kelpie push | It failed | @kelpie | @PR #18")
    shared = draft("Notes", "x", entities=["kelpie"])
    assert found(connection, shared, "kelpie")[1].decision == "new"


def test_nearly_the_same_title_is_found_when_no_other_page_comes_near(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Deploying to fly machines | It is done by hand")
    mine(pool)
    slug, identity = found(connection, draft("Deployed fly machine", "x"))
    assert (slug, identity.decision) == ("deploying-to-fly-machines", "search")
    assert found(connection, draft("Fly receipts", "x"))[1].decision == "new"
    connection.execute(
        "INSERT INTO ros_wiki_topics (slug, title, status) VALUES ('fly-machine-deploys', 'Fly machine deploy', 'live')"
    )
    assert found(connection, draft("Deployed fly machine", "x"))[1].decision == "new"


def test_names_tell_nothing_while_there_are_hardly_any_pages(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Prediction endpoint | It was slow | @Redis | @PR #41")
    mine(pool)
    assert found(connection, draft("Redis", "x", entities=["PR #41"]))[1].decision == "new"


def test_the_reason_stands_on_the_patch(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Alpha | It runs")
    rows = connection.execute("SELECT decision, reason FROM ros_wiki_patches").fetchall()
    assert {row["decision"] for row in rows} == {"new"}
    assert all(len(row["reason"]) > 20 for row in rows)


def test_what_has_another_number_is_another_page_however_much_they_share(connection: Connection, pool: Pool) -> None:
    pages(connection, pool, "Chapter 3 | The estimator of the panel | @Lindqvist | @panel.csv | @did.R")
    names = ("Lindqvist", "panel.csv", "did.R")
    slug, identity = found(connection, draft("Chapter 4", "x", entities=names))
    assert (slug, identity.decision) == (None, "new")
    slug, _ = found(connection, draft("Deadline for chapter 3", "x", entities=names))
    assert slug == "chapter-3"
