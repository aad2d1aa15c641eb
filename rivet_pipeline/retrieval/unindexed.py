"""Rows that the text index has not yet, when there are too many to read: found through the stored tsvectors instead.

Rare words select, common ones only score: the GIN index is asked for few rows however many there are, so the top is a
good one and not always the best. `lexical.py` has the whole arm.

CJK text is a character a word in the tsvectors. A run of such characters in a query matches by its neighbouring pairs
(the query 部署 means 部 followed by 署); in the part of a text beyond some 8,000 words positions are not kept and pairs
not found.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Any, LiteralString

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, SUMMARY_FILTER, filter_values, number_array, statement
from rivet_pipeline.retrieval.postings import CJK_RUN
from rivet_pipeline.retrieval.scoring import PROFILE, STUB_CHARACTERS, Profile, idf
from rivet_pipeline.retrieval.types import SearchRequest, Source

#: The rarest words of a query that take part; a pasted page has hundreds.
MAX_TERMS = 64

#: Words of a query that are looked up: the rarest of those that the lexicon has, and others.
_MOST_COUNTED, _MOST_UNCOUNTED = 4 * MAX_TERMS, 1_000

#: Words beyond those that select alone, whose pairs select.
_PAIRED = 4

#: Rows that one question may match before only the newest part of the store is asked: reading more takes too long.
_MOST_MATCHES = 20_000

#: The share of rows not counted yet beyond which the lexicon's figures say too little to plan with.
_BEHIND = 0.25

#: Words that stand together do so more often than chance says; a guess, only to plan with.
_TOGETHER = 4.0

#: The common words, rarest first, that an estimate of BM25 takes into account beside the rare ones.
_MOST_COMMON = 3

#: A long text is thought to hold a word this many times for each mean length of its own; a guess, only to select with.
_TF_SLOPE = 0.5

#: By source: table, alias, time, length in bytes (as `lexicon.py` counts it), filter.
_TABLES: dict[Source, tuple[str, str, str, str, sql.SQL]] = {
    "message": (
        "ros_messages",
        "m",
        "m.created_at",
        "octet_length(m.content) + coalesce(octet_length(m.tool_result), 0)",
        MESSAGE_FILTER,
    ),
    "summary": ("ros_summaries", "s", "s.latest_at", "octet_length(s.content)", SUMMARY_FILTER),
}


#: What share of its promise a row keeps when candidates are chosen: less for calls that only say what they were, in a
#: text made for them. There may be any number of these, all alike, and each as short as a perfect hit.
_MESSAGE_SHARE: LiteralString = """CASE WHEN m.metadata ? 'content_made_by'
            AND length(btrim(left(coalesce(m.tool_result, ''), 200))) < %(stub)s THEN %(noise_share)s::float8
        ELSE 1 END"""
_SHARES: dict[Source, LiteralString] = {"message": _MESSAGE_SHARE, "summary": "1"}


@dataclass(frozen=True, slots=True)
class Term:
    """A word or a pair of CJK characters: its tsquery, and in how many documents it is thought to stand.

    `name` is a word's lexeme and a pair's tsquery.
    """

    name: str
    query: str
    df: float
    is_phrase: bool


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query after the analyser, rarest term first. Without a lexicon `documents` is 0 and `mean_length` None."""

    terms: tuple[Term, ...]
    lexemes: tuple[str, ...]
    #: The query's words one after the other, a tsquery; '' when there are none.
    phrase: str
    #: About how many rows there are, counted in the lexicon or not.
    rows: int
    documents: int
    mean_length: float | None


