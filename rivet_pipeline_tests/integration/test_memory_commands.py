"""`rivet memory …` in this process over a real store: what it prints, what it changes, how it exits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from rivet_pipeline.db.ledger import SERVICE, record_failure
from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.stages import STAGES
from rivet_pipeline.summaries.compact import summarize_leaves
from rivet_pipeline_tests.integration.chat_server import Reply, chat_server, says
from rivet_pipeline_tests.integration.memory_rows import add_conversation, add_message, add_summary
from rivet_pipeline_tests.integration.pipeline import DAY, CountingSummarizer, capture, capture_calls
from rivet_pipeline_tests.integration.rivet_command import Run, rivet_command
from rivet_pipeline_tests.integration.wiki_rows import add_leaf

HOSTILE = "would \x1b[31mrather [red]not[/red]\n\x07 and more"


@pytest.fixture
def run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs `rivet memory` with the given words, on the test's store, in a wide terminal."""
    with rivet_command(database_url, tmp_path, monkeypatch, capsys, before=("memory",), columns=200) as call:
        yield call


def fail(connection: Connection, stage: str, item: str, error: ModelError, times: int = 1) -> None:
    with connection.transaction():
        for _ in range(times):
            record_failure(connection, stage=stage, item=item, error=error, day=DAY)


def said(connection: Connection) -> list[str]:
    return [row["content"] for row in connection.execute("SELECT content FROM ros_messages ORDER BY created_at, seq")]


@pytest.mark.parametrize("command", ["queue-status", "retry-failed", "backfill-tool-synth", "lineage"])
def test_each_command_explains_itself_with_an_example(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    assert f"Example: rivet memory {command}" in ran.out
    assert "--json" in ran.out


def test_the_group_lists_its_commands(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert all(name in ran.out for name in ("queue-status", "retry-failed", "backfill-tool-synth", "lineage"))
    assert run("nonsense").code == 2


def test_the_queue_shows_what_waits_and_why_the_rest_rests(run: Run, connection: Connection) -> None:
    capture(connection, count=10)
    fail(connection, "leaf_summaries", "a", ModelError("content", "refusal", HOSTILE), times=3)
    fail(connection, "message_embeddings", SERVICE, ModelError("transient", "http-503", "busy"))
    ran = run("queue-status")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[1 : len(STAGES) + 1]] == list(STAGES)
    assert "the whole stage rests" in ran.out
    assert ran.out.splitlines()[0].split() == ["stage", "days", "due", "resting", "given", "up", "oldest", "day"]
    assert "! leaf_summaries: 1 given up (content; since" in ran.out
    assert "rather [red]not[/red]" in ran.out
    assert "\x1b" not in ran.out
    assert "! message_embeddings: its service (transient, tried again at " in ran.out

    stages = {stage["stage"]: stage for stage in run("queue-status", "--json").json}
    assert stages["messages"] == {
        "stage": "messages",
        "days": 1,
        "items": 1,
        "timed_items": 0,
        "oldest_day": "2026-03-02",
        "service": None,
        "resting": [],
        "at_most": False,
    }
    assert stages["message_embeddings"]["service"]["next_attempt_at"].endswith("Z")
    assert stages["leaf_summaries"]["resting"][0]["given_up"] == 1


def test_what_is_due_what_rests_and_what_was_given_up_are_counted_apart(run: Run, connection: Connection) -> None:
    refusal = ModelError("content", "refusal", "would rather not")
    capture(connection, count=10)
    for item, times in (("a", 3), ("b", 3), ("c", 1), ("d", 1)):
        fail(connection, "leaf_summaries", item, refusal, times=times)
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() + interval '1 hour' WHERE item = 'c'")
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second' WHERE item = 'd'")
    ran = run("queue-status")
    (line,) = (line for line in ran.out.splitlines() if line.startswith("leaf_summaries"))
    assert line.split() == ["leaf_summaries", "1", "1", "1", "2", "2026-03-02"]
    assert "! leaf_summaries: 1 due again, 1 resting, 2 given up (content, tried again now; since" in ran.out
    (rest,) = next(stage for stage in run("queue-status", "--json").json if stage["stage"] == "leaf_summaries")[
        "resting"
    ]
    assert (rest["items"], rest["due"], rest["given_up"]) == (4, 1, 2)


def test_the_queue_does_not_promise_what_only_a_person_starts(run: Run, connection: Connection, pool: Pool) -> None:
    capture(connection, count=10)
    summarize_leaves(pool, days=None, summarizer=CountingSummarizer())
    (row,) = connection.execute("SELECT id FROM ros_summaries").fetchall()
    fail(connection, "leaf_summaries", str(row["id"]), ModelError("content", "refusal", "would rather not"))
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")
    # What waits beside it does not make it due.
    new = capture(connection, "test:new", count=10)
    again = "when summaries are made again: a backfill, `rivet memory remine`"
    assert f"! leaf_summaries: 1 due again (content, tried again {again}; since" in run("queue-status").out
    fail(connection, "leaf_summaries", str(new), ModelError("content", "refusal", "would rather not"))
    connection.execute(
        "UPDATE ros_failures SET next_attempt_at = now() + interval '1 hour' WHERE item = %s", [str(new)]
    )
    out = run("queue-status").out
    assert "! leaf_summaries: 1 due again, 1 resting (content, tried again at " in out
    assert f", 1 of them {again}; since" in out
    # A text below it has changed: it is pending like new work.
    connection.execute("DELETE FROM ros_failures WHERE item = %s", [str(new)])
    connection.execute(
        "UPDATE ros_messages SET tool_result = 'It came late.' WHERE id = "
        "(SELECT message_id FROM ros_summary_sources LIMIT 1)"
    )
    assert "! leaf_summaries: 1 due again (content, tried again now; since" in run("queue-status").out


def test_the_queue_does_not_promise_to_mine_leaves_again(run: Run, connection: Connection, pool: Pool) -> None:
    leaf = add_leaf(connection, "The gauge TG-02 is read by tide_importer.")
    fail(connection, "wiki_patches", str(leaf), ModelError("content", "refusal", "would rather not"))
    connection.execute("UPDATE ros_failures SET next_attempt_at = now() - interval '1 second'")
    assert "! wiki_patches: 1 due again (content, tried again now; since" in run("queue-status").out
    connection.execute(
        "INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome) "
        "SELECT id, text_hash, 1, 'older', 'none' FROM ros_summaries"
    )
    words = "! wiki_patches: 1 due again (content, tried again when leaves are mined again: the job `remine_wiki_days`;"
    assert words in run("queue-status").out


def test_failures_are_retried_by_stage_and_error(run: Run, connection: Connection) -> None:
    fail(connection, "leaf_summaries", "a", ModelError("content", "refusal", HOSTILE), times=3)
    fail(connection, "leaf_summaries", "b", ModelError("content", "echo", "the same again"), times=3)
    ran = run("retry-failed", "--task", "leaf_summaries", "--error", "RATHER", "--dry-run")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "1 failure would be due at once.")
    assert "leaf_summaries a content, 3 attempts: refusal: would" in ran.out
    assert "\x1b" not in ran.out
    assert connection.execute("SELECT count(*) AS n FROM ros_blocked_items").fetchone() == {"n": 2}
    done = run("retry-failed", "--task", "all", "--json").json
    assert done["changed"] is True
    assert {failure["item"] for failure in done["failures"]} == {"a", "b"}
    assert connection.execute("SELECT count(*) AS n FROM ros_blocked_items").fetchone() == {"n": 0}
    nothing = run("retry-failed", "--task", "all", "--error", "no such words")
    assert (nothing.code, nothing.out.startswith("No failure matches")) == (0, True)


