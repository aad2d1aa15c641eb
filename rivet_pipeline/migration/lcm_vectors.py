"""Moves the embeddings of an LCM store: checks each vector and keeps it under its model's name, beside all others.

A model that comes in here neither is filled nor serves; it takes part once it is the configured one. Vectors stand in
an `embedding` column of messages or summaries (float32 bytes, a JSON array, or pgvector's text), or in the tables of
the sqlite-vec extension, whose plain parts are read without it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.migration.lcm_messages import MovedConversation
from rivet_pipeline.migration.report import MigrationReport, Tally
from rivet_pipeline.transcripts.lcm_source import LcmSource, count_rows, has, read_conversation, read_rows
from rivet_pipeline.transcripts.readers.shared import text_of

_INSERT = Path(__file__).with_name("insert_lcm_vector.sql").read_text(encoding="utf-8")

#: What the store's column takes (pgvector: halfvec up to 4,000 dimensions with an index, values of 16 bits).
_MAX_WIDTH = 4000
_MAX_VALUE = 65504.0

#: Vectors that one transaction holds at most.
_BATCH = 200

#: Column, owner and key of vectors that stand beside what they are made of.
_COLUMNS: tuple[tuple[str, Literal["message", "summary"], str], ...] = (
    ("messages", "message", "message_id"),
    ("summaries", "summary", "summary_id"),
)


@dataclass(frozen=True, slots=True)
class _Owner:
    """The row that a vector belongs to. `part`: which part of its text the vector stands for."""

    kind: Literal["message", "summary"]
    id: UUID | None
    part: Literal["all", "content", "result"]


def decode_vector(value: Any) -> NDArray[np.float32] | str:
    """The vector, or why it is refused. Takes float32 bytes (little-endian, or as hex text), JSON and pgvector text."""
    if isinstance(value, str) and re.fullmatch(r"\\x[0-9a-fA-F]*", value):
        value = bytes.fromhex(value[2:])
    if isinstance(value, bytes) and not value.lstrip().startswith(b"["):
        return _checked(np.frombuffer(value, dtype="<f4")) if len(value) % 4 == 0 else "not readable as a vector"
    try:
        text = value.decode() if isinstance(value, bytes) else text_of(value)
        return _checked(np.asarray(json.loads(text), dtype=np.float32))
    except (ValueError, TypeError, RecursionError, OverflowError):
        # Bytes that only look like text are numbers after all.
        whole = isinstance(value, bytes) and len(value) % 4 == 0
        return _checked(np.frombuffer(value, dtype="<f4")) if whole else "not readable as a vector"


def _checked(vector: NDArray[np.float32]) -> NDArray[np.float32] | str:
    if vector.ndim != 1 or not 1 <= vector.size <= _MAX_WIDTH:
        return f"not between 1 and {_MAX_WIDTH:,} dimensions"
    if not np.isfinite(vector).all():
        return "not a number, or infinite"
    if np.abs(vector).max() > _MAX_VALUE:
        return "values too large to store"
    if not vector.astype(np.float16).any():
        return "zero"
    return vector


class VectorMover:
    """Moves vectors and counts them by model. `named` is the model of vectors whose source does not say."""

    def __init__(self, connection: Connection, source: LcmSource, report: MigrationReport, named: str | None) -> None:
        self._connection = connection
        self._source = source
        self._report = report
        self._named = named
        self._ids: dict[str, int | None] = {}
        self._widths: dict[str, int] = {
            row["name"]: row["dimensions"]
            for row in connection.execute("SELECT name, dimensions FROM ros_embedding_models").fetchall()
        }

    def move_conversation(self, number: Any, moved: MovedConversation, summaries: Mapping[str, UUID]) -> None:
        """Moves the vectors that stand beside a conversation's messages and summaries."""
        ids = _message_ids(self._connection, moved)
        for table, kind, key in _COLUMNS:
            if not has(self._source, table, "embedding"):
                continue
            columns = {key, "embedding"} | ({"embedding_model"} & self._source.tables[table])
            batch: list[tuple[str | None, Any, _Owner | None]] = []
            for row in read_conversation(self._source, table, number, columns=columns, order=[f"t.{key}"]):
                if row["embedding"] is None:
                    continue
                name = text_of(row[key])
                owner = _message_owner(name, moved, ids) if kind == "message" else _summary_owner(name, summaries)
                batch.append((text_of(row.get("embedding_model")).strip() or self._named, row["embedding"], owner))
                if len(batch) >= _BATCH:
                    self._move(batch)
                    batch = []
            self._move(batch)

    def move_tables(self, summaries: Mapping[str, UUID]) -> None:
        """Moves the vectors that the vector extension keeps, all of which are of summaries."""
        for profile in read_rows(self._source, "lcm_embedding_profile"):
            model = text_of(profile.get("model_name")).strip()
            table = "lcm_embeddings_" + re.sub(r"[^a-z0-9]", "", model.lower())
            width = text_of(profile.get("dim"))
            self._widths.setdefault(model, int(width) if width.isdecimal() else 0)
            batch: list[tuple[str | None, Any, _Owner | None]] = []
            for owner_id, value in _extension_rows(self._source, table, self._widths[model]):
                batch.append((model, value, _summary_owner(owner_id, summaries)))
                if len(batch) >= _BATCH:
                    self._move(batch)
                    batch = []
            self._move(batch)

    def _move(self, batch: Iterable[tuple[str | None, Any, _Owner | None]]) -> None:
        fit: dict[str, list[tuple[_Owner, NDArray[np.float32]]]] = {}
        for model, value, owner in batch:
            vector = decode_vector(value)
            name = model or (f"lcm-{vector.size}" if not isinstance(vector, str) else "lcm")
            tally = self._tally(name)
            tally.source += 1
            reason = self._unfit(name, vector, owner)
            if reason is not None:
                tally.left_out[reason] += 1
            elif owner is not None and not isinstance(vector, str):
                fit.setdefault(name, []).append((owner, vector))
        for name, vectors in fit.items():
            self._store(name, vectors)

    def _unfit(self, name: str, vector: NDArray[np.float32] | str, owner: _Owner | None) -> str | None:
        if owner is None:
            return "what it is made of was not moved"
        if isinstance(vector, str):
            return vector
        if vector.size != self._width(name, vector.size):
            return f"not of the model's {self._widths[name]:,} dimensions"
        return None

    def _width(self, name: str, here: int) -> int:
        """The model's width: as it is known, else that of most of the source's vectors."""
        if name not in self._widths:
            counted: Counter[int] = Counter({here: 1})
            for table, _, key in _COLUMNS:
                for value in _column_values(self._source, table, key):
                    vector = decode_vector(value)
                    if not isinstance(vector, str):
                        counted[vector.size] += 1
            self._widths[name] = here if name == f"lcm-{here}" else counted.most_common(1)[0][0]
        return self._widths[name]

    def _store(self, name: str, vectors: list[tuple[_Owner, NDArray[np.float32]]]) -> None:
        tally = self._tally(name)
        model = self._model(name)
        present = self._present(model, vectors)
        tally.before += sum(_key(owner) in present for owner, _ in vectors)
        for owner, _ in vectors:
            tally.add(known=_key(owner) in present)
        if self._report.dry_run:
            return
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(
                _INSERT,
                [
                    {"model": model, "kind": owner.kind, "owner": owner.id, "part": owner.part, "vector": HalfVector(v)}
                    for owner, v in vectors
                    if _key(owner) not in present
                ],
            )
        after = self._present(model, vectors)
        tally.found(sum(_key(owner) in after for owner, _ in vectors))

    def _present(
        self, model: int | None, vectors: list[tuple[_Owner, NDArray[np.float32]]]
    ) -> set[tuple[str, Any, int]]:
        rows = self._connection.execute(
            "SELECT owner_kind, owner_id, chunk FROM ros_embeddings WHERE model_id = %s AND owner_id = ANY(%s)",
            [model, [owner.id for owner, _ in vectors if owner.id is not None]],
        ).fetchall()
        return {(row["owner_kind"], row["owner_id"], row["chunk"]) for row in rows}

    def _model(self, name: str) -> int | None:
        """The model's id; it is registered, neither filling nor serving, when it is new."""
        if self._ids.get(name) is None:
            if not self._report.dry_run:
                self._connection.execute(
                    "INSERT INTO ros_embedding_models (name, dimensions) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
                    [name, self._widths[name]],
                )
            row = self._connection.execute("SELECT id FROM ros_embedding_models WHERE name = %s", [name]).fetchone()
            self._ids[name] = row["id"] if row else None
        return self._ids[name]

    def _tally(self, name: str) -> Tally:
        return self._report.embeddings.setdefault(name, Tally())


