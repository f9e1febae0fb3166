"""A call with a timeout ends in bounded time, in every state of its server and whatever the wire does meanwhile.

How close to its timeout it ends is measured by a benchmark; here the bounds are wide, and what is asked is that
nothing waits for ever, that the error says whether anything was sent, and that the next call is answered.
"""

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import anyio
import pytest
from bounds import BOUND_SECONDS, NEVER, connected, until
from raw_sockets import Exchange, listening, reply_bytes, text_result

from deputy_mcp import (
    CallTimeoutError,
    ClosedError,
    DeputyError,
    Limits,
    McpConnection,
    PinBook,
    QuarantinedError,
    RestartPolicy,
    ServerState,
    StartError,
    UnavailableError,
    WaitTimeoutError,
)
from deputy_mcp.testing import (
    ScriptedServer,
    be_stubborn,
    die,
    freeze,
    hold,
    junk,
    list_changed,
    reply,
    silence,
    tool,
)

pytestmark = pytest.mark.anyio

TIMEOUT_SECONDS = 0.3
LATE_SECONDS = 1.5
"""Kind to a busy machine; far below the start deadline, the other timeouts and the bound of a test."""

LIMITS = Limits(call_timeout_seconds=15, startup_timeout_seconds=15, shutdown_timeout_seconds=1)
PATIENT = RestartPolicy(backoff_initial_seconds=60, backoff_max_seconds=60)
MEGABYTE_BYTES = 1_000_000
MEGABYTE = "x" * MEGABYTE_BYTES
ON_CHANGE = PinBook(verify="change")
"""Nothing is listed before a call, so that it is the call that meets the silence."""


async def ended_in_time(connection: McpConnection, arguments: dict | None = None) -> DeputyError:
    """The error of a call that cannot be answered, which came in time."""
    began = anyio.current_time()
    with pytest.raises(DeputyError) as caught:
        await connection.call_tool("a", "echo", arguments, timeout_seconds=TIMEOUT_SECONDS)

    assert anyio.current_time() - began < TIMEOUT_SECONDS + LATE_SECONDS
    return caught.value


# -- every state ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def reloading(server: ScriptedServer, state: ServerState, **limits: float) -> AsyncIterator[McpConnection]:
    """A server that is loaded anew and comes no further than `state`."""
    options = {"call_timeout_seconds": 15, "startup_timeout_seconds": 15, "shutdown_timeout_seconds": 1} | limits
    async with connected({"a": server.stdio()}, limits=Limits(**options)) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.reload, "a")
            await until(connection, lambda status: status["a"].state is state)
            yield connection
            tasks.cancel_scope.cancel()


def starting(folder) -> AbstractAsyncContextManager[McpConnection]:
    greetings = {method: [reply(), hold("never")] for method in ("server/discover", "initialize")}
    return reloading(ScriptedServer(folder, era="modern", methods=greetings), ServerState.STARTING)


def vetting(folder) -> AbstractAsyncContextManager[McpConnection]:
    return reloading(ScriptedServer(folder, methods={"tools/list": [reply(), hold("never")]}), ServerState.VETTING)


def closing(folder) -> AbstractAsyncContextManager[McpConnection]:
    stubborn = ScriptedServer(folder, at_start=be_stubborn())
    return reloading(stubborn, ServerState.CLOSING, shutdown_timeout_seconds=2)


@asynccontextmanager
async def backing_off(folder) -> AsyncIterator[McpConnection]:
    server = ScriptedServer(folder)
    async with connected({"a": server.stdio()}, limits=LIMITS, restart=PATIENT) as connection:
        os.kill(server.pids()[0], signal.SIGKILL)
        await until(connection, lambda status: status["a"].state is ServerState.BACKING_OFF)
        yield connection


@asynccontextmanager
async def failed(folder) -> AsyncIterator[McpConnection]:
    server = ScriptedServer(folder, at_start=die())
    async with connected({"a": server.stdio()}, limits=LIMITS, restart=NEVER) as connection:
        yield connection


@asynccontextmanager
async def quarantined(folder) -> AsyncIterator[McpConnection]:
    server = ScriptedServer(folder, methods={"tools/list": reply(result={})})
    async with connected({"a": server.stdio()}, limits=LIMITS) as connection:
        yield connection


