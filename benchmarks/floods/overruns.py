"""How much later than its timeout a call ends, in every state a server can be in."""

import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

from benchmarks.floods.child import Row, measure, tell
from benchmarks.floods.sides import AT_ONCE, Spec, ending, entry, flood_http, flood_stdio, open_sdk
from deputy_mcp import (
    HttpServer,
    Limits,
    McpConnection,
    Permissions,
    RestartPolicy,
    StdioServer,
)

TIMEOUT_SECONDS = 0.2
WANTED_SECONDS = 0.05
RUNS = 2
CALLS = 3
SDK_CALLS = 2
LONG_BYTES = 1_000_000
VERY_LONG_BYTES = 8_000_000
"""More than the sockets of both ends hold, so that the write itself stands still."""

ENDLESS = Limits(max_timeouts_in_row=None, shutdown_timeout_seconds=0.5)
"""The state that is measured must last (as a default the third timeout in a row ends a silent server), and its end,
which is not measured, be short."""

WAITS = frozenset({"CallTimeoutError", "WaitTimeoutError", "PermissionDeniedError"})
"""How a call that met the state ends. A denial: `can_use_tool` did not answer in time."""

PLAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "silent": ("stdio", {"what": "silence"}),
    "no longer reading, 1 MB argument": ("stdio", {"what": "freeze", "x": "a" * LONG_BYTES}),
    "flooding with notifications": ("stdio", {"what": "notifications"}),
    "an endless line": ("stdio", {"what": "endless_line", "pause": 0.002}),
    "dribbling": ("stdio", {"what": "dribble"}),
    "HTTP, takes the call and is silent": ("/mcp", {"what": "silence"}),
    "HTTP, reads half of the body": ("/half", {"x": "a" * VERY_LONG_BYTES}),
    "HTTP, dribbles its head": ("/mcp", {"what": "dribble_head"}),
    "HTTP, dribbles its body": ("/mcp", {"what": "dribble"}),
    "SSE without events": ("/mcp", {"what": "silent_events"}),
    "SSE, flooding with notifications": ("/mcp", {"what": "notifications"}),
}
"""States that a call itself brings about: transport or path, and the arguments. The SDK has these."""

Opened = AbstractAsyncContextManager[Callable[[], Awaitable[Any]]]


# -- in the child ----------------------------------------------------------------------------------------------------


async def ours(names: list[str]) -> None:
    """Calls in each of these states; tells each overrun."""
    with flood_http() as address:
        for name in names:
            async with _state(name, address) as call:
                for _ in range(CALLS):
                    await _time(name, call)


async def sdk(name: str) -> None:
    """Calls of the SDK's client in this state."""
    transport, arguments = PLAYS[name]
    with flood_http() as address:
        async with open_sdk({"bad": _spec(transport, address)}) as call:
            for _ in range(SDK_CALLS):
                await _time(name, lambda: call("bad", arguments, TIMEOUT_SECONDS))

            # Leaving can take it long too; that is not measured.
            tell(done=True)


async def clock() -> None:
    """What the loop's own timer overruns on this machine now."""
    for _ in range(RUNS * CALLS):
        await _time("", lambda: _sleep(TIMEOUT_SECONDS))


async def _sleep(seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await anyio.sleep_forever()


async def _time(name: str, call: Callable[[], Awaitable[Any]]) -> None:
    start = time.perf_counter()
    how = await ending(call())
    tell(row={"name": name, "late": time.perf_counter() - start - TIMEOUT_SECONDS, "how": how})


def _spec(transport: str, address: str) -> Spec:
    return flood_stdio() if transport == "stdio" else address + transport


def _state(name: str, address: str) -> Opened:
    if name in PLAYS:
        transport, arguments = PLAYS[name]
        return _played(entry(_spec(transport, address)), arguments)

    return STATES[name](address)


@asynccontextmanager
async def _played(
    server: StdioServer | HttpServer,
    arguments: dict[str, Any],
    *,
    permissions: Permissions | None = None,
    limits: Limits = ENDLESS,
    restart: RestartPolicy = AT_ONCE,
) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    async with McpConnection(
        {"bad": server}, permissions=permissions or Permissions(), limits=limits, restart=restart
    ) as connection:
        yield lambda: connection.call_tool("bad", "play", arguments, timeout_seconds=TIMEOUT_SECONDS)


def _never_ready(server: StdioServer | HttpServer, restart: RestartPolicy = AT_ONCE) -> Opened:
    """A server that is on its way up whenever it is called."""
    return _played(
        server, {}, limits=Limits(startup_timeout_seconds=0.5, shutdown_timeout_seconds=0.5), restart=restart
    )


def _leaves() -> StdioServer:
    return StdioServer(sys.executable, args=("-S", "-c", "pass"))


@asynccontextmanager
async def _closing(_: str) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """A server that will not leave, while it is being taken down."""
    limits = Limits(shutdown_timeout_seconds=8)
    servers = {"bad": entry(flood_stdio("stubborn"))}
    async with McpConnection(servers, permissions=Permissions(), limits=limits) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.reload, "bad")
            while connection.status()["bad"].state != "closing":
                await anyio.sleep(0.001)

            yield lambda: connection.call_tool("bad", "play", {}, timeout_seconds=TIMEOUT_SECONDS)
            assert connection.status()["bad"].state == "closing"
            tasks.cancel_scope.cancel()

        await connection.kill("bad")


