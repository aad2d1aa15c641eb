"""How relevant a candidate is: pure functions and the one profile of constants.

The parts of a score take one row's numbers or columns of many rows', whichever is given. Nothing here touches the
database or imports anything of ours. `bm25.sql` computes the same BM25 beside the data; a test holds the two together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

#: A row's number, or those of many rows.
Value = TypeVar("Value", float, NDArray[np.float64])

#: Progress ticks and replays repeat what other rows say; search leaves them out.
NOISE_KINDS = ("progress", "replay")

MemoryType = Literal["correction", "preference", "fact", "task", "traffic"]

#: Importance by memory type. Source: the project's seed documents; traffic is tool calls and other machinery.
IMPORTANCE: Mapping[MemoryType, float] = {
    "correction": 0.9,
    "preference": 0.8,
    "fact": 0.6,
    "task": 0.5,
    "traffic": 0.3,
}

_MACHINERY = frozenset({"injected", "notice"})

#: A tool row that says less than this many characters (`[tool call] Bash`) is a stub.
STUB_CHARACTERS = 40


class Near(NamedTuple):
    """Where words near in meaning are looked for: in so many conversations, and in so many of the best rows of each."""

    conversations: int
    rows: int


NEAR_SHORT, NEAR_LONG = Near(conversations=10, rows=3), Near(conversations=20, rows=5)


#: Below this cosine similarity a row that meaning alone brings is not a hit of mode hybrid: what WordLlama says of any
#: two texts. Well below the least that a judged question of `rivet eval demo` needs.
LEAST_SIMILARITY = 0.15


@dataclass(frozen=True, slots=True)
class Profile:
    """Every constant of ranking, in one place. Weights are the seeds' formula and add up to 1."""

    text: float = 0.3
    semantic: float = 0.3
    temporal: float = 0.3
    importance: float = 0.1
    #: Decay of the temporal part per day.
    decay_per_day: float = 0.05
    #: What each access adds, and how many accesses count at most: from then on the last access alone is what counts.
    per_access: float = 0.02
    max_accesses: int = 25
    #: BM25's saturation and length normalisation, the values of the literature.
    k1: float = 1.2
    b: float = 0.75
    #: How much of the text part is the share of the query's words that a row holds; the rest is BM25.
    coverage: float = 0.5
    #: What the message before a row and the one after it lend of their own relevance (an answer follows its question,
    #: hence the difference), and what relatives in the summary tree do.
    lent_before: float = 0.3
    lent_after: float = 0.1
    lent_tree: float = 0.3
    #: A text of more bytes is lent ever less by the messages beside it: it says itself what it is about.
    lent_length: int = 300
    #: What the conversation taken as one text adds, and the best row of it.
    session: float = 0.5
    session_best: float = 0.2
    #: What a row gains that was said at a date which the query names, and in how many days after it half is left.
    named: float = 0.5
    named_fades_days: float = 7.0
    #: Candidates from such a time of each arm.
    named_kept: int = 60
    #: Freshness and importance count as this power of a row's relevance, measured against the best row of the query,
    #: and never less than `within_least`: of rows that say equally little the newer ones come first.
    within: float = 8.0
    within_least: float = 0.05
    #: Rows whose neighbours are looked at, at least as many as are wanted.
    neighbours_of: int = 30
    #: Beyond the first ones, further rows of a conversation in one list keep this share, to a power that grows ever
    #: faster with their number, never less than the least.
    crowd_free: int = 6
    crowd_share: float = 0.97
    crowd_least: float = 0.3
    #: A list of more rows than the first number keeps so many as the second says and goes on with the best row of other
    #: conversations, as far as those are known, until it has the third number of conversations.
    spread_over: int = 10
    spread_from: int = 10
    spread_to: int = 10
    #: Which of these come first: a place counts 1 / (this + place), the value of the literature for joining orders.
    place_from: int = 60
    #: Where words near in meaning are looked for, for a list of at most so many rows and for a longer one; in how many
    #: characters of each row; the cosine from which one word is near another.
    near_short_list: int = 20
    near_short: Near = NEAR_SHORT
    near_long: Near = NEAR_LONG
    near_characters: int = 300
    near_from: float = 0.25
    #: A summary below what it was made from (or the other way round) keeps this share.
    repeat_share: float = 0.85
    #: Injected context, notices and tool stubs keep this share of their score.
    noise_share: float = 0.35
    #: Only for the choice of candidates, which knows no context: a row without the query's words keeps this share of
    #: its promise; all of it from `relevant_from`.
    faint_share: float = 0.5
    relevant_from: float = 0.4
    #: Candidates that one pass of the text index may select, in each table.
    candidates: int = 4000
    #: Candidates of the text arm that get all their parts, at least.
    lexical_kept: int = 60
    #: Candidates of the vector arm, at least: of messages, and half as many summaries.
    vector_kept: int = 30
    #: How long texts may be read for a literal text or a regular expression, in seconds.
    pattern_seconds: float = 2.0


