"""Where a term stands in a whole corpus: joined from its pieces once, and kept with the corpus for further searches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rivet_pipeline.retrieval.postings import Array, Postings

#: What the hits of one corpus may take in memory; the least recently used go first. The 400 words of a hundred
#: questions, put to a million rows, take 100 MB.
MOST_HIT_BYTES = 160 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Norms:
    """BM25's part of the denominator that is each document's own; `made_with` k1, b and a mean length."""

    of_documents: Array
    made_with: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Hits:
    """The documents that hold a term, by ascending position, and how often each does.

    `saturated` is what BM25 makes of a frequency, f / (f + norm) with norms `made_with` these: 0 to 1.
    """

    positions: Array
    frequencies: Array
    saturated: Array
    made_with: tuple[float, float, float]

    @classmethod
    def join(cls, pieces: Sequence[Postings | None], starts: Sequence[int], norms: Norms) -> Hits:
        """The postings of a corpus' pieces, which begin at `starts`."""
        positions, frequencies = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype="u1")]
        for start, postings in zip(starts, pieces, strict=False):
            if postings is None:
                continue
            places, times = postings.ordinals, postings.frequencies
            if places is None:
                places = np.flatnonzero(times)
                times = times[places]
            positions.append(places.astype(np.int32) + np.int32(start))
            frequencies.append(times)
        joined = np.concatenate(positions)
        return cls._of(joined, np.concatenate(frequencies), norms)

    @classmethod
    def _of(cls, positions: Array, frequencies: Array, norms: Norms) -> Hits:
        times = frequencies.astype(np.float32)
        return cls(positions, frequencies, times / (times + norms.of_documents[positions]), norms.made_with)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return 200 + self.positions.nbytes + self.frequencies.nbytes + self.saturated.nbytes

    def with_norms(self, norms: Norms) -> Hits:
        """The same hits for other norms."""
        same = self.made_with == norms.made_with
        return self if same else self._of(self.positions, self.frequencies, norms)

    def times_at(self, positions: Array) -> Array:
        """How often the term stands at each of some positions, float32."""
        if not len(self.positions) or not len(positions):
            return np.zeros(len(positions), dtype=np.float32)
        # Of the hits' own type, or all of these would be copied into another one.
        wanted = positions.astype(np.int32)
        at = np.minimum(np.searchsorted(self.positions, wanted), len(self.positions) - 1)
        return np.where(self.positions[at] == wanted, self.frequencies[at], 0).astype(np.float32)


class KeptHits:
    """The hits of one corpus, by the term's key, least recently used first. One copy serves all threads."""

    def __init__(self, most_bytes: int = MOST_HIT_BYTES) -> None:
        self._lock = threading.Lock()
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[int, Hits] = OrderedDict()

    @property
    def bytes_kept(self) -> int:
        """About what these take in memory."""
        return self._bytes

    def find(self, key: int) -> Hits | None:
        """The hits of a term, as they were kept last."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: int, hits: Hits) -> None:
        """Keeps these, in place of others of the same term."""
        with self._lock:
            former = self._kept.pop(key, None)
            self._bytes += hits.size - (0 if former is None else former.size)
            self._kept[key] = hits
            while self._bytes > self._most_bytes and self._kept:
                self._bytes -= self._kept.popitem(last=False)[1].size
