"""The text arm: which rows hold the query's words, and their BM25.

Every row of the index is scored (`text_scoring.py`), messages and summaries in one list; rows that the index has not
yet are read from the store and scored with them. When too many are missing (a bulk import that no pipeline has
followed), `unindexed.py` finds those. Words go through the analyser that the texts went through, so every sign is
literal. A run of CJK characters in a query is asked for by its neighbouring pairs, which are terms of the index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval import index_state, unindexed
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, SUMMARY_FILTER, filter_values, number_array, statement
from rivet_pipeline.retrieval.index_cache import CACHE, Corpus, IndexCache, IndexMovedError, LiveRows
from rivet_pipeline.retrieval.postings import ROLES, Array, term_key
from rivet_pipeline.retrieval.scoring import PROFILE, Profile, temporal_of_days
from rivet_pipeline.retrieval.text_scoring import (
    Field,
    Numbers,
    TermPostings,
    distinct,
    hidden,
    promise,
    tells,
    top,
    visible,
)
from rivet_pipeline.retrieval.types import Key, SearchRequest, Source, signed, unsigned

#: Words of a pasted page that the lexicon has not, and of which it is looked whether they stand in the index.
_MOST_UNCOUNTED = 256

#: The rarest words by which conversations are scored.
_SESSION_TERMS = 16

#: How recent a row is that counts as such (24 days), the shares of the best BM25 one of which enough rows have, and how
#: many of these are weighed first, for each wanted one.
_RECENT = 0.3
_BEST_TEXTS = (0.35, 0.15, 0.05)
_FIRST = 4

#: Shares of the best BM25, by which it is told which of them a row must have.
_SHARES = np.linspace(0, 1, 1_001, dtype=np.float32)

#: With fewer rows each is looked at.
_MANY = 50_000

#: How often a search begins again when the index is written anew under it.
_ATTEMPTS = 5

#: Rows with all the words of a literal query that are looked at for the exact text, and how often as many more are when
#: none of them has it.
_VERBATIM = 400
_VERBATIM_ROUNDS = 10

#: Of a longer text, in bytes, the end may be in no index (`ros_analyse` takes so many characters of a tool's result and
#: of a message, and half as many again and again of one with too many words).
_LONGEST_RESULT, _LONGEST = 60_000, 200_000

#: How many bytes of such texts are looked at for the text of a literal query, about a tenth of a second, and how many
#: messages are asked at a time whether they are so long.
_LONG_BYTES, _LONG_ROWS = 8_000_000, 2_000


class TextContext(NamedTuple):
    """What the words say of rows beyond their own BM25.

    `coverage` has the share of the query's words, by weight, that a row holds, 0 to 1 (not for rows that `unindexed.py`
    found). `sessions` has, by the id of each conversation of these rows, the BM25 of all its messages taken as one
    document, scaled by the best of them to 0 to 1.
    """

    coverage: dict[Key, float]
    sessions: dict[str, float]


@dataclass(frozen=True)
class TextScores:
    """BM25 by row, best first: keys are (source, seq). `best` is the highest of all candidates, 0 without any.

    `has_words` is False when the query holds nothing that could be looked for, `matched` when no row that was looked at
    holds anything of it. `read_context` computes what the
    properties of its names have; it is called once, when one of them is first asked for.
    """

    scores: dict[Key, float] = field(default_factory=dict)
    best: float = 0.0
    has_words: bool = True
    matched: bool = False
    read_context: Callable[[], TextContext] = field(default=lambda: TextContext({}, {}), repr=False, compare=False)

    @cached_property
    def context(self) -> TextContext:
        """Takes a while at a million rows, and asks the store for conversations that this process does not know."""
        return self.read_context()


class _Weighed(NamedTuple):
    """Rows by ascending position, and what each is worth by its text alone and with its freshness (`promise`)."""

    positions: Array
    text: Array
    whole: Array


@dataclass(frozen=True, slots=True)
class _Found:
    """Candidates: keys (a summary's is negative) and BM25."""

    keys: Array
    scores: Array


def score_texts(
    connection: Connection,
    request: SearchRequest,
    *,
    literal: bool = False,
    extra: Sequence[Key] = (),
    now: datetime,
    kept: int,
    profile: Profile = PROFILE,
    index: IndexCache = CACHE,
) -> TextScores:
    """The best rows by text alone and by text and freshness together, within the filters, and the `extra` rows.

    About `kept` of them, and at least `request.limit` whenever so many hold any of the words; an extra row has 0 when
    it holds none. `literal`: rows with the exact text of the query are among them, wherever they would stand.
    """
    return TextSearch(connection, request, literal=literal, now=now, kept=kept, profile=profile, index=index).best(
        extra
    )


class TextSearch:
    """`score_texts` in three steps: what must be read is read at once, `score` only computes, `best` asks the store.

    Thus a caller can let the store do something else while the texts are scored.
    """

    def __init__(
        self,
        connection: Connection,
        request: SearchRequest,
        *,
        literal: bool = False,
        now: datetime,
        kept: int,
        profile: Profile = PROFILE,
        index: IndexCache = CACHE,
    ) -> None:
        self._connection, self._request, self._literal, self._index = connection, request, literal, index
        self._now, self._kept, self._profile = now, kept, profile
        self._words: list[TermPostings] = []
        self._parts: list[TermPostings] = []
        self._scored = False
        #: How far texts longer than the index were read for a literal query that nothing holds, None when to the end.
        self.partial: str | None = None
        # The columns have times by the second, and no roles but the known ones. All else they know as the store does
        # (a tag by its conversations), and `features.sql` tests every row that is scored once more.
        self._must_ask = not tells(request.since) or not tells(request.before) or request.role not in (None, *ROLES)
        for attempt in range(_ATTEMPTS):
            try:
                self._read()
                return
            except IndexMovedError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _read(self) -> None:
        known = self._index.known_messages(self._connection)
        state = self._state = index_state.read_state(self._connection, self._request.query, known)
        if state.known is not None and not state.is_behind:
            self._index.know_messages(self._connection, state.known)
        self.has_words = bool(state.words or state.uncounted)
        corpus = self._index.corpus(self._connection, state.pieces)
        seen = slice(0 if state.is_behind else None)
        live = self._index.live(self._connection, state.database, state.live[seen], state.changes[seen])
        self._field = Field(corpus, live, corpus.places(state.live[state.changes > 0]), self._profile)
        words = [*self._uncounted(corpus, live), *state.words]
        keys = {word: term_key(word) for word in [*words, *state.parts]}
        postings = self._index.postings(self._connection, corpus.pieces, list(dict.fromkeys(keys.values())))
        terms = {word: TermPostings(key, postings[key], *live.postings(key)) for word, key in keys.items()}
        self._words = [terms[word] for word in words]
        self._parts = [terms[word] for word in state.parts] if self._literal else []
        self._boosts = self._index.boosts(self._connection, state.database)
        self._asked = self._conversations()

    def _uncounted(self, corpus: Corpus, live: LiveRows) -> list[bytes]:
        """Of the words that the lexicon has not as many as take part, those first that stand somewhere."""
        words = self._state.uncounted
        if len(words) <= index_state.MAX_TERMS:
            return words
        keys = {word: term_key(word) for word in words}
        found = {word for word in words if len(live.postings(keys[word])[0])}
        # Of the others only such as hold a digit may stand in the index.
        numbered = [word for word in words if word not in found and re.search(rb"[0-9]", word)][:_MOST_UNCOUNTED]
        postings = self._index.postings(self._connection, corpus.pieces, [keys[word] for word in numbered])
        found |= {word for word in numbered if any(one is not None for one in postings[keys[word]])}
        return sorted(words, key=lambda word: word not in found)[: index_state.MAX_TERMS]

    @property
    def behind(self) -> str | None:
        """That the index lacks too many rows for exact scores (`unindexed.py` finds these), None when it does not."""
        if not self._state.is_behind:
            return None
        return f"more than {index_state.MOST_LIVE:,} texts are not in the text index yet"

    def score(self) -> None:
        """Scores every row, which takes a while at a million; nothing is asked of the store."""
        if self._scored or not self.has_words:
            return
        self._scored = True
        self._scores = self._field.score(self._words)
        left_out = hidden(self._field, self._request, self._state.noise)
        if left_out is None:
            self._scores *= self._shown
        else:
            self._scores[left_out] = 0
        self._highest = max(float(self._scores.max(initial=0)), 1e-9)
        # The exact text of a literal query may stand in any row.
        likely = None if self._parts or len(self._scores) < _MANY else self._weigh_likely()
        self._weighed = self._weigh(self._positions) if likely is None else likely

    @cached_property
    def _positions(self) -> Array:
        """Where any of the words stands, within the filters as far as the columns tell."""
        return np.flatnonzero(self._scores > 0)

    def _weigh(self, positions: Array) -> _Weighed:
        text, whole = promise(
            self._scores[positions] / np.float32(self._highest),
            self._fresh(positions),
            self._field.faint(positions),
            self._profile,
        )
        return _Weighed(positions, text, whole)

    def _weigh_likely(self) -> _Weighed | None:
        """The rows among which the best are for certain; None when that is every row that holds a word.

        Nearly every row holds some word of a question, and most of them can be told to be worth too little without a
        look: what the best texts and the recent ones are worth says how much text an older one would need.
        """
        for share in _BEST_TEXTS:
            best = np.flatnonzero(self._scores >= self._bound(share))
            if len(best) >= self._kept:
                break
        else:
            return None
        likely = self._weigh(np.sort(best[top(self._scores[best], _FIRST * self._kept)]))
        recent = self._holding(self._field.recent(self._now, _RECENT), self._least_text(likely, 1.0))
        boosted = self._holding(self._boosted[self._boosted >= 0], 0.0)
        likely = self._weigh(distinct(likely.positions, recent, boosted))
        least = self._least_text(likely, _RECENT)
        older = self._holding(best, least) if least >= share else np.flatnonzero(self._scores >= self._bound(least))
        return self._weigh(distinct(likely.positions, older))

    def _least_text(self, likely: _Weighed, fresh: float) -> float:
        """With less than which share of the best BM25 no row at most so fresh is as good as the best among some."""
        half = max(1, self._kept // 2)
        best = np.partition(likely.whole, -self._kept)[-self._kept]
        none = np.zeros(len(_SHARES), bool)
        _, worth = promise(_SHARES, np.full(len(_SHARES), fresh, np.float32), none, self._profile)
        needed = _SHARES[max(0, int(np.searchsorted(worth, best)) - 1)]
        return float(min(needed, np.partition(likely.text, -half)[-half]))

    def _holding(self, positions: Array, share: float) -> Array:
        """Those of some positions that have such a share of the best BM25, and any at all."""
        return positions[self._scores[positions] >= self._bound(share)]

    def _bound(self, share: float) -> np.float32:
        """The BM25 of a share of the best, more than 0; a little less, for it is rounded."""
        return max(np.float32(share * self._highest * (1 - 1e-6)), np.finfo(np.float32).tiny)

    @cached_property
    def _boosted(self) -> Array:
        """The positions of the rows of `_boosts`, -1 for one that is not here."""
        return self._field.places(self._boosts.numbers, keep="boosted")

    def _boosted_among(self, positions: Array) -> tuple[Array, Array]:
        """Where in some positions rows of `_boosts` stand, and at which place there."""
        if not len(positions):
            return _NONE, _NONE
        at = np.minimum(np.searchsorted(positions, self._boosted), len(positions) - 1)
        which = np.flatnonzero(positions[at] == self._boosted)
        return at[which], which

    @cached_property
    def _shown(self) -> Array:
        return visible(self._field, self._request, self._asked, self._state.noise)

    def within(self) -> Callable[[Source], Numbers] | None:
        """By source the rows that the columns know no reason to leave out, so never too few, and of which they know.

        They know nothing of rows that hold no word. None when there are rows that neither the index has nor this
        process.
        """
        return None if self._state.is_behind else partial(self._field.numbers, self._shown)

    def best(self, extra: Sequence[Key] = ()) -> TextScores:
        """The best rows that the filters let through, the `extra` ones, and what else `TextScores` has of them."""
        if not self.has_words:
            return TextScores(has_words=False)
        self.score()
        found = self._candidates()
        return _answer(self, found, self._beyond(extra), extra)

    def _beyond(self, extra: Sequence[Key]) -> dict[Key, float]:
        """The scores of rows that the index has not, when they are too many to be read."""
        state = self._state
        if not state.is_behind:
            return {}
        live, changed = set(state.live.tolist()), state.live[state.changes > 0]
        return unindexed.find_texts(
            self._connection,
            self._request,
            above=state.above,
            changed={"message": changed[changed > 0].tolist(), "summary": (-changed[changed < 0]).tolist()},
            literal=self._literal,
            extra=[row for row in extra if signed(row) in live or row[1] > state.above[row[0]]],
            now=self._now,
            kept=self._kept,
            profile=self._profile,
        )

    def _candidates(self) -> _Found:
        """The best rows that the filters let through; of a literal query those with the exact text too."""
        found = self._checked()
        if not self._parts:
            return found
        exact = self._verbatim(self._weighed.positions, self._weighed.whole, self._parts)
        if len(exact.keys) < self._request.limit:
            exact = _joined(exact, self._in_long_texts(found_before=len(exact.keys)))
        return _joined(found, exact)

    def _conversations(self) -> Array | None:
        """The numbers of the conversations that the filters ask for, None when they ask for none."""
        wanted = self._request.tagged
        if self._request.conversation_id is not None:
            wanted = (self._request.conversation_id,)
        if wanted is None and self._request.tag is None:
            return None
        if wanted is None:
            # More of them than are bound by their ids.
            rows = self._connection.execute(
                "SELECT number FROM ros_conversations WHERE id IN (SELECT ros_tagged_conversations(%s))",
                [self._request.tag],
            ).fetchall()
        else:
            rows = self._connection.execute(
                "SELECT number FROM ros_conversations WHERE id = ANY (%s)", [list(wanted)]
            ).fetchall()
        return np.array([row["number"] for row in rows], dtype=np.int64)

    def _fresh(self, positions: Array) -> Array:
        fresh = self._field.freshness(positions, self._now)
        at, which = self._boosted_among(positions)
        if len(at):
            moment, order = self._now.timestamp(), np.argsort(at)
            at, which = at[order], which[order]
            fresh[at] = temporal_of_days(
                created=_days(moment, self._field.times(positions[at]).astype(np.float64)),
                accessed=_days(moment, self._boosts.last[which]),
                accesses=self._boosts.accesses[which],
                profile=self._profile,
            )
        return fresh

    def _checked(self) -> _Found:
        """The most promising rows, as many as are wanted within the filters; the store tests these where need be."""
        wanted, (positions, text, whole) = self._kept, self._weighed
        while True:
            times = self._field.times(positions)
            first = top(whole, wanted, times, positions)
            chosen = distinct(first, top(text, wanted // 2, times, positions))
            keys = self._field.keys(positions[chosen])
            if not self._must_ask:
                return _Found(keys, self._scores[positions[chosen]])
            passing = self._passing(keys)
            passes = np.array([key in passing for key in keys.tolist()], dtype=bool)
            if passes.all() or len(chosen) == len(self._positions) or np.count_nonzero(passes) >= self._kept:
                return _Found(keys[passes], self._scores[positions[chosen]][passes])
            wanted *= 4
            positions, text, whole = self._weigh(self._positions)

    def _verbatim(self, positions: Array, whole: Array, parts: list[TermPostings]) -> _Found:
        """Of the rows with all parts of the query some that hold it as it stands, the most promising first."""
        at = np.flatnonzero(np.isin(positions, self._field.holds_all(parts), assume_unique=True))
        at = at[np.argsort(-whole[at], kind="stable")][: _VERBATIM * _VERBATIM_ROUNDS]
        for start in range(0, len(at), _VERBATIM):
            some = np.sort(positions[at[start : start + _VERBATIM]])
            keys = self._field.keys(some)
            exact = self._passing(keys, verbatim=True)
            if exact:
                holds = np.flatnonzero([key in exact for key in keys.tolist()])
                holds = holds[top(self._scores[some[holds]], self._kept)]
                return _Found(keys[holds], self._scores[some[holds]])
        return _Found(_NONE, _NONE)

    def _in_long_texts(self, *, found_before: int) -> _Found:
        """The newest messages that hold the query as it stands and are longer than what is indexed of a text."""
        if self._request.scope == "summaries":
            return _Found(_NONE, _NONE)
        positions = np.flatnonzero(self._field.longer(_LONGEST_RESULT) & self._shown)
        times, keys = self._field.times(positions), self._field.keys(positions)
        newest = np.flatnonzero(keys > 0)
        newest = newest[np.argsort(-times[newest].astype(np.int64), kind="stable")]
        if not len(newest):
            return _Found(_NONE, _NONE)
        seqs: list[int] = []
        read, left, is_cut = 0, _LONG_BYTES, False
        for start in range(0, len(newest), _LONG_ROWS):
            # Most of them are indexed to their end: only the store knows whose text of a tool is so long.
            if is_cut := left <= 0:
                break
            row = self._connection.execute(
                _long_statement(),
                filter_values(self._request)
                | {
                    "messages": number_array(keys[newest[start : start + _LONG_ROWS]].tolist()),
                    "longest": _LONGEST,
                    "longest_result": _LONGEST_RESULT,
                    "bytes": left,
                    "text": self._request.query.lower(),
                },
            ).fetchone()
            assert row is not None  # an aggregate
            seqs += row["seqs"]
            read, left = read + row["read"], left - row["bytes"]
            if is_cut := row["unread"] > 0:
                break
        held = np.array(seqs, dtype=np.int64)
        if is_cut and not (found_before or len(held)):
            self.partial = (
                f"of the texts that are longer than what is indexed of them the newest {read:,} were read to "
                "their end and no older ones; mode trigram reads further"
            )
        return _Found(held, self._scores[self._field.places(held)])

    def _passing(self, keys: Array, *, verbatim: bool = False) -> set[int]:
        """Which of the rows the filters let through; with `verbatim` only those that hold the query as it stands."""
        # Read by sequence number whatever the values are, so that one plan serves all and is made once.
        rows = self._connection.execute(
            _check_statement(),
            filter_values(self._request)
            | {
                "messages": number_array(key for key in keys.tolist() if key > 0),
                "summaries": number_array(-key for key in keys.tolist() if key < 0),
                "verbatim": self._request.query.lower() if verbatim else None,
            },
        ).fetchall()
        return {row["key"] for row in rows}

    def places(self, rows: Sequence[Key]) -> Array:
        """The positions of rows, -1 for those that are not scored here."""
        return self._field.places(np.array([signed(row) for row in rows], dtype=np.int64))

    def scores_at(self, places: Array) -> Array:
        """BM25 by position, 0 for none."""
        if not len(self._scores):
            return np.zeros(len(places))
        return np.where(places >= 0, self._scores[places], 0)

    def coverage(self, positions: Array) -> Array:
        """The share of the query's words that some ascending positions hold."""
        return self._field.coverage(self._words, positions)

    def sessions(self, positions: Array) -> dict[str, float]:
        """BM25 of the conversations of the given rows, each taken as one document, scaled to 0 to 1 by the best."""
        state = self._state
        numbers = distinct(self._field.conversations(positions))
        numbers = numbers[numbers <= state.conversations]
        words = [word for word in self._words if self._field.df(word)][:_SESSION_TERMS]
        scores = self._field.sessions(words, numbers, state.conversations)
        highest = max(float(scores.max(initial=0)), 1e-9)
        ids = self._index.conversations(self._connection, state.database, numbers.tolist())
        pairs = zip(ids, (scores / highest).tolist(), strict=True)
        return {name: score for name, score in pairs if name is not None}


def _days(moment: float, times: Array) -> Array:
    """How long before a moment each of some times was, in days, at least 0; all in seconds since 1970."""
    ages: Array = np.maximum(0.0, moment - times) / 86_400
    return ages


@cache
def _check_statement() -> bytes:
    text = sql.SQL(statement("check_texts")).format(message_filter=MESSAGE_FILTER, summary_filter=SUMMARY_FILTER)
    return text.as_string().encode()


@cache
def _long_statement() -> bytes:
    return sql.SQL(statement("long_texts")).format(filter=MESSAGE_FILTER).as_string().encode()


def _joined(first: _Found, second: _Found) -> _Found:
    """Both without what they have in common."""
    new = ~np.isin(second.keys, first.keys)
    return _Found(np.concatenate([first.keys, second.keys[new]]), np.concatenate([first.scores, second.scores[new]]))


def _answer(search: TextSearch, found: _Found, beyond: dict[Key, float], extra: Sequence[Key]) -> TextScores:
    """`beyond`: the scores of rows that are not in the field."""
    scores = {unsigned(key): score for key, score in zip(found.keys.tolist(), found.scores.tolist(), strict=True)}
    scores |= beyond
    matched = bool(scores)
    best = max(scores.values(), default=0.0)
    others = [row for row in extra if row not in scores]
    rows = [*scores, *others]
    places = search.places(rows)
    scores |= dict(zip(others, search.scores_at(places[len(rows) - len(others) :]).tolist(), strict=True))
    positions = distinct(places[places >= 0])

    def context() -> TextContext:
        covered = dict(zip(positions.tolist(), search.coverage(positions).tolist(), strict=True))
        coverage = {row: covered[place] for row, place in zip(rows, places.tolist(), strict=True) if place >= 0}
        return TextContext(coverage, search.sessions(positions))

    ordered = dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
    return TextScores(
        ordered, best, matched=matched or any(score > 0 for score in scores.values()), read_context=context
    )


_NONE: Array = np.empty(0, dtype=np.int64)
