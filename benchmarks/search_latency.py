"""Search latency against the naive query, in one database and one run.

Fills a database with messages (Zipf-distributed words over some days, or real text when RIVET_SHARED_DATA is set),
embeds them with hashed words, refreshes the lexicon, and then times the same queries, warm, through `search` (hybrid
and fts) and through the naive way: `ts_rank_cd` over the OR of the words, same filters. Prints a table; writes nothing
into the repository.

    python -m benchmarks.search_latency --messages 100000
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.retrieval.lexicon import refresh_lexicon
from rivet_pipeline.retrieval.search import search
from rivet_pipeline.retrieval.types import Mode, SearchRequest

WIDTH = 256
PER_CONVERSATION = 50
QUERIES = 60
NOW = datetime(2026, 3, 10, tzinfo=UTC)


def synthetic_texts(rng: random.Random, count: int) -> Iterator[str]:
    """Texts of about 800 characters whose words follow Zipf's law (exponent 1) over 60,000 made-up words."""
    consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
    words: dict[str, None] = {}
    while len(words) < 60_000:
        words["".join(rng.choice(consonants) + rng.choice(vowels) for _ in range(rng.randint(1, 4)))] = None
    vocabulary = list(words)
    weights = [1 / rank for rank in range(1, len(vocabulary) + 1)]
    totals = list(np.cumsum(weights))
    for _ in range(count):
        length = max(5, int(rng.lognormvariate(math.log(110), 0.7)))
        yield " ".join(rng.choices(vocabulary, cum_weights=totals, k=length))


