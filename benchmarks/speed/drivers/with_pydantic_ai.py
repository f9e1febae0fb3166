"""pydantic-ai's `MCPToolset`, all defaults; a call without a model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found] # in an environment of its own
from pydantic_ai.mcp import MCPToolset  # type: ignore[import-not-found]

from benchmarks.speed.drivers.playing import Call, Target, serve, side_by_side


@asynccontextmanager
async def open_one(server: Target) -> AsyncIterator[Call]:
    target = server["url"] if "url" in server else StdioTransport(**server, keep_alive=False)
    async with MCPToolset(target) as toolset:

        async def call(tool: str, arguments: dict[str, str]) -> Any:
            return await toolset.direct_call_tool(tool, arguments)

        yield call


if __name__ == "__main__":
    serve(side_by_side(open_one))
