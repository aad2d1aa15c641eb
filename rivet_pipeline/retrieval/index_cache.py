"""What this process keeps of the text index: documents, postings of words that were asked for, new rows.

Pieces never change, so whatever was read of one stays true; each search asks the store which pieces are in force.
Nothing here can make an answer stale, and nothing here outlives a process. One copy serves all threads.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import number_array, statement
from rivet_pipeline.retrieval.index_pieces import newest
from rivet_pipeline.retrieval.index_rows import PieceBuilder, read_rows
from rivet_pipeline.retrieval.postings import (
    EMPTY,
    HIDDEN,
    Array,
    Documents,
    PostingRow,
    Postings,
    find_postings,
)
from rivet_pipeline.retrieval.types import Source

#: What the postings may take in memory; the least recently used go first.
MOST_POSTING_BYTES = 96 * 1024 * 1024

#: Sets of pieces that are kept joined; one is in force, another perhaps still read by a search that began before.
_CORPORA = 2

#: Postings of unindexed rows that are gone through for each word before they are sorted to the others: about a hundred
#: messages' words.
_MOST_LATEST = 8_192

#: Databases whose unindexed rows are kept; a process has one, tests have many.
_DATABASES = 4

#: How old the counts of accesses may be by which candidates are chosen (their scores take the counts of the moment).
_BOOST_SECONDS = 30.0

#: Conversations whose ids are kept for one database, at 150 bytes each.
_MOST_CONVERSATIONS = 200_000

#: The sign of a table's rows in `signed` numbers.
_SIGNS: dict[Source, int] = {"message": 1, "summary": -1}


class Boosts(NamedTuple):
    """Rows (`signed`, ascending), how often each was returned, and when last, in seconds since 1970."""

    numbers: Array
    accesses: Array
    last: Array


class IndexMovedError(Exception):
    """A piece was replaced between two statements of a search, which must begin again."""


@dataclass(frozen=True, slots=True)
class PieceName:
    """One piece in force."""

    id: int
    token: str
    source: Source


class KnownMessages(NamedTuple):
    """That a database (by its oid) has a message of every number after one and up to another.

    Messages are never deleted, so this stays true, and need not be listed at every search. One that is committed late,
    below others, is beyond the first number that is missing.
    """

    database: int = 0
    after: int = 0
    to: int = 0


class Known(NamedTuple):
    """Sequence numbers of a table, and a flag for each up to the highest of them: whether it is one of these."""

    numbers: Array
    flags: Array


@dataclass(frozen=True)
class Corpus:
    """All documents of a set of pieces, one after the other, messages first; immutable."""

    pieces: tuple[PieceName, ...]
    #: Where each piece begins, and at the end how many documents there are.
    starts: tuple[int, ...]
    documents: Documents
    #: How many of the documents are messages.
    messages: int
    #: Which documents are in force: of two versions of a row the newer one.
    alive: Array
    #: What others compute of these documents and keep with them, by name; all write the same.
    kept: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.documents)

    @cached_property
    def is_message(self) -> Array:
        """Which documents are messages."""
        return np.arange(len(self)) < self.messages

    @cached_property
    def counted(self) -> Array:
        """The documents that BM25 counts: in force, with a word."""
        counted: Array = self.alive & (self.documents.flags & EMPTY == 0)
        return counted

    @cached_property
    def count(self) -> int:
        """How many these are."""
        return int(np.count_nonzero(self.counted))

    @cached_property
    def total_length(self) -> int:
        """The bytes of text in them."""
        return int(self.documents.length[self.counted].sum(dtype=np.int64))

    @cached_property
    def has_dead(self) -> bool:
        """Whether any document is not in force."""
        return not bool(self.alive.all())

    @cached_property
    def session_numbers(self) -> Array:
        """Each document's conversation for the sessions' scores: 0 for what is no part of any, summaries among it."""
        numbers: Array = np.where(self.counted & (self.documents.flags & HIDDEN == 0), self.documents.conversation, 0)
        numbers[self.messages :] = 0
        return numbers

    @cached_property
    def session_lengths(self) -> Array:
        """The bytes of text of each conversation, by its number."""
        lengths: Array = np.bincount(self.session_numbers, weights=self.documents.length, minlength=1)
        lengths[0] = 0
        return lengths

    @cached_property
    def _order(self) -> tuple[Array, Array]:
        keys = self.documents.seq.copy()
        keys[self.messages :] *= -1
        places = np.flatnonzero(self.alive)
        order = places[np.argsort(keys[places], kind="stable")]
        return keys[order], order

    def part(self, source: Source) -> slice:
        """The positions of a table's documents."""
        return slice(0, self.messages) if source == "message" else slice(self.messages, len(self))

    def known(self, source: Source) -> Known:
        """The rows of a table that are documents."""
        kept = self.kept.get(source)
        if kept is None:
            numbers = self.documents.seq[self.part(source)]
            flags = np.zeros(int(numbers.max(initial=0)) + 1, dtype=bool)
            flags[numbers] = True
            kept = self.kept[source] = Known(numbers, flags)
        known: Known = kept
        return known

    def places(self, keys: Array) -> Array:
        """Where the rows of the given keys (a summary's sequence number is negative) stand; -1: nowhere."""
        ordered, order = self._order
        if not len(ordered):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
        return np.where(ordered[at] == keys, order[at], -1)


