"""Misbehaviours over HTTP that nobody has reported yet: heads, bodies, streams and connections as no server should be.

The bytes are the test's own, on real sockets (`raw_sockets`).
"""

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import Awaitable, Callable

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, NEVER, connected
from raw_sockets import Exchange, listening, reply_bytes, text_result

from deputy_mcp import (
    CallError,
    CallTimeoutError,
    HttpStatusError,
    MalformedReplyError,
    PinBook,
    ServerLostError,
    ServerState,
)
from deputy_mcp.testing import ScriptedServer, endless, redirect, reply, respond, stream, tool

pytestmark = pytest.mark.anyio

ON_CHANGE = PinBook(verify="change")
"""Nothing is listed before a call, so that what comes after one is the next call."""

TOOLS = [tool("echo"), tool("well")]

JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"

Turn = Callable[[Exchange, bytes], Awaitable[bool | None]]
"""Answers one call, given the reply that would have been right. True: the connection is spent."""


def on_first_call(turn: Turn) -> Callable[[Exchange], Awaitable[bool | None]]:
    """A server that misbehaves at the first call and is sane before and after."""

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if exchange.number != 1:
            return None

        if await turn(exchange, reply_bytes(message["id"], text_result("from the first call"))):
            exchange.headers["connection"] = "close"

        return True

    return handle


async def outcome_of(turn: Turn) -> tuple[CallError | str, str]:
    """What the misanswered call gave (its text or its error, at once) and the text of the next."""
    async with listening(on_first_call(turn)) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            try:
                first: CallError | str = (await connection.call_tool("a", "echo")).text
            except CallError as error:
                first = error

        following = await connection.call_tool("a", "echo", {"n": 2})
        status = connection.status()["a"]

    assert (ServerState.READY, 1) == (status.state, status.generation)
    return first, following.text


def raw(make: Callable[[bytes], bytes], *, spent: bool = True) -> Turn:
    """The bytes that `make` gives for the right reply."""

    async def turn(exchange: Exchange, right: bytes) -> bool:
        await exchange.send(make(right))
        return spent

    return turn


def whole(body: bytes, extra: bytes = b"") -> bytes:
    return JSON_HEAD + extra + b"content-length: %d\r\n\r\n" % len(body) + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", extra: bytes = b"") -> bytes:
    parts = b"".join(b"%x%s\r\n%s\r\n" % (len(chunk), extra, chunk) for chunk in chunks)
    return JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n" + parts + end


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


DELIVERED = {
    "early hints before the answer": raw(lambda r: b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 50 + whole(r)),
    "a body that ends with the connection": raw(lambda r: JSON_HEAD + b"\r\n" + r),
    "HTTP/1.0": raw(lambda r: b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + r),
    "chunks with extensions and trailers": raw(
        lambda r: chunked(r[:5], r[5:], extra=b";x=y", end=b"0\r\nx-trailer: 1\r\n\r\n"), spent=False
    ),
    "chunks of one byte": raw(lambda r: chunked(*(r[i : i + 1] for i in range(len(r)))), spent=False),
    "a length beside chunks": raw(lambda r: chunked(r).replace(b"transfer-", b"content-length: 5\r\ntransfer-", 1)),
    "a status of 299": raw(lambda r: whole(r).replace(b"200 OK", b"299 Odd"), spent=False),
    "a status of 206": raw(lambda r: whole(r).replace(b"200 OK", b"206 Partial"), spent=False),
    "no reason": raw(lambda r: whole(r).replace(b"200 OK", b"200 "), spent=False),
    "a reason of escapes": raw(lambda r: whole(r).replace(b"200 OK", b"200 \xff\xfe"), spent=False),
    "another charset": raw(lambda r: whole(r).replace(b"/json", b"/json; charset=utf-16"), spent=False),
    "a byte-order mark": raw(lambda r: whole(b"\xef\xbb\xbf" + r), spent=False),
    "white space around": raw(lambda r: whole(b"\r\n\t " + r + b"\n\n"), spent=False),
    "gzip": raw(lambda r: whole(gzip.compress(r), b"content-encoding: gzip\r\n"), spent=False),
    "zlib": raw(lambda r: whole(zlib.compress(r), b"content-encoding: deflate\r\n"), spent=False),
    "another session id": raw(lambda r: whole(r, b"mcp-session-id: other\r\n"), spent=False),
    "an event of several lines": raw(lambda r: EVENTS_HEAD + b"data: " + r.replace(b",", b",\ndata: ") + b"\n\n"),
    "an event under an id of zeros": raw(lambda r: EVENTS_HEAD + b"id: a\0b\ndata: " + r + b"\n\n"),
    "an event among others": raw(
        lambda r: EVENTS_HEAD + b"event: ping\ndata: {}\n\nevent: other\ndata: " + r + b"\n\ndata: " + r + b"\n\n"
    ),
}


