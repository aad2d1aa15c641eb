"""The MCP server over the table of tools: what it lists and how it hands calls on. Both transports serve this one.

Tools are called in a thread, since they wait for the store. What they say is theirs; what went wrong is worded in
`answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from rivet_pipeline.api.dependencies import Resources
from rivet_pipeline.api.mcp.answers import call_tool, explain_failure
from rivet_pipeline.api.mcp.prompts import PROMPTS, instructions
from rivet_pipeline.api.mcp.resources import find, kinds, recent
from rivet_pipeline.api.tools import Tool, offered
from rivet_pipeline.api.tools.schemas import input_schema
from rivet_pipeline.settings import Settings

_Context = ServerRequestContext[Any]

_TEXT = "text/markdown"


def build_server(settings: Settings, resources: Callable[[], Resources]) -> Server[Any]:
    """The server. `resources` gives what tools need, and is asked anew at every call; it may raise `RivetError`."""
    handlers = _Handlers(settings, resources)
    return Server(
        "rivet",
        version=_version(),
        title="Rivet memory",
        description="The memory that AI agents keep.",
        instructions=instructions(settings),
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )


class _Handlers:
    """One coroutine a request."""

    def __init__(self, settings: Settings, resources: Callable[[], Resources]) -> None:
        self._settings = settings
        self._resources = resources
        self._tools = [_described(tool) for tool in offered(settings)]

    async def list_tools(self, _: _Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def call_tool(self, _: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await self._call(params.name, params.arguments)

    async def _call(self, name: str, arguments: dict[str, Any] | None) -> types.CallToolResult:
        # A client that gives a call up does not wait for the store.
        return await anyio.to_thread.run_sync(
            call_tool, self._settings, self._resources, name, arguments, abandon_on_cancel=True
        )

    async def list_prompts(self, _: _Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=_prompts())

    async def get_prompt(self, _: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return _prompt(self._settings, params.name, params.arguments or {})

    async def list_resources(self, _: _Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        try:
            rows = await anyio.to_thread.run_sync(lambda: recent(self._resources()), abandon_on_cancel=True)
        except Exception as error:
            raise MCPError(types.INTERNAL_ERROR, explain_failure("The list of conversations", error)) from error
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=address, name=address, title=title, description=about, mime_type=_TEXT)
                for address, title, about in rows
            ]
        )

    async def list_templates(
        self, _: _Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=kind.template,
                    name=kind.title.lower().replace(" ", "_"),
                    title=kind.title,
                    description=kind.description,
                    mime_type=_TEXT,
                )
                for kind in kinds(self._settings)
            ]
        )

    async def read_resource(self, _: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        found = find(self._settings, params.uri)
        if found is None:
            known = ", ".join(kind.template for kind in kinds(self._settings))
            raise MCPError(types.INVALID_PARAMS, f"Nothing has the address {params.uri[:200]!r}; there are {known}.")
        kind, arguments = found
        answer = await self._call(kind.tool, arguments)
        text = "".join(part.text for part in answer.content if isinstance(part, types.TextContent))
        if answer.is_error:
            raise MCPError(types.INVALID_PARAMS, text)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, mime_type=_TEXT, text=text)]
        )


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title or None,
        description=tool.doc,
        input_schema=input_schema(tool.arguments),
        annotations=types.ToolAnnotations(
            title=tool.title or None,
            read_only_hint=not tool.writes,
            # Nothing that is stored is ever changed or removed, and what is known is not stored again.
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _prompts() -> list[types.Prompt]:
    return [
        types.Prompt(
            name=prompt.name,
            title=prompt.title,
            description=prompt.description,
            arguments=[
                types.PromptArgument(name=one.name, description=one.description, required=one.required)
                for one in prompt.arguments
            ],
        )
        for prompt in PROMPTS.values()
    ]


def _prompt(settings: Settings, name: str, given: dict[str, str]) -> types.GetPromptResult:
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no prompt {name[:100]!r}; there are {', '.join(PROMPTS)}.")
    missing = [one.name for one in prompt.arguments if one.required and not given.get(one.name, "").strip()]
    if missing:
        raise MCPError(types.INVALID_PARAMS, f"The prompt {name} needs {', '.join(missing)}; give it and ask again.")
    message = types.PromptMessage(role="user", content=types.TextContent(text=prompt.text(settings, given)))
    return types.GetPromptResult(description=prompt.description, messages=[message])


def _version() -> str:
    try:
        return version("rivet-pipeline")
    except PackageNotFoundError:
        return "0+checkout"
