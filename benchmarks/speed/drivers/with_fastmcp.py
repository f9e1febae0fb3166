"""fastmcp's `Client`, all defaults."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found] # it lives in an environment of its own
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]

from benchmarks.speed.drivers.playing import Call, Target, serve, side_by_side


@asynccontextmanager
async def open_one(server: Target) -> AsyncIterator[Call]:
    async with Client(server["url"] if "url" in server else StdioTransport(**server, keep_alive=False)) as client:

        async def call(tool: str, arguments: dict[str, str]) -> Any:
            return (await client.call_tool(tool, arguments)).content[0].text

        yield call


if __name__ == "__main__":
    serve(side_by_side(open_one))
