"""The formats of the text index: keys of terms, columns of documents, packed postings. Pure; nothing is read here.

A document is a row of a piece, named by its place in it (its ordinal, 16 bits). A posting is a document and how often
it holds a term, one byte.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: An ordinal has 16 bits.
MOST_DOCUMENTS = 65_536

#: What one row of a table holds of postings, about: with its head it fits four times into a page, and is not stored
#: apart from its row.
_ROW_BYTES = 1_500

#: A term in so many documents has a row of its own.
_OWN_ROW = 128

#: The share of a piece's documents from which on a byte for each document is smaller than a posting for each hit.
_DENSE = 1 / 3

#: The form in which a piece's rows are read: 0 had pairs of CJK characters alone, 1 has all of `further_terms`.
#: A piece carries it behind its columns, as so many bytes, where no reader of them looks.
FORM = 1

#: The longest word that Postgres takes into a tsvector, in bytes; `ros_lexicon` can hold no much longer one.
LONGEST_WORD = 2_046

#: The characters that `ros_split` makes words of their own (migration 0001).
CJK_RUN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]{2,}")

#: Letters and marks of the scripts that put no space between words: Thai, Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf"
    "\u1000-\u103f\u1050-\u109d\u1780-\u17d3\u17dd\uaa60-\uaa7f"
)
_PAIRED_RUN = re.compile(f"{CJK_RUN.pattern}|[{UNSPACED}]{{2,}}")

#: What is seldom written in Hebrew and Arabic: points, vowel signs, marks of recitation, and the stroke that only
#: stretches a word. Hamza and madda above or below a letter are marks as well, and as often left out.
HEBREW_POINTS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
ARABIC_POINTS = "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
_POINTS = re.compile(f"[{HEBREW_POINTS}{ARABIC_POINTS}]")
_POINTED_RUN = re.compile(
    f"[\u05d0-\u05ea{HEBREW_POINTS}]+|[\u0620-\u063f\u0641-\u064a\u066e\u066f\u0671-\u06d3\u06d5\u06ee\u06ef{ARABIC_POINTS}]+"
)

#: Rows that no search returns; those that say hardly anything; those without a word, kept to stand over an older piece.
HIDDEN, FAINT, EMPTY = 1, 2, 4

#: Roles by number; a summary has none.
ROLES = ("system", "user", "assistant", "tool")
NO_ROLE = 255

#: The columns of a piece in their order: `at` and `since` (a summary's earliest time, else `at`) in seconds since 1970,
#: `length` in bytes of text, `conversation` by number, `agents` a place in the piece's list.
_COLUMNS: tuple[tuple[str, str], ...] = (
    ("seq", "<i8"),
    ("at", "<u4"),
    ("since", "<u4"),
    ("length", "<u4"),
    ("conversation", "<i4"),
    ("agents", "<u4"),
    ("role", "u1"),
    ("flags", "u1"),
)

#: What the columns take of one document, in bytes.
COLUMN_BYTES = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)

Array = NDArray[Any]


def term_key(term: bytes) -> int:
    """The key of a term, 63 bits of its hash: of ten million terms no two are likely to share one."""
    return int.from_bytes(hashlib.blake2b(term, digest_size=8).digest(), "little") >> 1


def cjk_pairs(folded: str) -> Counter[bytes]:
    """The pairs of neighbouring characters of a text in scripts without spaces, as terms, and how often each is there.

    No lexeme begins with a zero byte, so a pair is never taken for a word.
    """
    return Counter(
        b"\0" + (first + second).encode() for run in _PAIRED_RUN.findall(folded) for first, second in pairwise(run)
    )


def bare_words(folded: str) -> Counter[bytes]:
    """The Hebrew and Arabic words of a text that carry marks, without them, and how often each stands there.

    A lexeme keeps its marks. Such a word is a term as well, the one that it would be if it had been written without;
    one that is longer than any lexeme is none.
    """
    found: Counter[bytes] = Counter()
    for run in _POINTED_RUN.findall(folded):
        bare = _POINTS.sub("", unicodedata.normalize("NFD", run))
        if bare != run and 0 < len(term := bare.encode()) <= LONGEST_WORD:
            found[term] += 1
    return found


def further_terms(folded: str) -> Counter[bytes]:
    """What a text is found by beside its lexemes, and how often each term stands there."""
    return cjk_pairs(folded) + bare_words(folded)


@dataclass(frozen=True, slots=True)
class Documents:
    """What a search must know of each document, column by column, and the lists of agents that `agents` names."""

    seq: Array
    at: Array
    since: Array
    length: Array
    conversation: Array
    agents: Array
    role: Array
    flags: Array
    names: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, columns: Array, names: tuple[tuple[str, ...], ...]) -> Documents:
        """The columns, one a line, each in its own type."""
        typed = {name: column.astype(kind) for (name, kind), column in zip(_COLUMNS, columns, strict=True)}
        return cls(names=names, **typed)

    def pack(self) -> bytes:
        """The columns as one string of bytes."""
        return b"".join(np.ascontiguousarray(getattr(self, name), dtype=kind).tobytes() for name, kind in _COLUMNS)

    @classmethod
    def unpack(cls, packed: bytes, names: Sequence[Sequence[str]]) -> Documents:
        """The columns out of what `pack` gave; a few bytes behind it are left alone (`FORM`)."""
        count = len(packed) // COLUMN_BYTES
        found: dict[str, Array] = {}
        offset = 0
        for name, kind in _COLUMNS:
            found[name] = np.frombuffer(packed, dtype=kind, count=count, offset=offset)
            offset += found[name].nbytes
        return cls(names=tuple(map(tuple, names)), **found)

    @classmethod
    def join(cls, parts: Sequence[Documents]) -> Documents:
        """Several pieces' documents one after the other, their agents in one list."""
        numbers: dict[tuple[str, ...], int] = {}
        columns: dict[str, Array] = {
            name: np.concatenate([getattr(part, name) for part in parts] or [np.empty(0, kind)])
            for name, kind in _COLUMNS
            if name != "agents"
        }
        agents = [
            np.array([numbers.setdefault(names, len(numbers)) for names in part.names], dtype="<u4")[part.agents]
            for part in parts
        ]
        columns["agents"] = np.concatenate(agents or [np.empty(0, "<u4")])
        return cls(names=tuple(numbers), **columns)

    def take(self, places: Array | slice) -> Documents:
        """The documents at the given places."""
        return Documents(names=self.names, **{name: getattr(self, name)[places] for name, _ in _COLUMNS})


