"""`rivet tags values`, `value` and `merge`: the vocabulary of tags. What a decision does is the domain's (`tags/`).

`tags.py` puts the commands into their group, in the order in which they are shown.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from rivet_pipeline.api.tag_answers import read_states
from rivet_pipeline.cli.options import AsJson
from rivet_pipeline.cli.output import console, one_line, print_json
from rivet_pipeline.cli.tag_options import (
    By,
    Key,
    Overturn,
    States,
    key_of,
    name_of,
    print_table,
    show_decided,
    tag_store,
)
from rivet_pipeline.errors import ConflictError, InvalidInputError
from rivet_pipeline.tags.literals import Literal, read_literal, read_pair
from rivet_pipeline.tags.types import Status
from rivet_pipeline.tags.vocabulary import Entry, decide_values, list_values, merge_values, upsert_value


class ValueState(StrEnum):
    """What is decided of a value of the vocabulary."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SUGGESTED = "suggested"


def values_command(
    key: Key = None,
    state: States = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=5000, help="How many at most.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Show the vocabulary: the values that are known, how often they are carried, and what they were merged into.

    Example: [bold]rivet tags values --state suggested[/bold]
    """
    with tag_store() as connection:
        values = list_values(connection, key=key_of(key), statuses=read_states(state), limit=limit)
    if as_json:
        print_json(values)
        return
    print_table(
        ("value", "state", "sessions", "alias of", "description"),
        [
            (f"{one.key}:{one.value}", one.status, f"{one.uses:,}", one.alias_of or "", one.description[:60])
            for one in values
        ],
        "The vocabulary is empty.",
    )


def value_command(
    tag: Annotated[str, typer.Argument(metavar="KEY:VALUE", help="The value.")],
    state: Annotated[
        ValueState | None,
        typer.Option(
            help="What is decided of it. Left out: accepted; one that is only described keeps what was decided of it."
        ),
    ] = None,
    display: Annotated[str | None, typer.Option(help="How it is shown.")] = None,
    description: Annotated[str | None, typer.Option(help="What it means.")] = None,
    by: By = None,
    overturn: Overturn = False,
    as_json: AsJson = False,
) -> None:
    """Put a value into the vocabulary, describe it, or take it out of it with --state rejected.

    A rejected value is not proposed any more, and what was suggested of it is rejected with it.

    Example: [bold]rivet tags value topic:caching --description "Keeping answers to give them again"[/bold]
    """
    literal = _literal(tag)
    described = display is not None or description is not None
    status: Status | None = state.value if state else None if described else "accepted"
    with tag_store() as connection:
        known = [one for one in list_values(connection, key=literal.key, limit=5000) if one.value == literal.value]
        former = known[0] if known else None
        if former and former.decided_by and status not in (None, former.status) and not overturn:
            raise ConflictError(f"{literal} was {former.status} by {former.decided_by}; add --overturn to decide anew.")
        if status == "rejected" and not described and former and former.revision:
            entry = Entry(literal, status, seen=former.revision)
            show_decided([decide_values(connection, [entry], by=name_of(by))], as_json=as_json)
            return
        value = upsert_value(
            connection, literal, by=name_of(by), display=display, description=description, status=status
        )
    if as_json:
        print_json(value)
    else:
        console().print(Text(f"{one_line(str(literal))} is {value.status}."))


def merge_command(
    tag: Annotated[str, typer.Argument(metavar="KEY:VALUE", help="The value that becomes an alias.")],
    into: Annotated[str, typer.Argument(metavar="VALUE", help="The value of the same key that stays.")],
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Make a value mean another one: its tags are re-pointed, and it is found under both names.

    Example: [bold]rivet tags merge topic:pg postgres[/bold]
    """
    with tag_store() as connection:
        literal = read_literal(tag)
        target = read_pair(literal.key, into, field="into")
        merged = merge_values(connection, literal.key, literal.value, target.value, by=name_of(by))
    if as_json:
        print_json(merged)
        return
    console().print(
        Text(
            f"{one_line(str(literal))} now means {one_line(merged.into)}: {merged.moved:,} tags moved, "
            f"{merged.dropped:,} gave way. "
            + (f"Undo: rivet tags undo {merged.decision}" if merged.decision else "Nothing changed.")
        ),
        soft_wrap=True,
    )


def _literal(text: str) -> Literal:
    try:
        return read_literal(text)
    except InvalidInputError as wrong:
        raise typer.BadParameter(wrong.problem, param_hint=wrong.field) from None
