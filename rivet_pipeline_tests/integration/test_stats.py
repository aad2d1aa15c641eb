"""Stats: each figure by itself, alerts first."""

from __future__ import annotations

import re
import threading
from datetime import date
from typing import Any, cast
from uuid import UUID

import pytest

from rivet_pipeline.api.answers import stats_answer
from rivet_pipeline.db import pending
from rivet_pipeline.db.pool import Connection, Pool, connect
from rivet_pipeline.retrieval import stats as stats_module
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.summaries.compact import announce_summarizer
from rivet_pipeline_tests.integration.memory_rows import (
    NOW,
    add_conversation,
    add_message,
    add_summary,
    register_model,
)


def test_an_empty_store_has_figures_and_no_alert(connection: Connection) -> None:
    stats = collect_stats(connection)
    assert stats.errors == {}
    assert stats.alerts == []
    totals = {"messages": 0, "turns": 0, "tool_calls": 0, "replays": 0, "first_at": None, "last_at": None}
    assert stats.figures["totals"] == totals
    assert stats.figures["embeddings"]["coverage"] is None


def test_figures(connection: Connection) -> None:
    register_model(connection)
    conversation = add_conversation(connection)
    for number in range(10):
        add_message(connection, f"message {number}", conversation=conversation, embed=number < 4)
    add_message(connection, "[tool] Bash", role="tool", tool_name="Bash", tool_result="ok", agent="codex")
    active = add_conversation(connection)
    connection.execute("UPDATE ros_conversations SET updated_at = now() WHERE id = %s", [active])
    for number in range(3):
        add_message(connection, f"tail {number}", conversation=active)
    refresh_lexicon(connection)
    add_summary(connection, "a root of it all", kind="root", conversation=conversation)
    figures = collect_stats(connection).figures
    assert figures["totals"]["messages"] == 14
    assert figures["totals"]["tool_calls"] == 1
    assert figures["totals"]["last_at"] == NOW
    assert figures["by_agent"] == {"claude": 13, "codex": 1}
    assert figures["by_role"] == {"user": 13, "tool": 1}
    assert figures["top_tools"] == {"Bash": 1}
    assert figures["embeddings"]["serving"] == "hash"
    assert figures["embeddings"]["coverage"] == 4 / 14
    assert figures["pending_embeddings"] == {"messages": 10, "summaries": 1, "at_most": []}
    assert figures["unsummarised"]["eligible"] == {"messages": 10, "conversations": 1}
    assert figures["unsummarised"]["active_tail"] == {"messages": 3, "conversations": 1}
    assert figures["unsummarised"]["below_floor"] == {"messages": 1, "conversations": 1}
    assert figures["unsummarised"]["oldest"][0]["conversation_id"] == conversation
    assert figures["summaries"]["by_kind"]["root"]["count"] == 1
    assert figures["lexicon"]["behind"] == 1
    assert figures["pending_days"]["leaf_summaries"]["items"] == 1
    narrowed = collect_stats(connection, agent="codex").figures
    assert narrowed["totals"]["messages"] == 1
    assert narrowed["by_role"] == {"tool": 1}


def test_stale_summaries_are_counted_by_stage_and_by_reason(connection: Connection) -> None:
    first = add_conversation(connection)
    for kind, number in (("leaf", 3), ("branch", 1)):
        for _ in range(number):
            add_summary(connection, f"a {kind}", kind=kind, conversation=first)
    announce_summarizer(connection, "test", version=2)
    connection.execute("INSERT INTO ros_remine_requests SELECT id FROM ros_summaries WHERE kind = 'leaf' LIMIT 1")
    connection.execute(
        """INSERT INTO ros_failures (stage, item, cause, error)
           SELECT 'branch_summaries', id::text, 'content', 'refusal: no' FROM ros_summaries WHERE kind = 'branch'"""
    )
    stats = collect_stats(connection)
    reasons = {"requested": 0, "version": 0, "model": 0, "source": 0}
    shared = {"days": 1, "oldest": date(2026, 3, 1)}
    assert stats.figures["stale_summaries"] == {
        "leaf_summaries": {**reasons, **shared, "rows": 3, "waiting": 0, "version": 2, "requested": 1},
        "branch_summaries": {**reasons, **shared, "rows": 1, "waiting": 1, "version": 1},
    }
    assert any(
        alert.startswith("summaries of an older version or another model, or wanted again: 4;")
        for alert in stats.alerts
    )
    wire = stats_answer(stats, NOW).model_dump(mode="json", by_alias=True)["figures"]["staleSummaries"]
    assert wire["leaf_summaries"] == {**reasons, "days": 1, "oldest": "2026-03-01", "rows": 3, "waiting": 0,
                                      "version": 2, "requested": 1}  # fmt: skip


