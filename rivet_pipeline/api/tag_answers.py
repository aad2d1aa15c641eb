"""Turns what `tags/` answers into what goes over the wire. The command line prints the same with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rivet_pipeline.api.tag_models import (
    DecidedAnswer,
    ItemAnswer,
    LookupAnswer,
    PendingAnswer,
    PendingSessionAnswer,
    PendingTagAnswer,
    SessionTagAnswer,
    TagAnswer,
)
from rivet_pipeline.errors import InvalidInputError
from rivet_pipeline.tags.types import Decided, PendingSession, PendingTag, SessionTag, Status

_STATES: tuple[Status, ...] = ("suggested", "accepted", "rejected")


def read_states(text: str | None) -> list[Status] | None:
    """States of a comma-separated list; None for none. Raises `InvalidInputError` for an unknown one."""
    if text is None:
        return None
    found = [state for state in _STATES if state in {part.strip() for part in text.split(",")}]
    unknown = {part.strip() for part in text.split(",")} - set(_STATES)
    if unknown or not found:
        raise InvalidInputError("state", f"must be of {', '.join(_STATES)}, with commas between several")
    return found


def pending_answer(sessions: Sequence[PendingSession], limit: int) -> PendingAnswer:
    """What waits, by session. Of more sessions than `limit` it is told that there are more."""
    return PendingAnswer(
        sessions=[
            PendingSessionAnswer(
                conversation_id=one.conversation_id,
                session_key=one.session_key,
                title=one.title,
                agent=one.agent,
                updated_at=one.updated_at,
                age_seconds=one.age_seconds,
                excerpt=one.excerpt,
                accepted=one.accepted,
                tags=[_pending_tag(tag) for tag in one.tags],
            )
            for one in sessions[:limit]
        ],
        more=len(sessions) > limit,
    )


def _pending_tag(tag: PendingTag) -> PendingTagAnswer:
    rows = [TagAnswer.model_validate(row) for row in tag.rows]
    return PendingTagAnswer(tag=str(tag.literal), display=tag.display, removal=tag.removal, rows=rows)


def lookup_answer(sessions: Mapping[str, Sequence[SessionTag]]) -> LookupAnswer:
    """The tags of sessions by their keys."""
    return LookupAnswer(sessions={key: [session_tag_answer(tag) for tag in tags] for key, tags in sessions.items()})


def session_tag_answer(tag: SessionTag) -> SessionTagAnswer:
    """One tag of a session."""
    return SessionTagAnswer(
        tag=str(tag.literal),
        display=tag.display,
        status=tag.status,
        reviewed=tag.reviewed,
        on_session=tag.on_session,
    )


def decided_answer(decided: Decided) -> DecidedAnswer:
    """What a decision did, item by item."""
    return DecidedAnswer(
        decision=decided.decision,
        changed=decided.changed,
        items=[
            ItemAnswer(
                id=item.id,
                outcome=item.outcome,
                problem=item.problem,
                tag=None if item.tag is None else TagAnswer.model_validate(item.tag),
            )
            for item in decided.items
        ],
    )
