"""The bare SDK: `Client` for one server, `ClientSessionGroup` for several, as its documentation has it.

All defaults but the timeouts. `encoding_error_handler="replace"` would mend the situations with invalid bytes, and
`max_sse_event_size` the one with a large event.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, ClientSessionGroup, StdioServerParameters
from mcp.client.session_group import ClientSessionParameters, StreamableHttpParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from benchmarks.compare.drivers.playing import Client as Played
from benchmarks.compare.drivers.playing import Json, answered, serve


class One:
    """One server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self, server: str) -> list[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return names

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], deadline_seconds: float) -> Json:
        return _answer(await self._client.call_tool(tool, dict(arguments), read_timeout_seconds=deadline_seconds))


class Group:
    """Several; a server that cannot be connected is caught where it is connected."""

    def __init__(self, group: ClientSessionGroup, tools: Mapping[str, list[str]]) -> None:
        self._group = group
        self._tools = tools

    async def tools(self, server: str) -> list[str]:
        return self._tools[server]

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], deadline_seconds: float) -> Json:
        return _answer(await self._group.call_tool(tool, dict(arguments), read_timeout_seconds=deadline_seconds))


def _answer(result: Any) -> Json:
    assert isinstance(result, CallToolResult)
    text = "\n".join(block.text for block in result.content if block.type == "text")
    content = [block.model_dump(mode="json") for block in result.content] + [result.structured_content]
    return answered(text, content, failed=result.is_error)


@asynccontextmanager
async def connect(servers: Mapping[str, Json], start_seconds: float) -> AsyncIterator[Played]:
    if len(servers) > 1:
        async with ClientSessionGroup() as group:
            tools: dict[str, list[str]] = {}
            for name, entry in servers.items():
                known = set(group.tools)
                try:
                    options = ClientSessionParameters(read_timeout_seconds=start_seconds)
                    await group.connect_to_server(_parameters(entry), options)
                except Exception as error:
                    print(f"{name}: {error!r}")

                tools[name] = sorted(set(group.tools) - known)

            yield Group(group, tools)
    elif "headers" in servers["main"]:
        entry = servers["main"]
        timeout = httpx2.Timeout(30, read=300)
        async with (
            httpx2.AsyncClient(headers=entry["headers"], timeout=timeout) as http,
            Client(
                streamable_http_client(entry["url"], http_client=http), read_timeout_seconds=start_seconds
            ) as client,
        ):
            yield One(client)
    else:
        async with Client(_target(servers["main"]), read_timeout_seconds=start_seconds) as client:
            yield One(client)


def _target(entry: Json) -> Any:
    if "command" in entry:
        return StdioServerParameters(command=entry["command"], args=entry["args"], env=entry["env"])

    return sse_client(entry["url"]) if entry["transport"] == "sse" else entry["url"]


def _parameters(entry: Json) -> StdioServerParameters | StreamableHttpParameters:
    if "command" in entry:
        return StdioServerParameters(command=entry["command"], args=entry["args"], env=entry["env"])

    return StreamableHttpParameters(url=entry["url"])


if __name__ == "__main__":
    serve(connect)
