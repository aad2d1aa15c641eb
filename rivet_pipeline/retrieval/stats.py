"""The state of the memory as figures, and what in it wants attention.

Each figure is read by itself: one that fails is named in `errors` and costs no other. What is pending is read from the
pending views, which sensors and workers read too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.lexicon import pending_lexicon
from rivet_pipeline.retrieval.types import Stats
from rivet_pipeline.transcripts.spool import Spool, SpoolStatus

#: So many rows may wait for the lexicon before that is worth an alert: BM25's figures hardly move below.
LEXICON_ALERT = 50_000

_Figure = Callable[[Connection, str | None], Any]


def collect_stats(connection: Connection, *, agent: str | None = None, spool: Spool | None = None) -> Stats:
    """Reads every figure; `agent` narrows totals, roles and recent conversations, the rest is of the whole store.

    `spool` is this machine's, whose captures are on their way; without it its figure is left out.
    Raises only when the connection itself is gone. Times are UTC; the shape of each figure stands at its function.
    """
    stats = Stats()
    for name, read in _FIGURES.items():
        try:
            with connection.transaction():
                stats.figures[name] = read(connection, agent)
        except psycopg.Error as error:
            if connection.closed or connection.broken:
                raise
            stats.errors[name] = " ".join(str(error).split())
    stats.alerts = _alerts(stats)
    if spool is not None:
        status = spool.status()
        stats.figures["spool"] = _spool(status)
        stats.alerts += status.complaints
    return stats


def _spool(status: SpoolStatus) -> dict[str, Any]:
    """Depth (captures that wait), oldest_seconds (None when none waits), dead (refused), bytes."""
    return {
        "depth": status.depth,
        "oldest_seconds": None if status.oldest_seconds is None else round(status.oldest_seconds),
        "dead": status.dead,
        "bytes": status.bytes,
    }


def _one(connection: Connection, query: str, *values: Any) -> dict[str, Any]:
    row = connection.execute(query.encode(), values or None).fetchone()
    return row or {}


def _all(connection: Connection, query: str, *values: Any) -> list[dict[str, Any]]:
    return connection.execute(query.encode(), values or None).fetchall()


def _totals(connection: Connection, agent: str | None) -> dict[str, Any]:
    """messages, turns, tool_calls, replays, first_at, last_at (None when empty).

    A turn is what a person said; a replay is a row that restates another one, as a fork's copied history does.
    """
    return _one(
        connection,
        """SELECT count(*) AS messages,
                  count(*) FILTER (WHERE role = 'user' AND coalesce(metadata ->> 'kind', 'speech') = 'speech') AS turns,
                  count(*) FILTER (WHERE role = 'tool' OR tool_name IS NOT NULL) AS tool_calls,
                  count(*) FILTER (WHERE metadata ->> 'kind' = 'replay') AS replays,
                  min(created_at) AS first_at, max(created_at) AS last_at
           FROM ros_messages WHERE %s::text IS NULL OR agent = %s""",
        agent,
        agent,
    )


def _conversations(connection: Connection, agent: str | None) -> dict[str, Any]:
    """total, active, noise."""
    return _one(
        connection,
        """SELECT count(*) AS total, count(*) FILTER (WHERE active) AS active,
                  count(*) FILTER (WHERE ros_is_noise(session_key, settings)) AS noise
           FROM ros_conversations WHERE %s::text IS NULL OR agent = %s""",
        agent,
        agent,
    )


def _by_agent(connection: Connection, agent: str | None) -> dict[str, int]:
    """Messages by agent, most first."""
    rows = _all(connection, "SELECT agent, count(*) AS n FROM ros_messages GROUP BY agent ORDER BY n DESC, agent")
    return {row["agent"]: row["n"] for row in rows}


def _by_role(connection: Connection, agent: str | None) -> dict[str, int]:
    """Messages by role, most first."""
    rows = _all(
        connection,
        """SELECT role, count(*) AS n FROM ros_messages WHERE %s::text IS NULL OR agent = %s
           GROUP BY role ORDER BY n DESC, role""",
        agent,
        agent,
    )
    return {row["role"]: row["n"] for row in rows}


def _summaries(connection: Connection, agent: str | None) -> dict[str, Any]:
    """by_kind {kind: {count, latest_at}}, orphan_leaves (leaves without a source), grounding, coverage, quarantined.

    The first two of these are averages (None: no summary has the figure), the last counts summaries by kind that hold
    too much that no source does, and so are kept out of whatever is made from summaries.
    """
    kinds = _all(
        connection,
        """SELECT kind, count(*) AS count, max(created_at) AS latest_at
           FROM ros_summaries GROUP BY kind, depth ORDER BY depth""",
    )
    orphans = _one(
        connection,
        """SELECT count(*) AS n FROM ros_summaries AS s
           WHERE s.kind = 'leaf' AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS x WHERE x.summary_id = s.id)""",
    )
    quality = _one(
        connection,
        """SELECT avg(grounding) AS grounding, avg(coverage) AS coverage,
                  count(*) FILTER (WHERE kind = 'leaf' AND NOT ros_is_trusted(s)) AS leaf,
                  count(*) FILTER (WHERE kind = 'branch' AND NOT ros_is_trusted(s)) AS branch,
                  count(*) FILTER (WHERE kind = 'root' AND NOT ros_is_trusted(s)) AS root
           FROM ros_summaries AS s""",
    )
    return {
        "by_kind": {row["kind"]: {"count": row["count"], "latest_at": row["latest_at"]} for row in kinds},
        "orphan_leaves": orphans["n"],
        "grounding": quality["grounding"],
        "coverage": quality["coverage"],
        "quarantined": {kind: quality[kind] for kind in ("leaf", "branch", "root")},
    }


def _embeddings(connection: Connection, agent: str | None) -> dict[str, Any]:
    """The serving and the filling model by name, embedded rows by kind of the serving one, coverage of messages."""
    models = _all(connection, "SELECT name, dimensions, serving, filling FROM ros_embedding_models ORDER BY id")
    kinds = _all(
        connection,
        """SELECT e.owner_kind, count(*) AS n FROM ros_embeddings AS e
           JOIN ros_embedding_models AS k ON k.id = e.model_id AND k.serving
           WHERE e.chunk = 0 GROUP BY e.owner_kind""",
    )
    embeddable = _one(
        connection,
        """SELECT count(*) AS n FROM ros_messages
           WHERE btrim(content) <> '' OR btrim(coalesce(tool_result, '')) <> ''""",
    )["n"]
    rows = {row["owner_kind"]: row["n"] for row in kinds}
    return {
        "serving": next((row["name"] for row in models if row["serving"]), None),
        "filling": next((row["name"] for row in models if row["filling"]), None),
        "dimensions": next((row["dimensions"] for row in models if row["serving"]), None),
        "rows": rows,
        "embeddable_messages": embeddable,
        "coverage": min(1.0, rows.get("message", 0) / embeddable) if embeddable else None,
    }


def _pending_embeddings(connection: Connection, agent: str | None) -> dict[str, int]:
    """messages, summaries: rows that wait for a vector of the filling model."""
    return _one(
        connection,
        """SELECT (SELECT count(*) FROM ros_pending_message_embeddings) AS messages,
                  (SELECT count(*) FROM ros_pending_summary_embeddings) AS summaries""",
    )


def _unsummarised(connection: Connection, agent: str | None) -> dict[str, Any]:
    """eligible, active_tail and below_floor, each {messages, conversations}; oldest: the five longest due."""
    row = _one(
        connection,
        """SELECT count(*) FILTER (WHERE due IS NOT NULL) AS eligible_conversations,
                  coalesce(sum(waiting) FILTER (WHERE due IS NOT NULL), 0)::bigint AS eligible_messages,
                  count(*) FILTER (WHERE due IS NULL AND waiting >= r.leaf_stale_min) AS active_conversations,
                  coalesce(sum(waiting) FILTER (WHERE due IS NULL AND waiting >= r.leaf_stale_min), 0)::bigint
                      AS active_messages,
                  count(*) FILTER (WHERE due IS NULL AND waiting < r.leaf_stale_min) AS below_conversations,
                  coalesce(sum(waiting) FILTER (WHERE due IS NULL AND waiting < r.leaf_stale_min), 0)::bigint
                      AS below_messages
           FROM ros_unsummarised CROSS JOIN ros_batch_rules() AS r""",
    )
    oldest = _all(
        connection,
        """SELECT conversation_id, waiting, due, updated_at FROM ros_unsummarised WHERE due IS NOT NULL
           ORDER BY updated_at, conversation_id LIMIT 5""",
    )
    return {
        "eligible": {"messages": row["eligible_messages"], "conversations": row["eligible_conversations"]},
        "active_tail": {"messages": row["active_messages"], "conversations": row["active_conversations"]},
        "below_floor": {"messages": row["below_messages"], "conversations": row["below_conversations"]},
        "oldest": oldest,
    }


def _pending_days(connection: Connection, agent: str | None) -> dict[str, dict[str, Any]]:
    """By stage with work: days, items, oldest (a date)."""
    rows = _all(
        connection,
        """SELECT stage, count(*) AS days, sum(items)::bigint AS items, min(day) AS oldest
           FROM ros_pending_days GROUP BY stage ORDER BY stage""",
    )
    return {row["stage"]: {"days": row["days"], "items": row["items"], "oldest": row["oldest"]} for row in rows}


def _failures(connection: Connection, agent: str | None) -> list[dict[str, Any]]:
    """By stage and cause: items, given_up (not tried again by themselves), oldest_at, error (the latest)."""
    return _all(
        connection,
        """SELECT stage, cause, count(*) AS items, count(*) FILTER (WHERE next_attempt_at IS NULL) AS given_up,
                  min(first_failed_at) AS oldest_at,
                  (array_agg(left(error, 300) ORDER BY last_failed_at DESC))[1] AS error
           FROM ros_failures GROUP BY stage, cause ORDER BY stage, cause""",
    )


def _stale_summaries(connection: Connection, agent: str | None) -> dict[str, dict[str, Any]]:
    """By stage with stale rows: rows, waiting (for a failure's time to come), days, oldest (a date), and by reason.

    Reasons: requested, version, model, source (a text below it has changed).
    """
    rows = _all(
        connection,
        """SELECT stage, count(*) AS rows, count(*) FILTER (WHERE waits) AS waiting,
                  count(DISTINCT day) AS days, min(day) AS oldest,
                  count(*) FILTER (WHERE reason = 'requested') AS requested,
                  count(*) FILTER (WHERE reason = 'version') AS version,
                  count(*) FILTER (WHERE reason = 'model') AS model,
                  count(*) FILTER (WHERE reason = 'source') AS source
           FROM ros_stale_summaries GROUP BY stage ORDER BY stage""",
    )
    return {row.pop("stage"): row for row in rows}


def _lexicon(connection: Connection, agent: str | None) -> dict[str, Any]:
    """documents, terms, refreshed_at (None: never), behind (rows that are not counted yet)."""
    row = _one(
        connection,
        "SELECT documents, refreshed_at, (SELECT count(*) FROM ros_lexicon) AS terms FROM ros_corpus",
    )
    return row | {"behind": pending_lexicon(connection)}


def _freshness(connection: Connection, agent: str | None) -> dict[str, Any]:
    """newest_message_at, newest_capture_at, newest_summary_at, observed_at."""
    return _one(
        connection,
        """SELECT (SELECT max(created_at) FROM ros_messages) AS newest_message_at,
                  (SELECT captured_at FROM ros_messages ORDER BY seq DESC LIMIT 1) AS newest_capture_at,
                  (SELECT max(created_at) FROM ros_summaries) AS newest_summary_at,
                  now() AS observed_at""",
    )


def _top_tools(connection: Connection, agent: str | None) -> dict[str, int]:
    """The twelve tools most called."""
    rows = _all(
        connection,
        """SELECT tool_name, count(*) AS n FROM ros_messages
           WHERE tool_name IS NOT NULL AND (%s::text IS NULL OR agent = %s)
           GROUP BY tool_name ORDER BY n DESC, tool_name LIMIT 12""",
        agent,
        agent,
    )
    return {row["tool_name"]: row["n"] for row in rows}


def recent_conversations(connection: Connection, agent: str | None = None) -> list[dict[str, Any]]:
    """The twelve conversations last active, noise left out: id, session_key, agent, channel, title, day, updated_at."""
    return _all(
        connection,
        """SELECT id, session_key, agent, channel, title, day, updated_at, active FROM ros_conversations
           WHERE NOT ros_is_noise(session_key, settings) AND (%s::text IS NULL OR agent = %s)
           ORDER BY updated_at DESC, id LIMIT 12""",
        agent,
        agent,
    )


_FIGURES: dict[str, _Figure] = {
    "totals": _totals,
    "failures": _failures,
    "pending_days": _pending_days,
    "pending_embeddings": _pending_embeddings,
    "unsummarised": _unsummarised,
    "stale_summaries": _stale_summaries,
    "lexicon": _lexicon,
    "by_agent": _by_agent,
    "by_role": _by_role,
    "conversations": _conversations,
    "summaries": _summaries,
    "embeddings": _embeddings,
    "freshness": _freshness,
    "top_tools": _top_tools,
    "recent_sessions": recent_conversations,
}


def _alerts(stats: Stats) -> list[str]:
    alerts = [f"the figure {name} could not be read: {error}" for name, error in stats.errors.items()]
    for row in stats.figures.get("failures", []):
        given_up = f", {row['given_up']} of them given up" if row["given_up"] else ""
        alerts.append(f"{row['stage']}: {row['items']} items fail ({row['cause']}{given_up}): {row['error']}")
    stale = sum(
        row["version"] + row["model"] + row["requested"] for row in stats.figures.get("stale_summaries", {}).values()
    )
    if stale:
        alerts.append(
            f"summaries of an older version or another model, or wanted again: {stale}; switch Dagster's sensor "
            "remine_stale on, or see `rivet memory remine --dry-run`"
        )
    orphans = stats.figures.get("summaries", {}).get("orphan_leaves", 0)
    if orphans:
        alerts.append(f"{orphans} leaf summaries have no source message")
    quarantined = sum(stats.figures.get("summaries", {}).get("quarantined", {}).values())
    if quarantined:
        alerts.append(
            f"{quarantined} summaries hold too much that no source does; they are kept out of parents until made again"
        )
    embeddings = stats.figures.get("embeddings", {})
    if embeddings.get("embeddable_messages") and embeddings.get("serving") is None:
        alerts.append("no embedding model serves: search is by words only")
    behind = stats.figures.get("lexicon", {}).get("behind", 0)
    if behind > LEXICON_ALERT:
        alerts.append(f"the lexicon is {behind} rows behind: ranking by words is less exact until it is refreshed")
    return alerts
