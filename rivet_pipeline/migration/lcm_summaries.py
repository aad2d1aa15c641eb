"""Moves the summaries of one conversation of an LCM store, with their sources and parents.

In LCM a condensed summary's "parents" are the summaries it was made from; here `parent_id` leads from a summary to the
one above it. A summary has one parent here and a message stands in one leaf: what the source has beyond that is kept in
the metadata. Moved rows have pipeline version 0: the pipeline takes them as they are until somebody asks for more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.migration.lcm_messages import MovedConversation
from rivet_pipeline.migration.report import MigrationReport, Tally
from rivet_pipeline.summaries.types import Kind
from rivet_pipeline.transcripts.cleaning import clean_json, clean_text
from rivet_pipeline.transcripts.lcm import read_time
from rivet_pipeline.transcripts.lcm_source import LcmSource, Row, read_conversation
from rivet_pipeline.transcripts.readers.shared import present, text_of

_INSERT = Path(__file__).with_name("insert_lcm_summary.sql").read_text(encoding="utf-8")

#: The pipeline version of rows that the pipeline did not make.
FOREIGN_VERSION = 0

#: The model of a summary whose source names none.
MODEL = "lcm"

#: How LCM marks a text that it cut because no model answered (as its public repository has it): no summary was made.
_FALLBACKS = ("[LCM fallback summary", "[Truncated for context management]", "[Truncated from ")

#: Any fixed id: names the ids of moved summaries, so that a summary has the same id whenever it is moved.
_NAMESPACE = UUID("6f0f7a3e-5d1c-4c3c-9a34-5a2c0f3f4b1d")


@dataclass(slots=True)
class Planned:
    """A summary as it will stand.

    Attributes:
        lcm_id: The source's id.
        depth: The source's depth, a leaf's is 0.
        rows: The event ids of the messages that the leaf holds, in order.
        elsewhere: The source's ids of messages that an earlier leaf holds.
        parent: The source's id of the summary above it.
        parents: Those of further summaries above it.
        below: Those of the summaries that it was made from.
    """

    lcm_id: str
    depth: int
    content: str
    row: Row
    rows: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    parent: str | None = None
    parents: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        """Its level here; everything from the second level up is a root."""
        return "leaf" if self.depth == 0 else "branch" if self.depth == 1 else "root"


@dataclass(slots=True)
class Stored:
    """What the memory holds of a conversation's tree: each row's leaf, each summary's parent, each row's time."""

    leaf_of: dict[str, UUID] = field(default_factory=dict)
    parent_of: dict[UUID, UUID | None] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)


def summary_uuid(conversation_id: UUID | None, lcm_id: str) -> UUID:
    """The id of a moved summary."""
    return uuid5(_NAMESPACE, f"{conversation_id}:{lcm_id}")


def move_summaries(
    connection: Connection, source: LcmSource, number: Any, moved: MovedConversation, report: MigrationReport
) -> dict[str, UUID]:
    """Moves a conversation's summaries in one transaction and counts them; their ids by those of the source.

    Args:
        connection: The store, without an open transaction.
        source: The LCM store.
        number: The conversation's id there.
        moved: The conversation with its messages.
        report: Where it is counted.
    """
    rows = list(read_conversation(source, "summaries", number, order=_present(source, "created_at", "summary_id")))
    via = ("summaries", "summary_id")
    edges = list(read_conversation(source, "summary_parents", number, via=via, order=["t.summary_id", "t.ordinal"]))
    links = list(read_conversation(source, "summary_messages", number, via=via, order=["t.summary_id", "t.ordinal"]))
    if not moved.messages:
        _leave_all(report, len(rows), len(links), len(edges), "its conversation has no message")
        return {}
    before = read_stored(connection, moved.id)
    plan = choose(rows, edges, report.summaries)
    place_parents(plan, edges, report.parents, before, moved.id)
    place_sources(plan, links, moved, report.sources, before)
    for planned in plan.values():
        report.summaries.add(known=summary_uuid(moved.id, planned.lcm_id) in before.parent_of)
    report.summaries.before += _held(plan, moved.id, before)
    if not report.dry_run and moved.id is not None:
        _write(connection, moved, plan, before)
        after = read_stored(connection, moved.id)
        report.summaries.found(_held(plan, moved.id, after))
        report.sources.found(_linked(links, plan, moved, after))
        report.parents.found(_joined(plan, moved.id, after))
    report.sources.before += _linked(links, plan, moved, before)
    report.parents.before += _joined(plan, moved.id, before)
    return {lcm_id: summary_uuid(moved.id, lcm_id) for lcm_id in plan}


def _present(source: LcmSource, *columns: str) -> list[str]:
    return [f"t.{column}" for column in columns if column in source.tables.get("summaries", ())]


def _leave_all(report: MigrationReport, summaries: int, links: int, edges: int, reason: str) -> None:
    for tally, number in ((report.summaries, summaries), (report.sources, links), (report.parents, edges)):
        if number:
            tally.left_out[reason] += number


def choose(rows: Sequence[Row], edges: Sequence[Row], tally: Tally) -> dict[str, Planned]:
    """The summaries that are moved, by the source's id, in its order; the others are counted by reason."""
    below: dict[str, list[str]] = {}
    for edge in edges:
        below.setdefault(text_of(edge["summary_id"]), []).append(text_of(edge["parent_summary_id"]))
    leaves = {text_of(row["summary_id"]) for row in rows if text_of(row.get("kind")) == "leaf"}
    plan: dict[str, Planned] = {}
    for row in rows:
        lcm_id = text_of(row["summary_id"])
        content = clean_text(text_of(row.get("content"))).strip()
        reason = _unfit(row, content)
        if reason is not None:
            tally.left_out[reason] += 1
        else:
            plan[lcm_id] = Planned(lcm_id, 0 if lcm_id in leaves else _depth(row, below, leaves), content, row)
    return plan


