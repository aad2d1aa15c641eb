"""The filters of a search as SQL, once for every arm and for listings, what else is asked alike, and sessions' tags.

`m` and `s` are the aliases of `ros_messages` and `ros_summaries` wherever a fragment is used; values are bound by name.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.types import SearchRequest

#: A tag of at most this many conversations is bound as their ids, which an index can be asked for.
FEW_TAGGED = 1000


def _squeezed(text: LiteralString) -> sql.SQL:
    """The text in one line (see `statement`)."""
    return sql.SQL(" ".join(text.split()))


#: Nothing of a noise session (heartbeats, the pipeline's own traffic).
_NEVER_NOISE: LiteralString = """
    {alias}.conversation_id NOT IN (
        SELECT c.id FROM ros_conversations AS c WHERE ros_is_noise(c.session_key, c.settings))
"""

#: The same unless its conversation is asked for by name.
_NOT_NOISE: LiteralString = "(%(conversation)s::uuid IS NOT NULL OR " + _NEVER_NOISE + ")"

#: Nothing that repeats what other rows say.
_NO_REPEAT: LiteralString = "coalesce(m.metadata ->> 'kind', '') NOT IN ('progress', 'replay')"

#: The sessions that carry a tag. Of the two ways one is used: few of them are bound by id (`resolve_tag`).
_TAG: LiteralString = """
    (%(tag)s::text IS NULL OR {alias}.conversation_id IN (SELECT ros_tagged_conversations(%(tag)s::text)))
    AND (%(tagged)s::uuid[] IS NULL OR {alias}.conversation_id = ANY (%(tagged)s::uuid[]))
"""

#: The same for listings of messages; binds `tag` and `tagged`.
TAG_FILTER = sql.SQL(_TAG.replace("{alias}", "m"))

#: About how many characters a tool's row has, enough to tell a stub (`noise_factor`). How many bytes a text has is
#: known without reading it where it stands apart from its row, so one of more than 1,000 is not read: it is no stub.
TOOL_CHARACTERS = _squeezed(
    """CASE WHEN octet_length(m.tool_result) > 1000
                 OR (octet_length(m.content) > 1000 AND NOT m.metadata ? 'content_made_by') THEN 200
        ELSE length(btrim(left(ros_captured_content(m.content, m.metadata), 200)))
            + coalesce(length(btrim(left(m.tool_result, 200))), 0) END"""
)

MESSAGE_FILTER = _squeezed(
    """(%(agent)s::text IS NULL OR m.agent = %(agent)s::text)
    AND (%(role)s::text IS NULL OR m.role = %(role)s::text)
    AND (%(conversation)s::uuid IS NULL OR m.conversation_id = %(conversation)s::uuid)
    AND (%(since)s::timestamptz IS NULL OR m.created_at >= %(since)s::timestamptz)
    AND (%(before)s::timestamptz IS NULL OR m.created_at < %(before)s::timestamptz)
    AND """
    + _NO_REPEAT
    + " AND "
    + _TAG.replace("{alias}", "m")
    + " AND "
    + _NOT_NOISE.replace("{alias}", "m")
)

#: A summary has no role, so a role asks for messages only; its time is the period that it covers.
SUMMARY_FILTER = _squeezed(
    """%(role)s::text IS NULL
    AND (%(agent)s::text IS NULL OR %(agent)s::text = ANY (s.agents))
    AND (%(conversation)s::uuid IS NULL OR s.conversation_id = %(conversation)s::uuid)
    AND (%(since)s::timestamptz IS NULL OR s.latest_at >= %(since)s::timestamptz)
    AND (%(before)s::timestamptz IS NULL OR s.earliest_at < %(before)s::timestamptz)
    AND """
    + _TAG.replace("{alias}", "s")
    + " AND "
    + _NOT_NOISE.replace("{alias}", "s")
)

#: What is left of the two for a request without a filter. No value is bound, so that one plan is right for all of them.
UNFILTERED_MESSAGE = _squeezed(_NO_REPEAT + " AND " + _NEVER_NOISE.replace("{alias}", "m"))
UNFILTERED_SUMMARY = _squeezed(_NEVER_NOISE.replace("{alias}", "s"))


def filter_values(request: SearchRequest) -> dict[str, Any]:
    """The values that both fragments bind."""
    return {
        "agent": request.agent,
        "role": request.role,
        "conversation": request.conversation_id,
        "since": request.since,
        "before": request.before,
    } | tag_values(request.tag, request.tagged)


def tag_values(tag: str | None, tagged: tuple[UUID, ...] | None) -> dict[str, Any]:
    """The values of the tag's part alone: the ids where they are known, else the tag."""
    ids = None if tagged is None else "{" + ",".join(map(str, tagged)) + "}"
    return {"tag": tag if tagged is None else None, "tagged": ids}


def read_tag(text: str) -> str:
    """A tag as `key:value`, also written with a full-width colon. Raises `InvalidInputError` when it is none."""
    key, colon, value = (part.strip() for part in unicodedata.normalize("NFKC", text).partition(":"))
    if not (key and colon and value):
        raise InvalidInputError("tag", f"must be key:value, for instance project:shop, not {text[:60]!r}")
    return f"{key.lower()}:{value.lower()}"


def tagged_conversations(connection: Connection, tag: str) -> tuple[UUID, ...] | None:
    """The conversations that carry a tag; None when they are more than `FEW_TAGGED`: then it is asked for itself."""
    rows = connection.execute(
        "SELECT id FROM ros_tagged_conversations(%s) AS t (id) LIMIT %s", [tag, FEW_TAGGED + 1]
    ).fetchall()
    return tuple(row["id"] for row in rows) if len(rows) <= FEW_TAGGED else None


def resolve_tag(connection: Connection, request: SearchRequest) -> SearchRequest:
    """The request with its tag's conversations, where they are few. Raises `InvalidInputError` for what is no tag."""
    if request.tag is None:
        return request
    tag = read_tag(request.tag)
    return replace(request, tag=tag, tagged=tagged_conversations(connection, tag))


def accepted_tags(connection: Connection, conversations: Iterable[UUID]) -> dict[UUID, tuple[str, ...]]:
    """The accepted tags of sessions, in order; sessions without any are missing."""
    rows = connection.execute(
        """SELECT conversation_id, array_agg(tag ORDER BY tag) AS tags FROM ros_accepted_tags(%s::uuid[])
           GROUP BY conversation_id""",
        [list(dict.fromkeys(conversations))],
    ).fetchall()
    return {row["conversation_id"]: tuple(row["tags"]) for row in rows}


def number_array(numbers: Iterable[int]) -> str:
    """Whole numbers as Postgres reads an array of them, many times as quick as binding a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


@cache
def statement(name: str) -> str:
    """The text of a `.sql` file of this room: its name as a comment, then all but its comments and indentation.

    What psycopg has parsed of a statement it keeps only up to 4,096 characters, and parsing costs half a millisecond.
    """
    lines = (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    kept = (line.strip() for line in lines if not line.lstrip().startswith("--"))
    return "\n".join([f"-- {name}", *kept])


def tune_session(connection: Connection, *, ef_search: int) -> None:
    """Settings of the running transaction under which every statement of a search is planned.

    Filters and the index must be combined by bitmap: the planner does not know that testing a row's words without the
    index means unpacking them, and would walk the table. JIT and parallel workers cost more than such a query takes.
    """
    connection.execute(
        """SELECT set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
                  set_config('work_mem', '32MB', true), set_config('enable_seqscan', 'off', true),
                  set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', %s, true)""",
        [str(ef_search)],
    )