def _quote(lexeme: str) -> str:
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def parse_query(connection: Connection, query: str) -> ParsedQuery:
    """The terms of a query with their document frequencies. No terms: only stop words, signs or nothing."""
    head = connection.execute(
        """SELECT c.documents, c.total_length, c.last_message_seq AS counted_to,
                  coalesce((SELECT max(seq) FROM ros_messages), 0) AS newest,
                  phraseto_tsquery('pg_catalog.english', ros_split(ros_fold(left(%(query)s, 8000))))::text AS phrase,
                  coalesce(w.terms, '{}') AS terms, coalesce(w.dfs, '{}') AS dfs
           FROM ros_corpus AS c CROSS JOIN (
               SELECT array_agg(term) AS terms, array_agg(df) AS dfs
               FROM (SELECT t.term, coalesce(l.df, 0) AS df,
                            row_number() OVER (PARTITION BY l.df IS NULL ORDER BY l.df, t.term) AS place
                     FROM unnest(ros_query_terms(%(query)s)) AS t (term) LEFT JOIN ros_lexicon AS l ON l.term = t.term
                    ) AS rarest
               WHERE place <= CASE WHEN df > 0 THEN %(counted)s ELSE %(uncounted)s END) AS w""",
        {"query": query, "counted": _MOST_COUNTED, "uncounted": _MOST_UNCOUNTED},
    ).fetchone()
    assert head is not None  # the migration puts the one row there
    documents = int(head["documents"])
    frequency = {str(term): float(df) for term, df in zip(head["terms"], head["dfs"], strict=True)}
    rows_there = max(documents, int(head["newest"]))
    behind = int(head["newest"]) - int(head["counted_to"])
    if behind > 0:
        unknown = [term for term, df in frequency.items() if df == 0 or behind > _BEHIND * documents]
        frequency |= _count_now(connection, unknown)
    terms = _terms(query, frequency, rows_there)
    # What was counted nowhere must not take the places of words that stand somewhere.
    taking_part = set(sorted(terms, key=lambda term: term.df == 0)[:MAX_TERMS])
    return ParsedQuery(
        terms=tuple(term for term in terms if term in taking_part),
        lexemes=tuple(frequency),
        phrase=str(head["phrase"]),
        rows=rows_there,
        documents=documents,
        mean_length=head["total_length"] / documents if documents else None,
    )


def _count_now(connection: Connection, terms: list[str]) -> dict[str, float]:
    """In how many messages each term stands, asked of the index; it counts no further than what makes a word common."""
    rows = connection.execute(
        """SELECT t.term, (
               SELECT count(*) FROM (
                   SELECT 1 FROM ros_messages AS m WHERE m.content_tsv @@ t.query::tsquery LIMIT %(most)s) AS f) AS df
           FROM unnest(%(terms)s::text[], %(queries)s::text[]) AS t (term, query)""",
        {"terms": terms, "queries": [_quote(term) for term in terms], "most": PROFILE.candidates + 1},
        prepare=False,
    ).fetchall()
    return {row["term"]: float(row["df"]) for row in rows}


def _terms(query: str, frequency: dict[str, float], rows: int) -> list[Term]:
    paired: set[str] = set()
    pairs: dict[str, float] = {}
    for run in CJK_RUN.findall(unicodedata.normalize("NFKC", query)):
        for first, second in pairwise(run):
            if first in frequency and second in frequency:
                paired |= {first, second}
                rarer, other = sorted((frequency[first], frequency[second]))
                by_chance = rarer * other / max(rows, 1)
                pairs[f"({_quote(first)} <-> {_quote(second)})"] = min(rarer, _TOGETHER * by_chance)
    terms = [Term(term, _quote(term), df, False) for term, df in frequency.items() if term not in paired]
    terms += [Term(pair, pair, df, True) for pair, df in pairs.items()]
    return sorted(terms, key=lambda term: (term.df, term.query))


@dataclass(frozen=True, slots=True)
class _Selector:
    """One question to the text index and how many rows it is thought to match.

    `words` are further ones: tsqueries within the first, and what a row that matches adds to its estimate. Without any
    all rows are worth the same.
    """

    query: str
    expected: float
    words: tuple[tuple[str, float], ...] = ()


