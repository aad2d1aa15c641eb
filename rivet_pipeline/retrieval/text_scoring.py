"""BM25 of every document of the index at once, and which of them are worth a closer look. Arithmetic on arrays only.

A position is a document's place in the corpus, or, from `len(corpus)` on, among the rows that the index has not yet.

Scores are exact but for a query with more postings than `_MOST_POSTINGS`: of its commonest words, those beyond that
number, nothing is counted outside the `_NEAR` rows that the others score best. A row's score is then too low by at most
the sum of these words' idf x (k1 + 1), which is the most that words can add however often they stand in a row; and none
that is higher by more than this sum than the last of the `_NEAR` is by the other words alone is too low at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from rivet_pipeline.retrieval.index_cache import Corpus, LiveRows
from rivet_pipeline.retrieval.postings import EMPTY, FAINT, HIDDEN, ROLES, Array, Documents, Postings
from rivet_pipeline.retrieval.scoring import Profile, idf
from rivet_pipeline.retrieval.term_hits import Hits, KeptHits, Norms
from rivet_pipeline.retrieval.types import SearchRequest, Source

#: An age is cut at so many days, where the temporal part is 0 anyway.
_OLDEST_DAYS = 10_000

#: Postings that one query counts whole; of the commonest words beyond, only what stands in so many of the best rows.
_MOST_POSTINGS = 3_000_000
_NEAR = 20_000

#: A term in more than this share of all rows stands in nearly every session, when these have many rows.
_IN_EVERY_SESSION = 1 / 4
_ROWS_PER_SESSION = 8

#: How often a term stands in each conversation is kept for terms in more than this share of all rows, in so many bytes:
#: 80 KB each with 20,000 conversations.
_COMMON = 1 / 200
_MOST_KEPT_BYTES = 32 * 1024 * 1024

#: Of how many agents it is kept which documents are theirs, a byte for each.
_MOST_AGENTS = 8


@dataclass(frozen=True, slots=True)
class TermPostings:
    """One term of a query: its postings in each piece of the corpus, and in the rows beyond it."""

    key: int
    pieces: Sequence[Postings | None]
    live_owners: Array
    live_frequencies: Array


class Numbers(NamedTuple):
    """What is known of the rows of one table, by sequence number: which are shown, and of which anything is known.

    Of the index `shown` has places in `numbers`, and `known` has flags up to its highest number; these two stay the
    same arrays as long as its pieces do. Of the further rows `shown_live` are shown, and `live` are all.
    """

    shown: Array
    numbers: Array
    known: Array
    shown_live: Array
    live: Array


class Field:
    """What one search scores: the corpus without the rows that are superseded, and the live rows in their place.

    Args:
        corpus: the documents of the index.
        live: the rows that stand in no piece, or not as they are now.
        superseded: positions in the corpus of the rows that are among the live ones or changed otherwise.
        profile: the constants.
    """

    def __init__(self, corpus: Corpus, live: LiveRows, superseded: Array, profile: Profile) -> None:
        self.corpus, self.live, self.profile = corpus, live, profile
        superseded = superseded[superseded >= 0]
        self._dead = np.union1d(superseded, np.flatnonzero(~corpus.alive)) if corpus.has_dead else np.sort(superseded)
        self._superseded = superseded
        counted = corpus.counted[superseded]
        self._live_counted = live.alive & (live.documents.flags & EMPTY == 0)
        self.count = corpus.count - int(counted.sum()) + int(self._live_counted.sum())
        total = corpus.total_length - int(corpus.documents.length[superseded[counted]].sum(dtype=np.int64))
        total += int(live.documents.length[self._live_counted].sum(dtype=np.int64))
        self.mean_length = max(total / self.count, 1.0) if self.count else 1.0
        self._norms = corpus_norms(corpus, self.mean_length, profile)
        self._live_norms = self._norm(live.documents)
        self._dfs: dict[int, int] = {}
        self._found: dict[int, Hits] = {}

    def __len__(self) -> int:
        return len(self.corpus) + len(self.live.documents)

    def _norm(self, documents: Documents) -> Array:
        return length_norms(documents.length, self.mean_length, self.profile)

    def df(self, term: TermPostings) -> int:
        """In how many documents in force a term stands."""
        found = self._dfs.get(term.key)
        if found is None:
            found = len(term.live_owners) + sum(postings.found for postings in term.pieces if postings is not None)
            if len(self._dead):
                found -= int(np.count_nonzero(self._hits(term).times_at(self._dead)))
            self._dfs[term.key] = found
        return found

    def _hits(self, term: TermPostings) -> Hits:
        """A term's hits in the corpus, those of superseded rows among them."""
        found = self._found.get(term.key)
        if found is None:
            kept: KeptHits = self.corpus.kept.setdefault("hits", KeptHits())
            former = kept.find(term.key)
            if former is None:
                found = Hits.join(term.pieces, self.corpus.starts, self._norms)
            else:
                found = former.with_norms(self._norms)
            if found is not former:
                kept.keep(term.key, found)
            # A query of very many common words has more than is kept.
            self._found[term.key] = found
        return found

    def score(self, terms: Iterable[TermPostings]) -> Array:
        """BM25 of every position, float32; 0 where no term stands.

        Of a long query of common words the commonest, which weigh the least, are counted only where the others score
        best, once all of them together would take too long.
        """
        scores = np.zeros(len(self), dtype=np.float32)
        read = 0
        near: Array | None = None
        for df, term in sorted(((self.df(term), term) for term in terms), key=lambda pair: pair[0]):
            weight = np.float32(idf(self.count, df) * (self.profile.k1 + 1))
            read += df
            if near is None and read > _MOST_POSTINGS:
                near = np.sort(top(scores, _NEAR))
            if near is None:
                self._score_all(scores, term, weight)
            else:
                times = self._times_at(near, term)
                norms = self._both(near, self._norms.of_documents.__getitem__, self._live_norms.__getitem__)
                scores[near] += weight * times / (times + norms)
        scores[self._dead] = 0
        return scores

    def _score_all(self, scores: Array, term: TermPostings, weight: np.float32) -> None:
        hits = self._hits(term)
        np.add.at(scores, hits.positions, weight * hits.saturated)
        if len(term.live_owners):
            places = term.live_owners + len(self.corpus)
            times = term.live_frequencies.astype(np.float32)
            scores[places] += weight * times / (times + self._live_norms[term.live_owners])

    def _times_at(self, positions: Array, term: TermPostings) -> Array:
        """How often a term stands at each of some ascending positions."""
        split = int(np.searchsorted(positions, len(self.corpus)))
        times = self._hits(term).times_at(positions[:split])
        if split == len(positions):
            return times
        live = np.zeros(len(self.live.documents), dtype=np.float32)
        live[term.live_owners] = term.live_frequencies
        return np.concatenate([times, live[positions[split:] - len(self.corpus)]])

    def coverage(self, terms: Iterable[TermPostings], positions: Array) -> Array:
        """Which share of the terms, by weight, each of some ascending positions holds, 0 to 1."""
        held, every = np.zeros(len(positions)), 0.0
        for term in terms:
            df = self.df(term)
            if df:
                weight = idf(self.count, df)
                held += weight * (self._times_at(positions, term) > 0)
                every += weight
        return held / max(every, 1e-9)

    def holds_all(self, terms: Sequence[TermPostings]) -> Array:
        """The positions that hold every one of the terms, ascending."""
        hits = np.zeros(len(self), dtype=np.uint16)
        for term in terms:
            hits[self._hits(term).positions] += 1
            hits[term.live_owners + len(self.corpus)] += 1
        hits[self._dead] = 0
        return np.flatnonzero(hits == len(terms)) if terms else np.empty(0, dtype=np.int64)

    def keys(self, positions: Array) -> Array:
        """The rows' keys: sequence numbers, negative for summaries. Positions ascend here as everywhere."""
        return self._both(
            positions,
            lambda places: np.where(places < self.corpus.messages, 1, -1) * self.corpus.documents.seq[places],
            lambda places: np.where(self.live.messages[places], 1, -1) * self.live.documents.seq[places],
        )

    def numbers(self, shown: Array, source: Source) -> Numbers:
        """The rows of a table that are `shown` (by position), by their sequence numbers."""
        corpus, rows = self.corpus, self.live
        part = corpus.part(source)
        flags = shown[part]
        superseded = self._superseded[(self._superseded >= part.start) & (self._superseded < part.stop)]
        if len(superseded):
            flags = flags.copy()
            flags[superseded - part.start] = False
        live = rows.alive & (rows.messages == (source == "message"))
        further = rows.documents.seq[live & shown[len(corpus) :]]
        known = corpus.known(source)
        return Numbers(np.flatnonzero(flags), known.numbers, known.flags, further, rows.documents.seq[live])

    def times(self, positions: Array) -> Array:
        """The rows' times in seconds since 1970."""
        return self._both(positions, self.corpus.documents.at.__getitem__, self.live.documents.at.__getitem__)

    def longer(self, length: int) -> Array:
        """For each position whether its row has more bytes of text."""
        return np.concatenate([self.corpus.documents.length > length, self.live.documents.length > length])

    def conversations(self, positions: Array) -> Array:
        """The numbers of the rows' conversations."""
        return self._both(
            positions, self.corpus.documents.conversation.__getitem__, self.live.documents.conversation.__getitem__
        )

    def faint(self, positions: Array) -> Array:
        """Which rows say hardly anything."""
        flags = self._both(positions, self.corpus.documents.flags.__getitem__, self.live.documents.flags.__getitem__)
        faint: Array = flags & FAINT != 0
        return faint

    def freshness(self, positions: Array, now: datetime) -> Array:
        """The temporal part of rows that were never accessed, as `scoring.temporal` has it, to a quarter of an hour."""
        moment = _quarter(now)
        return self._both(
            positions,
            corpus_freshness(self.corpus, moment, self.profile).__getitem__,
            lambda places: _freshness(self.live.documents.at[places], moment, self.profile),
        )

    def recent(self, now: datetime, least: float) -> Array:
        """The positions of rows that would be at least so fresh were they never accessed; live ones are taken to be."""
        moment = _quarter(now)
        recent = self.corpus.kept.get("recent")
        if recent is None or recent[0] != (self.profile, moment, least):
            fresh = corpus_freshness(self.corpus, moment, self.profile)
            recent = ((self.profile, moment, least), np.flatnonzero(fresh >= np.float32(least)))
            self.corpus.kept["recent"] = recent
        return np.concatenate([recent[1], np.arange(len(self.corpus), len(self))])

    def _both(self, positions: Array, old: Callable[[Array], Array], new: Callable[[Array], Array]) -> Array:
        split = int(np.searchsorted(positions, len(self.corpus)))
        if split == len(positions):
            return old(positions)
        return np.concatenate([old(positions[:split]), new(positions[split:] - len(self.corpus))])

    def places(self, keys: Array, *, keep: str | None = None) -> Array:
        """The positions of rows by key, -1 for a row that is not here.

        With `keep` the corpus keeps what it has of this very array under that name, for the next search that asks.
        """
        kept = None if keep is None else self.corpus.kept.get(keep)
        if kept is None or kept[0] is not keys:
            kept = (keys, self.corpus.places(keys))
            if keep is not None:
                self.corpus.kept[keep] = kept
        places = kept[1].copy()
        if len(self._superseded):
            places[np.isin(places, self._superseded)] = -1
        alive = np.flatnonzero(self.live.alive)
        if len(alive):
            numbers = np.where(self.live.messages[alive], 1, -1) * self.live.documents.seq[alive]
            order = np.argsort(numbers)
            at = order[np.minimum(np.searchsorted(numbers, keys, sorter=order), len(order) - 1)]
            places = np.where((places < 0) & (numbers[at] == keys), len(self.corpus) + alive[at], places)
        return places

    def sessions(self, terms: Iterable[TermPostings], wanted: Array, conversations: int) -> Array:
        """BM25 of the conversations of the given numbers, each with its messages taken as one document.

        `conversations` is the highest number there is. A word that stands in nearly every conversation weighs nothing
        and is not counted there.
        """
        numbers = self.corpus.session_numbers
        lengths = np.zeros(conversations + 1)
        lengths[: len(self.corpus.session_lengths)] = self.corpus.session_lengths[: conversations + 1]
        gone = np.sort(self._superseded)
        np.subtract.at(lengths, numbers[gone], self.corpus.documents.length[gone])
        live = self.live.documents
        shown = self._live_counted & self.live.messages & (live.flags & HIDDEN == 0)
        live_numbers = np.where(shown & (live.conversation <= conversations), live.conversation, 0)
        np.add.at(lengths, live_numbers, live.length)
        lengths[0] = 0
        count = int(np.count_nonzero(lengths))
        scores = np.zeros(len(wanted))
        if not count:
            return scores
        norms = length_norms(lengths[wanted], float(lengths.sum()) / count, self.profile)
        many = self.count > _ROWS_PER_SESSION * count
        for term in terms:
            if many and self.df(term) > _IN_EVERY_SESSION * self.count:
                continue
            times = np.zeros(conversations + 1, dtype=np.float32)
            times[: len(self.corpus.session_lengths)] = self._corpus_times(term)[: conversations + 1]
            if len(gone):
                np.subtract.at(times, numbers[gone], self._times_at(gone, term))
            np.add.at(times, live_numbers[term.live_owners], term.live_frequencies)
            times[0] = 0
            weight = idf(count, int(np.count_nonzero(times))) * (self.profile.k1 + 1)
            held = times[wanted].astype(np.float64)
            scores += weight * held / (held + norms)
        return scores

    def _corpus_times(self, term: TermPostings) -> Array:
        """How often a term stands in each conversation, superseded rows included; of a common one this is kept."""
        kept: dict[int, Array] = self.corpus.kept.setdefault("session times", {})
        times = kept.get(term.key)
        if times is None:
            hits = self._hits(term)
            times = np.bincount(
                self.corpus.session_numbers[hits.positions],
                weights=hits.frequencies,
                minlength=len(self.corpus.session_lengths),
            ).astype(np.float32)
            if self.df(term) > _COMMON * self.count:
                if (len(kept) + 1) * times.nbytes > _MOST_KEPT_BYTES:
                    kept.clear()
                kept[term.key] = times
        return times


