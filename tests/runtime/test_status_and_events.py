"""`status()` is a snapshot without IO; `events()` tells what happens from now on, and how much a slow reader missed."""

import asyncio
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from workbench import FULL, NEVER, Bench, until, within

from deputy_mcp import (
    ConnectionEvent,
    McpConnection,
    Permissions,
    ServerLostError,
    ServerState,
    StartError,
    StdioServer,
)

pytestmark = pytest.mark.anyio

KEPT = 1_000
"""Events kept for a reader who is slow."""


@within(10)
async def test_a_status_tells_what_there_is_to_know_of_a_server(bench: Bench) -> None:
    """Every field of a READY server, of a server in a call, and of one that was stopped."""
    spec = bench.stdio({"offers": ["echo", "hang"], "stderr": "hello\n"})
    connection = McpConnection({"a": spec}, **FULL)
    dormant = connection.status()["a"]
    assert (ServerState.DORMANT, 0, None, 0) == (dormant.state, dormant.generation, dormant.pid, dormant.tools)
    async with connection:
        # stderr has a pipe of its own; what was said on it may come after the handshake.
        while "hello" not in connection.status()["a"].stderr_tail:
            await anyio.lowlevel.checkpoint()

        status = connection.status()["a"]
        (started,) = bench.ledger.read("start")
        assert ("a", ServerState.READY, 1, started["pid"]) == (
            status.name,
            status.state,
            status.generation,
            status.pid,
        )
        assert "2026-07-28" == status.protocol_version
        assert {"name": "raw", "version": "1"} == {k: (status.server_info or {})[k] for k in ("name", "version")}
        assert (2, {}, 0, 0) == (status.tools, dict(status.refused), status.restarts, status.calls_in_flight)
        assert (None, None, None) == (status.reason, status.last_error, status.exit_code)
        assert status.since <= anyio.current_time()
        assert status.bytes_in > 0 < status.bytes_out

        call = asyncio.create_task(connection.call_tool("a", "hang"))
        await bench.ledger.wait_call("hang")
        busy = connection.status()["a"]
        assert 1 == busy.calls_in_flight
        assert busy.bytes_out > status.bytes_out
        assert 0 == status.calls_in_flight, "a snapshot does not change"
        await connection.stop("a")
        with pytest.raises(ServerLostError):
            await call

        stopped = connection.status()["a"]
        assert (ServerState.STOPPED, None, 0, 0) == (
            stopped.state,
            stopped.pid,
            stopped.calls_in_flight,
            stopped.exit_code,
        )
        assert "stopped" in (stopped.reason or "")
        assert busy.bytes_out <= stopped.bytes_out
        assert 2 == stopped.tools == len(connection.tools("a")), "the last vetted set stays"

    assert ServerState.STOPPED is connection.status()["a"].state


@within(10)
async def test_bytes_are_counted_over_all_sessions(bench: Bench) -> None:
    """A restart does not set the counters back."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        before = connection.status()["a"]
        await connection.reload("a")
        after = connection.status()["a"]
        assert after.bytes_in >= 2 * before.bytes_in - 100
        assert after.bytes_out > before.bytes_out


async def gather_states(connection: McpConnection, seen: list[str]) -> None:
    states = [event async for event in connection.events() if event.kind == "state"]
    seen.extend(f"{event.server} {event.facts['state']}" for event in states)


@within(10)
async def test_events_tell_every_state_in_order(bench: Bench) -> None:
    """A start, a death with its restart, a stop: each state is told once, and the stream ends with the connection."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    seen: list[str] = []
    watching = asyncio.create_task(gather_states(connection, seen))
    await asyncio.sleep(0)
    async with connection:
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await connection.call_tool("a", "echo")
        await connection.reload("a")

    await watching
    up = ["a starting", "a vetting", "a ready"]
    assert [*up, "a closing", "a backing_off", *up, "a closing", *up, "a closing", "a stopped"] == seen


