"""What evaluations of search have found over time: kept by `retrieval_quality`, read by the hub.

How a figure is measured stands in `evaluation.py`; here it is only written down and read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.evaluation import COMPARED_RUNS, Drop, Evaluation, drops


@dataclass(frozen=True, slots=True)
class Measurement:
    """One evaluation. `figures` are named as in `Evaluation`: shares from 0 to 1, and `latency_ms_*`."""

    measured_at: datetime
    figures: Mapping[str, float]

    @property
    def day(self) -> date:
        """The UTC day."""
        return self.measured_at.date()


@dataclass(frozen=True, slots=True)
class QualityHistory:
    """The measurements that compare with the newest, one a day, oldest first, and how many there are that do not.

    Those compare that asked as many questions of the same set with the same embedding model. `before` are the figures
    of the last of them before the newest, those of its own day too.
    """

    question_set: str
    questions: int
    embedder: str
    measurements: Sequence[Measurement]
    others: int
    before: Sequence[Mapping[str, float]]

    def fallen(self) -> list[Drop]:
        """The figures of the newest measurement that lie too far below those before it."""
        return drops(self.measurements[-1].figures, self.before)


def record_quality(connection: Connection, result: Evaluation, embedder: str) -> None:
    """Keeps the figures of an evaluation that was made just now."""
    connection.execute(
        "INSERT INTO ros_retrieval_quality (question_set, questions, embedder, figures) VALUES (%s, %s, %s, %s)",
        [result.name, result.questions, embedder, Jsonb(dict(result.figures))],
    )


def quality_history(connection: Connection, *, days: int = 90) -> QualityHistory | None:
    """The last measurement of each of the latest days (UTC) that have one; None when nothing was measured yet."""
    newest = connection.execute(
        "SELECT question_set, questions, embedder FROM ros_retrieval_quality ORDER BY measured_at DESC LIMIT 1"
    ).fetchone()
    if newest is None:
        return None
    rows = connection.execute(
        """
        SELECT DISTINCT ON (day) measured_at, figures
        FROM ros_retrieval_quality, LATERAL (SELECT (measured_at AT TIME ZONE 'UTC')::date AS day) AS utc
        WHERE question_set = %(question_set)s AND questions = %(questions)s AND embedder = %(embedder)s
        ORDER BY day DESC, measured_at DESC LIMIT %(days)s
        """,
        {**newest, "days": days},
    ).fetchall()
    others = connection.execute(
        """
        SELECT count(*) AS n FROM ros_retrieval_quality
        WHERE (question_set, questions, embedder) <> (%(question_set)s, %(questions)s, %(embedder)s)
        """,
        newest,
    ).fetchone()
    assert others is not None
    before = connection.execute(
        """
        SELECT figures FROM ros_retrieval_quality
        WHERE question_set = %(question_set)s AND questions = %(questions)s AND embedder = %(embedder)s
        ORDER BY measured_at DESC OFFSET 1 LIMIT %(compared)s
        """,
        {**newest, "compared": COMPARED_RUNS},
    ).fetchall()
    return QualityHistory(
        **newest,
        measurements=[Measurement(**row) for row in reversed(rows)],
        others=others["n"],
        before=[row["figures"] for row in before],
    )
