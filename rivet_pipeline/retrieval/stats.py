"""The state of the memory as figures, and what in it wants attention.

Each figure is read by itself: one that fails, or takes too long, is named in `errors` and costs no other. None walks
over the messages: their counts are kept as they are written (`ros_message_counts`), the rest comes from indexes, and
what is counted only up to a bound says so. What is pending is read where sensors and workers read it too
(`db/pending.py`), once for all figures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from rivet_pipeline.db.pending import PendingDay, amount, first_day, pending_days
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.retrieval.lexicon import pending_lexicon
from rivet_pipeline.retrieval.types import Stats
from rivet_pipeline.stages import STAGES, Stage
from rivet_pipeline.transcripts.spool import Spool, SpoolStatus

_log = logging.getLogger(__name__)

#: So many rows may wait for the lexicon before that is worth an alert: BM25's figures hardly move below.
LEXICON_ALERT = 50_000

#: The longest that one statement of a figure may take, in milliseconds; then the figure is given up and named. Most
#: figures are one to three statements, `pending_days` some fifteen.
FIGURE_TIMEOUT_MS = 10_000

#: So many messages of conversations with new ones are looked at to tell which of them wait for a leaf, at five
#: microseconds each: more than most stores take in during the four days for which a short end waits.
LOOKED_AT = 20_000

#: The figures with bounds, which they name in `at_most`.
_WITH_BOUNDS = frozenset({"pending_days", "pending_embeddings", "unsummarised"})

#: Leaves, newest first, that are looked at for a missing source; the asset check looks at all.
ORPHANS_EXAMINED = 2_000

#: From so many terms on Postgres's own estimate takes the place of a count.
_MANY_TERMS = 100_000

_KINDS = ("leaf", "branch", "root")

_Figure = Callable[[Connection, str | None], Any]

_Vectors = Callable[[Connection], list[PendingDay]]

_VECTOR_STAGES: tuple[Stage, ...] = ("message_embeddings", "summary_embeddings")


def collect_stats(connection: Connection, *, agent: str | None = None, spool: Spool | None = None) -> Stats:
    """Reads every figure; `agent` narrows totals, roles and recent conversations, the rest is of the whole store.

    `spool` is this machine's, whose captures are on their way; without it its figure is left out.
    Raises only when the connection itself is gone. Times are UTC; the shape of each figure stands at its function.
    """
    stats = Stats()
    for name, read in _figures().items():
        try:
            with connection.transaction():
                # Compiling these queries takes longer than to run them.
                connection.execute(
                    "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)",
                    [str(FIGURE_TIMEOUT_MS)],
                )
                stats.figures[name] = read(connection, agent)
        except psycopg.errors.QueryCanceled:
            stats.errors[name] = f"took longer than {FIGURE_TIMEOUT_MS / 1000:g} seconds"
        except psycopg.Error as error:
            if connection.closed or connection.broken:
                raise
            stats.errors[name] = " ".join(str(error).split())
        except Exception as error:
            # A defect of ours costs this figure too, and no other.
            _log.exception("the figure %s could not be read", name)
            stats.errors[name] = f"an internal error ({type(error).__name__}); the log says more"
    stats.alerts = _alerts(stats)
    if spool is not None:
        status = spool.status()
        stats.figures["spool"] = _spool(status)
        stats.alerts += status.complaints
    return stats


def told(name: str, figure: Any) -> Any:
    """A figure for a person: what it names in `at_most` says so itself."""
    if name not in _WITH_BOUNDS:
        return figure
    if name == "pending_days":
        return {stage: _told(entry) for stage, entry in figure.items()}
    return _told(figure)


def _told(entry: Mapping[str, Any]) -> dict[str, Any]:
    bounds = entry["at_most"]
    return {key: _bound(value) if key in bounds else value for key, value in entry.items() if key != "at_most"}


def _bound(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _bound(one) for key, one in value.items()}
    return amount(value, at_most=True)


def _spool(status: SpoolStatus) -> dict[str, Any]:
    """Depth (captures that wait), oldest_seconds (None when none waits), dead (refused), bytes."""
    return {
        "depth": status.depth,
        "oldest_seconds": None if status.oldest_seconds is None else round(status.oldest_seconds),
        "dead": status.dead,
        "bytes": status.bytes,
    }


def _one(connection: Connection, query: LiteralString, **values: Any) -> dict[str, Any]:
    row = connection.execute(query, values or None, prepare=False).fetchone()
    return row or {}


def _all(connection: Connection, query: str, **values: Any) -> list[dict[str, Any]]:
    # Never prepared: a plan for any agent would be none for no agent.
    return connection.execute(query, values or None, prepare=False).fetchall()


@cache
def _sql(name: str) -> str:
    return Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8")


def _totals(connection: Connection, agent: str | None) -> dict[str, Any]:
    """messages, turns, tool_calls, replays, first_at, last_at (None when empty).

    A turn is what a person said; a replay is a row that restates another one, as a fork's copied history does.
    """
    return _one(
        connection,
        """SELECT coalesce(sum(messages), 0)::bigint AS messages,
                  coalesce(sum(messages) FILTER (WHERE role = 'user' AND kind = 'speech'), 0)::bigint AS turns,
                  coalesce(sum(messages) FILTER (WHERE role = 'tool' OR tool_name <> ''), 0)::bigint
                      AS tool_calls,
                  coalesce(sum(messages) FILTER (WHERE kind = 'replay'), 0)::bigint AS replays,
                  (SELECT min(created_at) FROM ros_messages WHERE %(agent)s::text IS NULL OR agent = %(agent)s::text)
                      AS first_at,
                  (SELECT max(created_at) FROM ros_messages WHERE %(agent)s::text IS NULL OR agent = %(agent)s::text)
                      AS last_at
           FROM ros_message_counts
           WHERE %(agent)s::text IS NULL OR agent = %(agent)s::text""",
        agent=agent,
    )


def _conversations(connection: Connection, agent: str | None) -> dict[str, Any]:
    """total, active, noise."""
    return _one(
        connection,
        """SELECT count(*) AS total, count(*) FILTER (WHERE active) AS active,
                  count(*) FILTER (WHERE ros_is_noise(session_key, settings)) AS noise
           FROM ros_conversations WHERE %(agent)s::text IS NULL OR agent = %(agent)s::text""",
        agent=agent,
    )


def _by_agent(connection: Connection, agent: str | None) -> dict[str, int]:
    """Messages by agent, most first."""
    rows = _all(
        connection,
        """SELECT agent, sum(messages)::bigint AS n FROM ros_message_counts
           GROUP BY agent ORDER BY n DESC, agent""",
    )
    return {row["agent"]: row["n"] for row in rows}


def _by_role(connection: Connection, agent: str | None) -> dict[str, int]:
    """Messages by role, most first."""
    rows = _all(
        connection,
        """SELECT role, sum(messages)::bigint AS n
           FROM ros_message_counts
           WHERE %(agent)s::text IS NULL OR agent = %(agent)s::text
           GROUP BY role ORDER BY n DESC, role""",
        agent=agent,
    )
    return {row["role"]: row["n"] for row in rows}


def _summaries(connection: Connection, agent: str | None) -> dict[str, Any]:
    """by_kind {kind: {count, latest_at}}, orphan_leaves, orphans_examined, grounding, coverage, quarantined.

    orphan_leaves (leaves without a source) are counted among the newest `orphans_examined` leaves. grounding and
    coverage are averages (None: no summary has the figure); quarantined counts, by kind, summaries that hold too much
    that no source does, and so are kept out of whatever is made from summaries (`ros_is_trusted`).
    """
    kinds = _all(
        connection,
        """SELECT kind, count(*) AS count, max(created_at) AS latest_at,
                  count(*) FILTER (WHERE grounding < ros_trust_floor()) AS quarantined,
                  sum(grounding) AS grounding, count(grounding) AS grounded,
                  sum(coverage) AS coverage, count(coverage) AS covered
           FROM ros_summaries GROUP BY kind ORDER BY array_position('{leaf,branch,root}', kind)""",
    )
    orphans = _one(
        connection,
        """SELECT count(*) AS examined,
                  count(*) FILTER (WHERE NOT EXISTS (SELECT 1 FROM ros_summary_sources AS x WHERE x.summary_id = s.id))
                      AS orphans
           FROM (SELECT id FROM ros_summaries WHERE kind = 'leaf' ORDER BY created_at DESC LIMIT %(most)s) AS s""",
        most=ORPHANS_EXAMINED,
    )
    by_kind = {row["kind"]: row for row in kinds}
    return {
        "by_kind": {kind: {"count": row["count"], "latest_at": row["latest_at"]} for kind, row in by_kind.items()},
        "orphan_leaves": orphans["orphans"],
        "orphans_examined": orphans["examined"],
        "grounding": _average(kinds, "grounding", "grounded"),
        "coverage": _average(kinds, "coverage", "covered"),
        "quarantined": {kind: by_kind[kind]["quarantined"] if kind in by_kind else 0 for kind in _KINDS},
    }


def _average(rows: list[dict[str, Any]], total: str, count: str) -> float | None:
    counted = sum(row[count] for row in rows)
    return sum(row[total] or 0.0 for row in rows) / counted if counted else None


def _embeddings(connection: Connection, agent: str | None) -> dict[str, Any]:
    """The serving and the filling model by name, embedded rows by kind of the serving one, coverage of messages."""
    models = _all(connection, "SELECT name, dimensions, serving, filling FROM ros_embedding_models ORDER BY id")
    kinds = _all(
        connection,
        """SELECT owner_kind, count(*) AS n FROM ros_embeddings
           WHERE chunk = 0 AND model_id = (SELECT id FROM ros_embedding_models WHERE serving) GROUP BY owner_kind""",
    )
    blank = _one(
        connection,
        """SELECT count(*) AS n FROM ros_messages
           WHERE NOT (btrim(content) <> '' OR btrim(coalesce(tool_result, '')) <> '')""",
    )["n"]
    embeddable = _one(connection, "SELECT coalesce(sum(messages), 0)::bigint AS n FROM ros_message_counts")["n"] - blank
    rows = {row["owner_kind"]: row["n"] for row in kinds}
    return {
        "serving": next((row["name"] for row in models if row["serving"]), None),
        "filling": next((row["name"] for row in models if row["filling"]), None),
        "dimensions": next((row["dimensions"] for row in models if row["serving"]), None),
        "rows": rows,
        "embeddable_messages": embeddable,
        "coverage": min(1.0, rows.get("message", 0) / embeddable) if embeddable else None,
    }


def _waiting_vectors(connection: Connection) -> list[PendingDay]:
    return pending_days(connection, stages=_VECTOR_STAGES)


def _pending_embeddings(connection: Connection, vectors: _Vectors) -> dict[str, Any]:
    """messages, summaries: rows that wait for a vector of the filling model; at_most: which of these may be fewer."""
    found = vectors(connection)
    messages, summaries = (sum(day.items for day in found if day.stage == stage) for stage in _VECTOR_STAGES)
    at_most = {day.stage for day in found if day.at_most}
    return {
        "messages": messages,
        "summaries": summaries,
        "at_most": [
            name for name, stage in zip(("messages", "summaries"), _VECTOR_STAGES, strict=True) if stage in at_most
        ],
    }


def _pending_days(connection: Connection, vectors: _Vectors) -> dict[str, dict[str, Any]]:
    """By stage with work: days, items, oldest (a date, None when no day is certain); at_most: which may be fewer."""
    found = vectors(connection) + pending_days(connection, stages=[one for one in STAGES if one not in _VECTOR_STAGES])
    return {
        stage: {
            "days": len({day.day for day in work}),
            "items": sum(day.items for day in work),
            "oldest": first_day(work),
            "at_most": ["days"] * any(not day.certain for day in work) + ["items"] * any(day.at_most for day in work),
        }
        for stage in sorted({day.stage for day in found})
        if (work := [day for day in found if day.stage == stage])
    }


def _unsummarised(connection: Connection, agent: str | None) -> dict[str, Any]:
    """total, eligible, active_tail and below_floor, each {messages, conversations}; oldest: the five longest due.

    Where there is too much to look at each message there are total and oldest only, and at_most is ["total"].
    """
    held = _one(
        connection,
        """SELECT coalesce(sum(k.messages), 0)::bigint AS n
           FROM ros_unseen_conversations AS c JOIN ros_message_counts AS k ON k.conversation_id = c.conversation_id
           WHERE c.stage = 'leaf_summaries' AND NOT c.noise""",
    )["n"]
    names = ("messages", "conversations")
    if held > LOOKED_AT:
        total = _one(connection, _sql("count_unseen"))
        oldest = _all(connection, _sql("select_oldest_due"))
        return {"total": {name: total[name] for name in names}, "oldest": oldest, "at_most": ["total"]}
    found = {row["state"]: row for row in _all(connection, _sql("count_unsummarised"))}
    counts = {
        state: {name: found[state][name] if state in found else 0 for name in names}
        for state in ("eligible", "active_tail", "below_floor")
    }
    return {
        "total": {name: sum(row[name] for row in counts.values()) for name in names},
        **counts,
        "oldest": _all(connection, _sql("select_oldest_due")) if "eligible" in found else [],
        "at_most": [],
    }


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


def _tags(connection: Connection, agent: str | None) -> dict[str, Any]:
    """accepted, suggested, rejected, removals (suggested ones), oldest_suggestion_at, dropped (leaves without tags).

    Empty on a store without the tags' tables.
    """
    if _one(connection, "SELECT to_regclass('ros_tag_extractions') AS found")["found"] is None:
        return {}
    return _one(
        connection,
        """SELECT count(*) FILTER (WHERE status = 'accepted') AS accepted,
                  count(*) FILTER (WHERE status = 'suggested') AS suggested,
                  count(*) FILTER (WHERE status = 'rejected') AS rejected,
                  count(*) FILTER (WHERE removal = 'suggested') AS removals,
                  min(created_at) FILTER (WHERE status = 'suggested') AS oldest_suggestion_at,
                  (SELECT count(*) FROM ros_tag_extractions WHERE status = 'dropped') AS dropped
           FROM ros_tags""",
    )


def _lexicon(connection: Connection, agent: str | None) -> dict[str, Any]:
    """documents, terms, terms_estimated, refreshed_at (None: never), behind (rows that are not counted yet)."""
    row = _one(
        connection,
        """SELECT c.documents, c.refreshed_at, p.reltuples >= %(many)s AS terms_estimated,
                  CASE WHEN p.reltuples >= %(many)s THEN p.reltuples::bigint ELSE (SELECT count(*) FROM ros_lexicon) END
                      AS terms
           FROM ros_corpus AS c CROSS JOIN (SELECT reltuples FROM pg_class WHERE oid = 'ros_lexicon'::regclass) AS p""",
        many=_MANY_TERMS,
    )
    return row | {"behind": pending_lexicon(connection)}


def _freshness(connection: Connection, agent: str | None) -> dict[str, Any]:
    """newest_message_at, newest_capture_at, newest_summary_at, observed_at."""
    return _one(
        connection,
        """SELECT (SELECT max(created_at) FROM ros_messages) AS newest_message_at,
                  (SELECT captured_at FROM ros_messages ORDER BY seq DESC LIMIT 1) AS newest_capture_at,
                  (SELECT max(s.at) FROM (VALUES ('leaf'), ('branch'), ('root')) AS k (kind)
                   CROSS JOIN LATERAL (SELECT max(created_at) AS at FROM ros_summaries WHERE kind = k.kind) AS s)
                      AS newest_summary_at,
                  now() AS observed_at""",
    )


def _top_tools(connection: Connection, agent: str | None) -> dict[str, int]:
    """The twelve tools most called; a name's first 200 characters."""
    rows = _all(
        connection,
        """SELECT tool_name, sum(messages)::bigint AS n
           FROM ros_message_counts
           WHERE tool_name <> '' AND (%(agent)s::text IS NULL OR agent = %(agent)s::text)
           GROUP BY tool_name ORDER BY n DESC, tool_name LIMIT 12""",
        agent=agent,
    )
    return {row["tool_name"]: row["n"] for row in rows}


