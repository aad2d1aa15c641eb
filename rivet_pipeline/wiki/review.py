"""What people do with patches: look at them, accept, reject, take back. Every decision has its name and time.

    proposed -> applied (accept) | rejected (reject)      applied -> reverted (revert)
    rejected, reverted -> applied (accept: the person has thought again) | proposed (reopen: it was a slip)

Two reviewers who decide on the same patch at once both get an answer, and the patch one decision: rows are locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast
from uuid import UUID

from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import InvalidInputError, NotFoundError
from rivet_pipeline.wiki.changes import apply_patch, revert_patch
from rivet_pipeline.wiki.store import lock_wiki
from rivet_pipeline.wiki.types import Decision, PatchKind, PatchStatus

Verdict = Literal["accept", "reject", "revert"]

#: The statuses from which each verdict leads on.
_FROM: dict[Verdict, frozenset[PatchStatus]] = {
    "accept": frozenset({"proposed", "rejected", "reverted"}),
    "reject": frozenset({"proposed"}),
    "revert": frozenset({"applied"}),
}

#: Where each verdict leads.
_TO: dict[Verdict, PatchStatus] = {"accept": "applied", "reject": "rejected", "revert": "reverted"}

#: Patches that one call decides on, and characters of who decides.
MOST_DECISIONS = 500
_LONGEST_NAME = 200

#: Digits of an id that are enough to name it, and of all of it.
_SHORTEST_ID, _WHOLE_ID = 8, 32


@dataclass(frozen=True, slots=True)
class PatchView:
    """One patch as a person looks at it.

    `slug` is the page it changes, None while that does not exist; `claims` are (section, text) pairs, `replaces` the
    keys of sentences that they contradict. Times are UTC.
    """

    id: UUID
    kind: PatchKind
    status: PatchStatus
    title: str
    slug: str | None
    page_title: str | None
    other_slug: str | None
    claims: tuple[tuple[str, str], ...]
    replaces: tuple[UUID, ...]
    entities: tuple[str, ...]
    decision: Decision
    reason: str
    leaf_id: UUID | None
    session_key: str | None
    session_title: str | None
    as_of: datetime
    model: str
    created_at: datetime
    decided_by: str | None
    decided_at: datetime | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one decision. `changed` is False when the patch was so decided already; `problem` says why not."""

    id: UUID
    status: PatchStatus | None
    changed: bool
    problem: str | None = None


def list_patches(
    connection: Connection,
    *,
    statuses: Sequence[PatchStatus] = ("proposed",),
    slug: str | None = None,
    leaf_id: UUID | None = None,
    limit: int = 50,
    before: int | None = None,
) -> tuple[list[PatchView], int | None]:
    """Patches, the newest first, and the place to go on at (`before`), None at the end."""
    rows = connection.execute(
        """
        SELECT p.*, t.slug AS topic_slug, t.title AS topic_title, o.slug AS other_slug, c.session_key,
               c.title AS session_title
        FROM ros_wiki_patches AS p
        LEFT JOIN ros_wiki_topics AS t ON t.id = p.topic_id
        LEFT JOIN ros_wiki_topics AS o ON o.id = p.other_id
        LEFT JOIN ros_summaries AS s ON s.id = p.leaf_id
        LEFT JOIN ros_conversations AS c ON c.id = s.conversation_id
        WHERE p.status = ANY(%(statuses)s)
          AND (%(slug)s::text IS NULL OR t.slug = %(slug)s OR o.slug = %(slug)s)
          AND (%(leaf)s::uuid IS NULL OR p.leaf_id = %(leaf)s)
          AND (%(before)s::bigint IS NULL OR p.seq < %(before)s)
        ORDER BY p.seq DESC LIMIT %(limit)s
        """,
        {"statuses": list(statuses), "slug": slug, "leaf": leaf_id, "before": before, "limit": limit + 1},
    ).fetchall()
    return [_view(row) for row in rows[:limit]], rows[limit - 1]["seq"] if len(rows) > limit else None


def _view(row: dict[str, Any]) -> PatchView:
    payload = row["payload"]
    return PatchView(
        id=row["id"],
        kind=cast(PatchKind, row["kind"]),
        status=cast(PatchStatus, row["status"]),
        title=row["title"],
        slug=row["topic_slug"],
        page_title=row["topic_title"],
        other_slug=row["other_slug"],
        claims=tuple((claim["section"], claim["text"]) for claim in payload.get("claims", ())),
        replaces=tuple(UUID(key) for claim in payload.get("claims", ()) for key in claim.get("replaces", ())),
        entities=tuple(payload.get("entities", ())),
        decision=cast(Decision, row["decision"]),
        reason=row["reason"],
        leaf_id=row["leaf_id"],
        session_key=row["session_key"],
        session_title=row["session_title"],
        as_of=row["as_of"],
        model=row["model"],
        created_at=row["created_at"],
        decided_by=row["decided_by"],
        decided_at=row["decided_at"],
    )