class LivePostings(NamedTuple):
    """For each posting, by position: the term's key, the document, the frequency."""

    keys: Array
    owners: Array
    frequencies: Array

    @classmethod
    def none(cls) -> LivePostings:
        """No posting."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype="u1"))

    def joined(self, other: LivePostings) -> LivePostings:
        """These and then others."""
        return LivePostings(*map(np.append, self, other))

    def ordered(self) -> LivePostings:
        """The same, ascending by key; of one key as they stand here."""
        order = np.argsort(self.keys, kind="stable")
        return LivePostings(*(column[order] for column in self))


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Rows that the index has not, as one further piece; `alive` are those that this search is to see."""

    documents: Documents
    messages: Array
    alive: Array
    #: Postings that ascend by key, and behind them the latest as they came.
    by_key: LivePostings
    latest: LivePostings

    def postings(self, key: int) -> tuple[Array, Array]:
        """The documents in force that hold a term, and how often."""
        start, end = np.searchsorted(self.by_key.keys, (key, key + 1)).tolist()
        at = np.flatnonzero(self.latest.keys == key)
        owners = np.concatenate([self.by_key.owners[start:end], self.latest.owners[at]])
        frequencies = np.concatenate([self.by_key.frequencies[start:end], self.latest.frequencies[at]])
        alive = self.alive[owners]
        return owners[alive], frequencies[alive]


