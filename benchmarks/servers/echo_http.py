"""The echo server over Streamable HTTP on the loopback: `python echo_http.py` prints its port, and ends with its stdin.

`/mcp` answers with JSON, `/events` with an event on a chunked stream that ends right after it. Connections are kept,
and counted. No sessions; nothing but the standard library.
"""

import asyncio
import re
import sys

from echo import Echo

ECHO = Echo()
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Requests(asyncio.Protocol):
    # Mutable state: the connection, and what has arrived of the next request.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        ECHO.connections += 1
        self.transport = transport
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        while True:
            head, found, rest = self.seen.partition(b"\r\n\r\n")
            length = LENGTH.search(head)
            size = int(length[1]) if length else 0
            if not found or len(rest) < size:
                return

            self.seen = rest[size:]
            self._answer(head, rest[:size])

    def _answer(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"POST"):
            # No stream of its own, and no session to end.
            self.transport.write(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            return

        reply = ECHO.reply(body)
        if reply is None:
            self.transport.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        elif head.startswith(b"POST /events"):
            event = b"event: message\r\ndata: " + reply + b"\r\n\r\n"
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                b"%x\r\n%b\r\n" % (len(event), event)
            )
            self.transport.write(b"0\r\n\r\n")
        else:
            kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            self.transport.write(kind + b"content-length: %d\r\n\r\n%b" % (len(reply), reply))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Requests, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
