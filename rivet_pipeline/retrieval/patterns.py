"""The modes that read the texts themselves: `trigram` (a literal text, or one spelled like it) and `regex`.

An index of all trigrams would be larger than the texts and halve the speed of writing them, so texts are read: newest
first, block by block, within the filters, for as long as the profile allows. What that leaves unread is found by its
words as far as these tell it, and the answer says how far back was looked. Expressions are run by
Postgres, where they can be stopped. What a hit is worth is not decided here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Literal, LiteralString

import psycopg
from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, SUMMARY_FILTER, filter_values, number_array, statement
from rivet_pipeline.retrieval.literal import LONGEST_FOLDED, literal_pattern
from rivet_pipeline.retrieval.scoring import PROFILE, Profile
from rivet_pipeline.retrieval.types import Key, SearchRequest, Source

#: The longest expression, in characters; one that people write has fewer than a hundred.
MAX_PATTERN = 1000

#: Options that an expression may begin with, `(?n)`, as Postgres defines them: case, and what lines mean. The others
#: change the grammar.
_OPTIONS = frozenset("cimnpsw")

#: The parts of an expression: an escaped sign, a list in brackets (in which `\\b` is a backspace everywhere, and which
#: may hold `[:alpha:]`, `[.hyphen.]` and `[=a=]`), a sign.
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|\[(?P<kind>[:.=])[^\[]+?(?P=kind)\]|[^\]\\])*+\]|.", re.DOTALL)

#: The bound of a word and what is none, as nearly everybody writes them and as Postgres does. To it `\\b` is a
#: backspace and `\\B` a backslash, and the answer would be a wrong "nothing".
_BOUNDS = {r"\b": r"\y", r"\B": r"\Y"}

#: Rows of the first block, of the smallest and of the largest one, and how long one should take.
_FIRST_BLOCK, _LEAST_BLOCK, _MOST_BLOCK = 500, 100, 50_000
_BLOCK_SECONDS = 0.25

#: What Postgres says of an expression that it takes for none, and of one whose automaton is larger than it can hold
#: (`(.{1,200}){1,200}` wants a block of more than a gigabyte) or nested deeper than its stack.
_REFUSALS = (
    psycopg.errors.InvalidRegularExpression,
    psycopg.errors.InternalError_,
    psycopg.errors.OutOfMemory,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)

#: The share of the time that reading texts may take when similar ones are looked for after it.
_READING_SHARE = 0.7

#: What counts as similar (of a word, by pg_trgm: 0 to 1), and of how many rows and characters it is asked.
_SIMILAR = 0.6
_SIMILAR_TERM = 0.4
_SIMILAR_ROWS, _SIMILAR_CHARACTERS, _SIMILAR_TERMS, _SIMILAR_WORDS = 150, 10_000, 6, 6
_LONGEST_SIMILAR = 100


@dataclass(frozen=True, slots=True)
class Pattern:
    """What is looked for: an expression of Postgres (case makes no difference), or letters too many for one."""

    text: str
    how: Literal["expression", "letters"]


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that hold what is looked for, and those that hold something similar, with how much (0 to 1).

    `partial` says how far the texts were read, None when all of them were or enough was found.
    """

    literal: frozenset[Key] = frozenset()
    similar: dict[Key, float] = field(default_factory=dict)
    partial: str | None = None


@dataclass(frozen=True, slots=True)
class _Scanned:
    seqs: list[int]
    rows: int
    back_to: datetime | None
    complete: bool


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    alias: str
    at: LiteralString
    tool_result: LiteralString
    filter: sql.SQL


_TABLES: dict[Source, _Table] = {
    "message": _Table(
        "ros_messages",
        "m",
        "m.created_at",
        "m.tool_result",
        MESSAGE_FILTER,
    ),
    "summary": _Table("ros_summaries", "s", "s.latest_at", "NULL::text", SUMMARY_FILTER),
}

_MATCH: dict[str, LiteralString] = {
    "expression": "b.{column} ~* %(pattern)s",
    "letters": "position(lower(%(pattern)s) IN lower(b.{column})) > 0",
}


def sources(request: SearchRequest) -> Iterable[Source]:
    """The tables that a request asks for; a summary has no role."""
    if request.scope != "messages" and request.role is None:
        yield "summary"
    if request.scope != "summaries":
        yield "message"


def literal_of(text: str) -> Pattern:
    """A text to look for as it stands: no sign in it has a meaning."""
    if len(text) <= LONGEST_FOLDED:
        return Pattern(literal_pattern(text), "expression")
    return Pattern(text, "letters")


