"""The tool `memory_tags`: its arguments, and its answers in words. Without the write flag it only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, get_args
from typing import Literal as OneOf
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.tag_answers import read_states
from rivet_pipeline.api.tools.budget import clip_tokens, count, label, quote
from rivet_pipeline.api.tools.surface import (
    DEFAULT_TOKENS,
    Arguments,
    MaxTokens,
    OptionalText,
    Tool,
    lenient,
    register,
)
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.models.tokens import byte_tokens
from rivet_pipeline.tags.literals import Literal, read_key, read_literal, read_pair
from rivet_pipeline.tags.log import undo
from rivet_pipeline.tags.read import MAX_PENDING, count_tags, list_tags, lookup_sessions, read_pending
from rivet_pipeline.tags.review import Item, add_tag, decide, find_conversation, suggest_removal
from rivet_pipeline.tags.tables import installed
from rivet_pipeline.tags.types import Decided, Decision, PendingSession, Status, Tag
from rivet_pipeline.tags.vocabulary import Entry, decide_values, find_pair, list_values, merge_values, upsert_value

_DECISIONS: dict[str, Decision] = {
    "accepted": "accepted",
    "rejected": "rejected",
    "removed": "removed",
    "kept": "kept",
}

#: What of a budget is kept for saying that something was cut.
_CUT_TOKENS = 60

NOT_INSTALLED = "Tagging is not installed in this store: it lacks the tables. Start `rivet up` once with this version."


ReadAction = OneOf["pending", "list", "counts", "lookup", "taxonomy"]
Action = OneOf[
    "pending",
    "list",
    "counts",
    "lookup",
    "taxonomy",
    "decide",
    "add",
    "suggest_removal",
    "taxonomy_upsert",
    "taxonomy_decide",
    "taxonomy_merge",
    "undo",
]


def _reading(value: object) -> object:
    """Refuses what would write with the way to it, instead of a list of what else there is."""
    if value in get_args(Action) and value not in get_args(ReadAction):
        raise ValueError(
            f"{value} writes, and memory_tags is read-only here: set RIVETOS_MCP_ENABLE_MEMORY_WRITE=1 to let agents "
            "decide about tags; people do so with `rivet tags`, in the hub and by POST /api/memory/tags"
        )
    return value


def _listed(value: object) -> object:
    """A list where one text stands for it."""
    return [value] if isinstance(value, str) else value


class ReadTagsArguments(Arguments):
    """The arguments of memory_tags where it only reads."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"action": "pending"}, {"action": "lookup", "session_keys": ["claude-code:5b0f"]}]
        },
    )

    action: Annotated[ReadAction, BeforeValidator(_reading), lenient("pending")] = Field(
        "pending", description="What to read."
    )
    tag: OptionalText = Field(None, description="list: only this `key:value`.")
    key: OptionalText = Field(None, description="list, counts, taxonomy: only this key.")
    state: OptionalText = Field(None, description="list, lookup, taxonomy: states, with commas between.")
    session_keys: Annotated[list[str], BeforeValidator(_listed), lenient([])] = Field(
        default_factory=list, max_length=500, description="lookup: session keys."
    )
    limit: Annotated[int | None, lenient()] = Field(None, ge=1, le=1000)
    max_tokens: MaxTokens = DEFAULT_TOKENS


