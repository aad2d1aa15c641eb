"""One conversation as a reader wants it: its head, a page of its messages, its summary tree. And lists of them.

Read only. What a text looks like on a page is the hub's; the lineage of one summary is `lineage.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.filters import read_tag, statement
from rivet_pipeline.retrieval.line_sources import SourceText
from rivet_pipeline.retrieval.lineage import LineageSummary, read_summaries_between

#: Messages of one page.
PAGE_MESSAGES = 60

#: Leaves of other pages are left out of a tree that has more summaries than this.
WHOLE_TREE = 120


@dataclass(frozen=True, slots=True)
class Conversation:
    """What stands over a conversation. `day` is its partition (UTC); `noise`: it is never refined."""

    id: UUID
    session_key: str
    agent: str
    channel: str
    title: str | None
    day: date
    updated_at: datetime
    messages: int
    summaries: int
    noise: bool
    #: The first words that a person typed, cut; None when nobody did.
    opening: str | None = None


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message of a page. `leaf_id` is the summary that holds it, if one does."""

    id: UUID
    seq: int
    role: str
    agent: str
    content: str
    tool_name: str | None
    tool_args: Any
    tool_result: str | None
    metadata: dict[str, Any]
    created_at: datetime
    leaf_id: UUID | None

    @property
    def kind(self) -> str:
        """speech, tool, thinking, injected, notice, summary, progress or replay, as capture noted it."""
        noted = self.metadata.get("kind")
        if isinstance(noted, str):
            return noted
        return "tool" if self.role == "tool" or self.tool_name is not None else "speech"


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """Messages in total order. Pages are counted from 1; `pages` is at least 1."""

    messages: list[TranscriptMessage]
    page: int
    pages: int
    total: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The summaries of a conversation, roots first and each level oldest first, as a forest.

    `omitted` counts summaries that were left out because they belong to other pages.
    """

    tops: list[LineageSummary]
    omitted: int


def read_conversation(connection: Connection, wanted: UUID) -> Conversation | None:
    """The head of a conversation; None when there is none with this id."""
    row = connection.execute(statement("conversation_heads"), _heads(id=wanted, limit=1), prepare=False).fetchone()
    return None if row is None else Conversation(**row)


def list_conversations(
    connection: Connection,
    *,
    agent: str | None = None,
    day: date | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int = 50,
    offset: int = 0,
) -> list[Conversation]:
    """Conversations last active first, noise left out unless a day is asked for.

    `since` and `before` (exclusive, aware) ask for those in which something was said meanwhile; `tag` is `key:value`.
    Raises `InvalidInputError` for what is no tag.
    """
    asked = _heads(
        agent=agent,
        day=day,
        tag=None if tag is None else read_tag(tag),
        since=since,
        before=before,
        limit=limit,
        offset=offset,
        with_noise=day is not None,
    )
    rows = connection.execute(statement("conversation_heads"), asked, prepare=False).fetchall()
    return [Conversation(**row) for row in rows]


def _heads(**asked: Any) -> dict[str, Any]:
    # The statement is not prepared (above): a plan for any filter would be one for none.
    nothing = dict.fromkeys(("id", "agent", "day", "tag", "since", "before"))
    return nothing | {"offset": 0, "with_noise": True} | asked


def known_agents(connection: Connection) -> list[str]:
    """The names of the agents that ever had a conversation, by name."""
    rows = connection.execute("SELECT DISTINCT agent FROM ros_conversations ORDER BY agent").fetchall()
    return [row["agent"] for row in rows]


def read_transcript(connection: Connection, conversation: UUID, *, page: int = 1) -> TranscriptPage:
    """A page of a conversation. A page beyond the last one is the last one."""
    counted = connection.execute(
        "SELECT count(*) AS n FROM ros_messages WHERE conversation_id = %s", [conversation]
    ).fetchone()
    assert counted is not None
    total = int(counted["n"])
    pages = max(1, -(-total // PAGE_MESSAGES))
    shown = max(1, min(page, pages))
    rows = connection.execute(
        statement("transcript_page"),
        {"conversation": conversation, "limit": PAGE_MESSAGES, "offset": (shown - 1) * PAGE_MESSAGES},
    ).fetchall()
    return TranscriptPage([TranscriptMessage(**row) for row in rows], shown, pages, total)


def find_page(connection: Connection, message: UUID) -> tuple[UUID, int] | None:
    """The conversation of a message and the page on which it stands; None when there is no such message."""
    row = connection.execute(
        """
        SELECT m.conversation_id,
               (SELECT count(*) FROM ros_messages AS o
                WHERE o.conversation_id = m.conversation_id AND (o.created_at, o.seq) < (m.created_at, m.seq)) AS before
        FROM ros_messages AS m WHERE m.id = %s
        """,
        [message],
    ).fetchone()
    return None if row is None else (row["conversation_id"], 1 + int(row["before"]) // PAGE_MESSAGES)


def first_message_of(connection: Connection, summary: UUID) -> UUID | None:
    """The first of the messages that a summary of any level was made from; None when it has none."""
    row = connection.execute(
        """
        WITH RECURSIVE below AS (
            SELECT %s::uuid AS id
            UNION
            SELECT s.id FROM below AS b JOIN ros_summaries AS s ON s.parent_id = b.id
        )
        SELECT m.id FROM below AS b
        JOIN ros_summary_sources AS x ON x.summary_id = b.id JOIN ros_messages AS m ON m.id = x.message_id
        ORDER BY m.created_at, m.seq LIMIT 1
        """,
        [summary],
    ).fetchone()
    return None if row is None else row["id"]


def read_tree(connection: Connection, conversation: UUID, page: TranscriptPage) -> Tree:
    """The summary tree of a conversation: all of it, or when it is large the upper levels and the leaves of a page."""
    rows = read_summaries_between(
        connection,
        conversation,
        since=page.messages[0].created_at if page.messages else None,
        until=page.messages[-1].created_at if page.messages else None,
        whole=WHOLE_TREE,
    )
    nodes = {summary.id: summary for _, _, summary in rows}
    tops = []
    for parent, _, summary in rows:
        if parent in nodes:
            nodes[parent].children.append(summary)
        else:
            tops.append(summary)
    return Tree(tops, (rows[0][1] - len(rows)) if rows else 0)


def read_summary_text(connection: Connection, wanted: UUID) -> str | None:
    """The whole text of a summary; None when there is none with this id."""
    row = connection.execute("SELECT content FROM ros_summaries WHERE id = %s", [wanted]).fetchone()
    return None if row is None else row["content"]


def day_of_summary(connection: Connection, wanted: UUID) -> date | None:
    """The UTC day on which a summary's conversation began: its partition. None when there is no such summary."""
    row = connection.execute("SELECT day FROM ros_summaries WHERE id = %s", [wanted]).fetchone()
    return None if row is None else row["day"]


def read_source_texts(connection: Connection, summary: UUID, *, limit: int = 400) -> list[SourceText]:
    """The messages below a summary of any level in their order, each cut, at most `limit` of them."""
    rows = connection.execute(
        """
        WITH RECURSIVE below AS (
            SELECT %s::uuid AS id
            UNION
            SELECT s.id FROM below AS b JOIN ros_summaries AS s ON s.parent_id = b.id
        )
        SELECT m.id, m.created_at, left(m.content || E'\n' || coalesce(m.tool_result, ''), 20000) AS text
        FROM below AS b
        JOIN ros_summary_sources AS x ON x.summary_id = b.id JOIN ros_messages AS m ON m.id = x.message_id
        ORDER BY m.created_at, m.seq LIMIT %s
        """,
        [summary, limit],
    ).fetchall()
    return [SourceText(**row) for row in rows]
