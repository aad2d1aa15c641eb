"""MCP over streamable HTTP, mounted on the API: the guard, the limits and the token are those of every other route.

Each POST is answered by one JSON body and no session is kept, so a restart of the service costs a client nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.mcp.server import build_server
from rivet_pipeline.api.problems import Refusal
from rivet_pipeline.api.security import require_json
from rivet_pipeline.settings import Settings

MCP_PATH = "/mcp"


class McpEndpoint:
    """The ASGI application at `MCP_PATH`. It answers while `serving` is entered."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def serving(self, app: FastAPI) -> AsyncIterator[None]:
        """Answers with what the application has open, for the length of the block."""

        def resources() -> Resources:
            opened = app.state.resources
            assert isinstance(opened, Resources)
            return opened

        # A manager runs once, an application may be started again.
        self._manager = StreamableHTTPSessionManager(
            build_server(self._settings, resources), stateless=True, json_response=True
        )
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["method"] != "POST":
            # There is nothing that the server would say by itself, and no session to end.
            raise Refusal(405, f"{scope['method']} is not possible here; use POST.", {"Allow": "POST"})
        require_json(Headers(scope=scope))
        assert self._manager is not None
        await self._manager.handle_request(scope, receive, send)
