"""The vectors' codes, two bits a dimension: brought up to date range by range, as the noted changes say.

Belongs here: which ranges of owners are coded anew, and when that is due. Not here: what a search does with the codes,
nor the text index, which `lexicon.py` refreshes. The formats are those of `ros_vector_pieces`.

A piece is written together with the removal of the changes it took up, in one transaction, so a refresh that is killed
goes on where it was. The changes are read before any vector: what is written meanwhile keeps its change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.lexicon import LEAST_BEHIND, LEAST_BEHIND_BUSY
from rivet_pipeline.retrieval.types import Source
from rivet_pipeline.retrieval.vector_codes import LEAST_SQUARE, RANGE, THRESHOLD

#: A centre is the mean of at most so many vectors, and made anew when there are so many times as many as it is of.
_CENTRED_ON, _GROWTH = 20_000, 4

#: Any fixed number: it names our lock among the advisory locks of the database.
_LOCK = 7_266_005_177

_TABLES: dict[Source, str] = {"message": "ros_messages", "summary": "ros_summaries"}


@dataclass(frozen=True, slots=True)
class VectorPieceFigures:
    """What one refresh did and what stands now, of the model that serves.

    `written` pieces were made; all pieces hold `chunks` vectors in `bytes` of offsets and codes; `waiting` changes are
    left for the next time. An owner may be named by several changes.
    """

    written: int
    chunks: int
    bytes: int
    waiting: int


def vector_pieces_due(connection: Connection, *, busy: bool = False) -> bool:
    """Whether enough waits to be worth a run: anything before the serving model is coded, then 500 changes.

    `busy`: other work waits that brings vectors of its own; then 2,000, of vectors before the model is coded.
    """
    model = connection.execute("SELECT id, coded FROM ros_embedding_models WHERE serving").fetchone()
    if model is None:
        return False
    least = LEAST_BEHIND_BUSY if busy else LEAST_BEHIND if model["coded"] else 1
    # Counts no further than that: it is asked every second.
    if model["coded"]:
        query = "SELECT count(*) AS n FROM (SELECT FROM ros_vector_changes WHERE model_id = %s LIMIT %s) AS c"
    else:
        query = """SELECT count(*) AS n FROM (SELECT FROM ros_embeddings
                   WHERE model_id = %s AND owner_kind IN ('message', 'summary') LIMIT %s) AS c"""
    found = connection.execute(query, [model["id"], least]).fetchone()
    return found is not None and found["n"] >= least


def refresh_vector_pieces(connection: Connection) -> VectorPieceFigures:
    """Codes what came, changed or went since the last time; all of the serving model when it is not coded yet.

    Commits range by range. Of two at once the second waits until the first is done. Pieces and changes of models that
    do not serve are deleted, so that one that begins to serve is coded from the start.
    """
    with _alone(connection):
        _forget_others(connection)
        _centre(connection)
        model = connection.execute("SELECT id, coded, centre FROM ros_embedding_models WHERE serving").fetchone()
        if model is None:
            return VectorPieceFigures(0, 0, 0, 0)
        try:
            written = _code(connection, model["id"], whole=not model["coded"]) if model["centre"] is not None else 0
        finally:
            if not connection.closed:
                connection.execute("DROP TABLE IF EXISTS ros_noted_vector_changes")
        row = connection.execute(
            """SELECT coalesce(sum(rows), 0)::bigint AS chunks,
                      coalesce(sum(octet_length(offsets) + octet_length(codes)), 0)::bigint AS bytes,
                      (SELECT count(*) FROM ros_vector_changes WHERE model_id = %(model)s) AS waiting
               FROM ros_vector_pieces WHERE model_id = %(model)s""",
            {"model": model["id"]},
        ).fetchone()
        assert row is not None  # an aggregate
        return VectorPieceFigures(written, row["chunks"], row["bytes"], row["waiting"])


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Lets no other refresh work until the end of the block: its changes were read before ours would be written."""
    connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _forget_others(connection: Connection) -> None:
    with connection.transaction():
        # The lock on a model's row keeps it from beginning to serve in between. A row that somebody else has locked
        # is left for the next time: nobody waits here.
        connection.execute(
            """WITH others AS (
                   SELECT id FROM ros_embedding_models AS k
                   WHERE NOT serving AND (coded OR EXISTS (SELECT FROM ros_vector_pieces WHERE model_id = k.id)
                                          OR EXISTS (SELECT FROM ros_vector_changes WHERE model_id = k.id))
                   FOR NO KEY UPDATE SKIP LOCKED),
               pieces AS (DELETE FROM ros_vector_pieces USING others WHERE model_id = others.id),
               changes AS (DELETE FROM ros_vector_changes USING others WHERE model_id = others.id)
               UPDATE ros_embedding_models AS k SET coded = false, centre = NULL, centred_on = 0
               FROM others WHERE k.id = others.id"""
        )
        connection.execute(
            """DELETE FROM ros_vector_changes AS c
               WHERE NOT EXISTS (SELECT FROM ros_embedding_models AS k WHERE k.id = c.model_id)"""
        )


