"""A channel for transports that take whole messages: a queue each way, and tasks that move what stands in it.

The legacy SSE transport and custom transports share it; so they get our dispatcher, with its books, too.
"""

from collections import deque

import anyio

from deputy_mcp._core.messages import Message

MOST_QUEUED_BYTES = 64 * 1024 * 1024
"""Messages of ours that the other end has not taken; past it the caller waits."""


MOST_UNSORTED = 256
"""Messages read and not sorted yet, past which the transport reads no more."""


class QueueChannel:
    """`receive` gives what `put` was given; `write_now` queues whole messages for `take`."""

    def __init__(self) -> None:
        self._inbox: deque[Message] = deque()
        self._outbox: deque[bytes] = deque()
        self._arrived = anyio.Event()
        self._queued = anyio.Event()
        self._taken = anyio.Event()
        self._bytes = 0
        self._sorted = anyio.Event()

    async def receive(self) -> list[Message]:
        while not self._inbox:
            self._arrived = anyio.Event()
            await self._arrived.wait()

        messages = list(self._inbox)
        self._inbox.clear()
        self._sorted.set()
        return messages

    async def wait_sorted(self) -> None:
        """Return when there is room for more of what the transport reads: a flood must wait outside."""
        while len(self._inbox) > MOST_UNSORTED:
            self._sorted = anyio.Event()
            await self._sorted.wait()

    def put(self, message: Message) -> None:
        """What the transport read."""
        self._inbox.append(message)
        self._arrived.set()

    def write_now(self, data: bytes | memoryview) -> int:
        if self._bytes > MOST_QUEUED_BYTES:
            return 0

        # Several that left together are messages of their own here.
        self._outbox += bytes(data).splitlines()
        self._bytes += len(data)
        self._queued.set()
        return len(data)

    async def wait_writable(self) -> None:
        while self._bytes > MOST_QUEUED_BYTES:
            self._taken = anyio.Event()
            await self._taken.wait()

    async def take(self) -> bytes:
        """The next message to send, without its line break."""
        while not self._outbox:
            self._queued = anyio.Event()
            await self._queued.wait()

        data = self._outbox.popleft()
        self._bytes -= len(data) + 1  # its line break
        self._taken.set()
        return data
