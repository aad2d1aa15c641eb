"""Search latency through HTTP, against the naive query in the same database and an in-process Tantivy index.

Fills an embedded Postgres with made-up messages (`corpus.py`; vectors as `search_store.py` says), refreshes the text
index and the vectors' codes at each size, and then, at the last one, starts `rivet serve` in a process of its own and
times warm searches: hybrid, words only, filtered, and hybrid while 50 captures a second arrive and both are refreshed;
then, with fewer queries, the modes that read texts, the other filters, listings and the figures.
Beside it: the naive way (`ts_rank_cd` over the OR of the words, same database), Tantivy over the same texts in this
process as the limit, and how far the first ten by words agree with BM25 of the same formula over every row. Prints a
table; writes nothing into the repository.

    python -m benchmarks.search_latency --sizes 10000 100000
    python -m benchmarks.search_latency --messages 1000000 --json figures.json
    python -m benchmarks.search_latency --messages 1000000 --url postgresql://… --step fill     # once
    python -m benchmarks.search_latency --messages 1000000 --url postgresql://… --step measure  # as often as wanted
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.capture_rate import api_process
from benchmarks.corpus import NOW, Corpus
from benchmarks.live_captures import captures
from benchmarks.search_asking import TOP, Asked, Figures, percentiles, searcher, timed
from benchmarks.search_modes import measure_modes
from benchmarks.search_queries import QUERIES, make_queries, make_questions
from benchmarks.search_store import Filler, Vectors
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval import lexical
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.scoring import PROFILE, idf
from rivet_pipeline.retrieval.types import SearchRequest
from rivet_pipeline.retrieval.vector_pieces import refresh_vector_pieces

PARTS = ("agreement", "http", "modes", "naive", "tantivy")

#: Milliseconds of each query, by what was asked and how.
Times = dict[str, list[float]]

#: Queries of all kinds together, as many of each.
_BOTH = "both"

#: The baseline's name among the rows of a kind of queries.
_NAIVELY = "naive ts_rank_cd"

_NAIVE = """
WITH words AS (
    SELECT string_agg(quote_literal(term), ' | ')::tsquery AS query FROM unnest(ros_query_terms(%(query)s)) AS t (term)
)
SELECT * FROM (
    SELECT m.id, ts_rank_cd(m.content_tsv, words.query) AS rank, m.created_at, m.content
    FROM ros_messages AS m, words
    WHERE m.content_tsv @@ words.query AND (%(agent)s::text IS NULL OR m.agent = %(agent)s)
      AND (%(since)s::timestamptz IS NULL OR m.created_at >= %(since)s)
    UNION ALL
    SELECT s.id, ts_rank_cd(s.content_tsv, words.query), s.latest_at, s.content
    FROM ros_summaries AS s, words
    WHERE s.content_tsv @@ words.query AND (%(agent)s::text IS NULL OR %(agent)s = ANY (s.agents))
      AND (%(since)s::timestamptz IS NULL OR s.latest_at >= %(since)s)
) AS found
ORDER BY rank DESC, created_at DESC, id LIMIT %(limit)s
"""


def naive(connection: Connection) -> Callable[[Asked], object]:
    """The baseline: every row that holds any word, ranked by `ts_rank_cd`, planned as a search of ours is."""
    connection.execute("SET jit = off")
    connection.execute("SET max_parallel_workers_per_gather = 0")

    def run(asked: Asked) -> object:
        values = {"query": asked.query, "agent": asked.agent, "since": asked.since, "limit": TOP}
        return connection.execute(_NAIVE.encode(), values, prepare=False).fetchall()

    return run


class Exhaustive:
    """BM25 of every row, computed from the stored tsvectors in SQL and doubles, one pass for all queries."""

    def __init__(self, connection: Connection, queries: Sequence[str]) -> None:
        self._terms = {}
        for query in queries:
            row = connection.execute("SELECT ros_query_terms(%s) AS terms", [query]).fetchone()
            assert row is not None
            self._terms[query] = list(row["terms"])
        every = sorted({term for terms in self._terms.values() for term in terms})
        self._hits: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        self._documents = 0
        total = 0
        for sign, table, length in (
            (1, "ros_messages", "octet_length(content) + coalesce(octet_length(tool_result), 0)"),
            (-1, "ros_summaries", "octet_length(content)"),
        ):
            row = connection.execute(
                f"SELECT count(*) AS n, sum({length}) AS total FROM {table} WHERE length(content_tsv) > 0".encode()
            ).fetchone()
            assert row is not None
            self._documents += row["n"]
            total += int(row["total"] or 0)
            with connection.transaction(), connection.cursor(name="exhaustive") as cursor:
                cursor.itersize = 5_000
                cursor.execute(
                    f"""SELECT d.seq, d.length, h.lexeme, (cardinality(h.positions) + 1) / 2 AS tf
                        FROM (SELECT seq, {length} AS length,
                                     ts_filter(setweight(content_tsv, 'A', %(terms)s::text[]), '{{a}}') AS hits
                              FROM {table}) AS d
                        CROSS JOIN LATERAL unnest(d.hits) AS h""".encode(),
                    {"terms": every},
                )
                for found in cursor:
                    self._hits[found["lexeme"]].append((sign * found["seq"], found["length"], found["tf"]))
        self._mean = total / max(self._documents, 1)

    def scores(self, query: str) -> dict[int, float]:
        """By row (a summary's number is negative) its BM25."""
        scores: dict[int, float] = defaultdict(float)
        for term in self._terms[query]:
            weight = idf(self._documents, len(self._hits[term]))
            for key, length, tf in self._hits[term]:
                norm = PROFILE.k1 * (1 - PROFILE.b + PROFILE.b * length / self._mean)
                scores[key] += weight * tf * (PROFILE.k1 + 1) / (tf + norm)
        return scores


def agreement(connection: Connection, queries: Sequence[str]) -> float:
    """The mean share of our first ten by words that belong to the ten best of all; equal scores may change places."""
    exhaustive = Exhaustive(connection, queries)
    shares = []
    for query in queries:
        scores = exhaustive.scores(query)
        best = sorted(scores.values(), reverse=True)[:TOP]
        if not best:
            continue
        ours = lexical.score_texts(connection, SearchRequest(query), now=NOW, kept=100).scores
        first = [seq if source == "message" else -seq for source, seq in list(ours)[:TOP]]
        shares.append(sum(scores[key] >= best[-1] * (1 - 1e-5) for key in first) / len(best))
    return float(np.mean(shares))


def measure_tantivy(connection: Connection, kinds: dict[str, list[Asked]], folder: Path, rounds: int) -> Times:
    """The same rows in an in-process Tantivy index with its English stemmer: the limit of a search by words alone."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("body", stored=False, tokenizer_name="en_stem")
    schema.add_integer_field("key", stored=True)
    folder.mkdir()
    index = tantivy.Index(schema.build(), path=str(folder))
    begun = time.perf_counter()
    writer = index.writer(256 * 1024 * 1024, 1)
    with connection.transaction(), connection.cursor(name="texts") as cursor:
        cursor.itersize = 2_000
        cursor.execute(
            """SELECT seq AS key, content || E'\n' || coalesce(tool_result, '') AS body FROM ros_messages
               UNION ALL SELECT -seq, content FROM ros_summaries"""
        )
        for row in cursor:
            document = tantivy.Document()
            document.add_text("body", row["body"])
            document.add_integer("key", row["key"])
            writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    seconds = time.perf_counter() - begun
    index.reload()
    reader = index.searcher()

    def run(asked: Asked) -> object:
        query, _ = index.parse_query_lenient(asked.query, ["body"])
        return [reader.doc(address)["key"] for _, address in reader.search(query, TOP).hits]

    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"tantivy: built in {seconds:.1f} s, {size / 1e6:.1f} MB", flush=True)
    return {f"{kind}: tantivy": timed(run, asked, rounds) for kind, asked in kinds.items()}


@contextmanager
def database(url: str | None) -> Iterator[tuple[str, Path]]:
    """A given empty database, or one in a temporary embedded server; and a folder for whatever else."""
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as folder:
        if url is not None:
            yield url, Path(folder)
            return
        server = EmbeddedServer(Path(folder) / "postgres")
        server.start()
        try:
            with connect(server.url("postgres")) as connection:
                connection.execute("CREATE DATABASE benchmark")
            yield server.url("benchmark"), Path(folder)
        finally:
            server.stop()


def build(connection: Connection, filler: Filler, sizes: Sequence[int]) -> list[Figures]:
    """Fills up to each size and refreshes the index there: seconds of all refreshes so far, bytes of the index.

    The vectors' codes are refreshed after it, and have their own figures.
    """
    built: list[Figures] = []
    seconds = coding = 0.0
    for size in sizes:
        begun = time.perf_counter()
        filler.fill(size)
        filled = time.perf_counter()
        figures = refresh_lexicon(connection)
        indexed = time.perf_counter()
        seconds += indexed - filled
        codes = refresh_vector_pieces(connection)
        coding += time.perf_counter() - indexed
        row = connection.execute(
            """SELECT pg_relation_size('ros_messages_tsv') AS gin, pg_total_relation_size('ros_lexicon') AS lexicon,
                      pg_total_relation_size('ros_messages') AS messages"""
        ).fetchone()
        assert row is not None
        built.append(
            {
                "messages": size,
                "fill_s": round(filled - begun, 1),
                "build_s": round(seconds, 1),
                "pieces": figures.pieces,
                "index_mb": round(figures.index_bytes / 1e6, 1),
                "lexicon_mb": round(row["lexicon"] / 1e6, 1),
                "code_s": round(coding, 1),
                "codes_mb": round(codes.bytes / 1e6, 1),
                "gin_mb": round(row["gin"] / 1e6, 1),
                "messages_mb": round(row["messages"] / 1e6, 1),
            }
        )
        print("  ".join(f"{name} {value:,}" for name, value in built[-1].items()), flush=True)
    return built


def measure(
    url: str, folder: Path, connection: Connection, kinds: dict[str, list[str]], options: argparse.Namespace
) -> Figures:
    """Every way of asking, one after the other, with each kind of queries."""
    times: Times = {}
    modes: Figures = {}
    asked = {kind: [Asked(query) for query in queries] for kind, queries in kinds.items()}
    if "http" in options.parts:
        times |= measure_http(url, folder, asked, options.rounds)
    if "modes" in options.parts:
        modes = measure_modes(url, folder, connection, asked["words"][: options.modes], options.rounds)
    for kind, plain in asked.items():
        few = plain[: options.naive]
        if "naive" in options.parts:
            times[f"{kind}: {_NAIVELY}"] = timed(naive(connection), few, 1)
            times[f"{kind}: naive, filtered"] = timed(naive(connection), filtered(few), 1)
    if "tantivy" in options.parts and find_spec("tantivy") is not None:
        times |= measure_tantivy(connection, asked, folder / "tantivy", options.rounds)
    return {name: percentiles(each) for name, each in (times | together(times, list(kinds))).items()} | modes


def together(times: Times, kinds: Sequence[str]) -> Times:
    """What was asked with queries of every kind, all of these together."""
    ways = [name.removeprefix(f"{kinds[0]}: ") for name in times if name.startswith(f"{kinds[0]}: ")]
    return {f"{_BOTH}: {way}": [one for kind in kinds for one in times[f"{kind}: {way}"]] for way in ways}


def filtered(asked: list[Asked]) -> list[Asked]:
    """The same queries, of an agent or the last 90 days or both."""
    return [
        Asked(
            one.query,
            agent="codex" if number % 2 else None,
            since=NOW - timedelta(days=90) if number % 3 else None,
        )
        for number, one in enumerate(asked, 1)
    ]


def measure_http(url: str, folder: Path, kinds: dict[str, list[Asked]], rounds: int) -> Times:
    """The ways of asking the API, and its captures meanwhile."""
    rows: Times = {}
    with api_process(url, folder) as port:
        for kind, plain in kinds.items():
            for name, mode, asked in (
                ("hybrid", "hybrid", plain),
                ("words only", "fts", plain),
                ("hybrid, filtered", "hybrid", filtered(plain)),
            ):
                rows[f"{kind}: {name}"] = timed(searcher(port, mode), asked, rounds)
        with captures(port, url) as times:
            for kind, plain in kinds.items():
                rows[f"{kind}: hybrid, 50 captures/s"] = timed(searcher(port, "hybrid"), plain, rounds)
        rows["a capture, meanwhile"] = times
    return rows


def main() -> None:
    """Builds, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="the size at which searches are measured")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000], help="smaller sizes to build at")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what of it to measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--naive", type=int, default=20, help="how many queries of a kind the naive way is asked")
    parser.add_argument("--modes", type=int, default=20, help="how many queries of the words kind part modes asks")
    parser.add_argument(
        "--agreement", type=int, default=20, help="how many queries of a kind are compared with exhaustive BM25"
    )
    parser.add_argument(
        "--embedded", type=int, default=20_000, help="texts that are embedded; the others get vectors near these"
    )
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--url", help="an empty database to use instead of a temporary embedded server")
    parser.add_argument(
        "--step",
        choices=("all", "fill", "measure"),
        default="all",
        help="with --url: only fill and index, or only measure a database that an earlier run has filled",
    )
    options = parser.parse_args()
    sizes = sorted({size for size in options.sizes if size < options.messages} | {options.messages})
    with database(options.url) as (url, folder):
        with connect(url) as connection:
            apply_migrations(connection)
        run(url, folder, sizes, options)


