"""A page is a function of the set of its patches: whatever their order, within its bounds, the newer over the older."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from rivet_pipeline.wiki.contradictions import skeleton
from rivet_pipeline.wiki.pages import (
    ALIAS_CAP,
    ENTITY_CAP,
    HISTORY_CAP,
    SEARCH_CAP,
    SECTION_CAPS,
    build_page,
    page_from_json,
    page_to_json,
    search_text,
)
from rivet_pipeline.wiki.types import SECTIONS, AppliedPatch, Claim, Section, claim_key

FIRST = datetime(2026, 9, 1, tzinfo=UTC)


def leaf(number: int) -> UUID:
    return UUID(int=number + 1)


def patch(number: int, text: str, *, day: int = 0, section: Section = "facts", **more: object) -> AppliedPatch:
    claim = Claim(section, text, FIRST + timedelta(days=day), **more)  # type: ignore[arg-type]
    return AppliedPatch(leaf(number), (claim,))


def texts(page_patches: list[AppliedPatch]) -> list[str]:
    return [bullet.text for bullet in build_page("Page", page_patches).bullets]


claims = st.builds(
    Claim,
    st.sampled_from(sorted(SECTIONS)),
    st.sampled_from(
        [
            "The port of the importer is 8437 now",
            "The port of the importer is 9000 now",
            "We put Redis in front of it",
            "We drop Redis from the service",
            "The decision of 3 September is reversed",
            "Backups run at night",
            "backups RUN at night!",
            "Something else entirely stands here",
        ]
    ),
    st.integers(0, 30).map(lambda day: FIRST + timedelta(days=day)),
    st.sampled_from([0.5, 1.0]),
    st.lists(st.sampled_from([claim_key("Backups run at night"), claim_key("nobody")]), max_size=1).map(tuple),
)
patches = st.builds(
    AppliedPatch,
    st.integers(0, 5).map(leaf),
    st.lists(claims, min_size=1, max_size=4).map(tuple),
    st.lists(st.sampled_from(["Alpha", "alpha", "Beta"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["Redis", "NAS"]), max_size=2).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(patches, max_size=8), st.randoms())
def test_the_order_in_which_patches_came_is_nothing(applied: list[AppliedPatch], chance: object) -> None:
    shuffled = list(applied)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert build_page("Page", applied) == build_page("Page", shuffled)


@settings(max_examples=40, deadline=None)
@given(st.lists(patches, max_size=8))
def test_every_sentence_stands_once_and_is_cited_by_who_says_it(applied: list[AppliedPatch]) -> None:
    page = build_page("Page", applied)
    keys = [bullet.key for bullet in page.all_bullets]
    assert len(keys) == len(set(keys))
    said = {(claim.key, one.leaf_id) for one in applied for claim in one.claims}
    for bullet in page.all_bullets:
        assert bullet.leaves
        assert {(bullet.key, one) for one in bullet.leaves} <= said
    assert {key for key, _ in said} == set(keys)


@settings(max_examples=40, deadline=None)
@given(st.lists(patches, max_size=6))
def test_a_page_is_stored_and_read_back_unchanged(applied: list[AppliedPatch]) -> None:
    page = build_page("Page", applied)
    assert page_from_json(json.loads(json.dumps(page_to_json(page)))) == page


def test_a_page_never_grows_beyond_its_caps() -> None:
    many = [
        AppliedPatch(
            leaf(number),
            tuple(
                Claim(section, f"{section} sentence {'x' * number} of many others {'long ' * 60}", FIRST)
                for section in SECTIONS
            ),
            aliases=(f"alias {number}",),
            entities=(f"entity {number}",),
        )
        for number in range(200)
    ]
    page = build_page("Hub", many)
    assert {name: len(page.sections[name]) for name in page.sections} == SECTION_CAPS
    assert len(page.aliases) == ALIAS_CAP
    assert len(page.entities) == ENTITY_CAP
    assert page.archived == 5 * 200 - sum(SECTION_CAPS.values())
    assert len(search_text(page)) <= SEARCH_CAP
    assert len(json.dumps(page_to_json(page))) < 100_000


def test_history_is_capped_too() -> None:
    many = [patch(number, f"The port of the importer is {number}", day=number) for number in range(HISTORY_CAP + 20)]
    page = build_page("Page", many)
    assert [bullet.text for bullet in page.bullets] == [f"The port of the importer is {HISTORY_CAP + 19}"]
    assert len(page.history) == HISTORY_CAP
    assert page.archived == 19


def test_the_weightier_sentence_stays_when_a_section_is_full() -> None:
    many = [patch(number, f"Light sentence {'x' * number}", day=number, weight=0.1) for number in range(30)]
    assert "The heavy one" in texts([patch(99, "The heavy one", weight=0.9), *many])


def test_another_figure_supersedes_and_the_older_stands_in_history_with_its_date() -> None:
    older, newer = "The threshold is 263 cm above NHN", "The threshold is 280 cm above NHN"
    for order in ([0, 1], [1, 0]):
        made = [patch(1, older, day=1), patch(2, newer, day=9)]
        page = build_page("Page", [made[place] for place in order])
        assert [bullet.text for bullet in page.bullets] == [newer]
        (former,) = page.history
        assert former.bullet.text == older
        assert former.bullet.as_of == FIRST + timedelta(days=1)
        assert former.superseded_at == FIRST + timedelta(days=9)
        assert former.superseded_by == claim_key(newer)


def test_an_older_leaf_that_is_mined_late_changes_history_and_not_the_present() -> None:
    now = patch(2, "The threshold is 280 cm above NHN", day=9)
    late = patch(1, "The threshold is 263 cm above NHN", day=1)
    assert texts([now, late]) == texts([now])


def test_a_decision_is_taken_back_by_its_date_and_by_its_object() -> None:
    redis = patch(1, "Decision, 3 September: we put Redis in front of it", day=2, section="decisions")
    by_date = patch(2, "The decision of 3 September is reversed", day=20, section="decisions")
    by_object = patch(3, "We drop Redis from tidewatch", day=21, section="decisions")
    for taken_back in (by_date, by_object):
        page = build_page("Page", [redis, taken_back])
        assert [former.bullet.text for former in page.history] == [redis.claims[0].text]
    other = patch(4, "We put Caddy in front of it", day=2, section="decisions")
    assert build_page("Page", [other, by_object]).history == ()


def test_what_a_patch_replaces_is_superseded_and_stands_again_without_it() -> None:
    old = patch(1, "Backups go to the NAS", day=1)
    new = patch(2, "Backups go to the cloud", day=5, replaces=(claim_key("Backups go to the NAS"),))
    assert texts([old, new]) == ["Backups go to the cloud"]
    assert texts([old]) == ["Backups go to the NAS"]


def test_two_sentences_of_one_moment_that_replace_each_other_both_stay() -> None:
    one = patch(1, "Alpha holds here", replaces=(claim_key("Beta holds here"),))
    two = patch(2, "Beta holds here", replaces=(claim_key("Alpha holds here"),))
    assert sorted(texts([one, two])) == ["Alpha holds here", "Beta holds here"]


def test_the_same_said_twice_is_one_sentence_with_both_dates_and_both_leaves() -> None:
    page = build_page("Page", [patch(1, "Backups run at night.", day=1), patch(2, "backups run at NIGHT", day=5)])
    (bullet,) = page.bullets
    assert bullet.text == "backups run at NIGHT"
    assert (bullet.first_at, bullet.as_of) == (FIRST + timedelta(days=1), FIRST + timedelta(days=5))
    assert bullet.leaves == (leaf(1), leaf(2))


def test_ticket_numbers_are_no_figures() -> None:
    assert skeleton("PR #41 is open for review") is None
    assert skeleton("The limit is 50 MB now") == skeleton("The limit is 60 MB now")
    assert skeleton("On 2026-09-01 it was decided to stay") is None
