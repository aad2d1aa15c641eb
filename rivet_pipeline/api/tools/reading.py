"""What the reading tools share: filters of a period as agents write them, and the words around an answer."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.models import Words
from rivet_pipeline.api.times import parse_time, period
from rivet_pipeline.api.tools.budget import label, when
from rivet_pipeline.api.tools.surface import Arguments, OptionalFilter, is_offered, lenient
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.retrieval.search import EMPTY_QUERY
from rivet_pipeline.retrieval.windows import WINDOWS

#: What of a budget is kept for the end of an answer: what was cut, and what to do next.
FOOTER_TOKENS = 260

Role = Literal["user", "assistant", "system", "tool"]
OptionalRole = Annotated[Role | None, lenient(), Field(description="Only what was said in this role.")]
OptionalId = Annotated[UUID | None, lenient()]


def _not_empty(query: str) -> str:
    if not query.strip():
        raise ValueError(EMPTY_QUERY)
    return query


Query = Annotated[Words, AfterValidator(_not_empty), Field(json_schema_extra={"pattern": r"\S"})]


class PeriodArguments(Arguments):
    """The filters that searching and browsing share."""

    agent: OptionalFilter = Field(
        None, description="Only this agent's words, such as `rivet-claude`; memory_stats names them."
    )
    conversation_id: OptionalId = Field(None, description="Only this conversation; every hit names its own.")
    tag: OptionalFilter = Field(
        None, description="Only sessions that carry this tag, accepted: `key:value`, such as `project:shop`."
    )
    since: OptionalFilter = Field(
        None,
        description="Not before this time: ISO 8601, such as 2026-03-08 or 2026-03-08T10:00:00Z. Without an offset it "
        "is read in the service's time zone.",
    )
    before: OptionalFilter = Field(None, description="Before this time (exclusive), written like `since`.")
    window: OptionalFilter = Field(
        None, description=f"A named period instead of `since` and `before`: {', '.join(WINDOWS)}."
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The period that a call asks for, in UTC; None is open. `said` is how an answer repeats it."""

    since: datetime | None
    before: datetime | None
    said: tuple[str, ...]


def bounds_of(arguments: PeriodArguments, resources: Resources) -> Bounds:
    """The period of a call. Raises `InvalidInputError` naming the argument."""
    zone = resources.zone
    since = _moment("since", arguments.since, resources)
    before = _moment("before", arguments.before, resources)
    since, before = period(since, before, arguments.window, zone=zone, now=datetime.now(UTC))
    said = []
    if arguments.window and arguments.since is None and arguments.before is None:
        said.append(f"window {label(arguments.window, 30)}")
    if since is not None:
        said.append(f"since {when(since, zone)}")
    if before is not None:
        said.append(f"before {when(before, zone)}")
    return Bounds(since, before, tuple(said))


def _moment(name: str, text: str | None, resources: Resources) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_time(text, zone=resources.zone)
    except ValueError as error:
        raise InvalidInputError(name, str(error)) from error


def filters_said(bounds: Bounds, **filters: object) -> str:
    """The filters of a call as an answer repeats them: `agent codex · since 2026-03-08 00:00 CET`."""
    named = [f"{name} {label(str(value), 60)}" for name, value in filters.items() if value is not None]
    return " · ".join([*named, *bounds.said])


def next_steps(resources: Resources, steps: Iterable[tuple[str, str]]) -> str:
    """What to do next: of pairs of a tool's name and a sentence those whose tool is offered; `""` is always good."""
    said = [sentence for name, sentence in steps if not name or is_offered(resources.settings, name)]
    return "\n".join(["Next:", *(f"- {sentence}" for sentence in said)]) if said else ""


def fingerprint(*values: object) -> bytes:
    """Four bytes that tell one listing from another, so that a cursor of the one is refused by the other."""
    return hashlib.sha256(json.dumps([str(value) for value in values]).encode()).digest()[:4]


def write_seen(listing: bytes, seen: Sequence[UUID]) -> str:
    """A cursor that says what was shown of a listing whose order may change between two calls."""
    return base64.urlsafe_b64encode(listing + b"".join(one.bytes[-4:] for one in seen)).decode().rstrip("=")


def read_seen(cursor: str | None, listing: bytes) -> frozenset[bytes]:
    """The ends of the ids that were shown. Raises `InvalidInputError` for a cursor of something else."""
    if cursor is None:
        return frozenset()
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) < 8 or len(raw) % 4 or len(raw) > 4 * 200:
        raise InvalidInputError("cursor", "is not one that a former answer gave; leave it out to begin again")
    if raw[:4] != listing:
        raise InvalidInputError("cursor", "belongs to another query or other filters; leave it out to begin again")
    return frozenset(raw[place : place + 4] for place in range(4, len(raw), 4))


def words_of(name: object) -> str:
    """The name of a figure in words."""
    return str(name).replace("_", " ")


def describe(value: Any, resources: Resources) -> str:
    """A figure on one line: numbers grouped, times in the zone, what a mapping or a list holds after one another."""
    if isinstance(value, dict):
        return (
            ", ".join(f"{label(words_of(key), 60)} {describe(item, resources)}" for key, item in value.items())
            or "none"
        )
    if isinstance(value, list | tuple):
        return "; ".join(describe(item, resources) for item in value) or "none"
    if isinstance(value, datetime):
        return when(value, resources.zone)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float) else label(str(value), 200)
