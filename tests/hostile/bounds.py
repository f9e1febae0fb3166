"""What the tests of this folder share: short limits, a bound over every test, and waiting without sleeping."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from deputy_mcp import Limits, McpConnection, RestartPolicy, ServerStatus

BOUND_SECONDS = 20
"""No test waits longer than this, whatever the library does."""

AT_ONCE_SECONDS = 1.5
"""What must not wait for a deadline; far below the call timeout, and kind to a busy machine."""

QUICK = Limits(call_timeout_seconds=6, startup_timeout_seconds=6, shutdown_timeout_seconds=1)
EAGER = RestartPolicy(backoff_initial_seconds=0.01, backoff_max_seconds=0.05)
NEVER = RestartPolicy(when="never")


@asynccontextmanager
async def connected(
    servers: Mapping[str, Any], *, limits: Limits = QUICK, restart: RestartPolicy = EAGER, **options: Any
) -> AsyncIterator[McpConnection]:
    """A connection over `servers`, the whole block under the bound."""
    with anyio.fail_after(BOUND_SECONDS):
        async with McpConnection(servers, limits=limits, restart=restart, **options) as connection:
            yield connection


async def until(connection: McpConnection, reached: Callable[[Mapping[str, ServerStatus]], bool]) -> None:
    """Returns when the status is as wanted; looked at after each event."""
    async with aclosing(connection.events()) as events:  # type: ignore[type-var] # an async generator
        while not reached(connection.status()):
            await anext(events)


def is_alive(pid: int) -> bool:
    """Whether this process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False

    return state not in "ZX"


async def wait_gone(pid: int) -> None:
    """Returns when the process, which need not be a child of ours, has ended."""
    if is_alive(pid):
        fd = os.pidfd_open(pid)
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)
