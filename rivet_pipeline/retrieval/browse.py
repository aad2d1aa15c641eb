"""Messages in the order in which they were said: total order, filters, pages by an opaque cursor, forwards and back."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.filters import TAG_FILTER, read_tag, statement, tag_values, tagged_conversations
from rivet_pipeline.retrieval.types import BrowsedMessage, BrowseRequest, BrowseResponse

#: The fewest and most messages of one page.
MIN_LIMIT, MAX_LIMIT = 1, 200

#: By what is asked for. The conversations of a session are looked up first and named to the index; a tool's name is
#: compared with its indexed beginning too (migration 0017).
_FILTERS: dict[str, LiteralString] = {
    "agent": "m.agent = %(agent)s::text",
    "role": "m.role = %(role)s::text",
    "tool_name": "left(m.tool_name, 200) = left(%(tool_name)s::text, 200) AND m.tool_name = %(tool_name)s::text",
    "conversation_id": "m.conversation_id = %(conversation_id)s::uuid",
    "session_key": """m.conversation_id = ANY (ARRAY(
        SELECT id FROM ros_conversations
        WHERE session_hash = md5(%(session_key)s::text)::uuid AND session_key = %(session_key)s::text))""",
    "since": "m.created_at >= %(since)s::timestamptz",
    "before": "m.created_at < %(before)s::timestamptz",
}
_WITHOUT_TOOLS = "NOT (m.role = 'tool' OR m.tool_name IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page begins: beyond one message of the listing, towards its end (`next`) or back to its beginning."""

    at: datetime
    seq: int
    newest_first: bool
    towards: Literal["next", "previous"]


def browse(connection: Connection, request: BrowseRequest, *, max_limit: int = MAX_LIMIT) -> BrowseResponse:
    """One page of messages, ordered by `(created_at, seq)`; `limit` is cut to 1 to `max_limit`.

    A cursor continues beyond the last message of its page, or before the first, so rows that are added meanwhile make
    no message appear twice or go missing; a row that is added on the way appears where its time puts it. On the first
    page there is no way back, and beyond the last none on. `include_tools=False` leaves tool traffic out (role tool, or
    a tool's name) unless a tool is asked for by name. Raises `InvalidInputError` for a cursor that is not one of ours
    or runs the other way, and for a tag that is not `key:value`.
    """
    limit = max(MIN_LIMIT, min(max_limit, request.limit))
    place = _read_cursor(request)
    back = place is not None and place.towards == "previous"
    # Going back, the page is read from its far end.
    descending = request.newest_first is not back
    text = sql.SQL(statement("browse")).format(
        filters=_filters(request, place, descending=descending), direction=sql.SQL("DESC" if descending else "ASC")
    )
    tag = None if request.tag is None else read_tag(request.tag)
    values = {name: getattr(request, name) for name in _FILTERS} | {"limit": limit + 1}
    if place is not None:
        values |= {"at": place.at, "seq": place.seq}
    if tag is not None:
        values |= tag_values(tag, tagged_conversations(connection, tag))
    # Not prepared: a plan for any value is none for this one.
    rows = connection.execute(text, values, prepare=False).fetchall()
    messages = [BrowsedMessage(**row) for row in rows[:limit]]
    more = len(rows) > limit
    if back:
        messages.reverse()
    before, after = (more, True) if back else (place is not None, more)
    return BrowseResponse(
        messages,
        next_cursor=cursor_after(messages[-1], request.newest_first) if messages and after else None,
        previous_cursor=_cursor_before(messages[0], request.newest_first) if messages and before else None,
    )


def _filters(request: BrowseRequest, place: _Place | None, *, descending: bool) -> sql.Composable:
    wanted: list[sql.Composable] = [
        sql.SQL(text) for name, text in _FILTERS.items() if getattr(request, name) is not None
    ]
    if request.tag is not None:
        wanted.append(TAG_FILTER)
    if not request.include_tools and request.tool_name is None:
        wanted.append(sql.SQL(_WITHOUT_TOOLS))
    if place is not None:
        beyond = sql.SQL("<" if descending else ">")
        wanted.append(
            sql.SQL("(m.created_at, m.seq) {beyond} (%(at)s::timestamptz, %(seq)s::bigint)").format(beyond=beyond)
        )
    return sql.SQL("\n  AND ").join(wanted) if wanted else sql.SQL("true")


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
    return _write_cursor([last.created_at.isoformat(), last.seq, newest_first])


def _cursor_before(first: BrowsedMessage, newest_first: bool) -> str:
    return _write_cursor([first.created_at.isoformat(), first.seq, newest_first, "previous"])


def _write_cursor(value: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _read_cursor(request: BrowseRequest) -> _Place | None:
    if request.cursor is None:
        return None
    try:
        padded = request.cursor + "=" * (-len(request.cursor) % 4)
        value: Any = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        at, seq, newest_first = datetime.fromisoformat(value[0]), value[1], value[2]
        sound = at.tzinfo is not None and type(seq) is int and abs(seq) < 2**63 and value[3:] in ([], ["previous"])
    except (ValueError, TypeError, KeyError, IndexError, binascii.Error, RecursionError):
        sound = False
    if not sound:
        raise InvalidInputError("cursor", "is not one that a former page gave; leave it out to begin again")
    if newest_first is not request.newest_first:
        raise InvalidInputError("cursor", "belongs to a listing of the other order; leave it out to begin again")
    return _Place(at, seq, newest_first, "previous" if value[3:] else "next")