@within(10)
async def test_events_tell_why_a_server_ended(bench: Bench) -> None:
    """The closing carries code and detail; a listing tells how many tools it has."""
    connection = McpConnection({"a": bench.stdio({"offers": ["die", "echo"]})}, **FULL)
    events: list[ConnectionEvent] = []

    async def watch() -> None:
        events.extend([event async for event in connection.events()])

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    async with connection:
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die", {"code": 7})

        await until(connection, "a", lambda status: status.restarts == 1)

    await watching
    (closing,) = [e for e in events if e.facts.get("state") == "closing" and e.facts["code"] != "stopped"]
    assert ("exited", True) == (closing.facts["code"], "exit code 7" in closing.facts["detail"])
    assert {2} == {event.facts["tools"] for event in events if event.kind == "listing"}


async def fail_to_start(connection: McpConnection, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StartError):
            await connection.start("a")


@within(30)
async def test_a_slow_reader_of_events_is_told_how_many_it_lost(bench: Bench) -> None:
    """A thousand are kept; then the oldest go, and the reader learns their number where they are missing."""
    async with (
        McpConnection({"a": StdioServer("/nowhere/a-server", restart=NEVER)}, **FULL) as connection,
        aclosing(connection.events()) as slow,
        aclosing(connection.events()) as other,
    ):
        first = asyncio.ensure_future(anext(slow)), asyncio.ensure_future(anext(other))
        await asyncio.sleep(0)
        await fail_to_start(connection, 1)
        for future in first:
            assert "state" == (await future).kind

        # STARTING, CLOSING, FAILED for each; two of the first three are still to be read.
        told = 2
        for _ in range(5):
            await fail_to_start(connection, 80)
            told += 3 * 80

        for reader in (slow, other):
            dropped = await anext(reader)
            assert ("dropped", {"count": told - KEPT}) == (dropped.kind, dict(dropped.facts))

        kept = [await anext(slow) for _ in range(KEPT)]
        assert {"state"} == {event.kind for event in kept}
        assert "failed" == kept[-1].facts["state"]
        # Nothing else is queued: the next is the next that happens.
        following = asyncio.ensure_future(anext(slow))
        await asyncio.sleep(0)
        assert not following.done()
        await fail_to_start(connection, 1)
        assert "starting" == (await following).facts["state"]


@within(10)
async def test_a_reader_may_leave_and_another_come(bench: Bench) -> None:
    """Reading is each reader's own; a reader that left is not written to any more."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        async with aclosing(connection.events()) as events:
            stopping = asyncio.create_task(connection.stop("a"))
            assert "closing" == (await anext(events)).facts["state"]

        await stopping
        seen: list[str] = []
        watching = asyncio.create_task(gather_states(connection, seen))
        await asyncio.sleep(0)
        await connection.start("a")

    await watching
    assert ["a starting", "a vetting", "a ready", "a closing", "a stopped"] == seen


@within(10)
async def test_events_of_a_closed_connection_end_at_once(bench: Bench) -> None:
    """Nothing will happen any more."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        pass

    assert [] == [event async for event in connection.events()]


@within(10)
async def test_what_is_configured_and_matches_nothing_is_a_warning(bench: Bench) -> None:
    """List entries without a tool, and host annotations for a tool that is not there, are said and stop nothing."""
    spec = bench.stdio(
        {"offers": ["echo"]},
        annotations={"eko": {"readOnlyHint": True}},
        permissions=Permissions(tool_denylist=("a__eccho",)),
    )
    connection = McpConnection({"a": spec}, **FULL | {"permissions": Permissions(tool_allowlist=("a__echo", "a_echo"))})
    warnings: list[Any] = []

    async def watch() -> None:
        told = [event async for event in connection.events() if event.kind == "warning"]
        warnings.extend(event.facts["detail"] for event in told)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    async with connection:
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text

    await watching
    for name in ("eko", "a__eccho", "a_echo"):
        assert 1 == sum(name in detail.replace("'", " ").split() for detail in warnings), (name, warnings)

    assert 3 == len(warnings)