def _unfit(row: Row, content: str) -> str | None:
    if not content:
        return "empty"
    if any(mark in content[-200:] or content.startswith(mark) for mark in _FALLBACKS):
        return "a cut text that stands for a summary: no model had answered"
    if row.get("suppressed_at"):
        return "suppressed in the source"
    if row.get("superseded_by"):
        return "superseded by another"
    return None


def _depth(row: Row, below: Mapping[str, list[str]], leaves: set[str]) -> int:
    """The depth of a condensed summary: the one that is stored, else the longest way down."""
    try:
        stated = int(row.get("depth") or 0)
    except (TypeError, ValueError):
        stated = 0
    return stated if stated > 0 else _way_down(text_of(row["summary_id"]), below, leaves)


def _way_down(lcm_id: str, below: Mapping[str, list[str]], leaves: set[str]) -> int:
    """Level by level, and no further than there are summaries: a circle in the source ends there."""
    level, depth = {lcm_id}, 0
    while depth <= len(below):
        level = {child for one in level if one not in leaves for child in below.get(one, ())}
        if not level:
            break
        depth += 1
    return max(1, depth) if depth <= len(below) else 1


def place_parents(
    plan: dict[str, Planned], edges: Iterable[Row], tally: Tally, before: Stored, conversation_id: UUID | None
) -> None:
    """Gives each summary its parent, the first that the source made of it, and counts every edge."""
    order = {lcm_id: index for index, lcm_id in enumerate(plan)}
    for edge in sorted(edges, key=lambda edge: order.get(text_of(edge["summary_id"]), -1)):
        above, child = plan.get(text_of(edge["summary_id"])), plan.get(text_of(edge["parent_summary_id"]))
        if above is None or child is None:
            tally.left_out["its summary was not moved, or is in another conversation"] += 1
        elif child.depth >= above.depth:
            tally.left_out["not from a lower level to a higher one"] += 1
        elif child.parent is not None:
            child.parents.append(above.lcm_id)
            tally.left_out["a further parent, kept in the metadata"] += 1
        else:
            _place_parent(child, above, tally, before, conversation_id)


