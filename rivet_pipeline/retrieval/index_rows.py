"""From rows of the store to the documents and postings of the text index. Nothing is written here.

Words are read out of the tsvectors as Postgres sends them, which is several times as quick as having it unnest them.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import TOOL_CHARACTERS, statement
from rivet_pipeline.retrieval.postings import (
    ARABIC_POINTS,
    EMPTY,
    HEBREW_POINTS,
    MOST_DOCUMENTS,
    NO_ROLE,
    ROLES,
    UNSPACED,
    Array,
    Documents,
    further_terms,
    term_key,
)
from rivet_pipeline.retrieval.scoring import STUB_CHARACTERS
from rivet_pipeline.retrieval.types import Source

_ROLE_NUMBERS = {role: number for number, role in enumerate(ROLES)}

#: Seconds since 1970 in 32 bits; what lies outside is cut to the nearest.
_LAST_SECOND = 2**32 - 1

#: How many rows are fetched at a time: one may be a megabyte.
_FETCH = 200

#: What a row holds of which pieces of form 0 know too little: scripts without spaces, Hebrew and Arabic with marks,
#: letters that are made of one with a mark, and signs that become such ones (presentation forms).
_MARKED = f"{UNSPACED}{HEBREW_POINTS}{ARABIC_POINTS}\u0622-\u0626\u06c0\u06c2\u06d3\ufb1d-\ufdff\ufe70-\ufefc"


@cache
def _read_statement(source: Source, which: str) -> bytes:
    text = sql.SQL(statement("index_messages" if source == "message" else "index_summaries"))
    return text.format(which=sql.SQL(which), tool_characters=TOOL_CHARACTERS).as_string().encode()


def read_range(connection: Connection, source: Source, low: int, high: int) -> Generator[Mapping[str, Any], None, None]:
    """The rows with `low` < seq <= `high`, as the builder takes them, a few at a time. Within a transaction."""
    alias = "m" if source == "message" else "s"
    text = _read_statement(source, f"{alias}.seq > %(low)s AND {alias}.seq <= %(high)s")
    values = {"low": low, "high": high, "stub": STUB_CHARACTERS}
    with connection.cursor(name="index_rows") as cursor:
        cursor.itersize = _FETCH
        cursor.execute(text, values, binary=True)
        yield from cursor


def read_rows(connection: Connection, source: Source, seqs: list[int]) -> Iterator[Mapping[str, Any]]:
    """The rows of the given sequence numbers."""
    alias = "m" if source == "message" else "s"
    # The planner must not see how many these are: a search reads one or two, and planning takes longer than that. The
    # cast makes an array of the value in parentheses, which would else be a subquery.
    text = _read_statement(source, f"{alias}.seq = ANY ((SELECT %(seqs)s::bigint[])::bigint[])")
    for start in range(0, len(seqs), _FETCH):
        values = {"seqs": seqs[start : start + _FETCH], "stub": STUB_CHARACTERS}
        yield from connection.execute(text, values, binary=True).fetchall()


def read_marked(connection: Connection, source: Source, seqs: list[int]) -> Iterator[Mapping[str, Any]]:
    """Those of the rows that pieces of form 0 do not have as they would be read now (`postings.FORM`)."""
    alias = "m" if source == "message" else "s"
    wide = f"octet_length({alias}.content) > length({alias}.content) AND {alias}.content ~ %(marked)s"
    if source == "message":
        wide += (
            f" OR octet_length({alias}.tool_result) > length({alias}.tool_result) AND {alias}.tool_result ~ %(marked)s"
        )
    text = _read_statement(source, f"{alias}.seq = ANY (%(seqs)s) AND ({wide})")
    for start in range(0, len(seqs), _FETCH):
        values = {"seqs": seqs[start : start + _FETCH], "stub": STUB_CHARACTERS, "marked": f"[{_MARKED}]"}
        yield from connection.execute(text, values, binary=True).fetchall()


@dataclass(slots=True)
class PieceBuilder:
    """Collects documents and their postings. Words are numbered as they come; `terms` has them in that order."""

    terms: dict[bytes, int] = field(default_factory=dict)
    numbers: array[int] = field(default_factory=lambda: array("I"))
    frequencies: array[int] = field(default_factory=lambda: array("B"))
    #: How many postings each document has.
    sizes: list[int] = field(default_factory=list)
    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _names: dict[tuple[str, ...], int] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], *, keep_empty: bool) -> None:
        """Takes a row of `read_range` or `read_rows`; one without words only to stand over an older piece."""
        before = len(self.numbers)
        self._add_words(bytes(row["words"]))
        if row["wide"] is not None:
            self._add_further(further_terms(row["wide"]), before)
        size = len(self.numbers) - before
        if not size and not keep_empty:
            return
        self.sizes.append(size)
        names = self._names.setdefault(tuple(row["agents"]), len(self._names))
        self._rows.append(
            (
                row["seq"],
                min(max(row["at"], 0), _LAST_SECOND),
                min(max(row["since"], 0), _LAST_SECOND),
                row["length"],
                row["conversation"],
                names,
                _ROLE_NUMBERS.get(row["role"], NO_ROLE),
                row["flags"] | (0 if size else EMPTY),
            )
        )

    def _add_words(self, data: bytes) -> None:
        """Reads a tsvector: a count, then each word with a zero byte, how many positions it has, and these.

        A word stands there twice (the text and its split form), hence half the positions are its frequency.
        """
        known, add_number, add_frequency = self.terms, self.numbers.append, self.frequencies.append
        position = 4
        for _ in range(int.from_bytes(data[:4])):
            end = data.index(0, position)
            word = data[position:end]
            number = known.get(word)
            if number is None:
                number = known[word] = len(known)
            places = (data[end + 1] << 8) | data[end + 2]
            position = end + 3 + 2 * places
            add_number(number)
            add_frequency((places + 1) >> 1)

    def _add_further(self, further: Mapping[bytes, int], start: int) -> None:
        """Adds to the document whose postings begin at `start`; a word may be among them already."""
        places: dict[int, int] = {}
        if any(not term.startswith(b"\0") for term in further):
            places = {number: start + place for place, number in enumerate(self.numbers[start:])}
        for term, times in further.items():
            number = self.terms.setdefault(term, len(self.terms))
            place = places.get(number)
            if place is None:
                self.numbers.append(number)
                self.frequencies.append(min(times, 255))
            else:
                self.frequencies[place] = min(times + self.frequencies[place], 255)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether no more documents may be added."""
        return len(self._rows) >= MOST_DOCUMENTS

    def documents(self) -> Documents:
        """The documents so far."""
        columns = np.array(self._rows, dtype=np.int64).reshape(-1, 8).T
        return Documents.of(columns, tuple(self._names))

    def keys(self) -> Array:
        """The key of each term by its number."""
        return np.fromiter(map(term_key, self.terms), dtype=np.int64, count=len(self.terms))

    def sorted_postings(self) -> tuple[Array, Array, Array, Array]:
        """Keys, counts, ordinals and frequencies as `encode_postings` takes them."""
        keys = self.keys()
        order = np.argsort(keys)
        rank = np.empty(len(order), dtype=np.uint64)
        rank[order] = np.arange(len(order), dtype=np.uint64)
        # Everything of a posting in one number, so that one sort of plain numbers does it.
        packed = rank[np.frombuffer(self.numbers, dtype="u4")]
        packed <<= np.uint64(24)
        packed |= np.repeat(np.arange(len(self.sizes), dtype=np.uint64) << np.uint64(8), self.sizes)
        packed |= np.frombuffer(self.frequencies, dtype="u1")
        packed.sort()
        counts = np.bincount((packed >> np.uint64(24)).astype(np.int64), minlength=len(keys))
        ordinals = ((packed >> np.uint64(8)) & np.uint64(0xFFFF)).astype("<u2")
        return keys[order], counts, ordinals, (packed & np.uint64(0xFF)).astype("u1")

    def word_counts(self) -> dict[str, int]:
        """In how many of the documents each word stands; pairs of characters are no words."""
        counts = np.bincount(np.frombuffer(self.numbers, dtype="u4"), minlength=len(self.terms)).tolist()
        return {term.decode(): n for term, n in zip(self.terms, counts, strict=True) if not term.startswith(b"\0")}
