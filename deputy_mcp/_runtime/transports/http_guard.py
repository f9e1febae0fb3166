"""An httpx2 transport under the HTTP client, through which every request of a server passes, an auth flow's too.

It adds the server's headers, for the server's own origin only: callables are asked for each request and once more
after a 401. Right before the first byte of a request that has a record it asks for the record's last word. Responses
come up decoded, and those that an auth flow may read have an end.

It is not a client, and reads no messages: see `http_wire`.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import httpx2

from deputy_mcp._core.config import HeaderValue, Limits
from deputy_mcp._core.errors import StartError
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.decoding import Body
from deputy_mcp._runtime.transports.link import SIGN_IN_FAILED, CallRecord, Traffic

RECORD = "deputy_record"
"""Request extension: the record of the request; its response is read and bounded by who asked."""

RAW = "deputy_raw"
"""Request extension: it has no record, and its response is read and bounded by who asked all the same."""

_BODY = "deputy_body"
"""Response extension: the body, whose bound ends when the auth flow is done with it."""

_FIRST_BYTE = "http11.send_request_headers.started"
"""The event of httpx2's `trace` extension right before the head of a request is written."""

MOST_UNREAD_BYTES = 1024 * 1024
"""Of a body that is no answer."""


class UnsendableError(httpx2.TransportError):
    """The request could not be made, for a reason of the host's own; the server has no part in it."""


class Guard(httpx2.AsyncBaseTransport):
    """See the module. One per HTTP link."""

    # Mutable state: `unframed`, once the server was seen to frame wrongly: then no connection is used twice; whether
    # first bytes are told of at all.
    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        *,
        url: str,
        headers: Mapping[str, HeaderValue],
        limits: Limits,
        traffic: Traffic,
        on_secret: Callable[[str], None],
        has_auth: bool,
    ) -> None:
        self._inner = inner
        self._origin = origin_of(httpx2.URL(url))
        self._headers = headers
        self._has_callables = any(callable(value) for value in headers.values())
        self._most_seen_by_auth = limits.max_message_bytes if has_auth else None
        self._traffic = traffic
        self._on_secret = on_secret
        self.unframed = self._told = False

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        record: CallRecord | None = request.extensions.get(RECORD)
        if record is None and RAW not in request.extensions:
            # The session's DELETE, and an auth flow's own requests.
            request.headers["accept-encoding"] = "gzip, deflate"
            try:
                response = await self._send(request, None)
            except httpx2.TransportError:
                # Into the flow's hands, which may know another way; an exception would pass it by.
                return httpx2.Response(502, request=request)

            response.stream = Body(response, self._traffic, MOST_UNREAD_BYTES)
            return response

        response = await self._send(request, record)
        if response.status_code == 401 and self._has_callables:
            await response.aclose()
            response = await self._send(request, record)

        most = MOST_UNREAD_BYTES if response.status_code >= 300 else self._most_seen_by_auth
        body = response.stream = Body(response, self._traffic, most)
        if most is not None:
            response.extensions[_BODY] = body

        return response

    async def _send(self, request: httpx2.Request, record: CallRecord | None) -> httpx2.Response:
        # OAuth discovery goes through the same client: the server's headers are for the server's origin only.
        if self._headers and origin_of(request.url) == self._origin:
            for name, value in self._headers.items():
                request.headers[name] = await self._resolve(name, value)

        if self.unframed:
            request.headers["connection"] = "close"

        if record is not None and not record.sent:
            request.extensions["trace"] = self._trace(record)
            if not self._told:
                _leave(record)

        self._traffic.bytes_out += int(request.headers.get("content-length", 0))
        return await self._inner.handle_async_request(request)

    def _trace(self, record: CallRecord) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
        """Lets the record's request leave when its connection stands, and not before.

        Until one request on this link was told of so, each counts as leaving when it is handed on: an httpx2 with
        other names for its events must not make what was sent look unsent.
        """

        async def trace(event: str, facts: Mapping[str, Any]) -> None:
            # A proxy is asked for a tunnel under the same extensions.
            if event == _FIRST_BYTE and facts["request"].method != b"CONNECT":
                self._told = True
                _leave(record)

        return trace

    async def _resolve(self, name: str, value: HeaderValue) -> str:
        if isinstance(value, str):
            return value

        try:
            text = value()
            if inspect.isawaitable(text):
                text = await text
        except Exception as error:  # the host's own callable; its failure is this request's
            raise UnsendableError(f"the callable for the header {name} failed: {type(error).__name__}") from error

        if type(text) is not str or "\r" in text or "\n" in text:
            raise UnsendableError(f"the callable for the header {name} did not give a one-line string")

        self._on_secret(text)
        return text


class GuardedAuth(httpx2.Auth):
    """The host's auth, whose failure is that of the one request which needed it.

    A connection that failed, or an authorization server in trouble, may be better the next time; any other failure is
    a refusal (a person said no, a token was not renewed), which is not tried again by itself.
    """

    def __init__(self, inner: httpx2.Auth) -> None:
        self._inner = inner

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        # Without one it is a stream that was asked for.
        record: CallRecord = request.extensions.get(RECORD) or CallRecord()
        flow = self._inner.async_auth_flow(request)
        response: httpx2.Response | None = None
        record.signing_in = True
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is request and record.abandoned:
                    raise UnsendableError("its caller gave up before it was sent")

                record.signing_in = outgoing is not request
                response = yield outgoing
                record.signing_in = True
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            if response is not None and response.status_code < 300 and _BODY in response.extensions:
                response.extensions[_BODY].most = None
        except Exception as error:  # the host's own code
            status = 0 if response is None else response.status_code
            refused = not isinstance(error, httpx2.TransportError | OSError) and status < 500 and status != 429
            if RECORD in request.extensions:
                record.sign_in_failed = refused
                raise UnsendableError(describe(error)) from error

            if refused:
                raise StartError(f"its sign-in failed: {describe(error)}", code=SIGN_IN_FAILED) from error

            raise
        finally:
            record.signing_in = False
            await flow.aclose()


def _leave(record: CallRecord) -> None:
    if not record.sent:
        if record.last_word is not None:
            record.last_word()

        record.sent = True


def origin_of(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Scheme, host and port; httpx2 knows a scheme's default port as None."""
    return url.scheme, url.host, url.port


def describe(error: Exception) -> str:
    """A transport error on one clean line."""
    return clean_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
