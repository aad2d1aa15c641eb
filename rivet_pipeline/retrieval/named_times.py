"""What a search does with the times that its query names (`query_dates.py`): rows of these are candidates too.

Whether something was said at a time is asked of the store, within the filters. Nothing here scores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import NamedTuple

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval import lexical, vector
from rivet_pipeline.retrieval.features import SemanticSide
from rivet_pipeline.retrieval.filters import MESSAGE_FILTER, SUMMARY_FILTER, filter_values
from rivet_pipeline.retrieval.query_dates import MOST_TIMES, Named, Period, read_times, without
from rivet_pipeline.retrieval.scoring import LEAST_SIMILARITY, Profile
from rivet_pipeline.retrieval.types import Key, NamedTime, SearchRequest, Source

#: How much of a query is looked through for times, in characters: what is longer was not typed.
_LOOKED_THROUGH = 1_000

#: A list of what there was at a time is for overview: further rows of a conversation give way to those of others.
_CROWD_FREE, _CROWD_SHARE = 1, 0.9

#: Words, in any of their forms, that ask what there was at a time and not of what. What holds them comes first all the
#: same.
_ASKING = """
    happen occur event go went come came change new news busy do done leave left open make made work progress status
    want plan problem issue error fail fix task todo file activity discuss discussion talk speak spoke spoken say
    said tell told ask answer chat mention decide decision learn learnt write wrote written read run ran history
    conversation session message prompt log memory note summary summarize summarise recap report overview highlight
    review list show give gave find get got see saw seen look catch continue resume remember recall remind please
    hey hi anything something everything thing stuff interesting important relevant main latest recent user agent
    assistant first second third last final end begin beginning start middle early late time date since around
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun
"""

#: What a text says instead of such a word: the stemmer takes the two for different ones.
_ALSO = {r"\bdecid(?:e|es|ed|ing)\b": "decision", r"\bfail(?:s|ed|ing)?\b": "failure"}

#: How many different times from the present of one query are looked up.
_MOST_LOOKED_UP = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """The times that a search asks for, and what else it does.

    `request` has none of the words that name times from the present at which something was said; `times` says which
    were read. `is_only`: it asks what there was at these times and not of what, so nothing of others is looked for.
    """

    request: SearchRequest
    periods: tuple[Period, ...] = ()
    times: tuple[NamedTime, ...] = ()
    is_only: bool = False

    def profile(self, profile: Profile) -> Profile:
        """The constants of a list of what there was, or as they are."""
        return replace(profile, crowd_free=_CROWD_FREE, crowd_share=_CROWD_SHARE) if self.is_only else profile

    @property
    def bounded(self) -> SearchRequest:
        """The request, of one that is only for these times from the first of them to the last."""
        if not self.is_only:
            return self.request
        first, last = min(one.start for one in self.periods), max(one.end for one in self.periods)
        return _within(self.request, Period(first, last))


def read_asked(connection: Connection, request: SearchRequest, now: datetime) -> Asked:
    """What a request asks for whose first 1,000 characters name times, or none. Days are those of the zone of `now`.

    A time at which nothing was said within the filters is none: `where did we live 4 years ago` asks what was said
    since.
    """
    query = request.query
    named = read_times(query[:_LOOKED_THROUGH], now)
    if not named:
        return Asked(request)
    found = tuple(dict.fromkeys(one.period for one in named))[:_MOST_LOOKED_UP]
    said = _said_at(connection, request, found)[:MOST_TIMES]
    times = _read_as(query, [one for one in named if not one.is_date], said, found, now)
    if not said:
        return Asked(request, times=times)
    heard = [one for one in named if one.period in said]
    asking = without(query, heard).strip()
    is_bare_date = any(one.is_date for one in heard) and not any(one.isalnum() for one in asking)
    is_only = not is_bare_date and _only_asks(connection, asking)
    if is_only:
        also = (word for spelled, word in _ALSO.items() if re.search(spelled, asking, re.IGNORECASE))
        rest = " ".join([asking, *also])
    else:
        # A date may also be spoken of, so its words stay.
        rest = without(query, [one for one in heard if not one.is_date]).strip()
    # Meaning alone must have something to go by.
    keeps = request.mode == "vector" and not any(one.isalnum() for one in rest)
    asked = request if keeps else replace(request, query=rest)
    return Asked(asked, said, times, is_only=is_only)


def rows_of(
    connection: Connection, request: SearchRequest, side: SemanticSide, asked: Asked, now: datetime, profile: Profile
) -> list[Key]:
    """The best rows of each arm from the times that are asked for, and the newest, whatever they say."""
    found: list[Key] = []
    for period in asked.periods:
        within = _within(request, period)
        if within.since is None or within.before is None or within.since >= within.before:
            continue
        found += _best_of(connection, within, side, now, profile)
        if request.mode != "vector":
            found += _newest(connection, within, profile.named_kept)
    return found


def _within(request: SearchRequest, period: Period) -> SearchRequest:
    since = period.start if request.since is None else max(request.since, period.start)
    return replace(request, since=since, before=min(request.before or period.end, period.end))


def _best_of(
    connection: Connection, request: SearchRequest, side: SemanticSide, now: datetime, profile: Profile
) -> list[Key]:
    rows = lexical.TextSearch(connection, request, now=now, kept=profile.named_kept, profile=profile)
    found: list[Key] = []
    if side.model is not None and side.query is not None:
        near = vector.nearest(
            connection, side.model, side.query, request, wanted=profile.named_kept, within=rows.within
        ).similarities
        found += [row for row, likeness in near.items() if request.mode == "vector" or likeness >= LEAST_SIMILARITY]
    if request.mode != "vector" and rows.has_words:
        found += rows.best().scores
    return found


def _newest(connection: Connection, request: SearchRequest, count: int) -> list[Key]:
    """The newest rows within the filters: so many messages and summaries each."""
    values = filter_values(request) | {"count": count}
    found: list[Key] = []
    for source in _sources(request):
        rows = connection.execute(_statements(source).newest, values, prepare=False).fetchall()
        found += [(source, row["seq"]) for row in rows]
    return found


def _sources(request: SearchRequest) -> tuple[Source, ...]:
    asked: dict[str, tuple[Source, ...]] = {"messages": ("message",), "summaries": ("summary",)}
    return asked.get(request.scope, ("message", "summary"))


def _read_as(
    query: str, named: Sequence[Named], said: Sequence[Period], found: Sequence[Period], now: datetime
) -> tuple[NamedTime, ...]:
    """The times of an answer: those at which something was said, and others as far as there is place."""
    words = {one.period: query[one.start : one.end] for one in reversed(named)}
    found = [one for one in found if one in words]
    shown = {*said, *[one for one in found if one not in said][: max(0, MOST_TIMES - len(said))]}
    return tuple(
        NamedTime(words[one], one.start.astimezone(now.tzinfo), one.end.astimezone(now.tzinfo), one in said)
        for one in found
        if one in shown
    )


def _only_asks(connection: Connection, rest: str) -> bool:
    """Whether a query without its times asks what there was, and not of what."""
    row = connection.execute(
        "SELECT ros_query_terms(%s) <@ ros_query_terms(%s) AS asks", [rest, _ASKING], prepare=False
    ).fetchone()
    return row is not None and bool(row["asks"])


def _said_at(connection: Connection, request: SearchRequest, periods: Sequence[Period]) -> tuple[Period, ...]:
    """Those of some periods of which there is a row within the filters, in their order."""
    # What a summary covers was said.
    source = _sources(request)[0]
    values = {"starts": [one.start for one in periods], "ends": [one.end for one in periods]}
    rows = connection.execute(_statements(source).said, filter_values(request) | values, prepare=False).fetchall()
    return tuple(periods[row["place"] - 1] for row in rows)


class _Statements(NamedTuple):
    """Of one table: the newest rows within the filters, and which of some times hold any of them."""

    newest: bytes
    said: bytes


@cache
def _statements(source: Source) -> _Statements:
    alias, table, first, last, filters = _TABLES[source]
    names = {
        "alias": sql.Identifier(alias),
        "table": sql.Identifier(table),
        "first": sql.Identifier(alias, first),
        "last": sql.Identifier(alias, last),
        "filter": filters,
    }
    newest = """SELECT {alias}.seq FROM {table} AS {alias} WHERE {filter}
                ORDER BY {last} DESC, {alias}.seq DESC LIMIT %(count)s"""
    said = """SELECT p.place FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[])
                                  WITH ORDINALITY AS p (since, until, place)
              WHERE EXISTS (SELECT 1 FROM {table} AS {alias}
                            WHERE {last} >= p.since AND {first} < p.until AND {filter})
              ORDER BY p.place"""
    return _Statements(*(sql.SQL(text).format(**names).as_string().encode() for text in (newest, said)))


#: By source its alias, its table, the columns with its first and its last moment, and its filter.
_TABLES: dict[Source, tuple[str, str, str, str, sql.SQL]] = {
    "message": ("m", "ros_messages", "created_at", "created_at", MESSAGE_FILTER),
    "summary": ("s", "ros_summaries", "earliest_at", "latest_at", SUMMARY_FILTER),
}
