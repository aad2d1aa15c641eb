"""Whether the memory is well: alerts first, then what waits, what fails, how much is covered, and the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from markupsafe import Markup

from rivet_pipeline.api.hub.charts import Line, lines_over_time
from rivet_pipeline.api.hub.pages import FromHub, HubRoute
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.retrieval.timeline import QualityPoint, announced_models, summary_quality_by_week
from rivet_pipeline.retrieval.types import Stats
from rivet_pipeline.stages import STAGES
from rivet_pipeline.transcripts.spool import Spool

router = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Queue:
    """What one stage has to do. `oldest` is a day."""

    name: str
    items: int
    days: int
    oldest: str


def queues(stats: Stats) -> list[Queue]:
    """Every stage with what is due, those with work first."""
    pending = stats.figures.get("pending_days", {})
    found = [
        Queue(
            stage.replace("_", " "),
            pending[stage]["items"] if stage in pending else 0,
            pending[stage]["days"] if stage in pending else 0,
            pending[stage]["oldest"].isoformat() if stage in pending else "",
        )
        for stage in STAGES
    ]
    return sorted(found, key=lambda queue: not queue.items)


def quality_chart(points: Sequence[QualityPoint]) -> Markup:
    """Grounding and coverage of summaries by week; nothing when there are none."""
    if not points:
        return Markup("")
    lines = [
        Line("grounding", [point.grounding for point in points]),
        Line("coverage", [point.coverage for point in points]),
    ]
    return lines_over_time([point.week for point in points], lines, "Grounding and coverage of leaf summaries by week")


@router.get("/health")
def health_page(page: FromHub) -> Response:
    """The state of the memory on one page."""
    spool = Spool(page.resources.settings.spool_folder)
    with page.resources.connection() as connection:
        stats = collect_stats(connection, spool=spool)
        quality = summary_quality_by_week(connection)
        models = announced_models(connection)
    probe = page.resources.probe.look()
    alerts = list(stats.alerts)
    if probe.status != "ok":
        alerts.insert(0, f"the embedding model does not answer: {probe.reason}")
    return page.render(
        "health.html",
        section="health",
        alerts=alerts,
        figures=_figures(stats),
        queues=queues(stats),
        probe=probe,
        models=models,
        quality=quality,
        chart=quality_chart(quality),
    )


def _figures(stats: Stats) -> dict[str, Any]:
    """The figures, None in place of each that could not be read."""
    names = ("totals", "conversations", "summaries", "embeddings", "failures", "unsummarised", "lexicon", "freshness")
    return {name: stats.figures.get(name) for name in (*names, "spool", "by_agent")}