def length_norms(lengths: Array, mean_length: float, profile: Profile) -> Array:
    """BM25's part of the denominator that is a document's own."""
    norms = lengths.astype(np.float32)
    norms *= np.float32(profile.k1 * profile.b / mean_length)
    norms += np.float32(profile.k1 * (1 - profile.b))
    return norms


def corpus_norms(corpus: Corpus, mean_length: float, profile: Profile) -> Norms:
    """The norms of a whole corpus, kept with it as long as the mean length hardly moves."""
    kept: Norms | None = corpus.kept.get("norms")
    wanted = (profile.k1, profile.b, mean_length)
    if kept is not None and kept.made_with[:2] == wanted[:2] and abs(kept.made_with[2] / mean_length - 1) < 1e-4:
        return kept
    norms = Norms(length_norms(corpus.documents.length, mean_length, profile), wanted)
    corpus.kept["norms"] = norms
    return norms


def corpus_freshness(corpus: Corpus, moment: int, profile: Profile) -> Array:
    """The freshness of a whole corpus, kept with it while the time is about the same."""
    kept = corpus.kept.get("freshness")
    if kept is not None and kept[0] == profile and kept[1] == moment:
        return kept[2]  # type: ignore[no-any-return]
    fresh = _freshness(corpus.documents.at, moment, profile)
    corpus.kept["freshness"] = (profile, moment, fresh)
    return fresh