def count_vectors(source: LcmSource) -> int:
    """The vectors that the source holds, by its own count."""
    total = sum(count_rows(source, table, filled="embedding") for table, _, _ in _COLUMNS)
    rowids = [table for table in source.tables if table.startswith("lcm_embeddings_") and table.endswith("_rowids")]
    return total + sum(count_rows(source, table) for table in rowids)


def _key(owner: _Owner) -> tuple[str, Any, int]:
    return owner.kind, owner.id, int(owner.part == "result")


def _summary_owner(lcm_id: str, summaries: Mapping[str, UUID]) -> _Owner | None:
    return _Owner("summary", summaries[lcm_id], "all") if lcm_id in summaries else None


def _message_owner(lcm_id: str, moved: MovedConversation, ids: Mapping[str, UUID]) -> _Owner | None:
    message = moved.messages.get(lcm_id)
    if message is None:
        return None
    part: Literal["content", "result"] = "result" if message.result else "content"
    return _Owner("message", ids.get(message.main), part)


def _message_ids(connection: Connection, moved: MovedConversation) -> dict[str, UUID]:
    rows = connection.execute(
        "SELECT event_id, id FROM ros_messages WHERE conversation_id = %s AND metadata ? 'lcm_id'", [moved.id]
    ).fetchall()
    return {row["event_id"]: row["id"] for row in rows}


def _column_values(source: LcmSource, table: str, key: str) -> Iterator[Any]:
    if not has(source, table, "embedding"):
        return
    query = f'SELECT {source.column("t", "embedding")} FROM {source.table(table)} AS t WHERE t."embedding" IS NOT NULL'  # noqa: S608
    for (value,) in source.run(f'{query} ORDER BY t."{key}"'):
        yield value


def _extension_rows(source: LcmSource, table: str, width: int) -> Iterator[tuple[str, bytes]]:
    """What the extension's plain tables hold: the owner's id and the vector, cut out of the block it stands in."""
    plain = [f"{table}_{part}" for part in ("rowids", "auxiliary", "vector_chunks00")]
    if not all(name in source.tables for name in plain):
        return
    rowids, auxiliary, blocks = (source.table(name) for name in plain)
    for owner_id, vector in source.run(
        f"SELECT a.value00, substr(b.vectors, r.chunk_offset * {4 * width} + 1, {4 * width}) "  # noqa: S608
        f"FROM {rowids} AS r JOIN {auxiliary} AS a ON a.rowid = r.rowid JOIN {blocks} AS b ON b.rowid = r.chunk_id "
        "ORDER BY r.rowid"
    ):
        yield text_of(owner_id), vector
