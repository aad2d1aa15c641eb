"""Holds the rows of a batch against what is stored: what is new, known, filled late, whole at last, or a clash.

Pure: what stands in the store is given as `Saying`s. Asking for them and carrying a plan out is `ingest.py`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rivet_pipeline.transcripts.cleaning import clean_event_id
from rivet_pipeline.transcripts.ingest_rows import Row
from rivet_pipeline.transcripts.records import MessageRecord, ToolResult

#: What `Clock` says about a time, as metadata.
_TIME_NOTES = frozenset({"time_source", "event_ts"})

#: So many characters of two texts are compared when one of them was cut.
COMPARED = 256


@dataclass(frozen=True, slots=True)
class Text:
    """A text as far as it must be known to tell whether another one is the same."""

    digest: str
    head: str

    @classmethod
    def of(cls, text: str) -> Text:
        """What must be known of a text that is at hand."""
        return cls(_digest(text), text[:COMPARED])

    def repeats(self, other: Text, *, cut: bool) -> bool:
        """Whether two texts are the same; with `cut`, whether one may be the beginning of the other."""
        if self.digest == other.digest:
            return True
        size = min(len(self.head), len(other.head))
        return cut and self.head[:size] == other.head[:size]


@dataclass(frozen=True, slots=True)
class Saying:
    """What a row says, whether it is stored or on its way; `result` is None while there is none."""

    role: str
    content: Text
    tool_name: str | None
    tool_args: Any
    result: Text | None
    truncated: bool
    redacted: bool

    def repeats(self, there: Saying) -> bool:
        """Whether this says what is there already. What was cut, taken out or left out is not held against it."""
        if self.role != there.role:
            return False
        if self.redacted or there.redacted:
            return True
        cut = self.truncated or there.truncated
        return (
            (not self.content.head or self.content.repeats(there.content, cut=cut))
            and (self.tool_name is None or there.tool_name in (None, self.tool_name))
            and _same_arguments(self.tool_args, there.tool_args)
            and self.result_repeats(there)
        )

    def result_repeats(self, there: Saying) -> bool:
        """Whether its result is the one that is there, or there is only one."""
        if self.result is None or there.result is None or self.redacted or there.redacted:
            return True
        return self.result.repeats(there.result, cut=self.truncated or there.truncated)


def _same_arguments(one: Any, other: Any) -> bool:
    """Whether two calls' arguments are the same; whoever leaves them out does not say otherwise."""
    elided = any(isinstance(value, dict) and "_elided" in value for value in (one, other))
    return elided or one is None or other is None or one == other


@dataclass(slots=True)
class Plan:
    """What a batch comes to once it is held against the store."""

    inserts: dict[str, Row] = field(default_factory=dict)
    fills: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    #: Rows that say in full what stands cut in the store, by event id.
    wholes: dict[str, Row] = field(default_factory=dict)
    known: int = 0
    clashed: int = 0
    keep_clashes: bool = True


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _saying(row: Row) -> Saying:
    return Saying(
        row.role,
        Text.of(row.content),
        row.tool_name,
        row.tool_args,
        None if row.tool_result is None else Text.of(row.tool_result),
        truncated=bool(row.metadata.get("truncated")),
        redacted="redacted" in row.metadata,
    )


def result_event_id(event_id: str) -> str:
    """The event id of a result whose call has not been seen, by the call's."""
    return clean_event_id(f"result:{event_id}")


def _clash_id(row: Row) -> str:
    """The event id of a row whose own id came before with another content: kept beside it, never dropped."""
    said = f"{row.role}\n{row.content}\n{row.tool_result}"
    if row.tool_name is not None or row.tool_args is not None:
        said += f"\n{row.tool_name}\n{json.dumps(row.tool_args, sort_keys=True)}"
    return clean_event_id(f"{row.event_id[:180]}#{hashlib.sha256(said.encode()).hexdigest()[:16]}")


def wanted_ids(items: Sequence[MessageRecord | ToolResult]) -> set[str]:
    """The event ids under which the items, or parts of them, may stand in the store already."""
    wanted = {clean_event_id(item.event_id) for item in items}
    return wanted | {result_event_id(clean_event_id(item.event_id)) for item in items if isinstance(item, ToolResult)}


