"""`rivet wiki …`: pages read, found and exported, and the review of what was mined."""

from __future__ import annotations

import os
from enum import StrEnum
from getpass import getuser
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from rivet_pipeline.api.wiki_models import (
    decided_answer,
    gaps_answer,
    list_answer,
    page_answer,
    patches_answer,
    search_answer,
)
from rivet_pipeline.cli.options import AsJson
from rivet_pipeline.cli.output import console, error_console, fail, local_time, one_line, print_json, visible
from rivet_pipeline.db.pool import connect
from rivet_pipeline.db.store import open_store
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.retrieval.query_vectors import QueryVectors
from rivet_pipeline.settings import get_settings
from rivet_pipeline.transcripts.cleaning import clean_text
from rivet_pipeline.wiki.consolidate import consolidate
from rivet_pipeline.wiki.export import export_wiki
from rivet_pipeline.wiki.markdown import page_markdown
from rivet_pipeline.wiki.read import address_of, list_topics, read_gaps, read_topic
from rivet_pipeline.wiki.review import Outcome, PatchView, Verdict, decide, find_patch, list_patches
from rivet_pipeline.wiki.search import search_topics

wiki_app = typer.Typer(
    name="wiki",
    help="Read, find and export the wiki's pages; look at what was mined for them, accept it or take it back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many at most.")]
By = Annotated[str | None, typer.Option("--by", help="Who decides. Absent: the account's name.")]


class State(StrEnum):
    """A patch's state."""

    PROPOSED = "proposed"
    APPLIED = "applied"
    REJECTED = "rejected"
    REVERTED = "reverted"
    REPLACED = "replaced"


class Choice(StrEnum):
    """What a person decides."""

    ACCEPT = "accept"
    REJECT = "reject"


