"""Two hundred restarts cost nothing that is not given back."""

import asyncio
import gc
import os
import signal
import threading
from pathlib import Path

import pytest
from workbench import FULL, Bench, descriptors, handle, until, within

from deputy_mcp import McpConnection, RestartPolicy, ServerState

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RESTARTS = {"killed": 200, "reloaded": 100}
WARM = 40
"""Restarts after which pools, caches and the allocator's arenas are filled."""
FLAT_BYTES = 2 * 1024 * 1024
"""What the resident memory may differ by over the restarts after those."""
TIRELESS = RestartPolicy(
    max_restarts=10_000, backoff_initial_seconds=0.001, backoff_factor=1, backoff_max_seconds=0.001
)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> tuple[int, int, int]:
    """Descriptors, tasks, threads."""
    return len(descriptors()), len(asyncio.all_tasks()), threading.active_count()


@pytest.mark.parametrize("how", ["killed", "reloaded"])
@within(100)
async def test_after_two_hundred_restarts_descriptors_tasks_and_memory_are_what_they_were(
    bench: Bench, how: str
) -> None:
    """Killed 200 times, or reloaded 100 times, a connection holds no more than after the first few."""
    spec = bench.stdio({"offers": ["echo", "pid"]})
    async with McpConnection({"a": spec}, **FULL | {"restart": TIRELESS}) as connection:
        before: tuple[tuple[int, int, int], int] | None = None
        for count in range(RESTARTS[how]):
            if how == "killed":
                pid = connection.status()["a"].pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                wanted = count + 2
                await until(connection, "a", lambda s, g=wanted: s.state is ServerState.READY and s.generation == g)
            else:
                await connection.reload("a")

            assert "1" == (await handle(connection, "a", "echo")(value=1)).text
            bench.ledger.read()
            if count == WARM:
                before = held(), resident_bytes()

        assert before is not None
        (descriptors_now, tasks, threads), memory = held(), resident_bytes()
        assert before[0][0] == descriptors_now
        assert before[0][1] == tasks
        # The watcher of the child that just ended may still be on its way out.
        assert threads <= before[0][2] + 1
        assert memory - before[1] < FLAT_BYTES

        status = connection.status()["a"]
        assert RESTARTS[how] + 1 == status.generation == len(bench.ledger.read("start"))
        assert (RESTARTS[how] if how == "killed" else 0) == status.restarts


@within(60)
async def test_after_fifty_reconnections_over_http_descriptors_and_tasks_are_what_they_were(bench: Bench) -> None:
    """The same for HTTP, where a restart is a new connection."""
    async with (
        bench.http({"sessions": True, "get_stream": True, "sse": True}) as http,
        McpConnection({"a": http.server()}, **FULL | {"restart": TIRELESS}) as connection,
    ):
        before = None
        for count in range(50):
            await connection.reload("a")
            assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
            if count == 10:
                before = held()

        assert before == held()
