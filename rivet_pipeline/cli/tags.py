"""`rivet tags`: reviewing tags. What a decision does is the domain's (`tags/`).

The commands of the vocabulary are written in `tag_values.py`, what all of them share in `tag_options.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from rivet_pipeline.api.tag_answers import lookup_answer, pending_answer, read_states
from rivet_pipeline.cli.options import AsJson, id_of
from rivet_pipeline.cli.output import console, local_time, one_line, print_json, short_id
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
from rivet_pipeline.cli.tag_values import merge_command, value_command, values_command
from rivet_pipeline.settings import get_settings
from rivet_pipeline.tags.literals import read_literal, typed_value
from rivet_pipeline.tags.log import read_log, undo
from rivet_pipeline.tags.propose import ask_again, reap_tags
from rivet_pipeline.tags.read import count_tags, find_tag, list_tags, lookup_sessions, read_pending
from rivet_pipeline.tags.review import Item, add_tag, decide, decide_literal, find_conversation, suggest_removal
from rivet_pipeline.tags.types import Decision, PendingSession

Session = Annotated[str | None, typer.Option("--session", metavar="KEY", help="The session, by its key.")]

AgentOf = Annotated[str | None, typer.Option("--agent", help="Which agent's, when several have the session key.")]

What = Annotated[
    list[str], typer.Argument(metavar="TAG...", help="Ids of tags, or with --session literals such as topic:caching.")
]

tags_app = typer.Typer(
    name="tags",
    help="Review tags and their vocabulary: what waits, accept, reject, merge, undo.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="A day (UTC).")]


@tags_app.command("pending")
def pending_command(
    session: Session = None,
    agent: AgentOf = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many sessions at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what waits for a review, by session, the newest first.

    Example: [bold]rivet tags pending[/bold], then [bold]rivet tags accept topic:caching --session KEY[/bold]
    """
    with tag_store() as connection:
        wanted = None if session is None else find_conversation(connection, session, agent, by_beginning=True)
        sessions = read_pending(connection, limit=limit + 1, conversation_id=wanted)
    if as_json:
        print_json(pending_answer(sessions, limit).model_dump(mode="json", by_alias=True))
        return
    out = console()
    for one in sessions[:limit]:
        _print_session(one)
    if not sessions:
        out.print(Text("Nothing waits for a review."))
    if len(sessions) > limit:
        out.print(
            Text("More sessions wait: they come with a larger limit, or once these are decided about.", style="dim")
        )


def _print_session(session: PendingSession) -> None:
    out = console()
    hours = session.age_seconds / 3600
    age = f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} hours" if hours >= 1 else "less than an hour"
    heading = Text(one_line(session.session_key, 80), style="bold")
    heading.append(f"  {one_line(session.title or 'no title', 70)}", style="italic")
    heading.append(f"  waits for {age}", style="dim")
    out.print(heading)
    if session.excerpt:
        out.print(Text(f"  {one_line(session.excerpt, 200)}", style="dim"))
    if session.accepted:
        out.print(Text(f"  accepted: {one_line(', '.join(session.accepted))}"), soft_wrap=True)
    for tag in session.tags:
        first = tag.rows[0]
        line = Text(f"  {'take off ' if tag.removal else ''}{one_line(str(tag.literal))}", style="cyan")
        told = first.removal_reason if tag.removal else first.reason
        share = "" if first.confidence is None else f" {first.confidence:.2f}"
        line.append(f"  {short_id(first.id)}{share}  {one_line(told, 100)}", style="dim")
        out.print(line, soft_wrap=True)
    out.print()


@tags_app.command("list")
def list_command(
    tag: Annotated[str | None, typer.Option("--tag", metavar="KEY:VALUE", help="Only this tag.")] = None,
    key: Key = None,
    state: States = None,
    session: Session = None,
    agent: AgentOf = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many rows at most.")] = 200,
    as_json: AsJson = False,
) -> None:
    """List tags of sessions and summaries: suggested and accepted ones, unless --state says otherwise.

    Example: [bold]rivet tags list --tag topic:caching --state accepted,rejected[/bold]
    """
    with tag_store() as connection:
        literal = None if tag is None else read_literal(tag)
        tags = list_tags(
            connection,
            key=literal.key if literal else key_of(key),
            value=literal.value if literal else None,
            conversation_id=None
            if session is None
            else find_conversation(connection, session, agent, by_beginning=True),
            statuses=read_states(state) or ("suggested", "accepted"),
            limit=limit,
        )
    if as_json:
        print_json(tags)
        return
    print_table(
        ("id", "tag", "state", "source", "on", "decided by"),
        [
            (
                short_id(row.id),
                str(row.literal),
                row.status,
                row.source,
                f"{row.entity_kind} {short_id(row.entity_id)}",
                row.decided_by or "",
            )
            for row in tags
        ],
        "No tag matches.",
    )


