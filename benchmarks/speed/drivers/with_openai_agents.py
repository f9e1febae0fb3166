"""openai-agents' MCP servers, all defaults; a call without a model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import (  # type: ignore[import-not-found] # in an environment of its own
    MCPServerStdio,
    MCPServerStreamableHttp,
)

from benchmarks.speed.drivers.playing import Call, Target, serve, side_by_side


@asynccontextmanager
async def open_one(server: Target) -> AsyncIterator[Call]:
    kind = MCPServerStreamableHttp if "url" in server else MCPServerStdio
    async with kind(params=dict(server)) as one:

        async def call(tool: str, arguments: dict[str, str]) -> Any:
            return (await one.call_tool(tool, arguments)).content[0].text

        yield call


if __name__ == "__main__":
    serve(side_by_side(open_one))