def read_regex(connection: Connection, text: str, profile: Profile = PROFILE) -> Pattern:
    """An expression that a person wrote, checked by Postgres, with its word bounds as Postgres writes them (`_BOUNDS`).

    Raises `InvalidInputError` with the engine's own words for a wrong one, and for one that is too long, changes the
    grammar, or finds every text.
    """
    if len(text) > MAX_PATTERN:
        raise _bad(f"a regular expression has at most {MAX_PATTERN:,} characters, this one {len(text):,}; shorten it")
    if text.startswith("***"):
        raise _bad("a regular expression may not begin with ***; mode trigram looks for a text as it stands")
    options = re.match(r"\(\?([a-z]+)\)", text)
    if options is not None and not set(options.group(1)) <= _OPTIONS:
        raise _bad(
            f"the options {options.group()} change the grammar; of (?c), (?i), (?m), (?n), (?p), (?s) and (?w) each is "
            "possible, and mode trigram looks for a text as it stands"
        )
    text = _PARTS.sub(lambda part: _BOUNDS.get(part.group(), part.group()), text)
    deadline = time.monotonic() + profile.pattern_seconds
    try:
        rows = _ask(connection, b"SELECT '' ~* %(pattern)s AS empty", {"pattern": text}, deadline)
    except _REFUSALS as error:
        # Nothing is read for this but the expression, so whatever is wrong is wrong with it.
        raise _bad(_refusal(error)) from error
    if rows is None:
        raise _bad(_too_slow(profile))
    if rows[0]["empty"]:
        raise _bad("the regular expression fits an empty text, and so every text; ask for at least one character")
    return Pattern(text, "expression")


def find(
    connection: Connection,
    request: SearchRequest,
    pattern: Pattern,
    *,
    candidates: Iterable[Key] = (),
    wanted: int,
    profile: Profile = PROFILE,
) -> Found:
    """The rows within the filters that hold the pattern, `wanted` in each table or all, the newest ones at least.

    `candidates` are rows that may hold it and are looked at first, however old. For mode trigram, with fewer than
    `request.limit` such rows, similar ones too. Takes `profile.pattern_seconds` at most. Raises `InvalidInputError`
    when that is not enough to look at anything. Runs in a transaction of the caller's.
    """
    similar_too = request.mode == "trigram"
    deadline = time.monotonic() + profile.pattern_seconds
    reading = deadline - (1 - _READING_SHARE) * profile.pattern_seconds * similar_too
    literal = _holding(connection, pattern, candidates, reading)
    scans: dict[Source, _Scanned] = {}
    asked = list(sources(request))
    for source in asked:
        # Summaries are the fewer; whatever time they leave is for the messages.
        until = reading if source == asked[-1] else time.monotonic() + (reading - time.monotonic()) / 3
        scans[source] = _scan(connection, source, request, pattern, wanted, until)
        literal.update((source, seq) for seq in scans[source].seqs)
    if not literal and any(scan.rows == 0 and not scan.complete for scan in scans.values()):
        raise _bad(_too_slow(profile))
    similar: dict[Key, float] = {}
    if similar_too and len(literal) < request.limit:
        similar = _similar(connection, request, wanted, deadline)
    return Found(
        frozenset(literal),
        {key: likeness for key, likeness in similar.items() if key not in literal},
        _partial(scans, profile),
    )


def find_places(
    connection: Connection, keys: Iterable[Key], pattern: Pattern, profile: Profile = PROFILE
) -> dict[Key, tuple[bool, int, int]]:
    """Where the pattern stands in each row: whether in the tool's result, and from and to which character, from 0.

    Rows that do not hold it are missing, and all are when it takes too long.
    """
    if pattern.how != "expression":
        return {}
    keys = list(keys)
    values = {
        "pattern": pattern.text,
        "messages": number_array(seq for source, seq in keys if source == "message"),
        "summaries": number_array(seq for source, seq in keys if source == "summary"),
    }
    deadline = time.monotonic() + profile.pattern_seconds
    places: dict[Key, tuple[bool, int, int]] = {}
    for row in _ask(connection, statement("places").encode(), values, deadline) or []:
        key: Key = (row["source"], row["seq"])
        if row["content_from"]:
            places[key] = (False, row["content_from"] - 1, row["content_to"] - 1)
        elif row["result_from"]:
            places[key] = (True, row["result_from"] - 1, row["result_to"] - 1)
    return places


def _bad(problem: str) -> InvalidInputError:
    return InvalidInputError("query", problem)


def _refusal(error: psycopg.Error) -> str:
    if not isinstance(error, psycopg.errors.InvalidRegularExpression):
        return f"the regular expression is too large for Postgres ({error.diag.message_primary}); repeat less in it"
    return (
        f"{error.diag.message_primary}; write signs that mean themselves with a \\ before them, "
        "or use mode trigram, where all do"
    )


def _too_slow(profile: Profile) -> str:
    return (
        f"looking for this takes more than {profile.pattern_seconds:g} s; write a simpler pattern, "
        "or narrow the search by since, agent, tag or conversation"
    )