class TagsArguments(ReadTagsArguments):
    """The arguments of memory_tags where it may write too."""

    action: Annotated[Action, lenient("pending")] = Field(  # type: ignore[assignment]
        "pending", description="The last seven write."
    )
    tag: OptionalText = Field(None, description="`key:value`: what is added, listed or changed.")
    key: OptionalText = Field(
        None, description="list, counts, taxonomy: only this key. taxonomy_merge: the key of both values."
    )
    state: OptionalText = Field(
        None,
        description="decide: accepted, rejected, removed or kept. taxonomy_upsert and taxonomy_decide: accepted, "
        "suggested or rejected. list, lookup, taxonomy: states with commas between.",
    )
    ids: Annotated[list[UUID], BeforeValidator(_listed), lenient([])] = Field(
        default_factory=list, max_length=1000, description="decide, suggest_removal: ids of tags."
    )
    seen: Annotated[list[int], lenient([])] = Field(
        default_factory=list, max_length=1000, description="decide: the revisions that were seen, in the order of ids."
    )
    session_key: OptionalText = Field(None, description="add: the session.")
    agent: OptionalText = Field(None, description="add: which agent's session, when several have the key.")
    summary_id: Annotated[UUID | None, lenient()] = Field(None, description="add: a summary instead of a session.")
    from_value: OptionalText = Field(None, description="taxonomy_merge: the value that becomes an alias.")
    into: OptionalText = Field(None, description="taxonomy_merge: the value that stays.")
    description: OptionalText = Field(None, description="taxonomy_upsert: what the value means.")
    reason: OptionalText = Field(None, description="suggest_removal: why.")
    decision: Annotated[UUID | None, lenient()] = Field(None, description="undo: the decision's id.")
    decided_by: OptionalText = Field(None, description="Who decides. Absent: RIVETOS_MEMORY_AGENT, else `mcp`.")


def memory_tags(resources: Resources, arguments: TagsArguments) -> str:
    """Does what `action` says, and tells it in words. Raises `RivetError` when it can not."""
    by = arguments.decided_by or resources.settings.memory_agent or "mcp"
    with resources.connection() as connection:
        if not installed(connection):
            return NOT_INSTALLED
        return _within(_ACTIONS[arguments.action](connection, arguments, by), arguments.max_tokens)


def _read_tags(resources: Resources, arguments: ReadTagsArguments) -> str:
    return memory_tags(resources, TagsArguments.model_validate(arguments.model_dump()))


def _within(text: str, budget: int) -> str:
    """The text, or whole lines of its beginning that the budget holds, with a word about the rest."""
    if byte_tokens(text) <= budget:
        return text
    lines = clip_tokens(text, budget - _CUT_TOKENS).rsplit("\n", 1)[0]
    return f"{lines}\n\nCut to stay within {budget:,} tokens; a larger max_tokens, a key or a limit shows the rest."


def _pending(connection: Connection, arguments: TagsArguments, by: str) -> str:
    limit = min(arguments.limit or 20, MAX_PENDING)
    sessions = read_pending(connection, limit=limit + 1)
    if not sessions:
        return "Nothing waits for a review."
    told = [_session_text(session) for session in sessions[:limit]]
    if len(sessions) > limit:
        told.append("More sessions wait: they come with a larger limit, or once these are decided about.")
    return "\n\n".join(told)


def _session_text(session: PendingSession) -> str:
    hours = session.age_seconds / 3600
    age = count(round(hours / 24), "day") if hours >= 48 else count(round(hours), "hour")
    since = f"waiting for {age}" if hours >= 1 else "new"
    who = f"{label(session.session_key, 200)} ({label(session.agent, 60)})"
    lines = [f"{who}, {since}: {label(session.title) or 'no title'}"]
    if session.excerpt:
        lines.append(quote(session.excerpt))
    if session.accepted:
        lines.append(f"  accepted: {', '.join(session.accepted)}")
    for tag in session.tags:
        what = "take off " if tag.removal else ""
        more = f" and {count(len(tag.rows) - 1, 'summary')}" if len(tag.rows) > 1 else ""
        lines.append(f"  - {what}{_tag_text(tag.rows[0])}{more}")
        lines += [f"      also {row.id} (revision {row.revision})" for row in tag.rows[1:]]
    return "\n".join(lines)


def _tag_text(tag: Tag) -> str:
    confidence = "" if tag.confidence is None else f" {tag.confidence:.2f}"
    reason = tag.removal_reason if tag.removal == "suggested" else tag.reason
    told = f": {label(reason, 400)}" if reason else ""
    return f"{tag.literal} [{tag.status}/{tag.source}]{confidence}{told} (id {tag.id}, revision {tag.revision})"


