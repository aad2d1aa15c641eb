"""What the parts of a score need to know of each candidate: one statement a call, over at most some hundred rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, LiteralString, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from psycopg.rows import tuple_row

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval import vector
from rivet_pipeline.retrieval.filters import (
    MESSAGE_FILTER,
    SUMMARY_FILTER,
    TOOL_CHARACTERS,
    filter_values,
    number_array,
    statement,
)
from rivet_pipeline.retrieval.types import Key, SearchRequest, Source


@dataclass(frozen=True)
class SemanticSide:
    """The semantic side of one search: None's place is taken by a reason.

    `unknown`: the model knows no word of the query, which is no fault of anything and so no reason.
    """

    model: vector.ServingModel | None = None
    query: NDArray[np.float32] | None = None
    degraded: str | None = None
    unknown: bool = False

    @cached_property
    def written(self) -> str | None:
        """The query's vector as Postgres reads it."""
        return None if self.query is None else vector.vector_text(self.query)


class Features(NamedTuple):
    """A row of `features.sql`: a summary's `key` is negative, times are in microseconds since 1970."""

    key: int
    id: str
    conversation: str
    at: int
    role: str | None
    tool_name: str | None
    kind: str
    memory_type: str | None
    head: str
    characters: int | None
    length: int
    access_count: int | None
    last_accessed: int | None
    similarity: float | None
    verbatim: bool


def fetch(connection: Connection, query: bytes | str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The rows as tuples: naming the columns of some hundred rows takes longer than reading them."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query, values).fetchall()


def read_features(
    connection: Connection,
    request: SearchRequest,
    keys: Sequence[Key],
    similarities: Mapping[Key, float],
    side: SemanticSide,
    *,
    literal: bool,
    meanwhile: Callable[[], object],
) -> list[Features]:
    """The given rows that the filters let through.

    `similarities` are those that are known already; `literal`: whether a row holds the query as it stands is asked too.
    `meanwhile` is called while the store reads (in a pipeline, else after it).
    """
    values: dict[str, Any] = filter_values(request) | {
        "messages": number_array(seq for source, seq in keys if source == "message"),
        "summaries": number_array(seq for source, seq in keys if source == "summary"),
        "verbatim": request.query.lower() if literal and request.mode != "vector" else None,
        "known_messages": number_array(seq for source, seq in similarities if source == "message"),
        "known_summaries": number_array(seq for source, seq in similarities if source == "summary"),
    }
    if side.written is not None:
        values["vector"] = side.written
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_features_statement(side.model), values)
        meanwhile()
        return [Features._make(row) for row in cursor.fetchall()]


@cache
def _features_statement(model: vector.ServingModel | None) -> bytes:
    text = sql.SQL(statement("features")).format(
        message_similarity=_similarity("message", "m", model),
        summary_similarity=_similarity("summary", "s", model),
        tool_characters=TOOL_CHARACTERS,
        message_filter=MESSAGE_FILTER,
        summary_filter=SUMMARY_FILTER,
    )
    return text.as_string().encode()


def _similarity(source: Source, alias: LiteralString, model: vector.ServingModel | None) -> sql.Composable:
    if model is None:
        return sql.SQL("NULL::float8")
    known = sql.Placeholder("known_messages" if source == "message" else "known_summaries")
    return sql.SQL(
        """CASE WHEN {alias}.seq = ANY ({known}::bigint[]) THEN NULL ELSE (
            SELECT 1 - min(e.embedding::halfvec({width}) <=> %(vector)s::halfvec({width})) FROM ros_embeddings AS e
            WHERE e.model_id = {model} AND e.owner_kind = {kind} AND e.owner_id = {alias}.id) END"""
    ).format(
        alias=sql.Identifier(alias),
        known=known,
        width=sql.Literal(model.dimensions),
        model=sql.Literal(model.id),
        kind=sql.Literal(source),
    )
