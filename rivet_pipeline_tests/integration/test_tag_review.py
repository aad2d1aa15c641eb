"""Reviewing tags over a real store: decisions, their log, the vocabulary, what is shown; several reviewers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.errors import ConflictError, InvalidInputError, NotFoundError, StoreUnavailableError
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.log import read_log, undo
from rivet_pipeline.tags.read import (
    count_tags,
    find_tag,
    list_tags,
    lookup_sessions,
    pending_on,
    read_pending,
    tags_of_conversations,
)
from rivet_pipeline.tags.review import Item, add_tag, decide, decide_literal, find_conversation, suggest_removal
from rivet_pipeline.tags.vocabulary import (
    Entry,
    accepted_vocabulary,
    decide_values,
    list_values,
    merge_values,
    upsert_value,
)
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.tagging import (
    ALL,
    CACHING,
    ScriptedTagger,
    has,
    leaf,
    rows,
    standing,
    tag,
    tag_all,
)


@pytest.fixture
def session(connection: Connection, pool: Pool) -> UUID:
    """A session with one leaf and two suggested tags."""
    conversation = add_conversation(connection, key="claude-code:1")
    leaf(connection, conversation)
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:redis"]))
    return conversation


# --- decisions ---


def test_a_decision_says_who_and_when_and_can_be_undone(connection: Connection, session: UUID) -> None:
    before = tag(connection)
    done = decide(connection, [Item(before.id, "accepted", before.revision)], by="  Ada  L. ")
    now = tag(connection)
    assert (now.status, now.decided_by, now.reviewed) == ("accepted", "Ada L.", True)
    assert now.decided_at is not None
    assert done.items[0].tag == now
    [entry] = read_log(connection)
    assert (entry.decision, entry.action, entry.decided_by, entry.rows) == (done.decision, "decide", "Ada L.", 1)
    assert has(connection, session, "topic:caching")
    undone = undo(connection, entry.decision, by="bea")
    assert tag(connection) == before
    assert not has(connection, session, "topic:caching")
    assert (undone.action, undone.undoes) == ("undo", done.decision)
    with pytest.raises(ConflictError, match="undone already"):
        undo(connection, entry.decision, by="bea")
    undo(connection, undone.decision, by="bea")
    assert tag(connection) == now


def test_each_item_of_a_bulk_has_a_result_of_its_own(connection: Connection, session: UUID) -> None:
    caching, redis = tag(connection), tag(connection, "redis")
    nobody = uuid4()
    done = decide(
        connection,
        [
            Item(caching.id, "accepted"),
            Item(redis.id, "rejected", seen=redis.revision),
            Item(nobody, "accepted"),
            Item(redis.id, "removed"),
            Item(caching.id, "accepted"),
            Item(caching.id, "kept"),
        ],
        by="ada",
    )
    assert [item.outcome for item in done.items] == [
        "changed",
        "changed",
        "missing",
        "unchanged",
        "unchanged",
        "invalid",
    ]
    assert done.changed == 2
    assert read_log(connection)[0].rows == 2


def test_a_decision_that_rests_on_something_old_is_a_conflict(connection: Connection, session: UUID) -> None:
    seen = tag(connection)
    decide(connection, [Item(seen.id, "accepted", seen.revision)], by="ada")
    [late] = decide(connection, [Item(seen.id, "rejected", seen.revision)], by="bea").items
    assert late.outcome == "conflict"
    assert "accepted by ada" in late.problem
    [blind] = decide(connection, [Item(seen.id, "rejected")], by="bea").items
    assert blind.outcome == "conflict"
    [same] = decide(connection, [Item(seen.id, "accepted", seen.revision)], by="bea").items
    assert same.outcome == "unchanged"
    now = tag(connection)
    [informed] = decide(connection, [Item(seen.id, "rejected", now.revision)], by="bea").items
    assert informed.outcome == "changed"
    assert tag(connection).decided_by == "bea"


def test_undoing_below_another_decision_is_a_conflict_and_changes_nothing(
    connection: Connection, session: UUID
) -> None:
    first = decide(connection, [Item(tag(connection).id, "accepted")], by="ada").decision
    now = tag(connection)
    second = decide(connection, [Item(now.id, "rejected", now.revision)], by="bea").decision
    assert first is not None
    assert second is not None
    with pytest.raises(ConflictError, match="topic:caching has been changed since"):
        undo(connection, first, by="ada")
    assert tag(connection).status == "rejected"
    undo(connection, second, by="ada")
    undo(connection, first, by="ada")
    assert tag(connection).status == "suggested"


def test_what_cannot_be_decided_is_refused(connection: Connection, session: UUID) -> None:
    with pytest.raises(InvalidInputError, match="by: "):
        decide(connection, [], by="  ")
    with pytest.raises(InvalidInputError, match="more than 1000"):
        decide(connection, [Item(uuid4(), "accepted")] * 1001, by="ada")
    with pytest.raises(NotFoundError):
        undo(connection, uuid4(), by="ada")
    with pytest.raises(NotFoundError):
        add_tag(connection, "summary", uuid4(), CACHING, by="ada")
    with pytest.raises(NotFoundError):
        decide_literal(connection, session, Literal("topic", "nothing"), "accepted", by="ada")
    with pytest.raises(InvalidInputError, match="no tag begins"):
        find_tag(connection, "0" * 8)
    assert find_tag(connection, str(tag(connection).id)[:13]) == tag(connection)


def test_a_literal_is_decided_wherever_it_stands_on_the_session(connection: Connection, session: UUID) -> None:
    done = decide_literal(connection, session, CACHING, "accepted", by="ada")
    assert done.changed == 2
    assert ("summary", "topic:caching", "accepted") in standing(connection)
    assert done.decision is not None
    undo(connection, done.decision, by="ada")
    assert {status for _, _, status in standing(connection)} == {"suggested"}


def test_a_person_s_tag_is_accepted_at_once_also_over_a_rejection(connection: Connection, session: UUID) -> None:
    rejected = decide(connection, [Item(tag(connection).id, "rejected")], by="ada")
    assert rejected.changed == 1
    done = add_tag(connection, "conversation", session, CACHING, by="bea", display="Caching")
    assert (done.changed, tag(connection).status, tag(connection).decided_by) == (1, "accepted", "bea")
    assert add_tag(connection, "conversation", session, CACHING, by="cy").decision is None
    new = add_tag(connection, "conversation", session, Literal("topic", "web-sockets"), by="bea", display="Web Sockets")
    assert new.items[0].tag is not None
    assert (new.items[0].tag.display, new.items[0].tag.source) == ("Web Sockets", "person")
    assert new.decision is not None
    undo(connection, new.decision, by="bea")
    assert "topic:web-sockets" not in {literal for _, literal, _ in standing(connection)}
    assert done.decision is not None
    undo(connection, done.decision, by="bea")
    assert tag(connection).status == "rejected"


def test_removals_are_suggested_followed_or_refused(connection: Connection, session: UUID) -> None:
    assert suggest_removal(connection, uuid4(), by="ada").items[0].outcome == "missing"
    assert suggest_removal(connection, tag(connection).id, by="ada").items[0].outcome == "invalid"
    decide_literal(connection, session, CACHING, "accepted", by="ada")
    decide(connection, [Item(tag(connection, "redis").id, "accepted")], by="ada")
    suggest_removal(connection, tag(connection).id, by="bot", reason="not  about it")
    suggest_removal(connection, tag(connection, "redis").id, by="bot")
    assert suggest_removal(connection, tag(connection).id, by="bot").items[0].outcome == "unchanged"
    [waiting] = read_pending(connection)
    assert [(str(one.literal), one.rows[0].removal_reason) for one in waiting.tags if one.removal] == [
        ("topic:caching", "not about it"),
        ("topic:redis", ""),
    ]
    decide_literal(connection, session, CACHING, "removed", by="ada")
    decide_literal(connection, session, Literal("topic", "redis"), "kept", by="ada")
    assert (tag(connection).status, tag(connection).removal) == ("rejected", None)
    assert (tag(connection, "redis").status, tag(connection, "redis").removal) == ("accepted", "refused")
    assert suggest_removal(connection, tag(connection, "redis").id, by="bot").items[0].outcome == "invalid"


# --- what is shown ---


def test_what_waits_is_shown_by_session_each_literal_once(connection: Connection, pool: Pool, session: UUID) -> None:
    connection.execute("UPDATE ros_tags SET created_at = now() - interval '3 hours'")
    other = add_conversation(connection, key="claude-code:2", settings={"project": "shop"})
    leaf(connection, other, "And the end.")
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    newest, oldest = read_pending(connection)
    assert (newest.conversation_id, oldest.conversation_id) == (other, session)
    assert newest.accepted == ["project:shop"]
    assert newest.excerpt.startswith("The service was deployed")
    assert len(newest.excerpt) <= 200
    assert 10_000 < oldest.age_seconds < 12_000
    assert [str(one.literal) for one in oldest.tags] == ["topic:caching", "topic:redis"]
    assert [row.entity_kind for row in oldest.tags[0].rows] == ["conversation", "summary"]
    assert oldest.waiting == 4
    assert [one.conversation_id for one in read_pending(connection, limit=1)] == [other]
    assert len(read_pending(connection, conversation_id=session)) == 1
    [day] = {row["day"] for row in rows(connection, "SELECT day FROM ros_conversations")}
    assert pending_on(connection, [day]) == {day: 6}


def test_what_stood_on_something_gone_does_not_wait(connection: Connection, session: UUID) -> None:
    decide(connection, [Item(one.id, "accepted") for one in (tag(connection), tag(connection, "redis"))], by="ada")
    connection.execute("DELETE FROM ros_summaries")
    assert read_pending(connection) == []


def test_counts_filter_and_lookup_mean_the_same(connection: Connection, pool: Pool, session: UUID) -> None:
    other = add_conversation(connection, key="codex:2", agent="codex")
    summary = leaf(connection, other)
    add_tag(connection, "summary", summary, CACHING, by="ada")
    assert has(connection, other, "topic:caching")
    assert not has(connection, session, "topic:caching")
    decide_literal(connection, session, CACHING, "accepted", by="ada")
    assert [(one.key, one.value, one.conversations) for one in count_tags(connection)] == [("topic", "caching", 2)]
    found = rows(connection, "SELECT c FROM ros_conversations_with_tag('topic', 'caching') AS c")
    assert {row["c"] for row in found} == {session, other}
    sessions = lookup_sessions(connection, ["codex:2", "2", "claude-code:1", "nobody:9"], statuses=ALL)
    told = {
        key: {(str(one.literal), one.status, one.reviewed, one.on_session) for one in tags}
        for key, tags in sessions.items()
    }
    assert told == {
        "codex:2": {("topic:caching", "accepted", True, False)},
        "2": {("topic:caching", "accepted", True, False)},
        "claude-code:1": {("topic:caching", "accepted", True, True), ("topic:redis", "suggested", False, True)},
        "nobody:9": set(),
    }
    assert tags_of_conversations(connection, []) == {}


def test_a_key_of_several_agents_needs_the_agent(connection: Connection) -> None:
    one, other = (add_conversation(connection, key="shared:1", agent=agent) for agent in ("codex", "opus"))
    with pytest.raises(InvalidInputError, match="codex, opus"):
        find_conversation(connection, "shared:1")
    assert find_conversation(connection, "shared:1", "opus") == other
    assert find_conversation(connection, "shared:1", "codex") == one
    with pytest.raises(NotFoundError):
        find_conversation(connection, "shared:2")


def test_without_the_tables_reads_are_empty_and_writes_refused(connection: Connection, session: UUID) -> None:
    connection.execute("DROP TABLE ros_tags, ros_tag_taxonomy, ros_tag_decisions, ros_tag_extractions CASCADE")
    assert list_tags(connection) == []
    assert read_pending(connection) == []
    assert count_tags(connection) == []
    assert list_values(connection) == []
    assert read_log(connection) == []
    assert lookup_sessions(connection, ["claude-code:1"]) == {"claude-code:1": []}
    assert tags_of_conversations(connection, [session]) == {}
    writes: list[Callable[[], object]] = [
        lambda: decide(connection, [Item(uuid4(), "accepted")], by="ada"),
        lambda: add_tag(connection, "conversation", session, CACHING, by="ada"),
        lambda: suggest_removal(connection, uuid4(), by="ada"),
        lambda: upsert_value(connection, CACHING, by="ada"),
        lambda: decide_values(connection, [Entry(CACHING, "accepted")], by="ada"),
        lambda: merge_values(connection, "topic", "a", "b", by="ada"),
        lambda: undo(connection, uuid4(), by="ada"),
    ]
    for write in writes:
        with pytest.raises(StoreUnavailableError, match="not installed"):
            write()


# --- the vocabulary ---


def test_the_vocabulary_is_described_decided_and_offered(connection: Connection, session: UUID) -> None:
    assert accepted_vocabulary(connection, limit=10) == []
    value = upsert_value(connection, CACHING, by="ada", display="Caching", description="Keeping  answers")
    assert (value.status, value.description, value.decided_by) == ("accepted", "Keeping answers", "ada")
    assert upsert_value(connection, CACHING, by="ada").revision == value.revision
    assert upsert_value(connection, CACHING, by="bea", description="Other").display == "Caching"
    assert accepted_vocabulary(connection, limit=10) == [CACHING]
    with pytest.raises(InvalidInputError, match="longer"):
        upsert_value(connection, CACHING, by="ada", description="x" * 1001)
    assert [one.value for one in list_values(connection, statuses=["suggested"])] == ["redis"]


def test_a_rejected_value_takes_its_suggestions_along_and_undo_brings_them_back(
    connection: Connection, session: UUID
) -> None:
    redis = Literal("topic", "redis")
    done = decide_values(connection, [Entry(redis, "rejected"), Entry(Literal("topic", "x"), "accepted")], by="ada")
    assert [item.outcome for item in done.items] == ["changed", "missing"]
    assert {status for _, literal, status in standing(connection) if literal == "topic:redis"} == {"rejected"}
    assert decide_values(connection, [Entry(redis, "accepted")], by="bea").items[0].outcome == "conflict"
    assert decide_values(connection, [Entry(redis, "rejected")], by="bea").items[0].outcome == "unchanged"
    assert done.decision is not None
    undo(connection, done.decision, by="ada")
    assert {status for _, literal, status in standing(connection) if literal == "topic:redis"} == {"suggested"}


def test_a_merge_repoints_tags_leaves_an_alias_and_can_be_undone(
    connection: Connection, pool: Pool, session: UUID
) -> None:
    decide_literal(connection, session, CACHING, "accepted", by="ada")
    other = add_conversation(connection)
    add_tag(connection, "conversation", other, Literal("topic", "cache"), by="ada")
    before = rows(connection, "SELECT t.* FROM ros_tags AS t ORDER BY id")
    merged = merge_values(connection, "topic", "caching", "cache", by="ada")
    assert (merged.into, merged.moved, merged.dropped) == ("cache", 2, 0)
    for name in ("topic:caching", "topic:cache"):
        assert has(connection, session, name)
        assert has(connection, other, name)
    assert [(one.value, one.conversations) for one in count_tags(connection)] == [("cache", 2)]
    assert list_tags(connection, key="topic", value="caching")[0].value == "cache"
    [alias] = [one for one in list_values(connection) if one.alias_of]
    assert (alias.value, alias.alias_of) == ("caching", "cache")
    assert accepted_vocabulary(connection, limit=10) == [Literal("topic", "cache")]
    again = add_tag(connection, "conversation", add_conversation(connection), CACHING, by="ada")
    assert again.items[0].tag is not None
    assert again.items[0].tag.value == "cache"
    assert again.decision is not None
    undo(connection, again.decision, by="ada")
    assert merged.decision is not None
    undo(connection, merged.decision, by="ada")
    assert rows(connection, "SELECT t.* FROM ros_tags AS t ORDER BY id") == before


@pytest.mark.parametrize(
    ("of", "into", "left"),
    [
        ("accepted", "rejected", "accepted"),
        ("rejected", "accepted", "accepted"),
        ("rejected", "suggested", "rejected"),
        ("suggested", "rejected", "rejected"),
        ("suggested", "suggested", "suggested"),
    ],
)
def test_where_both_stand_the_firmer_decision_survives(
    connection: Connection, pool: Pool, of: Any, into: Any, left: str
) -> None:
    conversation = add_conversation(connection)
    leaf(connection, conversation)
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:cache"]))
    for value, status in (("caching", of), ("cache", into)):
        if status != "suggested":
            decide(connection, [Item(tag(connection, value).id, status)], by="ada")
    before = rows(connection, "SELECT t.* FROM ros_tags AS t ORDER BY id")
    merged = merge_values(connection, "topic", "caching", "cache", by="ada")
    assert tag(connection, "cache").status == left
    assert merged.dropped == 2
    assert {literal for _, literal, _ in standing(connection)} == {"topic:cache"}
    assert merged.decision is not None
    undo(connection, merged.decision, by="ada")
    assert rows(connection, "SELECT t.* FROM ros_tags AS t ORDER BY id") == before


def test_chains_stay_flat_and_circles_are_refused(connection: Connection, session: UUID) -> None:
    for one in ("a", "b", "c"):
        upsert_value(connection, Literal("topic", one), by="ada")
    merge_values(connection, "topic", "a", "b", by="ada")
    merge_values(connection, "topic", "b", "c", by="ada")
    aliases = {one.value: one.alias_of for one in list_values(connection) if one.alias_of}
    assert aliases == {"a": "c", "b": "c"}
    for value, into in (("c", "a"), ("c", "b"), ("c", "c")):
        with pytest.raises(InvalidInputError):
            merge_values(connection, "topic", value, into, by="ada")
    with pytest.raises(NotFoundError):
        merge_values(connection, "topic", "unheard-of", "c", by="ada")
    with pytest.raises(InvalidInputError, match="merged into c"):
        upsert_value(connection, Literal("topic", "a"), by="ada")
    known = upsert_value(connection, Literal("topic", "d"), by="ada")
    decide_values(connection, [Entry(Literal("topic", "d"), "rejected", known.revision)], by="ada")
    with pytest.raises(InvalidInputError, match="rejected"):
        merge_values(connection, "topic", "c", "d", by="ada")
    assert merge_values(connection, "topic", "caching", "a", by="ada").into == "c"


def test_an_alias_is_not_merged_away_from_its_tags(connection: Connection, session: UUID) -> None:
    merge_values(connection, "topic", "caching", "cache", by="ada")
    with pytest.raises(InvalidInputError, match="merged into cache"):
        merge_values(connection, "topic", "caching", "redis", by="ada")
    assert merge_values(connection, "topic", "caching", "cache", by="ada").decision is None


def test_a_merge_stays_within_its_key(connection: Connection, session: UUID) -> None:
    add_tag(connection, "conversation", session, Literal("project", "shop"), by="ada")
    with pytest.raises(InvalidInputError, match="another key"):
        merge_values(connection, "topic", "caching", "project:shop", by="ada")
    assert merge_values(connection, "topic", "caching", "std:cache", by="ada").into == "std:cache"


def test_rejecting_a_value_by_describing_it_rejects_its_suggestions_too(connection: Connection, session: UUID) -> None:
    upsert_value(connection, CACHING, by="ada", status="rejected", description="Too general")
    assert tag(connection).status == tag(connection, kind="summary").status == "rejected"
    undo(connection, read_log(connection)[0].decision, by="ada")
    assert tag(connection).status == "suggested"


def test_describing_a_value_leaves_what_was_decided_of_it(connection: Connection, session: UUID) -> None:
    upsert_value(connection, CACHING, by="ada", status="rejected")
    described = upsert_value(connection, CACHING, by="bea", description="Too general")
    assert (described.status, described.decided_by, described.description) == ("rejected", "ada", "Too general")
    assert upsert_value(connection, CACHING, by="bea").status == "accepted"


# --- several reviewers at once ---


def at_once(pool: Pool, *works: Callable[[Connection], object]) -> list[object]:
    """Each work on a connection of its own, all begun together; what each returned or raised."""
    barrier = threading.Barrier(len(works), timeout=30)
    results: list[object] = [None] * len(works)

    def run(place: int, work: Callable[[Connection], object]) -> None:
        with pool.connection() as connection:
            barrier.wait()
            try:
                results[place] = work(connection)
            except Exception as error:
                results[place] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_reviewers_who_saw_the_same_one_decides(connection: Connection, pool: Pool, session: UUID) -> None:
    seen = tag(connection)
    wanted: list[Any] = ["accepted", "rejected"] * 3
    results = at_once(
        pool,
        *[
            lambda own, what=what, n=n: decide(own, [Item(seen.id, what, seen.revision)], by=f"reviewer {n}")
            for n, what in enumerate(wanted)
        ],
    )
    outcomes = [result.items[0].outcome for result in results]  # type: ignore[attr-defined]
    assert outcomes.count("changed") == 1
    assert set(outcomes) <= {"changed", "conflict", "unchanged"}
    winner = outcomes.index("changed")
    assert (tag(connection).status, tag(connection).decided_by) == (wanted[winner], f"reviewer {winner}")
    assert all(
        (outcome == "conflict") == (what != wanted[winner]) for outcome, what in zip(outcomes, wanted, strict=True)
    )
    assert len(read_log(connection)) == 1


def test_bulks_in_opposite_order_do_not_wait_for_each_other_for_ever(connection: Connection, pool: Pool) -> None:
    for number in range(10):
        leaf(connection, words=f"Leaf {number}.")
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:redis"]))
    every = [one.id for one in list_tags(connection, statuses=ALL)]
    results = at_once(
        pool,
        lambda own: decide(own, [Item(one, "accepted") for one in every], by="ada"),
        lambda own: decide(own, [Item(one, "accepted") for one in reversed(every)], by="bea"),
        lambda own: merge_values(own, "topic", "redis", "caching", by="cy"),
        lambda own: add_tag(own, "conversation", every_conversation(own)[0], Literal("topic", "redis"), by="di"),
    )
    assert [one for one in results if isinstance(one, Exception)] == []
    assert {literal for _, literal, _ in standing(connection)} == {"topic:caching"}
    assert {status for _, _, status in standing(connection)} == {"accepted"}


def every_conversation(connection: Connection) -> list[UUID]:
    return [row["id"] for row in rows(connection, "SELECT id FROM ros_conversations ORDER BY id")]


def test_an_undo_and_a_decision_at_once_leave_one_of_both(connection: Connection, pool: Pool, session: UUID) -> None:
    first = decide(connection, [Item(tag(connection).id, "accepted")], by="ada").decision
    now = tag(connection)
    assert first is not None
    undone, decided = at_once(
        pool,
        lambda own: undo(own, first, by="bea"),
        lambda own: decide(own, [Item(now.id, "rejected", now.revision)], by="cy"),
    )
    if isinstance(undone, ConflictError):
        assert tag(connection).status == "rejected"
    else:
        assert tag(connection).status == "suggested"
        assert decided.items[0].outcome in ("conflict", "missing")  # type: ignore[attr-defined]


def test_two_who_add_the_same_tag_both_succeed(connection: Connection, pool: Pool, session: UUID) -> None:
    literal = Literal("topic", "new")
    results = at_once(
        pool,
        *[lambda own, n=n: add_tag(own, "conversation", session, literal, by=f"reviewer {n}") for n in range(4)],
    )
    outcomes = sorted(result.items[0].outcome for result in results)  # type: ignore[attr-defined]
    assert outcomes == ["changed", "unchanged", "unchanged", "unchanged"]
    assert len(read_log(connection)) == 1


def test_opposite_merges_at_once_leave_no_circle(connection: Connection, pool: Pool, session: UUID) -> None:
    results = at_once(
        pool,
        lambda own: merge_values(own, "topic", "caching", "redis", by="ada"),
        lambda own: merge_values(own, "topic", "redis", "caching", by="bea"),
    )
    assert sum(isinstance(one, InvalidInputError) for one in results) == 1
    assert len({literal for _, literal, _ in standing(connection)}) == 1
    assert len([one for one in list_values(connection) if one.alias_of]) == 1
