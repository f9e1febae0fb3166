"""What a governed call costs in counts that do not depend on the machine: bytes, listings, writes, tasks, turns, calls.

Everything is on, as in `benchmarks.speed`. A regression fails here on the day it is made; the benchmark shows what it
costs. The bounds lie a little above what was counted: whoever makes a call cheaper lowers them.
"""

import asyncio
import json
import os
import selectors
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from workbench import Bench, within

from benchmarks.speed.drivers.with_deputy import governed, log_at_info
from benchmarks.speed.rounds import stdio
from benchmarks.speed.works import echo_over_http
from deputy_mcp import HttpServer, McpConnection, McpTool, StdioServer

SENT_BYTES = 300
"""The request of an echo of five characters: 2026-07-28 stamps versions, capabilities and a name on each."""
WRITES = 3
"""`os.write`: the journal's line before the call, the pipe; meanwhile the line of the result before."""
WRITES_OF_128 = 8
"""… of 128 calls at once: their lines go out in one, before all requests in one; some more where replies come apart."""
TURNS = 3
"""Of the loop, from the call to its value."""
CALLED = 550
"""Functions called in the loop's thread, of Python and of C, in one call."""
CALLED_OF_128 = 128 * 470
CALLED_EACH_TIME = 1_030
TURNS_EACH_TIME = 7
WRITES_EACH_TIME = 4
"""… with `verify="call"`, where the listing did not change: two requests, two waits."""
CALLED_OVER_HTTP = {"mcp": 2_800, "events": 2_950}
TURNS_OVER_HTTP = 4
"""… over HTTP, answered as JSON or as an event; three quarters of the functions are httpx2's and those below it."""
CALLED_WHERE_IT_CHANGED = 4_600
TURNS_WHERE_IT_CHANGED = 9
"""… where one of 100 tools was described anew: the others are looked up, and not read."""
LISTINGS_OF_64 = 3
"""… at once, with `verify="call"`."""
CALLED_TO_START = 5_400
TASKS_TO_START = 10
"""For each of many servers started side by side, the first one apart, which loads the scanner."""

pytestmark = pytest.mark.anyio


class CountingSelector(selectors.DefaultSelector):
    """The loop asks it once a turn."""

    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        CountingSelector.turns += 1
        return super().select(timeout)


@pytest.fixture
def anyio_backend() -> Any:
    return "asyncio", {"loop_factory": lambda: asyncio.SelectorEventLoop(CountingSelector())}


@dataclass
class Counted:
    """What happened between two moments."""

    called: int = 0
    writes: int = 0
    tasks: int = 0
    turns: int = 0


