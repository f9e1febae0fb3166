"""Streamable HTTP: the link, and the HTTP client under it.

One link is one `AsyncClient`; each session over it is a new dispatcher, because a session that the server forgot
cannot be initialised again.
"""

import functools
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any

import anyio
import httpx2

from deputy_mcp._core.config import HttpServer, Limits
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._runtime.transports.http_dispatcher import HttpDispatcher
from deputy_mcp._runtime.transports.http_guard import Guard, GuardedAuth
from deputy_mcp._runtime.transports.http_wire import HttpWire
from deputy_mcp._runtime.transports.link import Hooks, Loss, LossSignal, Traffic

CONNECT_SECONDS = 30
"""For connecting, writing and getting a connection from the pool; reading is bounded by each call's deadline."""

SPARE_CONNECTIONS = 16
"""Beside one for each concurrent call: listings, notifications, the server's own stream."""

GOODBYE_SECONDS = 1.0
"""Ending a session politely may take so long."""


class HttpLink:
    """See the module. Made and ended by `open_http`."""

    has_headers = True
    pid = None
    exit_code = None
    stderr_tail = ""

    def __init__(
        self, spec: HttpServer, client: httpx2.AsyncClient, wire: HttpWire, hooks: Hooks, traffic: Traffic
    ) -> None:
        self.traffic = traffic
        self._spec = spec
        self._client = client
        self._wire = wire
        self._hooks = hooks
        self._lost = LossSignal()

    @asynccontextmanager
    async def open_dispatcher(self) -> AsyncIterator[HttpDispatcher]:
        dispatcher = HttpDispatcher(self._wire, self._hooks, self.traffic)
        try:
            yield dispatcher
        finally:
            await self._end_session(dispatcher)

    async def _end_session(self, dispatcher: HttpDispatcher) -> None:
        """Tell the server that its session is over; it may have gone, or not care."""
        headers = dispatcher.farewell()
        if headers is None:
            return

        with anyio.move_on_after(GOODBYE_SECONDS, shield=True), suppress(Exception):  # the host's auth may fail here
            await self._client.delete(self._spec.url, headers=headers)

    def lose(self, code: str, detail: str) -> None:
        self._lost.tell(code, detail)

    def kill_now(self) -> None:
        """The server is not ours to kill; its connections end with the client."""

    async def wait_lost(self) -> Loss:
        return await self._lost.wait()


MOST_COOKIE_BYTES = 8 * 1024
"""Cookies keep a session on one machine behind a balancer; more of them than that are not kept."""


class _FewCookies(DefaultCookiePolicy):
    def __init__(self, jar: CookieJar) -> None:
        super().__init__()
        self._jar = jar

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        kept = sum(len(one.name) + len(one.value or "") for one in self._jar if one.name != cookie.name)
        size = len(cookie.name) + len(cookie.value or "")
        return kept + size <= MOST_COOKIE_BYTES and super().set_ok(cookie, request)


@asynccontextmanager
async def open_client(
    spec: HttpServer, limits: Limits, hooks: Hooks, traffic: Traffic, on_secret: Callable[[str], None]
) -> AsyncIterator[tuple[httpx2.AsyncClient, HttpWire]]:
    """An httpx2 client whose every byte passes the guard; the legacy SSE transport uses it too."""
    pool = httpx2.Limits(
        max_connections=limits.max_concurrent_calls + SPARE_CONNECTIONS,
        max_keepalive_connections=limits.max_concurrent_calls,
    )
    inner = httpx2.AsyncHTTPTransport(verify=_ssl_context(spec), proxy=choose_proxy(spec), limits=pool)
    guard = Guard(
        inner,
        url=spec.url,
        headers=spec.headers,
        limits=limits,
        traffic=traffic,
        on_secret=on_secret,
        has_auth=spec.auth is not None,
    )
    async with httpx2.AsyncClient(
        transport=guard,
        auth=GuardedAuth(spec.auth) if spec.auth is not None else None,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        headers={"accept-encoding": "gzip, deflate"},
    ) as client:
        client.cookies.jar.set_policy(_FewCookies(client.cookies.jar))
        yield client, HttpWire(spec, client, guard, limits, hooks, traffic)


@asynccontextmanager
async def open_http(
    spec: HttpServer, limits: Limits, hooks: Hooks, *, on_secret: Callable[[str], None]
) -> AsyncIterator[HttpLink]:
    """A link over Streamable HTTP. Connects with its first request."""
    traffic = Traffic()
    async with open_client(spec, limits, hooks, traffic, on_secret) as (client, wire):
        yield HttpLink(spec, client, wire, hooks, traffic)


def choose_proxy(spec: HttpServer) -> str | None:
    """The proxy for this server: its own, else the environment's; localhost is never proxied."""
    if spec.proxy is not None:
        return spec.proxy

    url = httpx2.URL(spec.url)
    if url.host in ("localhost", "::1") or url.host.startswith("127.") or urllib.request.proxy_bypass(url.host):
        return None

    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


@functools.cache
def _default_ssl_context() -> ssl.SSLContext:
    # Loading the system's certificates takes tens of milliseconds: once, not once a server.
    return httpx2.create_ssl_context()


def _ssl_context(spec: HttpServer) -> ssl.SSLContext | bool:
    if spec.verify is True:
        return _default_ssl_context()

    if isinstance(spec.verify, str):
        try:
            return ssl.create_default_context(cafile=spec.verify)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"verify: the CA bundle {spec.verify} cannot be read: {error}", key="verify") from None

    return spec.verify  # type: ignore[no-any-return] # False or a context, checked by the spec