def possible_clashes(
    rows: Sequence[Row], items: Sequence[MessageRecord | ToolResult], stored: Mapping[str, Saying]
) -> set[str]:
    """The ids of rows that may have to be kept beside another one: their own id is taken, perhaps by other words."""
    clashes: set[str] = set()
    taken: set[str] = set()
    for row, item in zip(rows, items, strict=True):
        orphan = result_event_id(row.event_id) if isinstance(item, ToolResult) else None
        there = stored.get(row.event_id) or stored.get(orphan or "")
        differs = there is not None and not (
            _saying(row).repeats(there) if orphan is None else _saying(row).result_repeats(there)
        )
        if differs or row.event_id in taken:
            clashes.add(_clash_id(row))
        taken |= {row.event_id} if orphan is None else {row.event_id, orphan}
    return clashes


def make_plan(
    rows: Sequence[Row],
    items: Sequence[MessageRecord | ToolResult],
    stored: Mapping[str, Saying],
    *,
    keep_clashes: bool,
) -> Plan:
    """What is to be done; every row is left with the event id under which it stands, or stood before."""
    plan = Plan(keep_clashes=keep_clashes)
    for row, item in zip(rows, items, strict=True):
        if isinstance(item, ToolResult):
            _plan_result(plan, row, stored)
        else:
            _plan_message(plan, row, stored)
    return plan


def _there(plan: Plan, event_id: str, stored: Mapping[str, Saying]) -> Saying | None:
    """What stands under an id, or will when the batch is written."""
    pending = plan.inserts.get(event_id)
    return stored.get(event_id) if pending is None else _saying(pending)


def _plan_message(plan: Plan, row: Row, stored: Mapping[str, Saying]) -> None:
    there = _there(plan, row.event_id, stored)
    if there is None:
        plan.inserts[row.event_id] = row
        return
    saying = _saying(row)
    if not saying.repeats(there):
        _plan_clash(plan, row, stored)
        return
    _plan_whole(plan, row, saying, stored)
    if row.tool_result is not None:
        _plan_fill(plan, row, there)
    else:
        plan.known += 1


def _plan_result(plan: Plan, row: Row, stored: Mapping[str, Saying]) -> None:
    saying = _saying(row)
    call, orphan_id = _there(plan, row.event_id, stored), result_event_id(row.event_id)
    orphan = _there(plan, orphan_id, stored)
    if call is not None and saying.result_repeats(call):
        _plan_whole(plan, row, saying, stored)
        _plan_fill(plan, row, call)
    elif orphan is not None and saying.result_repeats(orphan):
        # It came before its call did.
        row.event_id = orphan_id
        plan.known += 1
    elif call is not None or orphan is not None:
        _plan_clash(plan, row, stored)
    else:
        row.event_id = orphan_id
        plan.inserts[orphan_id] = row


def _plan_fill(plan: Plan, row: Row, there: Saying) -> None:
    """A result for a row that is there: merged into it when it still waits for one, else known."""
    assert row.tool_result is not None
    pending = plan.inserts.get(row.event_id)
    # When the result came says nothing about when the call did.
    metadata = {key: value for key, value in row.metadata.items() if key not in _TIME_NOTES}
    if pending is not None and pending.tool_result is None:
        pending.tool_result = row.tool_result
        if "redacted" in pending.metadata:
            metadata["redacted"] = {**metadata.get("redacted", {}), **pending.metadata["redacted"]}
        pending.metadata.update(metadata)
        pending.metadata.pop("pending_result", None)
        return
    plan.known += 1
    if pending is None and there.result is None and row.event_id not in plan.fills:
        plan.fills[row.event_id] = (row.tool_result, {**metadata, "pending_result": False})


def _plan_whole(plan: Plan, row: Row, saying: Saying, stored: Mapping[str, Saying]) -> None:
    """Keeps what a row says in full when what is stored of it was cut, as live capture does."""
    there = stored.get(row.event_id)
    if there is None or not there.truncated or saying.truncated or saying.redacted or there.redacted:
        return
    known = plan.wholes.get(row.event_id)
    if known is None:
        plan.wholes[row.event_id] = row
    elif known.tool_result is None:
        known.tool_result = row.tool_result


def _plan_clash(plan: Plan, row: Row, stored: Mapping[str, Saying]) -> None:
    clash = _clash_id(row)
    kept = clash in stored or clash in plan.inserts
    if not plan.keep_clashes and not kept:
        plan.known += 1
        plan.clashed += 1
        return
    row.metadata["clashes_with"] = row.event_id
    row.event_id = clash
    if kept:
        plan.known += 1
        return
    plan.inserts[clash] = row
