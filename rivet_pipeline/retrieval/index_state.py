"""What a text search must know before it reads any postings, as of one moment. How it searches is `lexical.py`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.index_cache import PieceName
from rivet_pipeline.retrieval.postings import CJK_RUN, Array, bare_words, cjk_pairs
from rivet_pipeline.retrieval.types import Source

#: The rarest words of a query that take part; a pasted page has hundreds.
MAX_TERMS = 64

#: So many rows that the index has not are read into memory; more are left to `unindexed.py`.
MOST_LIVE = 4_000


@dataclass(frozen=True, slots=True)
class IndexState:
    """The answer of `index_state.sql`."""

    words: list[bytes]
    parts: list[bytes]
    pieces: list[PieceName]
    #: Rows that the index has not as they are (`signed`, ascending), and the change of each that is to be seen, 0 for
    #: new rows.
    live: Array
    changes: Array
    #: Whether there are more of these than are read.
    is_behind: bool
    noise: Array
    conversations: int
    database: int
    above: dict[Source, int]


def read_state(connection: Connection, query: str) -> IndexState:
    """Asks the store, in one statement."""
    row = connection.execute(
        statement("index_state"), {"query": query, "words": MAX_TERMS, "most": MOST_LIVE + 1}
    ).fetchone()
    assert row is not None  # the migration puts the one row of the corpus there
    paired = {sign.encode() for run in CJK_RUN.findall(row["folded"]) for sign in run}
    bare = list(bare_words(row["folded"]))[:MAX_TERMS]
    words = list(dict.fromkeys([word.encode() for word in row["words"] if word.encode() not in paired] + bare))
    pairs = list(cjk_pairs(row["folded"]))[:MAX_TERMS]
    live, changes = _live(row)
    pieces = zip(row["piece_ids"] or [], row["piece_tokens"] or [], row["piece_sources"] or [], strict=True)
    return IndexState(
        words=words + pairs,
        parts=[part.encode() for part in row["parts"] if part.encode() not in paired] + pairs,
        pieces=[PieceName(*piece) for piece in pieces],
        live=live,
        changes=changes,
        is_behind=len(live) > MOST_LIVE,
        noise=np.array(row["noise"], dtype=np.int64),
        conversations=row["conversations"],
        database=row["database"],
        above={"message": row["last_message_seq"], "summary": row["last_summary_seq"]},
    )


def _live(row: dict[str, Any]) -> tuple[Array, Array]:
    """`live` and `changes` of a state: new rows and changed ones, of a row that is both the change."""
    changed = np.array(row["changed_seqs"] or [], dtype=np.int64)
    sources = np.array(row["changed_sources"] or [], dtype=str)
    new = np.concatenate([np.array(row["new_messages"], np.int64), -np.array(row["new_summaries"], np.int64)])
    numbers = np.concatenate([new, np.where(sources == "message", changed, -changed)])
    changes = np.concatenate([np.zeros(len(new), np.int64), np.array(row["changed_changes"] or [], np.int64)])
    order = np.lexsort((changes, numbers))
    numbers, changes = numbers[order], changes[order]
    last = np.append(numbers[1:] != numbers[:-1], True)[: len(numbers)]
    return numbers[last], changes[last]
