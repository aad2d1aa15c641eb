"""The timeline: days with activity, how far each day's refinement is, and one day with all that began on it."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from rivet_pipeline.api.hub.charts import COLOURS, shares, year_of_days
from rivet_pipeline.api.hub.pages import FromHub, HubRoute
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.api.models import Words
from rivet_pipeline.db.inspection import rows_held
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval.conversation import list_conversations
from rivet_pipeline.retrieval.timeline import (
    StageState,
    TimelineDay,
    active_days,
    failures_of,
    last_active_day,
    read_days,
)
from rivet_pipeline.stages import STAGES, Stage

router = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)

_PAGE = 50

#: So many days away the next day with activity is looked for.
_REACH = 366


def month_of(text: str | None, newest: date) -> date:
    """The first day of the month that `2026-09` names, of the newest one when nothing is asked for.

    Raises `InvalidInputError`.
    """
    if not text:
        return newest.replace(day=1)
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise InvalidInputError("month", f"{text[:20]!r} is no month; write it as 2026-09") from None


def agents_of(days: list[TimelineDay]) -> list[str]:
    """The agents of some days, the busiest first: each keeps its colour for the whole page."""
    counts: dict[str, int] = {}
    for day in days:
        for agent, messages in day.agents.items():
            counts[agent] = counts.get(agent, 0) + messages
    return sorted(counts, key=lambda agent: (-counts[agent], agent))


@router.get("/timeline")
def timeline_page(
    page: FromHub,
    month: Annotated[str | None, Query(max_length=20)] = None,
    agent: Annotated[Words | None, Query(max_length=200)] = None,
) -> Response:
    """A year at a glance, and one month's days; of all agents or of one."""
    with page.resources.connection() as connection:
        newest = last_active_day(connection) or datetime.now(UTC).date()
        first = month_of(month, newest)
        last = first.replace(day=monthrange(first.year, first.month)[1])
        # Never further than the calendar goes.
        year_end = min(max(newest, last), date.max - timedelta(days=7))
        counts = active_days(connection, max(date.min, year_end - timedelta(days=380)), year_end, agent=agent)
        days = read_days(connection, first, last, agent=agent)
    agents = agents_of(days)
    most = max((day.messages for day in days), default=0)
    return page.render(
        "timeline.html",
        section="timeline",
        year=year_of_days(counts, year_end, f"{ROOT}/day/"),
        month=first,
        before=_shift(first, -1),
        after=_shift(first, 1),
        days=[(day, shares(day.agents, agents, most)) for day in days],
        agents=[(agent, min(number, COLOURS)) for number, agent in enumerate(agents, start=1)],
        agent=agent,
    )


def _shift(month: date, by: int) -> date | None:
    index = month.year * 12 + month.month - 1 + by
    return date(index // 12, index % 12 + 1, 1) if date.min.year * 12 <= index < (date.max.year + 1) * 12 else None


@router.get("/day/{text}")
def day_page(text: str, page: FromHub, number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1) -> Response:
    """One day: what each stage has made of it and what is left, and its conversations."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise NotFoundError(f"{text[:20]!r} is no day; write it as 2026-09-29.") from None
    with page.resources.connection() as connection:
        found = read_days(connection, day, day)
        made: dict[Stage, int] = {stage: rows_held(connection, stage, [day]).get(day, 0) for stage in STAGES[1:]}
        failures = failures_of(connection, [day])
        earlier, later = _neighbours(connection, day)
        conversations = list_conversations(connection, day=day, limit=_PAGE + 1, offset=(number - 1) * _PAGE)
    states = found[0].stages if found else {}
    made["messages"] = found[0].messages if found else 0
    return page.render(
        "day.html",
        section="timeline",
        day=day,
        earlier=earlier,
        later=later,
        summary=found[0] if found else None,
        stages=[
            (stage, states.get(stage, StageState()), made.get(stage, 0), _in_dagster(page, stage, day))
            for stage in STAGES
        ],
        failures=failures,
        conversations=conversations[:_PAGE],
        number=number,
        more=len(conversations) > _PAGE,
    )


def _neighbours(connection: Connection, day: date) -> tuple[date | None, date | None]:
    """The days with activity next to a day, before and after it, within a year."""
    reach = timedelta(days=_REACH)
    first = day - reach if day - date.min > reach else date.min
    last = day + reach if date.max - day > reach else date.max
    active = active_days(connection, first, last)
    return max((one for one in active if one < day), default=None), min(
        (one for one in active if one > day), default=None
    )


def _in_dagster(page: FromHub, stage: str, day: date) -> str:
    return page.hub.dagster_partition(stage, day.isoformat())
