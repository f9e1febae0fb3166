"""What the tests of `processes/` and `runtime/` share: the ledger, entries for the small servers, and the witnesses of
"nothing left", which ask `/proc` and the event loop and not the library. Linux only.
"""

import asyncio
import fcntl
import functools
import gc
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import sniffio

from deputy_mcp import (
    HttpServer,
    Journal,
    Limits,
    McpConnection,
    McpTool,
    Permissions,
    RestartPolicy,
    ServerState,
    ServerStatus,
    StdioServer,
)
from deputy_mcp._core.audit import EventKind

SERVERS = Path(__file__).parent
MARK = "DEPUTY_MCP_TEST"
"""A variable given to every server; all that it starts inherits it."""

LIMITS = Limits(call_timeout_seconds=10, startup_timeout_seconds=10, shutdown_timeout_seconds=1)
FAST = RestartPolicy(backoff_initial_seconds=0.01, backoff_max_seconds=0.05)
PATIENT = RestartPolicy(backoff_initial_seconds=60, backoff_max_seconds=60)
"""A lost server stays BACKING_OFF for longer than any test."""
NEVER = RestartPolicy(when="never")

FULL: dict[str, Any] = {"permissions": Permissions.full(), "limits": LIMITS, "restart": FAST}
"""Options of a connection under which everything is allowed and nothing takes long."""

RICH: Mapping[str, Any] = {
    "name": "echo",
    "title": "Echo",
    "description": "says it again",
    "inputSchema": {
        "type": "object",
        "properties": {"x": {"type": "string", "description": "what", "enum": ["a", "b"], "default": "a"}},
        "required": ["x"],
        "$defs": {"d": {"const": 1}},
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"y": {"type": "integer", "minimum": 1}}},
    "annotations": {
        "title": "E",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    },
    "icons": [{"src": "https://example.org/i.png", "mimeType": "image/png"}],
    "_meta": {"example": "us"},
}
"""A tool with a bit of everything that a definition can hold."""


async def commit(journal: Journal, event: EventKind, **fields: Any) -> int:
    """What a call does with its line: announced, in one turn with others', and secured; withdrawn when it leaves."""
    line = journal.announce(event, **fields)
    try:
        await anyio.lowlevel.checkpoint()
    except BaseException:
        journal.withdraw(line)
        raise

    return journal.secure(line, **fields)


