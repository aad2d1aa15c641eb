"""The rule tag at capture: once a session, whichever way in, never at the cost of a message, never against a "
"reviewer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.tags.literals import MAX_VALUE, Literal, tag_text
from rivet_pipeline.tags.log import undo
from rivet_pipeline.tags.propose import apply_rule, propose_tags, reap_tags
from rivet_pipeline.tags.read import tags_of_conversations
from rivet_pipeline.tags.review import add_tag, decide_literal
from rivet_pipeline.tags.vocabulary import Entry, decide_values, merge_values, upsert_value
from rivet_pipeline.transcripts.append import Attribution, NewMessage, memory_append
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.ingest import write_batch
from rivet_pipeline.transcripts.ingest_rows import Extra
from rivet_pipeline.transcripts.projects import planned_settings
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord
from rivet_pipeline_tests.integration.pipeline import FIRST_DAY
from rivet_pipeline_tests.integration.tagging import leaf, rows, standing

SHOP = Literal("project", "shop")


def capture(connection: Connection, key: str = "test:1", *, event: str = "1", **settings: object) -> UUID:
    session = SessionRecord(session_key=key, agent="opus", channel="test", settings=settings)
    message = MessageRecord(event_id=event, role="user", content="Hello.", created_at=datetime(2026, 3, 2, tzinfo=UTC))
    extra = Extra(fallback_settings=planned_settings(settings))
    return write_batch(connection, session, [message], first_day=FIRST_DAY, extra=extra).conversation_id


def projects(connection: Connection) -> list[tuple[str, str, str, bool]]:
    found = rows(connection, "SELECT * FROM ros_tags WHERE tag_key = 'project' ORDER BY tag_value")
    return [(row["tag_value"], row["status"], row["source"], row["decided_by"] is not None) for row in found]


def test_a_session_with_a_folder_gets_its_project_accepted_once(connection: Connection) -> None:
    conversation = capture(connection, cwd="/srv/code/My Shop")
    assert projects(connection) == [("my-shop", "accepted", "rule", False)]
    [row] = rows(connection, "SELECT * FROM ros_tags")
    assert (row["display"], row["entity_kind"], row["entity_id"]) == ("My Shop", "conversation", conversation)
    capture(connection, event="2", cwd="/srv/code/other")
    capture(connection, event="3", project="third")
    assert projects(connection) == [("my-shop", "accepted", "rule", False)]
    [tag] = tags_of_conversations(connection, [conversation])[conversation]
    assert (str(tag.literal), tag.reviewed, tag.on_session) == ("project:my-shop", False, True)


def test_a_folder_that_is_named_later_counts(connection: Connection) -> None:
    capture(connection)
    assert projects(connection) == []
    capture(connection, event="2", cwd="/srv/code/shop")
    assert projects(connection) == [("shop", "accepted", "rule", False)]


def test_every_way_in_writes_it(connection: Connection, pool: Pool, tmp_path: Path) -> None:
    transcript = tmp_path / "4c1df102-894a-4a75-b2a2-3d0e630678aa.jsonl"
    transcript.write_text(
        '{"type":"user","cwd":"/srv/code/shop","sessionId":"4c1df102-894a-4a75-b2a2-3d0e630678aa",'
        '"uuid":"27ff83cd-3743-48da-888f-93154ac4cb36","timestamp":"2026-03-02T09:00:00.000Z",'
        '"message":{"role":"user","content":"Hello."}}\n'
    )
    report = import_paths(pool, [transcript], first_day=FIRST_DAY, max_line=10**6)
    assert report.files[0].new == 1
    assert projects(connection) == [("shop", "accepted", "rule", False)]
    memory_append(
        connection, "mcp:1", NewMessage("user", "Hello."), Attribution("mcp", "mcp", "mcp"), first_day=FIRST_DAY
    )
    assert len(projects(connection)) == 1


def test_noise_and_redacted_names_get_none(connection: Connection) -> None:
    capture(connection, "heartbeat:1", cwd="/srv/code/shop")
    capture(connection, "test:noise", cwd="/srv/code/shop", noise=True)
    capture(connection, "test:secret", project="[redacted:literal]")
    capture(connection, "test:odd", project={"name": "shop"})
    capture(connection, "test:empty", project="///")
    assert projects(connection) == []


def test_its_failure_never_costs_a_message_and_is_made_up_for(connection: Connection) -> None:
    connection.execute("ALTER TABLE ros_tags ADD CONSTRAINT broken CHECK (source <> 'rule')")
    capture(connection, cwd="/srv/code/shop")
    assert rows(connection, "SELECT count(*) AS n FROM ros_messages") == [{"n": 1}]
    assert projects(connection) == []
    connection.execute("ALTER TABLE ros_tags DROP CONSTRAINT broken")
    assert apply_rule(connection) == 1
    assert apply_rule(connection) == 0
    assert projects(connection) == [("shop", "accepted", "rule", False)]


def test_capture_never_waits_for_a_reviewer(connection: Connection, database_url: str) -> None:
    capture(connection, "test:0", cwd="/srv/code/shop")
    with connect(database_url) as reviewer, reviewer.transaction():
        reviewer.execute("LOCK TABLE ros_tags IN ACCESS EXCLUSIVE MODE")
        capture(connection, cwd="/srv/code/shop")
        assert rows(connection, "SELECT count(*) AS n FROM ros_messages") == [{"n": 2}]
    reap_tags(connection)
    assert len(projects(connection)) == 2
    with connect(database_url) as reviewer, reviewer.transaction():
        reviewer.execute("SELECT pg_advisory_xact_lock(ros_tag_lock('project'))")
        capture(connection, "test:3", cwd="/srv/code/shop")
    assert len(projects(connection)) == 2
    reap_tags(connection)
    assert len(projects(connection)) == 3


def test_a_store_without_the_tables_takes_messages(connection: Connection) -> None:
    connection.execute("DROP TABLE ros_tags CASCADE")
    capture(connection, cwd="/srv/code/shop")
    assert rows(connection, "SELECT settings ->> 'project' AS p FROM ros_conversations") == [{"p": "shop"}]


def test_what_a_person_took_off_does_not_come_back(connection: Connection) -> None:
    conversation = capture(connection, cwd="/srv/code/shop")
    decide_literal(connection, conversation, SHOP, "rejected", by="ada")
    capture(connection, event="2", cwd="/srv/code/shop", project="other")
    apply_rule(connection)
    assert projects(connection) == [("shop", "rejected", "rule", True)]


@pytest.mark.parametrize("how", ["add", "accept", "merge"])
def test_what_makes_it_a_reviewed_tag(connection: Connection, how: str) -> None:
    conversation = capture(connection, cwd="/srv/code/shop")
    if how == "add":
        add_tag(connection, "conversation", conversation, SHOP, by="ada")
    elif how == "accept":
        decide_literal(connection, conversation, SHOP, "rejected", by="ada")
        decide_literal(connection, conversation, SHOP, "accepted", by="ada", overturn=True)
    else:
        add_tag(connection, "conversation", conversation, Literal("project", "store"), by="ada")
        merge_values(connection, "project", "store", "shop", by="ada")
    [tag] = tags_of_conversations(connection, [conversation])[conversation]
    assert (str(tag.literal), tag.reviewed) == ("project:shop", True)
    capture(connection, event="2", project="another")
    apply_rule(connection)
    assert len(projects(connection)) == 1


def test_a_project_that_a_person_gave_keeps_the_rule_silent(connection: Connection) -> None:
    conversation = capture(connection)
    add_tag(connection, "conversation", conversation, Literal("project", "depot"), by="ada")
    capture(connection, event="2", cwd="/srv/code/shop")
    assert [name for name, *_ in projects(connection)] == ["depot"]


def test_a_merged_name_is_written_as_what_it_means_and_a_rejected_one_not_at_all(connection: Connection) -> None:
    capture(connection, cwd="/srv/code/shop-app")
    done = merge_values(connection, "project", "shop-app", "shop", by="ada")
    capture(connection, "test:2", cwd="/srv/code/shop-app")
    assert [name for name, *_ in projects(connection)] == ["shop", "shop"]
    upsert_value(connection, Literal("project", "tmp"), by="ada")
    assert decide_values(connection, [Entry(Literal("project", "tmp"), "rejected")], by="bea").changed == 0
    [value] = rows(connection, "SELECT revision, status FROM ros_tag_taxonomy WHERE tag_value = 'tmp'")
    decide_values(connection, [Entry(Literal("project", "tmp"), "rejected", seen=value["revision"])], by="ada")
    capture(connection, "test:3", cwd="/srv/code/tmp")
    assert [name for name, *_ in projects(connection)] == ["shop", "shop"]
    assert done.moved == 1


def test_a_taggers_suggestion_is_confirmed_by_the_rule(connection: Connection, pool: Pool) -> None:
    conversation = capture(connection)
    connection.execute(
        """INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source,
        proposed_by) VALUES ('conversation', %s, %s, 'project', 'shop', 'suggested', 'model', 'm')""",
        [conversation, conversation],
    )
    capture(connection, event="2", cwd="/srv/code/shop")
    assert projects(connection) == [("shop", "accepted", "rule", False)]


def test_the_stage_writes_what_capture_could_not(connection: Connection, pool: Pool) -> None:
    connection.execute("ALTER TABLE ros_conversations DISABLE TRIGGER ros_conversations_tag_new")
    capture(connection, cwd="/srv/code/shop")
    assert propose_tags(pool, days=[datetime(2026, 3, 2).date()], tagger=None).ruled == 1  # noqa: DTZ001
    assert projects(connection) == [("shop", "accepted", "rule", False)]


def test_orphans_are_reaped_and_nothing_else(connection: Connection) -> None:
    conversation = capture(connection, cwd="/srv/code/shop")
    summary = leaf(connection, conversation)
    add_tag(connection, "summary", summary, Literal("topic", "kept"), by="ada")
    for kind, entity in (("conversation", UUID(int=1)), ("summary", UUID(int=2))):
        connection.execute(
            """INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source,
            proposed_by) VALUES (%s, %s, %s, 'topic', 'gone', 'accepted', 'person', 'ada')""",
            [kind, entity, UUID(int=1)],
        )
    assert reap_tags(connection) == 2
    assert standing(connection) == {
        ("conversation", "project:shop", "accepted"),
        ("summary", "topic:kept", "accepted"),
    }
    assert reap_tags(connection) == 0


def test_both_spellings_of_a_name_are_one(connection: Connection) -> None:
    """Python's spelling, by which people and models write tags, and the database's, by which the rule does."""
    texts = [f"a{chr(code)}Bc" for code in [*range(1, 0xD800), *range(0xE000, 0x10000), *range(0x1D100, 0x1D800)]]
    texts += ["  \uff33hop\u200b / My\tRepo-- ", "x" * 300, "-", "ﷺ" * 20, "İSTANBUL ΟΔΟΣ"]
    found = rows(connection, "SELECT t, ros_tag_text(t, 128) AS spelled FROM unnest(%s::text[]) AS u (t)", texts)
    differing = [row for row in found if row["spelled"] != tag_text(row["t"], MAX_VALUE)]
    # Letters that one of the two Unicode versions does not know yet.
    assert len(differing) <= 30
    assert all(ord(row["t"][1]) >= 0x1C80 for row in differing)


def test_an_undone_rejection_leaves_the_rules_tag(connection: Connection) -> None:
    conversation = capture(connection, cwd="/srv/code/shop")
    done = decide_literal(connection, conversation, SHOP, "rejected", by="ada")
    assert done.decision is not None
    undo(connection, done.decision, by="ada")
    assert projects(connection) == [("shop", "accepted", "rule", False)]