def run(url: str, folder: Path, sizes: Sequence[int], options: argparse.Namespace) -> None:
    """Fills, builds and measures in a migrated database, and prints."""
    built: list[Figures] = []
    with connect(url) as connection:
        if options.step != "measure":
            filler = Filler(connection, Corpus(options.messages, seed=options.seed), Vectors(options.embedded))
            built = build(connection, filler, sizes)
            begun = time.perf_counter()
            filler.index_vectors()
            connection.execute("VACUUM ANALYZE")
            print(f"vectors indexed and vacuumed in {time.perf_counter() - begun:.1f} s", flush=True)
        if options.step == "fill":
            return
        if options.step == "measure":
            # Whoever filled it may have known of no codes.
            print(f"vector codes: {refresh_vector_pieces(connection).bytes / 1e6:.1f} MB", flush=True)
        kinds = {
            "words": make_queries(connection, random.Random(options.seed)),
            "questions": make_questions(connection, random.Random(options.seed)),
        }
        some = [query for queries in kinds.values() for query in queries[: options.agreement]]
        agreed = agreement(connection, some) if "agreement" in options.parts else None
        rows = measure(url, folder, connection, kinds, options)
    load = os.getloadavg()[0]
    print(
        f"\n{options.messages:,} messages, {QUERIES} queries of a kind, warm, {options.rounds} rounds; load {load:.1f}"
    )
    if agreed is not None:
        print(f"the first ten by words agree with exhaustive BM25: {agreed:.3f}\n")
    print(f"{'':34}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}{'naive / p50':>14}")
    for name, row in rows.items():
        base = rows.get(f"{name.partition(':')[0]}: {_NAIVELY}", {}).get("p50", 0.0)
        ratio = f"{base / row['p50']:.1f}x" if base and row["p50"] else ""
        print(f"{name:34}{row['p50']:>10.1f}{row['p95']:>10.1f}{row['p99']:>10.1f}{ratio:>14}")
    if "tantivy" in options.parts and find_spec("tantivy") is None:
        print("tantivy: not installed (group bench)")
    if options.json:
        figures = {"at": datetime.now(UTC).isoformat(), "load": load, "built": built, "agreement": agreed, "rows": rows}
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
