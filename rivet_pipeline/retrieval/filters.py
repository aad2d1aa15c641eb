"""The filters of a search as SQL, once for every arm. Nothing here runs a query.

`m` and `s` are the aliases of `ros_messages` and `ros_summaries` wherever a fragment is used; values are bound by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from psycopg import sql

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.types import SearchRequest

#: Nothing of a noise session (heartbeats, the pipeline's own traffic) unless its conversation is asked for by name.
_NOT_NOISE = """
    (%(conversation)s::uuid IS NOT NULL OR {alias}.conversation_id NOT IN (
        SELECT c.id FROM ros_conversations AS c WHERE ros_is_noise(c.session_key, c.settings)))
"""

MESSAGE_FILTER = sql.SQL(
    """(%(agent)s::text IS NULL OR m.agent = %(agent)s::text)
    AND (%(role)s::text IS NULL OR m.role = %(role)s::text)
    AND (%(conversation)s::uuid IS NULL OR m.conversation_id = %(conversation)s::uuid)
    AND (%(since)s::timestamptz IS NULL OR m.created_at >= %(since)s::timestamptz)
    AND (%(before)s::timestamptz IS NULL OR m.created_at < %(before)s::timestamptz)
    AND coalesce(m.metadata ->> 'kind', '') NOT IN ('progress', 'replay')
    AND """
    + _NOT_NOISE.replace("{alias}", "m")
)

#: A summary has no role, so a role asks for messages only; its time is the period that it covers.
SUMMARY_FILTER = sql.SQL(
    """%(role)s::text IS NULL
    AND (%(agent)s::text IS NULL OR %(agent)s::text = ANY (s.agents))
    AND (%(conversation)s::uuid IS NULL OR s.conversation_id = %(conversation)s::uuid)
    AND (%(since)s::timestamptz IS NULL OR s.latest_at >= %(since)s::timestamptz)
    AND (%(before)s::timestamptz IS NULL OR s.earliest_at < %(before)s::timestamptz)
    AND """
    + _NOT_NOISE.replace("{alias}", "s")
)


def filter_values(request: SearchRequest) -> dict[str, Any]:
    """The values that both fragments bind."""
    return {
        "agent": request.agent,
        "role": request.role,
        "conversation": request.conversation_id,
        "since": request.since,
        "before": request.before,
    }


def number_array(numbers: Iterable[int]) -> str:
    """Whole numbers as Postgres reads an array of them, many times as quick as binding a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


@cache
def statement(name: str) -> str:
    """The text of a `.sql` file of this room."""
    return (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")


def tune_session(connection: Connection, *, ef_search: int) -> None:
    """Settings of the running transaction under which every statement of a search is planned.

    Filters and the index must be combined by bitmap: the planner does not know that testing a row's words without the
    index means unpacking them, and would walk the table. JIT and parallel workers cost more than such a query takes.
    """
    connection.execute(
        """SELECT set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
                  set_config('work_mem', '32MB', true), set_config('enable_seqscan', 'off', true),
                  set_config('hnsw.iterative_scan', 'strict_order', true),
                  set_config('hnsw.ef_search', %s, true)""",
        [str(ef_search)],
    )
