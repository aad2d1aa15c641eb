"""Messages in the order in which they were said: total order, filters, pages by an opaque cursor."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from datetime import datetime
from typing import Any

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.types import BrowsedMessage, BrowseRequest, BrowseResponse

#: The fewest and most messages of one page.
MIN_LIMIT, MAX_LIMIT = 1, 200


def browse(connection: Connection, request: BrowseRequest, *, max_limit: int = MAX_LIMIT) -> BrowseResponse:
    """One page of messages, ordered by `(created_at, seq)`; `limit` is cut to 1 to `max_limit`.

    A cursor continues after the last message of its page, so rows that are added meanwhile make no message appear
    twice or go missing. `include_tools=False` leaves tool traffic out (role tool, or a tool's name) unless a tool is
    asked for by name. Raises `InvalidInputError` for a cursor that is not one of ours or runs the other way.
    """
    limit = max(MIN_LIMIT, min(max_limit, request.limit))
    after_at, after_seq = _read_cursor(request)
    direction = "DESC" if request.newest_first else "ASC"
    text = sql.SQL(statement("browse")).format(
        beyond=sql.SQL("<" if request.newest_first else ">"), direction=sql.SQL(direction)
    )
    rows = connection.execute(
        text,
        {
            "agent": request.agent,
            "role": request.role,
            "tool_name": request.tool_name,
            "conversation": request.conversation_id,
            "session_key": request.session_key,
            "since": request.since,
            "before": request.before,
            "without_tools": not request.include_tools and request.tool_name is None,
            "after_at": after_at,
            "after_seq": after_seq,
            "limit": limit + 1,
        },
        prepare=False,
    ).fetchall()
    messages = [BrowsedMessage(**row) for row in rows[:limit]]
    more = len(rows) > limit
    return BrowseResponse(messages, cursor_after(messages[-1], request.newest_first) if more else None)


def page_tag(page: BrowseResponse) -> str:
    """A text that differs when a page does: of which messages it is, what was filled in later, and whether it ends.

    Words and results are told by their hashes, since a secret may be taken out of them.
    """
    digest = hashlib.sha256(b"1" if page.next_cursor else b"0")
    for message in page.messages:
        parts = (message.content, message.tool_result, message.title, message.tool_args, message.metadata)
        digest.update(message.id.bytes + json.dumps(parts, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def cursor_after(last: BrowsedMessage, newest_first: bool) -> str:
    """The cursor of the page that begins after a message, for who showed less than a page."""
    value = [last.created_at.isoformat(), last.seq, newest_first]
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _read_cursor(request: BrowseRequest) -> tuple[datetime | None, int | None]:
    if request.cursor is None:
        return None, None
    try:
        padded = request.cursor + "=" * (-len(request.cursor) % 4)
        value: Any = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        at, seq, newest_first = datetime.fromisoformat(value[0]), value[1], value[2]
        sound = at.tzinfo is not None and type(seq) is int and abs(seq) < 2**63 and len(value) == 3
    except (ValueError, TypeError, KeyError, IndexError, binascii.Error, RecursionError):
        sound = False
    if not sound:
        raise InvalidInputError("cursor", "is not one that a former page gave; leave it out to begin again")
    if newest_first is not request.newest_first:
        raise InvalidInputError("cursor", "belongs to a listing of the other order; leave it out to begin again")
    return at, seq
