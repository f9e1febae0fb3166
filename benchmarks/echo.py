"""An echo call, one at a time and 128 at once, through the bare SDK client and through us, interleaved."""

import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from deputy_mcp import Limits, McpConnection, Permissions, StdioServer

SERVER = str(Path(__file__).parent / "servers" / "echo.py")
ROUNDS, CALLS, FLIGHT = 5, 400, 128


async def _measure(call: Any) -> dict[str, float]:
    await call()
    times = []
    before = _cpu()
    for _ in range(CALLS):
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)

    cpu = (_cpu() - before) / CALLS
    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(FLIGHT):
            tasks.start_soon(_several, call, CALLS * 2 // FLIGHT)

    total = FLIGHT * (CALLS * 2 // FLIGHT)
    return {
        "p50 us": statistics.median(times) * 1e6,
        "cpu us": cpu * 1e6,
        "calls/s at 128": total / (time.perf_counter() - start),
    }


async def _several(call: Any, count: int) -> None:
    for _ in range(count):
        await call()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _sdk() -> dict[str, float]:
    parameters = StdioServerParameters(command=sys.executable, args=[SERVER])
    async with Client(stdio_client(parameters)) as client:
        return await _measure(lambda: client.call_tool("echo", {"text": "hello"}))


async def _ours() -> dict[str, float]:
    server = StdioServer(sys.executable, args=[SERVER])
    async with McpConnection({"echo": server}, permissions=Permissions(), limits=Limits(max_concurrent_calls=256)) as c:
        (tool,) = c.tools()
        return await _measure(lambda: tool(text="hello"))


async def run() -> list[tuple[str, str, bool]]:
    """Rows of (what, figure, holds)."""
    rounds = [(await _sdk(), await _ours()) for _ in range(ROUNDS)]

    rows = []
    for key in rounds[0][0]:
        sdk = statistics.median(sdk[key] for sdk, _ in rounds)
        ours = statistics.median(ours[key] for _, ours in rounds)
        ratio = statistics.median(ours[key] / sdk[key] for sdk, ours in rounds)
        rows.append((f"stdio echo, {key}", f"SDK {sdk:.0f}, ours {ours:.0f}, {ratio:.2f} x", True))

    return rows
