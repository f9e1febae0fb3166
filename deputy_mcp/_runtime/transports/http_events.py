"""An event stream over HTTP, event by event: the answer goes into the record of its request, the rest to the session.

One reader reads one response. What outlives it, so that a stream may be resumed, is its `Place`.
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Protocol

import anyio
import attrs
import httpx2

from deputy_mcp._core.config import Limits
from deputy_mcp._core.events import Event, EventFramer
from deputy_mcp._core.framing import Oversized
from deputy_mcp._core.messages import Message, Noise, Notification, Request, plain_id
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._runtime.transports.answering import MOST_REQUESTS
from deputy_mcp._runtime.transports.decoding import BadEncodingError, pieces_of
from deputy_mcp._runtime.transports.dispatching import FLOOD_PAUSE_SECONDS, MESSAGES_PER_TURN
from deputy_mcp._runtime.transports.http_guard import describe
from deputy_mcp._runtime.transports.link import CallRecord

USUAL_RETRY_SECONDS = 1.0
SHORTEST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 30.0
"""What a server may say about when to resume: sooner would flood it, later is not worth a waiting task."""

DRAIN_SECONDS = 0.02
"""After the answer an event stream may end by itself for so long; else its connection is not used again."""


class Inbox(Protocol):
    """What a session takes of what comes; nothing here may block."""

    def file(self, message: Message, record: CallRecord) -> None:
        """What came as the reply to a request."""

    def take_notification(self, message: Notification) -> None:
        """A notification but progress."""

    def take_request(self, message: Request) -> None:
        """A request of the server's own."""

    def note_noise(self, sample: str) -> None:
        """Something came that is no message."""


@attrs.define
class Place:
    """Where a stream may be resumed, and when; `event_id` is empty where it may not."""

    event_id: str = ""
    retry_seconds: float = USUAL_RETRY_SECONDS
    resumable: bool = True
    requests: int = 0
    """How many requests of the server came on it (on its own stream in this second)."""
    second: int = 0

    def note(self, raw: bytes) -> None:
        """Remember what an event says of it."""
        lines = [line.partition(b":") for line in raw.split(b"\n") if line.startswith((b"id", b"retry"))]
        for field, _, value in lines:
            text = value.strip()
            if field == b"retry" and text.isdigit():
                seconds = int(text[:9]) / 1000
                self.retry_seconds = max(seconds, SHORTEST_RETRY_SECONDS)
                if len(text) > 9 or seconds > LONGEST_RETRY_SECONDS:
                    self.resumable, self.event_id, self.retry_seconds = False, "", USUAL_RETRY_SECONDS

        for field, _, value in lines:
            shown = value.strip().decode("ascii", "replace")
            # It goes back in a header; what no header holds is no place to come back to.
            if field == b"id" and self.resumable and shown.isascii() and shown.isprintable():
                self.event_id = shown or self.event_id


class EventReader:
    """See the module. `record` None: the server's own stream, which answers nothing."""

    # Mutable state: whether the answer came, whether nothing more is wanted, and how many events came.
    def __init__(
        self, inbox: Inbox, replies: RepeatedReplies, limits: Limits, place: Place, record: CallRecord | None
    ) -> None:
        self._inbox = inbox
        self._replies = replies
        self._limits = limits
        self._place = place
        self._record = record
        self._answered = self._done = False
        self._events = 0

    async def read(self, response: httpx2.Response) -> None:
        """Read until the answer, or the end. Raises nothing; closing the response is the caller's."""
        pieces = pieces_of(response)
        try:
            await self._read(pieces)
            if self._answered:
                # Most servers end the stream right after the answer. Reading that end keeps the TCP connection;
                # without it each answer would cost a new one.
                with anyio.move_on_after(DRAIN_SECONDS, shield=True), suppress(httpx2.TransportError):
                    await anext(pieces, None)
        except BadEncodingError as error:
            if self._record is not None:
                self._record.fault, self._record.detail = "malformed", str(error)
        except httpx2.TransportError as error:
            if self._record is not None:
                self._record.fault, self._record.detail = "dropped", describe(error)
        finally:
            await pieces.aclose()

    async def _read(self, pieces: AsyncGenerator[bytes, None]) -> None:
        framer = EventFramer(self._limits.max_message_bytes)
        async for piece in pieces:
            for event in framer.feed(piece):
                self._take(event)
                if self._done:
                    return

                # Only so much at a time; see the dispatcher of streams. The answer itself has ended the stream.
                self._events += 1
                if self._events % MESSAGES_PER_TURN == 0:
                    await anyio.sleep(FLOOD_PAUSE_SECONDS)

            if framer.overflowing:
                # Hung up at the limit: how much more would have come is not worth reading.
                self._overflow(framer.seen_bytes)
                return

    def _take(self, event: Event | Oversized) -> None:
        if isinstance(event, Oversized):
            self._overflow(event.seen_bytes)
            return

        raw = event.raw
        if raw.startswith((b"id", b"retry")) or b"\nid" in raw or b"\nretry" in raw:
            self._place.note(raw)

        if event.name != "message" or not event.data:
            return

        for message in self._replies.read(event.data):
            if isinstance(message, Notification):
                self._take_notification(message)
            elif isinstance(message, Request):
                if self._may_ask():
                    self._inbox.take_request(message)
            elif isinstance(message, Noise):
                self._inbox.note_noise(message.reason)
            elif self._record is not None:
                self._take_reply(message, self._record, len(event.data))

    def _take_notification(self, message: Notification) -> None:
        if message.method != "notifications/progress":
            self._inbox.take_notification(message)
            return

        record, params = self._record, message.params or {}
        if record is not None and record.reports is not None and plain_id(params.get("progressToken")) == record.id:
            record.reports.note(params)

    def _take_reply(self, message: Message, record: CallRecord, size: int) -> None:
        assert not isinstance(message, Notification | Request | Noise)
        if message.id is None:
            # It came as this request's reply, so that is what it is about.
            message = attrs.evolve(message, id=record.id)

        if message.id == record.id:
            self._answered = self._done = True
            record.reply_bytes = size

        self._inbox.file(message, record)

    def _may_ask(self) -> bool:
        """Whether the session gets this request of the server's: each costs a task and a POST."""
        place = self._place
        second = int(anyio.current_time())
        if self._record is None and second != place.second:
            place.second, place.requests = second, 0

        place.requests += 1
        return place.requests <= MOST_REQUESTS

    def _overflow(self, seen: int) -> None:
        if self._record is None:
            self._inbox.note_noise(f"an event of {seen} bytes on the server's own stream")
        else:
            self._done = True
            self._record.fault = "too_large"
            self._record.detail = f"more than {self._limits.max_message_bytes} bytes"
            self._record.reply_bytes = seen
