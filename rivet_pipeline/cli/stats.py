"""`rivet stats`: the state of the memory, what needs a person first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from rich.table import Table
from rich.text import Text

from rivet_pipeline.api.answers import stats_answer
from rivet_pipeline.cli.options import Agent, AsJson, not_blank
from rivet_pipeline.cli.output import console, local_time, one_line, print_json
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.retrieval.stats import collect_stats, told
from rivet_pipeline.retrieval.types import Stats
from rivet_pipeline.settings import get_settings
from rivet_pipeline.transcripts.spool import Spool


def stats_command(agent: Agent = None, as_json: AsJson = False) -> None:
    """Show what the memory holds and what waits for the pipeline; what needs attention comes first.

    Example: [bold]rivet stats --agent rivet-claude[/bold]
    """
    settings = get_settings()
    wanted = not_blank("agent", agent)
    with open_store(settings) as url, connect(url, application_name="rivet-stats") as connection:
        stats = collect_stats(connection, agent=wanted, spool=Spool(settings.spool_folder))
    if as_json:
        print_json(stats_answer(stats, datetime.now(UTC)).model_dump(mode="json", by_alias=True))
    else:
        _print(stats, ZoneInfo(settings.timezone))


def _print(stats: Stats, zone: ZoneInfo) -> None:
    out = console()
    for alert in stats.alerts:
        out.print(Text(f"! {one_line(alert)}", style="bold yellow"))
    if stats.alerts:
        out.print()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in stats.figures.items():
        lines = _sessions(value, zone) if name == "recent_sessions" else _lines(told(name, value), zone)
        table.add_row(Text(_words(name), style="bold"), Text("\n".join(lines) or "none"))
    out.print(table)


def _words(name: str) -> str:
    return one_line(name.replace("_", " "))


def _sessions(rows: Iterable[Mapping[str, Any]], zone: ZoneInfo) -> list[str]:
    return [
        f"{local_time(row['updated_at'], zone)}  {one_line(row['agent'], 40)}  "
        f"{one_line(row['title'] or row['session_key'], 60)}"
        for row in rows
    ]


def _lines(value: Any, zone: ZoneInfo) -> list[str]:
    """A figure as lines: one an entry of a mapping or a list."""
    if isinstance(value, Mapping):
        return [f"{_words(str(key))}: {_inline(entry, zone)}" for key, entry in value.items()]
    if isinstance(value, list | tuple):
        return [_inline(entry, zone) for entry in value]
    return [_inline(value, zone)]


def _inline(value: Any, zone: ZoneInfo) -> str:
    """A value on one line: numbers grouped, times in the zone, what a mapping or a list holds after one another."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, datetime):
        return local_time(value, zone)
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(key))} {_inline(entry, zone)}" for key, entry in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(_inline(entry, zone) for entry in value) or "none"
    return one_line(str(value), 200)