@pytest.mark.parametrize("how", DELIVERED)
async def test_an_unusual_response_is_an_answer(how):
    """What HTTP and its streams allow, and what a client can read all the same, is delivered."""
    assert ("from the first call", '{"n": 2}') == await outcome_of(DELIVERED[how])


LOST = {
    "HTTP/0.9": raw(lambda r: r),
    "another protocol": raw(lambda r: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a switch of protocols": raw(
        lambda r: b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
    ),
    "two lengths": raw(lambda r: whole(r, b"content-length: 5\r\n")),
    "a length below zero": raw(lambda r: JSON_HEAD + b"content-length: -5\r\n\r\n" + r),
    "a length of words": raw(lambda r: JSON_HEAD + b"content-length: many\r\n\r\n" + r),
    "a chunk of words": raw(lambda r: JSON_HEAD + b"transfer-encoding: chunked\r\n\r\nmany\r\n" + r + b"\r\n0\r\n\r\n"),
    "an encoding of transfer that nobody knows": raw(lambda r: JSON_HEAD + b"transfer-encoding: rot13\r\n\r\n" + r),
    "a status of letters": raw(lambda r: whole(r).replace(b"200", b"2OO")),
    "a header without a name": raw(lambda r: whole(r, b": nothing\r\n")),
    "a header of zeros": raw(lambda r: whole(r, b"x: a\0b\r\n")),
    "a header of a megabyte": raw(lambda r: whole(r, b"x: " + b"a" * 1_000_000 + b"\r\n")),
    "a hundred thousand headers": raw(lambda r: whole(r, b"x-a: b\r\n" * 100_000)),
}


@pytest.mark.parametrize("how", LOST)
async def test_a_response_that_is_no_http_costs_its_own_call(how):
    """Bounded and at once; its outcome is unknown, and the next call goes over another connection."""
    first, following = await outcome_of(LOST[how])

    assert isinstance(first, ServerLostError)
    assert ("connection_dropped", "unknown") == (first.code, first.outcome)
    assert str(first).isprintable()
    assert '{"n": 2}' == following


MALFORMED = {
    "something behind it": raw(lambda r: whole(r + b"<!-- served by x -->"), spent=False),
    "a prefix against scripts": raw(lambda r: whole(b")]}',\n" + r), spent=False),
    "a length that cuts it off": raw(lambda r: JSON_HEAD + b"content-length: 20\r\n\r\n" + r[:20], spent=False),
    "gzip in gzip": raw(lambda r: whole(gzip.compress(gzip.compress(r)), b"content-encoding: gzip, gzip\r\n")),
    "gzip said once and done twice": raw(
        lambda r: whole(gzip.compress(gzip.compress(r)), b"content-encoding: gzip\r\n")
    ),
    "gzip cut off": raw(lambda r: whole(gzip.compress(r)[:-20], b"content-encoding: gzip\r\n")),
    "gzip with a wrong sum": raw(
        lambda r: whole(gzip.compress(r)[:-8] + b"\0" * 8, b"content-encoding: gzip\r\n"), spent=False
    ),
    "an encoding that was not asked for": raw(lambda r: whole(r, b"content-encoding: br\r\n"), spent=False),
    "text/json": raw(lambda r: whole(r).replace(b"application/json", b"text/json"), spent=False),
    "application/problem+json": raw(lambda r: whole(r).replace(b"on/json", b"on/problem+json"), spent=False),
    "no content with a body": raw(lambda r: whole(r).replace(b"200 OK", b"204 No Content")),
    "accepted, with a body that does not come": raw(lambda r: whole(r).replace(b"200 OK", b"202 Accepted")[:-5]),
    "a page that does not come": raw(lambda r: whole(r).replace(b"application/json", b"text/html")[:-5]),
    "an event that is not ended": raw(lambda r: EVENTS_HEAD + b"data: " + r + b"\n"),
    "an event of another name": raw(lambda r: EVENTS_HEAD + b"event: reply\ndata: " + r + b"\n\n"),
    "events of nothing": raw(lambda r: EVENTS_HEAD + b"data:\n\nretry: x\n\n"),
    "a field that nobody knows": raw(lambda r: EVENTS_HEAD + b"json: " + r + b"\n\n"),
}


