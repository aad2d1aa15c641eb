"""The pieces of the text index in the store: writing one, and making one of several.

Each function belongs into a transaction of its caller, who holds the index' lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.index_rows import PieceBuilder
from rivet_pipeline.retrieval.postings import (
    COLUMN_BYTES,
    FORM,
    MOST_DOCUMENTS,
    Array,
    Documents,
    PostingRow,
    decode_row,
    encode_postings,
)
from rivet_pipeline.retrieval.types import Source

#: Postings of one piece: what is held in memory while it is made, some 40 bytes for each.
MOST_POSTINGS = 8_000_000

#: So many pieces of a table that are not full yet are left alone: a search looks into each.
_MOST_SMALL = 8

#: Keys are gone through in so many ranges when pieces are joined, to bound what is held in memory.
_RANGES = 16
_KEYS = 2**63


@dataclass(frozen=True, slots=True)
class Piece:
    """A stored piece without its contents."""

    id: int
    source: Source
    documents: int
    postings: int
    #: As `postings.FORM` has it.
    form: int

    @property
    def is_small(self) -> bool:
        """Whether it could still be joined with others."""
        return 2 * self.documents < MOST_DOCUMENTS and 2 * self.postings < MOST_POSTINGS


def list_pieces(connection: Connection, source: Source) -> list[Piece]:
    """The pieces of one table, oldest first."""
    rows = connection.execute(
        """SELECT id, source, documents, postings, octet_length(columns) - %s * documents AS form
           FROM ros_index_pieces WHERE source = %s ORDER BY id""",
        [COLUMN_BYTES, source],
    ).fetchall()
    return [Piece(**row) for row in rows]


def write_built(connection: Connection, source: Source, builder: PieceBuilder) -> None:
    """Stores what was collected as a new piece; nothing when nothing was."""
    if not len(builder):
        return
    piece = _write_piece(connection, source, builder.documents(), len(builder.numbers), FORM)
    keys, counts, ordinals, frequencies = builder.sorted_postings()
    _write_rows(connection, piece, encode_postings(keys, counts, ordinals, frequencies, len(builder)))


def _write_piece(connection: Connection, source: Source, documents: Documents, postings: int, form: int) -> int:
    row = connection.execute(
        """INSERT INTO ros_index_pieces (source, documents, postings, agents, columns)
           VALUES (%s, %s, %s, %s, %b) RETURNING id""",
        [source, len(documents), postings, Jsonb(documents.names), documents.pack() + bytes(form)],
    ).fetchone()
    assert row is not None  # an INSERT of one row
    return int(row["id"])


def _write_rows(connection: Connection, piece: int, rows: Iterable[PostingRow]) -> None:
    with connection.cursor().copy(
        "COPY ros_postings (piece_id, first_key, last_key, terms, data) FROM STDIN (FORMAT BINARY)"
    ) as copy:
        copy.set_types(["int4", "int8", "int8", "int4", "bytea"])
        for row in rows:
            copy.write_row((piece, row.first_key, row.last_key, row.terms, row.data))


def crowded(pieces: list[Piece]) -> list[Piece]:
    """The pieces to be made one, the smallest of too many small ones; none when there are few enough."""
    small = sorted((piece for piece in pieces if piece.is_small), key=lambda piece: (piece.postings, piece.id))
    if len(small) <= _MOST_SMALL:
        return []
    chosen: list[Piece] = []
    documents = postings = 0
    for piece in small:
        documents += piece.documents
        postings += piece.postings
        if documents > MOST_DOCUMENTS or postings > MOST_POSTINGS:
            break
        chosen.append(piece)
    return chosen


def join_pieces(connection: Connection, source: Source, ids: list[int]) -> None:
    """Makes one piece of the given ones, without the rows that a newer piece has. One alone is written anew."""
    every = _read_documents(connection, source)
    alive = _alive({piece: documents.seq for piece, documents in every.items()})
    joined = Documents.join([every[piece].take(np.flatnonzero(alive[piece])) for piece in ids])
    order = np.argsort(joined.seq, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ordinals: dict[int, Array] = {}
    start = 0
    for piece in ids:
        mine = np.full(len(every[piece]), -1, dtype=np.int64)
        count = int(alive[piece].sum())
        mine[alive[piece]] = place[start : start + count]
        ordinals[piece] = mine
        start += count
    if len(joined):
        form = min(piece.form for piece in list_pieces(connection, source) if piece.id in ids)
        new = _write_piece(connection, source, joined.take(order), 0, form)
        postings = 0
        for part in _joined_postings(connection, ordinals):
            postings += len(part[2])
            _write_rows(connection, new, encode_postings(*part, len(joined)))
        connection.execute("UPDATE ros_index_pieces SET postings = %s WHERE id = %s", [postings, new])
    connection.execute("DELETE FROM ros_index_pieces WHERE id = ANY (%s)", [ids])


def outlived(connection: Connection, source: Source) -> list[int]:
    """The large pieces of which most rows stand in newer ones. Small ones are joined with others in time."""
    large = {piece.id for piece in list_pieces(connection, source) if not piece.is_small}
    if not large:
        return []
    alive = _alive({piece: documents.seq for piece, documents in _read_documents(connection, source).items()})
    return [piece for piece, those in alive.items() if piece in large and 2 * np.count_nonzero(those) < len(those)]


def pieces_of(connection: Connection, source: Source, seqs: Array) -> list[int]:
    """The pieces that hold a row of the given sequence numbers, in force or not."""
    every = _read_documents(connection, source)
    return [piece for piece, documents in every.items() if np.isin(seqs, documents.seq).any()]


def _read_documents(connection: Connection, source: Source) -> dict[int, Documents]:
    rows = connection.execute(
        "SELECT id, agents, columns FROM ros_index_pieces WHERE source = %s ORDER BY id", [source], binary=True
    ).fetchall()
    return {row["id"]: Documents.unpack(row["columns"], row["agents"]) for row in rows}


def _alive(seqs: dict[int, Array]) -> dict[int, Array]:
    """For each piece, oldest first, which of its rows stand in no newer one."""
    alive = newest(list(seqs.values()))
    ends = np.cumsum([len(each) for each in seqs.values()])
    return dict(zip(seqs, np.split(alive, ends[:-1]) if len(ends) else [], strict=True))


def newest(seqs: list[Array]) -> Array:
    """Of the rows of several pieces, oldest first and one after the other, which ones stand in no newer piece."""
    every = np.concatenate(seqs or [np.empty(0, dtype=np.int64)])
    if _are_apart(seqs):
        return np.ones(len(every), dtype=bool)
    order = np.argsort(every, kind="stable")
    ordered = every[order]
    last = np.ones(len(every), dtype=bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    alive = np.zeros(len(every), dtype=bool)
    alive[order[last]] = True
    return alive


def _are_apart(seqs: list[Array]) -> bool:
    """Whether no row stands twice, told without sorting: each piece ascends, and none reaches into another."""
    held = sorted((each for each in seqs if len(each)), key=lambda each: int(each[0]))
    ends = all(int(first[-1]) < int(second[0]) for first, second in pairwise(held))
    return ends and all(bool((each[1:] > each[:-1]).all()) for each in held)


def _joined_postings(connection: Connection, ordinals: dict[int, Array]) -> Iterator[tuple[Array, Array, Array, Array]]:
    """The postings of all the pieces with their new ordinals, a range of keys at a time."""
    step = _KEYS // _RANGES
    for low in range(0, _KEYS, step):
        keys, places, times = [], [], []
        rows = connection.execute(
            """SELECT piece_id, first_key, last_key, terms, data FROM ros_postings
               WHERE piece_id = ANY (%s) AND first_key <= %s AND last_key >= %s""",
            [list(ordinals), low + step - 1, low],
            binary=True,
        ).fetchall()
        for row in rows:
            piece = row.pop("piece_id")
            found, counts, old, frequencies = decode_row(PostingRow(**row))
            new = ordinals[piece][old]
            each = np.repeat(found, counts)
            kept = (new >= 0) & (each >= low) & (each <= low + step - 1)
            keys.append(each[kept])
            places.append(new[kept])
            times.append(frequencies[kept])
        if keys:
            yield _in_order(np.concatenate(keys), np.concatenate(places), np.concatenate(times))


def _in_order(keys: Array, places: Array, times: Array) -> tuple[Array, Array, Array, Array]:
    order = np.lexsort((places, keys))
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
    counts = np.diff(np.append(starts, len(keys)))
    return keys[starts], counts, places[order].astype("<u2"), times[order]


def has_older(connection: Connection) -> bool:
    """Whether any piece is of an older form."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM ros_index_pieces WHERE octet_length(columns) - %s * documents < %s) AS older",
        [COLUMN_BYTES, FORM],
    ).fetchone()
    return row is not None and bool(row["older"])


def older_piece(connection: Connection, source: Source) -> tuple[int, Array] | None:
    """The first piece of an older form, and the numbers of its rows that are in force; None when there is none."""
    old = next((piece.id for piece in list_pieces(connection, source) if piece.form < FORM), None)
    if old is None:
        return None
    every = {piece: documents.seq for piece, documents in _read_documents(connection, source).items()}
    return old, every[old][_alive(every)[old]]


def raise_form(connection: Connection, piece: int) -> None:
    """Notes that a piece's rows are in the present form, here or in a newer piece."""
    # Behind the columns, where nobody who has read them looks.
    connection.execute(
        "UPDATE ros_index_pieces SET columns = substr(columns, 1, %s * documents) || %b WHERE id = %s",
        [COLUMN_BYTES, bytes(FORM), piece],
    )


def forget_everything(connection: Connection) -> None:
    """Empties the index and the statistics, to be made again."""
    connection.execute("DELETE FROM ros_index_pieces")
    connection.execute("DELETE FROM ros_lexicon")
    connection.execute(
        "UPDATE ros_corpus SET documents = 0, total_length = 0, last_message_seq = 0, last_summary_seq = 0"
    )
