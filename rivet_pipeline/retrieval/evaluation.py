"""Asks a question set of a store through the product's own `search` and measures what comes back.

How a set is read stands in `evaluation_sets.py`; filling a store with its conversations is the caller's.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.evaluation_sets import Question, QuestionSet, turn_key
from rivet_pipeline.retrieval.scoring import PROFILE, Profile
from rivet_pipeline.retrieval.search import MAX_LIMIT, EmbedQuery, search
from rivet_pipeline.retrieval.types import Mode, Scope, SearchRequest, SearchResponse
from rivet_pipeline.transcripts.cleaning import clean_text

#: Where the list is cut for recall and any.
CUTS = (5, 10, 20)

#: Where it is cut for nDCG.
NDCG_CUT = 10

#: The levels at which an answer is judged.
LEVELS: tuple[Literal["turn", "session"], ...] = ("turn", "session")

#: Called with the questions asked so far and those there are.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, what came back, and how good it was.

    `turns` and `sessions` are the names found, best first; a session stands where its first row stood, and a summary
    stands for its session and takes a place among the turns (None). `figures` are empty for a question without gold.
    """

    id: str
    group: str
    counted: bool
    text: str
    gold_turns: tuple[str, ...]
    gold_sessions: tuple[str, ...]
    turns: tuple[str | None, ...]
    sessions: tuple[str, ...]
    latency_ms: float
    degraded: str | None
    figures: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The question as one line of the per-question output."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures over the counted questions, by group (`all`: those that do not count too), and every question.

    Figures are named `turn_recall@10`, `session_any@5`, `turn_ndcg@10` and so on, each from 0 to 1, the mean over the
    questions that have gold of that level; `latency_ms_*` are over all questions that were asked.
    """

    name: str
    questions: int
    figures: Mapping[str, float]
    groups: Mapping[str, Mapping[str, float]]
    asked: tuple[Asked, ...]
    degraded: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Everything but the single questions, for JSON."""
        return {
            "set": self.name,
            "questions": self.questions,
            **self.figures,
            "groups": {group: dict(figures) for group, figures in self.groups.items()},
            "degraded": self.degraded,
        }


def evaluate(
    connection: Connection,
    questions: QuestionSet,
    *,
    embed_query: EmbedQuery | None,
    mode: Mode = "hybrid",
    scope: Scope = "both",
    profile: Profile = PROFILE,
    hits: int = MAX_LIMIT,
    progress: Progress | None = None,
) -> Evaluation:
    """Asks every question of the set, one after the other, of a store that holds its conversations.

    `embed_query` is that of `search`. `hits` is the length of the lists that are asked for: what stands in the first
    ten places of sessions depends on it. Accesses are not counted, so that no question changes the answer of the next.
    """
    names = _turn_names(connection)
    asked = []
    for number, question in enumerate(questions.questions, 1):
        request = SearchRequest(question.text, mode=mode, scope=scope, limit=hits, agent=question.agent)
        began = time.perf_counter()
        response = search(connection, request, embed_query=embed_query, now=question.now, profile=profile)
        asked.append(judge(question, response, names, latency_ms=(time.perf_counter() - began) * 1000))
        if progress is not None:
            progress(number, len(questions.questions))
    return report(questions.name, asked)


def _turn_names(connection: Connection) -> dict[Any, str]:
    rows = connection.execute(
        """SELECT m.id, c.session_key, m.event_id
           FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id"""
    ).fetchall()
    return {row["id"]: turn_key(row["session_key"], row["event_id"]) for row in rows}


def judge(question: Question, response: SearchResponse, names: Mapping[Any, str], *, latency_ms: float) -> Asked:
    """What a response is worth for a question; `names` gives the turn of each message id."""
    turns = tuple(names.get(hit.id) if hit.source == "message" else None for hit in response.hits)
    sessions = tuple(dict.fromkeys(hit.session_key for hit in response.hits))
    return Asked(
        id=question.id,
        group=question.group,
        counted=question.counted,
        text=question.text,
        gold_turns=tuple(sorted(question.turns)),
        gold_sessions=tuple(sorted(question.sessions)),
        turns=turns,
        sessions=sessions,
        latency_ms=round(latency_ms, 2),
        degraded=response.degraded,
        figures=measure("turn", turns, question.turns) | measure("session", sessions, question.sessions),
    )


def measure(level: str, found: Sequence[str | None], gold: Collection[str]) -> dict[str, float]:
    """Recall, any and nDCG of one list without repetitions; nothing when there is no gold."""
    if not gold:
        return {}
    figures: dict[str, float] = {}
    for cut in CUTS:
        hits = sum(name in gold for name in found[:cut])
        figures[f"{level}_recall@{cut}"] = hits / len(gold)
        figures[f"{level}_any@{cut}"] = float(hits > 0)
    gain = sum(1 / math.log2(place + 2) for place, name in enumerate(found[:NDCG_CUT]) if name in gold)
    best = sum(1 / math.log2(place + 2) for place in range(min(NDCG_CUT, len(gold))))
    figures[f"{level}_ndcg@{NDCG_CUT}"] = gain / best
    return figures


