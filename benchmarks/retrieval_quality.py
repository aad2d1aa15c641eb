"""Search quality beside baselines, in one run over one store: recall on LoCoMo and LongMemEval, on both halves.

The baselines see the same texts through the same analyser and the same embedder: BM25 of each message, the embedder's
cosine alone, and their weighted sum, each scored over every message of the question's scope. The halves are those that
the ranking's constants were chosen on (`chosen`) and the others (`held out`): the first three samples of LoCoMo, every
second question of LongMemEval. All are asked for lists of 50, the longest, and of 20, which the API gives when nobody
says how many: the first ten sessions of the one hold more than those of the other. Prints a table; writes nothing into
the repository.

    python -m benchmarks.retrieval_quality --locomo locomo10.json --longmemeval longmemeval_oracle.json
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.temporary import temporary_server
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.db.scratch import scratch_database
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.retrieval.evaluation import Asked, evaluate, measure, report
from rivet_pipeline.retrieval.evaluation_sets import Question, QuestionSet, read_locomo, read_longmemeval, turn_key
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.scoring import bm25_term, idf
from rivet_pipeline.retrieval.search import MAX_LIMIT
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.settings import Settings
from rivet_pipeline.trial import fill

SHOWN = ("turn_recall@5", "turn_recall@10", "session_recall@5", "session_recall@10", "session_any@5")
CHOSEN_SAMPLES = 3
BASELINES = ("BM25 by turn", "the embedder alone", "their weighted sum")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Texts:
    """Every message of a store: its name, session, agent, length, unit vectors and, by word, who holds it how often."""

    names: list[str]
    sessions: list[str]
    agents: NDArray[np.str_]
    lengths: Floats
    vectors: NDArray[np.float32]
    owners: NDArray[np.int64]
    postings: dict[str, list[tuple[int, int]]]


def read_texts(connection: Connection) -> Texts:
    """Reads the store into memory, words as the analyser left them."""
    rows = connection.execute(
        """SELECT m.id, c.session_key, m.event_id, m.agent, octet_length(m.content) AS length,
                  tsvector_to_array(m.content_tsv) AS words,
                  (SELECT array_agg((cardinality(w.positions) + 1) / 2) FROM unnest(m.content_tsv) AS w) AS times
           FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id ORDER BY m.seq"""
    ).fetchall()
    place = {row["id"]: number for number, row in enumerate(rows)}
    postings: dict[str, list[tuple[int, int]]] = {}
    for number, row in enumerate(rows):
        for word, times in zip(row["words"] or [], row["times"] or [], strict=True):
            postings.setdefault(word, []).append((number, times))
    stored = connection.execute(
        "SELECT owner_id, embedding FROM ros_embeddings WHERE owner_kind = 'message' ORDER BY owner_id, chunk"
    ).fetchall()
    vectors = np.array([row["embedding"].to_numpy() for row in stored], dtype=np.float32)
    return Texts(
        names=[turn_key(row["session_key"], row["event_id"]) for row in rows],
        sessions=[row["session_key"] for row in rows],
        agents=np.array([row["agent"] for row in rows]),
        lengths=np.array([row["length"] for row in rows], dtype=np.float64),
        vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        owners=np.array([place[row["owner_id"]] for row in stored]),
        postings=postings,
    )


def score_words(connection: Connection, texts: Texts, query: str) -> Floats:
    """Plain BM25 of every message."""
    row = connection.execute("SELECT ros_query_terms(%s) AS words", [query]).fetchone()
    assert row is not None
    scores = np.zeros(len(texts.names))
    mean = float(texts.lengths.mean())
    for word in row["words"]:
        held = texts.postings.get(word, [])
        weight = idf(len(scores), len(held))
        for number, times in held:
            scores[number] += bm25_term(weight=weight, tf=times, length=texts.lengths[number], mean_length=mean)
    return scores


def score_meaning(texts: Texts, vector: NDArray[np.float32]) -> Floats:
    """The cosine of every message's best chunk."""
    scores = np.zeros(len(texts.names))
    np.maximum.at(scores, texts.owners, texts.vectors @ vector)
    return scores


def baselines(
    connection: Connection, texts: Texts, questions: Sequence[Question], lengths: Sequence[int]
) -> dict[str, list[Asked]]:
    """Each question by each baseline, in lists of each length."""
    embedder = WordLlamaEmbedder()
    found: dict[str, list[Asked]] = {named(name, hits): [] for name in BASELINES for hits in lengths}
    for question in questions:
        words = score_words(connection, texts, question.text)
        meaning = score_meaning(texts, embedder.embed([question.text])[0])
        within = np.ones(len(words), bool) if question.agent is None else texts.agents == question.agent
        best = float(words[within].max(initial=0.0)) or 1.0
        for name, scores in zip(BASELINES, (words, meaning, words / best + meaning), strict=True):
            for hits in lengths:
                judged = _judged(question, texts, np.where(within, scores, -math.inf), hits)
                found[named(name, hits)].append(judged)
    return found


