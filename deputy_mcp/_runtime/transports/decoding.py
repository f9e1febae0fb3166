"""HTTP bodies decoded by us, a bounded slice at a time: httpx2 would decode above the cap and miss bombs."""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator

import anyio
import anyio.lowlevel
import httpx2

from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.dispatching import FLOOD_PAUSE_SECONDS, MESSAGES_PER_TURN
from deputy_mcp._runtime.transports.link import Traffic

READ_SLICE = 64 * 1024
"""Decompressed bytes taken at a time, however much a compressed chunk stands for."""

CRUMB_BYTES = 1024
"""A chunk of the body below this is a crumb. Thousands of them come with one read of the socket, each at the cost of a
whole one and without a wait between them, so that a body of crumbs would hold the event loop."""


class BadEncodingError(httpx2.TransportError):
    """The body's encoding was not offered, or is broken."""


class Body(httpx2.AsyncByteStream):
    """A response's body as the server meant it, in bounded slices (a compressed bomb stays a trickle).

    `most`: where whoever reads it knows no bound, it ends after so many bytes, and at a broken encoding; None: it is
    bounded by who reads it.
    """

    # Mutable state: how many bytes are still given out; None without a bound.
    def __init__(self, response: httpx2.Response, traffic: Traffic, most: int | None) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._traffic = traffic
        self.most = most
        # Taken off: what is above must not decode it again.
        self._encoding = response.headers.pop("content-encoding", "identity").strip().lower()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._decoded():
                if self.most is not None:
                    self.most -= len(piece)
                    if self.most < 0:
                        return

                yield piece
        except BadEncodingError:
            if self.most is None:
                raise

    async def _decoded(self) -> AsyncIterator[bytes]:
        encoding = self._encoding
        if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
            raise BadEncodingError(f"it used the content encoding {clean_line(encoding, 40)}, which was not offered")

        decoder = zlib.decompressobj(47) if encoding not in ("identity", "") else None
        crumbs = 0
        async for chunk in self._stream:
            self._traffic.bytes_in += len(chunk)
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

    async def aclose(self) -> None:
        await self._stream.aclose()


async def pieces_of(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """What is still to be read of a response that passed the guard; all of it where an auth flow has read it."""
    if response.is_stream_consumed:
        yield response.content
        return

    assert isinstance(response.stream, httpx2.AsyncByteStream)
    async for piece in response.stream:
        yield piece
