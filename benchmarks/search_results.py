"""Whether two states of the code answer alike: the hits of made-up queries in every mode and with every filter.

Asks a database that `search_latency.py --step fill` has filled, in this process, at one fixed moment. The first run
writes the answers to a file, later ones compare with it and say what differs: ids in their order, scores to 1e-6.

    python -m benchmarks.search_results --url postgresql://… --write answers.json      # before a change
    python -m benchmarks.search_results --url postgresql://… --compare answers.json    # after it
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.corpus import NOW
from benchmarks.search_queries import make_queries, make_questions
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.settings import Settings

#: Scores are rounded by nobody; a sum in another order differs in the last digits.
TOLERANCE = 1e-6

Answers = dict[str, list[tuple[str, float]]]


def make_requests(connection: Connection, queries: int) -> Iterator[SearchRequest]:
    """Each query without a filter in three modes, and with one after the other of the filters."""
    row = connection.execute(
        "SELECT conversation_id AS id FROM ros_messages ORDER BY seq LIMIT 1 OFFSET 500"
    ).fetchone()
    assert row is not None
    filters: list[dict[str, Any]] = [
        {"agent": "codex"},
        {"since": NOW - timedelta(days=90)},
        {"before": NOW - timedelta(days=200), "agent": "codex"},
        {"role": "user"},
        {"scope": "summaries"},
        {"scope": "messages", "since": NOW - timedelta(days=2)},
        {"conversation_id": row["id"]},
        {"limit": 50},
    ]
    every = (
        make_queries(connection, random.Random(7))[:queries] + make_questions(connection, random.Random(7))[:queries]
    )
    for number, query in enumerate(every):
        plain = SearchRequest(query)
        for mode in ("hybrid", "fts", "vector"):
            yield replace(plain, mode=mode)
        yield replace(plain, **filters[number % len(filters)])
        if number % 10 == 0:
            yield replace(plain, query=query.split()[0], mode="trigram")


def answer_all(connection: Connection, queries: int) -> Answers:
    """By request the ids and scores of its hits."""
    vectors = QueryVectors(Settings())
    answers: Answers = {}
    for request in make_requests(connection, queries):
        response = search(connection, request, embed_query=vectors.on(connection), now=NOW)
        answers[repr(request)] = [(str(hit.id), hit.score) for hit in response.hits]
    return answers


def differences(before: Answers, after: Answers) -> list[str]:
    """One line for each request that is answered otherwise."""
    found = []
    for request in sorted(before.keys() | after.keys()):
        old, new = before.get(request, []), after.get(request, [])
        if [one for one, _ in old] != [one for one, _ in new]:
            found.append(f"other hits: {request}")
        elif any(abs(a - b) > TOLERANCE for (_, a), (_, b) in zip(old, new, strict=True)):
            found.append(f"other scores: {request}")
    return found


def main() -> None:
    """Writes or compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="a filled database")
    parser.add_argument("--queries", type=int, default=60, help="how many of each kind")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--write", type=Path, help="a new file for the answers")
    way.add_argument("--compare", type=Path, help="a file that an earlier run wrote")
    options = parser.parse_args()
    with connect(options.url) as connection:
        answers = answer_all(connection, options.queries)
    if options.write is not None:
        options.write.write_text(json.dumps(answers), encoding="utf-8")
        print(f"{len(answers)} answers written")
        return
    found = differences(json.loads(options.compare.read_text(encoding="utf-8")), answers)
    print("\n".join([*found, f"{len(found)} of {len(answers)} answers differ"]))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