def within(seconds: float) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """The bound of a test: past it, it has failed."""

    def wrap(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(test)
        async def bounded(*args: Any, **kwargs: Any) -> None:
            with anyio.fail_after(seconds):
                await test(*args, **kwargs)

        return bounded

    return wrap


class Ledger:
    """What happened to the servers of a test, in their own words: lines of JSON in a named pipe."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # For writing as well, so that it never ends however many servers come and go.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 1024 * 1024)
        self._rest = b""
        self._entries: list[dict[str, Any]] = []

    def close(self) -> None:
        os.close(self._fd)

    def read(self, event: str | None = None, **facts: Any) -> list[dict[str, Any]]:
        """Everything written until now that fits."""
        while True:
            try:
                chunk = os.read(self._fd, 1024 * 1024)
            except BlockingIOError:
                break

            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._entries += map(json.loads, lines)

        wanted = facts if event is None else {"event": event, **facts}
        return [entry for entry in self._entries if wanted.items() <= entry.items()]

    async def wait(self, event: str, *, count: int = 1, **facts: Any) -> dict[str, Any]:
        """Return the `count`-th entry that fits, once it is written."""
        while len(found := self.read(event, **facts)) < count:
            await anyio.wait_readable(self._fd)

        return found[count - 1]

    async def wait_call(self, tool: str, *, count: int = 1) -> dict[str, Any]:
        """The `count`-th call of `tool`, once it has reached a server."""
        return await self.wait("got", method="tools/call", tool=tool, count=count)

    def calls(self, *tools: str) -> list[tuple[str, str]]:
        """The calls that reached a server, as tool and arguments."""
        entries = self.read("got", method="tools/call")
        return [(e["tool"], e["arguments"]) for e in entries if not tools or e["tool"] in tools]


@dataclass
class Bench:
    """One test's ledger and mark."""

    ledger: Ledger
    mark: str

    def config(self, behaviour: Mapping[str, Any]) -> str:
        return json.dumps({"ledger": str(self.ledger.path)} | dict(behaviour))

    def stdio(self, behaviour: Mapping[str, Any] | None = None, **fields: Any) -> StdioServer:
        """The raw stdio server, told what to do."""
        args = ("-S", "-E", str(SERVERS / "raw_stdio.py"), self.config(behaviour or {}))
        return StdioServer(sys.executable, args=args, env={MARK: self.mark}, **fields)

    def sdk(self, **fields: Any) -> StdioServer:
        """The server on the SDK's `MCPServer`."""
        args = (str(SERVERS / "sdk_server.py"), "stdio")
        return StdioServer(sys.executable, args=args, env={MARK: self.mark}, **fields)

    @asynccontextmanager
    async def http(self, behaviour: Mapping[str, Any] | None = None) -> AsyncIterator["HttpProcess"]:
        """The raw HTTP server, listening."""
        seen = len(self.ledger.read("listening"))
        command = [sys.executable, "-S", "-E", str(SERVERS / "raw_http.py"), self.config(behaviour or {})]
        async with self._running(command):
            entry = await self.ledger.wait("listening", count=seen + 1)
            yield HttpProcess(f"http://127.0.0.1:{entry['port']}/mcp", entry["port"], entry["pid"])

    @asynccontextmanager
    async def sdk_http(self) -> AsyncIterator["HttpProcess"]:
        """The server on the SDK's `MCPServer`, listening."""
        command = [sys.executable, str(SERVERS / "sdk_server.py"), "http", str(self.ledger.path)]
        async with self._running(command):
            entry = await self.ledger.wait("listening")
            yield HttpProcess(f"http://127.0.0.1:{entry['port']}/mcp", entry["port"], entry["pid"])

    @asynccontextmanager
    async def _running(self, command: list[str]) -> AsyncIterator[None]:
        process = await anyio.open_process(
            command, stdin=PIPE, stdout=None, stderr=None, env={**os.environ, MARK: self.mark}
        )
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()

                await process.aclose()

    def living(self) -> set[int]:
        """The living processes of this test's servers, found by parentage and by the mark."""
        return living(self.mark)


@dataclass
class HttpProcess:
    """A listening server."""

    url: str
    port: int
    pid: int

    def server(self, **fields: Any) -> HttpServer:
        return HttpServer(self.url, **fields)


# -- looking at a connection -------------------------------------------------------------------------------------


def handle(connection: McpConnection, server: str, tool: str) -> McpTool:
    """The handle on one tool."""
    (found,) = [each for each in connection.tools(server) if each.tool == tool]
    return found


async def reaches(connection: McpConnection, server: str, *states: ServerState) -> ServerStatus:
    """The status of a server, once it stands in one of `states`."""
    return await until(connection, server, lambda status: status.state in states)


async def until(connection: McpConnection, server: str, holds: Callable[[ServerStatus], bool]) -> ServerStatus:
    """The status of a server, once `holds`; looked at after every event."""
    async with aclosing(connection.events()) as events:
        # Between looking and listening nothing can happen: a generator runs to its first wait at once.
        while not holds(status := connection.status()[server]):
            await anext(events)

    return status


# -- witnesses ---------------------------------------------------------------------------------------------------


def living(mark: str) -> set[int]:
    """Processes that live (a zombie does not) and descend from this one or carry the mark."""
    parents: dict[int, int] = {}
    alive: set[int] = set()
    marked: set[int] = set()
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue

        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            environ = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended while we looked, or is somebody else's

        pid = int(entry.name)
        parents[pid] = int(fields[1])
        # A worker of `anyio.to_process` belongs to the event loop and ends with it; it is no server.
        if fields[0] not in "ZX" and b"anyio.to_process" not in command:
            alive.add(pid)

        if needle in environ:
            marked.add(pid)

    ours = {pid for pid in alive if pid in marked or os.getpid() in _ancestors(pid, parents)}
    return ours - {os.getpid()}


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)

    return found


async def gone(pids: set[int], *, within_seconds: float = 1) -> set[int]:
    """Those of `pids` that still live after so long; what was killed may need a moment to be taken down."""
    with anyio.move_on_after(within_seconds):
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue

            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)

        return set()

    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def descriptors() -> dict[int, str]:
    """The open file descriptors of this process and what they are."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the folder's own

    return found


@dataclass
class Belongings:
    """What this process holds: tasks, threads, descriptors, children."""

    tasks: set[Any]
    threads: set[threading.Thread]
    descriptors: dict[int, str]
    living: set[int]

    @classmethod
    def now(cls, mark: str) -> "Belongings":
        tasks: set[Any] = asyncio.all_tasks() if sniffio.current_async_library() == "asyncio" else set()
        return cls(tasks, set(threading.enumerate()), descriptors(), living(mark))


async def left_since(before: Belongings, mark: str) -> list[str]:
    """What is there that was not there before, one line each."""
    left = await _left_since(before, mark)
    if left:
        # What hangs in a cycle is only waiting for the collector; running it after each test would double their time.
        gc.collect()
        left = await _left_since(before, mark)

    return left


async def _left_since(before: Belongings, mark: str) -> list[str]:
    for _ in range(10):
        # Closed sockets and finished tasks are dropped by the loop's next turns.
        await anyio.lowlevel.checkpoint()

    for thread in set(threading.enumerate()) - before.threads:
        if thread.name.startswith(("asyncio-waitpid", "waitpid")):
            thread.join(1)  # the loop's own watcher of a child that ended

    now = Belongings.now(mark)
    # A worker thread belongs to the event loop and ends with it.
    threads = [t for t in now.threads - before.threads if not t.name.startswith(("AnyIO worker", "Trio thread"))]
    return [
        *(f"task {task!r}" for task in now.tasks - before.tasks if not task.done() and "TestRunner" not in repr(task)),
        *(f"thread {thread!r}" for thread in threads),
        # By number: uvloop replaces a socket pair of its own at each turn of the runner.
        *(f"descriptor {fd}: {what}" for fd, what in now.descriptors.items() if fd not in before.descriptors),
        *(f"process {pid}" for pid in await gone(now.living - before.living, within_seconds=0.2)),
    ]
