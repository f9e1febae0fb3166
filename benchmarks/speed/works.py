"""Echo calls: one by one and at once, over stdio and HTTP."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from benchmarks.speed.clients import DEFAULTS, EACH_CALL, OURS, SDK, Client
from benchmarks.speed.figures import Figure, Wanted
from benchmarks.speed.rounds import SERVERS, Failures, Job, Samples, Target, measured, opened, stdio

Clients = Mapping[str, Client]

IN_FLIGHT = (16, 128)

WANTED_STDIO = (
    Wanted("stdio echo", "p50", OURS, 0.8),
    Wanted("stdio echo", "CPU", OURS, 0.8),
    Wanted("stdio echo", "calls/s at 128", OURS, least=3),
)
WANTED_HTTP = (
    Wanted("HTTP echo, JSON", "CPU", OURS, 1.05),
    Wanted("HTTP echo, SSE", "CPU", OURS, 0.85),
    Wanted("HTTP echo, JSON", "connections per call", OURS, 0.01, absolute=True),
    Wanted("HTTP echo, SSE", "connections per call", OURS, 0.01, absolute=True),
)

UNITS = {"p50": ("p50", "µs"), "p99": ("p99", "µs"), "cpu": ("CPU", "µs"), "rate 1": ("calls/s at 1", "")}
UNITS |= {f"rate {count}": (f"calls/s at {count}", "") for count in IN_FLIGHT}


def as_figures(work: str, samples: Samples, baseline: str = SDK) -> Iterable[Figure]:
    for key, by_client in samples.items():
        name, unit = UNITS[key]
        yield Figure(work, name, unit, baseline, by_client)


async def stdio_echo(clients: Clients, failures: Failures, rounds: int) -> list[Figure]:
    """One call at a time, then 16 and 128 at once."""
    jobs = [Job("sequential", ("p50", "p99", "cpu", "rate 1"), {"calls": 400})]
    jobs += [Job("flight", (f"rate {count}",), {"calls": 1_024, "in_flight": count}) for count in IN_FLIGHT]
    async with opened(_without(clients, EACH_CALL), stdio(), failures, "stdio echo") as drivers:
        samples = await measured(drivers, jobs, rounds)

    return list(as_figures("stdio echo", samples))


async def stdio_echo_of_64_kb(clients: Clients, failures: Failures, rounds: int) -> list[Figure]:
    """As large an argument and as large a result."""
    work = "stdio echo of 64 kB"
    jobs = [Job("sequential", ("p50", "cpu"), {"calls": 50, "size": 64_000})]
    async with opened(_without(clients, EACH_CALL, DEFAULTS), stdio(), failures, work) as drivers:
        return list(as_figures(work, await measured(drivers, jobs, rounds)))


def _without(clients: Clients, *names: str) -> Sequence[Client]:
    return [client for name, client in clients.items() if name not in names]


@asynccontextmanager
async def echo_over_http() -> AsyncIterator[str]:
    """The address of the HTTP echo server, for as long as the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVERS / "echo_http.py"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.stdin.close()
        await process.wait()


async def http_echo(clients: Clients, failures: Failures, rounds: int) -> list[Figure]:
    """One call at a time, answered as JSON and as an event; and the connections that took."""
    found: list[Figure] = []
    job = Job("sequential", ("p50", "p99", "cpu"), {"calls": 100})
    for title, path in (("HTTP echo, JSON", "/mcp"), ("HTTP echo, SSE", "/events")):
        async with echo_over_http() as address:
            target: Target = {"url": address + path}
            async with opened(_without(clients, EACH_CALL, DEFAULTS), target, failures, title) as drivers:
                found += as_figures(title, await measured(drivers, [job], rounds))
                connections: dict[str, list[float]] = {}
                for name, one in drivers.items():
                    before = await one.work("count")
                    await one.work("sequential", calls=100)
                    after = await one.work("count")
                    calls = after["calls"] - before["calls"]
                    connections[name] = [(after["connections"] - before["connections"]) / calls]

                found.append(Figure(title, "connections per call", "", SDK, connections))

    return found
