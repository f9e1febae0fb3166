"""What the next servers would do to us: each test gives the right value, and fails until the library does.

Once all of them pass they are tests like any others.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, NEVER, connected, until
from raw_sockets import Exchange, listening, reply_bytes, sane_result, text_result
from structlog.testing import capture_logs

from deputy_mcp import (
    CallError,
    CallTimeoutError,
    HttpStatusError,
    Limits,
    PinBook,
    RefusedError,
    RemoteError,
    ServerState,
    StdioServer,
)
from deputy_mcp._core.messages import Noise
from deputy_mcp.testing import (
    ScriptedServer,
    end_stream,
    freeze,
    hold,
    junk,
    notify,
    reply,
    respond,
    send,
    stream,
    tool,
)

pytestmark = pytest.mark.anyio

JSON = "application/json"
ON_CHANGE = PinBook(verify="change")
ROOMY = Limits(call_timeout_seconds=15, startup_timeout_seconds=18, shutdown_timeout_seconds=1)

LONGEST_PAUSE_SECONDS = 1.0
"""What is wanted is a third of it; the rest is for a busy machine."""


def said(request_id, text):
    """A whole reply."""
    return {"jsonrpc": "2.0", "id": request_id, "result": text_result(text)}


class Heart:
    """The longest time between two turns of the event loop."""

    longest_pause_seconds = 0.0


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    heart = Heart()

    async def beat() -> None:
        # In this process's own time: what the machine does for others meanwhile is no stall of the loop.
        last = time.process_time()
        while True:
            await anyio.sleep(0.005)
            now = time.process_time()
            heart.longest_pause_seconds = max(heart.longest_pause_seconds, now - last)
            last = now

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        await anyio.lowlevel.checkpoint()
        yield heart
        await anyio.sleep(0.01)  # one more beat, so that a pause at the very end is seen
        tasks.cancel_scope.cancel()


# -- answers that are not one's own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", [9999, "9999", "x", 0], ids=repr)
async def test_an_event_that_answers_another_request_is_not_this_one_s_answer(tmp_path, foreign):
    """A stream that belongs to one request may carry a reply to another by mistake: nobody gets it."""
    turn = stream() + send(said(foreign, "foreign")) + reply("mine")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


async def test_a_stream_that_ends_with_another_s_answer_fails_its_call(tmp_path):
    """As a JSON body with another id does."""
    turns = [stream() + send(said(9999, "foreign")) + end_stream(), reply("next")]
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(CallError) as caught:
            await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo")

    assert ("unknown", "next") == (caught.value.outcome, following.text)


async def test_answers_on_each_other_s_streams_reach_nobody_else(tmp_path):
    """Two calls at once, and each stream carries the other's answer first."""
    ids: dict[str, int] = {}
    both = anyio.Event()

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if not exchange.number:
            return None

        mine = message["params"]["arguments"]["who"]
        other = {"a": "b", "b": "a"}[mine]
        ids[mine] = message["id"]
        if len(ids) == 2:
            both.set()

        await both.wait()
        swapped = b"data: " + reply_bytes(ids[other], text_result(other)) + b"\n\n"
        await exchange.events(swapped + b"data: " + reply_bytes(ids[mine], text_result(mine)) + b"\n\n")
        return True

    texts: dict[str, str] = {}
    async with listening(handle) as site, connected({"s": site.server()}) as connection:

        async def call(who: str) -> None:
            texts[who] = (await connection.call_tool("s", "echo", {"who": who})).text

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "a")
            tasks.start_soon(call, "b")

    assert {"a": "a", "b": "b"} == texts


async def test_of_two_answers_in_one_body_the_first_counts(tmp_path):
    """As it does on a stream and over stdio."""
    body = json.dumps([said("ID", "first"), said("ID", "second")]).replace('"ID"', "$id")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": respond(200, body, content_type=JSON)})
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "first" == result.text


