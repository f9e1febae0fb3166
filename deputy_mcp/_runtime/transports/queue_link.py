"""What links over a queue channel share: our dispatcher over it, and one loss."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deputy_mcp._runtime.transports.link import Hooks, Loss, LossSignal, Traffic
from deputy_mcp._runtime.transports.queue_channel import QueueChannel
from deputy_mcp._runtime.transports.stream_dispatcher import StreamDispatcher


class QueueLink:
    """A link without a process of ours: the legacy SSE transport and custom ones."""

    has_headers = False
    pid = None
    exit_code = None
    stderr_tail = ""

    def __init__(self, hooks: Hooks, traffic: Traffic) -> None:
        self.traffic = traffic
        self.channel = QueueChannel()
        self._lost = LossSignal()
        self._dispatcher = StreamDispatcher(self.channel, hooks, traffic, self._lost)

    @asynccontextmanager
    async def open_dispatcher(self) -> AsyncIterator[StreamDispatcher]:
        """The one dispatcher over the channel."""
        yield self._dispatcher

    def lose(self, code: str, detail: str) -> None:
        """End this life: the owner sees it through `wait_lost`."""
        self._lost.tell(code, detail)

    def kill_now(self) -> None:
        """What the other end is, we do not own; it ends with the block."""

    async def wait_lost(self) -> Loss:
        return await self._lost.wait()