PROFILE = Profile()


def temporal(
    *,
    now: datetime,
    created_at: datetime,
    last_accessed_at: datetime | None = None,
    accesses: int = 0,
    profile: Profile = PROFILE,
) -> float:
    """How fresh a row is, from 0 to 1.

    e^(-decay x days) x (1 + per_access x accesses), with accesses counted up to the profile's maximum. The days are
    those since creation for a row that was never returned, and those since the last access for one that was returned
    `max_accesses` times; in between, each access moves the clock an equal step. Were one access enough, whatever a
    search happens to return would be new again, and stand above the answer of the next one. A time in the future is an
    age of 0. The product can reach 1.5 and is cut to 1, so that a score stays within 0 to 1. All times aware.
    """
    created = max(0.0, (now - created_at).total_seconds() / 86_400)
    accessed = created if last_accessed_at is None else max(0.0, (now - last_accessed_at).total_seconds() / 86_400)
    return float(temporal_of_days(created=created, accessed=accessed, accesses=float(accesses), profile=profile))


def temporal_of_days(*, created: Value, accessed: Value, accesses: Value, profile: Profile = PROFILE) -> Value:
    """The same of ages in days, at least 0; the age of what was never accessed is that of its creation."""
    counted = np.minimum(np.maximum(accesses, 0), profile.max_accesses)
    days = created + (np.minimum(accessed, created) - created) * counted / profile.max_accesses
    fresh: Value = np.minimum(1.0, np.exp(-profile.decay_per_day * days) * (1 + profile.per_access * counted))
    return fresh


def idf(documents: float, df: float) -> float:
    """BM25's inverse document frequency, never negative. `df` beyond `documents` counts as `documents`."""
    df = min(df, documents)
    return math.log(1 + (documents - df + 0.5) / (df + 0.5))


def bm25_term(*, weight: float, tf: float, length: float, mean_length: float, profile: Profile = PROFILE) -> float:
    """What one term adds to a document's BM25: `weight` is its idf, lengths are in any one unit."""
    norm = 1 - profile.b + profile.b * length / mean_length if mean_length > 0 else 1.0
    return weight * tf * (profile.k1 + 1) / (tf + profile.k1 * norm)


def text_part(*, bm25: Value, coverage: Value | None, profile: Profile = PROFILE) -> Value:
    """How well a row's words fit, from 0 to 1.

    `bm25` is scaled by the best of the query's candidates; `coverage` is the share of the query's words, by weight,
    that the row holds. BM25 alone prefers a short row that repeats one word to a longer one that holds them all. None:
    not known, BM25 decides alone.
    """
    return bm25 if coverage is None else (1 - profile.coverage) * bm25 + profile.coverage * coverage


def relevance(*, text: Value, semantic: Value, profile: Profile = PROFILE) -> Value:
    """The text and the semantic part of a row by their weights, from 0 to 1.

    A part that could not be computed is 0, never a substitute: the answer says that it is missing instead.
    """
    both = profile.text + profile.semantic
    return (profile.text * text + profile.semantic * semantic) / both if both > 0 else 0.0 * text


def lent(*, before: Value, after: Value, tree: Value, length: Value, profile: Profile = PROFILE) -> Value:
    """What a row's surroundings lend it, from 0 to the sum of the neighbours' two shares.

    The first three are the relevance of the message before it, of the one after it, and of its best relative in the
    summary tree, each from 0 to 1 and 0 where there is none. `length` is that of the row's own text in bytes.
    """
    needs = np.minimum(1.0, profile.lent_length / np.maximum(length, 1.0))
    lends = needs * (profile.lent_before * before + profile.lent_after * after)
    bounded: Value = np.minimum(most_lent(profile), np.maximum(lends, profile.lent_tree * tree))
    return bounded