def test_one_failing_figure_costs_one_figure(connection: Connection) -> None:
    add_message(connection, "x")
    connection.execute("DROP VIEW ros_unsummarised CASCADE")
    stats = collect_stats(connection)
    assert set(stats.errors) == {"unsummarised", "pending_days"}
    assert "ros_unsummarised" in stats.errors["unsummarised"]
    assert stats.figures["totals"]["messages"] == 1
    assert any("unsummarised" in alert for alert in stats.alerts)
    assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}


def test_failures_and_orphans_are_alerts(connection: Connection) -> None:
    add_message(connection, "something embeddable")
    add_summary(connection, "a leaf without sources")
    connection.execute(
        """INSERT INTO ros_failures (stage, item, cause, error)
           VALUES ('leaf_summaries', 'x', 'content', 'refusal: no')"""
    )
    alerts = "\n".join(collect_stats(connection).alerts)
    assert "refusal: no" in alerts
    assert "given up" in alerts
    assert "1 leaf summaries" in alerts
    assert "no embedding model" in alerts


def test_quarantined_summaries_are_counted_and_an_alert(connection: Connection) -> None:
    for grounding, kind in ((0.59, "leaf"), (0.6, "leaf"), (None, "leaf"), (0.2, "branch")):
        identity = add_summary(connection, "text", kind=kind)
        connection.execute(
            "UPDATE ros_summaries SET grounding = %s, coverage = 0.5 WHERE id = %s", [grounding, identity]
        )
    stats = collect_stats(connection)
    summaries = stats.figures["summaries"]
    assert summaries["quarantined"] == {"leaf": 1, "branch": 1, "root": 0}
    assert (round(summaries["grounding"], 3), summaries["coverage"]) == (0.463, 0.5)
    assert [alert for alert in stats.alerts if alert.startswith("2 summaries hold too much")]


def _counted(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute(
        """SELECT conversation_id, agent, role, tool_name, kind, messages FROM ros_message_counts
           ORDER BY conversation_id, agent, role, tool_name, kind"""
    ).fetchall()


def test_the_kept_counts_are_the_messages_themselves(connection: Connection) -> None:
    first, second = add_conversation(connection), add_conversation(connection, agent="codex")
    for kind in ("speech", "replay", "notice", "speech"):
        add_message(connection, kind, conversation=first, metadata={"kind": kind})
    add_message(connection, "", conversation=first, role="tool", tool_name="Bash", tool_result="ok")
    add_message(connection, "", conversation=second, agent="codex", role="tool", tool_name="y" * 5000)
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
           SELECT c.id, 'many' || n, c.agent, 'test', 'user', 'one of many'
           FROM ros_conversations AS c CROSS JOIN generate_series(1, 7) AS n"""
    )
    # Skipped ones are not counted, and what is filled later is the same message.
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
           SELECT id, 'many1', agent, 'test', 'user', 'again' FROM ros_conversations ON CONFLICT DO NOTHING"""
    )
    connection.execute(
        "UPDATE ros_messages SET tool_result = 'late' WHERE tool_name IS NOT NULL AND tool_result IS NULL"
    )
    real = connection.execute(
        """SELECT conversation_id, agent, role, left(coalesce(tool_name, ''), 200) AS tool_name,
                  ros_message_class(metadata) AS kind, count(*) AS messages
           FROM ros_messages GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"""
    ).fetchall()
    assert _counted(connection) == real
    totals = collect_stats(connection).figures["totals"]
    assert (totals["messages"], totals["turns"], totals["tool_calls"], totals["replays"]) == (20, 16, 2, 1)
    assert collect_stats(connection, agent="codex").figures["totals"]["messages"] == 8