def _place_parent(child: Planned, above: Planned, tally: Tally, before: Stored, conversation_id: UUID | None) -> None:
    stored = before.parent_of.get(summary_uuid(conversation_id, child.lcm_id))
    child.parent = above.lcm_id
    if stored is not None and stored != summary_uuid(conversation_id, above.lcm_id):
        tally.left_out["the pipeline has given it another parent"] += 1
        return
    above.below.append(child.lcm_id)
    tally.add(known=stored is not None)


def place_sources(
    plan: dict[str, Planned], links: Iterable[Row], moved: MovedConversation, tally: Tally, before: Stored
) -> None:
    """Gives each leaf the rows of its messages, unless an earlier leaf has them, and counts every link."""
    order = {lcm_id: index for index, lcm_id in enumerate(plan)}
    taken = dict(before.leaf_of)
    for link in sorted(links, key=lambda link: order.get(text_of(link["summary_id"]), -1)):
        leaf = plan.get(text_of(link["summary_id"]))
        message_id = text_of(link["message_id"])
        message = moved.messages.get(message_id)
        if leaf is None or leaf.depth:
            tally.left_out["its summary was not moved, or is no leaf"] += 1
        elif message is None:
            tally.left_out["its message was not moved"] += 1
        else:
            leaf_id = summary_uuid(moved.id, leaf.lcm_id)
            free = [row for row in message.rows if taken.setdefault(row, leaf_id) == leaf_id]
            leaf.rows += [row for row in free if row not in leaf.rows]
            if message.main in free:
                tally.add(known=before.leaf_of.get(message.main) == leaf_id)
            else:
                leaf.elsewhere.append(message_id)
                tally.left_out["its message stands in an earlier leaf, noted in the metadata"] += 1


def _held(plan: Mapping[str, Planned], conversation_id: UUID | None, stored: Stored) -> int:
    return sum(summary_uuid(conversation_id, lcm_id) in stored.parent_of for lcm_id in plan)


def _linked(links: Iterable[Row], plan: Mapping[str, Planned], moved: MovedConversation, stored: Stored) -> int:
    """The source's links that the memory holds."""
    number = 0
    for link in links:
        message = moved.messages.get(text_of(link["message_id"]))
        if message is not None and text_of(link["summary_id"]) in plan:
            number += stored.leaf_of.get(message.main) == summary_uuid(moved.id, text_of(link["summary_id"]))
    return number


def _joined(plan: Mapping[str, Planned], conversation_id: UUID | None, stored: Stored) -> int:
    """The source's parents that the memory holds."""
    return sum(
        stored.parent_of.get(summary_uuid(conversation_id, planned.lcm_id))
        == summary_uuid(conversation_id, planned.parent)
        for planned in plan.values()
        if planned.parent is not None
    )


def read_stored(connection: Connection, conversation_id: UUID | None) -> Stored:
    """What the memory holds of the conversation's tree."""
    stored = Stored()
    if conversation_id is None:
        return stored
    for row in connection.execute(
        """
        SELECT m.event_id, m.id, m.created_at, s.summary_id
        FROM ros_messages AS m LEFT JOIN ros_summary_sources AS s ON s.message_id = m.id
        WHERE m.conversation_id = %s AND m.metadata ? 'lcm_id'
        """,
        [conversation_id],
    ):
        stored.ids[row["event_id"]] = row["id"]
        stored.times[row["event_id"]] = row["created_at"]
        if row["summary_id"] is not None:
            stored.leaf_of[row["event_id"]] = row["summary_id"]
    for row in connection.execute(
        "SELECT id, parent_id FROM ros_summaries WHERE conversation_id = %s", [conversation_id]
    ):
        stored.parent_of[row["id"]] = row["parent_id"]
    return stored


@dataclass(slots=True)
class _Span:
    """What stands below a summary: how many messages, from when to when."""

    messages: int
    earliest: datetime
    latest: datetime


