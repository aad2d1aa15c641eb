"""Questions about what is stored that should all be answered with nothing: what the asset checks ask.

Each function returns a figure and, where it helps, the rows at fault. Read only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from rivet_pipeline.db.pending import amount, pending_days
from rivet_pipeline.db.pool import Connection

#: Below this share of identifiers found in its sources a summary deserves a look (design: grounding).
GROUNDING_FLOOR = 0.9

#: Below this share of sources that left a word of their own in it a summary deserves a look. The extractive leaves of
#: the demo sessions have 0.77 on average and 0.44 at least.
COVERAGE_FLOOR = 0.4


@dataclass(frozen=True, slots=True)
class Finding:
    """How many rows are at fault, out of how many, and a few of them. `at_most`: those at fault may be fewer."""

    at_fault: int
    examined: int
    examples: list[dict[str, Any]] = field(default_factory=list)
    #: More figures about all that was examined, None where there is nothing to tell.
    figures: dict[str, float | int | None] = field(default_factory=dict)
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class SummaryQuality:
    """Grounding and coverage of some summaries: averages (None: none of them has the figure) and the worst rows."""

    grounding: float | None
    coverage: float | None
    quarantined: int
    worst: list[dict[str, Any]]


def _finding(connection: Connection, counts: str, examples: str, parameters: dict[str, Any] | None = None) -> Finding:
    row = connection.execute(counts.encode(), parameters or {}).fetchone()
    assert row is not None
    found = connection.execute(examples.encode(), parameters or {}).fetchall() if row["at_fault"] else []
    return Finding(row["at_fault"], row["examined"], found)


def overdue_items(connection: Connection, stage: str) -> Finding:
    """Items of a stage that are due and not done, by day; `examined` counts the days with such items.

    Where there are too many to count, `at_most` is set and the examples say so.
    """
    found = pending_days(connection, stages=[stage])
    days: Counter[date] = Counter()
    for item in found:
        days[item.day] += item.items
    bounds = {item.day for item in found if item.at_most}
    oldest = [
        {"day": day, "items": amount(items, at_most=True) if day in bounds else items}
        for day, items in sorted(days.items())[:10]
    ]
    return Finding(days.total(), len(days), oldest, at_most=bool(bounds))


def failing_items(connection: Connection, stage: str) -> Finding:
    """Items of a stage that stand in the failure ledger."""
    return _finding(
        connection,
        "SELECT count(*) AS at_fault, count(*) AS examined FROM ros_failures WHERE stage = %(stage)s",
        "SELECT item, cause, attempts, left(error, 200) AS error FROM ros_failures WHERE stage = %(stage)s "
        "ORDER BY last_failed_at DESC LIMIT 10",
        {"stage": stage},
    )


def ungrounded_summaries(connection: Connection, kind: str) -> Finding:
    """Summaries of a kind whose identifiers their sources do not contain well enough, and the average of all."""
    found = _finding(
        connection,
        "SELECT count(*) FILTER (WHERE grounding < %(floor)s) AS at_fault, count(*) AS examined "
        "FROM ros_summaries WHERE kind = %(kind)s",
        "SELECT id, grounding, ungrounded[1:5] AS missing, NOT ros_is_trusted(s) AS quarantined "
        "FROM ros_summaries AS s WHERE kind = %(kind)s AND grounding < %(floor)s ORDER BY grounding LIMIT 10",
        {"kind": kind, "floor": GROUNDING_FLOOR},
    )
    return replace(found, figures=_figures(connection, kind, "grounding"))


def uncovered_sources(connection: Connection, kind: str) -> Finding:
    """Summaries of a kind in which too few of their sources left anything, and the average of all."""
    found = _finding(
        connection,
        "SELECT count(*) FILTER (WHERE coverage < %(floor)s) AS at_fault, count(*) AS examined "
        "FROM ros_summaries WHERE kind = %(kind)s",
        "SELECT id, coverage, uncovered[1:5] AS without_a_trace FROM ros_summaries "
        "WHERE kind = %(kind)s AND coverage < %(floor)s ORDER BY coverage LIMIT 10",
        {"kind": kind, "floor": COVERAGE_FLOOR},
    )
    return replace(found, figures=_figures(connection, kind, "coverage"))


def _figures(connection: Connection, kind: str, column: Literal["grounding", "coverage"]) -> dict[str, Any]:
    row = connection.execute(
        f"""
        SELECT avg({column}) AS average, min({column}) AS least,
               count(*) FILTER (WHERE NOT ros_is_trusted(s)) AS quarantined
        FROM ros_summaries AS s WHERE kind = %(kind)s
        """.encode(),  # noqa: S608 - the column is one of two words
        {"kind": kind},
    ).fetchone()
    return dict(row or {})


def summary_quality(connection: Connection, kind: str, days: Sequence[date]) -> dict[date | None, SummaryQuality]:
    """Grounding and coverage of a level's summaries, by day and under None for all of those days together.

    Rows at fault are shown worst first, five a day and for all; days without summaries do not appear.
    """
    rows = connection.execute(
        """
        SELECT c.day, s.id, s.grounding, s.coverage, s.ungrounded[1:5] AS missing, NOT ros_is_trusted(s) AS quarantined,
               cardinality(s.uncovered) AS uncovered
        FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
        WHERE s.kind = %(kind)s AND c.day = ANY(%(days)s::date[])
        ORDER BY s.grounding, s.coverage, s.seq
        """,
        {"kind": kind, "days": list(days)},
    ).fetchall()
    groups: dict[date | None, list[dict[str, Any]]] = {None: rows} if rows else {}
    for row in rows:
        groups.setdefault(row["day"], []).append(row)
    return {day: _quality(found) for day, found in groups.items()}


def _quality(rows: list[dict[str, Any]]) -> SummaryQuality:
    def average(name: str) -> float | None:
        values = [row[name] for row in rows if row[name] is not None]
        return sum(values) / len(values) if values else None

    def at_fault(row: dict[str, Any]) -> bool:
        return any(
            row[name] is not None and row[name] < floor
            for name, floor in (("grounding", GROUNDING_FLOOR), ("coverage", COVERAGE_FLOOR))
        )

    return SummaryQuality(
        grounding=average("grounding"),
        coverage=average("coverage"),
        quarantined=sum(row["quarantined"] for row in rows),
        worst=[row for row in rows if at_fault(row)][:5],
    )


def untold_calls(connection: Connection) -> Finding:
    """Tool calls without words that have no text either, an hour after their conversation fell silent; noise left out.

    Asks the rows themselves, not what is pending: a call that was given up, or that no mark leads to, is found too.
    """
    return _finding(
        connection,
        _UNTOLD.format(columns="count(*) FILTER (WHERE untold) AS at_fault, count(*) AS examined", tail=""),
        _UNTOLD.format(columns="id, tool_name, day", tail="WHERE untold ORDER BY day, seq LIMIT 10"),
    )


_UNTOLD = """
SELECT {columns} FROM (
    SELECT m.id, m.seq, m.tool_name, c.day,
           ros_is_untold(m.content, m.tool_name, m.metadata) AND c.updated_at < now() - interval '1 hour' AS untold
    FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
    WHERE m.tool_name IS NOT NULL AND NOT ros_is_noise(c.session_key, c.settings)
) AS calls {tail}
"""


def stale_summaries(connection: Connection, kind: str) -> Finding:
    """Summaries of a kind that an older version or another model made, or whose sources have changed since."""
    return _finding(
        connection,
        "SELECT (SELECT count(*) FROM ros_stale_summaries WHERE kind = %(kind)s) AS at_fault, "
        "count(*) AS examined FROM ros_summaries WHERE kind = %(kind)s",
        "SELECT day, reason, count(*) AS rows, count(*) FILTER (WHERE waits) AS waiting FROM ros_stale_summaries "
        "WHERE kind = %(kind)s GROUP BY day, reason ORDER BY day, reason LIMIT 10",
        {"kind": kind},
    )


def orphan_summaries(connection: Connection, kind: str) -> Finding:
    """Leaves without a source message, branches and roots without a child.

    Those of pipeline version 0 came from elsewhere, and may have lost what they were made from there.
    """
    return _finding(
        connection,
        _ORPHANS.format(columns="count(*) FILTER (WHERE orphan) AS at_fault, count(*) AS examined", tail=""),
        _ORPHANS.format(columns="id, created_at", tail="WHERE orphan LIMIT 10"),
        {"kind": kind},
    )


_ORPHANS = """
SELECT {columns} FROM (
    SELECT s.id, s.created_at,
           CASE s.kind WHEN 'leaf' THEN NOT EXISTS (SELECT 1 FROM ros_summary_sources AS o WHERE o.summary_id = s.id)
                ELSE NOT EXISTS (SELECT 1 FROM ros_summaries AS o WHERE o.parent_id = s.id) END AS orphan
    FROM ros_summaries AS s WHERE s.kind = %(kind)s AND s.pipeline_version > 0
) AS summaries {tail}
"""


def wrong_width_embeddings(connection: Connection, owner_kind: str) -> Finding:
    """Vectors whose width is not their model's, or whose owner is gone."""
    return _finding(
        connection,
        _WIDTHS.format(columns="count(*) FILTER (WHERE wrong) AS at_fault, count(*) AS examined", tail=""),
        _WIDTHS.format(columns="owner_id, chunk, model", tail="WHERE wrong LIMIT 10"),
        {"kind": owner_kind},
    )