class _Live:
    """The unindexed rows of one database that were read so far. Its arrays are replaced, never changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        # By the rows' numbers, which ascend: the change that was read of each, and its place among the documents.
        self._numbers = np.empty(0, dtype=np.int64)
        self._changes = np.empty(0, dtype=np.int64)
        self._places = np.empty(0, dtype=np.int64)
        self._documents = PieceBuilder().documents()
        self._messages = np.empty(0, dtype=bool)
        self._by_key = self._latest = LivePostings.none()

    def view(self, connection: Connection, wanted: Array, changes: Array) -> LiveRows:
        """The wanted rows (`signed`), each at least of the change that is asked for; what is not there yet is read."""
        with self._lock:
            if len(self._documents) > 2 * len(wanted) + 1_000:
                self._clear()
            at = self._find(wanted)
            missing = (at < 0) | (self._changes[at] < changes) if len(self._numbers) else np.ones(len(wanted), bool)
            for source, sign in _SIGNS.items():
                some = missing & (wanted * sign > 0)
                if some.any():
                    self._read(
                        connection, source, dict(zip(wanted[some].tolist(), changes[some].tolist(), strict=True))
                    )
            at = self._find(wanted)
            alive = np.zeros(len(self._documents), dtype=bool)
            alive[self._places[at[at >= 0]]] = True
            return LiveRows(self._documents, self._messages, alive, self._by_key, self._latest)

    def _find(self, wanted: Array) -> Array:
        """Where the rows stand among the numbers, -1 for what was never read."""
        if not len(self._numbers):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._numbers, wanted), len(self._numbers) - 1)
        return np.where(self._numbers[at] == wanted, at, -1)

    def _read(self, connection: Connection, source: Source, changes: dict[int, int]) -> None:
        """Reads the rows of the given numbers, and says of each that it is as of the given change."""
        builder = PieceBuilder()
        for row in read_rows(connection, source, [abs(number) for number in changes]):
            builder.add(row, keep_empty=True)
        if not len(builder):
            return
        start, documents = len(self._documents), builder.documents()
        owners = np.repeat(np.arange(start, start + len(documents), dtype=np.int32), builder.sizes)
        self._documents = Documents.join([self._documents, documents])
        self._messages = np.append(self._messages, np.full(len(documents), source == "message"))
        keys = builder.keys()[np.frombuffer(builder.numbers, dtype="u4")]
        frequencies = np.frombuffer(builder.frequencies, dtype="u1")
        self._latest = self._latest.joined(LivePostings(keys, owners, frequencies))
        if len(self._latest.keys) > _MOST_LATEST:
            self._by_key, self._latest = self._by_key.joined(self._latest).ordered(), LivePostings.none()
        read = documents.seq * _SIGNS[source]
        former = ~np.isin(self._numbers, read)
        numbers = np.concatenate([self._numbers[former], read])
        order = np.argsort(numbers)
        self._numbers = numbers[order]
        self._changes = np.concatenate([self._changes[former], [changes[number] for number in read.tolist()]])[order]
        places = np.arange(start, start + len(documents))
        self._places = np.concatenate([self._places[former], places])[order]


class IndexCache:
    """All that is kept, for whatever databases this process searches."""

    def __init__(self, *, most_bytes: int = MOST_POSTING_BYTES) -> None:
        self._lock = threading.Lock()
        self._most_bytes = most_bytes
        self._bytes = 0
        self._postings: OrderedDict[tuple[str, int], Postings | None] = OrderedDict()
        self._corpora: OrderedDict[tuple[str, ...], Corpus] = OrderedDict()
        self._live: OrderedDict[tuple[Any, ...], _Live] = OrderedDict()
        self._known: OrderedDict[tuple[Any, ...], KnownMessages] = OrderedDict()
        self._boosts: OrderedDict[tuple[Any, ...], tuple[float, Boosts]] = OrderedDict()
        self._conversations: OrderedDict[tuple[Any, ...], dict[int, str]] = OrderedDict()

    def corpus(self, connection: Connection, pieces: Sequence[PieceName]) -> Corpus:
        """The documents of the given pieces. Raises `IndexMovedError` when one is no longer there."""
        tokens = tuple(piece.token for piece in pieces)
        with self._lock:
            known = self._corpora.get(tokens)
            if known is not None:
                self._corpora.move_to_end(tokens)
                return known
            former = list(self._corpora.values())
        parts: dict[str, Documents] = {}
        for corpus in former:
            for piece, start, end in zip(corpus.pieces, corpus.starts, corpus.starts[1:], strict=False):
                if piece.token in tokens and piece.token not in parts:
                    parts[piece.token] = corpus.documents.take(slice(start, end))
        parts |= _read_pieces(connection, [piece for piece in pieces if piece.token not in parts])
        made = _join(pieces, parts)
        with self._lock:
            for corpus in self._corpora.values():
                # Only searches that are under way ask for it; what is large can be made again.
                corpus.kept.pop("hits", None)
            self._corpora[tokens] = made
            while len(self._corpora) > _CORPORA:
                self._corpora.popitem(last=False)
        return made

    def postings(
        self, connection: Connection, pieces: Sequence[PieceName], keys: Sequence[int]
    ) -> dict[int, list[Postings | None]]:
        """By key, the postings in each of the pieces. Raises `IndexMovedError` when a piece is no longer there."""
        found: dict[tuple[str, int], Postings | None] = {}
        with self._lock:
            for piece in pieces:
                for key in keys:
                    name = (piece.token, key)
                    if name in self._postings:
                        self._postings.move_to_end(name)
                        found[name] = self._postings[name]
        wanted = [(piece, key) for key in keys for piece in pieces if (piece.token, key) not in found]
        if wanted:
            read = _read_postings(connection, wanted)
            found |= read
            self._keep(read)
        return {key: [found[piece.token, key] for piece in pieces] for key in keys}

    @property
    def bytes_kept(self) -> int:
        """About what the postings take in memory."""
        return self._bytes

    def _keep(self, read: dict[tuple[str, int], Postings | None]) -> None:
        with self._lock:
            for name, postings in read.items():
                if name not in self._postings:
                    self._bytes += _size(postings)
                    self._postings[name] = postings
            while self._bytes > self._most_bytes and self._postings:
                self._bytes -= _size(self._postings.popitem(last=False)[1])

    def known_messages(self, connection: Connection) -> KnownMessages:
        """What `know_messages` was told last of this database."""
        with self._lock:
            return self._known.get(_address(connection), KnownMessages())

    def know_messages(self, connection: Connection, known: KnownMessages) -> None:
        """Keeps what a search has learned for the next one."""
        name = _address(connection)
        with self._lock:
            self._known[name] = known
            _keep_latest(self._known, name)

    def live(self, connection: Connection, database: int, wanted: Array, changes: Array) -> LiveRows:
        """The given rows (`signed`) of the given database (its oid), and of each the change that is at least seen."""
        name = (*_address(connection), database)
        with self._lock:
            live = self._live.setdefault(name, _Live())
            _keep_latest(self._live, name)
        return live.view(connection, wanted, changes)

    def boosts(self, connection: Connection, database: int) -> Boosts:
        """The rows that were returned often, as they were at most half a minute ago."""
        name = (*_address(connection), database)
        with self._lock:
            kept = self._boosts.get(name)
            if kept is not None and time.monotonic() < kept[0]:
                return kept[1]
        read = _read_boosts(connection)
        with self._lock:
            self._boosts[name] = (time.monotonic() + _BOOST_SECONDS, read)
            _keep_latest(self._boosts, name)
        return read

    def conversations(self, connection: Connection, database: int, numbers: Sequence[int]) -> list[str | None]:
        """The ids of conversations by their numbers, which never change; None for a number that none has."""
        name = (*_address(connection), database)
        with self._lock:
            known = self._conversations.setdefault(name, {})
            _keep_latest(self._conversations, name)
            found = {number: known[number] for number in numbers if number in known}
        missing = [number for number in numbers if number not in found]
        if missing:
            read = _read_conversations(connection, missing)
            found |= read
            with self._lock:
                if len(known) > _MOST_CONVERSATIONS:
                    known.clear()
                known |= read
        return [found.get(number) for number in numbers]


#: The one of this process.
CACHE = IndexCache()


def _address(connection: Connection) -> tuple[str, int, str]:
    """Where a connection's database is, whichever one has the name at the moment."""
    info = connection.info
    return info.host, info.port, info.dbname


