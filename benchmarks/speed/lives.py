"""Of our servers' lives: how soon a death is told, that nobody else feels it, and how soon fifty hung ones are gone."""

import os
import signal
import statistics
import sys
import time

import anyio
from attrs import frozen

from benchmarks.speed.figures import Row
from benchmarks.speed.rounds import SERVERS
from deputy_mcp import Limits, McpConnection, RestartPolicy, ServerLostError, StdioServer

DEATHS = 9
DEATH_SECONDS = 0.02
HUNG = 50
GRACE_SECONDS = 1.0
"""`shutdown_timeout_seconds` of the hung servers."""
HUNG_SECONDS = 3 + GRACE_SECONDS
BOUND_SECONDS = 30
SOON = RestartPolicy(backoff_initial_seconds=0.01, backoff_max_seconds=0.05)


def _echo(*arguments: str) -> StdioServer:
    return StdioServer(sys.executable, args=("-S", "-E", str(SERVERS / "echo.py"), *arguments))


@frozen
class Death:
    """What a killed server's caller, another server's caller and the next caller saw."""

    told_seconds: float | None
    other_untouched: bool
    next_works: bool


async def _death() -> Death:
    """Kill -9 while a call hangs, beside a server where a call hangs too."""
    connection = McpConnection({"a": _echo(), "b": _echo()}, restart=SOON)
    killed_at = 0.0
    told: list[float] = []

    async def hang(server: str) -> None:
        try:
            await connection.call_tool(server, "hang")
        except ServerLostError:
            told.append(time.perf_counter() - killed_at if server == "a" else -1)

    async with connection, anyio.create_task_group() as calls:
        for server in ("a", "b"):
            calls.start_soon(hang, server)

        # A server reads in order: once this is answered, it has the call that hangs.
        while sum(connection.status()[server].calls_in_flight for server in ("a", "b")) < 2:
            await anyio.lowlevel.checkpoint()

        for server in ("a", "b"):
            await connection.call_tool(server, "count")

        pid = connection.status()["a"].pid
        assert pid is not None
        killed_at = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        while not told:
            await anyio.sleep(0.001)

        works = (await connection.call_tool("a", "echo", {"text": "again"})).text == "again"
        untouched = connection.status()["b"].calls_in_flight == 1 and len(told) == 1
        calls.cancel_scope.cancel()

    return Death(told[0] if told[0] >= 0 else None, untouched, works)


async def deaths() -> list[Row]:
    """Some deaths, one after the other."""
    with anyio.fail_after(BOUND_SECONDS):
        seen = [await _death() for _ in range(DEATHS)]

    times = [one.told_seconds for one in seen if one.told_seconds is not None]
    whole = len(times) == DEATHS
    middle = statistics.median(times) if whole else float("inf")
    untouched, works = (sum(getattr(one, what) for one in seen) for what in ("other_untouched", "next_works"))
    text = f"{middle * 1_000:.1f} ms, at most {max(times, default=0) * 1_000:.1f} (wanted <= 20)"
    return [
        ("death of a server: its call fails after", text, middle <= DEATH_SECONDS),
        ("… another server's call goes on", f"{untouched} of {DEATHS}", untouched == DEATHS),
        ("… the next call works", f"{works} of {DEATHS}", works == DEATHS),
    ]


async def hung() -> list[Row]:
    """Servers that neither the end of their input nor SIGTERM ends."""
    entries = {f"s{number}": _echo("stubborn") for number in range(HUNG)}
    with anyio.fail_after(2 * BOUND_SECONDS):
        async with McpConnection(entries, limits=Limits(shutdown_timeout_seconds=GRACE_SECONDS)) as connection:
            pids = [one.pid for one in connection.status().values() if one.pid]
            start = time.perf_counter()

        took = time.perf_counter() - start

    left = sum(map(_alive, pids))
    text = f"{took:.2f} s, {left} of {len(pids)} left (wanted <= 3 s + {GRACE_SECONDS:g} s of grace)"
    return [(f"{HUNG} hung servers closed", text, took <= HUNG_SECONDS and len(pids) == HUNG and not left)]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False

    return True


async def rows() -> list[Row]:
    """Rows of (what, figure, holds)."""
    return [*await deaths(), *await hung()]
