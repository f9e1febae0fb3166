"""Somebody else's transport (`CustomServer`) under our dispatcher.

It hands us messages it has parsed already, so the cap on bytes is its own business; ids, deadlines, floods and
everything above are ours.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from deputy_mcp._core.config import CustomServer, Limits
from deputy_mcp._core.messages import Failure, Message, Noise, Notification, Reply, Request, plain_id
from deputy_mcp._runtime.transports.link import Hooks, Traffic
from deputy_mcp._runtime.transports.queue_link import QueueLink


def _message(item: SessionMessage | Exception) -> Message:
    if isinstance(item, Exception):
        return Noise(f"its transport reports {type(item).__name__}")

    match item.message:
        case JSONRPCRequest(id=wire_id, method=method, params=params):
            return Request(wire_id, method, params)
        case JSONRPCNotification(method=method, params=params):
            return Notification(method, params)
        case JSONRPCResponse(id=wire_id, result=result):
            key = plain_id(wire_id)
            return Reply(key, result) if key is not None else Noise("a reply without a usable id")
        case JSONRPCError(id=wire_id, error=error):
            return Failure(plain_id(wire_id), error.code, error.message, error.data)


@asynccontextmanager
async def open_custom(spec: CustomServer, limits: Limits, hooks: Hooks) -> AsyncIterator[QueueLink]:
    """A link over the transport that the host's callable gives.

    The transport may wait in its exit, however its life ended: for at most `shutdown_timeout_seconds`.
    """
    link = QueueLink(hooks, Traffic())

    async def run_read() -> None:
        try:
            async for item in read:
                link.traffic.bytes_in += 1
                link.channel.put(_message(item))
                await link.channel.wait_sorted()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass

        link.lose("transport_closed", "its transport ended")

    async def run_write() -> None:
        try:
            while True:
                data = await link.channel.take()
                await write.send(SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False)))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            link.lose("transport_closed", "its transport takes no more")

    # Entered before the transport and its task groups, and shielded only for their exit: a shield that began there
    # would be left before scopes that are older than itself.
    with anyio.CancelScope() as scope:
        async with spec.open_transport() as (read, write), anyio.create_task_group() as tasks:
            tasks.start_soon(run_read)
            tasks.start_soon(run_write)
            try:
                yield link
            finally:
                scope.shield = True
                scope.deadline = anyio.current_time() + limits.shutdown_timeout_seconds
                tasks.cancel_scope.cancel()
