"""langchain-mcp-adapters' `MultiServerMCPClient` with a held session, the quicker of the two ways it documents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_mcp_adapters.client import (  # type: ignore[import-not-found] # in an environment of its own
    MultiServerMCPClient,
)
from langchain_mcp_adapters.tools import load_mcp_tools  # type: ignore[import-not-found]

from benchmarks.speed.drivers.playing import Call, Target, serve, side_by_side


@asynccontextmanager
async def open_one(server: Target) -> AsyncIterator[Call]:
    transport = "streamable_http" if "url" in server else "stdio"
    async with MultiServerMCPClient({"s": dict(server) | {"transport": transport}}).session("s") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call(tool: str, arguments: dict[str, str]) -> Any:
            return (await tools[tool].ainvoke(arguments))[0]["text"]

        yield call


if __name__ == "__main__":
    serve(side_by_side(open_one))