def test_writers_to_many_conversations_at_once_are_all_counted(pool: Pool, connection: Connection) -> None:
    conversations = [add_conversation(connection) for _ in range(4)]

    def write(number: int) -> None:
        with pool.connection() as own:
            for turn in range(10):
                add_message(own, "x", conversation=conversations[(number + turn) % 4])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["messages"] for row in _counted(connection)] == [10, 10, 10, 10]


def test_a_figure_that_takes_too_long_is_named_and_costs_no_other(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_module, "FIGURE_TIMEOUT_MS", 200)
    with connect(database_url) as other, other.transaction():
        other.execute("LOCK TABLE ros_lexicon IN ACCESS EXCLUSIVE MODE")
        stats = collect_stats(connection)
    assert stats.errors == {"lexicon": "took longer than 0.2 seconds"}
    assert stats.alerts[0] == "the figure lexicon could not be read: took longer than 0.2 seconds"
    assert stats.figures["totals"]["messages"] == 0
    # What bounded a figure bounds nothing else.
    assert connection.execute("SHOW statement_timeout").fetchone() == {"statement_timeout": "0"}


def test_waiting_rows_beyond_the_bound_are_not_counted_one_by_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_model(connection)
    first, second = add_conversation(connection), add_conversation(connection)
    for number in range(12):
        add_message(connection, str(number), conversation=first, embed=number < 5)
        add_message(connection, str(number), conversation=second, embed=True)
    add_summary(connection, "of the first ten", conversation=first)
    exact = collect_stats(connection).figures
    assert exact["pending_embeddings"] == {"messages": 7, "summaries": 1, "at_most": []}
    assert exact["pending_days"]["message_embeddings"] | {"oldest": None} == {
        "days": 1, "items": 7, "oldest": None, "at_most": []
    }  # fmt: skip
    assert exact["unsummarised"]["at_most"] == []
    monkeypatch.setattr(pending, "COUNTED", 5)
    monkeypatch.setattr(stats_module, "LOOKED_AT", 5)
    figures = collect_stats(connection).figures
    # What the conversations hold that are not seen, not what of them waits.
    assert figures["pending_embeddings"] == {"messages": 24, "summaries": 1, "at_most": ["messages"]}
    assert figures["pending_days"]["message_embeddings"] | {"oldest": None} == {
        "days": 1, "items": 24, "oldest": None, "at_most": ["items"]
    }  # fmt: skip
    assert figures["unsummarised"] == {
        "total": {"messages": 24, "conversations": 2}, "oldest": exact["unsummarised"]["oldest"], "at_most": ["total"]
    }  # fmt: skip
    assert stats_module.told("unsummarised", figures["unsummarised"]) == {
        "total": {"messages": "at most 24", "conversations": "at most 2"}, "oldest": exact["unsummarised"]["oldest"]
    }  # fmt: skip
    told = {name: stats_module.told(name, figures[name]) for name in ("pending_embeddings", "pending_days", "by_agent")}
    assert told["pending_embeddings"] == {"messages": "at most 24", "summaries": 1}
    assert told["pending_days"]["message_embeddings"]["items"] == "at most 24"
    assert told["pending_days"]["summary_embeddings"]["items"] == 1
    assert told["by_agent"] == {"claude": 24}
    assert [row["conversation_id"] for row in figures["unsummarised"]["oldest"]] == sorted([first, second])