@pytest.mark.parametrize("how", MALFORMED)
async def test_a_response_that_holds_no_answer_fails_its_call_at_once(how):
    """Cut off, doubled, wrongly packed or wrongly named: that call fails, and the next is answered."""
    first, following = await outcome_of(MALFORMED[how])

    assert isinstance(first, MalformedReplyError | ServerLostError)
    assert "unknown" == first.outcome
    assert str(first).isprintable()
    assert '{"n": 2}' == following


@pytest.mark.parametrize("status", ["300 Choices", "304 Not Modified", "400 ", "418 Teapot", "599 X", "600 X", "999 X"])
async def test_an_unusual_status_is_that_status(status):
    """Whatever the number, the caller learns it."""

    async def turn(exchange: Exchange, right: bytes) -> bool:
        await exchange.send(f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n".encode())
        return status.startswith("304")

    first, following = await outcome_of(turn)

    assert isinstance(first, HttpStatusError)
    assert int(status[:3]) == first.status
    assert '{"n": 2}' == following


# -- redirects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_turn_a_post_into_a_get_is_not_followed(tmp_path, status):
    """The call is not made by another method; status and target are told."""
    server = ScriptedServer(tmp_path, calls={"echo": [redirect("/other", status=status), reply("next")]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError, match="/other") as caught:
            await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo")

    assert (status, "next") == (caught.value.status, following.text)
    assert [] == [entry for entry in server.ledger("http") if entry["path"] == "/other"]


async def test_a_redirect_to_itself_comes_to_an_end(tmp_path):
    """A bounded number of requests, then an error with the status."""
    server = ScriptedServer(tmp_path, calls={"echo": redirect("/mcp")})
    async with server.http() as entry, connected({"a": entry}) as connection:
        before = len(server.ledger("http"))
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(CallError):
            await connection.call_tool("a", "echo")

        state = connection.status()["a"].state

    assert len(server.ledger("http")) - before < 40
    assert ServerState.READY is state


TARGETS = [
    *("file:///etc/passwd", "javascript:alert(1)", "ftp://127.0.0.1/x", "//evil.invalid/mcp", "http://[::1"),
    *(
        "http://evil.invalid/\x1b[31m",
        "http://127.0.0.1:99999/",
        "http://user:pw@evil.invalid/",
    ),
]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_redirect_to_what_is_no_place_of_the_server_is_an_error_of_one_clean_line(target):
    """Nothing is fetched or read there; the status is told, the session goes on."""

    async def turn(exchange: Exchange, right: bytes) -> bool:
        await exchange.respond(status="307 Temporary Redirect", extra=f"location: {target}\r\n")
        return False

    first, following = await outcome_of(turn)

    assert isinstance(first, HttpStatusError | ServerLostError)
    assert str(first).isprintable()
    assert "pw@" not in str(first)
    assert '{"n": 2}' == following


# -- waiting as told -----------------------------------------------------------------------------------------------

LATER = {
    "nan": None,
    "-1": None,
    "inf": None,
    "1e400": None,
    "0x10": None,
    "": None,
    "soon": None,
    "0, 5": None,
    "Wed, 99 Oct 2015 07:28:00 GMT": None,
    "Wed, 21 Oct 2015 07:28:00": None,
    "Mon, 01 Jan 0001 00:00:00 +9959": None,
    "3600": 3600,
}


@pytest.mark.parametrize("value", LATER)
async def test_a_time_to_come_back_that_is_none_is_not_waited_for(tmp_path, value):
    """The status is told at once, with the seconds where there are any; nothing is sent again."""
    server = ScriptedServer(tmp_path, calls={"echo": [respond(429, "later", headers={"retry-after": value}), reply()]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "echo")

    assert (429, LATER[value], "refused") == (
        caught.value.status,
        caught.value.retry_after_seconds,
        caught.value.outcome,
    )
    assert 1 == server.runs("echo")


@pytest.mark.parametrize("value", ["0", " 0 ", "0.05", "Wed, 21 Oct 2015 07:28:00 GMT"])
async def test_a_time_to_come_back_that_is_over_is_no_wait(tmp_path, value):
    """Sent once more, and once only: a second 429 is told."""
    again = respond(429, "later", headers={"retry-after": value})
    server = ScriptedServer(tmp_path, calls={"echo": [again, reply("now"), again, again, reply("never")]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        first = await connection.call_tool("a", "echo")
        with pytest.raises(HttpStatusError):
            await connection.call_tool("a", "echo")

    assert ("now", 4) == (first.text, server.runs("echo"))


# -- sessions and streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["s\x01\x02", "s\x7f", "s s", "s\tt", "s,t", '"s"', "x" * 60_000], ids=lambda name: repr(name)[:12]
)
async def test_an_odd_session_id_is_handed_back_as_it_came(name):
    """It is the server's own word; with it every request is made, and the good-bye too."""

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if message is None or message["method"] != "initialize":
            return None

        await exchange.answer(extra=f"mcp-session-id: {name}\r\n")
        return True

    async with listening(handle) as site, connected({"a": site.server()}) as connection:
        result = await connection.call_tool("a", "echo", {"n": 1})
        await connection.aclose()
        ids = [exchange.headers.get("mcp-session-id") for exchange in site.seen]

    assert '{"n": 1}' == result.text
    assert [None, *[name] * (len(ids) - 1)] == ids
    assert ["DELETE"] == [exchange.method for exchange in site.seen][-1:]


async def test_a_session_id_that_changes_in_mid_life_is_not_followed():
    """What the greeting gave is the session; another id on a later reply starts none."""
    count = 0

    async def handle(exchange: Exchange) -> bool | None:
        nonlocal count
        count += 1
        await exchange.answer(extra=f"mcp-session-id: s{count}\r\n")
        return True

    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        texts = [(await connection.call_tool("a", "echo", {"n": n})).text for n in range(3)]
        ids = {exchange.headers.get("mcp-session-id") for exchange in site.seen if exchange.number}
        generation = connection.status()["a"].generation

    assert [f'{{"n": {n}}}' for n in range(3)] == texts
    assert ({"s1"}, 1) == (ids, generation)


@pytest.mark.parametrize(
    "endpoint",
    [
        *("http://127.0.0.1:1/messages", "//evil.invalid/messages", "https://127.0.0.1/messages", "http://[::1"),
        *("javascript:x", "http://127.0.0.1:99999/", "/\x1b[31m", "x" * 100_000, "http://user:pw@127.0.0.1/"),
    ],
    ids=lambda endpoint: repr(endpoint)[:24],
)
async def test_an_endpoint_elsewhere_gets_no_message_and_no_header(endpoint):
    """On the legacy transport the server says where to post; another origin, or no address, is a failed start."""

    async def handle(exchange: Exchange) -> bool | None:
        if exchange.method == "GET":
            await exchange.begin_events()
            await exchange.send(b"event: endpoint\ndata: " + endpoint.encode() + b"\n\n")
            await anyio.sleep_forever()

        return None

    async with listening(handle) as site:
        entry = site.server(transport="sse", headers={"Authorization": "Bearer t"}, restart=NEVER)
        with anyio.fail_after(2 * AT_ONCE_SECONDS):
            async with connected({"a": entry}) as connection:
                status = connection.status()["a"]

    assert ServerState.FAILED is status.state
    assert (status.reason or "").isprintable()
    assert [] == [exchange for exchange in site.seen if exchange.method == "POST"]


async def test_an_endpoint_on_another_server_is_never_posted_to():
    """One that listens, and would answer: it hears nothing, and the token stays."""

    async def trap(exchange: Exchange) -> bool | None:
        return None

    async def handle(exchange: Exchange) -> bool | None:
        if exchange.method == "GET":
            await exchange.begin_events()
            await exchange.send(b"event: endpoint\ndata: http://127.0.0.1:%d/mcp\n\n" % elsewhere.port)
            await anyio.sleep_forever()

        return None

    async with listening(trap) as elsewhere, listening(handle) as site:
        entry = site.server(transport="sse", headers={"Authorization": "Bearer t"}, restart=NEVER)
        async with connected({"a": entry}) as connection:
            status = connection.status()["a"]

    assert ServerState.FAILED is status.state
    assert "origin" in (status.reason or "")
    assert [] == elsewhere.seen


@pytest.mark.parametrize("subscription", ["its own", "another"])
async def test_a_flood_on_the_stream_of_changes_starts_no_flood_of_tasks(subscription):
    """Twenty thousand notices on a 2026-07-28 `listen` stream: few tasks, few listings, and calls are answered."""
    key = "io.modelcontextprotocol/subscriptionId"
    listened, flooded, go_on = anyio.Event(), anyio.Event(), anyio.Event()
    capabilities = {"tools": {"listChanged": True}}

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        match message and message["method"]:
            case "server/discover":
                info = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
                await exchange.answer(info | {"ttlMs": 0, "cacheScope": "private"})
            case "subscriptions/listen":
                await exchange.begin_events()
                meta = {"_meta": {key: message["id"]}}
                params = meta | {"notifications": message["params"]["notifications"]}
                await exchange.send(event("notifications/subscriptions/acknowledged", params))
                listened.set()
                await go_on.wait()
                change = meta if subscription == "its own" else {"_meta": {key: "somebody-else"}}
                for _ in range(200):
                    await exchange.send(event("notifications/tools/list_changed", change) * 100)

                flooded.set()
                await anyio.sleep_forever()
            case _:
                return None

        return True

    def event(method: str, params: dict) -> bytes:
        return b"data: " + json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n\n"

    async with listening(handle) as site, connected({"a": site.server(protocol="auto")}) as connection:
        await listened.wait()
        idle = len(asyncio.all_tasks())
        go_on.set()
        most = 0
        while not flooded.is_set():
            most = max(most, len(asyncio.all_tasks()))
            await connection.call_tool("a", "echo", {"n": 1})

        after = await connection.call_tool("a", "echo", {"n": 2})

    assert '{"n": 2}' == after.text
    assert most < idle + 100


@pytest.mark.parametrize("flood", [": still here\n\n", ": x\n", "id: 1\n\n", "data: x\n\n"])
async def test_an_event_stream_that_never_says_anything_costs_its_own_call_alone(tmp_path, flood):
    """Comments, ids or nonsense for ever in place of an answer: that call ends with its deadline, and the server beside
    it goes on answering all the while."""
    flooding = ScriptedServer(tmp_path, name="flooding", tools=TOOLS, calls={"echo": stream() + endless(flood)})
    healthy = ScriptedServer(tmp_path, name="healthy", tools=TOOLS)
    async with flooding.http() as entry, connected({"a": entry, "b": healthy.stdio()}, pins=ON_CHANGE) as connection:
        begun = anyio.current_time()
        flooded = asyncio.ensure_future(connection.call_tool("a", "echo", timeout_seconds=1))
        answered = 0
        while not flooded.done():
            await connection.call_tool("b", "well")
            answered += 1

        with pytest.raises(CallTimeoutError):
            await flooded

        took = anyio.current_time() - begun
        after = await connection.call_tool("a", "well")

    assert "well" in after.text
    assert took < 1.5
    assert answered > 50


async def test_an_answer_before_the_request_was_read_is_the_answer():
    """A server may know enough after the beginning; it takes the rest afterwards, and the next call works."""

    async def handle(exchange: Exchange) -> bool | None:
        if exchange.length < 1_000_000:
            return None

        found = re.search(rb'"id":(\d+)', await exchange.begin(200))
        assert found is not None
        await exchange.respond(reply_bytes(int(found[1]), text_result("early")))
        await exchange.message()
        return True

    async with listening(handle) as site, connected({"a": site.server()}) as connection:
        result = await connection.call_tool("a", "echo", {"x": "y" * 2_000_000})
        following = await connection.call_tool("a", "echo", {"n": 2})

    assert ("early", '{"n": 2}') == (result.text, following.text)


async def test_a_connection_closed_between_calls_is_opened_again():
    """A server that keeps no connection alive, and says nothing about it, costs no call."""

    async def handle(exchange: Exchange) -> bool | None:
        await exchange.answer()
        exchange.headers["connection"] = "close"
        return True

    async with listening(handle) as site, connected({"a": site.server()}) as connection:
        texts = []
        for n in range(10):
            texts.append((await connection.call_tool("a", "echo", {"n": n})).text)
            # The good-bye of the connection has come when the loop has nothing else to do.
            await anyio.wait_all_tasks_blocked()

    assert [f'{{"n": {n}}}' for n in range(10)] == texts
