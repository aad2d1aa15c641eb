"""`memory_stats`: what the memory holds and what needs a person, as a text for an agent."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tools.budget import Page, count, label, when
from rivet_pipeline.api.tools.reading import describe, next_steps, words_of
from rivet_pipeline.api.tools.surface import DEFAULT_TOKENS, Arguments, MaxTokens, OptionalFilter, Tool, register
from rivet_pipeline.retrieval.stats import collect_stats, told
from rivet_pipeline.retrieval.types import Stats
from rivet_pipeline.transcripts.spool import Spool

_ALERT_CHARACTERS = 400


class StatsArguments(Arguments):
    """The arguments of memory_stats."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"agent": "rivet-claude"}]})

    agent: OptionalFilter = Field(
        None, description="Counts this agent's messages and conversations; the rest is of the whole memory."
    )
    max_tokens: MaxTokens = DEFAULT_TOKENS


def _stats(resources: Resources, arguments: StatsArguments) -> str:
    with resources.connection() as connection:
        stats = collect_stats(connection, agent=arguments.agent, spool=Spool(resources.settings.spool_folder))
    return stats_text(stats, resources, arguments)


def stats_text(stats: Stats, resources: Resources, arguments: StatsArguments) -> str:
    """The figures as text, what needs a person first, because clients cut the end off."""
    page = Page(arguments.max_tokens)
    page.parts.append(_headline(stats, resources, arguments.agent))
    if stats.alerts:
        lines = [f"- {label(alert, _ALERT_CHARACTERS)}" for alert in stats.alerts[:20]]
        more = len(stats.alerts) - len(lines)
        page.add("\n".join(["## Needs a person", *lines, *([f"- and {more} more"] if more else [])]))
    left_out = []
    empty = [name.replace("_", " ") for name, value in stats.figures.items() if not value]
    for name, value in stats.figures.items():
        if value and not page.add(_figure(name, told(name, value), resources), reserve=100):
            left_out.append(name.replace("_", " "))
    if empty:
        page.add(f"Nothing: {', '.join(empty)}.")
    if left_out:
        page.parts.append(
            f"Cut to stay within {arguments.max_tokens:,} tokens: {', '.join(left_out)}. "
            "A larger max_tokens shows them."
        )
    return page.text()


#: Figures that stand under names out of transcripts.
_BY_NAME = frozenset({"by_agent", "top_tools"})


def _headline(stats: Stats, resources: Resources, agent: str | None) -> str:
    totals: dict[str, Any] = stats.figures.get("totals", {})
    whose = f" of {label(agent, 60)}" if agent else ""
    if not totals.get("messages"):
        steps = [("memory_stats", "memory_stats without an agent says which agents there are.")] if agent else []
        steps.append(("", "Sessions come in by `rivet import`, `rivet watch` or the hooks (`rivet hooks install`)."))
        empty = "could not be counted" if "totals" in stats.errors else "there are none yet"
        return f"# Memory: messages{whose} {empty}\n\n{next_steps(resources, steps)}"
    first, last = when(totals["first_at"], resources.zone), when(totals["last_at"], resources.zone)
    held = count(totals["messages"], "message")
    return f"# Memory: {held}{whose}, {first} to {last}\nTimes are in {resources.zone.key}."


def _figure(name: str, value: Any, resources: Resources) -> str:
    title = f"## {name.replace('_', ' ').capitalize()}"
    if name == "recent_sessions":
        return "\n".join([title, *(_session(row, resources) for row in value)])
    if isinstance(value, dict):
        # The name of an agent or of a tool is what a filter takes: it stays as it is.
        said = str if name in _BY_NAME else words_of
        lines = [f"- {label(said(key), 60)}: {describe(item, resources)}" for key, item in value.items()]
    elif isinstance(value, list):
        lines = [f"- {describe(item, resources)}" for item in value]
    else:
        lines = [describe(value, resources)]
    return "\n".join([title, *lines])


def _session(row: dict[str, Any], resources: Resources) -> str:
    title = label(row["title"] or row["session_key"])
    return f"- {when(row['updated_at'], resources.zone)} · {label(row['agent'], 60)} · `{row['id']}` · {title}"


register(
    Tool(
        "memory_stats",
        StatsArguments,
        _stats,
        "Says what the memory holds (messages, agents, periods, recent conversations with their ids), what waits for "
        "the pipeline, and first of all what needs a person.",
        title="What the memory holds",
    )
)