async def test_an_error_before_a_result_in_one_body_is_an_error(tmp_path):
    """The first word counts, and of both at once the cautious reading."""
    error = {"jsonrpc": "2.0", "id": "ID", "error": {"code": 7, "message": "no"}}
    body = json.dumps([error, said("ID", "second")]).replace('"ID"', "$id")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": respond(200, body, content_type=JSON)})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with pytest.raises(RemoteError):
            await connection.call_tool("a", "echo")


async def test_a_request_of_the_server_past_the_cap_fails_no_call_of_ours(tmp_path):
    """Under the very id of a call in flight: what names a method is no reply, however large it is."""
    request = b'{"jsonrpc":"2.0","id":$id,"method":"sampling/createMessage","params":{"x":"%s"}}\n' % (b"A" * 300_000)
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": junk(request) + reply("mine")})
    limits = Limits(max_message_bytes=100_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


async def test_an_answer_to_what_has_not_left_is_nobody_s():
    """Behind a message that fills the pipe a call is only queued; a guessed answer to it is none."""
    code = (
        SERVE
        + """
def take(message):
    answer(message)
    if message.get("method") == "tools/call" and len(sys.argv) and not seen:
        seen.append(1)
        time.sleep(1)
        for number in range(message["id"] + 1, message["id"] + 6):
            guess = {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "guess"}]}}
            os.write(1, json.dumps(guess).encode() + b"\\n")
        time.sleep(0.3)
seen = []
serve()
"""
    )
    entry = StdioServer(sys.executable, args=("-S", "-E", "-c", code), protocol="legacy")
    texts: dict[str, str] = {}
    async with connected({"a": entry}, pins=ON_CHANGE) as connection:
        await connection.call_tool("a", "echo")

        async def call(name: str, arguments: dict) -> None:
            texts[name] = (await connection.call_tool("a", "echo", arguments)).text

        before = connection.status()["a"].bytes_out
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "large", {"x": "y" * 3_000_000})
            while connection.status()["a"].bytes_out == before:
                await anyio.lowlevel.checkpoint()

            tasks.start_soon(call, "queued", {"x": 1})

    assert "guess" != texts["queued"]


SERVE = """
import json, os, signal, sys, threading, time

def answer(message):
    method = message.get("method")
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"},
                                  "annotations": {"readOnlyHint": True, "openWorldHint": False}}]},
        "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
    }
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
        os.write(1, json.dumps(reply).encode() + b"\\n")

def serve():
    for line in sys.stdin.buffer:
        take(json.loads(line))
"""


# -- noise that is taken for more, and answers that are taken for less ------------------------------------------------

LOGGED = {
    "an object over several lines": b'{\n  port: 3000,\n  host: "127.0.0.1"\n}\n',
    "JSON over several lines": b'{\n  "port": 3000,\n  "paths": [\n    "/a"\n  ]\n}\n',
    "a list over several lines": b'[{\n  "name": "x"\n}]\n',
}


@pytest.mark.parametrize("what", LOGGED)
@pytest.mark.parametrize("when", ["at the start", "before an answer"])
async def test_a_settings_object_printed_over_several_lines_ends_no_server(tmp_path, what, when):
    """`console.log(settings)` prints that way; only a *message* over several lines shows that none can ever come."""
    banner = junk(LOGGED[what])
    server = (
        ScriptedServer(tmp_path, at_start=banner)
        if when == "at the start"
        else ScriptedServer(tmp_path, calls={"echo": banner + reply()})
    )
    async with connected({"a": server.stdio(restart=NEVER)}) as connection:
        results = [await connection.call_tool("a", "echo") for _ in range(2)]
        status = connection.status()["a"]

    assert [False, False] == [result.is_error for result in results]
    assert (ServerState.READY, 1) == (status.state, status.generation)


