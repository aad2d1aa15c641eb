"""The options that several commands share, and how they are read. No command belongs here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import typer

from rivet_pipeline.api.times import parse_time, period
from rivet_pipeline.db.ids import Named, find_conversation, find_id
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: times in UTC, nothing cut.")]
Agent = Annotated[str | None, typer.Option(help="Only this agent's words, for instance rivet-claude.")]
RoleName = Literal["user", "assistant", "system", "tool"]
Role = Annotated[RoleName | None, typer.Option(help="Only this role's messages.")]
Conversation = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Only this conversation: its id, or that of anything in it, or its first digits."),
]
Tag = Annotated[
    str | None,
    typer.Option(metavar="KEY:VALUE", help="Only sessions with this accepted tag, for instance project:shop."),
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Not before this time: 2026-03-08, 2026-03-08T10:00, …T10:00+01:00.")
]
Before = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time (exclusive).")]
Window = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A named period instead of both: today, yesterday, this_morning, this_week, last_24h, last_7d, last_14d.",
    ),
]


def read_period(
    since: str | None, before: str | None, window: str | None, zone: ZoneInfo, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """The bounds that the three options come to; times without an offset are read in `zone`.

    Raises `typer.BadParameter` naming the option.
    """
    bounds: list[datetime | None] = []
    for option, text in (("--since", since), ("--before", before)):
        try:
            bounds.append(None if text is None else parse_time(text, zone=zone))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
    try:
        return period(bounds[0], bounds[1], window, zone=zone, now=now)
    except InvalidInputError as error:
        raise typer.BadParameter(error.problem, param_hint=f"--{error.field}") from None


def id_of(connection: Connection, prefix: str, kinds: Sequence[Named], *, hint: str) -> UUID:
    """The id that is meant by an id or its first digits. Raises `typer.BadParameter` unless it is one row's."""
    try:
        return find_id(connection, prefix, kinds, field=hint)
    except InvalidInputError as error:
        raise typer.BadParameter(error.problem, param_hint=hint) from None
    except NotFoundError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def conversation_of(connection: Connection, option: str | None) -> UUID | None:
    """The conversation that `--conversation` names. Raises `typer.BadParameter` unless it names one."""
    if option is None:
        return None
    try:
        return find_conversation(connection, option, field="--conversation")
    except (InvalidInputError, NotFoundError) as error:
        problem = error.problem if isinstance(error, InvalidInputError) else str(error)
        raise typer.BadParameter(problem, param_hint="--conversation") from None


def not_blank(option: str, value: str | None) -> str | None:
    """The option's value. A blank one is a wrong command line: an unset shell variable must not mean no filter."""
    if value is not None and not value.strip():
        raise typer.BadParameter("must not be blank; leave the option out", param_hint=f"--{option}")
    return value
