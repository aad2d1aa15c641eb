"""Tags, periods and roles mean the same in every mode, in listings and for summaries."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval import filters, scoring
from rivet_pipeline.retrieval.browse import browse
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import BrowseRequest, Mode, SearchRequest
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    add_conversation,
    add_message,
    add_summary,
    add_tag,
    find,
    hash_embed,
    ids,
    register_model,
)

MODES: tuple[Mode, ...] = ("hybrid", "fts", "vector", "trigram", "regex")


def tagged_store(connection: Connection) -> dict[str, UUID]:
    """Three sessions about the same: one with the tag, one with it on a summary, one where it was not accepted."""
    register_model(connection)
    rows: dict[str, UUID] = {}
    for name, status in (
        ("session", "accepted"),
        ("below", "accepted"),
        ("refused", "rejected"),
        ("asked", "suggested"),
    ):
        conversation = add_conversation(connection)
        rows[name] = add_message(connection, f"borogoves of the {name}", conversation=conversation, embed=True)
        rows[f"{name} summary"] = add_summary(
            connection, f"borogoves in short, the {name}", conversation=conversation, embed=True
        )
        rows[f"{name} conversation"] = conversation
        add_tag(
            connection,
            "project:shop",
            conversation=conversation,
            summary=rows[f"{name} summary"] if name == "below" else None,
            status=status,
        )
    add_message(connection, "borogoves elsewhere", embed=True)
    refresh_lexicon(connection)
    return rows


def expected(rows: dict[str, UUID]) -> set[UUID]:
    return {rows["session"], rows["session summary"], rows["below"], rows["below summary"]}


@pytest.mark.parametrize("few", [True, False])
def test_a_tag_is_part_of_every_question(connection: Connection, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    if not few:
        monkeypatch.setattr(filters, "FEW_TAGGED", 1)
    rows = tagged_store(connection)
    for mode in MODES:
        for tag in ("project:shop", " Project : SHOP ", "project：shop"):  # noqa: RUF001
            response = find(connection, "borogoves", mode=mode, embedded=True, tag=tag)
            assert set(ids(response.hits)) == expected(rows), (mode, tag)
        assert {hit.tags for hit in response.hits} == {("project:shop",)}
        both = find(connection, "borogoves", mode=mode, embedded=True, tag="project:shop", role="user")
        assert set(ids(both.hits)) == {rows["session"], rows["below"]}
        nothing = find(connection, "borogoves", mode=mode, embedded=True, tag="project:other")
        assert nothing.hits == []
        assert "project:other" in str(nothing.reason)


def test_hits_carry_the_accepted_tags_of_their_session_once(connection: Connection) -> None:
    rows = tagged_store(connection)
    add_tag(connection, "topic:jabberwock", conversation=rows["session conversation"])
    add_tag(connection, "project:shop", conversation=rows["session conversation"], summary=rows["session summary"])
    tags = {hit.id: hit.tags for hit in find(connection, "borogoves").hits}
    assert tags[rows["session"]] == ("project:shop", "topic:jabberwock")
    assert tags[rows["session summary"]] == tags[rows["session"]]
    assert tags[rows["below"]] == ("project:shop",)
    assert tags[rows["refused"]] == tags[rows["asked"]] == ()


def test_a_listing_takes_the_same_tag(connection: Connection) -> None:
    rows = tagged_store(connection)
    listed = browse(connection, BrowseRequest(tag="project:shop"))
    assert {message.id for message in listed.messages} == {rows["session"], rows["below"]}
    assert browse(connection, BrowseRequest(tag="project:other")).messages == []
    with pytest.raises(InvalidInputError, match="key:value"):
        browse(connection, BrowseRequest(tag="shop"))


@pytest.mark.parametrize("tag", ["shop", ":shop", "project:", ":", ""])
def test_what_is_no_tag_is_refused(connection: Connection, tag: str) -> None:
    with pytest.raises(InvalidInputError, match="tag: must be key:value"):
        find(connection, "anything", tag=tag)


def test_a_store_without_tags_answers(connection: Connection) -> None:
    row = connection.execute("SELECT to_regclass('ros_tags') AS tags").fetchone()
    if row is not None and row["tags"] is not None:
        connection.execute("ALTER TABLE ros_tags RENAME TO ros_tags_gone")
    add_message(connection, "borogoves")
    assert [hit.tags for hit in find(connection, "borogoves").hits] == [()]
    response = find(connection, "borogoves", tag="project:shop")
    assert (response.hits, response.reason) == ([], "no session carries the tag project:shop")
    assert browse(connection, BrowseRequest(tag="project:shop")).messages == []


def test_a_rare_tag_is_not_crowded_out(connection: Connection) -> None:
    register_model(connection)
    crowd = add_conversation(connection)
    for number in range(150):
        add_message(connection, f"borogoves {number}", conversation=crowd, embed=True)
    rare = add_conversation(connection)
    wanted = {
        add_message(connection, f"far from them, borogoves {number}", conversation=rare, age_days=500, embed=True)
        for number in range(4)
    }
    add_tag(connection, "topic:rare", conversation=rare)
    refresh_lexicon(connection)
    profile = replace(scoring.PROFILE, candidates=20, lexical_kept=10, vector_kept=5, pattern_seconds=60.0)
    for mode in MODES:
        request = SearchRequest("borogoves", mode=mode, limit=4, tag="topic:rare")
        hits = search(connection, request, embed_query=hash_embed, now=NOW, profile=profile).hits
        assert set(ids(hits)) == wanted, mode


def test_a_summary_counts_with_its_period_and_agents_in_every_mode(connection: Connection) -> None:
    register_model(connection)
    march = add_summary(
        connection,
        "harbour works",
        earliest=NOW - timedelta(days=9),
        latest=NOW - timedelta(days=7),
        agents=["a", "b"],
        embed=True,
    )
    for mode in MODES:
        for options, found in (
            ({"since": NOW - timedelta(days=8)}, True),
            ({"before": NOW - timedelta(days=8)}, True),
            ({"since": NOW - timedelta(days=6)}, False),
            ({"before": NOW - timedelta(days=9)}, False),
            ({"agent": "b"}, True),
            ({"agent": "c"}, False),
            ({"scope": "messages"}, False),
            ({"role": "user"}, False),
        ):
            hits = find(connection, "harbour", mode=mode, embedded=True, **options).hits
            assert ids(hits) == ([march] if found else []), (mode, options)