def _ask(connection: Connection, query: bytes, values: dict[str, Any], deadline: float) -> list[dict[str, Any]] | None:
    """The statement's rows; None when the time is up. Raises `InvalidInputError` for an expression that is none."""
    milliseconds = int(1000 * (deadline - time.monotonic()))
    if milliseconds <= 0:
        return None
    try:
        with connection.transaction():
            row = connection.execute("SELECT current_setting('statement_timeout') AS former").fetchone()
            assert row is not None
            connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{milliseconds}ms"])
            rows = connection.execute(query, values, prepare=False).fetchall()
            connection.execute("SELECT set_config('statement_timeout', %s, true)", [row["former"]])
            return rows
    except psycopg.errors.QueryCanceled:
        if time.monotonic() < deadline - 0.05:
            raise
        return None
    except psycopg.errors.InvalidRegularExpression as error:
        raise _bad(_refusal(error)) from error


@cache
def _statement(name: str, source: Source, how: str) -> bytes:
    table = _TABLES[source]
    match = sql.SQL(_MATCH[how])
    text = sql.SQL(statement(name)).format(
        table=sql.Identifier(table.name),
        alias=sql.Identifier(table.alias),
        at=sql.SQL(table.at),
        tool_result=sql.SQL(table.tool_result),
        filter=table.filter,
        match_content=match.format(column=sql.Identifier("content")),
        match_result=match.format(column=sql.Identifier("tool_result")),
    )
    return text.as_string().encode()


def _holding(connection: Connection, pattern: Pattern, candidates: Iterable[Key], deadline: float) -> set[Key]:
    candidates = list(candidates)
    found: set[Key] = set()
    for source in _TABLES:
        seqs = [seq for kind, seq in candidates if kind == source]
        if seqs:
            values = {"seqs": number_array(seqs), "pattern": pattern.text}
            rows = _ask(connection, _statement("hold", source, pattern.how), values, deadline) or []
            found.update((source, row["seq"]) for row in rows)
    return found


def _scan(
    connection: Connection, source: Source, request: SearchRequest, pattern: Pattern, wanted: int, deadline: float
) -> _Scanned:
    seqs: list[int] = []
    rows, back_to, size = 0, None, _FIRST_BLOCK
    values = filter_values(request) | {"pattern": pattern.text, "below_at": None, "below_seq": None}
    while len(seqs) < wanted:
        began = time.monotonic()
        block = _ask(connection, _statement("scan", source, pattern.how), values | {"rows": size}, deadline)
        if block is None:
            return _Scanned(seqs, rows, back_to, False)
        if not block:
            break
        last = block[0]
        seqs += last["seqs"]
        rows, back_to = rows + last["rows"], last["at"]
        if last["rows"] < size:
            break
        values |= {"below_at": last["at"], "below_seq": last["seq"]}
        faster = _BLOCK_SECONDS / max(time.monotonic() - began, 1e-3)
        size = max(_LEAST_BLOCK, min(_MOST_BLOCK, int(size * min(4.0, faster))))
    return _Scanned(seqs[:wanted], rows, back_to, True)


def _partial(scans: dict[Source, _Scanned], profile: Profile) -> str | None:
    names = {"message": "messages", "summary": "summaries"}
    left = {names[source]: scan for source, scan in scans.items() if not scan.complete}
    if not left:
        return None
    read = [
        f"{scan.rows:,} {name}, back to {scan.back_to:%Y-%m-%d %H:%M} UTC,"
        for name, scan in left.items()
        if scan.back_to is not None
    ]
    unread = [name for name, scan in left.items() if scan.back_to is None]
    parts = [f"the texts of the newest {' and '.join(read)} were read and no older ones"] if read else []
    parts += [f"no texts of {' and '.join(unread)} were read"] if unread else []
    return f"in {profile.pattern_seconds:g} s {', and '.join(parts)}"


def _similar(connection: Connection, request: SearchRequest, wanted: int, deadline: float) -> dict[Key, float]:
    words = list(dict.fromkeys(re.findall(r"\w{3,}", request.query.lower())))[:_SIMILAR_WORDS]
    if not words or len(request.query) > _LONGEST_SIMILAR:
        return {}
    connection.execute("SELECT set_config('pg_trgm.similarity_threshold', %s, true)", [str(_SIMILAR_TERM)])
    known = _ask(connection, statement("similar_terms").encode(), {"words": words, "terms": _SIMILAR_TERMS}, deadline)
    selector = " & ".join("(" + " | ".join(map(_quote, row["terms"])) + ")" for row in known or [])
    values = filter_values(request) | {
        "selector": selector,
        "newest": _SIMILAR_ROWS,
        "text": request.query,
        "looked_at": _SIMILAR_CHARACTERS,
        "least": _SIMILAR,
        "wanted": wanted,
    }
    found: dict[Key, float] = {}
    for source in sources(request):
        for row in _ask(connection, _statement("similar", source, "letters"), values, deadline) or []:
            found[(source, row["seq"])] = float(row["likeness"])
    return found


def _quote(lexeme: str) -> str:
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"