_WIDTHS = """
SELECT {columns} FROM (
    SELECT e.owner_id, e.chunk, m.name AS model, vector_dims(e.embedding) <> m.dimensions AS wrong
    FROM ros_embeddings AS e JOIN ros_embedding_models AS m ON m.id = e.model_id WHERE e.owner_kind = %(kind)s
) AS vectors {tail}
"""


def duplicate_events(connection: Connection, since: date) -> Finding:
    """Messages of one conversation that say the same at the same instant under two ids, captured since a day (UTC)."""
    return _finding(
        connection,
        _SAME_ROWS.format(
            columns="coalesce(sum(copies - 1), 0)::bigint AS at_fault, coalesce(sum(copies), 0)::bigint AS examined",
            tail="",
        ),
        _SAME_ROWS.format(columns="*", tail="WHERE copies > 1 ORDER BY copies DESC LIMIT 10"),
        {"since": since},
    )


_SAME_ROWS = """
SELECT {columns} FROM (
    SELECT conversation_id, created_at, role, text_hash, count(*) AS copies
    FROM ros_messages
    WHERE captured_at >= %(since)s AND content <> '' AND NOT metadata ?| ARRAY['clashes_with', 'content_made_by']
    GROUP BY conversation_id, created_at, role, text_hash
) AS groups {tail}
"""
