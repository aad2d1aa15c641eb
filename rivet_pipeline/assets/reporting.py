"""Turns a stage's report into what Dagster shows of each day: what is left, the day's figures, the run's totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import quote

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
from rivet_pipeline.stages import REMINED_STAGES, DayReport, StageReport
from rivet_pipeline.summaries.types import Kind
from rivet_pipeline.wiki.read import PatchLine, newest_patches
from rivet_pipeline.wiki.types import Decision

#: Patches that a day shows: Dagster hides Markdown of a thousand characters and more behind a link.
_PATCHES = 3

#: How a patch's page was found, in words.
FOUND: Mapping[Decision, str] = {
    "slug": "by name",
    "redirect": "by a former name",
    "alias": "by another name",
    "entities": "by shared names",
    "search": "by search",
    "new": "new page",
    "consolidation": "by consolidation",
}


def materialized(
    context: dg.AssetExecutionContext,
    store: StoreResource,
    report: StageReport,
    quality: Mapping[date | None, SummaryQuality] | None = None,
    *,
    by_day: Mapping[date, Mapping[str, Any]] | None = None,
    of_run: Mapping[str, Any] | None = None,
) -> dg.MaterializeResult[None]:
    """The result of a pass over the run's days; each day gets its own numbers, so that Dagster plots them over time.

    Dagster shows a day's metadata in the order in which it is given: what is left comes first, then the day's figures,
    then the run's, whose names begin with `run_`.

    Args:
        context: The run's.
        store: Asked for what is there and what is left.
        report: What the pass did.
        quality: That of the summaries of those days, with None for all of them.
        by_day: More about each day.
        of_run: More about the run.
    """
    days = days_of(context.partition_keys)
    quality = quality or {}
    with store.connection() as connection:
        held = rows_held(connection, report.stage, days)
        stale = stale_rows_on(connection, report.stage, days) if report.stage in REMINED_STAGES else None
        left = left_on(connection, report.stage, days, stale)
    run = {**_run_figures(report, stale, quality.get(None)), **(of_run or {})}
    for day in days:
        context.add_asset_metadata(
            {
                **left[day].words(),
                **(by_day or {}).get(day, {}),
                "dagster/row_count": held.get(day, 0),
                **left[day].figures(),
                **({} if stale is None else {"stale_left": stale.get(day, 0)}),
                **_day_figures(report.days.get(day, DayReport())),
                **_shares(quality.get(day)),
                **run,
            },
            partition_key=day.isoformat(),
        )
    return dg.MaterializeResult()


def _day_figures(day: DayReport) -> dict[str, int | float]:
    return {
        "rows_written": day.rows,
        "failures": day.failures,
        "model_calls": day.model_calls,
        "characters": day.characters,
        "tokens": day.tokens,
        "seconds": round(day.seconds, 3),
    }


def _run_figures(
    report: StageReport, stale: Mapping[date, int] | None, quality: SummaryQuality | None
) -> dict[str, Any]:
    worked = [(day, found) for day, found in sorted(report.days.items()) if found.rows or found.failures]
    return {
        "model": report.model or "none",
        "run_rows_written": report.rows,
        "run_failures": report.failures,
        "run_model_calls": report.model_calls,
        **({} if stale is None else {"run_stale_left": sum(stale.values())}),
        **{f"run_{name}": value for name, value in _shares(quality).items()},
        "run_days": dg.MetadataValue.md(
            table(
                ("day", "rows", "failures", "model calls", "seconds"),
                [(day, found.rows, found.failures, found.model_calls, f"{found.seconds:.2f}") for day, found in worked],
            )
        ),
        **_worst(quality),
    }


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


def link_lineage(store: StoreResource, kind: Kind, days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """For each day, the hub's page of its newest summary, from which it is one step to the words."""
    with store.connection() as connection:
        newest = newest_summaries(connection, kind, days)
    return {day: {"lineage": dg.MetadataValue.url(in_hub(f"/hub/s/{summary}"))} for day, summary in newest.items()}


def preview_patches(store: StoreResource, days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """For each day its newest patches: the page, how it was found, the first sentence and the leaf it stands on."""
    with store.connection() as connection:
        found = newest_patches(connection, days, of_each=_PATCHES)
    header = ("page", "says", "status", "source")
    return {
        day: {"newest_patches": dg.MetadataValue.md(table(header, [_patch(one) for one in patches]))}
        for day, patches in found.items()
    }


def _patch(one: PatchLine) -> Sequence[str]:
    title = code(one.title)
    return (
        title if one.slug is None else f"[{title}]({in_hub(f'/hub/wiki/{quote(one.slug)}')})",
        code(one.says, 100),
        f"{one.status} ({FOUND[one.decision]})",
        f"[leaf summary]({in_hub(f'/hub/s/{one.leaf_id}')})",
    )