def report(name: str, asked: Iterable[Asked]) -> Evaluation:
    """The means over what was asked."""
    every = tuple(asked)
    counted = [one for one in every if one.counted]
    groups: dict[str, list[Asked]] = {"all": list(every)}
    for one in every:
        groups.setdefault(one.group, []).append(one)
    figures = _means(counted)
    if every:
        times = [one.latency_ms for one in every]
        for percent in (50, 95):
            figures[f"latency_ms_p{percent}"] = round(float(np.percentile(times, percent)), 2)
    return Evaluation(
        name=name,
        questions=len(counted),
        figures=figures,
        groups={group: {"questions": len(ones), **_means(ones)} for group, ones in sorted(groups.items())},
        asked=every,
        degraded=next((one.degraded for one in every if one.degraded is not None), None),
    )


def _means(asked: Sequence[Asked]) -> dict[str, float]:
    """The mean of each figure over the questions that have it, and how many these are (`judged`)."""
    values: dict[str, list[float]] = {}
    for one in asked:
        for figure, value in one.figures.items():
            values.setdefault(figure, []).append(value)
    judged = sum(bool(one.figures) for one in asked)
    return {"judged": judged, **{figure: round(sum(ones) / len(ones), 4) for figure, ones in values.items()}}


def keep(result: Evaluation, folder: Path) -> None:
    """Writes every question as a line of JSON and the figures beside them, in place of those of an earlier time.

    Each file is replaced as a whole, so that one that can not be written leaves the former.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one.as_dict(), ensure_ascii=False) for one in result.asked]
    _replace(folder / f"{result.name}-questions.jsonl", "".join(f"{line}\n" for line in lines))
    figures = json.dumps(result.as_dict(), ensure_ascii=False, indent=2)
    _replace(folder / f"{result.name}-figures.json", f"{figures}\n")


#: Runs of a set that a newer one is compared with.
COMPARED_RUNS = 30

#: Runs of a set whose questions are kept one beside another: those that a newer one is compared with, and itself.
KEPT_RUNS = COMPARED_RUNS + 1


def keep_run(result: Evaluation, folder: Path, at: datetime) -> Path:
    """Writes every question of one run to a file of its own, named by the set and the time, and returns its path.

    Of the set the newest `KEPT_RUNS` files stay. `at` is aware.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}-{at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}.jsonl"
    lines = "".join(f"{json.dumps(one.as_dict(), ensure_ascii=False)}\n" for one in result.asked)
    _replace(path, lines, folder / f".{result.name}.new")
    # Names of one set sort by time.
    for old in sorted(folder.glob(f"{result.name}-[0-9]*T*Z.jsonl"))[:-KEPT_RUNS]:
        old.unlink(missing_ok=True)
    return path


@dataclass(frozen=True, slots=True)
class Lost:
    """A question whose figure is lower than in another run."""

    id: str
    text: str
    before: float
    now: float


def lost(before: Path, now: Path, figure: str) -> list[Lost] | None:
    """The counted questions of two files from `keep_run` whose figure fell, most first; None: one can not be read."""
    try:
        earlier, later = (
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in (before, now)
        )
        was = {one["id"]: one["figures"].get(figure, 0.0) for one in earlier}
        fallen = [
            Lost(one["id"], one["text"], was[one["id"]], one["figures"].get(figure, 0.0))
            for one in later
            if one["counted"] and one["id"] in was
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return sorted((one for one in fallen if one.now < one.before), key=lambda one: (one.now - one.before, one.id))


def _replace(path: Path, text: str, fresh: Path | None = None) -> None:
    """Writes the file whole or not at all; `fresh` is where it is made first, beside it by its own name when None."""
    fresh = fresh or path.with_name(f".{path.name}.new")
    fresh.write_text(clean_text(text), encoding="utf-8")
    fresh.replace(path)


#: How far a figure may lie below the median of the runs before, and below the best of them. Both: a slow decline passes
#: the first, a lucky run must not fail all that follow it.
MEDIAN_SLACK, BEST_SLACK = 0.03, 0.06


@dataclass(frozen=True, slots=True)
class Drop:
    """A figure that is lower than it was."""

    figure: str
    now: float
    median: float
    best: float


def drops(newest: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> list[Drop]:
    """The figures of recall, any and nDCG that lie too far below those of the runs before. None without such runs."""
    found = []
    for figure, now in newest.items():
        if not figure.startswith(("turn_", "session_")) or not isinstance(now, int | float):
            continue
        earlier = [float(run[figure]) for run in before if isinstance(run.get(figure), int | float)]
        if not earlier:
            continue
        drop = Drop(figure, float(now), median(earlier), max(earlier))
        if drop.now < drop.median - MEDIAN_SLACK or drop.now < drop.best - BEST_SLACK:
            found.append(drop)
    return found