def most_lent(profile: Profile = PROFILE) -> float:
    """The most that surroundings can lend."""
    return profile.lent_before + profile.lent_after


def in_context(
    *,
    own: Value,
    lent: Value,
    session: Value,
    session_best: Value,
    named: Value | None = None,
    profile: Profile = PROFILE,
) -> Value:
    """A row's relevance with its context, from 0 to 1: its own, what is lent to it, and what its conversation says.

    `session` is the BM25 of the conversation as one text, scaled by the best conversation; `session_best` the relevance
    of the conversation's best row; `named` how well its time fits the dates that the query names, None when it names
    none.
    """
    most = 1 + most_lent(profile) + profile.session + profile.session_best
    both = own + lent + profile.session * session + profile.session_best * session_best
    if named is not None:
        most, both = most + profile.named, both + profile.named * named
    bounded: Value = np.minimum(1.0, both / most)
    return bounded


def total(*, context: Value, best: float, temporal: Value, importance: float, profile: Profile = PROFILE) -> Value:
    """A row's score: the seeds' weighted sum, freshness and importance scaled within relevance. From 0 to 1.

    `context` is the row's relevance in its context and `best` the highest of all candidates. The best row gets its
    freshness and importance whole; a row that says less of what was asked gets less of them, so that freshness decides
    among rows that answer about equally well, and a new row that shares one common word with a query does not stand
    above an old one that answers it.
    """
    share = within(context=context, best=best, profile=profile)
    fresh = profile.temporal * temporal + profile.importance * importance
    return (profile.text + profile.semantic) * context + share * fresh


def within(*, context: Value, best: float, profile: Profile = PROFILE) -> Value:
    """In what share freshness and importance count for a row, from 0 to 1; see `total`."""
    if best <= 0:
        return 0.0 * context + 1.0
    share: Value = (np.minimum(context, best) / best) ** profile.within
    return profile.within_least + (1 - profile.within_least) * share


def crowd_factor(place: int, profile: Profile = PROFILE) -> float:
    """What share of its score the `place`-th row (from 0) of one conversation keeps in one list."""
    beyond = max(0, place - profile.crowd_free + 1)
    share: float = profile.crowd_share ** (beyond * (1 + beyond / 5))
    return max(profile.crowd_least, share)


def lift_verbatim(score: Value, verbatim: bool) -> Value:
    """The score of a hit of a literal query: the upper half of the scale belongs to texts that contain it verbatim."""
    return 0.5 + 0.5 * score if verbatim else 0.5 * score


def noise_factor(
    *, kind: str, tool_name: str | None, role: str | None, characters: int | None, profile: Profile = PROFILE
) -> float:
    """What share of its score a row keeps: less for machinery and for tool rows that say next to nothing.

    Machinery is injected context and notices (the output of a local command, an interruption, a change of model).

    `characters` is the length of a tool row's content and result together, white space at the ends not counted, of
    a long one any number above a stub's; None for other rows, which may be short.
    """
    is_tool = role == "tool" or tool_name is not None
    if kind in _MACHINERY or (is_tool and characters is not None and characters < STUB_CHARACTERS):
        return profile.noise_share
    return 1.0


class _Clue(NamedTuple):
    """A pattern, and words one of which is in every ASCII text that it matches, in small letters.

    Looking for these is quick. None: there are no such words.
    """

    pattern: re.Pattern[str]
    words: tuple[str, ...] | None = None

    def is_in(self, text: str, lowered: str) -> bool:
        """Whether a text, given also in small letters, matches the pattern."""
        # Some letters beyond ASCII match one of these in any case and have another small letter.
        if self.words is not None and text.isascii() and not any(word in lowered for word in self.words):
            return False
        return self.pattern.search(text) is not None


def _clue(pattern: str, *words: str) -> _Clue:
    return _Clue(re.compile(pattern, re.IGNORECASE | re.VERBOSE), words or None)


