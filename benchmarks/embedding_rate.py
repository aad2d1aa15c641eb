"""How fast the message embedding stage is against its model called in a bare loop, in the same run.

Both get the same texts. The bare loop only embeds them; the stage also reads messages from Postgres, cuts them into
chunks, stores the vectors and indexes them. `wheel` is WordLlama's own `embed`, `ours` the faster sum over the same
token vectors that the project uses, `slow model` a model that takes a fixed time per text, as a real server does.

    python -m benchmarks.embedding_rate [--messages 6000] [--seconds-per-text 0.004]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.temporary import temporary_server
from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.migrations import apply_migrations
from rivet_pipeline.db.pool import Connection, connect, open_pool
from rivet_pipeline.embedding.compose import compose_message, pieces
from rivet_pipeline.embedding.embed import embed_messages
from rivet_pipeline.models.embedder import WordLlamaEmbedder
from rivet_pipeline.models.protocols import Embedder, Vectors

CHARACTERS_PER_CHUNK = 2000
BATCH = 64


class SlowEmbedder:
    """Stands for a server: waits a fixed time per text, then answers a vector."""

    name = "benchmark-slow"
    dimensions = 256

    def __init__(self, seconds_per_text: float) -> None:
        self._seconds = seconds_per_text
        self._random = np.random.default_rng(1)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Random unit vectors, after the wait."""
        time.sleep(self._seconds * len(texts))
        rows = self._random.normal(size=(len(texts), self.dimensions)).astype(np.float32)
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


def make_texts(count: int) -> list[str]:
    """Texts like those of transcripts: most of a few lines, some of pages; 530 characters on average."""
    source = random.Random(5)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(source.choices(letters, range(26, 0, -1), k=source.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return [
        " ".join(source.choices(words, weights, k=max(3, int(source.lognormvariate(3.9, 1.1))))) for _ in range(count)
    ]


def split(texts: Sequence[str]) -> list[str]:
    """The texts as the stage gives them to the model."""
    return [
        piece.text for text in texts for piece in pieces(compose_message(text, None, None, None), CHARACTERS_PER_CHUNK)
    ]


def fill(connection: Connection, texts: Sequence[str]) -> None:
    """Puts the texts into an empty store, as messages of conversations of 50."""
    with connection.transaction():
        for start in range(0, len(texts), 50):
            row = connection.execute(
                "INSERT INTO ros_conversations (session_key, agent, day, revision) "
                "VALUES (%s, 'bench', '2026-06-01', 1) RETURNING id",
                [f"bench:{start}"],
            ).fetchone()
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content) "
                    "VALUES (%s, %s, 'bench', 'bench', 'user', %s)",
                    [(row["id"] if row else None, str(number), text) for number, text in enumerate(texts[start:][:50])],
                )


def clock(work: Callable[[], object]) -> float:
    """The seconds that the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def bare(embedder: Embedder, chunks: list[str]) -> float:
    """Seconds of the model alone."""
    return clock(lambda: [embedder.embed(chunks[at : at + BATCH]) for at in range(0, len(chunks), BATCH)])


def wheel(chunks: list[str]) -> float:
    """Seconds of WordLlama's own `embed`."""
    import wordllama

    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return clock(lambda: model.embed(chunks, norm=True, batch_size=BATCH))


def stage(server: EmbeddedServer, name: str, texts: Sequence[str], embedder: Embedder) -> float:
    """Seconds of the stage on a fresh store, its index included."""
    with connect(server.url("postgres")) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with connect(server.url(name)) as connection:
        apply_migrations(connection)
        fill(connection, texts)
        connection.execute("VACUUM ANALYZE ros_messages")
    with open_pool(server.url(name)) as pool:
        return clock(
            lambda: embed_messages(pool, embedder, days=None, chars_per_chunk=CHARACTERS_PER_CHUNK, batch=BATCH)
        )


def main() -> None:
    """Prints one row per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=6000)
    parser.add_argument("--seconds-per-text", type=float, default=0.004)
    arguments = parser.parse_args()
    texts = make_texts(arguments.messages)
    chunks = split(texts)
    ours = WordLlamaEmbedder()
    ours.embed(["load it"])
    with temporary_server() as server:
        staged = stage(server, "bench_wordllama", texts, ours)
        few = texts[: len(texts) // 6]
        slow = SlowEmbedder(arguments.seconds_per_text)
        slow_staged = stage(server, "bench_slow", few, slow)
    slow_chunks = split(few)
    results = [
        ("WordLlama, wheel", len(chunks), wheel(chunks), staged),
        ("WordLlama, ours", len(chunks), bare(ours, chunks), staged),
        ("slow model", len(slow_chunks), bare(slow, slow_chunks), slow_staged),
    ]
    characters = sum(map(len, chunks)) / len(chunks)
    print(f"{len(texts)} messages, {len(chunks)} chunks of {characters:.0f} characters on average\n")
    print(f"{'model':<18}{'chunks':>8}{'bare /s':>10}{'stage /s':>10}{'ratio':>8}")
    for name, count, alone, whole in results:
        print(f"{name:<18}{count:>8}{count / alone:>10.0f}{count / whole:>10.0f}{alone / whole:>8.2f}")


if __name__ == "__main__":
    main()
