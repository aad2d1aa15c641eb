"""What a text search must know before it reads any postings, as of one moment. How it searches is `lexical.py`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.index_cache import KnownMessages, PieceName
from rivet_pipeline.retrieval.postings import CJK_RUN, Array, bare_words, cjk_pairs
from rivet_pipeline.retrieval.types import Source

#: The rarest words of a query that take part, and as many others; a pasted page has hundreds.
MAX_TERMS = 64

#: So many rows that the index has not are read into memory; more are left to `unindexed.py`.
MOST_LIVE = 4_000


@dataclass(frozen=True, slots=True)
class IndexState:
    """The answer of `index_state.sql`."""

    words: list[bytes]
    #: Words that the lexicon has not: most of them stand nowhere, some in rows that the index has not, and such as hold
    #: a digit (hashes, numbers) perhaps in a few that it has (`lexicon.py`).
    uncounted: list[bytes]
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
    #: What the next search needs not be told again; None when it can not be said.
    known: KnownMessages | None


def read_state(connection: Connection, query: str, known: KnownMessages) -> IndexState:
    """Asks the store, in one statement. `known` is that of an earlier state, of whatever database."""
    row = connection.execute(
        statement("index_state"),
        {
            "query": query,
            "words": MAX_TERMS,
            "most": MOST_LIVE + 1,
            "known_database": known.database,
            "known_after": known.after,
            "known_to": known.to,
        },
    ).fetchone()
    assert row is not None  # the migration puts the one row of the corpus there
    paired = {sign.encode() for run in CJK_RUN.findall(row["folded"]) for sign in run}
    bare = list(bare_words(row["folded"]))[:MAX_TERMS]
    words = list(dict.fromkeys([word.encode() for word in row["words"] if word.encode() not in paired] + bare))
    others = {*paired, *bare}
    uncounted = [word.encode() for word in row["uncounted"] if word.encode() not in others]
    pairs = list(cjk_pairs(row["folded"]))[:MAX_TERMS]
    last = row["last_message_seq"]
    new_messages = [*row["new_messages"], *(range(last + 1, known.to + 1) if row["knows"] else ())]
    live, changes = _live(row, new_messages)
    pieces = zip(row["piece_ids"] or [], row["piece_tokens"] or [], row["piece_sources"] or [], strict=True)
    return IndexState(
        words=words + pairs,
        uncounted=uncounted,
        parts=[part.encode() for part in row["parts"] if part.encode() not in paired] + pairs,
        pieces=[PieceName(*piece) for piece in pieces],
        live=live,
        changes=changes,
        is_behind=len(live) > MOST_LIVE,
        noise=np.array(row["noise"], dtype=np.int64),
        conversations=row["conversations"],
        database=row["database"],
        above={"message": last, "summary": row["last_summary_seq"]},
        known=_known(row, np.array(new_messages, dtype=np.int64)) if row["settled"] else None,
    )


def _known(row: dict[str, Any], new_messages: Array) -> KnownMessages:
    last = row["last_message_seq"]
    return KnownMessages(row["database"], last, last + _unbroken(new_messages - last))


def _unbroken(numbers: Array) -> int:
    """How far different numbers above 0 go from 1 on without one missing."""
    ordered = np.sort(numbers)
    return int(np.count_nonzero(ordered == np.arange(1, len(ordered) + 1)))


def _live(row: dict[str, Any], new_messages: list[int]) -> tuple[Array, Array]:
    """`live` and `changes` of a state: new rows and changed ones, of a row that is both the change."""
    changed = np.array(row["changed_seqs"] or [], dtype=np.int64)
    sources = np.array(row["changed_sources"] or [], dtype=str)
    new = np.concatenate([np.array(new_messages, np.int64), -np.array(row["new_summaries"], np.int64)])
    numbers = np.concatenate([new, np.where(sources == "message", changed, -changed)])
    changes = np.concatenate([np.zeros(len(new), np.int64), np.array(row["changed_changes"] or [], np.int64)])
    order = np.lexsort((changes, numbers))
    numbers, changes = numbers[order], changes[order]
    last = np.append(numbers[1:] != numbers[:-1], True)[: len(numbers)]
    return numbers[last], changes[last]