@wiki_app.command("list")
def list_command(limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the pages by title.

    Example: [bold]rivet wiki list[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        topics, total = list_topics(connection, limit=limit)
    if as_json:
        print_json(list_answer(topics, total).model_dump(mode="json", by_alias=True))
        return
    out = console()
    for topic in topics:
        line = Text(one_line(topic.title, 60), style="bold")
        line.append(f"  {topic.slug}", style="cyan")
        line.append(f"  {topic.bullets} sentences", style="dim")
        out.print(line)
    if not topics:
        out.print(Text("There is no page yet: pages come from summaries, when the pipeline runs (`rivet up`)."))
    elif total > len(topics):
        out.print(Text(f"… and {total - len(topics):,} more; --limit shows them", style="dim"))


@wiki_app.command("show")
def show_command(
    page: Annotated[str, typer.Argument(help="The page's address, its title or another name.")], as_json: AsJson = False
) -> None:
    """Show a page as Markdown, with its citations.

    Example: [bold]rivet wiki show "Storm surge warning"[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        found = read_topic(connection, clean_text(page))
    if found is None:
        raise NotFoundError(f"there is no page {one_line(page, 80)!r}; `rivet wiki list` lists them all.")
    if as_json:
        print_json(page_answer(found).model_dump(mode="json", by_alias=True))
    else:
        typer.echo(visible(page_markdown(found)), nl=False)


@wiki_app.command("search")
def search_command(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")], limit: Limit = 5, as_json: AsJson = False
) -> None:
    """Find pages by words and by meaning, best first.

    Example: [bold]rivet wiki search "how are predictions served"[/bold]
    """
    settings = get_settings()
    wanted = clean_text(query)
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        embed = QueryVectors(settings).on(connection)
        found = search_topics(connection, wanted, limit=limit, embed_query=embed)
    if as_json:
        print_json(search_answer(wanted, found).model_dump(mode="json", by_alias=True))
        return
    out = console()
    if found.degraded is not None:
        error_console().print(Text(f"Note: {one_line(found.degraded)}.", style="yellow"))
    for hit in found.hits:
        line = Text(f"{hit.score:.2f}  ", style="cyan")
        line.append(one_line(hit.title, 60), style="bold")
        line.append(f"  {hit.slug}", style="dim")
        out.print(line)
        out.print(Text(f"      {one_line(hit.excerpt)}"))
    if not found.hits:
        out.print(Text(f"Nothing found: {found.reason}. `rivet search` looks into messages and summaries."))


@wiki_app.command("gaps")
def gaps_command(limit: Limit = 10, as_json: AsJson = False) -> None:
    """Show what the wiki lacks: names without a page, leaves that were not mined.

    Example: [bold]rivet wiki gaps[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        gaps = read_gaps(connection, limit=limit)
    if as_json:
        print_json(gaps_answer(gaps).model_dump(mode="json", by_alias=True))
        return
    out = console()
    for wanted in gaps.wanted:
        out.print(Text(f"{wanted.leaves:>4}  {one_line(wanted.name, 80)}"))
    if not gaps.wanted:
        out.print(Text("No name is spoken of in two summaries without having a page."))
    rest = f"Not mined: {gaps.unmined:,} leaves ({gaps.failed:,} failed); by an older version: {gaps.older_version:,}."
    out.print(Text(rest, style="dim"))


@wiki_app.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go; made where it is missing.")],
    as_json: AsJson = False,
) -> None:
    """Write the pages into a folder of Markdown files, one a page, as Obsidian reads them.

    Only what has changed is written. Files that an export has not written, or that somebody has written in since, are
    left alone.

    Example: [bold]rivet wiki export ~/vault/wiki[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        report = export_wiki(connection, folder.expanduser())
    if as_json:
        print_json(
            {
                "written": report.written,
                "unchanged": report.unchanged,
                "removed": report.removed,
                "left_alone": report.left_alone,
            }
        )
        return
    written, removed = len(report.written), len(report.removed)
    console().print(Text(f"Written {written}, unchanged {report.unchanged}, removed {removed}."))
    if report.left_alone:
        names = ", ".join(one_line(name, 80) for name in report.left_alone[:10])
        error_console().print(Text(f"Left alone, because they are not ours or were edited: {names}.", style="yellow"))


@wiki_app.command("patches")
def patches_command(
    state: Annotated[State, typer.Option(help="Only patches of this state.")] = State.PROPOSED,
    page: Annotated[
        str | None, typer.Option(metavar="PAGE", help="Only patches of this page: its address, title or another name.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what was mined or proposed, the newest first, with the page and why it is that page.

    Example: [bold]rivet wiki patches --state applied --page storm-surge-warning[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        slug = None if page is None else address_of(connection, clean_text(page))
        patches, following = list_patches(connection, statuses=[state.value], slug=slug, limit=limit)
    if as_json:
        print_json(patches_answer(patches, following).model_dump(mode="json", by_alias=True))
        return
    zone = ZoneInfo(settings.timezone)
    for patch in patches:
        _print_patch(patch, zone)
    if not patches:
        whose = "" if page is None else f" of {one_line(page, 80)!r}"
        console().print(Text(f"No patch{whose} is {state.value}."))
    elif following is not None:
        console().print(Text("There are more; --limit shows them.", style="dim"))


def _print_patch(patch: PatchView, zone: ZoneInfo) -> None:
    out = console()
    line = Text(str(patch.id), style="cyan")
    line.append(f"  {patch.kind} {patch.status}  ", style="dim")
    line.append(one_line(patch.page_title or patch.title, 60), style="bold")
    if patch.other_slug:
        line.append(f" / {patch.other_slug}", style="bold")
    out.print(line)
    out.print(Text(f"    {local_time(patch.as_of, zone)} · {one_line(patch.reason, 200)}", style="dim"))
    for section, text in patch.claims[:8]:
        out.print(Text(f"    {section}: {one_line(text, 200)}"))


@wiki_app.command("decide")
def decide_command(
    choice: Annotated[Choice, typer.Argument(help="accept or reject.")],
    patches: Annotated[list[str], typer.Argument(metavar="ID…", help="The patches, by their ids or first digits.")],
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Accept or reject patches. What is rejected is never proposed again; it can still be accepted later.

    Example: [bold]rivet wiki decide accept 0b9c2c3e[/bold]
    """
    _decide(patches, "accept" if choice is Choice.ACCEPT else "reject", by, as_json=as_json)


@wiki_app.command("revert")
def revert_command(
    patches: Annotated[list[str], typer.Argument(metavar="ID…", help="Applied patches, by their ids or first digits.")],
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Take applied patches back. Those that came after them stay.

    Example: [bold]rivet wiki revert 0b9c2c3e[/bold]
    """
    _decide(patches, "revert", by, as_json=as_json)


def _decide(patches: list[str], verdict: Verdict, by: str | None, *, as_json: bool) -> None:
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        try:
            ids = [find_patch(connection, patch) for patch in patches]
        except InvalidInputError as wrong:
            raise typer.BadParameter(wrong.problem, param_hint="ID…") from None
        outcomes = decide(connection, ids, verdict, by=by or _account())
    if as_json:
        print_json(decided_answer(outcomes).model_dump(mode="json", by_alias=True))
    else:
        _print_outcomes(outcomes)
    if any(outcome.problem for outcome in outcomes):
        raise typer.Exit(1)


def _account() -> str:
    try:
        return getuser()
    except (KeyError, OSError):
        # An account without a name.
        return f"uid {os.getuid()}"


def _print_outcomes(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.problem:
            fail(f"{outcome.id}: {outcome.problem}")
        else:
            already = "" if outcome.changed else " already"
            console().print(Text(f"{outcome.id}{already} {outcome.status}"))


@wiki_app.command("consolidate")
def consolidate_command(as_json: AsJson = False) -> None:
    """Propose which pages should be one and which two. Nothing is applied: the proposals are patches to decide on.

    Example: [bold]rivet wiki consolidate[/bold]
    """
    settings = get_settings()
    with open_store(settings) as url, connect(url, application_name="rivet-wiki") as connection:
        found = consolidate(connection)
    if as_json:
        print_json({"merges": found.merges, "splits": found.splits})
        return
    out = console()
    for kept, gone in found.merges:
        out.print(Text(f"merge  {one_line(gone, 60)} into {one_line(kept, 60)}"))
    for page, new in found.splits:
        out.print(Text(f"split  {one_line(new, 60)} off {one_line(page, 60)}"))
    if not found.merges and not found.splits:
        out.print(Text("Nothing new to propose."))
    else:
        out.print(Text("`rivet wiki patches` shows them; `rivet wiki decide` decides.", style="dim"))
