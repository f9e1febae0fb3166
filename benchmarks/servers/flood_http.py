"""An MCP server over Streamable HTTP on the loopback whose tool `play` does what its arguments say.

`python flood_http.py`: prints its port. Written on bare sockets with a thread for each connection: it must break the
rules that an HTTP library keeps, and cost less than its client. Arguments of `play` as in `flood_stdio`; `sse`: the
answer comes as an event. Beside `/mcp`: `/half` stops reading a large body in its middle, and `/never` takes
connections and answers nothing.
"""

import contextlib
import json
import math
import socket
import threading
import time
from typing import Any

import flood_answers as answers
from flood_stdio import note_moment

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"content-type: application/json\r\n"
EVENTS = b"content-type: text/event-stream\r\n"
LARGE_BODY_BYTES = 512 * 1024


def sleep_for_ever() -> None:
    while True:
        time.sleep(60)


class Player:
    """What `play` can do, by name."""

    def __init__(self, connection: socket.socket, wire_id: bytes, arguments: dict[str, Any]) -> None:
        self.connection = connection
        self.id = wire_id
        self.size: int = arguments.get("size", 0)
        self.mark: str | None = arguments.get("mark")
        self.seconds: float = arguments.get("seconds", math.inf)
        self.name: str = arguments.get("name", "")
        self.sse: bool = arguments.get("sse", False)

    def _whole(self, *parts: bytes) -> None:
        """One message, as a body or as an event."""
        if self.sse:
            parts = (b"data: ", *parts, b"\n\n")

        head = OK + (EVENTS if self.sse else JSON) + b"content-length: %d\r\n\r\n" % sum(map(len, parts))
        for part in (head, *parts):
            self.connection.sendall(part)

    def _flood(self, piece: bytes, stands_for: int) -> None:
        sent = 0
        while True:
            self.connection.sendall(piece)
            sent += stands_for
            if self.mark is not None and sent >= self.size:
                note_moment(self.mark)
                self.mark = None

    def reply(self) -> None:
        self._whole(answers.HEAD % self.id, answers.result(self.name, self.size), b"}")

    def fine(self) -> None:
        self._whole(answers.HEAD % self.id, json.dumps(answers.answer("tools/call", {})).encode(), b"}")

    def endless_body(self) -> None:
        self.connection.sendall(OK + JSON + b"\r\n" + answers.FLOOD_HEAD % self.id)
        self._flood(answers.PIECE, len(answers.PIECE))

    def endless_event(self) -> None:
        self.connection.sendall(OK + EVENTS + b"\r\ndata: " + answers.FLOOD_HEAD % self.id)
        self._flood(answers.PIECE, len(answers.PIECE))

    def gzip_bomb(self) -> None:
        head, block = answers.bomb(self.id)
        self.connection.sendall(OK + JSON + b"content-encoding: gzip\r\n\r\n" + head)
        self._flood(block, answers.BOMB_BLOCK_BYTES)

    def notifications(self) -> None:
        self.connection.sendall(OK + EVENTS + b"connection: close\r\n\r\n")
        notes = (b"data: " + answers.NOTE + b"\n\n") * 600
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            self.connection.sendall(notes)

        self._end_events()

    def event_lines(self) -> None:
        """Pieces of an event stream, `size` of them, and then the answer."""
        self.connection.sendall(OK + EVENTS + b"connection: close\r\n\r\n")
        pieces = {
            "notifications": b"data: " + answers.NOTE + b"\n\n",
            "empty data lines": b"data:\n",
            "comments": b":\n",
            "carriage returns": b"\r",
            "empty events": b"data:\n\n",
            "pings": b'data: {"jsonrpc":"2.0","id":"p","method":"ping"}\n\n',
        }
        block = pieces[self.name] * 1_000
        for _ in range(self.size // 1_000):
            self.connection.sendall(block)

        self._end_events()

    def _end_events(self) -> None:
        answer = json.dumps(answers.answer("tools/call", {})).encode()
        self.connection.sendall(b"\n\ndata: " + answers.HEAD % self.id + answer + b"}\n\n")
        self.connection.shutdown(socket.SHUT_WR)

    def silence(self) -> None:
        sleep_for_ever()

    def silent_events(self) -> None:
        self.connection.sendall(OK + EVENTS + b"\r\n")
        sleep_for_ever()

    def dribble(self) -> None:
        self.connection.sendall(OK + JSON + b"\r\n" + answers.FLOOD_HEAD % self.id)
        while True:
            self.connection.sendall(b"a")
            time.sleep(0.001)

    def dribble_head(self) -> None:
        self.connection.sendall(OK)
        while True:
            self.connection.sendall(b"x: y\r\n")
            time.sleep(0.01)


def serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = connection.makefile("rb")
    with contextlib.suppress(OSError), connection:
        while request := reader.readline():
            verb, path, _ = request.split(b" ", 2)
            length = 0
            while (header := reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)

            if path == b"/never" or (path == b"/half" and length > LARGE_BODY_BYTES):
                reader.read(length // 2)
                sleep_for_ever()

            body = reader.read(length)
            if verb == b"POST":
                take(connection, json.loads(body))
            else:
                connection.sendall(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")


def take(connection: socket.socket, message: dict[str, Any]) -> None:
    if "id" not in message or "method" not in message:
        connection.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        return

    wire_id = json.dumps(message["id"]).encode()
    method, params = message["method"], message.get("params") or {}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        getattr(Player(connection, wire_id, arguments), arguments.get("what", "fine"))()
        return

    result = answers.listing("plain") if method == "tools/list" else None
    if result is None:
        said = answers.answer(method, params)
        result = None if said is None else json.dumps(said).encode()

    if result is None:
        body = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}' % wire_id
    else:
        body = answers.HEAD % wire_id + result + b"}"

    connection.sendall(OK + JSON + b"content-length: %d\r\n\r\n" % len(body) + body)


def main() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
