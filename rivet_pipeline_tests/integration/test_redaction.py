"""A secret that must not be stored is not, and one that was stored goes from everywhere, with a line in the log."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from rivet_pipeline.db.ids import find_id
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.settings import Settings
from rivet_pipeline.summaries.compact import resummarize, summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.tags.literals import Literal, read_value
from rivet_pipeline.tags.review import add_tag
from rivet_pipeline.tags.vocabulary import upsert_value
from rivet_pipeline.transcripts import redact_stored
from rivet_pipeline.transcripts.importer import import_paths
from rivet_pipeline.transcripts.ingest import CAPTURE_CAP, WriteResult, write_batch
from rivet_pipeline.transcripts.records import MessageRecord, SessionRecord, ToolResult
from rivet_pipeline.transcripts.redact_rules import literal_rule, pattern_rule, shapes_rule
from rivet_pipeline.transcripts.redact_stored import (
    RedactionReport,
    Who,
    redact_everywhere,
    redact_message,
    vacuum,
)
from rivet_pipeline.transcripts.redact_tables import EXEMPT, TABLES
from rivet_pipeline_tests.api_server import running_api
from rivet_pipeline_tests.integration.memory_rows import (
    add_conversation,
    add_message,
    add_summary,
    find,
    register_model,
)

FIRST_DAY = date(2022, 11, 1)
NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GITHUB = "gh" + "p_" + "Kq7Zr2Xv9Lm4Nb6Tc8Wd1Yf3Hg5Jp0Sa2Qe7"
OTHER = "sk-" + "ant-api03-" + "Zx8Cv7Bn6Mm5Lk4Jh3Gf2Ds1Aa0Pq9Wo8Ei7Ru6Ty5"
PASSWORD = "Tr0ub4dor&3x9"
SESSION = SessionRecord("test:one", "opus", "test")
ME = Who("tester", "a key was pasted")


def message(number: int, content: str, **more: Any) -> MessageRecord:
    return MessageRecord(
        f"e{number}", more.pop("role", "user"), content, created_at=NOON + timedelta(seconds=number), **more
    )


def write(connection: Connection, *items: MessageRecord | ToolResult, **more: Any) -> WriteResult:
    return write_batch(connection, more.pop("session", SESSION), items, first_day=FIRST_DAY, **more)


def stored(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute(
        "SELECT event_id, content, tool_args, tool_result, metadata FROM ros_messages ORDER BY created_at, seq"
    ).fetchall()


def dump(connection: Connection) -> str:
    """Every row of every table as text."""
    tables = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    ).fetchall()
    rows = [connection.execute(f"SELECT t::text AS r FROM {t['table_name']} AS t".encode()).fetchall() for t in tables]
    return "\n".join(row["r"] for table in rows for row in table)


def log(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute(
        "SELECT table_name, row_key, rule, counts, reason, os_user, db_user FROM ros_redactions ORDER BY id"
    ).fetchall()


def everywhere(connection: Connection, rule: Any, *, apply: bool = True) -> RedactionReport:
    return redact_everywhere(connection, rule, ME, apply=apply)


# --- at capture


def test_without_the_setting_every_word_is_stored_as_it_came(connection: Connection) -> None:
    write(connection, message(1, f"use {GITHUB}"))
    assert stored(connection)[0]["content"] == f"use {GITHUB}"
    assert "redacted" not in stored(connection)[0]["metadata"]


def test_with_the_setting_no_secret_reaches_a_table(connection: Connection) -> None:
    session = SessionRecord("test:one", "opus", "test", title=f"Try {GITHUB}", settings={"env": {"A_TOKEN": PASSWORD}})
    call = message(
        2, "", role="tool", tool_name="Bash", tool_args={"command": f"curl -u {GITHUB}"}, metadata={"note": OTHER}
    )
    write(
        connection,
        message(1, f"use {GITHUB} and {GITHUB}"),
        call,
        ToolResult(session, "e2", f"password={PASSWORD}"),
        session=session,
        redact=True,
    )
    text = dump(connection)
    assert [secret for secret in (GITHUB, OTHER, PASSWORD) if secret in text] == []
    rows = stored(connection)
    assert rows[0]["metadata"]["redacted"] == {"github_token": 2}
    assert rows[1]["metadata"]["redacted"] == {"github_token": 1, "anthropic_key": 1, "secret": 1}
    assert rows[1]["tool_result"] == "password=[redacted:secret]"


def test_secrets_go_before_the_cap_is_laid_on(connection: Connection) -> None:
    write(connection, message(1, "x" * (CAPTURE_CAP - 10) + f" {GITHUB} tail"), cap=CAPTURE_CAP, redact=True)
    assert "gh" + "p_" not in stored(connection)[0]["content"]


@pytest.mark.parametrize("first", [False, True])
def test_turning_the_setting_over_stores_nothing_twice(connection: Connection, first: bool) -> None:
    batch = [message(1, f"use {GITHUB}"), message(2, "plain"), message(3, "", tool_args={"k": GITHUB}, tool_name="t")]
    write(connection, *batch, redact=first)
    again = write(connection, *batch, redact=not first)
    assert (again.new, again.known) == (0, 3)
    assert len(stored(connection)) == 3


def test_a_late_result_adds_its_count_to_that_of_its_call(connection: Connection) -> None:
    call = message(1, "", role="tool", tool_name="Bash", tool_args={"key": OTHER}, metadata={"pending_result": True})
    write(connection, call, redact=True)
    write(connection, ToolResult(SESSION, "e1", f"token {GITHUB}"), redact=True)
    write(connection, call, ToolResult(SESSION, "e1", f"token {GITHUB}"))
    row = stored(connection)[0]
    assert row["tool_result"] == "token [redacted:github_token]"
    assert row["metadata"] == {"redacted": {"anthropic_key": 1, "github_token": 1}, "pending_result": False}
    assert len(stored(connection)) == 1


def test_a_late_result_is_redacted_and_says_so(connection: Connection) -> None:
    write(connection, message(1, "", role="tool", tool_name="Bash", metadata={"pending_result": True}), redact=True)
    write(connection, ToolResult(SESSION, "e1", f"token {GITHUB}"), redact=True)
    row = stored(connection)[0]
    assert row["tool_result"] == "token [redacted:github_token]"
    assert row["metadata"] == {"redacted": {"github_token": 1}, "pending_result": False}


# --- what is stored


def add_page(connection: Connection, leaf: UUID) -> None:
    """A page of the wiki that has the key from a leaf, in every place."""
    claim = {
        "section": "facts",
        "text": f"The key is {GITHUB}.",
        "as_of": NOON.isoformat(),
        "weight": 1,
        "replaces": [],
    }
    bullet = {"key": str(leaf), "text": claim["text"], "leaves": [str(leaf)], "weight": 1.0}
    bullet |= {"first_at": NOON.isoformat(), "as_of": NOON.isoformat()}
    page = {"title": f"Keys {GITHUB}", "sections": {"facts": [bullet]}, "history": [], "aliases": [GITHUB]}
    values = {
        "leaf": leaf,
        "page": Jsonb(page),
        "names": [GITHUB],
        "key": GITHUB,
        "payload": Jsonb({"claims": [claim]}),
    }
    connection.execute(
        """
        WITH t AS (
            INSERT INTO ros_wiki_topics (slug, title, status, aliases, entities, alias_keys, keys, page, page_version,
                                         revision, search_text)
            VALUES ('keys', 'Keys ' || %(key)s, 'live', %(names)s, %(names)s, %(names)s, %(names)s, %(page)s, 1, 1,
                    %(key)s)
            RETURNING id
        ), p AS (
            INSERT INTO ros_wiki_patches (kind, status, leaf_id, leaf_hash, topic_id, title, payload, content_hash,
                                          decision, reason, as_of, model, pipeline_version)
            SELECT 'edit', 'applied', s.id, s.text_hash, t.id, 'Keys ' || %(key)s, %(payload)s, s.text_hash, 'new',
                   'no page is named ' || %(key)s, now(), 'm', 4
            FROM t, ros_summaries AS s WHERE s.id = %(leaf)s
        ), r AS (
            INSERT INTO ros_wiki_revisions (topic_id, revision, title, page, cause)
            SELECT id, 1, 'Keys ' || %(key)s, %(page)s, 'mined' FROM t
        ), c AS (
            INSERT INTO ros_wiki_citations (topic_id, claim_key, leaf_id) SELECT id, %(leaf)s, %(leaf)s FROM t
        )
        INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome, patches, mention_keys,
                                          mentions)
        SELECT id, text_hash, 4, 'm', 'patches', 1, %(names)s, %(names)s FROM ros_summaries WHERE id = %(leaf)s
        """,
        values,
    )


@pytest.fixture
def memory(connection: Connection) -> dict[str, UUID]:
    """A conversation that holds one key in every place, embedded and summarised, and one that does not."""
    register_model(connection)
    conversation = add_conversation(connection, key="test:one", settings={"cwd": f"/x/{GITHUB}", "n": 1})
    connection.execute("UPDATE ros_conversations SET title = %s WHERE id = %s", [f"Use {GITHUB}", conversation])
    told = add_message(
        connection, f"the key is {GITHUB}, use it", conversation=conversation, tool_name="Bash",
        tool_result=f"export X={GITHUB}", embed=True,
        metadata={"session_jsonl_path": "/home/me/a.jsonl", "note": GITHUB},
    )  # fmt: skip
    near = add_message(connection, f"again {GITHUB}", conversation=conversation, embed=True)
    plain = add_message(connection, "we talked of tides and harbours", embed=True)
    leaf = add_summary(connection, f"They used {GITHUB} on tides.", conversation=conversation, embed=True)
    branch = add_summary(connection, f"A branch on {GITHUB}.", conversation=conversation, kind="branch")
    connection.execute("UPDATE ros_summaries SET parent_id = %s WHERE id = %s", [branch, leaf])
    connection.execute("INSERT INTO ros_summary_sources VALUES (%s, %s, 0)", [leaf, told])
    connection.execute(
        "UPDATE ros_summaries SET ungrounded = %s, metadata = %s WHERE id = %s",
        [[GITHUB, "tides"], Jsonb({"k": [GITHUB]}), leaf],
    )
    connection.execute(
        "INSERT INTO ros_summary_revisions (summary_id, revision, content, model, pipeline_version, input_hash,"
        " created_at) VALUES (%s, 1, %s, 'm', 1, 'h', now())",
        [leaf, f"older {GITHUB}"],
    )
    connection.execute(
        "INSERT INTO ros_failures (stage, item, cause, error) VALUES ('message_embeddings', %s, 'content', %s),"
        " ('leaf_summaries', %s, 'content', %s)",
        [str(plain), f"can not embed {GITHUB}", str(conversation), f"can not say {GITHUB}"],
    )
    connection.execute(
        "INSERT INTO ros_import_files (path_hash, path, size, mtime_ns, counts)"
        " VALUES (gen_random_uuid(), %s, 1, 1, %s)",
        [f"/x/{GITHUB}.jsonl", Jsonb({"conversations": [f"c:{GITHUB}"]})],
    )
    literal = Literal("topic", read_value(GITHUB))
    add_tag(connection, "conversation", conversation, literal, by="ada", display=GITHUB)
    add_tag(connection, "summary", leaf, Literal("topic", "tides"), by="ada")
    connection.execute("UPDATE ros_tags SET reason = %s WHERE tag_value = 'tides'", [f"it names {GITHUB}"])
    upsert_value(connection, literal, by="ada", display=GITHUB, description=f"The key {GITHUB}")
    connection.execute(
        "INSERT INTO ros_tag_extractions (summary_id, text_hash, status, model, pipeline_version, error)"
        " VALUES (%s, gen_random_uuid(), 'dropped', 'm', 1, %s)",
        [leaf, f"no sound tag in {GITHUB}"],
    )
    refresh_lexicon(connection)
    return {"conversation": conversation, "told": told, "near": near, "plain": plain, "leaf": leaf, "branch": branch}


def gone(connection: Connection) -> bool:
    return GITHUB.lower() not in dump(connection).lower()


@pytest.mark.parametrize("rule", [literal_rule(GITHUB), pattern_rule("gh[po]_[A-Za-z0-9]{36}"), shapes_rule()])
def test_a_secret_goes_from_every_table(connection: Connection, memory: dict[str, UUID], rule: Any) -> None:
    add_page(connection, memory["leaf"])
    assert find(connection, GITHUB).hits != []
    planned = everywhere(connection, rule, apply=False)
    assert not gone(connection)
    assert log(connection) == []
    done = everywhere(connection, rule)
    assert gone(connection)
    assert done.problems == []
    assert {name: table.rows for name, table in done.tables.items()} == {
        "ros_messages": 2,
        "ros_full_texts": 0,
        "ros_conversations": 1,
        "ros_summaries": 2,
        "ros_summary_revisions": 1,
        "ros_tags": 2,
        "ros_tag_taxonomy": 1,
        "ros_tag_decisions": 2,
        "ros_tag_extractions": 1,
        "ros_wiki_topics": 1,
        "ros_wiki_patches": 1,
        "ros_wiki_revisions": 1,
        "ros_wiki_extractions": 1,
        "ros_failures": 2,
        "ros_import_files": 1,
    }
    assert {n: (t.rows, t.counts) for n, t in planned.tables.items()} == {
        n: (t.rows, t.counts) for n, t in done.tables.items()
    }
    assert done.files == ["/home/me/a.jsonl"]
    assert not any(GITHUB in excerpt for table in done.tables.values() for excerpt in table.excerpts)
    assert everywhere(connection, rule).rows == 0
    vacuum(connection, done)


def test_search_finds_the_words_around_and_not_the_secret(connection: Connection, memory: dict[str, UUID]) -> None:
    everywhere(connection, literal_rule(GITHUB))
    assert find(connection, GITHUB).hits == []
    assert [hit.id for hit in find(connection, "key").hits] == [memory["told"]]
    owners = connection.execute("SELECT owner_id FROM ros_embeddings").fetchall()
    assert [row["owner_id"] for row in owners] == [memory["plain"]]
    pending = connection.execute("SELECT id FROM ros_pending_message_embeddings").fetchall()
    assert {row["id"] for row in pending} >= {memory["told"], memory["near"]}
    terms = connection.execute("SELECT term FROM ros_lexicon").fetchall()
    assert "tide" in {row["term"] for row in terms}
    assert [row["term"] for row in terms if row["term"] in GITHUB.lower() and len(row["term"]) > 3] == []


def test_the_log_says_what_was_done_and_never_the_secret(connection: Connection, memory: dict[str, UUID]) -> None:
    redact_everywhere(connection, literal_rule(GITHUB), Who("tester", f"pasted {GITHUB}"), apply=True)
    lines = log(connection)
    assert len(lines) == 15
    mine = next(line for line in lines if line["row_key"] == str(memory["told"]))
    assert mine == {
        "table_name": "ros_messages",
        "row_key": str(memory["told"]),
        "rule": "literal",
        "counts": {"literal": 3},
        "reason": "pasted [redacted:literal]",
        "os_user": "tester",
        "db_user": connection.info.user,
    }
    assert GITHUB not in json.dumps(lines)


def test_one_message_takes_what_was_made_of_it_along(connection: Connection, memory: dict[str, UUID]) -> None:
    report = redact_message(connection, memory["told"], shapes_rule(), ME, apply=True)
    row = connection.execute("SELECT * FROM ros_messages WHERE id = %s", [memory["told"]]).fetchone()
    assert row is not None
    assert row["content"] == "the key is [redacted:github_token], use it"
    assert row["metadata"]["redacted"] == {"github_token": 3}
    summaries = connection.execute("SELECT content FROM ros_summaries ORDER BY seq").fetchall()
    assert [s["content"] for s in summaries] == [
        "They used [redacted:github_token] on tides.",
        "A branch on [redacted:github_token].",
    ]
    assert report.neighbours == 1
    assert [
        row["content"] for row in connection.execute("SELECT content FROM ros_messages WHERE id = %s", [memory["near"]])
    ] == [f"again {GITHUB}"]


def test_a_value_known_by_its_place_goes_where_it_stands_alone(connection: Connection) -> None:
    conversation = add_conversation(connection)
    told = add_message(connection, f"DB_PASSWORD={PASSWORD}", conversation=conversation)
    add_summary(connection, f"The password was {PASSWORD}.", conversation=conversation)
    assert redact_message(connection, told, shapes_rule(), ME, apply=True).rows == 2
    assert PASSWORD not in dump(connection)


def test_a_whole_message_goes_with_every_summary_made_of_it(connection: Connection, memory: dict[str, UUID]) -> None:
    connection.execute(
        "UPDATE ros_conversations SET title = 'the key is what?' WHERE id = %s", [memory["conversation"]]
    )
    redact_message(connection, memory["told"], shapes_rule(whole=True), ME, apply=True)
    row = connection.execute("SELECT * FROM ros_messages WHERE id = %s", [memory["told"]]).fetchone()
    assert row is not None
    assert (row["content"], row["tool_result"], row["tool_args"]) == ("[redacted:message]", "[redacted:message]", None)
    assert row["metadata"]["redacted"] == {"message": 2, "github_token": 1}
    summaries = connection.execute("SELECT content FROM ros_summaries ORDER BY seq").fetchall()
    assert [s["content"] for s in summaries] == ["[redacted:summary]", "[redacted:summary]"]
    assert redact_message(connection, memory["told"], shapes_rule(whole=True), ME, apply=True).rows == 0


@pytest.mark.parametrize("whole", [False, True])
def test_one_message_goes_from_the_wiki_too(connection: Connection, memory: dict[str, UUID], whole: bool) -> None:
    add_page(connection, memory["leaf"])
    connection.execute('UPDATE ros_wiki_topics SET page = page || \'{"said": "tides and quays"}\'')
    redact_message(connection, memory["told"], shapes_rule(whole=whole), ME, apply=True)
    rows = connection.execute(
        "SELECT t::text AS r FROM ros_wiki_topics AS t UNION ALL SELECT t::text FROM ros_wiki_patches AS t "
        "UNION ALL SELECT t::text FROM ros_wiki_revisions AS t UNION ALL SELECT t::text FROM ros_wiki_extractions AS t"
    ).fetchall()
    assert GITHUB not in "\n".join(row["r"] for row in rows)
    page = connection.execute("SELECT page, page_version FROM ros_wiki_topics").fetchone()
    assert page is not None
    # The page is made again of what its patches still say; a whole message takes its sentences with it.
    assert page["page_version"] == 0
    assert (page["page"]["sections"]["facts"] == []) == whole


def in_one_transaction(connection: Connection, statements: list[tuple[str, list[Any]]]) -> None:
    with connection.transaction():
        for statement, values in statements:
            connection.execute(statement.encode(), values)


def test_the_pipeline_makes_the_summaries_again_without_it(pool: Pool) -> None:
    words = "The lighthouse opens with the code seven anchors nine gulls."
    batch = [message(number, f"We decided about harbour number {number} and its tides.") for number in range(9)]
    with pool.connection() as connection:
        write(connection, *batch, message(9, words))
        told = connection.execute("SELECT id FROM ros_messages WHERE event_id = 'e9'").fetchone()
    assert told is not None
    summarize_leaves(pool, days=None, summarizer=ExtractiveSummarizer())
    with pool.connection() as connection:
        assert dump(connection).count("seven anchors") == 2
        redact_message(connection, told["id"], shapes_rule(whole=True), ME, apply=True)
        assert "seven anchors" not in dump(connection)
    resummarize(pool, days=None, summarizer=ExtractiveSummarizer())
    with pool.connection() as connection:
        assert "seven anchors" not in dump(connection)
        leaf = connection.execute("SELECT content FROM ros_summaries").fetchone()
        assert leaf is not None
        assert "harbour number 3" in leaf["content"]


def test_only_texts_may_change_and_only_with_a_line_in_the_log(connection: Connection) -> None:
    write(connection, message(1, f"use {GITHUB}", metadata={"k": 1}), message(2, "other"))
    (first, second) = (row["id"] for row in connection.execute("SELECT id FROM ros_messages ORDER BY seq"))
    logged = "INSERT INTO ros_redactions (run_id, table_name, row_key, rule, counts, os_user, redacted_at)"
    logged += " VALUES (gen_random_uuid(), 'ros_messages', %s, 'whole', '{\"message\": 1}', 'me', 'infinity')"
    marked = "UPDATE ros_messages SET content = 'new', metadata = metadata || '{\"redacted\": {}}' WHERE id = %s"
    refused: list[list[tuple[str, list[Any]]]] = [
        [("SET LOCAL ros.redacting = 'on'", []), (marked, [first])],
        [(logged, [str(second)]), (marked, [first])],
        [(logged, [str(first)]), ("UPDATE ros_messages SET content = 'new' WHERE id = %s", [first])],
        [(logged, [str(first)]), (marked.replace("content = 'new'", "role = 'system'"), [first])],
        [(logged, [str(first)]), (marked.replace("content = 'new'", "event_id = 'x'"), [first])],
        [(logged, [str(first)]), (marked.replace("content = 'new'", "created_at = now()"), [first])],
        [(logged, [str(first)]), ("DELETE FROM ros_messages WHERE id = %s", [first])],
        [(logged, [str(first)]), ("TRUNCATE ros_messages CASCADE", [])],
    ]
    for statements in refused:
        with pytest.raises(psycopg.errors.RestrictViolation):
            in_one_transaction(connection, statements)
    assert [row["content"] for row in stored(connection)] == [f"use {GITHUB}", "other"]
    with connection.transaction():
        connection.execute(logged.encode(), [str(first)])
    # A line of an earlier transaction opens nothing.
    with pytest.raises(psycopg.errors.RestrictViolation):
        connection.execute(marked.encode(), [first])


@pytest.mark.parametrize(
    "statement", ["DELETE FROM ros_redactions", "UPDATE ros_redactions SET reason = 'x'", "TRUNCATE ros_redactions"]
)
def test_the_log_is_only_added_to(connection: Connection, memory: dict[str, UUID], statement: str) -> None:
    everywhere(connection, literal_rule(GITHUB))
    with pytest.raises(psycopg.errors.RestrictViolation):
        connection.execute(statement.encode())
    assert len(log(connection)) == 15


def session_file(folder: Path) -> Path:
    """A small Claude Code session with a secret in a prompt, a call and its result, and a title."""
    rows: list[dict[str, Any]] = [
        {"type": "custom-title", "customTitle": f"Use {GITHUB}", "sessionId": "s1"},
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": f"my key is {GITHUB}"}},
        {
            "type": "assistant",
            "uuid": "a1",
            "message": {
                "id": "m1",
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": f"echo {GITHUB}"}}],
            },
        },
        {
            "type": "user",
            "uuid": "u2",
            "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": GITHUB}]},
        },
        {"type": "user", "uuid": "u3", "message": {"role": "user", "content": "thank you"}},
    ]
    path = folder / "s1.jsonl"
    times = (f"2026-03-08T12:00:0{n}.000Z" for n in range(9))
    path.write_text("".join(json.dumps({"sessionId": "s1", "timestamp": next(times), **row}) + "\n" for row in rows))
    return path


def test_importing_its_file_again_does_not_bring_it_back(pool: Pool, tmp_path: Path) -> None:
    path = session_file(tmp_path)
    first = import_paths(pool, [path], first_day=FIRST_DAY, max_line=10**6)
    with pool.connection() as connection:
        assert GITHUB in dump(connection)
        count = len(stored(connection))
        report = everywhere(connection, literal_rule(GITHUB))
        assert report.files == [str(path)]
        assert GITHUB not in dump(connection)
    with path.open("a") as file:
        file.write(json.dumps({"type": "user", "uuid": "u4", "sessionId": "s1", "timestamp": "2026-03-08T12:01:00Z",
                               "message": {"role": "user", "content": "one more"}}) + "\n")  # fmt: skip
    again = import_paths(pool, [path], first_day=FIRST_DAY, max_line=10**6)
    assert (first.messages()["new"], again.messages()["new"]) == (count, 1)
    with pool.connection() as connection:
        assert GITHUB not in dump(connection)
        assert len(stored(connection)) == count + 1
        title = connection.execute("SELECT title FROM ros_conversations").fetchone()
        assert title == {"title": "Use [redacted:literal]"}


def test_import_redacts_when_it_is_asked_to(pool: Pool, tmp_path: Path) -> None:
    import_paths(pool, [session_file(tmp_path)], first_day=FIRST_DAY, max_line=10**6, redact=True)
    with pool.connection() as connection:
        assert GITHUB not in dump(connection)
        assert any(row["metadata"].get("redacted") for row in stored(connection))


@pytest.mark.parametrize("wanted", [False, True])
def test_the_api_redacts_when_the_setting_says_so(connection: Connection, database_url: str, wanted: bool) -> None:
    batch = {
        "session_key": "test:one",
        "agent": "opus",
        "channel": "test",
        "title": f"Use {GITHUB}",
        "messages": [{"event_id": "e1", "role": "user", "content": f"my key is {GITHUB}", "tool_args": {"k": GITHUB}}],
    }
    tool = {"role": "user", "content": f"my key is {GITHUB}", "tool_result": GITHUB}
    settings = Settings(capture_redaction=wanted, enable_memory_write=True)
    with running_api(settings, database_url) as base:
        assert httpx.post(f"{base}/api/capture", json=batch).json()["inserted"] == 1
        tools = f"{base}/api/memory/tool"
        one = httpx.post(f"{tools}/memory_append", json={"session_id": "a", **tool})
        many = httpx.post(f"{tools}/memory_ingest_session", json={"session_id": "b", "messages": [tool]})
    assert (one.status_code, many.status_code) == (200, 200)
    assert len(stored(connection)) == 3
    assert [GITHUB in row["content"] for row in stored(connection)] == [not wanted] * 3
    assert (GITHUB in dump(connection)) is not wanted


def test_redaction_and_capture_of_one_session_at_once(pool: Pool) -> None:
    batch = [message(number, f"word {number} {GITHUB}") for number in range(40)]
    failures: list[BaseException] = []

    def work(send: bool) -> None:
        try:
            with pool.connection() as connection:
                for _ in range(5):
                    if send:
                        write(connection, *batch)
                    else:
                        assert everywhere(connection, literal_rule(GITHUB)).problems == []
        except BaseException as error:
            failures.append(error)

    with pool.connection() as connection:
        write(connection, *batch[:20])
    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with pool.connection() as connection:
        everywhere(connection, literal_rule(GITHUB))
        rows = stored(connection)
        assert [row["content"] for row in rows] == [f"word {n} [redacted:literal]" for n in range(40)]
        assert [row["metadata"]["redacted"] for row in rows] == [{"literal": 1}] * 40


def test_rows_are_gone_through_in_windows(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact_stored, "WINDOW", 7)
    write(connection, *[message(number, f"word {number} {GITHUB if number % 3 == 0 else ''}") for number in range(40)])
    assert everywhere(connection, literal_rule(GITHUB)).tables["ros_messages"].rows == 14
    assert gone(connection)


def test_a_row_that_fails_stops_no_other(connection: Connection) -> None:
    write(connection, *[message(number, f"word {number} {GITHUB}") for number in range(3)])
    connection.execute(
        """CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'poisoned' USING DETAIL = OLD.content; END $$"""
    )
    connection.execute(
        "CREATE TRIGGER a_poison BEFORE UPDATE ON ros_messages FOR EACH ROW WHEN (OLD.event_id = 'e1')"
        " EXECUTE FUNCTION poison()"
    )
    report = everywhere(connection, literal_rule(GITHUB))
    assert [GITHUB in row["content"] for row in stored(connection)] == [False, True, False]
    assert len(report.problems) == 1
    assert report.problems[0].endswith("poisoned")
    assert GITHUB not in report.problems[0]
    assert len(log(connection)) == 2
    connection.execute("DROP TRIGGER a_poison ON ros_messages")
    assert everywhere(connection, literal_rule(GITHUB)).rows == 1
    assert gone(connection)


def test_a_pattern_that_runs_away_leaves_its_row_and_goes_on(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact_stored, "PATTERN_SECONDS", 0.2)
    write(connection, message(1, "a" * 60 + "!"), message(2, "aaaa"))
    report = everywhere(connection, pattern_rule(r"(a|aa)+$"))
    assert [row["content"] for row in stored(connection)] == ["a" * 60 + "!", "[redacted:pattern]"]
    assert len(report.problems) == 1


def test_a_literal_is_found_as_json_escapes_it(connection: Connection) -> None:
    literal = 'pass"word\\é'
    write(
        connection,
        message(1, f"plain {literal}"),
        message(2, "call", tool_name="t", tool_args={"a": [literal], literal: json.dumps(literal, ensure_ascii=False)}),
    )
    assert everywhere(connection, literal_rule(literal)).tables["ros_messages"].rows == 2
    assert [row["tool_args"] for row in stored(connection)] == [
        None,
        {"a": ["[redacted:literal]"], "[redacted:literal]": '"[redacted:literal]"'},
    ]


def test_placeholders_are_never_redacted_again(connection: Connection) -> None:
    write(connection, message(1, f"token {GITHUB} redacted"), redact=True)
    everywhere(connection, pattern_rule("[a-z]*redacted|token"))
    row = stored(connection)[0]
    assert row["content"] == "[redacted:pattern] [redacted:github_token] [redacted:pattern]"
    assert row["metadata"]["redacted"] == {"github_token": 1, "pattern": 2}
    assert everywhere(connection, pattern_rule("[a-z]*redacted|token")).rows == 0


def test_what_is_identity_is_reported_and_kept(connection: Connection) -> None:
    session = SessionRecord(f"test:{GITHUB}", "opus", "test")
    write(connection, MessageRecord(f"id {GITHUB}", "user", "words", created_at=NOON), session=session)
    report = everywhere(connection, literal_rule(GITHUB))
    assert report.rows == 0
    assert report.fixed == {"ros_conversations.session_key": 1, "ros_messages.event_id": 1}


def test_summaries_being_made_meanwhile_are_reported(pool: Pool) -> None:
    with pool.connection() as connection, pool.connection() as worker:
        result = write(connection, message(1, GITHUB))
        key = ["ros_leaf_summaries", str(result.conversation_id)]
        worker.execute("SELECT pg_advisory_lock(hashtext(%s), hashtext(%s))", key)
        assert everywhere(connection, literal_rule(GITHUB)).busy == 1
        worker.execute("SELECT pg_advisory_unlock(hashtext(%s), hashtext(%s))", key)
        write(connection, message(2, GITHUB))
        assert everywhere(connection, literal_rule(GITHUB)).busy == 0


@pytest.mark.parametrize("text", ["", "ab", "   a "])
def test_a_short_literal_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        literal_rule(text)


@pytest.mark.parametrize("pattern", ["(", "a*", "x|"])
def test_a_pattern_that_is_none_or_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInputError):
        pattern_rule(pattern)


def test_a_message_is_found_by_the_beginning_of_its_id(connection: Connection) -> None:
    told = add_message(connection, "words")
    assert find_id(connection, str(told)[:8], ("message",), field="message") == told
    assert find_id(connection, str(told), ("message",), field="message") == told
    for wrong in ("abc", "not an id!"):
        with pytest.raises(InvalidInputError):
            find_id(connection, wrong, ("message",), field="message")
    with pytest.raises(NotFoundError):
        find_id(connection, "00000000", ("message",), field="message")


def test_every_column_with_text_is_covered_or_exempt_with_a_reason(connection: Connection) -> None:
    rows = connection.execute(
        """
        SELECT c.table_name, c.column_name FROM information_schema.columns AS c
        JOIN information_schema.tables AS t USING (table_schema, table_name)
        WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
          AND c.udt_name IN ('text', '_text', 'varchar', '_varchar', 'bpchar', 'name', 'citext', 'json', 'jsonb',
                             '_jsonb', 'tsvector', 'xml', 'bytea', 'hstore')
        """
    ).fetchall()
    there = {(row["table_name"], row["column_name"]) for row in rows}
    covered = {(table.name, column) for table in TABLES for column in table.covered}
    assert there - covered - EXEMPT.keys() == set(), "cover them in redact_tables.TABLES, or name why not in EXEMPT"
    assert (covered | EXEMPT.keys()) - there == set()
    assert covered & EXEMPT.keys() == set()
    assert all(EXEMPT.values())
