"""Which embedding model is being filled, which one serves, and the index of each.

No text and no vector passes through here; those are `compose.py`'s and `embed.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.models.protocols import Embedder, ModelError

#: A filling model takes over when it covers this share of what the serving one covers.
TAKE_OVER_COVERAGE = 0.99

#: A pass with at least this many owners, and at least as many as the model has vectors, indexes them in one go at its
#: end: adding to the graph one by one takes three to five times as long as building it (measured at 256 dimensions).
BULK_OWNERS = 5_000

#: Any fixed number: names the advisory lock, beside the model's id, that a pass holds while the index is away.
_INDEX_AWAY = 517_403


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A row of `ros_embedding_models`."""

    id: int
    dimensions: int


def register_model(connection: Connection, embedder: Embedder) -> RegisteredModel:
    """Makes the embedder's model the one being filled, and the serving one if there is none. Cheap when it is already.

    Nothing is pending for a model that is not registered, so a process that watches the pending views calls this at
    its start. Raises `ModelError`: that of `embedder.dimensions`, or `wrong-width` (permanent) when a model of this
    name is known with another width.
    """
    row = connection.execute(
        "SELECT id, dimensions, filling FROM ros_embedding_models WHERE name = %s", [embedder.name]
    ).fetchone()
    if row is not None and row["filling"]:
        return RegisteredModel(row["id"], row["dimensions"])
    width = embedder.dimensions
    try:
        row = connection.execute("SELECT ros_register_embedding_model(%s, %s) AS id", [embedder.name, width]).fetchone()
    except psycopg.errors.DataException as error:
        raise ModelError("permanent", "wrong-width", str(error.diag.message_primary)) from error
    if row is None:
        raise RuntimeError("ros_register_embedding_model gave no row")
    return RegisteredModel(row["id"], width)


def promote_filling_model(connection: Connection) -> str | None:
    """Lets the filling model serve once it covers 99 % of the messages, summaries and topics that the serving one does.

    Returns the name of the model that has just taken over, or None. The former one's vectors stay.
    """
    with connection.transaction():
        row = connection.execute(
            """
            SELECT f.id, f.name, s.id AS served_by
            FROM ros_embedding_models AS f LEFT JOIN ros_embedding_models AS s ON s.serving
            WHERE f.filling AND NOT f.serving
            FOR UPDATE OF f
            """
        ).fetchone()
        if row is None:
            return None
        counts = connection.execute(
            """
            SELECT count(*) AS served, count(f.owner_id) AS covered
            FROM ros_embeddings AS s
            LEFT JOIN ros_embeddings AS f
                ON f.model_id = %(filling)s AND f.owner_kind = s.owner_kind AND f.owner_id = s.owner_id AND f.chunk = 0
            WHERE s.model_id = %(serving)s AND s.chunk = 0
            """,
            {"filling": row["id"], "serving": row["served_by"]},
        ).fetchone()
        if counts is None or counts["covered"] < TAKE_OVER_COVERAGE * counts["served"]:
            return None
        connection.execute("UPDATE ros_embedding_models SET serving = false WHERE serving")
        connection.execute("UPDATE ros_embedding_models SET serving = true WHERE id = %s", [row["id"]])
        return str(row["name"])


@contextmanager
def index_kept(connection: Connection, model: RegisteredModel, owners: int) -> Iterator[None]:
    """For the length of the block the model's index may be away, when `owners` are many; at its end it is there.

    A search meanwhile compares with every vector: slower, and never wrong. A process that is killed leaves the index
    to the next pass.
    """
    away = _is_bulk(connection, model, owners)
    if away:
        connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", [_INDEX_AWAY, model.id])
    try:
        if away:
            _drop_index(connection, model)
        else:
            _heal_index(connection, model)
        yield
    finally:
        if away:
            connection.execute("SELECT ros_index_embedding_model(%s)", [model.id])
            # The table has just doubled at least; plans made for the former one are wrong by that much.
            connection.execute("ANALYZE ros_embeddings")
            connection.execute("SELECT pg_advisory_unlock_shared(%s, %s)", [_INDEX_AWAY, model.id])


def _is_bulk(connection: Connection, model: RegisteredModel, owners: int) -> bool:
    if owners < BULK_OWNERS:
        return False
    row = connection.execute(
        "SELECT count(*) AS present FROM (SELECT FROM ros_embeddings WHERE model_id = %s LIMIT %s) AS counted",
        [model.id, owners + 1],
    ).fetchone()
    return row is not None and row["present"] <= owners


def _index_names(model: RegisteredModel) -> list[str]:
    """The graphs of `ros_index_embedding_model`: of all vectors, and of the summaries' alone."""
    return [f"ros_embeddings_hnsw_{model.id}", f"ros_embeddings_hnsw_{model.id}_summaries"]


def _drop_index(connection: Connection, model: RegisteredModel) -> None:
    names = sql.SQL(", ").join(sql.Identifier(name) for name in _index_names(model))
    try:
        with connection.transaction():
            # The drop waits for searches that run, and new ones wait for it: not for long.
            connection.execute("SET LOCAL lock_timeout = '2s'")
            connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(names))
    except psycopg.errors.LockNotAvailable:
        return


def _heal_index(connection: Connection, model: RegisteredModel) -> None:
    row = connection.execute(
        """SELECT CASE WHEN EXISTS (SELECT FROM unnest(%s::text[]) AS t (name) WHERE to_regclass(t.name) IS NULL)
                       THEN pg_try_advisory_lock(%s, %s) ELSE false END AS missing""",
        [_index_names(model), _INDEX_AWAY, model.id],
    ).fetchone()
    if row is not None and row["missing"]:
        try:
            connection.execute("SELECT ros_index_embedding_model(%s)", [model.id])
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", [_INDEX_AWAY, model.id])
