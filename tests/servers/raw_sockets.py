"""A Streamable HTTP server whose bytes a test writes itself, in the test's own process.

For what `ScriptedServer` does not reach: answers before the request was read, several things on one connection, a
TLS ingress in front. Not a double of anything: real sockets on loopback. One callback sees every request before its
body is read; what it does not answer is answered as a sane server would, in the legacy era.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from deputy_mcp import HttpServer
from deputy_mcp.testing import tool

LONGEST_HEAD = 4 * 1024 * 1024
GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead)


class Exchange:
    """One request and the connection it came on."""

    def __init__(self, site: "Site", stream: SocketStream, read: BufferedByteReceiveStream, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        self.number = 0
        """How many calls of a tool came before this one and with it; 0 for other requests."""
        self._site = site
        self._stream = stream
        self._read = read
        self._message: Any = None
        self._begun = b""

    @property
    def length(self) -> int:
        """Of the body, as the client says."""
        return int(self.headers.get("content-length", 0))

    async def begin(self, count: int) -> bytes:
        """The first bytes of the body; the rest stays unread."""
        self._begun = await self._read.receive_exactly(count)
        return self._begun

    async def message(self) -> Any:
        """The body, read once."""
        if self._message is None and self.length:
            rest = await self._read.receive_exactly(self.length - len(self._begun))
            self._message = json.loads(self._begun + rest)
            if self._message.get("method") == "tools/call":
                self._site.calls += 1
                self.number = self._site.calls

        return self._message

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        await self._stream.send(data)

    async def respond(
        self, body: bytes = b"", *, status: str = "200 OK", kind: str = "application/json", extra: str = ""
    ) -> None:
        """A whole response; `extra`: header lines, each with its line end."""
        await self.send(head_of(body, status=status, kind=kind, extra=extra) + body)

    async def begin_events(self) -> None:
        """The head of an event stream that ends with the connection."""
        await self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")

    async def events(self, data: bytes) -> None:
        """A whole event stream on a connection that stays open."""
        await self.respond(data, kind="text/event-stream")

    async def answer(self, result: Mapping[str, Any] | None = None, *, extra: str = "") -> None:
        """The JSON answer to this request; None: a sane server's."""
        message = await self.message()
        if message is None or "id" not in message:
            await self.respond(status="202 Accepted" if message else "405 Method Not Allowed")
        else:
            await self.respond(reply_bytes(message["id"], result or sane_result(message)), extra=extra)


Handle = Callable[[Exchange], Awaitable[bool | None]]
"""Gets each request before its body is read. True: it was seen to; anything else: answer it as usual."""


class Site:
    """A listening server and what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.seen: list[Exchange] = []
        self.calls = 0

    def server(self, **fields: Any) -> HttpServer:
        """The entry to connect to."""
        return HttpServer(self.url, **{"protocol": "legacy"} | fields)

    def count(self, method: str) -> int:
        """How many requests of this HTTP method came."""
        return sum(exchange.method == method for exchange in self.seen)


@asynccontextmanager
async def listening(handle: Handle) -> AsyncIterator[Site]:
    """The server, for the block."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    site = Site(listener.extra(anyio.abc.SocketAttribute.local_port))

    async def serve(stream: SocketStream) -> None:
        async with stream:
            read = BufferedByteReceiveStream(stream)
            try:
                while True:
                    head = await read.receive_until(b"\r\n\r\n", LONGEST_HEAD)
                    exchange = Exchange(site, stream, read, head)
                    site.seen.append(exchange)
                    if not await handle(exchange):
                        await exchange.answer()

                    if exchange.headers.get("connection", "").lower() == "close":
                        return
            except GONE:
                pass  # the client has left

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield site
        tasks.cancel_scope.cancel()


def head_of(body: bytes, *, status: str = "200 OK", kind: str = "application/json", extra: str = "") -> bytes:
    """The head of a response with this body."""
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n".encode("latin-1")


def reply_bytes(request_id: Any, result: Mapping[str, Any]) -> bytes:
    """One reply as JSON."""
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}, separators=(",", ":")).encode()


def text_result(text: str) -> dict[str, Any]:
    """The result of a tool that says `text`."""
    return {"content": [{"type": "text", "text": text}]}


def sane_result(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a server that behaves says."""
    match message["method"]:
        case "initialize":
            info = {"name": "sockets", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [tool("echo")]}
        case "tools/call":
            return text_result(json.dumps(message["params"].get("arguments"))[:100])
        case _:
            return {}


# -- TLS -----------------------------------------------------------------------------------------------------------


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key: the paths of both."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, plain))
    return certificate, secret


@asynccontextmanager
async def tls_in_front_of(port: int, certificate: Path, key: Path) -> AsyncIterator[int]:
    """A TLS ingress on loopback that passes everything on to `port` in the clear: its own port."""
    import ssl

    from anyio.streams.tls import TLSListener

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    # Clients hang up without a TLS good-bye, and one that does not trust us ends the handshake.
    listener = TLSListener(plain, context, standard_compatible=False)

    async def pass_on(source: Any, target: Any) -> None:
        try:
            while True:
                await target.send(await source.receive())
        except GONE:
            await target.aclose()

    async def serve(stream: Any) -> None:
        async with stream, await anyio.connect_tcp("127.0.0.1", port) as behind, anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on, stream, behind)
            tasks.start_soon(pass_on, behind, stream)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield plain.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()
