"""One request over HTTP, from its caller's task: sign-ins that last, streams that break off, sessions that end."""

from collections.abc import AsyncGenerator
from contextlib import suppress

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from attrs import evolve
from bounds import AT_ONCE_SECONDS, connected
from raw_sockets import GONE, Exchange, listening, make_certificate, reply_bytes, text_result, tls_in_front_of

from deputy_mcp import CallError, CallTimeoutError, HttpServer, Permissions, PinBook, RefusedError, ServerLostError
from deputy_mcp.testing import ScriptedServer, forget_sessions, hold, reply, tool

pytestmark = pytest.mark.anyio

ON_CHANGE = PinBook(verify="change")
WRITE = tool("write", annotations=None)
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Lasting(httpx2.Auth):
    """A sign-in that takes as long as `go_on`, once `lasts`; then it has a token for good."""

    def __init__(self) -> None:
        self.lasts = False
        self.asked = 0
        self.token = "old"
        self.go_on = anyio.Event()
        self.done = anyio.Event()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self.lasts:
            self.asked += 1
            await self.go_on.wait()
            self.lasts, self.token = False, "new"
            self.done.set()

        request.headers["authorization"] = self.token
        yield request


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_sign_in_outlasts_the_caller_who_needed_it_and_sends_nothing_for_him(tmp_path, era):
    """Cut off, it could lose a token that was just renewed; the next call finds it, and the first was never sent."""
    server, auth = ScriptedServer(tmp_path, era=era, capabilities={"tools": {}}), Lasting()
    async with server.http(auth=auth) as entry, connected({"a": entry}, pins=ON_CHANGE) as connection:
        auth.lasts = True
        with pytest.raises(CallTimeoutError) as caught:
            await connection.call_tool("a", "echo", {"n": 1}, timeout_seconds=0.1)

        auth.go_on.set()
        await auth.done.wait()
        result = await connection.call_tool("a", "echo", {"n": 2})

    assert ("not_sent", 1, "new") == (caught.value.outcome, auth.asked, auth.token)
    assert ('{"tool": "echo", "arguments": {"n": 2}}', 1) == (result.text, server.runs("echo"))


async def test_the_last_word_is_asked_after_the_headers_were_waited_for(tmp_path):
    """A token may take seconds to come; who may not call any more when it is there has sent nothing."""
    armed = narrowed = False

    async def token() -> str:
        nonlocal narrowed
        narrowed = armed
        return "Bearer t"

    server = ScriptedServer(tmp_path, tools=[WRITE])
    async with (
        server.http(headers={"Authorization": token}) as entry,
        connected({"a": entry}, pins=ON_CHANGE, permissions=Permissions.full()) as connection,
    ):
        (handle,) = connection.tools("a")
        armed = True
        live = evolve(handle, live=lambda: (Permissions() if narrowed else Permissions.full(), None))
        with pytest.raises(RefusedError):
            await live()

    assert (True, 0) == (narrowed, server.runs("write"))


PLACES = {
    "with the priming event": b"id: 7\nretry: 100\ndata:\n\n",
    "alone": b"retry: 100\nid: 7\n\n",
    "with a notification": b'retry: 100\nid: 7\ndata: {"jsonrpc":"2.0","method":"notifications/x"}\n\n',
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_reply_whose_stream_breaks_off_is_taken_up_where_it_was(place):
    """A place was given, so a lost connection is no lost answer; another request's answer on the new stream is none."""
    asked: list[int] = []
    event = PLACES[place]

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if exchange.headers.get("last-event-id") == "7":
            replies = reply_bytes(1000, text_result("another's")), reply_bytes(asked[0], text_result("its own"))
            await exchange.events(b"".join(b"data: " + one + b"\n\n" for one in replies))
            return True

        if exchange.number != 1:
            return None

        asked.append(message["id"])
        await exchange.send(EVENTS_HEAD + b"%x\r\n%s\r\n" % (len(event), event))
        exchange.headers["connection"] = "close"
        return True

    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

        counts = site.calls, site.count("GET")

    assert ("its own", (1, 1)) == (result.text, counts)


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "405 Method Not Allowed", "204 No Content"])
async def test_a_broken_reply_that_cannot_be_taken_up_is_a_dropped_connection(status):
    """The server says no: the call ends at once, its outcome is unknown, and the next one is answered."""

    async def handle(exchange: Exchange) -> bool | None:
        await exchange.message()
        if exchange.headers.get("last-event-id"):
            await exchange.respond(status=status)
            return True

        if exchange.number != 1:
            return None

        await exchange.send(EVENTS_HEAD + b"18\r\nretry: 100\nid: 7\ndata:\n\n\r\n")
        exchange.headers["connection"] = "close"
        return True

    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo", {"n": 2})
        counts = site.calls, site.count("GET")

    assert ("connection_dropped", "unknown") == (caught.value.code, caught.value.outcome)
    assert ('{"n": 2}', (2, 1)) == (following.text, counts)


