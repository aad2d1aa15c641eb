"""Whether the memory is well: alerts first, then what waits, what fails, what is covered, the models, and quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from markupsafe import Markup

from rivet_pipeline.api.hub.charts import Line, lines_over_time, swatch
from rivet_pipeline.api.hub.pages import FromHub, HubRoute
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.retrieval.quality_history import QualityHistory, quality_history
from rivet_pipeline.retrieval.stats import collect_stats
from rivet_pipeline.retrieval.timeline import QualityPoint, announced_models, summary_quality_by_week
from rivet_pipeline.retrieval.types import Stats
from rivet_pipeline.stages import STAGES
from rivet_pipeline.transcripts.spool import Spool

router = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Queue:
    """What one stage has to do. `oldest` is a day; `at_most`: it may be less."""

    name: str
    items: int
    days: int
    oldest: str
    at_most: bool


def queues(stats: Stats) -> list[Queue]:
    """Every stage with what is due, those with work first."""
    pending = stats.figures.get("pending_days", {})
    found = [
        Queue(
            stage.replace("_", " "),
            pending[stage]["items"] if stage in pending else 0,
            pending[stage]["days"] if stage in pending else 0,
            str(pending[stage]["oldest"] or "") if stage in pending else "",
            bool(pending[stage]["at_most"]) if stage in pending else False,
        )
        for stage in STAGES
    ]
    return sorted(found, key=lambda queue: not queue.items)


#: The figures of an evaluation that are drawn, and what they are called.
RETRIEVAL_FIGURES = {
    "session_recall@5": "sessions found (recall@5)",
    "turn_recall@10": "messages found (recall@10)",
    "turn_ndcg@10": "in their order (nDCG@10)",
}


def retrieval_chart(history: QualityHistory | None) -> Markup:
    """Recall and order of the evaluations by day; nothing when there are none."""
    if history is None:
        return Markup("")
    found = history.measurements
    lines = [Line(words, [one.figures.get(figure) for one in found]) for figure, words in RETRIEVAL_FIGURES.items()]
    return lines_over_time([one.day for one in found], lines, "How well search finds what it should", name="retrieval")


def quality_chart(points: Sequence[QualityPoint]) -> Markup:
    """Grounding and coverage of summaries by week; nothing when there are none."""
    if not points:
        return Markup("")
    lines = [
        Line("grounding", [point.grounding for point in points]),
        Line("sources used", [point.coverage for point in points]),
    ]
    title = "Grounding and coverage of leaf summaries by week"
    return lines_over_time([point.week for point in points], lines, title, name="summaries")


@router.get("/health")
def health_page(page: FromHub) -> Response:
    """The state of the memory on one page."""
    spool = Spool(page.resources.settings.spool_folder)
    with page.resources.connection() as connection:
        stats = collect_stats(connection, spool=spool)
        quality = summary_quality_by_week(connection)
        models = announced_models(connection)
        history = quality_history(connection)
    probe = page.resources.probe.look()
    alerts = list(stats.alerts)
    if probe.status != "ok":
        alerts.insert(0, f"the embedding model does not answer: {probe.reason}")
    if history is not None:
        alerts += [
            f"search finds less than it did: {drop.figure.replace('_', ' ')} is {drop.now:.2f}, the median of the runs "
            f"before {drop.median:.2f}, the best {drop.best:.2f}"
            for drop in history.fallen()
        ]
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
        history=history,
        retrieval_chart=retrieval_chart(history),
        retrieval_figures=RETRIEVAL_FIGURES,
        swatch=swatch,
    )


def _figures(stats: Stats) -> dict[str, Any]:
    """The figures, None in place of each that could not be read."""
    names = ("totals", "conversations", "summaries", "embeddings", "failures", "unsummarised", "lexicon", "freshness")
    return {name: stats.figures.get(name) for name in (*names, "spool", "by_agent")}
