"""Requests over one HTTP link: each is sent in its caller's own task, and what becomes of it is put into its record.

A reply is read under the message cap, after decompression, and belongs to the very request it answers, so that no body
can pass for another call's answer. A redirect is followed within the origin and with the method kept; an event stream
that ends without an answer is resumed where the server gave a place to resume at. Nothing here raises for what a
server does: the record says it.

It knows nothing of sessions or eras: headers come from the dispatcher, and messages go to its `Inbox`.
"""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import anyio
import httpx2

from deputy_mcp._core.config import HttpServer, Limits
from deputy_mcp._core.errors import StartError
from deputy_mcp._core.messages import Failure, read_message
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.decoding import BadEncodingError, pieces_of
from deputy_mcp._runtime.transports.http_events import EventReader, Inbox, Place
from deputy_mcp._runtime.transports.http_guard import (
    MOST_UNREAD_BYTES,
    RAW,
    RECORD,
    Guard,
    UnsendableError,
    describe,
    origin_of,
)
from deputy_mcp._runtime.transports.link import CallRecord, Hooks, Traffic

EVENTS = "text/event-stream"
GET_HEADERS = {"accept": EVENTS, "cache-control": "no-store"}

MOST_REDIRECTS = 20

EXCERPT_BYTES = 8 * 1024
"""How much of an error's body is kept for people."""

EXPLANATION_SECONDS = 1.0
"""The body of an error status may take so long."""

BACKOFF_SECONDS = (1, 2, 4, 8, 16, 30)
"""Waits before a stream is asked for again."""

NO_STREAM = frozenset({404, 405, 406, 501})
"""Statuses by which a server says that it has no stream of its own."""

SHORT_SECONDS = 5.0
"""The server's own stream is opened again later and later when it ends sooner than this."""