def _judged(question: Question, texts: Texts, scores: Floats, hits: int) -> Asked:
    order = [int(place) for place in np.argsort(-scores, kind="stable")[:hits] if scores[place] > 0]
    turns = tuple(texts.names[place] for place in order)
    sessions = tuple(dict.fromkeys(texts.sessions[place] for place in order))
    return Asked(
        id=question.id,
        group=question.group,
        counted=question.counted,
        text=question.text,
        gold_turns=tuple(question.turns),
        gold_sessions=tuple(question.sessions),
        turns=turns,
        sessions=sessions,
        latency_ms=0.0,
        degraded=None,
        figures=measure("turn", turns, question.turns) | measure("session", sessions, question.sessions),
    )


def halves(questions: QuestionSet) -> Callable[[str], str]:
    """Which half a question's id belongs to."""
    if questions.name == "locomo":
        samples = list(dict.fromkeys(question.id.split("/")[0] for question in questions.questions))
        return lambda name: "chosen" if name.split("/")[0] in samples[:CHOSEN_SAMPLES] else "held out"
    place = {question.id: number for number, question in enumerate(questions.questions)}
    return lambda name: "held out" if place[name] % 2 else "chosen"


def named(ranking: str, hits: int) -> str:
    """A ranking in lists of so many rows, as the table calls it."""
    return f"{ranking}, {hits}"


def show(
    questions: QuestionSet, rankings: dict[str, Iterable[Asked]], lengths: Sequence[int], *, baseline: str
) -> None:
    """A table: every ranking on every half, and for each length the ratio of ours to the baseline."""
    half_of = halves(questions)
    print(f"\n{questions.name}: {'ranking, length':24}{'half':10}" + "".join(f"{name:>19}" for name in SHOWN))
    means: dict[tuple[str, str], dict[str, Any]] = {}
    for name, asked in rankings.items():
        every = list(asked)
        for half in ("chosen", "held out", "both"):
            ones = [one for one in every if half in ("both", half_of(one.id))]
            means[name, half] = dict(report(questions.name, ones).figures)
            row = "".join(f"{means[name, half].get(figure, math.nan):>19.3f}" for figure in SHOWN)
            print(f"{'':{len(questions.name) + 2}}{name:24}{half:10}{row}")
    for hits in lengths:
        ours, other = means[named("ours", hits), "both"], means[named(baseline, hits), "both"]
        ratios = "  ".join(f"{figure} {ours[figure] / other[figure]:.2f}" for figure in SHOWN)
        print(f"ours / {baseline}, lists of {hits}: {ratios}")


def run(url: str, questions: QuestionSet, lengths: Sequence[int]) -> None:
    """One question set in a scratch database."""
    settings, embedder = Settings(), WordLlamaEmbedder()
    with scratch_database(url) as scratch, open_pool(scratch, max_size=4) as pool:
        fill(pool, settings, questions, embedder=embedder)
        with connect(scratch) as connection:
            embed = QueryVectors(settings, embedder).on(connection)
            rankings: dict[str, Iterable[Asked]] = dict(
                baselines(connection, read_texts(connection), questions.questions, lengths)
            )
            for hits in lengths:
                ours = evaluate(connection, questions, embed_query=embed, scope="messages", hits=hits)
                rankings[named("ours", hits)] = ours.asked
                p50, p95 = (ours.figures[f"latency_ms_p{percent}"] for percent in (50, 95))
                print(f"lists of {hits}: a search took {p50} ms (median), {p95} ms (95 %)")
            show(questions, rankings, lengths, baseline="their weighted sum")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--longmemeval", type=Path)
    parser.add_argument("--limit", type=int, help="only the first questions")
    parser.add_argument(
        "--hits",
        type=int,
        choices=range(1, MAX_LIMIT + 1),
        metavar="N",
        nargs="+",
        default=[MAX_LIMIT, SearchRequest("").limit],
        help="lengths of the lists asked for",
    )
    chosen = parser.parse_args()
    shared = os.environ.get("RIVET_SHARED_DATA")
    if shared is not None and not (chosen.locomo or chosen.longmemeval):
        chosen.locomo = Path(shared) / "bench" / "locomo_dev.json"
        chosen.longmemeval = Path(shared) / "bench" / "longmemeval_dev.json"
    if not (chosen.locomo or chosen.longmemeval):
        parser.error("name a file with --locomo or --longmemeval, or set RIVET_SHARED_DATA")
    with temporary_server() as server:
        for path, read in ((chosen.locomo, read_locomo), (chosen.longmemeval, read_longmemeval)):
            if path is not None:
                run(server.url("postgres"), read(path).head(chosen.limit), list(dict.fromkeys(chosen.hits)))


if __name__ == "__main__":
    main()
