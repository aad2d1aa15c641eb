"""Turns a stage's report into what Dagster shows: totals on the run, figures and plots on each day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import dagster as dg

from rivet_pipeline.assets.partitions import days_of
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.db.inspection import rows_held
from rivet_pipeline.db.stale import stale_rows_on
from rivet_pipeline.stages import SUMMARY_STAGES, StageReport


def materialized(
    context: dg.AssetExecutionContext, store: StoreResource, report: StageReport
) -> dg.MaterializeResult[None]:
    """The result of a pass over the run's days; each day gets its own numbers, so that Dagster plots them over time.

    Where a day and the run have a figure of the same name, Dagster shows the day's: the run's have names of their own.
    """
    days = days_of(context.partition_keys)
    with store.connection() as connection:
        held = rows_held(connection, report.stage, days)
        stale = stale_rows_on(connection, report.stage, days) if report.stage in SUMMARY_STAGES else None
    for key in context.partition_keys:
        day = report.days.get(date.fromisoformat(key))
        context.add_asset_metadata(
            {
                "dagster/row_count": held.get(date.fromisoformat(key), 0),
                "rows_written": day.rows if day else 0,
                "failures": day.failures if day else 0,
                "model_calls": day.model_calls if day else 0,
                "characters": day.characters if day else 0,
                "tokens": day.tokens if day else 0,
                "seconds": round(day.seconds, 3) if day else 0.0,
                **({} if stale is None else {"stale_left": stale.get(date.fromisoformat(key), 0)}),
            },
            partition_key=key,
        )
    worked = sorted(day for day in report.days if report.days[day].rows or report.days[day].failures)
    return dg.MaterializeResult(
        metadata={
            "model": report.model or "none",
            "run_rows_written": report.rows,
            "run_failures": report.failures,
            "run_model_calls": report.model_calls,
            **({} if stale is None else {"run_stale_left": sum(stale.values())}),
            "days_with_work": dg.MetadataValue.md(
                table(
                    ("day", "rows", "failures", "model calls", "seconds"),
                    [
                        (day, found.rows, found.failures, found.model_calls, f"{found.seconds:.2f}")
                        for day, found in ((day, report.days[day]) for day in worked)
                    ],
                )
            ),
        }
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; a sentence when there are no rows."""
    if not rows:
        return "Nothing needed work."
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