def _selectors(parsed: ParsedQuery, *, literal: bool, budget: int) -> list[_Selector]:
    """What to ask, one after the other until enough is found: rare words, then pairs, then common words alone."""
    rare: list[Term] = []
    expected = 0.0
    for term in parsed.terms:
        if expected + term.df > budget:
            break
        rare.append(term)
        expected += term.df
    common = parsed.terms[len(rare) :]
    clauses = [term.query for term in rare]
    for index, first in enumerate(common[:_PAIRED]):
        for second in common[index + 1 : _PAIRED]:
            together = _TOGETHER * first.df * second.df / max(parsed.rows, 1)
            if expected + together <= budget:
                clauses.append(f"({first.query} & {second.query})")
                expected += together
    if literal and parsed.phrase:
        clauses.append(f"({parsed.phrase})")
    plan: list[_Selector] = []
    if clauses:
        any_of = " | ".join(clauses)
        words = [(term.query, _weight(parsed, term)) for term in rare]
        words += [(f"({any_of}) & {term.query}", _weight(parsed, term)) for term in common[:_MOST_COMMON]]
        plan.append(_Selector(any_of, expected, tuple(words) if len(words) > 1 else ()))
    if len(common) > 1:
        share = 1.0
        for term in common:
            share *= min(1.0, term.df / max(parsed.rows, 1))
        every = " & ".join(term.query for term in common)
        plan.append(_Selector(every, min(common[0].df, _TOGETHER * share * parsed.rows)))
    plan += [_Selector(term.query, term.df) for term in common]
    return plan


def _weight(parsed: ParsedQuery, term: Term) -> float:
    return idf(max(parsed.rows, 1), term.df)


def find_texts(
    connection: Connection,
    request: SearchRequest,
    *,
    above: dict[Source, int],
    changed: Mapping[Source, Sequence[int]],
    literal: bool,
    extra: Sequence[tuple[Source, int]],
    now: datetime,
    kept: int,
    profile: Profile = PROFILE,
) -> dict[tuple[Source, int], float]:
    """BM25 of the best rows that the index has not: those `above` a number by table, and the `changed` ones.

    Which have changed is the caller's to say: the index may be refreshed meanwhile, and no list would have them.
    """
    parsed = parse_query(connection, request.query)
    candidates = select_candidates(
        connection, parsed, request, above=above, changed=changed, literal=literal, now=now, profile=profile
    )
    return score_texts(connection, parsed, candidates, extra=extra, now=now, kept=kept, profile=profile)


def select_candidates(
    connection: Connection,
    parsed: ParsedQuery,
    request: SearchRequest,
    *,
    above: dict[Source, int],
    changed: Mapping[Source, Sequence[int]],
    literal: bool = False,
    now: datetime,
    profile: Profile = PROFILE,
) -> dict[Source, list[int]]:
    """The sequence numbers of the rows worth scoring, by table: the most promising of those that hold the rare words.

    Of each table the rows `above` a sequence number, and those of the `changed` ones.
    Finds at least `request.limit` rows whenever so many hold any of the words within the filters.
    """
    found: dict[Source, list[int]] = {"message": [], "summary": []}
    if not parsed.terms:
        return found
    kept = max(profile.lexical_kept, 4 * request.limit)
    if request.conversation_id is not None:
        plan = [_Selector(" | ".join(term.query for term in parsed.terms), 0.0)]
        kept = max(kept, profile.candidates)
    else:
        plan = _selectors(parsed, literal=literal, budget=profile.candidates)
    for source in _sources(request):
        # There may be very many.
        changed_here = number_array(changed[source])
        known: set[int] = set()
        for selector in plan:
            if len(known) >= request.limit:
                break
            known.update(
                _match(
                    connection,
                    source,
                    selector,
                    parsed,
                    request,
                    above=above[source],
                    changed=changed_here,
                    now=now,
                    kept=kept,
                    profile=profile,
                )
            )
        found[source] = sorted(known)
    return found


def _sources(request: SearchRequest) -> Iterable[Source]:
    if request.scope != "summaries":
        yield "message"
    if request.scope != "messages" and request.role is None:
        yield "summary"


@cache
def _match_statement(source: Source) -> bytes:
    table, alias, at, length, condition = _TABLES[source]
    text = sql.SQL(statement("match")).format(
        table=sql.Identifier(table),
        alias=sql.Identifier(alias),
        kind=sql.Literal(source),
        at=sql.SQL(at),
        length=sql.SQL(length),
        share=sql.SQL(_SHARES[source]),
        filter=condition,
        promise=_promise("(t.text / best.text)", "t.at"),
    )
    return text.as_string().encode()


