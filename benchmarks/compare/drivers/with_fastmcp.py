"""fastmcp's `Client`: with a transport for one server, with an `mcpServers` dictionary for several.

All defaults but the timeouts.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found] # it lives in an environment of its own
from fastmcp.client.transports import (  # type: ignore[import-not-found]
    SSETransport,
    StdioTransport,
    StreamableHttpTransport,
)

from benchmarks.compare.drivers.playing import Client as Played
from benchmarks.compare.drivers.playing import Json, answered, serve


class Fast:
    """One client over one server or several, whose tools then carry the server's name."""

    def __init__(self, client: Any, *, prefixed: bool) -> None:
        self._client = client
        self._prefixed = prefixed

    async def tools(self, server: str) -> list[str]:
        names = [tool.name for tool in await self._client.list_tools()]
        prefix = f"{server}_" if self._prefixed else ""
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], deadline_seconds: float) -> Json:
        name = f"{server}_{tool}" if self._prefixed else tool
        result = await self._client.call_tool(name, dict(arguments), timeout=deadline_seconds, raise_on_error=False)
        text = "\n".join(block.text for block in result.content if block.type == "text")
        content = [block.model_dump(mode="json") for block in result.content] + [result.structured_content]
        return answered(text, content, failed=result.is_error)


@asynccontextmanager
async def connect(servers: Mapping[str, Json], start_seconds: float) -> AsyncIterator[Played]:
    several = len(servers) > 1
    target = {"mcpServers": {name: _entry(one) for name, one in servers.items()}} if several else None
    async with Client(
        _transport(servers["main"]) if target is None else target, timeout=start_seconds, init_timeout=start_seconds
    ) as client:
        yield Fast(client, prefixed=several)


def _transport(entry: Json) -> Any:
    if "command" in entry:
        return StdioTransport(command=entry["command"], args=entry["args"], env=entry["env"])

    kind = SSETransport if entry["transport"] == "sse" else StreamableHttpTransport
    return kind(url=entry["url"], headers=entry.get("headers"))


def _entry(entry: Json) -> Json:
    if "command" in entry:
        return {"command": entry["command"], "args": entry["args"], "env": entry["env"]}

    return {"url": entry["url"], "transport": entry["transport"]}


if __name__ == "__main__":
    serve(connect)
