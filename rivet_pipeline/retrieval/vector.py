"""The semantic arm: which rows lie nearest to a query vector, by the chunks of the model that serves.

The caller embeds the query. Vectors of different models are never compared, and one of another width is refused with a
reason instead of an error, because the text arm can still answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, SUMMARY_FILTER, filter_values, statement
from rivet_pipeline.retrieval.types import SearchRequest, Source

#: A scope of at most this many rows is compared exactly instead of walking the graph in search of its few rows.
_SMALL_SCOPE = 3000

#: Chunks asked for per wanted row at first, for a long text may hold several of the nearest.
_CHUNKS_PER_ROW = 1.5


@dataclass(frozen=True, slots=True)
class ServingModel:
    """The model whose vectors answer queries. Embed the query with the model of this name and no other."""

    id: int
    name: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Nearest:
    """Cosine similarity by row, nearest first; keys are (source, seq). `degraded` says why there are none."""

    similarities: dict[tuple[Source, int], float] = field(default_factory=dict)
    degraded: str | None = None


def serving_model(connection: Connection) -> ServingModel | None:
    """The model that answers queries; None before the first one was registered."""
    row = connection.execute("SELECT id, name, dimensions FROM ros_embedding_models WHERE serving").fetchone()
    return None if row is None else ServingModel(row["id"], row["name"], row["dimensions"])


def refuse_vector(model: ServingModel | None, vector: NDArray[np.float32]) -> str | None:
    """Why the vector can not be compared with what is stored, in a sentence; None when it can."""
    if model is None:
        return "nothing is embedded yet"
    if vector.ndim != 1 or vector.shape[0] != model.dimensions:
        return f"the query vector has {vector.size} dimensions, those of {model.name} have {model.dimensions}"
    if not np.isfinite(vector).all() or not vector.any():
        return "the query vector is empty or not finite"
    return None


def vector_text(vector: NDArray[np.float32]) -> str:
    """The vector as Postgres reads it, scaled to unit length so that no component overflows a half float."""
    unit = vector.astype(np.float64) / np.linalg.norm(vector.astype(np.float64))
    return "[" + ",".join(["%.6g"] * unit.size) % tuple(unit.tolist()) + "]"


def nearest(
    connection: Connection,
    model: ServingModel,
    vector: NDArray[np.float32],
    request: SearchRequest,
    *,
    wanted: int,
) -> Nearest:
    """The rows whose best chunk lies nearest: `wanted` messages, half as many summaries (`request.limit` at least).

    Only rows within the request's filters, and all of them when fewer exist. The index is walked in order until enough
    rows pass the filters; a scope that is small, or in which the walk gave up, is compared exactly. Runs under
    `tune_session`.
    """
    refused = refuse_vector(model, vector)
    if refused is not None:
        return Nearest(degraded=refused)
    found: dict[tuple[Source, int], float] = {}
    if request.scope != "summaries":
        found.update(_nearest_of(connection, "message", model, vector, request, wanted))
    if request.scope != "messages" and request.role is None:
        fewer = max(wanted // 2, request.limit)
        found.update(_nearest_of(connection, "summary", model, vector, request, fewer))
    return Nearest(dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))))


def _nearest_of(
    connection: Connection,
    source: Source,
    model: ServingModel,
    vector: NDArray[np.float32],
    request: SearchRequest,
    wanted: int,
) -> dict[tuple[Source, int], float]:
    values = filter_values(request) | {"vector": vector_text(vector), "small": _SMALL_SCOPE}
    if request.conversation_id is None and not _is_small(connection, source, request, values):
        walk = _statement("nearest_walk", source, model)
        chunks = round(_CHUNKS_PER_ROW * wanted)
        while True:
            rows = connection.execute(walk, values | {"chunks": chunks}, prepare=False).fetchall()
            best = _best_chunks(source, rows)
            if len(best) >= wanted:
                return dict(list(best.items())[:wanted])
            if len(rows) < chunks:
                break
            chunks *= 4
    exact = _statement("nearest_exact", source, model)
    rows = connection.execute(exact, values | {"wanted": wanted}, prepare=False).fetchall()
    return _best_chunks(source, rows)


@cache
def _statement(name: str, source: Source, model: ServingModel) -> bytes:
    text = sql.SQL(statement(name)).format(
        model=sql.Literal(model.id),
        width=sql.Literal(model.dimensions),
        kind=sql.Literal(source),
        table=sql.Identifier("ros_messages" if source == "message" else "ros_summaries"),
        alias=sql.Identifier("m" if source == "message" else "s"),
        filter=MESSAGE_FILTER if source == "message" else SUMMARY_FILTER,
    )
    return text.as_string().encode()


_SCOPE_SIZES: dict[Source, sql.Composed] = {
    "message": sql.SQL(
        "SELECT count(*) AS n FROM (SELECT 1 FROM ros_messages AS m WHERE {filter} LIMIT %(small)s + 1) AS f"
    ).format(filter=MESSAGE_FILTER),
    "summary": sql.SQL(
        "SELECT count(*) AS n FROM (SELECT 1 FROM ros_summaries AS s WHERE {filter} LIMIT %(small)s + 1) AS f"
    ).format(filter=SUMMARY_FILTER),
}


def _is_small(
    connection: Connection,
    source: Source,
    request: SearchRequest,
    values: dict[str, Any],
) -> bool:
    """Whether the filters leave few rows; asked only where an index can answer that quickly."""
    tagged = request.tagged is not None
    timed = source == "message" and bool(request.agent or request.since or request.before)
    if not (tagged or timed):
        return False
    row = connection.execute(_SCOPE_SIZES[source], values, prepare=False).fetchone()
    return row is not None and bool(row["n"] <= _SMALL_SCOPE)


def _best_chunks(source: Source, rows: Sequence[dict[str, Any]]) -> dict[tuple[Source, int], float]:
    best: dict[tuple[Source, int], float] = {}
    for row in rows:
        best.setdefault((source, row["seq"]), max(0.0, row["similarity"]))
    return best
