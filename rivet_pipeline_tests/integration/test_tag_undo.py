"""Undoing a decision on which others, or the pipeline, have built since; plain undoing is in `test_tag_review.py`."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.errors import ConflictError
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.log import read_log, undo
from rivet_pipeline.tags.propose import ask_again, reap_tags
from rivet_pipeline.tags.read import list_tags
from rivet_pipeline.tags.review import Item, add_tag, decide
from rivet_pipeline.tags.types import Proposal
from rivet_pipeline.tags.vocabulary import list_values, merge_values, upsert_value
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.tagging import ALL, CACHING, ScriptedTagger, has, leaf, rows, tag, tag_all


@pytest.fixture
def session(connection: Connection, pool: Pool) -> UUID:
    """A session with one leaf and two suggested tags."""
    conversation = add_conversation(connection, key="claude-code:1")
    leaf(connection, conversation)
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:redis"]))
    return conversation


def _merge(connection: Connection, value: str, into: str) -> UUID:
    decision = merge_values(connection, "topic", value, into, by="ada").decision
    assert decision is not None
    return decision


def _undo(connection: Connection, decision: UUID) -> UUID:
    return undo(connection, decision, by="bea").decision


def _merged_again_after_a_new_tag(connection: Connection, session: UUID) -> UUID:
    undone = _undo(connection, _merge(connection, "a", "b"))
    add_tag(connection, "conversation", session, Literal("topic", "a"), by="ada")
    return undone


def _merged_again_in_a_circle(connection: Connection, session: UUID) -> UUID:
    undone = _undo(connection, _merge(connection, "a", "b"))
    _merge(connection, "b", "a")
    return undone


def _merged_again_below_an_alias(connection: Connection, session: UUID) -> UUID:
    undone = _undo(connection, _merge(connection, "a", "b"))
    _merge(connection, "c", "a")
    return undone


def _added_again_after_a_merge(connection: Connection, session: UUID) -> UUID:
    added = add_tag(connection, "conversation", session, Literal("topic", "a"), by="ada").decision
    assert added is not None
    undone = _undo(connection, added)
    _merge(connection, "a", "b")
    return undone


def _a_new_value_that_another_means(connection: Connection, session: UUID) -> UUID:
    upsert_value(connection, Literal("topic", "new"), by="ada")
    made = read_log(connection)[0].decision
    _merge(connection, "a", "new")
    return made


@pytest.mark.parametrize(
    "happen",
    [
        _merged_again_after_a_new_tag,
        _merged_again_in_a_circle,
        _merged_again_below_an_alias,
        _added_again_after_a_merge,
        _a_new_value_that_another_means,
    ],
)
def test_an_undo_never_leaves_a_tag_or_an_alias_that_means_an_alias(
    connection: Connection, session: UUID, happen: Callable[[Connection, UUID], UUID]
) -> None:
    for one in ("a", "b", "c"):
        upsert_value(connection, Literal("topic", one), by="ada")
    decision = happen(connection, session)
    before = rows(connection, "SELECT to_jsonb(t) FROM ros_tags AS t ORDER BY id")
    known = rows(connection, "SELECT to_jsonb(t) FROM ros_tag_taxonomy AS t ORDER BY id")
    with pytest.raises(ConflictError, match="used or merged since"):
        undo(connection, decision, by="bea")
    assert rows(connection, "SELECT to_jsonb(t) FROM ros_tags AS t ORDER BY id") == before
    assert rows(connection, "SELECT to_jsonb(t) FROM ros_tag_taxonomy AS t ORDER BY id") == known


def test_a_merge_can_be_undone_although_a_suggestion_was_taken_back(
    connection: Connection, pool: Pool, session: UUID
) -> None:
    other = add_conversation(connection, key="claude-code:2")
    add_tag(connection, "conversation", other, CACHING, by="ada")
    merged = _merge(connection, "caching", "cache")
    ask_again(connection, since=None, before=None, dropped_only=False)
    tag_all(pool, ScriptedTagger(["topic:redis"]))
    assert not [one for one in list_tags(connection, conversation_id=session) if one.value == "cache"]
    undone = _undo(connection, merged)
    [back] = list_tags(connection, key="topic", value="caching")
    assert (back.conversation_id, back.value) == (other, "caching")
    assert not [one for one in list_values(connection) if one.alias_of]
    _undo(connection, undone)
    assert has(connection, other, "topic:caching")
    assert {one.value for one in list_tags(connection, conversation_id=other)} == {"cache"}


def test_a_rejection_comes_back_although_its_suggestion_was_taken_back(
    connection: Connection, pool: Pool, session: UUID
) -> None:
    found = tag(connection)
    rejected = decide(connection, [Item(found.id, "rejected", found.revision)], by="ada").decision
    assert rejected is not None
    undone = _undo(connection, rejected)
    ask_again(connection, since=None, before=None, dropped_only=False)
    tag_all(pool, ScriptedTagger(["topic:redis"]))
    _undo(connection, undone)
    assert tag(connection).status == "rejected"
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    assert tag(connection).status == "rejected"


def test_a_merge_can_be_undone_although_a_tagger_would_have_a_tag_taken_off(
    connection: Connection, pool: Pool, session: UUID
) -> None:
    ruled = add_conversation(connection, key="claude-code:2", settings={"project": "web"})
    leaf(connection, ruled)
    merged = merge_values(connection, "project", "web", "tidewatch", by="ada").decision
    assert merged is not None
    tag_all(pool, ScriptedTagger([Proposal(Literal("project", "tidewatch"), reason="not so", removal=True)]))
    _undo(connection, merged)
    [back] = list_tags(connection, key="project")
    assert (back.value, back.removal, back.removal_reason) == ("web", "suggested", "not so")


def test_of_a_decision_about_what_is_gone_nothing_is_undone(connection: Connection, session: UUID) -> None:
    found = tag(connection, kind="summary")
    accepted = decide(connection, [Item(found.id, "accepted", found.revision)], by="ada").decision
    assert accepted is not None
    connection.execute("DELETE FROM ros_summaries WHERE id = %s", [found.entity_id])
    assert reap_tags(connection) > 0
    with pytest.raises(ConflictError, match="gone"):
        undo(connection, accepted, by="bea")
    assert list_tags(connection, conversation_id=session, statuses=ALL) != []
    assert {one.entity_kind for one in list_tags(connection, statuses=ALL)} == {"conversation"}


def test_a_merge_is_not_undone_under_what_the_rule_has_confirmed(connection: Connection, pool: Pool) -> None:
    session = add_conversation(connection, key="claude-code:1")
    leaf(connection, session)
    tag_all(pool, ScriptedTagger(["project:web"]))
    merged = merge_values(connection, "project", "web", "tidewatch", by="ada").decision
    assert merged is not None
    connection.execute(
        "UPDATE ros_conversations SET settings = %s WHERE id = %s", ['{"project": "tidewatch"}', session]
    )
    with pytest.raises(ConflictError, match="changed since"):
        undo(connection, merged, by="bea")
    assert has(connection, session, "project:tidewatch")
    assert {one.value for one in list_tags(connection, key="project", statuses=ALL)} == {"tidewatch"}


def test_undoing_an_undo_brings_nothing_back_to_what_is_gone(connection: Connection, session: UUID) -> None:
    summary = tag(connection, kind="summary").entity_id
    added = add_tag(connection, "summary", summary, Literal("topic", "new"), by="ada").decision
    assert added is not None
    undone = _undo(connection, added)
    connection.execute("DELETE FROM ros_summaries WHERE id = %s", [summary])
    reap_tags(connection)
    with pytest.raises(ConflictError, match="gone"):
        undo(connection, undone, by="ada")
    assert not list_tags(connection, value="new", key="topic", statuses=ALL)


@pytest.mark.parametrize(("suggested", "back"), [("topic:postgres", set()), ("topic:caching", {"caching", "redis"})])
def test_a_suggestion_that_gave_way_is_taken_back_with_the_one_that_stood_for_both(
    connection: Connection, pool: Pool, session: UUID, suggested: str, back: set[str]
) -> None:
    merged = _merge(connection, "caching", "redis")
    ask_again(connection, since=None, before=None, dropped_only=False)
    tag_all(pool, ScriptedTagger([suggested]))
    _undo(connection, merged)
    assert {one.value for one in list_tags(connection, statuses=ALL)} - {"postgres"} == back
