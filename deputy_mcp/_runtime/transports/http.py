"""Streamable HTTP: the SDK's client over our guard, under a dispatcher that knows what really happened.

One link is one `AsyncClient`; each session over it is a new SDK transport and a new dispatcher, because a session
that the server forgot cannot be initialised again.
"""

import functools
import json
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any, cast

import anyio
import anyio.abc
import httpx2
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.inbound import MCP_METHOD_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from deputy_mcp._core.config import HttpServer, Limits
from deputy_mcp._core.errors import ConfigError, StartError
from deputy_mcp._core.messages import Failure, MessageId, Reply
from deputy_mcp._runtime.transports.http_events import describe
from deputy_mcp._runtime.transports.http_guard import CALL_HEADER, Guard, GuardBooks
from deputy_mcp._runtime.transports.link import (
    SIGN_IN_FAILED,
    CallRecord,
    Hooks,
    LinkError,
    Loss,
    LossSignal,
    Reports,
    SignInError,
    Traffic,
)

CONNECT_SECONDS = 30
"""For connecting, writing and getting a connection from the pool; reading is bounded by each call's deadline."""

SPARE_CONNECTIONS = 16
"""Beside one for each concurrent call: listings, notifications, the server's own stream."""


SESSION_STATUSES = frozenset({None, 400, 410})
"""Under these an error without id speaks of the session or the request; under others the status says it better."""

MOST_COURTESIES = 4
"""Cancellations on their way at once: the SDK sends them one after the other, and each could wait."""

GOODBYE_SECONDS = 1.0
"""Ending a session politely may take so long."""

CLOSED = "Connection closed"
"""The SDK's own text when its dispatcher ends under a request; a server's text would be in the record."""


class HttpLink:
    """See the module. Made and ended by `open_http`."""

    has_headers = True
    pid = None
    exit_code = None
    stderr_tail = ""

    def __init__(self, spec: HttpServer, client: httpx2.AsyncClient, books: GuardBooks, traffic: Traffic) -> None:
        self.traffic = traffic
        self._spec = spec
        self._client = client
        self._books = books
        self._lost = LossSignal()

    @asynccontextmanager
    async def open_dispatcher(self) -> AsyncIterator["HttpDispatcher"]:
        async with streamable_http_client(
            self._spec.url,
            http_client=self._client,
            terminate_on_close=False,  # the SDK's is unbounded, and skipped when the session is cancelled
            max_sse_event_size=None,  # the guard's cap is the one that counts, the same for every transport
        ) as streams:
            read, write = cast("Any", streams)  # anyio's own, though the SDK declares less of them
            # The dispatcher closes what it is given. An answer that comes after its end, to a call of a session that
            # was just forgotten, must still find its stream open: a closed one ends the SDK's task group, and with it
            # this server's life.
            async with read.clone() as own_read, write.clone() as own_write:
                dispatcher = HttpDispatcher(JSONRPCDispatcher(own_read, own_write), self._books)
                try:
                    yield dispatcher
                finally:
                    await self._end_session(dispatcher)

    async def _end_session(self, dispatcher: "HttpDispatcher") -> None:
        """Tell the server that its session is over; it may have gone, or not care."""
        headers = dict(self._books.session_headers)
        self._books.session_headers.clear()
        if "mcp-session-id" not in headers or dispatcher.forgotten:
            return

        with anyio.move_on_after(GOODBYE_SECONDS, shield=True), suppress(Exception):  # the host's auth may fail here
            await self._client.delete(self._spec.url, headers=headers)

    def lose(self, code: str, detail: str) -> None:
        self._lost.tell(code, detail)

    def kill_now(self) -> None:
        """The server is not ours to kill; its connections end with the client."""

    async def wait_lost(self) -> Loss:
        return await self._lost.wait()


