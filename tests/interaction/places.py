"""The SDK's client transports, by name and parameters, as addresses at which a server of the suite's is reached.

Given to `Client`, our own transport goes there. Entered (the suite wraps a recorder around one, or takes its streams),
an address is the SDK's transport, which then is a `CustomServer` to us.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Literal

import httpx2
import mcp.client.sse
import mcp.client.stdio
import mcp.client.streamable_http
from gateway import open_gateway
from running import NAME, NotOffered

from deputy_mcp import HttpServer, McpConnection, StdioServer

CLIENT_HEADERS = frozenset({"accept", "accept-encoding", "connection", "user-agent"})
"""What each `httpx2` client sends by itself; what a test's client has beside them, the test gave it."""


class Address:
    """Where a server is reached (see the module), made by one of the three functions below."""

    def __init__(
        self,
        sdk_transport: Callable[[], AbstractAsyncContextManager[Any]],
        open_spec: Callable[[AsyncExitStack, dict[str, Any]], Awaitable[Any]],
        close: Callable[[McpConnection], None] = lambda connection: None,
    ) -> None:
        self._sdk_transport = sdk_transport
        self._entered: AbstractAsyncContextManager[Any] | None = None
        self.open_spec = open_spec
        self.close = close

    async def __aenter__(self) -> Any:
        self._entered = self._sdk_transport()
        return await self._entered.__aenter__()

    async def __aexit__(self, *problem: Any) -> Any:
        assert self._entered is not None
        return await self._entered.__aexit__(*problem)


def streamable_http_client(url: str, *, http_client: httpx2.AsyncClient | None = None, **options: Any) -> Address:
    """In place of the SDK's transport of that name."""

    async def open_spec(stack: AsyncExitStack, common: dict[str, Any]) -> HttpServer:
        assert http_client is not None
        return await _http_server(url, http_client, stack, common, transport="http")

    sdk = mcp.client.streamable_http.streamable_http_client
    return Address(lambda: sdk(url, http_client=http_client, **options), open_spec)


def sse_client(url: str, *, httpx_client_factory: Callable[..., httpx2.AsyncClient], **options: Any) -> Address:
    """In place of the SDK's transport of that name."""

    async def open_spec(stack: AsyncExitStack, common: dict[str, Any]) -> HttpServer:
        if options:
            raise NotOffered(f"sse_client({', '.join(options)})")

        client = await stack.enter_async_context(httpx_client_factory())
        return await _http_server(url, client, stack, common, transport="sse")

    sdk = mcp.client.sse.sse_client
    return Address(lambda: sdk(url, httpx_client_factory=httpx_client_factory, **options), open_spec)


def stdio_client(server: mcp.client.stdio.StdioServerParameters, errlog: Any) -> Address:
    """In place of the SDK's transport of that name. What the child wrote to stderr is handed on at the end."""

    async def open_spec(stack: AsyncExitStack, common: dict[str, Any]) -> StdioServer:
        cwd = None if server.cwd is None else str(server.cwd)
        return StdioServer(server.command, args=server.args, env=server.env or {}, cwd=cwd, **common)

    def close(connection: McpConnection) -> None:
        errlog.write(connection.status()[NAME].stderr_tail)

    return Address(lambda: mcp.client.stdio.stdio_client(server, errlog=errlog), open_spec, close)


async def _http_server(
    url: str,
    client: httpx2.AsyncClient,
    stack: AsyncExitStack,
    common: dict[str, Any],
    *,
    transport: Literal["http", "sse"],
) -> HttpServer:
    """An HTTP server inside the test's process, reached over a socket (see `gateway`)."""
    proxy = await stack.enter_async_context(open_gateway(client))
    own = {name: value for name, value in client.headers.items() if name not in CLIENT_HEADERS}
    return HttpServer(url, headers=own, auth=client.auth, proxy=proxy, transport=transport, **common)
