"""The semantic arm: which rows lie nearest to a query vector, by the chunks of the model that serves.

The caller embeds the query. Vectors of different models are never compared, and one of another width is refused with a
reason instead of an error, because the text arm can still answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, sql
from psycopg.rows import DictRow

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import (
    MESSAGE_FILTER,
    SUMMARY_FILTER,
    UNFILTERED_MESSAGE,
    UNFILTERED_SUMMARY,
    filter_values,
    number_array,
    statement,
)
from rivet_pipeline.retrieval.text_scoring import Numbers
from rivet_pipeline.retrieval.types import Key, SearchRequest, Source
from rivet_pipeline.retrieval.vector_codes import CACHE as CODES
from rivet_pipeline.retrieval.vector_codes import Ready

#: A scope of at most this many rows is always compared exactly instead of walking the graph in search of its few rows.
_SMALL_SCOPE = 3000

#: What passing by one row on a walk costs, measured in rows compared exactly: a walk passes more of them the fewer are
#: within the filters, so of two scopes the smaller one may be the dearer to walk. Measured at 100,000 messages.
_WALK_COST = 4.0

#: Rows that codes choose, per wanted one, and where these would be many. With four of the 30 nearest of 75,000 rows
#: 0.89 were among them, of the 10 nearest 0.96; of 333,000 rows 0.83 and 0.90 (made-up vectors, which are harder than
#: real ones; a walk of the graph found 0.26 of 40). Of a long list the nearest ones are as sure with three.
_CHOSEN_EACH, _CHOSEN_MANY, _CHOSEN_EACH_OF_MANY = 4, 120, 3

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

    similarities: dict[Key, float] = field(default_factory=dict)
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
    return "[" + ",".join(["%.6g"] * vector.size) % tuple(_unit(vector).tolist()) + "]"


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float64]:
    """The vector scaled to unit length; computed in doubles, because a square may not fit a single."""
    exact = vector.astype(np.float64)
    unit: NDArray[np.float64] = exact / np.linalg.norm(exact)
    return unit


def nearest(
    connection: Connection,
    model: ServingModel,
    vector: NDArray[np.float32],
    request: SearchRequest,
    *,
    wanted: int,
    meanwhile: Callable[[], None] | None = None,
    within: Callable[[], Callable[[Source], Numbers] | None] | None = None,
) -> Nearest:
    """The rows whose best chunk lies nearest: `wanted` messages, half as many summaries (`request.limit` at least).

    Only rows within the request's filters, and all of them when fewer exist. The index is walked in order until enough
    rows pass the filters; a scope that is small, or in which the walk gave up, is compared exactly. `meanwhile` is
    called once, while the store looks; it must not use the connection. `within` is asked before it, for the rows
    within the filters (`TextSearch.within`): codes then choose what is compared exactly, and nothing is walked. Runs in
    a transaction, under `tune_session`.
    """
    refused = refuse_vector(model, vector)
    if refused is not None:
        return Nearest(degraded=refused)
    wanted_of: dict[Source, int] = {}
    if request.scope != "summaries":
        wanted_of["message"] = wanted
    if request.scope != "messages" and request.role is None:
        wanted_of["summary"] = max(wanted // 2, request.limit)
    asked = vector_text(vector)
    sides: list[_Given | _Side] = []
    if within is not None and is_narrow(request):
        sides += _by_codes(connection, model, vector, asked, request, within, wanted_of)
    coded = {side.source for side in sides}
    sides += [
        _Side(connection, source, model, asked, request, count)
        for source, count in wanted_of.items()
        if source not in coded
    ]
    found, left = _ask(connection, sides, meanwhile)
    if left:
        found |= _ask(
            connection, [_Side(connection, one, model, asked, request, wanted_of[one]) for one in left], None
        )[0]
    return Nearest(dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))))


def _ask(
    connection: Connection, sides: Sequence[_Given | _Side], meanwhile: Callable[[], None] | None
) -> tuple[dict[Key, float], list[Source]]:
    """What the sides find, and the sources that must be asked in another way.

    In a pipeline the questions are sent without waiting for an answer, and the store works while this process does.
    """
    found: dict[Key, float] = {}
    left: list[Source] = []
    for side in sides:
        side.ask()
    if meanwhile is not None:
        meanwhile()
    for side in sides:
        rows = side.answer()
        if rows is None:
            left.append(side.source)
        else:
            found |= rows
    return found, left


def is_narrow(request: SearchRequest) -> bool:
    """Whether the filters leave out enough for a walk to become long; one conversation is compared exactly."""
    return request.conversation_id is None and request.is_filtered


def _by_codes(
    connection: Connection,
    model: ServingModel,
    vector: NDArray[np.float32],
    asked: str,
    request: SearchRequest,
    within: Callable[[], Callable[[Source], Numbers] | None],
    wanted_of: dict[Source, int],
) -> list[_Given]:
    """The sides of the sources whose codes are in force.

    `asked` is the vector as Postgres reads it. `within` says which rows are within the filters, or a few too many.
    """
    ready = CODES.codes(connection, model.id, model.dimensions, tuple(wanted_of), within)
    numbers = within()
    if numbers is None:
        return []
    unit = _unit(vector).astype(np.float32)
    return [
        _Given(connection, source, model, unit, asked, request, wanted_of[source], codes, numbers)
        # Where less is to choose from comes first: the store is busy while more is chosen.
        for source, codes in sorted(ready.items(), key=lambda item: len(item[1].codes.owners))
    ]


class _Given:
    """The nearest of the rows of one table that codes choose: `ask` chooses and sends, `answer` reads what came."""

    def __init__(
        self,
        connection: Connection,
        source: Source,
        model: ServingModel,
        unit: NDArray[np.float32],
        asked: str,
        request: SearchRequest,
        wanted: int,
        ready: Ready,
        within: Callable[[Source], Numbers],
    ) -> None:
        self.source = source
        self._connection, self._model, self._unit, self._request = connection, model, unit, request
        self._wanted, self._ready, self._within, self._vector = wanted, ready, within, asked
        self._is_all = True
        self._asked: Cursor[DictRow] | None = None

    def ask(self) -> None:
        """Sends the question; nothing is waited for within a pipeline."""
        count = min(_CHOSEN_EACH * self._wanted, max(_CHOSEN_MANY, _CHOSEN_EACH_OF_MANY * self._wanted))
        chosen, self._is_all = self._ready.codes.choose(self._within(self.source), self._unit, count)
        if not len(chosen) and not self._ready.changed:
            return
        self._asked = self._connection.execute(
            _statement("nearest_given", self.source, self._model),
            filter_values(self._request)
            | {"vector": self._vector, "rows": number_array(chosen.tolist()), "wanted": self._wanted},
        )

    def answer(self) -> dict[Key, float] | None:
        """The rows by key, nearest first; None when the choice was too narrow or is no longer true."""
        if self._asked is None:
            return {}
        rows = self._asked.fetchall()
        # Another piece than those that were read may have taken changes in, which were then not compared.
        if not rows or rows[0]["newest"] != self._ready.newest:
            return None
        if not self._is_all and len(rows) < self._wanted:
            return None
        return {(self.source, row["seq"]): max(0.0, row["similarity"]) for row in rows}


class _Side:
    """The nearest rows of one table: `ask` sends the first question and `answer` reads what came, and asks on."""

    def __init__(
        self,
        connection: Connection,
        source: Source,
        model: ServingModel,
        asked: str,
        request: SearchRequest,
        wanted: int,
    ) -> None:
        self.source = source
        self._connection, self._model, self._wanted = connection, model, wanted
        self._is_filtered = request.is_filtered
        self._values = filter_values(request) | {
            "vector": asked,
            "small": _SMALL_SCOPE,
            "walk_cost": _WALK_COST * wanted,
        }
        self._chunks = round(_CHUNKS_PER_ROW * wanted)
        self._walks = request.conversation_id is None and not _is_small(connection, source, request, self._values)
        self._asked: Cursor[DictRow] | None = None

    def ask(self) -> None:
        """Sends the question; nothing is waited for within a pipeline."""
        self._asked = self._walk() if self._walks else self._compare()

    def _walk(self) -> Cursor[DictRow]:
        walk = _statement("nearest_walk", self.source, self._model, chunks=self._chunks, is_filtered=self._is_filtered)
        # A plan made for one filter is wrong for another. Without any, one plan serves all, which saves the planning, a
        # seventh of a walk. How many chunks stands in the text: for a bound number a tenth of all rows is assumed.
        return self._connection.execute(walk, self._values, prepare=False if self._is_filtered else None)

    def _compare(self) -> Cursor[DictRow]:
        exact = _statement("nearest_exact", self.source, self._model)
        return self._connection.execute(exact, self._values | {"wanted": self._wanted}, prepare=False)

    def answer(self) -> dict[Key, float] | None:
        """The rows by key, nearest first."""
        assert self._asked is not None
        rows = self._asked.fetchall()
        while self._walks:
            best = _best_chunks(self.source, rows)
            if len(best) >= self._wanted:
                return dict(list(best.items())[: self._wanted])
            self._walks = len(rows) == self._chunks
            self._chunks *= 4
            rows = (self._walk() if self._walks else self._compare()).fetchall()
        return _best_chunks(self.source, rows)


#: By source, the filter of any request, and of one without filters.
_FILTERS: dict[Source, tuple[sql.SQL, sql.SQL]] = {
    "message": (MESSAGE_FILTER, UNFILTERED_MESSAGE),
    "summary": (SUMMARY_FILTER, UNFILTERED_SUMMARY),
}


@cache
def _statement(
    name: str, source: Source, model: ServingModel, *, chunks: int | None = None, is_filtered: bool = True
) -> bytes:
    """The text of a `.sql` file for one table and model; a walk takes `chunks`, and has no text without them."""
    every, unfiltered = _FILTERS[source]
    further = {} if chunks is None else {"chunks": sql.Literal(chunks)}
    text = sql.SQL(statement(name)).format(
        model=sql.Literal(model.id),
        width=sql.Literal(model.dimensions),
        kind=sql.Literal(source),
        table=sql.Identifier("ros_messages" if source == "message" else "ros_summaries"),
        alias=sql.Identifier("m" if source == "message" else "s"),
        filter=every if is_filtered else unfiltered,
        **further,
    )
    return text.as_string().encode()


_SCOPE_SIZES: dict[Source, sql.Composed] = {
    "message": sql.SQL(
        """SELECT count(*) <= %(small)s AS small
           FROM (SELECT 1 FROM ros_messages AS m WHERE {filter} LIMIT %(small)s + 1) AS f"""
    ).format(filter=MESSAGE_FILTER),
    "summary": sql.SQL(
        """SELECT count(*) <= %(small)s AS small
           FROM (SELECT 1 FROM ros_summaries AS s WHERE {filter} LIMIT %(small)s + 1) AS f"""
    ).format(filter=SUMMARY_FILTER),
}

#: What an index of messages knows by itself: a scope of an agent and a time is counted without reading a row, and so to
#: where comparing all of it costs as much as a walk.
_TIMED_SCOPE = """
WITH bound AS MATERIALIZED (
    SELECT greatest(%(small)s, sqrt(%(walk_cost)s::float8 * greatest(reltuples, 0)))::bigint AS small
    FROM pg_class WHERE oid = 'ros_messages'::regclass
)
SELECT (SELECT count(*) FROM (
    SELECT 1 FROM ros_messages AS m
    WHERE (%(agent)s::text IS NULL OR m.agent = %(agent)s::text)
      AND (%(since)s::timestamptz IS NULL OR m.created_at >= %(since)s::timestamptz)
      AND (%(before)s::timestamptz IS NULL OR m.created_at < %(before)s::timestamptz)
    LIMIT (SELECT small + 1 FROM bound)) AS f) <= small AS small
FROM bound"""


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
    indexed = timed and not tagged and request.role is None
    row = connection.execute(_TIMED_SCOPE if indexed else _SCOPE_SIZES[source], values, prepare=False).fetchone()
    return row is not None and bool(row["small"])


def _best_chunks(source: Source, rows: Sequence[dict[str, Any]]) -> dict[Key, float]:
    best: dict[Key, float] = {}
    for row in rows:
        best.setdefault((source, row["seq"]), max(0.0, row["similarity"]))
    return best