@dataclass(frozen=True, slots=True)
class PostingRow:
    """A row of `ros_postings`. `terms` 0: one term, a byte for each document of the piece."""

    first_key: int
    last_key: int
    terms: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Postings:
    """One term in one piece. `ordinals` None: `frequencies` has an entry for each document, 0 where it is not."""

    ordinals: Array | None
    frequencies: Array
    found: int

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return 200 + self.frequencies.nbytes + (0 if self.ordinals is None else self.ordinals.nbytes)


def encode_postings(
    keys: Array, counts: Array, ordinals: Array, frequencies: Array, documents: int
) -> Iterator[PostingRow]:
    """Packs the postings of ascending `keys`, `counts` of each, all one after the other in the order of their keys."""
    if not len(keys):
        return
    ends = np.cumsum(counts)
    own = counts >= _OWN_ROW
    filled = np.cumsum(np.where(own, 0, 10 + 3 * counts)) // _ROW_BYTES
    begins = np.ones(len(keys), dtype=bool)
    begins[1:] = own[1:] | own[:-1] | (filled[1:] != filled[:-1])
    starts = np.flatnonzero(begins)
    for first, last in zip(starts.tolist(), [*(starts[1:] - 1).tolist(), len(keys) - 1], strict=True):
        start, end = int(ends[first] - counts[first]), int(ends[last])
        places, times = ordinals[start:end], frequencies[start:end]
        if first == last and counts[first] > _DENSE * documents and own[first]:
            dense = np.zeros(documents, dtype="u1")
            dense[places] = times
            yield PostingRow(int(keys[first]), int(keys[first]), 0, dense.tobytes())
            continue
        parts = (
            keys[first : last + 1].astype("<i8"),
            (counts[first : last + 1] - 1).astype("<u2"),
            places.astype("<u2"),
            times.astype("u1"),
        )
        yield PostingRow(
            int(keys[first]), int(keys[last]), last - first + 1, b"".join(part.tobytes() for part in parts)
        )


def decode_row(row: PostingRow) -> tuple[Array, Array, Array, Array]:
    """Keys, counts, ordinals and frequencies of a row, as `encode_postings` took them."""
    if row.terms == 0:
        dense = np.frombuffer(row.data, dtype="u1")
        places = np.flatnonzero(dense)
        return np.array([row.first_key]), np.array([len(places)]), places.astype("<u2"), dense[places]
    keys = np.frombuffer(row.data, dtype="<i8", count=row.terms)
    counts = np.frombuffer(row.data, dtype="<u2", count=row.terms, offset=8 * row.terms).astype(np.int64) + 1
    total = int(counts.sum())
    ordinals = np.frombuffer(row.data, dtype="<u2", count=total, offset=10 * row.terms)
    frequencies = np.frombuffer(row.data, dtype="u1", count=total, offset=10 * row.terms + 2 * total)
    return keys, counts, ordinals, frequencies


def find_postings(row: PostingRow, key: int) -> Postings | None:
    """One term out of a row, None when it is not there."""
    if row.terms == 0:
        if row.first_key != key:
            return None
        dense = np.frombuffer(row.data, dtype="u1")
        return Postings(None, dense, int(np.count_nonzero(dense)))
    keys, counts, ordinals, frequencies = decode_row(row)
    place = int(np.searchsorted(keys, key))
    if place == len(keys) or int(keys[place]) != key:
        return None
    start = int(counts[:place].sum())
    end = start + int(counts[place])
    if len(keys) > 1:
        # A row's other terms are not worth keeping in memory with this one.
        return Postings(ordinals[start:end].copy(), frequencies[start:end].copy(), end - start)
    return Postings(ordinals[start:end], frequencies[start:end], end - start)