def _list(connection: Connection, arguments: TagsArguments, by: str) -> str:
    literal = None if arguments.tag is None else read_literal(arguments.tag)
    tags = list_tags(
        connection,
        key=literal.key if literal else _key(arguments.key),
        value=literal.value if literal else None,
        statuses=read_states(arguments.state) or ("suggested", "accepted"),
        limit=arguments.limit or 200,
    )
    return _lines([f"{_tag_text(tag)} on {tag.entity_kind} {tag.entity_id}" for tag in tags], "No tag matches.")


def _counts(connection: Connection, arguments: TagsArguments, by: str) -> str:
    found = count_tags(connection, key=_key(arguments.key), limit=arguments.limit or 200)
    return _lines([f"{one.conversations} {one.key}:{one.value}" for one in found], "No conversation carries a tag.")


def _lookup(connection: Connection, arguments: TagsArguments, by: str) -> str:
    if not arguments.session_keys:
        raise InvalidInputError("session_keys", "are needed for lookup")
    statuses = read_states(arguments.state) or ["accepted", "suggested"]
    sessions = lookup_sessions(connection, arguments.session_keys, statuses=statuses)
    lines = []
    for key, tags in sessions.items():
        told = [f"{tag.literal}{'' if tag.status == 'accepted' else '?'}" for tag in tags]
        lines.append(f"{label(key, 200)}: {', '.join(told) or 'no tags'}")
    return "\n".join(lines)


def _taxonomy(connection: Connection, arguments: TagsArguments, by: str) -> str:
    values = list_values(
        connection, key=_key(arguments.key), statuses=read_states(arguments.state), limit=arguments.limit or 500
    )
    lines = []
    for one in values:
        alias = f", alias of {one.alias_of}" if one.alias_of else ""
        about = f": {label(one.description, 400)}" if one.description else ""
        lines.append(f"{one.key}:{one.value} [{one.status}{alias}] {count(one.uses, 'conversation')}{about}")
    return _lines(lines, "The vocabulary is empty.")


def _decide(connection: Connection, arguments: TagsArguments, by: str) -> str:
    decision = _DECISIONS.get(arguments.state or "")
    if decision is None or not arguments.ids:
        raise InvalidInputError("state", "must be accepted, rejected, removed or kept, with the ids it is about")
    if arguments.seen and len(arguments.seen) != len(arguments.ids):
        raise InvalidInputError("seen", "must have a revision for each of the ids")
    seen: Sequence[int | None] = arguments.seen or [None] * len(arguments.ids)
    items = [Item(one, decision, revision) for one, revision in zip(arguments.ids, seen, strict=True)]
    return _decided(decide(connection, items, by=by))


def _decided(decided: Decided) -> str:
    undoing = f" (decision {decided.decision})" if decided.decision else ""
    lines = [f"{decided.changed} of {len(decided.items)} changed{undoing}."]
    for item in decided.items:
        what = str(item.tag.literal) if item.tag else str(item.id)
        if item.outcome not in ("changed", "unchanged"):
            lines.append(f"- {what}: {item.outcome}: {item.problem}")
    return "\n".join(lines)


def _add(connection: Connection, arguments: TagsArguments, by: str) -> str:
    literal = _needed_literal(arguments)
    if arguments.summary_id is not None:
        return _added(add_tag(connection, "summary", arguments.summary_id, literal, by=by))
    if arguments.session_key is None:
        raise InvalidInputError("session_key", "or summary_id is needed for add")
    conversation = find_conversation(connection, arguments.session_key, arguments.agent)
    return _added(add_tag(connection, "conversation", conversation, literal, by=by))


def _added(decided: Decided) -> str:
    """With the tag as it stands: what was merged is added as what it means now."""
    told = ", ".join(f"{item.tag.literal} is {item.tag.status}" for item in decided.items if item.tag)
    return f"{told}. {_decided(decided)}"


