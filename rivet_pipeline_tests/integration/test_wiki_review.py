"""Review: accept, reject, revert, merge, split. Whatever people do and when, a page is what its patches say."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from psycopg.types.json import Jsonb

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import Connection, Pool, open_pool
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.wiki.consolidate import SPLIT_FROM, consolidate
from rivet_pipeline.wiki.quality import oversized_pages, uncited_sentences, unlike_their_patches
from rivet_pipeline.wiki.read import address_of, read_history, read_revision, read_topic
from rivet_pipeline.wiki.review import decide, list_patches, revert
from rivet_pipeline.wiki.types import claim_key
from rivet_pipeline_tests.integration.test_wiki_identity import merge, merge_proposal
from rivet_pipeline_tests.integration.test_wiki_mining import assert_sound, statuses, texts
from rivet_pipeline_tests.integration.wiki_rows import add_leaf, change_leaf, mine


def patch_ids(connection: Connection, status: str = "proposed") -> list[UUID]:
    rows = connection.execute("SELECT id FROM ros_wiki_patches WHERE status = %s ORDER BY seq", [status]).fetchall()
    return [row["id"] for row in rows]


def topic(connection: Connection, slug: str) -> UUID:
    row = connection.execute("SELECT id FROM ros_wiki_topics WHERE slug = %s", [slug]).fetchone()
    assert row is not None
    found: UUID = row["id"]
    return found


def test_with_review_nothing_is_applied_before_a_person_accepts_it(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It listens on 8437")
    mine(pool, review=True)
    assert read_topic(connection, "importer") is None
    (view,), _ = list_patches(connection)
    assert (view.title, view.slug, view.decision) == ("Importer", None, "new")
    assert view.claims == (("facts", "It listens on 8437"),)
    (outcome,) = decide(connection, [view.id], "accept", by="  mara  lindqvist ")
    assert (outcome.status, outcome.changed, outcome.problem) == ("applied", True, None)
    assert texts(connection, "importer") == ["It listens on 8437"]
    (view,), _ = list_patches(connection, statuses=["applied"])
    assert view.decided_by == "mara lindqvist"
    assert view.decided_at is not None
    assert decide(connection, [view.id], "accept", by="x")[0].changed is False
    assert_sound(connection)


def test_what_was_rejected_never_returns_from_any_leaf_in_any_words_around_it(
    connection: Connection, pool: Pool
) -> None:
    first = add_leaf(connection, "Importer | It eats seven sandwiches")
    mine(pool, review=True)
    decide(connection, patch_ids(connection), "reject", by="mara")
    change_leaf(connection, first, "Importer | It eats seven sandwiches! | It polls gauges")
    add_leaf(connection, "Tide service | it EATS seven sandwiches", days=1)
    mine(pool)
    assert texts(connection, "importer") == ["It polls gauges"]
    assert read_topic(connection, "tide-service") is None
    mine(pool, version=9)
    assert texts(connection, "importer") == ["It polls gauges"]


def test_a_patch_is_taken_back_without_touching_later_ones_and_does_not_return(
    connection: Connection, pool: Pool
) -> None:
    add_leaf(connection, "Importer | The port is number 8437 here")
    add_leaf(connection, "Importer | The port is number 9000 here | It polls gauges", days=1)
    mine(pool)
    first, second = patch_ids(connection, "applied")
    assert len(read_topic(connection, "importer").history) == 1  # type: ignore[union-attr]
    assert revert(connection, second, by="mara").status == "reverted"
    assert texts(connection, "importer") == ["The port is number 8437 here"]
    mine(pool, version=7)
    assert texts(connection, "importer") == ["The port is number 8437 here"]
    assert decide(connection, [second], "accept", by="mara")[0].changed
    assert texts(connection, "importer") == ["The port is number 9000 here", "It polls gauges"]
    revert(connection, first, by="mara")
    page = read_topic(connection, "importer")
    assert page is not None
    assert page.history == ()
    history = read_history(connection, "importer")
    assert history is not None
    assert [one.revision for one in history] == [5, 4, 3, 2, 1]
    assert history[-1].added == ("The port is number 8437 here",)
    former = read_revision(connection, "importer", 2)
    assert former is not None
    assert len(former.bullets) == 2
    assert read_revision(connection, "importer", 99) is None
    assert_sound(connection)


def test_a_page_without_patches_is_gone_and_comes_back_with_one(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It listens")
    mine(pool)
    (patch,) = patch_ids(connection, "applied")
    revert(connection, patch, by="mara")
    assert read_topic(connection, "importer") is None
    decide(connection, [patch], "accept", by="mara")
    assert texts(connection, "importer") == ["It listens"]


def test_impossible_decisions_say_why(connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "Importer | It listens")
    mine(pool)
    (patch,) = patch_ids(connection, "applied")
    assert "revert it instead" in str(decide(connection, [patch], "reject", by="x")[0].problem)
    assert decide(connection, [uuid4()], "accept", by="x")[0].problem == "there is no such patch"
    revert(connection, patch, by="x")
    assert "nothing to reject" in str(decide(connection, [patch], "reject", by="x")[0].problem)
    change_leaf(connection, leaf, "Importer | It speaks")
    assert "has changed since" in str(decide(connection, [patch], "accept", by="x")[0].problem)
    mine(pool)
    change_leaf(connection, leaf, "Importer | It is silent")
    mine(pool)
    (outdated,) = patch_ids(connection, "replaced")
    assert "outdated" in str(decide(connection, [outdated], "accept", by="x")[0].problem)
    with pytest.raises(NotFoundError, match="rivet wiki patches"):
        revert(connection, uuid4(), by="x")
    for by in (" ", "x" * 300):
        with pytest.raises(InvalidInputError, match="who decides"):
            decide(connection, [patch], "accept", by=by)


def test_accepted_patches_outlive_a_remining_as_far_as_the_leaf_still_says_them(
    connection: Connection, pool: Pool
) -> None:
    leaf = add_leaf(connection, "Importer | It listens | It polls")
    mine(pool, review=True)
    decide(connection, patch_ids(connection), "accept", by="mara")
    mine(pool, review=True, version=5)
    assert statuses(connection) == ["applied"]
    change_leaf(connection, leaf, "Importer | It polls | It sleeps")
    mine(pool, review=True)
    assert texts(connection, "importer") == ["It polls"]
    (waiting,), _ = list_patches(connection)
    assert waiting.claims == (("facts", "It sleeps"),)
    assert_sound(connection)


def test_reviewers_at_once_decide_each_patch_once(connection: Connection, pool: Pool, database_url: str) -> None:
    for place in range(6):
        add_leaf(connection, f"Importer | Sentence {'x' * place} of it", days=place)
    mine(pool, review=True)
    ids = patch_ids(connection)
    changed: list[tuple[UUID, str]] = []

    def reviewer(verdict: str) -> None:
        with open_pool(database_url, max_size=1) as own, own.connection() as mine_alone:
            decided = decide(mine_alone, ids, verdict, by=verdict)  # type: ignore[arg-type]
            changed.extend((one.id, verdict) for one in decided if one.changed)

    threads = [
        threading.Thread(target=reviewer, args=[verdict]) for verdict in ("reject", "accept", "reject", "reject")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A rejected one may be accepted afterwards, an applied one not rejected: so each ends applied.
    assert statuses(connection) == ["applied"] * 6
    assert sorted(patch for patch, verdict in changed if verdict == "accept") == sorted(ids)
    assert len(changed) == len(set(changed))
    assert_sound(connection)


# --- merges and splits ----------------------------------------------------------------------------------------------


def test_a_merge_moves_everything_leaves_a_redirect_and_can_be_taken_back(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It listens")
    add_leaf(connection, "Tide service | It polls", days=1)
    mine(pool)
    patch = merge(connection, topic(connection, "importer"), topic(connection, "tide-service"))
    page = read_topic(connection, "tide-service")
    assert page is not None
    assert (page.slug, page.redirected_from, page.aliases) == ("importer", "tide-service", ("Tide service",))
    assert sorted(texts(connection, "importer")) == ["It listens", "It polls"]
    later = add_leaf(connection, "Tide service | It sleeps", days=2)
    mine(pool)
    row = connection.execute("SELECT topic_id FROM ros_wiki_patches WHERE leaf_id = %s", [later]).fetchone()
    assert row == {"topic_id": topic(connection, "importer")}
    assert_sound(connection)
    revert(connection, patch, by="mara")
    assert texts(connection, "tide-service") == ["It polls"]
    assert sorted(texts(connection, "importer")) == ["It listens", "It sleeps"]
    assert connection.execute("SELECT count(*) AS n FROM ros_wiki_redirects").fetchone() == {"n": 0}
    assert_sound(connection)


def test_consolidation_proposes_and_applies_nothing_and_what_was_rejected_is_not_proposed_again(
    connection: Connection, pool: Pool
) -> None:
    add_leaf(connection, "Receipt scanner | It reads receipts | @ocr engine | @till | @Fuji")
    add_leaf(connection, "Bill reader | It reads bills | @ocr engine | @till | @Fuji", days=1)
    mine(pool)
    assert consolidate(connection).merges == [("Bill reader", "Receipt scanner")]
    assert read_topic(connection, "receipt-scanner") is not None
    assert statuses(connection) == ["applied", "applied", "proposed"]
    assert consolidate(connection).merges == []
    decide(connection, patch_ids(connection), "reject", by="mara")
    assert consolidate(connection).merges == []


def test_an_address_finds_its_patches_when_nothing_of_its_page_holds_any_more(
    connection: Connection, pool: Pool
) -> None:
    add_leaf(connection, "Importer | It polls gauges")
    add_leaf(connection, "Tide service | It counts tides", days=1)
    mine(pool)
    merge(connection, topic(connection, "importer"), topic(connection, "tide-service"))
    assert address_of(connection, "tide-service") == "importer"
    edits = [view.id for view in list_patches(connection, statuses=["applied"])[0] if view.kind == "edit"]
    for edit in edits:
        revert(connection, edit, by="mara")
    assert read_topic(connection, "importer") is None
    for wanted in ("importer", "tide-service", "Tide service"):
        slug = address_of(connection, wanted)
        assert {view.id for view in list_patches(connection, statuses=["reverted"], slug=slug)[0]} == set(edits)
    add_leaf(connection, "Gauge poller | It polls", days=2)
    mine(pool)
    connection.execute("UPDATE ros_wiki_topics SET alias_keys = alias_keys || '{importer}' WHERE slug = 'gauge-poller'")
    assert address_of(connection, "importer") == "importer"


def test_a_page_that_is_too_long_gets_a_split_proposed_that_moves_sentences_and_citations(
    connection: Connection, pool: Pool
) -> None:
    for place in range(40):
        about = "the Grafana panel" if place % 3 == 0 else "the cluster"
        add_leaf(connection, f"Migration | Sentence {'x' * place} of many about {about} in use", days=place)
    mine(pool)
    page = read_topic(connection, "migration")
    assert page is not None
    assert page.archived >= SPLIT_FROM
    assert consolidate(connection).splits == [("Migration", "Grafana")]
    assert read_topic(connection, "grafana") is None
    (patch,) = patch_ids(connection)
    (outcome,) = decide(connection, [patch], "accept", by="mara")
    assert outcome.problem is None
    assert all("Grafana" in text for text in texts(connection, "grafana"))
    assert not any("Grafana" in text for text in texts(connection, "migration"))
    assert_sound(connection)
    # A leaf that no longer says a moved sentence is no longer cited for it.
    moved = read_topic(connection, "grafana")
    assert moved is not None
    gone = moved.citations[0].leaf_id
    change_leaf(connection, gone, "Nothing")
    mine(pool)
    moved = read_topic(connection, "grafana")
    assert moved is not None
    assert gone not in {citation.leaf_id for citation in moved.citations}
    revert(connection, patch, by="mara")
    assert read_topic(connection, "grafana") is None
    assert any("Grafana" in text for text in texts(connection, "migration"))
    assert_sound(connection)


def split_of_migration(connection: Connection, pool: Pool) -> UUID:
    """A long page, and the proposal that what it says of Grafana gets a page of its own."""
    for place in range(40):
        about = "the Grafana panel" if place % 3 == 0 else "the cluster"
        add_leaf(connection, f"Migration | Sentence {'x' * place} of many about {about} in use", days=place)
    mine(pool)
    consolidate(connection)
    (patch,) = patch_ids(connection)
    return patch


def of_grafana(connection: Connection, slug: str) -> int:
    return sum("Grafana panel" in text for text in texts(connection, slug))


def test_no_merge_loses_what_was_split_off(connection: Connection, pool: Pool) -> None:
    decide(connection, [split_of_migration(connection, pool)], "accept", by="mara")
    add_leaf(connection, "Dashboards | There are panels of all kinds", days=50)
    mine(pool)
    moved = of_grafana(connection, "grafana")
    assert moved > 0
    # Into a third page, and back.
    third = merge(connection, topic(connection, "dashboards"), topic(connection, "grafana"))
    assert of_grafana(connection, "dashboards") == moved - 1
    assert read_topic(connection, "dashboards").archived > 0  # type: ignore[union-attr]
    assert_sound(connection)
    revert(connection, third, by="mara")
    assert (of_grafana(connection, "grafana"), of_grafana(connection, "dashboards")) == (moved, 0)
    # Either way with the page it was split from: that page says everything again.
    for kept, gone in (("migration", "grafana"), ("grafana", "migration")):
        whole = merge(connection, topic(connection, kept), topic(connection, gone))
        page = read_topic(connection, kept)
        assert page is not None
        assert len(texts(connection, kept)) + page.archived == 40
        assert_sound(connection)
        revert(connection, whole, by="mara")
        assert of_grafana(connection, "grafana") == moved
        assert of_grafana(connection, "migration") == 0
        assert_sound(connection)


def split(connection: Connection, source: UUID, title: str, *said: str) -> None:
    """Lets another page take over what a page says."""
    propose_split(connection, source, title, list(map(claim_key, said)))
    (outcome,) = decide(connection, patch_ids(connection)[-1:], "accept", by="mara")
    assert outcome.problem is None


def propose_split(connection: Connection, source: UUID, title: str, keys: list[UUID]) -> None:
    connection.execute(
        """
        INSERT INTO ros_wiki_patches (kind, status, topic_id, title, payload, content_hash, decision, reason,
                                      as_of, model, pipeline_version)
        VALUES ('split', 'proposed', %s, %s, %s, gen_random_uuid(), 'consolidation', 'a test', now(), 't', 4)
        """,
        [source, title, Jsonb({"keys": list(map(str, keys)), "claims": []})],
    )


def test_what_was_split_off_twice_and_comes_back_by_a_merge_stands_again(connection: Connection, pool: Pool) -> None:
    sleeps, polls, redis = "It sleeps", "It polls gauges", "We put Redis in front of it"
    add_leaf(connection, f"Importer | {sleeps} | {polls} | {redis}")
    mine(pool)
    split(connection, topic(connection, "importer"), "Cache", polls, redis)
    split(connection, topic(connection, "cache"), "Gauge poller", polls)
    back = merge(connection, topic(connection, "importer"), topic(connection, "gauge-poller"))
    assert set(texts(connection, "importer")) == {sleeps, polls}
    assert texts(connection, "cache") == [redis]
    assert_sound(connection)
    # And once more.
    split(connection, topic(connection, "importer"), "Cache", polls)
    assert texts(connection, "importer") == [sleeps]
    assert set(texts(connection, "cache")) == {polls, redis}
    revert(connection, patch_ids(connection, "applied")[-1], by="mara")
    revert(connection, back, by="mara")
    assert [texts(connection, slug) for slug in ("importer", "cache", "gauge-poller")] == [[sleeps], [redis], [polls]]
    assert_sound(connection)


def test_a_page_that_is_still_too_long_gets_another_split_proposed(connection: Connection, pool: Pool) -> None:
    for place in range(48):
        about = "Grafana panel" if place < 20 else "Prometheus rule" if place < 34 else "cluster"
        add_leaf(connection, f"Migration | Sentence {'x' * place} of many about the {about} in use", days=place)
    mine(pool)
    assert consolidate(connection).splits == [("Migration", "Grafana")]
    decide(connection, patch_ids(connection), "accept", by="mara")
    assert consolidate(connection).splits == [("Migration", "Prometheus")]


def test_a_split_leads_to_the_page_that_its_address_was_merged_with(connection: Connection, pool: Pool) -> None:
    patch = split_of_migration(connection, pool)
    add_leaf(connection, "Grafana | It draws", days=50)
    add_leaf(connection, "Dashboards | There are panels of all kinds", days=50)
    mine(pool)
    merge(connection, topic(connection, "dashboards"), topic(connection, "grafana"))
    assert decide(connection, [patch], "accept", by="mara")[0].problem is None
    assert of_grafana(connection, "dashboards") > 0
    assert of_grafana(connection, "migration") == 0
    assert_sound(connection)


def test_a_page_is_not_merged_with_itself(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, "Importer | It listens")
    add_leaf(connection, "Gauge poller | It polls", days=1)
    mine(pool)
    circle = merge_proposal(connection, topic(connection, "gauge-poller"), topic(connection, "importer"))
    merge(connection, topic(connection, "importer"), topic(connection, "gauge-poller"))
    assert "one by now" in str(decide(connection, [circle], "accept", by="mara")[0].problem)
    assert texts(connection, "gauge-poller") == ["It listens", "It polls"]
    consolidate(connection)
    assert circle in patch_ids(connection, "replaced")


# --- whatever people do ---------------------------------------------------------------------------------------------

SENTENCES = [
    "The port is number 8437 here",
    "The port is number 9000 here",
    "It polls gauges",
    "We put Redis in front of it",
    "We drop Redis from it",
]


class Reviewing(RuleBasedStateMachine):
    """Leaves come and change, people decide, pages merge and part."""

    pool: Pool
    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        self.connection.execute(
            "TRUNCATE ros_wiki_topics, ros_wiki_patches, ros_wiki_revisions, ros_wiki_citations, ros_wiki_redirects, "
            "ros_wiki_extractions, ros_summary_sources, ros_summaries, ros_changed_texts CASCADE"
        )
        self.leaves: list[UUID] = []
        self.days = 0

    def pick(self, status: str, chance: int, kind: str = "%") -> UUID | None:
        rows = self.connection.execute(
            "SELECT id FROM ros_wiki_patches WHERE status = %s AND kind LIKE %s ORDER BY seq", [status, kind]
        ).fetchall()
        return rows[chance % len(rows)]["id"] if rows else None

    def line(self, title: str, said: list[str]) -> str:
        return " | ".join([title, *said])

    @rule(
        title=st.sampled_from(["Importer", "Tide service"]),
        said=st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=3, unique=True),
        review=st.booleans(),
    )
    def a_leaf_comes(self, title: str, said: list[str], review: bool) -> None:
        self.days += 1
        self.leaves.append(add_leaf(self.connection, self.line(title, said), days=self.days))
        mine(self.pool, review=review)

    @precondition(lambda self: bool(self.leaves))
    @rule(chance=st.integers(0, 9), said=st.lists(st.sampled_from(SENTENCES), max_size=2, unique=True))
    def a_leaf_changes(self, chance: int, said: list[str]) -> None:
        leaf = self.leaves[chance % len(self.leaves)]
        change_leaf(self.connection, leaf, self.line("Importer", [*said, f"Turn {'x' * chance}"]))
        mine(self.pool)

    @rule(
        status=st.sampled_from(["proposed", "applied", "rejected", "reverted", "replaced"]),
        verdict=st.sampled_from(["accept", "reject", "revert"]),
        chance=st.integers(0, 9),
    )
    def somebody_decides(self, status: str, verdict: str, chance: int) -> None:
        patch = self.pick(status, chance)
        if patch is not None:
            (outcome,) = decide(self.connection, [patch], verdict, by="mara")  # type: ignore[arg-type]
            assert outcome.changed or outcome.problem or outcome.status is not None

    @rule()
    def two_pages_merge(self) -> None:
        rows = self.connection.execute("SELECT id FROM ros_wiki_topics WHERE status = 'live' ORDER BY slug").fetchall()
        if len(rows) > 1:
            merge(self.connection, rows[0]["id"], rows[1]["id"])

    @rule(chance=st.integers(0, 9), title=st.sampled_from(["Port", "Importer", "Cache"]))
    def a_page_splits(self, chance: int, title: str) -> None:
        rows = self.connection.execute(
            "SELECT topic_id AS id, claim_keys AS keys FROM ros_wiki_patches "
            "WHERE kind = 'edit' AND status = 'applied' ORDER BY seq"
        ).fetchall()
        if rows:
            row = rows[chance % len(rows)]
            propose_split(self.connection, row["id"], title, row["keys"][: 1 + chance % 2])
            self.somebody_decides("proposed", "accept", 0)

    @invariant()
    def every_applied_sentence_stands_on_a_page(self) -> None:
        rows = self.connection.execute(
            """
            SELECT p.title FROM ros_wiki_patches AS p CROSS JOIN LATERAL unnest(p.claim_keys) AS k (key)
            WHERE p.kind = 'edit' AND p.status = 'applied'
              AND NOT EXISTS (SELECT 1 FROM ros_wiki_topics AS t WHERE t.status = 'live' AND t.archived > 0)
              AND NOT EXISTS (SELECT 1 FROM ros_wiki_citations AS c JOIN ros_wiki_topics AS t ON t.id = c.topic_id
                              WHERE t.status = 'live' AND c.claim_key = k.key AND c.leaf_id = p.leaf_id)
            """
        ).fetchall()
        assert rows == []

    @invariant()
    def every_page_is_what_its_patches_say_and_is_cited(self) -> None:
        for question in (unlike_their_patches, uncited_sentences, oversized_pages):
            finding = question(self.connection)
            assert finding.at_fault == 0, (question.__name__, finding.examples)

    @invariant()
    def what_was_refused_stands_on_no_page_but_by_an_accepted_patch(self) -> None:
        rows = self.connection.execute(
            """
            SELECT p.title FROM ros_wiki_patches AS p
            WHERE p.status = 'applied' AND p.decided_by = 'automatic' AND EXISTS (
                SELECT 1 FROM ros_wiki_patches AS r
                WHERE r.status = 'rejected' AND r.seq < p.seq AND r.decided_at < p.created_at
                  AND r.claim_keys && p.claim_keys)
            """
        ).fetchall()
        assert rows == []

    @invariant()
    def versions_are_without_gaps_and_the_last_is_the_page(self) -> None:
        rows = self.connection.execute(
            """
            SELECT t.slug FROM ros_wiki_topics AS t
            LEFT JOIN LATERAL (SELECT count(*) AS n, max(revision) AS last FROM ros_wiki_revisions AS r
                               WHERE r.topic_id = t.id) AS v ON true
            LEFT JOIN ros_wiki_revisions AS r ON r.topic_id = t.id AND r.revision = t.revision
            WHERE v.n <> t.revision OR (t.revision > 0 AND r.page IS DISTINCT FROM t.page)
            """
        ).fetchall()
        assert rows == []


def test_whatever_people_do_in_whatever_order(server: EmbeddedServer, database_url: str) -> None:
    with open_pool(database_url, max_size=4) as pool, pool.connection() as connection:
        Reviewing.pool, Reviewing.connection = pool, connection
        Reviewing.TestCase.settings = settings(
            max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        )
        Reviewing.TestCase().runTest()
        row = connection.execute("SELECT count(*) AS n FROM ros_wiki_topics").fetchone()
        assert row is not None