class HttpDispatcher:
    """The SDK's dispatcher, with ids of our own, the record of each request, and errors that say what happened."""

    keeps_deadlines = False

    # Mutable state: the next id; the task group in which courtesy cancellations are sent.
    def __init__(self, inner: JSONRPCDispatcher, books: GuardBooks) -> None:
        self._inner = inner
        self._books = books
        self._next_id = 0
        self._tasks: anyio.abc.TaskGroup | None = None
        self._courtesies = 0
        self.forgotten = False

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
        **later: Any,
    ) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await self._inner.run(on_request, on_notify, on_notify_intercept, task_status=task_status, **later)
                tasks.cancel_scope.cancel()
        finally:
            self._tasks = None

    def mint_id(self) -> MessageId:
        self._next_id += 1
        return self._next_id

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **later: Any
    ) -> None:
        await self._inner.notify(method, params, opts, **later)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **later: Any
    ) -> dict[str, Any]:
        options: dict[str, Any] = dict(opts or {})
        record: CallRecord = options.pop("record", None) or CallRecord()
        if record.last_word is not None:
            record.last_word()

        params_json: bytes | None = options.pop("params_json", None)
        # The start deadline is the negotiation's own timeout.
        options.pop("timeout", None)
        record.id = options.setdefault("request_id", self.mint_id())
        if params_json is not None:
            record.body = _body(record.id, method, params_json)

        key = f"{id(self)}-{record.id}"
        # The hedged `initialize` goes to modern servers too, which want to see every method in a header.
        options["headers"] = {MCP_METHOD_HEADER: method, **options.get("headers", {}), CALL_HEADER: key}
        courtesy = options.pop("cancel_on_abandon", True)
        # The SDK would hold the caller, shielded, until its courtesy was written.
        options["cancel_on_abandon"] = False
        on_progress: ProgressFnT | None = options.pop("on_progress", None)
        self._books.records[key] = record
        answered = False
        try:
            if on_progress is None:
                result = await self._inner.send_raw_request(method, params, options, **later)  # type: ignore[arg-type] # a CallOptions by construction
            else:
                result = await self._send_reporting(method, params, options, record, on_progress)

            answered = True
        except MCPError as error:
            answered = True
            return self._outcome(record, error)
        finally:
            del self._books.records[key]
            if not answered:
                self._give_up(record, courtesy=courtesy)

        if record.answer is None and record.fault is None:
            return result  # it came over a resumed stream, which the SDK correlates

        return self._outcome(record, None)

    def _outcome(self, record: CallRecord, error: MCPError | None) -> dict[str, Any]:
        """The result, or the error that fits what the guard saw. The record knows more than the SDK's error."""
        answer = record.answer
        if record.sign_in_failed:
            raise SignInError(record.fault or "http", record.detail or f"HTTP status {record.status}") from None

        if record.session_bound and _forgets(record):
            self.forgotten = True
            raise LinkError("forgotten", record.detail or "the server forgot the session") from None

        if record.fault is not None:
            raise LinkError(record.fault, record.detail, seen_bytes=record.reply_bytes) from None

        if isinstance(answer, Reply):
            return answer.result

        if isinstance(answer, Failure) and (answer.id is not None or record.status in SESSION_STATUSES):
            raise MCPError(answer.code, answer.text, answer.details) from None

        if record.status is not None:
            # Below 400 it is a redirect that was not followed, of which the SDK says why.
            said = error.message if error is not None and record.status < 400 else f"HTTP status {record.status}"
            raise LinkError("http", said) from None

        assert error is not None
        if error.message == CLOSED:
            raise LinkError("forgotten" if self.forgotten else "lost", "the session ended") from None

        raise LinkError("malformed" if record.sent else "unreachable", error.message) from None

    async def _send_reporting(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        options: dict[str, Any],
        record: CallRecord,
        on_progress: ProgressFnT,
    ) -> dict[str, Any]:
        """Send, and give progress to the callback in the caller's own task, one report at a time."""
        outcome: list[dict[str, Any] | MCPError] = []
        reports = record.reports = Reports()

        async def send() -> None:
            try:
                outcome.append(await self._inner.send_raw_request(method, params, options))  # type: ignore[arg-type] # a CallOptions by construction
            except MCPError as error:
                outcome.append(error)

            reports.end()

        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            try:
                await reports.tell(on_progress)
            except Exception as error:  # noqa: BLE001 # the host's own callback: raised below, outside the group
                failure = error
                tasks.cancel_scope.cancel()

        if failure is not None:
            raise failure

        answer = outcome[0]
        if isinstance(answer, MCPError):
            raise answer

        return answer

    def _give_up(self, record: CallRecord, *, courtesy: bool) -> None:
        """Synchronous, from a caller who is leaving: what has not gone out must not, the rest is told and dropped."""
        record.abandoned = True
        if self._tasks is not None and courtesy and self._courtesies < MOST_COURTESIES:
            self._courtesies += 1
            self._tasks.start_soon(self._abandon, record)
        elif record.abort is not None:
            record.abort()

    async def _abandon(self, record: CallRecord) -> None:
        """Tell the server, then stop reading; in the modern era the SDK takes the first for the second."""
        await self._inner.notify("notifications/cancelled", {"requestId": record.id, "reason": "the caller gave up"})
        self._courtesies -= 1
        if record.abort is not None:
            record.abort()


