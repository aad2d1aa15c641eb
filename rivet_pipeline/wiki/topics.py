"""The stage `wiki_topics`: pages of an older making made again of the same patches, and what there is told.

Patches are applied where they are mined or accepted; here is only what a changed rule of `pages.py` leaves to do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.versions import WIKI_PAGE_VERSION
from rivet_pipeline.wiki.read import Counts, read_counts
from rivet_pipeline.wiki.store import lock_wiki, rebuild

#: Pages made again in one transaction: reviewers wait for no more than these.
_PAGES = 50


@dataclass(frozen=True, slots=True)
class TopicsReport:
    """What a refresh did. `rebuilt` were looked at, `changed` of them say something else now."""

    rebuilt: int
    changed: int
    counts: Counts
    seconds: float


def refresh_topics(connection: Connection) -> TopicsReport:
    """Makes every page again that an older version of the rules has made."""
    began = time.perf_counter()
    rebuilt = changed = 0
    while True:
        with connection.transaction():
            lock_wiki(connection)
            rows = connection.execute(
                "SELECT id FROM ros_wiki_topics WHERE page_version < %s AND revision > 0 ORDER BY id LIMIT %s",
                [WIKI_PAGE_VERSION, _PAGES],
            ).fetchall()
            if not rows:
                break
            changed += rebuild(connection, [row["id"] for row in rows], cause="made by newer rules")
            rebuilt += len(rows)
    return TopicsReport(rebuilt, changed, read_counts(connection), time.perf_counter() - began)


def wiki_is_due(connection: Connection) -> bool:
    """Whether a page is of an older making, or without vectors of the model that is being filled."""
    row = connection.execute(
        """
        SELECT EXISTS (SELECT 1 FROM ros_wiki_topics WHERE page_version < %s AND revision > 0)
            OR EXISTS (SELECT 1 FROM ros_pending_wiki_embeddings) AS due
        """,
        [WIKI_PAGE_VERSION],
    ).fetchone()
    return bool(row and row["due"])