class HttpWire:
    """See the module. One per HTTP link."""

    # Mutable state: whether the server was found to have no stream of its own.
    def __init__(
        self,
        spec: HttpServer,
        client: httpx2.AsyncClient,
        guard: Guard,
        limits: Limits,
        hooks: Hooks,
        traffic: Traffic,
    ) -> None:
        self._url = httpx2.URL(spec.url)
        self.has_auth = spec.auth is not None
        self._client = client
        self._guard = guard
        self._limits = limits
        self._traffic = traffic
        self._no_stream = False
        self._replies = RepeatedReplies(limits.max_message_values, limits.max_message_bytes, hashed=hooks.hash_replies)

    # -- sending -------------------------------------------------------------------------------------------------

    async def post(
        self, record: CallRecord, body: bytes, headers: Mapping[str, str], *, url: httpx2.URL | None = None
    ) -> httpx2.Response | None:
        """Send a message; the head of the response, which the caller closes, or None: the record says why."""
        try:
            return await self._open("POST", headers, {RECORD: record}, body, url or self._url)
        except UnsendableError as error:
            record.fault, record.detail, record.sent = "unsendable", str(error), False
        except httpx2.PoolTimeout:
            record.fault, record.detail, record.sent = "unsendable", "no connection was free in time", False
        except httpx2.TransportError as error:
            if isinstance(error, httpx2.RemoteProtocolError):
                self._guard.unframed = True

            unreachable = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            record.fault = "unreachable" if unreachable else "dropped"
            record.sent = not unreachable
            record.detail = describe(error)

        return None

    async def _open(
        self, method: str, headers: Mapping[str, str], extensions: dict[str, Any], body: bytes | None, url: httpx2.URL
    ) -> httpx2.Response:
        for count in range(MOST_REDIRECTS + 1):
            request = self._client.build_request(
                method, url, content=body, headers=headers, extensions=dict(extensions)
            )
            response = await self._client.send(request, stream=True, follow_redirects=False)
            target = _followed(response) if count < MOST_REDIRECTS else None
            if target is None:
                break

            try:
                # To its end, so that its connection can be used again.
                await response.aread()
            finally:
                await response.aclose()

            url = target

        return response

    # -- replies -------------------------------------------------------------------------------------------------

    async def receive(
        self, response: httpx2.Response, record: CallRecord, headers: Mapping[str, str], inbox: Inbox
    ) -> None:
        """Read the reply to a request into its record, and close the response. `headers`: to resume its stream with."""
        try:
            kind = _kind(response)
            if response.is_redirect:
                record.status, record.detail = response.status_code, _unfollowed(response)
            elif response.status_code >= 400:
                await self.take_status(response, record)
            elif response.status_code == 202:
                record.fault, record.detail = "malformed", "it accepted the request (HTTP status 202) without an answer"
            elif kind == "application/json":
                await self._take_json(response, record, inbox)
            elif kind == EVENTS:
                place = Place()
                await EventReader(inbox, self._replies, self._limits, place, record).read(response)
                await response.aclose()
                await self._resume(record, place, headers, inbox)
            else:
                record.fault = "malformed"
                record.detail = (
                    f"it answered with {clean_line(kind, 60) or 'no content type'} instead of JSON; "
                    "is this the address of an MCP server?"
                )
        finally:
            await response.aclose()

    async def take_status(self, response: httpx2.Response, record: CallRecord) -> None:
        """Put an error status, and how it is explained, into the record."""
        record.status = response.status_code
        record.sign_in_failed = self.has_auth and response.status_code in (401, 403)
        record.retry_after_seconds = _retry_after(response.headers.get("retry-after"))
        body = b""
        with anyio.move_on_after(EXPLANATION_SECONDS):
            # The status says enough; who explains it without end is not waited for.
            body, _ = await self._read(response, record, most=min(self._limits.max_message_bytes, MOST_UNREAD_BYTES))

        # With room for a secret across the end: it is masked before it is cut.
        record.excerpt = body[: EXCERPT_BYTES + 1024].decode("utf-8", "replace")
        for message in read_message(body, self._limits.max_message_values):
            if isinstance(message, Failure):
                record.answer = message

    async def _take_json(self, response: httpx2.Response, record: CallRecord, inbox: Inbox) -> None:
        limit = self._limits.max_message_bytes
        body, complete = await self._read(response, record, most=limit)
        if record.fault is not None:
            return

        if not complete:
            record.fault = "too_large"
            record.detail = f"more than {limit} bytes"
            return

        record.reply_bytes = len(body)
        for message in self._replies.read(body.removeprefix(b"\xef\xbb\xbf")):
            inbox.file(message, record)

        if record.answer is None and record.fault is None:
            # Perhaps what came is the rest of an earlier response: this server cannot be trusted to frame.
            self._guard.unframed = True
            record.fault = "malformed"
            record.detail = "its body holds no answer to this request"

    async def _read(self, response: httpx2.Response, record: CallRecord, *, most: int) -> tuple[bytes, bool]:
        """The decoded body, and whether it is all of it; a failure on the way is put into the record."""
        body = bytearray()
        try:
            async for piece in pieces_of(response):
                body += piece
                if len(body) > most:
                    # Enough for an excerpt; a second copy of all of it helps nobody.
                    record.reply_bytes = len(body)
                    del body[min(most, MOST_UNREAD_BYTES) :]
                    return bytes(body), False
        except BadEncodingError as error:
            record.fault = "malformed"
            record.detail = str(error)
        except httpx2.TransportError as error:
            record.fault = "dropped"
            record.detail = describe(error)

        return bytes(body), True

    # -- streams -------------------------------------------------------------------------------------------------

    async def _resume(self, record: CallRecord, place: Place, headers: Mapping[str, str], inbox: Inbox) -> None:
        """The rest of a reply whose stream ended early, as long as the server lets it be resumed."""
        failures = 0
        while record.answer is None and record.fault in (None, "dropped") and place.event_id:
            await anyio.sleep(_wait(place, failures))
            found = await self._ask_stream(headers, place, inbox, record)
            failures = 0 if found else failures + 1
            if found is None or failures > len(BACKOFF_SECONDS):
                break

        if record.answer is None and record.fault is None:
            record.fault, record.detail = "malformed", "its event stream ended without an answer"

    async def run_own_stream(self, headers: Mapping[str, str], inbox: Inbox) -> None:
        """Read what the server says outside of any reply; ends when it says that there is no such stream."""
        place = Place()
        failures = 0
        while not self._no_stream:
            opened = anyio.current_time()
            found = await self._ask_stream(headers, place, inbox, None)
            if found is None:
                return

            lasting = found and anyio.current_time() - opened > SHORT_SECONDS
            failures = 0 if lasting else min(failures + 1, len(BACKOFF_SECONDS))
            await anyio.sleep(_wait(place, failures))

    async def _ask_stream(
        self, headers: Mapping[str, str], place: Place, inbox: Inbox, record: CallRecord | None
    ) -> bool | None:
        """Ask for a stream, from `place` on, and read it. False: it may be had later; None: it is not to be had."""
        asking = {**headers, **GET_HEADERS}
        if place.event_id:
            asking["last-event-id"] = place.event_id

        try:
            extensions = {RAW: True} if record is None else {RECORD: record}
            response = await self._open("GET", asking, extensions, None, self._url)
        except StartError:
            return None  # asked again, a sign-in that was refused would ask a person for ever
        except httpx2.TransportError:
            return None if record is not None and record.sign_in_failed else False

        try:
            status = response.status_code
            if status in NO_STREAM:
                self._no_stream = self._no_stream or record is None
                return None

            if status >= 500 or status == 429:
                return False

            if status >= 300 or _kind(response) != EVENTS:
                return None

            if record is not None:
                record.fault, record.detail = None, ""

            await EventReader(inbox, self._replies, self._limits, place, record).read(response)
            return True
        finally:
            await response.aclose()


def _wait(place: Place, failures: int) -> float:
    return max(place.retry_seconds, BACKOFF_SECONDS[failures - 1]) if failures else place.retry_seconds


def _kind(response: httpx2.Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def _followed(response: httpx2.Response) -> httpx2.URL | None:
    """Where a redirect leads, if it may be followed: within the origin (or to its https), and with the method kept."""
    following = response.next_request
    if following is None or following.method != response.request.method:
        return None

    sent, target = response.request.url, following.url
    if target.userinfo and target.userinfo != sent.userinfo:
        return None

    upgraded = (
        (sent.scheme, sent.port) == ("http", None)
        and (target.scheme, target.port) == ("https", None)
        and sent.host == target.host
    )
    return target if upgraded or origin_of(sent) == origin_of(target) else None


def _unfollowed(response: httpx2.Response) -> str:
    if response.next_request is None:
        return f"HTTP status {response.status_code}"

    # Without what may carry a secret.
    target = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
    if response.request.url.scheme == "https" and target.scheme == "http":
        return (
            f"its redirect to {target} was not followed, for it leads from https to http; "
            "perhaps it stands behind a proxy whose forwarded headers it does not trust"
        )

    return f"its redirect to {target} was not followed; use that address if it is the intended server"


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
