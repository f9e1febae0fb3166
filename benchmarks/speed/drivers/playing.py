"""The part that all drivers share: jobs as lines of JSON on stdin, a line of figures for each on stdout.

`open` opens the servers of the job, `sequential` and `flight` call echo of the first of them, `count` asks it, `close`
closes them. Nothing but the standard library: it runs in each client's own environment.
"""

import asyncio
import gc
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

Target = Mapping[str, Any]
"""A server: {"command", "args"} or {"url"}."""
Call = Callable[[str, dict[str, str]], Awaitable[Any]]
"""Calls a tool; gives its text."""
Connect = Callable[[Sequence[Target]], AbstractAsyncContextManager[Sequence[Call]]]


def cpu_seconds() -> float:
    """User and system time of this process, its children excluded."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    """Memory in use; where /proc is missing the most there was."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


SENTENCE = "hello. The entry that you asked for was found in the register on the third of May. "


async def _sequential(call: Call, calls: int, tool: str = "echo", size: int = 5) -> dict[str, float]:
    """One call after the other; `size`: characters of the text."""
    arguments = {"text": (SENTENCE * (size // len(SENTENCE) + 1))[:size]}
    times = []
    before = cpu_seconds()
    begun = time.perf_counter()
    for _ in range(calls):
        start = time.perf_counter()
        await call(tool, arguments)
        times.append(time.perf_counter() - start)

    whole = time.perf_counter() - begun
    cpu = (cpu_seconds() - before) / calls
    times.sort()
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    return {"p50": statistics.median(times) * 1e6, "p99": p99 * 1e6, "cpu": cpu * 1e6, "rate 1": calls / whole}


async def _flight(call: Call, calls: int, in_flight: int) -> dict[str, float]:
    """So many callers at once, each one call after the other."""

    async def caller() -> None:
        for _ in range(calls // in_flight):
            await call("echo", {"text": "hello"})

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return {f"rate {in_flight}": calls // in_flight * in_flight / (time.perf_counter() - start)}


async def _count(call: Call) -> dict[str, Any]:
    """What the server counted."""
    counts = await call("count", {})
    return dict(json.loads(counts) if isinstance(counts, str) else counts)


_WORK: Mapping[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "sequential": _sequential,
    "flight": _flight,
    "count": _count,
}


def side_by_side(open_one: Callable[[Target], AbstractAsyncContextManager[Call]]) -> Connect:
    """A client for each server, each entered and left in a task of its own, all at once."""

    @asynccontextmanager
    async def connect(servers: Sequence[Target]) -> AsyncIterator[Sequence[Call]]:
        over = asyncio.Event()

        async def hold(server: Target, opened: "asyncio.Future[Call]") -> None:
            try:
                async with open_one(server) as call:
                    opened.set_result(call)
                    await over.wait()
            except BaseException as error:
                if opened.done():
                    raise

                opened.set_exception(error)

        waiting = [asyncio.get_running_loop().create_future() for _ in servers]
        tasks = [asyncio.create_task(hold(*pair)) for pair in zip(servers, waiting, strict=True)]
        try:
            yield await asyncio.gather(*waiting)
        finally:
            over.set()
            await asyncio.gather(*tasks)

    return connect


def serve(connect: Connect) -> None:
    """The driver's process: until its stdin ends."""
    # A client library may print.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(**figures: Any) -> None:
        print(json.dumps(figures), file=told, flush=True)

    async def job() -> dict[str, Any] | None:
        line = await asyncio.to_thread(sys.stdin.buffer.readline)
        return dict(json.loads(line)) if line else None

    async def run() -> None:
        while (opening := await job()) is not None:
            before, start = cpu_seconds(), time.perf_counter()
            async with connect(opening["servers"]) as calls:
                seconds, cpu = time.perf_counter() - start, cpu_seconds() - before
                gc.collect()
                tell(seconds=seconds, cpu=cpu, resident=resident_bytes())
                while (work := await job()) is not None and work.pop("do") != "close":
                    tell(**await _WORK[work.pop("work")](calls[0], **work))

                start = time.perf_counter()

            tell(seconds=time.perf_counter() - start)

    asyncio.run(run())