def _quarter(now: datetime) -> int:
    """The beginning of a quarter of an hour, in seconds since 1970: so long a whole corpus' freshness is kept."""
    return int(now.timestamp()) // 900 * 900


def _freshness(at: Array, moment: int, profile: Profile) -> Array:
    days = (moment - at.astype(np.int64)).astype(np.float32)
    days /= np.float32(86_400)
    np.clip(days, 0, _OLDEST_DAYS, out=days)
    days *= np.float32(-profile.decay_per_day)
    return np.exp(days, out=days)


def visible(field: Field, request: SearchRequest, conversations: Array | None, noise: Array) -> Array:
    """Which positions the filters let through, as far as the columns tell: never too few.

    `conversations` are the numbers of those that are asked for, None for all; `noise` of those that are left out unless
    one is asked for by its id.
    """
    corpus, live = field.corpus, field.live
    if request.conversation_id is not None:
        noise = noise[:0]
        shown = _shown(corpus.documents, corpus.alive, noise)
    else:
        shown = _shown_of_corpus(corpus, noise)[0]
    live_shown = _shown(live.documents, live.alive, noise)
    if request.agent is not None:
        shown = shown & _of_agent_in_corpus(corpus, request.agent)
        live_shown &= _of_agent(live.documents, request.agent)
    return np.concatenate(
        [
            _passing(shown, corpus.documents, corpus.is_message, request, conversations),
            _passing(live_shown, live.documents, live.messages, request, conversations),
        ]
    )