def find_patch(connection: Connection, prefix: str) -> UUID:
    """The id of the patch that begins so, from eight digits on.

    A whole id is not looked up. Raises `InvalidInputError` when it is none, or not that of one patch.
    """
    digits = prefix.replace("-", "").lower()
    if not _SHORTEST_ID <= len(digits) <= _WHOLE_ID or set(digits) - set("0123456789abcdef"):
        raise InvalidInputError("id", f"{prefix[:60]!r} is no id; give at least its first {_SHORTEST_ID} digits")
    if len(digits) == _WHOLE_ID:
        return UUID(digits)
    rows = connection.execute(
        "SELECT id FROM ros_wiki_patches WHERE id BETWEEN %s AND %s LIMIT 2",
        [UUID(digits.ljust(_WHOLE_ID, "0")), UUID(digits.ljust(_WHOLE_ID, "f"))],
    ).fetchall()
    if len(rows) != 1:
        raise InvalidInputError("id", f"{'several patches begin' if rows else 'no patch begins'} with {prefix[:60]}")
    found: UUID = rows[0]["id"]
    return found


def decide(connection: Connection, patches: Sequence[UUID], verdict: Verdict, *, by: str) -> list[Outcome]:
    """Accepts, rejects or takes back patches, each in a transaction of its own, in the given order.

    Raises `InvalidInputError` when `by` is blank or too long, or when there are too many patches.
    """
    name = " ".join(by.split())
    if not name or len(name) > _LONGEST_NAME:
        raise InvalidInputError("decided_by", f"name who decides, in at most {_LONGEST_NAME} characters")
    if len(patches) > MOST_DECISIONS:
        raise InvalidInputError("ids", f"at most {MOST_DECISIONS} patches are decided at once")
    return [_decide_one(connection, patch, verdict, name) for patch in dict.fromkeys(patches)]


def revert(connection: Connection, patch: UUID, *, by: str) -> Outcome:
    """Takes one applied patch back. Raises `NotFoundError` when there is none of this id."""
    outcome = decide(connection, [patch], "revert", by=by)[0]
    if outcome.status is None:
        raise NotFoundError(f"No patch has the id {patch}; `rivet wiki patches` lists them.")
    return outcome


def reopen(connection: Connection, patches: Sequence[UUID]) -> int:
    """Puts patches that were rejected or taken back among the proposals again: the decision was a slip.

    Returns how many. One that is applied has to be taken back first (`decide`, revert).
    """
    with connection.transaction():
        lock_wiki(connection)
        return connection.execute(
            """
            UPDATE ros_wiki_patches SET status = 'proposed', decided_by = NULL, decided_at = NULL
            WHERE id = ANY(%s) AND status IN ('rejected', 'reverted')
            """,
            [list(patches)],
        ).rowcount


def _decide_one(connection: Connection, patch_id: UUID, verdict: Verdict, by: str) -> Outcome:
    try:
        with connection.transaction():
            lock_wiki(connection)
            row = connection.execute("SELECT * FROM ros_wiki_patches WHERE id = %s FOR UPDATE", [patch_id]).fetchone()
            if row is None:
                return Outcome(patch_id, None, changed=False, problem="there is no such patch")
            status = cast(PatchStatus, row["status"])
            if status == _TO[verdict]:
                return Outcome(patch_id, status, changed=False)
            if status not in _FROM[verdict]:
                return Outcome(patch_id, status, changed=False, problem=_refusal(status, verdict))
            if verdict == "accept":
                apply_patch(connection, row, by)
            elif verdict == "revert":
                revert_patch(connection, row, by)
            else:
                _reject(connection, patch_id, by)
            return Outcome(patch_id, _TO[verdict], changed=True)
    except InvalidInputError as error:
        return Outcome(patch_id, status, changed=False, problem=error.problem)


def _refusal(status: PatchStatus, verdict: Verdict) -> str:
    if status == "replaced":
        return "it is outdated: its summary was mined again, or its pages have changed"
    if status == "applied" and verdict == "reject":
        return "it is applied; revert it instead"
    return f"it is {status}, so there is nothing to {verdict}"


def _reject(connection: Connection, patch_id: UUID, by: str) -> None:
    connection.execute(
        "UPDATE ros_wiki_patches SET status = 'rejected', decided_by = %s, decided_at = now() WHERE id = %s",
        [by, patch_id],
    )
