"""What the commands of `rivet tags` share: their options, the store, and how tables and decisions print.

No command belongs here: those of tags are in `tags.py`, those of the vocabulary in `tag_values.py`.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.cells import cell_len
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rivet_pipeline.api.tag_answers import decided_answer
from rivet_pipeline.cli.output import console, fail, local_time, one_line, print_json
from rivet_pipeline.db.pool import Connection, connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.settings import get_settings
from rivet_pipeline.tags.literals import read_key
from rivet_pipeline.tags.types import Decided, ItemResult

By = Annotated[str | None, typer.Option(metavar="NAME", help="Who decides; your account's name when left out.")]

Key = Annotated[str | None, typer.Option(help="Only this key, for instance topic.")]

States = Annotated[
    str | None, typer.Option("--state", help="suggested, accepted, rejected; several with commas between.")
]

Overturn = Annotated[
    bool, typer.Option("--overturn", help="Decide anew what somebody has decided otherwise; without it, that is said.")
]

#: Columns that are never cut or parted, and more characters than a line of them has.
_WHOLE = frozenset({"id", "decision", "when", "who", "what", "rows", "tag", "value", "alias of", "tags"})
_WIDEST = 10_000


@contextmanager
def tag_store() -> Iterator[Connection]:
    """The store while a command reads or writes it; what a person typed wrongly is told as a wrong argument."""
    with open_store(get_settings()) as url, connect(url, application_name="rivet-tags") as connection:
        try:
            yield connection
        except InvalidInputError as wrong:
            raise typer.BadParameter(wrong.problem, param_hint=wrong.field) from None


def name_of(by: str | None) -> str:
    """Who decides: the name given, else that of the account."""
    return by if by is not None else getpass.getuser()


def show_decided(results: Sequence[Decided], *, as_json: bool) -> None:
    """Prints what came of decisions, and on standard error what did not; exits with 1 when something did not."""
    failed = [item for result in results for item in result.items if item.outcome not in ("changed", "unchanged")]
    if as_json:
        print_json([decided_answer(result).model_dump(mode="json", by_alias=True) for result in results])
    else:
        for result in results:
            told = sorted({f"{item.tag.literal} is {item.tag.status}" for item in result.items if item.tag})
            undoing = f" Undo: rivet tags undo {result.decision}" if result.decision else " Nothing changed."
            console().print(Text(f"{one_line('; '.join(told) or 'Done')}.{undoing}"), soft_wrap=True)
    for line in dict.fromkeys(map(_why, failed)):
        fail(line)
    if failed:
        raise typer.Exit(1)


def _why(item: ItemResult) -> str:
    """Why nothing came of a decision; of somebody's earlier one who decided what, and how to overturn it."""
    tag = item.tag
    if tag is None:
        return item.problem
    if item.outcome == "conflict" and tag.reviewed and tag.decided_at is not None:
        when = local_time(tag.decided_at, ZoneInfo(get_settings().timezone))
        return f"{tag.literal} was {tag.status} by {tag.decided_by} on {when}; add --overturn to decide anew."
    return f"{tag.literal}: {item.problem}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """Prints rows under a header, or `nothing` when there are none. Literals stay whole."""
    if not rows:
        console().print(Text(nothing))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    lines = [[one_line(cell) for cell in row] for row in rows]
    for place, name in enumerate(header):
        whole = name in _WHOLE
        width = max(cell_len(line[place]) for line in lines) if whole else None
        table.add_column(name, no_wrap=whole, min_width=width)
    for line in lines:
        table.add_row(*map(Text, line))
    out = console()
    # A literal is copied from here: a line becomes longer than the terminal rather than that one is cut.
    out.width = max(out.width, Measurement.get(out, out.options.update(width=_WIDEST), table).minimum)
    out.print(table)


def key_of(text: str | None) -> str | None:
    """The key as it is stored; None when none was given."""
    return None if text is None else read_key(text)
