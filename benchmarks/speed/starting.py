"""Starts: of servers, of a process that imports us; and what a server takes of memory while nothing happens."""

import asyncio
import subprocess
from collections.abc import Mapping

from benchmarks.speed.clients import DEFAULTS, EACH_CALL, ENVIRONMENT, OURS, SDK, Client, DriverError, driver
from benchmarks.speed.figures import Figure, Wanted
from benchmarks.speed.rounds import Failures, stdio, turns

Clients = Mapping[str, Client]

START = (1, 10, 50)

WANTED_STARTUP = (Wanted("startup", "50 servers", OURS, 1.15),)
WANTED_IMPORT = (Wanted("import", "CPU", OURS, 1.15),)


async def startup(clients: Clients, failures: Failures, rounds: int) -> list[Figure]:
    """Servers opened side by side in a fresh process: the very first, then 1, 10 and 50; and the memory 50 take."""
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    names = [name for name in clients if name not in (DEFAULTS, EACH_CALL)]
    for number in range(rounds):
        for name in turns(names, number):
            try:
                async with driver(clients[name]) as one:
                    found = {("the very first", "s"): (await one.open([stdio()]))["seconds"]}
                    await one.close()
                    resident: dict[int, int] = {}
                    for count in START:
                        opening = await one.open([stdio()] * count)
                        resident[count] = opening["resident"]
                        found[f"{count} servers", "s"] = opening["seconds"]
                        found[f"{count} servers, CPU", "s"] = opening["cpu"]
                        closing = await one.close()

                    found[f"{START[-1]} servers closed", "s"] = closing
                    found["memory per server", "kB"] = (resident[50] - resident[1]) / 49 / 1_000
            except DriverError as error:
                failures.note("startup", name, error)
                continue

            for key, value in found.items():
                samples.setdefault(key, {}).setdefault(name, []).append(value)

    return [
        Figure(
            "startup", what, unit, SDK, {name: values for name, values in by_client.items() if len(values) == rounds}
        )
        for (what, unit), by_client in samples.items()
    ]


IMPORTS = {
    SDK: "mcp",
    OURS: "deputy_mcp",
    "fastmcp": "fastmcp.client",
    "pydantic-ai-slim": "pydantic_ai.mcp",
    "openai-agents": "agents.mcp",
    "langchain-mcp-adapters": "langchain_mcp_adapters.client",
}
IMPORT = "import time; before = time.process_time(); import {}; print(time.process_time() - before)"


async def imports(clients: Clients, failures: Failures, rounds: int) -> list[Figure]:
    """The processor time of an import, in fresh processes."""
    samples: dict[str, list[float]] = {}
    names = [name for name in IMPORTS if name in clients]
    for number in range(-1, rounds):
        for name in turns(names, number):
            command = [clients[name].python, "-c", IMPORT.format(IMPORTS[name])]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, check=True, cwd="/", env=ENVIRONMENT
            )
            # The round before the first fills the caches of compiled files.
            if number >= 0:
                samples.setdefault(name, []).append(1_000 * float(done.stdout))

    return [Figure("import", "CPU", "ms", SDK, samples)]