@pytest.mark.parametrize("message", ['{"jsonrpc":"2.0","id":1,"result":{}}'])
async def test_a_message_printed_over_several_lines_is_still_told_apart(tmp_path, message):
    """The other side of the same rule: a pretty-printed message names its framing before the start deadline."""
    pretty = json.dumps(json.loads(message), indent=2)
    server = ScriptedServer(tmp_path, at_start=junk(pretty + "\n") + freeze())
    limits = Limits(startup_timeout_seconds=6, shutdown_timeout_seconds=0.5)
    async with connected({"a": server.stdio(restart=NEVER)}, limits=limits) as connection:
        status = connection.status()["a"]

    assert "pretty-printed" in (status.last_error or "")


QUOTED = {
    "what it received": b'<-- {"jsonrpc":"2.0","id":$id,"method":"tools/call","params":{"name":"echo"}}\n',
    "what it does": b'[debug] handling {"id":$id,"tool":"echo"}\n',
    "a trace": b'{"level":"debug","id":$id,"method":"tools/call","params":{"a":NaN,}\n',
}


@pytest.mark.parametrize("what", QUOTED)
async def test_a_log_line_that_quotes_our_request_is_no_answer_to_it(tmp_path, what):
    """Debug output on stdout, with our id in it: it is noise, and the answer after it is delivered."""
    server = ScriptedServer(tmp_path, calls={"echo": junk(QUOTED[what]) + reply("mine")})
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


async def test_the_log_of_noise_shows_what_the_noise_was(tmp_path):
    """Its beginning, clean and masked: "no valid JSON" alone tells nobody which line to take out of a server."""
    secret = "sk-live-0123456789"
    noise = junk(f"\x1b[31mbooting with {secret}\n")
    server = ScriptedServer(tmp_path, calls={"echo": noise + reply("fine")})
    with capture_logs() as lines:
        async with connected({"a": server.stdio(env={"KEY": secret})}) as connection:
            await connection.call_tool("a", "echo")

    (sample,) = [line["sample"] for line in lines if line["event"] == "server_noise"]
    assert "booting with ***" in sample
    assert sample.isprintable()


async def test_two_messages_on_one_line_are_two_messages(tmp_path):
    """Two threads that print at once: `{…}{…}` and then two line breaks. Neither answer is lost."""
    both = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
    both += b'{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"mine"}]}}\n\n'
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": junk(both)})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


async def test_two_answers_on_one_line_answer_two_calls(tmp_path):
    """The second call does not wait for its deadline because the first one's answer came on the same line."""
    code = (
        SERVE
        + """
held = []
def take(message):
    if message.get("method") != "tools/call":
        answer(message)
        return
    held.append(message["id"])
    if len(held) == 2:
        replies = [{"jsonrpc": "2.0", "id": n, "result": {"content": [{"type": "text", "text": "t"}]}} for n in held]
        os.write(1, "".join(map(json.dumps, replies)).encode() + b"\\n\\n")
serve()
"""
    )
    entry = StdioServer(sys.executable, args=("-S", "-E", "-c", code), protocol="legacy")
    texts: list[str] = []
    async with connected({"a": entry}) as connection:

        async def call() -> None:
            texts.append((await connection.call_tool("a", "echo", timeout_seconds=3)).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            tasks.start_soon(call)

    assert ["t", "t"] == texts


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
async def test_a_reply_that_repeats_its_method_is_a_reply(tmp_path, transport):
    """Some JSON-RPC libraries echo `method` beside `result`; what holds a result is no request."""
    start = stream() if transport == "http" else send([])
    turn = start + send(said("$id", "mine") | {"method": "tools/call"}) + hold("never")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})

    async def check(entry) -> str:
        async with connected({"a": entry}) as connection:
            with anyio.fail_after(AT_ONCE_SECONDS):
                return (await connection.call_tool("a", "echo")).text

    if transport == "stdio":
        text = await check(server.stdio())
    else:
        async with server.http(transport=transport) as entry:
            text = await check(entry)

    assert "mine" == text


