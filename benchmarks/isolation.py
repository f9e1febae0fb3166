"""One bad server of ten: how much later are the other nine READY than without it?"""

import socket
import statistics
import sys
import time
from pathlib import Path

import anyio
import anyio.lowlevel

from deputy_mcp import HttpServer, Limits, McpConnection, RestartPolicy, ServerState, StdioServer

SERVER = str(Path(__file__).parent / "servers" / "echo.py")
INVALID = str(Path(__file__).parent / "servers" / "invalid.py")
ROUNDS = 9
WANTED = 1.2
NEVER = RestartPolicy(when="never")


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _bad() -> dict[str, StdioServer | HttpServer]:
    silent = Limits(startup_timeout_seconds=0.5)
    return {
        "missing command": StdioServer("no-such-mcp-server", restart=NEVER),
        "silent at start": StdioServer("sleep", args=["60"], restart=NEVER, limits=silent),
        "exits at once": StdioServer(sys.executable, args=["-c", "pass"], restart=NEVER),
        "invalid listing": StdioServer(sys.executable, args=[INVALID], restart=NEVER),
        "port closed": HttpServer(f"http://127.0.0.1:{_closed_port()}/mcp", restart=NEVER),
    }


async def _seconds_until_nine(bad: StdioServer | HttpServer | None) -> float:
    """From entering until nine good servers are READY, as the events tell it."""
    servers = {f"good{i}": StdioServer(sys.executable, args=[SERVER]) for i in range(9)}
    if bad is not None:
        servers = {"bad": bad, **servers}  # type: ignore[dict-item] # a mapping of any servers

    connection = McpConnection(servers)
    ready = 0
    took = 0.0
    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal ready, took
            async for event in connection.events():
                if event.kind == "state" and event.facts["state"] == "ready":
                    ready += 1
                    if ready == 9:
                        took = time.perf_counter() - start

        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        async with connection:
            states = [one.state for name, one in connection.status().items() if name != "bad"]
            assert states == [ServerState.READY] * 9, states

        tasks.cancel_scope.cancel()

    return took


async def run() -> list[tuple[str, str, bool]]:
    """Rows of (what, figure, holds)."""
    await _seconds_until_nine(None)
    without: list[float] = []
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        base = await _seconds_until_nine(None)
        without.append(base)
        for name, server in _bad().items():
            found.setdefault(name, []).append(await _seconds_until_nine(server) / base)

    rows = [("nine servers READY", f"{statistics.median(without):.2f} s", True)]
    for name, ratios in found.items():
        ratio = statistics.median(ratios)
        rows.append((f"… beside one bad: {name}", f"{ratio:.2f} x (wanted <= {WANTED})", ratio <= WANTED))

    return rows