def _write(connection: Connection, moved: MovedConversation, plan: dict[str, Planned], before: Stored) -> None:
    spans: dict[str, _Span] = {}
    # Children first: what stands below a summary is known when its own turn comes.
    for planned in sorted(plan.values(), key=lambda planned: planned.depth):
        spans[planned.lcm_id] = _span(planned, spans, moved, before)
    with connection.transaction():
        connection.execute("SELECT 1 FROM ros_conversations WHERE id = %s FOR NO KEY UPDATE", [moved.id])
        # In the source's order, which is that in which they were made.
        for planned in plan.values():
            if summary_uuid(moved.id, planned.lcm_id) not in before.parent_of:
                _insert(connection, moved, planned, spans[planned.lcm_id])
        for planned in plan.values():
            _link(connection, moved, planned, before)


def _span(planned: Planned, spans: Mapping[str, _Span], moved: MovedConversation, stored: Stored) -> _Span:
    times = [stored.times[row] for row in planned.rows if row in stored.times]
    below = [spans[lcm_id] for lcm_id in planned.below if lcm_id in spans]
    number = len(planned.rows) + sum(span.messages for span in below)
    earliest = min([*times, *(span.earliest for span in below)], default=None)
    latest = max([*times, *(span.latest for span in below)], default=None)
    if earliest is None or latest is None:
        now = datetime.now(UTC)
        stated = [read_time(planned.row.get(key), now) for key in ("earliest_at", "latest_at", "created_at")]
        known = [time for time in stated if time is not None] or [moved.began or now]
        earliest, latest = min(known[:2]), max(known[:2])
    return _Span(max(1, number), earliest, latest)


def _insert(connection: Connection, moved: MovedConversation, planned: Planned, span: _Span) -> None:
    model = clean_text(text_of(planned.row.get("model"))).strip()
    inputs = [planned.content, *planned.rows, *planned.below]
    metadata = present(
        {
            "origin": "lcm",
            "lcm_id": planned.lcm_id,
            "lcm_depth": planned.depth,
            "lcm_parents": planned.parents,
            "lcm_elsewhere": planned.elsewhere,
            "lcm_files": text_of(planned.row.get("file_ids")).strip("[] \n"),
        }
    )
    connection.execute(
        _INSERT,
        {
            "id": summary_uuid(moved.id, planned.lcm_id),
            "conversation": moved.id,
            "kind": planned.kind,
            "content": planned.content,
            "message_count": span.messages,
            "earliest_at": span.earliest,
            "latest_at": span.latest,
            "agents": [moved.agent],
            "model": model if model and model != "unknown" else MODEL,
            "version": FOREIGN_VERSION,
            "input_hash": hashlib.sha256("\n".join(inputs).encode()).hexdigest(),
            "metadata": Jsonb(clean_json({**metadata, "lcm_depth": planned.depth})),
            "created_at": read_time(planned.row.get("created_at"), datetime.now(UTC)),
        },
    )


def _link(connection: Connection, moved: MovedConversation, planned: Planned, stored: Stored) -> None:
    """The leaf's sources, in order, and the way up; what is there stays."""
    summary_id = summary_uuid(moved.id, planned.lcm_id)
    missing = [row for row in planned.rows if row in stored.ids and row not in stored.leaf_of]
    if missing:
        connection.execute(
            """
            INSERT INTO ros_summary_sources (summary_id, message_id, ordinal)
            SELECT %(summary)s, i.id, i.place
            FROM unnest(%(ids)s::uuid[], %(places)s::integer[]) AS i (id, place)
            ON CONFLICT DO NOTHING
            """,
            {
                "summary": summary_id,
                "ids": [stored.ids[row] for row in missing],
                "places": [planned.rows.index(row) for row in missing],
            },
        )
    if planned.parent is not None and stored.parent_of.get(summary_id) is None:
        connection.execute(
            "UPDATE ros_summaries SET parent_id = %s WHERE id = %s AND parent_id IS NULL",
            [summary_uuid(moved.id, planned.parent), summary_id],
        )