async def test_a_batch_of_a_request_and_the_answer_on_a_stream_is_both(tmp_path):
    """Protocol 2025-03-26 allows it; over stdio it works."""
    batch = [{"jsonrpc": "2.0", "id": "q", "method": "ping"}, said("$id", "mine")]
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": stream() + send(batch) + end_stream()})
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


async def test_a_server_that_writes_utf_16_is_told_apart(tmp_path):
    """From such a stream no message can ever come: it is named before the start deadline is over."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}) + "\n"
    server = ScriptedServer(tmp_path, at_start=junk(line.encode("utf-16-le"), times=5) + freeze())
    limits = Limits(startup_timeout_seconds=4, shutdown_timeout_seconds=0.5)
    async with connected({"a": server.stdio(restart=NEVER)}, limits=limits) as connection:
        status = connection.status()["a"]

    assert "UTF-16" in (status.last_error or "")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
async def test_progress_that_json_has_no_number_for_is_reported_to_nobody(tmp_path, number):
    """A callback that shows a percentage must not fail the call by it."""
    params = b'{"progressToken":$id,"progress":%s,"total":10}' % number.encode()
    line = b'{"jsonrpc":"2.0","method":"notifications/progress","params":%s}\n' % params
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": junk(line) + reply("fine")})
    reports = []
    async with connected({"a": server.stdio()}) as connection:
        await connection.call_tool("a", "echo", progress=lambda *report: reports.append(report))

    assert [] == reports


@pytest.mark.parametrize("token", [9999, "x", None, True, [1]], ids=repr)
async def test_progress_of_another_call_on_this_one_s_stream_is_not_this_one_s(tmp_path, token):
    """The token says whose it is, over HTTP as over stdio."""
    turn = stream() + notify("notifications/progress", {"progressToken": token, "progress": 1}) + reply("fine")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})
    reports = []
    async with server.http() as entry, connected({"a": entry}) as connection:
        await connection.call_tool("a", "echo", progress=lambda *report: reports.append(report))

    assert [] == reports


# -- statuses, streams and connections ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_a_status_whose_body_does_not_come_is_that_status(tmp_path, status):
    """What the head says is enough; nobody waits for the explanation until his deadline is over."""
    head = f"HTTP/1.1 {status} No\r\ncontent-type: text/plain\r\nretry-after: 3600\r\ncontent-length: 99\r\n\r\nbe"
    server = ScriptedServer(tmp_path, calls={"echo": junk(head) + freeze("end")})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(2 * AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "echo")

    assert (status, 3600) == (caught.value.status, caught.value.retry_after_seconds)


def resumable(retry: bytes) -> bytes:
    """A whole stream that brings no answer and may be resumed."""
    return b"id: 7\nretry: " + retry + b"\ndata: \n\n"


@pytest.mark.parametrize("retry", [b"0", b"1"])
async def test_a_stream_that_is_to_be_resumed_at_once_is_not_asked_for_hundreds_of_times(retry):
    """A server's `retry: 0` is no reason to flood it: the resumptions come at intervals, and end with the call."""

    async def handle(exchange: Exchange) -> bool | None:
        if exchange.method == "GET" or (await exchange.message() and exchange.number == 1):
            await exchange.events(resumable(retry))
            return True

        return None

    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "echo", timeout_seconds=1)

        during = site.count("GET")
        await connection.call_tool("a", "echo")
        with anyio.move_on_after(1):
            await anyio.sleep_forever()

        afterwards = site.count("GET") - during

    assert during <= 20
    assert afterwards <= 2


@pytest.mark.parametrize("retry", [b"-5", b"9" * 400], ids=["below zero", "400 digits"])
async def test_a_retry_field_that_is_no_time_ends_no_session(retry):
    """It costs at most the call on whose stream it came; its sibling is answered by the same session."""
    go_on = anyio.Event()

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if message is None or not exchange.number:
            return None

        if message["params"]["arguments"]["who"] == "bad":
            await exchange.events(resumable(retry))
            return True

        await go_on.wait()
        return None

    results = []
    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:

        async def call_sibling() -> None:
            results.append((await connection.call_tool("a", "echo", {"who": "good"})).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_sibling)
            while site.calls == 0:
                await anyio.sleep(0.005)

            with pytest.raises(CallError):
                await connection.call_tool("a", "echo", {"who": "bad"}, timeout_seconds=1)

            go_on.set()

        generation = connection.status()["a"].generation

    assert (['{"who": "good"}'], 1) == (results, generation)