def _suggest_removal(connection: Connection, arguments: TagsArguments, by: str) -> str:
    if len(arguments.ids) != 1:
        raise InvalidInputError("ids", "must name the one tag that would be taken off")
    return _decided(suggest_removal(connection, arguments.ids[0], by=by, reason=arguments.reason or ""))


def _upsert(connection: Connection, arguments: TagsArguments, by: str) -> str:
    value = upsert_value(
        connection,
        _needed_literal(arguments),
        by=by,
        description=arguments.description,
        status=None if arguments.state is None else _status(arguments),
    )
    return f"{value.key}:{value.value} is {value.status} (revision {value.revision})."


def _decide_value(connection: Connection, arguments: TagsArguments, by: str) -> str:
    seen = arguments.seen[0] if arguments.seen else None
    entry = Entry(_needed_literal(arguments), _status(arguments), seen)
    return _decided(decide_values(connection, [entry], by=by))


def _merge(connection: Connection, arguments: TagsArguments, by: str) -> str:
    if arguments.key is None or arguments.from_value is None or arguments.into is None:
        raise InvalidInputError("key", "with from_value and into are needed for taxonomy_merge")
    source = find_pair(connection, arguments.key, arguments.from_value, field="from_value")
    into = read_pair(arguments.key, arguments.into, field="into")
    merged = merge_values(connection, source.key, source.value, into.value, by=by)
    return (
        f"{merged.key}:{merged.value} now means {merged.key}:{merged.into}: {merged.moved} tags moved, "
        f"{merged.dropped} gave way ({f'decision {merged.decision}' if merged.decision else 'nothing changed'})."
    )


def _undo(connection: Connection, arguments: TagsArguments, by: str) -> str:
    if arguments.decision is None:
        raise InvalidInputError("decision", "is needed for undo: the id that the decision answered")
    entry = undo(connection, arguments.decision, by=by)
    return f"Undone: {', '.join(entry.literals)} (decision {entry.decision})."


def _needed_literal(arguments: TagsArguments) -> Literal:
    if arguments.tag is None:
        raise InvalidInputError("tag", f"is needed for {arguments.action}: key:value")
    return read_literal(arguments.tag)


def _status(arguments: TagsArguments) -> Status:
    states = read_states(arguments.state) or []
    if len(states) != 1:
        raise InvalidInputError("state", "must be accepted, suggested or rejected")
    return states[0]


def _key(text: str | None) -> str | None:
    return None if text is None else read_key(text)


def _lines(lines: Sequence[str], nothing: str) -> str:
    return "\n".join(lines) if lines else nothing


_ACTIONS: dict[str, Callable[[Connection, TagsArguments, str], str]] = {
    "pending": _pending,
    "list": _list,
    "counts": _counts,
    "lookup": _lookup,
    "taxonomy": _taxonomy,
    "decide": _decide,
    "add": _add,
    "suggest_removal": _suggest_removal,
    "taxonomy_upsert": _upsert,
    "taxonomy_decide": _decide_value,
    "taxonomy_merge": _merge,
    "undo": _undo,
}


register(
    Tool(
        "memory_tags",
        TagsArguments,
        memory_tags,
        "Tags of sessions and summaries, as key:value. action=pending (default) lists what waits for a review; "
        "list, counts, lookup (the tags of sessions by their keys) and taxonomy (the vocabulary) read too. decide, "
        "add, suggest_removal, taxonomy_upsert, taxonomy_decide, taxonomy_merge and undo write; every decision can be "
        "undone.",
        writes=True,
        title="Tags and their review",
        may_miss=True,
        read_only=Tool(
            "memory_tags",
            ReadTagsArguments,
            _read_tags,
            "Tags of sessions and summaries, as key:value. action=pending (default) lists what waits for a person's "
            "review; list, counts, lookup (the tags of sessions by their keys) and taxonomy (the vocabulary) read too.",
            title="Tags",
        ),
    )
)
