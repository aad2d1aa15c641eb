"""The figures of evaluations over time: what compares with what, and which of a day is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.evaluation import Evaluation
from rivet_pipeline.retrieval.quality_history import quality_history, record_quality

LAST = datetime(2026, 3, 10, 3, 23, tzinfo=UTC)


def measured(
    connection: Connection, recall: float, *, days_ago: float = 0.0, embedder: str = "a", questions: int = 52
) -> None:
    connection.execute(
        "INSERT INTO ros_retrieval_quality VALUES (%s, 'demo', %s, %s, %s)",
        [LAST - timedelta(days=days_ago), questions, embedder, Jsonb({"turn_recall@10": recall})],
    )


def test_nothing_measured_is_no_history(connection: Connection) -> None:
    assert quality_history(connection) is None


def test_what_is_recorded_is_read_again(connection: Connection) -> None:
    result = Evaluation("demo", 52, {"turn_recall@10": 0.8125, "latency_ms_p50": 4.5}, {}, ())
    record_quality(connection, result, "wordllama")
    record_quality(connection, result, "wordllama")
    history = quality_history(connection)
    assert history is not None
    assert (history.question_set, history.questions, history.embedder, history.others) == ("demo", 52, "wordllama", 0)
    assert [one.figures for one in history.measurements] == [result.figures]


def test_only_like_measurements_are_compared_and_a_day_counts_once(connection: Connection) -> None:
    measured(connection, 0.5, days_ago=4, embedder="b")
    measured(connection, 0.6, days_ago=3, questions=40)
    measured(connection, 0.7, days_ago=2)
    measured(connection, 0.1, days_ago=1.1)
    measured(connection, 0.8, days_ago=1)
    measured(connection, 0.9)
    history = quality_history(connection)
    assert history is not None
    assert [one.figures["turn_recall@10"] for one in history.measurements] == [0.7, 0.8, 0.9]
    assert [one.day.isoformat() for one in history.measurements] == ["2026-03-08", "2026-03-09", "2026-03-10"]
    assert history.others == 2
    assert history.fallen() == []
    newest = quality_history(connection, days=2)
    assert newest is not None
    assert [one.figures["turn_recall@10"] for one in newest.measurements] == [0.8, 0.9]


def test_a_fall_is_told(connection: Connection) -> None:
    measured(connection, 0.8, days_ago=1)
    measured(connection, 0.7)
    history = quality_history(connection)
    assert history is not None
    assert [(drop.figure, drop.now, drop.best) for drop in history.fallen()] == [("turn_recall@10", 0.7, 0.8)]


def test_a_fall_within_a_day_is_told(connection: Connection) -> None:
    measured(connection, 0.8, days_ago=0.1)
    measured(connection, 0.7)
    history = quality_history(connection)
    assert history is not None
    assert len(history.measurements) == 1
    assert [(drop.now, drop.median, drop.best) for drop in history.fallen()] == [(0.7, 0.8, 0.8)]
