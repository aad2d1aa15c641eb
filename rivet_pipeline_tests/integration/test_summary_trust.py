"""What is stored of a summary that invents, or that its model could not read at once, and what is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from typing import Any
from uuid import UUID

import dagster as dg
import pytest

from rivet_pipeline.db.pool import Connection, Pool
from rivet_pipeline.db.quality import summary_quality, uncovered_sources, ungrounded_summaries
from rivet_pipeline.models.chat import Endpoint, OpenAIChat
from rivet_pipeline.models.tokens import estimated_tokens
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.summaries.batches import read_trust_floor
from rivet_pipeline.summaries.chat_summarizer import ChatSummarizer
from rivet_pipeline.summaries.compact import resummarize, summarize_branches, summarize_leaves
from rivet_pipeline.summaries.extractive import ExtractiveSummarizer
from rivet_pipeline.summaries.types import SourceMessage, SummaryDraft, SummaryRequest
from rivet_pipeline.summaries.window import DEFAULT_WINDOW, Window
from rivet_pipeline.versions import SUMMARY_PIPELINE_VERSION
from rivet_pipeline_tests.integration.chat_server import GOOD, ChatServer, Reply, Script, chat_server, says
from rivet_pipeline_tests.integration.pipeline import DAY, Pipeline, capture
from rivet_pipeline_tests.integration.test_summaries import ACTIVE, IDLE, STALE, add, all_levels, pending, rows, talk

INVENTED = "**Deployment**\n- `src/ghost.py` was moved to host db-77 as 9f8e7d6c5 at https://ghost.example/x."


class Inventing:
    """The extractive summarizer, but what it says of some requests is invented."""

    model = "extractive-2"

    def __init__(self, invents: Callable[[SummaryRequest], bool]) -> None:
        self.invents = invents
        self.calls: list[SummaryRequest] = []

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        self.calls.append(request)
        return SummaryDraft(INVENTED) if self.invents(request) else ExtractiveSummarizer().summarize(request)


def chat(server: ChatServer, window: Window = DEFAULT_WINDOW) -> ChatSummarizer:
    return ChatSummarizer(OpenAIChat(server.url, "m", sleep=lambda _: None), window)


def quarantined(connection: Connection) -> list[str]:
    return rows(connection, "SELECT kind FROM ros_summaries AS s WHERE NOT ros_is_trusted(s) ORDER BY seq")


# --- what is invented ---


def test_an_inventing_model_is_asked_once_more_with_what_it_invented(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)

    def mends(request: dict[str, Any]) -> Reply:
        return says(GOOD if "stand nowhere in the quoted text" in request["messages"][1]["content"] else INVENTED)

    with chat_server(mends) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server, Window(32_768)))
        assert (report.rows, report.model_calls, report.failures) == (1, 2, 0)
        again = server.asked[1]["messages"][1]["content"]
    named = re.search(r"exactly as it stands there: (\[.*\])\n\Z", again)
    assert named is not None
    assert json.loads(named.group(1)) == ["src/ghost.py", "9f8e7d6c5", "https://ghost.example/x"]
    row = connection.execute("SELECT * FROM ros_summaries").fetchone()
    assert row is not None
    assert (row["content"], row["ungrounded"], row["metadata"]["retried"]) == (GOOD, [], True)
    assert (row["metadata"]["calls"], row["metadata"]["prompt_tokens"]) == (2, 22)
    assert quarantined(connection) == []


def test_a_model_that_invents_again_is_stored_with_its_figures_and_kept_out_of_parents(
    connection: Connection, pool: Pool
) -> None:
    talk(connection, 90, rest=IDLE)
    summarizer = Inventing(lambda request: any(m.content.startswith("Step 3 ") for m in request.messages))
    report = summarize_leaves(pool, days=None, summarizer=summarizer)
    assert (report.rows, report.model_calls, report.failures) == (9, 10, 0)
    assert summarizer.calls[1].missing == ("src/ghost.py", "9f8e7d6c5", "https://ghost.example/x")
    assert quarantined(connection) == ["leaf"]
    bad = "SELECT grounding, ungrounded, content FROM ros_summaries AS s WHERE NOT ros_is_trusted(s)"
    assert connection.execute(bad.encode()).fetchall() == [
        {
            "grounding": 0.0,
            "ungrounded": ["src/ghost.py", "9f8e7d6c5", "https://ghost.example/x"],
            "content": INVENTED,
        }
    ]
    # The tree grows from the trusted ones, and nothing is asked again by itself.
    assert summarize_branches(pool, days=None, summarizer=summarizer).rows == 1
    assert rows(connection, "SELECT message_count FROM ros_summaries WHERE kind = 'branch'") == [80]
    assert rows(connection, "SELECT parent_id FROM ros_summaries AS s WHERE NOT ros_is_trusted(s)") == [None]
    calls = len(summarizer.calls)
    assert [
        one.rows for one in [*all_levels(pool, summarizer), *resummarize(pool, days=None, summarizer=summarizer)]
    ] == [0] * 6
    assert len(summarizer.calls) == calls
    assert pending(connection) == []
    assert collect_stats(connection).figures["summaries"]["quarantined"] == {"leaf": 1, "branch": 0, "root": 0}


def test_a_leaf_that_is_trusted_after_a_redo_goes_into_the_next_branch(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 90, rest=IDLE)
    summarizer = Inventing(lambda request: any(m.content.startswith("Step 3 ") for m in request.messages))
    all_levels(pool, summarizer)
    (leaf,) = rows(connection, "SELECT id FROM ros_summaries AS s WHERE NOT ros_is_trusted(s)")
    summarizer.invents = lambda _: False
    version = SUMMARY_PIPELINE_VERSION + 1
    resummarize(pool, days=None, summarizer=summarizer, kinds=["leaf"], version=version)
    assert quarantined(connection) == []
    assert rows(connection, "SELECT content FROM ros_summary_revisions WHERE content LIKE '%%ghost%%'") == [INVENTED]
    # One leaf alone is no branch; with four more it is, and stands first in it.
    assert summarize_branches(pool, days=None, summarizer=summarizer).rows == 0
    add(connection, conversation, 40)
    connection.execute("UPDATE ros_conversations SET updated_at = updated_at - interval '1 hour'")
    summarize_leaves(pool, days=None, summarizer=summarizer)
    assert summarize_branches(pool, days=None, summarizer=summarizer).rows == 1
    children = rows(
        connection,
        "SELECT id FROM ros_summaries WHERE parent_id = (SELECT id FROM ros_summaries WHERE kind = 'branch' "
        "ORDER BY seq DESC LIMIT 1) ORDER BY earliest_at, seq",
    )
    assert (len(children), children[0]) == (5, leaf)


def test_a_redo_that_invents_keeps_the_trusted_text_and_says_so(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    all_levels(pool, Inventing(lambda _: False))
    before = rows(connection, "SELECT content FROM ros_summaries")
    (report, *_) = resummarize(pool, days=None, summarizer=Inventing(lambda _: True), force=True)
    assert (report.rows, report.failures) == (0, 1)
    assert rows(connection, "SELECT content FROM ros_summaries") == before
    (error,) = rows(connection, "SELECT cause || ' ' || error FROM ros_failures")
    assert error.startswith("content ungrounded: ")
    assert "src/ghost.py" in error


def test_a_fallbacks_invented_redo_does_not_use_up_the_tries(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    all_levels(pool, Inventing(lambda _: False))
    before = rows(connection, "SELECT content FROM ros_summaries")
    with chat_server(lambda _: Reply({}, 500)) as first, chat_server(lambda _: says(INVENTED)) as second:
        service = OpenAIChat(first.url, "m", fallbacks=[Endpoint(second.url, "small")], sleep=lambda _: None)
        (report, *_) = resummarize(pool, days=None, summarizer=ChatSummarizer(service), force=True)
    assert (report.rows, report.failures, len(second.asked)) == (0, 1, 2)
    assert rows(connection, "SELECT content FROM ros_summaries") == before
    (error,) = rows(connection, "SELECT cause || ' ' || error FROM ros_failures")
    assert error.startswith("transient ungrounded: ")
    assert "by a fallback" in error


def test_a_summary_in_parts_says_who_wrote_them(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 9)
    add(connection, conversation, 1, content="a long message " * 2_000)

    def turns(request: dict[str, Any]) -> Reply:
        model = "large" if "\n[segment 1 of " in request["messages"][1]["content"] else "small"
        return Reply({**says(GOOD).body, "model": model})

    with chat_server(turns) as server:
        summarize_leaves(pool, days=None, summarizer=chat(server, Window(8192)))
    made = "SELECT metadata ->> 'answered_by' FROM ros_summaries ORDER BY message_count"
    assert rows(connection, made) == ["large, small", "small"]


def test_an_inventing_branch_is_kept_out_of_roots(connection: Connection, pool: Pool) -> None:
    talk(connection, 400, rest=IDLE)
    first: list[UUID] = []

    def invents(request: SummaryRequest) -> bool:
        if request.kind == "branch" and not first:
            first.append(request.children[0].id)
        return request.kind == "branch" and request.children[0].id == first[0]

    assert [report.rows for report in all_levels(pool, Inventing(invents))] == [40, 5, 1]
    assert quarantined(connection) == ["branch"]
    assert rows(connection, "SELECT message_count FROM ros_summaries WHERE kind = 'root'") == [320]


def test_a_content_failure_of_the_second_try_leaves_the_first_answer(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    answers = iter([says(INVENTED), says("I'm sorry, I can't."), says("I'm sorry, I can't.")])
    with chat_server(lambda _: next(answers)) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server, Window(32_768)))
    assert (report.rows, report.failures) == (1, 0)
    assert quarantined(connection) == ["leaf"]
    (figures,) = rows(connection, "SELECT metadata FROM ros_summaries")
    assert (figures["calls"], figures["prompt_tokens"], figures["completion_tokens"]) == (3, 3 * 11, 3 * 7)


def test_a_service_that_fails_at_the_second_try_leaves_the_work_pending(connection: Connection, pool: Pool) -> None:
    talk(connection, 10)
    with chat_server(
        lambda request: says(INVENTED) if "stand nowhere" not in str(request) else Reply({"error": "key"}, 401)
    ) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server, Window(32_768)))
    assert (report.rows, report.failures) == (0, 1)
    assert rows(connection, "SELECT count(*) FROM ros_summaries") == [0]


def test_the_floor_is_the_stores(connection: Connection) -> None:
    assert round(read_trust_floor(connection), 6) == 0.6
    conversation = talk(connection, 0)
    for grounding in (None, 0.59, 0.6, 1.0):
        connection.execute(
            """
            INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, model,
                                       pipeline_version, input_hash, grounding)
            VALUES (%s, 'leaf', 'x', 1, now(), now(), 'm', 5, 'x', %s)
            """,
            [conversation, grounding],
        )
    assert rows(connection, "SELECT ros_is_trusted(s) FROM ros_summaries AS s ORDER BY seq") == [
        True,
        False,
        True,
        True,
    ]


# --- what is too much at once ---


def test_a_batch_is_cut_to_the_models_context_and_none_of_it_is_left(connection: Connection, pool: Pool) -> None:
    # Seven rest for a quarter of an hour; the rest of the cut batch is less than five messages.
    talk(connection, 7, rest=IDLE, content="The gauge TG-02 was read once more. " * 60)
    with chat_server(lambda _: says(GOOD)) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server, Window(8192)))
        counts = rows(connection, "SELECT message_count FROM ros_summaries ORDER BY earliest_at, seq")
        assert sum(counts) == 7
        assert len(counts) == report.rows == len(server.asked) > 1
        assert min(counts) < 5
        for request in server.asked:
            prompt = sum(estimated_tokens(message["content"]) for message in request["messages"])
            assert prompt + request["max_tokens"] <= 8192
        assert pending(connection) == []
        assert summarize_leaves(pool, days=None, summarizer=chat(server, Window(8192))).model_calls == 0


def test_a_message_larger_than_the_window_is_one_leaf_of_all_its_segments(connection: Connection, pool: Pool) -> None:
    talk(connection, 2, rest=STALE, content="The gauge TG-02 was read once more. " * 400)
    seen: list[str] = []

    def answers(request: dict[str, Any]) -> Reply:
        found = re.search(
            r"^\[segment (\d+) of (\d+) of message [0-9a-f-]{36}\]$", str(request["messages"][1]["content"]), re.M
        )
        assert found is not None
        seen.append(f"{found.group(1)}/{found.group(2)}")
        return says(f"{GOOD} Segment {chr(96 + int(found.group(1)))}.")

    with chat_server(answers) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server, Window(4096)))
        assert report.rows == 2
        count = len(server.asked) // 2
        assert seen == [f"{number}/{count}" for number in range(1, count + 1)] * 2
    leaves = connection.execute("SELECT content, message_count, metadata FROM ros_summaries").fetchall()
    assert [leaf["message_count"] for leaf in leaves] == [1, 1]
    for leaf in leaves:
        assert leaf["metadata"]["parts"] == count
        assert re.findall(r"^\[segment (\d+) of \d+ of message ", leaf["content"], re.M) == [
            str(number) for number in range(1, count + 1)
        ]
    assert rows(connection, "SELECT count(*) FROM ros_summary_sources") == [2]


def test_a_branch_of_long_leaves_is_cut_too(connection: Connection, pool: Pool) -> None:
    talk(connection, 80)
    long = f"{GOOD}\n" + "\n".join(
        f"- the long account goes on {chr(97 + number % 26) * (2 + number % 7)}" for number in range(60)
    )
    with chat_server(lambda _: says(long)) as server:
        summarize_leaves(pool, days=None, summarizer=chat(server, Window(32_768)))
        server.asked.clear()
        server.script = lambda _: says(GOOD)
        report = summarize_branches(pool, days=None, summarizer=chat(server, Window(8192)))
        assert report.rows == len(server.asked) > 1
    assert rows(connection, "SELECT count(*) FROM ros_summaries WHERE kind = 'leaf' AND parent_id IS NULL") == [0]
    assert rows(connection, "SELECT sum(message_count) FROM ros_summaries WHERE kind = 'branch'") == [80]


def test_a_leaf_that_no_longer_fits_is_redone_in_parts_under_its_id(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, content="The gauge TG-02 was read once more. " * 30)
    with chat_server(lambda _: says(GOOD)) as server:
        summarize_leaves(pool, days=None, summarizer=chat(server, Window(32_768)))
        (before,) = rows(connection, "SELECT id FROM ros_summaries")
        resummarize(pool, days=None, summarizer=chat(server, Window(4096)), force=True)
    (row,) = connection.execute("SELECT id, content, message_count, metadata FROM ros_summaries").fetchall()
    assert (row["id"], row["message_count"]) == (before, 10)
    assert row["metadata"]["parts"] > 1
    assert row["content"].startswith(f"[part 1 of {row['metadata']['parts']}]\n{GOOD}")


def no_more_than(characters: int, text: str = GOOD) -> Script:
    """A service whose answer to a longer quotation does not end."""

    def script(request: dict[str, Any]) -> Reply:
        _, _, quotation = request["messages"][1]["content"].partition(" begins\n")
        return says(text) if len(quotation) <= characters else says("The gauge was re", finish="length")

    return script


def test_a_leaf_whose_new_answer_does_not_end_is_redone_in_parts_under_its_id(
    connection: Connection, pool: Pool
) -> None:
    talk(connection, 10, content="The gauge TG-02 was read once more. " * 30)
    with chat_server(lambda _: says(GOOD)) as server:
        summarize_leaves(pool, days=None, summarizer=chat(server))
        (before,) = rows(connection, "SELECT id FROM ros_summaries")
        server.script = no_more_than(7_000)
        server.asked.clear()
        resummarize(pool, days=None, summarizer=chat(server), force=True)
        assert len(server.asked) == 3
    (row,) = connection.execute("SELECT id, content, message_count, metadata FROM ros_summaries").fetchall()
    assert (row["id"], row["message_count"], row["metadata"]["parts"]) == (before, 10, 2)
    assert row["content"] == f"[part 1 of 2]\n{GOOD}\n\n[part 2 of 2]\n{GOOD}"
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


def test_one_message_that_the_service_finds_too_long_is_asked_for_in_segments(
    connection: Connection, pool: Pool
) -> None:
    talk(connection, 2, content="\uc870\uc704\uacc4\ub97c \ub2e4\uc2dc \uc77d\uc5c8\ub2e4. " * 400)
    connection.execute("UPDATE ros_conversations SET updated_at = now() - interval '5 days'")
    answer = "**\uc870\uc704\uacc4**\n- " + "\uc870\uc704\uacc4\ub97c \ub2e4\uc2dc \uc77d\uc5c8\ub2e4. "
    with chat_server(no_more_than(3_500, answer.strip())) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
    assert (report.rows, report.failures) == (2, 0)
    for row in connection.execute("SELECT content, message_count, metadata FROM ros_summaries"):
        assert row["message_count"] == 1
        count = row["metadata"]["parts"]
        assert count > 1
        assert [f"[segment {number} of {count} of message" in row["content"] for number in range(1, count + 1)] == (
            [True] * count
        )


def test_a_branch_whose_answer_does_not_end_is_asked_for_in_parts(connection: Connection, pool: Pool) -> None:
    talk(connection, 80)
    long = f"{GOOD}\n" + "\n".join(f"- the long account goes on {chr(97 + n % 26) * (2 + n % 7)}" for n in range(60))
    with chat_server(lambda _: says(long)) as server:
        summarize_leaves(pool, days=None, summarizer=chat(server))
        server.script = no_more_than(12_000)
        report = summarize_branches(pool, days=None, summarizer=chat(server))
    assert (report.rows, report.failures) == (1, 0)
    assert rows(connection, "SELECT (metadata ->> 'parts')::int FROM ros_summaries WHERE kind = 'branch'") == [2]


def test_a_message_that_can_not_be_divided_is_asked_for_once_and_fails(connection: Connection, pool: Pool) -> None:
    talk(connection, 2, rest=STALE, content="a " * 600 + " " * 4_000)
    # So many and no more, that a test without an end has one.
    cut_off = iter([says("The gauge was re", finish="length")] * 20)
    with chat_server(lambda _: next(cut_off, says(GOOD))) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
        assert (report.rows, report.failures, report.model_calls, len(server.asked)) == (0, 1, 2, 2)
    assert rows(connection, "SELECT error FROM ros_failures")[0].startswith("truncated")
    assert sum(day.tokens for day in report.days.values()) == 2 * (11 + 7)


def test_only_the_part_that_is_too_much_is_asked_for_in_smaller_ones(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 9, content="The gauge TG-02 was read once more. " * 139)
    connection.execute(
        "INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, tool_name, tool_result, created_at)"
        " VALUES (%s, 'read', 'opus', 'cli', 'tool', 'Read', repeat('line of it ', 18000), now() + interval '1 s')",
        [conversation],
    )
    with chat_server(lambda _: says(GOOD)) as server:
        resting = Window(131_072)
        summarize_leaves(pool, days=None, summarizer=chat(server, resting))
        server.script = no_more_than(26_000)
        server.asked.clear()
        resummarize(pool, days=None, summarizer=chat(server, resting), force=True)
        # All ten, the first five, which are answered, the others, and their halves.
        assert len(server.asked) == 5
    (row,) = connection.execute("SELECT metadata FROM ros_summaries").fetchall()
    figures = {name: row["metadata"][name] for name in ("parts", "calls", "prompt_tokens", "completion_tokens")}
    assert figures == {"parts": 3, "calls": 5, "prompt_tokens": 5 * 11, "completion_tokens": 5 * 7}
    assert rows(connection, "SELECT count(*) FROM ros_failures") == [0]


def test_a_new_batch_in_halves_is_charged_with_the_round_that_failed(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, content="The gauge TG-02 was read once more. " * 30)
    with chat_server(no_more_than(7_000)) as server:
        report = summarize_leaves(pool, days=None, summarizer=chat(server))
        assert (report.rows, report.model_calls, len(server.asked)) == (2, 3, 3)
    spent = "SELECT (metadata ->> 'calls')::int + (metadata ->> 'prompt_tokens')::int FROM ros_summaries ORDER BY seq"
    assert sorted(rows(connection, spent)) == [1 + 11, 2 + 22]


# --- what left no trace ---


class Forgetful:
    """A summarizer that tells of the first message alone."""

    model = "forgetful"

    def summarize(self, request: SummaryRequest) -> SummaryDraft:
        (first, *_) = request.inputs
        assert isinstance(first, SourceMessage)
        return SummaryDraft(f"- {first.content}")


def test_messages_without_a_trace_in_their_leaf_are_named(connection: Connection, pool: Pool) -> None:
    conversation = talk(connection, 0)
    words = ["gauge", "berth", "kelpie", "restic", "redis", "convoy", "caddy", "surge", "ledger", "yes"]
    for number, word in enumerate(words):
        connection.execute(
            "INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, created_at) "
            "VALUES (%s, %s, 'opus', 'cli', 'user', %s, now() + %s * interval '1 second')",
            [conversation, str(number), word, number],
        )
    connection.execute("UPDATE ros_conversations SET revision = revision + 1")
    summarize_leaves(pool, days=None, summarizer=Forgetful())
    row = connection.execute("SELECT coverage, uncovered FROM ros_summaries").fetchone()
    assert row is not None
    # "yes" says nothing that could be told again, so it is not judged.
    assert row["coverage"] == pytest.approx(1 / 9)
    assert row["uncovered"] == rows(
        connection, "SELECT id FROM ros_messages WHERE content NOT IN ('gauge', 'yes') ORDER BY created_at, seq"
    )
    finding = uncovered_sources(connection, "leaf")
    assert (finding.at_fault, finding.examined) == (1, 1)
    assert finding.figures["average"] == pytest.approx(1 / 9)


def test_quality_by_day_and_of_all(connection: Connection, pool: Pool) -> None:
    talk(connection, 10, session="test:1", day=date(2026, 6, 1))
    talk(connection, 10, session="test:2", day=date(2026, 6, 2), content="ghostly words of the second day")
    summarizer = Inventing(lambda request: "ghostly" in request.messages[0].content)
    summarize_leaves(pool, days=None, summarizer=summarizer)
    found = summary_quality(connection, "leaf", [date(2026, 6, 1), date(2026, 6, 2), date(2026, 6, 3)])
    assert set(found) == {None, date(2026, 6, 1), date(2026, 6, 2)}
    assert (found[None].grounding, found[None].quarantined) == (0.5, 1)
    assert (found[date(2026, 6, 1)].grounding, found[date(2026, 6, 1)].worst) == (1.0, [])
    assert [row["missing"][0] for row in found[None].worst] == ["src/ghost.py"]
    finding = ungrounded_summaries(connection, "leaf")
    assert (finding.at_fault, finding.figures) == (1, {"average": 0.5, "least": 0.0, "quarantined": 1})
    assert finding.examples[0]["quarantined"] is True


def test_a_run_shows_the_figures_and_the_worst_rows(database_url: str, connection: Connection) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        pipeline = Pipeline(database_url, connection, instance)
        capture(connection, "test:1", count=10)
        pipeline.models.summarizer = Inventing(lambda _: True)  # type: ignore[assignment]
        result = pipeline.run(DAY)
    (event,) = result.asset_materializations_for_node("leaf_summaries")
    shown = {name: value.value for name, value in event.metadata.items()}
    assert (shown["run_grounding"], shown["run_quarantined"], shown["grounding"]) == (0.0, 1, 0.0)
    (identity,) = rows(connection, "SELECT id FROM ros_summaries")
    assert f"| {identity} | 0.00 | `src/ghost.py`, `9f8e7d6c5`, " in str(shown["worth_a_look"])
    assert str(shown["worth_a_look"]).endswith("| yes |")


def test_an_active_conversation_is_not_held_up(connection: Connection, pool: Pool) -> None:
    # A full branch needs nothing to be complete below; the messages that are left are not due yet.
    talk(connection, 85, rest=ACTIVE)
    assert [report.rows for report in all_levels(pool, ExtractiveSummarizer())] == [8, 1, 0]
