"""HTTP bodies decoded by us, a bounded slice at a time: httpx2 would decode above the cap and miss bombs."""

import contextlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator

import anyio
import anyio.lowlevel
import httpx2

from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.link import Traffic
from deputy_mcp._runtime.transports.stream_dispatcher import FLOOD_PAUSE_SECONDS, MESSAGES_PER_TURN

READ_SLICE = 64 * 1024
"""Decompressed bytes taken at a time, however much a compressed chunk stands for."""

CRUMB_BYTES = 1024
"""A chunk of the body below this is a crumb. Thousands of them come with one read of the socket, each at the cost of a
whole one and without a wait between them, so that a body of crumbs would hold the event loop."""


class BadEncodingError(Exception):
    """The body's encoding was not offered, or is broken."""


async def decoded(response: httpx2.Response, traffic: Traffic) -> AsyncGenerator[bytes, None]:
    """The body's bytes as the server meant them, a bounded slice at a time (a compressed bomb stays a trickle)."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise BadEncodingError(f"it used the content encoding {clean_line(encoding, 40)}, which was not offered")

    decoder = zlib.decompressobj(47) if encoding not in ("identity", "") else None
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    crumbs = 0
    async for chunk in response.stream:
        traffic.bytes_in += len(chunk)
        if len(chunk) < CRUMB_BYTES:
            crumbs += 1
            if crumbs % MESSAGES_PER_TURN == 0:
                await anyio.sleep(FLOOD_PAUSE_SECONDS)

        if decoder is None:
            yield chunk
            continue

        while chunk:
            try:
                piece = decoder.decompress(chunk, READ_SLICE)
            except zlib.error as error:
                raise BadEncodingError(f"its compressed body is broken: {error}") from None

            if piece:
                yield piece
                # A small chunk may stand for many slices; nothing else waits between them.
                await anyio.lowlevel.checkpoint()

            chunk = decoder.unconsumed_tail


class BoundedBody(httpx2.AsyncByteStream):
    """A decoded body that ends at a bound, None: it is bounded by who reads it."""

    def __init__(self, pieces: AsyncIterator[bytes], response: httpx2.Response, most: int | None) -> None:
        self._pieces, self._response, self._left = pieces, response, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with contextlib.suppress(BadEncodingError):
            async for piece in self._pieces:
                if self._left is not None:
                    self._left -= len(piece)
                    if self._left < 0:
                        return

                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
