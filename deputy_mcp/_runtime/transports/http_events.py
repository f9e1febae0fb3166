"""An event stream under the guard, event by event: answers go into the record of their request, the rest to the SDK."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Protocol

import anyio
import attrs
import httpx2

from deputy_mcp._core.config import Limits
from deputy_mcp._core.events import Event, EventFramer
from deputy_mcp._core.framing import Oversized
from deputy_mcp._core.messages import Invalid, Message, Noise, Notification, Request, TooLarge, plain_id
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.answering import MOST_REQUESTS
from deputy_mcp._runtime.transports.decoding import BadEncodingError, decoded
from deputy_mcp._runtime.transports.link import CallRecord, Traffic
from deputy_mcp._runtime.transports.stream_dispatcher import FLOOD_PAUSE_SECONDS, MESSAGES_PER_TURN

SHORTEST_RETRY_MILLISECONDS = 100
LONGEST_RETRY_MILLISECONDS = 30_000
"""What a server may say about when to resume: sooner would flood it, later is not worth a waiting task."""

DRAIN_SECONDS = 0.02
"""After the answer an event stream may end by itself for so long; else its connection is not used again."""


class Sorter(Protocol):
    """What a stream asks of the guard it belongs to."""

    replies: RepeatedReplies

    def file(self, message: Message, record: CallRecord) -> None:
        """Put a reply into the record of its request."""

    def take_notification(self, message: Notification) -> bool:
        """True when the SDK need not see it."""

    def note_event_id(self, event_id: str, record: CallRecord | None) -> None:
        """A stream may be resumed from here."""

    def note_noise(self, sample: str) -> None:
        """Something came that is no message."""


class GuardedEvents(httpx2.AsyncByteStream):
    """An event stream, event by event: answers go into the record, the rest to the SDK."""

    def __init__(
        self,
        guard: Sorter,
        response: httpx2.Response,
        record: CallRecord | None,
        limits: Limits,
        traffic: Traffic,
        resumes: CallRecord | None = None,
    ) -> None:
        self._guard = guard
        self._limits = limits
        self._response = response
        self._record = record
        self._framer = EventFramer(limits.max_message_bytes)
        self._pieces = decoded(response, traffic)
        self._answered = False
        self._events = 0
        self._requests = 0
        self._second = 0
        self._resumes = resumes
        self._resumable = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._next()) is not None:
                for event in self._framer.feed(piece):
                    out = self._take(event)
                    if out is not None:
                        yield out

                    if self._answered:
                        return

                    # Only so much at a time; see the dispatcher of streams. The answer itself has ended the stream.
                    self._events += 1
                    if self._events % MESSAGES_PER_TURN == 0:
                        await anyio.sleep(FLOOD_PAUSE_SECONDS)

                if self._framer.overflowing:
                    # Hung up at the limit: how much more would have come is not worth reading.
                    self._overflow(self._framer.seen_bytes)
                    return
        except BadEncodingError as error:
            if self._record is not None:
                self._record.fault, self._record.detail = "malformed", str(error)
        except httpx2.TransportError as error:
            if self._record is not None:
                self._record.fault, self._record.detail = "dropped", describe(error)

    async def _next(self) -> bytes | None:
        with anyio.CancelScope() as scope:
            if self._record is not None:
                self._record.abort = scope.cancel

            return await anext(self._pieces, None)

        return None  # aborted

    def _take(self, event: Event | Oversized) -> bytes | None:
        if isinstance(event, Oversized):
            self._overflow(event.seen_bytes)
            return None

        raw = self._tamed(event.raw)
        if event.name != "message" or not event.data:
            return raw or None

        record = self._record
        messages = self._guard.replies.read(event.data)
        out = b""
        for message in messages:
            # The SDK knows no batches: of one it gets the members, one by one.
            alone = raw if len(messages) == 1 else _event_of(message)
            if isinstance(message, Notification):
                if record is not None and message.method == "notifications/progress":
                    params = message.params or {}
                    if record.reports is not None and plain_id(params.get("progressToken")) == record.id:
                        record.reports.note(params)
                elif not self._guard.take_notification(message):
                    out += alone
            elif isinstance(message, Request):
                if self._may_ask():
                    out += alone
            elif record is None:
                # A reply on the server's own stream: a resumed request's, which the SDK correlates.
                if not isinstance(message, Noise | Invalid | TooLarge):
                    out += alone
            elif isinstance(message, Noise):
                self._guard.note_noise(message.reason)
            elif message.id is not None and message.id != record.id:
                # It answers something else, and is nobody's answer here.
                self._guard.file(message, record)
            else:
                self._answered = True
                record.reply_bytes = len(event.data)
                self._guard.file(attrs.evolve(message, id=record.id), record)
                # The SDK gets a stand-in, under the event's own id where it had one (resumption counts them).
                kept_id = [line for line in event.raw.split(b"\n") if line.startswith(b"id:")]
                return out + b"\n".join([*kept_id, b"data: " + stand_in_body(record)]) + b"\n\n"

        return out or None

    def _tamed(self, raw: bytes) -> bytes:
        """An event for the SDK, which takes `retry` for any number and resumes under any `id` for ever.

        Comments say nothing to it; of an event of nothing else nothing is left.
        """
        lines = [line for line in raw.split(b"\n") if not line.startswith(b":")]
        for line in lines:
            field, _, value = line.partition(b":")
            if field == b"retry":
                text = value.strip()
                lines = [one for one in lines if not one.startswith(b"retry")]
                if text.isdigit() and (len(text) > 9 or int(text) > LONGEST_RETRY_MILLISECONDS):
                    self._resumable = False
                elif text.isdigit():
                    lines.append(b"retry: %d" % max(int(text), SHORTEST_RETRY_MILLISECONDS))

                break

        if not self._resumable:
            lines = [line for line in lines if not line.startswith(b"id")]

        for line in lines:
            field, _, value = line.partition(b":")
            if field == b"id":
                self._guard.note_event_id(value.strip().decode("utf-8", "replace"), self._record or self._resumes)

        return b"\n".join(lines) + b"\n\n" if lines else b""

    def _may_ask(self) -> bool:
        """Whether the SDK gets this request of the server's: each costs it a task and a POST, one after the other."""
        second = int(anyio.current_time())
        if self._record is None and second != self._second:
            self._second, self._requests = second, 0

        self._requests += 1
        return self._requests <= MOST_REQUESTS

    def _overflow(self, seen: int) -> None:
        if self._record is None:
            self._guard.note_noise(f"an event of {seen} bytes on the server's own stream")
        else:
            self._record.fault = "too_large"
            self._record.detail = f"more than {self._limits.max_message_bytes} bytes"
            self._record.reply_bytes = seen

    async def aclose(self) -> None:
        if self._answered:
            # Most servers end the stream right after the answer. Reading that end keeps the TCP connection; without
            # it each answer would cost a new one.
            with (
                anyio.move_on_after(DRAIN_SECONDS, shield=True),
                contextlib.suppress(httpx2.TransportError, BadEncodingError),
            ):
                await anext(self._pieces, None)

        await self._pieces.aclose()
        await self._response.aclose()


def _event_of(message: Message) -> bytes:
    """One member of a batch as an event of its own; only requests, notifications and replies get here."""
    fields = {name: getattr(message, name) for name in ("id", "method", "params", "result") if hasattr(message, name)}
    return (
        b"data: "
        + json.dumps({"jsonrpc": "2.0"} | {k: v for k, v in fields.items() if v is not None}).encode()
        + b"\n\n"
    )


def stand_in_body(record: CallRecord) -> bytes:
    """What the SDK gets in place of the answer that the record holds."""
    return b'{"jsonrpc":"2.0","id":%s,"result":{}}' % json.dumps(record.id).encode()


def describe(error: Exception) -> str:
    """A transport error on one clean line."""
    return clean_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
