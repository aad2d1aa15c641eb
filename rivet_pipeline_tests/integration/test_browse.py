"""Listings: total order, pages without gaps, filters."""

from __future__ import annotations

import itertools
from datetime import timedelta
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.browse import browse
from rivet_pipeline.retrieval.types import BrowseRequest
from rivet_pipeline_tests.integration.memory_rows import NOW, add_conversation, add_message


def _pages(connection: Connection, *, newest_first: bool, size: int, between: bool = False) -> list[UUID]:
    found: list[UUID] = []
    cursor: str | None = None
    while True:
        page = browse(connection, BrowseRequest(limit=size, newest_first=newest_first, cursor=cursor))
        found += [message.id for message in page.messages]
        if between:
            add_message(connection, "came in between", age_days=-1 if newest_first else 100)
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_equal_times_keep_the_order_of_writing(connection: Connection) -> None:
    conversation = add_conversation(connection)
    written = [add_message(connection, str(number), conversation=conversation) for number in range(20)]
    ascending = browse(connection, BrowseRequest(newest_first=False))
    assert [message.id for message in ascending.messages] == written
    descending = browse(connection, BrowseRequest())
    assert [message.id for message in descending.messages] == written[::-1]
    assert descending.next_cursor is None


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_have_neither_duplicates_nor_gaps_while_rows_are_added(
    connection: Connection, newest_first: bool
) -> None:
    conversation = add_conversation(connection)
    written = [
        add_message(connection, str(number), conversation=conversation, age_days=number // 4) for number in range(23)
    ]
    found = _pages(connection, newest_first=newest_first, size=5, between=True)
    assert len(found) == len(set(found))
    assert set(found) == set(written)


def test_a_page_that_is_exactly_full_has_no_next_one(connection: Connection) -> None:
    for number in range(4):
        add_message(connection, str(number))
    assert browse(connection, BrowseRequest(limit=4)).next_cursor is None
    assert browse(connection, BrowseRequest(limit=3)).next_cursor is not None


def test_filters(connection: Connection) -> None:
    mine = add_conversation(connection, agent="codex")
    old = add_message(connection, "old", agent="codex", conversation=mine, age_days=3)
    tool = add_message(connection, "[tool]", role="tool", tool_name="Bash", age_days=2)
    said = add_message(connection, "said", role="assistant", age_days=1)

    def found(**options: object) -> list[UUID]:
        return [m.id for m in browse(connection, BrowseRequest(**options)).messages]  # type: ignore[arg-type]

    assert found(agent="codex") == found(conversation_id=mine) == [old]
    assert found(role="assistant") == [said]
    assert found(tool_name="Bash") == found(tool_name="Bash", include_tools=False) == [tool]
    assert found(include_tools=False) == [said, old]
    assert found(since=NOW - timedelta(days=2)) == [said, tool]
    assert found(before=NOW - timedelta(days=2)) == [old]


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "bnVsbA", "e30", "WzEsMiwzXQ", "é", "WyIyMDI2LTAxLTAxIiwxLHRydWVd"])
def test_a_foreign_cursor_is_refused(connection: Connection, cursor: str) -> None:
    with pytest.raises(InvalidInputError, match="cursor"):
        browse(connection, BrowseRequest(cursor=cursor))


def test_a_cursor_of_the_other_order_is_refused(connection: Connection) -> None:
    for number in range(3):
        add_message(connection, str(number))
    cursor = browse(connection, BrowseRequest(limit=1)).next_cursor
    with pytest.raises(InvalidInputError, match="other order"):
        browse(connection, BrowseRequest(limit=1, newest_first=False, cursor=cursor))


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("between", [False, True])
def test_going_back_shows_the_same_pages_in_the_other_order(
    connection: Connection, newest_first: bool, between: bool
) -> None:
    conversation = add_conversation(connection)
    written = [
        add_message(connection, str(number), conversation=conversation, age_days=number // 4) for number in range(23)
    ]
    there: list[list[UUID]] = []
    page = browse(connection, BrowseRequest(limit=5, newest_first=newest_first))
    assert page.previous_cursor is None
    while True:
        there.append([message.id for message in page.messages])
        if page.next_cursor is None:
            break
        page = browse(connection, BrowseRequest(limit=5, newest_first=newest_first, cursor=page.next_cursor))
    back = [there[-1]]
    while page.previous_cursor is not None:
        page = browse(connection, BrowseRequest(limit=5, newest_first=newest_first, cursor=page.previous_cursor))
        assert page.next_cursor is not None
        back.insert(0, [message.id for message in page.messages])
        if between:
            add_message(connection, "came later", age_days=100 if newest_first else -1)
    assert back == there
    assert sorted(itertools.chain(*back), key=str) == sorted(written, key=str)


def test_a_row_that_comes_before_the_first_page_is_reached_by_going_back(connection: Connection) -> None:
    for number in range(4):
        add_message(connection, str(number), age_days=number)
    second = browse(connection, BrowseRequest(limit=2, cursor=browse(connection, BrowseRequest(limit=2)).next_cursor))
    newer = add_message(connection, "newer", age_days=-1)
    before = browse(connection, BrowseRequest(limit=2, cursor=second.previous_cursor))
    assert [message.content for message in before.messages] == ["0", "1"]
    first = browse(connection, BrowseRequest(limit=2, cursor=before.previous_cursor))
    assert [message.id for message in first.messages] == [newer]
    assert first.previous_cursor is None


def test_a_session_is_all_of_its_agents_conversations(connection: Connection) -> None:
    mine = [
        add_message(connection, agent, conversation=add_conversation(connection, agent=agent, key="cc:1"), agent=agent)
        for agent in ("claude", "codex")
    ]
    add_message(connection, "another session")
    listed = browse(connection, BrowseRequest(session_key="cc:1", newest_first=False))
    assert [message.id for message in listed.messages] == mine
    assert browse(connection, BrowseRequest(session_key="cc:2")).messages == []


def test_a_tool_is_found_by_its_whole_name_however_long(connection: Connection) -> None:
    long = "x" * 6000
    mine = add_message(connection, "", role="tool", tool_name=long, tool_result="ok")
    add_message(connection, "", role="tool", tool_name=f"{long}y", tool_result="ok")
    assert [message.id for message in browse(connection, BrowseRequest(tool_name=long)).messages] == [mine]
