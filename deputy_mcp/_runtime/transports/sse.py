"""The legacy HTTP+SSE transport of protocol 2024-11-05: one event stream from the server, POSTs to it.

Ours, because the SDK's has no bound but 1 MiB an event and leaves the caller of a failed POST waiting. It runs over
the same guarded client as Streamable HTTP and under the same dispatcher as stdio.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import anyio.abc
import httpx2

from deputy_mcp._core.config import HttpServer, Limits
from deputy_mcp._core.errors import StartError
from deputy_mcp._core.events import Event, EventFramer
from deputy_mcp._core.framing import FLOOD_FACTOR, Oversized
from deputy_mcp._core.messages import plain_id, read_oversized, sniff_id
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.dispatching import FLOOD_PAUSE_SECONDS, MESSAGES_PER_TURN
from deputy_mcp._runtime.transports.http import open_client
from deputy_mcp._runtime.transports.http_guard import RAW, origin_of
from deputy_mcp._runtime.transports.http_wire import HttpWire
from deputy_mcp._runtime.transports.link import SIGN_IN_FAILED, CallRecord, Hooks, Traffic
from deputy_mcp._runtime.transports.queue_link import QueueLink

POST_SECONDS = 10.0
"""A server has so long to take a message; then its place is given to the next."""

MOST_POSTS = 32
"""POSTs under way at the same time; more wait in the queue."""


class SseLink(QueueLink):
    """See the module. Made and ended by `open_sse`."""

    def __init__(
        self,
        spec: HttpServer,
        limits: Limits,
        hooks: Hooks,
        traffic: Traffic,
        client: httpx2.AsyncClient,
        wire: HttpWire,
    ) -> None:
        super().__init__(hooks, traffic)
        self._spec = spec
        self._limits = limits
        self._replies = RepeatedReplies(limits.max_message_values, limits.max_message_bytes, hashed=hooks.hash_replies)
        self._client = client
        self._wire = wire
        self._slots = anyio.Semaphore(MOST_POSTS)

    async def run_stream(self, *, task_status: anyio.abc.TaskStatus[httpx2.URL]) -> None:
        """Read the server's stream to its end; started once it has named the address for POSTs."""
        started = False
        events = 0
        framer = EventFramer(self._limits.max_message_bytes)
        try:
            request = self._client.build_request(
                "GET", self._spec.url, headers={"accept": "text/event-stream"}, extensions={RAW: True}
            )
            response = await self._client.send(request, stream=True)
            try:
                if response.status_code >= 400:
                    refused = self._spec.auth is not None and response.status_code in (401, 403)
                    code = SIGN_IN_FAILED if refused else "http_status"
                    raise StartError(f"its event stream answered HTTP {response.status_code}", code=code)

                async for chunk in response.aiter_raw():
                    for event in framer.feed(chunk):
                        if isinstance(event, Event) and event.name == "endpoint" and not started:
                            started = True
                            task_status.started(self._endpoint(event))
                        else:
                            self._take(event)

                        # Of a flood only so much at a time; see the dispatcher of streams.
                        events += 1
                        if events % MESSAGES_PER_TURN == 0:
                            await anyio.sleep(FLOOD_PAUSE_SECONDS)

                    await self.channel.wait_sorted()
                    if framer.seen_bytes > FLOOD_FACTOR * self._limits.max_message_bytes:
                        self._lost.tell("flooded", "an event on its stream does not end")
                        return
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            self._lost.tell(
                "unreachable" if not started else "connection_dropped", clean_line(f"{type(error).__name__}: {error}")
            )
            if not started:
                raise StartError(f"its event stream cannot be opened: {clean_line(str(error))}") from None
        else:
            self._lost.tell("connection_dropped", "its event stream ended")
            if not started:
                raise StartError("its event stream ended without naming an endpoint") from None

    def _endpoint(self, event: Event) -> httpx2.URL:
        url = httpx2.URL(urljoin(self._spec.url, event.data.decode("utf-8", "replace").strip()))
        # Another origin would get our headers and our calls.
        if origin_of(url) != origin_of(httpx2.URL(self._spec.url)):
            raise StartError("its endpoint is on another origin than its event stream", code="endpoint_origin")

        return url

    def _take(self, event: Event | Oversized) -> None:
        if isinstance(event, Oversized):
            self.channel.put(read_oversized(event, self._limits.max_message_bytes))
        elif event.name == "message" and event.data:
            for message in self._replies.read(event.data):
                self.channel.put(message)

    async def run_posts(self, endpoint: httpx2.URL) -> None:
        """Send what the dispatcher queues, each message in a task of its own."""
        async with anyio.create_task_group() as tasks:
            while True:
                data = await self.channel.take()
                await self._slots.acquire()
                tasks.start_soon(self._post, endpoint, data)

    async def _post(self, endpoint: httpx2.URL, data: bytes) -> None:
        try:
            wire_id = plain_id(sniff_id(data[:512], b"")) if b'"method"' in data and b'"id":' in data[:60] else None
            record = CallRecord(wire_id or 0)
            headers = {"content-type": "application/json"}
            with anyio.move_on_after(POST_SECONDS):
                # Its head says whether it was taken; the answer comes over the stream, and its body is nobody's.
                response = await self._wire.post(record, data, headers, url=endpoint)
                if response is not None:
                    if response.status_code >= 300:
                        await self._wire.take_status(response, record)

                    await response.aclose()

            if wire_id is None:
                return

            if record.status is not None:
                self._dispatcher.fail_unsent(record, "http", f"HTTP {record.status}")
            elif record.fault is not None:
                self._dispatcher.fail_unsent(record, record.fault, record.detail)
        finally:
            self._slots.release()


@asynccontextmanager
async def open_sse(
    spec: HttpServer, limits: Limits, hooks: Hooks, *, on_secret: Callable[[str], None]
) -> AsyncIterator[SseLink]:
    """A link over the legacy transport; connected when the block is entered."""
    traffic = Traffic()
    async with open_client(spec, limits, hooks, traffic, on_secret) as (client, wire):
        link = SseLink(spec, limits, hooks, traffic, client, wire)
        async with anyio.create_task_group() as tasks:
            endpoint = await tasks.start(link.run_stream)
            tasks.start_soon(link.run_posts, endpoint)
            try:
                yield link
            finally:
                tasks.cancel_scope.cancel()