def hidden(field: Field, request: SearchRequest, noise: Array) -> Array | None:
    """The positions that a request without any filter leaves out; None for one with filters."""
    if request.scope != "both" or request.is_filtered:
        return None
    live = np.flatnonzero(~_shown(field.live.documents, field.live.alive, noise))
    return np.concatenate([_shown_of_corpus(field.corpus, noise)[1], live + len(field.corpus)])


def _shown_of_corpus(corpus: Corpus, noise: Array) -> tuple[Array, Array]:
    """Which documents no filter is needed for, and where the others stand."""
    kept = corpus.kept.get("shown")
    if kept is None or not np.array_equal(kept[0], noise):
        shown = _shown(corpus.documents, corpus.alive, noise)
        kept = (noise, (shown, np.flatnonzero(~shown)))
        corpus.kept["shown"] = kept
    both: tuple[Array, Array] = kept[1]
    return both


def _shown(documents: Documents, alive: Array, noise: Array) -> Array:
    shown: Array = alive & (documents.flags & HIDDEN == 0)
    return shown & ~np.isin(documents.conversation, noise) if len(noise) else shown


def _passing(
    shown: Array, documents: Documents, messages: Array, request: SearchRequest, conversations: Array | None
) -> Array:
    """Of the `shown` documents, which are the agent's, those that the other filters let through.

    `messages` says which are no summaries.
    """
    passes = shown.copy()
    if request.scope == "messages" or request.role is not None:
        passes &= messages
    if request.scope == "summaries":
        passes &= ~messages
    if request.role is not None:
        passes &= documents.role == (ROLES.index(request.role) if request.role in ROLES else len(ROLES))
    if request.since is not None:
        passes &= documents.at >= min(max(math.floor(request.since.timestamp()), _FIRST_SECOND), _LAST_SECOND)
    if request.before is not None:
        # Of what stands at the first or the last second it is not known whether it was before.
        passes &= documents.since < min(max(math.ceil(request.before.timestamp()), _FIRST_SECOND + 1), _LAST_SECOND + 1)
    if conversations is not None:
        passes &= np.isin(documents.conversation, conversations)
    return passes


