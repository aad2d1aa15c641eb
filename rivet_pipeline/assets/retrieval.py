"""What retrieval reads (text index, statistics, vector codes), and how good retrieval is, as figures over time."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from rivet_pipeline.assets.links import HEALTH, SEARCH, described, stored_in
from rivet_pipeline.assets.markdown import code, table
from rivet_pipeline.assets.messages import messages
from rivet_pipeline.assets.resources import Models, StoreResource
from rivet_pipeline.assets.summaries import branch_summaries, leaf_summaries, root_summaries
from rivet_pipeline.retrieval.evaluation import COMPARED_RUNS, Drop, Evaluation, drops, keep, keep_run, lost
from rivet_pipeline.retrieval.evaluation_sets import read_questions
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.quality_history import record_quality
from rivet_pipeline.retrieval.vector_pieces import refresh_vector_pieces
from rivet_pipeline.settings import get_settings
from rivet_pipeline.trial import try_questions
from rivet_pipeline.versions import LEXICON_VERSION, RETRIEVAL_QUALITY_VERSION


@dg.asset(
    deps=[messages, leaf_summaries, branch_summaries, root_summaries],
    group_name="search",
    owners=["team:memory"],
    kinds={"postgres"},
    code_version=str(LEXICON_VERSION),
    metadata=stored_in("ros_lexicon"),
    description=described(
        "The text index that BM25 is scored from, and how many messages and summaries contain each word. Takes up "
        "only what came or changed since the last time, piece by piece; search works while it is behind. The "
        "codes of the vectors, two bits a dimension, by which a search within a filter chooses what it compares, come "
        "along.",
        SEARCH,
        HEALTH,
        table="ros_lexicon",
    ),
)
def lexicon(store: StoreResource) -> dg.MaterializeResult[None]:
    """Indexes and counts the words of the rows that came or changed since the last refresh; then codes the vectors."""
    began = time.perf_counter()
    with store.connection() as connection:
        figures = refresh_lexicon(connection)
        codes = refresh_vector_pieces(connection)
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": figures.terms,
            "documents": figures.documents,
            "messages_added": figures.messages,
            "summaries_added": figures.summaries,
            "rows_changed": figures.changed,
            "index_pieces": figures.pieces,
            "index_mb": round(figures.index_bytes / 1e6, 1),
            "mean_length_bytes": round(figures.mean_length, 1),
            "rows_behind": figures.behind,
            "vector_pieces_written": codes.written,
            "vectors_coded": codes.chunks,
            "vector_codes_mb": round(codes.bytes / 1e6, 1),
            "vector_changes_waiting": codes.waiting,
            "seconds": round(time.perf_counter() - began, 3),
        }
    )


@dg.asset(
    deps=[lexicon],
    group_name="search",
    owners=["team:memory"],
    kinds={"postgres"},
    code_version=str(RETRIEVAL_QUALITY_VERSION),
    description=described(
        "How well search finds what it should: the shipped questions over the demo sessions, or those of "
        "RIVETOS_EVAL_FILE, asked in a scratch database with the configured models. Of the memory itself only "
        "`ros_retrieval_quality` is written.",
        HEALTH,
    ),
)
def retrieval_quality(store: StoreResource, models: dg.ResourceParam[Models]) -> dg.MaterializeResult[None]:
    """Asks a question set and records recall, nDCG and latency."""
    began = time.perf_counter()
    settings = get_settings()
    result = try_questions(
        store.url,
        settings,
        None if settings.eval_file is None else read_questions(settings.eval_file),
        embedder=models.embedder,
        summarizer=models.summarizer if settings.eval_file is None else None,
    )
    run = _keep(result, settings.home / "evaluation")
    with store.connection() as connection:
        record_quality(connection, result, models.embedder.name)
    return dg.MaterializeResult(
        metadata={
            "dagster/table_name": "ros_retrieval_quality",
            "question_set": result.name,
            "questions": result.questions,
            "embedder": models.embedder.name,
            **{name.replace("@", "_at_"): value for name, value in result.figures.items()},
            "worst": dg.MetadataValue.md(_worst(result)),
            "degraded": result.degraded or "no",
            "every_question": dg.MetadataValue.path(str(run)),
            "seconds": round(time.perf_counter() - began, 3),
        }
    )


def _keep(result: Evaluation, folder: Path) -> Path:
    """Writes the run in place of the last one, and beside those before; the file of the latter."""
    keep(result, folder)
    return keep_run(result, folder / "runs", datetime.now(UTC))


#: What says how little a question found, the weightiest first; one that names no messages has only those of sessions.
_SHOWN = ("turn_recall@10", "session_recall@10", "turn_ndcg@10", "session_ndcg@10")


def _worst(result: Evaluation) -> str:
    """The questions that found the least, as a table."""
    judged = [one for one in result.asked if one.figures and one.counted]
    judged.sort(key=lambda one: ([one.figures[figure] for figure in _SHOWN if figure in one.figures], one.id))
    rows = [(one.id, one.text[:100], *(one.figures.get(figure, "") for figure in _SHOWN)) for one in judged[:10]]
    return table(("question", "text", *(figure.replace("_", " ") for figure in _SHOWN)), rows)


@dg.asset_check(
    asset=retrieval_quality,
    description="Search finds about as much as it did: no recall or nDCG is more than 0.03 below the median, or 0.06 "
    f"below the best, of the last {COMPARED_RUNS} runs with the same questions and embedding model. A failure names "
    "the figures and, in `lost`, the questions that lost most: see what changed that day (model, version, code).",
)
def no_drop(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Compares the newest figures with those of the runs before."""
    records = context.instance.fetch_materializations(retrieval_quality.key, limit=COMPARED_RUNS + 1).records
    runs = [_figures(record.asset_materialization) for record in records if record.asset_materialization]
    if not runs:
        return dg.AssetCheckResult(passed=True, metadata={"compared_with": 0})
    newest, *before = runs
    same = [
        run
        for run in before
        if all(run.get(name) == newest.get(name) for name in ("question_set", "questions", "embedder"))
    ]
    found = drops(newest, same)
    rows = [(drop.figure, drop.now, drop.median, drop.best) for drop in found]
    return dg.AssetCheckResult(
        passed=not found,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={
            "compared_with": len(same),
            "drops": dg.MetadataValue.md(table(("figure", "now", "median", "best"), rows) if rows else "None."),
            **({"lost": dg.MetadataValue.md(_lost(found[0], newest, same))} if found else {}),
        },
    )


def _lost(drop: Drop, newest: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> str:
    """The questions that lost most in a figure since the best earlier run whose questions are kept, as a table."""
    figure = drop.figure.replace("_at_", "@")
    for run in sorted((run for run in before if drop.figure in run), key=lambda run: run[drop.figure], reverse=True):
        paths = (run.get("every_question"), newest.get("every_question"))
        if not all(isinstance(path, str) for path in paths):
            continue
        fallen = lost(Path(str(paths[0])), Path(str(paths[1])), figure)
        if fallen is not None:
            rows = [(code(one.id), code(one.text, 100), one.before, one.now) for one in fallen[:10]]
            return f"`{figure}` since `{paths[0]}`:\n\n" + table(
                ("question", "text", "before", "now"), rows, empty="None of the questions that both runs asked lost."
            )
    return "The questions of no earlier run are kept."


def _figures(materialization: dg.AssetMaterialization) -> Mapping[str, Any]:
    return {name: value.value for name, value in materialization.metadata.items()}
