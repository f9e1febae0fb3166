"""What cannot be undercut: asyncio and json on the same pipes or sockets, without MCP and without any check."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from benchmarks.speed.drivers.playing import Call, Target, serve, side_by_side

HEAD = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class Lines(asyncio.SubprocessProtocol):
    """Replies of a child process, by number."""

    # Mutable state: who waits for which number; the unfinished line; whether the child has ended.
    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.ended = asyncio.Event()
        self._rest = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.waiting.pop(message["id"]).set_result(message["result"])

    def process_exited(self) -> None:
        self.ended.set()


class Body(asyncio.Protocol):
    """One reply at a time over a kept connection."""

    # Mutable state: who waits; what has arrived.
    def __init__(self) -> None:
        self.waiting: asyncio.Future[Any] | None = None
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, found, body = self._seen.partition(b"\r\n\r\n")
        if not found or self.waiting is None:
            return

        if b"chunked" in head:
            if not body.endswith(b"\r\n0\r\n\r\n"):
                return

            body = body[body.index(b"data: ") + 6 : body.index(b"\r\n\r\n0\r\n")].strip()
        elif len(body) < int(re.search(rb"content-length: (\d+)", head)[1]):  # type: ignore[index] # the server sends it
            return

        self._seen = b""
        self.waiting.set_result(json.loads(body)["result"])


@asynccontextmanager
async def open_one(server: Target) -> AsyncIterator[Call]:
    loop = asyncio.get_running_loop()
    number = 0

    def request(tool: str, arguments: dict[str, str]) -> bytes:
        nonlocal number
        number += 1
        method, params = (
            ("tools/list", {}) if tool == "list" else ("tools/call", {"name": tool, "arguments": arguments})
        )
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()

    if "url" in server:
        address: Any = urlsplit(server["url"])
        link, body = await loop.create_connection(Body, address.hostname, address.port)

        async def post(tool: str, arguments: dict[str, str]) -> Any:
            content = request(tool, arguments)
            body.waiting = loop.create_future()
            link.write(HEAD % (address.path.encode(), len(content), content))
            return (await body.waiting)["content"][0]["text"]

        yield post
        link.close()
    else:
        child, lines = await loop.subprocess_exec(
            Lines, server["command"], *server["args"], stderr=None, start_new_session=True
        )
        pipe: Any = child.get_pipe_transport(0)

        async def call(tool: str, arguments: dict[str, str]) -> Any:
            line = request(tool, arguments)
            lines.waiting[number] = future = loop.create_future()
            pipe.write(line + b"\n")
            result = await future
            return None if tool == "list" else result["content"][0]["text"]

        await call("list", {})
        yield call
        pipe.close()
        await lines.ended.wait()
        child.close()


if __name__ == "__main__":
    serve(side_by_side(open_one))
