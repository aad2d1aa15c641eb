"""Builds the FastAPI application and serves it. Routes stand in `routes/`; what they are given in `dependencies.py`."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated

import anyio.to_thread
import uvicorn
from fastapi import Depends, FastAPI, Query
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from rivet_pipeline.api.attempts import Attempts
from rivet_pipeline.api.dependencies import each_once, open_resources
from rivet_pipeline.api.docs_page import DOCS_CSP, render_docs
from rivet_pipeline.api.hub import site
from rivet_pipeline.api.hub.cookie_key import cookie_key
from rivet_pipeline.api.mcp.http import MCP_PATH, McpEndpoint
from rivet_pipeline.api.models import NoQuery
from rivet_pipeline.api.problems import PROBLEM_RESPONSES, RequestBoundary, install_handlers
from rivet_pipeline.api.routes import capture, context, conversations, health, memory, tags, tools, wiki
from rivet_pipeline.api.security import BodyLimit, Guard, WriteLimit, check_bind, exposure_warning
from rivet_pipeline.db.pool import connect
from rivet_pipeline.errors import RivetError
from rivet_pipeline.settings import Settings

_log = logging.getLogger(__name__)

#: How long, in seconds, running requests may take to finish when the service is asked to stop.
GRACE_SECONDS = 10

_DESCRIPTION = """The memory that agents keep: every word of their conversations, found again by words and by meaning.

Times go in as ISO 8601 with an offset and come out in UTC. Every error is problem details (application/problem+json)
with a request id. A parameter that is not listed here is refused, so that a misspelt filter never means no filter.

Example: `curl 'http://127.0.0.1:5174/api/memory/search?q=where+do+sessions+live&limit=5'`"""

_TAGS = [
    {"name": "capture", "description": "The way in. A captured message is durable when the call returns."},
    {"name": "memory", "description": "The way out: search, chronological listing, figures."},
    {"name": "tags", "description": "Tags of sessions and summaries: what waits for a review, and the decisions."},
    {"name": "wiki", "description": "Pages about lasting subjects, each sentence with the summaries it stands on."},
    {"name": "tools", "description": "What agents call. `result` is what the tool says."},
    {"name": "health", "description": "Whether the process lives, and whether the memory is well."},
]


def create_app(settings: Settings, *, url: str) -> FastAPI:
    """The application over the store at `url`, which is migrated already.

    The connections and the query embedder are opened when the application starts and closed when it stops.
    """
    mcp = McpEndpoint(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            app.state.resources = await anyio.to_thread.run_sync(
                lambda: stack.enter_context(open_resources(settings, url))
            )
            async with mcp.serving(app):
                yield
            await anyio.to_thread.run_sync(stack.close)

    app = FastAPI(
        title="Rivet memory",
        summary="Transcripts in, memory out.",
        description=_DESCRIPTION,
        version=_version(),
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEM_RESPONSES,
        lifespan=lifespan,
    )
    install_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, limit=settings.capture_max_body, smaller=tools.body_limits() | tags.body_limits())
    app.add_middleware(WriteLimit, rate=settings.api_write_rate)
    token = settings.api_token.get_secret_value().encode() if settings.api_token else None
    attempts = Attempts(token)
    key = None if token is None else cookie_key(token, settings.home)
    app.add_middleware(Guard, settings=settings, attempts=attempts, cookie_key=key)
    app.add_middleware(RequestBoundary)
    app.include_router(capture.router)
    for module in (memory, context, conversations, health, tags, wiki):
        app.include_router(module.router, dependencies=[Depends(each_once)])
    app.include_router(tools.make_router(settings))
    site.mount(app, settings, attempts, key)
    app.router.routes.append(Route(MCP_PATH, mcp, include_in_schema=False))

    @app.get("/", include_in_schema=False)
    def start(_: Annotated[NoQuery, Query()]) -> RedirectResponse:
        return RedirectResponse(site.ROOT)

    @app.get("/docs", include_in_schema=False)
    def docs(_: Annotated[NoQuery, Query()]) -> HTMLResponse:
        return HTMLResponse(render_docs(app.openapi()), headers={"Content-Security-Policy": DOCS_CSP})

    return app


def serve(settings: Settings, url: str) -> None:
    """Serves the API in the foreground until SIGINT or SIGTERM, then lets running requests finish.

    Raises `RivetError` in one line when the host is public and no token is set, when the port is taken, or when the
    database can not be reached.
    """
    check_bind(settings)
    if (warning := exposure_warning(settings)) is not None:
        _log.warning("%s", warning)
    connect(url, application_name="rivet-api").close()
    listener = _listen(settings)
    try:
        config = uvicorn.Config(
            create_app(settings, url=url),
            log_level="warning",
            # Queries are the user's own words, and a forwarded address is whatever its sender says it is.
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.api_host, settings.api_port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RivetError(f"RIVETOS_API_HOST {host!r} is no address of this machine ({error.strerror}).") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise RivetError(
            f"the API can not listen on {host} port {port} ({error.strerror}); "
            "stop what uses it, or set RIVETOS_API_PORT to a free port."
        ) from error
    return listener


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rivet-pipeline")
    except PackageNotFoundError:
        return "0+checkout"
