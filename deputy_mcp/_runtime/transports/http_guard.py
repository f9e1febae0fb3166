"""An httpx2 transport that stands under the SDK's HTTP client and guards it.

What passes through it: the body of a request we encoded ourselves goes out byte for byte; a reply is read here, under
the message cap and after decompression, and kept in the `CallRecord` of the very request it answers, so that no body
can pass for another call's answer; the SDK gets a stand-in and goes on correlating. Header callables are asked for
each request to the server's own origin and once more after a 401. A connection failure becomes an answer (502), so
that it stays with the call it hit and never reaches the SDK's task group.

It is not a client: it knows nothing of sessions or eras.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import anyio
import attrs
import httpx2
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from deputy_mcp._core.config import HeaderValue, Limits
from deputy_mcp._core.messages import (
    Failure,
    Invalid,
    Message,
    Noise,
    Notification,
    Request,
    TooLarge,
    read_message,
)
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.decoding import BadEncodingError, BoundedBody, decoded
from deputy_mcp._runtime.transports.http_events import GuardedEvents, describe, stand_in_body
from deputy_mcp._runtime.transports.link import CallRecord, Hooks, Traffic
from deputy_mcp._runtime.transports.stream_dispatcher import CHANGES

CALL_HEADER = "x-deputy-call"
"""Private: names the record of a request between the dispatcher and the guard; taken off before sending."""

RAW = "deputy_raw"
"""Request extension: the body goes up as it comes, decoded; whoever asked frames and bounds it."""

EXCERPT_BYTES = 8 * 1024
"""How much of an error's body is kept for people."""

NOTIFICATION_SECONDS = 1.0
"""A notification's POST gets so long. The SDK sends them in line, so one unanswered would block every later call."""

COURTESY_SECONDS = 0.2
"""A cancellation's POST: calls that timed out together must not hold back the next for long."""

GET_BACKOFF_SECONDS = (1, 2, 4, 8, 16, 30)
"""Waits before the server's own stream is opened again. The SDK gives up for ever after two failures."""

EXPLANATION_SECONDS = 1.0
"""The body of an error status may take so long."""

SHORT_SECONDS = 5.0
"""The server's own stream is opened again later and later when it ends sooner than this."""

NO_STREAM = frozenset({404, 405, 406, 501})
"""Statuses by which a server says that it has no stream of its own."""


class UnsendableError(httpx2.TransportError):
    """The request could not be made, for a reason of the host's own; the server has no part in it."""


@attrs.define
class GuardBooks:
    """What the guard shares with its dispatcher: the records of requests in flight, by their header's value."""

    records: dict[str, CallRecord] = attrs.field(factory=dict)
    session_headers: dict[str, str] = attrs.field(factory=dict)
    """The session id the server gave and the version it is used under, as headers; empty without a session."""


