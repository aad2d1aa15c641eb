"""What every page of the hub shares: its frame, its headers, its forms' protection, and how an error looks.

Pages hold no SQL and no rule of the domain: they ask `retrieval` and show what it answers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID

import jinja2
import psycopg
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from psycopg_pool import PoolTimeout
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rivet_pipeline.api.attempts import Attempts
from rivet_pipeline.api.dependencies import FromApp, Resources
from rivet_pipeline.api.hub.assets import assets
from rivet_pipeline.api.hub.cookie_key import CookieKey
from rivet_pipeline.api.hub.sign_in import COOKIE, READ_PATHS, ROOT, is_page
from rivet_pipeline.api.hub.texts import bare, finish, fold, inline, markdown, plain, tidy
from rivet_pipeline.api.hub.times import Clock, ago, long_day, short_day
from rivet_pipeline.api.problems import Refusal, field_path
from rivet_pipeline.api.tools.budget import count
from rivet_pipeline.errors import ConflictError, InvalidInputError, NotFoundError, RivetError, StoreUnavailableError
from rivet_pipeline.retrieval.lineage import first_line
from rivet_pipeline.retrieval.snippets import shorten
from rivet_pipeline.settings import Settings

_log = logging.getLogger(__name__)

#: `Referrer-Policy` of the API is no-referrer, under which a browser calls the origin of a form `null`.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
    "Vary": "Cookie, HX-Request",
}

THEME_COOKIE = "rivet_theme"
Theme = Literal["auto", "light", "dark"]
THEMES: tuple[Theme, ...] = ("auto", "light", "dark")

_NAVIGATION = (
    ("search", ROOT, "Search"),
    ("timeline", f"{ROOT}/timeline", "Timeline"),
    ("review", f"{ROOT}/review", "Review"),
    ("wiki", f"{ROOT}/wiki", "Wiki"),
    ("health", f"{ROOT}/health", "Health"),
)


class Hub:
    """What one process needs to make pages: the templates, and the secret under which its forms are signed."""

    def __init__(self, settings: Settings, attempts: Attempts, cookie_key: CookieKey | None) -> None:
        self.attempts = attempts
        #: None when no token is set and nobody signs in.
        self.cookie_key = cookie_key
        self.dagster_url = f"http://127.0.0.1:{settings.dagster_port}"
        self._secret = secrets.token_bytes(32)
        self.templates = jinja2.Environment(
            loader=jinja2.PackageLoader("rivet_pipeline.api.hub"),
            autoescape=True,
            finalize=finish,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals |= {
            "asset": asset_url,
            "navigation": _NAVIGATION,
            "root": ROOT,
            "query": query_string,
            "dagster": self.dagster_url,
        }
        self.templates.filters |= {
            "fold": fold,
            "bare": bare,
            "inline": inline,
            "markdown": markdown,
            "plain": plain,
            "tidy": tidy,
            "ago": ago,
            "long_day": long_day,
            "short_day": short_day,
            "counted": count,
            "number": lambda value: f"{value:,}",
            "first_words": lambda text: shorten(bare(first_line(text or "", 200)), 90),
        }

    def form_token(self, request: Request) -> str:
        """What a form of ours carries and no other page can know; it ends with the process and with the signing in."""
        cookie = request.cookies.get(COOKIE, "")
        return hmac.new(self._secret, cookie.encode(), hashlib.sha256).hexdigest()

    def seal(self, text: str) -> str:
        """A text for an address of ours, so that no other page can put words into this one."""
        content = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return f"{content}.{hmac.new(self._secret, content.encode(), hashlib.sha256).hexdigest()}"

    def unseal(self, sealed: str) -> str:
        """The text of an address of ours, nothing for any other."""
        content, _, signature = sealed.partition(".")
        genuine = hmac.new(self._secret, content.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature.encode(), genuine.encode()):
            return ""
        return base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)).decode()

    def dagster_partition(self, asset: str, day: str) -> str:
        """Where the Dagster UI shows one day of an asset."""
        return f"{self.dagster_url}/assets/{quote(asset)}?view=partitions&partition={quote(day)}"


@dataclass(frozen=True, slots=True)
class Page:
    """One request for a page."""

    request: Request
    hub: Hub
    resources: Resources

    @property
    def clock(self) -> Clock:
        """Shows times in the service's zone."""
        return Clock(self.resources.zone)

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    def render(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A page or a part of one."""
        return _render(self.request, self.hub, self.clock, template, status, values)


async def _page(request: Request, resources: FromApp) -> Page:
    return Page(request, hub_of(request), resources)


FromHub = Annotated[Page, Depends(_page)]


def hub_of(request: Request) -> Hub:
    """The hub of the application that handles a request."""
    hub = request.app.state.hub
    assert isinstance(hub, Hub)
    return hub


def _render(
    request: Request, hub: Hub, clock: Clock | None, template: str, status: int, values: dict[str, Any]
) -> HTMLResponse:
    theme = theme_of(request)
    values = {
        "section": None,
        "clock": clock,
        "now": datetime.now(UTC),
        "theme": theme,
        "next_theme": THEMES[(THEMES.index(theme) + 1) % len(THEMES)],
        "form_token": hub.form_token(request),
        "here": here(request),
        "signs_in": hub.cookie_key is not None,
    } | values
    content = hub.templates.get_template(template).render(values)
    return HTMLResponse(content, status_code=status, headers=PAGE_HEADERS)


def theme_of(request: Request) -> Theme:
    """The appearance that this browser asked for."""
    wanted = request.cookies.get(THEME_COOKIE)
    return next((theme for theme in THEMES if theme == wanted), "auto")


def here(request: Request) -> str:
    """The path and query of this page, for a form that leads back to it."""
    if request.method != "GET":
        return ROOT
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def way_back(wanted: object) -> str:
    """A path of the hub, or of what its cookie opens, that a form or link names, the start page for anything else."""
    if not isinstance(wanted, str) or len(wanted) > 4000 or not wanted.isprintable() or "\\" in wanted:
        return ROOT
    parts = urlsplit(wanted)
    inside = is_page(parts.path) or parts.path in READ_PATHS
    return wanted if not parts.scheme and not parts.netloc and inside else ROOT


def see_other(path: str) -> RedirectResponse:
    """Sends a browser to a page after what it did, so that a reload repeats nothing."""
    return RedirectResponse(path, status_code=303, headers=PAGE_HEADERS)


def asset_url(name: str) -> str:
    """The address of a file that pages load; it changes with its content."""
    return f"{ROOT}/static/{name}?v={assets()[name].mark}"


def query_string(**values: object) -> str:
    """A query string of those values that are there, with its `?`, or nothing."""
    kept = {name: str(value) for name, value in values.items() if value not in {None, ""}}
    return f"?{urlencode(kept)}" if kept else ""


async def checked_form(request: Request) -> FormData:
    """The fields of a form that a page of ours sent.

    The guard has compared the origin; the token guards should a browser not tell it. Raises `Refusal`.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A multipart form could hold files, which would be written to the disk.
    if media_type != "application/x-www-form-urlencoded":
        raise Refusal(415, "Send a form of this page.")
    form = await request.form()
    sent = form.get("form_token")
    if not isinstance(sent, str) or not hmac.compare_digest(
        sent.encode(), hub_of(request).form_token(request).encode()
    ):
        raise Refusal(403, "This form is out of date: load the page again and repeat what you did.")
    return form


CheckedForm = Annotated[FormData, Depends(checked_form)]


def read_id(text: str) -> UUID:
    """An id out of an address or a form. Raises `NotFoundError`."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError(f"{text[:60]!r} is no id.") from None


class HubRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with every failure turned into a page that says what to do."""
        handle = super().get_route_handler()

        async def handle_as_page(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                status, detail, headers = _explain(request, error)
                page = _render(request, hub_of(request), None, "error.html", status, {"detail": detail})
                page.status_code = status
                page.headers.update(headers)
                return page

        return handle_as_page


def _explain(request: Request, error: Exception) -> tuple[int, str, dict[str, str]]:
    """The status, the words and the headers of an error's page. What nobody foresaw is logged."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return 400, f"{field_path(first['loc'])}: {str(first['msg']).removeprefix('Value error, ')}", {}
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail), dict(error.headers or {})
    if isinstance(error, NotFoundError):
        return 404, str(error), {}
    if isinstance(error, ConflictError):
        return 409, str(error), {}
    if isinstance(error, psycopg.errors.UndefinedTable):
        return 503, "The store has not been set up yet; start `rivet up` once.", {"Retry-After": "5"}
    if isinstance(error, psycopg.OperationalError | PoolTimeout | StoreUnavailableError):
        detail = "The database can not be reached or does not answer in time; try again shortly."
        return 503, detail, {"Retry-After": "5"}
    if isinstance(error, InvalidInputError | RivetError):
        return 400, str(error), {}
    request_id = request.scope.get("state", {}).get("request_id", "")
    _log.error("request %s failed: %s %s", request_id, request.method, request.url.path, exc_info=error)
    return 500, f"Something went wrong in the service. Its log has the cause under request id {request_id}.", {}


def status_phrase(status: int) -> str:
    """`Not Found` for 404."""
    return HTTPStatus(status).phrase