def recent_conversations(connection: Connection, agent: str | None = None) -> list[dict[str, Any]]:
    """The twelve conversations last active, noise left out: id, session_key, agent, channel, title, day, updated_at."""
    return _all(
        connection,
        """SELECT id, session_key, agent, channel, title, day, updated_at, active FROM ros_conversations
           WHERE NOT ros_is_noise(session_key, settings)
             AND (%(agent)s::text IS NULL OR agent = %(agent)s::text)
           ORDER BY updated_at DESC, id LIMIT 12""",
        agent=agent,
    )


def _figures() -> dict[str, _Figure]:
    """Every figure, in the order of the answer, for one collection."""
    vectors = cache(_waiting_vectors)
    return {
        "totals": _totals,
        "failures": _failures,
        "pending_days": lambda connection, agent: _pending_days(connection, vectors),
        "pending_embeddings": lambda connection, agent: _pending_embeddings(connection, vectors),
        "unsummarised": _unsummarised,
        "stale_summaries": _stale_summaries,
        "tags": _tags,
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
    dropped = stats.figures.get("tags", {}).get("dropped", 0)
    if dropped:
        alerts.append(
            f"{dropped} leaf summaries went without tags because the tagger failed; `rivet tags again --dropped` "
            "has them asked about again"
        )
    behind = stats.figures.get("lexicon", {}).get("behind", 0)
    if behind > LEXICON_ALERT:
        alerts.append(f"the lexicon is {behind} rows behind: ranking by words is less exact until it is refreshed")
    return alerts