async def test_a_call_that_was_given_up_leaves_no_task_that_waits_to_resume_it():
    """`retry` may be a thousand years; who asks for the answer has gone after a second."""

    async def handle(exchange: Exchange) -> bool | None:
        if await exchange.message() and exchange.number % 2 == 0 and exchange.number:
            await exchange.events(resumable(b"31536000000000"))
            return True

        return None

    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        await connection.call_tool("a", "echo")
        idle = len(asyncio.all_tasks())
        for _ in range(10):
            with pytest.raises(CallError):
                await connection.call_tool("a", "echo", timeout_seconds=0.1)

            await connection.call_tool("a", "echo")

        left = len(asyncio.all_tasks()) - idle

    assert left <= 3


async def test_a_stream_of_the_server_s_own_that_ends_at_once_is_not_asked_for_hundreds_of_times():
    """With `retry: 0` and without: a stream that brought nothing is opened again at growing intervals."""

    async def handle(exchange: Exchange) -> bool | None:
        if exchange.method == "GET":
            await exchange.events(b"retry: 0\n\n")
            return True

        message = await exchange.message()
        if message and message["method"] == "initialize":
            await exchange.answer(extra="mcp-session-id: s\r\n")
            return True

        return None

    async with listening(handle) as site, connected({"a": site.server()}) as connection:
        with anyio.move_on_after(1.5):
            await anyio.sleep_forever()

        result = await connection.call_tool("a", "echo")

    assert not result.is_error
    assert site.count("GET") <= 10


async def test_cookies_do_not_grow_without_end():
    """Each reply sets other ones: what is sent back stays small, and nothing is kept for ever."""
    count = 0

    async def handle(exchange: Exchange) -> bool | None:
        nonlocal count
        count += 1
        await exchange.answer(extra="".join(f"set-cookie: c{count}x{n}={'v' * 900}\r\n" for n in range(60)))
        return True

    async with listening(handle) as site, connected({"a": site.server()}) as connection:
        for _ in range(10):
            await connection.call_tool("a", "echo")

        longest = max(len(exchange.headers.get("cookie", "")) for exchange in site.seen)

    assert longest <= 16 * 1024


async def test_a_server_that_writes_every_response_twice_answers_in_the_end():
    """The second copy is taken for the next answer; a server that cannot frame gets no second request a connection."""

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if not exchange.number:
            return None

        body = reply_bytes(message["id"], sane_result(message))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        await exchange.send((head + body) * 2)
        return True

    outcomes = []
    async with listening(handle) as site, connected({"a": site.server()}, pins=ON_CHANGE) as connection:
        for n in range(8):
            try:
                outcomes.append((await connection.call_tool("a", "echo", {"n": n})).text)
            except CallError as error:
                outcomes.append(type(error).__name__)

    wrong = [text for n, text in enumerate(outcomes) if text.startswith("{") and text != f'{{"n": {n}}}']
    assert [] == wrong
    assert [f'{{"n": {n}}}' for n in range(4, 8)] == outcomes[4:]


async def test_a_session_id_that_no_header_may_hold_is_a_reason():
    """A start that fails by it says so, instead of "its session failed"."""

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if message and message["method"] == "initialize":
            await exchange.answer(extra="mcp-session-id: s\xe9\r\n")
            return True

        return None

    async with listening(handle) as site, connected({"a": site.server(restart=NEVER)}) as connection:
        status = connection.status()["a"]

    assert status.state is ServerState.READY or "session id" in (status.reason or "")


