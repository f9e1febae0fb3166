"""The two clients that are measured, behind one way of calling: ours and the bare SDK's."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from deputy_mcp import HttpServer, Limits, McpConnection, Permissions, RestartPolicy, StdioServer

SERVERS = Path(__file__).parents[1] / "servers"
ECHO = (str(SERVERS / "echo.py"),)

AT_ONCE = RestartPolicy(max_restarts=10_000, backoff_initial_seconds=0.02, backoff_max_seconds=0.02)
"""A flood goes on as long as it is measured: what ends the server must not be what ends the pressure."""

Arguments = dict[str, Any]
Call = Callable[[str, Arguments, float], Awaitable[Any]]
"""(server, arguments, timeout in seconds): calls that server's only tool, `echo` or `play`."""

Spec = tuple[str, ...] | str
"""The arguments of a Python server on stdio, or the URL of one."""


def flood_stdio(listing: str = "plain") -> tuple[str, ...]:
    """The flooding server on stdio."""
    return (str(SERVERS / "flood_stdio.py"), listing)


@contextmanager
def flood_http() -> Iterator[str]:
    """The flooding server over HTTP; gives its address without the path."""
    command = [sys.executable, str(SERVERS / "flood_http.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def tool_of(server: str) -> str:
    """The name of its only tool."""
    return "echo" if server.startswith("healthy") else "play"


def entry(spec: Spec, **common: Any) -> StdioServer | HttpServer:
    """Our entry for a server."""
    if isinstance(spec, str):
        return HttpServer(spec, **common)

    return StdioServer(sys.executable, args=spec, **common)


@asynccontextmanager
async def open_ours(servers: Mapping[str, Spec], limits: Limits) -> AsyncIterator[Call]:
    """All of them through one connection."""
    entries = {name: entry(spec) for name, spec in servers.items()}
    async with McpConnection(entries, permissions=Permissions(), limits=limits, restart=AT_ONCE) as connection:

        async def call(server: str, arguments: Arguments, seconds: float) -> Any:
            return await connection.call_tool(server, tool_of(server), arguments, timeout_seconds=seconds)

        yield call


@asynccontextmanager
async def open_sdk(servers: Mapping[str, Spec], *, largest_event: int | None = 1024 * 1024) -> AsyncIterator[Call]:
    """All of them through clients of their own. `largest_event`: the SDK's default; None lifts it."""
    async with AsyncExitStack() as stack:
        clients = {}
        for name, spec in servers.items():
            if isinstance(spec, str):
                transport = streamable_http_client(spec, max_sse_event_size=largest_event)
            else:
                transport = stdio_client(StdioServerParameters(command=sys.executable, args=list(spec)))

            clients[name] = await stack.enter_async_context(Client(transport))

        async def call(server: str, arguments: Arguments, seconds: float) -> Any:
            return await clients[server].call_tool(tool_of(server), arguments, read_timeout_seconds=seconds)

        yield call


async def ending(call: Awaitable[Any]) -> str:
    """How a call ended: "answered" or the name of its error."""
    try:
        await call
    except Exception as error:
        return type(error).__name__

    return "answered"
