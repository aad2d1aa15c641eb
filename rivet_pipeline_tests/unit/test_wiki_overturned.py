"""On which page a session speaks that ends something, and which pages a leaf that is mined again may be about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.types import SAME_SESSION, Bullet, Candidate, MineRequest, Page, PatchDraft, claim_key

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def page(title: str, decision: str, *, days: float = -5, again: float | None = None, why: str = "search") -> Candidate:
    """A page of one decision, said so many days after the leaf, and once more `again` days after it."""
    first = NOON + timedelta(days=days)
    last = first if again is None else NOON + timedelta(days=again)
    bullet = Bullet(claim_key(decision), decision, first, last, ())
    return Candidate(title.casefold().replace(" ", "-"), title, (), Page(title, sections={"decisions": (bullet,)}), why)


def drafts(title: str, *said: str, pages: tuple[Candidate, ...] = ()) -> list[PatchDraft]:
    lines = [f"- 2026-03-02T11:{place:02}Z pi/{line}" for place, line in enumerate(said)]
    request = MineRequest(uuid4(), "\n".join(lines), NOON, NOON, title, "pi", candidates=pages)
    return list(DeterministicMiner().mine(request).drafts)


REDIS = page("Prediction endpoint", "Decision: we put Redis in front of the prediction endpoint.")
FACT = "assistant: The importer polls five gauges every 10 minutes."


def test_what_one_thing_drops_another_may_still_use() -> None:
    dropped = "user: Decision: we drop Redis from the importer."
    (draft,) = drafts("Importer: Redis dropped", FACT, dropped, pages=(REDIS,))
    assert draft.title == "Importer"
    assert "The importer polls five gauges every 10 minutes." in [claim.text for claim in draft.claims]


def test_a_chapter_takes_nothing_back_of_another() -> None:
    other = page("Chapter 3", "Decision for chapter 3: the Callaway estimator.")
    dropped = "user: Decision for chapter 4: we drop the Callaway estimator."
    (draft,) = drafts("Chapter 4: Callaway estimator dropped", dropped, pages=(other,))
    assert draft.title == "Chapter 4"


@pytest.mark.parametrize("title", ["Redis dropped", "Dropping Redis: predictions move into Postgres"])
def test_the_end_of_the_subject_and_what_its_own_page_names_stand_where_it_was_decided(title: str) -> None:
    (draft,) = drafts(title, "user: Decision: we drop Redis, predictions move into Postgres.", pages=(REDIS,))
    assert draft.title == "Prediction endpoint"


def test_a_page_that_came_later_takes_nothing() -> None:
    former = page("DNS", "Decision: we take AdGuard for the house.", again=9)
    later = page("AdGuard", "Decision: AdGuard filters the guests.", days=7)
    dropped = "user: Decision: we replace AdGuard by Technitium."
    for pages in ((former,), (former, later)):
        (draft,) = drafts("AdGuard replaced", dropped, pages=pages)
        assert (draft.title, draft.related) == ("DNS", ())


def test_a_page_of_the_session_that_came_later_does_not_name_its_subject() -> None:
    later = page("Importer clock", "Decision: the importer clock is in UTC.", days=7, why=SAME_SESSION)
    (draft,) = drafts("Importer: first run", FACT, pages=(later,))
    assert draft.title == "Importer"