class GuardedAuth(httpx2.Auth):
    """The host's auth, whose failure is that of the one request which needed it: the SDK would end the session.

    A connection that failed, or an authorization server in trouble, may be better the next time; any other failure is
    a refusal (a person said no, a token was not renewed), which is not tried again by itself.
    """

    def __init__(self, inner: httpx2.Auth, books: GuardBooks) -> None:
        self._inner = inner
        self._books = books

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        record = self._books.records.get(request.headers.get(CALL_HEADER, ""))
        flow = self._inner.async_auth_flow(request)
        status = 0
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                status = response.status_code
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except Exception as error:  # the host's own code
            refused = not isinstance(error, httpx2.TransportError | OSError) and status < 500 and status != 429
            if record is None and refused:
                raise StartError(f"its sign-in failed: {describe(error)}", code=SIGN_IN_FAILED) from error

            if record is None:
                raise

            record.fault, record.detail, record.sent = "unsendable", describe(error), False
            record.sign_in_failed = refused
            record.abandoned = True  # the guard answers for it
            yield request
        finally:
            await flow.aclose()


def _forgets(record: CallRecord) -> bool:
    """Whether this reply to a request with a session id says that the session is forgotten.

    A 404 by the specification; servers also answer with an error whose id is null, or with nothing that is JSON-RPC.
    Never a tool's own error text.
    """
    if record.status == 404:
        return True

    if record.status not in SESSION_STATUSES:
        return False

    if isinstance(record.answer, Failure):
        return record.answer.id is None

    return record.answer is None and record.fault in (None, "malformed")


def _body(wire_id: MessageId, method: str, params_json: bytes) -> bytes:
    head = f'{{"jsonrpc":"2.0","id":{json.dumps(wire_id)},"method":{json.dumps(method)},"params":'
    return head.encode() + params_json + b"}"


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
) -> AsyncIterator[tuple[httpx2.AsyncClient, GuardBooks]]:
    """An httpx2 client whose every byte passes the guard; the legacy SSE transport uses it too."""
    books = GuardBooks()
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
        hooks=hooks,
        traffic=traffic,
        books=books,
        on_secret=on_secret,
        has_auth=spec.auth is not None,
    )
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
    auth = GuardedAuth(spec.auth, books) if spec.auth is not None else None
    async with httpx2.AsyncClient(transport=guard, auth=auth, timeout=timeout) as client:
        client.cookies.jar.set_policy(_FewCookies(client.cookies.jar))
        yield client, books


@asynccontextmanager
async def open_http(
    spec: HttpServer, limits: Limits, hooks: Hooks, *, on_secret: Callable[[str], None]
) -> AsyncIterator[HttpLink]:
    """A link over Streamable HTTP. Connects with its first request."""
    traffic = Traffic()
    async with open_client(spec, limits, hooks, traffic, on_secret) as (client, books):
        yield HttpLink(spec, client, books, traffic)


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
