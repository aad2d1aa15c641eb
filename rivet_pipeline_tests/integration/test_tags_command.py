"""`rivet tags` on a test's own store, as a person at a terminal uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline_tests.integration.memory_rows import add_conversation
from rivet_pipeline_tests.integration.rivet_command import Run, rivet_command
from rivet_pipeline_tests.integration.tagging import ScriptedTagger, leaf, standing, tag_all

KEY = "claude-code:1"


@pytest.fixture
def tags(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    with rivet_command(database_url, tmp_path, monkeypatch, capsys, before=("tags",)) as run:
        yield run


@pytest.fixture
def session(connection: Connection, pool: Pool) -> UUID:
    """A session with suggestions that wait."""
    conversation = add_conversation(connection, key=KEY, settings={"project": "shop"})
    leaf(connection, conversation)
    tag_all(pool, ScriptedTagger(["topic:caching", "topic:redis"]))
    return conversation


def test_a_review_at_the_terminal(tags: Run, session: UUID, connection: Connection) -> None:
    shown = tags("pending")
    assert shown.code == 0
    assert "topic:caching" in shown.out
    assert "accepted: project:shop" in shown.out
    accepted = tags("accept", "topic:caching", "--session", KEY, "--by", "ada")
    assert "topic:caching is accepted. Undo: rivet tags undo " in accepted.out
    [redis] = tags("pending", "--json").json["sessions"][0]["tags"]
    assert tags("reject", *[row["id"][:12] for row in redis["rows"]]).code == 0
    assert standing(connection) == {
        ("conversation", "project:shop", "accepted"),
        ("conversation", "topic:caching", "accepted"),
        ("summary", "topic:caching", "accepted"),
        ("conversation", "topic:redis", "rejected"),
        ("summary", "topic:redis", "rejected"),
    }
    assert "Nothing waits" in tags("pending").out
    assert "topic:caching" in tags("counts", "--key", "topic").out
    assert tags("lookup", KEY, "none:1").out.splitlines() == [f"{KEY}: project:shop, topic:caching", "none:1: no tags"]
    assert "ada" in tags("log").out
    newest, oldest = tags("log", "--json").json
    assert tags("undo", oldest["decision"]).out.startswith("Undone: topic:caching")
    again = tags("undo", oldest["decision"])
    assert (again.code, "undone already" in again.err) == (1, True)
    assert newest["rows"] == 2
    assert "topic:caching?" in tags("lookup", KEY, "--state", "suggested").out


def test_a_session_is_named_by_the_beginning_of_its_key(tags: Run, connection: Connection, pool: Pool) -> None:
    for key in ("claude-code:5b0f4f0e-1c1e", "claude-code:5b0f4f0e-77aa", "claude-code:9"):
        leaf(connection, add_conversation(connection, key=key))
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    assert tags("accept", "topic:caching", "--session", "claude-code:5b0f4f0e-7").code == 0
    assert [key for _, key, state in standing(connection) if state == "accepted"] == ["topic:caching"] * 2
    several = tags("accept", "topic:caching", "--session", "claude-code:5b0f4f0e")
    assert (several.code, "several session keys begin with" in several.err) == (2, True)
    # A whole key is that session's, although another one begins with it.
    leaf(connection, add_conversation(connection, key="claude-code:9-and-on"))
    assert "topic:x is accepted" in tags("add", "topic:x", "--session", "claude-code:9").out
    assert tags("add", "topic:x", "--session", "claude-code:7").code == 1


def test_tags_are_added_listed_taken_off_and_kept(tags: Run, session: UUID) -> None:
    assert "topic:web-sockets is accepted" in tags("add", "topic\uff1aWeb Sockets", "--session", KEY).out
    [row] = tags("list", "--tag", "topic:web sockets", "--json").json
    assert (row["display"], row["status"]) == ("Web Sockets", "accepted")
    assert tags("suggest-removal", row["id"], "--reason", "off").code == 0
    assert "take off topic:web-sockets" in tags("pending").out
    assert tags("keep", "topic:web-sockets", "--session", KEY).code == 0
    refused = tags("suggest-removal", row["id"])
    assert (refused.code, "refused before" in refused.err) == (1, True)
    assert "topic:web-sockets" in tags("list", "--state", "accepted", "--session", KEY).out
    assert tags("add", "topic:x").code == 2
    assert tags("add", "no-colon", "--session", KEY).code == 2
    assert tags("add", "topic:x", "--session", "nobody:1").code == 1


def test_nobody_s_decision_is_overturned_unseen(tags: Run, session: UUID, connection: Connection) -> None:
    assert tags("accept", "topic:caching", "--session", KEY, "--by", "ada").code == 0
    before = standing(connection)
    refused = tags("reject", "topic:caching", "--session", KEY, "--by", "bob")
    assert refused.code == 1
    assert "topic:caching was accepted by ada on " in refused.err
    assert "--overturn" in refused.err
    assert refused.err.count("by ada") == 1
    assert "Nothing changed." in refused.out
    [row, *_] = tags("list", "--tag", "topic:caching", "--json").json
    by_id = tags("reject", row["id"], "--by", "bob")
    assert (by_id.code, "accepted by ada" in by_id.err) == (1, True)
    assert standing(connection) == before
    again = tags("accept", "topic:caching", "--session", KEY, "--by", "bob")
    assert (again.code, "Nothing changed." in again.out) == (0, True)
    done = tags("reject", "topic:caching", "--session", KEY, "--by", "bob", "--overturn")
    assert (done.code, "topic:caching is rejected. Undo:" in done.out) == (0, True)
    assert ("summary", "topic:caching", "rejected") in standing(connection)


def test_a_decided_value_is_not_overturned_unseen(tags: Run, session: UUID) -> None:
    assert tags("value", "topic:redis", "--state", "rejected", "--by", "ada").code == 0
    refused = tags("value", "topic:redis", "--by", "bob")
    assert (refused.code, "topic:redis was rejected by ada" in refused.err) == (1, True)
    described = tags("value", "topic:redis", "--description", "A store", "--by", "bob")
    assert (described.code, described.out.strip()) == (0, "topic:redis is rejected.")
    assert tags("value", "topic:redis", "--by", "bob", "--overturn").code == 0
    assert tags("value", "topic:redis", "--state", "rejected", "--by", "cleo").code == 1
    assert tags("value", "topic:redis", "--state", "rejected", "--by", "cleo", "--overturn").code == 0


def test_a_literal_is_never_cut_however_narrow_the_terminal(tags: Run, session: UUID) -> None:
    literal = f"topic:{'long-' * 24}end"
    words = tags("add", literal, "--session", KEY, "--by", "somebody with a long name", COLUMNS="40").out
    assert literal in words
    tags("value", literal, "--description", "A value whose description is long too")
    for call in (("list",), ("values",), ("counts",), ("lookup", KEY), ("log",), ("pending",)):
        assert literal in tags(*call, COLUMNS="40").out, call


def test_a_line_of_the_log_keeps_who_and_when_on_a_narrow_terminal(tags: Run, session: UUID) -> None:
    tags("add", "topic:billing", "--session", KEY, "--by", "ada lovelace")
    line = next(one for one in tags("log", COLUMNS="60").out.splitlines() if "topic:billing" in one)
    assert "ada lovelace" in line
    assert " CET " in line


def test_merging_takes_the_whole_literal_and_refuses_another_key(tags: Run, session: UUID) -> None:
    tags("add", "project:shop", "--session", KEY)
    assert tags("merge", "topic:caching", "project:shop").code == 2
    assert "now means cache:" in tags("merge", "topic:caching", "Topic\uff1aCache").out
    assert "Nothing changed." in tags("merge", "topic:caching", "cache").out


def test_the_vocabulary_at_the_terminal(tags: Run, session: UUID) -> None:
    assert "topic:cache is accepted." in tags("value", "topic:cache", "--description", "Kept answers").out
    merged = tags("merge", "topic:caching", "cache")
    assert "topic:caching now means cache: 2 tags moved, 0 gave way." in merged.out
    assert tags("merge", "topic:cache", "topic:caching").code == 2
    assert tags("value", "topic:redis", "--state", "rejected").code == 0
    listed = tags("values").out
    assert "Kept answers" in listed
    assert "rejected" in listed
    assert "topic:redis" not in tags("pending").out


def test_leaves_are_asked_about_again(tags: Run, session: UUID) -> None:
    assert tags("again").code == 2
    assert tags("again", "--dropped").out == "0 leaves are tagged anew when the pipeline runs.\n"
    assert tags("again", "--since", "2026-03-01", "--json").json == {"leaves": 1}
    assert tags("reap", "--json").json == {"deleted": 0}


def test_what_is_wrong_is_one_line(tags: Run, session: UUID) -> None:
    for words, code, says in (
        (("accept", "xyz"), 2, "is no id"),
        (("accept", "00000000"), 2, "no tag begins"),
        (("accept", "topic:none", "--session", KEY), 1, "no tag topic:none"),
        (("list", "--state", "odd"), 2, "state"),
        (("undo", "00000000-0000-0000-0000-000000000001"), 1, "no decision"),
    ):
        ran = tags(*words)
        assert (ran.code, says in ran.err) == (code, True), ran


def test_a_store_without_the_tables_says_so(tags: Run, session: UUID, connection: Connection) -> None:
    connection.execute("DROP TABLE ros_tags, ros_tag_taxonomy, ros_tag_decisions, ros_tag_extractions CASCADE")
    assert "Nothing waits" in tags("pending").out
    refused = tags("add", "topic:x", "--session", KEY)
    assert (refused.code, "not installed" in refused.err) == (1, True)


def test_what_waits_says_whether_more_does(tags: Run, session: UUID, connection: Connection, pool: Pool) -> None:
    leaf(connection, add_conversation(connection, key="claude-code:2"))
    tag_all(pool, ScriptedTagger(["topic:caching"]))
    shown = {limit: tags("pending", "--limit", limit).out for limit in ("1", "2")}
    assert [(out.count("waits for"), "More sessions wait" in out) for out in shown.values()] == [(1, True), (2, False)]
    found = tags("pending", "--limit", "1", "--json").json
    assert (len(found["sessions"]), found["more"]) == (1, True)