@asynccontextmanager
async def stopped(folder) -> AsyncIterator[McpConnection]:
    async with connected({"a": ScriptedServer(folder).stdio()}, limits=LIMITS) as connection:
        await connection.stop("a")
        yield connection


@asynccontextmanager
async def never_entered(folder) -> AsyncIterator[McpConnection]:
    yield McpConnection({"a": ScriptedServer(folder).stdio()}, limits=LIMITS)


@asynccontextmanager
async def ready_but_busy(folder) -> AsyncIterator[McpConnection]:
    """Other calls hold every slot."""
    server = ScriptedServer(folder, tools=[tool("echo"), tool("slow")], calls={"slow": hold("never")})
    limits = Limits(call_timeout_seconds=15, max_concurrent_calls=1, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "a", "slow")
            await server.wait_for(lambda s: s.ledger("holding"))
            yield connection
            tasks.cancel_scope.cancel()


State = Callable[..., AbstractAsyncContextManager[McpConnection]]
STATES: dict[str, tuple[State, type[DeputyError], str]] = {
    "starting": (starting, WaitTimeoutError, "not_sent"),
    "vetting": (vetting, WaitTimeoutError, "not_sent"),
    "closing": (closing, WaitTimeoutError, "not_sent"),
    "backing off": (backing_off, WaitTimeoutError, "not_sent"),
    "failed": (failed, StartError, "not_sent"),
    "quarantined": (quarantined, QuarantinedError, "not_sent"),
    "stopped": (stopped, UnavailableError, "not_sent"),
    "never entered": (never_entered, ClosedError, "not_sent"),
    "every slot taken": (ready_but_busy, WaitTimeoutError, "not_sent"),
}


@pytest.mark.parametrize("state", STATES)
async def test_a_call_ends_in_time_in_every_state_of_its_server(tmp_path, state):
    """Not sent is said where nothing was sent; where waiting cannot help the call does not even wait."""
    prepare, kind, outcome = STATES[state]
    async with prepare(tmp_path) as connection:
        error = await ended_in_time(connection)

    assert kind is type(error)
    assert outcome == error.outcome


async def test_a_call_whose_tool_cannot_be_verified_ends_in_time(tmp_path):
    """The listing that is due before a call never comes: nothing was sent."""
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        calls={"echo": list_changed() + reply()},
        methods={"tools/list": [reply(), hold("never")]},
    )
    async with connected({"a": server.stdio()}, limits=LIMITS) as connection:
        with suppress(WaitTimeoutError):
            await connection.call_tool("a", "echo", timeout_seconds=TIMEOUT_SECONDS)

        before = server.runs("echo")
        error = await ended_in_time(connection)

    assert isinstance(error, WaitTimeoutError)
    assert ("not_sent", before) == (error.outcome, server.runs("echo"))


# -- a server that is READY and does not answer --------------------------------------------------------------------

SILENCES = {
    "answers nothing": (silence(), {"x": 1}),
    "reads no more": (freeze("thaw"), {"x": 1}),
    "reads no more, and the argument is large": (freeze("thaw"), {"x": MEGABYTE}),
    "writes half a line": (junk('{"jsonrpc":"2.0","id":$id,"result":{"content":[') + freeze("thaw"), {"x": 1}),
}


@pytest.mark.parametrize("kind", SILENCES)
async def test_a_call_ends_in_time_however_a_process_is_silent(tmp_path, kind):
    """Its deadline covers the write as well as the wait, and so does that of the next call to a frozen server."""
    turn, arguments = SILENCES[kind]
    server = ScriptedServer(tmp_path, tools=[tool("echo"), tool("mute")], calls={"echo": turn, "mute": turn})
    async with connected({"a": server.stdio()}, limits=LIMITS, pins=ON_CHANGE) as connection:
        first = await ended_in_time(connection)
        second = await ended_in_time(connection, arguments)

    assert (CallTimeoutError, "unknown") == (type(first), first.outcome)
    # What was only queued behind a full pipe has not been sent.
    assert isinstance(second, CallTimeoutError)
    assert second.outcome in ("unknown", "not_sent")


async def dribble_for_ever(exchange: Exchange, data: bytes) -> None:
    while True:
        await exchange.send(data)
        await anyio.sleep(0.005)


async def nothing(exchange: Exchange) -> None:
    await exchange.message()


async def no_reading(exchange: Exchange) -> None:
    pass