def _summarise(connection: Connection, conversation: UUID, *, messages: int, waiting: int) -> None:
    """Messages of a conversation that goes on, all but the last in leaves."""
    connection.execute("UPDATE ros_conversations SET updated_at = now() WHERE id = %s", [conversation])
    connection.execute(
        """INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content)
           SELECT %s, n::text, 'claude', 'test', 'user', 'word' || n FROM generate_series(1, %s) AS n""",
        [conversation, messages],
    )
    leaf = add_summary(connection, "of the first ones", conversation=conversation)
    connection.execute(
        """INSERT INTO ros_summary_sources (summary_id, message_id, ordinal)
           SELECT %s, id, event_id::int FROM ros_messages WHERE conversation_id = %s AND event_id::int <= %s""",
        [leaf, conversation, messages - waiting],
    )


def test_what_stands_in_leaves_is_not_said_to_wait(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    _summarise(connection, add_conversation(connection), messages=2_500, waiting=3)
    figure = collect_stats(connection).figures["unsummarised"]
    assert figure["total"] == figure["active_tail"] == {"messages": 3, "conversations": 1}
    assert figure["eligible"] == {"messages": 0, "conversations": 0}
    assert figure["at_most"] == []
    # More than is looked at: near the truth all the same, and nothing is said of why they wait.
    _summarise(connection, add_conversation(connection), messages=40, waiting=0)
    monkeypatch.setattr(stats_module, "LOOKED_AT", 2_000)
    figure = collect_stats(connection).figures["unsummarised"]
    assert figure == {"total": {"messages": 3, "conversations": 1}, "oldest": [], "at_most": ["total"]}


def test_the_oldest_due_are_those_that_wait(connection: Connection) -> None:
    ages = {}
    for days, messages in ((9, 0), (8, 1), (7, 2), (6, 12), (5, 5), (4.5, 3), (4.2, 2), (4.1, 9)):
        conversation = add_conversation(connection)
        for number in range(messages):
            add_message(connection, str(number), conversation=conversation)
        connection.execute(
            "UPDATE ros_conversations SET updated_at = now() - make_interval(hours => %s) WHERE id = %s",
            [round(days * 24), conversation],
        )
        ages[days] = conversation
    oldest = collect_stats(connection).figures["unsummarised"]["oldest"]
    assert [(row["conversation_id"], row["waiting"], row["due"]) for row in oldest] == [
        (ages[7], 2, "stale"),
        (ages[6], 12, "full"),
        (ages[5], 5, "idle"),
        (ages[4.5], 3, "stale"),
        (ages[4.2], 2, "stale"),
    ]


def test_no_figure_walks_over_the_messages_or_the_vectors(connection: Connection) -> None:
    register_model(connection)
    add_message(connection, "x", embed=True)
    plans: list[str] = []

    class Explained:
        """The connection, with the plan of every statement that is asked of it."""

        def execute(self, query: str | bytes, values: dict[str, Any] | None = None, **options: Any) -> Any:
            query = query if isinstance(query, bytes) else query.encode()
            rows = connection.execute(b"EXPLAIN " + query, values, prepare=False).fetchall()
            plans.extend(row["QUERY PLAN"] for row in rows)
            return connection.execute(query, values, **options)

        def transaction(self) -> Any:
            return connection.transaction()

    # A small table is walked over whatever indexes it has, unless that is forbidden.
    connection.execute("SET enable_seqscan = off")
    for read in stats_module._figures().values():
        read(cast(Connection, Explained()), None)
    walked = [line for line in plans if re.search(r"Seq Scan on ros_(?:messages|embeddings|summaries)\b", line)]
    assert len(plans) > 100
    assert walked == []


def test_a_defect_in_a_figure_costs_that_figure(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Connection, agent: str | None) -> Any:
        raise ValueError("out of range")

    monkeypatch.setattr(stats_module, "_unsummarised", broken)
    stats = collect_stats(connection)
    assert list(stats.errors) == ["unsummarised"]
    assert "an internal error (ValueError)" in stats.alerts[0]
    assert set(stats.figures) == set(stats_module._figures()) - {"unsummarised"}