def test_a_retry_does_not_promise_what_only_a_person_starts(run: Run, connection: Connection) -> None:
    refusal = ModelError("content", "refusal", "would rather not")
    leaf = add_leaf(connection, "The gauge TG-02 is read by tide_importer.")
    connection.execute(
        "INSERT INTO ros_wiki_extractions (leaf_id, text_hash, pipeline_version, model, outcome) "
        "SELECT id, text_hash, 1, 'older', 'none' FROM ros_summaries"
    )
    # Given up, and still held when it is due.
    fail(connection, "leaf_summaries", str(leaf), refusal, times=3)
    fail(connection, "wiki_patches", str(leaf), refusal)
    fail(connection, "leaf_summaries", str(uuid4()), refusal)
    summaries = "except 1, tried again when summaries are made again: a backfill, `rivet memory remine`"
    wiki = "except 1, tried again when leaves are mined again: the job `remine_wiki_days`"
    shown = run("retry-failed", "--task", "all", "--dry-run").out.splitlines()[-1]
    assert shown == f"3 failures would be due at once, {summaries}, {wiki}."
    held = {
        (one["stage"], one["item"]): one["held"]
        for one in run("retry-failed", "--task", "all", "--json").json["failures"]
    }
    assert len(held) == 3
    assert {stage for (stage, item), waits in held.items() if waits} == {"leaf_summaries", "wiki_patches"}
    assert {item for (_, item), waits in held.items() if waits} == {str(leaf)}
    done = run("retry-failed", "--task", "leaf_summaries").out.splitlines()[-1]
    assert done == f"2 failures are due now: the running pipeline takes them up, {summaries}."


def test_a_wrong_task_is_a_wrong_command_line(run: Run) -> None:
    for words in (
        ("retry-failed",),
        ("retry-failed", "--task", "leaves"),
        ("retry-failed", "--task", "all", "--error", " "),
    ):
        ran = run(*words)
        assert ran.code == 2, words
        assert "--" in ran.err
    assert "leaf_summaries" in run("retry-failed", "--task", "leaves").err


