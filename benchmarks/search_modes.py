"""The part `modes` of the search benchmark: what is asked for less often than words and meaning.

Writes nothing but the accesses that any search counts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from itertools import cycle
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.capture_rate import api_process
from benchmarks.search_asking import Asked, Figures, getter, percentiles, searcher, timed
from rivet_pipeline.db.pool import Connection

#: The modes that read texts.
_READING = ("trigram", "regex")

#: Of what may take seconds at a million rows, so many are asked, and once each.
_SLOW = 5

#: The roles that searches are narrowed to, in turn.
_ROLES = ("user", "assistant", "tool")


def measure_modes(url: str, folder: Path, connection: Connection, plain: list[Asked], rounds: int) -> Figures:
    """The modes that read texts, filters by role, tag and conversation, listings and the figures, through HTTP.

    Without a tag in the store there is no row of searches by tag. The modes that read texts, and the figures, are asked
    few times: some of them take seconds in a large store.
    """
    few = plain[:_SLOW]
    searches = {
        "trigram": ("trigram", few),
        "regex": ("regex", [replace(one, query=expression(one.query)) for one in few]),
        "hybrid, by role": (
            "hybrid",
            [replace(one, role=_ROLES[number % len(_ROLES)]) for number, one in enumerate(plain)],
        ),
        "hybrid, by tag": (
            "hybrid",
            [replace(one, tag=tag) for one, tag in zip(plain, cycle(some_tags(connection)), strict=False)],
        ),
        "hybrid, by conversation": (
            "hybrid",
            [
                replace(one, conversation=conversation)
                for one, conversation in zip(plain, some_conversations(connection, len(plain)), strict=True)
            ],
        ),
    }
    rows: Figures = {}
    with api_process(url, folder) as port:
        for name, (mode, asked) in searches.items():
            if asked:
                rows[name] = percentiles(timed(searcher(port, mode), asked, 1 if mode in _READING else rounds))
        get = getter(port)
        back = [browse_path(before=at.isoformat()) for at in some_times(connection, len(plain))]
        listings = {
            "browse, the newest page": [browse_path()] * len(plain),
            "browse, before a time": back,
            "browse, on from there": [browse_path(cursor=get(path)["nextCursor"]) for path in back],
        }
        for name, paths in listings.items():
            rows[name] = percentiles(timed(get, paths, rounds))
        for name in ("stats", "health"):
            rows[name] = percentiles(timed(get, [f"/api/memory/{name}"] * len(few), 1))
    return rows


def expression(query: str) -> str:
    """A regular expression made of the longest word of a query."""
    longest = max(re.findall(r"[^\W_]+", query), key=len, default="nothing")
    return rf"\b{longest}\w*"


def browse_path(**values: str) -> str:
    """The address of a page of a listing."""
    return "/api/memory/browse?" + urlencode({"limit": "50"} | values)


def some_tags(connection: Connection) -> list[str]:
    """The tags that sessions carry, the commonest first."""
    rows = connection.execute(
        """SELECT tag FROM ros_accepted_tags(ARRAY(SELECT id FROM ros_conversations))
           GROUP BY tag ORDER BY count(*) DESC, tag LIMIT 20"""
    ).fetchall()
    return [row["tag"] for row in rows]


def some_conversations(connection: Connection, count: int) -> list[str]:
    """The conversations of as many messages, evenly from the oldest to the newest."""
    rows = connection.execute(
        """SELECT m.conversation_id FROM generate_series(1, %(count)s) AS n CROSS JOIN LATERAL (
               SELECT conversation_id FROM ros_messages
               WHERE seq >= (SELECT max(seq) * (n - 1) / %(count)s FROM ros_messages) ORDER BY seq LIMIT 1) AS m
           ORDER BY n""",
        {"count": count},
    ).fetchall()
    return [str(row["conversation_id"]) for row in rows]


def some_times(connection: Connection, count: int) -> list[datetime]:
    """As many moments of the older half of the store's time, evenly spread; each has a page before it."""
    rows = connection.execute(
        """SELECT first + (latest - first) * (0.1 + 0.4 * n / %(count)s) AS at
           FROM (SELECT min(created_at) AS first, max(created_at) AS latest FROM ros_messages) AS ends,
                generate_series(1, %(count)s) AS n
           ORDER BY n""",
        {"count": count},
    ).fetchall()
    return [row["at"] for row in rows]
