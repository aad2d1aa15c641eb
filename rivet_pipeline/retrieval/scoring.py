"""How relevant a candidate is: pure functions and the one profile of constants.

Nothing here touches the database or imports anything of ours. `bm25.sql` computes the same BM25 beside the data; a test
holds the two together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

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
    #: Injected context, notices and tool stubs keep this share of their score.
    noise_share: float = 0.35
    #: A row whose better part of text and semantic is 0 keeps this share of its score; all of it from `relevant_from`.
    faint_share: float = 0.5
    relevant_from: float = 0.4
    #: Candidates that one pass of the text index may select, in each table.
    candidates: int = 4000
    #: Candidates of the text arm that get all their parts, at least.
    lexical_kept: int = 100
    #: Candidates of the vector arm, at least: of messages, and half as many summaries.
    vector_kept: int = 60
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
    counted = min(max(accesses, 0), profile.max_accesses)
    created = max(0.0, (now - created_at).total_seconds() / 86_400)
    accessed = created if last_accessed_at is None else max(0.0, (now - last_accessed_at).total_seconds() / 86_400)
    days = created + (min(accessed, created) - created) * counted / profile.max_accesses
    return min(1.0, math.exp(-profile.decay_per_day * days) * (1 + profile.per_access * counted))


def idf(documents: float, df: float) -> float:
    """BM25's inverse document frequency, never negative. `df` beyond `documents` counts as `documents`."""
    df = min(df, documents)
    return math.log(1 + (documents - df + 0.5) / (df + 0.5))


def bm25_term(*, weight: float, tf: float, length: float, mean_length: float, profile: Profile = PROFILE) -> float:
    """What one term adds to a document's BM25: `weight` is its idf, lengths are in any one unit."""
    norm = 1 - profile.b + profile.b * length / mean_length if mean_length > 0 else 1.0
    return weight * tf * (profile.k1 + 1) / (tf + profile.k1 * norm)


def weighted(*, text: float, semantic: float, temporal: float, importance: float, profile: Profile = PROFILE) -> float:
    """The weighted sum of the four parts, each from 0 to 1.

    A part that could not be computed is 0, never a substitute: the answer says that it is missing instead.
    """
    return (
        profile.text * text
        + profile.semantic * semantic
        + profile.temporal * temporal
        + profile.importance * importance
    )


def relevance_factor(*, text: float, semantic: float, profile: Profile = PROFILE) -> float:
    """What share of its score a row keeps: less when neither its words nor its meaning are much of what was asked for.

    Without it a new row that shares one common word with a query would stand above an old one that answers it.
    """
    relevance = min(1.0, max(text, semantic) / profile.relevant_from)
    return profile.faint_share + (1 - profile.faint_share) * relevance


def lift_verbatim(score: float, verbatim: bool) -> float:
    """The score of a hit of a literal query: the upper half of the scale belongs to texts that contain it verbatim."""
    return 0.5 + 0.5 * score if verbatim else 0.5 * score


def noise_factor(
    *, kind: str, tool_name: str | None, role: str | None, characters: int | None, profile: Profile = PROFILE
) -> float:
    """What share of its score a row keeps: less for machinery and for tool rows that say next to nothing.

    Machinery is injected context and notices (the output of a local command, an interruption, a change of model).

    `characters` is the length of a tool row's content and result together, white space at the ends not counted; None
    for other rows, which may be short.
    """
    is_tool = role == "tool" or tool_name is not None
    if kind in _MACHINERY or (is_tool and characters is not None and characters < STUB_CHARACTERS):
        return profile.noise_share
    return 1.0


_CORRECTION = re.compile(
    r"""^\W*(?:no|nope|wrong|stop|wait)\b[,.!:;\s]
      | \bthat(?:['\u2019]s|\sis)\s(?:wrong|not\s(?:right|correct|what\sI))
      | \b(?:actually|correction|i\smeant|you\smisunderstood|instead\sof\sthat)\b
      | \b(?:don['\u2019]?t|do\snot|never)\s(?:do|use|touch|change|add|write|edit|run)\b
      | \bnot\s\w+[\w\s]{0,40},?\s(?:but|rather)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PREFERENCE = re.compile(
    r"""\bI(?:['\u2019]d|\swould)?\s(?:prefer|like|love|hate|dislike|want\syou\sto\salways)\b
      | \b(?:my|our)\s(?:preference|favou?rite|convention|habit)\b
      | \b(?:always|from\snow\son|in\s(?:the\s)?future)\b
      | \bremember\s(?:that|to)\b
      | \bplease\s(?:use|keep|avoid|write)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_TASK = re.compile(
    r"""\?\s*$
      | ^\W*(?:please|can\syou|could\syou|let['\u2019]?s|to-?do)\b
      | ^\W*(?:add|fix|write|make|create|implement|update|remove|refactor|run|check|find|show|explain|test|deploy)\b
      | \b(?:TODO|FIXME|action\sitem|next\sstep)s?\b""",
    re.IGNORECASE | re.VERBOSE,
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
    for pattern, found in _USER_TYPES:
        if pattern.search(text):
            return found
    return "fact"


_USER_TYPES: tuple[tuple[re.Pattern[str], MemoryType], ...] = (
    (_CORRECTION, "correction"),
    (_PREFERENCE, "preference"),
    (_TASK, "task"),
)

_LITERAL = re.compile(
    r"""\w[./\\:_@#]+\w        # a path, a file name, an address, a symbol
      | (?<!\w)[./~]+/\w       # a path that begins with a sign
      | \w_\w|__\w+
      | ^\s*\d{3,}\s*$
      | \d+(?:\.\d+){1,}
      | \b[A-Za-z]+-\d+\b      # PROJ-1234
      | \d[A-Za-z]|[A-Za-z]\d  # v2, gpt-4o, 0xdeadbeef
      | [a-z][A-Z]             # getUserById
    """,
    re.VERBOSE,
)


def looks_literal(query: str) -> bool:
    """Whether the query is one identifier (a path, an id, a version, an error code) rather than words.

    Some sign must say so, and at most three words may stand around: `TypeError in app.py:42` is literal, a sentence
    that mentions a file is not. A plain hyphen between words (`follow-up`) is no such sign.
    """
    return len(query.split()) <= 3 and _LITERAL.search(query) is not None
