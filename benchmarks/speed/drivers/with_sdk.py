"""The bare SDK's `Client`, all defaults."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from benchmarks.speed.drivers.playing import Call, Target, serve, side_by_side


@asynccontextmanager
async def open_one(server: Target) -> AsyncIterator[Call]:
    target = server["url"] if "url" in server else StdioServerParameters(**server)
    async with Client(target) as client:

        async def call(tool: str, arguments: dict[str, str]) -> Any:
            return (await client.call_tool(tool, arguments)).content[0].text  # type: ignore[union-attr] # the server sends a text

        yield call


if __name__ == "__main__":
    serve(side_by_side(open_one))