async def counted(work: Callable[[], Awaitable[Any]]) -> Counted:
    """Count what `work` does in this thread."""
    found = Counted()
    loop = asyncio.get_running_loop()

    def profile(frame: FrameType, event: str, what: Any) -> None:
        if event in ("call", "c_call"):
            found.called += 1
            found.writes += what is os.write

    def task(loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> "asyncio.Task[Any]":
        found.tasks += 1
        return asyncio.Task(coroutine, loop=loop, **how)

    turns = CountingSelector.turns
    loop.set_task_factory(task)
    sys.setprofile(profile)
    try:
        await work()
    finally:
        sys.setprofile(None)
        loop.set_task_factory(None)

    found.turns = CountingSelector.turns - turns
    return found


async def usual(work: Callable[[], Awaitable[Any]]) -> Counted:
    """The least of twenty times: where a reply comes in two parts, or a moment late, there is a turn more."""
    for _ in range(3):
        await work()

    times = [await counted(work) for _ in range(20)]
    return Counted(*(min(getattr(one, name) for one in times) for name in ("called", "writes", "tasks", "turns")))


@asynccontextmanager
async def opened(server: Any, folder: Path, verify: Any) -> AsyncIterator[tuple[McpConnection, McpTool]]:
    """One governed server, its echo, and a log that is written."""
    with (folder / "log").open("w") as file:
        log_at_info(file, cached=False)
        async with McpConnection({"s": server}, **governed(folder, verify)) as connection:
            echo = next(tool for tool in connection.tools() if tool.tool == "echo")
            yield connection, echo


@within(20)
async def test_a_governed_call_costs_no_more_than_this(bench: Bench, tmp_path: Path) -> None:
    """Bytes, writes, turns and function calls of one call stay below their bounds; no task is started for it."""
    async with opened(bench.stdio(tools=("echo",)), tmp_path, "change") as (connection, echo):
        cost = await usual(lambda: echo(value="hello"))
        before = connection.status()["s"].bytes_out
        await echo(value="hello")
        sent = connection.status()["s"].bytes_out - before
        assert 0 == cost.tasks
        assert WRITES >= cost.writes
        assert TURNS >= cost.turns
        assert CALLED >= cost.called
        assert SENT_BYTES >= sent
        # One, when it was started.
        assert 1 == len(bench.ledger.read("got", method="tools/list"))


@within(20)
async def test_128_calls_at_once_share_their_writes(bench: Bench, tmp_path: Path) -> None:
    """Calls of one turn share the write of their journal lines, and cost no more than alone."""
    async with opened(bench.stdio(tools=("echo",)), tmp_path, "change") as (_, echo):
        cost = await usual(lambda: asyncio.gather(*(echo(value="hello") for _ in range(128))))
        assert WRITES_OF_128 >= cost.writes
        assert 128 == cost.tasks  # the callers' own
        assert CALLED_OF_128 >= cost.called


@within(20)
async def test_listing_before_a_call_costs_no_more_than_this(bench: Bench, tmp_path: Path) -> None:
    """One listing for a call, and hardly more for many at once; an unchanged one is not read again."""
    async with opened(bench.stdio(tools=("echo",)), tmp_path, "call") as (_, echo):
        cost = await usual(lambda: echo(value="hello"))
        before = len(bench.ledger.read("got", method="tools/list"))
        await echo(value="hello")
        assert 1 == len(bench.ledger.read("got", method="tools/list")) - before
        await asyncio.gather(*(echo(value="hello") for _ in range(64)))
        at_once = len(bench.ledger.read("got", method="tools/list")) - before - 1
        assert 0 == cost.tasks
        assert CALLED_EACH_TIME >= cost.called
        assert TURNS_EACH_TIME >= cost.turns
        assert WRITES_EACH_TIME >= cost.writes
        assert LISTINGS_OF_64 >= at_once


@pytest.mark.parametrize("answers", CALLED_OVER_HTTP)
@within(20)
async def test_a_governed_call_over_http_costs_no_more_than_this(tmp_path: Path, answers: str) -> None:
    """No task is started for it and no connection made, and its request and reply are not handed from task to task."""
    async with echo_over_http() as address:
        server = HttpServer(f"{address}/{answers}", tools=("echo", "count"))
        async with opened(server, tmp_path, "change") as (connection, echo):
            before = await connections(connection)
            cost = await usual(lambda: echo(text="hello"))
            assert 0 == cost.tasks
            assert TURNS_OVER_HTTP >= cost.turns
            assert CALLED_OVER_HTTP[answers] >= cost.called
            assert before == await connections(connection)


async def connections(connection: McpConnection) -> int:
    """How many the server has seen."""
    return int(json.loads((await connection.call_tool("s", "count")).text)["connections"])


def echo_server(*arguments: str) -> StdioServer:
    """The benchmark's own, which costs little beside what is counted."""
    target = stdio(*arguments)
    return StdioServer(target["command"], args=target["args"], tools=("echo",), required=True)


@within(20)
async def test_a_listing_that_changed_costs_what_changed_in_it(tmp_path: Path) -> None:
    """Of 100 tools one is described anew at each listing."""
    with (tmp_path / "log").open("w") as file:
        log_at_info(file, cached=False)
        servers = {"s": echo_server("100", "changed")}
        async with McpConnection(servers, **governed(tmp_path, "call")) as connection:
            (tool,) = connection.tools()
            cost = await usual(lambda: tool(text="hello"))

    assert CALLED_WHERE_IT_CHANGED >= cost.called
    assert TURNS_WHERE_IT_CHANGED >= cost.turns


@within(20)
async def test_starting_a_server_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """Names are compared, pins written and processes watched for what is new, not each time for all."""
    many = 20

    async def start(count: int) -> Counted:
        folder = tmp_path / str(count)
        folder.mkdir()
        servers = {f"s{number}": echo_server() for number in range(count)}
        connection = McpConnection(servers, **governed(folder, "change"))
        try:
            return await counted(connection.__aenter__)
        finally:
            await connection.aclose()

    with (tmp_path / "log").open("w") as file:
        log_at_info(file, cached=False)
        await start(1)
        cost = await start(many)

    assert CALLED_TO_START >= cost.called / many
    assert TASKS_TO_START >= cost.tasks / many
