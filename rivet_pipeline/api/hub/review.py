"""The review page: what waits for a person in one queue, accept and reject one or many, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.datastructures import FormData

from rivet_pipeline.api.hub.pages import CheckedForm, FromHub, HubRoute, Page, query_string, see_other, way_back
from rivet_pipeline.api.hub.queue import (
    Done,
    Undo,
    Verdict,
    count_settled,
    group,
    read_marks,
    read_trail,
    trail_after,
    write_trail,
)
from rivet_pipeline.api.hub.sign_in import ROOT
from rivet_pipeline.db.pool import Connection
from rivet_pipeline.errors import ConflictError, InvalidInputError, NotFoundError
from rivet_pipeline.tags.log import undo as undo_tags
from rivet_pipeline.tags.read import read_pending
from rivet_pipeline.tags.review import decide as decide_tags
from rivet_pipeline.wiki.read import TopicPage, read_topic
from rivet_pipeline.wiki.review import PatchView, list_patches, reopen
from rivet_pipeline.wiki.review import decide as decide_patches

router = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)

#: Who decides here. The hub has one token and so one person.
BY = "hub"

#: Sessions and patches of one page of the queue; what is decided makes room for more.
_SESSIONS, _PATCHES = 15, 25

#: The most things that one form decides about, and the bytes of the way back that an address carries.
_MOST_CHOSEN, _LONGEST_TRAIL = 60, 5000

_NOTHING_LEFT = "Nothing is left to undo."


@router.get("/review")
def review_page(
    page: FromHub,
    done: Annotated[str | None, Query(max_length=8000)] = None,
) -> Response:
    """The queue, after a decision with what was decided and the way back."""
    said, _, trail = page.hub.unseal(done or "").partition("\n")
    return _queue(page, said=said or None, trail=read_trail(trail))


def _queue(page: Page, *, said: str | None, trail: Sequence[Done]) -> Response:
    with page.resources.connection() as connection:
        sessions = read_pending(connection, limit=_SESSIONS + 1)
        patches, more_patches = list_patches(connection, limit=_PATCHES)
        pages = _pages_of(connection, patches)
    more = len(sessions) > _SESSIONS or more_patches is not None
    return page.render(
        "_review.html" if page.is_fragment else "review.html",
        section="review",
        groups=group(sessions[:_SESSIONS], patches, pages),
        more=more,
        said=said,
        trail=trail,
        sealed=page.hub.seal(write_trail(trail)),
    )


def _pages_of(connection: Connection, patches: list[PatchView]) -> dict[UUID, TopicPage]:
    """The page of each patch. One that was to begin a page may find it there by now: it is looked for by its title."""
    names = {patch.id: patch.slug or patch.title for patch in patches}
    found = {name: read_topic(connection, name) for name in set(names.values())}
    return {identity: topic for identity, name in names.items() if (topic := found[name]) is not None}


@router.post("/review")
def decide(page: FromHub, form: CheckedForm) -> Response:
    """Accepts or rejects: one thing by its own button, or all that are chosen."""
    verdict, marks = _asked(form)
    chosen = read_marks(marks, verdict)
    said, trail = "Nothing was chosen.", _trail(page, form)
    if chosen.tags or chosen.patches:
        with page.resources.connection() as connection:
            tags = decide_tags(connection, chosen.tags, by=BY)
            patches = decide_patches(connection, chosen.patches, verdict, by=BY)
        changed = tuple(outcome.id for outcome in patches if outcome.changed)
        problems = [item.problem for item in tags.items if item.problem]
        problems += [outcome.problem for outcome in patches if outcome.problem]
        failed = [item.id for item in tags.items if item.problem] + [one.id for one in patches if one.problem]
        said = " ".join(
            [
                f"{_DID[verdict]} {count_settled(marks, failed)}.",
                *(f"{problem[:1].upper()}{problem[1:]}." for problem in problems[:2]),
            ]
        )
        undo = Undo(tags.decision, changed, verdict)
        if undo.marks():
            rows = [item.tag for item in tags.items if item.tag is not None and item.outcome == "changed"]
            # A tag of a session and of its summaries is one thing here.
            names = [literal for literal, _ in dict.fromkeys((str(row.literal), row.conversation_id) for row in rows)]
            names += ["a patch of the wiki"] * len(changed)
            trail = trail_after(trail, Done(f"{_DID[verdict]} {_names(names)}", undo))
    return _after(page, form, said, trail)


_DID: dict[Verdict, str] = {"accept": "Accepted", "reject": "Rejected"}


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)}"


def _trail(page: Page, form: FormData) -> list[Done]:
    """The decisions that the page of a form can still take back, oldest first."""
    sealed = form.get("trail")
    return read_trail(page.hub.unseal(sealed)) if isinstance(sealed, str) else []


def _asked(form: FormData) -> tuple[Verdict, list[str]]:
    """A button of one thing names it; the buttons below name the verdict, and the chosen things are ticked."""
    verdicts: tuple[Verdict, Verdict] = ("accept", "reject")
    for verdict in verdicts:
        one = form.get(verdict)
        if isinstance(one, str) and one:
            marks = [one] if one != "chosen" else [mark for mark in form.getlist("item") if isinstance(mark, str)]
            if len(marks) > _MOST_CHOSEN:
                raise InvalidInputError("item", f"at most {_MOST_CHOSEN} are decided at once; choose fewer")
            return verdict, marks
    raise InvalidInputError("accept", "name what to accept or to reject")


@router.post("/review/undo")
def undo(page: FromHub, form: CheckedForm) -> Response:
    """Takes a decision of this page back, the last one unless the form names another: what it decided waits again."""
    trail = _trail(page, form)
    place = form.get("undo", str(len(trail) - 1) if trail else "0")
    if not isinstance(place, str) or not place.isdecimal() or len(place) > 3:
        raise InvalidInputError("undo", "names no decision; load the page again")
    if int(place) >= len(trail):
        return _after(page, form, _NOTHING_LEFT, trail)
    problems = _take_back(page, trail.pop(int(place)).undo)
    said = [f"{problem[:1].upper()}{problem[1:].rstrip('.')}." for problem in problems[:2]]
    said = said or ["Taken back: it waits again."]
    return _after(page, form, " ".join(said if trail else [*said, _NOTHING_LEFT]), trail)


def _take_back(page: Page, wanted: Undo) -> list[str]:
    """Undoes a decision; what was decided anew since stays as it is, and is told."""
    problems = []
    with page.resources.connection() as connection:
        if wanted.tags is not None:
            try:
                undo_tags(connection, wanted.tags, by=BY)
            except (ConflictError, NotFoundError) as error:
                problems.append(str(error))
        if wanted.verdict == "accept":
            outcomes = decide_patches(connection, wanted.patches, "revert", by=BY)
            problems += [outcome.problem for outcome in outcomes if outcome.problem]
        reopen(connection, wanted.patches)
    return problems


def _after(page: Page, form: FormData, said: str, trail: Sequence[Done]) -> Response:
    """The queue as it is now for htmx; for a browser alone the page it came from."""
    if page.is_fragment:
        return _queue(page, said=said, trail=trail)
    following = way_back(form.get("next"))
    if following not in {ROOT, f"{ROOT}/review"}:
        return see_other(following)
    done = f"{said}\n{write_trail(trail, _LONGEST_TRAIL)}"
    return see_other(f"{ROOT}/review{query_string(done=page.hub.seal(done))}")
