"""Lists of conversations within filters: an agent, a tag, a period in which something was said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.conversation import list_conversations
from rivet_pipeline.tags.literals import read_literal
from rivet_pipeline.tags.review import add_tag
from rivet_pipeline_tests.integration.memory_rows import NOW, add_conversation, add_message

MONDAY, TUESDAY, WEDNESDAY = (datetime(2026, 3, day, 12, tzinfo=UTC) for day in (2, 3, 4))


@pytest.fixture
def both(connection: Connection) -> tuple[UUID, UUID]:
    """One that was spoken in on Monday and on Wednesday, and one of another agent on Tuesday."""
    split = add_conversation(connection, key="claude-code:split", agent="opus")
    other = add_conversation(connection, key="codex:other", agent="codex")
    for conversation, at in ((split, MONDAY), (other, TUESDAY), (split, WEDNESDAY)):
        add_message(connection, "said", conversation=conversation, age_days=(NOW - at) / timedelta(days=1))
    connection.execute("UPDATE ros_conversations SET updated_at = %s WHERE id = %s", [WEDNESDAY, split])
    connection.execute("UPDATE ros_conversations SET updated_at = %s WHERE id = %s", [TUESDAY, other])
    return split, other


def test_a_period_asks_for_what_was_said_in_it(connection: Connection, both: tuple[UUID, UUID]) -> None:
    split, other = both

    def within(since: datetime | None, before: datetime | None) -> list[UUID]:
        return [one.id for one in list_conversations(connection, since=since, before=before)]

    assert within(None, None) == [split, other]
    assert within(TUESDAY, WEDNESDAY) == [other]
    assert within(None, TUESDAY) == [split]
    assert within(WEDNESDAY, None) == [split]
    assert within(datetime(2026, 3, 5, tzinfo=UTC), None) == []


def test_a_tag_and_an_agent_narrow_too(connection: Connection, both: tuple[UUID, UUID]) -> None:
    split, other = both
    add_tag(connection, "conversation", other, read_literal("topic:caching"), by="ada")
    assert [one.id for one in list_conversations(connection, tag="topic:caching")] == [other]
    assert list_conversations(connection, tag="topic:caching", agent="opus") == []
    assert [one.id for one in list_conversations(connection, agent="opus")] == [split]
    with pytest.raises(InvalidInputError, match="key:value"):
        list_conversations(connection, tag="caching")