class Guard(httpx2.AsyncBaseTransport):
    """See the module. One per HTTP link."""

    # Mutable state: the shared books; whether the server was found to have no stream of its own.
    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        *,
        url: str,
        headers: Mapping[str, HeaderValue],
        limits: Limits,
        hooks: Hooks,
        traffic: Traffic,
        books: GuardBooks,
        on_secret: Callable[[str], None],
        has_auth: bool,
    ) -> None:
        self._inner = inner
        self._has_auth = has_auth
        self._origin = _origin(httpx2.URL(url))
        self._headers = headers
        self._limits = limits
        self._hooks = hooks
        self._traffic = traffic
        self._books = books
        self._on_secret = on_secret
        self._no_stream = False
        self._own_event_id = ""
        self._own_opened = -math.inf
        self._short = 0
        self._unframed = False
        self.replies = RepeatedReplies(limits.max_message_values, limits.max_message_bytes, hashed=hooks.hash_replies)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        key = request.headers.get(CALL_HEADER)
        record = self._books.records.get(key or "")
        if key is not None and (record is None or record.abandoned):
            # Its caller gave up while an auth flow held it back, and was told that it was not sent.
            return _stand_in(request, 502)

        # A copy: an auth flow and a redirect send the same request again, and it must still name its record then.
        request = _outgoing(request, record)
        if record is not None:
            return await self._call(request, record)

        if request.extensions.get(RAW):
            return self._bounded(await self._send(request), most=None)

        if request.method == "POST" and b'"jsonrpc"' in request.content[:64]:
            return await self._notify(request)

        if request.method == "GET" and "text/event-stream" in request.headers.get("accept", ""):
            return await self._listen(request)

        # The session's DELETE, and an auth flow's own requests.
        try:
            return self._bounded(await self._send(request))
        except httpx2.TransportError:
            # Into the flow's hands, which may know another way; an exception would pass it by and end the session.
            return _stand_in(request, 502)

    # -- requests that have a record -----------------------------------------------------------------------------

    async def _call(self, request: httpx2.Request, record: CallRecord) -> httpx2.Response:
        record.begin(session_bound="mcp-session-id" in request.headers)
        if record.session_bound and (version := request.headers.get("mcp-protocol-version")):
            self._books.session_headers["mcp-protocol-version"] = version

        with anyio.CancelScope() as scope:
            record.abort = scope.cancel
            try:
                record.sent = True
                response = await self._send(request)
                if response.status_code == 401 and self._has_callables:
                    await response.aclose()
                    response = await self._send(request)
            except UnsendableError as error:
                record.fault, record.detail, record.sent = "unsendable", str(error), False
                return _stand_in(request, 502)
            except httpx2.PoolTimeout:
                record.fault, record.detail, record.sent = "unsendable", "no connection was free in time", False
                return _stand_in(request, 502)
            except httpx2.TransportError as error:
                self._unframed = self._unframed or isinstance(error, httpx2.RemoteProtocolError)
                unreachable = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                record.fault = "unreachable" if unreachable else "dropped"
                record.sent = not unreachable
                record.detail = describe(error)
                return _stand_in(request, 502)

            if session_id := response.headers.get("mcp-session-id"):
                if not session_id.isascii():
                    record.fault, record.detail = "malformed", "its session id holds what no header may hold"
                    await response.aclose()
                    return _stand_in(request, 502)

                self._books.session_headers["mcp-session-id"] = session_id

            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.is_redirect or response.status_code == 202:
                # Whether to follow is the SDK's rule: within the origin, with the method kept. What it does not
                # follow, and a 202 to a request, it reports; nobody needs the body.
                record.status = response.status_code if response.is_redirect else None
                return self._bounded(response)

            if response.status_code >= 400:
                return await self._error(response, request, record)

            if kind == "application/json":
                return await self._json(response, request, record)

            if kind == "text/event-stream":
                stream = GuardedEvents(self, response, record, self._limits, self._traffic)
                return httpx2.Response(200, headers=_plain(response.headers), stream=stream, request=request)

            record.fault = "malformed"
            record.detail = (
                f"it answered with {clean_line(kind, 60) or 'no content type'} instead of JSON; "
                "is this the address of an MCP server?"
            )
            await response.aclose()
            return _stand_in(request, 502)

        # Only an abort gets here: nobody waits for the answer any more.
        return _stand_in(request, 502)

    async def _error(self, response: httpx2.Response, request: httpx2.Request, record: CallRecord) -> httpx2.Response:
        record.status = response.status_code
        record.sign_in_failed = self._has_auth and response.status_code in (401, 403)
        record.retry_after_seconds = _retry_after(response.headers.get("retry-after"))
        body = b""
        with anyio.move_on_after(EXPLANATION_SECONDS):
            # The status says enough; who explains it without end is not waited for.
            body, _ = await self._read(response, record, most=min(self._limits.max_message_bytes, 1024 * 1024))

        # With room for a secret across the end: it is masked before it is cut.
        record.excerpt = body[: EXCERPT_BYTES + 1024].decode("utf-8", "replace")
        for message in read_message(body, self._limits.max_message_values):
            if isinstance(message, Failure):
                record.answer = message

        # With its headers and body: an auth flow reads the challenge in them.
        headers = _plain(response.headers)
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def _json(self, response: httpx2.Response, request: httpx2.Request, record: CallRecord) -> httpx2.Response:
        limit = self._limits.max_message_bytes
        body, complete = await self._read(response, record, most=limit)
        if not complete and record.fault is None:
            record.fault = "too_large"
            record.detail = f"more than {limit} bytes"
        elif record.fault is None:
            record.reply_bytes = len(body)
            for message in self.replies.read(body.removeprefix(b"\xef\xbb\xbf")):
                self.file(message, record)

            if record.answer is None and record.fault is None:
                # Perhaps what came is the rest of an earlier response: this server cannot be trusted to frame.
                self._unframed = True
                record.fault = "malformed"
                record.detail = "its body holds no answer to this request"

        # With its headers: the session id is in them.
        return httpx2.Response(200, headers=_plain(response.headers), content=stand_in_body(record), request=request)

    async def _read(self, response: httpx2.Response, record: CallRecord, *, most: int) -> tuple[bytes, bool]:
        """The decoded body, and whether it is all of it; a failure on the way is put into the record."""
        body = bytearray()
        try:
            async for piece in decoded(response, self._traffic):
                body += piece
                if len(body) > most:
                    # Enough for an excerpt; a second copy of all of it helps nobody.
                    record.reply_bytes = len(body)
                    del body[min(most, 1024 * 1024) :]
                    return bytes(body), False
        except httpx2.TransportError as error:
            record.fault = "dropped"
            record.detail = describe(error)
        except BadEncodingError as error:
            record.fault = "malformed"
            record.detail = str(error)
        finally:
            await response.aclose()

        return bytes(body), True

    def file(self, message: Message, record: CallRecord) -> None:
        """Put a message that came as the reply to a request into its record."""
        if isinstance(message, Notification):
            self.take_notification(message)
            return

        if isinstance(message, Request | Noise):
            return

        if (
            record.answer is not None
            or record.fault is not None
            or (message.id is not None and message.id != record.id)
        ):
            # The first word counts.
            # It answers something else. What did not come as its own request's reply is nobody's answer.
            self._traffic.late += 1
            return

        if isinstance(message, TooLarge):
            record.fault, record.detail = "too_large", message.reason
        elif isinstance(message, Invalid):
            record.answer = message
            record.fault, record.detail = "malformed", message.reason
        else:
            record.answer = message
            record.reply_sha256 = message.sha256

    def note_event_id(self, event_id: str, record: CallRecord | None) -> None:
        """A stream may be resumed from here."""
        if record is not None:
            record.event_id = event_id
        else:
            self._own_event_id = event_id

    def note_noise(self, sample: str) -> None:
        """Something came that is no message."""
        self._hooks.on_noise(sample)

    def take_notification(self, message: Notification) -> bool:
        """Collapse what needs no task of its own; True when the SDK need not see it."""
        kind = CHANGES.get(message.method)
        if kind is not None:
            self._hooks.on_change(kind)  # type: ignore[arg-type] # the table's values are the literal's

        # Of the rest only what belongs to a `listen` stream and the withdrawal of a request have a reader; each would
        # start a task in the SDK.
        meta = (message.params or {}).get("_meta")
        listened = isinstance(meta, dict) and SUBSCRIPTION_ID_META_KEY in meta
        return not listened and message.method != "notifications/cancelled"

    # -- requests without ----------------------------------------------------------------------------------------

    async def _notify(self, request: httpx2.Request) -> httpx2.Response:
        courtesy = b'"notifications/cancelled"' in request.content[:200]
        with (
            anyio.move_on_after(COURTESY_SECONDS if courtesy else NOTIFICATION_SECONDS),
            contextlib.suppress(httpx2.TransportError),
        ):
            response = await self._send(request)
            if self._has_auth and response.status_code in (401, 403):
                # An auth flow reads the challenge in it, and sends the notification again.
                return self._bounded(response)

            await response.aclose()

        return _stand_in(request, 202)

    async def _listen(self, request: httpx2.Request) -> httpx2.Response:
        if self._no_stream:
            # The SDK asks twice; a server that said no need not be told so again.
            return _stand_in(request, 405)

        wanted = request.headers.get("last-event-id")
        resumes = next((one for one in self._books.records.values() if wanted and one.event_id == wanted), None)
        if wanted and resumes is None and wanted != self._own_event_id:
            # Whoever asked for that answer has gone.
            return _stand_in(request, 405)

        if resumes is None:
            now = anyio.current_time()
            self._short = self._short + 1 if now - self._own_opened < SHORT_SECONDS else 0
            if self._short:
                await anyio.sleep(GET_BACKOFF_SECONDS[min(self._short, len(GET_BACKOFF_SECONDS)) - 1])

            self._own_opened = anyio.current_time()

        for wait in (*GET_BACKOFF_SECONDS, None):
            try:
                response = await self._send(request)
            except httpx2.TransportError:
                if wait is None:
                    raise
            else:
                if response.status_code in NO_STREAM:
                    self._no_stream = True

                if response.status_code < 400:
                    stream = GuardedEvents(self, response, None, self._limits, self._traffic, resumes)
                    return httpx2.Response(200, headers=_plain(response.headers), stream=stream, request=request)

                if wait is None or response.status_code < 500:
                    return self._bounded(response)

                await response.aclose()

            await anyio.sleep(wait)

        raise AssertionError("unreachable")

    # -- the wire ------------------------------------------------------------------------------------------------

    @property
    def _has_callables(self) -> bool:
        return any(callable(value) for value in self._headers.values())

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        # OAuth discovery goes through the same client: the server's headers are for the server's origin only.
        if _origin(request.url) == self._origin:
            for name, value in self._headers.items():
                request.headers[name] = await self._resolve(name, value)

        if self._unframed:
            request.headers["connection"] = "close"

        self._traffic.bytes_out += int(request.headers.get("content-length", 0))
        response = await self._inner.handle_async_request(request)
        response.request = request
        return response

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

    def _bounded(self, response: httpx2.Response, *, most: int | None = 1024 * 1024) -> httpx2.Response:
        stream = BoundedBody(decoded(response, self._traffic), response, most)
        return httpx2.Response(
            response.status_code, headers=_plain(response.headers), stream=stream, request=response.request
        )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _outgoing(request: httpx2.Request, record: CallRecord | None) -> httpx2.Request:
    headers = [*_without(request.headers, _OURS), (b"Accept-Encoding", b"gzip, deflate")]
    body = request.content if record is None or record.body is None else record.body
    if request.method == "POST":
        headers.append((b"Content-Length", b"%d" % len(body)))

    return httpx2.Request(
        request.method, request.url, headers=headers, content=body, extensions=dict(request.extensions)
    )


def _stand_in(request: httpx2.Request, status: int) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "text/plain"}, content=b"", request=request)


_OURS = frozenset({CALL_HEADER.lower().encode(), b"accept-encoding", b"content-length"})
_OF_THE_BODY = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


def _plain(headers: httpx2.Headers) -> httpx2.Headers:
    return httpx2.Headers(_without(headers, _OF_THE_BODY))


def _without(headers: httpx2.Headers, names: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """In one pass: each change of a header walks through all of them."""
    return [(name, value) for name, value in headers.raw if name.lower() not in names]


def _retry_after(value: str | None) -> float | None:
    """RFC 9110 section 10.2.3: seconds or a date."""
    if value is None:
        return None

    try:
        seconds = float(value)
    except ValueError:
        return _until(value)

    return seconds if 0 <= seconds < 1e9 else None


def _until(value: str) -> float | None:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())

    return None
