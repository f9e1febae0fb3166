"""HTTP servers as processes of their own: started, killed on a word or by themselves, and started again at their port.

The connection has no part in this: to it such a server is away for a while.
"""

import os
import random
import socket
from collections.abc import Iterator

import anyio

from deputy_mcp import HttpServer

from .behaviours import SSE
from .books import Ledger
from .plan import Planned

PORTS = range(21_000, 31_000)
"""Below what Linux gives to connecting sockets: a client that asks for a port where nobody listens could get that very
port for its own end, and talk to itself.
"""


def free_ports(count: int) -> list[int]:
    """Ports of loopback on which nobody listens now."""
    found: list[int] = []
    for port in _from(os.getpid()):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue

        found.append(port)
        if len(found) == count:
            return found

    raise OSError("there are not enough free ports")


def _from(start: int) -> Iterator[int]:
    for i in range(len(PORTS)):
        yield PORTS[(start * 97 + i) % len(PORTS)]


class Keeper:
    """Keeps one HTTP server running; `run` is a task's body."""

    # Mutable state: whether it is up; the word to kill it; whether it may stay away for a while after an end.
    def __init__(self, planned: Planned, port: int, ledger: Ledger, dice: random.Random) -> None:
        self.name = planned.name
        self.starts = 0
        self.up = anyio.Event()
        self.prompt = False
        """Start again at once, without a time of being away."""
        self._planned = planned
        self._port = port
        self._ledger = ledger
        self._dice = dice
        self._end = anyio.Event()

    def entry(self) -> HttpServer:
        """What the connection is given."""
        sse = self._planned.transport == SSE
        path = "/sse" if sse else "/mcp"
        return HttpServer(
            f"http://127.0.0.1:{self._port}{path}", transport="sse" if sse else "http", **self._planned.options
        )

    def kill(self) -> None:
        """SIGKILL, now."""
        self._end.set()

    async def run(self) -> None:
        while True:
            try:
                async with self._planned.script.http(port=self._port):
                    self.starts += 1
                    self._ledger.read()
                    self._end = anyio.Event()
                    self.up.set()
                    await self._ended(self._ledger.pids[-1])
                    self.up = anyio.Event()
            except anyio.EndOfStream:
                pass  # it ended before it listened

            if not self.prompt:
                await anyio.sleep(self._dice.choice([0, 0, 0.2, 1.5]))

    async def _ended(self, pid: int) -> None:
        """Return when the process ends by itself or shall end."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return

        async def watch() -> None:
            await anyio.wait_readable(fd)
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                await self._end.wait()
                tasks.cancel_scope.cancel()
        finally:
            os.close(fd)
