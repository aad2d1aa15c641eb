"""Turns a stage's report into what Dagster shows: totals on the run, figures and plots on each day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import dagster as dg

from rivet_pipeline.assets.leftover_work import left_on
from rivet_pipeline.assets.links import in_hub
from rivet_pipeline.assets.markdown import code, table
from rivet_pipeline.assets.partitions import days_of
from rivet_pipeline.assets.resources import StoreResource
from rivet_pipeline.db.inspection import rows_held
from rivet_pipeline.db.quality import SummaryQuality
from rivet_pipeline.db.stale import stale_rows_on
from rivet_pipeline.retrieval.lineage import newest_summaries
from rivet_pipeline.stages import REMINED_STAGES, StageReport
from rivet_pipeline.summaries.types import Kind
from rivet_pipeline.wiki.read import newest_patches


def materialized(
    context: dg.AssetExecutionContext,
    store: StoreResource,
    report: StageReport,
    quality: Mapping[date | None, SummaryQuality] | None = None,
) -> dg.MaterializeResult[None]:
    """The result of a pass over the run's days; each day gets its own numbers, so that Dagster plots them over time.

    Where a day and the run have a figure of the same name, Dagster shows the day's: the run's have names of their own.
    `quality` is that of the summaries of those days, with None for all of them.
    """
    days = days_of(context.partition_keys)
    quality = quality or {}
    with store.connection() as connection:
        held = rows_held(connection, report.stage, days)
        stale = stale_rows_on(connection, report.stage, days) if report.stage in REMINED_STAGES else None
        left = left_on(connection, report.stage, days, stale)
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
                **_shares(quality.get(date.fromisoformat(key))),
                **left[date.fromisoformat(key)],
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
            **{f"run_{name}": value for name, value in _shares(quality.get(None)).items()},
            **_worst(quality.get(None)),
        }
    )


def _shares(found: SummaryQuality | None) -> dict[str, float | int]:
    if found is None:
        return {}
    shares = {"grounding": found.grounding, "coverage": found.coverage}
    told: dict[str, float | int] = {name: round(value, 4) for name, value in shares.items() if value is not None}
    return told | {"quarantined": found.quarantined}


def _worst(found: SummaryQuality | None) -> dict[str, dg.MarkdownMetadataValue]:
    """The summaries most worth a look; Markdown's own signs in a model's words are shown as they are."""
    if found is None or not found.worst:
        return {}
    header = ("summary", "grounding", "in no source", "coverage", "sources without a trace", "quarantined")
    rows = [
        (
            row["id"],
            _share(row["grounding"]),
            ", ".join(map(code, row["missing"])) or "none",
            _share(row["coverage"]),
            row["uncovered"],
            "yes" if row["quarantined"] else "no",
        )
        for row in found.worst
    ]
    return {"worth_a_look": dg.MetadataValue.md(table(header, rows))}


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def link_lineage(context: dg.AssetExecutionContext, store: StoreResource, kind: Kind) -> None:
    """Gives each day of the run the hub's page of its newest summary, from which it is two steps to the words."""
    with store.connection() as connection:
        newest = newest_summaries(connection, kind, days_of(context.partition_keys))
    for day, summary in newest.items():
        page = dg.MetadataValue.url(in_hub(f"/hub/s/{summary}"))
        context.add_asset_metadata({"lineage": page}, partition_key=day.isoformat())


def preview_patches(context: dg.AssetExecutionContext, store: StoreResource) -> None:
    """Shows on each day of the run its newest patches: the page, how it was found, and the first sentence."""
    with store.connection() as connection:
        found = newest_patches(connection, days_of(context.partition_keys))
    header = ("page", "status", "found by", "says", "source")
    for day, patches in found.items():
        rows = [
            (
                code(one.title) if one.slug is None else f"[{code(one.title)}]({in_hub(f'/hub/wiki/{one.slug}')})",
                one.status,
                one.decision,
                code(one.says, 200),
                f"[leaf summary]({in_hub(f'/hub/s/{one.leaf_id}')})",
            )
            for one in patches
        ]
        context.add_asset_metadata(
            {"newest_patches": dg.MetadataValue.md(table(header, rows))}, partition_key=day.isoformat()
        )
