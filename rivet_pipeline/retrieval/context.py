"""What an agent is given of its memory at a turn: workspace files, its session's latest, and the best of a search.

It must be quick (one search and two small queries, each with a bound of time) and must not fail the turn: a part that
can not be had is left out and named. What is injected here is no access (`access.py`): what surfaces by itself would
keep surfacing. Texts are those that are stored, so that what was redacted stays so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import psycopg
from numpy.typing import NDArray

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import RivetError
from rivet_pipeline.models.protocols import ModelError
from rivet_pipeline.retrieval.context_text import FRAME_LINE, ContextItem, ContextSection, Kin, Shown, assemble
from rivet_pipeline.retrieval.filters import statement
from rivet_pipeline.retrieval.query_dates import read_times, without
from rivet_pipeline.retrieval.search import EmbedQuery, search
from rivet_pipeline.retrieval.snippets import make_snippet, without_frame
from rivet_pipeline.retrieval.types import APPROXIMATE, Hit, SearchRequest
from rivet_pipeline.retrieval.workspace import Workspace, read_workspace

_log = logging.getLogger(__name__)

#: Tokens of a turn's context (the seeds' figure), and the fewest and most that may be asked for.
DEFAULT_BUDGET, MIN_BUDGET, MAX_BUDGET = 4_000, 500, 32_000

#: The session's latest messages and summaries that are looked at, and the hits of the search.
_MESSAGES, _SUMMARIES, _HITS = 20, 3, 30

#: Characters that are shown of a message of the session, of a summary, and of what the search found.
_LONGEST_MESSAGE, _LONGEST_SUMMARY, _LONGEST_HIT = 800, 1_500, 700

#: Characters of a query that are searched with: a prompt may be a pasted page.
_LONGEST_QUERY = 2_000

#: What was injected before, by us or by a harness, is not injected again.
_INJECTED = frozenset({"injected", "notice"})

#: The longest that a part's query may take, in milliseconds.
_SESSION_MS, _SEARCH_MS = 1_000, 3_000

Connect = Callable[[], AbstractContextManager[Connection]]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What the context is for.

    `query`: the turn's words; without any, the session's latest words of a person. `agent` narrows session and search
    to one agent's words. `folder` holds the workspace files; it comes from the configuration alone.
    """

    query: str | None = None
    session_key: str | None = None
    agent: str | None = None
    budget: int = DEFAULT_BUDGET
    folder: Path | None = None
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))


@dataclass(frozen=True, slots=True)
class Missing:
    """A part that was left out, or not as good as it could be, and why."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The context as one Markdown text and as sections. `tokens` is an estimate over the whole text.

    `without_room` counts items that did not fit, `repeated` those that were there already.
    """

    text: str
    tokens: int
    budget: int
    sections: list[ContextSection]
    degraded: list[Missing]
    without_room: int
    repeated: int


def build_context(
    connect: Connect,
    request: ContextRequest,
    *,
    embed: Callable[[Connection], EmbedQuery] | None = None,
    now: datetime | None = None,
) -> TurnContext:
    """The context of a turn. Never raises: what fails is named in `degraded`.

    Args:
        connect: A connection for the length of its block.
        request: What it is for; the budget is cut to 500 to 32,000 tokens.
        embed: What embeds a query on a connection; None searches by words alone.
        now: The time of the turn, aware; default the present.
    """
    now = now or datetime.now(UTC)
    budget = max(MIN_BUDGET, min(MAX_BUDGET, request.budget))
    degraded: list[Missing] = []
    workspace = _attempt(
        degraded, "workspace", lambda: read_workspace(request.folder, now.astimezone(request.zone).date())
    )
    workspace = workspace or Workspace([], [])
    degraded += [Missing(f"workspace/{name}", reason) for name, reason in workspace.problems]
    recalled = _attempt(degraded, "memory", lambda: _recall(connect, request, degraded, embed, now)) or _Recalled()
    made = assemble(
        workspace.files,
        recalled.conversation,
        recalled.summaries,
        recalled.relevant,
        shown=Shown(request.query or "", recalled.kin),
        budget=budget,
        zone=request.zone,
    )
    return TurnContext(made.text, made.tokens, budget, made.sections, degraded, made.without_room, made.repeated)


def _attempt(degraded: list[Missing], part: str, ask: Callable[[], _Answer]) -> _Answer | None:
    try:
        return ask()
    except (psycopg.Error, RivetError) as error:
        degraded.append(Missing(part, " ".join(str(error).split())[:300]))
    except Exception as error:
        # A turn goes on without this part whatever it is; a defect of ours is in the log.
        _log.exception("a turn's context goes without its %s", part)
        degraded.append(Missing(part, f"an internal error ({type(error).__name__}); the log says more"))
    return None


@dataclass(slots=True)
class _Recalled:
    """What the store gave: newest first, newest first, best first."""

    query: str = ""
    conversation: list[ContextItem] = field(default_factory=list)
    summaries: list[ContextItem] = field(default_factory=list)
    relevant: list[ContextItem] = field(default_factory=list)
    kin: dict[UUID, Kin] = field(default_factory=dict)


