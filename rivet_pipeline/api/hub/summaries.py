"""One summary: its text with a way from each line to the message it speaks of, what it was made of, what is over it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from rivet_pipeline.api.hub.pages import FromHub, HubRoute, read_id, see_other
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.retrieval.conversation import (
    day_of_summary,
    find_page,
    first_message_of,
    read_source_texts,
    read_summary_text,
)
from rivet_pipeline.retrieval.line_sources import STAMP, SourceText, sources_of_lines
from rivet_pipeline.retrieval.lineage import Budget, Lineage, LineageMessage, LineageSummary, read_lineage

router = APIRouter(prefix=f"{ROOT}/s", route_class=HubRoute, include_in_schema=False)

_BUDGET = Budget(summaries=60, messages=80, excerpt=160)

#: What our own summaries begin with; the page says it in its own words.
_FRAME = re.compile(r"\APeriod \d{4}-\d\d-\d\dT[^\n]*\n+")
_HEADING = re.compile(r"\A(?:#{1,6}\s+(?P<hashed>.+)|\*\*(?P<bold>[^*]+)\*\*:?)\Z")
_ITEM = re.compile(r"\A\s*(?:[-*•]|\d{1,3}[.)])\s+")


@dataclass(frozen=True, slots=True)
class Block:
    """One line of a summary; `message_id` is the message it speaks of, where that is known."""

    text: str
    heading: bool = False
    item: bool = False
    message_id: UUID | None = None
    #: When and by whom it was said, where the line begins with that.
    at: datetime | None = None
    voice: str = ""


@dataclass(frozen=True, slots=True)
class SummaryView:
    """A summary as a page shows it."""

    lineage: Lineage
    blocks: list[Block]
    children: list[LineageSummary]
    messages: list[LineageMessage]
    omitted: int


def summary_blocks(text: str, sources: list[SourceText]) -> list[Block]:
    """The lines of a summary that say something, each with its message."""
    lines = [line.strip() for line in _FRAME.sub("", text).split("\n")]
    lines = [line for line in lines if line]
    found = sources_of_lines(lines, sources)
    return [_block(line, message) for line, message in zip(lines, found, strict=True)]


def _block(line: str, message: UUID | None) -> Block:
    heading = _HEADING.match(line)
    if heading is not None:
        return Block(heading["hashed"] or heading["bold"], heading=True)
    stamp = STAMP.match(line)
    at = None if stamp is None else _moment(stamp["minute"])
    if stamp is not None and at is not None:
        return Block(line[stamp.end() :], item=True, message_id=message, at=at, voice=stamp["voice"])
    item = _ITEM.match(line)
    return Block(line[item.end() :] if item else line, item=item is not None, message_id=message)


def _moment(minute: str) -> datetime | None:
    """The minute that a line begins with, if there is such a minute: a model may have made it up."""
    try:
        return datetime.fromisoformat(f"{minute}+00:00")
    except ValueError:
        return None


def read_summary(connection: Connection, wanted: UUID) -> SummaryView:
    """Everything about a summary. Raises `NotFoundError`."""
    lineage = read_lineage(connection, wanted, _BUDGET)
    text = read_summary_text(connection, wanted)
    if lineage is None or lineage.summary is None or text is None:
        raise NotFoundError(f"No summary has the id {wanted}.")
    summary = lineage.summary
    return SummaryView(
        lineage=lineage,
        blocks=summary_blocks(text, read_source_texts(connection, wanted)),
        children=summary.children,
        messages=summary.messages,
        omitted=max(0, summary.sources - len(summary.children) - len(summary.messages)),
    )


@router.get("/{wanted}")
def summary_page(wanted: str, page: FromHub) -> Response:
    """A summary as a page, or as the part of one that htmx asks for."""
    with page.resources.connection() as connection:
        view = read_summary(connection, read_id(wanted))
        day = day_of_summary(connection, read_id(wanted))
    kind = None if view.lineage.summary is None else view.lineage.summary.kind
    return page.render(
        "_summary.html" if page.is_fragment else "summary.html",
        section="search",
        view=view,
        day=day,
        in_dagster=None if day is None else page.hub.dagster_partition(f"{kind}_summaries", day.isoformat()),
    )


@router.get("/{wanted}/conversation")
def summary_in_conversation(wanted: str, page: FromHub) -> Response:
    """Leads to the summary in the tree beside its conversation."""
    identity = read_id(wanted)
    with page.resources.connection() as connection:
        first = first_message_of(connection, identity)
        place = None if first is None else find_page(connection, first)
    if place is None:
        raise NotFoundError(f"No summary with the id {identity} has messages.")
    return see_other(f"{ROOT}/c/{place[0]}?page={place[1]}#s-{identity}")
