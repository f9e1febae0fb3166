"""Resources and prompts as two tools, for agents whose frameworks know only tools.

Their schemas name exactly what the host allowlisted, so a model cannot ask for more; the words are the host's.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from deputy_mcp._core.annotations import read_annotations
from deputy_mcp._core.config import Server
from deputy_mcp._core.errors import ConfigError, InvalidArgumentsError
from deputy_mcp._core.permissions import Allow, Ask, Deny
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.handles import McpTool, Progress, PromptResult, ResourceResult, ToolResult, make_host_handle

_PREFIX = re.compile(r"[a-zA-Z0-9_-]{1,40}")


class Capabilities(Protocol):
    """What a capability tool needs of its connection."""

    def decide_capability(self, handle: McpTool, method: str) -> Allow | Ask | Deny: ...

    def note_refusal(self, server: str | None, tool: str | None, error: InvalidArgumentsError) -> None: ...

    async def read_resource(
        self, server: str, uri: str, *, timeout_seconds: float | None = None, handle: McpTool | None = None
    ) -> ResourceResult: ...

    async def get_prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float | None = None,
        handle: McpTool | None = None,
    ) -> PromptResult: ...


class _ReadResource:
    def __init__(self, connection: Capabilities) -> None:
        self.connection = connection

    def decide(self, handle: McpTool) -> Allow | Ask | Deny:
        return self.connection.decide_capability(handle, "resources/read")

    async def call_handle(
        self,
        handle: McpTool,
        arguments: Mapping[str, Any] | None,
        *,
        timeout_seconds: float | None,
        progress: Progress | None,  # reading reports none
        retry: bool,  # and changes nothing
    ) -> ToolResult:
        server, uri = _texts(self.connection, handle, arguments, "server", "uri")
        result = await self.connection.read_resource(server, uri, timeout_seconds=timeout_seconds, handle=handle)
        return _as_tool_result(handle, result, server, result.contents)


class _GetPrompt:
    def __init__(self, connection: Capabilities) -> None:
        self.connection = connection

    def decide(self, handle: McpTool) -> Allow | Ask | Deny:
        return self.connection.decide_capability(handle, "prompts/get")

    async def call_handle(
        self,
        handle: McpTool,
        arguments: Mapping[str, Any] | None,
        *,
        timeout_seconds: float | None,
        progress: Progress | None,  # getting a prompt reports none
        retry: bool,  # and changes nothing
    ) -> ToolResult:
        server, name = _texts(self.connection, handle, arguments, "server", "name")
        given = (arguments or {}).get("arguments")
        result = await self.connection.get_prompt(server, name, given, timeout_seconds=timeout_seconds, handle=handle)
        return _as_tool_result(handle, result, server, result.messages)


def _texts(connection: Capabilities, handle: McpTool, arguments: Mapping[str, Any] | None, *names: str) -> list[str]:
    further = set(arguments or {}) - set(handle.input_schema["properties"])
    values = [(arguments or {}).get(name) for name in names]
    if further:
        shown = ", ".join(clean_line(str(name), 60) for name in sorted(map(str, further)))
        wrong = f"{handle.name} takes no {shown}"
    elif not all(isinstance(value, str) for value in values):
        wrong = f"{handle.name} needs {' and '.join(names)} as strings"
    else:
        return [str(value) for value in values]

    error = InvalidArgumentsError(wrong, tool=handle.tool)
    connection.note_refusal(None, handle.tool, error)
    raise error


def _as_tool_result(
    handle: McpTool, result: ResourceResult | PromptResult, server: str, content: tuple[Any, ...]
) -> ToolResult:
    return ToolResult(
        text=result.text,
        content=content,
        truncated=result.truncated,
        size_bytes=result.size_bytes,
        findings=result.findings,
        generation=result.generation,
        tool_digest=handle.digest,
        server=server,
        tool=handle.tool,
        duration_seconds=result.duration_seconds,
    )


def make_capability_tools(specs: Mapping[str, Server], connection: Capabilities, prefix: str) -> list[McpTool]:
    """The tools over the allowlists of `specs`; see `McpConnection.capability_tools`."""
    if not _PREFIX.fullmatch(str(prefix)):
        raise ConfigError("prefix must be 1 to 40 of a-z A-Z 0-9 _ -: it begins a tool's name", key="prefix")

    tools = []
    resources = {name: spec.resources for name, spec in specs.items() if spec.resources}
    if resources:
        schema = _schema(resources, "uri", "The resource's URI.")
        text = "Reads one of these resources:" + _listing(resources)
        tools.append(_tool(f"{prefix}_read_resource", "resources/read", text, schema, _ReadResource(connection)))

    prompts = {name: spec.prompts for name, spec in specs.items() if spec.prompts}
    if prompts:
        schema = _schema(prompts, "name", "The prompt's name.")
        schema["properties"]["arguments"] = {
            "type": "object",
            "description": "The prompt's arguments, all strings.",
            "additionalProperties": {"type": "string"},
        }
        text = "Gets one of these prompts:" + _listing(prompts)
        tools.append(_tool(f"{prefix}_get_prompt", "prompts/get", text, schema, _GetPrompt(connection)))

    return tools


def _listing(allowed: Mapping[str, tuple[str, ...]]) -> str:
    return "".join(f"\n- server {server}: {', '.join(names)}" for server, names in allowed.items())


def _schema(allowed: Mapping[str, tuple[str, ...]], key: str, description: str) -> dict[str, Any]:
    names = sorted({name for names in allowed.values() for name in names})
    return {
        "type": "object",
        "properties": {
            "server": {"type": "string", "description": "The server.", "enum": sorted(allowed)},
            key: {"type": "string", "description": description, "enum": names},
        },
        "required": ["server", key],
        "additionalProperties": False,
    }


def _tool(name: str, method: str, description: str, schema: dict[str, Any], caller: Any) -> McpTool:
    declared = {"readOnlyHint": True, "openWorldHint": True}
    reading = read_annotations(declared, host={}, trusted=True)
    return make_host_handle(
        name,
        tool=method,
        description=description,
        input_schema=schema,
        annotations=declared,
        reading=reading,
        caller=caller,
    )
