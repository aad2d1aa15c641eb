"""Which rows within a filter are worth comparing with their vectors: two bits a dimension of every vector, in memory.

A graph is walked from the nearest row on, so a filter that few rows pass makes the walk long. Codes are compared for
all rows within the filter and nothing else: first bit by bit, and the nearest ones with the query's own components. The
first bit of a dimension says on which side of the mean of all vectors a component lies, the second whether it lies far
from it. What is chosen is compared exactly by the caller. Pieces never change (`vector_pieces.py`), so what was read of
one stays true; each search asks the store which are in force.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.postings import Array
from rivet_pipeline.retrieval.text_scoring import Numbers, distinct, top
from rivet_pipeline.retrieval.types import Source

#: Owners of a piece at most, by their numbers: an offset has two bytes, and one is written in a fraction of a second.
RANGE = 16_384

#: The codes of one table may take so much memory; with more of them the graph is walked. A million vectors of 1,024
#: dimensions have 268 MB.
MOST_BYTES = 384 * 1024 * 1024

#: Tables whose codes are kept: those of messages and of summaries, for two databases.
_KEPT = 4

#: Rows with changed vectors that are compared exactly beside the chosen ones; with more of them the graph is walked.
MOST_CHANGED = 2_000

#: Chunks that are compared with the query's components, after bits alone, for each row that is chosen.
_NEAR_EACH = 48

#: Of a larger scope the first quarter of the bits (two words at least) says first which chunks are compared whole: so
#: many for each that is to be near. It loses 0.004 of the 10 nearest of 333,000 rows.
_FIRST_EACH = 12
_FIRST_WORDS = 2

#: Of more chunks than this, and at least so many, only every so many are counted (`_fewest`).
_COUNTED = 20_000

#: Which share of the wanted ones must have come for that to do.
_ENOUGH = 0.9

#: In how many bits the amount of each of a query's components is told; of a vector's far less is known.
_QUERY_BITS = 4

#: The same of the mean's components, of which each vector's length is told once.
_CENTRE_BITS = 12

#: The least that unit vectors lie from their mean, squared.
LEAST_SQUARE = 1e-3

#: What a component of normal distribution is told by in two bits with the least error, in deviations: how far from the
#: mean it counts as far, and what stands for a near one and for a far one (J. Max, Quantizing for minimum distortion,
#: 1960).
THRESHOLD = 0.9816
_NEAR_VALUE, _FAR_VALUE = 0.4528, 1.5104

_WORD_BITS, _WORD_BYTES = 64, 8

#: What a chunk has in memory beside its bits: its owner and its length.
_FURTHER_BYTES = 12


class Part(NamedTuple):
    """The codes of one piece: the chunks' owners, then for each chunk its first and its second bits and its length.

    `first` has a line for 64 dimensions, because it is gone through, `second` one for each chunk, because it is looked
    up. `lengths` are those of the vectors that codes are taken for.
    """

    owners: Array
    first: Array
    second: Array
    lengths: Array


class _Placed(NamedTuple):
    """Where the chunks of the rows of an index begin, how many they have, whether it is one each, and its other rows.

    By the places of the rows in `numbers`; `unknown` are numbers of rows with a code that are not among these.
    """

    numbers: Array
    begins: Array
    counts: Array
    is_one_each: bool
    unknown: Array


@dataclass(frozen=True)
class Codes:
    """The codes of one model's vectors of one table, joined over its pieces; `owners` ascend."""

    pieces: tuple[str, ...]
    starts: tuple[int, ...]
    owners: Array
    words: Array
    second: Array
    lengths: Array
    centre: NDArray[np.float32]
    _placed: dict[str, _Placed] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def join(
        cls,
        pieces: tuple[str, ...],
        parts: Sequence[Part],
        words: int,
        centre: NDArray[np.float32],
    ) -> Codes:
        """The codes of several pieces, in the order of their owners, each as `unpack_piece` gives it."""
        empty = Part(
            np.empty(0, dtype=np.int64),
            np.empty((words, 0), dtype=np.uint64),
            np.empty((0, words), dtype=np.uint64),
            np.empty(0, dtype=np.float32),
        )
        every = [empty, *parts]
        return cls(
            pieces,
            (0, *np.cumsum([len(part.owners) for part in parts], dtype=np.int64).tolist()),
            np.concatenate([part.owners for part in every]),
            np.concatenate([part.first for part in every], axis=1),
            np.concatenate([part.second for part in every]),
            np.concatenate([part.lengths for part in every]),
            centre,
        )

    def choose(self, asked: Numbers, query: NDArray[np.float32], count: int) -> tuple[Array, bool]:
        """Of the rows that are `asked` for, and those of which nothing is known, likely the `count` nearest.

        A row is as near as its nearest chunk. `query` is a unit vector of the model. True: these are all the rows with
        a vector.
        """
        among = self._chunks(asked)
        if len(among) <= count:
            return distinct(self.owners[among]), True
        among = self._nearest(among, query, _NEAR_EACH * count)
        # The chunks of a row stand together.
        owners = self.owners[among]
        begins = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        best = np.maximum.reduceat(self._similarities(among, query), begins)
        return np.sort(owners[begins[top(best, count)]]), False

    @cached_property
    def _begins(self) -> tuple[Array, Array]:
        """By number where a row's chunks begin, and how many it has; at the end what is true of any further number."""
        last = int(self.owners[-1]) if len(self.owners) else -1
        begins = np.searchsorted(self.owners, np.arange(last + 2))
        return begins, np.diff(begins, append=len(self.owners))

    def _chunks(self, asked: Numbers) -> Array:
        """The places of all chunks of the rows that are asked for or of which nothing is known."""
        placed = self._placed_of(asked)
        unknown = placed.unknown
        if len(unknown):
            unknown = unknown[~np.isin(unknown, asked.live)]
        further = [column.take(np.concatenate([asked.shown_live, unknown]), mode="clip") for column in self._begins]
        begins = np.concatenate([placed.begins.take(asked.shown), further[0]])
        if placed.is_one_each and (further[1] == 1).all():
            return begins
        counts = np.concatenate([placed.counts.take(asked.shown), further[1]])
        if counts.max(initial=0) <= 1:
            chunks: Array = begins.take(np.flatnonzero(counts))
            return chunks
        ends = np.cumsum(counts)
        return np.repeat(begins - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)

    def _placed_of(self, asked: Numbers) -> _Placed:
        """Where the rows of the index stand here; search by search these are the same, which makes it cheap."""
        last = self._placed.get("last")
        if last is None or last.numbers is not asked.numbers:
            rows = distinct(self.owners)
            beyond = int(np.searchsorted(rows, len(asked.known)))
            unknown = np.concatenate([rows[:beyond][~asked.known[rows[:beyond]]], rows[beyond:]])
            begins, counts = (column.take(asked.numbers, mode="clip") for column in self._begins)
            last = self._placed["last"] = _Placed(asked.numbers, begins, counts, bool((counts == 1).all()), unknown)
        return last

    def _similarities(self, among: Array, query: NDArray[np.float32]) -> Array:
        """About the cosine of the query and of each chunk, by what its bits are taken for."""
        first = [line.take(among, mode="clip") for line in self.words]
        second = list(np.ascontiguousarray(self.second.take(among, axis=0, mode="clip").T))
        both = float(query @ self.centre) + _deviation(self.centre) * _weighed(first, second, query, _QUERY_BITS)
        cosines: Array = both / self.lengths.take(among, mode="clip")
        return cosines

    def _nearest(self, among: Array, query: NDArray[np.float32], count: int) -> Array:
        """The chunks with the most bits in common with the query's code; about `count`, in their order."""
        if len(among) <= count:
            return among
        wanted = _packed(query > self.centre)
        first = max(_FIRST_WORDS, len(wanted) // 4)
        apart = np.zeros(len(among), dtype=np.int16)
        if first < len(wanted) and len(among) > 2 * _FIRST_EACH * count:
            self._add_apart(apart, among, wanted, range(first))
            fewest = _fewest(apart, _FIRST_EACH * count)
            among, apart = among[fewest], apart[fewest]
            self._add_apart(apart, among, wanted, range(first, len(wanted)))
        else:
            self._add_apart(apart, among, wanted, range(len(wanted)))
        nearest: Array = among[_fewest(apart, count)]
        return nearest

    def _add_apart(self, apart: Array, among: Array, wanted: Array, words: range) -> None:
        """Adds to `apart` in how many bits of some of the words each chunk differs from a code."""
        bits, ones = np.empty(len(among), dtype=np.uint64), np.empty(len(among), dtype=np.uint8)
        for word in words:
            self.words[word].take(among, mode="clip", out=bits)
            np.bitwise_xor(bits, wanted[word], out=bits)
            apart += np.bitwise_count(bits, out=ones)


def _fewest(apart: Array, count: int) -> Array:
    """Where about the `count` lowest stand, ascending; of very many how low these are is told from every so many."""
    for step in (max(1, len(apart) // _COUNTED), 1):
        # With those that lie as far as the last one, unless they are very many.
        last = np.searchsorted(np.cumsum(np.bincount(apart[::step])), count / step)
        fewest: Array = np.flatnonzero(apart <= last)
        # What is low may stand in step with what was looked at.
        if len(fewest) >= _ENOUGH * count:
            break
    return np.sort(fewest[top(-apart[fewest], count)]) if len(fewest) > 2 * count else fewest


def _weighed(first: Sequence[Array], second: Sequence[Array], weights: NDArray[np.float32], bits: int) -> Array:
    """For each chunk about the sum of some weights times what its dimensions are taken for, in deviations.

    A chunk's bits come in words, 64 dimensions of all chunks together. Of each weight the amount is told in so many
    `bits`, each of which is worth the same in all dimensions, so that these are counted instead of added. With a
    weight's sign put to the first bit, its dimension adds its amount times (2 x first - 1) x (near + (far - near) x
    second).
    """
    step = max(float(np.abs(weights).max()), 1e-9) / (2**bits - 1)
    amounts = np.rint(np.abs(weights) / step).astype(np.uint32)
    planes = [_packed(amounts >> bit & 1) for bit in reversed(range(bits))]
    first = [one ^ negative for one, negative in zip(first, _packed(weights < 0), strict=True)]
    near, far = _sums_of(planes, first), _sums_of(planes, second)
    both = _sums_of(planes, [one & two for one, two in zip(first, second, strict=True)])
    total: Array = (_NEAR_VALUE * step) * (2 * near - int(amounts.sum()))
    total += ((_FAR_VALUE - _NEAR_VALUE) * step) * (2 * both - far)
    return total


def _sums_of(planes: Sequence[Array], bits: Sequence[Array]) -> Array:
    """For each chunk the sum of the amounts of the dimensions whose bits are set; the highest plane comes first."""
    sums = np.zeros(len(bits[0]), dtype=np.int32)
    common, ones = np.empty(len(sums), dtype=np.uint64), np.empty(len(sums), dtype=np.uint8)
    for plane in planes:
        sums <<= 1
        for line, word in zip(bits, plane, strict=True):
            sums += np.bitwise_count(np.bitwise_and(line, word, out=common), out=ones)
    return sums


def _packed(bits: NDArray[Any]) -> Array:
    """A bit for each dimension, in words; what the last one has beyond is 0."""
    return np.packbits(np.pad(bits, (0, -len(bits) % _WORD_BITS))).view(np.uint64)


def _deviation(centre: NDArray[np.float32]) -> float:
    """How far a component of a unit vector lies from that of the mean, as a deviation: of a vector this much is known.

    The mean of very few vectors is nearly one of them, and says nothing of the distance.
    """
    return math.sqrt(max(LEAST_SQUARE, 1.0 - float(centre @ centre)) / len(centre))


class Ready(NamedTuple):
    """Codes in force, how many noted changes stand beside them, and their newest piece, if any."""

    codes: Codes
    changed: int
    newest: int | None


class CodeCache:
    """The codes that this process has read, for whatever databases it searches. One copy serves all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], Codes] = OrderedDict()

    def codes(
        self,
        connection: Connection,
        model: int,
        dimensions: int,
        sources: Sequence[Source],
        meanwhile: Callable[[], object],
    ) -> dict[Source, Ready]:
        """What is in force, by source. `meanwhile` is called while the store looks; None from it: nothing is wanted.

        A source is missing when its graph must be walked: not coded, too many changes, or too many codes.
        """
        asked = connection.execute(
            statement("vector_state"), {"model": model, "sources": list(sources), "most": MOST_CHANGED + 1}
        )
        states = [] if meanwhile() is None else asked.fetchall()
        found: dict[Source, Ready] = {}
        words = -(-dimensions // _WORD_BITS)
        for state in states:
            is_small = state["chunks"] * (2 * words * _WORD_BYTES + _FURTHER_BYTES) <= MOST_BYTES
            if state["coded"] and state["changed"] <= MOST_CHANGED and is_small:
                codes = self._codes(connection, model, words, state)
                if codes is not None:
                    found[state["source"]] = Ready(codes, state["changed"], state["newest"])
        return found

    def _codes(self, connection: Connection, model: int, words: int, state: dict[str, Any]) -> Codes | None:
        """The codes of the pieces of a state; None when one is no longer there."""
        pieces = tuple(state["pieces"])
        info = connection.info
        name = (info.host, info.port, info.dbname, state["database"], model, state["source"])
        codes = self._known(name, pieces)
        if codes is None:
            # One reads, and the others have what it has read.
            with self._reading:
                codes = self._known(name, pieces)
                if codes is None:
                    centre = np.array(state["centre"], dtype=np.float32)
                    codes = _read(connection, pieces, words, centre, self._kept.get(name))
                    self._keep(name, codes)
        return codes

    def _known(self, name: tuple[Any, ...], pieces: tuple[str, ...]) -> Codes | None:
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or kept.pieces != pieces:
                return None
            self._kept.move_to_end(name)
            return kept

    def _keep(self, name: tuple[Any, ...], codes: Codes | None) -> None:
        if codes is None:
            return
        with self._lock:
            self._kept[name] = codes
            self._kept.move_to_end(name)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)


#: The one of this process.
CACHE = CodeCache()


def _read(
    connection: Connection,
    pieces: tuple[str, ...],
    words: int,
    centre: NDArray[np.float32],
    former: Codes | None,
) -> Codes | None:
    """The codes of the given pieces, as far as they are known from `former`; None when one can not be had."""
    parts: dict[str, Part] = {}
    if former is not None and np.array_equal(former.centre, centre):
        for number, piece in enumerate(former.pieces):
            part = slice(former.starts[number], former.starts[number + 1])
            parts[piece] = Part(former.owners[part], former.words[:, part], former.second[part], former.lengths[part])
    missing = [piece for piece in pieces if piece not in parts]
    if missing:
        rows = connection.execute(
            "SELECT token::text, number, offsets, codes FROM ros_vector_pieces WHERE token = ANY (%s::uuid[])",
            [missing],
            binary=True,
        ).fetchall()
        # A process of an earlier version that was still at work has written codes of one bit.
        octets = -(-len(centre) // 8)
        if len(rows) < len(missing) or any(len(row["codes"]) != octets * len(row["offsets"]) for row in rows):
            return None
        for row in rows:
            parts[row["token"]] = unpack_piece(row["number"], row["offsets"], row["codes"], words, centre)
    return Codes.join(pieces, [parts[piece] for piece in pieces], words, centre)


def unpack_piece(number: int, offsets: bytes, codes: bytes, words: int, centre: NDArray[np.float32]) -> Part:
    """A row of `ros_vector_pieces`; `words` is how many the first bits of a code take."""
    owners = np.frombuffer(offsets, dtype="<u2").astype(np.int64) + number * RANGE
    octets = np.frombuffer(codes, dtype=np.uint8).reshape(len(owners), 2, -1)
    padded = np.zeros((len(owners), 2, words * _WORD_BYTES), dtype=np.uint8)
    padded[:, :, : octets.shape[2]] = octets
    both = padded.view(np.uint64)
    first, second = np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
    lines = np.ascontiguousarray(first.T)
    return Part(owners, lines, second, _lengths(lines, np.ascontiguousarray(second.T), centre))


def _lengths(first: Array, second: Array, centre: NDArray[np.float32]) -> Array:
    """How long the vectors are that codes are taken for, never 0; the bits have a line for each 64 dimensions."""
    deviation = _deviation(centre)
    far = np.bitwise_count(second).sum(axis=0, dtype=np.float32)
    squares = _NEAR_VALUE**2 * len(centre) + (_FAR_VALUE**2 - _NEAR_VALUE**2) * far
    parts = 2 * deviation * _weighed(list(first), list(second), centre, _CENTRE_BITS)
    whole = float(centre @ centre) + parts + deviation**2 * squares
    lengths: Array = np.sqrt(np.maximum(whole, np.float32(1e-9)))
    return lengths
