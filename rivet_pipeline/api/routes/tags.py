"""`/api/memory/tags*`: reviewing tags and their vocabulary. What a decision does is the domain's (`tags/`)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from rivet_pipeline.api.dependencies import FromApp, json_only
from rivet_pipeline.api.problems import NOT_FOUND
from rivet_pipeline.api.tag_answers import decided_answer, lookup_answer, pending_answer, read_states
from rivet_pipeline.api.tag_models import (
    AddBody,
    CountAnswer,
    CountsAnswer,
    CountsQuery,
    DecideBody,
    DecidedAnswer,
    LogAnswer,
    LogEntryAnswer,
    LogQuery,
    LookupAnswer,
    LookupBody,
    MergeBody,
    MergedAnswer,
    PendingAnswer,
    PendingQuery,
    RemovalBody,
    TagAnswer,
    TagsAnswer,
    TagsQuery,
    TaxonomyAnswer,
    TaxonomyQuery,
    UndoBody,
    ValueAnswer,
    ValueBody,
    ValueDecisions,
)
from rivet_pipeline.api.tools import SMALL_BODY
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.tags.literals import Literal, read_key, read_literal, read_pair, typed_value, without_key
from rivet_pipeline.tags.log import read_log, undo
from rivet_pipeline.tags.read import count_tags, list_tags, lookup_sessions, read_pending
from rivet_pipeline.tags.review import Item, add_tag, decide, find_conversation, suggest_removal
from rivet_pipeline.tags.tables import require_tables
from rivet_pipeline.tags.vocabulary import Entry, decide_values, find_pair, list_values, merge_values, upsert_value

_PREFIX = "/api/memory/tags"

router = APIRouter(prefix=_PREFIX, tags=["tags"])

_WRITE = [Depends(json_only)]


def body_limits() -> dict[str, int]:
    """The paths of this router that take a body, with their limits in bytes."""
    return dict.fromkeys((route.path for route in router.routes if hasattr(route, "path")), SMALL_BODY)


def _key(text: str | None) -> str | None:
    return None if text is None else read_key(text)


@router.get("", summary="List tags")
def list_of_tags(query: Annotated[TagsQuery, Query()], resources: FromApp) -> TagsAnswer:
    """Lists tags of conversations and summaries: suggested and accepted ones unless `state` says otherwise."""
    if query.value is not None and query.key is None:
        raise InvalidInputError("key", "is needed with value")
    with resources.connection() as connection:
        tags = list_tags(
            connection,
            entity_kind=query.entity_type,
            entity_id=query.entity_id,
            conversation_id=query.conversation_id,
            key=_key(query.key),
            value=None
            if query.key is None or query.value is None
            else find_pair(connection, query.key, query.value).value,
            statuses=read_states(query.state) or ("suggested", "accepted"),
            limit=query.limit,
        )
    return TagsAnswer(tags=[TagAnswer.model_validate(tag) for tag in tags])


@router.get("/pending", summary="What waits for a review")
def pending(query: Annotated[PendingQuery, Query()], resources: FromApp) -> PendingAnswer:
    """Lists suggested tags and suggested removals by session, each literal once, with an excerpt and its age."""
    with resources.connection() as connection:
        found = read_pending(connection, limit=query.limit + 1, conversation_id=query.conversation_id)
    return pending_answer(found, query.limit)


@router.get("/counts", summary="How many conversations carry each tag")
def counts(query: Annotated[CountsQuery, Query()], resources: FromApp) -> CountsAnswer:
    """Counts conversations that carry a tag, accepted, on the session or on any of its summaries."""
    with resources.connection() as connection:
        found = count_tags(connection, key=_key(query.key), limit=query.limit)
    return CountsAnswer(counts=[CountAnswer.model_validate(one) for one in found])


@router.get("/taxonomy", summary="The vocabulary")
def taxonomy(query: Annotated[TaxonomyQuery, Query()], resources: FromApp) -> TaxonomyAnswer:
    """Lists the known values with how many conversations carry them, the most used first."""
    with resources.connection() as connection:
        values = list_values(connection, key=_key(query.key), statuses=read_states(query.state), limit=query.limit)
    return TaxonomyAnswer(values=[ValueAnswer.model_validate(value) for value in values])


@router.get("/log", summary="Who decided what")
def log(query: Annotated[LogQuery, Query()], resources: FromApp) -> LogAnswer:
    """Lists decisions, the newest first. Each can be undone as long as nothing was decided on top of it."""
    with resources.connection() as connection:
        entries = read_log(connection, limit=query.limit, tag_id=query.tag_id)
    return LogAnswer(decisions=[LogEntryAnswer.model_validate(entry) for entry in entries])


@router.post("", summary="Give a session or a summary a tag", dependencies=_WRITE, responses=NOT_FOUND)
def add(body: AddBody, resources: FromApp) -> DecidedAnswer:
    """Adds a tag, accepted and reviewed. A rejected or suggested one is accepted with it."""
    with resources.connection() as connection:
        require_tables(connection)
        literal = (
            find_pair(connection, body.key or "", body.value or "") if body.tag is None else read_literal(body.tag)
        )
        kind, entity = body.entity_type, body.entity_id
        if entity is None:
            kind, entity = "conversation", find_conversation(connection, body.session_key or "", body.agent)
        return decided_answer(
            add_tag(
                connection, kind, entity, literal, by=body.decided_by, display=body.display or _shown(body, literal)
            )
        )


def _shown(body: AddBody, literal: Literal) -> str:
    return typed_value(body.tag) if body.tag is not None else without_key(body.value or "", literal.key)


@router.post("/decide", summary="Accept or reject tags", dependencies=_WRITE)
def decide_tags(body: DecideBody, resources: FromApp) -> DecidedAnswer:
    """Decides about up to 1000 tags; each item has a result of its own.

    `conflict`: the tag has changed since `seen`, or somebody has decided about it and the item does not say that it
    saw that.
    """
    items = [Item(item.id, item.state, item.seen) for item in body.items]
    if body.state is not None:
        items += [Item(one, body.state) for one in body.ids]
    with resources.connection() as connection:
        return decided_answer(decide(connection, items, by=body.decided_by))


@router.post("/removal", summary="Suggest that a tag be taken off", dependencies=_WRITE, responses=NOT_FOUND)
def removal(body: RemovalBody, resources: FromApp) -> DecidedAnswer:
    """Suggests the removal of an accepted tag; `POST /decide` with the state `removed` or `kept` answers it."""
    with resources.connection() as connection:
        return decided_answer(suggest_removal(connection, body.id, by=body.decided_by, reason=body.reason))


@router.post("/lookup", summary="The tags of sessions", dependencies=_WRITE)
def lookup(body: LookupBody, resources: FromApp) -> LookupAnswer:
    """Gives the tags of up to 500 sessions by their keys; a key without tags has an empty list."""
    with resources.connection() as connection:
        return lookup_answer(lookup_sessions(connection, body.session_keys, statuses=body.states))


@router.post("/taxonomy", summary="Put a value into the vocabulary", dependencies=_WRITE)
def upsert(body: ValueBody, resources: FromApp) -> ValueAnswer:
    """Adds a value, or changes how it is shown, described or judged."""
    with resources.connection() as connection:
        value = upsert_value(
            connection,
            find_pair(connection, body.key, body.value),
            by=body.decided_by,
            display=body.display,
            description=body.description,
            status=body.state,
        )
    return ValueAnswer.model_validate(value)


@router.post("/taxonomy/decide", summary="Accept or reject values", dependencies=_WRITE, responses=NOT_FOUND)
def decide_vocabulary(body: ValueDecisions, resources: FromApp) -> DecidedAnswer:
    """Decides about values. A rejected one is not proposed any more, and what was suggested of it is rejected too."""
    with resources.connection() as connection:
        entries = [Entry(find_pair(connection, one.key, one.value), one.state, one.seen) for one in body.entries]
        return decided_answer(decide_values(connection, entries, by=body.decided_by))


@router.post("/taxonomy/merge", summary="Make one value mean another", dependencies=_WRITE, responses=NOT_FOUND)
def merge(body: MergeBody, resources: FromApp) -> MergedAnswer:
    """Re-points every tag of a value and leaves the value behind as an alias."""
    with resources.connection() as connection:
        source = find_pair(connection, body.key, body.value, field="from")
        into = read_pair(body.key, body.into, field="into")
        merged = merge_values(connection, source.key, source.value, into.value, by=body.decided_by)
    return MergedAnswer.model_validate(merged)


@router.post("/undo", summary="Undo a decision", dependencies=_WRITE, responses=NOT_FOUND)
def undo_decision(body: UndoBody, resources: FromApp) -> LogEntryAnswer:
    """Puts back what was there before a decision, or answers 409 when something was decided on top of it."""
    with resources.connection() as connection:
        return LogEntryAnswer.model_validate(undo(connection, body.decision, by=body.decided_by))
