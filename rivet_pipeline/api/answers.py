"""Turns what retrieval answers into what goes over the wire. The command line prints the same with `--json`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from pydantic.alias_generators import to_camel

from rivet_pipeline.api.models import (
    BrowseAnswer,
    BrowsedAnswer,
    Degraded,
    HitAnswer,
    LineageAnswer,
    LineageMessageAnswer,
    LineageSummaryAnswer,
    NamedTimeAnswer,
    PeriodAnswer,
    ScorePartsAnswer,
    SearchAnswer,
    StatsAnswer,
)
from rivet_pipeline.retrieval.lineage import Lineage, LineageMessage, LineageSummary
from rivet_pipeline.retrieval.types import (
    APPROXIMATE,
    BrowseRequest,
    BrowseResponse,
    Hit,
    SearchRequest,
    SearchResponse,
    Stats,
)

_EFFECT = {
    "hybrid": "results are found and ranked by words alone",
    "fts": "results are found and ranked by words alone",
    "vector": "nothing could be looked for by meaning; use mode fts or hybrid",
}

_PARTIAL = "older results may be missing; narrow the search by since, agent, tag or conversation to read further back"

#: Figures whose keys are data (an agent, a tool, a stage), not names of ours: they keep their spelling.
_KEYED_BY_DATA = {"by_agent", "by_role", "top_tools", "pending_days", "stale_summaries", "by_kind", "rows"}


def search_answer(request: SearchRequest, response: SearchResponse, *, explain: bool, zone: str) -> SearchAnswer:
    """A search's answer; `explain` adds the parts of each score, `zone` is the one that named windows are cut in."""
    notes: list[tuple[str, str]] = []
    if response.degraded is not None:
        notes.append((response.degraded, _EFFECT[request.mode]))
    if response.partial is not None:
        notes.append((response.partial, _PARTIAL))
    if response.behind is not None:
        notes.append((response.behind, APPROXIMATE))
    reasons, effects = ("; ".join(parts) for parts in zip(*notes, strict=True)) if notes else ("", "")
    return SearchAnswer(
        query=request.query,
        mode=request.mode,
        scope=request.scope,
        period=_period(request, zone),
        degraded=Degraded(reason=reasons, effect=effects) if notes else None,
        reason=response.reason,
        unmatched=response.unmatched,
        times=[
            NamedTimeAnswer(words=time.words, since=_utc(time.since), before=_utc(time.before), said=time.said)
            for time in response.times
        ],
        results=[_hit(hit, explain=explain) for hit in response.hits],
    )


def _period(request: SearchRequest | BrowseRequest, zone: str) -> PeriodAnswer:
    return PeriodAnswer(
        zone=zone,
        since=None if request.since is None else _utc(request.since),
        before=None if request.before is None else _utc(request.before),
    )


def _hit(hit: Hit, *, explain: bool) -> HitAnswer:
    return HitAnswer(
        id=hit.id,
        source=hit.source,
        score=hit.score,
        content=hit.content,
        snippet=hit.snippet,
        created_at=_utc(hit.created_at),
        role=hit.role,
        agent=hit.agent,
        kind=hit.kind,
        tool_name=hit.tool_name,
        conversation_id=hit.conversation_id,
        session_id=hit.session_key,
        title=hit.title,
        earliest_at=None if hit.earliest_at is None else _utc(hit.earliest_at),
        message_count=hit.message_count,
        tags=list(hit.tags),
        parts=ScorePartsAnswer(**asdict(hit.parts)) if explain else None,
    )


def browse_answer(request: BrowseRequest, response: BrowseResponse, *, zone: str) -> BrowseAnswer:
    """A listing's answer; `zone` is the one that named windows are cut in."""
    return BrowseAnswer(
        period=_period(request, zone),
        messages=[
            BrowsedAnswer(
                id=message.id,
                role=message.role,
                agent=message.agent,
                channel=message.channel,
                content=message.content,
                created_at=_utc(message.created_at),
                conversation_id=message.conversation_id,
                session_id=message.session_key,
                title=message.title,
                tool_name=message.tool_name,
                tool_args=message.tool_args,
                tool_result=message.tool_result,
                metadata=message.metadata,
            )
            for message in response.messages
        ],
        next_cursor=response.next_cursor,
        previous_cursor=response.previous_cursor,
    )


def lineage_answer(lineage: Lineage) -> LineageAnswer:
    """A lineage's answer."""
    return LineageAnswer(
        conversation_id=lineage.conversation_id,
        session_id=lineage.session_key,
        title=lineage.title,
        above=[_lineage_summary(summary) for summary in lineage.above],
        summary=None if lineage.summary is None else _lineage_summary(lineage.summary),
        message=None if lineage.message is None else _lineage_message(lineage.message),
        omitted_summaries=lineage.omitted_summaries,
        omitted_messages=lineage.omitted_messages,
        note=lineage.note,
    )


def _lineage_summary(summary: LineageSummary) -> LineageSummaryAnswer:
    return LineageSummaryAnswer(
        id=summary.id,
        kind=summary.kind,
        earliest_at=_utc(summary.earliest_at),
        latest_at=_utc(summary.latest_at),
        message_count=summary.message_count,
        model=summary.model,
        pipeline_version=summary.pipeline_version,
        grounding=summary.grounding,
        excerpt=summary.excerpt,
        sources=summary.sources,
        children=[_lineage_summary(child) for child in summary.children],
        messages=[_lineage_message(message) for message in summary.messages],
    )


def _lineage_message(message: LineageMessage) -> LineageMessageAnswer:
    return LineageMessageAnswer(
        id=message.id,
        created_at=_utc(message.created_at),
        agent=message.agent,
        role=message.role,
        tool_name=message.tool_name,
        excerpt=message.excerpt,
        made_by=message.made_by,
    )


def stats_answer(stats: Stats, now: datetime) -> StatsAnswer:
    """The figures' answer, keys in camelCase and times in UTC at any depth."""
    return StatsAnswer(
        alerts=stats.alerts,
        figures={to_camel(name): _wire(value, keyed=name in _KEYED_BY_DATA) for name, value in stats.figures.items()},
        errors={to_camel(name): error for name, error in stats.errors.items()},
        observed_at=_utc(now),
    )


def _wire(value: Any, *, keyed: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            str(key) if keyed else to_camel(str(key)): _wire(entry, keyed=key in _KEYED_BY_DATA)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_wire(entry) for entry in value]
    if isinstance(value, datetime):
        return _utc(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return value


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