def test_a_backfill_is_shown_before_and_done_once(run: Run, connection: Connection) -> None:
    capture_calls(connection, count=7)
    capture_calls(connection, "heartbeat:1", count=3)
    shown = run("backfill-tool-synth", "--dry-run")
    assert shown.code == 0
    assert "7 tool calls would get a text from rendering-1." in shown.out
    assert "Ran `make part-0` in the shell (Build part 0)." in shown.out
    assert set(said(connection)) == {""}
    done = run("backfill-tool-synth", "--json").json
    assert (done["writer"], done["written"], done["failed"]) == ("rendering-1", 7, 0)
    assert done["before"] == {"due": 7, "awaiting": 0, "resting": 0}
    assert done["after"] == {"due": 0, "awaiting": 0, "resting": 0}
    assert sum(text != "" for text in said(connection)) == 7
    assert "0 tool calls got a text" in run("backfill-tool-synth").out


def test_a_backfill_asks_the_configured_model_and_keeps_bad_answers_out(run: Run, connection: Connection) -> None:
    capture_calls(connection, count=3)

    def answer(request: dict[str, Any]) -> Reply:
        asked = request["messages"][1]["content"]
        for number in (0, 1):
            if f"part-{number}" in asked:
                return says(f"Built part {number} with `make part-{number}`.")
        return says("I'm sorry, I can not help with that.")

    with chat_server(answer) as server:
        model = {"RIVETOS_COMPACTOR_URL": server.url, "RIVETOS_COMPACTOR_MODEL": "small-1"}
        assert "3 tool calls would get a text from small-1." in run("backfill-tool-synth", "--dry-run", **model).out
        assert server.asked == []
        ran = run("backfill-tool-synth", **model)
        assert (ran.code, len(server.asked)) == (0, 3)
    assert said(connection) == ["Built part 0 with `make part-0`.", "Built part 1 with `make part-1`.", ""]
    assert "2 tool calls got a text from small-1, 1 failed." in ran.out
    assert "1 rest after a failure" in ran.out
    row = connection.execute("SELECT cause, error FROM ros_failures").fetchone()
    assert row is not None
    assert (row["cause"], row["error"].partition(":")[0]) == ("content", "refusal")


def test_the_lineage_is_a_tree_down_to_the_words(run: Run, connection: Connection, pool: Pool) -> None:
    capture(connection, count=10)
    summarize_leaves(pool, days=None, summarizer=CountingSummarizer())
    row = connection.execute("SELECT id FROM ros_summaries").fetchone()
    assert row is not None
    ran = run("lineage", str(row["id"]), "--messages", "4")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "test:1"
    assert f"leaf {str(row['id'])[:8]}  2026-03-02 10:00 CET" in ran.out
    assert "Step 3 of test:1 changed src/part_3.py on host db-3." in ran.out
    assert "Step 4 of" not in "\n".join(line for line in ran.out.splitlines() if "src/part_4" in line and "├" in line)
    assert "6 more messages below are not shown; --messages shows more." in ran.out
    body = run("lineage", str(row["id"]), "--json").json
    assert len(body["summary"]["messages"]) == 10
    message = run("lineage", body["summary"]["messages"][3]["id"])
    assert f"leaf {str(row['id'])[:8]}" in message.out
    assert "Step 3 of test:1" in message.out


def test_a_lineage_shows_no_escape_sequence_and_an_unknown_id_is_an_error(run: Run, connection: Connection) -> None:
    message = add_message(connection, HOSTILE)
    ran = run("lineage", str(message))
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "[red]not[/red]" in ran.out
    assert "Note: no summary holds this message yet" in ran.out
    orphan = run("lineage", str(add_summary(connection, HOSTILE)))
    assert "\x1b" not in orphan.out
    missing = run("lineage", str(uuid4()))
    assert (missing.code, missing.out) == (1, "")
    assert missing.err.count("\n") == 1
    assert "no summary and no message has the id" in missing.err
    assert run("lineage", "nonsense").code == 2


def test_a_lineage_is_found_by_the_first_digits_that_name_one_row(run: Run, connection: Connection) -> None:
    summary, conversation = add_summary(connection, "A record."), add_conversation(connection)
    known = [UUID(f"c57c57{number:02x}-0000-4000-8000-000000000000") for number in range(7)]
    for identity in known:
        add_message(connection, "Said.", conversation=conversation)
        connection.execute(
            """
            INSERT INTO ros_messages (id, conversation_id, event_id, agent, channel, role, content)
            VALUES (%s, %s, %s, 'opus', 'cli', 'user', 'Said it.')
            """,
            [identity, conversation, str(identity)],
        )
    for prefix in ("c57c5703", "C57C5703", "c57c5703-0000", str(known[3])):
        assert run("lineage", prefix, "--json").json["message"]["id"] == str(known[3])
    assert run("lineage", str(summary)[:8]).out.count(str(summary)[:8]) == 1
    several = run("lineage", "c57c57")
    told = " ".join(several.err.replace("│", " ").split())
    assert several.code == 2
    assert "several begin with c57c57" in told
    assert [str(one) in told for one in known] == [True] * 5 + [False] * 2
    unknown = run("lineage", "c57c5fff")
    assert unknown.code == 1
    assert "no summary and no message has an id that begins with c57c5fff" in unknown.err
    assert unknown.err.count("c57c57") == 5
    for wrong in ("c57c5", "c57c5x", str(known[3]) + "0"):
        assert run("lineage", wrong).code == 2