def _keep_latest(kept: OrderedDict[tuple[Any, ...], Any], name: tuple[Any, ...]) -> None:
    """Makes a database the one that was used last, and forgets those that were not used for longest."""
    kept.move_to_end(name)
    while len(kept) > _DATABASES:
        kept.popitem(last=False)


def _size(postings: Postings | None) -> int:
    return 200 if postings is None else postings.size


def _read_pieces(connection: Connection, pieces: list[PieceName]) -> dict[str, Documents]:
    if not pieces:
        return {}
    rows = connection.execute(
        "SELECT token::text, agents, columns FROM ros_index_pieces WHERE token = ANY (%s::uuid[])",
        [[piece.token for piece in pieces]],
        binary=True,
    ).fetchall()
    if len(rows) < len(pieces):
        raise IndexMovedError
    return {row["token"]: Documents.unpack(row["columns"], row["agents"]) for row in rows}


def _join(pieces: Sequence[PieceName], parts: dict[str, Documents]) -> Corpus:
    ordered = tuple(sorted(pieces, key=lambda piece: (piece.source != "message", piece.id)))
    lengths = [len(parts[piece.token]) for piece in ordered]
    messages = sum(length for piece, length in zip(ordered, lengths, strict=True) if piece.source == "message")
    alive = np.concatenate(
        [
            newest([parts[piece.token].seq for piece in ordered if piece.source == source])
            for source in ("message", "summary")
        ]
    )
    return Corpus(
        pieces=ordered,
        starts=(0, *np.cumsum(lengths, dtype=np.int64).tolist()),
        documents=Documents.join([parts[piece.token] for piece in ordered]),
        messages=messages,
        alive=alive,
    )


def _read_postings(
    connection: Connection, wanted: list[tuple[PieceName, int]]
) -> dict[tuple[str, int], Postings | None]:
    rows = connection.execute(
        statement("read_postings"),
        {"pieces": [piece.id for piece, _ in wanted], "keys": [key for _, key in wanted]},
        binary=True,
    ).fetchall()
    if len(rows) < len(wanted):
        raise IndexMovedError
    found: dict[tuple[str, int], Postings | None] = {}
    for row in rows:
        piece, key = wanted[row.pop("place") - 1]
        found[piece.token, key] = None if row["data"] is None else find_postings(PostingRow(**row), key)
    return found


def _read_conversations(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    rows = connection.execute(
        "SELECT number, id::text FROM ros_conversations WHERE number = ANY (%s::integer[])", [number_array(numbers)]
    ).fetchall()
    return {row["number"]: row["id"] for row in rows}


def _read_boosts(connection: Connection) -> Boosts:
    # One access or two hardly move the clock; of very many rows the last returned ones are the freshest.
    rows = connection.execute(
        """SELECT f.number, f.access_count, extract(epoch FROM f.last_accessed_at)::float8 AS last FROM (
               SELECT coalesce(m.seq, -s.seq) AS number, a.access_count, a.last_accessed_at
               FROM (SELECT * FROM ros_access WHERE access_count > 2 ORDER BY last_accessed_at DESC LIMIT 1000) AS a
               LEFT JOIN ros_messages AS m ON a.kind = 'message' AND m.id = a.id
               LEFT JOIN ros_summaries AS s ON a.kind = 'summary' AND s.id = a.id) AS f
           WHERE f.number IS NOT NULL ORDER BY f.number"""
    ).fetchall()
    return Boosts(
        np.array([row["number"] for row in rows], dtype=np.int64),
        np.array([row["access_count"] for row in rows], dtype=np.float64),
        np.array([row["last"] for row in rows], dtype=np.float64),
    )
