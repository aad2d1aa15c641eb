"""What a redaction leaves on the wiki: no part of the secret as a name, and no page less than before."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.summaries.secret_parts import Parts, as_said
from rivet_pipeline.tags.literals import Literal
from rivet_pipeline.tags.redacted import follow_redaction as follow_tags
from rivet_pipeline.tags.review import add_tag
from rivet_pipeline.tags.vocabulary import upsert_value
from rivet_pipeline.transcripts.redact_rules import Rule, literal_rule, pattern_rule
from rivet_pipeline.transcripts.redact_stored import Who, redact_everywhere
from rivet_pipeline.wiki.export import export_wiki
from rivet_pipeline.wiki.extract import mine_leaves
from rivet_pipeline.wiki.miner import DeterministicMiner
from rivet_pipeline.wiki.read import read_topic
from rivet_pipeline.wiki.redacted import follow_redaction
from rivet_pipeline.wiki.topics import wiki_is_due
from rivet_pipeline_tests.integration.rivet_command import rivet_command
from rivet_pipeline_tests.integration.test_wiki_mining import assert_sound, statuses, texts
from rivet_pipeline_tests.integration.wiki_rows import (
    ScriptedMiner,
    add_leaf,
    change_leaf,
    conversation_of,
    draft,
    mine,
)

SECRET = "SEKRIT-9931-ZEBRA"
SPOKEN = (
    f"- 2026-03-02T12:00:00Z ada/user: We decided to keep the depot password {SECRET} in the vault.\n"
    f"- 2026-03-02T12:01:00Z ada/assistant: The depot vault listens on port 8437 and reads SEKRIT-9931."
).replace("SEKRIT-9931.", f"{SECRET}.")


def redact(connection: Connection, rule: Rule) -> int:
    report = redact_everywhere(connection, rule, Who("tester"), apply=True)
    assert report.problems == []
    assert SECRET not in repr(report)
    return follow_redaction(connection, report, rule.name, "tester")


def wiki_text(connection: Connection) -> str:
    tables = ("topics", "patches", "revisions", "extractions", "redirects")
    return "\n".join(
        row["r"]
        for table in tables
        for row in connection.execute(f"SELECT t::text AS r FROM ros_wiki_{table} AS t".encode()).fetchall()
    ).casefold()


def parts_left(connection: Connection) -> list[str]:
    text = wiki_text(connection)
    return [part for part in ("sekrit", "9931", "zebra") if part in text]


def mined_by_rules(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, SPOKEN, title=f"Depot vault {SECRET} rotation")
    mine_leaves(pool, days=None, miner=DeterministicMiner())


@pytest.mark.parametrize("rule", [literal_rule(SECRET), pattern_rule("SEKRIT-[0-9]+-[A-Z]+")])
def test_no_part_of_a_secret_stays_as_a_name(connection: Connection, pool: Pool, rule: Rule, tmp_path: Path) -> None:
    mined_by_rules(connection, pool)
    assert parts_left(connection) == ["sekrit", "9931", "zebra"]
    assert redact(connection, rule) > 0
    assert parts_left(connection) == []
    export_wiki(connection, tmp_path)
    exported = "\n".join(path.read_text() for path in tmp_path.rglob("*.md")).casefold()
    assert "8437" in exported
    assert [part for part in ("sekrit", "9931", "zebra") if part in exported] == []
    assert_sound(connection)
    assert redact(connection, rule) == 0
    logged = connection.execute("SELECT r::text AS r FROM ros_redactions AS r").fetchall()
    assert not any("SEKRIT" in row["r"] for row in logged)


def test_titles_addresses_and_names_go_and_what_is_still_said_stays(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, f"We rotate {SECRET} on the depot. The zebra crossing is closed.", title="Depot")
    drafts = [
        draft("SEKRIT-9931 rotation", f"We rotate {SECRET}.", entities=["SEKRIT-9931", "depot", "Zebra"]),
        draft("Depot", "The zebra crossing is closed.", entities=["9931", "zebra crossing"], aliases=["SEKRIT"]),
    ]
    mine(pool, ScriptedMiner(lambda request: drafts))
    redact(connection, literal_rule(SECRET))
    assert "sekrit" not in wiki_text(connection)
    assert "9931" not in wiki_text(connection)
    (gone,) = connection.execute("SELECT slug, title FROM ros_wiki_topics WHERE slug LIKE 'redacted-%'").fetchall()
    assert gone["title"] == "[redacted:literal] rotation"
    page = read_topic(connection, gone["slug"])
    assert page is not None
    assert page.entities == ("depot", "Zebra")
    other = read_topic(connection, "depot")
    assert other is not None
    assert (other.entities, other.aliases) == (("zebra crossing",), ())
    assert_sound(connection)


@pytest.mark.parametrize("review", [False, True])
def test_a_redaction_takes_no_page_away(connection: Connection, pool: Pool, review: bool) -> None:
    leaf = add_leaf(connection, f"Importer | It listens on {SECRET} | It polls")
    mine(pool)
    redact(connection, literal_rule(SECRET))
    assert sorted(texts(connection, "importer")) == ["It listens on [redacted:literal]", "It polls"]
    assert not wiki_is_due(connection)
    mine(pool, review=review)
    mine(pool, review=review, version=9)
    assert statuses(connection) == ["applied"]
    assert sorted(texts(connection, "importer")) == ["It listens on [redacted:literal]", "It polls"]
    if review:
        change_leaf(connection, leaf, "Importer | It sleeps")
        mine(pool, review=True)
        assert statuses(connection) == ["applied", "proposed"]
        assert sorted(texts(connection, "importer")) == ["It listens on [redacted:literal]", "It polls"]
    assert_sound(connection)


def test_a_rejected_sentence_stays_rejected_in_its_redacted_words(connection: Connection, pool: Pool) -> None:
    add_leaf(connection, f"Importer | It listens on {SECRET}")
    mine(pool, review=True)
    connection.execute("UPDATE ros_wiki_patches SET status = 'rejected', decided_by = 'ada', decided_at = now()")
    redact(connection, literal_rule(SECRET))
    mine(pool, review=True, version=9)
    assert statuses(connection) == ["rejected"]


def test_the_command_does_both(
    connection: Connection,
    pool: Pool,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mined_by_rules(connection, pool)
    with rivet_command(database_url, tmp_path, monkeypatch, capsys, before=("redact",)) as rivet:
        ran = rivet("--literal", SECRET, "--yes")
    assert ran.code == 0, ran.err
    assert "SEKRIT" not in ran.out + ran.err
    assert parts_left(connection) == []


@pytest.mark.parametrize(
    ("name", "said", "left"),
    [
        ("SEKRIT-9931", "", "[redacted:literal]"),
        ("the sekrit 9931 zebras", "", "the [redacted:literal] zebras"),
        ("Zebr", "", "[redacted:literal]"),
        ("zeb", "", "zeb"),
        ("zebra crossing", "a zebra", "zebra crossing"),
        ("SEKRIT-9931", "the sekrit only", "[redacted:literal]"),
        ("[redacted:literal] depot", "", "[redacted:literal] depot"),
        ("with", "", "with"),
    ],
)
def test_what_is_a_part(name: str, said: str, left: str) -> None:
    assert Parts([SECRET, "with-love-9"]).without(name, as_said([said])) == left


# --- tags -----------------------------------------------------------------------------------------------------------


def tagged(connection: Connection) -> UUID:
    """A session that says the secret, with tags made of its parts: suggested, accepted, and one that is no part."""
    leaf = add_leaf(connection, SPOKEN, title=f"Depot vault {SECRET} rotation")
    conversation = conversation_of(connection, leaf)
    suggested = [("summary", leaf, "sekrit-9931", ""), ("conversation", conversation, "zebra", "ZEBRA")]
    for kind, entity, value, display in suggested:
        connection.execute(
            "INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, display, status, "
            "source, reason, proposed_by) "
            "VALUES (%s, %s, %s, 'topic', %s, %s, 'suggested', 'model', 'says SEKRIT-9931', 'test')",
            [kind, entity, conversation, value, display],
        )
        connection.execute(
            "INSERT INTO ros_tag_taxonomy (tag_key, tag_value, display, status, source, proposed_by) "
            "VALUES ('topic', %s, %s, 'suggested', 'model', 'test')",
            [value, display],
        )
    for value in ("sekrit-rotation", "depot-vault"):
        add_tag(connection, "conversation", conversation, Literal("topic", value), by="ada")
        upsert_value(connection, Literal("topic", value), by="ada")
    return conversation


def tag_text(connection: Connection) -> str:
    tables = ("ros_tags", "ros_tag_taxonomy", "ros_tag_decisions")
    return "\n".join(
        row["r"]
        for table in tables
        for row in connection.execute(f"SELECT t::text AS r FROM {table} AS t".encode()).fetchall()
    ).casefold()


def test_no_part_of_a_secret_stays_as_a_tag(
    connection: Connection,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    conversation = tagged(connection)
    other = conversation_of(connection, add_leaf(connection, "The zebra crossing is closed.", title="Crossing"))
    add_tag(connection, "conversation", other, Literal("topic", "zebra"), by="ada")
    with rivet_command(database_url, tmp_path, monkeypatch, capsys, before=("redact",)) as rivet:
        ran = rivet("--literal", SECRET, "--yes")
    assert ran.code == 0, ran.err
    kept = connection.execute(
        "SELECT tag_value, status, decided_by FROM ros_tags WHERE conversation_id = %s ORDER BY tag_value",
        [conversation],
    ).fetchall()
    assert [(row["tag_value"], row["status"], row["decided_by"]) for row in kept] == [
        ("[redacted:literal]-rotation", "accepted", "ada"),
        ("depot-vault", "accepted", "ada"),
    ]
    values = connection.execute("SELECT tag_value FROM ros_tag_taxonomy ORDER BY tag_value").fetchall()
    # `zebra` is another session's word, too.
    assert [row["tag_value"] for row in values] == ["[redacted:literal]-rotation", "depot-vault", "zebra"]
    assert "sekrit" not in tag_text(connection)
    assert "9931" not in tag_text(connection)
    report = redact_everywhere(connection, literal_rule(SECRET), Who("tester"), apply=True)
    assert follow_tags(connection, report, "literal", "tester") == 0
