"""A store full of made-up messages, for the search benchmark: filled by COPY, with every index the product has.

Vectors come from a pool: as many texts as `--embedded` says are embedded by the product's own model, every other
message takes the vector of one of these with some noise. Nothing is measured here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg.types.json import Jsonb

from benchmarks.corpus import AGENTS, PER_CONVERSATION, Corpus, Message
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.embedder import WordLlamaEmbedder

BATCH = 20_000
_SPACE = UUID("6f6b1e9a-64a8-4f5e-9d0f-0b6a4f3f1c55")

#: How much of a borrowed vector is noise.
_NOISE = 0.3

#: Every so many messages have a summary.
_SUMMARY = 10


class Vectors:
    """Vectors of the product's own model for as many texts as it is given time for, others near those."""

    def __init__(self, embedded: int, *, seed: int = 1) -> None:
        self._model = WordLlamaEmbedder()
        self._most = embedded
        self._pool = np.empty((0, self._model.dimensions), dtype=np.float32)
        self._numbers = np.random.default_rng(seed)

    @property
    def name(self) -> str:
        """The model's name, by which the API embeds queries."""
        return self._model.name

    @property
    def width(self) -> int:
        """The dimensions of a vector."""
        return self._model.dimensions

    def of(self, texts: list[str]) -> NDArray[np.float32]:
        """A unit vector for each text."""
        own = texts[: max(0, self._most - len(self._pool))]
        parts = []
        if own:
            fresh = np.asarray(self._model.embed([text[:1000] for text in own]), dtype=np.float32)
            self._pool = np.concatenate([self._pool, fresh])
            parts.append(fresh)
        rest = len(texts) - len(own)
        if rest:
            chosen = self._pool[self._numbers.integers(0, len(self._pool), rest)]
            noise = self._numbers.standard_normal((rest, self.width)).astype(np.float32)
            noise *= _NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
            mixed = chosen + noise
            parts.append(mixed / np.linalg.norm(mixed, axis=1, keepdims=True))
        return np.concatenate(parts)


class Filler:
    """Writes the messages of a corpus into an empty, migrated store, as many at a time as is asked for."""

    def __init__(self, connection: Connection, corpus: Corpus, vectors: Vectors | None) -> None:
        self._connection, self._vectors = connection, vectors
        self._messages: Iterator[Message] = iter(corpus)
        self._rng = random.Random(7)
        self._model = 0
        self.count = 0
        if vectors is not None:
            row = connection.execute(
                "SELECT ros_register_embedding_model(%s, %s) AS id", [vectors.name, vectors.width]
            ).fetchone()
            assert row is not None
            self._model = int(row["id"])
            # Built once over everything: inserting into the graph row by row is no part of what is measured here.
            for name in (f"ros_embeddings_hnsw_{self._model}", f"ros_embeddings_hnsw_{self._model}_summaries"):
                connection.execute(f"DROP INDEX {name}".encode())

    def fill(self, up_to: int) -> None:
        """Adds messages until there are `up_to`, a summary for every ten of them, and their vectors."""
        while self.count < up_to:
            batch = list(islice(self._messages, min(BATCH, up_to - self.count)))
            self._add(batch)
            self.count += len(batch)

    def index_vectors(self) -> None:
        """Builds the graph of the vectors, with memory for all of it."""
        if self._vectors is None:
            return
        self._connection.execute("SET maintenance_work_mem = '2GB'")
        self._connection.execute("SELECT ros_index_embedding_model(%s)", [self._model])
        self._connection.execute("RESET maintenance_work_mem")

    def _add(self, batch: list[Message]) -> None:
        first = [message for message in batch if message.number % PER_CONVERSATION == 0]
        _copy(
            self._connection,
            "ros_conversations (id, session_key, agent, channel, day, updated_at)",
            (
                (
                    _conversation(m.conversation),
                    f"bench:{m.conversation}",
                    m.agent,
                    "bench",
                    m.created_at.date(),
                    m.created_at,
                )
                for m in first
            ),
        )
        _copy(
            self._connection,
            "ros_messages (id, conversation_id, event_id, agent, channel, role, content, tool_name, tool_result,"
            " metadata, created_at)",
            (
                (
                    _message(m.number),
                    _conversation(m.conversation),
                    str(m.number),
                    m.agent,
                    "bench",
                    m.role,
                    m.content,
                    m.tool_name,
                    m.tool_result,
                    Jsonb({"cwd": "/home/ada/src"}),
                    m.created_at,
                )
                for m in batch
            ),
        )
        summaries = [(m, self._summary(m)) for m in batch if m.number % _SUMMARY == _SUMMARY - 1]
        _copy(
            self._connection,
            "ros_summaries (id, conversation_id, content, earliest_at, latest_at, agents, kind, message_count, model,"
            " pipeline_version, input_hash)",
            (
                (
                    _summary(m.number), _conversation(m.conversation), text, m.created_at, m.created_at,
                    [AGENTS[m.conversation % len(AGENTS)]], "leaf", _SUMMARY, "bench", 1, "x",
                )
                for m, text in summaries
            ),
        )  # fmt: skip
        if self._vectors is not None:
            self._embed("message", [_message(m.number) for m in batch], [_whole(m) for m in batch])
            self._embed("summary", [_summary(m.number) for m, _ in summaries], [text for _, text in summaries])

    def _summary(self, message: Message) -> str:
        words = _whole(message).split()
        return "Summary: " + " ".join(self._rng.sample(words, min(len(words), 60)))

    def _embed(self, kind: str, owners: list[UUID], texts: list[str]) -> None:
        assert self._vectors is not None
        vectors = self._vectors.of(texts)
        with self._connection.cursor().copy(
            "COPY ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)"
            " FROM STDIN (FORMAT BINARY)"
        ) as copy:
            copy.set_types(["int4", "text", "uuid", "int4", "uuid", "int4", "int4", "halfvec"])
            for owner, vector in zip(owners, vectors, strict=True):
                copy.write_row((self._model, kind, owner, 0, owner, 0, 1, HalfVector(vector)))


def _copy(connection: Connection, columns: str, rows: Iterable[tuple[object, ...]]) -> None:
    with connection.cursor().copy(f"COPY {columns} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _whole(message: Message) -> str:
    return message.content if message.tool_result is None else f"{message.content}\n{message.tool_result}"


def _message(number: int) -> UUID:
    return uuid5(_SPACE, f"m{number}")


def _summary(number: int) -> UUID:
    return uuid5(_SPACE, f"s{number}")


def _conversation(number: int) -> UUID:
    return uuid5(_SPACE, f"c{number}")