FIRST_LISTINGS = {
    "null": send({"jsonrpc": "2.0", "id": "$id", "result": None}),
    "too large": reply(result={"tools": [tool("echo", description="x" * 200_000)]}),
    "an error that is none": send({"jsonrpc": "2.0", "id": "$id", "error": "no"}),
}


@pytest.mark.parametrize("kind", FIRST_LISTINGS)
async def test_a_first_listing_that_is_no_listing_quarantines_at_once(tmp_path, kind):
    """Starting it again would give the same: a person must look, as with an error in its place."""
    server = ScriptedServer(tmp_path, methods={"tools/list": FIRST_LISTINGS[kind]})
    limits = Limits(max_message_bytes=100_000, startup_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        resting = (ServerState.QUARANTINED, ServerState.FAILED)
        await until(connection, lambda status: status["a"].state in resting)
        state = connection.status()["a"].state

    assert (ServerState.QUARANTINED, 1) == (state, len(server.pids()))


# -- nothing stops the loop, nothing grows --------------------------------------------------------------------------

HEAVY = {
    "control characters": b'{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"%s"}]}}\n'
    % (b"\x7f" * 6_000_000),
    "text blocks": b'{"jsonrpc":"2.0","id":$id,"result":{"content":[%s]}}\n'
    % b",".join([b'{"type":"text","text":""}'] * 300_000),
    "a batch of nothing": b"[%s]\n" % b",".join([b"{}"] * 450_000),
}


@pytest.mark.parametrize("kind", HEAVY)
async def test_no_reply_within_the_limits_stops_the_loop(tmp_path, kind):
    """Cleaning, modelling and sorting cost time; the other servers' calls go on meanwhile."""
    server = ScriptedServer(tmp_path, calls={"echo": junk(HEAVY[kind]) + reply("after")})
    async with connected({"a": server.stdio()}, limits=ROOMY) as connection:
        await connection.discover("a", "tools")
        async with beating() as heart:
            # A batch past all reason may end its server as flooded.
            with anyio.move_on_after(12), suppress(CallError):
                await connection.call_tool("a", "echo")

    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


def many(count: int, **members):
    return [tool("echo"), *(tool(f"t{n}", **members) for n in range(count))]


LISTINGS = {
    "a hundred thousand properties": lambda: [
        tool("echo"),
        tool(
            "wide", inputSchema={"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(100_000)}}
        ),
    ],
    "descriptions of control characters": lambda: many(600, description="\x7f" * 8_000),
    "many values in all": lambda: many(220, inputSchema={"type": "object", "x": [1] * 4_000}),
    "four hundred thousand fractions": lambda: [tool("echo", _meta={"x": [1.5] * 400_000})],
}


@pytest.mark.parametrize("kind", LISTINGS)
async def test_no_listing_within_the_limits_stops_the_loop(tmp_path, kind):
    """Judging tools costs time; the other servers' calls go on meanwhile."""
    entry = ScriptedServer(tmp_path, tools=LISTINGS[kind](), page_size=300).stdio()
    async with beating() as heart:
        async with connected({"a": entry}, limits=ROOMY) as connection:
            with anyio.move_on_after(8):
                await connection.call_tool("a", "echo")

    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_no_greeting_within_the_limits_stops_the_loop(tmp_path, wire):
    """Three hundred thousand wrong members are one reason, not three hundred thousand."""
    experimental = {f"k{n}": 1 for n in range(300_000)}
    greeting = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": "1"}}
    wrong = reply(result=greeting | {"capabilities": {"experimental": experimental}})
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": wrong})
    async with server.http(restart=NEVER) as at_http, beating() as heart:
        entry = at_http if wire == "http" else server.stdio(restart=NEVER)
        async with connected({"a": entry}, limits=ROOMY) as connection:
            status = connection.status()["a"]

    assert ServerState.READY is not status.state
    assert "JSON values" in (status.reason or "")
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


async def test_a_misspelt_name_among_thousands_alike_stops_nothing(tmp_path):
    """Names that look alike are found within bounds, however a server chooses its names."""
    names = ["echo", *(f"{'a' * 190}{n:04}" for n in range(1_900))]
    server = ScriptedServer(tmp_path, tools=[tool(name) for name in names])
    async with connected({"a": server.stdio()}, limits=ROOMY) as connection:
        async with beating() as heart:
            with pytest.raises(RefusedError):
                await connection.call_tool("a", names[1][:-1] + "x")

    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


FLOODS = {"stderr": 2, "stdout": 1}


@pytest.mark.parametrize("where", FLOODS)
async def test_a_flood_of_short_lines_does_not_starve_the_other_servers(tmp_path, where):
    """A neighbour's calls take no longer than ten times what they take beside a flood without line breaks on stderr."""

    async def seconds_beside(fd: int, data: str) -> float:
        code = (
            SERVE
            + f"""
def flood():
    while True:
        os.write({fd}, {data})

def take(message):
    answer(message)
    if message.get("method") == "tools/list":
        threading.Thread(target=flood, daemon=True).start()
serve()
"""
        )
        loud = StdioServer(sys.executable, args=("-S", "-E", "-c", code), protocol="legacy")
        with anyio.fail_after(BOUND_SECONDS):
            async with connected({"loud": loud, "b": quiet.stdio()}, limits=ROOMY, pins=ON_CHANGE) as connection:
                began = anyio.current_time()
                for _ in range(60):
                    await connection.call_tool("b", "echo")

                return anyio.current_time() - began

    quiet = ScriptedServer(tmp_path)
    usual = await seconds_beside(2, 'b"x" * 65536')
    beside = await seconds_beside(FLOODS[where], r'b"y\n" * 32768')

    assert beside < 10 * usual


async def test_a_flood_on_the_legacy_stream_waits_to_be_read():
    """What is read faster than it is sorted piles up in the socket and not in our memory; a call is answered after."""
    streams: list[Exchange] = []
    flooded = anyio.Event()
    go_on = anyio.Event()
    most = 0

    async def handle(exchange: Exchange) -> bool | None:
        if exchange.method == "GET":
            await exchange.begin_events()
            await exchange.send(b"event: endpoint\ndata: /messages\n\n")
            streams.append(exchange)
            await go_on.wait()
            for _ in range(150):
                await exchange.send(b"data: {}\n\n" * 1_000)

            flooded.set()
            await anyio.sleep_forever()

        message = await exchange.message()
        await exchange.respond(status="202 Accepted")
        if "id" in message:
            body = reply_bytes(message["id"], sane_result(message))
            await streams[-1].send(b"data: " + body + b"\n\n")

        return True

    async with listening(handle) as site, connected({"a": site.server(transport="sse")}, limits=ROOMY) as connection:
        await connection.call_tool("a", "echo")
        go_on.set()
        while not flooded.is_set():
            most = max(most, sum(isinstance(thing, Noise) for thing in gc.get_objects()))
            await anyio.sleep(0.05)

        result = await connection.call_tool("a", "echo")

    assert not result.is_error
    assert most < 20_000


# -- what outlives, and what is shown ---------------------------------------------------------------------------------


async def test_the_name_of_a_refused_tool_is_clean_and_short_in_the_log(tmp_path):
    """It came from a server or a model: a log line is no place for a megabyte, or for marks that turn lines round."""
    odd = "\u202e\x1b[31m" + "n" * 100_000
    server = ScriptedServer(tmp_path, tools=[tool("echo"), tool(odd)])
    with capture_logs() as lines:
        async with connected({"s": server.stdio()}) as connection:
            for name in (odd, "m" * 100_000 + "\u202e"):
                with pytest.raises(RefusedError):
                    await connection.call_tool("s", name)

    assert all(len(str(value)) < 10_000 for line in lines for value in line.values())
    assert all(str(value).isprintable() for line in lines for value in line.values())
