"""A loopback port in front of a test's own `httpx2` client, so that a server inside the test is reached over a socket.

The SDK's suite keeps its HTTP servers in the process, behind an `httpx2.AsyncClient` of its own making. Our connection
makes its own client, so it is given this port as its proxy: what it sends is received here, byte by byte, and passed
to the test's client, whose hooks then see it. Nothing is added, taken away or answered here. One request a connection.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import h11
import httpx2

READ_BYTES = 64 * 1024
HOP_BY_HOP = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding"})
"""Headers that speak of one connection, and of the other one there are its own."""


@asynccontextmanager
async def open_gateway(client: httpx2.AsyncClient) -> AsyncIterator[str]:
    """The URL of a proxy whose every request goes through `client`; requests under way end with the block."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
        anyio.create_task_group() as tasks,
    ):

        async def serve(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                try:
                    await _serve_one(stream, client)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError):
                    pass  # the peer left, which it may
                except Exception:  # noqa: BLE001 # what fails behind us is a dropped connection to who asked
                    return

        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            tasks.cancel_scope.cancel()


async def _serve_one(stream: anyio.abc.SocketStream, client: httpx2.AsyncClient) -> None:
    wire = h11.Connection(h11.SERVER)
    request = await _read_request(stream, wire)
    if request is None:
        return

    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            """End the answer when the one it is for hangs up: the server inside must learn of it."""
            try:
                while await stream.receive(READ_BYTES):
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        await _answer(stream, wire, client, request)
        tasks.cancel_scope.cancel()


async def _read_request(stream: anyio.abc.SocketStream, wire: h11.Connection) -> httpx2.Request | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            try:
                wire.receive_data(await stream.receive(READ_BYTES))
            except anyio.EndOfStream:
                return None
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            kept = [(name, value) for name, value in head.headers if name not in HOP_BY_HOP]
            return httpx2.Request(head.method.decode(), head.target.decode(), headers=kept, content=bytes(body))
        else:
            return None


async def _answer(
    stream: anyio.abc.SocketStream, wire: h11.Connection, client: httpx2.AsyncClient, request: httpx2.Request
) -> None:
    # Without the test client's own auth: it is our connection's business, which was given the same.
    response = await client.send(request, stream=True, auth=None)
    try:
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in HOP_BY_HOP]
        head = h11.Response(status_code=response.status_code, headers=[*headers, (b"connection", b"close")])
        await stream.send(wire.send(head) or b"")
        async for chunk in response.aiter_raw():
            await stream.send(wire.send(h11.Data(data=chunk)) or b"")

        await stream.send(wire.send(h11.EndOfMessage()) or b"")
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
