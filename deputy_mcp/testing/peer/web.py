"""A scripted server over HTTP: Streamable HTTP at `/mcp`, the legacy event stream at `/sse`.

Sockets and a thread for each connection, written out by hand, because what it must be able to do is break the rules
that an HTTP library keeps.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import zlib
from typing import Any

from .engine import Json, Peer

CRLF = b"\r\n"
REASONS = {200: "OK", 202: "Accepted", 307: "Temporary Redirect", 401: "Unauthorized", 404: "Not Found"}


class HangUpError(Exception):
    """This connection is over."""


class Web:
    """What all connections share."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sessions: set[str] = set()
        self.made = 0
        self.bearer: str | None = peer.script["bearer"]
        self.gone: Json = {"status": 404, "body": ""}
        self.streams: list[Answer] = []
        """Open legacy event streams, and GET streams of Streamable HTTP."""


class Answer:
    """The answer to one HTTP request; decides late whether it is a JSON body or an event stream."""

    def __init__(self, web: Web, connection: socket.socket, request: Json) -> None:
        self.web = web
        self.request = request
        self.headers: list[str] = []
        self.streaming = False
        self.answered = False
        self.closing = False
        self._connection = connection
        self._lock = threading.Lock()

    # -- what a turn does ----------------------------------------------------------------------------------------

    def message(self, data: bytes, *, last: bool) -> None:
        stream = self._legacy_stream()
        if stream is not None:
            self.empty(202)
            stream.event(data)
        elif last and not self.streaming:
            self.respond(200, ["content-type: application/json"], data)
        else:
            self.begin_stream()
            self.event(data)
            if last:
                self.end_stream()

    def raw(self, data: bytes) -> None:
        if self.streaming:
            self._chunk(data)
        else:
            self.answered = self.closing = True
            self._connection.sendall(data)

    def step(self, step: Json) -> None:
        op = step["op"]
        if op == "respond":
            body = step["body"].encode("utf-8", "surrogatepass").replace(b"$id", self._id())
            self.respond(step["status"], [f"{k}: {v}" for k, v in step["headers"].items()], body)
        elif op == "stream":
            self.begin_stream()
        elif op == "end_stream":
            self.end_stream()
        elif op in ("hang_up", "drop_stream"):
            self.closing = True
            self.hang_up()
            if op == "hang_up":
                raise HangUpError
        elif op == "gzip":
            headers = ["content-type: application/json", "content-encoding: gzip"]
            self.respond(200, headers, _bomb(self._id(), step["size"]))
        elif op == "forget":
            self.web.gone = {"status": step["status"], "body": step["body"]}
            self.web.sessions.clear()
        elif op == "bearer":
            self.web.bearer = step["token"]
        elif op == "server_stream":
            note = {"jsonrpc": "2.0", "method": step["method"]}
            for stream in self.web.streams:
                stream.event(json.dumps(note).encode())
        else:
            raise ValueError(f"{op} is an action for stdio")

    def finish(self) -> None:
        if self.streaming:
            self.end_stream()
        elif not self.answered:
            self.empty(202)

    def detach(self) -> bool:
        # On the legacy transport the answer comes on another connection; this one is free for the next request.
        if self._legacy_stream() is None:
            return False

        self.empty(202)
        return True

    # -- the wire ------------------------------------------------------------------------------------------------

    def respond(self, status: int, headers: list[str], body: bytes) -> None:
        """One whole response."""
        self.answered = True
        head = [f"HTTP/1.1 {status} {REASONS.get(status, 'Scripted')}", *headers, *self.headers]
        head.append(f"content-length: {len(body)}")
        with self._lock:
            self._connection.sendall(CRLF.join([*(line.encode() for line in head), b"", b""]) + body)

    def empty(self, status: int) -> None:
        if not self.answered:
            self.respond(status, [], b"")

    def begin_stream(self) -> None:
        """The head of an event stream."""
        if self.streaming:
            return

        self.streaming = self.answered = True
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *self.headers]
        self._connection.sendall(CRLF.join([*(line.encode() for line in lines), b"", b""]))

    def event(self, data: bytes, name: str = "message") -> None:
        """One event."""
        self._chunk(b"event: " + name.encode() + b"\ndata: " + data + b"\n\n")

    def end_stream(self) -> None:
        """The orderly end of an event stream."""
        if self.streaming:
            self.streaming = False
            self._connection.sendall(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """The end of the connection, whatever was promised on it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _chunk(self, data: bytes) -> None:
        with self._lock:
            self._connection.sendall(f"{len(data):x}\r\n".encode() + data + CRLF)

    def _legacy_stream(self) -> "Answer | None":
        if not self.request["path"].startswith("/messages") or not self.web.streams:
            return None

        return self.web.streams[-1]

    def _id(self) -> bytes:
        message = self.request.get("message")
        return json.dumps(message.get("id") if isinstance(message, dict) else None).encode()


def _bomb(request_id: bytes, size: int) -> bytes:
    """A compressed reply with a text of `size` bytes, made piece by piece: as a whole it would cost a busy machine
    seconds in which the client can only wait."""
    result = {"content": [{"type": "text", "text": "$"}]}
    head, _, tail = json.dumps({"jsonrpc": "2.0", "id": json.loads(request_id), "result": result}).partition("$")
    packer = zlib.compressobj(1, wbits=31)
    megabyte = b"a" * 1024 * 1024
    pieces = [packer.compress(head.encode())]
    pieces += [packer.compress(megabyte[: size - at]) for at in range(0, size, len(megabyte))]
    return b"".join([*pieces, packer.compress(tail.encode()), packer.flush()])


class Connection:
    """One TCP connection and the requests on it."""

    def __init__(self, web: Web, connection: socket.socket) -> None:
        self._web = web
        self._peer = web.peer
        self._socket = connection
        self._file = connection.makefile("rb")

    def run(self) -> None:
        try:
            while (request := self._read()) is not None:
                answer = Answer(self._web, self._socket, request)
                self._serve(request, answer)
                if answer.closing:
                    break
        except (OSError, HangUpError, ValueError):
            pass
        finally:
            self._file.close()
            self._socket.close()

    def _read(self) -> Json | None:
        line = self._file.readline()
        if not line:
            return None

        method, path, _ = line.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self._file.readline()) not in (CRLF, b""):
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()

        body = self._file.read(int(headers.get("content-length", 0)))
        request: Json = {"method": method, "path": path, "headers": headers}
        self._peer.note({"kind": "http", **request})
        if body:
            request["message"] = json.loads(body)

        return request

    def _serve(self, request: Json, answer: Answer) -> None:
        method, message = request["method"], request.get("message")
        bearer = self._web.bearer
        if bearer is not None and request["headers"].get("authorization") != f"Bearer {bearer}":
            answer.respond(401, ["content-type: text/plain"], b"who are you?")
        elif request["path"].startswith("/sse"):
            self._legacy(answer)
        elif method == "POST":
            self._post(message, request, answer)
        elif (steps := self._peer.turn(method)) is not None:
            self._scripted(steps, answer)
        else:
            answer.empty(405 if method == "GET" else 200)

    def _scripted(self, steps: list[Json], answer: Answer) -> None:
        """A GET or DELETE. A stream that it opens stays open."""
        if not any(step["op"] == "open_stream" for step in steps):
            self._peer.play(steps, {}, answer)
            return

        answer.begin_stream()
        self._web.streams.append(answer)
        self._peer.note({"kind": "stream"})
        for step in steps:
            if step["op"] != "open_stream":
                self._peer.step(step, {}, answer)

        self._hold_open(answer)

    def _post(self, message: Any, request: Json, answer: Answer) -> None:
        session = request["headers"].get("mcp-session-id")
        if session is not None and session not in self._web.sessions:
            gone = self._web.gone
            self._peer.note({"kind": "forgotten", "session": session})
            kind = "application/json" if gone["body"].startswith("{") else "text/plain"
            answer.respond(gone["status"], [f"content-type: {kind}"], gone["body"].encode())
            return

        method = message.get("method") if isinstance(message, dict) else None
        if method == "initialize" and self._peer.script["sessions"]:
            self._web.made += 1
            name = f"s{self._web.made}-{os.getpid()}"
            self._web.sessions.add(name)
            answer.headers.append(f"mcp-session-id: {name}")

        if method == "subscriptions/listen" and self._peer.offers_listen:
            self._peer.note({"kind": "received", "message": message})
            self._peer.listen(message, answer)
            if answer.streaming:
                self._hold_open(answer)
        else:
            self._peer.take(message, answer)

    def _legacy(self, answer: Answer) -> None:
        self._peer.turn("GET")
        answer.begin_stream()
        answer.event(b"/messages", "endpoint")
        self._web.streams.append(answer)
        self._hold_open(answer)

    def _hold_open(self, answer: Answer) -> None:
        """Keep a stream until the client leaves or somebody cuts it."""
        self._file.read(1)
        answer.closing = True
        if answer in self._web.streams:
            self._web.streams.remove(answer)


def main(script_path: str, port: str) -> None:
    """Serve on loopback until stdin ends; the port is the first line on stdout."""
    web = Web(Peer(script_path))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(64)
    print(listener.getsockname()[1], flush=True)  # noqa: T201 # the owner waits for it

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=Connection(web, connection).run, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)
