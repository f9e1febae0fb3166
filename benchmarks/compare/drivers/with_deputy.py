"""Our own connection. All defaults but the timeouts, and no truncation of large results: the others have none.

Everything is permitted, since only the wire is compared. A single server is `required`, so that a failed start is an
error where the others raise one.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.compare.drivers.playing import Client as Played
from benchmarks.compare.drivers.playing import Json, answered, serve
from deputy_mcp import HttpServer, Limits, McpConnection, Permissions, StdioServer

WHOLE_RESULTS = 32 * 1024 * 1024


class Deputy:
    """Any number of servers."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection

    async def tools(self, server: str) -> list[str]:
        return [tool.tool for tool in self._connection.tools(server)]

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], deadline_seconds: float) -> Json:
        result = await self._connection.call_tool(server, tool, arguments, timeout_seconds=deadline_seconds)
        return answered(result.text, [*result.content, result.structured_content], failed=result.is_error)


@asynccontextmanager
async def connect(servers: Mapping[str, Json], start_seconds: float) -> AsyncIterator[Played]:
    limits = Limits(startup_timeout_seconds=start_seconds, max_result_bytes=WHOLE_RESULTS)
    entries = {name: _entry(one, required=len(servers) == 1) for name, one in servers.items()}
    async with McpConnection(entries, permissions=Permissions.full(), limits=limits) as connection:
        yield Deputy(connection)


def _entry(entry: Json, *, required: bool) -> StdioServer | HttpServer:
    if "command" in entry:
        return StdioServer(entry["command"], args=entry["args"], env=entry["env"], required=required)

    headers = entry.get("headers", {})
    return HttpServer(entry["url"], transport=entry["transport"], headers=headers, required=required)


if __name__ == "__main__":
    serve(connect)