def _centre(connection: Connection) -> None:
    """Gives the model that serves its centre, and another one while the former is of few vectors.

    Its pieces go with the former centre, in one transaction. Nothing is waited for: a model whose row somebody has
    locked is left for the next time.
    """
    with connection.transaction():
        connection.execute(
            """WITH due AS (
                   SELECT k.id FROM ros_embedding_models AS k
                   WHERE k.serving AND (k.centre IS NULL OR k.centred_on < %(enough)s AND %(growth)s * k.centred_on < (
                       SELECT count(*) FROM (
                           SELECT FROM ros_embeddings AS e
                           WHERE e.model_id = k.id AND e.owner_kind IN ('message', 'summary')
                           LIMIT %(growth)s * k.centred_on + 1) AS many))
                   FOR NO KEY UPDATE SKIP LOCKED),
               sample AS (
                   SELECT l2_normalize(e.embedding) AS unit FROM ros_embeddings AS e
                   WHERE e.model_id = (SELECT id FROM due) AND e.owner_kind IN ('message', 'summary') LIMIT %(enough)s),
               gone AS (DELETE FROM ros_vector_pieces USING due WHERE model_id = due.id)
               UPDATE ros_embedding_models AS k SET coded = false, centre = s.mean, centred_on = s.number
               FROM due, (SELECT avg(unit) AS mean, count(*) AS number FROM sample) AS s
               WHERE k.id = due.id AND s.number > 0""",
            {"enough": _CENTRED_ON, "growth": _GROWTH},
        )


def _code(connection: Connection, model: int, *, whole: bool) -> int:
    """Writes the pieces of all ranges with changes, with `whole` also those that are not there; how many."""
    _note_changes(connection, model)
    written = 0
    for source in _TABLES:
        for number in sorted(_noted_ranges(connection, source) | _new_ranges(connection, model, source, whole=whole)):
            written += _write_piece(connection, model, source, number)
    if whole:
        # Without any vector it stays as it is: the first ones shall not wait until they are many. Nor is it waited for
        # whoever makes another model serve.
        connection.execute(
            """UPDATE ros_embedding_models SET coded = true
               WHERE id = (SELECT id FROM ros_embedding_models WHERE id = %(model)s FOR NO KEY UPDATE SKIP LOCKED)
                 AND EXISTS (SELECT FROM ros_embeddings
                             WHERE model_id = %(model)s AND owner_kind IN ('message', 'summary'))""",
            {"model": model},
        )
    return written


def _note_changes(connection: Connection, model: int) -> None:
    """Reads the changes into a table of this session, with the ranges of their owners.

    Any later statement sees the vectors that they tell of. Changes whose owner does not exist any more are deleted.
    """
    connection.execute("DROP TABLE IF EXISTS ros_noted_vector_changes")
    connection.execute(
        "CREATE TEMP TABLE ros_noted_vector_changes (change bigint NOT NULL, source text NOT NULL, number integer)"
    )
    connection.execute(
        """INSERT INTO ros_noted_vector_changes (change, source, number)
           SELECT c.change, c.source, coalesce(m.seq, s.seq) / %s
           FROM ros_vector_changes AS c
           LEFT JOIN ros_messages AS m ON c.source = 'message' AND m.id = c.owner_id
           LEFT JOIN ros_summaries AS s ON c.source = 'summary' AND s.id = c.owner_id
           WHERE c.model_id = %s""",
        [RANGE, model],
    )
    connection.execute("CREATE INDEX ON ros_noted_vector_changes (source, number)")
    connection.execute("ANALYZE ros_noted_vector_changes")
    connection.execute(
        "DELETE FROM ros_vector_changes AS c USING ros_noted_vector_changes AS n "
        "WHERE n.number IS NULL AND c.change = n.change"
    )


def _noted_ranges(connection: Connection, source: Source) -> set[int]:
    rows = connection.execute(
        "SELECT DISTINCT number FROM ros_noted_vector_changes WHERE source = %s AND number IS NOT NULL", [source]
    ).fetchall()
    return {row["number"] for row in rows}


def _new_ranges(connection: Connection, model: int, source: Source, *, whole: bool) -> set[int]:
    """Ranges that have no piece, and of which a refresh that broke off may not have looked; none unless `whole`."""
    if not whole:
        return set()
    last = connection.execute(
        sql.SQL("SELECT coalesce(max(seq) / %s, -1) AS number FROM {}").format(sql.Identifier(_TABLES[source])), [RANGE]
    ).fetchone()
    assert last is not None  # an aggregate
    there = connection.execute(
        "SELECT number FROM ros_vector_pieces WHERE model_id = %s AND source = %s", [model, source]
    ).fetchall()
    return set(range(last["number"] + 1)) - {row["number"] for row in there}


def _write_piece(connection: Connection, model: int, source: Source, number: int) -> int:
    """Replaces the piece of a range and removes its noted changes; how many pieces were written, 0 or 1."""
    place = {"model": model, "source": source, "number": number}
    bounds = {"first": number * RANGE, "end": (number + 1) * RANGE, "threshold": THRESHOLD, "least": LEAST_SQUARE}
    write = sql.SQL(statement("write_vector_piece")).format(table=sql.Identifier(_TABLES[source]))
    with connection.transaction():
        connection.execute(
            "DELETE FROM ros_vector_pieces WHERE model_id = %(model)s AND source = %(source)s AND number = %(number)s",
            place,
        )
        written = connection.execute(write, place | bounds).rowcount
        connection.execute(
            """DELETE FROM ros_vector_changes AS c USING ros_noted_vector_changes AS n
               WHERE n.source = %(source)s AND n.number = %(number)s AND c.change = n.change""",
            place,
        )
    return written
