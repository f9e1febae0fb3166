"""The clients that are measured, each with its driver and the Python it runs in; and a driver's process."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from attrs import frozen

from benchmarks.compare.environments import FASTMCP, ROOT, Missing, Ready, installed

FLOOR, SDK, OURS, DEFAULTS, EACH_CALL = "floor", "bare SDK", "deputy_mcp", "… defaults", "… verify=call"
"""`OURS` has everything on, with `verify="change"`; the two others are the same client with other options."""

PEERS = {
    "fastmcp": ("fastmcp", FASTMCP, ""),
    "pydantic_ai": ("pydantic-ai-slim", "2.68.0", "[mcp]"),
    "openai_agents": ("openai-agents", "0.24.0", ""),
    "langchain": ("langchain-mcp-adapters", "0.3.2", ""),
}
"""Package, pin and extra of each, by the end of its driver's name."""

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | {
    "PYTHONPATH": str(ROOT),
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
"""Of a client's process. Nothing that changes how Python runs: without caches of compiled files an editable
installation would be compiled at each import, and packages that an installer compiled would not."""

STEP_SECONDS = 120.0
"""For one job of a driver. A client that takes longer is left out."""


class DriverError(Exception):
    """A client did not do its job."""


@frozen
class Client:
    """One column of the tables."""

    name: str
    python: str
    driver: str
    versions: str
    arguments: Sequence[str] = ()


def _here(name: str, driver: str, package: str, *arguments: str) -> Client:
    module = f"benchmarks.speed.drivers.{driver}"
    return Client(name, sys.executable, module, f"{package} {version(package)}", arguments)


def clients() -> tuple[dict[str, Client], dict[str, str]]:
    """Those that can be run, and the reason for each that cannot; installs what is missing."""
    found = {
        FLOOR: Client(FLOOR, sys.executable, "benchmarks.speed.drivers.with_floor", "asyncio and json"),
        SDK: _here(SDK, "with_sdk", "mcp"),
        OURS: _here(OURS, "with_deputy", "mcp-deputy"),
        DEFAULTS: _here(DEFAULTS, "with_deputy", "mcp-deputy", "defaults"),
        EACH_CALL: _here(EACH_CALL, "with_deputy", "mcp-deputy", "call"),
    }
    missing = {}
    for ending, (package, pin, extra) in PEERS.items():
        module = f"benchmarks.speed.drivers.with_{ending}"
        match installed(package, pin, module, extra=extra):
            case Ready(python=python, versions=versions):
                found[package] = Client(package, python, module, versions)
            case Missing(reason=reason):
                missing[package] = reason

    return found, missing


class Driver:
    """A client in its process."""

    def __init__(self, client: Client, process: asyncio.subprocess.Process) -> None:
        self._client = client
        self._process = process

    async def open(self, servers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Open these; `seconds`, `cpu` and the `resident` bytes afterwards."""
        return await self._job(do="open", servers=servers)

    async def work(self, work: str, **how: Any) -> dict[str, Any]:
        """`sequential`, `flight` or `count`; its figures."""
        return await self._job(do="work", work=work, **how)

    async def close(self) -> float:
        """Close what is open; the seconds it took."""
        return float((await self._job(do="close"))["seconds"])

    async def _job(self, **job: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), STEP_SECONDS)
        except TimeoutError:
            raise DriverError(f"{self._client.name}: {job['do']} took more than {STEP_SECONDS:g} s") from None

        if not line:
            raise DriverError(f"{self._client.name}: its driver ended at {job['do']}")

        return dict(json.loads(line))


@asynccontextmanager
async def driver(client: Client) -> AsyncIterator[Driver]:
    """A client's process, for as long as the block; what it says on stderr is thrown away."""
    process = await asyncio.create_subprocess_exec(
        client.python,
        "-m",
        client.driver,
        *client.arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        env=ENVIRONMENT,
        limit=1 << 20,
    )
    try:
        yield Driver(client, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()