def _recall(
    connect: Connect,
    request: ContextRequest,
    degraded: list[Missing],
    embed: Callable[[Connection], EmbedQuery] | None,
    now: datetime,
) -> _Recalled:
    recalled = _Recalled((request.query or "").strip())
    with connect() as connection:
        rows = _attempt(degraded, "conversation", lambda: _read_session(connection, request)) or []
        recalled.conversation = [_session_item(row, _LONGEST_MESSAGE) for row in rows if row["source"] == "message"]
        recalled.summaries = [_session_item(row, _LONGEST_SUMMARY) for row in rows if row["source"] == "summary"]
        recalled.query = recalled.query or next(
            (item.text for item in recalled.conversation if item.role == "user"), ""
        )
        recalled.relevant = (
            _attempt(degraded, "search", lambda: _find(connection, request, recalled.query, degraded, embed, now)) or []
        )
        recalled.kin = _attempt(degraded, "kinship", lambda: _read_kin(connection, recalled)) or {}
    return recalled


def _bound(connection: Connection, milliseconds: int) -> None:
    connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])


def _read_session(connection: Connection, request: ContextRequest) -> list[dict[str, Any]]:
    if not request.session_key:
        return []
    values = {
        "session_key": request.session_key,
        "agent": request.agent,
        "messages": _MESSAGES,
        "summaries": _SUMMARIES,
        "longest": _LONGEST_SUMMARY,
    }
    with connection.transaction():
        _bound(connection, _SESSION_MS)
        rows = connection.execute(statement("context_session"), values, prepare=False).fetchall()
    return sorted(rows, key=lambda row: (row["at"], row["seq"]), reverse=True)


def _session_item(row: dict[str, Any], longest: int) -> ContextItem:
    return ContextItem(
        source=row["source"],
        text=_body(row["source"], row["content"])[:longest].strip(),
        cut=row["characters"] > longest,
        id=row["id"],
        kind=row["kind"],
        created_at=row["at"].astimezone(UTC),
        earliest_at=row["earliest_at"],
        agent=row["agent"],
        role=row["role"],
        session_key=row["session_key"],
        title=row["title"],
        message_count=row["message_count"],
        size=row["characters"],
    )


def _body(source: str, text: str) -> str:
    """A text as it is shown; of a summary without the line of its period, which stands in its heading."""
    return without_frame(text) if source == "summary" else text


def _find(
    connection: Connection,
    request: ContextRequest,
    query: str,
    degraded: list[Missing],
    embed: Callable[[Connection], EmbedQuery] | None,
    now: datetime,
) -> list[ContextItem]:
    asked = query[:_LONGEST_QUERY].strip()
    if not asked:
        return []
    # The model is asked before the transaction begins: it may be slow.
    now = now.astimezone(request.zone)
    rest = without(asked, [one for one in read_times(asked, now) if not one.is_date]).strip() or asked
    embed_query = None if embed is None else _embedded(embed(connection), rest)
    with connection.transaction():
        _bound(connection, _SEARCH_MS)
        response = search(
            connection,
            SearchRequest(asked, agent=request.agent, limit=_HITS),
            embed_query=embed_query,
            now=now,
        )
    if response.degraded is not None:
        degraded.append(Missing("meaning", response.degraded))
    if response.behind is not None:
        degraded.append(Missing("words", f"{response.behind}; {APPROXIMATE}"))
    return [
        _hit_item(hit, asked)
        for hit in response.hits
        if hit.kind not in _INJECTED and FRAME_LINE not in hit.content and FRAME_LINE not in (hit.tool_result or "")
    ]


def _embedded(embed_query: EmbedQuery, query: str) -> EmbedQuery:
    try:
        vector = embed_query(query)
    except ModelError as error:
        failure = error

        def fail(_: str) -> NDArray[np.float32]:
            raise failure

        return fail
    return lambda _: vector


def _hit_item(hit: Hit, query: str) -> ContextItem:
    body = _body(hit.source, "\n".join(part for part in (hit.content, hit.tool_result) if part and part.strip()))
    longest = _LONGEST_SUMMARY if hit.source == "summary" else _LONGEST_HIT
    cut = len(body) > longest
    return ContextItem(
        source=hit.source,
        text=make_snippet(query, body, limit=longest, lines=True) if cut else body.strip(),
        cut=cut,
        id=hit.id,
        kind=hit.kind,
        score=hit.score,
        created_at=hit.created_at.astimezone(UTC),
        earliest_at=hit.earliest_at,
        agent=hit.agent,
        role=hit.role,
        tool_name=hit.tool_name,
        session_key=hit.session_key,
        title=hit.title,
        message_count=hit.message_count,
        size=len(body),
    )


def _read_kin(connection: Connection, recalled: _Recalled) -> dict[UUID, Kin]:
    items = [*recalled.conversation, *recalled.summaries, *recalled.relevant]
    values = {
        "messages": [item.id for item in items if item.source == "message"],
        "summaries": [item.id for item in items if item.source == "summary"],
    }
    with connection.transaction():
        _bound(connection, _SESSION_MS)
        rows = connection.execute(statement("context_kin"), values, prepare=False).fetchall()
    return {row["id"]: Kin(None if row["uncovered"] else row["above"], frozenset(row["below"])) for row in rows}