_CORRECTION = (
    _clue(r"^\W*(?:no|nope|wrong|stop|wait)\b[,.!:;\s]"),
    _clue(r"\bthat(?:['\u2019]s|\sis)\s(?:wrong|not\s(?:right|correct|what\sI))", "that"),
    _clue(
        r"\b(?:actually|correction|i\smeant|you\smisunderstood|instead\sof\sthat)\b",
        "actually",
        "correction",
        "meant",
        "misunderstood",
        "instead",
    ),
    _clue(
        r"\b(?:don['\u2019]?t|do\snot|never)\s(?:do|use|touch|change|add|write|edit|run)\b",
        "don't",
        "dont",
        "not",
        "never",
    ),
    _clue(r"\bnot\s\w+[\w\s]{0,40},?\s(?:but|rather)\b", "not"),
)
_PREFERENCE = (
    _clue(
        r"""\bI(?:['\u2019]d|\swould)?\s(?:prefer|like|love|hate|dislike|want\syou\sto\salways)\b
          | \b(?:my|our)\s(?:preference|favou?rite|convention|habit)\b
          | \b(?:always|from\snow\son|in\s(?:the\s)?future)\b
          | \bremember\s(?:that|to)\b
          | \bplease\s(?:use|keep|avoid|write)\b"""
    ),
)
_TASK = (
    _clue(r"\?\s*$", "?"),
    _clue(
        r"""^\W*(?:please|can\syou|could\syou|let['\u2019]?s|to-?do
          | add|fix|write|make|create|implement|update|remove|refactor|run|check|find|show|explain|test|deploy)\b"""
    ),
    _clue(r"\b(?:TODO|FIXME|action\sitem|next\sstep)s?\b", "todo", "fixme", "action", "next"),
)
_DECLARED: Mapping[str, MemoryType] = {
    "correction": "correction",
    "preference": "preference",
    "fact": "fact",
    "task": "task",
    "tool": "traffic",
    "traffic": "traffic",
}
_TRAFFIC_KINDS = frozenset({"tool", "thinking", "injected", "notice", *NOISE_KINDS})


def memory_type(role: str | None, tool_name: str | None, metadata: Mapping[str, Any], text: str) -> MemoryType:
    """What kind of memory a row is. What the capture said (`metadata.memory_type`) wins; else role and words decide.

    Corrections, preferences and tasks are the user's: what an assistant says about itself is a fact. A summary (role
    None) is a fact. `text` may be the beginning of the text; a few hundred characters are enough.
    """
    declared = metadata.get("memory_type")
    if isinstance(declared, str) and declared.lower() in _DECLARED:
        return _DECLARED[declared.lower()]
    if role == "tool" or tool_name is not None or metadata.get("kind") in _TRAFFIC_KINDS:
        return "traffic"
    if role == "system":
        return "task"
    if role != "user":
        return "fact"
    lowered = text.lower()
    for clues, found in _USER_TYPES:
        if any(clue.is_in(text, lowered) for clue in clues):
            return found
    return "fact"


_USER_TYPES: tuple[tuple[tuple[_Clue, ...], MemoryType], ...] = (
    (_CORRECTION, "correction"),
    (_PREFERENCE, "preference"),
    (_TASK, "task"),
)

_LITERAL = re.compile(
    r"""\w[./\\:_@#]+\w        # a path, a file name, an address, a symbol
      | (?<![\w./~])[./~]*/\w       # a path that begins with a sign
      | \w_\w|__\w+
      | ^\s*\d{3,}\s*$
      | \d+(?:\.\d+){1,}
      | \b[A-Za-z]+-\d+\b      # PROJ-1234
      | \d[A-Za-z]|[A-Za-z]\d  # v2, gpt-4o, 0xdeadbeef
      | [a-z][A-Z]             # getUserById
      | \w[%+#=$&<>\\^|~\[\]{}]|[%+#=$&<>\\^|~\[\]{}@]\w   # C++, 50%, k=v, R&D, #4821, <abbr>, @nasa
      | \w:\\|\w\(\)          # C:\, flush()
      | (?<![\w-])--?[A-Za-z]  # --no-verify
      | (?<![\w.])\.[A-Za-z]  # .env
    """,
    re.VERBOSE,
)

#: What people put around an identifier, and behind it.
_QUOTES, _STOPS = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb \t\n", "?!,;.: \t\n"


def looks_literal(query: str) -> bool:
    """Whether the query is one identifier (a path, an id, a version, an error code) rather than words.

    Some sign must say so, and at most three words may stand around: `TypeError in app.py:42` is literal, a sentence
    that mentions a file is not. A plain hyphen between words (`follow-up`) is no such sign.
    """
    return len(query.split()) <= 3 and _LITERAL.search(query) is not None


def literal_text(query: str) -> str:
    """The identifier of a literal query, without quotes around it and the marks that end a sentence behind it."""
    return query.rstrip(_STOPS + _QUOTES).lstrip(_QUOTES) or query