@asynccontextmanager
async def _full(_: str) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """All slots taken by calls that are not answered."""
    limits = Limits(max_concurrent_calls=1, max_timeouts_in_row=None, shutdown_timeout_seconds=0.5)
    servers = {"bad": entry(flood_stdio())}
    async with (
        McpConnection(servers, permissions=Permissions(), limits=limits) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(connection.call_tool, "bad", "play", {"what": "silence"})
        while not connection.status()["bad"].calls_in_flight:
            await anyio.sleep(0.001)

        yield lambda: connection.call_tool("bad", "play", {}, timeout_seconds=TIMEOUT_SECONDS)
        tasks.cancel_scope.cancel()


async def _never(*_: Any) -> bool:
    await anyio.sleep_forever()
    return True


STATES: dict[str, Callable[[str], Opened]] = {
    "starting": lambda _: _never_ready(StdioServer("sleep", args=("60",))),
    "in vetting": lambda _: _never_ready(entry(flood_stdio("none"))),
    "backing off": lambda _: _never_ready(_leaves(), RestartPolicy(max_restarts=99, backoff_initial_seconds=30)),
    "closing": _closing,
    "all slots taken": _full,
    "HTTP, never answers the handshake": lambda address: _never_ready(HttpServer(address + "/never")),
    "HTTP, port closed": lambda _: _never_ready(HttpServer("http://127.0.0.1:9/mcp")),
    "can_use_tool never answers": lambda _: _played(
        entry(flood_stdio()), {}, permissions=Permissions(can_use_tool=_never)
    ),
}
"""States that are there before the call; the SDK's client has none of them."""


# -- in the parent ---------------------------------------------------------------------------------------------------


async def rows() -> list[Row]:
    """Rows of (what, figure, holds)."""
    names = [*PLAYS, *STATES]
    bare = await measure("overruns.clock", seconds=20)
    late: dict[str, list[float]] = {}
    hows: dict[str, set[str]] = {}
    # Apart in time: what else the machine does for a second must not fall on one state alone.
    for _ in range(RUNS):
        outcome = await measure("overruns.ours", seconds=90, names=names)
        for row in outcome.rows:
            late.setdefault(row["name"], []).append(row["late"])
            hows.setdefault(row["name"], set()).add(row["how"])

    theirs = dict.fromkeys(names, "has no such state")
    # Side by side, for they mostly wait.
    limiter = anyio.CapacityLimiter(2)
    async with anyio.create_task_group() as tasks:
        for name in PLAYS:
            tasks.start_soon(_sdk, name, theirs, limiter)

    lates = [row["late"] for row in bare.rows]
    text = f"+{statistics.median(lates) * 1000:.1f} ms, worst {max(lates) * 1000:.1f} (for comparison)"
    out = [(f"timeout {TIMEOUT_SECONDS} s: the loop's own timer", text, True)]
    return out + [_judge(name, late.get(name, []), hows.get(name, set()), theirs[name]) for name in names]


async def _sdk(name: str, theirs: dict[str, str], limiter: anyio.CapacityLimiter) -> None:
    async with limiter:
        outcome = await measure("overruns.sdk", seconds=9, name=name)

    said = [f"+{row['late'] * 1000:.0f} ms" for row in outcome.rows]
    if len(said) < SDK_CALLS:
        said.append(f"never ({outcome.ended})")

    theirs[name] = ", then ".join(said)


def _judge(name: str, late: list[float], hows: set[str], sdk: str) -> Row:
    if not late:
        return f"timeout, {name}", "no call ended", False

    middle = statistics.median(late)
    text = (
        f"+{middle * 1000:.1f} ms, worst of {len(late)} {max(late) * 1000:.1f} (wanted <= {WANTED_SECONDS * 1000:.0f})"
    )
    early = "" if hows <= WAITS else f" [{', '.join(sorted(hows))}]"
    return f"timeout, {name}", f"{text}{early}; SDK {sdk}", middle <= WANTED_SECONDS and hows <= WAITS