def shared_texts(folder: Path) -> list[str]:
    """Every string of at least 200 characters in the sample transcripts, at most 4,000 characters each."""
    texts: list[str] = []
    for path in sorted((folder / "transcripts").rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                _collect(json.loads(line), texts)
            except (ValueError, RecursionError):
                continue
    return texts


def _collect(value: Any, texts: list[str]) -> None:
    if isinstance(value, str) and len(value) >= 200:
        texts.append(value[:4000].replace("\x00", " ").encode("utf-8", "replace").decode())
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _collect(item, texts)


def varied_texts(rng: random.Random, sources: list[str], count: int) -> Iterator[str]:
    """Real texts, repeated as often as needed: each time two thirds of the words of one, the rest of another."""
    split = [source.split() for source in sources]
    for _ in range(count):
        first, second = rng.choice(split), rng.choice(split)
        cut = rng.randrange(max(1, len(first) // 3) + 1)
        yield " ".join(first[cut:] + second[: max(1, len(first) // 3)])


class HashEmbedder:
    """Random vectors per word, summed: cheap, deterministic, near for texts that share words."""

    def __init__(self) -> None:
        self._words: dict[str, NDArray[np.float32]] = {}

    def __call__(self, text: str) -> NDArray[np.float32]:
        """The unit vector of one text."""
        total = np.full(WIDTH, 1e-3, dtype=np.float32)
        for word in set(text.lower().split()[:200]):
            if word not in self._words:
                seed = int.from_bytes(word.encode()[:8].ljust(8), "little")
                self._words[word] = np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)
            total += self._words[word]
        return total / np.float32(np.linalg.norm(total))


def fill(connection: Connection, texts: Iterator[str], count: int, rng: random.Random) -> None:
    """Messages by COPY over 400 days, a summary for every ten of them, a vector for each."""
    embed = HashEmbedder()
    row = connection.execute("SELECT ros_register_embedding_model('benchmark', %s) AS id", [WIDTH]).fetchone()
    assert row is not None
    # The index is built once over everything: inserting into the graph row by row is no part of what is measured.
    connection.execute(f"DROP INDEX ros_embeddings_hnsw_{row['id']}".encode())
    vectors: list[tuple[str, UUID, str]] = []
    start = NOW - timedelta(days=400)
    conversations = [uuid4() for _ in range(math.ceil(count / PER_CONVERSATION))]
    agents = ["claude", "codex", "gemini"]
    with connection.cursor().copy(
        "COPY ros_conversations (id, session_key, agent, channel, day, updated_at) FROM STDIN"
    ) as copy:
        for number, identity in enumerate(conversations):
            at = start + timedelta(days=400 * number / len(conversations))
            copy.write_row((identity, f"bench:{number}", agents[number % 3], "bench", at.date(), at))
    summaries: list[tuple[Any, ...]] = []
    with connection.cursor().copy(
        "COPY ros_messages (id, conversation_id, event_id, agent, channel, role, content, created_at) FROM STDIN"
    ) as copy:
        for number, text in enumerate(texts):
            if number >= count:
                break
            identity, place = uuid4(), number // PER_CONVERSATION
            at = start + timedelta(days=400 * number / count)
            role = "user" if number % 3 == 0 else "assistant"
            copy.write_row((identity, conversations[place], str(number), agents[place % 3], "bench", role, text, at))
            vectors.append(("message", identity, _vector_text(embed(text))))
            if number % 10 == 9:
                words = [*text.split(), "nothing"]
                summary = " ".join(rng.sample(words, min(len(words), 60)))
                summaries.append((uuid4(), conversations[place], summary, at, [agents[place % 3]]))
                vectors.append(("summary", summaries[-1][0], _vector_text(embed(summary))))
    with connection.cursor().copy(
        """COPY ros_summaries (id, conversation_id, content, earliest_at, latest_at, agents, kind, message_count, model,
                               pipeline_version, input_hash) FROM STDIN"""
    ) as copy:
        for identity, conversation, summary, at, who in summaries:
            copy.write_row((identity, conversation, summary, at, at, who, "leaf", 10, "bench", 1, "x"))
    with connection.cursor().copy(
        """COPY ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
           FROM STDIN"""
    ) as copy:
        for kind, identity, text in vectors:
            copy.write_row((row["id"], kind, identity, 0, uuid4(), 0, 1, text))
    connection.execute(
        f"""CREATE INDEX ros_embeddings_hnsw_{row["id"]} ON ros_embeddings
            USING hnsw ((embedding::halfvec({WIDTH})) halfvec_cosine_ops) WHERE model_id = {row["id"]}""".encode()
    )


def _vector_text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(f"{value:.4g}" for value in vector) + "]"


def make_requests(connection: Connection, rng: random.Random) -> list[SearchRequest]:
    """Two to six words out of one random text each; every fourth with an agent, every sixth since a date."""
    requests: list[SearchRequest] = []
    rows = connection.execute(
        "SELECT content FROM ros_messages WHERE length(content) > 100 AND seq = ANY (%s) LIMIT %s",
        [_some_seqs(connection, rng), QUERIES],
    ).fetchall()
    for number, row in enumerate(rows):
        words = [word.strip(".,:;()[]{}\"'`*") for word in row["content"].split()]
        usable = [word for word in words if 2 <= len(word) <= 30] or ["nothing"]
        requests.append(
            SearchRequest(
                " ".join(rng.sample(usable, min(len(usable), rng.randint(2, 6)))),
                limit=10,
                agent="codex" if number % 4 == 3 else None,
                since=NOW - timedelta(days=90) if number % 6 == 5 else None,
            )
        )
    return requests


def _some_seqs(connection: Connection, rng: random.Random) -> list[int]:
    row = connection.execute("SELECT max(seq) AS top FROM ros_messages").fetchone()
    assert row is not None
    return [rng.randint(1, row["top"]) for _ in range(20 * QUERIES)]


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


def naive(connection: Connection, request: SearchRequest) -> None:
    """The baseline: every row that holds any word, ranked by `ts_rank_cd`."""
    connection.execute(
        _NAIVE.encode(),
        {"query": request.query, "agent": request.agent, "since": request.since, "limit": request.limit},
        prepare=False,
    ).fetchall()


def measure(
    runs: dict[str, Callable[[SearchRequest], object]], requests: list[SearchRequest], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each query by each way, the median of `rounds` after one unmeasured round.

    The ways take turns, query by query, so that whatever else the machine does at the time strikes all alike.
    """
    for request in requests:
        for run in runs.values():
            run(request)
    times: dict[str, list[list[float]]] = {name: [[] for _ in requests] for name in runs}
    for _ in range(rounds):
        for index, request in enumerate(requests):
            for name, run in runs.items():
                begun = time.perf_counter()
                run(request)
                times[name][index].append(1000 * (time.perf_counter() - begun))
    return {name: [float(np.median(each)) for each in measured] for name, measured in times.items()}


@contextmanager
def database(url: str | None) -> Iterator[str]:
    """A given empty database, or one in a temporary embedded server."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="rivet-bench-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer(Path(folder) / "postgres")
        server.start()
        try:
            with connect(server.url("postgres")) as connection:
                connection.execute("CREATE DATABASE benchmark")
            yield server.url("benchmark")
        finally:
            server.stop()


def main() -> None:
    """Builds, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", help="an empty database to use instead of a temporary embedded server")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    shared = os.environ.get("RIVET_SHARED_DATA")
    sources = shared_texts(Path(shared)) if shared else []
    texts = varied_texts(rng, sources, options.messages) if sources else synthetic_texts(rng, options.messages)
    embed = HashEmbedder()
    with database(options.url) as url, connect(url) as connection:
        apply_migrations(connection)
        begun = time.perf_counter()
        fill(connection, texts, options.messages, rng)
        filled = time.perf_counter()
        refresh_lexicon(connection)
        counted = time.perf_counter()
        connection.execute("VACUUM ANALYZE")
        # As `search` has it for its own statements.
        connection.execute("SET jit = off")
        connection.execute("SET max_parallel_workers_per_gather = 0")
        requests = make_requests(connection, rng)

        def ours(mode: Mode) -> Callable[[SearchRequest], object]:
            def run(request: SearchRequest) -> None:
                asked = SearchRequest(
                    request.query, mode=mode, limit=request.limit, agent=request.agent, since=request.since
                )
                search(connection, asked, embed_query=embed, now=NOW)

            return run

        kind = "real text, varied" if sources else "synthetic Zipf text"
        print(
            f"{options.messages:,} messages ({kind}) and {options.messages // 10:,} summaries, {len(requests)} queries"
        )
        print(
            f"filled in {filled - begun:.1f} s, lexicon in {counted - filled:.1f} s; "
            f"warm, median of {options.rounds}; load {os.getloadavg()[0]:.1f}\n"
        )
        runs: dict[str, Callable[[SearchRequest], object]] = {
            "naive ts_rank_cd over OR": lambda request: naive(connection, request)
        }
        runs |= {f"search, {mode}": ours(mode) for mode in _MODES}
        rows = measure(runs, requests, options.rounds)
        baseline = next(iter(rows.values()))
        print(f"{'':26}{'p50 ms':>10}{'p95 ms':>10}{'p50 ratio':>12}{'p95 ratio':>12}")
        base50, base95 = np.percentile(baseline, 50), np.percentile(baseline, 95)
        for name, times in rows.items():
            p50, p95 = np.percentile(times, 50), np.percentile(times, 95)
            print(f"{name:26}{p50:>10.1f}{p95:>10.1f}{base50 / p50:>11.1f}x{base95 / p95:>11.1f}x")


_MODES: tuple[Mode, ...] = ("fts", "hybrid", "vector")

if __name__ == "__main__":
    main()