async def test_what_is_under_way_ends_with_a_forgotten_session(tmp_path):
    """No answer can come to it any more: it fails at once, unknown, and is not sent again."""
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        sessions=True,
        tools=[tool("slow"), tool("echo")],
        calls={"slow": hold("never"), "echo": [reply("first") + forget_sessions(), reply("second")]},
    )
    caught: list[CallError] = []
    async with server.http() as entry, connected({"a": entry}, pins=ON_CHANGE) as connection:

        async def call_slow() -> None:
            with pytest.raises(ServerLostError) as error:
                await connection.call_tool("a", "slow")

            caught.append(error.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_slow)
            await server.wait_for(lambda s: s.ledger("holding"))
            with anyio.fail_after(AT_ONCE_SECONDS):
                await connection.call_tool("a", "echo")
                second = await connection.call_tool("a", "echo")
                while not caught:
                    await anyio.lowlevel.checkpoint()

    assert ("second", 1) == (second.text, server.runs("slow"))
    assert ("session_lost", "unknown") == (caught[0].code, caught[0].outcome)


async def test_who_leaves_while_a_header_is_waited_for_has_sent_nothing(tmp_path):
    """A deadline inside a callable: not sent, and the server hears of no cancellation."""
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": reply()})
    waiting = anyio.Event()

    async def never() -> str:
        if armed:
            waiting.set()
            await anyio.sleep_forever()

        return "Bearer t"

    armed = False
    async with (
        server.http(headers={"Authorization": never}) as entry,
        connected({"a": entry}, pins=ON_CHANGE) as connection,
    ):
        armed = True
        with pytest.raises(CallTimeoutError) as caught:
            await connection.call_tool("a", "echo", timeout_seconds=0.1)

        armed = False
        await connection.call_tool("a", "echo")

    assert waiting.is_set()
    assert "not_sent" == caught.value.outcome
    assert [] == server.received("notifications/cancelled")


async def test_behind_a_proxy_that_opens_no_tunnel_a_call_is_not_sent(tmp_path):
    """The proxy was asked, the server was not: told as not sent, and the next call works."""
    closed = False
    certificate, key = make_certificate(tmp_path)

    async def handle(exchange: Exchange) -> bool | None:
        await exchange.answer()
        exchange.headers["connection"] = "close"
        return True

    async def serve(stream: SocketStream) -> None:
        async with stream:
            asked = await stream.receive()
            assert asked.startswith(b"CONNECT ")
            if closed:
                await anyio.sleep_forever()

            await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
            async with await anyio.connect_tcp("127.0.0.1", port) as behind, anyio.create_task_group() as both:
                both.start_soon(pass_on, stream, behind)
                await pass_on(behind, stream)
                both.cancel_scope.cancel()

    async def pass_on(source: SocketStream, target: SocketStream) -> None:
        with suppress(*GONE):
            while True:
                await target.send(await source.receive())

    async with (
        listening(handle) as site,
        tls_in_front_of(site.port, certificate, key) as port,
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        proxy = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        url = f"https://127.0.0.1:{port}/mcp"
        server = HttpServer(url, verify=str(certificate), proxy=proxy, protocol="legacy")
        async with connected({"a": server}, pins=ON_CHANGE) as connection:
            await connection.call_tool("a", "echo")
            closed = True
            with pytest.raises(CallTimeoutError) as caught:
                await connection.call_tool("a", "echo", timeout_seconds=0.3)

            closed = False
            result = await connection.call_tool("a", "echo", {"n": 2})

        tasks.cancel_scope.cancel()

    assert ("not_sent", '{"n": 2}', 2) == (caught.value.outcome, result.text, site.calls)


async def test_a_page_in_place_of_the_server_s_own_stream_is_not_asked_for_again(tmp_path):
    """A 200 that is no event stream says, in its way, that there is none."""

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if exchange.method == "GET":
            await exchange.respond(b"<html>", kind="text/html", extra="x: y\r\n")
            asked.set()
            return True

        if message and message["method"] == "initialize":
            await exchange.answer(extra="mcp-session-id: s\r\n")
            return True

        return None

    asked = anyio.Event()
    async with listening(handle) as site, connected({"a": site.server()}) as connection:
        await asked.wait()
        with anyio.move_on_after(1.2):
            await anyio.sleep_forever()

        await connection.call_tool("a", "echo")
        count = site.count("GET")

    assert 1 == count
