"""A raw MCP server over Streamable HTTP on the loopback; what it does is told by the JSON in its first argument.

Beside what `behaviour` knows:

    port        to listen on; 0 for any. The ledger's `listening` line says which
    sessions    legacy requests need the session id that `initialize` gave; one that is not known gets a 404
    get_stream  the server's own stream is offered
    sse         answers come as event streams, not as JSON
    status      by tool name: `[status, headers]`, the answer to the first call of it
    always      `[status, body]`, the answer to everything
    forgets     names of tools at whose calls every session is forgotten
    drop        names of tools whose calls are not answered: the connection is closed
"""

import json
import os
import queue
import select
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from behaviour import VERSION_KEY, Behaviour, Message

CONFIG = json.loads(sys.argv[1])
BEHAVIOUR = Behaviour(CONFIG)
SESSIONS: set[str] = set()
REFUSED_ONCE: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        params = message.get("params") or {}
        tool = params.get("name") if message.get("method") == "tools/call" else None
        if BEHAVIOUR.forgotten or tool in CONFIG.get("forgets", ()):
            BEHAVIOUR.forgotten = False
            SESSIONS.clear()

        modern = VERSION_KEY in (params.get("_meta") or {})
        bound = CONFIG.get("sessions") and not modern and message.get("method") not in ("initialize", "server/discover")
        if bound and self.headers.get("mcp-session-id") not in SESSIONS:
            BEHAVIOUR.note("not_found", method=message.get("method"))
            self.reply(404, b"")
            return

        if "always" in CONFIG and BEHAVIOUR.troubled():
            status, body = CONFIG["always"]
            self.reply(status, body.encode())
            return

        if tool in CONFIG.get("status", {}) and tool not in REFUSED_ONCE:
            REFUSED_ONCE.add(tool)
            status, headers = CONFIG["status"][tool]
            BEHAVIOUR.note("refused", tool=tool)
            self.reply(status, b"not now", **headers)
            return

        if "id" not in message:
            BEHAVIOUR.handle(message, print)
            self.reply(202, b"")
            return

        if tool in CONFIG.get("drop", ()):
            BEHAVIOUR.handle(message, lambda _: None)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return

        messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        BEHAVIOUR.handle(message, messages.put)
        self.pass_on(messages, message["method"] == "initialize" and bool(CONFIG.get("sessions")))

    def pass_on(self, messages: "queue.SimpleQueue[Message]", begins: bool) -> None:
        """The answer as JSON, or everything until it as events."""
        first = self.next(messages)
        if first is None:
            return

        headers = {}
        if begins:
            SESSIONS.add(session := uuid4().hex)
            headers["mcp-session-id"] = session

        if "method" not in first and not CONFIG.get("sse"):
            self.reply(200, json.dumps(first).encode(), content_type="application/json", **headers)
            return

        self.begin_events(**headers)
        message: Message | None = first
        while message is not None:
            self.event(message)
            if "method" not in message:
                return

            message = self.next(messages)

    def do_GET(self) -> None:
        if not CONFIG.get("get_stream"):
            self.reply(405, b"")
            return

        messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.begin_events()
        BEHAVIOUR.streams.append(messages.put)
        BEHAVIOUR.note("listening_to", id="get")
        while (message := self.next(messages)) is not None:
            self.event(message)

        BEHAVIOUR.streams.remove(messages.put)

    def do_DELETE(self) -> None:
        BEHAVIOUR.note("deleted")
        SESSIONS.discard(self.headers.get("mcp-session-id", ""))
        self.reply(200, b"")

    def next(self, messages: "queue.SimpleQueue[Message]") -> Message | None:
        """What is to be sent next; None when nobody is there any more."""
        while True:
            try:
                return messages.get(timeout=0.02)
            except queue.Empty:
                readable, _, _ = select.select([self.connection], [], [], 0)
                if readable and not self.connection.recv(1, socket.MSG_PEEK):
                    BEHAVIOUR.note("hung_up")
                    self.close_connection = True
                    return None

    def begin_events(self, **headers: str) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "connection": "close", **headers}.items():
            self.send_header(name, value)

        self.end_headers()
        self.wfile.flush()

    def event(self, message: Message) -> None:
        try:
            self.wfile.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
        except OSError:
            BEHAVIOUR.note("hung_up")

    def reply(self, status: int, body: bytes, content_type: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": content_type, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)

        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is no news."""


server = Server(("127.0.0.1", CONFIG.get("port", 0)), Handler)
BEHAVIOUR.note("start")
BEHAVIOUR.note("listening", port=server.server_address[1])
if CONFIG.get("dies_with_parent", True):
    # The test holds the other end of stdin: however it ends, no server stays behind.
    import threading

    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()

server.serve_forever()