def _of_agent_in_corpus(corpus: Corpus, agent: str) -> Array:
    """Which documents are an agent's, kept with the corpus for the last few that were asked for."""
    kept: dict[str, Array] = corpus.kept.setdefault("agents", {})
    named = kept.get(agent)
    if named is None:
        named = _of_agent(corpus.documents, agent)
        if len(kept) >= _MOST_AGENTS:
            kept.clear()
        kept[agent] = named
    return named


def _of_agent(documents: Documents, agent: str) -> Array:
    named = np.zeros(len(documents), dtype=bool)
    for number, names in enumerate(documents.names):
        if agent in names:
            named |= documents.agents == number
    return named


#: What the columns of times hold, in seconds since 1970; an earlier or a later time stands as the one or the other.
_FIRST_SECOND, _LAST_SECOND = 0, 2**32 - 1


def tells(moment: datetime | None) -> bool:
    """Whether the columns tell exactly which rows are from before a time: they have whole seconds."""
    if moment is None:
        return True
    return moment.microsecond == 0 and _FIRST_SECOND < moment.timestamp() < _LAST_SECOND


def promise(text: Array, fresh: Array, faint: Array, profile: Profile) -> tuple[Array, Array]:
    """What rows are worth by their text alone (at most 1), and with their freshness, as `scoring.py` has it."""
    share = np.where(faint, np.float32(profile.noise_share), np.float32(1))
    relevance = np.float32(1 - profile.faint_share) * np.minimum(text / np.float32(profile.relevant_from), 1)
    relevance += np.float32(profile.faint_share)
    whole = np.float32(profile.text) * text + np.float32(profile.temporal) * fresh
    whole *= relevance
    whole *= share
    return text * share, whole


def top(values: Array, count: int, *ties: Array) -> Array:
    """Where the `count` highest values stand, in no order; of equal ones those with the higher `ties`."""
    if count >= len(values):
        return np.arange(len(values))
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    bound = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > bound)
    equal = np.flatnonzero(values == bound)
    if len(above) + len(equal) > count:
        order = np.lexsort([tie[equal] for tie in reversed(ties)]) if ties else np.arange(len(equal))
        equal = equal[order[::-1][: count - len(above)]]
    return np.concatenate([above, equal])


def distinct(*values: Array) -> Array:
    """The different values of some arrays, ascending; many times as quick as `np.unique`, which hashes each."""
    every = np.sort(np.concatenate(values))
    different: Array = every[np.append(True, every[1:] != every[:-1])] if len(every) else every
    return different