async def half_a_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: applic")


async def a_head_byte_by_byte(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nx: ")
    await dribble_for_ever(exchange, b"a")


async def a_head_alone(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n")


async def a_body_byte_by_byte(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    await dribble_for_ever(exchange, b" ")


async def chunks_without_end(exchange: Exchange) -> None:
    message = await exchange.message()
    whole = reply_bytes(message["id"], text_result("whole, and yet not over"))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    await exchange.send(head + b"%x\r\n%s\r\n" % (len(whole), whole))
    await dribble_for_ever(exchange, b"1\r\n \r\n")


async def comments_without_end(exchange: Exchange) -> None:
    await exchange.begin_events()
    await dribble_for_ever(exchange, b": still here\n\n")


async def an_event_without_end(exchange: Exchange) -> None:
    await exchange.begin_events()
    await exchange.send(b"data: ")
    await dribble_for_ever(exchange, b"a")


async def progress_without_end(exchange: Exchange) -> None:
    message = await exchange.message()
    await exchange.begin_events()
    note = {"progressToken": message["id"], "progress": 1}
    data = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": note}).encode()
    await dribble_for_ever(exchange, b"data: " + data + b"\n\n")


async def early_hints_without_end(exchange: Exchange) -> None:
    await dribble_for_ever(exchange, b"HTTP/1.1 103 Early Hints\r\n\r\n")


async def a_stream_to_be_resumed(exchange: Exchange) -> None:
    await exchange.message()
    await exchange.events(b"id: 7\nretry: 20000\ndata: \n\n")


HANGS: dict[str, tuple[Callable[[Exchange], Awaitable[None]], int]] = {
    "nothing": (nothing, 1),
    "no reading of a large argument": (no_reading, 4 * MEGABYTE_BYTES),
    "half a head": (half_a_head, 1),
    "a head byte by byte": (a_head_byte_by_byte, 1),
    "a head alone": (a_head_alone, 1),
    "a body byte by byte": (a_body_byte_by_byte, 1),
    "chunks without end": (chunks_without_end, 1),
    "comments without end": (comments_without_end, 1),
    "an event without end": (an_event_without_end, 1),
    "progress without end": (progress_without_end, 1),
    "early hints without end": (early_hints_without_end, 1),
    "a stream to be resumed": (a_stream_to_be_resumed, 1),
}


@pytest.mark.parametrize("how", HANGS)
async def test_a_call_ends_in_time_however_http_hangs(how):
    """In any phase of a response, and before it; the outcome is unknown and the next call is answered."""
    hang, size = HANGS[how]
    healthy = []

    async def handle(exchange: Exchange) -> bool | None:
        if healthy or exchange.method != "POST":
            return None

        # A body that is not to be read is told apart by its length alone.
        if exchange.length < MEGABYTE_BYTES and (await exchange.message()).get("method") != "tools/call":
            return None

        await hang(exchange)
        await anyio.sleep_forever()
        return True

    limits = Limits(call_timeout_seconds=15, max_message_bytes=20_000_000, shutdown_timeout_seconds=1)
    async with listening(handle) as site, connected({"a": site.server()}, limits=limits) as connection:
        error = await ended_in_time(connection, {"x": "y" * size})
        healthy.append(True)
        with anyio.fail_after(BOUND_SECONDS):
            after = await connection.call_tool("a", "echo", {"n": 2})

    assert CallTimeoutError is type(error)
    # A machine may be too busy to begin sending four megabytes in time.
    assert error.outcome == "unknown" or size > MEGABYTE_BYTES
    assert '{"n": 2}' == after.text


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_start_ends_in_time_at_an_address_that_only_listens(transport):
    """Connected and never answered: the start deadline counts, and a call waits no longer than its own."""

    async def handle(exchange: Exchange) -> bool | None:
        await anyio.sleep_forever()
        return True

    limits = Limits(startup_timeout_seconds=0.4, call_timeout_seconds=15, shutdown_timeout_seconds=1)
    async with listening(handle) as site:
        began = anyio.current_time()
        async with connected({"a": site.server(transport=transport)}, limits=limits, restart=PATIENT) as connection:
            took = anyio.current_time() - began
            error = await ended_in_time(connection)

    assert took < 0.4 + LATE_SECONDS
    assert (WaitTimeoutError, "not_sent") == (type(error), error.outcome)
