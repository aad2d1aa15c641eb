"""The small pages around the others: signing in, the appearance, the keys, and the files that pages load."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rivet_pipeline.api.hub.assets import assets
from rivet_pipeline.api.hub.pages import (
    THEME_COOKIE,
    THEMES,
    CheckedForm,
    FromHub,
    HubRoute,
    see_other,
    way_back,
)
from rivet_pipeline.api.hub.sign_in import COOKIE, COOKIE_PATH, LIFETIME, ROOT, issue
from rivet_pipeline.api.problems import Refusal
from rivet_pipeline.api.security import client_of
from rivet_pipeline.errors import NotFoundError

router = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)
last = APIRouter(prefix=ROOT, route_class=HubRoute, include_in_schema=False)

_YEAR = 365 * 86_400


@router.get("/static/{name}")
async def static_file(name: str, request: Request) -> Response:
    """One of the files that pages load."""
    found = assets().get(name)
    if found is None:
        raise NotFoundError("There is no such file.")
    marked = request.query_params.get("v") == found.mark
    return Response(
        found.content,
        media_type=found.media_type,
        headers={"Cache-Control": f"public, max-age={_YEAR}, immutable" if marked else "no-cache"},
    )


@router.get("/sign-in")
async def sign_in_page(page: FromHub) -> Response:
    """Asks for the token."""
    following = way_back(page.request.query_params.get("next"))
    if page.hub.cookie_key is None:
        return see_other(following)
    return page.render("sign_in.html", following=following, wrong=None)


@router.post("/sign-in")
async def sign_in(page: FromHub, form: CheckedForm) -> Response:
    """Compares the token and lets the browser in."""
    following = way_back(form.get("next"))
    if page.hub.cookie_key is None:
        return see_other(following)
    typed = form.get("token")
    sent = typed.strip().encode() if isinstance(typed, str) else b""
    try:
        admitted = bool(sent) and page.hub.attempts.admits(sent, client_of(page.request.scope))
    except Refusal as refusal:
        refused = page.render("sign_in.html", status=refusal.status_code, following=following, wrong=refusal.detail)
        refused.headers.update(refusal.headers or {})
        return refused
    if not admitted:
        return page.render("sign_in.html", status=403, following=following, wrong="That is not the token.")
    answer = see_other(following)
    answer.set_cookie(
        COOKIE,
        issue(page.hub.cookie_key(), time.time()),
        max_age=LIFETIME,
        path=COOKIE_PATH,
        httponly=True,
        samesite="strict",
        secure=page.request.url.scheme == "https",
    )
    return answer


@router.post("/sign-out")
async def sign_out(form: CheckedForm) -> Response:
    """Forgets the browser."""
    answer = see_other(f"{ROOT}/sign-in")
    # Earlier versions set it for the hub alone.
    for path in (COOKIE_PATH, ROOT):
        answer.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
    return answer


@router.post("/theme")
async def change_theme(form: CheckedForm) -> Response:
    """Light, dark, or as the system says."""
    wanted = form.get("theme")
    theme = next((known for known in THEMES if known == wanted), "auto")
    answer = see_other(way_back(form.get("next")))
    answer.set_cookie(THEME_COOKIE, theme, max_age=_YEAR, path=ROOT, httponly=True, samesite="strict")
    return answer


@router.get("/keys")
async def keys(page: FromHub) -> Response:
    """What the keyboard can do."""
    return page.render("keys.html")


@last.get("/{rest:path}")
async def nothing_here(rest: str) -> Response:
    """Every other address of the hub."""
    raise NotFoundError("There is no such page.")
