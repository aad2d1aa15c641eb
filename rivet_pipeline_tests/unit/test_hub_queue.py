"""The review queue: its marks are read back or refused, its patches are readable differences."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from rivet_pipeline.api.hub.queue import (
    Done,
    Undo,
    group,
    patch_diff,
    read_marks,
    read_trail,
    read_undo,
    tag_item,
    trail_after,
    write_trail,
)
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.types import PendingSession, PendingTag, Tag
from rivet_pipeline.wiki.read import PageSection, Sentence, TopicPage
from rivet_pipeline.wiki.review import PatchView
from rivet_pipeline.wiki.types import claim_key

NOBODY = "4be0643f-1d98-573b-97cd-ca98a65347dd"
AT = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)


def tag(revision: int = 1, *, removal: bool = False) -> Tag:
    conversation = uuid4()
    return Tag(
        id=uuid4(),
        entity_kind="conversation",
        entity_id=conversation,
        conversation_id=conversation,
        key="topic",
        value="postgres",
        display="",
        status="accepted" if removal else "suggested",
        source="model",
        confidence=0.8,
        reason="it is about it",
        proposed_by="test",
        pipeline_version=1,
        removal="suggested" if removal else None,
        removal_reason="it is not" if removal else "",
        decided_by=None,
        decided_at=None,
        created_at=AT,
        revision=revision,
    )


def pending(*rows: Tag) -> PendingTag:
    return PendingTag(Literal("topic", "postgres"), "", rows[0].removal == "suggested", list(rows))


def patch(*claims: tuple[str, str], replaces: tuple[UUID, ...] = (), session: str | None = "s:1") -> PatchView:
    return PatchView(
        id=uuid4(),
        kind="edit",
        status="proposed",
        title="Session store",
        slug="session-store",
        page_title="Session store",
        other_slug=None,
        claims=claims,
        replaces=replaces,
        entities=(),
        decision="slug",
        reason="the title names it",
        leaf_id=uuid4(),
        session_key=session,
        session_title=None,
        as_of=AT,
        model="test",
        created_at=AT,
        decided_by=None,
        decided_at=None,
    )


def topic(*texts: str) -> TopicPage:
    sentences = tuple(Sentence(claim_key(text), text, AT, AT, ()) for text in texts)
    return TopicPage(
        topic_id=uuid4(),
        slug="session-store",
        title="Session store",
        status="live",
        aliases=(),
        entities=(),
        related=(),
        sections=(PageSection("decisions", "Decisions", sentences),),
        history=(),
        citations=(),
        archived=0,
        open_patches=1,
        revision=1,
        first_at=AT,
        latest_at=AT,
        updated_at=AT,
    )


def test_a_mark_names_every_row_of_a_tag_as_it_was_seen() -> None:
    rows = [tag(3), tag(9)]
    chosen = read_marks([tag_item(pending(*rows)).mark], "accept")
    assert [(item.id, item.decision, item.seen) for item in chosen.tags] == [
        (rows[0].id, "accepted", 3),
        (rows[1].id, "accepted", 9),
    ]


def test_a_suggested_removal_is_done_or_the_tag_kept() -> None:
    item = tag_item(pending(tag(removal=True)))
    assert item.reason == "it is not"
    assert read_marks([item.mark], "accept").tags[0].decision == "removed"
    assert read_marks([item.mark], "reject").tags[0].decision == "kept"


@pytest.mark.parametrize(
    "mark", ["", "tag", "tag x.1", f"tag {NOBODY}", f"patch {NOBODY} ", f"PATCH {NOBODY}", "x" * 999]
)
def test_any_other_mark_is_refused(mark: str) -> None:
    with pytest.raises(InvalidInputError, match="load the page again"):
        read_marks([mark], "accept")
    with pytest.raises(InvalidInputError, match="load the page again"):
        read_undo([mark])


def test_the_way_back_is_read_as_it_was_written() -> None:
    undo = Undo(uuid4(), (uuid4(), uuid4()), "reject")
    assert read_undo(undo.marks()) == undo
    assert read_undo([]) is None
    assert Undo().marks() == []


def test_the_decisions_of_a_page_are_read_as_they_were_written() -> None:
    trail: list[Done] = []
    for number in range(60):
        trail = trail_after(trail, Done(f"Accepted\ttopic:{number}\n", Undo(uuid4(), (uuid4(),), "reject")))
    assert len(trail) == 50
    read = read_trail(write_trail(trail))
    assert [done.undo for done in read] == [done.undo for done in trail]
    assert read[-1].words == "Accepted topic:59"
    latest = write_trail(trail, 1000)
    assert 0 < len(latest.encode()) <= 1000
    assert read_trail(latest)[-1] == read[-1]
    assert read_trail("") == []


def test_a_patch_shows_what_it_adds_takes_away_and_says_again() -> None:
    page = topic("Sessions live in Redis.", "One store, one backup.", "An older one.", "The newest one.")
    [section] = patch_diff(
        patch(
            ("decisions", "Sessions live in Postgres."),
            ("decisions", "One store, one backup"),
            replaces=(claim_key("Sessions live in Redis."),),
        ),
        page,
    )
    assert section.heading == "Decisions"
    assert [(line.change, line.text) for line in section.lines] == [
        ("same", "An older one."),
        ("same", "The newest one."),
        ("removed", "Sessions live in Redis."),
        ("added", "Sessions live in Postgres."),
        ("again", "One store, one backup"),
    ]


def test_a_patch_of_a_new_page_only_adds_and_an_unknown_section_is_left_out() -> None:
    [section] = patch_diff(patch(("facts", "It listens on 5174."), ("gossip", "x")), None)
    assert [line.change for line in section.lines] == ["added"]


def test_the_queue_is_by_session_with_the_wikis_own_proposals_last() -> None:
    session = PendingSession(uuid4(), "s:1", "Where sessions live", "opus", AT, 1, 5.0, "words", [], [pending(tag())])
    groups = group([session], [patch(session=None), patch(session="s:2"), patch(session="s:1")], {})
    assert [(found.title, len(found.tags), len(found.patches)) for found in groups] == [
        ("Where sessions live", 1, 1),
        ("s:2", 0, 1),
        ("The wiki's own proposals", 0, 1),
    ]
