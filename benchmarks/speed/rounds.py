"""Rounds over the clients' processes: one measurement at a time, clients in turn, each round begun by another."""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from attrs import define, field, frozen

from benchmarks.compare.environments import ROOT
from benchmarks.speed.clients import Client, Driver, DriverError, driver

SERVERS = ROOT / "benchmarks" / "servers"
Target = Mapping[str, Any]
WARM_CALLS = 20
Samples = dict[str, dict[str, list[float]]]
"""By figure and client, one value a round."""


def stdio(*arguments: str) -> Target:
    """The echo server over stdio; without `site`, since it is started fifty times."""
    return {"command": sys.executable, "args": ["-S", "-E", str(SERVERS / "echo.py"), *arguments]}


@frozen
class Job:
    """Work of a driver; `figures`: which of its figures are kept."""

    work: str
    figures: tuple[str, ...]
    how: Mapping[str, Any] = field(factory=dict)


@define
class Failures:
    """Clients that did not do their job, and why; left out of what follows of that work."""

    # Mutable state: filled while measuring.
    reasons: dict[str, str] = field(factory=dict)

    def note(self, work: str, client: str, error: Exception) -> None:
        self.reasons[f"{client}, {work}"] = str(error)


def turns(names: Sequence[str], number: int) -> Sequence[str]:
    """The order of a round."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


@asynccontextmanager
async def opened(
    clients: Sequence[Client], server: Target, failures: Failures, work: str
) -> AsyncIterator[dict[str, Driver]]:
    """Every client over a server of its own (HTTP: the same one), warm. One that fails is noted and left out."""
    async with AsyncExitStack() as stack:
        drivers: dict[str, Driver] = {}
        for client in clients:
            one = await stack.enter_async_context(driver(client))
            try:
                await one.open([server])
                await one.work("sequential", calls=WARM_CALLS)
            except DriverError as error:
                failures.note(work, client.name, error)
            else:
                drivers[client.name] = one

        yield drivers
        for one in drivers.values():
            await one.close()


async def measured(
    drivers: dict[str, Driver], jobs: Sequence[Job] | Mapping[str, Sequence[Job]], rounds: int
) -> Samples:
    """The jobs, or those of each client, in each round."""
    samples: Samples = {}
    for number in range(rounds):
        for name in turns(list(drivers), number):
            for job in jobs[name] if isinstance(jobs, Mapping) else jobs:
                found = await drivers[name].work(job.work, **job.how)
                for figure in job.figures:
                    samples.setdefault(figure, {}).setdefault(name, []).append(found[figure])

    return samples