def _promise(text: LiteralString, at: LiteralString) -> sql.Composed:
    return sql.SQL(statement("promise")).format(text=sql.SQL(text), at=sql.SQL(at))


def _match(
    connection: Connection,
    source: Source,
    selector: _Selector,
    parsed: ParsedQuery,
    request: SearchRequest,
    *,
    above: int,
    changed: str,
    now: datetime,
    kept: int,
    profile: Profile,
) -> list[int]:
    """The rows that one selector matches; `changed` are sequence numbers as `number_array` writes them."""
    text = _match_statement(source)
    values = (
        filter_values(request)
        | _profile_values(profile)
        | {
            "above": above,
            "changed": changed,
            "selector": selector.query,
            "questions": [question for question, _ in selector.words],
            "weights": [weight for _, weight in selector.words],
            "cutoff": _cutoff(connection, source, selector, parsed, profile),
            "mean_length": parsed.mean_length,
            "tf_slope": _TF_SLOPE,
            "now": now,
            "kept": kept,
        }
    )
    # A plan made for one set of values is wrong for another (a filter, a rare word), hence never a prepared one.
    row = connection.execute(text, values, prepare=False).fetchone()
    if values["cutoff"] is not None and (row is None or row["found"] < request.limit):
        row = connection.execute(text, values | {"cutoff": None}, prepare=False).fetchone()
    return [] if row is None or row["seqs"] is None else list(row["seqs"])


def _profile_values(profile: Profile) -> dict[str, Any]:
    return {
        "k1": profile.k1,
        "b": profile.b,
        "decay": profile.decay_per_day,
        "per_access": profile.per_access,
        "max_accesses": profile.max_accesses,
        "text_weight": profile.text,
        "temporal_weight": profile.temporal,
        "faint_share": profile.faint_share,
        "noise_share": profile.noise_share,
        "stub": STUB_CHARACTERS,
        "relevant_from": profile.relevant_from,
    }


def _cutoff(
    connection: Connection, source: Source, selector: _Selector, parsed: ParsedQuery, profile: Profile
) -> datetime | None:
    """For a question that matches too much: a time since when about the budget of rows match."""
    if source == "summary" or selector.expected <= _MOST_MATCHES:
        return None
    rows = int(2 * profile.candidates * parsed.rows / selector.expected)
    row = connection.execute(
        "SELECT created_at FROM ros_messages ORDER BY created_at DESC, seq DESC OFFSET %s LIMIT 1", [rows]
    ).fetchone()
    return None if row is None else row["created_at"]


@cache
def _bm25_statement() -> bytes:
    promise, share = _promise("a.text", "a.at"), sql.SQL(_MESSAGE_SHARE)
    return sql.SQL(statement("bm25")).format(promise=promise, message_share=share).as_string().encode()


def score_texts(
    connection: Connection,
    parsed: ParsedQuery,
    candidates: dict[Source, list[int]],
    *,
    extra: Sequence[tuple[Source, int]] = (),
    now: datetime,
    kept: int,
    profile: Profile = PROFILE,
) -> dict[tuple[Source, int], float]:
    """BM25 by row of the candidates and of the `extra` rows of other arms, on one scale.

    Returns the `kept` best by text and freshness together, and every extra row (0 when it holds none of the words).
    """
    keys = [seq if source == "message" else -seq for source, seq in extra]
    rows = connection.execute(
        _bm25_statement(),
        _profile_values(profile)
        | {
            "terms": [term.name for term in parsed.terms],
            "dfs": [term.df for term in parsed.terms],
            "phrases": [term.query for term in parsed.terms if term.is_phrase],
            "lexemes": list(parsed.lexemes),
            "messages": number_array({*candidates["message"], *(key for key in keys if key > 0)}),
            "summaries": number_array({*candidates["summary"], *(-key for key in keys if key < 0)}),
            "extra": number_array(keys),
            "documents": parsed.documents,
            "mean_length": parsed.mean_length,
            "now": now,
            "kept": kept,
        },
    ).fetchall()
    scores: dict[tuple[Source, int], float] = {}
    for row in rows:
        source: Source = "message" if row["key"] > 0 else "summary"
        scores[(source, abs(row["key"]))] = float(row["bm25"])
    return scores
