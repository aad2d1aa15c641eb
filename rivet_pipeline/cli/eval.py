"""`rivet eval`: the arguments, the progress line and the table. What is measured: `retrieval/evaluation.py`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from rivet_pipeline.cli.options import AsJson
from rivet_pipeline.cli.output import console, error_console, one_line, print_json
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.factory import build_embedder
from rivet_pipeline.retrieval.evaluation import Evaluation, keep
from rivet_pipeline.retrieval.evaluation_sets import QuestionSet, read_locomo, read_longmemeval
from rivet_pipeline.retrieval.search import MAX_LIMIT
from rivet_pipeline.settings import get_settings
from rivet_pipeline.summaries.factory import build_summarizer
from rivet_pipeline.trial import try_questions

#: The columns of the table and their figures. R is recall, the share of what should be found that was.
_SHOWN = {
    "turn R@5": "turn_recall@5",
    "turn R@10": "turn_recall@10",
    "nDCG@10": "turn_ndcg@10",
    "session R@5": "session_recall@5",
    "R@10": "session_recall@10",
    "any@5": "session_any@5",
}


class Questions(StrEnum):
    """A kind of question set."""

    LOCOMO = "locomo"
    LONGMEMEVAL = "longmemeval"
    DEMO = "demo"


class Mode(StrEnum):
    """The modes of search that rank."""

    HYBRID = "hybrid"
    FTS = "fts"
    VECTOR = "vector"


def eval_command(
    kind: Annotated[Questions, typer.Argument(help="A LoCoMo file, a LongMemEval file, or the shipped questions.")],
    file: Annotated[Path | None, typer.Argument(help="The file; none for demo.", show_default=False)] = None,
    as_json: AsJson = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Ask only the first N questions.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="A folder for every question's answer (JSON lines) and the figures.", show_default=False),
    ] = None,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Make summaries, too, and search them beside the messages.")
    ] = False,
    mode: Annotated[Mode, typer.Option(help="The mode of search.")] = Mode.HYBRID,
    hits: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="The length of the lists asked for; the API gives 20 by default.")
    ] = MAX_LIMIT,
) -> None:
    """Measure search with a question set: recall, nDCG and latency.

    Its conversations are stored in a scratch database of the same server, refined and asked there, and dropped at the
    end; your memory is not touched. The models are those that are configured.

    Example: [bold]rivet eval locomo locomo10.json --json[/bold]
    """
    if (file is None) != (kind is Questions.DEMO):
        raise typer.BadParameter("demo takes no file, the others need one", param_hint="FILE")
    questions = _read(kind, file)
    _check_folder(output)
    settings = get_settings()
    embedder = build_embedder(settings)
    with open_store(settings) as url, error_console().status("…") as status:
        result = try_questions(
            url,
            settings,
            questions,
            embedder=embedder,
            summarizer=build_summarizer(settings) if summaries else None,
            limit=limit,
            mode=mode.value,
            hits=hits,
            say=lambda step: status.update(f"{step} …"),
            progress=lambda done, of: status.update(f"asking {done} of {of} …"),
        )
    if output is not None:
        keep(result, output)
    if as_json:
        print_json(result.as_dict() | {"embedder": embedder.name, "mode": mode.value, "hits": hits})
    else:
        _print(result, embedder.name, hits, output)


def _read(kind: Questions, file: Path | None) -> QuestionSet | None:
    if file is None:
        return None
    return read_locomo(file) if kind is Questions.LOCOMO else read_longmemeval(file)


def _check_folder(folder: Path | None) -> None:
    """Refuses a folder that can not be had now rather than after the work."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError("--output", f"{folder} can not be made ({error.strerror})") from error


def _print(result: Evaluation, embedder: str, hits: int, output: Path | None) -> None:
    out = console()
    table = Table(
        title=f"{result.name}: {result.questions} questions, lists of {hits}, embedded by {one_line(embedder)}"
    )
    table.title_justify = "left"
    table.add_column("")
    for name in ("asked", *_SHOWN):
        table.add_column(name, justify="right")
    table.add_row(*_row("counted", {"questions": result.questions, **result.figures}), style="bold", end_section=True)
    for group, figures in result.groups.items():
        table.add_row(*_row(group, figures))
    out.print(table)
    p50, p95 = result.figures.get("latency_ms_p50", 0.0), result.figures.get("latency_ms_p95", 0.0)
    out.print(Text(f"A search took {p50:.0f} ms (median), {p95:.0f} ms (95 %)."))
    if result.degraded is not None:
        error_console().print(Text(f"Note: {one_line(result.degraded)}.", style="yellow"))
    if output is not None:
        out.print(Text(f"Every question: {one_line(str(output))}"))


def _row(name: str, figures: Mapping[str, float]) -> list[str]:
    shown = [f"{figures[figure]:.3f}" if figure in figures else "" for figure in _SHOWN.values()]
    return [one_line(name), str(int(figures["questions"])), *shown]
