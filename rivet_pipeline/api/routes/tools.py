"""`POST /api/memory/tool/<name>`: the tools of the table in `api/tools/`, each as a route of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends

from rivet_pipeline.api.dependencies import FromApp, Resources, json_only
from rivet_pipeline.api.models import ToolAnswer
from rivet_pipeline.api.problems import NOT_FOUND
from rivet_pipeline.api.tools import SMALL_BODY, TOOLS, Tool, offered
from rivet_pipeline.errors import NotFoundError
from rivet_pipeline.settings import Settings

_PREFIX = "/api/memory/tool"


def make_router(settings: Settings) -> APIRouter:
    """The routes of the tools that these settings offer; any other name is answered with what there is."""
    router = APIRouter(prefix=_PREFIX, tags=["tools"])
    for tool in offered(settings):
        router.add_api_route(
            f"/{tool.name}",
            _endpoint(tool),
            methods=["POST"],
            summary=tool.name,
            description=tool.doc,
            operation_id=tool.name,
            dependencies=[Depends(json_only)],
            responses=NOT_FOUND if tool.may_miss else None,
        )

    @router.post("/{name:path}", include_in_schema=False)
    def no_tool(name: str) -> ToolAnswer:
        if name in TOOLS:
            raise NotFoundError(
                f"{name} writes, and writing is off; set RIVETOS_MCP_ENABLE_MEMORY_WRITE=1 to offer it."
            )
        known = ", ".join(tool.name for tool in offered(settings))
        raise NotFoundError(f"There is no tool {name[:100]!r}; there are {known}.")

    return router


def body_limits() -> dict[str, int]:
    """The paths whose bodies are smaller than a captured batch, with their limits in bytes."""
    return {f"{_PREFIX}/{tool.name}": SMALL_BODY for tool in TOOLS.values() if not tool.large}


def _endpoint(tool: Tool) -> Callable[..., ToolAnswer]:
    def call(arguments: Any, resources: Resources) -> ToolAnswer:
        return ToolAnswer(result=tool.run(resources, arguments))

    # FastAPI reads what a route takes from its annotations, and these are known only here.
    call.__annotations__ = {"arguments": tool.arguments, "resources": FromApp, "return": ToolAnswer}
    return call