@tags_app.command("counts")
def counts_command(
    key: Key = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many tags at most.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Count the sessions that carry each tag, accepted, on the session or on any of its summaries.

    Example: [bold]rivet tags counts --key topic[/bold]
    """
    with tag_store() as connection:
        counts = count_tags(connection, key=key_of(key), limit=limit)
    if as_json:
        print_json(counts)
        return
    rows = [(f"{one.conversations:,}", f"{one.key}:{one.value}", one.display) for one in counts]
    print_table(("sessions", "tag", "shown as"), rows, "No session carries a tag.")


@tags_app.command("lookup")
def lookup_command(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Session keys.")],
    state: States = None,
    as_json: AsJson = False,
) -> None:
    """Show the tags of sessions, by their keys; a question mark stands behind what is only suggested.

    Example: [bold]rivet tags lookup claude-code:5b0f4f0e-2f58-4a7e --state accepted,suggested[/bold]
    """
    with tag_store() as connection:
        sessions = lookup_sessions(connection, keys, statuses=read_states(state) or ("accepted",))
    if as_json:
        print_json(lookup_answer(sessions).model_dump(mode="json", by_alias=True))
        return
    for key, tags in sessions.items():
        told = ", ".join(f"{tag.literal}{'' if tag.status == 'accepted' else '?'}" for tag in tags)
        console().print(Text(f"{one_line(key)}: {one_line(told) or 'no tags'}"), soft_wrap=True)


@tags_app.command("accept")
def accept_command(
    what: What,
    session: Session = None,
    agent: AgentOf = None,
    by: By = None,
    overturn: Overturn = False,
    as_json: AsJson = False,
) -> None:
    """Accept tags: by their ids, or with --session by their literals, wherever they stand on that session.

    Example: [bold]rivet tags accept topic:caching topic:redis --session claude-code:5b0f4f0e[/bold]
    """
    _decide("accepted", what, session, agent, by, overturn=overturn, as_json=as_json)


@tags_app.command("reject")
def reject_command(
    what: What,
    session: Session = None,
    agent: AgentOf = None,
    by: By = None,
    overturn: Overturn = False,
    as_json: AsJson = False,
) -> None:
    """Reject tags, suggested or accepted ones. They are kept, so that they are not proposed again.

    Example: [bold]rivet tags reject 0b9c2c3e[/bold]
    """
    _decide("rejected", what, session, agent, by, overturn=overturn, as_json=as_json)


@tags_app.command("remove")
def remove_command(
    what: What, session: Session = None, agent: AgentOf = None, by: By = None, as_json: AsJson = False
) -> None:
    """Follow the suggestion that tags be taken off: they become rejected."""
    _decide("removed", what, session, agent, by, as_json=as_json)


@tags_app.command("keep")
def keep_command(
    what: What, session: Session = None, agent: AgentOf = None, by: By = None, as_json: AsJson = False
) -> None:
    """Refuse the suggestion that tags be taken off; it is not made again."""
    _decide("kept", what, session, agent, by, as_json=as_json)


def _decide(
    decision: Decision,
    what: Sequence[str],
    session: str | None,
    agent: str | None,
    by: str | None,
    *,
    overturn: bool = False,
    as_json: bool,
) -> None:
    with tag_store() as connection:
        if session is None:
            tags = [find_tag(connection, word) for word in what]
            items = [Item(tag.id, decision, seen=tag.revision if overturn else None) for tag in tags]
            results = [decide(connection, items, by=name_of(by))]
        else:
            conversation = find_conversation(connection, session, agent, by_beginning=True)
            results = [
                decide_literal(
                    connection, conversation, read_literal(word), decision, by=name_of(by), overturn=overturn
                )
                for word in what
            ]
    show_decided(results, as_json=as_json)


@tags_app.command("add")
def add_command(
    tag: Annotated[str, typer.Argument(metavar="KEY:VALUE", help="The tag.")],
    session: Session = None,
    agent: AgentOf = None,
    summary: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A summary instead of a session, by its id or by its first digits."),
    ] = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Give a session or a summary a tag; it is accepted and reviewed at once.

    Example: [bold]rivet tags add topic:caching --session claude-code:5b0f4f0e[/bold]
    """
    if (session is None) == (summary is None):
        raise typer.BadParameter("give either --session or --summary", param_hint="--session")
    with tag_store() as connection:
        literal, shown = read_literal(tag), typed_value(tag)
        if summary is not None:
            wanted = id_of(connection, summary, ("summary",), hint="--summary")
            result = add_tag(connection, "summary", wanted, literal, by=name_of(by), display=shown)
        else:
            conversation = find_conversation(connection, session or "", agent, by_beginning=True)
            result = add_tag(connection, "conversation", conversation, literal, by=name_of(by), display=shown)
    show_decided([result], as_json=as_json)


@tags_app.command("suggest-removal")
def suggest_removal_command(
    tag: Annotated[str, typer.Argument(metavar="ID", help="The tag's id, or its first eight digits.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Suggest that an accepted tag be taken off; somebody decides with remove or keep."""
    with tag_store() as connection:
        found = find_tag(connection, tag)
        result = suggest_removal(connection, found.id, by=name_of(by), reason=reason)
    show_decided([result], as_json=as_json)


tags_app.command("values")(values_command)
tags_app.command("value")(value_command)
tags_app.command("merge")(merge_command)


@tags_app.command("log")
def log_command(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many decisions at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show who decided what, the newest first."""
    with tag_store() as connection:
        entries = read_log(connection, limit=limit)
    if as_json:
        print_json(entries)
        return
    zone = ZoneInfo(get_settings().timezone)
    rows = [
        (
            str(one.decision),
            local_time(one.decided_at, zone),
            one.decided_by,
            one.action + (", undone" if one.undone_by else ""),
            f"{one.rows:,}",
            ", ".join(one.literals[:3]) + (" …" if len(one.literals) > 3 else ""),
        )
        for one in entries
    ]
    print_table(("decision", "when", "who", "what", "rows", "tags"), rows, "Nothing has been decided yet.")


@tags_app.command("undo")
def undo_command(
    decision: Annotated[UUID, typer.Argument(metavar="DECISION", help="Its id, as `rivet tags log` shows it.")],
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Undo a decision, all of it, as long as nothing was decided on top of it. An undo can be undone.

    Example: [bold]rivet tags undo 5f0c2a34-1c1e-4b7a-9a4d-0f6f1f0f7a11[/bold]
    """
    with tag_store() as connection:
        entry = undo(connection, decision, by=name_of(by))
    if as_json:
        print_json(entry)
    else:
        console().print(Text(f"Undone: {one_line(', '.join(entry.literals))}."))


@tags_app.command("again")
def again_command(
    since: Day = None,
    before: Day = None,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Only leaves that went without tags because the tagger failed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Have leaves tagged anew although nothing has changed: those of conversations that began on these days.

    The pipeline takes it up within seconds when it runs. What people decided stays; what they rejected is not proposed.

    Example: [bold]rivet tags again --dropped[/bold]
    """
    if since is None and before is None and not dropped:
        raise typer.BadParameter("give --since, --before or --dropped", param_hint="--since")
    with tag_store() as connection:
        leaves = ask_again(
            connection,
            since=None if since is None else since.date(),
            before=None if before is None else before.date(),
            dropped_only=dropped,
        )
    if as_json:
        print_json({"leaves": leaves})
    else:
        console().print(Text(f"{leaves:,} leaves are tagged anew when the pipeline runs."))


@tags_app.command("reap")
def reap_command(as_json: AsJson = False) -> None:
    """Delete tags of what is gone, and write the project tags that capture could not write; done hourly by itself."""
    with tag_store() as connection:
        deleted = reap_tags(connection)
    if as_json:
        print_json({"deleted": deleted})
    else:
        console().print(Text(f"{deleted:,} tags deleted."))
