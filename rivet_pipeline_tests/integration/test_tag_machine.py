"""Any sequence of suggesting, accepting, rejecting, adding, merging and undoing leaves tags in order.

A model of what must stand is kept beside the store; what it does not say is asked of the store after each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import ConflictError, InvalidInputError, NotFoundError
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.log import read_log, undo
from rivet_pipeline.tags.quality import alias_tags
from rivet_pipeline.tags.read import count_tags, list_tags
from rivet_pipeline.tags.review import Item, add_tag, decide
from rivet_pipeline.tags.types import Decision, Tag
from rivet_pipeline.tags.vocabulary import list_values, merge_values
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_summary
from rivet_pipeline_tests.integration.tagging import propose

VALUES = ("cache", "caching", "caches", "redis")
ALL: Any = ("suggested", "accepted", "rejected")

values = st.sampled_from(VALUES)


def snapshot(connection: Connection) -> list[Any]:
    """Everything that decisions may change."""
    tags = connection.execute("SELECT to_jsonb(t) AS body FROM ros_tags AS t ORDER BY id").fetchall()
    known = connection.execute("SELECT to_jsonb(t) AS body FROM ros_tag_taxonomy AS t ORDER BY id").fetchall()
    return [row["body"] for row in [*tags, *known]]


class Reviewing(RuleBasedStateMachine):
    """Two leaves of one session, and what reviewers and taggers do with them."""

    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        for table in ("ros_tags", "ros_tag_taxonomy", "ros_tag_decisions", "ros_tag_extractions"):
            self.connection.execute(f"DELETE FROM {table}".encode())
        self.session = add_conversation(self.connection)
        self.leaves = [add_summary(self.connection, f"leaf {n}", conversation=self.session) for n in range(2)]
        self.refused: set[tuple[UUID, str]] = set()

    def tags(self) -> list[Tag]:
        return list_tags(self.connection, conversation_id=self.session, statuses=ALL)

    def target(self, value: str) -> str:
        row = self.connection.execute("SELECT ros_tag_target('topic', %s) AS value", [value]).fetchone()
        assert row is not None
        return str(row["value"])

    @rule(value=values, leaf=st.integers(0, 1))
    def suggest(self, value: str, leaf: int) -> None:
        before = {(tag.entity_id, tag.value): tag for tag in self.tags()}
        propose(self.connection, self.leaves[leaf], [f"topic:{value}"])
        for tag in self.tags():
            known = before.get((tag.entity_id, tag.value))
            if known is None:
                assert (tag.status, tag.value, tag.decided_by) == ("suggested", self.target(value), None)
            elif known.reviewed:
                assert tag == known

    @precondition(lambda self: self.tags())
    @rule(data=st.data(), accept=st.booleans(), stale=st.booleans())
    def judge(self, data: Any, accept: bool, stale: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags(), key=lambda one: (str(one.entity_kind), one.value, one.id))))
        wanted: Decision = "accepted" if accept else "rejected"
        seen = tag.revision - 1 if stale else tag.revision
        [result] = decide(self.connection, [Item(tag.id, wanted, seen=seen)], by="ada").items
        [now] = [one for one in self.tags() if one.id == tag.id]
        if tag.status == wanted and tag.reviewed:
            assert (result.outcome, now) == ("unchanged", tag)
        elif stale:
            assert (result.outcome, now) == ("conflict", tag)
        else:
            assert (result.outcome, now.status, now.decided_by) == ("changed", wanted, "ada")

    @rule(value=values)
    def add(self, value: str) -> None:
        [result] = add_tag(self.connection, "conversation", self.session, Literal("topic", value), by="ada").items
        assert result.tag is not None
        assert (result.tag.value, result.tag.status) == (self.target(value), "accepted")
        assert result.tag.reviewed

    @rule(value=values, into=values)
    def merge(self, value: str, into: str) -> None:
        before = snapshot(self.connection)
        carried = {one.value for one in count_tags(self.connection)}
        circle = value == into or self.target(into) == value
        pulled = self.target(value) not in (value, self.target(into))
        try:
            merged = merge_values(self.connection, "topic", value, into, by="ada")
        except InvalidInputError:
            rejected = {one.value for one in list_values(self.connection) if one.status == "rejected"}
            assert circle or pulled or self.target(into) in rejected
            assert snapshot(self.connection) == before
            return
        except NotFoundError:
            assert value not in {one.value for one in list_values(self.connection)}
            return
        assert not circle
        assert not pulled
        assert self.target(value) == merged.into
        after = {one.value for one in count_tags(self.connection)}
        assert value not in after
        if value in carried:
            assert merged.into in after

    @precondition(lambda self: any(one.undone_by is None for one in read_log(self.connection)))
    @rule(data=st.data())
    def take_back(self, data: Any) -> None:
        log = [one for one in read_log(self.connection) if one.undone_by is None]
        entry = data.draw(st.sampled_from(log))
        before = snapshot(self.connection)
        try:
            done = undo(self.connection, entry.decision, by="bea")
        except ConflictError:
            assert snapshot(self.connection) == before
            return
        undo(self.connection, done.decision, by="bea")
        assert snapshot(self.connection) == before

    @precondition(lambda self: any(one.undone_by is None for one in read_log(self.connection)))
    @rule()
    def take_back_the_last(self) -> None:
        """The last decision can be undone, unless a tagger has written on top of it."""
        entry = next(one for one in read_log(self.connection) if one.undone_by is None)
        try:
            undo(self.connection, entry.decision, by="bea")
        except ConflictError:
            return
        assert entry.decision in {one.decision for one in read_log(self.connection) if one.undone_by is not None}

    @invariant()
    def no_tag_has_an_alias_for_a_value_and_no_alias_is_chained(self) -> None:
        assert alias_tags(self.connection).at_fault == 0
        aliases = {one.value: one.alias_of for one in list_values(self.connection, key="topic") if one.alias_of}
        assert not set(aliases.values()) & set(aliases)

    @invariant()
    def the_filter_and_the_counts_agree(self) -> None:
        counted = {one.value for one in count_tags(self.connection) if one.conversations}
        found = self.connection.execute(
            """SELECT value, ros_tag_target('topic', value) AS target,
                      ros_conversation_has_tag(%(session)s, 'topic', value) AS one,
                      %(session)s IN (SELECT ros_conversations_with_tag('topic', value)) AS many
               FROM unnest(%(values)s::text[]) AS v (value)""",
            {"session": self.session, "values": list(VALUES)},
        ).fetchall()
        for row in found:
            assert (row["one"], row["many"]) == (row["target"] in counted, row["target"] in counted)

    @invariant()
    def every_reviewed_tag_says_who_and_every_suggestion_nobody(self) -> None:
        for tag in self.tags():
            assert (tag.decided_by is None) == (tag.status == "suggested")


@contextmanager
def on(connection: Connection) -> Iterator[type[Reviewing]]:
    Reviewing.connection = connection
    yield Reviewing


@pytest.mark.timeout(240)
def test_any_sequence_of_reviews_leaves_tags_in_order(connection: Connection) -> None:
    connection.execute("SET synchronous_commit = off")
    with on(connection) as machine:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=15,
                stateful_step_count=15,
                deadline=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert connection.execute("SELECT count(*) AS n FROM ros_conversations").fetchone() != {"n": 0}
